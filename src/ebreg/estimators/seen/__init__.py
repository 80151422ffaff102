"""What a regressor remembers of the inputs it was trained on, to find inputs that are unlike them."""

from ebreg.estimators.seen.comparison import compared_columns
from ebreg.estimators.seen.seen_inputs import SHARE, SeenInputs, some_rows

__all__ = ["SHARE", "SeenInputs", "compared_columns", "some_rows"]
