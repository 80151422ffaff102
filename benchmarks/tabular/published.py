"""Published results, for comparison."""

NGBOOST_NLL = {
    "bostonHousing": 2.43,
    "concrete": 3.04,
    "energy": 0.60,
    "power-plant": 2.79,
    "protein-tertiary-structure": 2.81,
    "yacht": 0.20,
}
"""Mean test NLL of NGBoost over 20 random splits (protein: 5), Duan et al., 2020."""
