"""One contract for every inference model."""

from __future__ import annotations

import pytest
import torch
from amortized_cases import MODELS, belief, enumerate_tokens, model, repeated, tokens

from doxa.amortized import Columns, FactorMLPs, GridCNN, InferenceModel, PairsModel, ScanModel
from doxa.amortized.models._model import fixed, frozen
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief, BruteForce, Problem, addition, parity, shortest_path

every = pytest.mark.parametrize("name", MODELS)
MANY = (
    "grid of moves",
    "residual network for each move",
    "grid of cells",
    "scan",
    "scan, prediction only",
    "mlps, prediction only",
)
SMALL = [name for name in MODELS if name not in MANY]


def stepped(m: InferenceModel, b: Belief, seen: torch.Tensor) -> torch.Tensor:
    """log q of every value at every position, one step at a time: ``(R, L, D)``."""
    carry, token, rows = m.init(b), None, []
    for t in range(seen.shape[-1]):
        log_probs, carry = m.step(carry, token)
        rows.append(log_probs)
        token = seen[:, t]
    return torch.stack(rows, 1)


@every
def test_parallel_log_prob_is_the_product_of_steps(name: str) -> None:
    m = model(name)
    b = belief(m.problem, 5)
    seen = tokens(m, b)
    steps = stepped(m, b, seen)
    torch.testing.assert_close(m.log_probs(b, seen), steps, atol=1e-12, rtol=0)
    chosen = steps.gather(-1, seen.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(m.log_prob(b, seen), chosen.sum(-1), atol=1e-12, rtol=0)
    outputs = len(m.problem.output)
    torch.testing.assert_close(m.log_prob(b, seen[:, :outputs]), chosen[:, :outputs].sum(-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", SMALL)
def test_sums_to_one_over_all_sequences(name: str) -> None:
    m = model(name)
    every_one = enumerate_tokens(m)
    log_q = m.log_prob(repeated(belief(m.problem), len(every_one)), every_one)
    torch.testing.assert_close(log_q.exp().sum(), torch.tensor(1.0, dtype=torch.float64))


@every
def test_a_factor_sees_only_what_comes_before(name: str) -> None:
    m = model(name)
    b = belief(m.problem, 3)
    seen = tokens(m, b)
    before = m.log_probs(b, seen)
    for t in range(seen.shape[-1]):
        changed = seen.clone()
        changed[:, t:] = (changed[:, t:] + 1) % torch.tensor(m.sizes[t:])
        torch.testing.assert_close(m.log_probs(b, changed)[:, : t + 1], before[:, : t + 1], atol=1e-12, rtol=0)


@every
def test_rows_can_be_selected_between_steps(name: str) -> None:
    """Beams: rows are reordered, dropped and repeated after every step, and each goes on with its own past."""
    m = model(name)
    b = belief(m.problem, 3)
    generator = torch.Generator().manual_seed(3)
    carry, token = m.init(b), None
    origin, past = torch.arange(3), torch.zeros(3, 0, dtype=torch.int64)
    for t, size in enumerate(m.sizes):
        log_probs, carry = m.step(carry, token)
        expected = m.log_probs(b[origin], torch.cat([past, torch.zeros(len(past), 1, dtype=torch.int64)], -1))[:, t]
        torch.testing.assert_close(log_probs, expected, atol=1e-12, rtol=0)
        rows = torch.randint(len(past), (4,), generator=generator)
        token = torch.randint(size, (4,), generator=generator)
        carry, origin = carry.select(rows), origin[rows]
        past = torch.cat([past[rows], token.unsqueeze(-1)], -1)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_values_and_gradients_are_finite(name: str, dtype: torch.dtype, scale: float) -> None:
    """Also for beliefs that are certain, whose log-probabilities are -inf."""
    m = model(name, dtype)
    logits = (scale * torch.randn(4, len(m.problem.world), max(m.problem.world), dtype=dtype)).requires_grad_()
    b = Belief.from_logits(logits, m.problem.world)
    loss = m.log_prob(b, tokens(m, b.detach()))
    assert loss.dtype == dtype and bool(loss.isfinite().all())
    loss.sum().backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
    for parameter in m.parameters():
        assert parameter.grad is None or bool(parameter.grad.isfinite().all())


@every
def test_the_belief_matters(name: str) -> None:
    m = model(name)
    b = belief(m.problem, 4)
    seen = tokens(m, b)
    assert (m.log_prob(b, seen) - m.log_prob(belief(m.problem, 4, scale=3.0), seen)).abs().max() > 1e-6


@every
def test_any_batch(name: str) -> None:
    m = model(name)
    flat = belief(m.problem, 6)
    seen = tokens(m, flat)
    grid = Belief(flat.log_probs.reshape(2, 3, *flat.log_probs.shape[1:]), flat.sizes)
    expected = m.log_prob(flat, seen)
    torch.testing.assert_close(m.log_prob(grid, seen.reshape(2, 3, -1)).flatten(), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(m.log_prob(flat[0], seen[0]), expected[0], atol=1e-12, rtol=0)
    assert m.log_prob(flat[:0], seen[:0]).shape == (0,)


def test_wide_beliefs_are_cut_to_the_problem() -> None:
    m = FactorMLPs(parity(2), hidden=4).double()
    narrow = Belief.uniform((2, 2), (3,), dtype=torch.float64)
    wide = Belief.from_logits(torch.zeros(3, 2, 5, dtype=torch.float64), (2, 2))
    seen = torch.zeros(3, 3, dtype=torch.int64)
    torch.testing.assert_close(m.log_prob(wide, seen), m.log_prob(narrow, seen))


def test_closed_form_of_pairs_is_exact_for_each_pair() -> None:
    m = model("pairs in closed form")
    b = belief(m.problem, 7)
    marginals = BruteForce(m.problem).marginals(b).log_probs
    found = m.log_probs(b, torch.zeros(7, 6, dtype=torch.int64))
    torch.testing.assert_close(found, marginals, atol=1e-9, rtol=1e-9)


def test_columns_of_a_sum_and_of_anything() -> None:
    assert Columns.of(addition(3)) == Columns(((0,), (1,), (2,), (3,)), ((), (0, 3), (1, 4), (2, 5)))
    assert Columns.of(parity(3)) == Columns(((), (), (0,)), ((0,), (1,), (2,)))
    more = Problem((2,), (2, 2), lambda w: torch.cat([w, w], -1))
    assert Columns.of(more) == Columns(((0,), (1,)), ((), (0,)))


def test_scan_weights_do_not_grow_with_the_sum() -> None:
    count = [sum(p.numel() for p in ScanModel(addition(n), positions=False).parameters()) for n in (2, 50)]
    assert count[0] == count[1]


def test_frozen_restores_what_was_trainable() -> None:
    m = ScanModel(addition(1), hidden=4)
    b, tokens = Belief.uniform((10, 10)), torch.tensor([1, 3])
    next(m.parameters()).requires_grad_(False)
    trainable = [p.requires_grad for p in m.parameters()]
    with pytest.raises(ValueError), frozen(m):
        assert not m.log_prob(b, tokens).requires_grad
        raise ValueError
    assert [p.requires_grad for p in m.parameters()] == trainable
    assert m.log_prob(b, tokens).requires_grad


def test_fixed_modules_have_the_same_values_and_follow_updates() -> None:
    for layer in (torch.nn.Linear(3, 3), torch.nn.GRU(3, 3), torch.nn.Sequential(torch.nn.Linear(3, 2))):
        x = torch.randn(4, 3, requires_grad=True)
        same = fixed(layer)
        with torch.no_grad():
            next(layer.parameters()).add_(1.0)
        one, two = (found[0] if isinstance(found, tuple) else found for found in (layer(x), same(x)))
        assert torch.equal(one, two)
        two.sum().backward()
        assert x.grad is not None and all(p.grad is None for p in layer.parameters())


def test_errors_say_what_was_wanted() -> None:
    m = FactorMLPs(addition(1), hidden=4)
    b = Belief.uniform((10, 10), (3,))
    with pytest.raises(ProblemError, match="expected int64"):
        m.log_prob(b, torch.zeros(3, 2))
    with pytest.raises(ProblemError, match="L from 1 to 4"):
        m.log_prob(b, torch.zeros(3, 5, dtype=torch.int64))
    with pytest.raises(ProblemError, match="batch"):
        m.log_prob(b, torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ProblemError, match="domains"):
        m.log_prob(Belief.uniform((2, 2)), torch.zeros(2, dtype=torch.int64))
    carry = m.init(b)
    with pytest.raises(ProblemError, match="no step after the last"):
        m.step(carry._replace(position=4))
    with pytest.raises(ConfigError, match="at least 1"):
        FactorMLPs(addition(1), layers=0)
    with pytest.raises(ConfigError, match="exactly one column"):
        ScanModel(addition(1), Columns(((0,), (1,)), ((0,), (0,))))
    with pytest.raises(ConfigError, match="grid of 6 cells"):
        GridCNN(shortest_path(2, 3), (2, 2))
    with pytest.raises(ConfigError, match="one output per cell"):
        GridCNN(shortest_path(2, 3), (2, 3), reads="moves")
    with pytest.raises(ConfigError, match="expected two"):
        PairsModel(parity(3))
