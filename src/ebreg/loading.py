"""Saved regressors: ``regressor.save(path)`` writes a folder, :func:`load` reads it.

The folder holds weights and numbers (``ebreg.saving.folders``). Loading builds the networks from the numbers
and fills in the weights; nothing in the folder is executed. A backbone that the user brought is code: pass it
again.
"""

from pathlib import Path

from torch import nn

from ebreg._utils import checks
from ebreg.errors import ModelFileError
from ebreg.estimators import DistributionRegressor, EnergyRegressor, MixtureDensityRegressor
from ebreg.saving import folders

REGRESSORS = {regressor.__name__: regressor for regressor in (EnergyRegressor, MixtureDensityRegressor)}


def load(path: str | Path, backbone: nn.Module | None = None, device: str = "cpu") -> DistributionRegressor:
    """Read a regressor that was saved.

    Args:
        path: The folder.
        backbone: The module that was trained, where the user brought one; the weights go into a copy of it.
        device: Where it shall predict, whatever device it was trained on.

    Returns:
        The fitted regressor.
    """
    path, where = Path(path), checks.device(device)
    config, tensors = folders.read(path)
    name = config.get("regressor")
    if name is None and "images" in config:
        raise ModelFileError(
            f"{path} is a model of images that ebreg train wrote: read it by "
            "ebreg.experiments.images.load_images(path)"
        )
    if not isinstance(name, str) or name not in REGRESSORS:
        raise ModelFileError(
            f"{path} was edited, or written by a subclass: its regressor is {name!r}, and known are "
            f"{', '.join(REGRESSORS)}"
        )
    _check_backbone(path, bool(config.get("backbone")), backbone)
    try:
        regressor = REGRESSORS[name]._from_config(config, tensors, backbone)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ModelFileError(
            f"{path} was edited or damaged ({type(error).__name__}: {error}); save the model again"
        ) from error
    regressor.device = device
    regressor.model_.to(where)
    return regressor


def _check_backbone(path: Path, needed: bool, backbone: nn.Module | None) -> None:
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise TypeError(f"backbone must be a torch.nn.Module, got {type(backbone).__name__}")
    if needed and backbone is None:
        raise ModelFileError(
            f"{path} was trained on a backbone of your own: load it with load(path, backbone=module)"
        )
    if not needed and backbone is not None:
        raise ModelFileError(f"{path} has no backbone of your own: load it without the argument backbone")
