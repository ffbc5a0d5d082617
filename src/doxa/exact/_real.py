"""Evaluating a circuit with plain numbers: a conjunction multiplies, a disjunction adds.

Weights may be 0 or negative, which logarithms do not allow; products of many small ones underflow, which logarithms do
not. The derivative of a product with respect to a factor is the product of the others, so nothing is ever divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from doxa.exact._circuit import AND, Circuit
from doxa.exact._native import Kernel


class Group(NamedTuple):
    """Nodes of one layer and kind with equally many children."""

    kind: int
    first: int
    last: int
    children: Tensor  # (arity, n)
    edge: int  # of a conjunction: where the derivatives that it passes on are kept
    above: Tensor  # where the derivatives of these nodes come from, all in a row
    offsets: Tensor  # and where those of each node begin


@dataclass(frozen=True, eq=False)
class RealLayers:
    """A circuit ready to be evaluated with plain numbers."""

    circuit: Circuit
    groups: tuple[Group, ...]
    place: Tensor  # of the root
    above: Tensor  # where the derivatives of the literals come from
    offsets: Tensor
    nodes: int
    edges: int

    def values(self, weights: Tensor) -> Tensor:
        """The weight of every node ``(nodes, R)``."""
        values = weights.new_empty(self.nodes, weights.shape[1])
        values[: len(weights)] = weights
        for group in self.groups:
            out = values[group.first : group.last]
            if not len(group.children):
                out.fill_(float(group.kind == AND))
            elif len(group.children) == 1:
                out.copy_(values.index_select(0, group.children[0]))
            elif len(group.children) == 2:
                left, right = (values.index_select(0, child) for child in group.children)
                torch.mul(left, right, out=out) if group.kind == AND else torch.add(left, right, out=out)
            else:
                parts = _children(values, group)
                torch.prod(parts, 0, out=out) if group.kind == AND else torch.sum(parts, 0, out=out)
        return values

    def derivatives(self, values: Tensor, grad: Tensor) -> Tensor:
        """The derivative of the root, times ``grad`` ``(R,)``, with respect to the literals."""
        slopes = values.new_zeros(self.nodes + self.edges, values.shape[1])
        for group in reversed(self.groups):
            out = slopes[group.first : group.last]
            out.copy_(_sums(slopes, group.above, group.offsets))
            if group.first <= int(self.place) < group.last:
                slopes[self.place] += grad
            if group.kind == AND and len(group.children) > 1:
                parts = _children(values, group)
                kept = slopes[group.edge : group.edge + group.children.numel()].view(parts.shape)
                if len(parts) == 2:
                    torch.mul(out, parts[1], out=kept[0])
                    torch.mul(out, parts[0], out=kept[1])
                    continue
                before = out.clone()
                for i in range(len(parts)):
                    kept[i] = before
                    before = before * parts[i]
                after = torch.ones_like(out)
                for i in range(len(parts) - 1, -1, -1):
                    kept[i] *= after
                    after = after * parts[i]
        return _sums(slopes, self.above, self.offsets)

    def plain(self, weights: Tensor) -> Tensor:
        """The weight of the root by operations that can be differentiated any number of times."""
        values = weights
        for group in self.groups:
            if not len(group.children):
                out = values.new_full((group.last - group.first, values.shape[1]), float(group.kind == AND))
            else:
                parts = _children(values, group)
                out = parts.prod(0) if group.kind == AND else parts.sum(0)
            values = torch.cat([values, out])
        return values[int(self.place)]


def _children(values: Tensor, group: Group) -> Tensor:
    """``(arity, n, R)``"""
    return values.index_select(0, group.children.reshape(-1)).view(*group.children.shape, values.shape[1])


def _sums(x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    if len(rows) == 0 or x.shape[1] == 0:
        return x.new_zeros(len(offsets), x.shape[1])
    return embedding_bag(rows, x, offsets, mode="sum")


def make_real_layers(circuit: Circuit) -> RealLayers:
    """Order the nodes of a circuit by layer, kind and number of children."""
    literals, kinds, arguments = circuit.literals, circuit.kinds.tolist(), circuit.arguments
    level = [0] * literals
    for children in arguments:
        level.append(1 + max((level[c] for c in children), default=0))

    def form(i: int) -> tuple[int, int, int]:
        return level[literals + i], kinds[i], len(arguments[i])

    order = sorted(range(len(kinds)), key=form)
    place = {i: i for i in range(literals)} | {literals + old: literals + new for new, old in enumerate(order)}
    nodes = literals + len(kinds)
    above: list[list[int]] = [[] for _ in range(nodes)]
    edge, at = nodes, 0
    found: list[tuple[int, int, int, Tensor, int]] = []
    while at < len(order):
        end = at
        while end < len(order) and form(order[end]) == form(order[at]):
            end += 1
        _, kind, arity = form(order[at])
        listed = [[place[c] for c in arguments[old]] for old in order[at:end]]
        shares = kind == AND and arity > 1
        for i, children in enumerate(listed):
            for side, child in enumerate(children):
                above[child].append(edge + side * len(listed) + i if shares else literals + at + i)
        children = torch.tensor(listed, dtype=torch.int64).reshape(len(listed), arity).T.contiguous()
        found.append((kind, literals + at, literals + end, children, edge))
        edge += arity * len(listed) * shares
        at = end
    groups = [
        Group(kind, first, last, children, begin, *_bag(above[first:last]))
        for kind, first, last, children, begin in found
    ]
    root = torch.tensor(place[nodes - 1])
    return RealLayers(circuit, tuple(groups), root, *_bag(above[:literals]), nodes, edge - nodes)


def _bag(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(r) for r in rows], dtype=torch.int64)
    return torch.tensor([i for r in rows for i in r], dtype=torch.int64), lengths.cumsum(0) - lengths


class _EvaluateReal(torch.autograd.Function):
    @staticmethod
    def forward(weights: Tensor, layers: RealLayers, kernel: Kernel | None) -> tuple[Tensor, Tensor]:
        if kernel is not None and kernel.accepts(weights):
            values = kernel.products(layers.circuit, weights)
            return values[-1].clone(), values
        values = layers.values(weights)
        return values[int(layers.place)].clone(), values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weights, ctx.layers, ctx.kernel = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        weights, values = ctx.saved_tensors
        layers: RealLayers = ctx.layers
        if torch.is_grad_enabled():  # the derivative may be differentiated in turn
            (slopes,) = torch.autograd.grad(layers.plain(weights), weights, grad, create_graph=True)
        elif ctx.kernel is not None and ctx.kernel.accepts(weights):
            slopes = ctx.kernel.product_derivatives(layers.circuit, values, grad)
        else:
            slopes = layers.derivatives(values, grad)
        return slopes, None, None


def evaluate_real(layers: RealLayers, weights: Tensor, *, kernel: Kernel | None = None) -> Tensor:
    """The weight of the root ``(R,)`` from those of the literals ``(2 · variables, R)``."""
    root: Tensor = _EvaluateReal.apply(weights, layers, kernel)[0]  # type: ignore[no-untyped-call]
    return root
