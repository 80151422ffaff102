"""How far log Z of a family of problems is off, and which error was stated."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.trust.cases import Case
from ebreg.predictive import Accuracy, normalize

# An answer is wrong where log Z is off by more than this and by more than twice what is stated.
TOLERANCE = 0.05
_ROWS_AT_ONCE = 50


@dataclass(frozen=True)
class Result:
    """One family of problems.

    Attributes:
        name: Of the family.
        n_seeds: Number of problems.
        off: Share of them whose log Z is off by more than 0.05.
        fooled: Share that is off by more than twice the stated error as well, and not flagged.
        flagged: Share that is unreliable by its own account.
        worst: The largest error of those that are not flagged.
        stated: The error that was stated there.
        median_stated: The median of all stated errors.
    """

    name: str
    n_seeds: int
    off: float
    fooled: float
    flagged: float
    worst: float
    stated: float
    median_stated: float

    def write(self, folder: Path, label: str) -> None:
        """As a file of its own, so that a run that is cut off leaves what it has measured."""
        path = folder / label / f"{self.name.replace(' ', '-').replace('%', 'percent')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


@torch.no_grad()
def measure(case: Case, n_seeds: int) -> Result:
    """Normalise as many problems of a family as there are seeds."""
    errors, stated, flagged = [], [], []
    for first in range(0, n_seeds, _ROWS_AT_ONCE):
        generator = torch.Generator().manual_seed(1000 + first)
        problem = case.problem(min(_ROWS_AT_ONCE, n_seeds - first), generator)
        p = normalize(problem.target, Accuracy(seed=first))
        errors.append((p.log_partition - problem.log_z).abs())
        stated.append(p.log_partition_error)
        flagged.append(p.unreliable)
    error, said, flag = torch.cat(errors), torch.cat(stated), torch.cat(flagged)
    is_wrong = error > torch.maximum(2 * said, torch.tensor(TOLERANCE))
    worst = error.masked_fill(flag, 0).argmax()
    return Result(
        case.name,
        n_seeds,
        (error > TOLERANCE).double().mean().item(),
        (is_wrong & ~flag).double().mean().item(),
        flag.double().mean().item(),
        error.masked_fill(flag, 0)[worst].item(),
        said[worst].item(),
        said.median().item(),
    )
