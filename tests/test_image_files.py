"""Files of images: what is written is read, in any order and any process; what is damaged is a sentence."""

import multiprocessing
import pickle
import resource
import signal
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from ebreg.datasets.images import (
    IMAGE_TASKS,
    HDF5Pixels,
    InMemory,
    PNGPixels,
    load,
    read_hdf5,
    read_npz,
    read_png_folder,
    write_hdf5,
)
from ebreg.datasets.images.pixels import SubsetInMemory, load_into_memory

STEERING, CELLS, HEAD_POSE = (IMAGE_TASKS[name] for name in ("steering", "cells", "head-pose"))


def images(n: int, channels: int = 3, side: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, channels, side, side), dtype=np.uint8)


def write_any_hdf5(path: Path, **arrays: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
    return path


def write_pngs(folder: Path, pixels: np.ndarray, counts: list[int]) -> Path:
    folder.mkdir(exist_ok=True)
    for i, (image, count) in enumerate(zip(pixels, counts, strict=True)):
        Image.fromarray(image[0]).save(folder / f"{i:03d}_{count}.0.png")
    return folder


def cut(path: Path, share: float = 0.6) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    return path


@pytest.fixture(params=["memory", "hdf5", "chunks", "png", "subset"])
def source(request, tmp_path: Path):
    """Every kind of source, of the same 140 grey images."""
    pixels = images(140, channels=1)
    if request.param == "memory":
        return InMemory(pixels)
    if request.param == "png":
        return PNGPixels(sorted(write_pngs(tmp_path / "cells", pixels, [1] * 140).iterdir()))
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        chunks = (7, 1, 6, 6) if request.param == "chunks" else None
        file.create_dataset("a", data=pixels, chunks=chunks, compression="gzip" if chunks else None)
    found = HDF5Pixels(path, "a")
    return SubsetInMemory(found, np.arange(140)) if request.param == "subset" else found


class TestSources:
    def test_any_order_and_repeats(self, source):
        pixels = images(140, channels=1)
        assert source.shape == pixels.shape
        assert len(source) == 140
        rng = np.random.default_rng(0)
        whole, few, repeated = np.arange(140), rng.permutation(140)[:32], rng.integers(0, 140, 300)
        for index in (whole, few, repeated, np.array([139]), np.array([], dtype=int)):
            taken = source.take(index)
            assert taken.dtype == np.uint8
            assert np.array_equal(taken, pixels[index])

    def test_what_is_taken_is_a_copy(self, source):
        before = source.take(np.arange(140))
        source.take(np.arange(140))[:] = 0
        assert np.array_equal(source.take(np.arange(140)), before)

    def test_a_copy_in_another_process_reads_the_same(self, source):
        first = source.take(np.array([3, 1]))  # so that a file is open
        again = pickle.loads(pickle.dumps(source))
        assert np.array_equal(again.take(np.array([3, 1])), first)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            parts = pool.map(source.take, np.array_split(np.arange(140)[::-1], 4))
        assert np.array_equal(np.concatenate(parts), source.take(np.arange(140)[::-1]))
        assert np.array_equal(source.take(np.array([3, 1])), first)

    def test_an_open_file_of_a_parent_is_opened_anew(self, tmp_path: Path):
        source = HDF5Pixels(write_any_hdf5(tmp_path / "a.h5", a=images(4)), "a")
        inherited = source._opened[1]
        source._opened = (-1, inherited)  # as it looks in a child
        assert np.array_equal(source.take(np.arange(4)), images(4))
        assert not inherited

    def test_an_array_is_not_copied_nor_made_writeable(self):
        pixels = images(3)
        source = InMemory(pixels)
        assert np.shares_memory(source._array, pixels)
        assert pixels.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            source._array[0] = 0

    def test_what_is_large_stays_on_disk_and_what_is_not_used_too(self, tmp_path: Path, monkeypatch):
        source = HDF5Pixels(write_any_hdf5(tmp_path / "a.h5", a=images(10)), "a")
        rows = np.array([2, 5, 6])
        small = load_into_memory(source, rows)
        assert isinstance(small, SubsetInMemory)
        assert np.array_equal(small.take(np.array([6, 2, 6])), images(10)[[6, 2, 6]])
        with pytest.raises(IndexError, match="image 3 is not in memory"):
            small.take(np.array([2, 3]))
        assert load_into_memory(source, rows, on_disk=True) is source
        monkeypatch.setattr("ebreg.datasets.images.pixels.LARGEST_IN_MEMORY", 3 * images(1).nbytes - 1)
        assert load_into_memory(source, rows) is source
        assert isinstance(load_into_memory(source, rows[:2]), SubsetInMemory)
        assert isinstance(load_into_memory(source, rows, on_disk=False), SubsetInMemory)
        array = InMemory(images(10))
        assert load_into_memory(array, rows) is array

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (images(2).astype(float), "uint8, found float64"),
            (images(2)[0], r"shape \(n, C, H, W\), found \(3, 6, 6\)"),
            (images(0), r"at least one image, found shape \(0, 3, 6, 6\)"),
            ([1], "uint8, found list"),
        ],
    )
    def test_other_arrays_are_refused(self, array, message: str):
        with pytest.raises(ValueError, match=message):
            InMemory(array)

    def test_no_paths(self):
        with pytest.raises(ValueError, match="at least one PNG file"):
            PNGPixels([])


class TestReaders:
    def test_hdf5(self, tmp_path: Path):
        labels = np.array([-1.5, 0.0, 99.0], dtype=np.float32)
        data = read_hdf5(write_any_hdf5(tmp_path / "a.h5", images=images(3), labels=labels), STEERING)
        x, y = data.__getitems__([2, 0])
        assert np.array_equal(x.numpy(), images(3)[[2, 0]])
        assert y.tolist() == [[99.0], [-1.5]]

    def test_npz(self, tmp_path: Path):
        pixels, pose = images(3), np.array([[1, 2], [3, 4], [-90, 90]], dtype=np.int16)
        path = tmp_path / "a.npz"
        np.savez(path, image=pixels.transpose(0, 2, 3, 1), pose=pose, img_size=6)
        data = read_npz(path, HEAD_POSE)
        assert np.array_equal(data.__getitems__([0, 1, 2])[0].numpy(), pixels)
        assert data.y.tolist() == pose.tolist()
        assert data.groups is None
        np.savez(path, image=pixels.transpose(0, 2, 3, 1), pose=pose, person=np.array(["a", "b", "a"]))
        assert read_npz(path, HEAD_POSE).groups.tolist() == ["a", "b", "a"]

    def test_pngs_in_the_order_of_their_names(self, tmp_path: Path):
        pixels = images(3, channels=1)
        folder = write_pngs(tmp_path / "cells", pixels, [7, 200, 1])
        (folder / "notes.txt").write_text("not an image")
        data = read_png_folder(folder, CELLS)
        assert data.y.tolist() == [[7.0], [200.0], [1.0]]
        assert np.array_equal(data.__getitems__([2, 1, 0])[0].numpy(), pixels[::-1])

    def test_what_is_missing_to_read_them_is_said(self, tmp_path: Path, monkeypatch):
        write_any_hdf5(tmp_path / "a.h5", images=images(2), labels=np.zeros(2))
        folder = write_pngs(tmp_path / "cells", images(2, channels=1), [1, 2])
        for module in ("h5py", "PIL"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"HDF5 files need h5py: pip install ebreg\[images\]"):
            read_hdf5(tmp_path / "a.h5", STEERING)
        with pytest.raises(ImportError, match=r"PNG files need Pillow: pip install ebreg\[images\]"):
            read_png_folder(folder, CELLS)


def hdf5_of(**arrays):
    return lambda folder: write_any_hdf5(folder / "bad.h5", **arrays)


def empty(key: str):
    """An HDF5 file that has a name for an array, and no array."""
    arrays = {"images": images(4), "labels": zeros(4), key: h5py.Empty("u1")}
    return hdf5_of(**arrays)


def npz_of(**arrays):
    def make(folder: Path) -> Path:
        np.savez(folder / "bad.npz", **arrays)
        return folder / "bad.npz"

    return make


def text(name: str):
    def make(folder: Path) -> Path:
        (folder / name).write_text("something else")
        return folder / name

    return make


def damaged_chunks(folder: Path) -> Path:
    with h5py.File(folder / "bad.h5", "w") as file:
        stored = file.create_dataset("images", data=images(4), chunks=(4, 3, 6, 6), compression="gzip")
        file["labels"] = np.zeros(4)
        first = stored.id.get_chunk_info(0).byte_offset
    content = bytearray((folder / "bad.h5").read_bytes())
    content[first : first + 40] = bytes(40)
    (folder / "bad.h5").write_bytes(content)
    return folder / "bad.h5"


def damaged_npz(folder: Path) -> Path:
    path = npz_of(image=PICTURES, pose=POSES)(folder)
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    return path


def overwritten(old: bytes, new: bytes, make):
    """A file with all of some bytes replaced by others."""

    def change(folder: Path) -> Path:
        path = make(folder)
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new))
        return path

    return change


def a_type(folder: Path) -> Path:
    with h5py.File(folder / "bad.h5", "w") as file:
        file["images"] = np.dtype("u1")
    return folder / "bad.h5"


def not_an_array(folder: Path) -> Path:
    with zipfile.ZipFile(npz_of(image=PICTURES)(folder), "a") as archive:
        archive.writestr("pose", b"something else")
    return folder / "bad.npz"


def a_png(change):
    def make(folder: Path) -> Path:
        change(write_pngs(folder / "bad", images(4, channels=1), [1, 2, 3, 4]))
        return folder / "bad"

    return make


def zeros(n: int, **others: float) -> np.ndarray:
    """Zeros but for some rows: ``zeros(5, row_2=9)``."""
    labels = np.zeros(n)
    for name, value in others.items():
        labels[int(name.removeprefix("row_"))] = value
    return labels


PICTURES, POSES = images(4).transpose(0, 2, 3, 1), np.zeros((4, 3))
GREY = images(4, channels=1)

# The task, what is made in a folder, and a part of the sentence.
BAD_FILES = {
    "no such file": (
        "steering",
        lambda folder: folder / "bad.h5",
        "does not exist: give SteeringAngle_64x64",
    ),
    "an empty folder": ("steering", lambda folder: folder, r"must hold SteeringAngle_64x64\.h5, and"),
    "one file of two": (
        "head-pose",
        lambda folder: npz_of()(folder).parent,
        r"and BIWI_train\.npz and",
    ),
    "a folder without cells": ("cells", lambda folder: folder, r"or PNG files named <id>_<count>\.0\.png"),
    "not an HDF5": ("steering", text("bad.h5"), "is truncated or not an HDF5 file"),
    "a truncated HDF5": (
        "steering",
        lambda folder: cut(hdf5_of(images=images(40), labels=zeros(40))(folder)),
        "is truncated or not an HDF5 file",
    ),
    "a damaged HDF5": ("steering", damaged_chunks, "images 0 to 3 cannot be read .* download it again"),
    "keys of another task": (
        "cells",
        hdf5_of(images=GREY, labels=zeros(4)),
        "array 'IMGs_grey', found the keys 'images', 'labels'",
    ),
    "no labels": (
        "steering",
        hdf5_of(images=images(4)),
        "must hold an array 'labels', found the keys 'images'",
    ),
    "nothing in it": ("steering", hdf5_of(), "must hold an array 'images', found the keys none"),
    "a folder for an array": (
        "steering",
        hdf5_of(**{"images/inner": GREY, "labels": zeros(4)}),
        "must hold an array 'images'",
    ),
    "images of floats": (
        "steering",
        hdf5_of(images=images(4) / 255, labels=zeros(4)),
        "uint8, found float64",
    ),
    "flat images": ("steering", hdf5_of(images=images(4)[:, 0], labels=zeros(4)), r"found \(4, 6, 6\)"),
    "grey for colour": ("steering", hdf5_of(images=GREY, labels=zeros(4)), r"3, H, W\), found \(4, 1"),
    "empty images": ("steering", empty("images"), "'images' must hold an array, and is empty"),
    "empty labels": ("steering", empty("labels"), "'labels' must hold an array, and is empty"),
    "no images": ("steering", hdf5_of(images=images(0), labels=zeros(0)), r"at least one image"),
    "too few labels": (
        "steering",
        hdf5_of(images=images(4), labels=zeros(3)),
        "as many targets as images, found 3 and 4",
    ),
    "labels of two columns": ("steering", hdf5_of(images=images(4), labels=POSES), r"found shape \(4, 3\)"),
    "labels of no axis": ("steering", hdf5_of(images=images(4), labels=np.float64(1)), r"found shape \(\)"),
    "labels of text": ("steering", hdf5_of(images=images(2), labels=np.array([b"1", b"2"])), "hold numbers"),
    "a label out of range": (
        "steering",
        hdf5_of(images=images(4), labels=zeros(4, row_2=-101, row_3=200)),
        "from -100 to 100 degrees, and 2 of 4 rows are not, first row 2 with -101",
    ),
    "a count of no cells": (
        "cells",
        hdf5_of(IMGs_grey=GREY, CellCounts=zeros(4, row_0=3)),
        "from 1 to 200 cells, and 3 of 4 rows are not, first row 1 with 0",
    ),
    "half a cell": (
        "cells",
        hdf5_of(IMGs_grey=GREY, CellCounts=zeros(4) + 1.5),
        "a multiple of 1, and 4 of 4 rows are not",
    ),
    "an age of NaN": (
        "age",
        hdf5_of(images=images(4), labels=zeros(4, row_1=np.nan)),
        "must be finite, and 1 of 4 rows are not, first row 1 with nan",
    ),
    "only old people": (
        "age",
        hdf5_of(images=images(4), labels=zeros(4) + 61),
        "from 1 to 60 years, found none",
    ),
    "one row": ("steering", hdf5_of(images=images(1), labels=zeros(1)), "at least 2 rows, found 1"),
    "not an npz": ("head-pose", text("bad.npz"), "is truncated or not an npz file"),
    "a truncated npz": (
        "head-pose",
        lambda folder: cut(npz_of(image=PICTURES, pose=POSES)(folder)),
        "is truncated or not an npz file",
    ),
    "a damaged npz": ("head-pose", damaged_npz, "npz file of plain arrays, and cannot be read"),
    "a pickle in an npz": (
        "head-pose",
        npz_of(image=PICTURES, pose=np.array([{}], dtype=object)),
        "npz file of plain arrays, and cannot be read",
    ),
    "no pose": ("head-pose", npz_of(image=PICTURES), "must hold an array 'pose', found the keys 'image'"),
    "channels first": (
        "head-pose",
        npz_of(image=images(4), pose=POSES),
        r"shape \(N, 64, 64, 3\), found \(4, 3, 6, 6\)",
    ),
    "pictures of floats": ("head-pose", npz_of(image=PICTURES / 255, pose=POSES), "uint8, found float64"),
    "one angle": ("head-pose", npz_of(image=PICTURES, pose=POSES[:, :1]), r"2 or 3 target\(s\).*\(4, 1\)"),
    "an infinite angle": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES + np.inf),
        "first row 0 with inf, inf",
    ),
    "too few persons": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES, person=np.arange(3)),
        "as many persons as images, found 3 and 4",
    ),
    "one person": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES, person=np.array(["a"] * 4)),
        "at least 2 groups, found 1",
    ),
    "persons of floats": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES, person=zeros(4)),
        "'person' must hold whole numbers or strings, found float64",
    ),
    "no person": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES),
        "is one file, which does not say how it is split; name a split",
    ),
    "no names in an HDF5": (
        "steering",
        overwritten(b"HEAP", b"XXXX", hdf5_of(images=images(4), labels=zeros(4))),
        "must hold an array 'images', and is damaged",
    ),
    "a type in place of images": ("steering", a_type, "must hold an array 'images', found the keys 'images'"),
    "a word in place of labels": (
        "steering",
        hdf5_of(images=images(4), labels="abc"),
        "'labels' must hold numbers, found",
    ),
    "a person for all": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES, person=np.array(3)),
        "found a single value",
    ),
    "persons in a column": (
        "head-pose",
        npz_of(image=PICTURES, pose=POSES, person=np.zeros((4, 1), dtype=int)),
        r"'person' must have shape \(4,\), one an image, found \(4, 1\); reshape",
    ),
    "bytes in place of poses": ("head-pose", not_an_array, "'pose' must hold numbers, found"),
    "another way to compress": (
        "head-pose",
        overwritten(
            b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x00\x00",
            b"PK\x01\x02\x2d\x03\x2d\x00\x00\x00\x63\x00",
            npz_of(image=PICTURES, pose=POSES),
        ),
        "npz file of plain arrays, and cannot be read",
    ),
    "a name without a count": (
        "cells",
        a_png(lambda folder: (folder / "002_3.0.png").rename(folder / "two.png")),
        r"two\.png must be named <id>_<count>\.0\.png, and its name has no count \(1 such files",
    ),
    "a PNG that is none": ("cells", a_png(lambda folder: text("001_2.0.png")(folder)), "must be a PNG image"),
    "half a PNG": (
        "cells",
        a_png(lambda folder: cut(folder / "001_2.0.png")),
        r"001_2\.0\.png must be a PNG",
    ),
    "another size": (
        "cells",
        a_png(lambda folder: Image.new("L", (6, 7)).save(folder / "001_2.0.png")),
        r"as many channels, rows and columns as .*000_1\.0\.png, \(1, 6, 6\), found \(1, 7, 6\)",
    ),
    "one in colour": (
        "cells",
        a_png(lambda folder: Image.new("RGB", (6, 6)).save(folder / "001_2.0.png")),
        r"found \(3, 6, 6\)",
    ),
    "a mask": (
        "cells",
        a_png(lambda folder: Image.new("RGBA", (6, 6)).save(folder / "001_2.0.png")),
        "8 bits a channel, found Pillow's mode 'RGBA'",
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_end_in_a_sentence_that_names_them(case: str, tmp_path: Path):
    task, make, message = BAD_FILES[case]
    path = make(tmp_path)
    with pytest.raises((ValueError, OSError), match=message) as error:
        load(task, path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def interruptible():
    """Ctrl-C is heard, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class TestWriter:
    @pytest.mark.parametrize("name", ["steering", "cells", "age"])
    def test_what_is_written_is_read(self, name: str, tmp_path: Path):
        task = IMAGE_TASKS[name]
        pixels, labels = images(700, channels=task.channels), np.arange(700) % 60 + 1
        write_hdf5(tmp_path / task.files[0], pixels, labels, task)
        data = read_hdf5(tmp_path / task.files[0], task)
        assert np.array_equal(data.pixels.take(np.arange(700)), pixels)
        assert data.y[:, 0].tolist() == labels.tolist()
        assert [file.name for file in tmp_path.iterdir()] == list(task.files)
        assert len(load(name, tmp_path, split="random").train) == 560

    def test_what_is_there_is_never_replaced(self, tmp_path: Path):
        path = text("mine.h5")(tmp_path)
        with pytest.raises(FileExistsError, match=r"mine\.h5 exists and is not overwritten"):
            write_hdf5(path, images(2), [1, 2], STEERING)

        class Late(InMemory):
            def take(self, index: np.ndarray) -> np.ndarray:
                text("late.h5")(tmp_path)  # by somebody else, while we write
                return super().take(index)

        with pytest.raises(FileExistsError, match="exists and is not overwritten"):
            write_hdf5(tmp_path / "late.h5", Late(images(2)), [1, 2], STEERING)
        assert {file.name for file in tmp_path.iterdir()} == {"mine.h5", "late.h5"}
        assert all(file.read_text() == "something else" for file in tmp_path.iterdir())

    @pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
    def test_a_failure_leaves_nothing_behind(self, error, tmp_path: Path, interruptible):
        class Broken(InMemory):
            def take(self, index: np.ndarray) -> np.ndarray:
                if index[0] > 0:
                    assert len(list(tmp_path.iterdir())) == 1
                    if error is KeyboardInterrupt:
                        signal.raise_signal(signal.SIGINT)
                    raise OSError("the disk is gone")
                return super().take(index)

        with pytest.raises(error):
            write_hdf5(tmp_path / "new.h5", Broken(images(700)), np.zeros(700), STEERING)
        assert list(tmp_path.iterdir()) == []

    def test_no_room(self, tmp_path: Path):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        try:
            with pytest.raises(
                OSError, match=rf"{tmp_path} cannot be written to \(File too large\); make room"
            ):
                write_hdf5(tmp_path / "new.h5", images(700), np.zeros(700), STEERING)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(tmp_path.iterdir()) == []

    def test_tensors_are_written_as_arrays_are(self, tmp_path: Path):
        write_hdf5(tmp_path / "new.h5", torch.from_numpy(images(3)), torch.zeros(3), STEERING)
        assert np.array_equal(read_hdf5(tmp_path / "new.h5", STEERING).pixels.take(np.arange(3)), images(3))

    @pytest.mark.parametrize(
        ("pixels", "labels", "task", "message"),
        [
            (images(2), [1, 2, 3], STEERING, r"must be 3 images, .* found shape \(2, 3, 6, 6\)"),
            (images(2), [1, 2], CELLS, r"of 1 channel\(s\); found shape \(2, 3, 6, 6\)"),
            (images(2) / 2, [1, 2], STEERING, "uint8"),
            (images(2), [1, 200], STEERING, "first row 1 with 200"),
            (images(2), [1, torch.nan], STEERING, "must be finite"),
            (images(2), [1, 2], HEAD_POSE, r"no HDF5 files but BIWI_train\.npz and BIWI_test\.npz"),
        ],
    )
    def test_what_could_not_be_read_is_not_written(self, pixels, labels, task, message, tmp_path: Path):
        with pytest.raises(ValueError, match=message):
            write_hdf5(tmp_path / "new.h5", pixels, labels, task)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_is_not_there(self, tmp_path: Path):
        with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
            write_hdf5(tmp_path / "nowhere" / "a.h5", images(2), [1, 2], STEERING)
