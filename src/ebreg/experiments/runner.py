"""The runner: many experiments in parallel by joblib; it can be killed and called again."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config

from ebreg._utils import checks
from ebreg._utils.memory import keep_pages
from ebreg.errors import EbregError, TrainingError
from ebreg.experiments.experiment import Experiment, Result
from ebreg.saving import atomic_files

# Backends of joblib and their settings. Ray waits forever for a worker that died, unless it restarts it.
BACKENDS: dict[str, dict[str, Any]] = {
    "loky": {},
    "ray": {"ray_remote_args": {"max_restarts": -1, "max_task_retries": -1}},
    "dask": {},
}
_MODULES = {"ray": "ray.util.joblib", "dask": "distributed"}
_MAX_LOST_WORKERS = 3  # in succession, without a finished run between them


@dataclass(frozen=True)
class Workers:
    """Processes that run experiments.

    Attributes:
        n_jobs: Runs at a time.
        backend: Of joblib: "loky" for processes on this machine, "ray" or "dask" for a cluster.
        progress: Whether to show a progress bar.
    """

    n_jobs: int = 1
    backend: str = "loky"
    progress: bool = True

    def __post_init__(self) -> None:
        checks.at_least("jobs", self.n_jobs, 1)
        checks.one_of("the backend", self.backend, BACKENDS)
        if self.backend in _MODULES:
            try:
                module = import_module(_MODULES[self.backend])
            except ImportError as error:
                raise ImportError(
                    f"the backend {self.backend} is not installed: pip install ebreg[{self.backend}]"
                ) from error
            if self.backend == "ray":
                module.register_ray()

    def map(
        self, function: Callable[[Experiment], Any], experiments: Sequence[Experiment]
    ) -> Iterator[Result]:
        """Call a function with each experiment; the results come as they are finished."""
        from tqdm.auto import tqdm

        command = os.getpid() if self.backend == "loky" else None  # a cluster ends its own workers
        calls = (delayed(_call)(function, experiment, command) for experiment in experiments)
        with (
            parallel_config(backend=self.backend, n_jobs=self.n_jobs, **BACKENDS[self.backend]),
            tqdm(total=len(experiments), desc="runs", unit="run", disable=not self.progress) as bar,
        ):
            for result in Parallel(batch_size=1, return_as="generator_unordered")(calls):
                bar.update()
                yield result


def run_missing(experiments: Sequence[Experiment], folder: Path, workers: Workers) -> dict[str, Result]:
    """Run the experiments that have no record in the folder; returns their results by key.

    Each run writes its record when it is finished. Killing this process or a worker loses only unfinished
    runs, which a second call repeats. All workers must reach the folder.
    """
    # A mistake is found before the trainings.
    for experiment in {(e.setting.name, e.source): e for e in experiments}.values():
        experiment.check()
    atomic_files.require_room(folder)
    left = [experiment for experiment in experiments if not experiment.record_path(folder).exists()]
    done: dict[str, Result] = {}
    n_lost = 0
    while left:
        try:
            for result in workers.map(methodcaller("run", folder), left):
                done[result.experiment.key] = result
                n_lost = 0
        except EbregError:
            raise  # by a run, which would fail again
        except Exception as error:  # what a backend raises when it loses a worker
            n_lost += 1
            if n_lost == _MAX_LOST_WORKERS:
                raise TrainingError(f"workers end before any run: {type(error).__name__}: {error}") from error
        left = [experiment for experiment in left if experiment.key not in done]
    return done


def re_evaluate(experiments: Sequence[Experiment], folder: Path, workers: Workers) -> dict[str, Result]:
    """Evaluate the weights of finished runs again, and update their records; returns the results by key."""
    return {
        each.experiment.key: each for each in workers.map(methodcaller("re_evaluate", folder), experiments)
    }


def _call(function: Callable[[Experiment], Any], experiment: Experiment, command: int | None) -> Result:
    if command is not None and command != os.getpid():
        _prepare_worker(command)
    return Result(experiment, function(experiment))


@lru_cache(maxsize=1)  # once in a process
def _prepare_worker(command: int) -> None:
    keep_pages()

    def watch() -> None:
        while os.getppid() == command:
            time.sleep(1.0)
        os._exit(1)  # at any moment: files are written atomically

    # A worker would otherwise finish its run after the command was killed.
    threading.Thread(target=watch, daemon=True).start()
