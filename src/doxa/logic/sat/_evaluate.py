"""The truth of a propositional formula under one assignment of its atoms, or under many at once."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import Any

from doxa.errors import BindingError
from doxa.logic.syntax._binders import Count
from doxa.logic.syntax._simplify import formulas, not_propositional, parts
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Iff, Implies, Not, Or, Truth, Xor


def evaluate(formula: Expr, assignment: Mapping[Expr, Any]) -> Any:
    """The truth of a propositional formula, given the truth of its atoms.

    Args:
        formula: connectives and counting constraints over atoms.
        assignment: for each atom a bool, a NumPy array of bool or a torch tensor of bool. Arrays hold many assignments
            and broadcast; one call takes arrays or tensors, not both.

    Returns:
        A bool, or an array or tensor with the truth under each assignment.

    >>> import torch
    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> evaluate(a >> b, {a: True, b: False})
    False
    >>> evaluate(a >> b, {a: torch.tensor([True, True, False]), b: torch.tensor([False, True, False])})
    tensor([False,  True,  True])
    """
    order = list(formulas(formula))
    uses = Counter([id(c) for node in order for c in parts(node)])
    uses[id(formula)] += 1
    value: dict[int, Any] = {}
    for node in order:
        kind = type(node)
        if kind is Call or kind is Compare:
            value[id(node)] = _truth_of(node, assignment)
            continue
        places = [id(c) for c in parts(node)]
        value[id(node)] = _apply(node, [value[place] for place in places])
        for place in places:  # an array is let go as soon as nothing needs it any more
            uses[place] -= 1
            if not uses[place]:
                del value[place]
    return value[id(formula)]


def _apply(node: Expr, values: list[Any]) -> Any:
    match node:
        case Truth():
            return node.value
        case Not():
            return _not(values[0])
        case And():
            return reduce(operator.and_, values)
        case Or():
            return reduce(operator.or_, values)
        case Implies():
            return _not(values[0]) | values[1]
        case Xor():
            return values[0] ^ values[1]
        case Iff():
            return _not(values[0] ^ values[1])
        case Count():
            total = sum([v * 1 for v in values])
            low, high = node.bounds
            return (total >= low) & (total <= high)
    raise not_propositional(node)


def _not(value: Any) -> Any:
    return not value if isinstance(value, bool) else ~value


def _truth_of(atom: Expr, assignment: Mapping[Expr, Any]) -> Any:
    try:
        value = assignment[atom]
    except KeyError:
        raise BindingError(f"the assignment gives no truth value for the atom {atom}") from None
    if isinstance(value, bool):
        return value
    dtype = str(getattr(value, "dtype", None))
    if dtype not in ("bool", "torch.bool"):
        came = type(value).__name__ + ("" if dtype == "None" else f" of {dtype}")
        raise BindingError(f"the truth value of {atom} must be a bool, or an array or tensor of bool; got {came}")
    return value
