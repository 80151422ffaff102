"""A mixture density network trained by its likelihood, and with an energy-based teacher (Eq. 8)."""

import torch

from ebreg import MixtureModel, TrainingConfig, fit, methods, networks
from ebreg.datasets import brando
from ebreg.units import Standardizer, Tail

task = brando()
data = (task.x_train, task.y_train)
config = TrainingConfig(epochs=3)  # quick; use about a hundred
tail = Tail.of(Standardizer.of("y", task.y_train)(task.y_train))


def student() -> MixtureModel:
    """A new model, with the same initial weights each time."""
    torch.manual_seed(0)
    return MixtureModel.for_table(*data)


nets = networks.table(n_inputs=1)
two_networks = methods.MixtureTeacher(student(), nets.energy, nets.backbone, tail=tail)
one_backbone = methods.MixtureTeacher(student(), networks.table(n_inputs=1).energy, tail=tail)
for method in (methods.MixtureNLL(student()), two_networks, one_backbone):
    fit(method, data, config=config)
    with torch.no_grad():
        nll = -method.model.predictive(task.x_test).log_prob(task.y_test).mean()
    print(f"{method.name}: test NLL {nll.item():.3f}")
