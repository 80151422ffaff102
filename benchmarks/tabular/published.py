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

LOWEST_NLL = {
    "bostonHousing": (2.32, "CARD"),
    "concrete": (2.83, "WEvidential"),
    "energy": (0.53, "WEvidential"),
    "power-plant": (2.60, "WEvidential"),
    "protein-tertiary-structure": (2.47, "CARD"),
    "yacht": (0.16, "WEvidential"),
}
"""The lowest published mean test NLL that we know, with its method."""
