"""What a plan needs to know of trees before it compiles them: free variables, what can fail, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from doxa.logic.syntax._binders import Let, Quantifier
from doxa.logic.syntax._free import free_of_binder
from doxa.logic.syntax._symbols import Signature, Sort
from doxa.logic.syntax._tree import Arith, Call, Expr, Index, Name
from doxa.logic.syntax._walk import postorder

__all__ = ["Free", "draw_first"]

LARGEST = 10**6
"""Sizes are not counted beyond this; a tree with shared parts may be exponentially large when written out."""


class Free:
    """The free variables, totality and size of the nodes of some trees, each found once."""

    def __init__(self, signature: Signature, roots: Sequence[Expr]) -> None:
        self.functions = signature.functions
        self._keep: list[Expr] = []
        self._known: dict[int, tuple[frozenset[str], bool, int]] = {}
        # Names that nobody binds are constants; there may be very many, and they do not matter here.
        self.bound: set[str] = set()
        self.hints: dict[str, str] = {}
        """Names that were made as variables of a sort in Python; some may be free."""
        nodes = list(postorder(*roots))
        constants = {*signature.constants, *signature.value_sorts}
        for node in nodes:
            if isinstance(node, Quantifier | Let):
                self.bound.update(node.names)
            elif isinstance(node, Name) and isinstance(node.hint, Sort) and node.name not in constants:
                self.hints.setdefault(node.name, node.hint.name)
        self.bound.update(self.hints)
        self._keep += roots
        self._add(nodes)

    def add(self, *roots: Expr) -> None:
        """Look at further trees, which bind no names but known ones."""
        self._keep += roots  # nodes are known by their identity
        self._add(postorder(*roots))

    def _add(self, nodes: Iterable[Expr]) -> None:
        known, nothing = self._known, frozenset[str]()
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
            elif isinstance(node, Quantifier | Let):
                names = free_of_binder(node, [b[0] for b in below])
            elif isinstance(node, Arith | Index) or (isinstance(node, Call) and node.name in self.functions):
                total = False
            known[id(node)] = (names, total, size)

    def names(self, node: Expr) -> frozenset[str]:
        """The variables that a node takes from outside."""
        return self._look(node)[0]

    def total(self, node: Expr) -> bool:
        """Can it be evaluated anywhere? Functions, arithmetic and indices may have no value outside a guard."""
        return self._look(node)[1]

    def size(self, node: Expr) -> int:
        """How many nodes the tree has when it is written out."""
        return self._look(node)[2]

    def _look(self, node: Expr) -> tuple[frozenset[str], bool, int]:
        if id(node) not in self._known:
            self.add(node)
        return self._known[id(node)]


def draw_first(
    node: Expr, is_drawn: Callable[[Call], bool], fresh: Iterator[int]
) -> tuple[list[tuple[str, Expr]], Expr]:
    """Take the calls of neural functions out of the terms of an atom: what to draw, innermost first, and what remains.

    The same call is drawn once, unless it is ``fresh``.
    """
    draws: list[tuple[str, Expr]] = []
    known: dict[Expr, Name] = {}
    value: dict[int, Expr] = {}
    for inner in postorder(node):
        rebuilt = inner.with_children(tuple([value[id(c)] for c in inner.children]))
        if inner is not node and isinstance(rebuilt, Call) and is_drawn(rebuilt):
            name = known.get(rebuilt)
            if name is None or rebuilt.fresh:
                name = Name(f"\0drawn {next(fresh)}")
                known[rebuilt] = name
                draws.append((name.name, rebuilt))
            rebuilt = name
        value[id(inner)] = rebuilt
    return draws, value[id(node)]
