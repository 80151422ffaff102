"""HeadPoseAugmentation: random mirroring, scaling and cropping of head poses."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ebreg._utils import checks

# Yaw and roll change sign in a mirror; pitch, between them, does not.
_SIGNS = (-1.0, 1.0, -1.0)
_SMALLEST_SCALE = 0.1


@dataclass(frozen=True)
class HeadPoseAugmentation:
    """The paper's augmentation of head poses, as a function of uniform random numbers.

    An image is mirrored with probability 1/2, rescaled, padded with zeros at the lower right if it is too
    small, and cropped at random to its original size. The random numbers are arguments, so a training does
    not depend on the number of processes. The given images and poses are not changed; the authors flip signs
    in the stored poses, so that theirs change from epoch to epoch.

    Attributes:
        scales: Scale factors, with equal probabilities.
        n_points: Random numbers per image: mirror, scale, and the crop's top and left.
    """

    scales: tuple[float, ...] = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
    n_points: ClassVar[int] = 4

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) < _SMALLEST_SCALE:
            raise ValueError(f"give one scale or more, each at least {_SMALLEST_SCALE:g}; got {self.scales}")

    def __call__(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Augment a batch.

        Args:
            x: Images, uint8, shape (B, C, H, W).
            y: Yaw, pitch and, if there is a third, roll, shape (B, 2) or (B, 3).
            u: Numbers in [0, 1), shape (B, n_points).

        Returns:
            New images, uint8, and new poses, in the shapes of x and y.
        """
        self._check(x, y, u)
        mirror, scale, top, left = u.to(x.device).unbind(1)
        flipped = mirror < 0.5
        signs = torch.tensor(_SIGNS[: y.shape[1]], dtype=y.dtype, device=y.device)
        poses = torch.where(flipped.to(y.device)[:, None], y * signs, y)
        mirrored = torch.where(flipped[:, None, None, None], x.flip(-1), x)
        seen = torch.empty_like(x)
        choice = _choose(scale, len(self.scales))
        # Images of one scale have one size, so they are resized together.
        for i in choice.unique().tolist():
            rows = (choice == i).nonzero()[:, 0]
            resized = _resize(mirrored[rows], self.scales[i])
            seen[rows] = _crop(resized, x.shape[2:], top[rows], left[rows])
        return seen, poses

    def _check(self, x: Tensor, y: Tensor, u: Tensor) -> None:
        checks.shape("x", x, ("B", "C", "H", "W"))
        if x.dtype != torch.uint8:
            raise TypeError(f"x must hold uint8, got {x.dtype}; augment before images are standardised")
        checks.shape("y", y, (len(x), "D"))
        if y.shape[1] not in (2, 3):
            raise ValueError(f"y must have the columns yaw, pitch and perhaps roll, got {y.shape[1]} columns")
        checks.shape("u", u, (len(x), self.n_points))
        if not ((u >= 0) & (u < 1)).all():
            raise ValueError("u must lie in [0, 1)")


def _resize(x: Tensor, scale: float) -> Tensor:
    sides = [round(scale * side) for side in x.shape[2:]]
    # Without antialiasing, like the authors.
    resized = nn.functional.interpolate(x.float(), size=sides, mode="bilinear", align_corners=False)
    resized = resized.round().clamp(0, 255).to(torch.uint8)
    missing = [max(old - new, 0) for old, new in zip(x.shape[2:], sides, strict=True)]
    return nn.functional.pad(resized, (0, missing[1], 0, missing[0]))


def _crop(x: Tensor, size: torch.Size, top: Tensor, left: Tensor) -> Tensor:
    B, C, *sides = x.shape
    first = [_choose(u, side - kept + 1) for u, side, kept in zip((top, left), sides, size, strict=True)]
    rows, columns = (
        at[:, None] + torch.arange(kept, device=x.device) for at, kept in zip(first, size, strict=True)
    )
    image = torch.arange(B, device=x.device)[:, None, None, None]
    channel = torch.arange(C, device=x.device)[:, None, None]
    return x[image, channel, rows[:, None, :, None], columns[:, None, None, :]]


def _choose(u: Tensor, n: int) -> Tensor:
    # In float64, u * n of u below 1 is not rounded up to n.
    return (u.double() * n).long()
