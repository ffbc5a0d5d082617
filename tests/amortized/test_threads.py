"""One amortised reasoner, asked by several threads at once."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa.amortized import AdditionPruner, AmortizedReasoner, CausalTransformer, FactorMLPs, SatPruner
from doxa.problem import Belief, addition

PROBLEM = addition(2)
THREADS = 8


def answers(engine: AmortizedReasoner) -> tuple[Tensor, ...]:
    """Values, gradients of the belief through a model that is held fixed, and gradients of the model itself."""
    logits = torch.randn(5, 4, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    belief = Belief.from_logits(logits)
    output = PROBLEM(belief.mode())
    found = []
    for _ in range(5):
        loss = engine.loss(belief, output)
        (slopes,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
        own = engine.model.log_prob(belief.detach(), output, engine.pruner)
        parameters = torch.autograd.grad(own.sum(), list(engine.model.parameters()), allow_unused=True)
        found += [loss.detach(), slopes, *(p for p in parameters if p is not None)]
    return (*found, engine.predict(belief), engine.explain(belief, output, 2).worlds)


@pytest.mark.parametrize("model", ["scan", "mlps", "transformer"])
def test_threads_share_an_engine(model: str) -> None:
    torch.manual_seed(0)
    if model == "scan":
        first = AmortizedReasoner(PROBLEM, pruner=AdditionPruner(2))
    elif model == "mlps":
        first = AmortizedReasoner(PROBLEM, FactorMLPs(PROBLEM, hidden=8), pruner=SatPruner.of(PROBLEM))
    else:
        first = AmortizedReasoner(PROBLEM, CausalTransformer(PROBLEM, width=8, heads=2))
    expected, shared, start = answers(copy.deepcopy(first)), copy.deepcopy(first), threading.Barrier(THREADS)

    def one(_: int) -> tuple[Tensor, ...]:
        start.wait()
        return answers(shared)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            everything = list(pool.map(one, range(THREADS)))
    finally:
        sys.setswitchinterval(interval)
    for found in everything:
        assert len(found) == len(expected)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
    assert all(parameter.requires_grad for parameter in shared.model.parameters())


def together(asks: list[Callable[[], Any]]) -> list[Any]:
    start = threading.Barrier(len(asks))

    def run(ask: Callable[[], Any]) -> Any:
        start.wait()
        return ask()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(run, asks))
    finally:
        sys.setswitchinterval(interval)


def test_threads_train_an_engine_in_turns() -> None:
    """Each of them learns from the same random numbers, so that any order of turns ends with the same parameters."""

    def trained(at_once: bool) -> tuple[AmortizedReasoner, list[list[float]]]:
        torch.manual_seed(0)
        engine = AmortizedReasoner(PROBLEM, FactorMLPs(PROBLEM, hidden=8))
        optimizer = torch.optim.SGD(engine.model.parameters(), 0.1, momentum=0.9)

        def one() -> list[float]:
            return engine.update(3, optimizer, samples=16, generator=torch.Generator().manual_seed(1))

        return engine, together([one] * THREADS) if at_once else [one() for _ in range(THREADS)]

    (alone, expected), (shared, found) = trained(False), trained(True)
    assert int(shared.updates) == 3 * THREADS
    assert sorted(found) == sorted(expected)
    for mine, theirs in zip(shared.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_threads_observe_and_train() -> None:
    engine = AmortizedReasoner(PROBLEM, FactorMLPs(PROBLEM, hidden=8))
    belief = Belief.from_logits(torch.randn(16, 4, 10))
    asks = [
        lambda: engine.observe(belief),
        lambda: engine.update(2, samples=16),
        lambda: engine.loss(belief, PROBLEM(belief.mode())),
    ]
    together(asks * 3)
    assert int(engine.updates) == 6
    assert all(p.isfinite().all() for p in engine.model.parameters())


def test_training_between_a_loss_and_its_derivatives_is_refused() -> None:
    engine = AmortizedReasoner(PROBLEM, FactorMLPs(PROBLEM, hidden=8))
    logits = torch.randn(16, 4, 10, requires_grad=True)
    belief = Belief.from_logits(logits)
    loss = engine.loss(belief, PROBLEM(belief.mode())).sum()
    engine.update(1, samples=16)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
