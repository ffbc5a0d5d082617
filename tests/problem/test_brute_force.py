"""The oracle against an oracle of its own: plain Python, one world at a time."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.problem import (
    Belief,
    BruteForce,
    Problem,
    Reasoner,
    addition,
    comparison,
    exactly_k,
    majority,
    multiplication,
    parity,
    shortest_path,
)

World = tuple[int, ...]
INF = float("inf")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Table:
    """A function that is a list of outputs, for worlds in lexicographic order."""

    sizes: tuple[int, ...]
    rows: tuple[World, ...]

    def __call__(self, worlds: Tensor) -> Tensor:
        number = torch.zeros_like(worlds[..., 0])
        for size, value in zip(self.sizes, worlds.unbind(-1), strict=True):
            number = number * size + value
        return torch.tensor(self.rows)[number]


@dataclass(frozen=True)
class Case:
    """A problem, a belief of whole weights, an output, and what plain Python has to say."""

    problem: Problem
    rows: tuple[World, ...]
    weights: list[list[int]]
    output: World

    @property
    def belief(self) -> Belief:
        return Belief.from_probs([torch.tensor(row, dtype=torch.float64) / sum(row) for row in self.weights])

    @property
    def observed(self) -> Tensor:
        return torch.tensor(self.output)

    def agrees(self, output: World) -> bool:
        return all(wanted in (-1, value) for wanted, value in zip(self.output, output, strict=True))

    def prior(self) -> dict[World, float]:
        """All worlds in lexicographic order, with their probability."""
        worlds = itertools.product(*(range(len(row)) for row in self.weights))
        return {
            world: math.prod(row[value] / sum(row) for row, value in zip(self.weights, world, strict=True))
            for world in worlds
        }

    def outputs(self) -> dict[World, float]:
        """All outputs that some world gives, with their probability."""
        found = dict.fromkeys(self.rows, 0.0)
        for output, p in zip(self.rows, self.prior().values(), strict=True):
            found[output] += p
        return found

    def explaining(self) -> dict[World, float]:
        """Worlds of positive probability that give the output, with their probability."""
        pairs = zip(self.rows, self.prior().items(), strict=True)
        return {world: p for output, (world, p) in pairs if p > 0 and self.agrees(output)}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Mixed domains, functions without any structure, beliefs with many zeros, partial and impossible outputs."""
    world = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    output = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = math.prod(world)
    row = st.tuples(*(st.integers(0, size - 1) for size in output))
    rows = tuple(draw(st.lists(row, min_size=count, max_size=count)))
    weights = [draw(st.lists(st.sampled_from([0, 1, 1, 2, 7]), min_size=n, max_size=n).filter(any)) for n in world]
    observed = tuple(draw(st.integers(-1, size - 1)) for size in output)
    return Case(Problem(world, output, Table(world, rows)), rows, weights, observed)


@given(cases())
@settings(deadline=None)
def test_log_prob_and_loss(case: Case) -> None:
    expected = math.fsum(case.explaining().values())
    reasoner = BruteForce(case.problem, impossible="inf")
    value = reasoner.log_prob(case.belief, case.observed)
    assert value.exp().item() == pytest.approx(expected, abs=1e-12)
    assert (value.item() == -INF) == (expected == 0)
    assert reasoner.loss(case.belief, case.observed).item() == -value.item()
    assert reasoner.possible(case.observed).item() == any(map(case.agrees, case.rows))


@given(cases())
@settings(deadline=None)
def test_joint_marginals_prediction_and_expectation(case: Case) -> None:
    expected = case.outputs()
    reasoner = BruteForce(case.problem)
    rows = [tuple(row) for row in reasoner.outputs.tolist()]
    assert rows == sorted(expected)
    joint = reasoner.joint(case.belief).exp().tolist()
    assert joint == pytest.approx([expected[row] for row in rows], abs=1e-12)
    marginals = reasoner.marginals(case.belief)
    assert marginals.sizes == case.problem.output
    for variable, size in enumerate(case.problem.output):
        plain = [math.fsum(p for row, p in expected.items() if row[variable] == value) for value in range(size)]
        assert marginals.probs[variable, :size].tolist() == pytest.approx(plain, abs=1e-12)
    Belief(marginals.log_probs, marginals.sizes)  # is a distribution
    assert expected[tuple(reasoner.predict(case.belief).tolist())] == pytest.approx(max(expected.values()))
    mean = reasoner.expectation(case.belief, lambda y: torch.stack([y.sum(-1), y[:, 0] ** 2], -1))
    plain_mean = [
        math.fsum(p * sum(y) for y, p in expected.items()),
        math.fsum(p * y[0] ** 2 for y, p in expected.items()),
    ]
    assert mean.tolist() == pytest.approx(plain_mean, abs=1e-12)


@given(cases(), st.integers(1, 80))
@settings(deadline=None)
def test_explanations(case: Case, k: int) -> None:
    explaining = case.explaining()
    total = math.fsum(explaining.values())
    worlds, scores = BruteForce(case.problem).explain(case.belief, case.observed, k)
    assert worlds.shape == (k, len(case.problem.world)) and scores.shape == (k,)
    found = min(k, len(explaining))
    best = [tuple(world) for world in worlds[:found].tolist()]
    assert len(set(best)) == found
    assert scores[:found].exp().tolist() == pytest.approx([explaining[world] / total for world in best])
    assert scores[:found].exp().tolist() == pytest.approx(
        sorted((p / total for p in explaining.values()), reverse=True)[:k]
    )
    assert (worlds[found:] == -1).all() and (scores[found:] == -INF).all()


@given(cases())
@settings(deadline=None)
def test_posterior_and_samples(case: Case) -> None:
    explaining = case.explaining()
    reasoner = BruteForce(case.problem)
    if not explaining:
        for query in (reasoner.posterior, reasoner.sample, reasoner.loss):
            with pytest.raises(ProblemError, match=r"the output is impossible: .*; correct it, or"):
                query(case.belief, case.observed)
        return
    total = math.fsum(explaining.values())
    posterior = reasoner.posterior(case.belief, case.observed)
    for variable, size in enumerate(case.problem.world):
        plain = [math.fsum(p for w, p in explaining.items() if w[variable] == value) / total for value in range(size)]
        assert posterior.probs[variable, :size].tolist() == pytest.approx(plain, abs=1e-12)
    Belief(posterior.log_probs, posterior.sizes)  # is a distribution
    samples = reasoner.sample(case.belief, case.observed, 20, generator=seeded())
    assert {tuple(world) for world in samples.tolist()} <= set(explaining)
    table = reasoner.world_log_probs(case.belief, case.observed).exp().tolist()
    assert table == pytest.approx([explaining.get(world, 0.0) for world in case.prior()], abs=1e-12)
    assert reasoner.world_log_probs(case.belief).exp().tolist() == pytest.approx(list(case.prior().values()), abs=1e-12)


def test_samples_follow_the_posterior() -> None:
    belief = Belief.from_logits(torch.randn(2, 10, generator=seeded()))
    reasoner, output, count = BruteForce(addition(1)), torch.tensor([0, 6]), 20_000
    samples = reasoner.sample(belief, output, count, generator=seeded(1))
    best = reasoner.explain(belief, output, k=7)
    for world, score in zip(best.worlds, best.scores, strict=True):
        p = score.exp().item()
        seen = int((samples == world).all(-1).sum())
        assert abs(seen - count * p) <= 5 * math.sqrt(count * p * (1 - p))


def test_ties_go_to_the_lexicographically_first() -> None:
    uniform = Belief.uniform((10, 10), dtype=torch.float64)
    best = BruteForce(addition(1)).explain(uniform, torch.tensor([0, 3]), k=4)
    assert best.worlds.tolist() == [[0, 3], [1, 2], [2, 1], [3, 0]]
    assert BruteForce(parity(3)).predict(Belief.uniform((2, 2, 2))).tolist() == [0]


def test_prediction_is_joint() -> None:
    """The most probable output need not be made of the most probable values."""
    problem = Problem((3,), (2, 2), Table((3,), ((0, 0), (1, 0), (0, 1))))
    belief = Belief.from_probs(torch.tensor([[0.2, 0.41, 0.39]]))
    reasoner = BruteForce(problem)
    assert reasoner.predict(belief).tolist() == [1, 0]
    assert reasoner.marginals(belief).mode().tolist() == [0, 0]


# --- gradients

MIXED = Problem((2, 3, 1, 4), (3, 2), lambda w: torch.stack([(w.sum(-1) * 2) % 3, w[..., 1] % 2], -1))
QUERIES: dict[str, Callable[[BruteForce, Belief, Tensor], Tensor]] = {
    "log_prob": lambda reasoner, belief, output: reasoner.log_prob(belief, output),
    "loss": lambda reasoner, belief, output: reasoner.loss(belief, output),
    "joint": lambda reasoner, belief, output: reasoner.joint(belief).exp(),
    "marginals": lambda reasoner, belief, output: reasoner.marginals(belief).probs,
    "posterior": lambda reasoner, belief, output: reasoner.posterior(belief, output).probs,
    "expectation": lambda reasoner, belief, output: reasoner.expectation(belief, lambda y: y.double().square()),
    "explain": lambda reasoner, belief, output: reasoner.explain(belief, output, 2).scores,
    "world_log_probs": lambda reasoner, belief, output: reasoner.world_log_probs(belief, output).exp(),
}


@pytest.mark.parametrize("query", QUERIES)
def test_gradients_by_gradcheck(query: str) -> None:
    reasoner = BruteForce(MIXED)
    output = MIXED(MIXED.random_worlds(3, generator=seeded()))
    output[0, 1] = -1
    parts = [torch.randn(3, n, dtype=torch.float64, requires_grad=True, generator=seeded(n)) for n in MIXED.world]

    def value(*logits: Tensor) -> Tensor:
        return QUERIES[query](reasoner, Belief.from_logits(list(logits)), output)

    assert torch.autograd.gradcheck(value, parts)
    assert torch.autograd.gradgradcheck(value, parts)


def test_gradient_of_log_prob_is_the_posterior() -> None:
    """∂ log p(y | P) / ∂ log P[i, d] = p(w_i = d | y, P)."""
    log_probs = torch.randn(5, 2, 10, dtype=torch.float64, generator=seeded()).log_softmax(-1).requires_grad_()
    belief, reasoner = Belief(log_probs), BruteForce(addition(1))
    output = torch.tensor([[0, 0], [1, 8], [0, 9], [1, -1], [-1, -1]])
    (gradient,) = torch.autograd.grad(reasoner.log_prob(belief, output).sum(), log_probs)
    torch.testing.assert_close(gradient, reasoner.posterior(belief, output).probs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("query", QUERIES)
def test_gradients_are_finite_at_the_corners(query: str, dtype: torch.dtype) -> None:
    """Beliefs of exactly 0 and 1, of subnormal probability, and huge logits; possible and impossible outputs."""
    tiny = torch.finfo(dtype).smallest_normal / 64
    corner = torch.zeros(2, 10, dtype=dtype)
    corner[0, 3], corner[1, 4], corner[1, 5] = 1.0, 1.0, tiny
    extreme = torch.full((2, 10), -1e4, dtype=dtype)
    extreme[:, 5] = 1e4
    reasoner = BruteForce(addition(1), impossible="finite")
    for output in ([0, 7], [0, 8], [1, 8], [1, 9], [-1, -1]):
        for source, build in (
            (corner, Belief.from_probs),
            (corner.log(), Belief.from_logits),
            (extreme, Belief.from_logits),
        ):
            x = source.clone().requires_grad_()
            try:
                result = QUERIES[query](reasoner, build(x), torch.tensor(output))
            except ProblemError as error:
                assert query == "posterior" and "impossible" in str(error)
                continue
            assert not result.isnan().any()
            (gradient,) = torch.autograd.grad(result[result.isfinite()].sum(), x)
            assert gradient.isfinite().all()


def test_probability_zero_with_a_floor_gets_its_true_gradient() -> None:
    """p(y) is linear in each P[i, d]; its derivative at 0 is the probability that the other digit completes the sum."""
    p = torch.zeros(2, 10, dtype=torch.float64)
    p[0, 3], p[1, 4], p[1, 5] = 1.0, 0.75, 0.25
    p.requires_grad_()
    belief = Belief.from_probs(p, eps=1e-12)
    (gradient,) = torch.autograd.grad(BruteForce(addition(1)).log_prob(belief, torch.tensor([0, 7])).exp(), p)
    assert gradient[0, 2].item() == pytest.approx(0.25) and gradient[0, 3].item() == pytest.approx(0.75)
    assert gradient[1, 4].item() == pytest.approx(1.0) and gradient[1, 6].item() == pytest.approx(0.0, abs=1e-9)


def test_tiny_probabilities_do_not_underflow() -> None:
    logits = torch.zeros(2, 10)
    logits[:, 0] = 400.0
    reasoner, belief, output = BruteForce(addition(1)), Belief.from_logits(logits), torch.tensor([1, 7])
    value = reasoner.log_prob(belief, output).item()
    assert value == pytest.approx(-800 + math.log(2), rel=1e-6), "far below the smallest float"
    assert {tuple(world) for world in reasoner.sample(belief, output, 50).tolist()} == {(8, 9), (9, 8)}
    halves = torch.full((2, 2), 0.5)
    torch.testing.assert_close(reasoner.posterior(belief, output).probs[:, 8:], halves, atol=1e-3, rtol=0)


# --- impossible outputs


def test_impossible_outputs() -> None:
    problem = addition(1)
    logits = torch.zeros(3, 2, 10, requires_grad=True)
    output = torch.tensor([[1, 9], [1, 8], [1, 9]])
    with pytest.raises(
        ProblemError, match=r"impossible outputs in rows \(0,\), \(2,\): no world gives \(1, 9\).*'finite'"
    ):
        BruteForce(problem).loss(Belief.from_logits(logits), output)
    for option, value in (("inf", INF), ("finite", -math.log(torch.finfo(torch.float32).tiny))):
        reasoner = BruteForce(problem, impossible=option)  # type: ignore[arg-type]
        loss = reasoner.loss(Belief.from_logits(logits), output)
        assert loss.tolist() == pytest.approx([value, math.log(100), value])
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        assert (gradient[[0, 2]] == 0).all() and gradient.isfinite().all() and gradient[1].abs().sum() > 0
    certain = Belief.from_probs(torch.eye(10)[[3, 4]])
    with pytest.raises(ProblemError, match=r"belief gives probability 0 to every world that gives \(0, 8\)"):
        BruteForce(problem).loss(certain, torch.tensor([0, 8]))
    with pytest.raises(ConfigError, match="impossible is 'ignore', expected 'raise', 'inf' or 'finite'"):
        BruteForce(problem, impossible="ignore")  # type: ignore[arg-type]


# --- batches and memory


@pytest.mark.parametrize("batch", [(), (0,), (1,), (7,), (2, 3), (3, 0), (2, 1, 2)])
def test_batch_shapes_agree_with_single_rows(batch: tuple[int, ...]) -> None:
    reasoner = BruteForce(MIXED)
    parts = [torch.randn(*batch, n, dtype=torch.float64) for n in MIXED.world]
    belief = Belief.from_logits(parts)
    output = MIXED(belief.sample(1)[0])
    value, best = reasoner.log_prob(belief, output), reasoner.explain(belief, output, 3)
    posterior, predicted = reasoner.posterior(belief, output), reasoner.predict(belief)
    assert value.shape == batch and reasoner.joint(belief).shape == (*batch, len(reasoner.outputs))
    assert best.worlds.shape == (*batch, 3, 4) and best.scores.shape == (*batch, 3)
    assert posterior.batch_shape == batch and reasoner.marginals(belief).batch_shape == batch
    assert predicted.shape == (*batch, 2) and reasoner.possible(output).shape == batch
    assert reasoner.expectation(belief, lambda y: y.double()).shape == (*batch, 2)
    assert reasoner.sample(belief, output, 5).shape == (5, *batch, 4)
    for place in itertools.product(*map(range, batch)):
        row, out = belief[place], output[place]
        torch.testing.assert_close(value[place], reasoner.log_prob(row, out))
        torch.testing.assert_close(posterior[place].log_probs, reasoner.posterior(row, out).log_probs)
        assert torch.equal(best.worlds[place], reasoner.explain(row, out, 3).worlds)
        assert torch.equal(predicted[place], reasoner.predict(row))


def test_one_output_for_all_rows() -> None:
    belief = Belief.from_logits(torch.randn(2, 3, 2, 10))
    reasoner, output = BruteForce(addition(1)), torch.tensor([1, -1])
    torch.testing.assert_close(reasoner.log_prob(belief, output), reasoner.log_prob(belief, output.expand(2, 3, 2)))


@pytest.mark.parametrize("query", QUERIES)
def test_parts_that_fit_in_memory_change_nothing(query: str) -> None:
    parts = [torch.randn(7, n, dtype=torch.float64, requires_grad=True, generator=seeded(n)) for n in MIXED.world]
    output = MIXED(MIXED.random_worlds(7, generator=seeded()))
    results = []
    for entries in (1 << 24, 3 * MIXED.num_worlds, 1):
        value = QUERIES[query](BruteForce(MIXED, max_entries=entries), Belief.from_logits(parts), output)
        first = torch.autograd.grad(value.square().sum(), parts, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), parts)
        results.append((value, *first, *second))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


def test_memory_for_the_backward_pass_is_bounded() -> None:
    def saved(entries: int) -> int:
        logits = torch.randn(64, 4, 10, requires_grad=True)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()), lambda x: x):  # type: ignore[no-any-return, func-returns-value]
            BruteForce(addition(2), max_entries=entries).log_prob(Belief.from_logits(logits), torch.tensor([1, -1, -1]))
        return sum(sizes)

    assert saved(64 * 10**4) >= 64 * 10**4
    assert saved(4 * 10**4) < 64 * 10**3


def test_too_many_worlds() -> None:
    with pytest.raises(
        ProblemError, match=r"has 100,000,000 worlds, more than max_worlds=1,048,576; raise max_worlds if"
    ):
        BruteForce(addition(4))
    with pytest.raises(ProblemError, match=r"about 10\^200 worlds.*exact inference over factors, or an approximate"):
        BruteForce(addition(100))
    assert BruteForce(parity(4), max_worlds=16).numbers.shape == (1, 16)


def test_outputs_with_more_joint_values_than_an_int64_holds() -> None:
    problem = Problem((3, 3), (2,) * 200, lambda w: (w.sum(-1, keepdim=True) > torch.arange(200) % 7).long())
    reasoner = BruteForce(problem)
    listed = sorted({tuple(row) for row in problem(problem.worlds()).tolist()})
    assert [tuple(row) for row in reasoner.outputs.tolist()] == listed
    assert torch.equal(reasoner.outputs[reasoner.numbers[0]], problem(problem.worlds()))


def test_bad_queries() -> None:
    reasoner, belief = BruteForce(addition(1)), Belief.uniform((10, 10))
    with pytest.raises(ProblemError, match="k is 0, expected at least 1"):
        reasoner.explain(belief, torch.tensor([0, 0]), k=0)
    for k in (2.5, "2", True, -1):
        with pytest.raises(ProblemError, match=f"k is {k!r}, expected at least 1, a whole number"):
            reasoner.explain(belief, torch.tensor([0, 0]), k=k)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"returned shape \(2,\) for outputs of shape \(19, 2\)"):
        reasoner.expectation(belief, lambda y: y.double().sum(0))
    with pytest.raises(ProblemError, match=r"output\[1\] is 10"):
        reasoner.possible(torch.tensor([0, 10]))
    with pytest.raises(ProblemError, match="belief is over domains"):
        reasoner.predict(Belief.uniform((10,)))


# --- an ordinary module


@pytest.mark.parametrize(
    "problem",
    [addition(1), multiplication(), comparison(1), parity(4), exactly_k(2, 4), majority(3), shortest_path(2, 2)],
)
def test_wears_the_face_of_a_reasoner(problem: Problem) -> None:
    reasoner = BruteForce(problem)
    assert isinstance(reasoner, Reasoner) and reasoner.exactness == "exact"
    assert list(reasoner.parameters()) == [] and reasoner.state_dict() == {}
    belief = Belief.from_logits([torch.randn(3, size) for size in problem.world])
    predicted = reasoner.predict(belief)
    explained = reasoner.explain(belief, predicted)
    assert torch.equal(problem(explained.worlds.squeeze(-2)), predicted)
    assert reasoner.loss(belief, predicted).shape == (3,)
    copy = pickle.loads(pickle.dumps(reasoner))
    assert torch.equal(copy.predict(belief), predicted)


def test_works_inside_transformations() -> None:
    reasoner = BruteForce(addition(1))
    logits = torch.randn(6, 2, 10, dtype=torch.float64)
    output = addition(1)(torch.randint(0, 10, (6, 2)))

    def value(row: Tensor, out: Tensor) -> Tensor:
        return reasoner.loss(Belief.from_logits(row), out)

    each = torch.func.vmap(torch.func.grad(value))(logits, output)
    logits.requires_grad_()
    (together,) = torch.autograd.grad(value(logits, output).sum(), logits)
    torch.testing.assert_close(each, together)
    compiled = torch.compile(value, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, output), value(logits, output))
