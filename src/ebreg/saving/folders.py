"""Model folders: ``config.json`` with the facts, and a safetensors file that it names.

A save over an existing model is atomic: the new weights get a new name, then ``config.json`` is replaced,
then the old weights are deleted. What a killed save leaves is never loaded, and the next save removes it.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ebreg.errors import ModelFileError
from ebreg.saving import atomic_files, files, json_files, state_dicts

FORMAT = files.Format("ebreg-model", "saved model", ModelFileError, "save the model again")
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_WEIGHTS_NAME = re.compile(r"model(-[0-9a-f]{8})?\.safetensors")
# In the header of the weights, so that those of a killed save can be told from other files.
_MARK = FORMAT.name.encode()


def write(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], overwrite: bool = False
) -> None:
    """Write a folder.

    Args:
        path: Must not exist yet, be an empty folder, or hold only what a killed save has left.
        tensors: By name.
        facts: What JSON can hold.
        overwrite: Whether a model folder may be replaced; any other folder or file never is.

    Raises:
        FileExistsError: If something is there that may not be replaced.
        OSError: If it cannot be written; what was there is then unchanged.
    """
    path = path.resolve()  # a link stays, and the folder it points to is written
    if not path.is_dir():
        check_free(path, overwrite)
    with _explained(path), _folder(path), atomic_files.locked(path):
        check_free(path, overwrite)  # here, where no other process is writing
        old = _own_files(path)
        _remove_unnamed(path, old)
        try:
            _write(path, files.plain_tensors(tensors), facts)
        finally:
            _remove_unnamed(path, [*old, *_own_files(path)])


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write` wrote.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ModelFileError: If it is not a model folder, truncated, damaged, edited, or of a later format.
    """
    envelope, content = _read_both(path)
    tensors, mark = files.decode_tensors(FORMAT, path / str(envelope.weights), content)
    if mark != _MARK:
        raise files.damaged(FORMAT, path / str(envelope.weights), ValueError("its header was changed"))
    files.verify(FORMAT, path, envelope, tensors)
    return tensors, envelope.facts


def fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights that must fit by name, shape and type.

    Parts of the module that are on the meta device get memory once the weights are known to fit.

    Raises:
        ModelFileError: Naming the differences.
    """
    found = state_dicts.differences(module.state_dict(), tensors)
    if found:
        raise ModelFileError(
            f"the weights do not fit the networks ({found}); the folder was edited, or another network given"
        )
    # Bounds are buffers, and infinite where a target has none.
    buffers = {name for name, _ in module.named_buffers(remove_duplicate=False)}
    found = state_dicts.not_finite(tensors, may_be_infinite=buffers)
    if found:
        raise ModelFileError(f"the weights {found} are not finite; train and save the model again")
    state_dicts.allocate(module)
    module.load_state_dict(dict(tensors))


def check_free(path: Path, overwrite: bool = True) -> None:
    """Require that :func:`write` may write there.

    Raises:
        FileExistsError: If something is there that it would not replace.
    """
    if not path.exists():
        return
    others = sorted({*path.iterdir()} - {path / CONFIG, *_own_files(path)}) if path.is_dir() else []
    if path.is_dir() and not others and not (path / CONFIG).exists():
        return  # empty, or left by a save that was killed
    if not overwrite:
        raise FileExistsError(
            f"{path} exists: give another path, or pass overwrite=True to replace a saved model"
        )
    if others or not _is_model(path):
        what = f"has {others[0].name!r}, which no saved model has" if others else "is not a saved model"
        raise FileExistsError(f"{path} exists and {what}: it is left as it is; give another path")


def _write(path: Path, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> None:
    name = f"model-{secrets.token_hex(4)}.safetensors" if (path / CONFIG).exists() else WEIGHTS
    config = json_files.encode(files.seal(FORMAT, facts, tensors, name), indent=2)
    with atomic_files.replacing(path / name) as partial:
        partial.write_bytes(files.encode_tensors(tensors, _MARK))
    with atomic_files.replacing(path / CONFIG) as partial:
        partial.write_bytes(config)


@contextmanager
def _folder(path: Path) -> Iterator[None]:
    # A folder that was made for a save that failed goes with it.
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                path.rmdir()
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise  # a sentence already
    except OSError as error:
        raise OSError(
            f"the model cannot be written to {path} ({error.strerror or error}), and what was there is "
            "unchanged; make room there, or give another path"
        ) from error


def _remove_unnamed(path: Path, own: list[Path]) -> None:
    # Files of ebreg that config.json does not name: old weights, and what a killed save has left.
    named = _named_weights(path)
    if named is None and (path / CONFIG).exists():
        return  # it cannot be read now, so nothing is known to be unnamed
    for file in own:
        if file.name != named:
            with suppress(OSError):  # removed already, or it stays for the next save
                file.unlink()


def _own_files(path: Path) -> list[Path]:
    # Weights and partial files of ebreg. Other libraries give their files the same names, so weights that
    # config.json does not name must say that they are of ebreg.
    named = _named_weights(path)
    return [file for file in path.iterdir() if file.name == named or _is_leftover(file)]


def _is_leftover(file: Path) -> bool:
    if atomic_files.is_partial(file, lambda name: name == CONFIG or _WEIGHTS_NAME.fullmatch(name)):
        return True
    if not _WEIGHTS_NAME.fullmatch(file.name) or not file.is_file():
        return False
    try:
        return files.header_of(json_files.read_bytes(file)) == _MARK
    except (OSError, ValueError):
        return False


def _named_weights(path: Path) -> str | None:
    try:
        return _read_config(path).weights
    except (ModelFileError, FileNotFoundError):
        return None


def _is_model(path: Path) -> bool:
    return _named_weights(path) is not None


def _read_both(path: Path) -> tuple[files.Envelope, bytes]:
    envelope = _read_config(path)
    while True:
        try:
            return envelope, (path / str(envelope.weights)).read_bytes()
        except OSError as error:
            before, envelope = envelope, _read_config(path)
            if envelope != before:
                continue  # another process has saved a model here in the meantime
            raise ModelFileError(
                f"{path} is not a saved model: its weights {envelope.weights} cannot be read "
                f"({error.strerror}); copy the whole folder, or save the model again"
            ) from error


def _read_config(path: Path) -> files.Envelope:
    config = path / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; a saved model is a folder with {CONFIG} and weights")
    try:
        text = json_files.read_bytes(config)
    except OSError as error:
        raise ModelFileError(
            f"{path} is not a saved model: that is a folder with {CONFIG} and weights, and {CONFIG} cannot "
            f"be read ({error.strerror}); give the path that was handed to save"
        ) from error
    envelope = files.unseal(FORMAT, config, text)
    if envelope.weights is None or not _WEIGHTS_NAME.fullmatch(envelope.weights):
        wrong = ValueError(f"weights must be the name of a file, got {envelope.weights!r}")
        raise files.damaged(FORMAT, config, wrong)
    return envelope
