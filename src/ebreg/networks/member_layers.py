"""Layers of several members at once: networks of one design, each with weights of its own.

A row belongs to one member. The rows of E members come in E blocks of the same size, (E * B, C), those of the
first member first; so everything that treats rows one by one, such as losses and distributions, need not know
of members. One batched product takes the place of E small ones, which are all overhead.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ebreg._utils import checks

Linear = Callable[[int, int], nn.Module]


class MemberLinear(nn.Module):
    """E linear layers: (E * B, n_in) in E blocks -> (E * B, n_out), initialised as ``torch.nn.Linear`` is.

    Args:
        n_members: E.
        n_in: Inputs of a layer.
        n_out: Its outputs.
    """

    def __init__(self, n_members: int, n_in: int, n_out: int):
        super().__init__()
        reach = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(n_members, n_in, n_out).uniform_(-reach, reach))
        self.bias = nn.Parameter(torch.empty(n_members, 1, n_out).uniform_(-reach, reach))

    @property
    def n_members(self) -> int:
        """E."""
        return len(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Every block of rows through its own layer, in the precision of the rows."""
        E, n_in, n_out = self.weight.shape
        weight, bias = (
            part if part.dtype == x.dtype else part.to(x.dtype) for part in (self.weight, self.bias)
        )
        blocks = x.reshape(E, len(x) // E, n_in)
        return torch.baddbmm(bias, blocks, weight).view(len(x), n_out)

    def keep_members(self, index: Tensor) -> None:
        """Keep the members at an index (e,), in place: the parameters are new ones."""
        self.weight = nn.Parameter(self.weight.detach()[index], self.weight.requires_grad)
        self.bias = nn.Parameter(self.bias.detach()[index], self.bias.requires_grad)

    def extra_repr(self) -> str:
        """The sizes."""
        E, n_in, n_out = self.weight.shape
        return f"n_members={E}, n_in={n_in}, n_out={n_out}"


class MemberDropout(nn.Module):
    """Dropout with a rate for each member: (E * B, C) in E blocks -> (E * B, C).

    Args:
        rates: In [0, 1), E of them.
    """

    rates: Tensor

    def __init__(self, rates: Sequence[float]):
        super().__init__()
        rates = member_rates(rates, len(rates))
        self.register_buffer("rates", torch.tensor(rates))
        self._active = _above_zero(rates)

    @property
    def n_members(self) -> int:
        """E."""
        return len(self.rates)

    def forward(self, x: Tensor) -> Tensor:
        """In training mode, every number is set to 0 with the rate of its member, and the others grow."""
        if not (self.training and self._active):
            return x
        E, n_columns = len(self.rates), x.shape[-1]
        blocks = x.view(E, len(x) // E, n_columns)
        # Random numbers for the members that have a rate alone: they take longer than the products.
        factors = torch.ones_like(blocks)
        rates = self.rates[self._active].view(-1, 1, 1)
        bits = _random_bits((len(rates), *blocks.shape[1:]), x.device)
        is_kept = bits >= (rates * 2**16 - 2**15).round().to(torch.int16)
        factors[self._active] = is_kept.to(x.dtype).div_(1 - rates)
        return (blocks * factors).view(x.shape)

    def keep_members(self, index: Tensor) -> None:
        """Keep the members at an index (e,), in place."""
        self.rates = self.rates[index]
        self._active = _above_zero(self.rates.tolist())


def _above_zero(rates: Sequence[float]) -> list[int]:
    return [i for i, rate in enumerate(rates) if rate > 0]


def _random_bits(shape: tuple[int, ...], device: torch.device) -> Tensor:
    # Uniform on the 2^16 numbers of int16: four to a random word, in a quarter of the time of torch.rand.
    n = math.prod(shape)
    words = torch.empty(-(-n // 4), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None).view(torch.int16)[:n].view(shape)


def member_rates(dropout: float | Sequence[float], n_members: int) -> tuple[float, ...]:
    """Rates of dropout, one for each member, from one for all of them or one each."""
    if isinstance(dropout, str) or not isinstance(dropout, Sequence):
        dropout = (dropout,) * n_members
    rates = tuple(dropout)
    if len(rates) != n_members:
        raise ValueError(
            f"dropout must be a rate, or one for each of {n_members} members; got {len(rates)} rates"
        )
    for rate in rates:
        if not 0 <= checks.not_negative("dropout", rate) < 1:
            raise ValueError(f"dropout must be a rate in [0, 1), got {rate}")
    return tuple(float(rate) for rate in rates)


def linear_of(n_members: int) -> Linear:
    """The linear layer of networks with E members, as a function of its inputs and outputs."""
    if n_members == 1:
        return nn.Linear
    return lambda n_in, n_out: MemberLinear(n_members, n_in, n_out)


def member_layers(module: nn.Module) -> list[MemberLinear | MemberDropout]:
    """All layers of members in a module."""
    return [layer for layer in module.modules() if isinstance(layer, MemberLinear | MemberDropout)]


def count_members(*modules: nn.Module) -> int:
    """E; 1 for networks without layers of members."""
    counts = {layer.n_members for module in modules for layer in member_layers(module)}
    if len(counts) > 1:
        raise ValueError(f"networks must have the same number of members, got {sorted(counts)}")
    return counts.pop() if counts else 1


def keep_members(module: nn.Module, index: Tensor) -> None:
    """Keep the members at an index (e,), in place, in all parts of a module that know of members."""
    for part in list(module.modules()):
        keep = getattr(part, "keep_members", None)
        if keep is not None:
            keep(index)
