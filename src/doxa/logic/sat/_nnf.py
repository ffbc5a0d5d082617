"""Negation normal form: negations stand only in front of atoms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from doxa.errors import ConfigError
from doxa.logic.syntax._binders import Count, Quantifier
from doxa.logic.syntax._simplify import Builder, formulas, parts
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic.unfold._domains import ENDLESS, ENTRIES, Clock, check_entries

Key = tuple[Expr, bool]
"""A subformula and whether it is wanted as it is (True) or negated."""
Expansion = Callable[[Builder, int, Sequence[Expr]], Expr]
"""How ``at least k`` of formulas is written with conjunctions and disjunctions."""


def to_nnf(formula: Expr, *, counting: str = "keep", entries: int = ENTRIES) -> Expr:
    """The formula with ``&``, ``|``, quantifiers and statements over atoms and negated atoms, simplified on the way.

    Shared subformulas stay shared, each at most once as it is and once negated, so a nesting of equivalences, whose
    written form doubles with every level, stays proportional to its depth. ``counting="keep"`` leaves counting
    constraints over n ground formulas as they are (a negated one counts the other side); ``"expand"`` writes them as
    k·n conjunctions and disjunctions, shared, within ``entries``. Counting quantifiers stay; `ground` removes them.
    """
    if counting not in ("keep", "expand"):
        raise ConfigError(f"counting={counting!r} is unknown; choose 'keep' or 'expand'")
    if counting == "keep":
        return normalise(formula, None)
    counts = [node for node in formulas(formula) if isinstance(node, Count)]
    written = sum([4 * min(c.count + 1, len(c.children)) * len(c.children) for c in counts])
    check_entries(written, entries, "writing the counts of this formula out", 'use counting="keep", or raise entries')
    return normalise(formula, at_least_grid)


def normalise(
    formula: Expr, expansion: Expansion | None, *, keep_equivalences: bool = False, clock: Clock = ENDLESS
) -> Expr:
    """`to_nnf`, which may also leave equivalences (as ``<->`` and ``xor`` over formulas in normal form)."""
    while True:
        build = Builder()
        formula = _pushed(build, formula, expansion, keep_equivalences, clock)
        # What folds into a negation only on the way up ("at most 0 of" a conjunction) is pushed down in another round.
        if not build.negated:
            return formula


def _pushed(build: Builder, formula: Expr, expansion: Expansion | None, keep_equivalences: bool, clock: Clock) -> Expr:
    value: dict[tuple[int, bool], Expr] = {}

    def wanted(node: Expr, positive: bool) -> list[Key]:
        if type(node) is And or type(node) is Or:
            return [(c, positive) for c in node.children]
        match node:
            case Not():
                return [(node.children[0], not positive)]
            case Implies():
                return [(node.children[0], not positive), (node.children[1], positive)]
            case Iff() | Xor():
                signs = (True,) if keep_equivalences else (True, False)
                return [(c, sign) for c in node.children for sign in signs]
            case Count():
                signs = (True,) if expansion is None else (True, False)
                return [(c, sign) for sign in signs for c in node.children]
            case Quantifier():
                counting = node.kind not in ("forall", "exists")
                guard = [(node.guard, True)] if node.guard is not None else []
                return [*guard, (node.body, positive or counting)]
        return [(c, positive) for c in parts(node)]

    stack: list[tuple[Expr, bool, list[Key] | None]] = [(formula, True, None)]
    while stack:
        clock.check()
        node, positive, keys = stack.pop()
        if (id(node), positive) in value:
            continue
        kind = type(node)
        if kind is Call or kind is Compare:
            atom = build.share(node)
            value[id(node), positive] = atom if positive else build.negate(atom)
        elif keys is None:
            keys = wanted(node, positive)
            stack.append((node, positive, keys))
            stack += [(c, sign, None) for c, sign in reversed(keys)]
        else:
            args = [value[id(c), sign] for c, sign in keys]
            value[id(node), positive] = _build(build, node, positive, args, expansion)
    return build.flatten(value[id(formula), True])


def _build(build: Builder, node: Expr, positive: bool, args: list[Expr], expansion: Expansion | None) -> Expr:
    """The normal form of a node or of its negation, from those of the keys it asked for."""
    match node:
        case Not():
            return args[0]
        case Implies():
            return build.join(Or if positive else And, args)
        case Iff() | Xor() if len(args) == 4:
            a, not_a, b, not_b = args
            pairs = ((a, b), (not_a, not_b)) if isinstance(node, Iff) == positive else ((a, not_b), (not_a, b))
            return build.join(Or, [build.join(And, pair) for pair in pairs])
        case Count() if expansion is not None:
            return _expanded(build, node, positive, args, expansion)
        case _ if positive:
            return build.rebuild(node, args)
        case Truth():
            return build.truth(not node.value)
        case And() | Or():
            return build.join(Or if isinstance(node, And) else And, args)
        case Iff() | Xor():
            return build.equal(args[0], args[1], isinstance(node, Xor))
        case Count():
            return build.join(Or, [build.count(kind, k, args) for kind, k in _others(node.kind, node.count)])
        case Quantifier():
            body, guard = args[-1], args[0] if len(args) == 2 else None
            turned = [(kind, k) for kind, k in _others(node.kind, node.count) if k is None or k >= 0]
            sides = [Quantifier(kind, node.groups, body, count=k, guard=guard) for kind, k in turned]
            return build.join(Or, [build.quantify(side, body, guard) for side in sides])
    return build.rebuild(node, args)


def _others(kind: str, k: Any) -> list[tuple[str, Any]]:
    """A quantifier or counting constraint that is negated: the ones of which one holds instead."""
    if k is None:
        return [("exists" if kind == "forall" else "forall", None)]
    below, above = ("at most", k - 1), ("at least", k + 1)
    return {"exactly": [below, above], "at most": [above], "at least": [below]}[kind]


def _expanded(build: Builder, node: Count, positive: bool, args: list[Expr], expansion: Expansion) -> Expr:
    n = len(args) // 2
    written: list[Expr] = []
    for kind, k in [(node.kind, node.count)] if positive else _others(node.kind, node.count):
        both = [] if kind == "at most" else [expansion(build, k, args[:n])]
        if kind != "at least":  # at most k are true: at least n - k are false
            both.append(expansion(build, n - k, args[n:]))
        written.append(build.join(And, both))
    return build.join(Or, written)


def at_least_grid(build: Builder, k: int, args: Sequence[Expr]) -> Expr:
    """At least k of the arguments, by c(i, j) = c(i-1, j) | x_i & c(i-1, j-1): at least j of the first i."""
    n = len(args)
    if k <= 0 or k > n:
        return build.truth(k <= 0)
    row = [build.true] + [build.false] * k
    for i, x in enumerate(args):
        # only what can still reach k with the arguments that follow, from above so that row[j - 1] is the old one
        for j in range(min(i + 1, k), max(0, k - (n - i)), -1):
            row[j] = build.join(Or, [row[j], build.join(And, [x, row[j - 1]])])
    return row[k]
