"""The paper's 1-D experiments: Table 1 and the figures."""

from ebreg.experiments.toy.experiment import ToyExperiment
from ebreg.experiments.toy.source import ToySource

__all__ = ["ToyExperiment", "ToySource"]
