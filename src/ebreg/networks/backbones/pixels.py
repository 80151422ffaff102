"""PixelUnits: pixel values from 0 to 255 in the units of a backbone."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ebreg._utils import checks

# Mean and standard deviation of red, green and blue in ImageNet, where 1 is the brightest value.
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


class PixelUnits(nn.Module):
    """Pixel values from 0 to 255 as (value - shift) / scale, with a shift and scale per channel.

    It is the ``x_units`` of a model, or comes before a network in an ``nn.Sequential``.

    Args:
        shift: For red, green and blue, in pixel values.
        scale: For red, green and blue, above 0.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Sequence[float], scale: Sequence[float]):
        super().__init__()
        self._image_shape: tuple[int, ...] | None = None
        for name, values in (("shift", shift), ("scale", scale)):
            tensor = torch.tensor(values, dtype=torch.float32)
            checks.shape(name, tensor, (3,))
            checks.finite(name, tensor)
            self.register_buffer(name, tensor)
        if not (self.scale > 0).all():
            raise ValueError(f"scale must be above 0 for every channel, got {self.scale.tolist()}")

    @classmethod
    def imagenet(cls) -> "PixelUnits":
        """The units of most networks trained on ImageNet: standardised by its mean and deviation."""
        return cls([255 * mean for mean in _MEAN], [255 * deviation for deviation in _DEVIATION])

    @classmethod
    def efficientnet_lite(cls) -> "PixelUnits":
        """The units of EfficientNet-Lite: from about -1 to 1."""
        return cls((127.0,) * 3, (128.0,) * 3)

    def expect(self, image_shape: Sequence[int]) -> "PixelUnits":
        """Require images of the shape and type that the model was trained on; others are an error.

        Args:
            image_shape: (C, H, W); the values must be whole numbers, as in image files.
        """
        self._image_shape = tuple(image_shape)
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Whole or real numbers (B, C, H, W), C = 1 or 3 -> (B, 3, H, W); grey is repeated.

        The result is in float32, or in the precision of the module.
        """
        if images.dim() != 4 or images.shape[1] not in (1, 3):
            raise ValueError(
                f"images must have shape (B, C, H, W) with C = 1 or 3, got {tuple(images.shape)}; channels "
                "come before rows and columns, also the single one of grey images"
            )
        if self._image_shape is not None:
            self._check(images, self._image_shape)
        # A single channel is broadcast to three by the shifts and scales.
        return (images.to(self.shift.dtype) - self.shift[:, None, None]) / self.scale[:, None, None]

    def _check(self, images: Tensor, expected: tuple[int, ...]) -> None:
        found = tuple(images.shape[1:])
        if found != expected:
            raise ValueError(
                f"the model was trained on images (C, H, W) = {expected}, got {found}; convert them to this "
                "shape first"
            )
        if images.is_floating_point():
            raise ValueError(
                f"the model takes pixels as whole numbers from 0 to 255, got {images.dtype}; convert values "
                "from 0 to 1 by (255 * images).round().to(torch.uint8)"
            )
        if images.numel() and not 0 <= images.amin() <= images.amax() <= 255:
            raise ValueError(
                f"the model takes pixels from 0 to 255, got {images.amin()} to {images.amax()}; "
                "scale them first"
            )
