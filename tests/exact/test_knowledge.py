"""Knowledge: probabilities, projections and explanations against enumeration of all worlds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact import ConstrainedLayer, Constraint, Elimination, counterfactual, describe
from doxa.logic import (
    CNF,
    Count,
    Expr,
    Function,
    Iff,
    Sort,
    all_models,
    forall,
    propositions,
    to_cnf,
    variables,
    within,
)
from doxa.logic.syntax._simplify import evaluate
from doxa.problem import Belief, BruteForce, Problem, addition, exactly_k

ATOMS = propositions("a b c d e")
HOLDS, FAILS = torch.tensor([1]), torch.tensor([0])


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


def random_belief(constraint: Constraint, rows: int = 3, seed: int = 0) -> Belief:
    generator = torch.Generator().manual_seed(seed)
    logits = [torch.randn(rows, n, dtype=torch.float64, generator=generator) for n in constraint.problem.world]
    return Belief.from_logits(logits)


def world_probs(constraint: Constraint, belief: Belief) -> tuple[Tensor, Tensor]:
    """p(w | P) of all worlds, and in which of them the formula is true, without any circuit."""
    worlds = constraint.problem.worlds()
    probs = torch.stack([belief.log_prob(w.expand(*belief.batch_shape, -1)) for w in worlds], -1).exp()
    truth = []
    for world in worlds:
        true = set(constraint.true_atoms(world))
        truth.append(
            bool(evaluate(constraint.formula, {x: x in true for atoms in constraint.variables for x in atoms}))
        )
    return probs, torch.tensor(truth)


@settings(deadline=None, max_examples=20)
@given(formula=formulas())
def test_probability_posterior_and_entropy(formula: Expr) -> None:
    constraint = Constraint(formula, cache=False, impossible="inf")
    belief = random_belief(constraint)
    probs, truth = world_probs(constraint, belief)
    assert constraint.models == int(truth.sum()) == len(list(all_models(formula)))
    expected = (probs * truth).sum(-1)
    torch.testing.assert_close(constraint.probability(belief), expected)
    torch.testing.assert_close(constraint.semantic_loss(belief), -expected.log())
    failing = constraint.log_prob(belief, FAILS).exp()
    torch.testing.assert_close(failing, (probs * ~truth).sum(-1))
    oracle = BruteForce(constraint.problem)
    torch.testing.assert_close(constraint.marginals(belief).probs, oracle.marginals(belief).probs)
    for output, mask in ((HOLDS, truth), (FAILS, ~truth)):
        if mask.any():
            torch.testing.assert_close(
                constraint.posterior(belief, output).probs, oracle.posterior(belief, output).probs
            )
            torch.testing.assert_close(
                constraint.explain(belief, output, 3).scores, oracle.explain(belief, output, 3).scores
            )
            q = torch.where(mask, probs, 0.0)
            q = q / q.sum(-1, keepdim=True)
            torch.testing.assert_close(constraint.entropy(belief, output), -(torch.special.xlogy(q, q)).sum(-1))
            samples = constraint.sample(belief, output, 5)
            assert (constraint.problem(samples) == output).all()


@settings(deadline=None, max_examples=15)
@given(formula=formulas(), target=st.sampled_from([1.0, 0.7, 0.2]))
def test_projection_is_the_nearest_distribution(formula: Expr, target: float) -> None:
    constraint = Constraint(formula, cache=False)
    belief = random_belief(constraint, rows=2)
    probs, truth = world_probs(constraint, belief)
    if not truth.any() or (target < 1 and truth.all()):
        return
    layer = ConstrainedLayer(constraint, target=target)
    worlds = constraint.problem.worlds()
    log_q = torch.stack([layer.log_prob(belief, w.expand(2, -1)) for w in worlds], -1)
    q = log_q.exp()
    torch.testing.assert_close(q.sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close((q * truth).sum(-1), torch.full((2,), target, dtype=torch.float64))

    def divergence(x: Tensor) -> Tensor:
        return (torch.special.xlogy(x, x) - torch.special.xlogy(x, probs)).sum(-1)

    # No other distribution that meets the target is nearer.
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        noise = torch.rand(probs.shape, dtype=torch.float64, generator=generator) + 0.01
        held = torch.where(truth, q * noise, 0.0)
        broken = torch.where(truth, 0.0, q * noise)
        other = target * held / held.sum(-1, keepdim=True)
        if target < 1:
            other = other + (1 - target) * broken / broken.sum(-1, keepdim=True)
        assert (divergence(other) >= divergence(q) - 1e-12).all()
    marginals = layer(belief).probs
    for i, size in enumerate(constraint.problem.world):
        for value in range(size):
            expected = (q * (worlds[:, i] == value)).sum(-1)
            torch.testing.assert_close(marginals[:, i, value], expected)


@settings(deadline=None, max_examples=15)
@given(formula=formulas())
def test_answers_come_with_a_certificate(formula: Expr) -> None:
    constraint = Constraint(formula, cache=False)
    belief = random_belief(constraint, rows=2)
    probs, truth = world_probs(constraint, belief)
    layer = ConstrainedLayer(constraint)
    if not truth.any():
        with pytest.raises(ProblemError, match=r"impossible outputs in rows \(0,\), \(1,\): no world gives"):
            layer.decode(belief)
        return
    best = layer.decode(belief)
    assert best.valid.all()
    torch.testing.assert_close(best.log_probs.exp(), (probs * truth).amax(-1) / (probs * truth).sum(-1))
    drawn = layer.sample(belief, 4)
    assert drawn.valid.all()
    assert drawn.log_probs.shape == (4, 2)


def test_derivatives_of_the_layer() -> None:
    a, b, c, _, _ = ATOMS
    constraint = Constraint((a >> b) & (b | c), cache=False)
    layer = ConstrainedLayer(constraint, target=0.8)
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    for query in (
        lambda x: layer(Belief.from_bernoulli(logits=x)).probs,
        lambda x: layer.entropy(Belief.from_bernoulli(logits=x)),
        lambda x: constraint.semantic_loss(Belief.from_bernoulli(logits=x)),
        lambda x: constraint.log_prob(Belief.from_bernoulli(logits=x), FAILS),
    ):
        assert torch.autograd.gradcheck(query, logits, fast_mode=True)
        assert torch.autograd.gradgradcheck(query, logits, fast_mode=True)


def test_shared_atoms_are_counted_once() -> None:
    """Errata 2.19: P ∧ P is .6, not .36; P → P is certain, not .76."""
    (p,) = propositions("p")
    belief = Belief.from_bernoulli(probs=torch.tensor([0.6]))
    assert Constraint(p & p).probability(belief).item() == pytest.approx(0.6)
    certain = Constraint(p >> p, impossible="finite")
    assert certain.probability(belief).item() == pytest.approx(1.0)
    assert certain.log_prob(belief, FAILS).item() == -math.inf
    assert certain.loss(belief, FAILS).isfinite()


def test_functions_are_variables_with_many_values() -> None:
    digit = Function("digit", (Sort("Image"),), Sort.range("Digit", 0, 9))
    (p,) = variables("p")
    rule = forall(within("pairs", p))((digit(p.field("left")) + digit(p.field("right"))).eq(p.field("sum")))
    one = Constraint(rule, domains={"pairs": [{"left": "x", "right": "y", "sum": 13}]}, cache=False)
    assert one.problem.world == (10, 10)
    assert one.problem.names == ("digit(x)", "digit(y)", "holds")
    logits = torch.randn(4, 2, 10, dtype=torch.float64)
    expected = BruteForce(addition(1)).log_prob(Belief.from_logits(logits), torch.tensor([1, 3]))
    torch.testing.assert_close(one.log_prob(Belief.from_logits(logits), HOLDS), expected)
    # Two rows that share an image: the image is one variable.
    rows = [{"left": "x", "right": "y", "sum": 13}, {"left": "y", "right": "z", "sum": 9}]
    two = Constraint(rule, domains={"pairs": rows}, cache=False)
    assert two.problem.world == (10, 10, 10)
    probs = torch.randn(3, 10, dtype=torch.float64).softmax(-1)
    x, y, z = probs
    expected = sum(x[i] * y[13 - i] * z[9 - (13 - i)] for i in range(4, 10))
    assert two.probability(Belief.from_probs(probs)).item() == pytest.approx(float(expected))


def test_clauses_and_atoms_by_name() -> None:
    a, b, *_ = ATOMS
    clauses = CNF.from_clauses([(1, 2)], [a, b])
    constraint = Constraint(clauses, cache=False)
    belief = constraint.belief({a: torch.tensor(0.5), b: torch.tensor(0.2)})
    assert constraint.probability(belief).item() == pytest.approx(0.6)
    assert constraint.true_atoms(constraint.world([b])) == (b,)
    with pytest.raises(KnowledgeError, match="lacks b and has c"):
        constraint.belief({a: torch.tensor(0.5), ATOMS[2]: torch.tensor(0.5)})
    half = torch.tensor(0.5)
    wrong: list[tuple[Any, str]] = [
        ({"a": half, "b": half}, "the keys are atoms, not strings"),
        ({a: half, b: "half"}, "the probability of b is a str, expected a number or a tensor"),
        ({a: half, b: None}, "the probability of b is a NoneType"),
        ([0.5, 0.5, 0.5], "a list came, expected a dict with one probability for each atom"),
    ]
    for probs, said in wrong:
        with pytest.raises(KnowledgeError, match=said):
            constraint.belief(probs)
    with pytest.raises(KnowledgeError, match=r"no atom c; it has a, b"):
        constraint.world([ATOMS[2]])
    with pytest.raises(KnowledgeError, match="auxiliary variables"):
        Constraint(to_cnf(a & b | ~a & ~b))
    with pytest.raises(ConfigError, match=r"target is 0\.0"):
        ConstrainedLayer(constraint, target=0.0)


@pytest.mark.parametrize("problem", [addition(2, base=3), exactly_k(2, 4)], ids=["addition", "exactly"])
def test_counterfactual_finds_the_smallest_change(problem: Problem) -> None:
    reasoner = Elimination(problem)
    worlds, every = problem.worlds(), problem.worlds()
    outputs = problem(every)
    wanted = outputs[-1]
    found = counterfactual(reasoner, worlds, wanted)
    distance = (worlds.unsqueeze(1) != every).sum(-1)
    assert torch.equal(found.changes, distance.masked_fill((outputs != wanted).any(-1), 99).amin(-1))
    assert (problem(found.worlds) == wanted).all()
    other = counterfactual(reasoner, worlds)
    different = (outputs.unsqueeze(1) != outputs).any(-1)
    assert torch.equal(other.changes, distance.masked_fill(~different, 99).amin(-1))
    assert torch.equal(other.outputs, problem(other.worlds))
    assert (other.outputs != outputs).any(-1).all()


def test_counterfactual_prefers_the_probable_and_admits_defeat() -> None:
    reasoner = Elimination(addition(1))
    probs = torch.full((2, 10), 0.05)
    probs[1, 9] += 0.5
    belief = Belief.from_probs(probs / probs.sum(-1, keepdim=True))
    assert counterfactual(reasoner, torch.tensor([5, 8]), torch.tensor([1, 4]), belief).worlds.tolist() == [5, 9]
    never = counterfactual(reasoner, torch.tensor([5, 8]), torch.tensor([1, 9]))
    assert (never.changes.item(), never.worlds.tolist()) == (-1, [-1, -1])


def test_describe() -> None:
    left, right = torch.zeros(10), torch.zeros(10)
    left[4], left[5], right[8], right[9] = 0.4, 0.6, 0.5, 0.5
    belief = Belief.from_probs([left, right])
    reasoner = Elimination(addition(1))
    assert describe(reasoner, belief, torch.tensor([1, 3])) == "60.0 %  (a0=5, b0=8)\n40.0 %  (a0=4, b0=9)"
    assert describe(reasoner, belief, torch.tensor([0, 1])).startswith("no world")
    with pytest.raises(ProblemError, match="one belief"):
        describe(reasoner, Belief.uniform((10, 10), batch=(2,)), torch.tensor([0, 1]))


def test_what_is_no_knowledge_and_no_belief_is_refused() -> None:
    for wrong, said in (
        ("a | b", r"is a str, expected .*; say doxa\.parse"),
        (3, "is a int, expected"),
        (None, "NoneType"),
    ):
        with pytest.raises(KnowledgeError, match=said):
            Constraint(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="constraint is a str, expected a Constraint"):
        ConstrainedLayer("a | b")  # type: ignore[arg-type]
    a, b = propositions("a b")
    rule = Constraint(a | b)
    layer, one = ConstrainedLayer(rule), torch.ones(1, dtype=torch.int64)
    for belief in (torch.rand(3, 2), [0.1, 0.2], None):
        for ask in (
            rule.probability,
            rule.semantic_loss,
            layer,
            layer.decode,
            layer.sample,
            layer.entropy,
            lambda belief: layer.log_prob(belief, torch.ones(2, dtype=torch.int64)),
            lambda belief: rule.posterior(belief, one),
            lambda belief: rule.explain(belief, one),
            lambda belief: rule.log_prob(belief, one),
        ):
            with pytest.raises(
                ProblemError, match=f"is a {type(belief).__name__}, expected a Belief or a Mixture; say"
            ):
                ask(belief)
