"""Problems whose data decide some values: q sees them, is asked about them, and learns from those that occur."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from amortized_cases import belief
from torch import Tensor

from doxa.amortized import (
    AmortizedReasoner,
    CausalTransformer,
    FactorMLPs,
    FixedDirichlet,
    FunctionPruner,
    GridCNN,
    InferenceModel,
    JointTraining,
    PairsModel,
    Replay,
    ScanModel,
    with_sampling,
)
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief, BruteForce, Problem


def _sums(worlds: Tensor, given: Tensor) -> Tensor:
    """Whether the sum is the first given value, and whether the product is at least the second."""
    return torch.stack([worlds.sum(-1) == given[..., 0], worlds.prod(-1) >= given[..., 1]], -1).long()


SUMS = Problem((3, 3), (2, 2), _sums, given=(5, 2))
CELLS = Problem((2,) * 4, (2,) * 4, lambda w, g: (w + g) % 2, given=(2,))
MODELS: dict[str, Callable[[], InferenceModel]] = {
    "mlps": lambda: FactorMLPs(SUMS, hidden=12),
    "scan": lambda: ScanModel(SUMS, hidden=8),
    "transformer": lambda: CausalTransformer(SUMS, width=8, heads=2),
    "grid": lambda: GridCNN(CELLS, (2, 2), reads="cells", channels=6, layers=1),
    "pairs": lambda: PairsModel(SUMS, [(0, 1), (0, 1)], hidden=8),
}
every = pytest.mark.parametrize("name", MODELS)


def engine(name: str) -> AmortizedReasoner:
    torch.manual_seed(0)
    model = MODELS[name]().double()
    return AmortizedReasoner(model.problem, model)


def values(problem: Problem, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in problem.given], -1)


@every
def test_every_model_sees_what_is_given(name: str) -> None:
    e = engine(name)
    problem = e.problem
    b, given = belief(problem, 6), values(problem, 6)
    one = torch.ones(6, len(problem.output), dtype=torch.int64)
    here = e.log_prob(b, one, given=given)
    rows = torch.stack([e.log_prob(b[i], one[i], given=given[i]) for i in range(6)])
    torch.testing.assert_close(here, rows)
    other = (given + 1) % torch.tensor(problem.given)
    assert not torch.allclose(here, e.log_prob(b, one, given=other))
    # One step at a time, and all at once.
    carry, token, steps = e.model.init(b, given), None, []
    for t in range(len(problem.output)):
        log_probs, carry = e.model.step(carry, token)
        token = one[:, t]
        steps.append(log_probs[:, 1])
    torch.testing.assert_close(here, torch.stack(steps).sum(0))
    with pytest.raises(ProblemError, match="given"):
        e.log_prob(b, one)


@every
def test_queries_take_given_values(name: str) -> None:
    e = engine(name)
    problem = e.problem
    b, given = belief(problem, 4), values(problem, 4)
    assert e.predict(b, given=given).shape == (4, len(problem.output))
    assert torch.equal(e.predict(b, given=given, method="symbolic"), problem(b.mode(), given))
    partly = torch.tensor([-1] * (len(problem.output) - 1) + [1])
    both = [e.log_prob(b, torch.cat([torch.full_like(partly[:-1], v), partly[-1:]]), given=given) for v in (0, 1)]
    if len(problem.output) == 2:
        torch.testing.assert_close(e.log_prob(b, partly, given=given), torch.logaddexp(*both))
    found = e.sample(b, count=3, given=given)
    assert found.tokens.shape[:2] == (4, 3)
    if e.model.explains:
        worlds = problem.worlds()[:4]
        found_worlds = e.explain(b, problem(worlds, given), 3, given=given, beams=60).worlds
        assert bool((found_worlds.unsqueeze(-3) == worlds.unsqueeze(-2)).all(-1).any())
        assert e.supervised_loss(b, worlds, given=given).shape == (4,)
    loss = with_sampling(e, b, partly.clamp(min=0), lambda y, w: (y != w).double().sum(-1), given=given)
    assert loss.shape == (4,)


@every
def test_the_divergence_is_that_of_the_conditioned_problem(name: str) -> None:
    e = engine(name)
    exact = BruteForce(e.problem)
    b, given = belief(e.problem, 3), values(e.problem, 3)
    kl = e.divergence(b, given=given).kl
    for row in range(3):
        log_p = exact.joint(b[row], given=given[row])
        many = Belief(b.log_probs[row].expand(len(log_p), *b.log_probs.shape[1:]), b.sizes)
        log_q = e.log_prob(many, exact.outputs, given=given[row])
        p = log_p.exp()
        wanted = torch.where(p > 0, p * (log_p - log_q), 0.0).nan_to_num(0.0).sum()
        torch.testing.assert_close(kl[row], wanted.detach())


def test_training_draws_what_was_observed_and_anything_else() -> None:
    e = engine("mlps")
    drawn = e._drawn_given(2000, torch.Generator().manual_seed(0))
    assert drawn is not None
    assert {tuple(row) for row in drawn.tolist()} == {(a, b) for a in range(5) for b in range(2)}
    e.observe(belief(SUMS, 2), given=torch.tensor([[3, 1], [0, 0]]))
    drawn = e._drawn_given(200, torch.Generator().manual_seed(0))
    assert drawn is not None and {tuple(row) for row in drawn[:100].tolist()} == {(3, 1), (0, 0)}
    assert len({tuple(row) for row in drawn[100:].tolist()}) == 10
    again = engine("mlps")
    again.load_state_dict(e.state_dict())
    other = again._drawn_given(200, torch.Generator().manual_seed(0))
    assert other is not None and torch.equal(other, drawn)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_losses_with_given_values_are_finite(share: float) -> None:
    model = MODELS["mlps"]().double()
    e = AmortizedReasoner(SUMS, model, on_policy=share)
    e.inference_loss(50).backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_q_learns_to_look_at_what_is_given() -> None:
    torch.manual_seed(0)
    e = AmortizedReasoner(SUMS, FactorMLPs(SUMS, hidden=64, layers=2, explain=False), FixedDirichlet(SUMS.world, 1.0))
    b, given = e.prior.sample(100), values(SUMS, 100)
    before = e.divergence(b, given=given).mean
    e.update(400, samples=256, lr=3e-3)
    assert e.divergence(b, given=given).mean < 0.1 * before


def test_joint_training_passes_given_values_on() -> None:
    perception = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Unflatten(-1, (2, 3)))
    e = AmortizedReasoner(SUMS, FactorMLPs(SUMS, hidden=8), Replay(SUMS.world))
    training = JointTraining(e, perception, samples=8)
    given = values(SUMS, 5)
    training.train([(torch.randn(5, 4), torch.zeros(5, 2, dtype=torch.int64), given)] * 2)
    assert e.given_seen is not None and torch.equal(e.given_seen.stored(), given.repeat(2, 1))


def test_errors() -> None:
    pruner = FunctionPruner(lambda prefix: torch.tensor([True, True]), (2, 2, 3, 3))
    with pytest.raises(ConfigError, match="do not see given values"):
        AmortizedReasoner(SUMS, pruner=pruner)
    with pytest.raises(ConfigError, match="nothing given decides"):
        PairsModel(SUMS, [(0, 1), (0, 1)], closed_form=True)
