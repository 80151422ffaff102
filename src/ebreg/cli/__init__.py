"""The ``ebreg`` command."""

from ebreg.cli.main import main

__all__ = ["main"]
