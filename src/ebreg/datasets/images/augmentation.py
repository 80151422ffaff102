"""Head poses seen anew: mirrored, larger or smaller, and moved."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ebreg import checks

# Yaw and roll change sign in a mirror; pitch, between them, does not.
_SIGNS = (-1.0, 1.0, -1.0)


@dataclass(frozen=True)
class HeadPoseAugmentation:
    """The paper's augmentation of head poses, as a function of uniform numbers.

    A picture is mirrored with probability 1/2, rescaled, filled up with zeros to the lower right if it is too
    small, and cropped at random. The numbers are handed in, so a training does not depend on how many
    processes prepare its pictures. Pictures and poses that come in stay as they are: the authors flip signs
    in the stored poses themselves, so theirs change from epoch to epoch.

    Attributes:
        size: Height and width of what comes out.
        scales: Factors, each as likely as the others.
        n_points: Uniform numbers for each picture: mirror, scale, and the crop's top and left.
    """

    size: int = 64
    scales: tuple[float, ...] = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5)
    n_points: ClassVar[int] = 4

    def __call__(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Augment a batch.

        Args:
            x: Pictures, uint8, shape (B, C, H, W).
            y: Yaw, pitch and, if there is a third, roll, shape (B, 2) or (B, 3).
            u: Numbers in [0, 1), shape (B, n_points).

        Returns:
            New pictures, uint8, shape (B, C, size, size), and new poses in the shape of y.
        """
        self._check(x, y, u)
        mirror, scale, top, left = u.to(x.device).unbind(1)
        flipped = mirror < 0.5
        signs = torch.tensor(_SIGNS[: y.shape[1]], dtype=y.dtype, device=y.device)
        poses = torch.where(flipped.to(y.device)[:, None], y * signs, y)
        pictures = torch.where(flipped[:, None, None, None], x.flip(-1), x)
        seen = x.new_empty(*x.shape[:2], self.size, self.size)
        choice = _choose(scale, len(self.scales))
        # The rows of one scale have one size, so they are resized together.
        for i in choice.unique().tolist():
            rows = (choice == i).nonzero()[:, 0]
            resized = self._resize(pictures[rows], self.scales[i])
            seen[rows] = self._crop(resized, top[rows], left[rows])
        return seen, poses

    def _resize(self, x: Tensor, scale: float) -> Tensor:
        H, W = (round(scale * side) for side in x.shape[2:])
        # As the authors, without a filter against aliasing.
        resized = nn.functional.interpolate(x.float(), size=(H, W), mode="bilinear", align_corners=False)
        resized = resized.round().clamp(0, 255).to(torch.uint8)
        return nn.functional.pad(resized, (0, max(self.size - W, 0), 0, max(self.size - H, 0)))

    def _crop(self, x: Tensor, top: Tensor, left: Tensor) -> Tensor:
        B, C, H, W = x.shape
        side = torch.arange(self.size, device=x.device)
        rows = _choose(top, H - self.size + 1)[:, None] + side
        columns = _choose(left, W - self.size + 1)[:, None] + side
        picture = torch.arange(B, device=x.device)[:, None, None, None]
        channel = torch.arange(C, device=x.device)[:, None, None]
        return x[picture, channel, rows[:, None, :, None], columns[:, None, None, :]]

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


def _choose(u: Tensor, n: int) -> Tensor:
    # In float64 no u below 1 is rounded up to n.
    return (u.double() * n).long()
