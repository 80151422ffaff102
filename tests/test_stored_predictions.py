"""Predictions of stored weights.

Those of energies are compared with sums over a grid of two million points, or 2,000 x 2,000, the threshold
and the expectation of the mixture of one target with sums over a million. The others stay what they were in
commit f93c4b1, before the packages.
"""

import json
import math
from pathlib import Path

import pytest
import torch

from ebreg import models, networks
from ebreg.predictive import Accuracy
from ebreg.units import Units

CASES = json.loads((Path(__file__).parent / "data" / "stored_predictions.json").read_text(encoding="utf-8"))


def tensor_of(name: str, stored: dict) -> torch.Tensor:
    infinite = -math.inf if name.endswith("low") else math.inf
    values = [infinite if value is None else value for value in stored["values"]]
    is_weight = "units" not in name and "bounds" not in name and "tail" not in name
    return torch.tensor(values, dtype=torch.float32 if is_weight else torch.float64).reshape(stored["shape"])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_answers_of_stored_weights(case):
    D = case["n_targets"]
    units = Units.blank(2, D, case["bounded"])
    parts = networks.table(2, D, n_components=2, width=3, bounds=units.standard_bounds)
    model = getattr(models, case["kind"]).of(parts, units)
    model.load_state_dict({name: tensor_of(name, stored) for name, stored in case["tensors"].items()})
    p = model.to_float64().eval().predictive(case["x"], Accuracy(n_draws=2**15))
    y = torch.tensor(case["y"], dtype=torch.float64)
    levels = torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64)
    found = {
        "mean": p.mean,
        "stddev": p.stddev,
        "quantile": p.quantile(levels),
        "log_prob": p.log_prob(y),
        "cdf": p.cdf(y),
        "log_partition": p.log_partition,
        "log_threshold": p.highest_density_region(0.8).log_threshold,
        "expectation": p.expectation(torch.sin),
    }
    by_sums = {"mixture, one target": {"log_threshold": 3e-5, "expectation": 3e-5}}
    if case["kind"] == "EnergyModel":
        # As far off as nodes are, or as weighted draws: about four standard errors.
        by_sums[case["name"]] = dict.fromkeys(found, 1.5e-4 if D == 1 else 0.03)
    for name, wanted in case["answers"].items():
        wanted = torch.tensor(wanted, dtype=torch.float64)
        atol = by_sums.get(case["name"], {}).get(name, 1e-6)
        torch.testing.assert_close(
            found[name], wanted, rtol=1e-6, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )
