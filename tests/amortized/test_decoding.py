"""Beam search, greedy decoding and sampling against exhaustive search."""

from __future__ import annotations

import pytest
import torch
from amortized_cases import belief, enumerate_tokens, model, repeated

from doxa.amortized import (
    AdditionPruner,
    FactorMLPs,
    FunctionPruner,
    InferenceModel,
    ScanModel,
)
from doxa.amortized._decoding import beam_search, draw
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief, addition, parity

NAMES = ["mlps", "mlps, ragged", "scan, clauses", "scan, ragged", "transformer, ragged", "pairs"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("known", [0, 1])
def test_full_width_is_exhaustive_search(name: str, known: int) -> None:
    m = model(name)
    b = belief(m.problem, 2)
    everything = enumerate_tokens(m)
    for row in range(2):
        fitting = everything[(everything[:, :known] == 1).all(-1)] if known else everything
        given = torch.ones(known, dtype=torch.int64) if known else None
        log_q = m.log_prob(repeated(b[row], len(fitting)), fitting).detach()
        if known:
            log_q = log_q - log_q.logsumexp(0)
        order = log_q.argsort(descending=True, stable=True)
        found = beam_search(m, b[row], len(fitting) + 3, prefix=given)
        torch.testing.assert_close(found.scores[: len(fitting)], log_q[order], atol=1e-10, rtol=0)
        assert torch.equal(found.tokens[: len(fitting)][:20], fitting[order[:20]])
        assert bool((found.scores[len(fitting) :] == -torch.inf).all())
        assert bool((found.tokens[len(fitting) :] == -1).all())


def test_full_width_with_a_pruner_finds_exactly_the_possible() -> None:
    m = ScanModel(addition(1), hidden=8).double()
    b = belief(m.problem)
    found = beam_search(m, b, 200, pruner=AdditionPruner(1))
    real = found.scores > -torch.inf
    assert int(real.sum()) == 100  # every pair of digits, once
    assert len(found.tokens[real].unique(dim=0)) == 100
    torch.testing.assert_close(found.scores[real].exp().sum(), torch.tensor(1.0, dtype=torch.float64))
    # The scores are those of the training loss.
    torch.testing.assert_close(
        m.log_prob(repeated(b, 100), found.tokens[real], AdditionPruner(1)), found.scores[real], atol=1e-10, rtol=0
    )


@pytest.mark.parametrize("name", NAMES)
def test_greedy_takes_the_best_value_at_each_step(name: str) -> None:
    m = model(name)
    b = belief(m.problem, 6)
    seen = torch.zeros(6, 0, dtype=torch.int64)
    for t in range(len(m.sizes)):
        longer = torch.cat([seen, torch.zeros(6, 1, dtype=torch.int64)], -1)
        seen = torch.cat([seen, m.log_probs(b, longer)[:, t].argmax(-1, keepdim=True)], -1)
    assert torch.equal(beam_search(m, b, 1).tokens.squeeze(-2), seen)
    assert torch.equal(beam_search(m, b, 1).tokens[:, 0], seen)


def test_prediction_stops_after_the_outputs() -> None:
    m = model("scan")
    b = belief(m.problem, 4)
    short = beam_search(m, b, 500, length=3)
    assert short.tokens.shape == (4, 500, 3)
    torch.testing.assert_close(short.scores.exp().sum(-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_samples_have_the_frequencies_of_the_model(temperature: float) -> None:
    m = model("scan, clauses")
    b = belief(m.problem)
    count = 10_000
    samples = draw(m, b, count, temperature=temperature, generator=torch.Generator().manual_seed(0))
    everything = enumerate_tokens(m)
    expected = torch.ones(len(everything), dtype=torch.float64)
    for t in range(len(m.sizes)):  # tempered factor by factor
        table = m.log_probs(repeated(b, len(everything)), everything)[:, t].detach() / temperature
        expected *= table.softmax(-1).gather(-1, everything[:, t : t + 1]).squeeze(-1)
    code = (samples.tokens * torch.tensor([8, 4, 2, 1])).sum(-1)
    frequency = torch.bincount(code, minlength=16).double() / count
    deviation = (frequency - expected).abs() / (expected * (1 - expected) / count).sqrt()
    assert deviation.max() < 4.5
    torch.testing.assert_close(samples.scores, m.log_prob(repeated(b, count), samples.tokens), atol=1e-10, rtol=0)


def test_samples_are_reproducible_and_independent_of_the_batch() -> None:
    m = model("mlps")
    b = belief(m.problem, 2, 3)
    one = draw(m, b, 5, generator=torch.Generator().manual_seed(7))
    two = draw(m, b, 5, generator=torch.Generator().manual_seed(7))
    assert torch.equal(one.tokens, two.tokens) and one.tokens.shape == (2, 3, 5, 4)
    found = beam_search(m, b, 4)
    assert found.tokens.shape == (2, 3, 4, 4)
    assert torch.equal(beam_search(m, b[1, 2], 4).tokens, found.tokens[1, 2])
    assert beam_search(m, belief(m.problem, 2)[:0], 4).tokens.shape == (0, 4, 4)


def test_dead_ends_drop_out() -> None:
    problem = parity(2)
    # After the output, the first variable may be anything, the second nothing if the first was 1.
    pruner = FunctionPruner(
        lambda prefix: (
            (prefix[:, -1:] == 0).expand(-1, 2) if prefix.shape[-1] == 2 else torch.ones(len(prefix), 2).bool()
        ),
        (2, 2, 2),
    )
    torch.manual_seed(0)
    m = FactorMLPs(problem, hidden=8)
    b = Belief.uniform((2, 2), (3,))
    found = beam_search(m, b, 8, pruner=pruner)
    real = found.scores > -torch.inf
    assert int(real.sum()) == 3 * 4 and bool((found.tokens[real][:, 1] == 0).all())
    assert bool((found.tokens[~real] == -1).all())
    samples = draw(m, b, 300, pruner=pruner)
    dead = samples.scores == -torch.inf
    assert 0 < int(dead.sum()) < dead.numel()
    assert bool((samples.tokens[dead] == -1).all()) and bool((samples.tokens[~dead][:, 1] == 0).all())
    nothing = FunctionPruner(lambda prefix: torch.zeros(2, dtype=torch.bool), (2, 2, 2))
    assert bool((beam_search(m, b, 2, pruner=nothing).tokens == -1).all())
    loss = m.log_prob(b, torch.zeros(3, 3, dtype=torch.int64), nothing)
    assert bool((loss == -torch.inf).all())


def test_labels_beyond_64_bits() -> None:
    """Sums of numbers of 100 digits: labels are digits, so nothing overflows."""
    problem = addition(100)
    torch.manual_seed(0)
    m = ScanModel(problem, hidden=8)
    b = Belief.from_logits(torch.randn(2, 200, 10))
    found = beam_search(m, b, 3, pruner=AdditionPruner(100))
    sums = [[int("".join(map(str, row))) for row in rows] for rows in found.tokens[..., :101].tolist()]
    left = [[int("".join(map(str, row))) for row in rows] for rows in found.tokens[..., 101:201].tolist()]
    right = [[int("".join(map(str, row))) for row in rows] for rows in found.tokens[..., 201:].tolist()]
    assert all(
        y == a + c for ys, ls, rs in zip(sums, left, right, strict=True) for y, a, c in zip(ys, ls, rs, strict=True)
    )
    assert max(max(row) for row in sums) > 2**64


class Counting(FactorMLPs):
    """Counts the rows that pass through ``advance``."""

    steps = 0

    def advance(self, carry, token):  # type: ignore[no-untyped-def]
        self.steps += 1
        return super().advance(carry, token)


@pytest.mark.parametrize("beams", [1, 20])
def test_one_step_per_variable(beams: int) -> None:
    """All queries and beams advance together, once for every variable."""
    m = Counting(addition(6), hidden=4)
    beam_search(m, Belief.uniform((10,) * 12, (5,)), beams)
    assert m.steps == len(m.sizes) == 19


def test_decoding_leaves_no_graph() -> None:
    m: InferenceModel = model("scan")
    logits = torch.zeros(2, 4, 10, dtype=torch.float64, requires_grad=True)
    found = beam_search(m, Belief.from_logits(logits), 2)
    assert not found.scores.requires_grad
    assert not draw(m, Belief.from_logits(logits), 2).scores.requires_grad


def test_errors() -> None:
    m = model("mlps")
    b = belief(m.problem, 2)
    with pytest.raises(ConfigError, match="at least 1"):
        beam_search(m, b, 0)
    with pytest.raises(ConfigError, match="above 0"):
        draw(m, b, temperature=0.0)
    with pytest.raises(ProblemError, match="unobserved"):
        beam_search(m, b, prefix=torch.tensor([-1, 2]))
    with pytest.raises(ProblemError, match="k below the length"):
        beam_search(m, b, prefix=torch.zeros(4, dtype=torch.int64))
