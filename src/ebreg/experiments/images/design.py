"""ImageDesign: the sizes from which the networks of an image model are built, and built again on loading."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ebreg import networks
from ebreg.networks import MemberDropout, Networks, backbones

_WIDTH = 64  # of the layers of a residual energy


@dataclass(frozen=True)
class ImageDesign:
    """The sizes of the networks of an image model.

    Attributes:
        image_backbone: A name that :func:`ebreg.networks.backbones.find` knows.
        neck: Width of a layer between the backbone and the heads; None: there is none.
        n_targets: D.
        n_components: K.
        n_members: E; each has its own neck and heads or, without a neck, heads alone.
        dropout: Rates after the neck, given to the members in turn.
        min_scale: Smallest standard deviation of a mixture component, in standard units.
        residual: Whether the energy corrects the proposal.
    """

    image_backbone: str
    neck: int | None
    n_targets: int
    n_components: int
    n_members: int = 1
    dropout: tuple[float, ...] = ()
    min_scale: float = 0.0
    residual: bool = False

    def build_heads(self) -> Networks:
        """New heads, with an identity as backbone: the paper's, or smooth ones where it has none."""
        n_features = self.neck or backbones.find(self.image_backbone).n_features
        sizes = (self.n_targets, self.n_components)
        if self.n_members == 1 and not self.residual:
            return networks.image_heads(*sizes, n_features)
        heads = networks.smooth_heads(
            n_features, *sizes, _WIDTH, min_scale=self.min_scale, n_members=self.n_members
        )
        if not self.residual:
            return heads
        energy = networks.residual_energy(n_features, self.n_targets, _WIDTH, self.n_members)
        return replace(heads, energy=energy)

    def build_neck(self) -> nn.Module:
        """A new layer between the features of the backbone and the heads."""
        assert self.neck is not None
        rates = [self.dropout[i % len(self.dropout)] for i in range(self.n_members)] if self.dropout else []
        return networks.MLP(
            backbones.find(self.image_backbone).n_features,
            (self.neck,),
            linear=networks.linear_of(self.n_members),
            dropout=MemberDropout(rates) if rates else None,
        )

    def as_json(self) -> dict[str, Any]:
        """All sizes, as JSON reads them back; whether it is residual, the name of the model says."""
        return {
            "image_backbone": self.image_backbone,
            "neck": self.neck,
            "n_targets": self.n_targets,
            "n_components": self.n_components,
            "n_members": self.n_members,
            "dropout": list(self.dropout),
            "min_scale": self.min_scale,
        }
