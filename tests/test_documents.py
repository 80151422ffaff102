"""The code of every page and every example runs, and prints what the page says.

All blocks of a page run as one script, in a folder of its own, with warnings as errors. A comment that
begins with an arrow, as in ``print(a.shape)  # -> (3,)``, is the exact output of its line, and compared.
"""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HOWTO = sorted((DOCS / "howto").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    *(DOCS / f"{name}.md" for name in ("getting-started", "images", "method", "reproduce")),
    *HOWTO,
]

# What a page shows, and what runs instead if the former takes long and tests nothing more.
QUICKER = {
    "README.md": {"EnergyRegressor(random_state=0)": "EnergyRegressor(random_state=0, max_iter=50)"},
    "getting-started.md": {
        "EnergyRegressor(random_state=0)": "EnergyRegressor(random_state=0, max_iter=24)",
        "MixtureDensityRegressor(random_state=0)": "MixtureDensityRegressor(random_state=0, max_iter=2)",
    },
    "scikit-learn.md": {"n_jobs=2": "n_jobs=1"},  # other processes import everything again
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a script in a folder of its own and returns what it printed."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def script(path: Path) -> str:
        monkeypatch.setattr(sys, "argv", [str(path)])
        runpy.run_path(str(path), run_name="__main__")
        return capsys.readouterr().out

    with torch.random.fork_rng(devices=[]):
        yield script
    torch.set_num_threads(n_threads)
    pyplot.close("all")


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_there_are_examples():
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, run):
    printed = run(path)
    assert printed
    assert not re.search(r"\bnan\b", printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_and_prints_what_it_says(page: Path, run, tmp_path: Path):
    code = "\n".join(python_blocks(page))
    expected = re.findall(r"# -> (.*)$", code, flags=re.MULTILINE)
    for shown, quick in QUICKER.get(page.name, {}).items():
        assert shown in code
        code = code.replace(shown, quick)
    script = tmp_path / "page.py"
    script.write_text(code)
    printed = iter(run(script).splitlines())
    for line in expected:
        assert line in printed, f"{page.name} does not print {line!r} after the lines before it"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_code_that_prints(page: Path):
    code = "\n".join(python_blocks(page))
    assert "print(" in code
    assert page.read_text().count("```python") == len(python_blocks(page)) > 0


def test_every_page_is_in_a_table_of_contents():
    entries = set()
    for index in (DOCS / "index.md", DOCS / "reference" / "index.md"):
        names = re.findall(r"^([\w/-]+)$", index.read_text(), flags=re.MULTILINE)
        entries |= {(index.parent / name).relative_to(DOCS).as_posix() for name in names}
    pages = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")}
    names = {page.as_posix() for page in pages if "_build" not in page.parts}
    assert names - {"index"} <= entries


def test_every_public_package_has_a_reference_page():
    packages = [path.parent for path in (ROOT / "src" / "ebreg").glob("*/__init__.py")]
    modules = [path for path in (ROOT / "src" / "ebreg").glob("*.py") if not path.name.startswith("_")]
    names = {path.stem for path in [*packages, *modules] if not path.name.startswith("_")} - {"cli"}
    assert names <= {page.stem for page in (DOCS / "reference").glob("*.md")}
