"""The one file format: facts as JSON and tensors as safetensors, with a version and a checksum of both.

The facts lie in an envelope that names the format, its version and the checksum::

    {"format": "ebreg-model", "version": 1, "ebreg": "0.1.0", "weights": "model.safetensors",
     "checksum": "5f0c...", "facts": {...}}

A checkpoint is one safetensors file that has the envelope in its header; a model folder has it in
``config.json``; a record of an experiment is the envelope alone, as it has no tensors. The checksum is the
SHA-256 of the envelope, without the checksum itself, and of every tensor with its name, type and shape.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ebreg._version import __version__
from ebreg.errors import EbregError
from ebreg.saving import json_files, schema

_HEADER_KEY = "ebreg"


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Attributes:
        name: In the files themselves.
        title: In messages.
        error: Raised for files that cannot be used.
        remedy: What a user can do about a file that cannot be used; the end of a message.
        version: Of the format; files of later versions are refused.
    """

    name: str
    title: str
    error: type[EbregError]
    remedy: str
    version: int = 1


@dataclass(frozen=True)
class Envelope:
    """What a file says of itself, and its facts.

    Attributes:
        content: All of it.
    """

    content: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What was saved beside the tensors."""
        return self.content["facts"]

    @property
    def weights(self) -> str | None:
        """The name of the file with the tensors, where that is another file."""
        return self.content["weights"]


def seal(
    kind: Format, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: str | None = None
) -> dict[str, Any]:
    """The envelope of facts and tensors, as JSON holds it.

    Args:
        kind: Of the file.
        facts: What JSON can hold.
        tensors: See :func:`plain_tensors`; empty where there are none.
        weights: The name of the file that has the tensors, where that is another file.
    """
    content = {
        "format": kind.name,
        "version": kind.version,
        "ebreg": __version__,
        "weights": weights,
        "facts": dict(facts),
    }
    try:
        # There and back: tuples become lists, as the reader sees them.
        content = json_files.decode(json_files.encode(content))
    except ValueError as error:
        raise kind.error(f"the {kind.title} cannot be saved: {error}") from error
    facts = content.pop("facts")
    return {**content, "checksum": _checksum({**content, "facts": facts}, tensors), "facts": facts}


def unseal(kind: Format, path: Path, text: bytes) -> Envelope:
    """Read an envelope; its checksum is left to :func:`verify`, which needs the tensors.

    Raises:
        EbregError: The format's own, if the text is not such an envelope, or is of a later version.
    """
    try:
        content = json_files.decode(text)
    except ValueError as error:
        raise kind.error(
            f"{path} is not a {kind.title}, or is truncated or damaged ({error}); {kind.remedy}"
        ) from error
    if not isinstance(content, dict) or content.get("format") != kind.name:
        raise kind.error(f"{path} is not a {kind.title}: it does not say format {kind.name!r}; {kind.remedy}")
    try:
        schema.whole(1)("version", content.get("version"))
        if content["version"] > kind.version:
            raise kind.error(
                f"{path} has format version {content['version']}, written by ebreg {content.get('ebreg')}; "
                f"this is ebreg {__version__} and reads versions up to {kind.version}: upgrade with "
                "pip install --upgrade ebreg"
            )
        _ENVELOPE("", content)
    except ValueError as error:
        raise damaged(kind, path, error) from error
    return Envelope(content)


def verify(kind: Format, path: Path, envelope: Envelope, tensors: Mapping[str, Tensor]) -> None:
    """Compare the checksum with the facts and the tensors.

    Raises:
        EbregError: The format's own, if they differ.
    """
    content = {name: value for name, value in envelope.content.items() if name != "checksum"}
    if envelope.content["checksum"] != _checksum(content, tensors):
        raise kind.error(
            f"{path} was edited or damaged: its content does not have the checksum that it was saved with; "
            f"{kind.remedy}"
        )


def damaged(kind: Format, path: Path, error: Exception) -> EbregError:
    """The error for facts or tensors that no file of this format has."""
    return kind.error(f"{path} was edited or damaged ({type(error).__name__}: {error}); {kind.remedy}")


def plain_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU; safetensors refuses tensors that share memory, as tied weights do."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def encode_tensors(tensors: Mapping[str, Tensor], header: bytes) -> bytes:
    """A safetensors file with some text in its header."""
    from safetensors.torch import save

    return save(dict(tensors), metadata={_HEADER_KEY: header.decode()})


def decode_tensors(kind: Format, path: Path, content: bytes) -> tuple[dict[str, Tensor], bytes]:
    """The tensors of a safetensors file, and the text in its header.

    Raises:
        EbregError: The format's own, if it is truncated or not such a file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
        header = header_of(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AssertionError, RuntimeError) as error:
        raise kind.error(
            f"{path} is not a {kind.title}, or is truncated or damaged ({error}); {kind.remedy}"
        ) from error
    if header is None:
        raise kind.error(f"{path} holds tensors, but is not a {kind.title} of ebreg; {kind.remedy}")
    return tensors, header


def header_of(content: bytes) -> bytes | None:
    """The text that :func:`encode_tensors` put into a header; None in files of others.

    Raises:
        ValueError: If the content, which may lack the tensors, is not the beginning of a safetensors file.
    """
    size = int.from_bytes(content[:8], "little")
    header = json_files.decode(content[8 : 8 + size])
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    text = metadata.get(_HEADER_KEY) if isinstance(metadata, dict) else None
    return text.encode() if isinstance(text, str) else None


def _checksum(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json_files.canonical(content))
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(json_files.canonical([name, str(value.dtype), list(value.shape)]))
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _hex(name: str, value: Any) -> None:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{name} must be 64 hexadecimal digits, got {value!r:.80}")


_ENVELOPE = schema.fields(
    format=schema.text(),
    version=schema.whole(1),
    ebreg=schema.text(),
    weights=schema.none_or(schema.text()),
    checksum=_hex,
    facts=schema.mapping(schema.anything),
)
