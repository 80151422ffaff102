"""A training with checkpoints that can be interrupted and resumed, also under torchrun.

python examples/resume.py run.safetensors
torchrun --nproc-per-node 2 examples/resume.py run.safetensors
"""

import sys

import torch

from ebreg import EnergyModel, TrainingConfig, fit, methods
from ebreg.datasets import gustafsson

torch.manual_seed(0)
task = gustafsson(n=800)
model = EnergyModel.for_table(task.x_train, task.y_train)
result = fit(
    methods.JointNCE(model),
    (task.x_train, task.y_train),
    config=TrainingConfig(epochs=5, checkpoint_every=25),
    checkpoint=sys.argv[1] if len(sys.argv) > 1 else None,
    resume=True,  # continues from the checkpoint if it exists
)
print(f"{len(result.history)} epochs in {result.seconds:.1f} s")
