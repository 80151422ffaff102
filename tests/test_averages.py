import math

import pytest
import torch
from torch import nn

from ebreg.training.averaging import Average

F64 = torch.float64


def run(power: float, values: list[float]) -> float:
    module = nn.Linear(1, 1, bias=False, dtype=F64)
    average = Average(module, power)
    for value in values:
        with torch.no_grad():
            module.weight.fill_(value)
        average.update()
    return average.module.weight.item()


def test_power_zero_is_the_mean():
    assert math.isclose(run(0, [1.0, 2.0, 6.0]), 3.0)


@pytest.mark.parametrize("power", [0, 1, 2, 8])
def test_the_weight_of_a_step_grows_with_its_number_to_the_power(power: int):
    # For whole p, step t counts with t (t + 1) ... (t + p - 1).
    weights = [math.prod(range(t, t + power)) for t in range(1, 8)]
    values = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert math.isclose(run(power, values), expected, rel_tol=1e-12)


def test_after_one_step_it_is_that_step():
    assert run(8, [0.7]) == pytest.approx(0.7, abs=1e-15)


def test_the_module_itself_is_not_touched():
    module = nn.Linear(3, 2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    average = Average(module, 2.0)
    average.update()
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert average.module is not module


def test_statistics_are_averaged_counters_and_infinite_buffers_are_copied():
    module = nn.BatchNorm1d(2)
    module.register_buffer("end", torch.tensor([math.inf, -math.inf]))
    average = Average(module, 0.0)
    for value in (1.0, 3.0):
        module.running_mean.fill_(value)
        module.num_batches_tracked.add_(5)
        average.update()
    assert average.module.running_mean.tolist() == [2, 2]
    assert average.module.num_batches_tracked.item() == 10
    assert average.module.end.tolist() == [math.inf, -math.inf]


def test_what_never_changes_stays_to_the_last_bit():
    module = nn.Linear(5, 5)
    average = Average(module, 8.0)
    for _ in range(50):
        average.update()
    assert torch.equal(average.module.weight, module.weight)
