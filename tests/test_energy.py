"""The energy head against its direct form, one pair (x, y) at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ebreg.networks import ACTIVATIONS, EnergyHead

HEADS: dict[str, dict[str, Any]] = {
    "paper-1d": {
        "n_features": 10,
        "n_targets": 1,
        "target_widths": (10, 10),
        "joint_widths": (10, 10),
        "activation": "relu",
        "residual": True,
    },
    "paper-image": {
        "n_features": 24,
        "n_targets": 3,
        "target_widths": (4, 6, 8, 16),
        "joint_widths": (24,),
        "activation": "relu",
        "residual": False,
    },
    "table": {"n_features": 16, "n_targets": 2, "joint_widths": (64, 64, 64)},
    "plain-joint": {"n_features": 5, "n_targets": 2, "joint_widths": (8, 8), "residual": False},
    "uneven-residual": {"n_features": 5, "n_targets": 2, "joint_widths": (8, 12, 12), "activation": "tanh"},
    "no-target-layers": {"n_features": 5, "n_targets": 2, "target_widths": (), "activation": "softplus"},
    "gelu": {"n_features": 5, "n_targets": 1, "activation": "gelu"},
}


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> EnergyHead:
    torch.manual_seed(1)
    return EnergyHead(**HEADS[request.param]).double()


def inputs(head: EnergyHead, M: int = 7, B: int = 4) -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    dtype = head.output_layer.weight.dtype
    h = torch.randn(B, head.n_features, dtype=dtype, requires_grad=True)
    return h, torch.randn(M, B, head.n_targets, dtype=dtype, requires_grad=True)


def direct(head: EnergyHead, h: Tensor, y: Tensor) -> Tensor:
    """f of one h, shape (H,), and one y, shape (D,), from the concatenated vector [h, h_y]."""
    act = getattr(nn.functional, head.activation)
    a = y
    for layer in head.target_layers:
        a = act(nn.functional.linear(a, layer.weight, layer.bias))
    first = head.first_joint_layer
    a = act(nn.functional.linear(torch.cat([h, a]), first.weight, first.bias))
    for layer in head.joint_layers:
        b = act(nn.functional.linear(a, layer.weight, layer.bias))
        a = a + b if head.residual and len(a) == len(b) else b
    return nn.functional.linear(a, head.output_layer.weight, head.output_layer.bias)[0]


def direct_all(head: EnergyHead, h: Tensor, y: Tensor) -> Tensor:
    return torch.stack(
        [torch.stack([direct(head, *pair) for pair in zip(h, some, strict=True)]) for some in y]
    )


def gradients(f: Tensor, head: EnergyHead, h: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 2, f.numel(), dtype=f.dtype).view(f.shape)
    return torch.autograd.grad((weights * f.sin()).sum(), [h, y, *head.parameters()])


def test_every_activation_has_a_head() -> None:
    assert {EnergyHead(**settings).activation for settings in HEADS.values()} == set(ACTIVATIONS)


def test_values_and_gradients_equal_the_direct_form(head: EnergyHead) -> None:
    h, y = inputs(head)
    f, expected = head(h, y), direct_all(head, h, y)
    assert f.shape == (7, 4)
    torch.testing.assert_close(f, expected)
    torch.testing.assert_close(gradients(f, head, h, y), gradients(expected, head, h, y))


def test_float32_equals_the_direct_form(head: EnergyHead) -> None:
    head = head.float()
    h, y = inputs(head)
    f, expected = head(h, y), direct_all(head, h, y)
    assert f.dtype == torch.float32
    torch.testing.assert_close(f, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        gradients(f, head, h, y), gradients(expected, head, h, y), atol=1e-4, rtol=1e-4
    )


def test_one_target_per_row_equals_one_draw(head: EnergyHead) -> None:
    h, y = inputs(head, M=1)
    assert head(h, y[0]).shape == (4,)
    torch.testing.assert_close(head(h, y[0]), head(h, y)[0])


def test_grid_equals_forward_on_expanded_targets(head: EnergyHead) -> None:
    h, y = inputs(head)
    nodes = y[:, 0]
    f, expected = head.grid(h, nodes), head(h, nodes[:, None].expand(-1, 4, -1))
    assert f.shape == (7, 4)
    torch.testing.assert_close(f, expected)
    torch.testing.assert_close(gradients(f, head, h, y), gradients(expected, head, h, y))


@pytest.mark.parametrize("n_columns", [1, 5, 9, 13, 27])
def test_tiles_change_nothing(head: EnergyHead, n_columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    h, y = inputs(head)
    whole = head(h, y), head.grid(h, y[:, 0])
    monkeypatch.setattr(EnergyHead, "_columns_of_tile", lambda self, device: n_columns)
    tiled = head(h, y), head.grid(h, y[:, 0])
    torch.testing.assert_close(tiled, whole)
    with torch.no_grad():
        torch.testing.assert_close(head.grid(h, y[:, 0]), whole[1])
    for f, expected in zip(tiled, whole, strict=True):
        torch.testing.assert_close(gradients(f, head, h, y), gradients(expected, head, h, y))


def test_sizes_beyond_one_tile_equal_row_by_row() -> None:
    torch.manual_seed(0)
    head = EnergyHead(3, 1, target_widths=(4,), joint_widths=(512,), activation="relu")
    h, y = torch.randn(7, 3), torch.randn(700, 7, 1)
    with torch.no_grad():
        assert y.numel() > head._columns_of_tile(h.device)
        rows = [head(h[i : i + 1], y[:, i : i + 1]) for i in range(7)]
        torch.testing.assert_close(head(h, y), torch.cat(rows, dim=1), atol=1e-6, rtol=1e-5)
        nodes = y[:, 0]
        expanded = head(h, nodes[:, None].expand(-1, 7, -1))
        torch.testing.assert_close(head.grid(h, nodes), expanded, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradcheck(activation: str) -> None:
    torch.manual_seed(3)
    head = EnergyHead(3, 2, target_widths=(4,), joint_widths=(5, 5), activation=activation).double()
    h, y = inputs(head, M=3, B=2)
    parameters = dict(head.named_parameters())

    def call(h: Tensor, y: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(head, dict(zip(parameters, values, strict=True)), (h, y))

    assert torch.autograd.gradcheck(call, (h, y, *parameters.values()))
    assert torch.autograd.gradgradcheck(call, (h, y, *parameters.values()))
    assert torch.autograd.gradcheck(lambda h, y: head.grid(h, y[:, 0]), (h, y))


@pytest.mark.parametrize(("M", "B"), [(1, 1), (1, 5), (5, 1)])
def test_smallest_sizes(head: EnergyHead, M: int, B: int) -> None:
    h, y = inputs(head, M, B)
    torch.testing.assert_close(head(h, y), direct_all(head, h, y))
    assert head.grid(h, y[:, 0]).shape == (M, B)


def test_empty_batch(head: EnergyHead) -> None:
    h, y = inputs(head, M=3, B=2)
    assert head(h[:0], y[:, :0]).shape == (3, 0)
    assert head.grid(h[:0], y[:, 0]).shape == (3, 0)


def test_permuted_draws_permute_values(head: EnergyHead) -> None:
    h, y = inputs(head)
    order = torch.randperm(7)
    torch.testing.assert_close(head(h, y[order]), head(h, y)[order])


def test_a_row_does_not_depend_on_its_neighbours(head: EnergyHead) -> None:
    head = head.float()
    h, y = inputs(head, M=33, B=9)
    alone = torch.cat([head(h[i : i + 1], y[:, i : i + 1]) for i in range(9)], dim=1)
    torch.testing.assert_close(head(h, y), alone, atol=1e-6, rtol=1e-6)


def test_only_what_asks_for_gradients_gets_them(head: EnergyHead) -> None:
    h, y = inputs(head)
    assert not torch.no_grad()(head)(h, y).requires_grad
    head(h.detach(), y.detach()).sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    head.requires_grad_(False)
    assert not head(h.detach(), y.detach()).requires_grad
    (only_y,) = torch.autograd.grad(head(h.detach(), y).sum(), y)
    torch.testing.assert_close(only_y, torch.autograd.grad(direct_all(head, h, y).sum(), y)[0])


def test_inputs_are_not_changed(head: EnergyHead) -> None:
    h, y = inputs(head)
    before = h.detach().clone(), y.detach().clone()
    with torch.no_grad():
        head(h, y), head.grid(h, y[:, 0])
    assert torch.equal(h, before[0])
    assert torch.equal(y, before[1])


def test_targets_may_be_strided_in_any_way(head: EnergyHead) -> None:
    h, y = inputs(head)
    strided = y.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    torch.testing.assert_close(head(h, strided), head(h, y))
    torch.testing.assert_close(head(h[:1].expand(4, -1), y[:, :1].expand(-1, 4, -1))[:, 3], head(h, y)[:, 0])


def test_autocast_gives_float32_and_keeps_the_last_layer_in_it(head: EnergyHead) -> None:
    head = head.float()
    h, y = inputs(head)
    expected = head(h, y)
    with torch.autocast("cpu", torch.bfloat16):
        f, on_grid = head(h, y), head.grid(h, y[:, 0])
    assert f.dtype == on_grid.dtype == torch.float32
    torch.testing.assert_close(f, expected, atol=0.02, rtol=0.02)
    torch.testing.assert_close(on_grid[:, 0], f[:, 0], atol=0.02, rtol=0.02)
    assert not torch.equal(f, f.bfloat16().float())
    assert all(gradient.isfinite().all() for gradient in gradients(f, head, h, y))


def test_parameters_start_as_those_of_the_concatenated_form() -> None:
    torch.manual_seed(0)
    head = EnergyHead(30, 1, target_widths=(2,), joint_widths=(64, 4))
    torch.manual_seed(0)
    layers = [nn.Linear(1, 2), nn.Linear(32, 64), nn.Linear(64, 4), nn.Linear(4, 1)]
    expected = [parameter for layer in layers for parameter in layer.parameters()]
    assert all(map(torch.equal, head.parameters(), expected))


@pytest.mark.parametrize(
    ("h", "y", "message"),
    [
        ((4, 6), (7, 4, 2), r"h takes .* H = 5, got \(4, 6\)"),
        ((5,), (7, 4, 2), r"h takes .* got \(5,\)"),
        ((4, 5), (7, 3, 2), r"y takes .* B = 4 .* got \(7, 3, 2\)"),
        ((4, 5), (7, 4, 3), r"y takes .* D = 2 .* got \(7, 4, 3\)"),
        ((4, 5), (4,), r"y takes .* got \(4,\)"),
        ((4, 5), (0, 4, 2), r"y takes .* M >= 1.* got \(0, 4, 2\)"),
    ],
)
def test_wrong_shapes_are_named(h: tuple[int, ...], y: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnergyHead(5, 2)(torch.zeros(h), torch.zeros(y))


@pytest.mark.parametrize("y", [(7, 4, 2), (7, 3), (7,), (0, 2)])
def test_wrong_grids_are_named(y: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"y takes shape \(G, D\) .* D = 2, got"):
        EnergyHead(5, 2).grid(torch.zeros(4, 5), torch.zeros(y))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_features": 0}, "n_features takes .* got 0"),
        ({"n_targets": 0}, "n_targets takes .* got 0"),
        ({"target_widths": (4, 0)}, "target_widths takes .* got 4, 0"),
        ({"joint_widths": (-1,)}, "joint_widths takes .* got -1"),
        ({"joint_widths": ()}, "joint_widths takes at least one width"),
        ({"activation": "sine"}, "activation takes one of relu, .* got 'sine'"),
    ],
)
def test_wrong_settings_are_named(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnergyHead(**{"n_features": 5, "n_targets": 2, **setting})
