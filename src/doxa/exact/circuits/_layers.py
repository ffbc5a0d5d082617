"""Evaluating a circuit: all nodes of a layer, all rows of a batch at once, as a single differentiable operation.

In log space conjunctions add their children up, with plain numbers disjunctions do. The other nodes have two children
here (larger ones become trees), joined by log(e^a + e^b), a maximum or a product. The derivative of a join goes to its
children by their shares e^(a - x); shares of 0 and 1, for the best child or a drawn one, make it a world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import embedding_bag

from doxa._cache import for_later
from doxa.errors import ConfigError, ProblemError
from doxa.exact.circuits._circuit import AND, OR, Circuit
from doxa.exact.circuits._kernel import Kernel, Mode, Program, make_program, native_kernel
from doxa.exact.circuits._semirings import BEST, FLOOR, NEG_INF, SUM, Reduce, restore
from doxa.problem._budget import Meter
from doxa.problem._logspace import is_traced

Semiring = Literal["log", "real", "max"]


class Layer(NamedTuple):
    """Nodes ``first`` to ``last``, all sums or all joins."""

    joins: bool
    first: int
    last: int
    children: Tensor  # of joins (2, n), of sums all in a row
    offsets: Tensor  # of sums: where the children of each node begin
    nodes: Tensor  # of sums: the node of each child, counted within the layer
    share: int  # of joins: where the derivatives that they pass on are kept
    above: Tensor  # where the derivatives of these nodes come from: rows of derivatives and shares
    begins: Tensor  # and where those of each node begin


class Order(NamedTuple):
    """The nodes of a circuit by layer."""

    layers: tuple[Layer, ...]
    above: Tensor  # where the derivatives of the literals come from
    begins: Tensor


@dataclass(frozen=True, eq=False)
class Layers:
    """A circuit to be evaluated, in log space or with plain (``real``) numbers.

    It is arranged for whoever evaluates it first: in layers for torch, as a program for the kernel.
    """

    circuit: Circuit
    real: bool

    @cached_property
    def nodes(self) -> int:
        """How many there are when large joins have become trees."""
        return self.circuit.literals + len(self.circuit) + int((self._pairs - 1).clip(min=0).sum())

    @cached_property
    def shares(self) -> int:
        """How many derivatives joins pass on: two each."""
        return 2 * int(self._pairs.sum())

    @property
    def _pairs(self) -> NDArray[np.int64]:
        """How many joins of two children each node becomes."""
        own = self.circuit.kinds == (AND if self.real else OR)
        return np.where(own, np.diff(self.circuit.offsets) - 1, 0).clip(min=0)

    @property
    def entries(self) -> int:
        """Numbers held for each row."""
        return 2 * self.nodes + self.shares

    @cached_property
    def order(self) -> Order:
        """The circuit as torch takes it."""
        return for_later(partial(_order, self.circuit, self.real))

    @cached_property
    def program(self) -> Program:
        """The circuit as the kernel takes it."""
        return make_program(self.circuit)

    def values(self, weights: Tensor, reduce: Reduce) -> Tensor:
        """The weight of every node ``(nodes, R)``, from those of the literals; the last one is the root."""
        values = weights.new_empty(self.nodes, weights.shape[1])
        values[: self.circuit.literals] = weights
        join = torch.mul if self.real else torch.maximum if reduce.mode == "best" else torch.logaddexp
        for layer in self.order.layers:
            out = values[layer.first : layer.last]
            if layer.joins:
                join(*(values.index_select(0, child) for child in layer.children), out=out)
            else:
                out.copy_(_sums(values, layer.children, layer.offsets))
        return values

    def derivatives(self, values: Tensor, grad: Tensor, reduce: Reduce) -> Tensor:
        """The derivative of the root, times ``grad`` ``(R,)``, with respect to the literals."""
        slopes = values.new_zeros(self.nodes + self.shares, values.shape[1])
        half = self.shares // 2
        for layer in reversed(self.order.layers):
            out = slopes[layer.first : layer.last]
            if layer.last == self.nodes:  # the root, alone in its layer
                out.copy_(grad)
            else:
                out.copy_(_sums(slopes, layer.above, layer.begins))
            if layer.joins:
                left, right = (values.index_select(0, child) for child in layer.children)
                begin = self.nodes + layer.share
                first = slopes[begin : begin + len(out)]
                second = slopes[begin + half : begin + half + len(out)]
                if self.real:
                    torch.mul(out, right, out=first)
                    torch.mul(out, left, out=second)
                else:
                    share = _first_share(left, right, values[layer.first : layer.last], reduce)
                    torch.mul(out, share, out=first)
                    torch.sub(out, first, out=second)
        return _sums(slopes, self.order.above, self.order.begins)

    def plain_values(self, weights: Tensor) -> Tensor:
        """``values`` in operations that are differentiable any number of times; slower."""
        values = weights
        for layer in self.order.layers:
            if layer.joins:
                pair = torch.stack([values.index_select(0, child) for child in layer.children])
                out = pair.prod(0) if self.real else pair.logsumexp(0)
            else:
                terms = values.index_select(0, layer.children)
                out = values.new_zeros(layer.last - layer.first, values.shape[1]).index_add(0, layer.nodes, terms)
            values = torch.cat([values, out])
        return values

    def plain_derivatives(self, values: Tensor, grad: Tensor) -> Tensor:
        """``derivatives`` in operations that are differentiable any number of times; slower."""
        slopes = torch.cat([values.new_zeros(self.nodes - 1, values.shape[1]), grad.unsqueeze(0)])
        for layer in reversed(self.order.layers):
            out = slopes[layer.first : layer.last]
            if not layer.joins:
                slopes = slopes.index_add(0, layer.children, out.index_select(0, layer.nodes))
                continue
            for child, other in zip(layer.children, layer.children.flip(0), strict=True):
                if self.real:
                    share = values.index_select(0, other)
                else:
                    share = (values.index_select(0, child) - values[layer.first : layer.last]).exp()
                slopes = slopes.index_add(0, child, out * share)
        return slopes[: self.circuit.literals]


def _first_share(left: Tensor, right: Tensor, total: Tensor, reduce: Reduce) -> Tensor:
    if reduce.mode == "best":
        return (left >= right).to(left.dtype)
    share = (left - total).exp()
    if reduce.mode == "sum":
        return share
    noise = torch.rand(share.shape, dtype=torch.float64, device=share.device, generator=reduce.generator)
    return (noise < share).to(left.dtype)


def _sums(x: Tensor, rows: Tensor, offsets: Tensor) -> Tensor:
    """Sums of rows of ``x``: from ``offsets[i]`` to the next."""
    if len(rows) == 0 or x.shape[1] == 0:
        return x.new_zeros(len(offsets), x.shape[1])
    return embedding_bag(rows, x, offsets, mode="sum")


def make_layers(circuit: Circuit, *, real: bool = False, meter: Meter | None = None) -> Layers:
    """A circuit to be evaluated; with a meter, its nodes are ordered at once."""
    layers = Layers(circuit, real)
    if meter is not None:
        vars(layers)["order"] = _order(circuit, real, meter)
    return layers


def _order(circuit: Circuit, real: bool, meter: Meter | None = None) -> Order:
    literals, joined = circuit.literals, AND if real else OR
    kinds, arguments, level = [], [], [0] * literals
    number = list(range(literals))  # of each node of the circuit in what follows

    def add(kind: int, children: Sequence[int]) -> int:
        kinds.append(kind)
        arguments.append(children)
        level.append(1 + max((level[c] for c in children), default=0))
        return literals + len(kinds) - 1

    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        parts = [number[c] for c in children]
        if meter is not None:
            meter.tick(len(children))
        while kind == joined and len(parts) > 2:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [add(kind, pair) if len(pair) == 2 else pair[0] for pair in pairs]
        # One child alone: the root may be so, and what comes from a file.
        number.append(add(1 - joined if len(parts) < 2 else kind, parts))
    # The root is the last node; nothing else is in its layer, for all others are below it.
    order = sorted(range(len(kinds)), key=lambda i: (level[literals + i], kinds[i]))
    place = {literals + old: literals + new for new, old in enumerate(order)} | {i: i for i in range(literals)}
    nodes, joins = literals + len(kinds), kinds.count(joined)
    above: list[list[int]] = [[] for _ in range(nodes)]
    found: list[tuple[bool, int, int, Tensor, Tensor, Tensor, int]] = []
    seen, first = 0, literals
    for (_, kind), group in groupby(order, key=lambda i: (level[literals + i], kinds[i])):
        listed = [[place[c] for c in arguments[old]] for old in group]
        if meter is not None:
            meter.check_clock()
        for i, children in enumerate(listed):
            for side, child in enumerate(children):
                above[child].append(nodes + side * joins + seen + i if kind == joined else first + i)
        flat, offsets = _bag(listed)
        lengths = torch.tensor([len(children) for children in listed])
        owner = torch.repeat_interleave(torch.arange(len(listed)), lengths)
        flat = flat.reshape(-1, 2).T.contiguous() if kind == joined else flat
        found.append((kind == joined, first, first + len(listed), flat, offsets, owner, seen))
        seen += len(listed) * (kind == joined)
        first += len(listed)
    layers = tuple(Layer(*parts, *_bag(above[parts[1] : parts[2]])) for parts in found)
    return Order(layers, *_bag(above[:literals]))


def _bag(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Lists of numbers all in a row, and where each begins."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return torch.tensor([i for row in rows for i in row], dtype=torch.int64), lengths.cumsum(0) - lengths


class _Evaluate(torch.autograd.Function):
    """The root, and what its derivative is made of: that for a ``grad`` of 1 by the kernel, else the weight of every
    node. The kernel finds it while the nodes of a row are at hand, so it must be told whether it is wanted."""

    @staticmethod
    def forward(
        weights: Tensor, layers: Layers, kernel: Kernel | None, reduce: Reduce, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        if kernel is not None:
            mode: Mode = "real" if layers.real else "best" if reduce.mode == "best" else "log"
            root, slopes = kernel.evaluate(layers.program, weights, mode, slopes=wanted)
            return root, weights.new_empty(0, weights.shape[1]) if slopes is None else slopes
        values = layers.values(weights if layers.real else weights.clamp(min=FLOOR), reduce)
        return values[-1].clone(), values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        weights, ctx.layers, ctx.kernel, ctx.reduce, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(weights, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None, None
        weights, kept = ctx.saved_tensors
        layers: Layers = ctx.layers
        if torch.is_grad_enabled() and ctx.reduce.mode == "sum":  # the derivative may be differentiated in turn
            floored = weights if layers.real else weights.clamp(min=FLOOR)
            slopes = layers.plain_derivatives(layers.plain_values(floored), grad)
        elif ctx.kernel is not None:
            slopes = kept * grad
        else:
            slopes = layers.derivatives(kept, grad, ctx.reduce)
        return slopes, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], weights: Tensor, *rest: Any
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        moved = weights.movedim(in_dims[0], -1)
        root, kept = _Evaluate.apply(moved.flatten(1), *rest)  # type: ignore[no-untyped-call]
        return (root.unflatten(0, moved.shape[1:]), kept.unflatten(1, moved.shape[1:])), (1, 2)


def evaluate(layers: Layers, weights: Tensor, *, reduce: Reduce = SUM, kernel: Kernel | None = None) -> Tensor:
    """The weight of the root ``(R,)`` from those of the literals ``(2 · variables, R)``."""
    if not layers.circuit.edges and layers.circuit.kinds[0] == (AND if layers.real else OR):
        constant = 1.0 if layers.real else NEG_INF  # true or false, whatever the weights
        return (0.0 * weights.clamp(min=FLOOR)).sum(0) + constant
    fit = kernel if kernel is not None and kernel.accepts(weights) and reduce.mode != "drawn" else None
    wanted = is_traced(weights) or (weights.requires_grad and torch.is_grad_enabled())
    # Without derivatives, what records them is left out: it takes longer than a small circuit.
    made: Callable[..., tuple[Tensor, Tensor]] = _Evaluate.apply if wanted else _Evaluate.forward
    root = made(weights, layers, fit, reduce, wanted)[0]
    return root if layers.real else restore(root)


def weigh(circuit: Circuit, positive: Tensor, negative: Tensor, semiring: Semiring = "log") -> Tensor:
    """The weighted model count of a circuit, differentiable; ``Circuit.count`` counts without weights.

    The circuit is made smooth first, so a variable that does not matter weighs w⁺ + w⁻.

    Args:
        circuit: a circuit.
        positive: w⁺, the weights of the literals 1, 2, ..., ``(*batch, variables)``.
        negative: w⁻, the weights of -1, -2, ..., of the same shape.
        semiring: "log": weights and result are logarithms; "real": they are numbers, possibly negative; "max": they are
            logarithms, and the result is that of the best model.

    >>> from doxa.exact.circuits import exactly_one
    >>> probs = torch.tensor([0.5, 0.2])
    >>> weigh(exactly_one(2), probs, 1 - probs, "real")                       # .5 · .8 + .5 · .2
    tensor(0.5000)
    """
    if semiring not in get_args(Semiring):
        raise ConfigError(f"semiring is {semiring!r}, expected one of {', '.join(get_args(Semiring))}")
    if positive.shape != negative.shape or positive.ndim == 0 or positive.shape[-1] != circuit.variables:
        wanted = f"twice (*batch, {circuit.variables}): one weight for each literal"
        raise ProblemError(f"the weights have shapes {positive.shape} and {negative.shape}, expected {wanted}")
    batch = positive.shape[:-1]
    leaves = torch.stack([positive, negative], -1).flatten(-2).reshape(batch.numel(), circuit.literals).T
    kernel, smooth = native_kernel(), circuit.smooth()
    if semiring == "real" and kernel is None and not is_traced(leaves) and bool((leaves > 0).all()):
        return evaluate(make_layers(smooth), leaves.log()).exp().reshape(batch)  # sums are faster than products
    layers, reduce = make_layers(smooth, real=semiring == "real"), BEST if semiring == "max" else SUM
    return evaluate(layers, leaves, reduce=reduce, kernel=kernel).reshape(batch)
