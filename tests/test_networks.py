import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from ebreg.networks import (
    ACTIVATIONS,
    MLP,
    NETWORKS,
    MixtureHead,
    Networks,
    image_heads,
    paper_1d,
    smooth_heads,
    table,
)
from support import rng


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=dtype)


def seeded(build, *args, **settings):
    """Build with parameters that do not depend on other tests."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        return build(*args, **settings)


# One row for every member of NETWORKS: how to build it, its inputs C and its targets D.
FAMILY = {
    "paper-1d": (lambda: paper_1d(4), 1, 1),
    "image-heads": (lambda: image_heads(3, 2), 512, 3),
    "smooth-heads": (lambda: smooth_heads(7, 2), 7, 2),
    "table": (lambda: table(5, 2), 5, 2),
}


@pytest.fixture(params=NETWORKS)
def member(request) -> tuple[Networks, int, int]:
    build, C, D = FAMILY[request.param]
    return seeded(build), C, D


def modules(parts: Networks) -> nn.ModuleDict:
    return nn.ModuleDict({"backbone": parts.backbone, "energy": parts.energy, "mixture": parts.mixture})


def test_every_network_is_in_the_family():
    assert set(FAMILY) == set(NETWORKS)


@pytest.mark.parametrize("B", [1, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_precision(member, B, dtype):
    parts, C, D = member
    modules(parts).to(dtype)
    h = parts.backbone(normal(B, C, dtype=dtype))
    f = parts.energy(h, normal(7, B, D, dtype=dtype))
    q = parts.mixture(h)
    assert h.shape == (B, parts.mixture.n_features)
    assert f.shape == (7, B)
    assert parts.energy(h, normal(B, D, dtype=dtype)).shape == (B,)
    assert q.batch_shape == (B,)
    assert q.event_shape == (D,)
    assert q.means.shape == (B, parts.mixture.n_components, D)
    for tensor in (h, f, q.log_prob(normal(7, B, D, dtype=dtype)), q.logits, q.means, q.scales):
        assert tensor.dtype == dtype
        assert torch.isfinite(tensor).all()


def test_gradients_reach_every_parameter(member):
    parts, C, D = member
    h = parts.backbone(normal(64, C))
    y = normal(3, 64, D, seed=1)
    (parts.energy(h, y).sum() + parts.mixture(h).log_prob(y).sum()).backward()
    for name, parameter in modules(parts).named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_state_travels(member):
    parts, C, D = member
    other = FAMILY[next(name for name, (_, c, _) in FAMILY.items() if c == C)][0]()
    modules(other).load_state_dict(modules(parts).state_dict())
    x, y = normal(4, C), normal(2, 4, D)
    for a, b in ((parts, other), (parts, parts)):
        h_a, h_b = a.backbone(x), b.backbone(x)
        assert torch.equal(a.energy(h_a, y), b.energy(h_b, y))
        assert torch.equal(a.mixture(h_a).log_prob(y), b.mixture(h_b).log_prob(y))


def test_inputs_are_left_alone(member):
    parts, C, D = member
    x, y = normal(4, C), normal(2, 4, D)
    copies = x.clone(), y.clone()
    h = parts.backbone(x)
    h_copy = h.clone()
    parts.energy(h, y)
    parts.mixture(h)
    assert torch.equal(x, copies[0])
    assert torch.equal(y, copies[1])
    assert torch.equal(h, h_copy)


# The paper's networks


def linear_shapes(module: nn.Module) -> list[tuple[int, int]]:
    """(inputs, outputs) of the matrices, in the order of the forward pass."""
    return [(p.shape[1], p.shape[0]) for p in module.parameters() if p.dim() == 2]


def test_sizes_of_the_1d_network():
    parts = paper_1d(4)
    assert linear_shapes(parts.backbone) == [(1, 10), (10, 10)]
    assert linear_shapes(parts.energy) == [(1, 10), (10, 10), (20, 10), (10, 10), (10, 1)]
    # Three branches 10-10-(K, K, K) share the matrix of their first layers.
    assert linear_shapes(parts.mixture) == [(10, 30), (10, 4), (10, 4), (10, 4)]
    counts = [
        sum(p.numel() for p in part.parameters()) for part in (parts.backbone, parts.energy, parts.mixture)
    ]
    assert counts == [20 + 110, 20 + 110 + 210 + 110 + 11, 3 * 110 + 3 * 44]


def by_concatenation(energy: nn.Module, h: Tensor, y: Tensor) -> Tensor:
    """The authors' network as the paper draws it: one row at a time, features of x and y side by side."""
    layers = [p for p in energy.parameters() if p.dim() == 2]
    biases = [p for p in energy.parameters() if p.dim() == 1]
    n_target = len(energy.target_layers)
    f = torch.empty(y.shape[:2], dtype=y.dtype)
    for m, b in itertools.product(range(y.shape[0]), range(y.shape[1])):
        h_y = y[m, b]
        for i in range(n_target):
            h_y = torch.relu(layers[i] @ h_y + biases[i])
        a = torch.relu(layers[n_target] @ torch.cat([h[b], h_y]) + biases[n_target])
        for i in range(n_target + 1, len(layers) - 1):
            a = torch.relu(layers[i] @ a + biases[i]) + a
        f[m, b] = (layers[-1] @ a + biases[-1])[0]
    return f


def test_the_1d_network_is_the_plain_one():
    parts = seeded(paper_1d)
    modules(parts).double()
    x, y = normal(5, 1, dtype=torch.float64), normal(4, 5, 1, dtype=torch.float64)
    first, second = parts.backbone.layers
    h = torch.relu(torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    torch.testing.assert_close(parts.backbone(x), h)
    torch.testing.assert_close(parts.energy(h, y), by_concatenation(parts.energy, h, y))


def test_sizes_of_the_image_heads():
    parts = seeded(image_heads, n_targets=3, n_components=8)
    assert isinstance(parts.backbone, nn.Identity)
    sizes = [(3, 16), (16, 32), (32, 64), (64, 128), (640, 512), (512, 1)]
    assert linear_shapes(parts.energy) == sizes
    assert linear_shapes(parts.mixture) == [(512, 1536), (512, 24), (512, 24), (512, 8)]
    modules(parts).double()
    h, y = normal(2, 512, dtype=torch.float64), normal(3, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(parts.energy(h, y), by_concatenation(parts.energy, h, y))


# The perceptron


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activation_follows_every_layer(activation):
    act = {
        "relu": nn.functional.relu,
        "tanh": torch.tanh,
        "silu": nn.functional.silu,
        "gelu": nn.functional.gelu,
        "softplus": nn.functional.softplus,
    }[activation]
    mlp = seeded(MLP, 3, (4, 4, 2), activation=activation, residual=True)
    x = normal(5, 3)
    a = act(mlp.layers[0](x))
    b = act(mlp.layers[1](a)) + a
    torch.testing.assert_close(mlp(x), act(mlp.layers[2](b)))
    plain = seeded(MLP, 3, (4, 4, 2), activation=activation)
    torch.testing.assert_close(plain(x), act(mlp.layers[2](act(mlp.layers[1](a)))))


def test_perceptron_refuses():
    with pytest.raises(ValueError, match="activation must be one of"):
        MLP(1, (2,), activation="sine")
    with pytest.raises(ValueError, match="n_in must be at least 1"):
        MLP(0, (2,))
    with pytest.raises(ValueError, match="widths must be at least 1"):
        MLP(1, (2, 0))


# The mixture head


@pytest.mark.parametrize("n_components", [1, 2, 16])
@pytest.mark.parametrize("n_targets", [1, 3])
def test_head_is_three_branches(n_components, n_targets):
    head = seeded(MixtureHead, 6, n_targets, n_components).double()
    h = normal(4, 6, dtype=torch.float64)
    branches = [
        torch.relu(h @ W.T + b)
        for W, b in zip(head.hidden.weight.chunk(3), head.hidden.bias.chunk(3), strict=True)
    ]
    q = head(h)
    shape = (4, n_components, n_targets)
    torch.testing.assert_close(q.means, head.means(branches[0]).view(shape))
    torch.testing.assert_close(q.scales, (0.5 * head.log_variances(branches[1])).exp().view(shape))
    torch.testing.assert_close(q.logits, head.logits(branches[2]).log_softmax(dim=1))


@pytest.mark.parametrize("size", [1e6, -1e6, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_features_give_a_proper_mixture(size, dtype):
    head = seeded(MixtureHead, 6, 2, 3).to(dtype)
    h = (normal(20, 6).sign() * size).to(dtype).requires_grad_()
    q = head(h)
    assert torch.isfinite(q.means).all()
    assert torch.isfinite(q.logits).all()
    assert (q.scales >= math.exp(-20) * 0.999).all()
    assert (q.scales <= math.exp(20) * 1.001).all()
    q.log_prob(q.means[:, 0].detach()).sum().backward()
    assert torch.isfinite(h.grad).all()
    for parameter in head.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_min_scale_is_added_in_quadrature():
    h = normal(5, 6)
    free, bounded = seeded(MixtureHead, 6, 1, 3)(h), seeded(MixtureHead, 6, 1, 3, min_scale=0.5)(h)
    torch.testing.assert_close(bounded.scales**2, free.scales**2 + 0.25)
    assert seeded(MixtureHead, 6, 1, 3, min_scale=0.01)(-1e6 * h.abs()).scales.min() >= 0.01 * 0.999


def test_components_start_apart():
    for D in (1, 2):
        head = seeded(MixtureHead, 6, D, 4, spread=True)
        means = head(torch.zeros(1, 6)).means[0]
        assert (means.diff(dim=0) > 0).all()
        bias = head.means.bias.view(4, D)
        levels = torch.special.ndtr(bias)
        torch.testing.assert_close(levels, torch.tensor([0.125, 0.375, 0.625, 0.875])[:, None].expand(4, D))


def test_head_refuses():
    for settings, message in (
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"n_targets": 0}, "n_targets must be at least 1"),
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"min_scale": -1.0}, "min_scale must be a finite number of at least 0, got -1.0"),
        ({"min_scale": math.nan}, "min_scale must be a finite number of at least 0, got nan"),
        ({"activation": "sine"}, "activation must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            MixtureHead(**{"n_features": 4, "n_targets": 1, "n_components": 2, **settings})
    with pytest.raises(TypeError, match="n_components must be a whole number"):
        MixtureHead(4, 1, 2.5)
    with pytest.raises(ValueError, match=r"h must have shape \(B, 4\), got \(3, 5\)"):
        MixtureHead(4, 1, 2)(torch.zeros(3, 5))


def test_densities_stay_in_single_precision_under_autocast(member):
    parts, C, D = member
    x, y = normal(8, C), normal(4, 8, D, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = parts.backbone(x)
        q, f = parts.mixture(h), parts.energy(h, y)
        log_q = q.log_prob(y)
    for tensor in (f, log_q, q.logits, q.means, q.scales):
        assert tensor.dtype == torch.float32
    h = parts.backbone(x)
    # bfloat16 keeps eight bits.
    torch.testing.assert_close(f, parts.energy(h, y), rtol=0.05, atol=0.05)
    torch.testing.assert_close(log_q, parts.mixture(h).log_prob(y), rtol=0.05, atol=0.05)
    (f.sum() + log_q.sum()).backward()
    for parameter in modules(parts).parameters():
        assert parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all()
