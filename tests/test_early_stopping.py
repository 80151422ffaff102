import math

import pytest
import torch

from ebreg.training.early_stopping import Selection

N = 100
ONES = torch.ones(N, dtype=torch.float64)


def rows(mean: float, noise: float = 0.0) -> torch.Tensor:
    """NLLs whose difference from those of another mean has the standard error ``noise``."""
    sign = torch.where(torch.arange(N) % 2 == 0, 1.0, -1.0).double()
    return mean + noise * math.sqrt(N) * sign


def kept(selection: Selection, *epochs: torch.Tensor) -> int | None:
    for epoch, values in enumerate(epochs):
        selection.consider(epoch, values, ONES)
    return selection.best_epoch


def test_without_an_anchor_the_lowest_is_kept():
    assert kept(Selection(), rows(3), rows(1), rows(2), rows(0.999), rows(1.5)) == 3


def test_an_anchor_is_kept_unless_another_is_better_by_a_standard_error():
    noisy = 0.1
    # Earlier: better by half an error, then by two.
    assert kept(Selection(anchor=1), rows(0.95), rows(1, noisy)) == 1
    assert kept(Selection(anchor=1), rows(0.8), rows(1, noisy)) == 0
    # Later: the same.
    assert kept(Selection(anchor=0), rows(1), rows(0.95, noisy)) == 0
    assert kept(Selection(anchor=0), rows(1), rows(0.8, noisy)) == 1


def test_the_lowest_is_known_for_early_stopping_also_where_it_is_not_kept():
    selection = Selection(anchor=0)
    assert kept(selection, rows(1), rows(0.95, 0.1), rows(2)) == 0
    assert selection.lowest_epoch == 1
    assert selection.lowest_nll == pytest.approx(0.95)


def test_an_epoch_after_the_anchor_stands_in_for_it_where_that_was_not_validated():
    selection = Selection(anchor=3)
    for epoch, values in ((1, rows(0.99)), (5, rows(1, 0.1))):
        selection.consider(epoch, values, ONES)
    assert selection.best_epoch == 5


def test_weights_count():
    weights = torch.cat([torch.full((50,), 9.0), torch.full((50,), 1.0)]).double()
    light = torch.cat([torch.full((50,), 1.0), torch.full((50,), 0.0)]).double()
    heavy = torch.cat([torch.full((50,), 0.5), torch.full((50,), 2.0)]).double()
    selection = Selection()
    for epoch, values in enumerate((light, heavy)):
        selection.consider(epoch, values, weights)
    assert selection.best_epoch == 1


def test_an_infinite_value_never_wins_over_a_finite_one():
    bad = rows(0.0)
    bad[3] = math.inf
    for anchor in (None, 0, 1):
        assert kept(Selection(anchor=anchor), bad, rows(1)) == 1
        assert kept(Selection(anchor=anchor), rows(1), bad) == 0


def test_an_anchor_that_lost_is_out_and_later_epochs_must_be_better():
    selection = Selection(anchor=1)
    # The anchor is clearly worse than epoch 0; epoch 2 is a little worse, within its noise.
    assert kept(selection, rows(1), rows(1.5), rows(1.05, 0.1)) == 0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_finite_epoch_is_better_than_one_that_is_not(bad):
    weights = torch.ones(2, dtype=torch.float64)
    selection = Selection()
    assert selection.consider(0, torch.tensor([bad, 1.0]).double(), weights)
    assert selection.consider(1, torch.tensor([0.0, 5.0]).double(), weights)
    assert not selection.consider(2, torch.tensor([bad, 0.0]).double(), weights)
    assert (selection.best_epoch, selection.lowest_epoch) == (1, 1)


def test_a_row_that_is_never_finite_does_not_stop_the_others_from_being_compared():
    weights = torch.ones(2, dtype=torch.float64)
    selection = Selection()
    for epoch, nll in enumerate((9.0, 3.0, 4.0)):
        selection.consider(epoch, torch.tensor([torch.inf, nll]).double(), weights)
    assert selection.best_epoch == 1
    assert selection.should_stop(9, patience=5)
