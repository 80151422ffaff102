"""Correction: the energy g of a residual model, bounded, and 0 before training."""

import torch
from torch import Tensor, nn

from ebreg.networks.activations import ACTIVATIONS
from ebreg.networks.member_layers import MemberLinear

# Log densities of q beyond this, in standard units, count as this.
_LARGEST_LOG_Q = 6.0


class Correction(nn.Module):
    r"""A correction g(x, y) of log q within bounds, from an energy e of the place of the target in q.

    .. math::
        u_d = Q_d(y_d \mid x), \quad \ell = \log q(y \mid x), \quad
        e = \textstyle\sum_j w_j(x) \, \phi_j(u, \ell), \\
        g = e / \sqrt{1 + (e / L)^2} \text{ where } e < 0, \quad e / \sqrt{1 + (e / U)^2} \text{ elsewhere}

    The level u is the distribution function of the proposal, to 0.01, of each target by itself. Wherever q
    has its mass and however narrow it is, its levels are spread evenly over [0, 1], so that e need not be
    steep to correct it. The log density distinguishes gaps between modes. Far out in the tails, where there
    is nothing to learn from, e changes no more.

    Only the coefficients w come from a network, once for each row: at a further target of the row e is a sum
    of some twenty products. The functions are 1, :math:`\ell`, :math:`\ell^2` and, for each target, Chebyshev
    polynomials :math:`T_1, \dots, T_n` of :math:`2 u - 1` and :math:`\ell \, T_1, \dots, \ell \, T_m`.

    U is the smaller bound: a g that is too large somewhere would move mass there. Little is lost by it, for
    where targets are, q has mass, as it learns from them.

    Args:
        n_members: E.
        n_features: H.
        n_targets: D.
        width: Of the hidden layer of w.
        degree: n, of the polynomials in the level.
        n_products: m, the number of polynomials that are multiplied by the log density, at least 1.
        fall: L.
        rise: U.
    """

    def __init__(
        self,
        n_members: int,
        n_features: int,
        n_targets: int = 1,
        width: int = 64,
        degree: int = 12,
        n_products: int = 4,
        fall: float = 8.0,
        rise: float = 1.0,
    ):
        super().__init__()
        self.n_targets, self.degree, self.n_products = n_targets, degree, n_products
        self.fall, self.rise = fall, rise
        self.hidden = MemberLinear(n_members, n_features, width)
        self.coefficients = MemberLinear(n_members, width, 3 + n_targets * (degree + n_products))
        # Training starts from q itself.
        nn.init.zeros_(self.coefficients.weight)
        nn.init.zeros_(self.coefficients.bias)

    @property
    def is_zero(self) -> Tensor:
        """The members whose g is 0 everywhere, as a mask (E,)."""
        layer = self.coefficients
        return (layer.weight == 0).flatten(1).all(dim=1) & (layer.bias == 0).flatten(1).all(dim=1)

    @torch.no_grad()
    def reset(self, members: Tensor) -> None:
        """Set g of some members to 0 again, given as a mask (E,)."""
        for parameter in (self.coefficients.weight, self.coefficients.bias):
            parameter[members] = 0.0

    def forward(self, h: Tensor, u: Tensor, log_q: Tensor) -> Tensor:
        """G of targets.

        Args:
            h: Features, shape (B, H); with members, rows in blocks.
            u: Levels of the targets in the proposal, shape (M, B, D) or (B, D).
            log_q: Their log density in the proposal, in standard units, shape (M, B) or (B,).

        Returns:
            Shape (M, B) or (B,).
        """
        with torch.autocast(h.device.type, enabled=False):
            return self.at(self.weights(h.to(self.hidden.weight.dtype)), u, log_q)

    def weights(self, h: Tensor) -> Tensor:
        """The coefficients w of rows: features (B, H) -> (B, C), in their precision."""
        w: Tensor = self.coefficients(ACTIVATIONS["silu"](self.hidden(h)))
        return w

    def at(self, w: Tensor, u: Tensor, log_q: Tensor) -> Tensor:
        """G of targets, as :meth:`forward` gives it, from the coefficients of their rows, (B, C)."""
        e = self._energy(w, u, log_q)
        share = e / torch.where(e.detach() < 0, self.fall, self.rise)
        return e * (1 + share * share).rsqrt()

    def _energy(self, w: Tensor, u: Tensor, log_q: Tensor) -> Tensor:
        # Coefficients (B, C) and the place of targets, (..., B, D) and (..., B) -> (..., B).
        constant, linear, square, rest = w.T.contiguous().tensor_split([1, 2, 3])  # each (n, B)
        log_q = log_q.clamp(-_LARGEST_LOG_Q, _LARGEST_LOG_Q)
        e = torch.addcmul(constant[0], torch.addcmul(linear[0], square[0] / _LARGEST_LOG_Q, log_q), log_q)
        for w_d, u_d in zip(rest.chunk(self.n_targets), u.unbind(dim=-1), strict=True):
            e = e + self._of_target(w_d, 2 * u_d - 1, log_q)
        return e

    def _of_target(self, w: Tensor, t: Tensor, log_q: Tensor) -> Tensor:
        # The sum of (w_k + v_k log q) T_k(t), from coefficients (C, B). By Clenshaw's recurrence, from the
        # last one back: b_k = w_k + v_k log q + 2 t b_(k+1) - b_(k+2).
        once, products = w.split([self.degree, self.n_products])
        terms = [
            torch.addcmul(each, products[k], log_q) if k < self.n_products else each
            for k, each in enumerate(once)
        ]
        b, above, twice = terms.pop(), torch.zeros_like(t), 2 * t
        for term in reversed(terms):
            b, above = torch.addcmul(term, twice, b) - above, b
        return t * b - above
