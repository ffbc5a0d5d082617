"""Walking trees without recursion, each shared subtree once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from doxa.logic.syntax._node import below
from doxa.logic.syntax._tree import Expr

T = TypeVar("T")


def postorder(*roots: Expr) -> Iterator[Expr]:
    """Every distinct node object below the roots, children first, each once.

    >>> from doxa.logic import And, Call, Not
    >>> [str(n) for n in postorder(And(Call("a"), Not(Call("b"))))]
    ['a', 'b', '!b', 'a & !b']
    """
    return below(roots)


def fold(function: Callable[[Expr, tuple[T, ...]], T], root: Expr) -> T:
    """The value of a tree, bottom up: ``function(node, values of its children)``, once per distinct node."""
    value: dict[int, T] = {}
    for node in postorder(root):
        value[id(node)] = function(node, tuple([value[id(c)] for c in node.children]))
    return value[id(root)]


def intern(root: Expr, table: dict[Expr, Expr]) -> Expr:
    """The same tree with every subtree that ``table`` already knows replaced by the known one."""

    def share(node: Expr, children: tuple[Expr, ...]) -> Expr:
        shared = node.with_children(children)
        return table.setdefault(shared, shared)

    return fold(share, root)
