"""Formulas that differ only in constants, stacked: evaluated as one formula with one more axis.

``is(x, 0) | is(x, 1) | ...``, a hundred thousand ground literals, or ten rules for ten digits have one shape: the tree
with constants, numbers and propositions left out. Formulas of one shape become a pattern whose open places are vectors
along the axis of the stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._meanings import Table
from doxa.logic.syntax._tree import Call, Expr, Name, Number
from doxa.logic.tensor._free import Free
from doxa.logic.tensor._terms import known_constant
from doxa.logic.tensor._types import NUMBER, ObjectType, PropositionPool, Type

__all__ = ["PROPOSITION", "Shapes", "Stack"]

PROPOSITION = "\0proposition"
"""In a pattern, the predicate that picks one of many propositions; no name in text contains a NUL."""
MOST_PARAMETERS = 64
LARGEST_PATTERN = 500
"""Formulas with more open places or nodes than this are evaluated one by one."""


class Stack:
    """A pattern, the places in it where the formulas differ, and what each formula has there."""

    def __init__(self, pattern: Expr, parameters: list[tuple[str, Type, Tensor]], members: list[int]) -> None:
        self.pattern = pattern
        self.parameters = parameters
        self.members = members
        """Where the formulas stand in the list they came from."""

    def __len__(self) -> int:
        return len(self.members)


class Shapes:
    """The shape of each node as a number, and how many open places it has; found once for all trees of a plan."""

    def __init__(self, batch: Batch, free: Free) -> None:
        self.batch = batch
        self.free = free
        self.known: dict[int, tuple[int, int, Any]] = {}
        self._numbers: dict[Any, int] = {}

    def _add(self, roots: Sequence[Expr]) -> None:
        """Look at further trees, but not again at parts of them that are known."""
        known, numbers = self.known, self._numbers
        todo = [(r, False) for r in roots]
        while todo:
            node, ready = todo.pop()
            if id(node) in known:
                continue
            if node.children and not ready:
                todo.append((node, True))
                todo += [(c, False) for c in node.children]
                continue
            leaf = self._leaf(node)
            if leaf is not None:
                key, places = ("?", leaf[1]), 1
            else:
                below = [known[id(c)] for c in node.children]
                key = (type(node), node.label, *[b[0] for b in below])
                places = min(MOST_PARAMETERS + 1, sum([b[1] for b in below]))
            known[id(node)] = (numbers.setdefault(key, len(numbers)), places, leaf)

    def _leaf(self, node: Expr) -> tuple[Any, Any] | None:
        """What an open place holds, and of what kind; None for nodes that are no open place."""
        if isinstance(node, Number):
            return node.value, (NUMBER, type(node.value))
        if isinstance(node, Name) and node.name not in self.free.bound:
            known = known_constant(self.batch, node.name)
            # Out of the many constants, those from the data are checked against it when they are used one by one.
            by_index = node.name in self.batch.signature.constants and (
                self.batch.signature.constants[node.name].sort.name in self.batch.given
            )
            return None if known is None or by_index else known
        if isinstance(node, Call) and not node.children and node.name in self.batch.signature.predicates:
            meaning = self.batch.meaning(node.name)
            if isinstance(meaning, Table):
                return node.name, ("proposition", meaning.returns)
        return None

    def places(self, root: Expr) -> Iterator[Any]:
        """What stands in the open places of a tree, from left to right."""
        todo = [root]
        while todo:
            node = todo.pop()
            _, places, leaf = self.known[id(node)]
            if leaf is not None:
                yield leaf[0]
            elif places:
                todo += reversed(node.children)

    def fill(self, root: Expr, fillings: Iterator[Expr | None]) -> Expr:
        """The tree with other leaves in its open places; None leaves one as it is."""
        out: list[Expr] = []
        todo: list[tuple[Expr, bool]] = [(root, False)]
        while todo:
            node, ready = todo.pop()
            _, places, leaf = self.known[id(node)]
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

    def stacked(self, formulas: Sequence[Expr], least: int) -> tuple[list[Expr], list[Stack]]:
        """Formulas to evaluate one by one, and those that come in stacks of at least ``least``."""
        self._add(formulas)
        groups: dict[int, list[int]] = {}
        for number, formula in enumerate(formulas):
            shape, places, _ = self.known[id(formula)]
            fits = 0 < places <= MOST_PARAMETERS and self.free.size(formula) <= LARGEST_PATTERN
            groups.setdefault(shape if fits else -number - 1, []).append(number)
        alone: list[Expr] = []
        stacks: list[Stack] = []
        for shape, members in groups.items():
            if shape < 0 or len(members) < least:
                alone += [formulas[m] for m in members]
            else:
                stacks.append(_stack(self, formulas, members, self.free))
        return alone, stacks


def _stack(shapes: Shapes, formulas: Sequence[Expr], members: list[int], free: Free) -> Stack:
    first = formulas[members[0]]
    columns = list(zip(*[list(shapes.places(formulas[m])) for m in members], strict=True))
    kinds = [shapes.known[id(n)][2][1] for n in _open_leaves(shapes, first)]
    fillings: list[Expr | None] = []
    parameters: list[tuple[str, Type, Tensor]] = []
    for column, kind in zip(columns, kinds, strict=True):
        if len(set(column)) == 1:
            fillings.append(None)
            continue
        name = f"\0{len(free.bound)}"  # no other: it joins the bound names at once
        free.bound.add(name)
        if isinstance(kind, tuple) and kind[0] == "proposition":
            names = tuple(dict.fromkeys(column))
            at = {n: i for i, n in enumerate(names)}
            entries = torch.tensor([at[n] for n in column])
            parameters.append((name, ObjectType(PROPOSITION, PropositionPool(names)), entries))
            fillings.append(Call(PROPOSITION, (Name(name),)))
        else:
            type_ = NUMBER if isinstance(kind, tuple) else kind
            parameters.append((name, type_, torch.tensor(column)))
            fillings.append(Name(name))
    pattern = shapes.fill(first, iter(fillings))
    free.add(pattern)
    return Stack(pattern, parameters, members)


def _open_leaves(shapes: Shapes, root: Expr) -> Iterator[Expr]:
    todo = [root]
    while todo:
        node = todo.pop()
        _, places, leaf = shapes.known[id(node)]
        if leaf is not None:
            yield node
        elif places:
            todo += reversed(node.children)
