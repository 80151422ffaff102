"""The ``ebreg`` command: parse, call, print."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from ebreg._utils.memory import is_out_of_memory, keep_pages
from ebreg._version import __version__
from ebreg.cli import data, demo, reproduce, train
from ebreg.errors import EbregError, TrainingError, UndefinedError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code; an error that is expected prints one sentence.

    Exit codes: 0 for success, 2 for a user's mistake, 1 for a failure inside, such as a training that
    diverged or too little memory, 130 for Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    keep_pages()
    try:
        with _exit_on_sigterm():
            options.call(options)
    except (TrainingError, UndefinedError) as error:
        return _fail(str(error), 1)
    except (ValueError, OSError, ImportError, EbregError) as error:
        return _fail(str(error), 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        details = str(error).splitlines()[0] if str(error) else "no details"
        return _fail(
            f"there is not enough memory; give fewer or smaller images, or smaller settings ({details})", 1
        )
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return 0


def _fail(message: str, code: int) -> int:
    print(f"ebreg: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ebreg", description="Energy-based regression.")
    parser.add_argument("--version", action="version", version=f"ebreg {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in (demo, train, data, reproduce):
        command.add_to(commands)
    return parser


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    # As an exception, so that temporary files are removed.
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
