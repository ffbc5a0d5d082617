"""Every query of every engine against brute force."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from exact_cases import ENGINES, Case, cases, random_belief, seeded
from hypothesis import given, settings
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.exact import Elimination, Enumeration, ExactReasoner, condition
from doxa.problem import (
    Belief,
    BruteForce,
    Budget,
    Problem,
    Reasoner,
    addition,
    comparison,
    exactly_k,
    majority,
    parity,
    remainder,
    shortest_path,
)

Engine = Callable[..., ExactReasoner]
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
LIBRARY = {
    "addition": addition(2, base=4),
    "comparison": comparison(2, base=3),
    "remainder": remainder(5, 3, base=4),
    "exactly": exactly_k(2, 5),
    "majority": majority(5),
    "parity": parity(6),
}


def close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def possible(case: Case) -> tuple[Belief, Tensor, Tensor | None] | None:
    """The rows of a case whose output is possible."""
    rows = BruteForce(case.problem).log_prob(case.belief, case.output, given=case.given) > -math.inf
    seen = None if case.given is None else case.given[rows]
    return (case.belief[rows], case.output[rows], seen) if rows.any() else None


@engines
@settings(deadline=None, max_examples=20)
@given(case=cases())
def test_log_prob_marginals_and_loss(engine: Engine, case: Case) -> None:
    oracle, reasoner = BruteForce(case.problem), engine(case.problem, impossible="inf")
    assert isinstance(reasoner, Reasoner)
    expected = oracle.log_prob(case.belief, case.output, given=case.given)
    value = reasoner.log_prob(case.belief, case.output, given=case.given)
    close(value, expected)
    assert torch.equal(reasoner.loss(case.belief, case.output, given=case.given), -value)
    marginals = reasoner.marginals(case.belief, given=case.given)
    close(marginals.probs, oracle.marginals(case.belief, given=case.given).probs)
    assert torch.equal(reasoner.possible(case.output, given=case.given), oracle.possible(case.output, given=case.given))
    finite = engine(case.problem, impossible="finite").loss(case.belief, case.output, given=case.given)
    assert finite.isfinite().all()
    if (value == -math.inf).any():
        row = int((value == -math.inf).nonzero()[0])
        with pytest.raises(ProblemError, match=rf"impossible outputs in rows \({row},\)"):
            engine(case.problem).loss(case.belief, case.output, given=case.given)


@engines
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_posterior_entropy_and_divergence(engine: Engine, case: Case) -> None:
    rows = possible(case)
    if rows is None:
        return
    belief, output, seen = rows
    oracle, reasoner = BruteForce(case.problem), engine(case.problem)
    close(reasoner.posterior(belief, output, given=seen).probs, oracle.posterior(belief, output, given=seen).probs)
    joint = oracle.world_log_probs(belief, output, given=seen)
    total = joint.logsumexp(-1, keepdim=True)
    worlds = (joint - total).exp()
    log = torch.where(worlds > 0, joint - total, 0.0)
    close(reasoner.entropy(belief, output, given=seen), -(worlds * log).sum(-1))
    other = random_belief(case.problem, len(output), seed=5)
    prior = oracle.world_log_probs(other, given=seen)
    close(reasoner.kl(belief, output, other, given=seen), (worlds * (log - prior)).sum(-1))
    close(reasoner.kl(belief, output, belief, given=seen), -total.squeeze(-1))
    conditioned = oracle.world_log_probs(other, output, given=seen)
    both = torch.where(worlds > 0, conditioned - conditioned.logsumexp(-1, keepdim=True), 0.0)
    close(reasoner.kl(belief, output, other, given=seen, posterior=True), (worlds * (log - both)).sum(-1))


@engines
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_explanations(engine: Engine, case: Case) -> None:
    expected = BruteForce(case.problem).explain(case.belief, case.output, k=4, given=case.given)
    found = engine(case.problem).explain(case.belief, case.output, k=4, given=case.given)
    close(found.scores, expected.scores)
    for row, (worlds, scores) in enumerate(zip(found.worlds, found.scores, strict=True)):
        real = worlds[scores > -math.inf]
        assert (worlds[scores == -math.inf] == -1).all()
        assert len({tuple(world) for world in real.tolist()}) == len(real)
        outputs = case.problem(real, None if case.given is None else case.given[row])
        wanted = case.output[row]
        assert ((outputs == wanted) | (wanted < 0)).all()


@engines
@pytest.mark.parametrize("rows", [4, 1000])
@pytest.mark.parametrize("k", [1, 2])
def test_scores_of_explanations_are_differentiable(engine: Engine, rows: int, k: int) -> None:
    """Of log p(w | y, P) with respect to logits: which values w has, less the posterior; in parts and at once."""
    problem = addition(1, base=4)
    logits = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    belief, output = Belief.from_logits(logits), problem(torch.tensor([[1, 2], [0, 3], [2, 2], [3, 2], [1, 1]]))
    reasoner = engine(problem)
    reasoner._rows_at_once = rows
    found = reasoner.explain(belief, output, k)
    (slopes,) = torch.autograd.grad(found.scores.sum(), logits)
    with torch.no_grad():
        chosen = torch.nn.functional.one_hot(found.worlds, 4).sum(1)
        close(slopes, chosen - k * BruteForce(problem).posterior(belief, output).probs)
        close(found.scores, BruteForce(problem).explain(belief, output, k).scores)
        assert torch.equal(found.worlds, reasoner.explain(belief, output, k).worlds)


@engines
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_prediction_is_the_best_output_when_it_says_so(engine: Engine, case: Case) -> None:
    oracle, reasoner = BruteForce(case.problem), engine(case.problem)
    best = oracle.joint(case.belief, given=case.given).amax(-1)
    for width in (1, 3, 30):
        output, proven = reasoner.most_probable(case.belief, given=case.given, width=width)
        value = oracle.log_prob(case.belief, output, given=case.given)
        close(value[proven], best[proven])
        assert width < 30 or proven.all()  # at most 27 outputs
    assert torch.equal(reasoner.predict(case.belief, given=case.given, width=30), output)


@engines
@settings(deadline=None, max_examples=10)
@given(case=cases())
def test_expectation(engine: Engine, case: Case) -> None:
    problem = case.problem
    table = torch.randn(2, len(problem.output), max(problem.output), generator=seeded(), dtype=torch.float64)

    def function(outputs: Tensor) -> Tensor:
        columns = [table[:, j, outputs[:, j]] for j in range(len(problem.output))]
        return torch.stack(columns).sum(0).T

    expected = BruteForce(problem).expectation(case.belief, function, given=case.given)
    close(engine(problem).expectation(case.belief, function, given=case.given), expected)
    close(engine(problem).expectation(case.belief, table, given=case.given), expected)


@engines
@pytest.mark.parametrize("problem", LIBRARY.values(), ids=LIBRARY)
def test_samples_have_the_posterior_frequencies(engine: Engine, problem: Problem) -> None:
    belief = random_belief(problem, 2)
    output = problem(belief.mode())
    count = 4000
    worlds = engine(problem).sample(belief, output, count, generator=seeded())
    assert worlds.shape == (count, 2, len(problem.world))
    assert (problem(worlds) == output).all()
    probs = BruteForce(problem).world_log_probs(belief, output).softmax(-1)
    weights = torch.tensor([math.prod(problem.world[i + 1 :]) for i in range(len(problem.world))])
    for row in range(2):
        seen = torch.bincount((worlds[:, row] * weights).sum(-1), minlength=problem.num_worlds) / count
        error = (probs[row] * (1 - probs[row]) / count).sqrt()
        assert ((seen - probs[row]).abs() <= 5 * error + 2 / count).all()


@engines
@pytest.mark.parametrize("problem", LIBRARY.values(), ids=LIBRARY)
def test_library(engine: Engine, problem: Problem) -> None:
    oracle, reasoner = BruteForce(problem), engine(problem)
    belief = random_belief(problem, 3, 2)
    output = problem(problem.random_worlds(6, generator=seeded())).reshape(3, 2, -1)
    close(reasoner.log_prob(belief, output), oracle.log_prob(belief, output))
    close(reasoner.log_prob(belief[0, 0], output[0, 0]), oracle.log_prob(belief[0, 0], output[0, 0]))
    close(reasoner.posterior(belief, output).probs, oracle.posterior(belief, output).probs)
    close(reasoner.marginals(belief, output).probs[..., 0, :].sum(-1), torch.ones(3, 2, dtype=torch.float64))


@engines
def test_evidence_on_the_world(engine: Engine) -> None:
    problem = addition(2, base=3)
    belief = random_belief(problem, 4)
    known = torch.tensor([[2, -1, -1, -1], [-1, 1, -1, 0], [-1, -1, -1, -1], [0, 0, 0, 0]])
    output = torch.tensor([1, -1, 1])
    joint = BruteForce(problem).world_log_probs(belief, output)
    prior = BruteForce(problem).world_log_probs(belief)
    fits = ((problem.worlds() == known.unsqueeze(1)) | (known.unsqueeze(1) < 0)).all(-1)
    expected = joint.masked_fill(~fits, -math.inf).logsumexp(-1) - prior.masked_fill(~fits, -math.inf).logsumexp(-1)
    reasoner = engine(problem)
    close(reasoner.log_prob(condition(belief, known), output), expected)
    mask = torch.ones(4, 3, dtype=torch.bool)
    mask[1, 2] = False
    close(reasoner.marginals(condition(belief, mask)).probs.sum(-1), torch.ones(4, 3, dtype=torch.float64))


def test_evidence_that_is_wrong_is_refused() -> None:
    belief = Belief.from_probs(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    with pytest.raises(ProblemError, match=r"variable 0 has probability 0"):
        condition(belief, torch.tensor([1, -1]))
    with pytest.raises(ProblemError, match=r"evidence has dtype torch.float32 and shape \(2,\), expected int64"):
        condition(belief, torch.tensor([1.0, 0.0]))
    with pytest.raises(ProblemError, match=r"expected values within \(2, 2\)"):
        condition(belief, torch.tensor([2, 0]))


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="impossible is 'ignore', expected"):
        Enumeration(addition(1), impossible="ignore")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"about 10\^30 worlds, more than 16,384; raise Budget\(worlds=...\)"):
        Enumeration(addition(15))
    with pytest.raises(ProblemError, match="no factors"):
        Elimination(Problem((2,), (2,), lambda worlds: worlds))
    with pytest.raises(ProblemError, match=r"table of .* entries, more than 16: .*entangled. Raise Budget\(join=...\)"):
        Elimination(exactly_k(5, 10), budget=Budget(join=16))
    reasoner = Elimination(addition(15))
    with pytest.raises(ProblemError, match="more than max_outputs=4,096; give the function as a tensor"):
        reasoner.expectation(Belief.uniform((10,) * 30), lambda y: y[:, 0])
    with pytest.raises(ProblemError, match=r"expected \(..., 16, 10\)"):
        reasoner.expectation(Belief.uniform((10,) * 30), torch.zeros(3))
    with pytest.raises(ProblemError, match="k is 0, expected at least 1"):
        reasoner.explain(Belief.uniform((10,) * 30), torch.zeros(16).long(), k=0)
    for k in (2.5, "2", True, -1):
        with pytest.raises(ProblemError, match=f"k is {k!r}, expected at least 1, a whole number"):
            reasoner.explain(Belief.uniform((10,) * 30), torch.zeros(16).long(), k=k)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="width is 0, expected at least 1"):
        reasoner.predict(Belief.uniform((10,) * 30), width=0)


def test_shortest_path_needs_an_engine_without_factors() -> None:
    problem = shortest_path(2, 2, (1, 2))
    belief = random_belief(problem, 3)
    output = problem(belief.mode())
    close(Enumeration(problem).log_prob(belief, output), BruteForce(problem).log_prob(belief, output))
