"""Sampling: points of the unit cube, draws from any proposal, and the samplers of a training step.

Randomness is made apart from the distributions that use it: the same points serve every row, every
number of processes and every proposal.
"""

from ebreg.sampling.draws import check_proposal, draw, in_support, levels, log_prob, place
from ebreg.sampling.points import independent, sobol, stratified
from ebreg.sampling.proposal_rows import AllAtOnce, ProposalRows, RowByRow, proposal_rows
from ebreg.sampling.samplers import SAMPLERS, Draws, Independent, Sampler, Stratified, sampler
from ebreg.sampling.uniform_map import UniformMap, uniform_map

__all__ = [
    "SAMPLERS",
    "AllAtOnce",
    "Draws",
    "Independent",
    "ProposalRows",
    "RowByRow",
    "Sampler",
    "Stratified",
    "UniformMap",
    "check_proposal",
    "draw",
    "in_support",
    "independent",
    "levels",
    "log_prob",
    "place",
    "proposal_rows",
    "sampler",
    "sobol",
    "stratified",
    "uniform_map",
]
