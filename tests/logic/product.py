"""A small real-valued logic, twice: as an algebra for the grounding machine, and as plain loops over instances.

Product conjunction, its dual, Reichenbach implication; ``forall`` is the mean squared error, ``exists`` the dual of the
product; a statement is an expectation; a counting quantifier is the probability of the count if instances were
independent. The loops know nothing of axes, lists, chunks or tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import torch
from tests.logic import naive
from torch import Tensor

from doxa.logic import And, Call, Compare, Expr, Iff, Implies, Let, Name, Not, Or, Quantifier, Truth, Xor
from doxa.logic.tensor._algebra import Accumulator, Algebra, Monoid

State = tuple[Tensor, ...]


@dataclass(frozen=True)
class Counting:
    """The distribution of the number of true instances, the last entry standing for all larger numbers."""

    kind: str
    number: int
    idempotent: bool = False
    counts: bool = False

    def lift(self, x: Tensor) -> State:
        none = torch.zeros_like(x)
        return (torch.stack([1 - x, x, *[none] * self.number], -1),)

    def _add(self, a: Tensor, b: Tensor) -> Tensor:
        top = self.number + 1
        out: list[Any] = [0.0] * (top + 1)
        for i in range(top + 1):
            for j in range(top + 1):
                out[min(i + j, top)] = out[min(i + j, top)] + a[..., i] * b[..., j]
        return torch.stack(out, -1)

    def _nothing(self, like: Tensor, shape: Sequence[int]) -> Tensor:
        start = torch.zeros(self.number + 2, dtype=like.dtype)
        start[0] = 1.0
        return start.expand(*shape, -1)

    def fold(self, state: State, dims: tuple[int, ...]) -> State:
        (x,) = state
        for dim in sorted(dims, reverse=True):
            start = self._nothing(x, [n for d, n in enumerate(x.shape[:-1]) if d != dim])
            x = reduce(self._add, x.unbind(dim), start)
        return (x,)

    def segments(self, state: State, dim: int, ids: Tensor, size: int) -> State:
        (x,) = state
        kept = [self.fold((x.index_select(dim, (ids == i).nonzero()[:, 0]),), (dim,))[0] for i in range(size)]
        if not kept:
            return (self._nothing(x, [*x.shape[:dim], 0, *x.shape[dim + 1 : -1]]),)
        return (torch.stack(kept, dim),)

    def merge(self, a: State, b: State) -> State:
        return (self._add(a[0], b[0]),)

    def finish(self, state: State, count: int | Tensor) -> Tensor:
        (x,) = state
        k = self.number
        return {"exactly": x[..., k], "at most": x[..., : k + 1].sum(-1), "at least": 1 - x[..., :k].sum(-1)}[self.kind]


def _mean_error(s: Tensor, n: int | Tensor) -> Tensor:
    # The square root has no slope at nothing, which is where a true formula is.
    return 1 - (s / torch.as_tensor(n).clamp(min=1) + 1e-12).sqrt()


@dataclass(frozen=True)
class Product(Algebra):
    """The algebra."""

    name: str = "product"
    statements: Literal["mode", "axis"] = "axis"
    associative: bool = True

    def atom(self, raw: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
        return {"prob": lambda: raw, "logit": raw.sigmoid, "log_prob": raw.exp, "bool": lambda: raw.to(dtype)}[kind]()

    def not_(self, x: Tensor) -> Tensor:
        return 1 - x

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return reduce(torch.mul, xs)

    def or_(self, xs: Sequence[Tensor]) -> Tensor:
        return 1 - reduce(torch.mul, [1 - x for x in xs])

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return 1 - a + a * b

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b + (1 - a) * (1 - b)

    def xor(self, a: Tensor, b: Tensor) -> Tensor:
        return a * (1 - b) + b * (1 - a)

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        if kind == "and":
            return Monoid("prod")
        return Monoid("prod", lift=lambda x: 1 - x, finish=lambda s, n: 1 - s)

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        if kind == "forall":
            return Monoid("sum", lift=lambda x: (1 - x) ** 2, finish=_mean_error, counts=True)
        if kind == "exists":
            return self.connective("or")
        assert count is not None
        return Counting(kind, count)

    def draw(self) -> Accumulator:
        return Monoid("sum")


# --- the same by loops --------------------------------------------------------------------------------------------


@dataclass
class SoftWorld:
    """``crisp`` decides guards and terms; ``soft`` gives truth values, ``draws`` distributions over values."""

    crisp: naive.World
    soft: dict[str, Any]
    draws: dict[str, Any]


class _Choose(Exception):
    def __init__(self, call: Expr, options: list[tuple[Tensor, Any]]) -> None:
        super().__init__(str(call))
        self.call, self.options = call, options


def value(node: Expr, world: SoftWorld, env: dict[str, Any] | None = None) -> Tensor:
    """The truth value of a formula."""
    env = env or {}

    def go(child: Expr) -> Tensor:
        return value(child, world, env)

    match node:
        case Truth():
            return torch.tensor(float(node.value), dtype=torch.float64)
        case Compare() | Call():
            return _atom(node, world, env, {})
        case Not():
            return 1 - go(node.children[0])
        case And():
            return reduce(torch.mul, [go(c) for c in node.children])
        case Or():
            return 1 - reduce(torch.mul, [1 - go(c) for c in node.children])
        case Implies():
            a, b = map(go, node.children)
            return 1 - a + a * b
        case Iff():
            a, b = map(go, node.children)
            return a * b + (1 - a) * (1 - b)
        case Xor():
            a, b = map(go, node.children)
            return a * (1 - b) + b * (1 - a)
        case Let():
            return _statement(node, world, env)
        case Quantifier():
            return _quantifier(node, world, env)
    raise AssertionError(f"unexpected {node!r}")


def _quantifier(node: Quantifier, world: SoftWorld, env: dict[str, Any]) -> Tensor:
    envs, body = list(naive.instances(node, world.crisp, env)), node.body
    while node.count is None and isinstance(body, Quantifier) and body.kind == node.kind:
        envs = [inner for e in envs for inner in naive.instances(body, world.crisp, e)]
        body = body.body
    found = [value(body, world, e) for e in envs]
    if node.kind == "forall":
        total = sum([(1 - x) ** 2 for x in found], torch.zeros((), dtype=torch.float64))
        return _mean_error(total, len(found))
    one = torch.ones((), dtype=torch.float64)
    if node.kind == "exists":
        return 1 - reduce(torch.mul, [1 - x for x in found], one)
    assert node.count is not None
    chances = [one] + [torch.zeros((), dtype=torch.float64)] * len(found)
    for x in found:
        chances = [c * (1 - x) + (chances[i - 1] * x if i else 0) for i, c in enumerate(chances)]
    keep = {"exactly": lambda i: i == node.count, "at most": lambda i: i <= node.count}.get(node.kind)
    return sum([c for i, c in enumerate(chances) if (keep(i) if keep else i >= node.count)], 0 * one)


def _statement(node: Let, world: SoftWorld, env: dict[str, Any]) -> Tensor:
    options = [(torch.ones((), dtype=torch.float64), dict(env))]
    for name, call in zip(node.names, node.values, strict=True):
        options = [(p * q, {**e, name: v}) for p, e in options for q, v in _outcomes(call, world, e, {})]
    return sum([p * value(node.body, world, e) for p, e in options], torch.zeros((), dtype=torch.float64))


def _outcomes(term: Expr, world: SoftWorld, env: dict[str, Any], known: dict[Expr, Any]) -> list[tuple[Tensor, Any]]:
    """The values that a term may take, each with its probability."""
    try:
        return [(torch.ones((), dtype=torch.float64), _term(term, world, env, known))]
    except _Choose as choice:
        found = []
        for p, v in choice.options:
            found += [(p * q, w) for q, w in _outcomes(term, world, env, {**known, choice.call: v})]
        return found


def _term(term: Expr, world: SoftWorld, env: dict[str, Any], known: dict[Expr, Any]) -> Any:
    if isinstance(term, Call) and term.name in world.draws:
        if term in known:
            return known[term]
        args = [_term(a, world, env, known) for a in term.children]
        raise _Choose(term, world.draws[term.name](*args))
    if isinstance(term, Name) or not term.children:
        return naive.evaluate(term, world.crisp, env)
    inner = dict(env)
    children = []
    for number, child in enumerate(term.children):
        inner[f"_{number}"] = _term(child, world, env, known)
        children.append(Name(f"_{number}"))
    return naive.evaluate(term.with_children(tuple(children)), world.crisp, inner)


def _atom(node: Expr, world: SoftWorld, env: dict[str, Any], known: dict[Expr, Any]) -> Tensor:
    try:
        args = [_term(c, world, env, known) for c in node.children]
    except _Choose as choice:
        return sum([p * _atom(node, world, env, {**known, choice.call: v}) for p, v in choice.options], 0.0)  # type: ignore[return-value]
    if isinstance(node, Compare):
        return torch.tensor(float(naive.compare(node.op, *args)), dtype=torch.float64)
    assert isinstance(node, Call)
    return world.soft[node.name](*args)
