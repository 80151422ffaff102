"""Calibration: how the densities of the members become one."""

from typing import Self

import torch
from torch import Tensor

from ebreg.units import Float64Module


class Calibration(Float64Module):
    r"""Weights of the members, a temperature, and a background that no density falls below.

    .. math:: p(y | x) = (1 - \epsilon) \sum_e w_e \, p_e(y | x) + \epsilon \prod_d N(y_d; m_d, s_d^2)

    in standard units, and cut at the bounds. The temperature multiplies the standard deviations of the
    components of mixtures, and divides the energy of an :class:`ebreg.models.EnergyModel`. All numbers are
    float64, whatever the precision of the networks.

    Args:
        weights: w, which sum to 1, shape (E,).
        background_mean: m, shape (D,).
        background_scale: s, shape (D,).
        background_share: :math:`\epsilon`; 0 for no background.
        temperature: 1 changes nothing.
    """

    weights: Tensor
    background_mean: Tensor
    background_scale: Tensor
    background_share: Tensor
    temperature: Tensor

    def __init__(
        self,
        weights: Tensor,
        background_mean: Tensor,
        background_scale: Tensor,
        background_share: float = 0.0,
        temperature: float = 1.0,
    ):
        super().__init__()
        self._keep(
            weights=weights,
            background_mean=background_mean,
            background_scale=background_scale,
            background_share=torch.tensor(background_share, dtype=torch.float64),
            temperature=torch.tensor(temperature, dtype=torch.float64),
        )

    @classmethod
    def none(cls, n_members: int, n_targets: int) -> Self:
        """Equal weights, and nothing else."""
        weights = torch.full((n_members,), 1 / n_members, dtype=torch.float64)
        return cls(weights, torch.zeros(n_targets), torch.ones(n_targets))

    @property
    def n_members(self) -> int:
        """E."""
        return len(self.weights)

    @property
    def log_weights(self) -> Tensor:
        """Shape (E,)."""
        return self.weights.log()

    def keep_members(self, index: Tensor) -> None:
        """Keep the members at an index (e,), in place, with equal weights."""
        self.weights = torch.full_like(self.weights[index], 1 / len(index))
