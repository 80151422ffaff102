import inspect
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from ebreg import objectives, sampling
from ebreg.distributions import GaussianMixture
from support import rng

# The family: every objective with the arguments it takes, in their order.
OBJECTIVES = {
    "log_partition": ("f", "log_q"),
    "mle": ("f_y", "f", "log_q"),
    "nce": ("f_y", "log_q_y", "f", "log_q"),
    "mdn": ("log_q_y", "f", "log_q"),
    "nll": ("log_q_y",),
}
WITH_DRAWS = [name for name, arguments in OBJECTIVES.items() if "f" in arguments]


def problem(M: int = 7, B: int = 3, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    g = rng(M + B)
    shapes = {"f_y": (B,), "log_q_y": (B,), "f": (M, B), "log_q": (M, B)}
    return {name: torch.randn(shape, generator=g, dtype=dtype) for name, shape in shapes.items()}


def evaluate(name: str, values: dict[str, Tensor]) -> Tensor:
    return getattr(objectives, name)(*(values[argument] for argument in OBJECTIVES[name]))


def test_family_is_complete():
    public = {
        name: tuple(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(objectives, inspect.isfunction)
        if not name.startswith("_") and member.__module__ == objectives.__name__
    }
    assert public == OBJECTIVES


# Exact identities


def test_model_equal_to_proposal_up_to_a_constant():
    values = problem(M=11)
    c = torch.tensor([0.0, 3.5, -40.0], dtype=torch.float64)
    values["f"], values["f_y"] = values["log_q"] + c, values["log_q_y"] + c
    torch.testing.assert_close(evaluate("log_partition", values), c)
    torch.testing.assert_close(evaluate("nce", values), torch.full_like(c, math.log(12)))
    torch.testing.assert_close(evaluate("mle", values), -values["log_q_y"])
    torch.testing.assert_close(evaluate("mdn", values), 0.5 * (c - values["log_q_y"]))


def test_constant_added_to_f():
    values, c = problem(), torch.tensor([1.0, -200.0, 1e4], dtype=torch.float64)
    shifted = values | {"f": values["f"] + c, "f_y": values["f_y"] + c}
    expected = {"log_partition": c, "mle": 0 * c, "nce": 0 * c, "mdn": c / 2, "nll": 0 * c}
    for name in OBJECTIVES:
        torch.testing.assert_close(
            evaluate(name, shifted) - evaluate(name, values), expected[name], atol=1e-10, rtol=1e-12
        )


@pytest.mark.parametrize("name", WITH_DRAWS)
def test_order_of_draws_does_not_matter(name):
    values = problem(M=20)
    order = torch.randperm(20, generator=rng())
    permuted = values | {"f": values["f"][order], "log_q": values["log_q"][order]}
    torch.testing.assert_close(evaluate(name, permuted), evaluate(name, values))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_rows_do_not_mix(name):
    values = problem(B=5)
    alone = torch.cat([evaluate(name, {k: v[..., i : i + 1] for k, v in values.items()}) for i in range(5)])
    torch.testing.assert_close(evaluate(name, values), alone)


def test_mdn_is_half_of_each():
    values = problem()
    halves = 0.5 * evaluate("log_partition", values) + 0.5 * evaluate("nll", values)
    torch.testing.assert_close(evaluate("mdn", values), halves)


# The paper's formulas, written as slow loops without logarithms of sums


def reference(name: str, values: dict[str, Tensor]) -> list[float]:
    f_y, log_q_y, f, log_q = (values[key].tolist() for key in ("f_y", "log_q_y", "f", "log_q"))
    results = []
    for i in range(len(f_y)):
        M = len(f)
        z_hat = 0.0
        for m in range(M):
            z_hat += math.exp(f[m][i]) / math.exp(log_q[m][i]) / M
        if name == "log_partition":  # Eq. (5)
            results.append(math.log(z_hat))
        elif name == "mle":  # Eq. (2)
            results.append(math.log(z_hat) - f_y[i])
        elif name == "nce":  # Eq. (6)
            ratio_y = math.exp(f_y[i]) / math.exp(log_q_y[i])
            results.append(-math.log(ratio_y / (ratio_y + M * z_hat)))
        elif name == "mdn":  # Eq. (8)
            results.append(0.5 * math.log(z_hat) - 0.5 * math.log(math.exp(log_q_y[i])))
        elif name == "nll":
            results.append(-math.log(math.exp(log_q_y[i])))
    return results


@pytest.mark.parametrize(("M", "B"), [(1, 1), (1, 4), (6, 1), (9, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_against_loops(name, dtype, M, B):
    values = problem(M, B, dtype)
    result = evaluate(name, values)
    assert result.shape == (B,)
    assert result.dtype == dtype
    torch.testing.assert_close(result, torch.tensor(reference(name, values), dtype=dtype))


@pytest.mark.parametrize("M", [1, 5])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients(name, M):
    values = problem(M)
    arguments = [values[argument].requires_grad_() for argument in OBJECTIVES[name]]
    assert torch.autograd.gradcheck(getattr(objectives, name), arguments)


# Extremes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_extremes_stay_finite(name, dtype):
    values = {
        "f_y": torch.tensor([-1e30, 1e30, 0.0, -50.0], dtype=dtype),
        "log_q_y": torch.tensor([-1e4, -1e4, 90.0, 0.0], dtype=dtype),
        "f": torch.tensor([[1e30, -1e30, 800.0, -torch.inf], [-1e30, -1e30, -800.0, 2.0]], dtype=dtype),
        "log_q": torch.tensor([[-1e4, -1e4, 90.0, -5.0], [0.0, -1e4, -1e4, 0.0]], dtype=dtype),
    }
    arguments = [values[argument].requires_grad_() for argument in OBJECTIVES[name]]
    result = getattr(objectives, name)(*arguments)
    assert result.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(result.sum(), arguments))


def test_a_draw_at_minus_infinity_takes_no_part_in_nce():
    values = problem(M=6)
    left_out = values["f"].scatter(0, torch.tensor([[0, 3, 5]]), -torch.inf)
    keep = [[m for m in range(6) if m != taken] for taken in (0, 3, 5)]
    fewer = values | {
        k: torch.stack([values[k][keep[i], i] for i in range(3)], dim=1) for k in ("f", "log_q")
    }
    torch.testing.assert_close(evaluate("nce", values | {"f": left_out}), evaluate("nce", fewer))


def test_nce_without_any_draw_that_takes_part():
    values = {key: value.requires_grad_() for key, value in problem(M=2).items()}
    nothing = torch.full((2, 3), -torch.inf, dtype=torch.float64, requires_grad=True)
    loss = evaluate("nce", values | {"f": nothing})
    assert torch.equal(loss, torch.zeros_like(loss))
    gradients = torch.autograd.grad(loss.sum(), [nothing, *(values[k] for k in ("f_y", "log_q_y", "log_q"))])
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients)


# Wrong arguments


@pytest.mark.parametrize(
    ("name", "argument", "shape", "takes"),
    [
        (name, argument, shape, takes)
        for name, arguments in OBJECTIVES.items()
        for argument in arguments
        for shape, takes in {
            "f": [((7,), r"\(M, B\)"), ((7, 3, 1), r"\(M, B\)")],
            "log_q": [
                ((7, 1), r"\(7, 3\)"),
                ((1, 3), r"\(7, 3\)"),
                ((3,), r"\(7, 3\)"),
                ((6, 3), r"\(7, 3\)"),
            ],
            "f_y": [((1,), r"\(3,\)"), ((), r"\(3,\)"), ((3, 1), r"\(3,\)"), ((7, 3), r"\(3,\)")],
            "log_q_y": [((), ""), ((3, 1), "")]
            if name == "nll"
            else [((1,), r"\(3,\)"), ((3, 1), r"\(3,\)"), ((1, 3), r"\(3,\)")],
        }[argument]
    ],
)
def test_wrong_shapes_are_refused(name, argument, shape, takes):
    got = repr(shape).replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(ValueError, match=rf"^{argument} must have shape {takes}.*got {got}"):
        evaluate(name, problem() | {argument: torch.zeros(shape, dtype=torch.float64)})


@pytest.mark.parametrize("name", WITH_DRAWS)
def test_no_draws_are_refused(name):
    with pytest.raises(ValueError, match=r"number of draws.*at least 1, got 0"):
        evaluate(name, problem(M=0))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_arrays_are_refused(name):
    first = OBJECTIVES[name][-1]
    with pytest.raises(TypeError, match=f"{first} must be a torch.Tensor, got ndarray"):
        evaluate(name, problem() | {first: np.zeros((7, 3))})


# Closed form: p = N(MU, SIGMA^2), f = log p + C, q = N(mean, exp(log_scale)^2)

MU, SIGMA, C = 0.7, 0.8, -3.0


def log_f(y: Tensor) -> Tensor:
    return Normal(MU, SIGMA).log_prob(y) + C


def standard_normals(M: int, B: int, seed: int) -> Tensor:
    return torch.randn(M, B, generator=rng(seed), dtype=torch.float64)


def test_normaliser_of_a_gaussian():
    y = standard_normals(4000, 200, seed=1)
    log_z = objectives.log_partition(log_f(y), Normal(0.0, 1.0).log_prob(y))
    ratio = (log_f(y) - Normal(0.0, 1.0).log_prob(y) - C).exp()
    errors = (log_z - C) / (ratio.std(dim=0) / math.sqrt(4000))
    assert errors.abs().max() < 4.5
    assert 0.8 < errors.std() < 1.2  # the standard error says what it should, so the line above has power
    assert abs(errors.mean()) < 4 / math.sqrt(200) + 0.05


def kl_gradient(mean: float, scale: float) -> Tensor:
    # d/d(mean, log scale) of KL(p || q) = log scale + (SIGMA^2 + (MU - mean)^2) / (2 scale^2) + const
    return torch.tensor([(mean - MU) / scale**2, 1 - (SIGMA**2 + (MU - mean) ** 2) / scale**2])


def proposal_gradients(M: int, B: int, seed: int, mean: float, scale: float) -> Tensor:
    # One replicate in each column: (B, 2). The draws are data, as in Result 1.
    means = torch.full((B,), mean, dtype=torch.float64, requires_grad=True)
    log_scales = torch.full((B,), math.log(scale), dtype=torch.float64, requires_grad=True)
    y = mean + scale * standard_normals(M, B, seed)
    loss = objectives.log_partition(log_f(y), Normal(means, log_scales.exp()).log_prob(y))
    return torch.stack(torch.autograd.grad(loss.sum(), (means, log_scales)), dim=1)


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (0.5, 0.7), (1.5, 1.4)])
def test_result_1_gradient_is_that_of_the_kl_divergence(mean, scale):
    assert scale > SIGMA / math.sqrt(2)  # or the weights have no variance
    gradients = proposal_gradients(20_000, 60, seed=2, mean=mean, scale=scale)
    error = gradients.mean(dim=0) - kl_gradient(mean, scale)
    assert (error.abs() < 5 * gradients.std(dim=0) / math.sqrt(60)).all()
    assert (gradients.std(dim=0) / math.sqrt(60) < 0.01).all()


def test_result_1_bias_falls_like_one_over_m():
    sizes = [4, 8, 16, 32]
    biases = []
    for M in sizes:
        gradients = proposal_gradients(M, 2_000_000 // M, seed=3, mean=0.0, scale=1.0)
        bias, error = (
            gradients.mean(dim=0) - kl_gradient(0.0, 1.0),
            gradients.std(dim=0) / math.sqrt(len(gradients)),
        )
        assert (bias.abs() > 5 * error).all()  # measured, not noise
        biases.append(bias.norm().item())
    slope = np.polyfit(np.log(sizes), np.log(biases), 1)[0]
    assert -1.2 < slope < -0.8


# Rates: q and p are different mixtures, f = log p


def mixture(logits: list[float], means: list[float], scales: list[float], B: int) -> GaussianMixture:
    logits, means, scales = torch.tensor([logits, means, scales], dtype=torch.float64)[:, None].expand(
        3, B, -1
    )
    return GaussianMixture(logits, means[..., None], scales[..., None])


def sobol_replicates(n: int, B: int, D: int, generator: torch.Generator) -> Tensor:
    seeds = torch.randint(2**31, (B,), generator=generator).tolist()
    return torch.stack([sampling.sobol(n, D, seed) for seed in seeds], dim=1)


@pytest.mark.parametrize(
    ("points", "slopes"),
    [
        (sampling.independent, (-0.6, -0.4)),
        (sampling.stratified, (-1.6, -0.8)),  # -1.5 for smooth functions; the components' borders are jumps
        (sobol_replicates, (-1.6, -0.8)),
    ],
    ids=["independent", "stratified", "sobol"],
)
def test_rate_of_the_error_of_log_z(points: Callable[..., Tensor], slopes):
    B, sizes, errors = 400, [16, 64, 256, 1024], []
    p = mixture([0.3, 0.0, -0.5], [-1.2, 0.2, 1.5], [0.4, 0.6, 0.5], B)
    q = mixture([0.0, 0.2, 0.0, 0.3], [-1.5, -0.3, 0.6, 1.4], [0.7, 0.8, 0.6, 0.9], B)
    for M in sizes:
        y = q.from_uniform(points(M, B, 1, generator=rng(M)))
        errors.append(objectives.log_partition(p.log_prob(y), q.log_prob(y)).square().mean().sqrt().item())
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert slopes[0] < slope < slopes[1]
