"""Gauss-Legendre quadrature."""

import torch
from torch import Tensor


def gauss_legendre(n: int) -> tuple[Tensor, Tensor]:
    """Points and weights on [0, 1], each of shape (n,)."""
    # Golub and Welsch: the roots are the eigenvalues of the recurrence's matrix, here moved to [0, 1].
    k = torch.arange(1, n, dtype=torch.float64)
    off = k / (4 * k**2 - 1).sqrt()
    roots, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (roots + 1) / 2, vectors[0] ** 2
