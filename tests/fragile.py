"""An experiment that kills its worker; alone in a file, so that workers import little else."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from ebreg.experiments.toy import ToyExperiment


@dataclass(frozen=True)
class Fragile(ToyExperiment):
    """Kills its process at the first attempt of one run."""

    def run(self, folder: Path) -> dict:
        mark = folder.parent / "killed"
        if self.seed == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(folder)

    def evaluate(self, model) -> dict:
        return {"on_grid": sum(p.sum().item() for p in model.parameters()), "predictive": 0.0}
