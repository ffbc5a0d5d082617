"""Which nodes a cost depends on, as shared linked lists: a chain of a thousand costs stores a thousand links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from doxa.stochastic.tape._tape import Node

__all__ = ["Forest", "Prefix"]


class Prefix:
    """A set of nodes in the order they were sampled: the last one, and the set before it."""

    def __init__(self, parent: Prefix | None, node: Node, index: int) -> None:
        self.parent = parent
        self.node = node
        self.index = index  # parents come before children
        self.costs: list[Tensor] = []


class Forest:
    """All dependency sets of a tape; equal sets are one object."""

    def __init__(self) -> None:
        self.prefixes: list[Prefix] = []
        self._children: dict[tuple[int, int], Prefix] = {}

    def push(self, prefix: Prefix | None, node: Node) -> Prefix:
        """The set with one more node, sampled after all the others."""
        key = (-1 if prefix is None else prefix.index, node.index)
        found = self._children.get(key)
        if found is None:
            found = Prefix(prefix, node, len(self.prefixes))
            self.prefixes.append(found)
            self._children[key] = found
        return found

    def union(self, a: Prefix | None, b: Prefix | None) -> Prefix | None:
        """The union of two sets; walks back only until they meet."""
        tail: list[Node] = []
        while a is not b:
            last_a = -1 if a is None else a.node.index
            last_b = -1 if b is None else b.node.index
            if last_a >= last_b:
                assert a is not None
                tail.append(a.node)
                a = a.parent
            else:
                assert b is not None
                tail.append(b.node)
            if last_b >= last_a and b is not None:
                b = b.parent
        for node in reversed(tail):
            a = self.push(a, node)
        return a


def members(prefix: Prefix | None) -> Iterator[Node]:
    """The nodes of a set, latest first."""
    while prefix is not None:
        yield prefix.node
        prefix = prefix.parent
