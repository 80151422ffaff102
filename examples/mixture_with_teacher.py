"""A mixture density network, by its likelihood and with an energy-based teacher (Eq. 8)."""

import torch

from ebreg import MixtureModel, TrainingConfig, fit, methods, networks
from ebreg.datasets import brando

task = brando()
data, config = (task.x_train, task.y_train), TrainingConfig(epochs=15)


def student() -> MixtureModel:
    """The same weights each time."""
    torch.manual_seed(0)
    return MixtureModel.for_table(*data)


teacher = networks.table(n_inputs=1)
for method in (
    methods.MixtureNLL(student()),
    methods.MixtureTeacher(student(), teacher.energy, teacher.backbone),
    methods.MixtureTeacher(student(), networks.table(n_inputs=1).energy),  # one backbone for both
):
    fit(method, data, config=config)
    nll = -method.model.predictive(task.x_test).log_prob(task.y_test).mean()
    print(f"{method.name}: test NLL {nll.item():.3f}")
