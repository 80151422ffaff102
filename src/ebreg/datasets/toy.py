"""The paper's two 1-D regression tasks, with their true densities.

Points come from NumPy's legacy ``RandomState``, which never changes: a seed gives the same points everywhere,
and the second task has exactly the points of its authors.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from ebreg._utils import checks


@dataclass(frozen=True, eq=False)
class ToyTask:
    """A data set of one input and one target with known p(y | x).

    All tensors are float64. The grids are those on which the paper evaluates; it evaluates the second
    task at the test inputs only, so ``n_x`` is not from the paper there.

    Attributes:
        name: Its name in ``TASKS``.
        x_train: Shape (n, 1).
        y_train: Shape (n, 1).
        x_range: First and last x of the grid, and the inputs for which the density is defined.
        y_range: First and last y of the grid.
        n_x: Number of x in the grid.
        n_y: Number of y in the grid.
        conditional: The function behind ``log_density``: x and y of one common shape to log p(y | x).
        x_val: Shape (n_val, 1), or None if the task has no validation set.
        y_val: Shape (n_val, 1), or None.
        x_test: Shape (n_test, 1), or None if the task has no test set.
        y_test: Shape (n_test, 1), or None.
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    n_x: int
    n_y: int
    conditional: Callable[[Tensor, Tensor], Tensor] = field(repr=False)
    x_val: Tensor | None = None
    y_val: Tensor | None = None
    x_test: Tensor | None = None
    y_test: Tensor | None = None

    def log_density(self, x: Tensor, y: Tensor) -> Tensor:
        """True log p(y | x), element by element; -inf outside the support.

        For data, x and y of shape (n, 1) give (n, 1). For a grid, ``log_density(task.x_grid().T,
        task.y_grid())`` gives (n_y, n_x).

        Args:
            x: Inputs inside ``x_range``, any shape that broadcasts with that of y.
            y: Targets.

        Returns:
            The broadcast shape, in float64.
        """
        low, high = self.x_range
        outside = ~((x >= low) & (x <= high))  # negated, so that NaN is outside
        if outside.any():
            raise ValueError(f"x must lie in [{low}, {high}], got {x[outside][0].item()}")
        x, y = torch.broadcast_tensors(x.double(), y.double())
        return torch.where(y.isnan(), y, self.conditional(x, y))

    def x_grid(self) -> Tensor:
        """Equally spaced inputs over ``x_range``, both ends included, shape (n_x, 1)."""
        return torch.linspace(*self.x_range, self.n_x, dtype=torch.float64)[:, None]

    def y_grid(self) -> Tensor:
        """Equally spaced targets over ``y_range``, both ends included, shape (n_y, 1)."""
        return torch.linspace(*self.y_range, self.n_y, dtype=torch.float64)[:, None]

    @property
    def y_spacing(self) -> float:
        """Distance between neighbours in ``y_grid``."""
        return (self.y_range[1] - self.y_range[0]) / (self.n_y - 1)


def _normal(y: Tensor, mean: Tensor | float, scale: Tensor | float) -> Tensor:
    scale = torch.as_tensor(scale, dtype=y.dtype, device=y.device)
    return -0.5 * ((y - mean) / scale).square() - scale.log() - 0.5 * math.log(2 * math.pi)


# First task (Gustafsson et al., 2020)

_LIKELY = 0.8  # weight of the branch sin x; the rest follows -sin x
_BRANCH_SCALE = 0.075
_LOG_SCALE = 0.25


def gustafsson(n: int = 2000, seed: int = 0) -> ToyTask:
    r"""First task: two branches on the left, a skewed density on the right.

    .. math::
        x \sim U[-3, 3], \qquad y \mid x \sim
        \begin{cases} 0.8\, N(\sin x, 0.075^2) + 0.2\, N(-\sin x, 0.075^2) & x < 0 \\
                      \mathrm{LogNormal}(0, 0.25^2) - 1 & x \ge 0 \end{cases}

    The authors set no seed: these points have the same distribution but are not their points.

    Args:
        n: Number of training points, at least 1.
        seed: From 0 to 2**32 - 1.

    Returns:
        The task, with a training set only: the paper compares densities on the grid.
    """
    n = checks.at_least("n", n, 1)
    rng = RandomState(checks.seed(seed))
    x = rng.uniform(-3, 3, n)
    sign = np.where(rng.uniform(size=n) < _LIKELY, 1, -1)
    z = rng.standard_normal(n)
    y = np.where(x < 0, sign * np.sin(x) + _BRANCH_SCALE * z, np.expm1(_LOG_SCALE * z))
    return ToyTask(
        name="gustafsson",
        x_train=torch.from_numpy(x)[:, None],
        y_train=torch.from_numpy(y)[:, None],
        x_range=(-3.0, 3.0),
        y_range=(-3.0, 3.0),
        n_x=2048,
        n_y=2048,
        conditional=_gustafsson_log_density,
    )


def _gustafsson_log_density(x: Tensor, y: Tensor) -> Tensor:
    branches = torch.logaddexp(
        math.log(_LIKELY) + _normal(y, x.sin(), _BRANCH_SCALE),
        math.log1p(-_LIKELY) + _normal(y, -x.sin(), _BRANCH_SCALE),
    )
    log_u = torch.log1p(y.clamp(min=-1))
    skewed = torch.where(y > -1, _normal(log_u, 0.0, _LOG_SCALE) - log_u, -torch.inf)
    return torch.where(x < 0, branches, skewed)


# Second task (Brando et al., 2019): four zones of x, each with its own density. A position runs from 0 at a
# zone's first point to 1 at its last.

_SMALLEST_SCALE = torch.finfo(torch.float64).tiny
_SLABS = ((8.0, 8.5), (1.0, 4.0), (-4.5, -3.0))


def _sample_beta(rng: RandomState, position: np.ndarray) -> np.ndarray:
    y = 0.5 + 5 * rng.beta(0.5, 1, len(position))
    rng.shuffle(y)
    return y


def _log_beta(position: Tensor, y: Tensor) -> Tensor:
    # Beta(1/2, 1) has the density 1 / (2 sqrt(u)). The pole at u = 0 is left out of the support.
    u = (y - 0.5) / 5
    return torch.where((u > 0) & (u <= 1), -math.log(10) - 0.5 * u.clamp(min=0).log(), -torch.inf)


def _sample_wave(rng: RandomState, position: np.ndarray) -> np.ndarray:
    mean = 3 * np.cos(5 * position) - 2
    return rng.normal(mean, np.abs(mean) / 4)


def _log_wave(position: Tensor, y: Tensor) -> Tensor:
    mean = 3 * torch.cos(5 * position) - 2
    # The scale is 0 where 3 cos t = 2; the clamp avoids NaN at that x.
    return _normal(y, mean, (mean.abs() / 4).clamp(min=_SMALLEST_SCALE))


def _sample_fan(rng: RandomState, position: np.ndarray) -> np.ndarray:
    return rng.uniform(-2 - 2.5 * position, -0.5 + 9.5 * position)


def _log_fan(position: Tensor, y: Tensor) -> Tensor:
    low, high = -2 - 2.5 * position, -0.5 + 9.5 * position
    return torch.where((y >= low) & (y <= high), -(high - low).log(), -torch.inf)


def _sample_slabs(rng: RandomState, position: np.ndarray) -> np.ndarray:
    unit = rng.uniform(size=(len(_SLABS), len(position) // len(_SLABS)))
    y = np.concatenate([low + (high - low) * u for (low, high), u in zip(_SLABS, unit, strict=True)])
    rng.shuffle(y)
    return y


def _log_slabs(position: Tensor, y: Tensor) -> Tensor:
    log_p = torch.full_like(y, -torch.inf)
    for low, high in _SLABS:
        inside = (y >= low) & (y <= high)
        log_p = torch.where(inside, -math.log(len(_SLABS) * (high - low)), log_p)
    return log_p


@dataclass(frozen=True)
class _Zone:
    n: int
    sample: Callable[[RandomState, np.ndarray], np.ndarray]
    log_density: Callable[[Tensor, Tensor], Tensor]


_ZONES = (
    _Zone(800, _sample_beta, _log_beta),
    _Zone(1000, _sample_wave, _log_wave),
    _Zone(500, _sample_fan, _log_fan),
    _Zone(1500, _sample_slabs, _log_slabs),
)
_N = sum(zone.n for zone in _ZONES)


def brando() -> ToyTask:
    r"""Second task: four zones along x in [0, 1], with the points and split of its authors.

    From left to right: 0.5 + 5 Beta(1/2, 1); a Normal with mean m = 3 cos(t) - 2 and scale \|m\| / 4 for t
    from 0 to 5; a uniform density between two diverging lines; and an equal mixture of U[8, 8.5], U[1, 4] and
    U[-4.5, -3]. The inputs are equally spaced.

    Returns:
        The task, with 1710 training, 190 validation and 1900 test points.
    """
    rng = RandomState(41)
    y = np.concatenate([zone.sample(rng, np.linspace(0, 1, zone.n)) for zone in _ZONES])
    x = np.arange(_N) / (_N - 1)
    order = np.arange(_N)
    rng.shuffle(order)
    n_test = _N // 2
    n_val = (_N - n_test) // 10
    test, val, train = np.split(order, [n_test, n_test + n_val])

    def column(values: np.ndarray, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(values[rows])[:, None]

    return ToyTask(
        name="brando",
        x_train=column(x, train),
        y_train=column(y, train),
        x_val=column(x, val),
        y_val=column(y, val),
        x_test=column(x, test),
        y_test=column(y, test),
        x_range=(0.0, 1.0),
        y_range=(-12.5, 12.5),
        n_x=2048,
        n_y=8192,
        conditional=_brando_log_density,
    )


def _brando_log_density(x: Tensor, y: Tensor) -> Tensor:
    index = x * (_N - 1)
    log_p = torch.empty_like(y)
    first = 0
    for zone in _ZONES:
        # A zone extends half a step beyond its outer points, with the density of those points.
        here = (index >= first - 0.5) & (index < first + zone.n - 0.5)
        position = ((index[here] - first) / (zone.n - 1)).clamp(0, 1)
        log_p[here] = zone.log_density(position, y[here])
        first += zone.n
    return log_p


TASKS: dict[str, Callable[[], ToyTask]] = {"gustafsson": gustafsson, "brando": brando}
