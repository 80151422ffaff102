"""How many functions and files of ebreg one fit, one prediction and one small table go through.

Counts distinct functions and files under ``src/ebreg`` that are entered, by ``sys.setprofile``. It uses the
public API alone, so that it also runs on another checkout:
``PYTHONPATH=/other/src python benchmarks/calls.py``.
"""

import contextlib
import io
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import ebreg
from ebreg.cli import main

PACKAGE = f"{Path(ebreg.__file__).parent}{os.sep}"


def count(call: Callable[[], object]) -> tuple[int, int, int]:
    """Distinct functions and files of the package that a call enters, and its deepest stack of them."""
    entered, deepest = set(), 0

    def profile(frame, event, argument):
        nonlocal deepest
        if event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        entered.add(frame.f_code)
        depth = 0
        while frame is not None:
            depth += frame.f_code.co_filename.startswith(PACKAGE)
            frame = frame.f_back
        deepest = max(deepest, depth)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    named = {code for code in entered if code.co_name != "<module>"}
    return len(named), len({code.co_filename for code in named}), deepest


def table3(folder: Path, option: str) -> None:
    """The smallest Table 3: one setting, one run, one epoch."""
    arguments = [
        "reproduce",
        "table3",
        "--data",
        "synthetic:24",
        "--recipe",
        "scratch",
        "--backbone",
        "small-cnn",
    ]
    arguments += [
        "--weights",
        "random",
        "--epochs",
        "1",
        "--batch-size",
        "8",
        "--n-draws",
        "4",
        "--runs",
        "1",
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        code = main([*arguments, option, "ours-4", "--quiet", "--out", str(folder)])
    assert code == 0


def run() -> None:
    """Print the counts."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X[:, 0] + rng.normal(size=100)
    regressor = ebreg.EnergyRegressor(width=8, max_iter=2, random_state=0, verbose=False)
    parse = io.StringIO()
    with contextlib.redirect_stdout(parse), contextlib.suppress(SystemExit):
        main(["reproduce", "table3", "--help"])
    option = "--settings" if "--settings" in parse.getvalue() else "--cells"
    with tempfile.TemporaryDirectory() as folder:
        rows = {
            "fit": count(lambda: regressor.fit(X, y)),
            "predict_interval": count(lambda: regressor.predict_interval(X[:10])),
            "reproduce table3": count(lambda: table3(Path(folder) / "out", option)),
        }
    print(f"{'':18} functions  files  deepest stack")
    for name, (functions, files, deepest) in rows.items():
        print(f"{name:18} {functions:9}  {files:5}  {deepest:13}")


if __name__ == "__main__":
    run()
