"""Registry of backbones: networks for images by name."""

from functools import lru_cache

from ebreg._utils import checks
from ebreg._utils.random_state import seeded
from ebreg.networks.backbones.backbone import Backbone
from ebreg.networks.backbones.efficientnet import efficientnet_lite0
from ebreg.networks.backbones.libraries import LIBRARIES
from ebreg.networks.backbones.pixels import PixelUnits
from ebreg.networks.backbones.resnet import resnet18
from ebreg.networks.backbones.small import small_cnn

_ALL = (
    Backbone("resnet18", resnet18, PixelUnits.imagenet, n_features=512),
    Backbone(
        "efficientnet-lite0",
        efficientnet_lite0,
        PixelUnits.efficientnet_lite,
        n_features=1280,
        pretrained=True,
    ),
    Backbone("small-cnn", small_cnn, PixelUnits.imagenet, n_features=128),
)
BACKBONES: dict[str, Backbone] = {backbone.name: backbone for backbone in _ALL}
# For options and messages.
NAMES = (*BACKBONES, *(f"{library}:NAME" for library in LIBRARIES))


@lru_cache(maxsize=16)
def find(name: str) -> Backbone:
    """A backbone by its name.

    Args:
        name: One of ``BACKBONES``, or one of another library, such as ``"torchvision:resnet50"`` or
            ``"timm:convnext_tiny"``.

    Raises:
        ImportError: If that library is not installed.
    """
    library, colon, rest = name.partition(":")
    if colon and library in LIBRARIES:
        with seeded(0):  # a network is built to count its features: keep the global random state
            return LIBRARIES[library](rest)
    checks.one_of("the backbone", name, NAMES)
    return BACKBONES[name]
