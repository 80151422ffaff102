"""Rows held out of a training set."""

import numpy as np
from sklearn.model_selection import train_test_split


def hold_out(X: np.ndarray, y: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, ...]:
    """Split at random into X and y to fit, and X and y to validate: X, y, X_validation, y_validation."""
    X, X_validation, y, y_validation = train_test_split(X, y, test_size=share, random_state=seed)
    return X, y, X_validation, y_validation
