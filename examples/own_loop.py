"""Your own training loop and networks: the objectives are functions of tensors."""

import torch
from torch import nn

from ebreg import objectives
from ebreg.datasets import gustafsson
from ebreg.distributions import GaussianMixture

torch.manual_seed(0)
task = gustafsson()
x_train, y_train = task.x_train.float(), task.y_train.float()
K, M = 4, 64

features = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU())
energy = nn.Sequential(nn.Linear(33, 32), nn.SiLU(), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 1))
head = nn.Linear(32, 3 * K)
parameters = [*features.parameters(), *energy.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-3)

for step in range(201):
    index = torch.randint(len(x_train), (128,))
    h, y = features(x_train[index]), y_train[index]
    logits, means, log_scales = head(h.detach()).chunk(3, dim=1)
    q = GaussianMixture(logits, means[..., None], log_scales.exp()[..., None])
    draws = q.sample(M)  # (M, B, 1)
    values = torch.cat([y[None], draws])
    f = energy(torch.cat([h.expand(M + 1, -1, -1), values], dim=-1))[..., 0]  # (M + 1, B)
    log_q = q.log_prob(values)

    # Eq. (6) trains the energy, Eq. (5) trains the proposal.
    nce = objectives.nce(f[0], log_q[0].detach(), f[1:], log_q[1:].detach()).mean()
    kl = objectives.log_partition(f[1:].detach(), log_q[1:]).mean()
    optimizer.zero_grad()
    (nce + kl).backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: nce {nce.item():.3f}")
