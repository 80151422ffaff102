"""Every line of code that a reader is shown runs, and prints what the page says it prints.

All blocks of a page run in one process, in a folder of their own, with warnings as errors. A comment that
begins with an arrow, as in ``print(a.shape)  # -> (3,)``, is the exact output of its line, and compared.
"""

import contextlib
import multiprocessing
import os
import re
import runpy
import sys
import traceback
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HOWTO = sorted((ROOT / "docs" / "howto").glob("*.md"))
PAGES = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("getting-started.md", "images.md")), *HOWTO]

# What a page says, and what runs in its place where the real thing takes long and shows nothing more.
SHORTER = {
    "README.md": {
        "EnergyRegressor(random_state=0)": "EnergyRegressor(random_state=0, max_iter=20)",
        "import EnergyModel,": "import EnergyModel, TrainingConfig,",
        "(methods.JointNCE(model), data)": "(methods.JointNCE(model), data, config=TrainingConfig(epochs=1))",
    },
    "getting-started.md": {
        "EnergyRegressor(random_state=0)": "EnergyRegressor(random_state=0, max_iter=20)",
        "MixtureDensityRegressor(random_state=0)": "MixtureDensityRegressor(random_state=0, max_iter=5)",
    },
    "scikit-learn.md": {"n_jobs=2": "n_jobs=1"},  # other processes import everything again
}

# A process that has imported what takes long and computed nothing; pages run in forks of it.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["torch._dynamo", "sklearn.model_selection", "matplotlib.pyplot", "pandas", "ebreg.loading"]
)


def execute(path: Path, folder: Path) -> None:
    """Run a file in this process, which is a child of the server; what it prints goes to files."""
    import matplotlib
    import torch

    matplotlib.use("Agg")
    torch.set_num_threads(1)
    os.chdir(folder)
    sys.argv = [str(path)]
    warnings.simplefilter("error")
    with (
        open(folder / "printed", "w") as printed,
        open(folder / "errors", "w") as errors,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except BaseException:
            traceback.print_exc()
            sys.exit(1)


def run(path: Path, folder: Path) -> str:
    process = SERVER.Process(target=execute, args=(path, folder))
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "errors").read_text()
    return (folder / "printed").read_text()


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path):
    assert not re.search(r"\bnan\b", run(path, tmp_path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path):
    code = "\n".join(python_blocks(page))
    expected = re.findall(r"# -> (.*)$", code, flags=re.MULTILINE)
    for shown, quick in SHORTER.get(page.name, {}).items():
        assert shown in code
        code = code.replace(shown, quick)
    script = tmp_path / "page.py"
    script.write_text(code)
    printed = iter(run(script, tmp_path).splitlines())
    for line in expected:
        assert line in printed, f"{page.name} does not print {line!r} after what came before"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_code_that_prints(page: Path):
    code = "\n".join(python_blocks(page))
    assert "print(" in code
    assert page.read_text().count("```python") == len(python_blocks(page)) > 0


def test_every_page_is_in_the_table_of_contents():
    entries = re.findall(r"^\s*([\w/-]+)$", (ROOT / "docs" / "index.md").read_text(), flags=re.MULTILINE)
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    names = {page.with_suffix("").as_posix() for page in pages if "_build" not in page.parts}
    assert names - {"index"} <= set(entries)
    assert len(HOWTO) >= 8
