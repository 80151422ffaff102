"""Networks of torchvision and timm, where these are installed, without their classifiers."""

from importlib import import_module
from typing import Any

from torch import nn


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
    """
    return without_classifier(_library("torchvision.models").get_model(name, weights=weights))


def from_timm(name: str, pretrained: bool = False) -> nn.Module:
    """A network of timm for images (B, 3, H, W), without its classifier: features (B, H).

    Args:
        name: As ``timm.create_model`` knows it, such as ``"convnext_tiny"``.
        pretrained: Whether timm brings trained weights, which it may have to download; else they are random.

    Returns:
        The network, in training mode, with the number of its features as ``n_features``.

    Raises:
        ImportError: If timm is not installed, or does not go with this torch.
    """
    network = _library("timm").create_model(name, pretrained=pretrained, num_classes=0)
    # Some have one more layer between the features that timm counts and those that come out.
    network.n_features = getattr(network, "head_hidden_size", network.num_features)
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
    return network


def _library(module: str) -> Any:
    library = module.partition(".")[0]
    try:
        return import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # the last two: built for another torch
        raise ImportError(
            f"{library} cannot be imported ({type(error).__name__}: {error}): pip install ebreg[{library}]"
        ) from error
