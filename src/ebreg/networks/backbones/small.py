"""SmallCNN: a small network for tests, examples and first experiments."""

from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

from ebreg.networks.backbones.files import fill

_CHANNELS = (3, 16, 32, 64, 128)


class SmallCNN(nn.Module):
    """Images (B, 3, H, W) of any size to features (B, 128); see :func:`small_cnn`."""

    n_features = _CHANNELS[-1]

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(_block(*channels) for channels in pairwise(_CHANNELS)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 128)."""
        return self.blocks(x).mean(dim=(2, 3))


def _block(n_in: int, n_out: int) -> nn.Module:
    # Batch-norm has a bias, so the convolution needs none.
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(n_out),
        nn.ReLU(),
    )


def small_cnn(weights: str | Path | None = None) -> SmallCNN:
    """Four convolutions with batch-norm, each halving the image: 128 features, about 100,000 parameters.

    Args:
        weights: A ``.safetensors``, ``.pth`` or ``.pt`` file with the state dict of such a network. None:
            random weights.

    Returns:
        The network, in training mode.
    """
    network = SmallCNN()
    if weights is not None:
        fill(network, weights)
    return network
