import runpy
import signal
import sys
import threading
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ebreg import __version__
from ebreg.cli import main
from ebreg.errors import CheckpointError, TrainingError, UndefinedError


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["--version"])
    assert exit_info.value.code == 0
    assert __version__ in capsys.readouterr().out


def test_module_and_command_are_the_same(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ebreg", "--version"])
    with pytest.raises(SystemExit) as exit_info:
        runpy.run_module("ebreg", run_name="__main__")
    assert exit_info.value.code == 0
    assert capsys.readouterr().out.strip() == f"ebreg {__version__}"
    (command,) = entry_points(group="console_scripts", name="ebreg")
    assert command.load() is main


def test_demo_measures_and_never_overwrites(tmp_path: Path, capsys):
    for name in ("figure2.png", "figure2-2.png"):
        assert main(["demo", "--epochs", "1", "--quiet", "--out", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert str(tmp_path / name) in out
        assert "KL(truth || energy-based model)" in out
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
    ],
)
def test_a_mistake_ends_in_a_sentence(arguments: list[str], message: str, capsys, tmp_path: Path):
    assert main(["demo", "--quiet", "--out", str(tmp_path), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("ebreg: ")
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_a_folder_that_is_a_file_is_refused_before_the_training(tmp_path: Path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", "--quiet", "--epochs", "1", "--out", str(file)]) == 2
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("a mistake"), 2),
        (FileNotFoundError("nowhere"), 2),
        (CheckpointError("another model"), 2),
        (TrainingError("diverged"), 1),
        (UndefinedError("not finite"), 1),
        (MemoryError(), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int, monkeypatch, capsys):
    def fail(*args: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr("ebreg.experiments.demo.run", fail)
    assert main(["demo"]) == code
    assert capsys.readouterr().err.startswith("ebreg: ")


def test_another_error_is_not_hidden(monkeypatch):
    def fail(*args: object, **settings: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("ebreg.experiments.demo.run", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["demo"])


def test_sigterm_unwinds(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(
        "ebreg.experiments.demo.run", lambda *args, **settings: signal.raise_signal(signal.SIGTERM)
    )
    with pytest.raises(SystemExit) as exit_info:
        main(["demo"])
    assert exit_info.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_commands_run_in_other_threads(tmp_path: Path):
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["data", "list"])))
    thread.start()
    thread.join()
    assert codes == [0]
