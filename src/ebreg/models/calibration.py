"""Calibration: how the densities of the members become one."""

from typing import Self

import torch
from torch import Tensor

from ebreg.units import Float64Module


class Calibration(Float64Module):
    r"""Weights of the members, a temperature, and a background that no density falls below.

    .. math:: p(y | x) = (1 - \epsilon) \sum_e w_e \, p_e(y | x) + \epsilon \, N(y; m, S)

    in standard units, where the standard deviations of the components of every :math:`p_e` are multiplied by
    the temperature. All numbers are float64, whatever the precision of the networks.

    Args:
        weights: w, which sum to 1, shape (E,).
        temperature: Shape (); 1 changes nothing.
        background_share: :math:`\epsilon`, shape (); 0 for no background.
        background_mean: m, shape (D,).
        background_scale: The Cholesky factor of S, shape (D, D).
    """

    weights: Tensor
    temperature: Tensor
    background_share: Tensor
    background_mean: Tensor
    background_scale: Tensor

    def __init__(
        self,
        weights: Tensor,
        temperature: Tensor,
        background_share: Tensor,
        background_mean: Tensor,
        background_scale: Tensor,
    ):
        super().__init__()
        self._keep(
            weights=weights,
            temperature=temperature,
            background_share=background_share,
            background_mean=background_mean,
            background_scale=background_scale,
        )

    @classmethod
    def none(cls, n_members: int, n_targets: int) -> Self:
        """Equal weights, and nothing else."""
        E, D = n_members, n_targets
        return cls(torch.full((E,), 1 / E), torch.ones(()), torch.zeros(()), torch.zeros(D), torch.eye(D))

    @property
    def n_members(self) -> int:
        """E."""
        return len(self.weights)

    @property
    def log_weights(self) -> Tensor:
        """Shape (E,); minus infinity for a member of weight 0."""
        return self.weights.log()

    def keep_members(self, index: Tensor) -> None:
        """Keep the members at an index (e,), in place, with equal weights."""
        self.weights = torch.full_like(self.weights[index], 1 / len(index))
