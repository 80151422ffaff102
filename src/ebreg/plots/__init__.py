"""Pictures: functions that take and return matplotlib Axes.

:func:`density`, :func:`scatter`, :func:`side_by_side` and :func:`panel_grid` draw arrays. The others draw
the prediction that an estimator returns, the observed targets beside it, or the history of a training.

Matplotlib is imported when a picture is asked for, so that importing ebreg does not need it.
"""

from ebreg.plots.calibration import calibration, pit_histogram
from ebreg.plots.canvas import available, close, require_matplotlib, save
from ebreg.plots.densities import conditional, density, fan, panel_grid, row, scatter, side_by_side
from ebreg.plots.examples import examples
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
