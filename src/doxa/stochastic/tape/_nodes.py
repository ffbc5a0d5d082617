"""Nodes, and which of them a cost depends on, as shared linked lists: a chain of a thousand costs has as many links."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from doxa.stochastic.estimators._estimator import Draw, Estimator

__all__ = ["Forest", "Node", "Prefix", "members"]


class Node:
    """One sampling step: a distribution, an estimator, and what was drawn."""

    def __init__(
        self, index: int, name: str, estimator: Estimator, draw: Draw, axis: int | None, earlier: int, mask: int
    ) -> None:
        self.index = index
        self.name = name
        self.estimator = estimator
        self.draw = draw
        self.axis = axis  # which particle axis it added, counted from the right; None if none
        self.earlier = earlier  # how many particle axes there were before
        self.mask = mask  # the particle axes along which its samples differ, as bits
        self.count = draw.m  # what the estimator was asked for
        self.ancestors: Prefix | None = None
        self.split: Callable[[Tensor], tuple[Tensor, ...]] = lambda value: (value,)
        self.values: tuple[Tensor, ...] = ()


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
