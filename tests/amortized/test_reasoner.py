"""The amortised reasoner: the common face, what it infers, and that it learns what is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from amortized_cases import RAGGED, belief, repeated

from doxa.amortized import (
    AdditionPruner,
    AmortizedReasoner,
    CausalTransformer,
    FactorMLPs,
    FixedDirichlet,
    FunctionPruner,
    InferenceModel,
    KnowledgeProblem,
    MixtureDirichlet,
    PairsModel,
    ScanModel,
)
from doxa.errors import ConfigError, ProblemError
from doxa.exact import Elimination
from doxa.logic import propositions
from doxa.problem import (
    Belief,
    BruteForce,
    Problem,
    Reasoner,
    addition,
    cnf,
    comparison,
    exactly_k,
    multiplication,
    parity,
)


def engine(problem: Problem, **options) -> AmortizedReasoner:  # type: ignore[no-untyped-def]
    torch.manual_seed(0)
    return AmortizedReasoner(problem, ScanModel(problem, hidden=8).double(), **options)


def test_wears_the_common_face() -> None:
    e = engine(addition(1))
    assert isinstance(e, Reasoner) and e.exactness == "approximate"
    b = belief(e.problem, 2, 3)
    y = e.predict(b)
    assert y.shape == (2, 3, 2) and y.dtype == torch.int64
    assert e.loss(b, y).shape == (2, 3)
    found = e.explain(b, y, k=4)
    assert found.worlds.shape == (2, 3, 4, 2) and found.scores.shape == (2, 3, 4)
    torch.testing.assert_close(e.loss(b, y), -e.log_prob(b, y))


def test_symbolic_prediction_is_the_function_of_the_best_world() -> None:
    e = engine(addition(2))
    b = belief(e.problem, 20)
    assert torch.equal(e.predict(b, method="symbolic"), e.problem(b.log_probs.argmax(-1)))


def test_neural_prediction_is_the_argmax_of_the_model() -> None:
    e = engine(addition(1))
    b = belief(e.problem, 5)
    outputs = torch.cartesian_prod(torch.arange(2), torch.arange(10))
    for row in range(5):
        log_q = e.model.log_prob(repeated(b[row], 20), outputs)
        assert torch.equal(e.predict(b[row], beams=20), outputs[log_q.argmax()])


def test_explanations_give_the_output_and_are_the_best_ones() -> None:
    e = engine(addition(1))
    b = belief(e.problem)
    y = torch.tensor([1, 3])
    worlds = e.problem.worlds()
    worlds = worlds[(e.problem(worlds) == y).all(-1)]
    many = repeated(b, len(worlds))
    log_q = e.model.log_prob(many, torch.cat([y.expand(len(worlds), 2), worlds], -1)) - e.model.log_prob(b, y)
    order = log_q.argsort(descending=True)
    found = e.explain(b, y, k=8, beams=100)
    assert torch.equal(found.worlds[:6], worlds[order])
    torch.testing.assert_close(found.scores[:6], log_q[order].detach())
    assert bool((found.worlds[6:] == -1).all()) and bool((found.scores[6:] == -torch.inf).all())
    # A narrow search may find fewer, never a wrong one.
    few = e.explain(b, y, k=3, beams=3)
    real = few.scores > -torch.inf
    assert bool((e.problem(few.worlds[real]) == y).all())


def test_unobserved_outputs_are_summed_over() -> None:
    e = engine(RAGGED)
    b = belief(RAGGED, 4)
    table = e.model.log_prob(
        Belief(b.log_probs.unsqueeze(1).expand(-1, 10, -1, -1), b.sizes),
        torch.cartesian_prod(torch.arange(5), torch.arange(2)).expand(4, 10, 2),
    ).reshape(4, 5, 2)
    cases = torch.tensor([[-1, 1], [3, -1], [-1, -1], [2, 0]])
    expected = torch.stack(
        [table[0, :, 1].logsumexp(0), table[1, 3].logsumexp(0), table[2].logsumexp((0, 1)), table[3, 2, 0]]
    )
    torch.testing.assert_close(e.log_prob(b, cases), expected, atol=1e-10, rtol=0)
    long = engine(addition(6))
    with pytest.raises(ProblemError, match="sum over"):
        long.log_prob(Belief.uniform((10,) * 12, dtype=torch.float64), torch.tensor([-1, -1, -1, -1, -1, -1, 3]))


@pytest.mark.parametrize("given", [[-1, 3], [-1, 9]])
def test_unobserved_outputs_with_a_pruner(given: list[int]) -> None:
    e = engine(addition(1), pruner=AdditionPruner(1))
    logits = torch.zeros(3, 2, 10, dtype=torch.float64, requires_grad=True)
    log_q = e.log_prob(Belief.from_logits(logits), torch.tensor(given))
    both = torch.stack([e.log_prob(Belief.from_logits(logits), torch.tensor([c, given[1]])) for c in (0, 1)])
    torch.testing.assert_close(log_q.exp(), both.exp().sum(0))
    (slope,) = torch.autograd.grad(log_q.sum(), logits)
    assert bool(slope.isfinite().all())


def test_impossible_outputs() -> None:
    b = Belief.uniform((10, 10), (2,), dtype=torch.float64)
    y = torch.tensor([[1, 8], [1, 9]])
    with pytest.raises(ProblemError, match=r"impossible outputs in rows \(1,\)"):
        engine(addition(1), pruner=AdditionPruner(1)).loss(b, y)
    assert engine(addition(1), pruner=AdditionPruner(1), impossible="inf").loss(b, y)[1] == torch.inf
    finite = engine(addition(1), pruner=AdditionPruner(1), impossible="finite").loss(b, y)
    assert bool(finite.isfinite().all()) and finite[1] > 700


def test_losses_of_the_constrained_output_appendix() -> None:
    problem = exactly_k(1, 3)
    e = engine(problem)
    b = belief(problem, 4)
    ones = torch.ones(4, 1, dtype=torch.int64)
    torch.testing.assert_close(e.semantic_loss(b), -e.model.log_prob(b, ones))
    w = torch.tensor([0, 1, 0])
    joint = e.model.log_prob(b, torch.cat([ones, w.expand(4, 3)], -1))
    torch.testing.assert_close(e.supervised_loss(b, w), e.model.log_prob(b, ones) - joint)
    with pytest.raises(ConfigError, match="expected 0"):
        engine(addition(1)).semantic_loss(Belief.uniform((10, 10)))


def test_the_share_on_policy_mixes_the_two_losses() -> None:
    problem = parity(3)
    b = belief(problem, 50)
    w = b.sample(1, generator=torch.Generator().manual_seed(0))[0]
    losses = [
        engine(problem, on_policy=share).loss_on(b, w, generator=torch.Generator().manual_seed(1))
        for share in (0, 1, 0.25)
    ]
    torch.testing.assert_close(losses[2], 0.75 * losses[0] + 0.25 * losses[1])


def test_predicting_beside_explaining_mixes_the_two_losses() -> None:
    problem = addition(1)
    b = belief(problem, 50)
    w = b.sample(1, generator=torch.Generator().manual_seed(0))[0]
    losses = [engine(problem, predicting=share).loss_on(b, w) for share in (0, 1, 0.25)]
    alone = -engine(problem).model.log_prob(b, problem(w))
    torch.testing.assert_close(losses[1], alone)
    torch.testing.assert_close(losses[2], 0.75 * losses[0] + 0.25 * losses[1])


def test_a_problem_carries_its_own_pruner() -> None:
    problem = Problem((2,), (2,), lambda w: w, pruner=lambda prefix: torch.tensor([True, True]))
    e = engine(problem)
    assert isinstance(e.pruner, FunctionPruner) and not e.guaranteed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AmortizedReasoner(addition(1), ScanModel(addition(1))), "this very problem"),
        (lambda: AmortizedReasoner(addition(1), prior=MixtureDirichlet((2,))), "this very problem"),
        (lambda: engine(addition(1), pruner=AdditionPruner(2)), "the problem has"),
        (lambda: engine(addition(1), beams=0), "at least 1"),
        (lambda: engine(addition(1), on_policy=2.0), "share"),
        (lambda: engine(addition(1), predicting=-0.1), "share"),
        (lambda: engine(addition(1), impossible="never"), "expected 'raise'"),
        (lambda: engine(addition(1)).predict(Belief.uniform((10, 10)), method="both"), "'symbolic'"),
        (lambda: engine(addition(1)).explain(Belief.uniform((10, 10)), torch.tensor([0, 0]), k=0), "at least 1"),
        (
            lambda: engine(addition(1)).explain(Belief.uniform((10, 10)), torch.tensor([0, 0]), k=2.5),
            "k is 2.5, expected at least 1, a whole number",
        ),
        (lambda: engine(addition(1)).inference_loss(0), "at least 1"),
    ],
)
def test_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_model_that_only_predicts_does_not_explain() -> None:
    problem = addition(1)
    e = AmortizedReasoner(problem, FactorMLPs(problem, hidden=8, explain=False))
    with pytest.raises(ConfigError, match="explain=True"):
        e.explain(Belief.uniform((10, 10)), torch.tensor([0, 0]))
    with pytest.raises(ConfigError, match="explain=True"):
        AmortizedReasoner(problem, e.model, on_policy=0.5)
    e.inference_loss(10).backward()


# Calibration.


def test_calibration_sums_or_samples_the_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    e = engine(RAGGED)
    b = belief(RAGGED, 3)
    exact = BruteForce(RAGGED)
    summed = e.divergence(b, exact)
    for row in range(3):
        log_p = exact.joint(b[row])
        log_q = e.model.log_prob(repeated(b[row], len(exact.outputs)), exact.outputs)
        torch.testing.assert_close(summed.kl[row], (log_p.exp() * (log_p - log_q)).sum().detach())
    generator = torch.Generator().manual_seed(0)

    class Only:  # an exact reasoner that is no BruteForce, and so is sampled
        problem = RAGGED
        log_prob = staticmethod(exact.log_prob)

    sampled = e.divergence(b, Only(), samples=4000, generator=generator)
    assert bool(((sampled.kl - summed.kl).abs() < 4.5 * sampled.error).all())
    monkeypatch.setattr("doxa.amortized.training._losses.MOST_WORLDS", 0)
    counted = e.divergence(b, samples=4000, generator=generator)
    assert bool(((counted.kl - summed.kl).abs() < 4.5 * counted.error + 0.01).all())
    assert e.divergence(b[:0], exact).kl.shape == (0,)


def test_calibration_of_a_long_sum_against_elimination() -> None:
    problem = addition(15)
    e = engine(problem)
    b = Belief.from_logits(torch.randn(2, 30, 10, dtype=torch.float64))
    found = e.divergence(b, Elimination(problem), samples=50)
    assert found.kl.shape == (2,) and bool((found.kl > 3 * found.error).all())


def test_where_an_output_is_certain_the_loss_is_the_divergence() -> None:
    """The exact loss is 0 there, so the divergence is all that amortised reasoning can be off by."""
    e = engine(RAGGED)
    worlds = RAGGED.worlds()
    columns = zip(worlds.T, RAGGED.world, strict=True)
    sure = Belief.from_probs([torch.nn.functional.one_hot(column, size).double() for column, size in columns])
    torch.testing.assert_close(e.divergence(sure).kl, e.loss(sure, RAGGED(worlds)).detach())
    assert e.divergence(sure).largest == float(e.loss(sure, RAGGED(worlds)).max())


def test_on_average_the_loss_exceeds_the_exact_one_by_the_divergence() -> None:
    e, exact = engine(RAGGED), BruteForce(RAGGED)
    b = belief(RAGGED, 4)
    for row in range(4):
        p = exact.joint(b[row]).exp()
        many = repeated(b[row], len(p))
        excess = (p * (e.loss(many, exact.outputs) - exact.loss(many, exact.outputs)).nan_to_num(0.0)).sum()
        torch.testing.assert_close(e.divergence(b).kl[row], excess.detach())


@pytest.mark.parametrize(
    "query",
    [
        lambda e, b: e.log_prob(b, torch.tensor([3, 1])),
        lambda e, b: e.log_prob(b, torch.tensor([-1, 1])),
        lambda e, b: e.loss(b, torch.tensor([3, 1])),
        lambda e, b: e.supervised_loss(b, torch.tensor([1, 1, 0])),
        lambda e, b: e.predict(b),
        lambda e, b: e.predictions(b, 3).scores,
        lambda e, b: e.explain(b, torch.tensor([3, 1]), 2).worlds,
        lambda e, b: e.expected_miss(b, torch.tensor([3, 1])),
        lambda e, b: e.expected_hamming(b, torch.tensor([3, 1])),
        lambda e, b: e.divergence(b).kl,
    ],
)
def test_a_query_changes_nothing_and_draws_nothing(query: Callable[[AmortizedReasoner, Belief], torch.Tensor]) -> None:
    e, b = engine(RAGGED), belief(RAGGED, 3)
    e.train()
    before = {k: v.clone() for k, v in e.state_dict().items()}
    random = torch.get_rng_state()
    first, second = query(e, b), query(e, b)
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[k], v) for k, v in e.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in e.model.parameters())


# Learning.

CASES: dict[str, tuple[Problem, Callable[[Problem], InferenceModel], int, int, float]] = {
    "a sum": (addition(1), lambda p: ScanModel(p, hidden=32, explain=False), 3000, 1024, 2e-2),
    "parity": (parity(3), lambda p: FactorMLPs(p, hidden=64, layers=2, explain=False), 600, 256, 3e-3),
    "two clauses": (cnf([[1, 2], [-1, 3]]), lambda p: CausalTransformer(p, width=32, explain=False), 500, 256, 3e-3),
    "which is larger": (comparison(1, 4), lambda p: ScanModel(p), 700, 256, 5e-3),
    "pairs": (
        Problem((3,) * 3, (2,) * 2, lambda w: torch.stack([w[..., 0] != w[..., 1], w[..., 0] != w[..., 2]], -1)),
        lambda p: ScanModel(p, explain=False),
        500,
        256,
        5e-3,
    ),
}
"""A problem, its inference model, steps, samples in each, and the highest learning rate."""


def learned(name: str) -> float:
    """KL(p ‖ q) after training, averaged over fresh beliefs of the prior."""
    problem, make, steps, samples, rate = CASES[name]
    torch.manual_seed(0)
    e = AmortizedReasoner(problem, make(problem), FixedDirichlet(problem.world, 1.0))
    optimizer = torch.optim.Adam(e.model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        e.inference_loss(samples).backward()
        optimizer.step()
        schedule.step()
    fresh = e.prior.sample(200)
    return e.divergence(fresh).mean


def test_q_converges_to_the_exact_p() -> None:
    assert learned("parity") < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_q_converges_to_the_exact_p_on_every_shape(name: str) -> None:
    assert learned(name) < 0.01


def test_training_with_factorised_knowledge() -> None:
    """The truth of each clause is easier to learn than that of all, and gives the semantic loss of the whole."""
    a, b, c = propositions("a b c")
    knowledge = KnowledgeProblem((a | b) & (b >> c), by="clause")
    torch.manual_seed(0)
    e = AmortizedReasoner(knowledge.problem, FactorMLPs(knowledge.problem, hidden=32, layers=1, explain=False))
    losses = e.update(60, samples=128, lr=1e-2)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
    belief_ = knowledge.belief({a: torch.tensor(0.9), b: torch.tensor(0.6), c: torch.tensor(0.7)})
    assert e.semantic_loss(belief_).shape == ()


def test_pairs_need_no_training_in_closed_form() -> None:
    problem = Problem((3,) * 2, (2,), lambda w: (w[..., :1] != w[..., 1:]).long())
    e = AmortizedReasoner(problem, PairsModel(problem, closed_form=True))
    assert e.divergence(belief(problem, 5), BruteForce(problem)).kl.abs().max() < 1e-9


def test_multiplication_is_a_problem_and_a_few_lines() -> None:
    problem = multiplication(1)
    e = AmortizedReasoner(problem)
    e.update(2, samples=50)
    assert e.predict(Belief.uniform(problem.world, (4,))).shape == (4, 2)
