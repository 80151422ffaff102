r"""Poses of the solid as three angles in degrees: yaw, pitch and roll.

In the picture x points right, y up and z to the viewer. A point p of the solid is seen at R p, where

.. math:: R = R_z(\text{roll})\, R_x(\text{pitch})\, R_y(\text{yaw})

and each factor turns counter-clockwise when its axis points at the viewer. So positive yaw turns the front to
the viewer's right, positive pitch bows the top towards the viewer, and positive roll tilts it to the left.
"""

import torch
from torch import Tensor

from ebreg._utils import checks

# Largest angles of the data, in degrees, of either sign: about those of a head in front of a camera.
YAW, PITCH, ROLL = 90.0, 60.0, 45.0


def rotation(pose: Tensor) -> Tensor:
    """Rotation matrices R of poses.

    Args:
        pose: Yaw, pitch and roll in degrees, shape (n, 3).

    Returns:
        Shape (n, 3, 3), in float64.
    """
    yaw, pitch, roll = torch.deg2rad(check_poses(pose)).unbind(1)
    return _turn(roll, 0, 1) @ _turn(pitch, 1, 2) @ _turn(yaw, 2, 0)


def _turn(angle: Tensor, first: int, second: int) -> Tensor:
    """Turn the axis ``first`` towards the axis ``second``."""
    R = torch.eye(3, dtype=angle.dtype).repeat(len(angle), 1, 1)
    R[:, first, first] = R[:, second, second] = angle.cos()
    R[:, second, first] = angle.sin()
    R[:, first, second] = -angle.sin()
    return R


def equivalent_poses(pose: Tensor) -> Tensor:
    """The two poses in the range of the data that look the same while the mark is hidden.

    Without its mark the solid is the same after a quarter turn about its own vertical axis, which adds 90
    degrees to the yaw. The range of yaw is two quarter turns wide, so every pose has one twin in it.

    Args:
        pose: Yaw, pitch and roll in degrees, shape (n, 3), with yaw from -90 to 90.

    Returns:
        Each pose and its twin, shape (n, 2, 3), in float64.
    """
    pose = check_poses(pose)
    yaw = pose[:, 0]
    if (yaw.abs() > YAW).any():
        raise ValueError(
            f"yaw must lie in [{-YAW:g}, {YAW:g}], got {yaw[yaw.abs() > YAW][0].item():g}; "
            "beyond it a pose is not one of the data"
        )
    twin = pose.clone()
    twin[:, 0] = torch.where(yaw > 0, yaw - 90, yaw + 90)
    return torch.stack([pose, twin], dim=1)


def mark_is_hidden(pose: Tensor) -> Tensor:
    """Whether the top of the solid, and so the mark on it, is turned away from the viewer.

    Args:
        pose: Yaw, pitch and roll in degrees, shape (n, 3).

    Returns:
        Shape (n,), in bool.
    """
    return rotation(pose)[:, 2, 1] <= 0


def check_poses(pose: Tensor) -> Tensor:
    """Require finite angles of shape (n, 3); returns them in float64."""
    pose = checks.numbers("pose", pose)
    checks.shape("pose", pose, ("n", 3))
    checks.finite("pose", pose)
    return pose.double()
