"""Several processes under torchrun train like one. All checks share one start of torchrun, which is slow."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import test_stages
from ebreg.saving import checkpoints
from ebreg.training import Training, fit
from ebreg.training.batches import Augmented
from test_training import CONFIG, Interrupting, joint, table

Result = tuple[list[dict[str, float]], dict[str, Tensor]]


def train_table(path: Path, n: int = 50, batch_size: int = 16) -> Result:
    # Double precision: in single, Adam's first steps amplify the rounding of another order of summation.
    method = joint(*table(n)).double()
    config = replace(CONFIG, epochs=2, batch_size=batch_size)
    result = fit(method, table(n), table(7, seed=1), config, checkpoint=path, progress=False)
    return result.history, method.state_dict()


def train_with_empty_process(path: Path) -> Result:
    return train_table(path, n=5, batch_size=1)  # of two processes, one has no row


def train_many_times(path: Path) -> Result:
    # Addresses of an earlier process group must not be used by the next one.
    for _ in range(6):
        method = joint(*table(8)).double()
        result = fit(method, table(8), config=replace(CONFIG, epochs=1), progress=False)
    return result.history, method.state_dict()


def train_stages(path: Path, interrupt: bool = False) -> Result:
    # Each kind of stage once: mixture alone and frozen, frozen, all with batch-norm in training mode.
    config = replace(test_stages.CONFIG, epochs=4, mixture_epochs=1, averaging=None)

    def train(*interrupted_batches: int) -> tuple[Training, dict[str, Tensor]]:
        method = test_stages.method_of("joint-nce", dropout=0.0).double()
        data = Augmented(Interrupting(*test_stages.images(), *interrupted_batches), test_stages.Shift())
        validation = test_stages.images(9, seed=1)
        return fit(method, data, validation, config, path, resume=True, progress=False), method.state_dict()

    if interrupt:
        # Ctrl-C in one of the processes, in the second of three batches of the third epoch.
        result, _ = train(8) if os.environ["RANK"] == "1" else train()
        assert result.interrupted
        assert len(result.history) == checkpoints.read(path)[1]["progress"]["epoch"] == 2
    result, state = train()
    assert not result.interrupted
    return result.history, state


TRAININGS: dict[str, Callable[[Path], Result]] = {
    "table": train_table,
    "empty process": train_with_empty_process,
    "many times": train_many_times,
    "stages": train_stages,
}


def run_worker(folder: Path) -> None:
    """Run all trainings in a process that torchrun has started, the last one with an interruption."""
    torch.set_num_threads(1)
    results = {
        name: train(folder / f"{name}.safetensors") for name, train in TRAININGS.items() if name != "stages"
    }
    results["stages"] = train_stages(folder / "stages.safetensors", interrupt=True)
    if os.environ["RANK"] == "0":
        torch.save(results, folder / "results.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, __file__, str(folder)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", TRAININGS)
def test_two_processes_train_like_one(folder: Path, tmp_path: Path, name: str):
    history, state = TRAININGS[name](tmp_path / "one.safetensors")
    other_history, other_state = torch.load(folder / "results.pt")[name]
    for epoch, other_epoch in zip(history, other_history, strict=True):
        assert epoch == pytest.approx(other_epoch, rel=1e-9)
    assert list(state) == list(other_state)
    for key, value in state.items():
        torch.testing.assert_close(value, other_state[key], rtol=1e-7, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", ["table", "stages"])
def test_two_processes_write_one_checkpoint(folder: Path, name: str):
    n_epochs = {"table": 2, "stages": 4}[name]
    assert checkpoints.read(folder / f"{name}.safetensors")[1]["progress"]["epoch"] == n_epochs


if __name__ == "__main__":
    run_worker(Path(sys.argv[1]))
