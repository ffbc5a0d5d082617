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

from doxa.exact.circuits._circuit import AND, OR, Circuit
from doxa.exact.circuits._layers import Layers, evaluate
from doxa.exact.circuits._native import Kernel

WASTE = 4096  # so many entries may be padding before conjunctions of different size are kept apart


class Group(NamedTuple):
    """Nodes of one layer and kind; the row after the literals is 1, and fills up conjunctions with fewer children."""

    kind: int
    first: int
    last: int
    children: Tensor  # of a conjunction (most children, n), of a disjunction all in a row
    starts: Tensor  # of a disjunction: where the children of each node begin
    edge: int  # of a conjunction: where the derivatives that it passes on are kept
    above: Tensor  # where the derivatives of these nodes come from, all in a row
    offsets: Tensor  # and where those of each node begin


@dataclass(frozen=True, eq=False)
class RealLayers:
    """A circuit ready to be evaluated with plain numbers."""

    circuit: Circuit
    groups: tuple[Group, ...]
    root: int
    above: Tensor  # where the derivatives of the literals come from
    offsets: Tensor
    nodes: int
    edges: int

    def values(self, weights: Tensor) -> Tensor:
        """The weight of every node ``(nodes, R)``."""
        values = weights.new_empty(self.nodes, weights.shape[1])
        values[: len(weights)] = weights
        values[len(weights)] = 1.0
        for group in self.groups:
            out = values[group.first : group.last]
            if group.kind == OR:
                out.copy_(_sums(values, group.children, group.starts))
            elif len(group.children) == 2:
                torch.mul(*(values.index_select(0, child) for child in group.children), out=out)
            else:
                torch.prod(_factors(values, group), 0, out=out)
        return values

    def derivatives(self, values: Tensor, grad: Tensor) -> Tensor:
        """The derivative of the root, times ``grad`` ``(R,)``, with respect to the literals."""
        slopes = values.new_zeros(self.nodes + self.edges, values.shape[1])
        divide = bool((values != 0).all())
        for group in reversed(self.groups):
            out = slopes[group.first : group.last]
            if len(group.above):
                out.copy_(_sums(slopes, group.above, group.offsets))
            if group.first <= self.root < group.last:
                slopes[self.root] += grad
            if group.kind == OR:
                continue
            factors = _factors(values, group)
            kept = slopes[group.edge : group.edge + group.children.numel()].view(factors.shape)
            if len(factors) == 2:
                torch.mul(out, factors[1], out=kept[0])
                torch.mul(out, factors[0], out=kept[1])
            elif divide:
                torch.div(out * values[group.first : group.last], factors, out=kept)
            else:
                torch.mul(_others(factors), out, out=kept)
        return _sums(slopes, self.above, self.offsets)

    def plain(self, weights: Tensor) -> Tensor:
        """The weight of the root by operations that can be differentiated any number of times."""
        values = torch.cat([weights, weights.new_ones(1, weights.shape[1])])
        for group in self.groups:
            if group.kind == AND:
                out = _factors(values, group).prod(0)
            else:
                lengths = torch.diff(group.starts, append=torch.tensor([len(group.children)]))
                nodes = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
                out = values.new_zeros(len(lengths), values.shape[1])
                out = out.index_add(0, nodes, values.index_select(0, group.children))
            values = torch.cat([values, out])
        return values[self.root]


def _factors(values: Tensor, group: Group) -> Tensor:
    """``(most children, n, R)``"""
    return values.index_select(0, group.children.reshape(-1)).view(*group.children.shape, values.shape[1])


def _others(factors: Tensor) -> Tensor:
    """For each factor the product of the others: of those before it times those after it."""
    one = torch.ones_like(factors[:1])
    before = torch.cat([one, factors[:-1].cumprod(0)])
    after = torch.cat([one, factors[1:].flip(0).cumprod(0)]).flip(0)
    return before * after


def _sums(x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    if len(rows) == 0 or x.shape[1] == 0:
        return x.new_zeros(len(offsets), x.shape[1])
    return embedding_bag(rows, x, offsets, mode="sum")


def make_real_layers(circuit: Circuit) -> RealLayers:
    """Order the nodes of a circuit by layer, kind and, where that saves much, number of children."""
    literals, kinds, arguments = circuit.literals, circuit.kinds.tolist(), circuit.arguments
    level = [0] * literals
    for children in arguments:
        level.append(1 + max((level[c] for c in children), default=0))
    layers: dict[tuple[int, int], list[int]] = {}
    for i, kind in enumerate(kinds):
        layers.setdefault((level[literals + i], kind), []).append(i)
    batches: list[tuple[int, list[int]]] = []
    for (_, kind), members in sorted(layers.items()):
        sizes: dict[int, list[int]] = {}
        widest = max(len(arguments[i]) for i in members)
        padded = widest * len(members) - sum(len(arguments[i]) for i in members)
        for i in members:
            sizes.setdefault(len(arguments[i]).bit_length() if kind == AND and padded > WASTE else 0, []).append(i)
        batches += [(kind, group) for _, group in sorted(sizes.items())]
    ones, first = literals, literals + 1
    place = {i: i for i in range(literals)}
    for _, members in batches:
        place.update({literals + old: first + i for i, old in enumerate(members)})
        first += len(members)
    nodes = edge = first
    above: list[list[int]] = [[] for _ in range(nodes)]
    found: list[tuple[int, int, int, Tensor, Tensor, int]] = []
    at = literals + 1
    for kind, members in batches:
        listed = [[place[c] for c in arguments[old]] for old in members]
        width = max(2, *[len(children) for children in listed]) if kind == AND else 0
        for i, children in enumerate(listed):
            for side, child in enumerate(children):
                above[child].append(edge + side * len(listed) + i if kind == AND else at + i)
        lengths = torch.tensor([len(children) for children in listed])
        if kind == AND:
            tensor = torch.tensor([c + [ones] * (width - len(c)) for c in listed]).T.contiguous()
        else:
            tensor = torch.tensor([c for children in listed for c in children], dtype=torch.int64)
        found.append((kind, at, at + len(listed), tensor, lengths.cumsum(0) - lengths, edge))
        at += len(listed)
        edge += width * len(listed)
    groups = [Group(*parts, *_bag(above[parts[1] : parts[2]])) for parts in found]
    root = place[literals + len(kinds) - 1]
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
        return values[layers.root].clone(), values

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


def evaluate_positive(layers: Layers, weights: Tensor) -> Tensor:
    """The same for weights above 0, without a kernel: by way of logarithms, whose sums are one operation a layer."""
    return evaluate(layers, weights.log()).exp()


def evaluate_real(layers: RealLayers, weights: Tensor, *, kernel: Kernel | None = None) -> Tensor:
    """The weight of the root ``(R,)`` from those of the literals ``(2 · variables, R)``."""
    root: Tensor = _EvaluateReal.apply(weights, layers, kernel)[0]  # type: ignore[no-untyped-call]
    return root
