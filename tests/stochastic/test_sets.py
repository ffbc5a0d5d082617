"""Set probabilities, samples without replacement, and searches, against brute force and in huge spaces."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from stochastic_problems import tensor
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from doxa.errors import ConfigError
from doxa.stochastic import ScoreWithoutReplacement, SumAndSample, Tape, UnorderedSet
from doxa.stochastic.estimators._search import outside, stochastic_beam, token_log_probs, tokens_of, top_k
from doxa.stochastic.estimators._without_replacement import by_quadrature, by_subsets


def brute(p: list[float], members: list[int], given: tuple[int, ...] = ()) -> float:
    """The probability that exactly these are drawn, in any order, after those given."""
    total = 0.0
    rest = [m for m in members if m not in given]
    for order in permutations(rest):
        left, chance = 1 - sum(p[g] for g in given), 1.0
        for m in order:
            chance *= p[m] / left
            left -= p[m]
        total += chance
    return total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=7), st.integers(2, 4))
def test_set_probabilities_agree_with_all_orders(weights: list[float], k: int) -> None:
    p = [w / sum(weights) for w in weights]
    members = list(range(k))
    k = min(k, len(p) - 1)
    members = members[:k]
    log_p = tensor(p)[members].log()
    rest = torch.log1p(-log_p.exp().sum(-1))
    for whole, first, second in (by_subsets(log_p, rest), by_quadrature(log_p, rest)):
        assert float(whole.exp()) == pytest.approx(brute(p, members), rel=1e-9)
        for i in members:
            assert float(first[i].exp()) == pytest.approx(brute(p, members, (i,)), rel=1e-9)
            for j in members:
                expected = brute(p, members, (i, j) if i != j else (i,))
                assert float(second[i, j].exp()) == pytest.approx(expected, rel=1e-9)
        assert float((log_p + first - whole).exp().sum()) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("log_size", [40 * 0.6931471805599453, 20 * 2.302585092994046])
@pytest.mark.parametrize("k", [2, 5, 9, 12, 20])
def test_weights_in_huge_uniform_spaces(log_size: float, k: int) -> None:
    """All values alike: every weight is 1/k, and every baseline the average of the costs but for O(1/size)."""
    from doxa.stochastic.estimators._without_replacement import set_log_probs

    log_p = torch.full((k,), -log_size, dtype=torch.float64)
    whole, first, second = set_log_probs(log_p, torch.log1p(-log_p.exp().sum(-1)))
    assert (log_p + first - whole).exp().tolist() == pytest.approx([1 / k] * k, rel=1e-9)
    log_factorial = torch.lgamma(tensor(k + 1.0))
    assert float(whole) == pytest.approx(float(log_factorial) - k * log_size, rel=1e-9)
    ratio = (log_p + second - first.unsqueeze(-1)).exp()
    others = ratio[~torch.eye(k, dtype=torch.bool)]
    assert others.tolist() == pytest.approx([1 / (k - 1)] * len(others), rel=1e-9)


def test_both_ways_agree_at_the_border() -> None:
    torch.manual_seed(0)
    for scale in (0.3, 5.0, 20.0):
        log_p = (torch.randn(9, dtype=torch.float64) * scale).log_softmax(-1) - 0.05
        rest = torch.log1p(-log_p.exp().sum(-1))
        for a, b in zip(by_subsets(log_p, rest), by_quadrature(log_p, rest), strict=True):
            assert torch.allclose(a, b, rtol=1e-8, atol=1e-8)


HUGE: list[Distribution] = [
    Independent(Bernoulli(logits=torch.linspace(-2, 2, 40)), 1),
    Independent(Categorical(logits=torch.randn(20, 10, generator=torch.Generator().manual_seed(0))), 1),
]


@pytest.mark.parametrize("d", HUGE, ids=["2^40", "10^20"])
@pytest.mark.parametrize("estimator", [UnorderedSet(5), UnorderedSet(12), ScoreWithoutReplacement(5)], ids=repr)
def test_huge_spaces_do_not_underflow(d: Distribution, estimator: UnorderedSet) -> None:
    batch = d.expand(torch.Size([100]))
    tape = Tape(batch_dims=1)
    z = tape.sample(batch, estimator)
    w = estimator.weight(tape.nodes[0].draw)
    assert torch.isfinite(w).all() and float(w.min()) > 0
    if type(estimator) is UnorderedSet:
        assert torch.allclose(w.sum(0), torch.ones(100), atol=1e-4)
    # The value is unbiased: E[Σ z] is known.
    tape.cost(z.float().sum(-1))
    values = tape.surrogate(reduction="none")
    base = d.base_dist  # type: ignore[attr-defined]
    expected = float(base.probs.sum() if isinstance(base, Bernoulli) else (base.probs @ torch.arange(10.0)).sum())
    assert abs(float(values.mean()) - expected) < 5 * float(values.std()) / 10


def test_stochastic_beam_draws_in_the_right_proportions() -> None:
    p = [tensor([0.7, 0.3]), tensor([0.2, 0.5, 0.3])]
    from doxa.stochastic.estimators._factors import Joint

    d = Joint([Categorical(q) for q in p]).expand((40_000,))
    tokens, log_p, noisy = stochastic_beam(tokens_of(d, "test"), 2)
    assert (noisy[:, 0] >= noisy[:, 1]).all()
    chance = {(i, j): float(p[0][i] * p[1][j]) for i, j in product(range(2), range(3))}
    counts = Counter(tuple(map(tuple, pair)) for pair in tokens.tolist())
    for first, second in permutations(chance, 2):
        expected = chance[first] * chance[second] / (1 - chance[first])
        assert counts[(first, second)] / 40_000 == pytest.approx(expected, abs=0.012)
    again = [[chance[tuple(x)] for x in pair] for pair in tokens[:50].tolist()]
    assert torch.allclose(log_p[:50].exp(), tensor(again))
    # The largest perturbed log-probability of all is a standard Gumbel, whatever the distribution.
    assert float(noisy[:, 0].mean()) == pytest.approx(0.5772, abs=0.03)
    assert float(noisy[:, 0].var()) == pytest.approx(torch.pi**2 / 6, abs=0.08)


def test_top_k_of_a_product_is_exact() -> None:
    torch.manual_seed(3)
    table = torch.randn(5, 4, 3, dtype=torch.float64).log_softmax(-1)
    d = Independent(Categorical(logits=table), 1)
    found = top_k(tokens_of(d, "test"), 7)
    for row in range(5):
        scores = {x: float(sum(table[row, i, v] for i, v in enumerate(x))) for x in product(range(3), repeat=4)}
        best = sorted(scores, key=lambda x: -scores[x])[:7]
        assert [tuple(x) for x in found[row].tolist()] == best


def test_draws_outside_a_set() -> None:
    d = Independent(Categorical(logits=tensor([[0.5, -0.2, 0.1], [1.0, 0.0, -1.0]])), 1)
    model = tokens_of(d, "test")
    kept = torch.tensor([[[0, 0], [1, 0], [2, 2]]])
    valid = torch.tensor([[True, True, False]])
    drawn, log_rest = outside(model, kept, valid, 40_000)
    p = d.base_dist.probs
    chance = {(i, j): float(p[0, i] * p[1, j]) for i, j in product(range(3), range(3))}
    rest = 1 - chance[0, 0] - chance[1, 0]
    assert float(log_rest.exp()) == pytest.approx(rest)
    counts = Counter(map(tuple, drawn[0].tolist()))
    assert counts[0, 0] == counts[1, 0] == 0
    for x in chance.keys() - {(0, 0), (1, 0)}:
        assert counts[x] / 40_000 == pytest.approx(chance[x] / rest, abs=0.012)
    steps = token_log_probs(model, kept)
    assert float(steps[0, 2].sum().exp()) == pytest.approx(chance[2, 2])


def test_more_values_than_there_are() -> None:
    d = Categorical(torch.ones(3))
    with pytest.raises(ConfigError, match="needs 4 different values, the distribution has 3"):
        Tape().sample(d, UnorderedSet(4))
    with pytest.raises(ConfigError, match="use Enumerate"):
        Tape().sample(d, ScoreWithoutReplacement(3))


def test_all_values_at_once_is_the_exact_expectation() -> None:
    logits = tensor([0.3, -0.2, 0.9]).requires_grad_()
    f = tensor([1.0, 2.0, 4.0])

    def slope(x: Tensor) -> Tensor:
        return torch.autograd.grad(x, logits)[0]

    tape = Tape()
    z = tape.sample(Categorical(logits=logits), UnorderedSet(3))
    tape.cost(f[z])
    exact = (logits.softmax(-1) * f).sum()
    assert torch.allclose(tape.surrogate(), exact)
    assert torch.allclose(slope(tape.surrogate()), slope(exact))
    tape = Tape()
    z = tape.sample(Categorical(logits=logits), SumAndSample(3, top=2))
    tape.cost(f[z])
    assert torch.allclose(slope(tape.surrogate()), slope((logits.softmax(-1) * f).sum()))
