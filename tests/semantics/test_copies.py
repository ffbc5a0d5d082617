"""Models that are copied, pickled or loaded say the same as before, also what they have learnt and decided."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION
from torch import nn

import doxa
from doxa.errors import BudgetError
from doxa.problem import Budget
from doxa.stochastic import Score

ALL = [doxa.Classical(), doxa.Fuzzy(), doxa.Refined(), doxa.Exact(), doxa.Sampled(Score(20)), doxa.Auto()]
ALL += [doxa.Amortized(hidden=8, pretrain=2, samples=10), doxa.Auto(doxa.Amortized(hidden=8, pretrain=2, samples=10))]
CYCLES = "sort Node; pred edge(Node, Node); [any] exists x, y, z: Node. edge(x, y) & edge(y, z) & edge(z, x)"
TIGHT = Budget(operations=10)


def addition(seed: int = 0) -> doxa.Model:
    torch.manual_seed(seed)
    return doxa.Model(ADDITION, digit=doxa.logits(nn.Linear(4, 4)))


def pairs(rows: int = 5) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(2, rows, 4, generator=random)
    return {"left": x[0], "right": x[1], "sum": torch.randint(7, (rows,), generator=random)}


def said(model: doxa.Model, semantics: Any) -> list[float]:
    random = torch.Generator().manual_seed(0)
    found = [*model.truth(semantics=semantics, per_row=True, generator=random, pairs=pairs())["sum"].tolist()]
    if not isinstance(semantics, doxa.Classical):
        found.append(model.loss(semantics=semantics, generator=random, pairs=pairs()).item())
    return [*found, *model.predict("pairs.sum", semantics=semantics, generator=random, pairs=pairs()).values.tolist()]


@pytest.mark.parametrize("semantics", ALL, ids=lambda s: repr(s)[:12] + repr(s)[-40:])
def test_copies_say_the_same_and_live_apart(semantics: Any) -> None:
    model = addition()
    model.inference_step(semantics=semantics, pairs=pairs())
    before = said(model, semantics)
    assert said(model, semantics) == before
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    loaded = addition(seed=9)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file))
    for other in (*copies, loaded):
        assert said(other, semantics) == before
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
        other.inference_step(semantics=semantics, pairs=pairs())
    assert said(model, semantics) == before


def hard(size: int = 4) -> doxa.Model:
    return doxa.Model(CYCLES, edge=doxa.probs(torch.full((size, size), 0.3)))


def decisions(model: doxa.Model) -> dict[str, str]:
    found: dict[str, str] = model.state_dict()["inference._extra_state"]["decisions"]
    return found


def test_what_auto_decided_is_kept_and_obeyed() -> None:
    model, auto = hard(), doxa.Auto(budget=TIGHT)
    plan = model.plan(semantics=auto, Node=4)
    assert "not exact: " in plan
    (reason,) = decisions(model).values()
    assert reason and reason in plan
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), hard()):
        if not decisions(other):
            other.load_state_dict(model.state_dict())
        assert decisions(other) == decisions(model) and other.plan(semantics=auto, Node=4) == plan
    told = hard()  # what is loaded is not decided again
    state = model.state_dict()
    state["inference._extra_state"]["decisions"] = dict.fromkeys(decisions(model), "someone said so")
    told.load_state_dict(state)
    assert "not exact: someone said so" in told.plan(semantics=auto, Node=4)


def test_each_budget_decides_for_itself_whatever_was_asked_before() -> None:
    budgets = (TIGHT, Budget(worlds=1 << 16), Budget(worlds=16))
    alone = [hard().plan(semantics=doxa.Auto(budget=b), Node=4) for b in budgets]
    assert ["not exact: " in plan for plan in alone] == [True, False, False]
    model = hard()
    for _ in range(2):
        assert [model.plan(semantics=doxa.Auto(budget=b), Node=4) for b in budgets] == alone
    exact = model.truth(semantics="exact", Node=4)["any"]
    torch.testing.assert_close(model.truth(semantics=doxa.Auto(budget=budgets[1]), Node=4)["any"], exact)


def test_a_clock_stops_auto_but_decides_nothing() -> None:
    model = hard(7)
    with pytest.raises(BudgetError, match="could not decide within 1e-09 seconds"):
        model.loss(semantics=doxa.Auto(budget=Budget(seconds=1e-9)), Node=7)
    assert decisions(model) == {}


def test_one_call_does_not_change_the_next() -> None:
    """The same call gives the same number, whatever other semantics were asked between."""
    model = addition()
    for semantics in ALL:
        model.inference_step(semantics=semantics, pairs=pairs())
    first = [said(model, semantics) for semantics in ALL]
    assert [said(model, semantics) for semantics in reversed(ALL)] == first[::-1]
