"""Problems from formulas: functions, counts and given atoms, against brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given as cases
from hypothesis import settings
from hypothesis import strategies as st

from doxa.errors import KnowledgeError, ProblemError
from doxa.exact import Compilation, ConstrainedLayer, Constraint, Enumeration, plan
from doxa.logic import And, Count, Expr, Iff, Or, propositions
from doxa.problem import Belief, BruteForce, Problem

ATOMS = propositions("a b c d e f g h")
A, B, C, D, E, F, G, H = ATOMS
WORLD, GIVEN = [[A], [B, C, D], [E]], [[F], [G, H]]


def formulas() -> st.SearchStrategy[Expr]:
    def more(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda p: p[0] & p[1]),
            pair.map(lambda p: p[0] | p[1]),
            pair.map(lambda p: p[0] >> p[1]),
            pair.map(lambda p: p[0] ^ p[1]),
            pair.map(lambda p: Iff(*p)),
            inner.map(lambda f: ~f),
            st.tuples(st.sampled_from(Count.KINDS), st.integers(0, 3), st.lists(inner, min_size=1, max_size=3)).map(
                lambda t: Count(*t)
            ),
        )

    return st.recursive(st.sampled_from(ATOMS), more, max_leaves=8)


def clauses() -> st.SearchStrategy[Expr]:
    literal = st.tuples(st.sampled_from(ATOMS), st.booleans()).map(lambda t: t[0] if t[1] else ~t[0])
    clause = st.lists(literal, min_size=1, max_size=3).map(lambda parts: Or(*parts) if len(parts) > 1 else parts[0])
    return st.lists(clause, min_size=2, max_size=6).map(lambda parts: And(*parts))


@settings(deadline=None, max_examples=60)
@cases(formula=formulas() | clauses(), native=st.booleans(), seed=st.integers(0, 5))
def test_every_query_against_brute_force(formula: Expr, native: bool, seed: int) -> None:
    problem = Problem.from_formula(formula, WORLD, given=GIVEN)
    assert problem.check().exhaustive
    generator = torch.Generator().manual_seed(seed)
    logits = [torch.randn(4, n, dtype=torch.float64, generator=generator) for n in problem.world]
    belief = Belief.from_logits(logits)
    given = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    output = torch.tensor([[1], [0], [-1], [1]])
    oracle = BruteForce(problem)
    expected = oracle.log_prob(belief, output, given=given)
    for reasoner in (
        Compilation(problem, native=None if native else False, cache=False, impossible="inf"),
        Enumeration(problem, impossible="inf"),
    ):
        torch.testing.assert_close(reasoner.log_prob(belief, output, given=given), expected)
        for value in (0, 1):
            one = torch.tensor([value])
            torch.testing.assert_close(
                reasoner.log_prob(belief, one, given=given), oracle.log_prob(belief, one, given=given)
            )
        marginals = oracle.marginals(belief, given=given)
        torch.testing.assert_close(reasoner.marginals(belief, given=given).probs, marginals.probs)
        best = oracle.explain(belief, output, 3, given=given)
        torch.testing.assert_close(reasoner.explain(belief, output, 3, given=given).scores, best.scores)
        possible = expected > -math.inf
        if possible.any():
            rows = belief[possible], output[possible]
            posterior = reasoner.posterior(*rows, given=given[possible])
            torch.testing.assert_close(posterior.probs, oracle.posterior(*rows, given=given[possible]).probs)
            drawn = reasoner.sample(*rows, 5, given=given[possible])
            fits = (problem(drawn, given[possible]) == rows[1]) | (rows[1] < 0)
            assert fits.all()


@settings(deadline=None, max_examples=30)
@cases(formula=formulas() | clauses())
def test_derivatives_against_brute_force(formula: Expr) -> None:
    problem = Problem.from_formula(formula, WORLD, given=GIVEN)
    given, output = torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1], [0]])
    found = []
    engines = [Compilation(problem, cache=False, native=native) for native in (None, False)]
    for reasoner in (*engines, BruteForce(problem)):
        logits = torch.linspace(-1, 1, 18, dtype=torch.float64).reshape(2, 3, 3).requires_grad_()
        belief = Belief.from_logits([logits[:, i, :n] for i, n in enumerate(problem.world)])
        value = reasoner.log_prob(belief, output, given=given)
        (first,) = torch.autograd.grad(value.sum(), logits, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum() + 0 * logits.sum(), logits)
        found.append((value, first, second))
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[2])


def test_the_complement_of_what_is_nearly_certain() -> None:
    rule = Constraint(A | B)
    for dtype in (torch.float32, torch.float64):
        low = torch.tensor([1e-5, 1e-5], dtype=dtype).log()
        belief = Belief(torch.stack([low, torch.log1p(-low.exp())], -1), validate=False)
        assert rule.log_prob(belief, torch.tensor([0])).item() == pytest.approx(2 * math.log(1e-5), rel=1e-6)
        assert rule.marginals(belief).log_probs[0, 0].item() == pytest.approx(2 * math.log(1e-5), rel=1e-5)
        mixed = ConstrainedLayer(rule, target=0.9)(belief)
        torch.testing.assert_close(mixed.probs[:, 0], torch.full((2,), 0.1, dtype=dtype), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tautology", [A | ~A, (A & B) >> A, Or(A, B, ~(A | B))])
def test_the_complement_of_what_is_certain_is_impossible(tautology: Expr) -> None:
    rule = Constraint(tautology)
    belief = Belief.uniform(rule.problem.world)
    assert rule.log_prob(belief, torch.tensor([0])) == -math.inf
    assert not rule.possible(torch.tensor([0]))
    with pytest.raises(ProblemError, match="no world gives"):
        rule.loss(belief, torch.tensor([0]))
    with pytest.raises(ProblemError, match="no world gives"):
        ConstrainedLayer(rule, target=0.9)(belief)


def test_given_atoms_of_knowledge() -> None:
    rule = Constraint((A >> B) & (C | A), given=[A])
    assert [str(atoms[0]) for atoms in rule.variables] == ["b", "c"]
    belief = Belief.from_bernoulli(probs=torch.tensor([0.3, 0.6]))
    torch.testing.assert_close(rule.probability(belief, given=torch.tensor([1])), torch.tensor(0.3))
    torch.testing.assert_close(rule.probability(belief, given=torch.tensor([0])), torch.tensor(0.6))
    layer = ConstrainedLayer(rule)
    assert layer.decode(belief, given=torch.tensor([1])).worlds.tolist() == [1, 1]
    with pytest.raises(KnowledgeError, match="the knowledge has no atom h"):
        Constraint(A & B, given=[H])
    with pytest.raises(KnowledgeError, match=r"no atom a, which was said to be given; .* doxa.logic.Call\('a'\)"):
        Constraint(A & B, given=["a"])  # type: ignore[list-item]


def test_atoms_that_are_missing_or_twice() -> None:
    with pytest.raises(KnowledgeError, match="the variables lack b of the formula; expected every atom once"):
        Problem.from_formula(A & B, [[A]])
    with pytest.raises(KnowledgeError, match="expected every atom once"):
        Problem.from_formula(A & B, [[A], [B]], given=[[A]])
    named = Problem.from_formula(A & B, [[A]], given=[[B]], names=("rain", "ok", "wet"))
    assert named.describe(torch.tensor([1]), torch.tensor([0])) == "(rain=1) given (wet=0)"


def test_many_labels_are_compiled_and_few_are_listed() -> None:
    atoms = propositions(" ".join(f"x{i}" for i in range(30)))
    rules = And(*[~p | q for p, q in pairwise(atoms)])
    made = plan(Problem.from_formula(rules, [[x] for x in atoms]))
    assert isinstance(made.reasoner, Compilation)
    assert made.reasoner.log_prob(Belief.uniform((2,) * 30), torch.tensor([1])).item() == pytest.approx(
        math.log(31 / 2**30), rel=1e-6
    )
    assert isinstance(plan(Problem.from_formula(A & B, [[A], [B]])).reasoner, Enumeration)
