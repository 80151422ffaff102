"""Design: the sizes from which a regressor's networks are built, and built again when it is loaded."""

from dataclasses import dataclass, replace

from ebreg.estimators.custom_networks import CustomNetworks
from ebreg.networks import DEFAULT_PROPOSAL, Networks, residual_energy, smooth_heads, table
from ebreg.units import Bounds


@dataclass(frozen=True)
class Design:
    """The sizes of a regressor's networks.

    Attributes:
        n_inputs: Columns of a table; None with a backbone of the user's own.
        n_features: H, the number of features that the backbone gives.
        n_targets: D.
        n_components: K.
        width: Of the layers.
        min_scale: Smallest standard deviation of a mixture component, in standard units.
        bounded: Whether any target has a finite bound.
        proposal: Name of the proposal; None: one of the user's own.
        n_members: E.
        dropout: Rate of each member, or none.
        residual: Whether the energy corrects the proposal.
    """

    n_inputs: int | None
    n_features: int
    n_targets: int
    n_components: int
    width: int
    min_scale: float
    bounded: bool
    proposal: str | None = DEFAULT_PROPOSAL
    n_members: int = 1
    dropout: tuple[float, ...] = ()
    residual: bool = False

    def networks(self, bounds: Bounds, own: CustomNetworks) -> Networks:
        """New networks, for bounds in standard units, without the heads that are not the presets'."""
        shared = (self.n_targets, self.n_components, self.width, self.min_scale, bounds, self.n_members)
        if self.n_inputs is not None:
            parts = table(self.n_inputs, *shared, dropout=self.dropout)
        elif own.backbone is None:
            raise ValueError("the model was fitted with a backbone of the user's own: pass it as backbone")
        else:
            parts = replace(smooth_heads(self.n_features, *shared), backbone=own.backbone)
        if not self.residual:
            return parts
        sizes = (self.n_features, self.n_targets, self.width, self.n_members)
        return replace(parts, energy=residual_energy(*sizes))

    def with_heads(self, parts: Networks, own: CustomNetworks) -> Networks:
        """Networks with the other heads, where there are any."""
        return own.heads(
            parts,
            self.proposal,
            n_features=self.n_features,
            n_targets=self.n_targets,
            n_components=self.n_components,
            min_scale=self.min_scale,
        )
