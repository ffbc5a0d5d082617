"""Evaluating a circuit: all nodes of a layer, all rows of a batch at once, as a single differentiable operation.

Values are log-weights, one row of the batch per column. Nodes are ordered by layer; the children of a layer are in
layers before it. A conjunction adds its children up. A disjunction has two children here (larger ones become
trees) and joins them by log(e^a + e^b), or by a maximum.

The derivative of the root with respect to a node is the sum of what its parents pass on. A conjunction passes on its
own derivative, a disjunction the share e^(a - x) of each child. With shares of 0 and 1, for the best child or one
drawn at random, the derivative with respect to the literals is a world instead of marginal probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from doxa.exact.circuits._circuit import AND, OR, Circuit
from doxa.exact.circuits._native import Kernel
from doxa.exact.circuits._semirings import FLOOR, NEG_INF, restore

Mode = Literal["sum", "best", "drawn"]


class Layer(NamedTuple):
    """Nodes ``first`` to ``last``, all of one kind."""

    kind: int
    first: int
    last: int
    children: Tensor  # of a disjunction (2, n), of a conjunction all in a row
    offsets: Tensor  # of a conjunction: where the children of each node begin
    nodes: Tensor  # of a conjunction: the node of each child, counted within the layer
    share: int  # of a disjunction: where its shares are kept


class Parents(NamedTuple):
    """Where the derivative of nodes ``first`` to ``last`` comes from: rows of derivatives and shares."""

    first: int
    last: int
    rows: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class Layers:
    """A circuit ready to be evaluated."""

    circuit: Circuit
    literals: int
    layers: tuple[Layer, ...]
    parents: tuple[Parents, ...]  # for each layer, and at the end for the literals
    nodes: int
    shares: int

    @cached_property
    def entries(self) -> int:
        """Numbers held for each row."""
        return 2 * self.nodes + self.shares

    def values(self, weights: Tensor, mode: Mode) -> Tensor:
        """The log-weight of every node ``(nodes, R)``, from those of the literals; the last one is the root."""
        values = weights.new_empty(self.nodes, weights.shape[1])
        values[: self.literals] = weights
        for layer in self.layers:
            out = values[layer.first : layer.last]
            if layer.kind == AND:
                out.copy_(_sums(values, layer.children, layer.offsets))
            else:
                left, right = (values.index_select(0, child) for child in layer.children)
                torch.maximum(left, right, out=out) if mode == "best" else torch.logaddexp(left, right, out=out)
        return values

    def derivatives(self, values: Tensor, grad: Tensor, mode: Mode, generator: torch.Generator | None) -> Tensor:
        """The derivative of the root, times ``grad`` ``(R,)``, with respect to the literals."""
        slopes = values.new_zeros(self.nodes + self.shares, values.shape[1])
        half = self.shares // 2
        for layer, parents in zip(reversed(self.layers), self.parents, strict=False):
            self._collect(slopes, parents, grad)
            if layer.kind == OR:
                left, right = (values.index_select(0, child) for child in layer.children)
                out = slopes[layer.first : layer.last]
                begin = self.nodes + layer.share
                first = _first_share(left, right, values[layer.first : layer.last], mode, generator)
                torch.mul(out, first, out=slopes[begin : begin + len(out)])
                torch.sub(out, slopes[begin : begin + len(out)], out=slopes[begin + half : begin + half + len(out)])
        self._collect(slopes, self.parents[-1], grad)
        return slopes[: self.literals]

    def _collect(self, slopes: Tensor, parents: Parents, grad: Tensor) -> None:
        if parents.last == self.nodes:  # the root has no parents
            slopes[self.nodes - 1] = grad
            if parents.last - parents.first == 1:
                return
            last = parents.last - 1
            slopes[parents.first : last] = _sums(slopes, parents.rows, parents.offsets)
        else:
            slopes[parents.first : parents.last] = _sums(slopes, parents.rows, parents.offsets)

    def plain_values(self, weights: Tensor) -> Tensor:
        """``values`` in operations that are differentiable any number of times; slower."""
        values = weights
        for layer in self.layers:
            if layer.kind == AND:
                terms = values.index_select(0, layer.children)
                out = values.new_zeros(layer.last - layer.first, values.shape[1]).index_add(0, layer.nodes, terms)
            else:
                out = torch.stack([values.index_select(0, child) for child in layer.children]).logsumexp(0)
            values = torch.cat([values, out])
        return values

    def plain_derivatives(self, values: Tensor, grad: Tensor) -> Tensor:
        """``derivatives`` in operations that are differentiable any number of times; slower."""
        slopes = torch.cat([values.new_zeros(self.nodes - 1, values.shape[1]), grad.unsqueeze(0)])
        for layer in reversed(self.layers):
            out = slopes[layer.first : layer.last]
            if layer.kind == AND:
                slopes = slopes.index_add(0, layer.children, out.index_select(0, layer.nodes))
            else:
                for child in layer.children:
                    share = (values.index_select(0, child) - values[layer.first : layer.last]).exp()
                    slopes = slopes.index_add(0, child, out * share)
        return slopes[: self.literals]


def _first_share(left: Tensor, right: Tensor, total: Tensor, mode: Mode, generator: torch.Generator | None) -> Tensor:
    if mode == "best":
        return (left >= right).to(left.dtype)
    share = (left - total).exp()
    if mode == "sum":
        return share
    noise = torch.rand(share.shape, dtype=torch.float64, device=share.device, generator=generator)
    return (noise < share).to(left.dtype)


def _sums(x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Sums of rows of ``x``: from ``offsets[i]`` to the next."""
    if len(rows) == 0:
        return x.new_zeros(len(offsets), x.shape[1])
    if x.shape[1] == 0:
        return x.new_zeros(len(offsets), 0)
    return embedding_bag(rows, x, offsets, mode="sum")


def make_layers(circuit: Circuit) -> Layers:
    """Order the nodes of a circuit by layer."""
    literals = circuit.literals
    kinds, arguments, level = [], [], [0] * literals
    number = list(range(literals))  # of each node of the circuit in what follows

    def add(kind: int, children: Sequence[int]) -> int:
        kinds.append(kind)
        arguments.append(children)
        level.append(1 + max((level[c] for c in children), default=0))
        return literals + len(kinds) - 1

    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        parts = [number[c] for c in children]
        while kind == OR and len(parts) > 2:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [add(OR, pair) if len(pair) == 2 else pair[0] for pair in pairs]
        if kind == OR and len(parts) == 1:  # does not come from a builder, but may come from a file
            kind = AND
        number.append(add(kind, parts))
    # The root is the last node; nothing else is in its layer, for all others are below it.
    order = sorted(range(len(kinds)), key=lambda i: (level[literals + i], kinds[i]))
    place = {literals + old: literals + new for new, old in enumerate(order)} | {i: i for i in range(literals)}
    layers: list[Layer] = []
    parents: list[list[int]] = [[] for _ in range(literals + len(kinds))]
    disjunctions = sum(kind == OR for kind in kinds)
    nodes = literals + len(kinds)
    seen = at = 0
    while at < len(order):
        kind, height = kinds[order[at]], level[literals + order[at]]
        end = at
        while end < len(order) and (kinds[order[end]], level[literals + order[end]]) == (kind, height):
            end += 1
        listed = [[place[c] for c in arguments[old]] for old in order[at:end]]
        for i, children in enumerate(listed):
            for side, child in enumerate(children):
                mine = literals + at + i if kind == AND else nodes + side * disjunctions + seen + i
                parents[child].append(mine)
        flat = [c for children in listed for c in children]
        lengths = torch.tensor([len(children) for children in listed])
        layers.append(
            Layer(
                kind,
                literals + at,
                literals + end,
                torch.tensor(flat, dtype=torch.int64).reshape(-1, 2).T.contiguous() if kind == OR else _int64(flat),
                lengths.cumsum(0) - lengths,
                torch.repeat_interleave(torch.arange(len(listed)), lengths),
                seen,
            )
        )
        seen += (end - at) * (kind == OR)
        at = end
    bounds = [(layer.first, layer.last) for layer in reversed(layers)] + [(0, literals)]
    above = [_parents(first, last, parents) for first, last in bounds]
    return Layers(circuit, literals, tuple(layers), tuple(above), nodes, 2 * disjunctions)


def _parents(first: int, last: int, parents: list[list[int]]) -> Parents:
    rows = _int64([p for i in range(first, last) for p in parents[i]])
    lengths = torch.tensor([len(parents[i]) for i in range(first, last)], dtype=torch.int64)
    return Parents(first, last, rows, lengths.cumsum(0) - lengths)


def _int64(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


class _Evaluate(torch.autograd.Function):
    @staticmethod
    def forward(
        weights: Tensor, layers: Layers, kernel: Kernel | None, mode: Mode, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        if kernel is not None and mode == "sum" and kernel.accepts(weights):
            values = kernel.values(layers.circuit, weights)
        else:
            values = layers.values(weights, mode)
        return values[-1].clone(), values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weights, ctx.layers, ctx.kernel, ctx.mode, ctx.generator = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None, None
        weights, values = ctx.saved_tensors
        layers: Layers = ctx.layers
        if torch.is_grad_enabled() and ctx.mode == "sum":  # the derivative may be differentiated in turn
            slopes = layers.plain_derivatives(layers.plain_values(weights), grad)
        elif ctx.kernel is not None and ctx.mode == "sum" and ctx.kernel.accepts(weights):
            slopes = ctx.kernel.derivatives(layers.circuit, values, grad)
        else:
            slopes = layers.derivatives(values, grad, ctx.mode, ctx.generator)
        return slopes, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], weights: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        moved = weights.movedim(in_dims[0], -1)
        root, values = _Evaluate.apply(moved.flatten(1), *rest)  # type: ignore[no-untyped-call]
        return (root.unflatten(0, moved.shape[1:]), values.unflatten(1, moved.shape[1:])), (1, 2)


def evaluate(
    layers: Layers,
    weights: Tensor,
    *,
    mode: Mode = "sum",
    generator: torch.Generator | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """The log-weight of the root ``(R,)`` from those of the literals ``(2 · variables, R)``."""
    if len(layers.circuit) == 1 and layers.circuit.edges == 0 and layers.circuit.kinds[0] == OR:
        return (0.0 * weights.clamp(min=FLOOR)).sum(0) + NEG_INF  # false, whatever the weights
    root: Tensor = _Evaluate.apply(weights.clamp(min=FLOOR), layers, kernel, mode, generator)[0]  # type: ignore[no-untyped-call]
    return restore(root)
