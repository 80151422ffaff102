"""Principal axes: all of few columns, the leading ones of many."""

import torch
from torch import Tensor

# Columns beyond those asked for, and passes over the rows, of the randomised method.
_OVERSAMPLING, _N_PASSES = 8, 3
# Of the largest variance.
_JITTER = 1e-12


def eigenvectors(covariance: Tensor) -> Tensor:
    """As columns, by falling variance: (C, C) -> (C, C)."""
    # LAPACK may fail where many eigenvalues are 0, as of constant columns: small numbers set them apart.
    step = _JITTER * covariance.diagonal().amax().clamp_min(1.0)
    jitter = step * torch.arange(1, len(covariance) + 1, dtype=covariance.dtype)
    return torch.linalg.eigh(covariance + jitter.diag()).eigenvectors.flip(1)


def leading_axes(centred: Tensor, n_axes: int) -> Tensor:
    """The first principal axes of many columns, nearly, by subspace iteration: (n, C) -> (C, n_axes).

    It takes a few products of matrices, where all eigenvectors of a thousand features take seconds.
    """
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(centred.shape[1], n_axes + _OVERSAMPLING, generator=generator, dtype=centred.dtype)
    for _ in range(_N_PASSES):
        basis = torch.linalg.qr(centred.T @ (centred @ basis)).Q
    along = centred @ basis
    return basis @ eigenvectors(along.T @ along / len(centred))[:, :n_axes]
