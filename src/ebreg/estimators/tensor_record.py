"""TensorRecord: what a regressor has learned beside its networks, as named tensors that are saved with it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Self

import torch
from torch import Tensor


class TensorRecord:
    """Base of dataclasses whose fields are all tensors; they are kept on the CPU."""

    def tensors(self) -> dict[str, Tensor]:
        """The fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """From what :meth:`tensors` returned.

        Raises:
            ValueError: If a tensor is missing, unknown or NaN; a subclass checks the rest in its
                ``__post_init__``.
        """
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
        if sorted(tensors) != sorted(names):
            raise ValueError(f"{cls.__name__} has the tensors {names}, got {sorted(tensors)}")
        for name, value in tensors.items():
            if value.is_floating_point() and torch.isnan(value).any():
                raise ValueError(f"{name} of {cls.__name__} is NaN")
        return cls(**tensors)
