"""What each method is, in a few words, and which of them are made of trees."""

DESCRIPTIONS = {
    "EnergyRegressor": "ours: mixture density networks with a learned correction, the energy",
    "MixtureDensityRegressor": "ours: the mixture density networks alone",
    "EnergyRegressor(preset='fast')": "ours, preset `fast`",
    "MixtureDensityRegressor(preset='fast')": "ours, preset `fast`",
    "EnergyRegressor(preset='best')": "ours, preset `best`",
    "EnergyRegressor(method='joint-nce')": "ours: the joint training of the paper",
    "MixtureDensityRegressor(teacher='energy')": "ours: mixture density networks with energies as teachers",
    "MixtureDensityRegressor(teacher=None)": "ours: mixture density networks without a teacher",
    "NGBoost": "boosted trees, normal distribution; early stopping on a fifth of the rows, as its authors do",
    "NGBoost, 500 stages": "the same with the defaults of its library",
    "CatBoost": "boosted trees, normal distribution (`RMSEWithUncertainty`)",
    "deep ensemble": "five networks, the mean of their normal distributions",
    "spline flow": "a conditional normalizing flow with rational-quadratic splines",
    "HistGradientBoosting quantiles": "boosted trees of scikit-learn, a model for each of 21 quantiles",
    "quantile-forest": "a quantile regression forest",
}

TREES = ("NGBoost", "NGBoost, 500 stages", "CatBoost", "HistGradientBoosting quantiles", "quantile-forest")
