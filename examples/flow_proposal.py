"""A spline flow as the proposal, in place of the mixture: in a regressor by name, in a model your own."""

import torch
import zuko

from ebreg import EnergyModel, EnergyRegressor, TrainingConfig, fit, methods
from ebreg.datasets import gustafsson

task = gustafsson(n=600)

# A regressor takes a name, a module, or a function of the numbers of features and targets.
regressor = EnergyRegressor(proposal="flow", max_iter=8, random_state=0)
regressor.fit(task.x_train.numpy(), task.y_train[:, 0].numpy())
p = regressor.predict_distribution([[-1.5], [1.0]])
print("regressor: mean", p.mean, "effective sample size of 512 draws", p.effective_sample_size)


# So does a model; all rows of a batch are evaluated and sampled at once.
def affine_flow(n_features: int, n_targets: int) -> torch.nn.Module:
    """Two affine transforms, whose shifts and scales depend on the features."""
    return zuko.flows.MAF(features=n_targets, context=n_features, transforms=2, hidden_features=(32, 32))


torch.manual_seed(0)
model = EnergyModel.for_table(task.x_train, task.y_train, proposal=affine_flow)
fit(methods.JointNCE(model), (task.x_train, task.y_train), config=TrainingConfig(epochs=8))
with torch.no_grad():
    q = model.predictive(torch.tensor([[-1.5], [1.0]]))
print("model: mean", q.mean[:, 0].tolist(), "effective sample size", q.effective_sample_size.tolist())
