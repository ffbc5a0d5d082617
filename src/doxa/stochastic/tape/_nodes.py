"""Nodes, which of them a cost depends on, and whether that is true.

Sets of nodes are shared linked lists: a chain of a thousand costs has as many links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator

PERTURBATIONS = 3


@dataclass(eq=False)
class Node:
    """One sampling step: a distribution, an estimator, and what was drawn."""

    index: int
    name: str
    estimator: Estimator
    draw: Draw
    axis: int | None  # which particle axis it added, counted from the right; None if none
    earlier: int  # how many particle axes there were before
    count: int  # what the estimator was asked for
    ancestors: Prefix | None
    values: tuple[Tensor, ...]
    mask: int = 0  # the particle axes along which its samples differ, as bits
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda value: (value,)


@dataclass(eq=False)
class Prefix:
    """A set of nodes in the order they were sampled: the last one, and the set before it."""

    parent: Prefix | None
    node: Node
    index: int  # parents come before children
    costs: list[Tensor] = field(default_factory=list)


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


def check_axes(cost: Tensor, others: list[Node], batch_dims: int) -> None:
    """A node left out must have an axis, along which the cost does not change: its samples are the perturbation."""
    for node in others:
        if node.axis is None or node.draw.m == 1:
            raise ConfigError(
                f"deps leaves out {node.name}, which has one sample only, so nothing can be compared; give the cost "
                "as a function, tape.cost(lambda: ..., deps=...), so that it can be computed again with other samples"
            )
        dim = cost.dim() - batch_dims - node.axis - 1
        if dim >= 0 and cost.shape[dim] > 1:
            first = cost.detach().narrow(dim, 0, 1)
            if not torch.allclose(cost.detach(), first.expand_as(cost), equal_nan=True):
                raise ConfigError(_wrong(node))


def check_by_perturbation(cost: Callable[[], Tensor], value: Tensor, others: list[Node]) -> None:
    """Compute the cost again with other samples of each node left out; the samples are put back in any case."""
    for node in others:
        kept = [v.detach().clone() for v in node.values]
        try:
            for _ in range(PERTURBATIONS):
                other = node.estimator.propose(node.draw.distribution, node.count).value
                parts = node.split(other if node.axis is not None else other.squeeze(0))
                for held, new in zip(node.values, parts, strict=True):
                    # .data, because the graph may have saved these samples: they come back unchanged.
                    held.data.copy_(new.detach())
                with torch.no_grad():
                    again = cost()
                if not torch.allclose(again, value.detach(), equal_nan=True):
                    raise ConfigError(_wrong(node))
        finally:
            for held, old in zip(node.values, kept, strict=True):
                held.data.copy_(old)


def _wrong(node: Node) -> str:
    return (
        f"deps leaves out {node.name}, but the cost changes with it; its gradient would be biased. "
        f"Add the sample of {node.name} to deps, or leave deps away"
    )
