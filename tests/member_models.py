"""Models with several members, and the models of single members, for tests."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ebreg import methods, networks
from ebreg.methods import Method
from ebreg.models import Calibration, EnergyModel, MixtureModel, Model, ResidualModel
from ebreg.networks import MLP, Correction, LinearMixtureHead, MemberEnergyHead, Networks
from ebreg.units import Bounds, Units
from support import normal, rng

E, WIDTH, K = 3, 8, 3
SIGMAS = (0.3, 1.0)
KINDS = (MixtureModel, EnergyModel, ResidualModel)
# Every method with members: its model, and its settings.
METHODS: dict[str, tuple[type[Model], dict[str, Any]]] = {
    "fixed-mle": (EnergyModel, {"sigmas": SIGMAS, "n_draws": 5}),
    "fixed-nce": (EnergyModel, {"sigmas": SIGMAS, "n_draws": 5}),
    "joint-mle": (EnergyModel, {"n_draws": 5}),
    "joint-nce": (EnergyModel, {"n_draws": 5}),
    "mdn-nll": (MixtureModel, {}),
    "mdn-teacher": (MixtureModel, {"n_draws": 5}),
    "mdn-teacher shared": (MixtureModel, {"n_draws": 5}),
    "residual-nce": (ResidualModel, {"n_draws": 5}),
    "residual-nce mdn": (ResidualModel, {"n_draws": 5, "proposal_loss": "mdn"}),
}


def data(D: int = 1, n: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and targets in units far from standard."""
    x, noise = normal(n, 2, seed=seed), normal(n, D, seed=seed + 1)
    return 10 * x - 7, 0.01 * (x[:, :1] + 0.7 * noise) + 5


def units(D: int, bounded: bool = False) -> Units:
    x, y = data(D)
    bounds = Bounds(y.amin(dim=0), torch.full((D,), torch.inf)) if bounded else None
    return Units.of(x, y, bounds)


def member_networks(kind: type[Model], D: int, n_members: int, scale: Units, width: int = WIDTH) -> Networks:
    """The networks of members, also for one member."""
    bounds = scale.standard_bounds
    parts = networks.table(2, D, K, width, bounds=bounds, n_members=n_members)
    linear = networks.linear_of(n_members)
    mixture = LinearMixtureHead(width, D, K, min_scale=1e-3, spread=True, bounds=bounds, linear=linear)
    head: nn.Module = MemberEnergyHead(n_members, width, D, width, width, n_layers=2)
    if kind is ResidualModel:
        head = Correction(n_members, width, D, width)
    backbone = MLP(2, (width, width), activation="silu", residual=True, linear=linear)
    return replace(parts, backbone=backbone, energy=head, mixture=mixture)


def perturb(module: nn.Module, size: float = 0.2, seed: int = 0) -> None:
    """Add noise to all parameters, so that nothing is 0 or equal by chance."""
    generator = rng(seed)
    with torch.no_grad():
        for p in module.parameters():
            p += size * torch.randn(p.shape, generator=generator, dtype=p.dtype)


def model_of(kind: type[Model], D: int = 1, n_members: int = E, bounded: bool = False) -> Any:
    scale = units(D, bounded)
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        model = kind.of(member_networks(kind, D, n_members, scale), scale).double()
    perturb(model)
    return model


def unequal(model: Model) -> Model:
    """The same model, with weights that differ."""
    D, weights = model.n_targets, torch.arange(1, E + 1, dtype=torch.float64)
    model.calibration = Calibration(weights / weights.sum(), torch.zeros(D), torch.ones(D))
    return model


def alone(model: Model, member: int) -> Any:
    """The model of one member: plain linear layers where the model of members has them, with its weights."""
    kind, D = type(model), model.n_targets
    scale = units(D, bounded=not model.bounds.are_open)
    single = kind.of(member_networks(kind, D, 1, scale), scale).double()
    copy_member(model, single, member)
    return single


def copy_member(source: nn.Module, single: nn.Module, member: int) -> None:
    """Give the layers of one network the weights of a member; a torch Linear has its weight transposed."""
    members = dict(source.named_parameters())
    with torch.no_grad():
        for name, p in single.named_parameters():
            p.copy_(sliced(members[name], member, p))


def sliced(value: Tensor, member: int, like: Tensor) -> Tensor:
    """One member of a weight, a bias or a gradient, in the shape of a single network's."""
    if value.dim() == like.dim():
        return value[member : member + 1]
    return value[member].T if like.dim() == 2 else value[member, 0]


def method_of(name: str, D: int = 1) -> Method:
    kind, settings = METHODS[name]
    return _method(name, model_of(kind, D), E, settings)


def method_alone(name: str, method: Method, member: int) -> Method:
    """The same training of one member's model."""
    single = _method(name, alone(method.model, member), 1, METHODS[name][1])
    copy_member(method, single, member)
    return single


def _method(name: str, model: Any, n_members: int, settings: dict[str, Any]) -> Method:
    D = model.n_targets
    if not name.startswith("mdn-teacher"):
        return methods.METHODS[name.split()[0]](model, **settings)
    teacher = member_networks(EnergyModel, D, n_members, units(D))
    backbone = None if name.endswith("shared") else teacher.backbone
    method = methods.MixtureTeacher(model, teacher.energy, backbone, **settings).double()
    perturb(method.teacher.energy, seed=1)
    return method
