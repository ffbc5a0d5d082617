"""Compiled plans have the values and gradients of plain ones; what cannot be compiled runs as usual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.logic import Interpretation, KnowledgeBase, logits, parse, probs

RULES = """
sort P; sort D = 0..9
pred is(P, D); pred same(P, P); pred dark(P)
[symmetric] forall x, y: P. same(x, y) -> same(y, x)
[some] forall x: P. exists y: P. same(x, y) & (dark(y) | !dark(x))
[count] at least 2 x: P. dark(x)
[equal] forall x, y: P. (dark(x) <-> dark(y)) | x = y
""" + "\n".join([f"[rule{d}] forall x, y: P. is(x, {d}) & is(y, {d}) -> same(x, y)" for d in range(10)])


def world(n: int, seed: int = 0) -> tuple[KnowledgeBase, Interpretation, list[Tensor]]:
    kb = parse(RULES)
    g = torch.Generator().manual_seed(seed)
    shapes = {"is": (n, 10), "same": (n, n), "dark": (n,)}
    leaves = {k: torch.rand(s, generator=g, dtype=torch.float64).requires_grad_() for k, s in shapes.items()}
    return kb, Interpretation(kb, **{k: probs(v) for k, v in leaves.items()}), list(leaves.values())


def pulled(value: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    weights = torch.arange(1.0, 1 + value.numel(), dtype=value.dtype)
    return [value.detach(), *torch.autograd.grad((weights * value.reshape(-1)).sum() + 0 * leaves[0].sum(), leaves)]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be compiled, run as it was recorded."""
    modules: list[Any] = []

    def keep(module: Any, **_: Any) -> Callable[..., Any]:
        modules.append(module)
        return module  # type: ignore[no-any-return]

    monkeypatch.setattr(torch, "compile", keep)
    return modules


# Every ∀ must be outermost where it gives logarithms.
LOGICS = [fz.logic(name) for name in fz.LOGICS if name not in ("log_product", "recommended")]
LOGICS += [
    fz.Logic(
        fz.STANDARD,
        fz.Product(),
        fz.Product().dual,
        fz.REICHENBACH,
        fz.GeneralizedMeanError(p),
        fz.GeneralizedMean(p),
        name=f"means, p = {p}",
    )
    for p in (2.0, 3.0)
]


@pytest.mark.parametrize("logic", LOGICS, ids=lambda logic: logic.name)
def test_what_is_recorded_is_what_is_computed(logic: fz.Logic, recorded: list[Any]) -> None:
    kb, beliefs, leaves = world(4)
    plain = fz.FuzzyPlan(kb, beliefs, logic)
    compiled = fz.FuzzyPlan(kb, beliefs, logic, compile=True)
    for a, b in zip(pulled(compiled(P=4), leaves), pulled(plain(P=4), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert recorded
    with torch.no_grad():
        for leaf in leaves:
            leaf.copy_(torch.rand_like(leaf))
    made = len(recorded)
    for a, b in zip(pulled(compiled(P=4), leaves), pulled(plain(P=4), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert len(recorded) == made  # nothing new was recorded for new values


def test_parameters_of_operators_learn(recorded: list[Any]) -> None:
    kb, beliefs, leaves = world(3)
    logic = fz.symmetric(fz.Yager(fz.Learnable(2.0, low=1.0)))
    inputs = [*leaves, *logic.trainable().parameters()]
    plans = [fz.FuzzyPlan(kb, beliefs, logic, compile=c) for c in (True, False)]
    for a, b in zip(*[pulled(p(P=3), inputs) for p in plans], strict=True):
        torch.testing.assert_close(a, b)
    assert torch.autograd.grad(plans[0](P=3).sum(), inputs[-1])[0] != 0
    with torch.no_grad():
        inputs[-1] += 1
    torch.testing.assert_close(plans[0](P=3), plans[1](P=3))


def test_other_sizes_are_recorded_again(recorded: list[Any]) -> None:
    kb = parse("sort P; pred r(P, P); [rule] forall x, y: P. r(x, y) -> r(y, x)")
    beliefs = Interpretation(kb)
    plans = [fz.FuzzyPlan(kb, beliefs, "product", compile=c) for c in (True, False)]
    for n in (3, 5, 0, 3, 5):
        r = torch.rand(n, n)
        torch.testing.assert_close(*[p(P=n, r=probs(r)) for p in plans])
    assert len(recorded) == 6  # each size is tried, then recorded


def test_networks_learn(recorded: list[Any]) -> None:
    """Networks run outside of what is recorded, once per call, and gradients reach them from the first call on."""
    kb = parse("sort P; pred a(P); pred r(P, P); [rule] forall x, y: P. a(x) & r(x, y) -> a(y)")
    unary, pairs = torch.nn.Linear(3, 1), fz.Bilinear(3)
    beliefs = Interpretation(kb, a=logits(unary), r=logits(pairs))
    leaves = [*unary.parameters(), *pairs.parameters()]
    plans = [fz.FuzzyPlan(kb, beliefs, name, compile=c) for name in ("product", "log_ltn") for c in (True, False)]
    for _ in range(2):
        x = torch.randn(4, 3)
        found = [pulled(plan(P=x), leaves) for plan in plans]
        for ours, plain in (found[:2], found[2:]):
            for a, b in zip(ours, plain, strict=True):
                torch.testing.assert_close(a, b)
            assert any(g.abs().max() > 0 for g in ours[1:])
    assert recorded


def test_guards_and_rows_run_as_usual(recorded: list[Any]) -> None:
    kb = parse("""
        sort P; data pairs(left: P, right: P)
        pred r(P, P); pred p(P)
        [plain] forall x: P. p(x)
        [guard] forall x, y: P where p(x). r(x, y) -> r(y, x)
        [unequal] forall x, y: P where x != y. r(x, y) -> r(y, x)
        [rows] forall q in pairs. r(q.left, q.right)
    """)
    r, p = torch.rand(2, 2, requires_grad=True), torch.rand(2, requires_grad=True)
    beliefs = Interpretation(kb, r=probs(r), p=probs(p))
    rows = {"left": torch.tensor([0, 1, 1]), "right": torch.tensor([1, 1, 0])}
    plans = [fz.FuzzyPlan(kb, beliefs, "product", compile=c) for c in (True, False)]
    for a, b in zip(*[pulled(plan(P=2, pairs=rows), [r, p]) for plan in plans], strict=True):
        torch.testing.assert_close(a, b)
    said = plans[0].explain(P=2, pairs=rows)
    assert "compiled: plain" in said
    for name in ("guard", "unequal", "rows"):
        assert f"not compiled: {name} (" in said


def test_without_a_compiler_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kb, beliefs, _ = world(2)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ConfigError, match=r"compile=True .* C\+\+ compiler .* leave compile out"):
        fz.FuzzyPlan(kb, beliefs, "product", compile=True)(P=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("default::DeprecationWarning")  # of torch itself, in its own compiler
def test_torch_compiles_it() -> None:
    """The real compiler, on two small rules."""
    kb = parse("sort P; pred r(P, P); [a] forall x, y: P. r(x, y) -> r(y, x); [b] exists x: P. r(x, x)")
    r = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    beliefs = Interpretation(kb, r=probs(r))
    plans = [fz.FuzzyPlan(kb, beliefs, "product", compile=c) for c in (True, False)]
    (value, gradient), (wanted, wanted_gradient) = [(v := f(P=3), torch.autograd.grad(v.sum(), r)[0]) for f in plans]
    torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(gradient, wanted_gradient)
