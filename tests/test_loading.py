"""Saved models predict as before; folders that cannot be loaded are refused with a way out."""

import copy
import pickle
import resource
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import ebreg
from ebreg import EnergyModel, EnergyRegressor, MixtureDensityRegressor, networks
from ebreg.errors import ModelFileError
from ebreg.experiments import images
from ebreg.experiments.images.design import ImageDesign
from ebreg.networks import backbones
from ebreg.saving import folders
from ebreg.units import Units

QUICK = {"max_iter": 2, "width": 8, "n_components": 2, "n_draws": 4, "random_state": 0, "verbose": False}
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
Y = X[:, 0] + 0.3 * rng.normal(size=30)
TWO = np.stack([Y, np.exp(Y)], axis=1)
SOME = X[:3]


def pixels() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.BatchNorm1d(1), nn.Flatten(), nn.Linear(3, 4), nn.SiLU())


CASES = {
    "energy": (EnergyRegressor(**QUICK), Y),
    "energy, one member": (EnergyRegressor(n_members=1, **QUICK), Y),
    "energy, joint": (EnergyRegressor("joint-nce", **QUICK), Y),
    "energy, joint, members": (EnergyRegressor("joint-nce", n_members=2, **QUICK), TWO),
    "energy, fixed": (EnergyRegressor("fixed-mle", sigmas=(0.1, 1), **QUICK), Y),
    "energy, (n, 1)": (EnergyRegressor(**QUICK), Y[:, None]),
    "energy, two targets": (EnergyRegressor(**QUICK), TWO),
    "energy, bounded": (EnergyRegressor(bounds=(-10, None), **QUICK), Y),
    "energy, two bounded": (EnergyRegressor(bounds=[(-np.inf, np.inf), (0, 20.0)], **QUICK), TWO),
    "energy, backbone": (EnergyRegressor(backbone=pixels(), **QUICK), Y),
    "energy, backbone, members": (EnergyRegressor(backbone=pixels(), n_members=3, **QUICK), Y),
    "mixture": (MixtureDensityRegressor(**QUICK), Y),
    "mixture, teacher": (MixtureDensityRegressor("energy", **QUICK), Y),
    "mixture, two targets": (MixtureDensityRegressor(**QUICK), TWO),
    "mixture, dropout": (MixtureDensityRegressor(n_members=2, dropout=(0.2, 0.0), **QUICK), Y),
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


def _copy(reg, path: Path) -> Path:
    reg.save(path)
    return path


def _edit(path: Path, change) -> None:
    """Change a model folder as nobody can by accident: with a checksum that fits what was changed."""
    tensors, facts = folders.read(path)
    change(tensors, facts)
    shutil.rmtree(path)
    folders.write(path, tensors, facts)


class TestRoundTrip:
    @pytest.mark.parametrize("case", CASES)
    def test_answers_parameters_and_facts_survive(self, fitted, case, tmp_path):
        before = fitted(case)
        before.save(tmp_path / "model")
        after = ebreg.load(tmp_path / "model", backbone=before.backbone)
        y = CASES[case][1]
        assert type(after) is type(before)
        one, two = (reg.predict_distribution(SOME) for reg in (before, after))
        np.testing.assert_array_equal(one.mean, two.mean)
        np.testing.assert_array_equal(one.log_prob(y[:3]), two.log_prob(y[:3]))
        np.testing.assert_array_equal(one.sample(3, random_state=0), two.sample(3, random_state=0))
        weights = after.model_.state_dict()
        assert all(torch.equal(value, weights[name]) for name, value in before.model_.state_dict().items())
        for name in ("history_", "n_iter_", "best_epoch_", "target_names_", "design_"):
            assert getattr(before, name) == getattr(after, name)
        # JSON knows neither tuples nor infinity; the device is the one it was loaded to.
        changed = {"bounds", "sigmas", "device", "backbone", "dropout"}
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
        assert (reg.sample(SOME, 20, random_state=0)[..., 1] >= 0).all()
        again = reg.fit(X, TWO).predict(SOME)
        np.testing.assert_array_equal(again, fitted("energy, two bounded").predict(SOME))

    def test_the_state_of_a_random_stream_is_not_kept(self, tmp_path):
        stream = np.random.RandomState(0)
        MixtureDensityRegressor(None, **{**QUICK, "random_state": stream}).fit(X, Y).save(tmp_path / "model")
        assert ebreg.load(tmp_path / "model").random_state is None

    def test_numbers_of_numpy_are_kept_as_numbers(self, tmp_path):
        settings = {**QUICK, "max_iter": np.int64(2), "learning_rate": np.float32(2**-6)}
        MixtureDensityRegressor(None, **settings).fit(X, Y).save(tmp_path / "model")
        reg = ebreg.load(tmp_path / "model")
        assert (reg.max_iter, reg.learning_rate) == (2, 2**-6)

    def test_a_path_may_be_a_string_with_folders_that_do_not_exist_yet(self, fitted, tmp_path):
        fitted().save(str(tmp_path / "new" / "folder" / "model"))
        assert ebreg.load(str(tmp_path / "new" / "folder" / "model")).n_features_in_ == 3

    def test_the_folder_is_small(self, saved):
        # The networks are stored in the precision they were trained in.
        numbers = safetensors.torch.load_file(saved / "model.safetensors")
        layers = [name for name in numbers if name.startswith(("backbone.", "energy.", "proposal."))]
        assert len(layers) > 10
        assert {numbers[name].dtype for name in layers} == {torch.float32}

    def test_an_unfitted_regressor_has_nothing_to_save(self, tmp_path):
        with pytest.raises(NotFittedError):
            EnergyRegressor().save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_a_parameter_that_json_cannot_hold_is_named(self, fitted, tmp_path):
        reg = copy.copy(fitted()).set_params(batch_size=object())
        with pytest.raises(ModelFileError, match="the parameter batch_size cannot be saved"):
            reg.save(tmp_path / "other")


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
    def test_of_another_shape_is_refused(self, fitted, tmp_path, module):
        with pytest.raises(ModelFileError, match="or another network given"):
            ebreg.load(_copy(fitted("mixture, backbone"), tmp_path / "model"), backbone=module)

    def test_in_another_precision_is_refused(self, fitted, tmp_path):
        path = _copy(fitted("mixture, backbone"), tmp_path / "model")
        with pytest.raises(ModelFileError, match=r"of another type: backbone.* or another network given"):
            ebreg.load(path, backbone=pixels().double())

    def test_on_tokens(self, tmp_path):
        tokens = np.arange(60).reshape(30, 2) % 7
        backbone = nn.Sequential(nn.Embedding(7, 4), nn.Flatten())
        reg = MixtureDensityRegressor(None, **QUICK, backbone=backbone).fit(tokens, Y)
        loaded = ebreg.load(_copy(reg, tmp_path / "model"), backbone=backbone)
        np.testing.assert_array_equal(loaded.predict(tokens), reg.predict(tokens))

    def test_that_is_no_module_is_refused(self, saved):
        with pytest.raises(TypeError, match=r"backbone must be a torch.nn.Module, got function"):
            ebreg.load(saved, backbone=pixels)


class TestOverwrite:
    def test_an_existing_path_is_refused(self, fitted, saved):
        before = _content(saved)
        with pytest.raises(FileExistsError, match="pass overwrite=True to replace a saved model"):
            fitted("mixture").save(saved)
        assert _content(saved) == before

    def test_replaces_a_saved_model(self, fitted, saved):
        for case in ("mixture", "energy, bounded", "mixture"):
            fitted(case).save(saved, overwrite=True)
            assert len(list(saved.iterdir())) == 2
        assert isinstance(ebreg.load(saved), MixtureDensityRegressor)
        assert [entry.name for entry in saved.parent.iterdir()] == ["model"]

    def test_a_link_stays_a_link(self, fitted, saved, tmp_path):
        link = tmp_path / "latest"
        link.symlink_to(saved, target_is_directory=True)
        fitted("mixture").save(link, overwrite=True)
        assert link.is_symlink()
        assert isinstance(ebreg.load(saved), MixtureDensityRegressor)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["latest", "model"]


def _content(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


class TestFacts:
    @pytest.mark.parametrize("kind", ["NoSuchRegressor", "object", 3, ["EnergyRegressor"], None])
    def test_of_an_unknown_kind_are_refused(self, saved, kind):
        _edit(saved, lambda tensors, facts: facts.update(kind=kind))
        with pytest.raises(ModelFileError, match=r"kind must be one of 'EnergyRegressor', .*save the model"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        "key",
        ["params", "design", "history", "n_iter", "best_epoch", "drop_target_axis", "n_features_in"],
    )
    def test_without_an_entry_are_refused(self, saved, key):
        _edit(saved, lambda tensors, facts: facts.pop(key))
        with pytest.raises(ModelFileError, match=f"edited or damaged .*{key} is missing.*save the model"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        "entries",
        [
            {"params": []},
            {"params": {"no_such_parameter": 1}},
            {"design": {"width": 8}},
            {"history": 5},
            {"history": [{"nce": "low"}]},
            {"n_iter": "2"},
            {"best_epoch": 0.5},
            {"target_names": "price"},
            {"drop_target_axis": "no"},
            {"n_features_in": True},
            {"feature_names_in": 3},
            {"extra": 1},
        ],
        ids=str,
    )
    def test_of_another_type_are_refused(self, saved, entries):
        _edit(saved, lambda tensors, facts: facts.update(entries))
        with pytest.raises(ModelFileError, match=r"edited or damaged .*save the model again"):
            ebreg.load(saved)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("width", 9),
            ("width", "8"),
            ("width", -1),
            ("width", 10**7),
            ("n_targets", 2),
            ("n_targets", 10**8),
            ("n_components", 3),
            ("n_components", 10**15),
            ("bounded", True),
            ("n_inputs", 4),
            ("n_inputs", 10**9),
            ("n_inputs", None),
            ("min_scale", float("inf")),
            ("min_scale", "small"),
            ("n_members", 7),
            ("n_members", 1),
            ("n_members", 10**8),
            ("dropout", [0.1]),
            ("dropout", []),
            ("dropout", "often"),
            ("residual", False),
        ],
    )
    def test_of_another_design_are_refused(self, saved, name, value):
        # At once, and without memory for networks of that size.
        _edit(saved, lambda tensors, facts: facts["design"].update({name: value}))
        with pytest.raises(ModelFileError, match=r"edited or damaged|the weights do not fit the networks"):
            ebreg.load(saved)

    def test_sizes_that_no_weight_has_take_no_memory(self, fitted, tmp_path):
        # A mixture on a user's backbone has no layer of this width.
        path = _copy(fitted("mixture, backbone"), tmp_path / "model")
        _edit(path, lambda tensors, facts: facts["design"].update(width=10**6))
        np.testing.assert_array_equal(
            ebreg.load(path, backbone=pixels()).predict(SOME), fitted("mixture, backbone").predict(SOME)
        )

    @pytest.mark.parametrize(
        "sizes", [{"n_targets": 10**8}, {"width": 10**5}, {"n_components": 10**9}, {"n_members": 10**8}]
    )
    def test_of_huge_sizes_take_no_memory(self, saved, sizes):
        _edit(saved, lambda tensors, facts: facts["design"].update(sizes))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(ModelFileError):
            ebreg.load(saved)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # in KiB


class TestImageModels:
    """Of ``ebreg train``; tests/test_experiments_images.py loads those that it trained."""

    @pytest.fixture(params=[None, 8], ids=["whole", "neck"])
    def saved(self, request, tmp_path) -> Path:
        known, neck = backbones.find("small-cnn"), request.param
        heads = networks.image_heads(2, 3, neck or known.n_features)
        backbone = known.build()
        if neck is not None:
            backbone = nn.Sequential(backbone, networks.MLP(known.n_features, (neck,)))
        units = replace(Units.of(None, torch.from_numpy(TWO)), x=known.units())
        model = EnergyModel.of(replace(heads, backbone=backbone), units)
        design = ImageDesign(known.name, neck, n_targets=2, n_components=3)
        experiment = SimpleNamespace(settings={}, design=design, image_shape=(1, 16, 16))
        images.save(tmp_path / "model", experiment, model)
        self.model = model
        return tmp_path / "model"

    def test_are_loaded_as_they_were(self, saved):
        state, random = self.model.state_dict(), torch.get_rng_state()
        loaded = ebreg.load(saved)
        assert torch.equal(torch.get_rng_state(), random)
        assert not loaded.training
        assert loaded.state_dict().keys() == state.keys()
        assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
        pixels = torch.arange(2 * 256).reshape(2, 1, 16, 16) % 256
        assert torch.equal(loaded.features(pixels), self.model.eval().features(pixels))
        with pytest.raises(ValueError, match=r"\(C, H, W\) = \(1, 16, 16\), got \(1, 16, 8\)"):
            loaded.features(pixels[..., :8])

    @pytest.mark.parametrize(
        "entries",
        [
            {"n_targets": 10**8},
            {"n_components": 10**12},
            {"neck": 10**6},
            {"model": "MixtureModel"},
            {"model": "Model"},
            {"image_backbone": "no-such-network"},
            {"image_backbone": 3},
            {"image_shape": [1, 16, -16]},
        ],
        ids=str,
    )
    def test_of_other_facts_are_refused(self, saved, entries):
        _edit(saved, lambda tensors, facts: facts.update(entries))
        with pytest.raises(ModelFileError, match=r"edited or damaged|the weights do not fit the networks"):
            ebreg.load(saved)

    def test_take_no_backbone(self, saved):
        with pytest.raises(ModelFileError, match="load it without the argument backbone"):
            ebreg.load(saved, backbone=pixels())


def _with_bias(tensors, change) -> None:
    """Change a parameter of a network."""
    name = _a_bias(tensors)
    tensors[name] = change(tensors[name])


def _a_bias(tensors) -> str:
    return next(name for name in tensors if name.startswith("proposal.") and name.endswith(".bias"))


class TestWeights:
    @pytest.fixture(params=["energy", "energy, joint"])
    def saved(self, request, fitted, tmp_path) -> Path:
        """Of several members and of one."""
        return _copy(fitted(request.param), tmp_path / "model")

    @pytest.mark.parametrize(
        "change",
        [
            lambda tensors, facts: tensors.update(extra=torch.zeros(1)),
            lambda tensors, facts: tensors.pop(_a_bias(tensors)),
            lambda tensors, facts: tensors.pop("x_units.shift"),
            lambda tensors, facts: _with_bias(tensors, lambda bias: torch.zeros(7, 7)),
            lambda tensors, facts: _with_bias(tensors, torch.Tensor.double),
        ],
        ids=["one too many", "one too few", "no units of x", "another shape", "another type"],
    )
    def test_that_do_not_fit_are_refused(self, saved, change):
        _edit(saved, change)
        with pytest.raises(ModelFileError, match=r"the weights do not fit the networks \(1 .*the folder was"):
            ebreg.load(saved)

    def test_without_units_are_refused(self, saved):
        _edit(saved, lambda tensors, facts: tensors.pop("y_units.shift"))
        with pytest.raises(ModelFileError, match=r"do not fit the networks .1 missing: y_units.shift"):
            ebreg.load(saved)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_that_are_not_finite_are_refused(self, saved, value):
        _edit(saved, lambda tensors, facts: _with_bias(tensors, lambda bias: bias.fill_(value)))
        with pytest.raises(ModelFileError, match="are not finite; train and save the model again"):
            ebreg.load(saved)

    def test_of_another_model_are_refused(self, fitted, saved, tmp_path):
        # Of the same shapes: only the checksum tells.
        same = CASES["energy"][0] if ebreg.load(saved).design_.residual else CASES["energy, joint"][0]
        other = _copy(clone(same).set_params(random_state=1).fit(X, Y), tmp_path / "other")
        shutil.copy(other / "model.safetensors", saved / "model.safetensors")
        with pytest.raises(ModelFileError, match="does not have the checksum that it was saved with"):
            ebreg.load(saved)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", None, 1.5])
def test_a_device_that_is_not_there_is_refused(saved, device):
    with pytest.raises(ValueError, match=r"cannot be used: .* take 'auto' or 'cpu'"):
        ebreg.load(saved, device=device)


def test_loading_leaves_the_global_random_state_alone(saved):
    before = torch.get_rng_state()
    ebreg.load(saved)
    assert torch.equal(torch.get_rng_state(), before)


class Bomb:
    def __reduce__(self):
        return warnings.warn, ("executed",)  # warnings are errors here


class TestNothingIsExecuted:
    def test_a_pickle_beside_a_model_is_ignored(self, fitted, saved):
        for name in ("model.pkl", "pytorch_model.bin", "__init__.py"):
            (saved / name).write_bytes(pickle.dumps(Bomb()))
        np.testing.assert_array_equal(ebreg.load(saved).predict(SOME), fitted().predict(SOME))

    def test_a_pickle_in_place_of_the_weights_is_refused(self, saved):
        (saved / "model.safetensors").write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(ModelFileError, match="truncated or damaged"):
            ebreg.load(saved)

    def test_a_checkpoint_of_torch_in_place_of_the_weights_is_refused(self, saved):
        torch.save({"bomb": Bomb()}, saved / "model.safetensors")
        with pytest.raises(ModelFileError, match="truncated or damaged"):
            ebreg.load(saved)
