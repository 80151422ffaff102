import math

import pytest
import torch
from torch import Tensor

from ebreg.distributions import cubic
from support import rng

F64 = torch.float64


def interpolated(nodes: Tensor, log_f: Tensor, n: int = 4) -> tuple[Tensor, Tensor]:
    """Of curves in columns."""
    y, f = cubic.interpolated(nodes.T, log_f.T, n)
    return y.T, f.T


def uneven(n: int, B: int = 1) -> Tensor:
    return (6 * torch.rand(n, B, generator=rng(), dtype=F64) - 3).sort(dim=0).values


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_nodes_given_are_among_those_returned(n: int):
    nodes = uneven(9, 4)
    y, f = interpolated(nodes, nodes.sin(), n)
    assert y.shape == f.shape == (8 * n + 1, 4)
    assert torch.equal(y[::n], nodes)
    assert torch.equal(f[::n], nodes.sin())
    assert (y.diff(dim=0) >= 0).all()


def test_parabolas_are_met_exactly_inside():
    nodes = uneven(20, 3)
    y, f = interpolated(nodes, 1 + 0.2 * nodes - 0.3 * nodes**2)
    exact = 1 + 0.2 * y - 0.3 * y**2
    torch.testing.assert_close(f[4:-4], exact[4:-4], rtol=0, atol=1e-12)


def test_the_error_falls_with_the_fourth_power_of_the_width():
    def error(n: int) -> float:
        nodes = torch.linspace(-2, 2, n, dtype=F64)[:, None]
        y, f = interpolated(nodes, (2 * nodes).sin())
        return (f - (2 * y).sin())[6:-6].abs().max().item()

    slope = math.log2(error(33) / error(129)) / 2
    assert (
        2.7 < slope < 4.3
    )  # slopes of parabolas are good to the second order: third at worst, fourth by symmetry


def test_beside_a_cliff_it_does_not_swing():
    nodes = torch.linspace(0, 1, 11, dtype=F64)[:, None]
    for cliff in (-30.0, -1e4, -math.inf):
        log_f = torch.where(nodes < 0.55, 0.0, cliff)
        _, f = interpolated(nodes, log_f)
        assert torch.isfinite(f).all()
        assert f.max() < 0.5


def test_nodes_that_coincide_change_nothing():
    nodes = uneven(12)
    doubled = torch.cat([nodes, nodes[4:5], nodes[8:9]]).sort(dim=0).values
    y, f = interpolated(doubled, -0.5 * doubled**2)
    assert torch.isfinite(f).all()
    inside = (y > nodes[1]) & (y < nodes[-2])
    torch.testing.assert_close(f[inside], -0.5 * y[inside] ** 2, rtol=0, atol=1e-9)


def test_rows_are_independent():
    nodes = uneven(10, 3)
    together = interpolated(nodes, nodes.cos())
    for b in range(3):
        alone = interpolated(nodes[:, [b]], nodes[:, [b]].cos())
        assert all(torch.equal(one[:, 0], all_[:, b]) for one, all_ in zip(alone, together, strict=True))
