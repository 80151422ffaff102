"""A spline flow of zuko as the proposal: any module that returns a torch Distribution works."""

import torch
import zuko

from ebreg import EnergyModel, TrainingConfig, fit, methods, networks
from ebreg.datasets import gustafsson
from ebreg.units import Standardizer, Tail

torch.manual_seed(0)
task = gustafsson(n=600)
nets = networks.table(n_inputs=1)
units = Standardizer.of("y", task.y_train)
model = EnergyModel(
    nets.backbone,
    nets.energy,
    proposal=zuko.flows.NSF(features=1, context=64, transforms=1, hidden_features=(32, 32)),
    x_units=Standardizer.of("x", task.x_train),
    y_units=units,
    tail=Tail.of(units(task.y_train)),
)
fit(methods.JointNCE(model), (task.x_train, task.y_train), config=TrainingConfig(epochs=8))
with torch.no_grad():  # nothing is differentiated here
    p = model.predictive(torch.tensor([[-1.5], [1.0]]))
print("mean", p.mean[:, 0].tolist(), "effective sample size of 512 draws", p.effective_sample_size.tolist())
