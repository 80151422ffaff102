import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebreg import methods, networks
from ebreg.errors import CheckpointError, TrainingError
from ebreg.models import EnergyModel, MixtureModel
from ebreg.saving import checkpoints
from ebreg.training import HeldOut, Training, fit
from ebreg.training.config import PAPER, TrainingConfig
from ebreg.training.schedules import SCHEDULES
from support import KilledError, kill_after

CONFIG = TrainingConfig(epochs=3, batch_size=16, learning_rate=1e-2)


def table(n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return x, x[:, :1] ** 2 + 0.3 * torch.randn(n, 1, generator=generator, dtype=torch.float64)


def joint(x: Tensor, y: Tensor, seed: int = 0, n_components: int = 3) -> methods.JointNCE:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return methods.JointNCE(EnergyModel.for_table(x, y, n_components, width=8), n_draws=4)


def weights(method: methods.Method) -> Tensor:
    return torch.cat([p.detach().flatten() for p in method.parameters()])


def test_training_lowers_the_validation_nll():
    x, y = table(240)
    method, config = joint(x, y), replace(CONFIG, epochs=6, learning_rate=0.02)
    result = fit(method, (x[:200], y[:200]), (x[200:], y[200:]), config, progress=False)
    nll = [entry["validation_nll"] for entry in result.history]
    assert min(nll) < nll[0] - 1
    assert len(result.history) == 6
    assert set(result.history[0]) == {"nce", "log_z", "validation_nll"}
    assert not result.interrupted


def test_the_weights_of_the_best_epoch_are_kept():
    x, y = table(200)
    data, validation = (x[:150], y[:150]), (x[150:], y[150:])
    method = joint(x, y)
    result = fit(method, data, validation, replace(CONFIG, epochs=8, learning_rate=0.03), progress=False)
    best = min(range(8), key=lambda i: result.history[i]["validation_nll"])
    assert result.best_epoch == best
    kept = method.validation_nll(*validation).mean().item()
    assert kept == pytest.approx(result.history[best]["validation_nll"], rel=1e-6)


def test_early_stopping_stops_early():
    x, y = table(80)
    method = joint(x, y)
    config = replace(CONFIG, epochs=200, learning_rate=0.05, patience=3, schedule="constant")
    result = fit(method, (x[:40], y[:40]), (x[40:], y[40:]), config, progress=False)
    assert len(result.history) == result.best_epoch + 1 + 3


def test_same_seed_same_weights_and_global_state_untouched():
    x, y = table()
    a, b, c = joint(x, y), joint(x, y), joint(x, y)
    before = torch.get_rng_state()
    fit(a, (x, y), config=CONFIG, progress=False)
    torch.rand(7)
    torch.set_rng_state(before)
    fit(b, (x, y), config=CONFIG, progress=False)
    assert torch.equal(torch.get_rng_state(), before)
    fit(c, (x, y), config=replace(CONFIG, seed=1), progress=False)
    assert torch.equal(weights(a), weights(b))
    assert not torch.equal(weights(a), weights(c))


class Dropping(nn.Module):
    """A backbone that uses the global random state and has buffers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.float())


def dropping() -> methods.JointNCE:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        parts = networks.image_heads(1, 2, n_features=8)
        return methods.JointNCE(EnergyModel(Dropping(), parts.energy, parts.mixture), n_draws=3)


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, Tensor], Training]:
    """The weights and the result of a training that is not stopped."""
    method, config = dropping(), replace(CONFIG, checkpoint_every=2)
    result = fit(method, table(), table(20, seed=1), config, progress=False)
    return method.state_dict(), result


@pytest.mark.parametrize("step", [1, 2, 4, 5, 7, 11])
def test_a_run_stopped_at_any_step_resumes_to_the_same_bits(tmp_path: Path, monkeypatch, step: int, whole):
    data, validation = table(), table(20, seed=1)
    config = replace(CONFIG, checkpoint_every=2)
    state, expected = whole
    killed = dropping()
    path = tmp_path / "run.safetensors"
    kill_after(monkeypatch, step)
    with pytest.raises(KilledError):
        fit(killed, data, validation, config, checkpoint=path, progress=False)
    monkeypatch.undo()

    resumed = dropping()  # the process is new: nothing but the file survives
    result = fit(resumed, data, validation, config, checkpoint=path, resume=True, progress=False)
    for name, value in state.items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert result.history == expected.history
    assert result.best_epoch == expected.best_epoch


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_training import train_to_be_killed
train_to_be_killed({path!r})
"""


def train_to_be_killed(path: Path | str) -> methods.JointNCE:
    torch.set_num_threads(1)
    method, config = joint(*table(40)), replace(CONFIG, epochs=15, checkpoint_every=1)
    fit(method, table(40), table(4, seed=1), config, checkpoint=path, resume=True, progress=False)
    return method


def test_sigkill_and_resume_end_with_the_same_weights(tmp_path: Path):
    path = tmp_path / "killed.safetensors"
    code = SCRIPT.format(tests=str(Path(__file__).parent), path=str(path))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    seen: set[int] = set()
    while len(seen) < 7:
        assert process.poll() is None, process.communicate()
        if path.exists():
            seen.add(path.stat().st_mtime_ns)
        time.sleep(0.001)  # leave the processor to the process
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert 0 < checkpoints.read(path)[1]["progress"]["epoch"] < 15
    resumed, whole = train_to_be_killed(path), train_to_be_killed(tmp_path / "whole.safetensors")
    assert torch.equal(weights(resumed), weights(whole))


class Interrupting:
    """A data set with Ctrl-C while some batches are read."""

    def __init__(self, x: Tensor, y: Tensor, *batches: int):
        self.x, self.y, self.batches, self.n_read = x, y, batches, 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        self.n_read += 1
        if self.n_read in self.batches:
            signal.raise_signal(signal.SIGINT)
        return self.x[index], self.y[index]


@pytest.mark.parametrize("batch", [8, 10])  # the last of an epoch of four, and one in the middle
def test_ctrl_c_stops_after_the_step_and_keeps_the_best_weights(tmp_path: Path, batch: int):
    (x, y), validation = table(), table(20, seed=1)
    path, config = tmp_path / "run.safetensors", replace(CONFIG, epochs=5)
    before = signal.getsignal(signal.SIGINT)
    stopped = joint(x, y)
    result = fit(stopped, Interrupting(x, y, batch), validation, config, path, progress=False)
    assert result.interrupted
    assert len(result.history) == 2
    assert signal.getsignal(signal.SIGINT) is before
    tensors, facts = checkpoints.read(path)
    assert facts["selections"][0]["best_epoch"] == result.best_epoch
    for name, value in stopped.state_dict().items():
        assert torch.equal(value, tensors[f"best.{name}"]), name

    resumed, whole = joint(x, y, seed=5), joint(x, y)
    assert not fit(resumed, Interrupting(x, y), validation, config, path, True, progress=False).interrupted
    fit(whole, Interrupting(x, y), validation, config, progress=False)
    assert torch.equal(weights(resumed), weights(whole))


def test_a_second_ctrl_c_raises():
    x, y = table()

    class Twice(Interrupting):
        def __getitems__(self, index: list[int]) -> tuple[Tensor, Tensor]:
            signal.raise_signal(signal.SIGINT)
            return super().__getitems__(index)

    with pytest.raises(KeyboardInterrupt):
        fit(joint(x, y), Twice(x, y, 1), config=CONFIG, progress=False)


def test_bf16_trains_close_to_single_precision():
    x, y = table(100)
    single, half = joint(x, y), joint(x, y)
    config = replace(CONFIG, epochs=5)
    fit(single, (x, y), config=config, progress=False)
    fit(half, (x, y), config=replace(config, precision="bf16"), progress=False)
    nll = [method.validation_nll(x, y).mean().item() for method in (single, half)]
    assert nll[0] == pytest.approx(nll[1], abs=0.1)
    assert all(p.dtype == torch.float32 for p in half.parameters())


def test_an_existing_checkpoint_is_not_overwritten(tmp_path: Path):
    x, y = table()
    path = tmp_path / "run.safetensors"
    fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="resume=True"):
        fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    assert path.read_bytes() == before


def test_a_finished_run_resumes_to_itself(tmp_path: Path):
    x, y = table()
    path = tmp_path / "run.safetensors"
    first, again = joint(x, y), joint(x, y, seed=5)
    fit(first, (x, y), config=CONFIG, checkpoint=path, progress=False)
    result = fit(again, (x, y), config=CONFIG, checkpoint=path, resume=True, progress=False)
    assert torch.equal(weights(first), weights(again))
    assert len(result.history) == CONFIG.epochs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d[: len(d) // 2], "is not a checkpoint, or is truncated or damaged"),
        (lambda d: b"", "is not a checkpoint, or is truncated or damaged"),
        (lambda d: b"not a checkpoint at all", "is not a checkpoint, or is truncated or damaged"),
        (lambda d: d.replace(b'\\"version\\": 1', b'\\"version\\": 9'), "upgrade with pip"),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, change, message: str):
    x, y = table()
    path = tmp_path / "run.safetensors"
    fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=message):
        fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, resume=True, progress=False)


def test_a_checkpoint_of_another_model_or_training_is_refused(tmp_path: Path):
    x, y = table()
    path = tmp_path / "run.safetensors"
    fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    untouched = joint(x, y, n_components=5)
    before = weights(untouched)
    for method, data, config, message in [
        (untouched, (x, y), CONFIG, "of another model.*shape"),
        (methods.MixtureNLL(MixtureModel.for_table(x, y)), (x, y), CONFIG, "method = 'joint-nce"),
        (joint(x, y), (x, y), replace(CONFIG, batch_size=8), "batch_size = 16"),
        (joint(x, y), (x[1:], y[1:]), CONFIG, "rows = 60"),
        (joint(x, y), (x, y + 1e-9), CONFIG, "checksum of the data"),
        (methods.JointNCE(joint(x, y).model, n_draws=5), (x, y), CONFIG, "n_draws=4"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            fit(method, data, config=config, checkpoint=path, resume=True, progress=False)
    assert torch.equal(weights(untouched), before)


def test_a_loss_that_is_not_finite_ends_in_a_sentence():
    x, y = table()
    method = joint(x, y)
    config = replace(CONFIG, learning_rate=1e30, clip_norm=None, schedule="constant", epochs=50)
    with pytest.raises(TrainingError, match="Lower learning_rate"):
        fit(method, (x, y), config=config, progress=False)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((torch.zeros(4, 2), torch.zeros(3, 1)), "the same number of rows"),
        ((torch.zeros(4, 2), torch.zeros(4)), "rows and columns"),
        ((torch.zeros(0, 2), torch.zeros(0, 1)), "at least 1"),
        ((torch.full((4, 2), torch.nan), torch.zeros(4, 1)), "x of data must be finite"),
        ((torch.zeros(4, 2), torch.full((4, 1), torch.inf)), "y of data must be finite"),
    ],
)
def test_bad_data_is_refused(data: tuple[Tensor, Tensor], message: str):
    with pytest.raises(ValueError, match=message):
        fit(joint(*table()), data, config=CONFIG, progress=False)


def test_data_of_a_wrong_kind_is_refused():
    with pytest.raises(TypeError, match="map-style"):
        fit(joint(*table()), 3, config=CONFIG, progress=False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, "batch_size"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"schedule": "sawtooth"}, "schedule must be one of 'constant'"),
        ({"precision": "int4"}, "precision"),
        ({"clip_norm": -1.0}, "clip_norm"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"patience": 0}, "patience"),
        ({"seed": -1}, "seed"),
        ({"epoch": 3}, "a training setting must be one of 'epochs'"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        TrainingConfig.from_dict(settings)


class Examples(torch.utils.data.Dataset):
    def __init__(self, x: Tensor, y: Tensor):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.x[i], self.y[i, 0]


def test_map_style_data_sets_train_like_tensors():
    x, y = table()
    a, b = joint(x, y), joint(x, y)
    fit(a, (x, y), config=CONFIG, progress=False)
    fit(b, Examples(x, y), config=CONFIG, progress=False)
    assert torch.equal(weights(a), weights(b))


def test_progress_bar_and_silence(capfd):
    x, y = table()
    fit(joint(x, y), (x, y), config=CONFIG, progress=False)
    assert capfd.readouterr() == ("", "")
    fit(joint(x, y), (x, y), config=CONFIG)
    out, err = capfd.readouterr()
    assert out == ""
    assert "joint-nce" in err
    assert "12/12" in err


def test_after_epoch_is_called_once_an_epoch():
    x, y = table()
    seen: list[int] = []
    fit(joint(x, y), (x, y), config=CONFIG, progress=False, after_epoch=seen.append)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_stay_between_0_and_1(name: str):
    values = [SCHEDULES[name](t / 100) for t in range(101)]
    assert all(0 <= value <= 1 for value in values)
    assert max(values) == pytest.approx(1, abs=1e-9)


def test_paper_settings_are_those_of_the_paper():
    assert (PAPER.epochs, PAPER.batch_size, PAPER.learning_rate) == (75, 32, 1e-3)
    assert PAPER.schedule == "constant"
    assert PAPER.clip_norm is None


def test_torch_data_sets_and_subsets_train_like_tensors():
    x, y = table()
    whole = torch.utils.data.TensorDataset(x, y)
    a, b = joint(x, y), joint(x, y)
    fit(a, (x[:40], y[:40]), config=CONFIG, progress=False)
    fit(b, torch.utils.data.Subset(whole, range(40)), config=CONFIG, progress=False)
    assert torch.equal(weights(a), weights(b))


def test_values_that_are_not_finite_in_a_data_set_are_named():
    x, y = table()
    y[3] = torch.nan
    method = joint(*table())
    before = weights(method)
    with pytest.raises(TrainingError, match="y is not finite"):
        fit(method, Examples(x, y), config=replace(CONFIG, batch_size=60), progress=False)
    assert torch.equal(weights(method), before)


def test_what_is_not_a_method_or_a_config_is_refused():
    x, y = table()
    with pytest.raises(TypeError, match="fit takes a method"):
        fit(EnergyModel.for_table(x, y), (x, y), progress=False)
    with pytest.raises(TypeError, match="config must be a TrainingConfig"):
        fit(joint(x, y), (x, y), config={"epochs": 3}, progress=False)
    with pytest.raises(TypeError, match="JointNCE trains a model of type EnergyModel"):
        methods.JointNCE(MixtureModel.for_table(x, y))


def test_a_checkpoint_that_cannot_be_written_fails_before_the_training(tmp_path: Path):
    x, y = table()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        fit(joint(x, y), (x, y), config=CONFIG, checkpoint=tmp_path, resume=True, progress=False)


@pytest.mark.parametrize("lost", ["optimizer.3.exp_avg", "random.noise", "optimizer"])
def test_an_edited_checkpoint_is_refused_and_nothing_loaded(tmp_path: Path, lost: str):
    x, y = table()
    path = tmp_path / "run.safetensors"
    fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    tensors, facts = checkpoints.read(path)
    checkpoints.write(path, {k: v for k, v in tensors.items() if not k.startswith(lost)}, facts)
    method = joint(x, y, seed=5)
    before = weights(method)
    with pytest.raises(CheckpointError, match="edited or damaged"):
        fit(method, (x, y), config=CONFIG, checkpoint=path, resume=True, progress=False)
    assert torch.equal(weights(method), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, f: f.pop("settings"), "settings is missing"),
        (lambda t, f: f.update(settings=[1]), "settings must be an object"),
        (lambda t, f: f["progress"].update(epoch="2"), "edited or damaged"),
        (lambda t, f: f["progress"].update(epoch=-1), "edited or damaged"),
        (lambda t, f: f["progress"].update(history=[]), "edited or damaged"),
        (lambda t, f: t.update({"random.global": torch.zeros(7, dtype=torch.uint8)}), "edited or damaged"),
        (lambda t, f: t.update({"random.noise": torch.zeros(7)}), "edited or damaged"),
        (
            lambda t, f: t.update({k: v.int() for k, v in t.items() if k[:7] == "method."}),
            r"holds torch\.int32",
        ),
    ],
)
def test_a_checkpoint_with_other_content_is_refused(tmp_path: Path, change, message: str):
    x, y = table()
    path = tmp_path / "run.safetensors"
    fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    tensors, facts = checkpoints.read(path)
    change(tensors, facts)
    checkpoints.write(path, tensors, facts)
    method, state = joint(x, y, seed=5), torch.get_rng_state()
    before = weights(method)
    with pytest.raises(CheckpointError, match=message):
        fit(method, (x, y), config=CONFIG, checkpoint=path, resume=True, progress=False)
    assert torch.equal(weights(method), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_full_disk_is_a_sentence_and_nothing_half_written_stays(tmp_path: Path):
    x, y = table()
    path, before = tmp_path / "run.safetensors", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(
            OSError, match=r"run\.safetensors cannot be written \(File too large\), .*make room"
        ):
            fit(joint(x, y), (x, y), config=CONFIG, checkpoint=path, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_afterwards_the_model_is_in_evaluation_mode_and_has_no_gradients():
    method = dropping()
    fit(method, table(), config=CONFIG, progress=False)
    assert not method.model.training
    assert all(parameter.grad is None for parameter in method.parameters())


def test_the_weights_kept_are_an_average():
    x, y = table()
    plain, averaged = joint(x, y), joint(x, y)
    seen = []
    config = replace(CONFIG, batch_size=len(x), averaging=None)  # an epoch is one step
    fit(plain, (x, y), config=config, progress=False, after_epoch=lambda _: seen.append(weights(plain)))
    fit(averaged, (x, y), config=replace(config, averaging=1.0), progress=False)
    expected = (1 * seen[0] + 2 * seen[1] + 3 * seen[2]) / 6
    torch.testing.assert_close(weights(averaged), expected, rtol=1e-5, atol=1e-7)


def test_validation_every_few_epochs_and_after_the_last():
    x, y = table(100)
    config = replace(CONFIG, epochs=7, validation_every=3)
    result = fit(joint(x, y), (x[:80], y[:80]), (x[80:], y[80:]), config, progress=False)
    assert [i for i, entry in enumerate(result.history) if "validation_nll" in entry] == [2, 5, 6]
    assert result.best_epoch in (2, 5, 6)


def test_weights_of_the_rows_act_like_repeated_rows():
    x, y = table(32)
    times = torch.tensor([1.0, 2.0, 1.0, 4.0] * 8, dtype=torch.float64)
    repeated = torch.arange(32).repeat_interleave(times.long())
    # One step over all rows with the same draws for a row and its copies: the gradients must agree.
    method = joint(x, y)
    u = method.points(32, torch.Generator().manual_seed(1))
    weighted = (times[:, None] * torch.stack(list(method(x, y, u).values()), dim=1)).sum() / times.sum()
    copied = torch.stack(list(method(x[repeated], y[repeated], u[:, repeated]).values()), dim=1).sum(1).mean()
    torch.testing.assert_close(weighted.float(), copied.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e200])
def test_the_unit_of_the_weights_does_not_matter(unit: float):
    x, y = table()
    one, other = joint(x, y), joint(x, y)
    w = torch.linspace(0.5, 2, len(x), dtype=torch.float64)
    first = fit(one, (x, y, w), (x, y, w), CONFIG, progress=False)
    second = fit(other, (x, y, unit * w), (x, y, unit * w), CONFIG, progress=False)
    torch.testing.assert_close(weights(one), weights(other), rtol=1e-4, atol=1e-6)
    assert first.history[-1]["nce"] == pytest.approx(second.history[-1]["nce"], rel=1e-5)


def test_heavy_rows_are_learned_and_light_ones_are_not():
    x = torch.zeros(200, 1, dtype=torch.float64)
    y = torch.cat([torch.full((100, 1), -1.0), torch.full((100, 1), 1.0)]).double()
    y += 0.1 * torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = torch.cat([torch.full((100,), 9.0), torch.full((100,), 1.0)])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = methods.MixtureNLL(MixtureModel.for_table(x, y, 2, width=8))
    fit(method, (x, y, w), config=replace(CONFIG, epochs=40), progress=False)
    assert method.model.predictive(x[:1]).cdf(torch.zeros(1, 1)).item() == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ("w", "message"),
    [
        (torch.zeros(60), "some of them above 0"),
        (-torch.ones(60), "at least 0"),
        (torch.ones(59), "weights of data must have shape"),
        (torch.full((60,), float("nan")), "weights of data must be finite"),
    ],
)
def test_bad_weights_are_refused(w: Tensor, message: str):
    x, y = table()
    with pytest.raises(ValueError, match=message):
        fit(joint(x, y), (x, y, w), config=CONFIG, progress=False)


def test_a_resume_with_other_validation_data_is_refused(tmp_path: Path):
    x, y = table()
    path = tmp_path / "checkpoint"
    fit(
        joint(x, y), (x, y), (x[:9], y[:9]), config=replace(CONFIG, epochs=1), checkpoint=path, progress=False
    )
    with pytest.raises(CheckpointError, match="the checksum of the validation data"):
        fit(
            joint(x, y),
            (x, y),
            (x[:9], y[:9] + 1),
            config=replace(CONFIG, epochs=1),
            checkpoint=path,
            resume=True,
            progress=False,
        )


def test_a_string_is_no_data_set():
    x, y = table()
    with pytest.raises(TypeError, match=r"data must be a tuple \(x, y\) or a map-style data set, got str"):
        fit(joint(x, y), "abc", progress=False)


class TestHeldOut:
    def test_members_have_as_many_rows_as_the_one_with_the_fewest(self):
        rows = torch.arange(10)
        held_out = HeldOut.of_splits([(rows[4:], rows[:4]), (rows[:7], rows[7:])])
        assert held_out.index.tolist() == [[0, 1, 2], [7, 8, 9]]
        assert held_out.train.tolist() == [[4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5]]

    def test_no_member_is_validated_on_rows_that_it_is_trained_on(self):
        parts = networks.table(1, n_members=2)
        method = methods.MixtureNLL(MixtureModel.of(parts))
        held_out = HeldOut(torch.tensor([[0], [1]]), train=torch.tensor([[1, 2], [1, 2]]))
        with pytest.raises(ValueError, match="hold out rows that the same member is not trained on"):
            fit(method, (torch.randn(4, 1), torch.randn(4, 1)), held_out, progress=False)
