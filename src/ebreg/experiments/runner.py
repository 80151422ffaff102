"""The runner: many experiments in parallel by joblib; it can be killed and called again."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import methodcaller
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config

from ebreg._utils import checks
from ebreg._utils.memory import keep_pages
from ebreg.errors import EbregError, TrainingError
from ebreg.experiments.experiment import Experiment, Result
from ebreg.saving import atomic_files

Results = dict[str, Result]  # by the keys of the experiments
_MAX_LOST_WORKERS = 3  # in succession, without a finished run between them


def run_missing(
    experiments: Sequence[Experiment],
    folder: Path,
    n_jobs: int = 1,
    backend: str = "loky",
    progress: bool = True,
) -> Results:
    """Run the experiments that have no record in the folder; returns their results.

    Each run writes its record when it is finished. Killing this process or a worker loses only unfinished
    runs, which a second call repeats.

    Args:
        experiments: The runs of a table.
        folder: Of the records; all workers must reach it.
        n_jobs: Runs at a time.
        backend: Of joblib: "loky" for processes on this machine, "ray" or "dask" for a cluster.
        progress: Whether to show a progress bar.
    """
    _check_jobs(n_jobs, backend)
    # A mistake is found before the trainings.
    for experiment in {(e.setting.name, e.source): e for e in experiments}.values():
        experiment.check()
    atomic_files.require_room(folder)
    missing = [experiment for experiment in experiments if not experiment.record_path(folder).exists()]
    done: Results = {}
    n_lost = 0
    while left := [experiment for experiment in missing if experiment.key not in done]:
        n_done = len(done)
        try:
            for result in _parallel(methodcaller("run", folder), left, n_jobs, backend, progress):
                done[result.experiment.key] = result
        except EbregError:
            raise  # by a run, which would fail again
        except Exception as error:  # what a backend raises when it loses a worker
            n_lost = n_lost + 1 if len(done) == n_done else 1
            if n_lost == _MAX_LOST_WORKERS:
                raise TrainingError(f"workers end before any run: {type(error).__name__}: {error}") from error
    return done


def re_evaluate(
    experiments: Sequence[Experiment],
    folder: Path,
    n_jobs: int = 1,
    backend: str = "loky",
    progress: bool = True,
) -> Results:
    """Evaluate the weights of finished runs again; see :func:`run_missing` for the arguments."""
    _check_jobs(n_jobs, backend)
    evaluated = _parallel(methodcaller("re_evaluate", folder), experiments, n_jobs, backend, progress)
    return {result.experiment.key: result for result in evaluated}


def _parallel(
    function: Callable[[Experiment], Any],
    experiments: Sequence[Experiment],
    n_jobs: int,
    backend: str,
    progress: bool,
) -> Iterator[Result]:
    from tqdm.auto import tqdm

    command = os.getpid() if backend == "loky" else None  # a cluster ends its own workers

    calls = (delayed(_call)(function, experiment, command) for experiment in experiments)
    with (
        parallel_config(backend=backend, n_jobs=n_jobs, **BACKENDS[backend]()),
        tqdm(total=len(experiments), desc="runs", unit="run", disable=not progress) as bar,
    ):
        for result in Parallel(batch_size=1, return_as="generator_unordered")(calls):
            bar.update()
            yield result


def _call(function: Callable[[Experiment], Any], experiment: Experiment, command: int | None) -> Result:
    if command not in (None, os.getpid()):
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


def _check_jobs(n_jobs: int, backend: str) -> None:
    checks.at_least("jobs", n_jobs, 1)
    checks.one_of("the backend", backend, BACKENDS)


def _ray() -> dict[str, Any]:
    try:
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ImportError("the backend ray needs Ray: pip install ebreg[ray]") from error
    register_ray()
    # Ray waits forever for a worker that died, unless it is started again.
    return {"ray_remote_args": {"max_restarts": -1, "max_task_retries": -1}}


def _dask() -> dict[str, Any]:
    try:
        import distributed  # noqa: F401 (registers itself)
    except ImportError as error:
        raise ImportError("the backend dask needs Dask: pip install ebreg[dask]") from error
    return {}


BACKENDS: dict[str, Callable[[], dict[str, Any]]] = {"loky": dict, "ray": _ray, "dask": _dask}
