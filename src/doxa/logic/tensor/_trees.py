"""What a plan needs to know of trees before it compiles them: free variables, what can fail, size, and shape.

Formulas of one shape (the tree without constants) become a pattern whose open places are vectors along a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Table
from doxa.logic.syntax._binders import Aggregate, Binder, Let, free_of_binder
from doxa.logic.syntax._symbols import Sort
from doxa.logic.syntax._tree import Arith, Call, Expr, Index, Name, Number, postorder
from doxa.logic.tensor import _pools
from doxa.logic.tensor._pools import NUMBER, Type
from doxa.logic.tensor._terms import known_constant

PROPOSITION = "\0proposition"
"""In a pattern, the predicate that picks one of many propositions; no name in text contains a NUL."""
LARGEST = 10**6
"""Sizes are not counted beyond this; a tree with shared parts may be exponentially large when written out."""
MOST_PARAMETERS = 64
LARGEST_PATTERN = 500
"""Formulas with more open places or nodes than this are evaluated one by one."""


class Known(NamedTuple):
    """A node's free variables, whether it can be evaluated anywhere (functions may have no value), and its size."""

    names: frozenset[str]
    total: bool
    size: int


class Stack(NamedTuple):
    """A pattern, the places in it where the formulas differ with what each has there, and where the formulas stood."""

    pattern: Expr
    parameters: list[tuple[str, Type, Tensor]]
    members: list[int]


class Trees:
    def __init__(self, batch: Batch, roots: Sequence[Expr]) -> None:
        self.batch = batch
        self._keep: list[Expr] = []
        self._known: dict[int, Known] = {}
        self._shapes: dict[int, tuple[int, int, Any]] = {}
        self._numbers: dict[Any, int] = {}
        # Names that nobody binds are constants; there may be very many, and they do not matter here.
        self.bound: set[str] = set()
        self.hints: dict[str, str] = {}
        """Names that were made as variables of a sort in Python; some may be free."""
        self.extremes = False
        """Is there a ``min`` or ``max``, which may be infinite?"""
        nodes = list(postorder(*roots))
        constants = {*batch.signature.constants, *batch.signature.value_sorts}
        for node in nodes:
            if isinstance(node, Binder | Let):
                self.bound.update(node.names)
            elif isinstance(node, Name) and isinstance(node.hint, Sort) and node.name not in constants:
                self.hints.setdefault(node.name, node.hint.name)
        self.bound.update(self.hints)
        self._add(roots, nodes)

    def _add(self, roots: Iterable[Expr], nodes: Iterable[Expr]) -> None:
        self._keep += roots  # nodes are known by their identity
        known, nothing, functions = self._known, frozenset[str](), self.batch.signature.functions
        for node in nodes:
            if id(node) in known:
                continue
            names, total, size = nothing, True, 1
            below = [known[id(c)] for c in node.children]
            for free, fine, count in below:
                names = free if not names else names if free <= names else names | free
                total = total and fine
                size = min(LARGEST, size + count)
            if isinstance(node, Name):
                names = frozenset((node.name,)) if node.name in self.bound else nothing
            elif isinstance(node, Binder | Let):
                names = free_of_binder(node, [b.names for b in below])
                total = total and not isinstance(node, Aggregate)
                self.extremes |= isinstance(node, Aggregate) and node.kind in ("min", "max")
            elif isinstance(node, Arith | Index) or (isinstance(node, Call) and node.name in functions):
                total = False
            known[id(node)] = Known(names, total, size)

    def look(self, node: Expr) -> Known:
        """What is known of a node; further trees bind no names but known ones."""
        if id(node) not in self._known:
            self._add([node], postorder(node))
        return self._known[id(node)]

    def names(self, node: Expr) -> frozenset[str]:
        return self.look(node).names

    # -- formulas that differ only in constants ---------------------------------------------------------------------

    def stacked(self, formulas: Sequence[Expr], least: int) -> tuple[list[int], list[Stack]]:
        """The numbers of formulas to evaluate one by one, and those that come in stacks of at least ``least``."""
        self._add_shapes(formulas)
        groups: dict[int, list[int]] = {}
        for number, formula in enumerate(formulas):
            shape, places, _ = self._shapes[id(formula)]
            fits = 0 < places <= MOST_PARAMETERS and self.look(formula).size <= LARGEST_PATTERN
            groups.setdefault(shape if fits else -number - 1, []).append(number)
        alone: list[int] = []
        stacks: list[Stack] = []
        for shape, members in groups.items():
            if shape < 0 or len(members) < least:
                alone += members
            else:
                stacks.append(self._stack(formulas, members))
        return alone, stacks

    def _add_shapes(self, roots: Sequence[Expr]) -> None:
        """The shape of each node as a number, how many open places it has, and what it holds if it is one."""
        shapes, numbers = self._shapes, self._numbers
        for node in postorder(*roots):
            if id(node) in shapes:
                continue
            leaf = self._leaf(node)
            if leaf is not None:
                key, places = ("?", leaf[1]), 1
            else:
                below = [shapes[id(c)] for c in node.children]
                key = (type(node), node.label, *[b[0] for b in below])
                places = min(MOST_PARAMETERS + 1, sum([b[1] for b in below]))
            shapes[id(node)] = (numbers.setdefault(key, len(numbers)), places, leaf)

    def _leaf(self, node: Expr) -> tuple[Any, Any] | None:
        """What an open place holds, and of what kind; None for nodes that are no open place."""
        signature = self.batch.signature
        if isinstance(node, Number):
            return node.value, (NUMBER, type(node.value))
        if isinstance(node, Name) and node.name not in self.bound:
            known = known_constant(self.batch, node.name)
            # Out of the many constants, those from the data are checked against it when they are used one by one.
            constant = signature.constants.get(node.name)
            return None if constant is not None and constant.sort.name in self.batch.given else known
        if isinstance(node, Call) and not node.children and node.name in signature.predicates:
            meaning = self.batch.meaning(node.name)
            if isinstance(meaning, Table):
                return node.name, ("proposition", meaning.returns)
        return None

    def _places(self, root: Expr) -> Iterator[Any]:
        """What stands in the open places of a tree, and of what kind, from left to right."""
        todo = [root]
        while todo:
            node = todo.pop()
            _, places, leaf = self._shapes[id(node)]
            if leaf is not None:
                yield leaf
            elif places:
                todo += reversed(node.children)

    def _fill(self, root: Expr, fillings: Iterator[Expr | None]) -> Expr:
        """The tree with other leaves in its open places; None leaves one as it is."""
        out: list[Expr] = []
        todo: list[tuple[Expr, bool]] = [(root, False)]
        while todo:
            node, ready = todo.pop()
            _, places, leaf = self._shapes[id(node)]
            if leaf is not None:
                filling = next(fillings)
                out.append(node if filling is None else filling)
            elif not places:
                out.append(node)
            elif ready:
                below = tuple(out[-len(node.children) :])
                del out[-len(node.children) :]
                out.append(node.with_children(below))
            else:
                todo.append((node, True))
                todo += [(c, False) for c in reversed(node.children)]
        return out[0]

    def _stack(self, formulas: Sequence[Expr], members: list[int]) -> Stack:
        first = formulas[members[0]]
        fillings: list[Expr | None] = []
        parameters: list[tuple[str, Type, Tensor]] = []
        for leaves in zip(*[self._places(formulas[m]) for m in members], strict=True):
            column, kind = [value for value, _ in leaves], leaves[0][1]
            if len(set(column)) == 1:
                fillings.append(None)
                continue
            variable = Name(f"\0{len(self.bound)}")  # no other: it joins the bound names at once
            self.bound.add(variable.name)
            if isinstance(kind, tuple) and kind[0] == "proposition":
                at = {name: i for i, name in enumerate(dict.fromkeys(column))}
                column = [at[name] for name in column]
                kind = _pools.Object(PROPOSITION, _pools.Propositions(tuple(at)))
                fillings.append(Call(PROPOSITION, (variable,)))
            else:
                kind = NUMBER if isinstance(kind, tuple) else kind
                fillings.append(variable)
            parameters.append((variable.name, kind, torch.tensor(column)))
        return Stack(self._fill(first, iter(fillings)), parameters, members)


def draw_first(
    node: Expr, is_drawn: Callable[[Expr], bool], fresh: Iterator[int]
) -> tuple[list[tuple[str, Expr]], Expr]:
    """The calls of neural functions and uncertain aggregates in a formula without binders, innermost first and each
    once unless fresh; and what remains.
    """
    draws: list[tuple[str, Expr]] = []
    known: dict[Expr, Name] = {}

    def draw(inner: Expr, children: tuple[Expr, ...]) -> Expr:
        rebuilt = inner.with_children(children)
        if inner is node or not isinstance(rebuilt, Call | Aggregate) or not is_drawn(rebuilt):
            return rebuilt
        if rebuilt not in known or getattr(rebuilt, "fresh", False):
            known[rebuilt] = Name(f"\0drawn {next(fresh)}")
            draws.append((known[rebuilt].name, rebuilt))
        return known[rebuilt]

    made: dict[int, Expr] = {}
    todo: list[tuple[Expr, bool]] = [(node, False)]
    while todo:
        at, ready = todo.pop()
        # What binders bind cannot be drawn outside of them.
        children = () if isinstance(at, Binder | Let) else at.children
        if ready:
            made[id(at)] = draw(at, at.children if not children else tuple([made[id(c)] for c in children]))
        elif id(at) not in made:
            todo.append((at, True))
            todo += [(c, False) for c in reversed(children)]
    return draws, made[id(node)]
