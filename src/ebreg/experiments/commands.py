"""``ebreg reproduce``: the paper's tables and figures, one command each."""

import argparse

from ebreg.experiments import toy_commands
from ebreg.experiments.images import commands as image_commands


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add ``reproduce`` to the commands of ebreg."""
    reproduce = commands.add_parser("reproduce", help="the paper's tables and figures")
    parts = reproduce.add_subparsers(dest="part", required=True, metavar="what")
    toy_commands.add_to(parts)
    image_commands.add_to(parts)
