"""What is saved comes back whole; what is damaged, foreign or half written is refused with a way out."""

import json
import os
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import ebreg
from ebreg import EnergyRegressor, MixtureDensityRegressor
from ebreg.errors import ModelFileError
from ebreg.saving import folders

QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
Y = X[:, 0] + 0.3 * rng.normal(size=30)
TWO = np.stack([Y, np.exp(Y)], axis=1)


def pixels() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.BatchNorm1d(1), nn.Flatten(), nn.Linear(3, 4), nn.SiLU())


CASES = {
    "energy": (EnergyRegressor(**QUICK), Y),
    "energy, fixed": (EnergyRegressor("fixed-mle", sigmas=(0.1, 1), **QUICK), Y),
    "energy, (n, 1)": (EnergyRegressor(**QUICK), Y[:, None]),
    "energy, two targets": (EnergyRegressor(**QUICK), TWO),
    "energy, bounded": (EnergyRegressor(bounds=(-10, None), **QUICK), Y),
    "energy, two bounded": (EnergyRegressor(bounds=[(-np.inf, np.inf), (0, 20.0)], **QUICK), TWO),
    "energy, backbone": (EnergyRegressor(backbone=pixels(), **QUICK), Y),
    "mixture": (MixtureDensityRegressor(**QUICK), Y),
    "mixture, alone": (MixtureDensityRegressor(None, **QUICK), TWO),
    "mixture, bounded": (MixtureDensityRegressor(None, bounds=np.array([-10.0, np.inf]), **QUICK), Y),
    "mixture, backbone": (MixtureDensityRegressor(backbone=pixels(), **QUICK), Y),
}


@pytest.fixture(scope="module")
def fitted():
    """Regressors by case, each fitted once and not to be changed."""
    known = {}

    def get(case: str = "energy"):
        if case not in known:
            known[case] = clone(CASES[case][0]).fit(X, CASES[case][1])
        return known[case]

    return get


@pytest.fixture
def saved(fitted, tmp_path) -> Path:
    """A folder with a saved model."""
    path = tmp_path / "model"
    fitted().save(path)
    return path


class TestThereAndBack:
    @pytest.mark.parametrize("case", CASES)
    def test_answers_parameters_and_facts_survive(self, fitted, case, tmp_path):
        before = fitted(case)
        before.save(tmp_path / "model")
        after = ebreg.load(tmp_path / "model", backbone=before.backbone)
        y = CASES[case][1]
        assert type(after) is type(before)
        np.testing.assert_array_equal(before.predict(X), after.predict(X))
        np.testing.assert_array_equal(before.log_prob(X, y), after.log_prob(X, y))
        np.testing.assert_array_equal(before.sample(X, 3, random_state=0), after.sample(X, 3, random_state=0))
        np.testing.assert_array_equal(before.predict_interval(X), after.predict_interval(X))
        for name in ("history_", "n_iter_", "best_epoch_", "target_names_", "design_"):
            assert getattr(before, name) == getattr(after, name)
        # JSON knows neither tuples nor infinity; the device is the one it was loaded to.
        changed = {"bounds", "sigmas", "device", "backbone"}
        params, loaded = before.get_params(deep=False), after.get_params(deep=False)
        assert loaded.keys() == params.keys()
        assert all(params[name] == loaded[name] for name in params.keys() - changed)
        assert loaded["device"] == "cpu"
        assert loaded["backbone"] is params["backbone"]

    def test_what_was_loaded_trains_again_and_alike(self, fitted, saved):
        again = ebreg.load(saved).fit(X, Y)
        np.testing.assert_array_equal(again.predict(X), fitted().predict(X))

    def test_a_warm_start_goes_on_from_what_was_loaded(self, tmp_path):
        reg = EnergyRegressor(**QUICK, warm_start=True).fit(X, Y)
        reg.save(tmp_path / "model")
        loaded = ebreg.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.fit(X, Y).predict(X), reg.fit(X, Y).predict(X))

    def test_what_was_loaded_can_be_saved_again(self, fitted, saved, tmp_path):
        ebreg.load(saved, device=torch.device("cpu")).save(tmp_path / "again")
        np.testing.assert_array_equal(ebreg.load(tmp_path / "again").predict(X), fitted().predict(X))

    def test_names_survive(self, tmp_path):
        frame = pd.DataFrame(X, columns=["a", "b", "c"])
        MixtureDensityRegressor(None, **QUICK).fit(frame, pd.Series(Y, name="price")).save(tmp_path / "model")
        reg = ebreg.load(tmp_path / "model")
        assert list(reg.feature_names_in_) == ["a", "b", "c"]
        assert "price mean" in reg.predict_distribution(frame).to_frame()
        with pytest.raises(ValueError, match="feature names"):
            reg.predict(frame[["b", "a", "c"]])

    def test_bounds_survive(self, fitted, tmp_path):
        fitted("energy, two bounded").save(tmp_path / "model")
        reg = ebreg.load(tmp_path / "model")
        assert reg.bounds == [[None, None], [0, 20.0]]
        assert reg.model_.bounds.low.tolist() == [-np.inf, 0]
        assert (reg.sample(X, 20, random_state=0)[..., 1] >= 0).all()
        np.testing.assert_array_equal(reg.fit(X, TWO).predict(X), fitted("energy, two bounded").predict(X))

    def test_the_state_of_a_random_stream_is_not_kept(self, tmp_path):
        stream = np.random.RandomState(0)
        MixtureDensityRegressor(None, **{**QUICK, "random_state": stream}).fit(X, Y).save(tmp_path / "model")
        assert ebreg.load(tmp_path / "model").random_state is None

    def test_numbers_of_numpy_are_kept_as_numbers(self, tmp_path):
        settings = {**QUICK, "max_iter": np.int64(2), "learning_rate": np.float32(0.5)}
        MixtureDensityRegressor(None, **settings).fit(X, Y).save(tmp_path / "model")
        reg = ebreg.load(tmp_path / "model")
        assert (reg.max_iter, reg.learning_rate) == (2, 0.5)

    def test_a_path_may_be_a_string_with_folders_that_do_not_exist_yet(self, fitted, tmp_path):
        fitted().save(str(tmp_path / "new" / "folder" / "model"))
        assert ebreg.load(str(tmp_path / "new" / "folder" / "model")).n_features_in_ == 3

    def test_the_folder_is_small(self, saved):
        # The networks are stored in the precision they were trained in.
        numbers = safetensors.torch.load_file(saved / "model.safetensors")
        assert {value.dtype for name, value in numbers.items() if "weight" in name} == {torch.float32}

    def test_an_unfitted_regressor_has_nothing_to_save(self, tmp_path):
        with pytest.raises(NotFittedError):
            EnergyRegressor().save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_a_parameter_that_json_cannot_hold_is_named(self, fitted, tmp_path):
        reg = ebreg.load(_copy(fitted(), tmp_path / "model")).set_params(batch_size=object())
        with pytest.raises(ModelFileError, match="the parameter batch_size cannot be saved"):
            reg.save(tmp_path / "other")


def _copy(reg, path: Path) -> Path:
    reg.save(path)
    return path


class TestBackbone:
    def test_weights_go_into_a_copy(self, fitted, tmp_path):
        fitted("energy, backbone").save(tmp_path / "model")
        module = pixels()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        reg = ebreg.load(tmp_path / "model", backbone=module)
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        np.testing.assert_array_equal(reg.predict(X), fitted("energy, backbone").predict(X))
        with pytest.raises(ValueError, match=r"examples of shape \(2,\); the model was fitted on \(3,\)"):
            reg.predict(X[:, :2])

    def test_in_double_precision_keeps_its_digits(self, tmp_path):
        module = nn.Linear(3, 4, dtype=torch.float64)
        reg = MixtureDensityRegressor(None, backbone=module, **QUICK).fit(X, Y)
        loaded = ebreg.load(_copy(reg, tmp_path / "model"), backbone=module)
        np.testing.assert_array_equal(loaded.predict(X), reg.predict(X))

    def test_that_was_forgotten_is_asked_for(self, fitted, tmp_path):
        with pytest.raises(ModelFileError, match=r"load it with load\(path, backbone=module\)"):
            ebreg.load(_copy(fitted("mixture, backbone"), tmp_path / "model"))

    def test_that_is_not_needed_is_refused(self, saved):
        with pytest.raises(ModelFileError, match="load it without the argument backbone"):
            ebreg.load(saved, backbone=pixels())

    @pytest.mark.parametrize("module", [nn.Linear(3, 5), nn.Linear(3, 4), nn.Flatten()])
    def test_of_another_kind_is_refused(self, fitted, tmp_path, module):
        with pytest.raises(ModelFileError, match="or another backbone given"):
            ebreg.load(_copy(fitted("mixture, backbone"), tmp_path / "model"), backbone=module)

    def test_that_is_no_module_is_refused(self, saved):
        with pytest.raises(TypeError, match=r"backbone must be a torch.nn.Module, got function"):
            ebreg.load(saved, backbone=pixels)


class TestWriting:
    def test_an_existing_path_is_refused(self, fitted, saved):
        before = _content(saved)
        with pytest.raises(FileExistsError, match="pass overwrite=True to replace a saved model"):
            fitted("mixture").save(saved)
        assert _content(saved) == before

    def test_overwrite_replaces_a_saved_model(self, fitted, saved):
        fitted("mixture").save(saved, overwrite=True)
        assert isinstance(ebreg.load(saved), MixtureDensityRegressor)
        assert [entry.name for entry in saved.parent.iterdir()] == ["model"]

    @pytest.mark.parametrize(
        "content",
        [{}, {"notes.txt": "mine"}, {"config.json": "{}", "model.safetensors": ""}],
        ids=["an empty folder", "a folder of the user's", "another library's model"],
    )
    def test_overwrite_touches_nothing_else(self, fitted, tmp_path, content):
        path = tmp_path / "precious"
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
        with pytest.raises(FileExistsError, match=r"(is not a saved|no saved) model.*: it is left as it is"):
            fitted().save(path, overwrite=True)
        assert {entry.name: entry.read_text() for entry in path.iterdir()} == content

    def test_overwrite_spares_a_model_with_something_beside_it(self, fitted, saved):
        (saved / "notes.txt").write_text("mine")
        with pytest.raises(FileExistsError, match=r"(is not a saved|no saved) model.*: it is left as it is"):
            fitted().save(saved, overwrite=True)

    def test_overwrite_touches_no_file(self, fitted, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(FileExistsError, match=r"(is not a saved|no saved) model.*: it is left as it is"):
            fitted().save(tmp_path / "file", overwrite=True)
        assert (tmp_path / "file").read_text() == "mine"

    def test_a_link_stays_a_link(self, fitted, saved, tmp_path):
        link = tmp_path / "latest"
        link.symlink_to(saved, target_is_directory=True)
        fitted("mixture").save(link, overwrite=True)
        assert link.is_symlink()
        assert isinstance(ebreg.load(saved), MixtureDensityRegressor)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest", "model"]

    def test_a_crash_while_writing_leaves_nothing_behind(self, fitted, tmp_path, monkeypatch):
        monkeypatch.setattr(safetensors.torch, "save_file", _crash)
        with pytest.raises(OSError, match="disk full"):
            fitted().save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("where", ["while writing", "while moving"])
    def test_a_crash_leaves_the_old_model_as_it_was(self, fitted, saved, monkeypatch, where):
        before = _content(saved)
        if where == "while writing":
            monkeypatch.setattr(safetensors.torch, "save_file", _crash)
        else:
            monkeypatch.setattr(os, "replace", _crash_on_second_call(os.replace))
        with pytest.raises(OSError, match="disk full"):
            fitted("mixture").save(saved, overwrite=True)
        assert _content(saved) == before
        assert [entry.name for entry in saved.parent.iterdir()] == ["model"]


def _content(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def _crash(*args, **kwargs):
    raise OSError("disk full")


def _crash_on_second_call(real):
    calls = []

    def replace(source, target):
        calls.append(source)
        if len(calls) == 2:
            _crash()
        real(source, target)

    return replace


def _edit(path: Path, **entries) -> None:
    """Change entries of config.json; None removes one."""
    config = json.loads((path / "config.json").read_text())
    for name, value in entries.items():
        config.pop(name)
        if value is not None:
            config[name] = value
    (path / "config.json").write_text(json.dumps(config))


def _rewrite(path: Path, change) -> None:
    """Change the weights, and the checksum so that it fits them."""
    file = path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file)
    _edit(path, checksum=folders._checksum(file))


def _config(path: Path) -> dict:
    return json.loads((path / "config.json").read_text())


class TestDamage:
    def test_a_missing_folder_is_said_to_be_missing(self, tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"does not exist; a saved model is a folder with config.json"
        ):
            ebreg.load(tmp_path / "nothing")

    def test_a_file_is_not_a_model(self, tmp_path):
        (tmp_path / "file").write_text("{}")
        with pytest.raises(
            ModelFileError, match=r"is not a saved model: that is a folder with config.json and"
        ):
            ebreg.load(tmp_path / "file")

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
    def test_a_missing_file_is_named(self, saved, name):
        (saved / name).unlink()
        with pytest.raises(ModelFileError, match=f"{name} cannot be found; give the path that was handed to"):
            ebreg.load(saved)

    @pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"model"', "{}", '{"format": "other"}', "\x00\xff"])
    def test_a_config_that_is_none_is_refused(self, saved, text):
        (saved / "config.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(ModelFileError, match=r"save the model again|the path that was handed to save"):
            ebreg.load(saved)

    @pytest.mark.parametrize("size", [0, 7, 100, -1])
    def test_truncated_weights_are_refused(self, saved, size):
        file = saved / "model.safetensors"
        file.write_bytes(file.read_bytes()[:size])
        with pytest.raises(ModelFileError, match=r"truncated or damaged \(.*\); save the model again"):
            ebreg.load(saved)

    @pytest.mark.parametrize("version", ["1", 0, -1, 1.5, True, [1]])
    def test_a_version_that_never_was_is_refused(self, saved, version):
        _edit(saved, version=version)
        with pytest.raises(ModelFileError, match="was edited: its format version is"):
            ebreg.load(saved)

    def test_a_version_from_the_future_asks_for_an_upgrade(self, saved):
        _edit(saved, version=2, ebreg="9.9")
        with pytest.raises(
            ModelFileError, match=r"version 2, written by ebreg 9.9; .* pip install --upgrade"
        ):
            ebreg.load(saved)

    @pytest.mark.parametrize("name", ["NoSuchRegressor", "object", 3, ["EnergyRegressor"], None])
    def test_an_unknown_regressor_is_refused(self, saved, name):
        _edit(saved, regressor=name)
        with pytest.raises(ModelFileError, match="known are EnergyRegressor, MixtureDensityRegressor"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        "key",
        [
            "params",
            "design",
            "history",
            "n_iter",
            "best_epoch",
            "target_names",
            "drop_target_axis",
            "n_features_in",
            "feature_names_in",
            "checksum",
        ],
    )
    def test_a_missing_entry_is_refused(self, saved, key):
        _edit(saved, **{key: None})
        with pytest.raises(ModelFileError, match="was edited"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        "entries",
        [
            {"params": []},
            {"params": {"no_such_parameter": 1}},
            {"design": {"width": 8}},
            {"history": 5},
            {"n_iter": "2"},
            {"best_epoch": 0.5},
            {"target_names": "price"},
            {"drop_target_axis": "no"},
            {"n_features_in": True},
            {"feature_names_in": 3},
            {"checksum": "0"},
        ],
        ids=lambda entries: next(iter(entries)),
    )
    def test_an_entry_of_another_type_is_refused(self, saved, entries):
        _edit(saved, **entries)
        with pytest.raises(ModelFileError, match=r"was edited.*save the model again"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("width", 9),
            ("width", "8"),
            ("width", -1),
            ("n_targets", 2),
            ("n_components", 3),
            ("bounded", True),
            ("n_inputs", 4),
            ("n_inputs", None),
            ("min_scale", float("nan")),
            ("min_scale", "small"),
        ],
    )
    def test_networks_of_another_design_are_refused(self, saved, name, value):
        _edit(saved, design={**_config(saved)["design"], name: value})
        with pytest.raises(
            ModelFileError, match=r"was edited or damaged|the weights do not fit the networks"
        ):
            ebreg.load(saved)

    def test_weights_of_another_model_are_refused(self, fitted, saved, tmp_path):
        # Of the same shapes: only the checksum tells.
        other = _copy(clone(fitted()).set_params(random_state=1).fit(X, Y), tmp_path / "other")
        shutil.copy(other / "model.safetensors", saved / "model.safetensors")
        with pytest.raises(ModelFileError, match="holds the weights of another model"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        "change",
        [
            lambda tensors: tensors.update(extra=torch.zeros(1)),
            lambda tensors: tensors.pop(next(iter(tensors))),
            lambda tensors: tensors.update(dict.fromkeys([next(iter(tensors))], torch.zeros(7, 7))),
        ],
        ids=["one too many", "one too few", "another shape"],
    )
    def test_weights_that_do_not_fit_are_refused(self, saved, change):
        _rewrite(saved, change)
        with pytest.raises(
            ModelFileError, match=r"the weights do not fit the networks: .* should have shape"
        ):
            ebreg.load(saved)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_weights_that_are_not_finite_are_refused(self, saved, value):
        _rewrite(saved, lambda tensors: tensors["energy.joint_layers.0.weight"].fill_(value))
        with pytest.raises(ModelFileError, match="are not finite; train and save the model again"):
            ebreg.load(saved)

    @pytest.mark.parametrize("device", ["gpu", "cuda:99", None, 1.5])
    def test_a_device_that_is_not_there_is_refused(self, saved, device):
        with pytest.raises(ValueError, match=r"cannot be used: .* take 'auto' or 'cpu'"):
            ebreg.load(saved, device=device)


class Bomb:
    def __reduce__(self):
        return warnings.warn, ("executed",)  # warnings are errors here


class TestNothingIsExecuted:
    def test_a_pickle_beside_a_model_is_ignored(self, fitted, saved):
        for name in ("model.pkl", "pytorch_model.bin", "__init__.py"):
            (saved / name).write_bytes(pickle.dumps(Bomb()))
        np.testing.assert_array_equal(ebreg.load(saved).predict(X), fitted().predict(X))

    def test_a_pickle_in_place_of_the_weights_is_refused(self, saved):
        (saved / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(ModelFileError, match="truncated or damaged"):
            ebreg.load(saved)

    def test_a_checkpoint_of_torch_in_place_of_the_weights_is_refused(self, saved):
        torch.save({"bomb": Bomb()}, saved / "model.safetensors")
        with pytest.raises(ModelFileError, match="truncated or damaged"):
            ebreg.load(saved)


def test_a_backbone_on_tokens_saved_before_dtypes_were_noted(tmp_path):
    tokens = np.arange(60).reshape(30, 2) % 7
    backbone = nn.Sequential(nn.Embedding(7, 4), nn.Flatten())
    reg = EnergyRegressor(**QUICK, backbone=backbone).fit(tokens, Y)
    reg.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    facts = json.loads(config.read_text())
    del facts["input_dtype"]
    config.write_text(json.dumps(facts))
    loaded = ebreg.load(tmp_path / "model", backbone=backbone)
    np.testing.assert_allclose(loaded.predict(tokens), reg.predict(tokens), rtol=1e-6)
