"""Your own backbone: a recurrent network for sequences. Any module works."""

import torch
from torch import Tensor, nn

from ebreg import EnergyModel, TrainingConfig, fit, methods
from ebreg.networks import EnergyHead, MixtureHead
from ebreg.units import Standardizer, Tail


class LastState(nn.Module):
    """Sequences (B, T, 1) to the last state of a GRU, (B, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, 1) -> (B, 32)."""
        return self.gru(x)[1][0]


torch.manual_seed(0)
x = torch.randn(800, 12, 1).cumsum(dim=1)
y = x[:, -1] + torch.randn(800, 1)  # the next value of a random walk

units = Standardizer.of("y", y)
model = EnergyModel(
    backbone=LastState(),
    energy=EnergyHead(32, 1),
    proposal=MixtureHead(32, 1, n_components=4),
    y_units=units,
    tail=Tail.of(units(y)),
)
result = fit(
    methods.JointNCE(model),
    (x[:600], y[:600]),
    validation=(x[600:], y[600:]),
    config=TrainingConfig(epochs=14, patience=5),
)
best = result.history[result.best_epoch]["validation_nll"]
print(f"validation NLL {best:.3f}; the true density has 1.42, with a standard error of 0.05 on 200 rows")
