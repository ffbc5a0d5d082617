"""Training together: who is trained by what, resuming to the bit, and nothing that grows."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor, nn

from doxa.amortized import (
    AmortizedReasoner,
    FactorMLPs,
    FittedDirichlet,
    JointTraining,
    Prior,
    Replay,
    ScanModel,
)
from doxa.errors import ConfigError
from doxa.problem import Belief, addition, parity


def perception() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 20), nn.Unflatten(-1, (2, 10)))


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    worlds = torch.randint(10, (8, 2), generator=generator)
    return torch.randn(8, 6, generator=generator), addition(1)(worlds)


def training(prior: type[Prior] | None = FittedDirichlet, *, explain: bool = True) -> JointTraining:
    torch.manual_seed(0)
    problem = addition(1)
    own = None if prior is None else prior(problem.world)  # type: ignore[call-arg]
    engine = AmortizedReasoner(problem, FactorMLPs(problem, hidden=16, explain=explain), own)
    return JointTraining(engine, perception(), samples=16, generator=torch.Generator().manual_seed(0))


def test_each_loss_trains_its_side() -> None:
    t = training()
    belief = t.belief(batch(0)[0])
    perceived, inferred = t.engine.loss(belief, batch(0)[1]).mean(), t.engine.inference_loss(16)
    seen = list(t.perception.parameters())  # type: ignore[attr-defined]
    model = list(t.engine.model.parameters())
    assert all(g is None for g in torch.autograd.grad(perceived, model, allow_unused=True, retain_graph=True))
    assert all(g is not None for g in torch.autograd.grad(perceived, seen, retain_graph=True))
    assert all(g is None for g in torch.autograd.grad(inferred, seen, allow_unused=True, retain_graph=True))
    (perceived + inferred).backward()
    assert all(p.grad is not None for p in (*seen, *model))


def test_a_frozen_inference_model_stays_as_it_is() -> None:
    t = training()
    t.train_inference = False
    before = {k: v.clone() for k, v in t.engine.model.state_dict().items()}
    t.step(*batch(0))
    assert all(torch.equal(before[k], v) for k, v in t.engine.model.state_dict().items())


@pytest.mark.parametrize("prior", [FittedDirichlet, Replay, None])
def test_resumes_to_the_bit(prior: type[Prior] | None) -> None:
    straight = training(prior)
    for i in range(6):
        last = straight.step(*batch(i))
    stopped = training(prior)
    for i in range(3):
        stopped.step(*batch(i))
    state = stopped.state_dict()
    state = {
        k: (
            {n: v.clone() if isinstance(v, Tensor) else v for n, v in part.items()}
            if k != "generator"
            else part.clone()
        )
        for k, part in state.items()
    }
    torch.manual_seed(99)
    resumed = training(prior)
    resumed.load_state_dict(state)
    for i in range(3, 6):
        again = resumed.step(*batch(i))
    assert again == last
    one, two = straight.state_dict(), resumed.state_dict()
    for part in ("engine", "perception"):
        assert all(torch.equal(value, two[part][name]) for name, value in one[part].items())
    with pytest.raises(ConfigError, match="expected"):
        resumed.load_state_dict({"engine": state["engine"]})


def tensors() -> tuple[int, int]:
    """How many tensors are alive, and how many bytes they hold."""
    gc.collect()
    alive = [x for x in gc.get_objects() if type(x) in (Tensor, nn.Parameter)]
    return len(alive), sum(x.numel() * x.element_size() for x in alive)


@pytest.mark.parametrize("steps", [30, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_grows(steps: int) -> None:
    t = training()
    for i in range(3):
        t.step(*batch(i))
    before = tensors()
    for i in range(steps):
        t.step(*batch(i))
    assert tensors() == before
    fitted = t.engine.prior
    assert isinstance(fitted, FittedDirichlet)
    assert fitted.memory.rows.grad_fn is None and len(fitted.memory) == min(8 * (steps + 3), 2500)


def test_the_ready_loop_learns_a_small_task() -> None:
    """Which of two coins is heads is never told, only whether an odd number is; inputs say it plainly."""
    torch.manual_seed(0)
    problem = parity(2)
    engine = AmortizedReasoner(problem, ScanModel(problem, hidden=16, explain=False))
    seen = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4), nn.Unflatten(-1, (2, 2)))
    t = JointTraining(engine, seen, lr=1e-2, samples=64)
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(2, (150, 32, 2), generator=generator)
    batches = [(2.0 * x - 1, problem(x)) for x in inputs]
    history = t.train(batches, pretrain=150)
    assert history[-1]["perception"] < 0.1
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    beliefs = t.belief(2.0 * x - 1)
    assert torch.equal(engine.predict(beliefs, method="symbolic"), problem(x))
    assert torch.equal(engine.predict(beliefs), problem(x))


def test_perception_may_return_a_belief() -> None:
    t = JointTraining(AmortizedReasoner(parity(2)), lambda x: Belief.uniform((2, 2), (len(x),)), samples=8)
    metrics = t.step(torch.zeros(3, 1), torch.ones(3, 1, dtype=torch.int64))
    assert set(metrics) == {"loss", "perception", "inference"}
    assert set(t.state_dict()) == {"engine", "optimizer"}
