"""BACKBONES: the networks for images by name, beside those of other libraries."""

from functools import lru_cache

from ebreg import checks
from ebreg.backbones.backbone import Backbone
from ebreg.backbones.efficientnet import efficientnet_lite0
from ebreg.backbones.libraries import LIBRARIES
from ebreg.backbones.pixels import PixelUnits
from ebreg.backbones.resnet import resnet18
from ebreg.backbones.small import small_cnn
from ebreg.randomness import seeded

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
# As options and messages list them.
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
        with seeded(0):  # a look at its features is no reason to change anybody's random numbers
            return LIBRARIES[library](rest)
    checks.one_of("the backbone", name, NAMES)
    return BACKBONES[name]
