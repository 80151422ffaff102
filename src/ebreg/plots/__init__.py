"""Plots: functions that take and return matplotlib Axes.

:func:`density`, :func:`scatter`, :func:`side_by_side` and :func:`panel_grid` draw arrays. The others draw
the prediction of an estimator, with observed targets, or the history of a training.

Matplotlib is imported when a plot is drawn, so importing ebreg does not need it.
"""

from ebreg.plots.calibration import calibration, pit_histogram
from ebreg.plots.canvas import available, close, require_matplotlib, save
from ebreg.plots.examples import examples
from ebreg.plots.fan_chart import fan
from ebreg.plots.heat_maps import conditional, density, scatter
from ebreg.plots.panels import panel_grid, side_by_side
from ebreg.plots.single_row import row
from ebreg.plots.training import training_curves

__all__ = [
    "available",
    "calibration",
    "close",
    "conditional",
    "density",
    "examples",
    "fan",
    "panel_grid",
    "pit_histogram",
    "require_matplotlib",
    "row",
    "save",
    "scatter",
    "side_by_side",
    "training_curves",
]
