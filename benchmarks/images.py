"""Image networks: a step beside its backbone alone, frozen epochs beside others, the head-pose grid."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.heads import IMAGE, both
from benchmarks.measure import Row, print_table, times_ms
from ebreg import networks
from ebreg.methods import JointNCE
from ebreg.models import EnergyModel
from ebreg.networks.backbones import PixelUnits, resnet18
from ebreg.training import fit
from ebreg.training.config import PAPER

B, D = 32, 3


def method(M: int) -> JointNCE:
    """The paper's networks for head pose."""
    torch.manual_seed(0)
    heads = networks.image_heads(D, 4)
    return JointNCE(
        EnergyModel(resnet18(), heads.energy, heads.mixture, x_units=PixelUnits.imagenet()), n_draws=M
    )


def examples(n: int) -> tuple[Tensor, Tensor]:
    """Images and poses."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (n, 3, 64, 64), dtype=torch.uint8, generator=generator)
    return x, torch.randn(n, D, generator=generator)


def step(M: int, wanted: float) -> Row:
    """Forward and backward of all, and of the backbone alone; what is wanted is the latter's share."""
    x, y = examples(B)
    learner, backbone = method(M).train(), resnet18().train()
    points, pixels = learner.points(B), PixelUnits.imagenet()(x)

    def whole() -> None:
        learner.zero_grad()
        sum(loss.mean() for loss in learner(x, y, points).values()).backward()

    def alone() -> None:
        backbone.zero_grad()
        backbone(pixels).sum().backward()

    return Row(
        f"ResNet18 step, B=32 M={M}, beside the backbone", *times_ms(whole, alone, turns=3), target=wanted
    )


def frozen(M: int, wanted: float) -> Row:
    """An epoch on features that were computed once, and one in which all learns."""
    times: list[float] = []

    def look(epoch: int) -> None:
        times.append(time.perf_counter())

    config = replace(PAPER, epochs=4, frozen_epochs=3)
    fit(method(M), examples(8 * B), config=config, progress=False, after_epoch=look)
    rests, learns = 0.5e3 * (times[2] - times[0]), 1e3 * (times[3] - times[2])
    return Row(f"frozen epoch, M={M}, beside one that is not", rests, learns, target=wanted)


@torch.no_grad()
def head_pose_grid(n_images: int = 1000, wanted: float = 50.0) -> Row:
    """All of the paper's nodes for many images; the direct form does 32 of them, and its time is scaled."""
    ours, direct = both(IMAGE)
    axis = torch.linspace(-80, 80, 30)
    h, y = torch.randn(n_images, IMAGE["n_features"]), torch.cartesian_prod(axis, axis, axis)

    def seconds(call: Callable[[], Tensor]) -> tuple[float, Tensor]:
        start = time.perf_counter()
        values = call()
        return time.perf_counter() - start, values

    def repeated() -> Tensor:
        return torch.cat([direct(h[:B], chunk[:, None].expand(-1, B, -1)) for chunk in y.split(1024)])

    mine, values = seconds(lambda: torch.cat([ours.grid(part, y) for part in h.split(128)], dim=1))
    theirs, expected = seconds(repeated)
    return Row(
        f"27,000 nodes x {n_images} images",
        1e3 * mine,
        1e3 * theirs * n_images / B,
        target=wanted,
        difference=(values[:, :B] - expected).abs().max().item(),
    )


def run() -> list[Row]:
    """Compare; some three minutes."""
    torch.set_num_threads(1)
    return [
        step(1024, wanted=1 / 2.0),
        step(128, wanted=1 / 1.2),
        frozen(128, wanted=10.0),
        frozen(1024, wanted=3.0),
        head_pose_grid(),
    ]


if __name__ == "__main__":
    print_table(run())
