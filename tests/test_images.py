"""Sets of images: the paper's tasks and splits, data that nothing damages, and the command."""

import argparse
import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from ebreg.cli import data as command
from ebreg.datasets.images import (
    IMAGE_TASKS,
    SPLITS,
    HeadPoseAugmentation,
    ImageData,
    InMemory,
    load,
    read_hdf5,
    write_hdf5,
)
from ebreg.datasets.images.splits import divide, rotate
from ebreg.training.batches import as_data

NAMES = list(IMAGE_TASKS)


def images(n: int, channels: int = 3, side: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def write_task(name: str, folder: Path, n: int = 40) -> Path:
    """Official files of a task, with n rows each; returns the folder."""
    task = IMAGE_TASKS[name]
    if task.format == "h5":
        labels = np.arange(n) % 100 + 1
        write_hdf5(folder / task.files[0], images(n, task.channels), labels, task)
    else:
        for seed, file in enumerate(task.files):
            pose = np.random.default_rng(seed).uniform(-70, 70, (n, 3))
            np.savez(folder / file, image=images(n, seed=seed).transpose(0, 2, 3, 1), pose=pose)
    return folder


def poses(path: Path, n: int = 40, persons: int = 10) -> Path:
    pose = np.random.default_rng(0).uniform(-90, 90, (n, 2))
    np.savez(path, image=images(n).transpose(0, 2, 3, 1), pose=pose, person=np.arange(n) % persons)
    return path


class TestData:
    def data(self, **others) -> ImageData:
        return ImageData(InMemory(images(10)), torch.arange(20.0).reshape(10, 2), **others)

    def test_batches(self):
        data = self.data()
        x, y = data.__getitems__([7, 0, 7])
        assert (x.shape, x.dtype) == ((3, 3, 6, 6), torch.uint8)
        assert np.array_equal(x.numpy(), images(10)[[7, 0, 7]])
        assert (y.tolist(), y.dtype) == ([[14, 15], [0, 1], [14, 15]], torch.float64)
        x, y = data[3]
        assert np.array_equal(x.numpy(), images(10)[3])
        assert y.tolist() == [6, 7]

    def test_other_targets(self):
        data = self.data().take([8, 2])
        other = data.with_targets(torch.tensor([[1.5, 2.5], [3.5, 4.5]]))
        assert np.array_equal(other[0][0].numpy(), images(10)[8])
        assert [other[0][1].tolist(), other[1][1].tolist()] == [[1.5, 2.5], [3.5, 4.5]]
        assert data.y.tolist() == [[16, 17], [4, 5]]
        assert other.checksum != data.checksum

    def test_a_part_of_a_part(self):
        part = self.data(groups=list("abababcccc")).take(torch.tensor([1, 3, 5, 9])).take([3, 0])
        assert len(part) == 2
        assert part.rows.tolist() == [9, 1]
        assert part.y.tolist() == [[18, 19], [2, 3]]
        assert part.groups.tolist() == ["c", "b"]
        assert np.array_equal(part.__getitems__([1, 0])[0].numpy(), images(10)[[1, 9]])

    def test_nothing_that_is_handed_out_leads_back(self):
        data = self.data(groups=np.arange(10))
        for values in (data.y, data.groups, *data.__getitems__(range(10)), *data[0]):
            values[:] = 99
        x, y = data.__getitems__(range(10))
        assert np.array_equal(x.numpy(), images(10))
        assert torch.equal(y, self.data().y)
        assert data.groups.tolist() == list(range(10))

    def test_the_checksum_tells_data_apart(self):
        data = self.data()
        changed = images(10)
        changed[9, 2, 5, 5] ^= 1
        others = [
            data.take(range(9)),
            data.take([1, 0, *range(2, 10)]),
            ImageData(data.pixels, data.y + 1),
            ImageData(data.pixels, torch.zeros(10, 2)).take([*range(9), 8]),
            ImageData(data.pixels, torch.zeros(10, 2)).take([*range(9), 9]),
            ImageData(InMemory(changed), data.y),
        ]
        assert len({data.checksum, *(other.checksum for other in others)}) == 7
        assert self.data(name="another").checksum == data.checksum

    @pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
    def test_rows_of_any_whole_numbers(self, dtype):
        data = self.data(rows=np.arange(10)[::-1].astype(dtype))
        expected = self.data(rows=np.arange(10)[::-1])
        assert torch.equal(data.y, expected.y)
        assert data.checksum == expected.checksum

    def test_the_checksum_is_of_every_image(self):
        many, y = images(1100), torch.zeros(1100, 1)
        same = ImageData(InMemory(many.copy()), y).checksum
        for i in (1, 511, 512, 1050):
            changed = many.copy()
            changed[i, 0, 0, 0] ^= 1
            assert ImageData(InMemory(changed), y).checksum != same
        assert ImageData(InMemory(torch.from_numpy(many)), y).checksum == same

    def test_the_training_loop_takes_it(self):
        data = as_data(self.data())
        x, y = data.__getitems__([2, 1])
        assert np.array_equal(x.numpy(), images(10)[[2, 1]])
        assert y.tolist() == [[4, 5], [2, 3]]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"y": torch.zeros(9, 2)}, "a row for each image, found 9 for 10"),
            ({"y": torch.zeros(10)}, "rows and columns"),
            ({"y": torch.full((10, 1), math.nan)}, "must be finite"),
            ({"groups": [1, 2]}, r"groups of mine must have shape \(10,\), found \(2,\)"),
            ({"rows": []}, "at least 1"),
            ({"rows": [True, False] * 5}, r"whole numbers, .* found bool .*flatnonzero\(mask\)"),
            ({"rows": [[1, 2]]}, r"shape \(m,\), found int64 of shape \(1, 2\)"),
            ({"rows": [3, 10]}, "from 0 to 9, found 3 to 10"),
            ({"rows": [-1, 3]}, "from 0 to 9, found -1 to 3"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, arguments: dict, message: str):
        arguments = {"y": torch.zeros(10, 2), "name": "mine", **arguments}
        with pytest.raises(ValueError, match=message):
            ImageData(InMemory(images(10)), **arguments)


@pytest.mark.parametrize("name", NAMES)
class TestEveryTask:
    def test_it_says_all_there_is_to_know(self, name: str):
        task = IMAGE_TASKS[name]
        assert task.name == name
        assert all((task.title, task.target, task.unit, task.source, task.licence, task.files))
        assert task.split in SPLITS
        assert max(task.n_targets) == len(task.target_names)
        assert task.valid_range[0] <= task.low < task.high <= task.valid_range[1]
        with pytest.raises(FrozenInstanceError):
            task.low = 0

    def test_official_files_are_found_and_split_as_in_the_paper(self, name: str, tmp_path: Path):
        split = load(name, write_task(name, tmp_path))
        assert split.how["split"] == IMAGE_TASKS[name].split
        assert (split.how["train"], split.how["test"]) == (len(split.train), len(split.test))
        assert json.loads(json.dumps(split.how)) == split.how
        x, y = split.test.__getitems__([0, 1])
        assert (x.dtype, x.shape) == (torch.uint8, (2, IMAGE_TASKS[name].channels, 6, 6))
        assert y.shape == (2, len(IMAGE_TASKS[name].target_names))

    def test_where_pixels_are_changes_nothing(self, name: str, tmp_path: Path):
        write_task(name, tmp_path)
        first, again = load(name, tmp_path), load(name, tmp_path, on_disk=False)
        assert first.train.checksum == again.train.checksum != first.test.checksum
        if IMAGE_TASKS[name].format == "npz":
            with pytest.raises(ValueError, match="cannot stay on disk"):
                load(name, tmp_path, on_disk=True)
        else:
            on_disk = load(name, tmp_path, on_disk=True)
            assert on_disk.train.checksum == first.train.checksum
            index = [5, 3, 3]
            assert torch.equal(on_disk.test.__getitems__(index)[0], first.test.__getitems__(index)[0])


def test_the_paper_s_grids():
    grids = {name: (task.low, task.high, task.n_grid, task.spacing) for name, task in IMAGE_TASKS.items()}
    assert grids == {
        "steering": (-100, 100, 20_000, None),
        "cells": (1, 200, 19_900, 1.0),
        "age": (1, 60, 5_900, 1.0),
        "head-pose": (-80, 80, 30, None),
    }
    assert [name for name in NAMES if IMAGE_TASKS[name].augmentation is not None] == ["head-pose"]


class TestSplits:
    @pytest.mark.parametrize("name", [name for name in SPLITS if name != "given"])
    def test_parts_are_apart_and_drawn_by_the_seed(self, name: str):
        rows, groups = np.arange(3, 103), np.arange(100) // 10
        train, test = divide(name, rows, groups, 0)
        assert len(np.intersect1d(train, test)) == 0
        assert np.isin(np.concatenate([train, test]), rows).all()
        for part in (train, test):
            assert (np.diff(part) > 0).all()
        again, other = divide(name, rows, groups, 0), divide(name, rows, groups, 1)
        assert np.array_equal(again[1], test)
        assert np.array_equal(other[1], test) == (name == "time")

    @pytest.mark.parametrize(
        ("name", "n", "sizes"),
        [
            ("random", 12_271, (9_816, 2_455)),  # the paper's steering angles
            ("random", 14_760, (11_808, 2_952)),  # and ages
            ("random", 2, (1, 1)),
            ("halves", 200_000, (10_000, 10_000)),  # and cells
            ("halves", 301, (150, 150)),
            ("time", 10, (8, 2)),
        ],
    )
    def test_sizes(self, name: str, n: int, sizes: tuple[int, int]):
        assert tuple(map(len, divide(name, np.arange(n), None, 0))) == sizes

    def test_the_last_in_time_are_for_test(self):
        assert divide("time", np.arange(10), None, 0)[1].tolist() == [8, 9]

    def test_no_group_is_on_both_sides(self, tmp_path: Path):
        split = load("head-pose", poses(tmp_path / "a.npz"), seed=3)
        assert set(split.train.groups) & set(split.test.groups) == set()
        assert split.how == {
            "split": "group",
            "seed": 3,
            "train": 32,
            "test": 8,
            "left_out": 0,
            "test_groups": sorted(set(split.test.groups.tolist())),
        }
        assert len(split.how["test_groups"]) == 2
        assert split.train.y.shape == (32, 2)

    def test_what_is_held_out_is_as_new_as_the_test(self, tmp_path: Path):
        split = load("head-pose", poses(tmp_path / "a.npz"), seed=3)
        rest, held_out = split.validation_split()
        assert sorted([*rest, *held_out]) == list(range(32))
        assert set(split.train.groups[rest]) & set(split.train.groups[held_out]) == set()
        cells = write_task("cells", tmp_path)
        assert load("cells", cells, "time").validation_split()[1].tolist() == list(range(25, 32))
        drawn = load("cells", cells).validation_split()[1]
        assert len(drawn) == 4
        assert drawn.tolist() != list(range(16, 20))

    @pytest.mark.parametrize(("name", "n_different"), [("random", 40), ("time", 40), ("group", 4)])
    def test_several_splits_hold_out_different_rows(self, name: str, n_different: int):
        rows, groups = np.arange(3, 53), np.arange(50) // 10
        splits = rotate(name, rows, groups, seed=0, n=4)
        assert all(sorted([*train, *test]) == rows.tolist() for train, test in splits)
        assert {len(test) for _, test in splits} == {10}
        held_out = np.concatenate([test for _, test in splits])
        units = groups[held_out - 3] if name == "group" else held_out
        assert len(set(units)) == n_different
        for train, test in splits:
            assert name != "time" or (np.diff(test) == 1).all()
            assert name != "group" or not set(groups[train - 3]) & set(groups[test - 3])
        again, other = (
            np.concatenate([test for _, test in rotate(name, rows, groups, seed, 4)]) for seed in (0, 1)
        )
        assert np.array_equal(again, held_out)
        assert np.array_equal(other, held_out) == (name == "time")

    def test_a_named_split_takes_the_place_of_the_paper_s(self, tmp_path: Path):
        path = poses(tmp_path / "a.npz")
        assert load("head-pose", path, "random").how["split"] == "random"
        split = load("cells", write_task("cells", tmp_path), "time")
        assert split.how == {"split": "time", "seed": None, "train": 32, "test": 8, "left_out": 0}
        assert split.test.rows.tolist() == list(range(32, 40))

    def test_ages_beyond_the_grid_are_left_out(self, tmp_path: Path):
        write_task("age", tmp_path, n=100)
        split = load("age", tmp_path)
        ages = torch.cat([split.train.y, split.test.y])[:, 0]
        assert sorted(ages.tolist()) == list(range(1, 61))
        assert (len(split.train), len(split.test), split.how["left_out"]) == (48, 12, 40)

    def test_two_files_are_the_two_parts(self, tmp_path: Path):
        split = load("head-pose", write_task("head-pose", tmp_path), "given")
        for seed, part in enumerate((split.train, split.test)):
            assert np.array_equal(part.__getitems__(range(40))[0].numpy(), images(40, seed=seed))

    @pytest.mark.parametrize(
        ("task", "settings", "message"),
        [
            (
                "mine",
                {},
                "a task of images must be one of 'steering', 'cells', .* got 'mine'",
            ),
            ("steering", {"split": "mine"}, "split must be one of 'random'.*got 'mine'"),
            ("steering", {"split": "group"}, "h5: split 'group' needs groups"),
            ("steering", {"split": "given"}, "is one file"),
            ("steering", {"seed": -1}, "seed must be at least 0"),
            ("steering", {"seed": 2**32}, r"seed must be at most 2\*\*32 - 1"),
            ("head-pose", {"split": "random"}, "is split by its two files, got split 'random'"),
        ],
    )
    def test_what_cannot_be_split(self, task: str, settings: dict, message: str, tmp_path: Path):
        for name in ("steering", "head-pose"):
            write_task(name, tmp_path)
        with pytest.raises(ValueError, match=message):
            load(task, tmp_path, **settings)

    def test_two_files_that_do_not_belong_together(self, tmp_path: Path):
        poses(write_task("head-pose", tmp_path) / "BIWI_test.npz")
        with pytest.raises(ValueError, match="must have the same number of targets, found 3 and 2"):
            load("head-pose", tmp_path)


def points(
    mirror: float = 0.9, scale: float = 0.35, top: float = 0.0, left: float = 0.0, n: int = 1
) -> Tensor:
    """Uniform numbers that leave a picture as it is: no mirror, and the fourth of nine scales is 1."""
    return torch.tensor([[mirror, scale, top, left]]).repeat(n, 1)


class TestAugmentation:
    augment = HeadPoseAugmentation()

    def pictures(self, n: int) -> tuple[Tensor, Tensor]:
        y = torch.from_numpy(np.random.default_rng(0).uniform(-70, 70, (n, 3)))
        return torch.from_numpy(images(n, side=64)), y

    def test_the_paper_s_scales(self):
        assert self.augment.scales == pytest.approx([0.7 + 0.1 * i for i in range(9)])
        assert self.augment.n_points == 4

    def test_nothing_to_do(self):
        x, y = self.pictures(2)
        seen, poses = self.augment(x, y, points(n=2))
        assert torch.equal(seen, x)
        assert torch.equal(poses, y)

    @pytest.mark.parametrize("D", [2, 3])
    def test_a_mirror_turns_yaw_and_roll(self, D: int):
        x, y = self.pictures(2)
        seen, poses = self.augment(x, y[:, :D], points(mirror=0.4999, n=2))
        assert torch.equal(seen, x.flip(-1))
        assert torch.equal(poses, y[:, :D] * torch.tensor([-1.0, 1.0, -1.0])[:D])
        assert poses.dtype == y.dtype

    def test_a_smaller_picture_lies_in_the_upper_left(self):
        x = torch.full((1, 3, 64, 64), 200, dtype=torch.uint8)
        seen, _ = self.augment(x, torch.zeros(1, 3), points(scale=0.0, top=0.99, left=0.99))
        assert (seen[:, :, :45, :45] == 200).all()  # 0.7 of 64 is 44.8
        assert seen[:, :, 45:].sum() == seen[:, :, :, 45:].sum() == 0

    def test_a_larger_picture_is_cropped_anywhere(self):
        # Brightness grows to the right by 2 a column, so by 2 / 1.5 in the picture that is 96 wide.
        x = (2 * torch.arange(64, dtype=torch.uint8)).expand(1, 1, 64, 64)
        first, _ = self.augment(x, torch.zeros(1, 3), points(scale=0.99))
        last, _ = self.augment(x, torch.zeros(1, 3), points(scale=0.99, left=0.999))
        inner = torch.arange(1, 63)
        assert ((first[0, 0, 0, 1:63] - 2 * ((inner + 0.5) / 1.5 - 0.5)).abs() <= 0.51).all()
        assert ((last[0, 0, 0, 1:63] - 2 * ((inner + 32.5) / 1.5 - 0.5)).abs() <= 0.51).all()
        down, _ = self.augment(x.mT, torch.zeros(1, 3), points(scale=0.99, top=0.999))
        assert torch.equal(down, last.mT)

    def test_rows_do_not_depend_on_each_other(self):
        x, y = self.pictures(40)
        u = torch.rand(40, 4)
        seen, poses = self.augment(x, y, u)
        assert (seen.shape, seen.dtype) == ((40, 3, 64, 64), torch.uint8)
        order = torch.randperm(40)
        for part in order.split(13):
            alone = self.augment(x[part], y[part], u[part])
            assert torch.equal(alone[0], seen[part])
            assert torch.equal(alone[1], poses[part])

    def test_numbers_next_to_1_stay_inside(self):
        x, y = self.pictures(1)
        for dtype in (torch.float32, torch.float64):
            largest = torch.nextafter(torch.ones(1, 4, dtype=dtype), torch.zeros(1, 4, dtype=dtype))
            assert self.augment(x, y, largest)[0].shape == x.shape

    def test_all_of_it_happens_as_often_as_it_should(self):
        n = 1800
        x = torch.full((n, 1, 4, 4), 255, dtype=torch.uint8)
        seen, poses = HeadPoseAugmentation()(x, torch.ones(n, 2), torch.rand(n, 4))
        mirrored = (poses[:, 0] < 0).double().mean().item()
        assert mirrored == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(n))
        sides = (seen[:, 0, 0] > 0).sum(dim=1)  # 0.7 and 0.8 times 4 are 3, and what is larger is cropped
        shares = sides.bincount(minlength=5)[3:].double() / n
        assert shares.tolist() == pytest.approx([2 / 9, 7 / 9], abs=0.05)

    @pytest.mark.parametrize("scales", [(), (1.0, 0.001), (-1.0,)])
    def test_scales_that_leave_nothing_are_refused(self, scales):
        with pytest.raises(ValueError, match=r"give one scale or more, each at least 0\.1"):
            HeadPoseAugmentation(scales)

    def test_pictures_keep_their_size(self):
        x = torch.randint(0, 256, (20, 3, 32, 48), dtype=torch.uint8)
        assert self.augment(x, torch.ones(20, 3), torch.rand(20, 4))[0].shape == x.shape

    def test_stored_data_is_the_same_after_any_number_of_epochs(self):
        x, y = self.pictures(12)
        stored_x, stored_y = x.numpy().copy(), y.clone()
        data = ImageData(InMemory(stored_x), stored_y)
        before = data.checksum
        for epoch in range(4):
            u = torch.rand(12, 4, generator=torch.Generator().manual_seed(epoch))
            batch = data.__getitems__(range(12))
            kept = [values.clone() for values in batch]
            seen, poses = self.augment(*batch, u)
            # Signs are those of this epoch alone: they do not add up from epoch to epoch.
            assert torch.equal(poses.sign() != y.sign(), (u[:, :1] < 0.5) & torch.tensor([True, False, True]))
            assert torch.equal(poses.abs(), y.abs())
            assert all(torch.equal(a, b) for a, b in zip(batch, kept, strict=True))
            seen.zero_()
            poses.zero_()
        assert np.array_equal(stored_x, x.numpy())
        assert torch.equal(stored_y, y)
        assert ImageData(InMemory(stored_x), stored_y).checksum == before

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"x": torch.zeros(2, 3, 64, 64)}, TypeError, "x must hold uint8, got torch.float32"),
            ({"x": torch.zeros(3, 64, 64, dtype=torch.uint8)}, ValueError, "x must have shape"),
            ({"y": torch.zeros(2, 1)}, ValueError, "yaw, pitch and perhaps roll, got 1 columns"),
            ({"y": torch.zeros(3, 3)}, ValueError, r"y must have shape \(2, D\)"),
            ({"u": torch.zeros(2, 3)}, ValueError, r"u must have shape \(2, 4\)"),
            ({"u": torch.ones(2, 4)}, ValueError, r"u must lie in \[0, 1\)"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, change: dict, error, message: str):
        x, y = self.pictures(2)
        with pytest.raises(error, match=message):
            self.augment(**{"x": x, "y": y, "u": points(n=2), **change})


class TestCommand:
    def run(self, *arguments: str) -> None:
        parser = argparse.ArgumentParser()
        command.add_to(parser.add_subparsers(required=True))
        options = parser.parse_args(["data", *arguments])
        options.call(options)

    def test_list(self, capsys):
        self.run()
        text = capsys.readouterr().out
        self.run("list")
        assert capsys.readouterr().out == text
        for task in IMAGE_TASKS.values():
            for part in (task.title, *task.files, task.image_key, task.label_key, task.source, task.licence):
                assert part in text

    def test_check(self, capsys, tmp_path: Path):
        path = poses(tmp_path / "a.npz")
        self.run("check", "head-pose", str(path), "--seed", "1")
        text = capsys.readouterr().out
        assert "40 (0 left out)" in text
        assert "3 x 6 x 6, uint8" in text
        assert "group, seed 1: 32 for training, 8 for test" in text
        y = torch.from_numpy(np.load(path)["pose"])
        assert f"{y[:, 1].min():g} to {y[:, 1].max():g} degrees; 0% whole numbers" in text
        assert f"{int((y.abs() > 80).any(dim=1).sum())} of 40 rows" in text
        self.run("check", "age", str(write_task("age", tmp_path, n=120)), "--split", "time")
        text = capsys.readouterr().out
        assert "80 (40 left out)" in text  # of 120 rows, 1 to 100 and 1 to 20 again
        assert "time: 64 for training, 16 for test" in text
        assert "100% whole numbers, 50% shared with other rows, 60 distinct, most often 1 (2%)" in text

    def test_a_mistake_is_raised_for_the_caller(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            self.run("check", "age", str(tmp_path / "nowhere"))
        with pytest.raises(ValueError, match="a task of images must be one of"):
            self.run("check", "mine", str(tmp_path))
        with pytest.raises(FileNotFoundError, match="must be a folder of PNG files"):
            self.run("pack", str(tmp_path / "nowhere"), "--out", str(tmp_path / "a.h5"))

    @pytest.mark.parametrize("largest", [0, 10**9], ids=["on disk", "in memory"])
    def test_check_reads_every_image(self, largest: int, tmp_path: Path, monkeypatch):
        monkeypatch.setattr("ebreg.datasets.images.pixels.LARGEST_IN_MEMORY", largest)
        for i, width in enumerate((6, 6, 6, 7, 6)):
            Image.fromarray(images(1, channels=1)[0, 0, :, : width - 1]).resize((width, 6)).save(
                tmp_path / f"{i}_{i + 10}.0.png"
            )
        with pytest.raises(ValueError, match=r"3_13\.0\.png"):
            self.run("check", "cells", str(tmp_path))

    @pytest.mark.slow  # a process imports torch; test_image_files interrupts the same writer
    def test_pack_that_is_terminated_leaves_nothing(self, tmp_path: Path):
        folder, out = tmp_path / "cells", tmp_path / "out"
        for path in (folder, out):
            path.mkdir()
        for i in range(3):
            Image.fromarray(images(1, channels=1)[0, 0]).save(folder / f"{i}_{i + 10}.0.png")
        slow = (
            "import sys, time\n"
            "from ebreg import cli\n"
            "from ebreg.datasets.images import PNGPixels\n"
            "PNGPixels.take = lambda self, index: time.sleep(600)\n"
            "sys.exit(cli.main(sys.argv[1:]))\n"
        )
        words = ["data", "pack", str(folder), "--out", str(out / "x.h5")]
        process = subprocess.Popen([sys.executable, "-c", slow, *words])
        while not list(out.iterdir()):
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
        assert not list(out.iterdir())

    def test_pack(self, capsys, tmp_path: Path):
        folder, out = tmp_path / "cells", tmp_path / "packed.h5"
        folder.mkdir()
        pixels = images(5, channels=1)
        for i in range(5):
            Image.fromarray(pixels[i, 0]).save(folder / f"{i}_{i + 10}.0.png")
        self.run("pack", str(folder), "--out", str(out))
        captured = capsys.readouterr()
        assert f"{out}: 5 images" in captured.out
        assert "images: 100%" in captured.err
        data = read_hdf5(out, IMAGE_TASKS["cells"])
        assert np.array_equal(data.pixels.take(np.arange(5)), pixels)
        assert data.y[:, 0].tolist() == [10, 11, 12, 13, 14]
        with pytest.raises(FileExistsError, match=r"packed\.h5 exists"):
            self.run("pack", str(folder), "--out", str(out), "--quiet")
        assert "%" not in capsys.readouterr().err
        assert {path.name for path in tmp_path.iterdir()} == {"cells", "packed.h5"}
