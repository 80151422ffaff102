"""Networks of torchvision and timm, where these are installed, without their classifiers."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from ebreg.networks.backbones.backbone import DOWNLOAD, Backbone
from ebreg.networks.backbones.files import fill
from ebreg.networks.backbones.pixels import PixelUnits


def from_torchvision(name: str, weights: str | None = None) -> nn.Module:
    """A classifier of torchvision for images (B, 3, H, W), up to what goes into its last layer, (B, H).

    Args:
        name: As ``torchvision.models.get_model`` knows it, such as ``"resnet50"``.
        weights: As torchvision names them, such as ``"DEFAULT"``, which it may have to download. None: random
            weights.

    Returns:
        The network, in training mode, with the number of its features as ``n_features``.

    Raises:
        ImportError: If torchvision is not installed, or does not go with this torch.
        ConnectionError: If it cannot download the weights.
    """
    return without_classifier(_made("torchvision.models", "get_model", name, weights=weights))


def from_timm(name: str, pretrained: bool = False) -> nn.Module:
    """A network of timm for images (B, 3, H, W), without its classifier: features (B, H).

    Args:
        name: As ``timm.create_model`` knows it, such as ``"convnext_tiny"``.
        pretrained: Whether timm brings trained weights, which it may have to download; else they are random.

    Returns:
        The network, in training mode, with the number of its features as ``n_features``.

    Raises:
        ImportError: If timm is not installed, or does not go with this torch.
        ConnectionError: If it cannot download the weights.
    """
    network = _made("timm", "create_model", name, pretrained=pretrained, num_classes=0)
    # Some have one more layer between the features that timm counts and those that come out.
    network.n_features = getattr(network, "head_hidden_size", network.num_features)
    network.left_out = _beginnings(network.pretrained_cfg.get("classifier"))
    return network


def without_classifier(network: Any) -> nn.Module:
    """Take the last linear layer off a classifier, in place: what went into it are the features (B, H)."""
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            f"{type(network).__name__} has no linear layer to take off; wrap the network in a module of "
            "your own that gives features (B, H)"
        )
    name, last = layers[-1]
    network.set_submodule(name, nn.Identity())
    network.n_features = last.in_features
    network.left_out = _beginnings(name)
    return network


def _of_torchvision(name: str) -> Backbone:
    def network(weights: str | Path | None = None) -> Any:
        return _filled(from_torchvision(name, "DEFAULT" if weights == DOWNLOAD else None), weights)

    n_features = network().n_features
    return Backbone(f"torchvision:{name}", network, PixelUnits.imagenet, n_features, downloads=True)


def _of_timm(name: str) -> Backbone:
    def network(weights: str | Path | None = None) -> Any:
        return _filled(from_timm(name, pretrained=weights == DOWNLOAD), weights)

    first = network()
    mean, deviation = (first.pretrained_cfg[part] for part in ("mean", "std"))
    units = partial(PixelUnits, [255 * value for value in mean], [255 * value for value in deviation])
    return Backbone(f"timm:{name}", network, units, first.n_features, downloads=True)


# Backbones by the name that they have in a library.
LIBRARIES: dict[str, Callable[[str], Backbone]] = {"torchvision": _of_torchvision, "timm": _of_timm}


def _filled(network: Any, weights: str | Path | None) -> Any:
    if weights not in (None, DOWNLOAD):
        fill(network, weights, ignored=network.left_out)
    return network


def _beginnings(layers: str | tuple[str, ...] | None) -> tuple[str, ...]:
    # Of the names that the classifier's weights have in a file.
    layers = (layers,) if isinstance(layers, str) else layers or ()
    return tuple(f"{layer}." for layer in layers)


def _made(module: str, function: str, name: str, **options: Any) -> Any:
    library = module.partition(".")[0]
    make = getattr(_library(module), function)
    try:
        return make(name, **options)
    except OSError as error:
        raise ConnectionError(
            f"{library} could not get the weights of {name} ({error}); give the path of a checkpoint instead"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"{library} cannot make {name!r} ({error}); {module}.list_models() lists its names"
        ) from error


def _library(module: str) -> Any:
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # the last two: built for another torch
        raise ImportError(
            f"{library} cannot be imported ({type(error).__name__}: {error}): pip install ebreg[{library}]"
        ) from error
