"""``ebreg.load``: every saved model, from the folder that ``regressor.save`` or ``ebreg train`` wrote.

A folder holds weights and numbers (``ebreg.saving``). Loading builds the networks from the numbers and fills
in the weights; nothing in the folder is executed. Networks of the user's own are code and are given again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.errors import ModelFileError, NetworkError
from ebreg.estimators import EnergyRegressor, MixtureDensityRegressor
from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.saving import files, folders


def load(
    path: str | Path,
    backbone: nn.Module | None = None,
    device: str = "cpu",
    proposal: Any = None,
    energy: Any = None,
) -> Any:
    """Read a model that was saved.

    Args:
        path: The folder.
        backbone: The module that was trained, where the user brought one; the weights go into a copy of it.
        device: Where it shall predict, whatever device it was trained on.
        proposal: The module or function that the regressor was given, where the user brought one.
        energy: The same.

    Returns:
        The fitted regressor, of the class that was saved. For a folder of ``ebreg train``, a
        :class:`ebreg.models.Model` that takes images (B, C, H, W) as in the training, whole numbers from 0 to
        255 of the same channels, height and width, and predicts by ``predictive``.
    """
    path, where = Path(path), checks.device(device)
    tensors, facts = folders.read(path)
    own = CustomNetworks(backbone, proposal, energy)
    _check_own(path, facts.get("custom_networks"), own)
    try:
        model = _reader(facts.get("kind"))(facts, tensors, own)
    except NetworkError:
        raise  # an argument is wrong, not the folder
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise files.damaged(folders.FORMAT, path, error) from error
    if isinstance(model, nn.Module):
        return model.to(where)
    model.device = device
    model.model_.to(where)
    return model


def _reader(kind: Any) -> Callable[[dict[str, Any], dict[str, Tensor], CustomNetworks], Any]:
    readers: dict[Any, Callable[..., Any]] = {
        EnergyRegressor.__name__: EnergyRegressor._from_facts,
        MixtureDensityRegressor.__name__: MixtureDensityRegressor._from_facts,
        "image-model": _image_model,
    }
    checks.one_of("kind", kind, readers)
    return readers[kind]


def _image_model(facts: dict[str, Any], tensors: dict[str, Tensor], own: CustomNetworks) -> nn.Module:
    from ebreg.experiments.images import saving  # imports all experiments, which regressors do not need

    return saving.from_facts(facts, tensors)


def _check_own(path: Path, saved: Any, own: CustomNetworks) -> None:
    if own.backbone is not None and not isinstance(own.backbone, nn.Module):
        raise TypeError(f"backbone must be a torch.nn.Module, got {type(own.backbone).__name__}")
    needed = [name for name in saved if isinstance(name, str)] if isinstance(saved, list) else []
    missing = [name for name in needed if name not in own.names]
    if missing:
        arguments = ", ".join(f"{name}=module" for name in missing)
        raise ModelFileError(
            f"{path} was trained with networks of your own: load it with load(path, {arguments})"
        )
    for name in own.names:
        if name not in needed:
            raise ModelFileError(f"{path} has no {name} of your own: load it without the argument {name}")
