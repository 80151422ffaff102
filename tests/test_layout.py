"""The house as a rule: imports only go down, and the core needs torch alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ebreg

ROOT = Path(ebreg.__file__).parent

# From the ground up; a module may import from the lines below its own. A new file gets its place here.
LAYERS = """
    _version callers checks errors memory wholes
    randomness regions uniforms
    ascent cubic loglinear
    distributions.components distributions.normal distributions.questions distributions.roots
    distributions.log_density
    distributions.full distributions.mixture
    distributions.truncated
    distributions.noise
    distributions
    importance objectives proposals
    predictive.protocol predictive.support
    predictive.adapted predictive.blend
    predictive.grouped predictive.importance predictive.quadrature predictive.rescaled
    predictive.refined
    predictive
    energy scaling
    backbones.files backbones.pixels
    backbones.backbone
    backbones.efficientnet backbones.libraries backbones.resnet backbones.small
    backbones.registry
    backbones
    networks units
    models
    samplers
    methods
    averages batch_norm batches checkpoints folders interrupts processes schedules selection
    config embedding
    stages state
    training
    prediction
    estimators.design estimators.ends estimators.inputs estimators.recipe estimators.ties
    estimators.saving
    estimators.base
    estimators.energy estimators.mixture
    estimators
    persistence
    datasets.images.augmentation datasets.images.pixels datasets.images.splits
    datasets.images.data datasets.images.hdf5 datasets.images.png datasets.images.tasks
    datasets.images.reading
    datasets.images.loading datasets.images.writing
    datasets.synthetic.poses datasets.synthetic.shapes datasets.synthetic.streams
    datasets.synthetic.cells datasets.synthetic.rendering
    datasets.synthetic.solid
    datasets.images datasets.synthetic datasets.toy metrics.grid metrics.rows plots.canvas
    metrics.scores
    metrics.calibration metrics.scorers plots.calibration plots.densities plots.training
    plots.examples
    datasets metrics plots
    demo reproduce.cells reproduce.endings reproduce.records reproduce.tasks
    reproduce.building reproduce.jobs reproduce.tables
    reproduce.recipes
    reproduce.report reproduce.runner reproduce.toy
    reproduce.figures reproduce.parts reproduce.sensitivity reproduce.tracking
    reproduce.images.measures reproduce.images.recipes reproduce.images.sources reproduce.images.strips
    reproduce.images.experiments reproduce.images.options
    reproduce.images.jobs reproduce.images.pictures reproduce.images.saving
    reproduce.images.commands
    reproduce.images reproduce.toy_commands
    reproduce.commands
    reproduce
    data train
    cli
    __main__ __init__
"""
LEVEL = {name: level for level, line in enumerate(LAYERS.split("\n")) for name in line.split()}

# They serve users of any model and know none: of ebreg they need only what checks their arguments.
APART = ("datasets.images", "datasets.synthetic", "datasets.toy", "metrics", "plots")
# Of third parties these, and what they import, need only torch.
CORE = ("backbones", "distributions", "importance", "networks", "objectives", "predictive")
# Imported when they are needed, by the function that needs them.
LATE = ("PIL", "efficientnet_lite_pytorch", "h5py", "matplotlib", "safetensors", "scipy", "sklearn", "tqdm")


def name_of(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(name: str, at_module_level: bool = False) -> list[str]:
    """Full names of what a module imports, anywhere in it or as it is loaded itself."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    nodes = tree.body if at_module_level else ast.walk(tree)
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import; write it out"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [full if full.removeprefix("ebreg.") in MODULES else node.module for full in inner]
    return found


def own(name: str, at_module_level: bool = False) -> set[str]:
    """The modules of ebreg among the imports; the package itself is ``__init__``."""
    found = {full for full in imports(name, at_module_level) if full.split(".")[0] == "ebreg"}
    return {full.removeprefix("ebreg.") if full != "ebreg" else "__init__" for full in found}


def test_every_module_has_its_place():
    assert set(MODULES) == set(LEVEL)


@pytest.mark.parametrize("name", MODULES)
def test_imports_go_down(name):
    upward = {other for other in own(name) if LEVEL[other] >= LEVEL[name]}
    assert not upward


@pytest.mark.parametrize("name", [name for name in MODULES if name.startswith(APART)])
def test_data_scores_and_pictures_know_no_model(name):
    siblings = {other for other in MODULES if other.split(".")[0] == name.split(".")[0]}
    assert own(name) - siblings <= {"checks", "errors", "wholes"}


def test_models_do_not_know_how_they_are_trained():
    assert "objectives" not in own("models")


@pytest.mark.parametrize("name", CORE)
def test_the_core_needs_torch_alone(name):
    pending, reached = [name], set()
    while pending:
        module = pending.pop()
        reached.add(module)
        pending += own(module, at_module_level=True) - reached
    third_parties = {
        full.split(".")[0] for module in reached for full in imports(module, at_module_level=True)
    }
    assert third_parties - sys.stdlib_module_names - {"ebreg"} == {"torch"}


def test_importing_ebreg_imports_little_more_than_torch():
    code = (
        f"import sys, torch; a = set(sys.modules); import ebreg; print(set({LATE}) & (set(sys.modules) - a))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert run.stdout.strip() == "set()"


def test_the_package_exports_what_it_lists():
    assert all(hasattr(ebreg, name) for name in ebreg.__all__)
