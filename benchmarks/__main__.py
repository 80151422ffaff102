"""``make bench``: every comparison, in one process and one thread; then those of :mod:`benchmarks.speed`."""

import torch

from benchmarks import heads, images, imports, predictions, trainings
from benchmarks.measure import print_table
from benchmarks.speed import __main__ as speed


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for module in (imports, heads, images, predictions, trainings) for row in module.run()]
    print_table(rows)
    print(flush=True)
    speed.main(["--seeds", "2"])


if __name__ == "__main__":
    main()
