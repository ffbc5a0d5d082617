"""Every question about a mixture of beliefs, of every engine, against sums over all worlds."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from exact_cases import ENGINES, MixtureCase, mixture_cases, random_belief, seeded
from hypothesis import given, settings
from torch import Tensor

from doxa.amortized import AmortizedReasoner
from doxa.errors import ProblemError
from doxa.exact import (
    ConstrainedLayer,
    Constraint,
    Elimination,
    Enumeration,
    ExactReasoner,
    condition,
    counterfactual,
    describe,
)
from doxa.logic import propositions
from doxa.problem import Belief, BruteForce, Budget, Mixture, Problem, addition, cnf, majority, parity

Engine = Callable[..., ExactReasoner | BruteForce]
exact = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
engines = pytest.mark.parametrize("engine", [*ENGINES.values(), BruteForce], ids=[*ENGINES, "brute force"])


def close(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def random_mixture(
    problem: Problem, *batch: int, parts: int = 3, sharp: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Mixture:
    components = random_belief(problem, *batch, parts, seed=seed, dtype=dtype)
    sharper = Belief.from_logits(sharp * components.log_probs, components.sizes)
    weights = torch.randn(*batch, parts, generator=seeded(seed + 99), dtype=dtype)
    return Mixture(sharper, weights.log_softmax(-1))


def entropy(table: Tensor) -> Tensor:
    """Of unnormalised weights of worlds, on the last axis."""
    return torch.special.entr(table / table.sum(-1, keepdim=True)).sum(-1)


@engines
@settings(deadline=None, max_examples=20)
@given(case=mixture_cases())
def test_log_prob_loss_and_marginals(engine: Engine, case: MixtureCase) -> None:
    reasoner, table = engine(case.problem, impossible="inf"), case.table()
    value = reasoner.log_prob(case.mixture, case.output, given=case.given)
    close(value.exp(), table.sum(-1))
    assert torch.equal(value == -math.inf, table.sum(-1) == 0)
    assert torch.equal(reasoner.loss(case.mixture, case.output, given=case.given), -value)
    free = MixtureCase(case.problem, case.mixture, torch.full_like(case.output, -1), case.given).table()
    marginals = reasoner.marginals(case.mixture, given=case.given)
    expected = torch.zeros_like(marginals.probs)
    worlds = case.problem.worlds()
    for row in range(len(free)):
        seen = None if case.given is None else case.given[row].expand(len(worlds), -1)
        for j, column in enumerate(case.problem(worlds, seen).unbind(-1)):
            expected[row, j].scatter_add_(0, column, free[row])
    close(marginals.probs, expected)
    predicted = reasoner.predict(case.mixture, given=case.given)
    reached = reasoner.log_prob(case.mixture, predicted, given=case.given)
    outputs = torch.cartesian_prod(*(torch.arange(n) for n in case.problem.output)).reshape(
        -1, len(case.problem.output)
    )
    every = [reasoner.log_prob(case.mixture, y, given=case.given) for y in outputs]
    close(reached, torch.stack(every).amax(0))
    mean = reasoner.expectation(case.mixture, lambda y: y.double().pow(2), given=case.given)
    close(mean, (marginals.probs * torch.arange(marginals.probs.shape[-1]).double().pow(2)).sum(-1))


@engines
@settings(deadline=None, max_examples=20)
@given(case=mixture_cases())
def test_posterior_explanations_and_samples(engine: Engine, case: MixtureCase) -> None:
    some = case.possible()
    if some is None:
        with pytest.raises(ProblemError, match="impossible outputs"):
            engine(case.problem).posterior(case.mixture, case.output, given=case.given)
        return
    reasoner, table, worlds = engine(some.problem), some.table(), some.problem.worlds()
    table = table / table.sum(-1, keepdim=True)
    found = reasoner.posterior(some.mixture, some.output, given=some.given)
    for i, size in enumerate(some.problem.world):
        shares = torch.stack([table[:, worlds[:, i] == v].sum(-1) for v in range(size)], -1)
        close(found.probs[:, i, :size], shares)
    best = reasoner.explain(some.mixture, some.output, len(worlds) + 1, given=some.given)
    ranked = table.sort(-1, descending=True).values
    close(best.scores[:, :-1].exp(), ranked)
    assert best.optimal is not None and best.optimal.all()  # all worlds are listed
    assert torch.equal(best.worlds[..., 0] < 0, best.scores == -math.inf)
    for row in range(len(table)):
        listed = [tuple(w) for w in best.worlds[row].tolist() if w[0] >= 0]
        assert len(set(listed)) == len(listed) == int((table[row] > 0).sum())
    drawn = reasoner.sample(some.mixture, some.output, 3, given=some.given, generator=seeded())
    codes = (drawn.unsqueeze(-2) == worlds).all(-1).long().argmax(-1)
    assert (table.expand(3, -1, -1).gather(-1, codes.unsqueeze(-1)) > 0).all()


@engines
def test_samples_have_the_right_frequencies(engine: Engine) -> None:
    problem, count = majority(3), 40_000
    mixture = random_mixture(problem, 2, parts=2)
    mixture = Mixture(mixture.components, torch.tensor([[0.3, 0.7], [1.0, 0.0]]).double().log())
    case = MixtureCase(problem, mixture, torch.tensor([[1], [1]]), None)
    expected = case.table() / case.table().sum(-1, keepdim=True)
    drawn = engine(problem).sample(mixture, torch.tensor([1]), count, generator=seeded(3))
    often = (drawn.unsqueeze(-2) == problem.worlds()).all(-1).double().mean(0)
    spread = (expected * (1 - expected) / count).sqrt()
    assert ((often - expected).abs() <= 5 * spread).all()
    again = engine(problem).sample(mixture, torch.tensor([1]), count, generator=seeded(3))
    assert torch.equal(drawn, again)


@engines
def test_one_component_is_the_belief_to_the_last_bit(engine: Engine) -> None:
    for dtype in (torch.float32, torch.float64):
        problem = addition(1, base=4)
        belief = random_belief(problem, 5, dtype=dtype)
        mixture = Mixture(belief[:, None], torch.zeros(5, 1, dtype=dtype))
        reasoner, output = engine(problem), problem(belief.mode())
        assert torch.equal(reasoner.log_prob(mixture, output), reasoner.log_prob(belief, output))
        assert torch.equal(reasoner.posterior(mixture, output).probs, reasoner.posterior(belief, output).probs)
        assert torch.equal(reasoner.marginals(mixture).probs, reasoner.marginals(belief).probs)
        one, two = reasoner.explain(mixture, output, 3), reasoner.explain(belief, output, 3)
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        assert one.optimal is not None and two.optimal is not None and one.optimal.all() and two.optimal.all()
        assert torch.equal(copy.deepcopy(one).optimal, one.optimal)  # type: ignore[arg-type]
        assert torch.equal(reasoner.predict(mixture), reasoner.predict(belief))
        if isinstance(reasoner, ExactReasoner):
            close(
                torch.stack(reasoner.entropy_bounds(mixture, output)),
                reasoner.entropy(belief, output).expand(2, -1),
                1e-5,
            )


@engines
def test_point_masses_represent_any_worlds(engine: Engine) -> None:
    problem = parity(4)
    worlds = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]])  # one of them twice
    shares = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    components = Belief.from_probs(torch.nn.functional.one_hot(worlds, 2).double())
    mixture, reasoner = Mixture(components, shares.log()), engine(problem)
    close(reasoner.log_prob(mixture, torch.tensor([1])).exp(), shares[1] + shares[2])
    found = reasoner.explain(mixture, torch.tensor([-1]), 4)
    assert found.worlds.tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 0], [-1] * 4]
    close(found.scores.exp(), torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64))
    if isinstance(reasoner, ExactReasoner):
        distinct = Mixture(components[1:], (shares[1:] / shares[1:].sum()).log())
        for bound in reasoner.entropy_bounds(distinct, torch.tensor([1])):  # 1110 and 1000 are left
            close(bound, entropy(shares[1:3]))


@exact
@settings(deadline=None, max_examples=20)
@given(case=mixture_cases())
def test_entropy_lies_between_its_bounds(engine: Engine, case: MixtureCase) -> None:
    some = case.possible()
    if some is None:
        with pytest.raises(ProblemError, match="impossible outputs"):
            engine(case.problem).entropy_bounds(case.mixture, case.output, given=case.given)  # type: ignore[union-attr]
        return
    reasoner = engine(some.problem)
    assert isinstance(reasoner, ExactReasoner)
    low, high = reasoner.entropy_bounds(some.mixture, some.output, given=some.given)
    true = entropy(some.table())
    assert (low <= true + 1e-9).all() and (true <= high + 1e-9).all()
    responsible = reasoner.log_prob(some.mixture, some.output, given=some.given)
    assert (high - low <= math.log(some.mixture.log_weights.shape[-1]) + 1e-9).all() and responsible.isfinite().all()


def random_knowledge(variables: int, clauses: int, seed: int) -> Problem:
    random = seeded(seed)
    rows = [torch.randperm(variables, generator=random)[:3] + 1 for _ in range(clauses)]
    signs = [2 * torch.randint(2, (3,), generator=random) - 1 for _ in range(clauses)]
    return cnf([(row * sign).tolist() for row, sign in zip(rows, signs, strict=True)])


@pytest.mark.parametrize("width", [1, 2, 8])
@pytest.mark.parametrize(("sharp", "parts"), [(0.3, 2), (1.0, 3), (3.0, 5)])
def test_a_proven_world_is_the_best_one(sharp: float, parts: int, width: int) -> None:
    problem = random_knowledge(6, 5, seed=parts)
    world = problem.world
    mixture = random_mixture(problem, 700, parts=parts, sharp=sharp, seed=17 * width, dtype=torch.float64)
    holds = torch.tensor([1])
    found = Enumeration(problem).explain(mixture, holds, 2, width=width)
    true = BruteForce(problem).explain(mixture, holds, 2)
    assert found.optimal is not None and len(world) == 6
    close(found.scores[found.optimal], true.scores[found.optimal])
    assert (found.scores <= true.scores + 1e-9).all()
    share = found.optimal[:, 0].double().mean()
    assert share > {1: 0.05, 2: 0.05, 8: 0.5}[width]  # often given, the more the longer the lists are
    assert width == 8 or not found.optimal.all()


def test_what_is_not_proven_may_be_wrong() -> None:
    """Two components that share their second choice: no list of one world has it, and the certificate says so."""
    probs = torch.tensor([[0.5, 0.45, 0.05], [0.05, 0.45, 0.5]], dtype=torch.float64)
    problem = Problem((3,), (2,), lambda w: torch.ones_like(w))
    mixture = Mixture(Belief.from_probs(probs.unsqueeze(-2)), torch.tensor([0.5, 0.5]).double().log())
    one = Enumeration(problem).explain(mixture, torch.tensor([1]), width=1)
    assert one.optimal is not None and not one.optimal.any() and one.worlds.tolist() != [[1]]
    two = Enumeration(problem).explain(mixture, torch.tensor([1]), width=2)
    assert two.optimal is not None and two.optimal.all() and two.worlds.tolist() == [[1]]


@engines
def test_derivatives(engine: Engine) -> None:
    problem = addition(1, base=3)
    reasoner, output = engine(problem), torch.tensor([[0, 2], [1, -1]])
    logits = torch.randn(2, 3, 2, 3, generator=seeded(), dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, generator=seeded(1), dtype=torch.float64, requires_grad=True)

    def ask(question: str) -> Callable[[Tensor, Tensor], Tensor]:
        def function(x: Tensor, y: Tensor) -> Tensor:
            answer = getattr(reasoner, question)(Mixture.from_logits(x, y), output)
            return answer if isinstance(answer, Tensor) else answer.log_probs[answer.log_probs > -40]

        return function

    for question in ("log_prob", "posterior"):
        assert torch.autograd.gradcheck(ask(question), (logits, weights))
    assert torch.autograd.gradgradcheck(ask("log_prob"), (logits, weights))
    if isinstance(reasoner, ExactReasoner):
        both = lambda x, y: torch.stack(reasoner.entropy_bounds(Mixture.from_logits(x, y), output))  # noqa: E731
        assert torch.autograd.gradcheck(both, (logits, weights))


@engines
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_at_the_edges(engine: Engine, dtype: torch.dtype) -> None:
    """Weights of 0, components that exclude the output, components that are point masses, extreme logits."""
    problem = parity(2)
    logits = torch.tensor(
        [
            [[[0.0, -math.inf], [0.0, -math.inf]], [[0.0, 1.0], [0.0, -1.0]]],
            [[[500.0, -500.0]] * 2, [[-500.0, 500.0]] * 2],
        ],
        dtype=dtype,
    )
    weights = torch.tensor([[0.0, 0.0], [-math.inf, 0.0]], dtype=dtype)
    for chosen in (weights, torch.tensor([[0.0, -math.inf], [200.0, -200.0]], dtype=dtype)):
        x, y = logits.clone().requires_grad_(), chosen.clone().requires_grad_()
        reasoner, odd = engine(problem, impossible="finite"), torch.tensor([1])
        reasoner.loss(Mixture.from_logits(x, y), odd).sum().backward()
        assert x.grad is not None and y.grad is not None and x.grad.isfinite().all() and y.grad.isfinite().all()
        x, y = logits.clone().requires_grad_(), chosen.clone().requires_grad_()
        mixture, even = Mixture.from_logits(x, y), torch.tensor([0])
        answers = [reasoner.posterior(mixture, even).probs, reasoner.explain(mixture, even).scores]
        if isinstance(reasoner, ExactReasoner):
            answers += reasoner.entropy_bounds(mixture, even)
        assert all(a.isfinite().all() for a in answers)
        sum(a.sum() for a in answers).backward()  # type: ignore[union-attr]
        assert x.grad is not None and y.grad is not None and x.grad.isfinite().all() and y.grad.isfinite().all()


@engines
def test_batches_of_every_shape_and_in_parts(engine: Engine) -> None:
    problem = addition(1, base=3)
    mixture = random_mixture(problem, 6)
    output = problem(mixture.components.mode()[:, 0])
    reasoner = engine(problem)
    whole = reasoner.log_prob(mixture, output)
    nested = reasoner.log_prob(Mixture(mixture.components[None], mixture.log_weights[None]), output[None])
    assert torch.equal(nested, whole[None])
    close(torch.stack([reasoner.log_prob(mixture[i], output[i]) for i in range(6)]), whole)
    for question in ("posterior", "explain", "sample"):
        answer = getattr(reasoner, question)(mixture[:0], output[:0])
        shape = (
            answer.shape
            if isinstance(answer, Tensor)
            else (answer[0] if question == "explain" else answer.log_probs).shape
        )
        assert 0 in shape
    assert reasoner.log_prob(mixture[:0], output[:0]).shape == (0,)
    if isinstance(reasoner, BruteForce):
        small: ExactReasoner | BruteForce = BruteForce(problem, max_entries=4 * 9)
    else:
        entries = 9 * 5 if isinstance(reasoner, Enumeration) else 2000
        small = engine(problem, budget=Budget(entries=entries))
    close(small.log_prob(mixture, output), whole)
    close(small.posterior(mixture, output).probs, reasoner.posterior(mixture, output).probs)
    assert torch.equal(small.explain(mixture, output, 2).worlds, reasoner.explain(mixture, output, 2).worlds)
    with torch.inference_mode():
        close(reasoner.posterior(mixture, output).probs, reasoner.posterior(random_mixture(problem, 6), output).probs)


@engines
def test_functional_transformations(engine: Engine) -> None:
    problem = addition(1, base=3)
    reasoner, output = engine(problem), torch.tensor([0, 2])
    logits = torch.randn(4, 3, 2, 3, generator=seeded(), dtype=torch.float64)
    weights = torch.randn(4, 3, generator=seeded(1), dtype=torch.float64)

    def value(x: Tensor, y: Tensor) -> Tensor:
        return reasoner.log_prob(Mixture.from_logits(x, y), output)

    close(torch.func.vmap(value)(logits, weights), value(logits, weights))
    slope = torch.func.vmap(torch.func.grad(value, argnums=(0, 1)))(logits, weights)
    x, y = logits.clone().requires_grad_(), weights.clone().requires_grad_()
    value(x, y).sum().backward()
    assert x.grad is not None and y.grad is not None
    close(slope[0], x.grad)
    close(slope[1], y.grad)


def test_evidence_reweights_the_components() -> None:
    problem = majority(3)
    mixture = random_mixture(problem, 4)
    learnt = condition(mixture, torch.tensor([-1, 1, -1]))
    worlds, prior = problem.worlds(), MixtureCase(problem, mixture, torch.full((4, 1), -1), None).table()
    expected = prior * (worlds[:, 1] == 1)
    close(learnt.log_prob(worlds.unsqueeze(1).expand(-1, 4, -1)).exp().T, expected / expected.sum(-1, keepdim=True))
    point = Belief.from_bernoulli(probs=torch.tensor([[1.0], [0.0]], requires_grad=True))
    sure = condition(Mixture(point, torch.tensor([0.5, 0.5]).log()), torch.tensor([0]))
    assert sure.log_weights.exp().tolist() == [0.0, 1.0] and sure.components.probs.sum(-1).eq(1).all()
    with pytest.raises(ProblemError, match="the evidence has probability 0"):
        condition(Mixture(point[:1], torch.zeros(1)), torch.tensor([0]))


def test_a_constrained_layer_over_a_mixture() -> None:
    a, b, c = propositions("a b c")
    rule = Constraint((a >> b) & (b >> c))
    mixture = random_mixture(rule.problem, 5, sharp=0.7)
    case = MixtureCase(rule.problem, mixture, torch.ones(5, 1, dtype=torch.int64), None)
    held, prior, worlds = (
        case.table(),
        MixtureCase(rule.problem, mixture, torch.full((5, 1), -1), None).table(),
        rule.problem.worlds(),
    )
    close(rule.probability(mixture), held.sum(-1))
    close(rule.semantic_loss(mixture), -held.sum(-1).log())
    every = worlds.unsqueeze(1).expand(-1, 5, -1)
    for target in (1.0, 0.8):
        layer = ConstrainedLayer(rule, target=target)
        broken = prior - held
        q = target * held / held.sum(-1, keepdim=True) + (1 - target) * broken / broken.sum(-1, keepdim=True)
        close(layer.log_prob(mixture, every).exp().T, q)
        close(layer(mixture).probs[..., 1], q @ worlds.double())
    layer = ConstrainedLayer(rule)
    found = layer.decode(mixture)
    assert found.valid.all() and found.optimal.shape == (5,) and found.optimal.all()
    close(found.log_probs.exp(), (held / held.sum(-1, keepdim=True)).amax(-1))
    drawn = layer.sample(mixture, 7, generator=seeded())
    assert drawn.valid.all() and drawn.optimal.shape == drawn.valid.shape == (7, 5)
    close(drawn.log_probs, layer.log_prob(mixture, drawn.worlds))
    low, high = layer.entropy_bounds(mixture)
    assert (low <= entropy(held)).all() and (entropy(held) <= high).all()
    assert "%" in describe(rule, mixture[0], torch.tensor([1]))
    assert layer.decode(mixture.marginals()).optimal.all()


def test_what_has_no_answer_says_so() -> None:
    problem = addition(1, base=3)
    mixture, output = random_mixture(problem, 2), torch.tensor([0, 2])
    reasoner = Elimination(problem)
    with pytest.raises(ProblemError, match="entropy_bounds"):
        reasoner.entropy(mixture, output)
    with pytest.raises(ProblemError, match="divergence of a mixture"):
        reasoner.kl(mixture, output, mixture.marginals())
    with pytest.raises(ProblemError, match="Enumeration, Elimination, Compilation, Constraint"):
        reasoner.kl(mixture.marginals(), output, mixture)  # type: ignore[arg-type]
    amortized = AmortizedReasoner(problem)
    for ask in (amortized.predict, lambda m: amortized.log_prob(m, output), lambda m: amortized.explain(m, output)):
        with pytest.raises(ProblemError, match=r"one Belief is wanted here.*BruteForce take it"):
            ask(mixture)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="a Mixture came"):
        counterfactual(reasoner, mixture.components.mode()[:, 0], belief=mixture)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"over domains \(2,\)"):
        reasoner.log_prob(Mixture.from_logits(torch.zeros(2, 1, 2), torch.zeros(2)), output)
    with pytest.raises(ProblemError, match=r"impossible outputs in rows \(0,\), \(1,\)"):
        reasoner.loss(mixture, torch.tensor([1, 2]))
