"""FrozenFeatures: features of frozen backbones, computed once and used as inputs."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from ebreg.models import Model, evaluation_mode
from ebreg.training.batches import Data, TensorData, weights_of


class FrozenFeatures:
    """Features of frozen backbones, those of all backbones side by side.

    Args:
        method: A method or a model; its backbones compute the features, in evaluation mode.
        n_rows: Rows computed at once.
    """

    def __init__(self, method: nn.Module, n_rows: int):
        self._models = [models[0] for models in _by_backbone(method)]
        self._n_rows = n_rows
        self._edges: list[int] = []

    @torch.no_grad()
    def of(self, data: Data) -> TensorData:
        """The same examples with their features, shape (n, H), as inputs."""
        parts = [self._batch(data, index) for index in torch.arange(len(data)).split(self._n_rows)]
        features, targets = zip(*parts, strict=True)
        source = getattr(data, "checksum", None)
        return TensorData(torch.cat(features), torch.cat(targets), weights_of(data), source=source)

    @contextmanager
    def as_inputs(self, method: nn.Module) -> Iterator[None]:
        """Context in which the models of a method, the same one or a copy, take features as inputs."""
        before = [(model, model.backbone, model.x_units) for model in _models(method)]
        for models, edges in zip(_by_backbone(method), pairwise(self._edges), strict=True):
            for model in models:
                model.backbone, model.x_units = _Columns(*edges), None
        try:
            yield
        finally:
            for model, backbone, x_units in before:
                model.backbone, model.x_units = backbone, x_units

    def _batch(self, data: Data, index: Tensor) -> tuple[Tensor, Tensor]:
        x, y = data.__getitems__(index.tolist())
        features = [_evaluated(model, x) for model in self._models]
        self._edges = [0, *accumulate(part.shape[1] for part in features)]
        return torch.cat(features, dim=1), y


class _Columns(nn.Module):
    """Replaces a backbone: the columns that it has computed."""

    def __init__(self, start: int, stop: int):
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.start : self.stop]


def backbones_of(method: nn.Module) -> list[nn.Module]:
    """The distinct backbones of a method's models."""
    return [models[0].backbone for models in _by_backbone(method)]


def _evaluated(model: Model, x: Tensor) -> Tensor:
    with evaluation_mode(model):
        # Members that share the backbone have the same features.
        return model.finite_features(x.to(model.reference.device))[: len(x)]


def _models(method: nn.Module) -> list[Model]:
    return [module for module in method.modules() if isinstance(module, Model)]


def _by_backbone(method: nn.Module) -> list[list[Model]]:
    # Models that share a backbone share its features.
    groups: dict[int, list[Model]] = {}
    for model in _models(method):
        groups.setdefault(id(model.backbone), []).append(model)
    return list(groups.values())
