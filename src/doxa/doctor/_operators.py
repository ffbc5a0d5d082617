"""Which operators a formula uses, with how many arguments, and on how much of the cube they pass a gradient on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from doxa.doctor._random_worlds import RandomWorlds
from doxa.fuzzy import Logic, nonvanishing_fraction
from doxa.logic import And, Expr, Iff, Implies, Let, Not, Or, Quantifier, Xor, postorder

__all__ = ["used", "weakest"]

_MOST = 50  # arguments, beyond which a fraction says no more
_SIGNS = {"neg": "¬", "conj": "∧", "disj": "∨", "implies": "→", "forall": "∀", "exists": "∃"}


def used(formula: Expr, world: RandomWorlds) -> set[tuple[str, int]]:
    """The operators of a formula: which of a logic's six, and of how many arguments."""
    return set(_used(formula, world))


def _used(formula: Expr, world: RandomWorlds) -> Iterator[tuple[str, int]]:
    signature = world.kb.signature
    for node in postorder(formula):
        match node:
            case Not():
                yield "neg", 1
            case And() | Or():
                yield "conj" if isinstance(node, And) else "disj", len(node.children)
            case Implies():
                yield "implies", 2
            case Iff() | Xor():
                yield from [("implies", 2), ("conj", 2)]
                if isinstance(node, Xor):
                    yield "neg", 1
            case Quantifier() if node.kind in ("forall", "exists"):
                yield node.kind, math.prod([world.count(group) ** len(group.names) for group in node.groups])
            case Let():
                for value in node.values:
                    function = signature.functions.get(getattr(value, "name", ""))
                    if function is not None and function.result.values is not None:
                        yield from [("exists", len(function.result.values)), ("conj", 2)]


def weakest(formula: Expr, logic: Logic, world: RandomWorlds, *, outermost: bool = True) -> str:
    """The operator of a formula whose gradient vanishes most often, in words; nothing if none does.

    Args:
        formula: the formula.
        logic: its operators.
        world: says how many arguments quantifiers have.
        outermost: whether the outermost ∀ counts.
    """
    while not outermost and isinstance(formula, Quantifier) and formula.kind == "forall":
        formula, outermost = formula.body, True
    if logic.is_log:
        return ""
    found = []
    for slot, arity in sorted(used(formula, world)):
        n = min(arity, _MOST)
        if n < 1:
            continue
        fraction = nonvanishing_fraction(getattr(logic, slot), n=n, generator=torch.Generator().manual_seed(0))
        found.append((fraction.value, slot, n))
    if not found or min(found)[0] >= 1:
        return ""
    value, slot, n = min(found)
    arguments = "" if slot == "neg" else f" of {n} truth values"
    return f"{_SIGNS[slot]}{arguments} ({getattr(logic, slot)}) passes a gradient on {value:.2g} of them"
