"""A training that can be killed and started again; under torchrun it uses several processes.

python examples/resume.py run.safetensors
torchrun --nproc-per-node 2 examples/resume.py run.safetensors
"""

import sys

import torch

from ebreg import EnergyModel, TrainingConfig, fit, methods
from ebreg.datasets import gustafsson

torch.manual_seed(0)
task = gustafsson()
model = EnergyModel.for_table(task.x_train, task.y_train)
result = fit(
    methods.JointNCE(model),
    (task.x_train, task.y_train),
    config=TrainingConfig(epochs=10, checkpoint_every=50),
    checkpoint=sys.argv[1] if len(sys.argv) > 1 else None,
    resume=True,  # goes on from the checkpoint if it is there
)
print(f"{len(result.history)} epochs in {result.seconds:.1f} s")
