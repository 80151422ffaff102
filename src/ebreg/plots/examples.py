"""Images with the predicted densities of their targets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ebreg.plots import canvas, inputs
from ebreg.plots.inputs import OneTarget, Values
from ebreg.plots.single_row import draw_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 2.0, 1.7  # of a panel, in inches
_SEEN = (0.005, 0.995)  # quantiles between which a marginal is drawn


def examples(
    dist: Any,
    images: Values,
    y: Values | None = None,
    names: Sequence[str] | None = None,
    n_samples: int = 4000,
) -> "tuple[Figure, np.ndarray]":
    """Images side by side, and below each the density of every target.

    The density of one target is drawn as by :func:`ebreg.plots.row`; those of several are histograms of
    samples.

    Args:
        dist: Prediction for the images.
        images: Pixel values from 0 to 255, shape (n, C, H, W) with C = 1 or 3.
        y: Observed targets, shape (n,) or (n, D); None for none.
        names: Names of the targets; None for their numbers.
        n_samples: Samples for each image with several targets.

    Returns:
        The figure, and an array with its axes, shape (1 + D, n).
    """
    inputs.check_prediction(dist)
    pictures, D = _pictures(images), int(dist.n_targets)
    n = len(pictures)
    if len(dist) != n:
        raise ValueError(f"dist must have as many rows as there are images, {n}; got {len(dist)}")
    observed = None if y is None else _observed(y, n, D)
    names = [f"target {j}" if D > 1 else "y" for j in range(D)] if names is None else list(names)
    if len(names) != D:
        raise ValueError(f"names must have one name for each of the {D} targets, got {names}")
    figure, axes = canvas.pyplot().subplots(
        1 + D, n, figsize=(_WIDTH * n, _HEIGHT * (1 + D)), squeeze=False, layout="constrained"
    )
    for ax, picture in zip(axes[0], pictures, strict=True):
        ax.imshow(picture, cmap="gray", vmin=0, vmax=255)
        ax.set_axis_off()
    if D == 1:
        for i, ax in enumerate(axes[1]):
            draw_row(OneTarget(dist), i, ax, y=None if observed is None else observed[i, 0])
    else:
        _draw_marginals(axes[1:], np.asarray(dist.sample(n_samples)), observed)
    for ax, name in zip(axes[1:, 0], names, strict=True):
        ax.set_ylabel(name)
    for ax in axes[1:].ravel():
        ax.set_yticks([])
    return figure, axes


def _pictures(images: Values) -> np.ndarray:
    # Channels last, as matplotlib takes them; grey images have no channel axis.
    pixels = np.asarray(images.detach().cpu() if isinstance(images, Tensor) else images)
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or not len(pixels):
        raise ValueError(f"images must have shape (n, C, H, W) with C = 1 or 3, got {pixels.shape}")
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    return pixels[:, 0] if pixels.shape[1] == 1 else pixels.transpose(0, 2, 3, 1)


def _observed(y: Values, n: int, D: int) -> np.ndarray:
    values = inputs.array("y", y)
    if values.size != n * D or len(values) != n or not np.isfinite(values).all():
        raise ValueError(f"y must be finite and have shape {(n, D)}, got {values.shape}")
    return values.reshape(n, D)


def _draw_marginals(axes: "np.ndarray", samples: np.ndarray, observed: np.ndarray | None) -> None:
    # Samples (S, n, D) on axes (D, n).
    for j, row in enumerate(axes):
        for i, ax in enumerate(row):
            _draw_histogram(ax, samples[:, i, j], None if observed is None else observed[i, j])


def _draw_histogram(ax: "Axes", values: np.ndarray, observed: float | None) -> None:
    low, high = np.quantile(values, _SEEN)
    inside = values[(values >= low) & (values <= high)]
    ax.hist(inside, bins=40, density=True, histtype="stepfilled", color=canvas.light()(0.3))
    ax.axvline(values.mean(), color=canvas.GREY, linewidth=1.2, linestyle=(0, (4, 2)))
    if observed is not None:
        ax.axvline(observed, color=canvas.ACCENT, linewidth=1.5)
