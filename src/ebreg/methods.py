"""The training methods: which loss trains which parameters. The first six are the paper's.

==============  =====================  =======================  ================
method          f learns by            q learns by              draws come from
==============  =====================  =======================  ================
`fixed-mle`     Eq. (2)                Eq. (5)                  noise around y
`fixed-nce`     Eq. (6)                Eq. (5)                  noise around y
`joint-mle`     Eq. (2)                the same Eq. (2)         q
`joint-nce`     Eq. (6)                Eq. (5)                  q
`mdn-nll`       (no f)                 its log-likelihood       (no draws)
`mdn-teacher`   Eq. (6), the teacher   Eq. (8), the student     q
`residual-nce`  Eq. (6), f = log q+g   its log-likelihood, (8)  q
==============  =====================  =======================  ================

What is detached is written in each method and nowhere else; draws are never differentiated. `ProposalNLL` and
`TeacherFirstStage` replace some of the six in the first epochs (`Method.first_stage`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ebreg import sampling
from ebreg._utils import checks
from ebreg.distributions import TargetNoise
from ebreg.models import EnergyModel, MixtureModel, Model, Position, ResidualModel
from ebreg.objectives import log_partition, mdn, mle, nce, nll
from ebreg.predictive import VALIDATION
from ebreg.sampling import Draws, draw, sampler
from ebreg.units import Tail

Losses = dict[str, Tensor]

# Weight of the squared mean of a correction over the draws of a row.
_OFFSET = 0.03
# Draws to train the proposal of a fixed method: as many as the joint methods use.
_N_STRATA = 32


class Method(nn.Module):
    """A training method: a module that returns named losses per example.

    The training loop adds the means of the losses and knows nothing else of f and q. ``model`` is kept after
    training.
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
        """All randomness of a step for B examples, shape (n, B, D): column b belongs to example b alone."""
        raise NotImplementedError  # abstract

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """Losses for a batch in the user's units and the points of the same rows; each has shape (B,)."""
        raise NotImplementedError  # abstract

    def first_stage(self) -> "Method":
        """The method that replaces this one in the first epochs, on the same networks.

        Where q learns from f, q is first trained by its own log-likelihood. Draws of an untrained q are far
        from the data and from the mass of f, so neither f nor q would learn from them.
        """
        return self

    @torch.no_grad()
    def validation_nll(self, x: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood in the user's units, shape (B,); by quadrature for one target.

        With members, rows come in blocks, and each belongs to its member. Not differentiated.
        """
        # The last member in training is validated as the others were.
        if self.model.calibration is None:
            return -self.model.log_prob(x, y, VALIDATION)
        return -self.model.member_log_prob(x, y, VALIDATION)


def _with_target(y: Tensor, draws: Tensor) -> Tensor:
    # The target is draw 0: one call of the networks instead of two.
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

    def first_stage(self) -> Method:
        """See :meth:`Method.first_stage`."""
        return ProposalNLL(self.model)

    def extra_repr(self) -> str:
        """The settings."""
        return repr(self.sampler)

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor, draws: Draws) -> Losses:
        """The loss of f has no gradient in q, and the loss of q has none in f."""
        return {
            "nce": nce(f_y, log_q_y.detach(), draws.as_noise(f), log_q.detach()),
            "log_z": log_partition(f.detach(), log_q),
        }


class JointMLE(JointNCE):
    """f and q by the importance-sampled likelihood (Eq. 2) alone."""

    name = "joint-mle"

    def losses(self, f_y: Tensor, log_q_y: Tensor, f: Tensor, log_q: Tensor, draws: Draws) -> Losses:
        """Nothing is detached: one loss trains both f and q (Section 3.2 of the paper)."""
        return {"mle": mle(f_y, f, log_q)}


class ProposalNLL(Method):
    """First stage of the joint methods: only q is trained, by its log-likelihood."""

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

    A proposal is trained by Eq. (5) at the same time. f does not depend on it; prediction needs it.

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
        """The loss of f, and ``log_z`` of the proposal."""
        h, y = self.model.features(x), self.model.standardize(y)
        u_noise, u_q = u[: self.n_draws], u[self.n_draws :]
        noise = self.noise.around(y, self.model.y_units.scale, self.model.standard_bounds)
        values = _with_target(y, noise.from_uniform(u_noise))
        f, log_noise = self.model.f(h, values), noise.log_prob(values)
        q = self.model.q(h.detach())
        draws = draw(q, u_q).to(y.dtype)
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
    """A mixture density network by Eq. (8), with an energy-based teacher trained by Eq. (6).

    Args:
        model: The student, which is kept.
        energy: The teacher's head; discarded after training.
        backbone: A backbone of the teacher alone, as in the paper; None shares the student's, which both
            losses then train.
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``.
        tail: The tail of the teacher's energy, in standard units.
    """

    name = "mdn-teacher"
    trains = MixtureModel
    model: MixtureModel

    def __init__(
        self,
        model: MixtureModel,
        energy: nn.Module,
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

    def first_stage(self) -> Method:
        """See :meth:`Method.first_stage`."""
        return TeacherFirstStage(self)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.sampler!r}, shared={self.shared}"

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` of the teacher and ``mdn`` of the student."""
        teacher_nce, f, log_q_y, log_q = self.terms(x, y, u)
        return {"nce": teacher_nce, "mdn": mdn(log_q_y, f, log_q)}

    def terms(self, x: Tensor, y: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The teacher's loss (B,), its f at the draws (M, B), and log q of the targets and of the draws.

        The teacher's loss has no gradient in q, and f is detached for the student.
        """
        h_q = self.model.features(x)
        h_f = h_q if self.shared else self.teacher.features(x)
        y = self.model.standardize(y)
        q = self.model.q(h_q)
        draws = self.sampler(q, y, u)
        values = _with_target(y, draws.y)
        f, log_q = self.teacher.f(h_f, values), q.log_prob(values)
        teacher_nce = nce(f[0], log_q[0].detach(), draws.as_noise(f[1:]), log_q[1:].detach())
        return teacher_nce, f[1:].detach(), log_q[0], log_q[1:]


class TeacherFirstStage(Method):
    """First stage of `MixtureTeacher`: the student by its log-likelihood, the teacher by Eq. (6)."""

    name = "teacher-first-stage"
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
        teacher_nce, _, log_q_y, _ = self.method.terms(x, y, u)
        return {"nce": teacher_nce, "nll": nll(log_q_y)}


def correction_losses(
    model: ResidualModel, q: Any, h: Tensor, y: Tensor, draws: Draws, log_width: Tensor | float = 0.0
) -> Losses:
    """The losses ``nce`` and ``offset`` of g, from draws of q, features and targets in standard units.

    ``log_width``, (B,), is added to the log density of q that g sees.
    """
    values, place = draws.with_target(y)
    with torch.no_grad():  # q does not learn from g
        position = Position.of(q, values)
    g = model.g(h, values, replace(position, log_q=position.log_q + log_width))
    g_y, noise = g.gather(0, place[None])[0], g.scatter(0, place[None], -torch.inf)
    zero = torch.zeros_like(g)
    return {"nce": nce(g_y, zero[0], noise, zero), "offset": _OFFSET * g.mean(dim=0).square()}


class ResidualNCE(Method):
    """A correction g of log q by NCE (Eq. 6) with q as the noise; not in the paper.

    With f = log q + g, the logits f - log q are g alone. The backbone learns
    from both losses. Eq. (6) leaves a constant of each row open, and g has bounds: a weak third loss, the
    squared mean of g, keeps it from drifting to the lower one, from where g could raise far tails of q.

    Args:
        model: The model.
        n_draws: M.
        draws: A name in ``ebreg.sampling.SAMPLERS``.
        proposal_loss: How q learns: "nll", by its log-likelihood, or "mdn", by Eq. (8).
    """

    name = "residual-nce"
    trains = ResidualModel
    model: ResidualModel

    def __init__(
        self, model: ResidualModel, n_draws: int = 4, draws: str = "stratified", proposal_loss: str = "nll"
    ):
        super().__init__(model)
        self.sampler = sampler(draws, n_draws)
        checks.one_of("proposal_loss", proposal_loss, ["nll", "mdn"])
        self.proposal_loss = proposal_loss

    def points(self, B: int, generator: torch.Generator | None = None) -> Tensor:
        """See :meth:`Method.points`."""
        return self.sampler.points(B, self.model.n_targets, generator)

    def forward(self, x: Tensor, y: Tensor, u: Tensor) -> Losses:
        """The losses ``nce`` and ``offset`` of g, and ``nll`` or ``mdn`` of q."""
        h, y = self.model.features(x), self.model.standardize(y)
        q = self.model.q(h)
        draws = self.sampler(q, y, u)
        correction = correction_losses(self.model, q, h, y, draws)
        return {**correction, self.proposal_loss: self._of_proposal(q, h, y, draws.y)}

    def _of_proposal(self, q: Any, h: Tensor, y: Tensor, draws: Tensor) -> Tensor:
        if self.proposal_loss == "nll":
            return nll(q.log_prob(y))
        with torch.no_grad():
            g = self.model.g(h, draws, Position.of(q, draws))
        log_q = q.log_prob(_with_target(y, draws))
        return mdn(log_q[0], log_q[1:].detach() + g, log_q[1:])

    def first_stage(self) -> Method:
        """See :meth:`Method.first_stage`: none is needed where q learns by its log-likelihood anyway."""
        return self if self.proposal_loss == "nll" else ProposalNLL(self.model)

    def extra_repr(self) -> str:
        """The settings."""
        return f"{self.sampler!r}, proposal_loss={self.proposal_loss!r}"


METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (FixedMLE, FixedNCE, JointMLE, JointNCE, MixtureNLL, MixtureTeacher, ResidualNCE)
}
