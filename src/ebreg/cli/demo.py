"""``ebreg demo``: train on the paper's first 1-D data set and draw its Figure 2."""

import argparse
from pathlib import Path

from ebreg.experiments import demo


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``demo`` to the commands of ebreg."""
    parser = commands.add_parser("demo", help="train on the paper's first 1-D data set, draw its Figure 2")
    parser.set_defaults(call=run)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder (demo-output)")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of the training (100)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order and draws (0)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(options: argparse.Namespace) -> None:
    """Run the demo and print its results."""
    print(demo.run(options.out, epochs=options.epochs, seed=options.seed, progress=not options.quiet))
