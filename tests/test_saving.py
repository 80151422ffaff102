"""The file format: atomic, with limits and a checksum; damaged, foreign or incomplete files are refused."""

import json
import math
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ebreg.errors import CheckpointError, EbregError, ModelFileError
from ebreg.saving import atomic_files, checkpoints, files, folders, json_files, records, schema, state_dicts

TENSORS = {
    "weight": torch.linspace(-1, 1, 6).reshape(2, 3),
    "scale": torch.tensor(3.0, dtype=torch.float64),
    "rows": torch.tensor([1, 2, 3]),
    "half": torch.ones(2, dtype=torch.bfloat16),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0, 4),
}
FACTS = {"settings": {"width": 8, "rate": 1e-3, "name": "energy"}, "history": [{"nce": -1.5}], "best": None}
NEW = {"weight": torch.zeros(2, 3)}


def is_same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(
        value.dtype == two[name].dtype and torch.equal(value, two[name]) for name, value in one.items()
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "run.safetensors"
    checkpoints.write(path, TENSORS, FACTS)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    folders.write(path, TENSORS, FACTS)
    return path


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    records.write(path, FACTS)
    return path


class TestRoundTrip:
    def test_of_a_checkpoint(self, checkpoint):
        tensors, facts = checkpoints.read(checkpoint)
        assert is_same(tensors, TENSORS)
        assert facts == FACTS

    def test_of_a_checkpoint_with_numbers_that_are_not_finite(self, checkpoint):
        checkpoints.write(checkpoint, {}, {"loss": math.inf, "other": math.nan})
        facts = checkpoints.read(checkpoint)[1]
        assert facts["loss"] == math.inf
        assert math.isnan(facts["other"])

    def test_of_a_folder(self, folder):
        tensors, facts = folders.read(folder)
        assert is_same(tensors, TENSORS)
        assert facts == FACTS
        assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
        assert len({file.stat().st_mode for file in folder.iterdir()}) == 1

    def test_of_a_record(self, record):
        assert records.read(record) == FACTS

    def test_of_tied_weights(self, checkpoint):
        layer = nn.Linear(2, 2)
        checkpoints.write(checkpoint, {"one": layer.weight, "two": layer.weight, "part": layer.weight[0]}, {})
        assert torch.equal(checkpoints.read(checkpoint)[0]["part"], layer.weight[0])

    def test_of_json_that_was_formatted_anew(self, folder, record):
        # As an editor or git may do; the content is the same.
        for file in (record, folder / "config.json"):
            file.write_bytes(json.dumps(json.loads(file.read_text())).encode() + b"\r\n")
        assert records.read(record) == FACTS
        assert folders.read(folder)[1] == FACTS


class TestDamage:
    @pytest.mark.parametrize("kind", ["checkpoint", "weights", "config", "record"])
    def test_no_flipped_bit_changes_what_is_read(self, kind, checkpoint, folder, record):
        file, read, expected, error = {
            "checkpoint": (checkpoint, lambda: checkpoints.read(checkpoint), TENSORS, CheckpointError),
            "weights": (folder / "model.safetensors", lambda: folders.read(folder), TENSORS, ModelFileError),
            "config": (folder / "config.json", lambda: folders.read(folder), TENSORS, ModelFileError),
            "record": (record, lambda: ({}, records.read(record)), {}, EbregError),
        }[kind]
        content = file.read_bytes()
        refused = 0
        for i in range(0, len(content), 3):
            changed = bytearray(content)
            changed[i] ^= 1 << (5 * i) % 8
            file.write_bytes(changed)
            try:
                tensors, facts = read()
            except error:
                refused += 1
            else:
                assert is_same(tensors, expected)
                assert facts == FACTS
        # Of the others there are few: white space, and e or E in a number.
        assert refused > 0.95 * len(content) / 3

    @pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.99])
    def test_truncated_files_are_refused(self, share, checkpoint, folder, record):
        for file, read, error in [
            (checkpoint, lambda: checkpoints.read(checkpoint), CheckpointError),
            (folder / "model.safetensors", lambda: folders.read(folder), ModelFileError),
            (record, lambda: records.read(record), EbregError),
        ]:
            content = file.read_bytes()
            file.write_bytes(content[: int(share * len(content))])
            with pytest.raises(error, match=r"is truncated or damaged \(.*\); (save|delete)"):
                read()

    @pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"model"', "{}", '{"format": "other"}', "\x00\xff"])
    def test_json_of_others_is_refused(self, folder, record, text):
        (folder / "config.json").write_bytes(text.encode("latin-1"))
        with pytest.raises(ModelFileError, match=r"config.json is not a saved model.*; save the model again"):
            folders.read(folder)
        record.write_bytes(text.encode("latin-1"))
        with pytest.raises(EbregError, match=r"is not a record.*; delete it to repeat its run"):
            records.read(record)

    def test_tensors_of_others_are_no_checkpoint(self, checkpoint):
        from safetensors.torch import save_file

        save_file(NEW, checkpoint)
        with pytest.raises(CheckpointError, match="holds tensors, but is not a checkpoint of ebreg; delete"):
            checkpoints.read(checkpoint)

    @pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000, "[" * 40 + "]" * 40])
    def test_deep_json_is_refused(self, folder, record, deep):
        (folder / "config.json").write_text(deep)
        with pytest.raises(ModelFileError, match=r"nested deeper than 32 levels\); save the model again"):
            folders.read(folder)
        record.write_text(deep)
        with pytest.raises(EbregError, match=r"nested deeper than 32 levels\); delete it"):
            records.read(record)

    def test_large_json_is_refused(self, record, monkeypatch):
        monkeypatch.setattr(json_files, "MAX_BYTES", record.stat().st_size - 1)
        with pytest.raises(EbregError, match=r"JSON has more than \d+ bytes\); delete it"):
            records.read(record)
        with pytest.raises(EbregError, match=r"the record cannot be saved: its JSON has more than \d+ bytes"):
            records.replace(record, {"text": "x" * 2000})

    @pytest.mark.parametrize("value", [object(), [[]] * 2 + [{"a": {1, 2}}]], ids=["object", "set"])
    def test_facts_that_json_cannot_hold_are_not_written(self, tmp_path, value):
        with pytest.raises(ModelFileError, match=r"the saved model cannot be saved: .* JSON"):
            folders.write(tmp_path / "model", TENSORS, {"value": value})
        assert list(tmp_path.iterdir()) == []

    def test_facts_as_deep_as_no_reader_accepts_are_not_written(self, tmp_path):
        deep: list = []
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(EbregError, match="the record cannot be saved"):
            records.write(tmp_path / "a.json", {"deep": deep})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("version", ["1", 0, -1, 1.5, True, [1], None])
    def test_a_version_that_never_was_is_refused(self, record, version):
        _edit(record, version=version)
        with pytest.raises(EbregError, match=r"edited or damaged \(ValueError: version must be a whole"):
            records.read(record)

    def test_a_later_version_asks_for_an_upgrade(self, folder):
        _edit(folder / "config.json", version=2, ebreg="9.9")
        with pytest.raises(ModelFileError, match=r"version 2, written by ebreg 9.9; .* pip install"):
            folders.read(folder)

    @pytest.mark.parametrize(
        "entries",
        [{"checksum": "0"}, {"checksum": None}, {"facts": []}, {"ebreg": 1}, {"extra": 1}, {"weights": 3}],
        ids=str,
    )
    def test_another_envelope_is_refused(self, record, entries):
        _edit(record, **entries)
        with pytest.raises(EbregError, match=r"was edited or damaged \(.*\); delete it"):
            records.read(record)

    @pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "model.bin", None])
    def test_weights_elsewhere_are_refused(self, folder, name):
        _edit(folder / "config.json", weights=name)
        with pytest.raises(ModelFileError, match="weights must be the name of a file"):
            folders.read(folder)

    def test_what_is_not_there_is_said(self, tmp_path, folder):
        with pytest.raises(FileNotFoundError, match=r"does not exist; a saved model is a folder with config"):
            folders.read(tmp_path / "nothing")
        (tmp_path / "file").write_text("{}")
        with pytest.raises(ModelFileError, match=r"is not a saved model: that is a folder with config.json"):
            folders.read(tmp_path / "file")
        (folder / "model.safetensors").unlink()
        with pytest.raises(ModelFileError, match=r"its weights model.safetensors cannot be read \(No"):
            folders.read(folder)
        (folder / "config.json").unlink()
        with pytest.raises(ModelFileError, match=r"config.json cannot be read \(No such file"):
            folders.read(folder)
        for read in (checkpoints.read, records.read):
            with pytest.raises(FileNotFoundError):
                read(tmp_path / "nothing")
        for read in (checkpoints.read, records.read):
            with pytest.raises(EbregError, match=r"cannot be read \(Is a directory\); "):
                read(tmp_path)


def _edit(file: Path, **entries) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


class TestFolders:
    @pytest.mark.parametrize(
        "content",
        [
            {"notes.txt": "mine"},
            {"config.json": "{}", "model.safetensors": ""},
            {"model.safetensors": "weights of another library"},
            {"config.json": "{}"},
        ],
        ids=lambda content: "+".join(content),
    )
    @pytest.mark.parametrize("overwrite", [True, False])
    def test_files_of_others_are_left_as_they_are(self, tmp_path, content, overwrite):
        path = tmp_path / "precious"
        path.mkdir()
        for name, text in content.items():
            (path / name).write_text(text)
        with pytest.raises(FileExistsError, match="it is left as it is" if overwrite else "exists: give"):
            folders.write(path, NEW, {}, overwrite)
        assert {entry.name: entry.read_text() for entry in path.iterdir()} == content

    @pytest.mark.parametrize("name", ["notes.txt", "model-0a1b2c3d.safetensors", ".notes.txt.1.partial"])
    def test_a_model_with_a_file_of_others_is_left_as_it_is(self, folder, name):
        (folder / name).write_text("mine")
        with pytest.raises(FileExistsError, match=r"which no saved model has: it is left as it is"):
            folders.write(folder, NEW, {}, overwrite=True)
        assert (folder / name).read_text() == "mine"
        assert is_same(folders.read(folder)[0], TENSORS)

    def test_a_file_is_left_as_it_is(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(FileExistsError, match="is not a saved model: it is left as it is"):
            folders.write(tmp_path / "file", NEW, {}, overwrite=True)
        assert (tmp_path / "file").read_text() == "mine"

    def test_an_empty_folder_is_filled(self, tmp_path):
        folders.write(tmp_path, NEW, {})
        assert is_same(folders.read(tmp_path)[0], NEW)

    def test_a_damaged_model_may_be_replaced(self, folder):
        (folder / "model.safetensors").write_bytes(b"damaged")
        folders.write(folder, NEW, {}, overwrite=True)
        assert is_same(folders.read(folder)[0], NEW)
        assert len(list(folder.iterdir())) == 2

    def test_a_reader_that_a_save_overtakes_reads_the_new_model(self, folder, monkeypatch):
        read, before = folders._read_config, folders._read_config(folder)
        folders.write(folder, NEW, {}, overwrite=True)
        answers = iter([before])
        monkeypatch.setattr(folders, "_read_config", lambda path: next(answers, None) or read(path))
        assert is_same(folders.read(folder)[0], NEW)

    def test_a_model_that_another_process_wrote_first_stays(self, tmp_path, monkeypatch):
        path, locked = tmp_path / "model", atomic_files.locked

        @contextmanager
        def late(folder: Path) -> Iterator[None]:
            monkeypatch.setattr(atomic_files, "locked", locked)
            folders.write(folder, TENSORS, FACTS)
            with locked(folder):
                yield

        monkeypatch.setattr(atomic_files, "locked", late)
        with pytest.raises(FileExistsError, match="pass overwrite=True"):
            folders.write(path, NEW, {})
        assert is_same(folders.read(path)[0], TENSORS)

    def test_weights_stay_where_config_json_cannot_be_read(self, folder, monkeypatch):
        def fail(*args: object) -> None:
            raise OSError(24, "Too many open files")

        def write(*args: object) -> None:
            monkeypatch.setattr(json_files, "read_bytes", fail)
            fail()

        monkeypatch.setattr(folders, "_write", write)
        with pytest.raises(OSError, match=r"\(Too many open files\), and what was there is unchanged"):
            folders.write(folder, NEW, {}, overwrite=True)
        monkeypatch.undo()
        assert is_same(folders.read(folder)[0], TENSORS)

    def test_saves_and_loads_at_the_same_time(self, tmp_path):
        path, failures = tmp_path / "model", []
        folders.write(path, {"x": torch.zeros(1)}, {"number": 0})

        def save(number: int) -> None:
            for _ in range(10):
                folders.write(path, {"x": torch.full((1,), float(number))}, {"number": number}, True)

        def load() -> None:
            for _ in range(30):
                tensors, facts = folders.read(path)
                if tensors["x"].item() != facts["number"]:
                    failures.append(facts)

        threads = [threading.Thread(target=_noting(failures, save, number)) for number in (1, 2)]
        threads.append(threading.Thread(target=_noting(failures, load)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(list(path.iterdir())) == 2


def _noting(failures: list, function: Callable, *args: object) -> Callable[[], None]:
    def call() -> None:
        try:
            function(*args)
        except Exception as error:
            failures.append(error)

    return call


@contextmanager
def _snapshots(monkeypatch, path: Path, to: Path) -> Iterator[list[Path]]:
    """Copies of a folder before and after every change to it: all that a killed process can leave."""
    taken: list[Path] = []

    def take() -> None:
        if path.exists():
            taken.append(to / str(len(taken)))
            shutil.copytree(path, taken[-1])

    def watched(function: Callable) -> Callable:
        def call(*args, **kwargs):
            take()
            result = function(*args, **kwargs)
            take()
            return result

        return call

    def write_bytes(file: Path, content: bytes) -> None:
        for size in (0, len(content) // 2, len(content)):
            with open(file, "wb") as partial:
                partial.write(content[:size])
            take()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched(os.replace))
        patch.setattr(Path, "unlink", watched(Path.unlink))
        patch.setattr(Path, "write_bytes", write_bytes)
        yield taken


class TestKilledSaves:
    def test_over_a_model_leave_the_old_or_the_new_one(self, folder, tmp_path, monkeypatch):
        with _snapshots(monkeypatch, folder, tmp_path / "copies") as taken:
            folders.write(folder, NEW, {"new": True}, overwrite=True)
        assert len(taken) > 10
        found = [folders.read(copy)[1] == {"new": True} for copy in taken]
        assert found == sorted(found)  # the old one, and from some moment on the new one
        assert {True, False} == set(found)
        for copy in taken:
            folders.write(copy, TENSORS, FACTS, overwrite=True)
            assert is_same(folders.read(copy)[0], TENSORS)
            assert len(list(copy.iterdir())) == 2, list(copy.iterdir())

    def test_to_a_new_path_leave_nothing_or_the_model(self, tmp_path, monkeypatch):
        path = tmp_path / "model"
        with _snapshots(monkeypatch, path, tmp_path / "copies") as taken:
            folders.write(path, NEW, {})
        loaded = []
        for copy in taken:
            try:
                tensors, _ = folders.read(copy)
                loaded.append(True)
                assert is_same(tensors, NEW)
            except ModelFileError:
                loaded.append(False)
                folders.write(copy, TENSORS, FACTS)  # what was left is not in the way
                assert is_same(folders.read(copy)[0], TENSORS)
                assert sorted(file.name for file in copy.iterdir()) == ["config.json", "model.safetensors"]
        assert loaded == sorted(loaded)
        assert {True, False} == set(loaded)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copies", "model"]


@contextmanager
def _full_disk(n_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


LARGE = {"weight": torch.zeros(10_000)}


class TestFullDisk:
    MESSAGE = r"cannot be written to .*model \(File too large\), and what was there is unchanged; make room"

    def test_a_new_model_leaves_nothing(self, tmp_path):
        with _full_disk(4096), pytest.raises(OSError, match=self.MESSAGE):
            folders.write(tmp_path / "model", LARGE, {})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("tensors", "facts"), [(LARGE, {}), (NEW, {"text": "x" * 5000})], ids=["weights", "config"]
    )
    def test_the_old_model_stays(self, folder, tensors, facts):
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        with _full_disk(4096), pytest.raises(OSError, match=self.MESSAGE):
            folders.write(folder, tensors, facts, overwrite=True)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before

    def test_the_old_record_and_the_old_checkpoint_stay(self, record, checkpoint):
        with _full_disk(4096), pytest.raises(OSError, match="File too large"):
            records.replace(record, {"text": "x" * 5000})
        with _full_disk(4096), pytest.raises(OSError, match="File too large"):
            checkpoints.write(checkpoint, LARGE, {})
        assert records.read(record) == FACTS
        assert checkpoints.read(checkpoint)[1] == FACTS
        assert sorted(file.name for file in record.parent.iterdir()) == ["run.json", "run.safetensors"]


class TestRecords:
    def test_an_existing_one_is_kept(self, record):
        assert not records.write(record, {"other": 1})
        assert records.read(record) == FACTS
        assert [file.name for file in record.parent.iterdir()] == ["run.json"]

    def test_one_may_be_replaced(self, record):
        records.replace(record, {"other": 1})
        assert records.read(record) == {"other": 1}

    def test_the_folder_is_made(self, tmp_path):
        assert records.write(tmp_path / "new" / "folder" / "a.json", {"value": 1})


def test_the_path_of_a_checkpoint_is_checked_before_a_training(tmp_path):
    checkpoints.prepare(tmp_path / "new" / "run.safetensors")
    assert (tmp_path / "new").is_dir()
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        checkpoints.prepare(tmp_path)


def test_a_checkpoint_of_another_network_is_refused(checkpoint):
    checkpoints.check_fits(nn.Linear(3, 2), nn.Linear(3, 2).state_dict(), checkpoint)
    with pytest.raises(CheckpointError, match=r"of another model \(1 missing: bias\); give another path"):
        checkpoints.check_fits(nn.Linear(3, 2), NEW, checkpoint)


def test_without_locks_folders_are_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "fcntl", None)
    folders.write(tmp_path / "model", NEW, {})
    assert is_same(folders.read(tmp_path / "model")[0], NEW)


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (schema.whole(1, 9), [1, 9], [0, 10, True, 1.0, "1", None], "a whole number from 1 to 9"),
        (schema.number(0), [0, 0.5, 7], [-1, math.inf, math.nan, True, "1"], "a finite number from 0 to inf"),
        (schema.real, [1, math.inf, 0.5], [True, None, "1"], "a number"),
        (schema.text(), ["", "a"], [1, None, ["a"]], "a string"),
        (schema.text("a", "b"), ["a"], ["c", ["a"]], "one of 'a', 'b'"),
        (schema.flag, [True, False], [0, None, "no"], "true or false"),
        (schema.none_or(schema.flag), [None, True], [0], "true or false"),
        (schema.either(schema.whole(), schema.text()), [1, "a"], [None, 1.5], "a string"),
        (schema.each(schema.whole()), [[], [1]], [{}, "1", [0.5]], "a (list|whole number)"),
        (schema.mapping(schema.whole()), [{}, {"a": 1}], [[], {"a": "b"}], "a(n object| whole number)"),
    ],
)
def test_schemas(check, good, bad, message):
    for value in good:
        check("value", value)
    for value in bad:
        with pytest.raises(ValueError, match=rf"^value(\.a|\[0\])? must be {message}"):
            check("value", value)


def test_schemas_of_fields():
    check = schema.fields(design=schema.fields(width=schema.whole(1)), rest=schema.anything)
    check("", {"design": {"width": 8}, "rest": [None]})
    for value, message in [
        ({"design": {"width": 0}, "rest": 1}, "^design.width must be a whole number"),
        ({"design": {}, "rest": 1}, "^design.width is missing$"),
        ({"design": {"width": 1, "depth": 2}, "rest": 1}, "^design.depth is not known$"),
        ({"design": {"width": 1}}, "^rest is missing$"),
        ([], r"^the content must be an object, got \[\]$"),
    ]:
        with pytest.raises(ValueError, match=message):
            check("", value)


def test_state_dicts():
    own = nn.Linear(3, 2, device="meta").state_dict()
    fits = nn.Linear(3, 2).state_dict()
    assert state_dicts.differences(own, fits) == ""
    found = state_dicts.differences(own, {"weight": torch.zeros(2, 2).double(), "other": torch.zeros(1)})
    assert found == (
        "1 missing: bias; 1 unexpected: other; 1 of another shape: weight has (2, 2), not (2, 3); "
        "1 of another type: weight holds torch.float64"
    )
    tensors = {"a": torch.tensor([math.inf]), "b": torch.tensor([math.nan]), "c": torch.ones(1)}
    assert state_dicts.not_finite(tensors) == "a, b"
    assert state_dicts.not_finite(tensors, may_be_infinite=("a", "b")) == "b"


def test_the_checksum_covers_names_types_shapes_and_order():
    def checksum(**tensors: Tensor) -> str:
        return files.seal(records.FORMAT, {}, tensors)["checksum"]

    a, b = torch.zeros(2), torch.ones(2)
    different = {
        checksum(),
        checksum(a=a),
        checksum(b=a),
        checksum(a=a.reshape(1, 2)),
        checksum(a=a.int()),
        checksum(a=a, b=b),
        checksum(a=b, b=a),
    }
    assert len(different) == 7
    assert checksum(a=a, b=b) == checksum(b=b, a=a)
