"""What ``import ebreg`` costs beside ``import torch``, each in processes of its own."""

import statistics
import subprocess
import sys

from benchmarks.measure import Row, print_table

_CODE = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def _seconds(module: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _CODE.format(module)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def run(repeats: int = 7) -> list[Row]:
    pairs = [(_seconds("ebreg"), _seconds("torch")) for _ in range(repeats + 1)][1:]
    ours, torch_alone = (1e3 * statistics.median(column) for column in zip(*pairs, strict=True))
    return [Row("import ebreg beside import torch", ours, torch_alone, target=1 / 1.2)]


if __name__ == "__main__":
    print_table(run())
