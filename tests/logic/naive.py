"""A naive interpreter of the knowledge language: plain Python loops over instances, written only for the tests.

It shares nothing with the grounding machine but the tree. Objects of open sorts are integers, values of finite sorts
are themselves, rows are dicts. Connectives look at all their arguments, so a term without a value is noticed wherever
it stands, except behind a guard that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from doxa.logic import (
    And,
    Arith,
    Call,
    Compare,
    Expr,
    Field,
    Iff,
    Implies,
    Index,
    Let,
    Name,
    Not,
    Number,
    Or,
    Quantifier,
    Truth,
    Xor,
)


class Undefined(Exception):
    """A term has no value."""


@dataclass
class World:
    """What there is, in plain Python."""

    sorts: dict[str, list[Any]]
    symbols: dict[str, Callable[..., Any]]
    constants: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def evaluate(node: Expr, world: World, env: dict[str, Any] | None = None) -> Any:
    """The value of a term, or the truth of a formula."""
    env = env or {}

    def go(child: Expr) -> Any:
        return evaluate(child, world, env)

    match node:
        case Name():
            if node.name in env:
                return env[node.name]
            return world.constants.get(node.name, node.name)
        case Number() | Truth():
            return node.value
        case Call():
            return world.symbols[node.name](*[go(c) for c in node.children])
        case Field():
            return go(node.children[0])[node.name]
        case Index():
            base, at = go(node.children[0]), go(node.children[1])
            if not 0 <= at < len(base):
                raise Undefined(str(node))
            return base[at]
        case Arith():
            return calculate(node.op, *[go(c) for c in node.children])
        case Compare():
            return compare(node.op, *[go(c) for c in node.children])
        case Not():
            return not go(node.children[0])
        case And():
            found = [go(c) for c in node.children]  # all of them, even when one decides
            return all(found)
        case Or():
            found = [go(c) for c in node.children]
            return any(found)
        case Implies():
            a, b = [go(c) for c in node.children]
            return not a or b
        case Iff():
            a, b = [go(c) for c in node.children]
            return a == b
        case Xor():
            a, b = [go(c) for c in node.children]
            return a != b
        case Let():
            inner = dict(env)
            for name, value in zip(node.names, node.values, strict=True):
                inner[name] = evaluate(value, world, inner)
            return evaluate(node.body, world, inner)
        case Quantifier():
            found = [evaluate(node.body, world, e) for e in instances(node, world, env)]
            return {
                "forall": all(found),
                "exists": any(found),
                "exactly": sum(found) == node.count,
                "at most": node.count is not None and sum(found) <= node.count,
                "at least": node.count is not None and sum(found) >= node.count,
            }[node.kind]
    raise AssertionError(f"unexpected {node!r}")


def instances(node: Quantifier, world: World, env: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The assignments that a quantifier ranges over: those that its guard lets through."""
    found = [dict(env)]
    for group in node.groups:
        for name in group.names:
            found = [{**e, name: value} for e in found for value in domain(group, world, e)]
    for e in found:
        if node.guard is None or guarded(node.guard, world, e):
            yield e


def guarded(guard: Expr, world: World, env: dict[str, Any]) -> bool:
    """Does a guard hold? The conjuncts of a guard are looked at one after the other."""
    parts = guard.children if isinstance(guard, And) else (guard,)
    return all(evaluate(p, world, env) for p in parts)


def domain(group: Any, world: World, env: dict[str, Any]) -> list[Any]:
    if group.sort is not None:
        return world.sorts[group.sort]
    if isinstance(group.domain, Name) and group.domain.name not in env:
        return world.rows[group.domain.name]
    return list(evaluate(group.domain, world, env))


def calculate(op: str, a: Any, b: Any = None) -> Any:
    if b is None:
        return -a
    if op in ("//", "mod") and b == 0:
        raise Undefined("division by zero")
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b, "mod": lambda: a % b}[
        op
    ]()


def compare(op: str, a: Any, b: Any) -> bool:
    return bool({"=": a == b, "!=": a != b}[op] if op in ("=", "!=") else _ordered(op, a, b))


def _ordered(op: str, a: Any, b: Any) -> bool:
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op])
