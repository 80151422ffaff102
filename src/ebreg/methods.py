"""The six training methods: which loss moves which parameters.

=============  =====================  =======================  ================
method         f learns by            q learns by              draws come from
=============  =====================  =======================  ================
`fixed-mle`    Eq. (2)                Eq. (5), beside f        noise around y
`fixed-nce`    Eq. (6)                Eq. (5), beside f        noise around y
`joint-mle`    Eq. (2)                the same Eq. (2)         q
`joint-nce`    Eq. (6)                Eq. (5)                  q
`mdn-nll`      (there is none)        its log-likelihood       (there are none)
`mdn-teacher`  Eq. (6), the teacher   Eq. (8), the student     q
=============  =====================  =======================  ================

What is detached is written in each method and nowhere else; draws are never differentiated. Beside the six,
`ProposalNLL` and `TeacherOpening` stand in for some of them in the first epochs (`Method.opening`).
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from ebreg import sampling
from ebreg._utils import checks
from ebreg.distributions import TargetNoise
from ebreg.models import EnergyModel, MixtureModel, Model
from ebreg.networks import EnergyHead
from ebreg.objectives import log_partition, mdn, mle, nce, nll
from ebreg.predictive import VALIDATION
from ebreg.sampling import Draws, draw, sampler
from ebreg.units import Tail

Losses = dict[str, Tensor]

# Draws of a proposal that learns beside a fixed method: as many as the joint methods use.
_N_STRATA = 32


class Method(nn.Module):
    """A training method: a module whose call gives named losses, one value per example each.

    The training loop adds their means and knows nothing else of f and q. ``model`` is what is kept and used
    after training.
    """

    name: ClassVar[str]
    trains: ClassVar[type[Model]]
    model: Model

    def __init__(self, model: Model):
        super().__init__()
        if not isinstance(model, self.trains):
            raise TypeError(
                f"{type(self).__name__} trains a model of type {self.trains.__name__}, "
                f"got {type(model).__name__}"
            )
        self.model = model

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """All randomness of a step for B examples, shape (n, B, D): row b belongs to example b alone."""
        raise NotImplementedError  # abstract

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """Losses for a batch in the user's units and the points of the same rows; each has shape (B,)."""
        raise NotImplementedError  # abstract

    def opening(self) -> "Method":
        """What to train in place of this for a few epochs at the start, on the same networks.

        Where q learns from f, it begins with its own log-likelihood: far from both the data and f its draws
        would teach neither.
        """
        return self

    def validation_nll(self, x: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood in the user's units, shape (B,); by quadrature for one target."""
        return -self.model.log_prob(x, y, VALIDATION)


def _with_target(y: Tensor, draws: Tensor) -> Tensor:
    # The target rides along as draw 0: one pass through the networks instead of two.
    return torch.cat([y[None], draws])


class JointNCE(Method):
    """f by NCE (Eq. 6) with q as the noise, q by its divergence to f (Eq. 5): the paper's method."""

    name = "joint-nce"
    trains = EnergyModel
    model: EnergyModel

    def __init__(self, model: EnergyModel, n_draws: int = 32, draws: str = "stratified"):
        super().__init__(model)
        self.sampler = sampler(draws, n_draws)

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.sampler.points(B, self.model.n_targets, generator)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` and ``log_z``."""
        h, y = self.model.features(x), self.model.standardize(y)
        q = self.model.q(h.detach())
        draws = self.sampler(q, y, u)
        values = _with_target(y, draws.y)
        f, log_q = self.model.f(h, values), q.log_prob(values)
        return self.losses(f[0], log_q[0], f[1:], log_q[1:], draws)

    def opening(self) -> Method:
        """See :meth:`Method.opening`."""
        return ProposalNLL(self.model)

    def extra_repr(self) -> str:
        """The settings."""
        return repr(self.sampler)

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor, draws: Draws) -> Losses:
        """The energy does not move q, and q does not move the energy."""
        return {
            "nce": nce(f_y, log_q_y.detach(), draws.as_noise(f), log_q.detach()),
            "log_z": log_partition(f.detach(), log_q),
        }


class JointMLE(JointNCE):
    """f and q by the importance-sampled likelihood (Eq. 2) alone."""

    name = "joint-mle"

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor, draws: Draws) -> Losses:
        """Nothing is detached: the same loss moves both (Section 3.2 of the paper)."""
        return {"mle": mle(f_y, f, log_q)}


class ProposalNLL(Method):
    """The opening of the joint methods: q alone, by its log-likelihood; f and the features stay."""

    name = "proposal-nll"
    trains = EnergyModel
    model: EnergyModel

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """None are needed."""
        return torch.empty(0, B, self.model.n_targets)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The loss ``nll``."""
        h, y = self.model.features(x).detach(), self.model.standardize(y)
        return {"nll": nll(self.model.q(h).log_prob(y))}


class FixedNCE(Method):
    """f by NCE (Eq. 6) with hand-set noise around the target: the baseline.

    Beside it a proposal learns by Eq. (5), so that the model can answer at test time; f never sees it.

    Args:
        model: The model.
        sigmas: Standard deviations of the noise, in the user's units.
        n_draws: M, of the noise.
    """

    name = "fixed-nce"
    trains = EnergyModel
    model: EnergyModel

    def __init__(self, model: EnergyModel, sigmas: Sequence[float], n_draws: int = 1024):
        super().__init__(model)
        self.noise = TargetNoise(sigmas)
        self.n_draws = checks.at_least("n_draws", n_draws, 1)

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`: M for the noise, and strata for the proposal."""
        D = self.model.n_targets
        noise = sampling.independent(self.n_draws, B, D, generator)
        return torch.cat([noise, sampling.stratified(_N_STRATA, B, D, generator)])

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The energy's loss, and ``log_z`` of the proposal beside it."""
        h, y = self.model.features(x), self.model.standardize(y)
        u_noise, u_q = u[: self.n_draws], u[self.n_draws :]
        noise = self.noise.around(y, self.model.y_units.scale, self.model.standard_bounds)
        values = _with_target(y, noise.from_uniform(u_noise))
        f, log_noise = self.model.f(h, values), noise.log_prob(values)
        q = self.model.q(h.detach())
        draws = draw(q, u_q)
        with torch.no_grad():
            f_q = self.model.f(h, draws)
        return {
            **self.losses(f[0], log_noise[0], f[1:], log_noise[1:]),
            "log_z": log_partition(f_q, q.log_prob(draws)),
        }

    def extra_repr(self) -> str:
        """The settings."""
        return f"sigmas={self.noise.sigmas}, n_draws={self.n_draws}"

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor) -> Losses:
        """The noise has no parameters: there is nothing to detach."""
        return {"nce": nce(f_y, log_q_y, f, log_q)}


class FixedMLE(FixedNCE):
    """f by the likelihood (Eq. 2), importance-sampled with hand-set noise around the target: the baseline."""

    name = "fixed-mle"

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor) -> Losses:
        """The noise has no parameters: there is nothing to detach."""
        return {"mle": mle(f_y, f, log_q)}


class MixtureNLL(Method):
    """A mixture density network by its log-likelihood: the baseline."""

    name = "mdn-nll"
    trains = MixtureModel
    model: MixtureModel

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """None are needed."""
        return torch.empty(0, B, self.model.n_targets)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The loss ``nll``."""
        return {"nll": nll(self.model.q(self.model.features(x)).log_prob(self.model.standardize(y)))}


class MixtureTeacher(Method):
    """A mixture density network by Eq. (8), with an energy-based teacher that learns beside it by Eq. (6).

    Args:
        model: The student, which is kept.
        energy: The teacher's head; thrown away after training.
        backbone: The teacher's own features, as in the paper; None shares the student's, and both losses
            reach them.
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``.
        tail: Where the teacher's energy ends, in standard units.
    """

    name = "mdn-teacher"
    trains = MixtureModel
    model: MixtureModel

    def __init__(
        self,
        model: MixtureModel,
        energy: EnergyHead,
        backbone: nn.Module | None = None,
        n_draws: int = 32,
        draws: str = "stratified",
        tail: Tail | None = None,
    ):
        super().__init__(model)
        self.teacher = EnergyModel(
            model.backbone if backbone is None else backbone,
            energy,
            proposal=model.head,
            n_targets=model.n_targets,
            x_units=model.x_units,
            y_units=model.y_units,
            tail=tail,
        )
        self.shared = backbone is None
        self.sampler = sampler(draws, n_draws)

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.sampler.points(B, self.model.n_targets, generator)

    def opening(self) -> Method:
        """See :meth:`Method.opening`."""
        return TeacherOpening(self)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.sampler!r}, shared={self.shared}"

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` of the teacher and ``mdn`` of the student."""
        of_teacher, f, log_q_y, log_q = self.terms(x, y, u)
        return {"nce": of_teacher, "mdn": mdn(log_q_y, f, log_q)}

    def terms(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The teacher's loss, and what the student may learn from: its f, log q of the target, of the draws.

        The teacher does not move q, and the student does not move f.
        """
        h_q = self.model.features(x)
        h_f = h_q if self.shared else self.teacher.features(x)
        y = self.model.standardize(y)
        q = self.model.q(h_q)
        draws = self.sampler(q, y, u)
        values = _with_target(y, draws.y)
        f, log_q = self.teacher.f(h_f, values), q.log_prob(values)
        of_teacher = nce(f[0], log_q[0].detach(), draws.as_noise(f[1:]), log_q[1:].detach())
        return of_teacher, f[1:].detach(), log_q[0], log_q[1:]


class TeacherOpening(Method):
    """The opening of a student with a teacher: the student by its log-likelihood, the teacher as ever."""

    name = "teacher-opening"
    trains = MixtureModel
    model: MixtureModel

    def __init__(self, method: MixtureTeacher):
        super().__init__(method.model)
        self.method = method

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.method.points(B, generator)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` of the teacher and ``nll`` of the student."""
        of_teacher, _, log_q_y, _ = self.method.terms(x, y, u)
        return {"nce": of_teacher, "nll": nll(log_q_y)}


METHODS: dict[str, type[Method]] = {
    method.name: method for method in (FixedMLE, FixedNCE, JointMLE, JointNCE, MixtureNLL, MixtureTeacher)
}
