r"""Algorithm 1: one loss whose n-th derivative estimates the n-th derivative of the expected cost.

Dissertation, "The Storchastic Surrogate Loss", with errata 4.1. For a cost F that depends on nodes 1..k,

    SL = Σ_{x_1} w_1 [ a_1 + Σ_{x_2} w_2 [ □(L_1) a_2 + … Σ_{x_k} w_k [ □(L_{k−1}) a_k + □(L_k) F ] … ] ],

with L_i = Σ_{j≤i} l_j. A control variate is multiplied by the box of the *preceding* gradient functions only, and by
no weight of later nodes: otherwise live weights would need condition 3 of Theorem 1. Everything is a loop over the
dependency sets of the tape, smaller ones first, so chains of any length take linear time and no recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.tape._magic import magic_box

PERTURBATIONS = 3
Bits = int  # a set of nodes, or of particle axes


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
    ancestors: Bits
    values: tuple[Tensor, ...]
    mask: Bits = 0  # the particle axes along which its samples differ
    split: Callable[[Tensor], tuple[Tensor, ...]] = lambda value: (value,)


def without_last(nodes: Bits) -> Bits:
    return nodes & ~(1 << nodes.bit_length() - 1)


@dataclass(eq=False)
class DependencySet:
    """Nodes in the order they were sampled: the last one, and the set before it; the costs that depend on just them."""

    node: Node
    before: DependencySet | None
    costs: list[Tensor]
    L: Tensor | None = None
    W: Tensor | None = None
    weighted: tuple[int, ...] = ()  # axes with weights
    downstream: Tensor | None = None
    joint: DependencySet | None = None  # the joint draw that it belongs to

    @property
    def L_before(self) -> Tensor | None:
        return None if self.before is None else self.before.L


class Assembly:
    """The surrogate of all costs on a tape, built in one pass forwards and one backwards.

    Costs come by the set of nodes they depend on, and every set after the one without its last node.
    """

    def __init__(
        self, nodes: Sequence[Node], costs: Mapping[Bits, list[Tensor]], free: list[Tensor], batch_dims: int
    ) -> None:
        self.free, self.batch_dims = free, batch_dims
        credited: set[Bits] = set()
        for key, found in costs.items():
            while found and key and key not in credited:
                credited.add(key)
                key = without_last(key)
        sets: dict[Bits, DependencySet] = {}
        for key in costs:
            if key in credited:
                last = nodes[key.bit_length() - 1]
                sets[key] = DependencySet(last, sets.get(without_last(key)), costs[key])
        self.sets = list(sets.values())
        self._l: dict[int, Tensor | None] = {}
        self._w: dict[int, Tensor | None] = {}

    def nodes(self) -> list[Node]:
        """The nodes that are credited for some cost."""
        return list({s.node.index: s.node for s in self.sets}.values())

    def total(self) -> Tensor:
        """The surrogate for each element of the batch."""
        self._forwards()
        self._backwards()
        total = add(*[self.average(cost, None) for cost in self.free])
        applied: set[int] = set()
        for s in self.sets:
            if s.joint in (None, s):
                term = self._joint(s) if s.joint is s else self._term(s, applied)
                if term is not None:
                    total = add(total, self.average(term, s))
        assert total is not None
        return total

    def _forwards(self) -> None:
        for s in self.sets:
            node, before = s.node, s.before
            if node.index not in self._l:
                l, w = node.estimator.gradient(node.draw), node.estimator.weight(node.draw)
                if node.axis is None:  # a node without an axis of its own has lost the leading one
                    l, w = (None if t is None else t.squeeze(0) for t in (l, w))
                self._l[node.index], self._w[node.index] = l, w
            w = self._w[node.index]
            if before is not None:
                s.W, s.weighted, s.joint = before.W, before.weighted, before.joint
            s.L = add(s.L_before, self._l[node.index])
            if w is not None:
                s.W = w if s.W is None else s.W * w
                s.weighted += () if node.axis is None else (node.axis,)
            if getattr(node.estimator, "joins", False):
                if s.joint is not None:
                    raise ConfigError(f"{node.name} is a joint draw inside another joint draw; only one can be joined")
                s.joint = s
            elif s.joint is not None and (node.axis is not None or w is not None or node.estimator.controls):
                raise ConfigError(
                    f"{node.name} comes after the joint draw {s.joint.node.name}, whose cost is no average over "
                    "samples; use n=None and an estimator without weights and control variate, such as Score()"
                )

    def _backwards(self) -> None:
        """The detached downstream cost of every sample, where some control variate will want it."""
        wanted: set[DependencySet | None] = set()
        for s in self.sets:
            s.downstream = None
            if s.before in wanted or s.node.estimator.controls or s.node.estimator.stateful:
                wanted.add(s)
        for s in reversed(self.sets):
            if s not in wanted:
                continue
            f = s.downstream = add(s.downstream, *[cost.detach() for cost in s.costs])
            if f is None or s.before is None or s.before not in wanted:
                continue
            if s.joint is s:
                f = s.node.estimator.joined(self.fit(f, s.node))  # type: ignore[attr-defined]
            else:
                f = self.over_axis(f, s.node.axis, self._w[s.node.index])
            s.before.downstream = add(s.before.downstream, f)

    def _term(self, s: DependencySet, applied: set[int]) -> Tensor | None:
        """□(L_k) F + □(L_{k−1}) a_k for one dependency set."""
        node = s.node
        box = None if s.L is None else magic_box(s.L)
        cost = add(*s.costs)
        term = cost if cost is None or box is None else box * cost
        # A control variate that ignores the cost is not additive in it: it enters once, not once per dependency set.
        again = node.index in applied and not node.estimator.additive
        if again or not node.estimator.controls or s.downstream is None:
            return term
        applied.add(node.index)
        l = self._l[node.index]
        own = box if s.L_before is None else (None if l is None else magic_box(l))
        return add(term, self._control(s, own))

    def _control(self, s: DependencySet, own: Tensor | None) -> Tensor | None:
        """□(L_{k−1}) a_k."""
        node = s.node
        assert s.downstream is not None
        own = torch.ones(()) if own is None else own.unsqueeze(0) if node.axis is None else own
        a = node.estimator.control(node.draw, own, self.fit(s.downstream, node))
        if a is None:
            return None
        a = a.squeeze(0) if node.axis is None else a
        a = a.sum(self._dim(node.axis), keepdim=True) if s.joint is s and node.axis is not None else a
        return a if s.L_before is None else magic_box(s.L_before) * a

    def _joint(self, s: DependencySet) -> Tensor | None:
        """A draw whose samples share one cost: the box holds the gradient functions of all of them, summed."""
        inside = [other for other in self.sets if other.joint is s]
        cost = add(*[c for other in inside for c in other.costs])
        assert cost is not None and s.node.axis is not None
        l = add(*[self._l[index] for index in dict.fromkeys(other.node.index for other in inside)])
        whole = add(None if l is None else l.sum(self._dim(s.node.axis), keepdim=True), s.L_before)
        value: Tensor = s.node.estimator.joined(self.fit(cost, s.node))  # type: ignore[attr-defined]
        term = value if whole is None else magic_box(whole) * value
        own = self._l[s.node.index]
        return term if s.downstream is None or own is None else add(term, self._control(s, magic_box(own)))

    # Shapes: (later axes …, earlier axes, batch), aligned on the right.

    def _dim(self, axis: int) -> int:
        return -(self.batch_dims + axis + 1)

    def fit(self, f: Tensor, node: Node) -> Tensor:
        """A downstream cost as (m, earlier axes, batch), the shape that the node's own tensors have."""
        rank = self.batch_dims + node.earlier + (node.axis is not None)
        if f.dim() > rank:  # axes of later nodes: of size 1, or of nodes that this cost does not depend on
            f = f.mean(tuple(range(f.dim() - rank)))
        f = f.reshape((1,) * (rank - f.dim() + (node.axis is None)) + f.shape)
        return f if f.shape[0] == node.draw.m else f.expand((node.draw.m, *f.shape[1:]))

    def over_axis(self, f: Tensor, axis: int | None, w: Tensor | None) -> Tensor:
        """The weighted sum, or the average, over the axis of one node."""
        f = f if w is None else w.detach() * f
        if axis is None:
            return f
        if w is not None:
            return f.sum(self._dim(axis), keepdim=True)
        return f.mean(self._dim(axis), keepdim=True) if f.dim() >= -self._dim(axis) else f

    def average(self, term: Tensor, s: DependencySet | None) -> Tensor:
        """The weighted sum over all axes: weights where a node has some, else an average."""
        if s is not None and s.W is not None:
            dims = [self._dim(axis) for axis in s.weighted]
            term = (term * s.W).sum(dims, keepdim=True) if dims else term * s.W
        particles = term.dim() - self.batch_dims
        return term.mean(tuple(range(particles))) if particles > 0 else term


def add(*terms: Tensor | None) -> Tensor | None:
    """The sum of the terms there are."""
    total: Tensor | None = None
    for term in terms:
        total = term if total is None else total if term is None else total + term
    return total


# Whether a cost depends on the nodes that its ``deps`` leave out.


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
            _check_equal(cost.detach(), cost.detach().narrow(dim, 0, 1).expand_as(cost), node)


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
                    _check_equal(cost(), value.detach(), node)
        finally:
            for held, old in zip(node.values, kept, strict=True):
                held.data.copy_(old)


def _check_equal(cost: Tensor, again: Tensor, node: Node) -> None:
    if not torch.allclose(cost, again, equal_nan=True):
        raise ConfigError(
            f"deps leaves out {node.name}, but the cost changes with it; its gradient would be biased. "
            f"Add the sample of {node.name} to deps, or leave deps away"
        )
