"""Lists of guards that are kept from run to run are made again as soon as anything they depend on changes."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from tests.logic.spies import Nonzeros

from doxa.logic import Interpretation, parse, probs
from doxa.logic.tensor._plan import TensorPlan

KB = parse("""
    sort P; sort D = 0..3; const limit: Int
    pred near(P, P); pred soft(P); pred r(P, P); pred has(P, D)
    [table] forall x, y: P where near(x, y) & soft(x). r(x, y)
    [sizes] forall x, y: P where x != y. r(x, y)
    [digits] forall x: P, d: D where has(x, d) & d > 1. soft(x)
    [outer] forall x: P. exists y: P where near(x, y). r(x, y)
    [number] forall x: P, d: D where d < limit. has(x, d)
    [sampled] forall x: P sample 2 where soft(x). r(x, x)
""")


def world(n: int, seed: int) -> Interpretation:
    g = torch.Generator().manual_seed(seed)
    return Interpretation(
        KB,
        near=torch.rand(n, n, generator=g) < 0.5,
        soft=probs(torch.rand(n, generator=g)),
        r=torch.rand(n, n, generator=g) < 0.8,
        has=torch.rand(n, 4, generator=g) < 0.5,
        limit=2,
    )


def fresh(name: str, seen: Interpretation, n: int, **kwargs: Any) -> torch.Tensor:
    return TensorPlan(KB[name], seen, **kwargs)(P=n)


@pytest.mark.parametrize("name", ["table", "sizes", "digits", "outer", "number"])
@pytest.mark.parametrize("chunk", [2**22, 6])
def test_changes_are_seen(name: str, chunk: int) -> None:
    n = 5
    for seed in range(5):
        seen = world(n, seed)
        plan = TensorPlan(KB[name], seen, chunk=chunk)
        assert plan(P=n) == plan(P=n) == fresh(name, seen, n)
        changed = world(n, seed + 100)
        with torch.no_grad():
            for tensor, other in zip(seen.buffers(), changed.buffers(), strict=True):
                tensor.copy_(other)
                assert plan(P=n) == fresh(name, seen, n)


def test_another_number_of_objects_is_seen() -> None:
    seen = Interpretation(KB, limit=2)
    plan = TensorPlan(KB["sizes"], seen)
    for n in (3, 5, 3, 0, 1):
        r = torch.eye(n) == 0
        assert plan(P=n, r=r)
        assert plan(P=n, r=~r) == (n < 2)


def test_a_fixed_guard_is_searched_once_and_nothing_is_kept_alive() -> None:
    seen = world(5, 0)
    plan = TensorPlan(KB["outer"], seen)
    with Nonzeros() as spy:
        for _ in range(4):
            plan(P=5)
    assert spy.calls == 1
    tensor = weakref.ref(seen.meaning("near").tensor)  # type: ignore[union-attr]
    seen.to(torch.float64)
    seen.meanings.clear()
    del seen
    plan.interpretation._bound.clear()
    gc.collect()
    assert tensor() is None


def test_samples_are_drawn_anew() -> None:
    soft = torch.tensor([True, False, True, False, True])
    seen = Interpretation(KB, limit=2, soft=soft, r=soft.diag())
    plan = TensorPlan(KB["sampled"], seen)
    assert all(bool(plan(P=5)) for _ in range(20))  # whatever is drawn, the guard lets only the true ones through
