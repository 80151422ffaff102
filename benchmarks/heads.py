"""The energy head against its direct form: time, memory and agreement, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.direct import DirectHead
from benchmarks.measure import Row, peak_memory, print_table, times_ms
from ebreg.networks import EnergyHead

IMAGE: dict[str, Any] = {
    "n_features": 512,
    "n_targets": 3,
    "target_widths": (16, 32, 64, 128),
    "joint_widths": (512,),
    "activation": "relu",
    "residual": False,
}
ONE_DIMENSIONAL: dict[str, Any] = {
    "n_features": 10,
    "n_targets": 1,
    "target_widths": (10, 10),
    "joint_widths": (10, 10),
    "activation": "relu",
    "residual": True,
}
TABLE: dict[str, Any] = {
    "n_features": 64,
    "n_targets": 1,
    "target_widths": (64, 64),
    "joint_widths": (64, 64),
    "activation": "silu",
    "residual": True,
}


def both(settings: dict[str, Any]) -> tuple[EnergyHead, DirectHead]:
    """The two forms with the same parameters."""
    torch.manual_seed(0)
    ours, direct = EnergyHead(**settings), DirectHead(**settings)
    direct.load_state_dict(ours.state_dict())
    return ours, direct


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Largest absolute difference over all entries of all tensors."""
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def training_step(what: str, settings: dict[str, Any], B: int, M: int, target: float) -> Row:
    """Forward and backward, with gradients for h and all parameters, at M draws for each of B rows."""
    ours, direct = both(settings)
    h = torch.randn(B, settings["n_features"], requires_grad=True)
    y, weight = torch.randn(M, B, settings["n_targets"]), torch.randn(M, B) / (M * B)

    def step(head: nn.Module) -> Callable[[], list[Tensor]]:
        def call() -> list[Tensor]:
            f = head(h, y)
            return [f.detach(), *torch.autograd.grad((weight * f).sum(), [h, *head.parameters()])]

        return call

    calls = step(ours), step(direct)
    return Row(
        what,
        *times_ms(*calls),
        target=target,
        memory_ratio=peak_memory(calls[0]) / peak_memory(calls[1]),
        difference=difference(calls[0](), calls[1]()),
    )


@torch.no_grad()
def shared_grid(what: str, settings: dict[str, Any], B: int, G: int, target: float) -> Row:
    """Values at G targets shared by B rows; the direct form takes 1,024 at a time, as in a step."""
    ours, direct = both(settings)
    h, y = torch.randn(B, settings["n_features"]), torch.randn(G, settings["n_targets"])

    def on_grid() -> list[Tensor]:
        return [ours.grid(h, y)]

    def repeated() -> list[Tensor]:
        return [torch.cat([direct(h, chunk[:, None].expand(-1, B, -1)) for chunk in y.split(1024)])]

    return Row(
        what,
        *times_ms(on_grid, repeated, turns=2, seconds=2.0),
        target=target,
        memory_ratio=peak_memory(on_grid) / peak_memory(repeated),
        difference=difference(on_grid(), repeated()),
    )


def run() -> list[Row]:
    """Compare the heads; some two minutes."""
    torch.set_num_threads(1)
    return [
        training_step("image head, B=32 M=1024 D=3, step", IMAGE, B=32, M=1024, target=3.0),
        shared_grid("image head, 27,000 nodes x 32, values", IMAGE, B=32, G=27_000, target=50.0),
        training_step("1-D head, B=32 M=1024, step", ONE_DIMENSIONAL, B=32, M=1024, target=2.5),
        training_step("table head, B=128 M=64, step", TABLE, B=128, M=64, target=1.0),
        training_step("table head, B=128 M=16, step", TABLE, B=128, M=16, target=1.0),
    ]


if __name__ == "__main__":
    print_table(run())
