"""The runner: does what is missing of a table, on any backend of joblib, and can be left alone."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from joblib import Parallel, delayed, parallel_config

from ebreg._utils import checks
from ebreg._utils.memory import keep_pages
from ebreg.errors import EbregError
from ebreg.experiments.cells import Run
from ebreg.experiments.endings import end_on_terminate, end_with
from ebreg.experiments.jobs import Job
from ebreg.experiments.records import Records

# A worker may die, and the runs it had go to others; a table that makes no progress at all is given up.
_MOST_LOST_ROUNDS = 3
_SECONDS_BETWEEN_LOOKS = 1.0


def complete(
    runs: Sequence[Run], job: Job, n_jobs: int = 1, backend: str = "loky", progress: bool = True
) -> None:
    """Do the runs that have no record yet.

    Every worker writes the record of a run as soon as it is done. Whatever is killed, this process or a
    worker, costs the runs that were under way; a second call does what is missing.

    Args:
        runs: The runs of a table.
        job: What does them.
        n_jobs: Runs at a time.
        backend: Of joblib: "loky" for processes of this machine, "ray" or "dask" for a cluster.
        progress: Whether to show a progress bar.
    """
    checks.at_least("jobs", n_jobs, 1)
    checks.one_of("the backend", backend, BACKENDS)
    records = Records(job.records)
    # The workers of a cluster are looked after by it.
    home = os.getpid() if backend == "loky" else None
    # What can fail fails before the trainings.
    for run in {(run.cell.name, run.dataset): run for run in runs}.values():
        job.check(run)
    records.prepare()
    for run in runs:
        job.recorded(run)
    lost_rounds = 0
    with _backend(backend, n_jobs), end_on_terminate(), _watched(runs, records, progress):
        while missing := [run for run in runs if run.key not in records]:
            try:
                done = Parallel(batch_size=1)(delayed(_do)(job, run, home) for run in missing)
            except EbregError:
                raise  # of a run: it would come again
            except Exception as error:
                # Whatever a backend raises when it loses a worker.
                left = [run for run in missing if run.key not in records]
                lost_rounds = 0 if len(left) < len(missing) else lost_rounds + 1
                if lost_rounds >= _MOST_LOST_ROUNDS:
                    raise EbregError(f"no run gets done: {type(error).__name__}: {error}") from error
                continue
            # Workers of a cluster may have disks of their own; then records get here at the end alone.
            for run, record in zip(missing, done, strict=True):
                records.write(run.key, record)


def judge_again(
    runs: Sequence[Run], job: Job, n_jobs: int = 1, backend: str = "loky", progress: bool = True
) -> None:
    """Measure the networks of finished runs anew; see :func:`complete` for the arguments."""
    from tqdm.auto import tqdm

    checks.at_least("jobs", n_jobs, 1)
    checks.one_of("the backend", backend, BACKENDS)
    with _backend(backend, n_jobs), end_on_terminate():
        judged = Parallel(batch_size=1, return_as="generator_unordered")(
            delayed(job.judge_again)(run) for run in runs
        )
        for _ in tqdm(judged, total=len(runs), desc="judged", unit="run", disable=not progress):
            pass


def _do(job: Job, run: Run, home: int | None) -> dict[str, Any]:
    keep_pages()  # of the worker, which is ours
    if home is not None:
        end_with(home)
    return job(run)


@contextmanager
def _backend(name: str, n_jobs: int) -> Iterator[None]:
    settings = _SETTINGS[name]()
    with parallel_config(backend=name, n_jobs=n_jobs, **settings):
        yield


def _ray() -> dict[str, Any]:
    try:
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ImportError("the backend ray needs Ray: pip install ebreg[ray]") from error
    register_ray()
    # A worker that dies is started again and does its run again; else Ray would wait for it forever.
    return {"ray_remote_args": {"max_restarts": -1, "max_task_retries": -1}}


def _dask() -> dict[str, Any]:
    try:
        import distributed  # noqa: F401 (registers itself)
    except ImportError as error:
        raise ImportError("the backend dask needs Dask: pip install ebreg[dask]") from error
    return {}


_SETTINGS: dict[str, Callable[[], dict[str, Any]]] = {"loky": dict, "ray": _ray, "dask": _dask}
BACKENDS = tuple(_SETTINGS)


@contextmanager
def _watched(runs: Sequence[Run], records: Records, progress: bool) -> Iterator[None]:
    # The records themselves are watched, not the backend: they come from any process, and from calls before.
    from tqdm.auto import tqdm

    finished = threading.Event()

    def look(bar: Any) -> None:
        while True:
            last = finished.wait(_SECONDS_BETWEEN_LOOKS)
            bar.n = sum(run.key in records for run in runs)
            bar.refresh()
            if last:
                return

    # What was there before is not of this call's speed.
    before = sum(run.key in records for run in runs)
    with tqdm(total=len(runs), initial=before, desc="runs", unit="run", disable=not progress) as bar:
        watcher = threading.Thread(target=look, args=(bar,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()
