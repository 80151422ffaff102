"""Model folders: ``config.json`` and ``model.safetensors``, written whole; reading executes nothing."""

import json
import math
import os
import shutil
import tempfile
import zlib
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

    path = path.resolve()  # a link stays, and what it points to is written
    check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside its place and moved there whole: a crash leaves no half of a model behind.
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        # safetensors refuses tensors that share memory, as tied weights do.
        save_file(
            {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()},
            fresh / "model.safetensors",
        )
        head = {"format": FORMAT, "version": VERSION, "ebreg": __version__}
        facts = {**head, "checksum": _checksum(fresh / "model.safetensors"), **config}
        text = json.dumps(facts, indent=2, allow_nan=False)
        (fresh / "config.json").write_text(text, encoding="utf-8")
        # Temporary folders, and safetensors, keep what they write to its owner.
        fresh.chmod(0o755)
        (fresh / "model.safetensors").chmod((fresh / "config.json").stat().st_mode & 0o777)
        _put(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


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
    tensors = _read_tensors(path / "model.safetensors")
    if config.get("checksum") != _checksum(path / "model.safetensors"):
        raise ModelFileError(
            f"{path} holds the weights of another model, or was edited: config.json and model.safetensors do "
            "not belong together; copy the folder as a whole, or save the model again"
        )
    return config, tensors


def plain(name: str, value: Any) -> Any:
    """A setting as JSON holds it; an infinite number, such as an open bound, becomes None."""
    if hasattr(value, "tolist"):  # numpy's numbers and arrays
        value = value.tolist()
    if isinstance(value, torch.device):
        return str(value)
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
            f"file has {found.get(first)} ({len(wrong)} such differences); the folder was edited, or another "
            "backbone given"
        )
    weights = {name for name, _ in module.named_parameters()}
    for name, value in tensors.items():
        # Buffers may be infinite: bounds that are not there.
        if torch.isnan(value).any() or (name in weights and torch.isinf(value).any()):
            raise ModelFileError(f"the weights {name} are not finite; train and save the model again")
    module.load_state_dict(dict(tensors))


def check_free(path: Path, overwrite: bool = True) -> None:
    """Require that :func:`write` may write there.

    Raises:
        FileExistsError: If something is there that it would not replace.
    """
    if not path.exists() and not path.is_symlink():
        return
    if overwrite and _is_model(path):
        return
    if overwrite:
        others = sorted({file.name for file in path.iterdir()} - set(_FILES)) if path.is_dir() else []
        what = f"has {others[0]!r}, which no saved model has" if others else "is not a saved model"
        raise FileExistsError(f"{path} exists and {what}: it is left as it is; give another path")
    raise FileExistsError(
        f"{path} exists: give another path, or pass overwrite=True to replace a saved model"
    )


def _is_model(path: Path) -> bool:
    # By its format too, as other libraries give their files the same names; and nothing else lies in it.
    if not path.is_dir() or {entry.name for entry in path.iterdir()} != set(_FILES):
        return False
    try:
        _read_config(path)
    except ModelFileError:
        return False
    return True


def _put(fresh: Path, path: Path) -> None:
    # The old folder goes when the new one is in its place, and comes back if it does not get there.
    if not path.exists():
        os.replace(fresh, path)
        return
    old = fresh.with_name(f"{fresh.name}-old")
    os.replace(path, old)
    try:
        os.replace(fresh, path)
    except BaseException:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _checksum(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as file:
        while block := file.read(2**20):
            checksum = zlib.crc32(block, checksum)
    return checksum


def _read_config(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; a saved model is a folder with {' and '.join(_FILES)}"
        )
    missing = [name for name in _FILES if not (path / name).is_file()]
    if missing:
        raise ModelFileError(
            f"{path} is not a saved model: that is a folder with {' and '.join(_FILES)}, and "
            f"{' and '.join(missing)} cannot be found; give the path that was handed to save"
        )
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelFileError(
            f"{path / 'config.json'} cannot be read ({error}); save the model again"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(
            f"{path} is not a saved model: config.json does not say format {FORMAT!r}; give the path that "
            "was handed to save"
        )
    return config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is truncated or damaged ({error}); save the model again") from error
