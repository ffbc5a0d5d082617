"""One amortised reasoner, asked by several threads at once."""

from __future__ import annotations

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

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
