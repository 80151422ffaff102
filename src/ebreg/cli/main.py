"""The ``ebreg`` command: parse, call, print."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ebreg._utils.memory import is_out_of_memory, keep_pages
from ebreg._version import __version__
from ebreg.cli import data
from ebreg.errors import EbregError
from ebreg.experiments import commands as reproduce
from ebreg.experiments import train
from ebreg.experiments.endings import end_on_terminate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code. A user's mistake ends in one sentence, not in a stack trace."""
    options = _parser().parse_args(arguments)
    keep_pages()
    try:
        with end_on_terminate():  # as an exception, so that nothing half-written stays
            options.call(options)
    except (ValueError, OSError, ImportError, EbregError) as error:
        print(f"ebreg: {error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        print(
            "ebreg: there is not enough memory; give fewer or smaller images, or smaller settings "
            f"({str(error).splitlines()[0] if str(error) else 'no details'})",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("ebreg: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ebreg", description="Energy-based regression.")
    parser.add_argument("--version", action="version", version=f"ebreg {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    demo = commands.add_parser("demo", help="train on the paper's first 1-D set and draw its Figure 2")
    demo.set_defaults(call=_demo)
    demo.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="folder of the picture (demo-output)"
    )
    demo.add_argument("--epochs", type=int, default=100, help="passes over the data (100)")
    demo.add_argument(
        "--seed", type=int, default=0, help="of the weights, the data's order and the draws (0)"
    )
    demo.add_argument("--quiet", action="store_true", help="no progress bar")
    train.add_to(commands)
    data.add_to(commands)
    reproduce.add_to(commands)
    return parser


def _demo(options: argparse.Namespace) -> None:
    import torch

    from ebreg.experiments import demo

    torch.set_num_threads(1)  # networks this small gain nothing from more, and lose much on a busy machine
    print(demo.run(options.out, epochs=options.epochs, seed=options.seed, progress=not options.quiet))
