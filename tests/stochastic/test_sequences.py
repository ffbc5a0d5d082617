"""Sequences: probabilities, ancestral samples, stochastic beam search, an end token, and every estimator on them."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
import torch
from stochastic_problems import THETA, tensor
from torch import Tensor, nn
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic import (
    Enumerate,
    Estimator,
    LeaveOneOut,
    ScoreWithoutReplacement,
    SelfCritical,
    Sequences,
    StochasticSumAndSample,
    SumAndSample,
    Tape,
    UnorderedSet,
    check_unbiased,
)

TABLE = tensor([[0.3, -0.4, 0.8], [0.1, 0.9, -0.5], [-0.2, 0.4, 0.6], [0.5, 0.0, -0.3]])


def words(theta: Tensor, end: int | None = 0, length: int = 3) -> Sequences:
    """The next token depends on the last one; the first row of logits after the three tokens is the start."""
    lead = theta.shape
    rows = theta.reshape(-1, 1, 1) * TABLE.flip(1) + TABLE  # (N, 4, 3)

    def step(carry: Tensor, token: Tensor | None) -> tuple[Tensor, Tensor]:
        index = torch.full((len(carry),), 3) if token is None else token
        return carry[torch.arange(len(carry)), index], carry

    return Sequences(step, rows, length, end=end, batch_shape=lead)


def cost(x: Tensor, theta: Tensor) -> Tensor:
    return torch.cos(theta * x.sum(-1)) + (x[..., 0] == 2) * theta + 0.3 * (x == 0).sum(-1)


@pytest.mark.parametrize("end", [None, 0, 2])
def test_probabilities_sum_to_one(end: int | None) -> None:
    d = words(THETA, end)
    values = d.support_values()
    assert len(values) == d.size
    assert float(d.log_prob(values).exp().sum()) == pytest.approx(1)
    if end is not None:
        after = (values == end).cumsum(-1)[..., :-1] > 0
        assert (values[..., 1:][after] == end).all()


def test_ancestral_samples_follow_the_probabilities() -> None:
    d = words(THETA)
    values = d.support_values()
    expected = dict(zip(map(tuple, values.tolist()), d.log_prob(values).exp().tolist(), strict=True))
    counts = Counter(map(tuple, d.sample((20_000,)).tolist()))
    assert set(counts) <= set(expected)
    for x, chance in expected.items():
        assert counts[x] / 20_000 == pytest.approx(chance, abs=0.02)


def test_stochastic_beam_search_follows_the_probabilities() -> None:
    d = words(THETA.expand(20_000), length=2)
    x, log_p = d.without_replacement(2)
    assert x.shape == (2, 20_000, 2)
    assert torch.allclose(log_p, d.log_prob(x))
    one = words(THETA, length=2)
    values = one.support_values()
    chance = dict(zip(map(tuple, values.tolist()), one.log_prob(values).exp().tolist(), strict=True))
    counts = Counter((tuple(a), tuple(b)) for a, b in zip(x[0].tolist(), x[1].tolist(), strict=True))
    for a, b in permutations(chance, 2):
        assert counts[a, b] / 20_000 == pytest.approx(chance[a] * chance[b] / (1 - chance[a]), abs=0.02)


@pytest.mark.parametrize(
    "estimator",
    [
        Enumerate(),
        LeaveOneOut(2),
        SelfCritical(),
        UnorderedSet(2),
        SumAndSample(3, top=1, form="B"),
        SumAndSample(3, top=2),
        StochasticSumAndSample(3, top=2),
    ],
    ids=repr,
)
def test_estimators_on_sequences(estimator: Estimator) -> None:
    report = check_unbiased(estimator, lambda t: words(t, length=2), cost, order=2, at=THETA)
    assert report.enumerated and report.ok, str(report)


def test_score_without_replacement_on_sequences() -> None:
    report = check_unbiased(ScoreWithoutReplacement(3), lambda t: words(t), cost, order=2, at=THETA, replicates=10_000)
    assert report.ok, str(report)


def test_a_recurrent_network_over_long_sequences() -> None:
    torch.manual_seed(0)
    cell, embed, head = nn.GRUCell(4, 6), nn.Embedding(12, 4), nn.Linear(6, 11)

    def step(carry: tuple[Tensor], token: Tensor | None) -> tuple[Tensor, tuple[Tensor]]:
        (state,) = carry
        token = torch.full((len(state),), 11) if token is None else token
        state = cell(embed(token), state)
        return head(state), (state,)

    d: Distribution = Sequences(step, (torch.zeros(3, 6),), length=25, end=0)
    summed = SumAndSample(4, top=2), StochasticSumAndSample(4, top=2)
    for estimator in (UnorderedSet(6), LeaveOneOut(4), *summed, ScoreWithoutReplacement(4)):
        tape = Tape(batch_dims=1)
        x = tape.sample(d, estimator)
        assert x.shape[1:] == (3, 25) and x.dtype == torch.long
        if isinstance(estimator, UnorderedSet | ScoreWithoutReplacement):
            assert all(len({tuple(w) for w in x[:, b].tolist()}) == len(x) for b in range(3))
        tape.cost((x != 0).sum(-1).float())
        found = torch.autograd.grad(tape.surrogate(), list(cell.parameters()))
        assert all(torch.isfinite(g).all() for g in found)


def test_wrong_sequences_are_explained() -> None:
    def step(carry: Tensor, token: Tensor | None) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(carry), 2), carry

    with pytest.raises(ConfigError, match="end is 5, expected a token between 0 and 1"):
        Sequences(step, torch.zeros(2, 1), 3, end=5)
    with pytest.raises(ConfigError, match="does not match the 2 rows"):
        Sequences(step, torch.zeros(2, 1), 3, batch_shape=(3,))
    with pytest.raises(ConfigError, match="at least 1"):
        Sequences(step, torch.zeros(2, 1), 0)
    with pytest.raises(ConfigError, match="holds no tensor"):
        Sequences(step, (), 3)
    with pytest.raises(ConfigError, match=r"there are fewer|has 4"):
        Tape(batch_dims=1).sample(Sequences(step, torch.zeros(2, 1), 2), UnorderedSet(5))
