"""Networks of torchvision and timm without their classifiers."""

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
    """A torchvision classifier without its last layer: images (B, 3, H, W) to features (B, H).

    Args:
        name: Name for ``torchvision.models.get_model``, such as ``"resnet50"``.
        weights: Name of torchvision's weights, such as ``"DEFAULT"``, which it may have to download. None:
            random weights.

    Returns:
        The network, in training mode, with the number of its features as ``n_features``.

    Raises:
        ImportError: If torchvision is not installed, or not compatible with this torch.
        ConnectionError: If it cannot download the weights.
    """
    return without_classifier(_build("torchvision.models", "get_model", name, weights=weights))


def from_timm(name: str, pretrained: bool = False) -> nn.Module:
    """A timm network without its classifier: images (B, 3, H, W) to features (B, H).

    Args:
        name: Name for ``timm.create_model``, such as ``"convnext_tiny"``.
        pretrained: Whether to use timm's trained weights, which it may have to download; else random ones.

    Returns:
        The network, in training mode, with the number of its features as ``n_features``.

    Raises:
        ImportError: If timm is not installed, or not compatible with this torch.
        ConnectionError: If it cannot download the weights.
    """
    network = _build("timm", "create_model", name, pretrained=pretrained, num_classes=0)
    # Some networks have one more layer after the features that ``num_features`` counts.
    network.n_features = getattr(network, "head_hidden_size", network.num_features)
    network.left_out = _prefixes(network.pretrained_cfg.get("classifier"))
    return network


def without_classifier(network: Any) -> nn.Module:
    """Remove the last linear layer of a classifier, in place; its inputs are the features (B, H)."""
    layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ValueError(
            f"{type(network).__name__} has no linear layer to remove; wrap the network in a module that "
            "returns features (B, H)"
        )
    name, last = layers[-1]
    network.set_submodule(name, nn.Identity())
    network.n_features = last.in_features
    network.left_out = _prefixes(name)
    return network


def _of_torchvision(name: str) -> Backbone:
    def network(weights: str | Path | None = None) -> Any:
        return _with_weights(from_torchvision(name, "DEFAULT" if weights == DOWNLOAD else None), weights)

    n_features = network().n_features
    return Backbone(f"torchvision:{name}", network, PixelUnits.imagenet, n_features, downloads=True)


def _of_timm(name: str) -> Backbone:
    def network(weights: str | Path | None = None) -> Any:
        return _with_weights(from_timm(name, pretrained=weights == DOWNLOAD), weights)

    first = network()
    mean, deviation = (first.pretrained_cfg[part] for part in ("mean", "std"))
    units = partial(PixelUnits, [255 * value for value in mean], [255 * value for value in deviation])
    return Backbone(f"timm:{name}", network, units, first.n_features, downloads=True)


# From the name of a network in a library to its backbone.
LIBRARIES: dict[str, Callable[[str], Backbone]] = {"torchvision": _of_torchvision, "timm": _of_timm}


def _with_weights(network: Any, weights: str | Path | None) -> Any:
    if weights not in (None, DOWNLOAD):
        fill(network, weights, ignored=network.left_out)
    return network


def _prefixes(layers: str | tuple[str, ...] | None) -> tuple[str, ...]:
    # Prefixes of the names that the classifier's weights have in a file.
    layers = (layers,) if isinstance(layers, str) else layers or ()
    return tuple(f"{layer}." for layer in layers)


def _build(module: str, function: str, name: str, **options: Any) -> Any:
    library = module.partition(".")[0]
    make = getattr(_library(module), function)
    try:
        return make(name, **options)
    except OSError as error:
        raise ConnectionError(
            f"{library} could not download the weights of {name} ({error}); give the path of a checkpoint"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"{library} cannot build {name!r} ({error}); {module}.list_models() lists its names"
        ) from error


def _library(module: str) -> Any:
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # the last two: built for another torch
        raise ImportError(
            f"{library} cannot be imported ({type(error).__name__}: {error}): pip install ebreg[{library}]"
        ) from error
