"""Train a model of a target with two modes, and predict its distribution."""

import torch

from ebreg import EnergyModel, TrainingConfig, fit, methods
from ebreg.datasets import gustafsson

torch.manual_seed(0)
task = gustafsson(n=800)
model = EnergyModel.for_table(task.x_train, task.y_train)
fit(methods.JointNCE(model), (task.x_train, task.y_train), config=TrainingConfig(epochs=10))

with torch.no_grad():  # nothing is differentiated here
    p = model.predictive(torch.tensor([[-1.5], [1.0]]))
for row, x in enumerate(("-1.5", " 1.0")):
    modes = p.modes()[row]
    print(f"x = {x}: mean {p.mean[row].item():+.2f}, deviation {p.stddev[row].item():.2f}")
    print(f"  modes {modes.locations[:, 0].tolist()} with masses {modes.masses.tolist()}")
    print(f"  90 % of the mass lies in {p.highest_density_region(0.9).intervals[row].tolist()}")
print("5 % and 95 % quantiles:", p.icdf([0.05, 0.95])[..., 0].T.tolist())
print("effective sample size of 512 draws:", p.effective_sample_size.tolist())
