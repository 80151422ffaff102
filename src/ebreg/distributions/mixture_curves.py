"""Curves through mixtures of one target, for questions about their shape that have no closed form."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ebreg.distributions.curve_nodes import curve_nodes
from ebreg.distributions.log_linear import LogLinear
from ebreg.distributions.regions import Modes

if TYPE_CHECKING:
    from ebreg.distributions.gaussian_mixture import GaussianMixture

# Nodes of a curve, and parts into which cubics cut a segment between them; for the shape of the density fewer
# do, and so many rows are computed at once.
_N_NODES, _N_PARTS = 448, 4
_N_NODES_OF_SHAPES, _N_PARTS_OF_SHAPES, _ROWS_OF_CURVES = 256, 3, 64


def curve(mixture: "GaussianMixture") -> LogLinear:
    """The density between nodes, in double precision; much larger than the mixture."""
    nodes, *ends = _nodes_and_bounds(mixture.double(), _N_NODES)
    log_prob = mixture.to(torch.float64).log_prob(nodes[..., None])
    return _curve_through(nodes.T, log_prob.T, _N_PARTS, *ends)


def modes(mixture: "GaussianMixture") -> Modes:
    """Local maxima with the mass of their hills."""
    # In double precision: the top of a hill is flat.
    starts = range(0, len(mixture), _ROWS_OF_CURVES)
    curves = (curve(mixture[start : start + _ROWS_OF_CURVES]) for start in starts)
    return Modes(tuple(row for part in curves for row in part.modes()))


def shapes(mixture: "GaussianMixture") -> Iterator[LogLinear]:
    """The density between nodes, in single precision, a few rows at a time."""
    exact = mixture.double()
    for start in range(0, max(1, len(exact)), _ROWS_OF_CURVES):
        n = min(len(exact), start + _ROWS_OF_CURVES) - start
        if n == 0:
            yield curve(mixture)
            return
        # Filled up by the last row: the last bits of a sum depend on the shape of what is summed.
        rows = torch.arange(start, start + _ROWS_OF_CURVES).clamp(max=len(exact) - 1)
        some = exact[rows]
        nodes, *ends = _nodes_and_bounds(some, _N_NODES_OF_SHAPES)
        positions = some.at_nodes(unit=some.stddev[:, 0])
        log_prob = positions.log_prob(*positions.distances_and_rests(nodes))  # but for a constant
        yield _curve_through(nodes.T[:n], log_prob.T[:n], _N_PARTS_OF_SHAPES, *ends)


def _nodes_and_bounds(mixture: "GaussianMixture", n_nodes: int) -> tuple[Tensor, float, float]:
    # Nodes, (N, B), and the bounds.
    low, high = mixture.target_bounds()
    nodes = curve_nodes(mixture.logits, mixture.means, mixture.scales, low, high, n_nodes)
    return nodes.sort(dim=0).values, low.item(), high.item()


def _curve_through(nodes: Tensor, log_f: Tensor, n_parts: int, low: float, high: float) -> LogLinear:
    # Nodes and log densities, (B, N), between bounds.
    return LogLinear(nodes, log_f, (math.isfinite(low), math.isfinite(high)), n_parts, (low, high))
