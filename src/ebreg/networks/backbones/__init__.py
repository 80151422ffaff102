"""Backbones: networks from images to features (B, H), for models and regressors.

Each takes images (B, 3, H, W) in its own units, into which :class:`PixelUnits` converts pixel values; the
number of features is ``n_features``. Packages other than torch are imported when a network is built.
"""

from ebreg.networks.backbones.backbone import DOWNLOAD, Backbone
from ebreg.networks.backbones.efficientnet import efficientnet_lite0
from ebreg.networks.backbones.libraries import from_timm, from_torchvision
from ebreg.networks.backbones.pixels import PixelUnits
from ebreg.networks.backbones.registry import BACKBONES, NAMES, find
from ebreg.networks.backbones.resnet import resnet18
from ebreg.networks.backbones.small import small_cnn

__all__ = [
    "BACKBONES",
    "DOWNLOAD",
    "NAMES",
    "Backbone",
    "PixelUnits",
    "efficientnet_lite0",
    "find",
    "from_timm",
    "from_torchvision",
    "resnet18",
    "small_cnn",
]
