"""The numpy prediction: one pass over the rows, kept up to a limit."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from ebreg.distributions import GaussianMixture
from ebreg.errors import TrustWarning, UndefinedError
from ebreg.estimators import EnergyRegressor, MixtureDensityRegressor, chunks
from ebreg.models import EnergyModel, MixtureModel
from ebreg.predictive import Accuracy
from support import prediction

QUESTIONS = {
    "mean": lambda p: p.mean,
    "mean_and_stddev": lambda p: p.mean_and_stddev(),
    "interval": lambda p: p.interval(0.8),
    "cdf": lambda p: p.cdf(np.zeros((len(p), p.n_targets))),
    "diagnostics": lambda p: (p.effective_sample_size, p.pareto_k, p.unreliable, p.log_partition_error),
    "proposal": lambda p: p.proposal.mean,
    "to_frame": lambda p: p.to_frame(),
    "some rows": lambda p: p[[3, 1, 2]].variance,
}


@pytest.fixture(autouse=True)
def _untrained_rows_may_be_unreliable():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrustWarning)
        yield


def model_of(D: int, kind: type = EnergyModel):
    torch.manual_seed(0)
    x = torch.randn(50, 3, dtype=torch.float64)
    model = kind.for_table(x, 100 + torch.randn(50, D, dtype=torch.float64), n_components=2, width=4)
    return model.to_float64().eval()


def calls_of(model: nn.Module) -> list[int]:
    """A list that grows by the number of rows whenever a network of the model is called."""
    calls: list[int] = []
    for part in model.children():
        if isinstance(part, nn.Module) and next(part.parameters(), None) is not None:
            part.register_forward_hook(lambda module, args, out: calls.append(len(args[0])))
    return calls


@pytest.mark.parametrize(
    ("kind", "D", "n"), [(EnergyModel, 1, 10_000), (EnergyModel, 2, 300), (MixtureModel, 2, 300)]
)
def test_further_questions_call_no_network(kind, D, n):
    model = model_of(D, kind)
    calls = calls_of(model)
    few = {"n_nodes": 16, "max_nodes": 16, "n_diagnostic_draws": 32, "n_draws": 128, "max_draws": 128}
    p = prediction(model, torch.randn(n, 3, dtype=torch.float64), **few)
    p.mean  # noqa: B018
    first = len(calls)
    assert first > 0
    for name in ("mean_and_stddev", "interval", "cdf", "diagnostics", "proposal", "to_frame", "some rows"):
        QUESTIONS[name](p)
    assert len(calls) == first


@pytest.mark.parametrize("question", ["mean_and_stddev", "to_frame"])
@pytest.mark.parametrize("D", [1, 2])
def test_several_answers_take_one_pass_also_beyond_the_limit(monkeypatch, question, D):
    monkeypatch.setattr(chunks, "KEPT_BYTES", 0)
    model = model_of(D)
    calls = calls_of(model)
    x = torch.randn(20, 3, dtype=torch.float64)
    prediction(model, x, chunk=8, n_draws=128, max_draws=128).mean  # noqa: B018
    once = len(calls)
    QUESTIONS[question](prediction(model, x, chunk=8, n_draws=128, max_draws=128))
    assert len(calls) == 2 * once


def test_the_limit_counts_padding_and_what_exceeds_it_is_made_again(monkeypatch):
    model = model_of(1)
    x = torch.randn(96, 3, dtype=torch.float64)
    p = prediction(model, x, chunk=32)
    p.mean  # noqa: B018
    size = p._chunks._bytes
    assert size >= 3 * 32 * 400 * 8 * 2  # nodes and log densities, at least
    monkeypatch.setattr(chunks, "KEPT_BYTES", size - 1)
    calls = calls_of(model)
    part = prediction(model, x, chunk=32)
    answers = [part.quantile(0.3) for _ in range(3)]
    rows = np.concatenate([p.quantile(0.3)])
    for answer in answers:
        np.testing.assert_array_equal(answer, rows)
    made = [n for n in calls if n == 32]
    assert 0 < len(part._chunks._kept) < 3
    assert len(made) > 3
    np.testing.assert_allclose(part[[40, 2]].mean, p[[40, 2]].mean)


@pytest.mark.parametrize(("kind", "D"), [(EnergyModel, 1), (EnergyModel, 2), (MixtureModel, 1)])
def test_a_prediction_survives_pickle_with_what_was_computed(kind, D):
    p = prediction(model_of(D, kind), torch.randn(40, 3, dtype=torch.float64), chunk=16)
    mean = p.mean
    again = pickle.loads(pickle.dumps(p))
    calls = calls_of(again._chunks.model)
    np.testing.assert_array_equal(again.mean, mean)
    np.testing.assert_allclose(again.log_prob(100 + np.zeros((40, D))), p.log_prob(100 + np.zeros((40, D))))
    assert D > 1 or not calls  # with several targets, log_prob evaluates the energy at the new targets


def test_the_proposal_of_all_rows_comes_in_the_units_of_y():
    p = prediction(model_of(1), torch.randn(40, 3, dtype=torch.float64), chunk=16)
    assert isinstance(p.proposal, GaussianMixture)
    assert p.proposal.mean.shape == (40, 1)
    assert 90 < p.proposal.mean.mean() < 110


def test_predict_with_deviation_takes_one_pass(monkeypatch):
    monkeypatch.setattr(chunks, "KEPT_BYTES", 0)
    X = np.random.default_rng(0).normal(size=(60, 2))
    for kind in (EnergyRegressor, MixtureDensityRegressor):
        regressor = kind(width=4, max_iter=1, random_state=0, verbose=False).fit(X, X[:, 0])
        calls = calls_of(regressor.model_)
        mean = regressor.predict(X)
        once = len(calls)
        both = regressor.predict(X, return_std=True)
        assert len(calls) == 2 * once
        np.testing.assert_array_equal(both[0], mean)


@pytest.mark.parametrize(("kind", "D"), [(EnergyModel, 1), (EnergyModel, 2), (MixtureModel, 1)])
def test_questions_do_not_grow_what_is_kept(kind, D):
    p = prediction(model_of(D, kind), torch.randn(40, 3, dtype=torch.float64), chunk=16, n_draws=128)
    p.mean  # noqa: B018
    before = len(pickle.dumps(p))
    for ask in (lambda: p.modes(), lambda: p.highest_density_region(0.5), lambda: p.expectation(np.sin)):
        ask()
    p.effective_sample_size, p.pareto_k  # noqa: B018
    assert len(pickle.dumps(p)) < 1.2 * before
    held = sum(
        value.nbytes
        for chunk in p._chunks._kept.values()
        for value in vars(chunk).values()
        if torch.is_tensor(value)
    )
    assert held <= p._chunks._bytes


def test_one_row_of_many_is_taken_from_its_chunk_alone(monkeypatch):
    p = prediction(model_of(1), torch.randn(40, 3, dtype=torch.float64), chunk=8)
    mean = p.mean
    joined = []
    original = type(next(iter(p._chunks))[1]).joined
    monkeypatch.setattr(
        type(next(iter(p._chunks))[1]),
        "joined",
        lambda self, others: joined.append(1) or original(self, others),
    )
    assert p[17].mean == mean[17]
    assert not joined
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_allclose(p[order].mean, mean[order], rtol=1e-12)
    np.testing.assert_allclose([row.mean[0, 0] for row in p], mean[:, 0], rtol=1e-12)


def test_more_nodes_or_draws_mean_fewer_rows_at_once():
    one, two = model_of(1), model_of(2)
    assert chunks.Chunks(one, torch.zeros(9, 3)).n_rows == 512
    assert chunks.Chunks(one, torch.zeros(9, 3), Accuracy(max_nodes=16384)).n_rows == 64
    assert chunks.Chunks(one, torch.zeros(9, 3), Accuracy(n_nodes=16)).n_rows == 512
    assert chunks.Chunks(two, torch.zeros(9, 3), Accuracy(max_draws=2**17)).n_rows == 8
    assert chunks.Chunks(two, torch.zeros(9, 3), Accuracy(max_draws=2**30)).n_rows == 1


@pytest.mark.parametrize("D", [1, 2])
def test_energies_that_are_not_numbers_are_explained(D):
    model = model_of(D)
    model.energy.output_layer.bias.data.fill_(torch.nan)
    p = prediction(model, torch.randn(4, 3, dtype=torch.float64), n_draws=128, max_draws=128)
    with pytest.raises(UndefinedError, match="is NaN or infinite for some targets"):
        _ = p.unreliable
