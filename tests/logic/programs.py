"""Stratified programs made up from a seed, and what they mean, by naive bottom-up evaluation: world by world."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Iterator, Mapping
from typing import Any

from doxa.logic import (
    And,
    Call,
    Compare,
    Define,
    Expr,
    Iff,
    Implies,
    KnowledgeBase,
    Name,
    Not,
    Number,
    Or,
    Quantifier,
    Truth,
    Xor,
    parse,
)

NODES = ("a", "b", "c")
SPACE = "sort Node = {a, b, c}\npred edge(Node, Node)\npred mark(Node)\n"
World = frozenset[tuple[str, tuple[str, ...]]]
ATOMS = [("edge", pair) for pair in itertools.product(NODES, repeat=2)] + [("mark", (n,)) for n in NODES]


def program(seed: int, *, negation: bool = True) -> KnowledgeBase:
    """A knowledge base of three strata of one or two predicates each."""
    rng = random.Random(seed)
    lines = [SPACE]
    lower: dict[str, int] = {"edge": 2, "mark": 1}
    for level in range(3):
        own = {f"p{level}{i}": rng.choice((1, 2)) for i in range(rng.choice((1, 2)))}
        for name, arity in own.items():
            for _ in range(rng.choice((1, 2))):
                scope = ["x", "y"][:arity] if rng.random() < 0.8 else ["u", "x"][:arity]
                head = f"{', '.join(scope)}: Node"
                if rng.random() < 0.2:
                    head += f" where {_literal(rng, scope, lower, {}, negation)}"
                lines.append(f"define {name}({head}) := {_body(rng, 2, scope, lower, own, negation)}")
        lower |= own
    name, arity = rng.choice([(n, k) for n, k in lower.items() if n.startswith("p2")])
    lines.append(f"[query] {name}({', '.join([rng.choice(NODES) for _ in range(arity)])})")
    lines.append(f"[all] exists x: Node. {_body(rng, 1, ['x'], lower, {}, negation)}")
    return parse("\n".join(lines), warn=False)


def _body(
    rng: random.Random, depth: int, scope: list[str], lower: Mapping[str, int], own: Mapping[str, int], negation: bool
) -> str:
    """A formula in which what is defined here stands only where more of it makes it truer."""
    if depth == 0:
        return _literal(rng, scope, lower, own, negation)
    inner = [_body(rng, depth - 1, scope, lower, own, negation) for _ in range(2)]
    way = rng.random()
    if way < 0.3:
        return f"({inner[0]} | {inner[1]})"
    if way < 0.5:
        return f"({inner[0]} & {inner[1]})"
    new = rng.choice(["z", "w", scope[0]])
    within = _body(rng, depth - 1, [*scope, new], lower, own, negation)
    if way < 0.8:
        return f"(exists {new}: Node. edge({scope[0]}, {new}) & {within})"
    if way < 0.86 and negation:
        return f"(forall {new}: Node where edge({scope[0]}, {new}). {within})"
    if way < 0.92:
        return f"(at least 2 {new}: Node. {within})"
    if way < 0.96 and negation:
        return f"(!{_literal(rng, scope, lower, {}, negation)} <-> {_literal(rng, scope, lower, {}, negation)})"
    return f"({_literal(rng, scope, lower, {}, False)} & {inner[0]})"


def _literal(
    rng: random.Random, scope: list[str], lower: Mapping[str, int], own: Mapping[str, int], negation: bool
) -> str:
    def term() -> str:
        return rng.choice(scope) if rng.random() < 0.9 else rng.choice(NODES)

    if rng.random() < 0.1 and negation:
        return f"{term()} {rng.choice(('=', '!='))} {term()}"
    symbols = {**lower, **own, **own}
    name = rng.choice(list(symbols) + list(own) * 2)
    sign = "!" if negation and name not in own and rng.random() < 0.3 else ""
    return f"{sign}{name}({', '.join([term() for _ in range(symbols[name])])})"


def worlds() -> Iterator[World]:
    for bits in itertools.product((False, True), repeat=len(ATOMS)):
        yield frozenset([atom for atom, bit in zip(ATOMS, bits, strict=True) if bit])


def random_worlds(seed: int, count: int) -> list[World]:
    rng = random.Random(seed)
    return [frozenset([atom for atom in ATOMS if rng.random() < rng.choice((0.2, 0.5))]) for _ in range(count)]


def model(kb: KnowledgeBase, world: World) -> dict[str, set[tuple[str, ...]]]:
    """All that is true in a world: its atoms, and the least relations that the definitions allow."""
    true: dict[str, set[tuple[str, ...]]] = {"edge": set(), "mark": set()}
    for name, args in world:
        true[name].add(args)
    definitions = kb.signature.definitions
    for level in range(3):  # the strata of `program`, by its names
        names = [n for n in definitions if n.startswith(f"p{level}")]
        true |= {n: set() for n in names}
        changed = True
        while changed:
            changed = False
            for name in names:
                for clause in definitions[name]:
                    assert isinstance(clause, Define)
                    for args in itertools.product(NODES, repeat=len(clause.names)):
                        scope = dict(zip(clause.names, args, strict=True))
                        fits = clause.guard is None or holds(clause.guard, scope, true)
                        if args not in true[name] and fits and holds(clause.body, scope, true):
                            true[name].add(args)
                            changed = True
    return true


def holds(node: Expr, scope: Mapping[str, str], true: Mapping[str, set[tuple[str, ...]]]) -> bool:
    """Classical truth, by the book."""

    def value(term: Expr) -> Any:
        assert isinstance(term, Name | Number)
        return scope.get(term.name, term.name) if isinstance(term, Name) else term.value

    parts = (
        [holds(c, scope, true) for c in node.children] if isinstance(node, And | Or | Not | Implies | Iff | Xor) else []
    )
    match node:
        case Truth():
            return node.value
        case Call():
            return tuple([value(a) for a in node.children]) in true[node.name]
        case Compare():
            return {"=": operator.eq, "!=": operator.ne}[node.op](*[value(c) for c in node.children])
        case Not():
            return not parts[0]
        case And():
            return all(parts)
        case Or():
            return any(parts)
        case Implies():
            return not parts[0] or parts[1]
        case Iff():
            return parts[0] == parts[1]
        case Xor():
            return parts[0] != parts[1]
        case Quantifier():
            found = []
            for args in itertools.product(NODES, repeat=len(node.names)):
                inner = {**scope, **dict(zip(node.names, args, strict=True))}
                if node.guard is None or holds(node.guard, inner, true):
                    found.append(holds(node.body, inner, true))
            if node.kind in ("forall", "exists"):
                return all(found) if node.kind == "forall" else any(found)
            compare = {"at least": operator.ge, "at most": operator.le, "exactly": operator.eq}[node.kind]
            return bool(compare(sum(found), node.count))
    raise TypeError(node)
