"""The order of the packages: imports only go down, and the core needs torch alone."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import ebreg

ROOT = Path(ebreg.__file__).parent

# From the bottom up: a package imports only from those in the lines above it.
ORDER = """
_version errors _utils
saving
objectives importance sampling units
distributions
networks
predictive
models
methods
corrections
datasets metrics plots
training
estimators
experiments
loading
cli
__main__
"""
LEVEL = {name: level for level, line in enumerate(ORDER.split("\n")) for name in line.split()}
# Of third parties these need torch alone; the others wait for the function that needs them.
CORE = (
    "saving",
    "objectives",
    "importance",
    "sampling",
    "units",
    "distributions",
    "networks",
    "predictive",
    "models",
    "methods",
    "corrections",
)
LATE = ("PIL", "efficientnet_lite_pytorch", "h5py", "matplotlib", "safetensors", "scipy", "sklearn", "tqdm")


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(name: str, at_module_level: bool = False) -> set[str]:
    """Full names of the modules that a module imports, anywhere in it or as it is loaded itself."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found = set()
    for node in tree.body if at_module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import; write it out"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in MODULES else node.module for full in inner}
    return found


def package(name: str) -> str:
    """The package of a full name; the top itself, ``ebreg``, has none."""
    return name.split(".")[1] if "." in name else ""


def test_imports_between_packages_go_down():
    upward = [
        f"{name} imports {other}"
        for name in MODULES
        for other in imports(name)
        if other.startswith("ebreg.") and package(name) and package(other) != package(name)
        if LEVEL[package(other)] >= LEVEL[package(name)]
    ]
    assert not upward


def test_no_module_imports_itself_through_others():
    TopologicalSorter({name: imports(name, at_module_level=True) - {name} for name in MODULES}).prepare()


@pytest.mark.parametrize("core", CORE)
def test_the_core_needs_torch_alone(core):
    modules = [name for name in MODULES if package(name) == core]
    third_parties = {full.split(".")[0] for name in modules for full in imports(name, at_module_level=True)}
    assert third_parties - sys.stdlib_module_names - {"ebreg"} <= {"torch"}


def test_importing_ebreg_imports_little_more_than_torch():
    code = (
        "import sys, torch; before = {*sys.modules}; import ebreg.plots; "
        f"print({{*{LATE}}} & ({{*sys.modules}} - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "set()"


def test_the_top_level_stays_small():
    flat = [path.stem for path in ROOT.glob("*.py") if path.stem not in ("__init__", "__main__", "_version")]
    assert len(flat) <= 12


def test_the_package_exports_what_it_lists():
    assert all(hasattr(ebreg, name) for name in ebreg.__all__)
