r"""Algorithm 1: one loss whose n-th derivative estimates the n-th derivative of the expected cost.

Dissertation, "The Storchastic Surrogate Loss", with errata 4.1. For a cost F that depends on nodes 1..k,

    SL = Σ_{x_1} w_1 [ a_1 + Σ_{x_2} w_2 [ □(L_1) a_2 + … Σ_{x_k} w_k [ □(L_{k−1}) a_k + □(L_k) F ] … ] ],

with L_i = Σ_{j≤i} l_j. A control variate is multiplied by the box of the *preceding* gradient functions only, and by
no weight of later nodes: otherwise live weights would need condition 3 of Theorem 1. Everything is a loop over the
dependency sets of the tape, parents first, so chains of any length take linear time and no recursion.
"""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.tape._magic import magic_box
from doxa.stochastic.tape._nodes import Forest, Node, Prefix


class Assembly:
    """The surrogate of all costs on a tape, built in one pass forwards and one backwards."""

    def __init__(self, forest: Forest, free: list[Tensor], batch_dims: int) -> None:
        self.prefixes = forest.prefixes
        self.free = free
        self.batch_dims = batch_dims
        count = len(self.prefixes)
        self.credited = [False] * count
        for prefix in reversed(self.prefixes):
            if prefix.costs or self.credited[prefix.index]:
                self.credited[prefix.index] = True
                if prefix.parent is not None:
                    self.credited[prefix.parent.index] = True
        self.L: list[Tensor | None] = [None] * count
        self.W: list[Tensor | None] = [None] * count
        self.weighted: list[tuple[int, ...]] = [()] * count
        self.downstream: list[Tensor | None] = [None] * count
        self.join: list[Prefix | None] = [None] * count  # the joint draw that a prefix belongs to
        self._l: dict[int, Tensor | None] = {}
        self._w: dict[int, Tensor | None] = {}

    def nodes(self) -> list[Node]:
        """The nodes that are credited for some cost."""
        return list({p.node.index: p.node for p in self.prefixes if self.credited[p.index]}.values())

    def total(self) -> Tensor:
        """The surrogate for each element of the batch."""
        self._forwards()
        self._backwards()
        total: Tensor | None = None
        for cost in self.free:
            total = add(total, self.average(cost, None))
        applied: set[int] = set()
        for prefix in self.prefixes:
            if self.credited[prefix.index] and self.join[prefix.index] in (None, prefix):
                term = self._joined(prefix) if self.join[prefix.index] is prefix else self._term(prefix, applied)
                if term is not None:
                    total = add(total, self.average(term, prefix))
        assert total is not None
        return total

    def _components(self, node: Node) -> tuple[Tensor | None, Tensor | None]:
        """l and w of a node; a node without an axis of its own has lost the leading one."""
        if node.index not in self._l:
            l, w = node.estimator.gradient(node.draw), node.estimator.weight(node.draw)
            if node.axis is None:
                l, w = (None if t is None else t.squeeze(0) for t in (l, w))
            self._l[node.index] = l
            self._w[node.index] = w
        return self._l[node.index], self._w[node.index]

    def _forwards(self) -> None:
        for prefix in self.prefixes:
            i, node, parent = prefix.index, prefix.node, prefix.parent
            if not self.credited[i]:
                continue
            l, w = self._components(node)
            above = -1 if parent is None else parent.index
            L, W = (None, None) if parent is None else (self.L[above], self.W[above])
            self.L[i] = add(L, l) if l is not None else L
            self.W[i] = (w if W is None else W * w) if w is not None else W
            self.weighted[i] = self.weighted[above] if parent is not None else ()
            if w is not None and node.axis is not None:
                self.weighted[i] = (*self.weighted[i], node.axis)
            self.join[i] = None if parent is None else self.join[above]
            if getattr(node.estimator, "joins", False):
                if self.join[i] is not None:
                    raise ConfigError(f"{node.name} is a joint draw inside another joint draw; only one can be joined")
                self.join[i] = prefix
            elif self.join[i] is not None and (node.axis is not None or w is not None or node.estimator.controls):
                raise ConfigError(
                    f"{node.name} comes after the joint draw {self.join[i].node.name}, whose cost is no average over "  # type: ignore[union-attr]
                    "samples; use n=None and an estimator without weights and control variate, such as Score()"
                )

    def _backwards(self) -> None:
        """The detached downstream cost of every sample, where some control variate will want it."""
        wanted = [False] * len(self.prefixes)
        for p in self.prefixes:
            above = p.parent is not None and wanted[p.parent.index]
            wanted[p.index] = self.credited[p.index] and (
                above or p.node.estimator.controls or p.node.estimator.stateful
            )
        for p in reversed(self.prefixes):
            if not wanted[p.index]:
                continue
            for cost in p.costs:
                self.downstream[p.index] = add(self.downstream[p.index], cost.detach())
            f = self.downstream[p.index]
            if f is None or p.parent is None or not wanted[p.parent.index]:
                continue
            if self.join[p.index] is p:
                f = p.node.estimator.joined(self.fit(f, p.node))  # type: ignore[attr-defined]
            else:
                f = self.over_axis(f, p.node.axis, self._w[p.node.index])
            self.downstream[p.parent.index] = add(self.downstream[p.parent.index], f)

    def _term(self, prefix: Prefix, applied: set[int]) -> Tensor | None:
        """□(L_k) F + □(L_{k−1}) a_k for one dependency set."""
        i, node = prefix.index, prefix.node
        L = self.L[i]
        box = None if L is None else magic_box(L)
        term: Tensor | None = None
        cost: Tensor | None = None
        for c in prefix.costs:
            cost = add(cost, c)
        if cost is not None:
            term = cost if box is None else box * cost
        f = self.downstream[i]
        # A control variate that ignores the cost is not additive in it: it enters once, not once per dependency set.
        if not node.estimator.controls or f is None or (node.index in applied and not node.estimator.additive):
            return term
        applied.add(node.index)
        before = None if prefix.parent is None else self.L[prefix.parent.index]
        l = self._l[node.index]
        own = box if before is None else (None if l is None else magic_box(l))
        a = self._control(node, own, f)
        if a is not None:
            term = add(term, a if before is None else magic_box(before) * a)
        return term

    def _control(self, node: Node, own: Tensor | None, f: Tensor) -> Tensor | None:
        own = torch.ones(()) if own is None else own.unsqueeze(0) if node.axis is None else own
        a = node.estimator.control(node.draw, own, self.fit(f, node))
        if a is None:
            return None
        return a.squeeze(0) if node.axis is None else a

    def _joined(self, prefix: Prefix) -> Tensor:
        """A draw whose samples share one cost: the box holds the gradient functions of all of them, summed."""
        node, estimator = prefix.node, prefix.node.estimator
        inside = [p for p in self.prefixes if self.credited[p.index] and self.join[p.index] is prefix]
        cost: Tensor | None = None
        for c in [c for p in inside for c in p.costs]:
            cost = add(cost, c)
        assert cost is not None and node.axis is not None
        l: Tensor | None = None
        for n in {p.node.index: p.node for p in inside}.values():
            own = self._l[n.index]
            l = l if own is None else add(l, own)
        before = None if prefix.parent is None else self.L[prefix.parent.index]
        dim = -(self.batch_dims + node.axis + 1)
        inner = None if l is None else l.sum(dim, keepdim=True)
        whole = inner if before is None else before if inner is None else inner + before
        value = estimator.joined(self.fit(cost, node))  # type: ignore[attr-defined]
        term: Tensor = value if whole is None else magic_box(whole) * value
        f = self.downstream[prefix.index]
        l = self._l[node.index]
        if f is not None and l is not None:
            a = self._control(node, magic_box(l), f)
            if a is not None:
                a = a.sum(dim, keepdim=True)
                term = term + (a if before is None else magic_box(before) * a)
        return term

    # Shapes: (later axes …, earlier axes, batch), aligned on the right.

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
        dim = -(self.batch_dims + axis + 1)
        if w is not None:
            return f.sum(dim, keepdim=True)
        return f.mean(dim, keepdim=True) if f.dim() >= -dim else f

    def average(self, term: Tensor, prefix: Prefix | None) -> Tensor:
        """The weighted sum over all axes: weights where a node has some, else an average."""
        W = None if prefix is None else self.W[prefix.index]
        if prefix is not None and W is not None:
            dims = [-(self.batch_dims + axis + 1) for axis in self.weighted[prefix.index]]
            term = (term * W).sum(dims, keepdim=True) if dims else term * W
        particles = term.dim() - self.batch_dims
        return term.mean(tuple(range(particles))) if particles > 0 else term


def add(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else a + b
