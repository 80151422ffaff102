"""Model folders: ``config.json`` and ``model.safetensors``, written whole; reading executes nothing."""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebreg._version import __version__
from ebreg.errors import ModelFileError

FORMAT = "ebreg-model"
VERSION = 1
_FILES = ("config.json", "model.safetensors")


def write(
    path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor], overwrite: bool = False
) -> None:
    """Write a folder.

    Args:
        path: Must not exist yet.
        config: What JSON can hold.
        tensors: By name.
        overwrite: Whether a model folder may be replaced; any other folder or file never is.
    """
    from safetensors.torch import save_file

    _check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "ebreg": __version__, **config}, indent=2, allow_nan=False
    )
    # Written beside its place and moved there whole: a crash leaves no half of a model behind.
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    old = fresh.with_name(f"{fresh.name}-old")
    try:
        (fresh / "config.json").write_text(text, encoding="utf-8")
        # safetensors refuses tensors that share memory, as tied weights do.
        save_file(
            {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()},
            fresh / "model.safetensors",
        )
        fresh.chmod(0o755)
        if path.exists():
            os.replace(path, old)
        os.replace(fresh, path)
    finally:
        for left in (fresh, old):
            shutil.rmtree(left, ignore_errors=True)


def read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`write` wrote.

    Raises:
        ModelFileError: If it is not a model folder, truncated, edited, or of a newer format.
    """
    config = _read_config(path)
    version = config.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ModelFileError(f"{path} was edited: its format version is {version!r}; save the model again")
    if version > VERSION:
        raise ModelFileError(
            f"{path} has format version {version}, written by ebreg {config.get('ebreg')}; this is ebreg "
            f"{__version__} and reads versions up to {VERSION}: upgrade with pip install --upgrade ebreg"
        )
    return config, _read_tensors(path / "model.safetensors")


def plain(name: str, value: Any) -> Any:
    """A setting as JSON holds it; an infinite number, such as an open bound, becomes None."""
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(name, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(name, item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ModelFileError(f"{name} cannot be saved: {value!r} is neither a number nor a string")


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights that must fit by name and shape.

    Raises:
        ModelFileError: Naming the first difference.
    """
    expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        first = wrong[0]
        raise ModelFileError(
            f"the weights do not fit the networks: {first} should have shape {expected.get(first)}, and the "
            f"file has {found.get(first)} ({len(wrong)} such differences); was another backbone given?"
        )
    for name, value in tensors.items():
        if torch.isnan(value).any():
            raise ModelFileError(f"the weights {name} hold NaN; save the model again")
    module.load_state_dict(dict(tensors))


def _check_free(path: Path, overwrite: bool) -> None:
    if not path.exists() and not path.is_symlink():
        return
    is_model = path.is_dir() and {entry.name for entry in path.iterdir()} == set(_FILES)
    if overwrite and is_model:
        return
    if overwrite:
        raise FileExistsError(
            f"{path} exists and is not a saved model: it is left as it is; give another path"
        )
    raise FileExistsError(
        f"{path} exists: give another path, or pass overwrite=True to replace a saved model"
    )


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; a saved model is a folder with {' and '.join(_FILES)}"
        )
    missing = [name for name in _FILES if not (path / name).is_file()]
    if missing:
        raise ModelFileError(f"{path} is not a saved model: {' and '.join(missing)} is missing")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelFileError(
            f"{path / 'config.json'} cannot be read ({error}); save the model again"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a saved model: config.json does not say format {FORMAT!r}")
    return config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is truncated or damaged ({error}); save the model again") from error
