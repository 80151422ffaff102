"""Command: python -m benchmarks.trust [--seeds N] [--only WORD]."""

import argparse

import torch

from benchmarks.trust.cases import CASES, Case
from ebreg.predictive import Accuracy, normalize


def main() -> None:
    """Print how often every case fools the stated error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trust", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print("| density | off by more than 0.05 | and not flagged | worst error | its stated one | median stated |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        if args.only in case.name:
            print(row(case, args.seeds), flush=True)


@torch.no_grad()
def row(case: Case, n_seeds: int, rows_at_once: int = 50) -> str:
    """One row of the table."""
    errors, stated, flagged = [], [], []
    for first in range(0, n_seeds, rows_at_once):
        generator = torch.Generator().manual_seed(1000 + first)
        problem = case.problem(min(rows_at_once, n_seeds - first), generator)
        p = normalize(problem.target, Accuracy(seed=first))
        errors.append(p.log_partition - problem.log_z)
        stated.append(p.log_partition_error)
        flagged.append(p.unreliable)
    error, said, flag = torch.cat(errors).abs(), torch.cat(stated), torch.cat(flagged)
    wrong = error > torch.maximum(2 * said, torch.tensor(0.05))
    hidden = wrong & ~flag
    worst = error.masked_fill(flag, 0).argmax()
    note = "" if case.must else " (below the limit)"
    return (
        f"| {case.name}{note} | {(error > 0.05).double().mean():.1%} | {hidden.double().mean():.1%} | "
        f"{error[worst]:.4f} | {said[worst]:.4f} | {said.median():.4f} | flags {flag.double().mean():.1%}"
    )


if __name__ == "__main__":
    main()
