"""A measurement in a process of its own, of this version or of another one."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.speed.data import Sizes
from benchmarks.speed.timing import threads

ROOT = Path(__file__).parents[2]


def run(module: str, function: str, sizes: Sizes, checkout: Path = ROOT) -> Any:
    """What a function of a module of ``benchmarks.speed`` returns, in one thread.

    Args:
        module: Name of the module.
        function: Name of the function, which is given the sizes and returns what JSON can hold.
        sizes: Of the measurements.
        checkout: The folder of the version that is imported; this code comes from here.

    Raises:
        RuntimeError: If the process fails, with its messages.
    """
    command = [sys.executable, "-m", "benchmarks.speed.child", module, function, json.dumps(asdict(sizes))]
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _answer(module: str, function: str, sizes: str) -> None:
    measure = getattr(importlib.import_module(f"benchmarks.speed.{module}"), function)
    with threads(1), warnings.catch_warnings(action="ignore"):
        print(json.dumps(measure(Sizes(**json.loads(sizes)))))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
