"""Two dependent targets: points on a ring, which no product of marginals can describe."""

import math

import torch

from ebreg import EnergyModel, TrainingConfig, fit, methods

torch.manual_seed(0)
n = 1500
x = torch.rand(n, 1)
angle = 2 * math.pi * torch.rand(n)
radius = 1 + x[:, 0] + 0.1 * torch.randn(n)
y = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)

model = EnergyModel.for_table(x, y)
fit(methods.JointNCE(model), (x, y), config=TrainingConfig(epochs=12))

with torch.no_grad():  # nothing is differentiated here
    p = model.predictive(torch.tensor([[0.0], [1.0]]))
samples = p.sample(1000, torch.Generator().manual_seed(0))  # (1000, 2, 2)
print("mean", p.mean.tolist())  # in the middle of the ring, where the density is low
print("radius of the samples", samples.norm(dim=-1).mean(dim=0).tolist())
print("expected radius", p.expectation(lambda y: y.norm(dim=-1)).tolist())
region = p.highest_density_region(0.9)
print("is the mean in the 90 % region?", region.contains(p.mean).tolist())
print("error of log Z", p.log_partition_error.tolist())
