"""``ebreg.load``: every saved model, from the folder that ``regressor.save`` or ``ebreg train`` wrote.

A folder holds weights and numbers (``ebreg.saving``). Loading builds the networks from the numbers and fills
in the weights; nothing in the folder is executed. A backbone of the user's own is code, so it is given again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebreg._utils import checks
from ebreg.errors import ModelFileError
from ebreg.estimators import EnergyRegressor, MixtureDensityRegressor
from ebreg.saving import files, folders


def load(path: str | Path, backbone: nn.Module | None = None, device: str = "cpu") -> Any:
    """Read a model that was saved.

    Args:
        path: The folder.
        backbone: The module that was trained, where the user brought one; the weights go into a copy of it.
        device: Where it shall predict, whatever device it was trained on.

    Returns:
        The fitted regressor, of the class that was saved. For a folder of ``ebreg train``, a
        :class:`ebreg.models.Model` that takes images (B, C, H, W) as in the training, whole numbers from 0 to
        255 of the same channels, height and width, and predicts by ``predictive``.
    """
    path, where = Path(path), checks.device(device)
    tensors, facts = folders.read(path)
    _check_backbone(path, bool(facts.get("backbone")), backbone)
    try:
        model = _reader(facts.get("kind"))(facts, tensors, backbone)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise files.damaged(folders.FORMAT, path, error) from error
    if isinstance(model, nn.Module):
        return model.to(where)
    model.device = device
    model.model_.to(where)
    return model


def _reader(kind: Any) -> Callable[[dict[str, Any], dict[str, Tensor], nn.Module | None], Any]:
    readers: dict[Any, Callable[..., Any]] = {
        EnergyRegressor.__name__: EnergyRegressor._from_facts,
        MixtureDensityRegressor.__name__: MixtureDensityRegressor._from_facts,
        "image-model": _image_model,
    }
    checks.one_of("kind", kind, readers)
    return readers[kind]


def _image_model(facts: dict[str, Any], tensors: dict[str, Tensor], backbone: None) -> nn.Module:
    from ebreg.experiments.images import saving  # imports all experiments, which regressors do not need

    return saving.from_facts(facts, tensors)


def _check_backbone(path: Path, needed: bool, backbone: nn.Module | None) -> None:
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise TypeError(f"backbone must be a torch.nn.Module, got {type(backbone).__name__}")
    if needed and backbone is None:
        raise ModelFileError(
            f"{path} was trained on a backbone of your own: load it with load(path, backbone=module)"
        )
    if not needed and backbone is not None:
        raise ModelFileError(f"{path} has no backbone of your own: load it without the argument backbone")
