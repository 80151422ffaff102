"""Any finite data of any scale trains to the same fit in the user's units, and no seed gives a NaN."""

import math
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from ebreg import metrics
from ebreg.datasets import TASKS, gustafsson
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.training import fit
from ebreg.training.config import TrainingConfig

QUICK = TrainingConfig(epochs=5, batch_size=128)


def trained(x: Tensor, y: Tensor, config: TrainingConfig, seed: int = 0, **settings) -> EnergyModel:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = EnergyModel.for_table(x, y, **settings)
    fit(JointNCE(model, n_draws=16), (x, y), config=replace(config, seed=seed), progress=False)
    return model


@lru_cache
def plainly_trained(sign: int, config: TrainingConfig) -> EnergyModel:
    """On the targets in their own units; not to be changed."""
    task = gustafsson(n=300)
    return trained(task.x_train, sign * task.y_train, config)


def log_density(model: EnergyModel, x: Tensor, y: Tensor) -> Tensor:
    return model.predictive(x).log_prob(y[:, None, None].expand(-1, len(x), 1))  # (G, B)


@pytest.mark.parametrize(
    "config", [QUICK, pytest.param(TrainingConfig(epochs=60), marks=pytest.mark.slow)], ids=["quick", "long"]
)
@pytest.mark.parametrize(
    ("factor", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e6), (1e-6, 1.0), (-3e-200, 0.0)]
)
def test_the_fit_does_not_depend_on_the_units_of_y(config: TrainingConfig, factor: float, shift: float):
    task = gustafsson(n=300)
    x = torch.linspace(-3, 3, 9, dtype=torch.float64)[:, None]
    y = torch.linspace(-3, 3, 512, dtype=torch.float64)
    sign = 1 if factor > 0 else -1
    plain = log_density(plainly_trained(sign, config), x, sign * y)
    scaled = log_density(trained(task.x_train, factor * task.y_train + shift, config), x, factor * y + shift)
    assert metrics.kl_on_grid(plain, scaled).max() < 0.01
    # The same without normalising on the grid: the densities differ by the change of units and nothing else.
    # Not point by point: a shift rounds y, and after many steps two trainings differ where there is no data.
    log_ratio = plain - scaled - math.log(abs(factor))
    assert ((plain.exp() * log_ratio).sum(dim=0) * (y[1] - y[0])).abs().max() < 0.01


@pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e6)])
def test_the_fit_does_not_depend_on_the_units_of_x(factor: float, shift: float):
    task = gustafsson(n=300)
    config = replace(QUICK, epochs=3)
    x = torch.linspace(-3, 3, 9, dtype=torch.float64)[:, None]
    y = torch.linspace(-3, 3, 256, dtype=torch.float64)
    plain = log_density(plainly_trained(1, config), x, y)
    scaled = log_density(trained(factor * task.x_train + shift, task.y_train, config), factor * x + shift, y)
    assert metrics.kl_on_grid(plain, scaled).max() < 0.01


@pytest.mark.parametrize("n_rows", [1, 2, 3, 10])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_few_rows_constant_columns_and_ties_train(n_rows: int, n_targets: int):
    x = torch.ones(n_rows, 3)
    y = torch.arange(n_rows * n_targets).reshape(n_rows, n_targets) // 2 * 5.0
    model = trained(x, y, replace(QUICK, epochs=10), n_components=2, width=8)
    p = model.predictive(x)
    assert torch.isfinite(p.log_prob(y)).all()
    assert torch.isfinite(p.mean).all()
    assert torch.isfinite(p.variance).all()


def test_one_draw_one_component_one_row_a_batch():
    task = gustafsson(n=12)
    torch.manual_seed(0)
    model = EnergyModel.for_table(task.x_train, task.y_train, n_components=1)
    config = replace(QUICK, batch_size=1, epochs=2)
    fit(JointNCE(model, n_draws=1), (task.x_train, task.y_train), config=config, progress=False)
    assert torch.isfinite(model.predictive(task.x_train).log_prob(task.y_train)).all()


def test_an_outlier_does_not_spoil_the_fit_of_the_rest():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 1, generator=generator)
    y = x + 0.1 * torch.randn(500, 1, generator=generator)
    y[0] = 1e4
    model = trained(x, y, replace(QUICK, epochs=20))
    low, high = model.predictive(torch.zeros(1, 1)).icdf([0.16, 0.84])[:, 0, 0].tolist()
    assert 0.05 < (high - low) / 2 < 0.3


def test_an_outlier_a_thousand_deviations_away_trains():
    task = gustafsson(n=300)
    y = task.y_train.clone()
    y[0] = 1e5
    model = trained(task.x_train, y, QUICK)
    assert torch.isfinite(model.predictive(task.x_train).log_prob(y)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("seed", range(50))
def test_no_seed_gives_a_nan(name: str, seed: int):
    task = TASKS[name]()
    model = trained(task.x_train, task.y_train, TrainingConfig(epochs=15), seed)
    p = model.predictive(task.x_train)
    assert torch.isfinite(p.log_prob(task.y_train)).all()
    assert torch.isfinite(p.mean).all()
    assert (p.effective_sample_size > 1).all()
