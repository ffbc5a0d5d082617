"""Propositional formulas: simplified while they are built, in time proportional to their size, and their truth."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.syntax._binders import Aggregate, Count, Let, Quantifier
from doxa.logic.syntax._node import below, make
from doxa.logic.syntax._tree import CONNECTIVES, And, Call, Compare, Expr, Iff, Implies, Not, Or, Truth, Xor


def atoms_of(*formulas_: Expr) -> tuple[Expr, ...]:
    """The distinct atoms (calls and comparisons) of propositional formulas, in the order in which they appear."""
    found: dict[Expr, None] = {}
    for node in formulas(*formulas_):
        kind = type(node)
        if kind is Call or kind is Compare:
            found[node] = None
        elif kind not in (*CONNECTIVES, Count, Truth):
            raise not_propositional(node)
    return tuple(found)


def parts(node: Expr) -> tuple[Expr, ...]:
    """The subformulas directly below a node: none below an atom, guard and body below a quantifier."""
    kind = type(node)
    if kind is And or kind is Or:
        return node.children
    if kind is Call or kind is Compare or kind is Aggregate:
        return ()
    if isinstance(node, Quantifier):
        return node.children[-2:] if node.guard is not None else node.children[-1:]
    return node.children[-1:] if kind is Let else node.children


def formulas(*roots: Expr) -> Iterator[Expr]:
    """Every distinct subformula, children first, each once; like `postorder`, but it does not enter atoms."""
    return below(roots, parts)


def not_propositional(node: Expr) -> KnowledgeError:
    """The error for a node that is no propositional formula."""
    if isinstance(node, Aggregate):
        return no_meaning(node)
    if isinstance(node, Quantifier | Let):
        what = node.kind if isinstance(node, Quantifier) else "a statement"
        return KnowledgeError(
            f"the formula is not propositional: it has {what} over {', '.join(node.names)}. "
            "Ground it over finite sorts first: ground(formula, kb).formula"
        )
    return KnowledgeError(f"{node} is a term, and a formula is wanted; did you mean a comparison such as {node} = 1?")


def no_meaning(node: Aggregate) -> KnowledgeError:
    """The error for an aggregate where none is evaluated."""
    return KnowledgeError(f"{node}: {node.kind} is part of the language, but is not evaluated here")


class Builder:
    """Builds simplified formulas bottom up, equal ones as one object; arguments come from the same builder.

    Conjunctions below conjunctions (and disjunctions below disjunctions) are left as they are until `flatten`: merging
    them one level at a time would take quadratic time on a deep nesting.
    """

    def __init__(self) -> None:
        self._leaves: dict[Expr, Expr] = {}
        self._nodes: dict[tuple[Any, ...], Expr] = {}
        self._flat = False
        self._flattened: set[int] = set()
        self.nested = False
        """Whether a conjunction was put below a conjunction, or a disjunction below a disjunction."""
        self.negated = False
        """Whether anything but an atom was negated."""
        self.true = self.share(Truth(True))
        self.false = self.share(Truth(False))

    def share(self, node: Expr) -> Expr:
        """The one object for an atom or another node that is taken as it is."""
        return self._leaves.setdefault(node, node)

    def _make(self, kind: type[Expr], label: Any, children: tuple[Expr, ...]) -> Expr:
        """The one object for a connective: its children are already, so their identities tell."""
        key = (kind, label, *map(id, children))
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = make(kind, label, children)
        return node

    def truth(self, value: bool) -> Expr:
        return self.true if value else self.false

    def negate(self, a: Expr) -> Expr:
        kind = type(a)
        if kind is Truth:
            return self.truth(a is self.false)
        if kind is Not:
            return a.children[0]
        self.negated = self.negated or not (kind is Call or kind is Compare)
        return self._make(Not, None, (a,))

    def join(self, kind: type[Expr], args: Iterable[Expr]) -> Expr:
        """The conjunction (``kind`` is And) or disjunction (Or) of formulas."""
        neutral, absorbing = (self.true, self.false) if kind is And else (self.false, self.true)
        if self._flat:
            args = [leaf for a in args for leaf in (a.children if type(a) is kind else (a,))]
        distinct = {id(a): a for a in args if a is not neutral}
        opposed = False
        for a in distinct.values():
            if type(a) is Not:
                opposed = opposed or id(a.children[0]) in distinct
            elif type(a) is kind:
                self.nested = True
        if opposed or id(absorbing) in distinct:
            return absorbing
        if len(distinct) <= 1:
            return next(iter(distinct.values()), neutral)
        return self._make(kind, None, tuple(distinct.values()))

    def implies(self, a: Expr, b: Expr) -> Expr:
        if a is self.true or b is self.true or self._opposite(a, b):
            return b
        if a is self.false or a is b:
            return self.true
        return self.negate(a) if b is self.false else self._make(Implies, None, (a, b))

    def equal(self, a: Expr, b: Expr, same: bool = True) -> Expr:
        """``a <-> b``, or ``a xor b`` when not ``same``."""
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Truth):
                return y if x.value == same else self.negate(y)
        if a is b or self._opposite(a, b):
            return self.truth((a is b) == same)
        return self._make(Iff if same else Xor, None, (a, b))

    def count(self, kind: str, k: int, args: Iterable[Expr]) -> Expr:
        """``kind`` ``k`` of the arguments are true; ``k`` may be any integer."""
        given = list(args)
        k -= sum(1 for a in given if a is self.true)
        rest = [a for a in given if not isinstance(a, Truth)]
        n = len(rest)
        low = 0 if kind == "at most" else max(k, 0)
        high = n if kind == "at least" else min(k, n)
        if low > n or high < 0 or low > high:
            return self.false
        if low == 0 and high == n:
            return self.true
        if low == n or (low, high) == (1, n):
            return self.join(And if low == n else Or, rest)
        if high == 0 or (low, high) == (0, n - 1):
            return self.join(And if high == 0 else Or, [self.negate(a) for a in rest])
        return self._make(Count, (kind, k), tuple(rest))

    def rebuild(self, node: Expr, args: Sequence[Expr]) -> Expr:
        """The node over other subformulas (those of `parts`)."""
        kind = type(node)
        if kind is Call or kind is Compare:
            return self.share(node)
        if kind is And or kind is Or:
            return self.join(kind, args)
        match node:
            case Not():
                return self.negate(args[0])
            case Implies():
                return self.implies(args[0], args[1])
            case Iff() | Xor():
                return self.equal(args[0], args[1], kind is Iff)
            case Truth():
                return self.truth(node.value)
            case Count():
                return self.count(node.kind, node.count, args)
            case Quantifier():
                return self.quantify(node, args[-1], args[0] if len(args) == 2 else None)
            case Let():
                body = args[0]
                return body if isinstance(body, Truth) else self.share(node.with_children((*node.values, body)))
        raise not_propositional(node)

    def quantify(self, node: Quantifier, body: Expr, guard: Expr | None) -> Expr:
        """The quantifier over another body and guard. It may range over nothing, so `exists x. true` stays."""
        if node.kind in ("forall", "exists"):
            vacuous = self.truth(node.kind == "forall")
            if body is vacuous or guard is self.false:
                return vacuous
        kept = None if guard is self.true else guard
        return self.share(Quantifier(node.kind, node.groups, body, count=node.count, guard=kept))

    def flatten(self, root: Expr) -> Expr:
        """The formula with every conjunction below a conjunction, and disjunction below a disjunction, merged."""
        if not self.nested:
            return root
        self._flat = True  # collapses on the way up may still put one below the other
        merged: dict[int, Sequence[Expr]] = {}

        def flat_parts(node: Expr) -> Sequence[Expr]:
            if id(node) not in merged:
                done = id(node) in self._flattened
                both = type(node) is And or type(node) is Or
                merged[id(node)] = () if done else _merged(node) if both else parts(node)
            return merged[id(node)]

        value: dict[int, Expr] = {}
        for node in below([root], flat_parts):
            done = id(node) in self._flattened
            value[id(node)] = node if done else self.rebuild(node, [value[id(c)] for c in merged[id(node)]])
        self._flat = False
        self._flattened.update(map(id, value.values()))
        return value[id(root)]

    def _opposite(self, a: Expr, b: Expr) -> bool:
        return (type(a) is Not and a.children[0] is b) or (type(b) is Not and b.children[0] is a)


def _merged(node: Expr) -> list[Expr]:
    """The arguments of a conjunction or disjunction through every nested one of the same kind, each object once."""
    kind = type(node)
    found: dict[int, Expr] = {}
    entered: set[int] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if type(top) is not kind:
            found[id(top)] = top
        elif id(top) not in entered:
            entered.add(id(top))
            stack.extend(reversed(top.children))
    return list(found.values())


# --- truth --------------------------------------------------------------------------------------------------------


def evaluate(formula: Expr, assignment: Mapping[Expr, Any]) -> Any:
    """The truth of a propositional formula, given the truth of its atoms: each a bool, or an array or tensor of bool.

    Arrays hold many assignments and broadcast; one call takes arrays or tensors, not both.
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
