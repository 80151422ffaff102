import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*command: str, folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples():
    assert len(EXAMPLES) >= 7


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, tmp_path: Path):
    assert "nan" not in run(sys.executable, str(path), folder=tmp_path)


def python_blocks(path: Path) -> list[str]:
    return [part.split("```")[0] for part in path.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("name", ["README.md"])
def test_code_in_documents_runs(name: str, tmp_path: Path):
    (block,) = python_blocks(ROOT / name)
    assert "JointNCE(model)" in block
    quick = block.replace(  # the README trains for a hundred epochs; one shows that every line runs
        "(task.x_train, task.y_train))\n\n",
        "(task.x_train, task.y_train), config=TrainingConfig(epochs=1))\n\n",
    ).replace("import EnergyModel,", "import EnergyModel, TrainingConfig,")
    assert quick != block
    assert run(sys.executable, "-c", quick, folder=tmp_path)
