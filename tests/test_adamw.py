"""AdamW: against the optimiser of torch."""

import torch

from ebreg.training.adamw import AdamW
from support import normal


def test_steps_are_those_of_torch():
    ours, theirs = ([torch.nn.Parameter(normal(*shape)) for shape in ((3, 4), (5,), (2,))] for _ in range(2))
    optimizer = AdamW(ours, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs, lr=0.5, weight_decay=0.1, fused=True)
    for step in range(4):
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gradient = normal(*a.shape, seed=step) if k < 2 or step > 1 else None  # one learns later
            a.grad, b.grad = gradient, gradient
        learning_rate = 0.1 / (1 + step)
        optimizer.step(learning_rate)
        reference.param_groups[0]["lr"] = learning_rate
        reference.step()
    for a, b, slot in zip(ours, theirs, optimizer.slots, strict=True):
        assert torch.equal(a, b)
        for name, value in reference.state[b].items():
            assert torch.equal(slot[name], value)


def test_without_gradients_nothing_changes():
    parameter = torch.nn.Parameter(normal(3))
    before, optimizer = parameter.detach().clone(), AdamW([parameter])
    parameter.grad = torch.ones_like(parameter)
    optimizer.zero_grad()
    optimizer.step(1.0)
    assert torch.equal(parameter, before)
    assert optimizer.slots == [{}]
