"""The tape: what was sampled, what it cost, and the surrogate loss of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import EllipsisType
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError, ProblemError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import Joint, parameters
from doxa.stochastic.tape._magic import guard, is_traced
from doxa.stochastic.tape._surrogate import Assembly, Bits, Node, check_axes, check_by_perturbation, without_last

MOST_AXES = 48  # torch allows tensors of 64 dimensions


class Tape:
    """Records samples and costs; ``surrogate()`` is a loss whose derivatives estimate those of the expected cost.

    Tensors are laid out as (axes of nodes, latest first; ``batch_dims`` batch dimensions; event). Each node adds one
    axis on the left, so that samples and everything computed from them broadcast; with ``n=None`` it adds none and
    draws once for each particle there is, as long chains do. The batch shape of a distribution is (axes, batch) and
    no more: independent dimensions beyond it belong to the event (``torch.distributions.Independent``).

    A cost is credited to the nodes it can depend on: those sampled before it whose axes it has. ``deps`` narrows this
    down. With ``check_deps`` every such claim is verified by perturbation.

    >>> from torch.distributions import OneHotCategorical
    >>> from doxa.stochastic import LeaveOneOut
    >>> logits = torch.zeros(4, 3, requires_grad=True)               # a batch of 4
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(OneHotCategorical(logits=logits), LeaveOneOut(5))
    >>> z.shape
    torch.Size([5, 4, 3])
    >>> _ = tape.cost((z * torch.tensor([1.0, 2.0, 4.0])).sum(-1))
    >>> loss = tape.surrogate()                                     # E[cost], averaged over the batch
    >>> loss.backward()
    >>> logits.grad.shape
    torch.Size([4, 3])
    """

    def __init__(
        self, batch_dims: int = 0, *, check_deps: bool = False, generator: torch.Generator | None = None
    ) -> None:
        if batch_dims < 0:
            raise ConfigError(f"batch_dims is {batch_dims}, expected 0 or more")
        self.batch_dims = batch_dims
        self.check_deps = check_deps
        self.generator = generator
        self.nodes: list[Node] = []
        self._axes: list[Node] = []
        self._batch: list[int] = [1] * batch_dims
        self._sets: dict[Bits, list[Tensor]] = {}  # costs by what they depend on
        self._free: list[Tensor] = []
        self._costs: list[tuple[str, Tensor, Bits]] = []
        self._latest: dict[Bits, tuple[Bits, int]] = {}
        self._observed = False
        self._named: set[str] = set()

    # Sampling.

    def sample(
        self,
        distribution: Distribution,
        estimator: Estimator,
        n: int | EllipsisType | None = ...,
        deps: Iterable[Tensor] | None = None,
        name: str | None = None,
    ) -> Tensor:
        """Sample a node: a plain tensor (m, earlier axes, batch, event), without the first axis if ``n`` is ``None``.

        Args:
            distribution: of batch shape (axes, batch) or what broadcasts to it.
            estimator: how derivatives are to be estimated.
            n: the number of samples instead of the estimator's own; ``None`` draws one for each existing particle.
            deps: the samples that the distribution depends on, if fewer than its shape suggests.
            name: what ``explain`` calls the node.
        """
        if not isinstance(estimator, Estimator):
            raise ConfigError(f"estimator is {estimator!r}, expected an Estimator such as LeaveOneOut(5)")
        if name in self._named:
            raise ConfigError(f"there is a node named {name!r} on this tape already; give each node a name of its own")
        self._check_batch_shape(distribution)
        ancestors = self._dependencies(tuple(distribution.batch_shape), deps, "distribution")
        rank = len(self._axes) + self.batch_dims
        missing = rank - len(distribution.batch_shape)
        if missing:
            distribution = distribution.expand(torch.Size((1,) * missing) + distribution.batch_shape)
        count = estimator.n if n is ... else 1 if n is None else estimator.checked(n)
        with borrowed(self.generator):
            draw = self._propose(estimator, distribution, count)
        if n is None and draw.m != 1:
            name = estimator.describe()
            raise ConfigError(f"{name} needs {draw.m} samples, so it cannot be used with n=None; use Score() here")
        axis = None if n is None else len(self._axes)
        if axis is not None and axis >= MOST_AXES:
            raise ConfigError(f"the tape already has {axis} axes, the most torch can handle; use n=None in long chains")
        index = len(self.nodes)
        if name is not None:
            self._named.add(name)
        value = draw.value.squeeze(0) if axis is None else draw.value
        node = Node(index, name or f"z{index}", estimator, draw, axis, len(self._axes), count, ancestors, (value,))
        if axis is not None:
            self._axes.append(node)
        node.mask = self._mask(value.shape[: rank + (axis is not None)])
        self.nodes.append(node)
        return value

    def sample_joint(
        self,
        distributions: Sequence[Distribution | Callable[..., Distribution]],
        estimator: Estimator,
        n: int | EllipsisType | None = ...,
        deps: Iterable[Tensor] | None = None,
        name: str | None = None,
    ) -> tuple[Tensor, ...]:
        """Sample several variables as one node, so that one estimator treats them together.

        An entry may be a function of the values of the earlier entries that returns its distribution.

        >>> from torch.distributions import Bernoulli, Categorical
        >>> from doxa.stochastic import Enumerate
        >>> tape = Tape()
        >>> a, b = tape.sample_joint([Bernoulli(torch.tensor(0.3)), Categorical(torch.ones(3))], Enumerate())
        >>> a.shape, b.shape
        (torch.Size([6]), torch.Size([6]))
        """
        joint = Joint(distributions)
        value = self.sample(joint, estimator, n, deps, name)
        node = self.nodes[-1]
        node.split, node.values = joint.split, joint.split(value)
        return node.values

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        try:
            return estimator.propose(distribution, n)
        except RuntimeError as error:
            if "randomness error mode" in str(error):
                what = "sampling inside torch.func.vmap needs vmap(..., randomness='different')"
            elif "different inplace randomness" in str(error):
                what = f"torch cannot draw from {distribution} inside torch.func.vmap; use Tape(batch_dims=1) instead"
            else:
                raise
            raise ConfigError(what) from None

    # Costs.

    def cost(
        self, value: Tensor | Callable[[], Tensor], deps: Iterable[Tensor] | None = None, name: str | None = None
    ) -> Tensor:
        """Add a cost of shape (axes, batch), or what broadcasts to it, and return it.

        Args:
            value: the cost, or a function without arguments that computes it (``check_deps`` then calls it again).
            deps: the samples that it depends on, if fewer than its shape suggests.
            name: what ``explain`` calls it.
        """
        result = value() if callable(value) else value
        if not isinstance(result, Tensor) or not result.is_floating_point():
            raise ProblemError(f"a cost must be a floating-point tensor, got {getattr(result, 'dtype', type(result))}")
        self._check_shape(tuple(result.shape), "cost")
        claimed = None if deps is None else tuple(deps)
        nodes = self._dependencies(tuple(result.shape), claimed, "cost")
        if self.check_deps and claimed is not None:
            others = [node for node in self.nodes if not nodes >> node.index & 1]
            if callable(value):
                with borrowed(self.generator):
                    check_by_perturbation(value, result, others)
            else:
                check_axes(result, others, self.batch_dims)
        (self._sets[nodes] if nodes else self._free).append(result)
        self._costs.append((name or f"cost{len(self._costs)}", result, nodes))
        return result

    def surrogate(
        self, order: int = 1, *, reduction: Literal["mean", "sum", "none"] = "mean", allow_biased: bool = False
    ) -> Tensor:
        """The loss: its value estimates the expected cost, its n-th derivative the n-th derivative, n ≤ ``order``.

        Args:
            order: how often it may be differentiated; once more raises an error.
            reduction: over the batch dimensions; the mean of an empty batch is 0.
            allow_biased: accept estimators that are declared biased, such as relaxations.
        """
        if not isinstance(order, int) or order < 0:
            raise ConfigError(f"order is {order!r}, expected a whole number of derivatives, 0 or more")
        assembly = self._assembly()
        for node in assembly.nodes():
            self._check_order(node, order, allow_biased)
        total = assembly.total()
        if not is_traced(total) and bool(total.detach().isnan().any()):
            self._refuse_nan()
        if total.requires_grad:
            # Every derivative is a multiple of the one that arrives here, so one guard sees them all.
            total = guard(total, order)
        if not self._observed:
            self._observe(assembly)
        if reduction == "mean":
            return total.mean() if total.numel() else total.sum()
        total = total.expand(self._batch)
        if reduction not in ("sum", "none"):
            raise ConfigError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
        return total.sum() if reduction == "sum" else total

    def variance_objective(self, parameters: Iterable[Tensor]) -> Tensor:
        """Σ g² of the first derivatives g of the surrogate with respect to ``parameters``.

        The expectation of g does not depend on a control variate, so the gradient of this number with respect to the
        parameters of the control variate is that of the variance of g (dissertation, "LAX, RELAX and REBAR").
        Nothing is trained behind the back: take ``torch.autograd.grad(objective, estimator.parameters())``, and keep
        the parameters of estimators out of the optimiser of the loss.

        >>> from torch.distributions import Bernoulli
        >>> from doxa.stochastic import RELAX
        >>> logits = torch.tensor([0.2], requires_grad=True)
        >>> scale = torch.nn.Parameter(torch.tensor(1.0))
        >>> tape = Tape(batch_dims=1)
        >>> b = tape.sample(Bernoulli(logits=logits), RELAX(lambda z: scale * z.tanh()))
        >>> _ = tape.cost((b - 0.4) ** 2)
        >>> (slope,) = torch.autograd.grad(tape.variance_objective([logits]), scale)
        """
        loss = self._assembly().total().sum()
        found = torch.autograd.grad(loss, list(parameters), create_graph=True, allow_unused=True)
        squares = [g.square().sum() for g in found if g is not None]
        if not squares:
            raise ConfigError("the surrogate does not depend on these parameters; pass those of the distributions")
        return torch.stack(squares).sum()

    def _assembly(self) -> Assembly:
        if not self._costs:
            raise ConfigError("the tape has no cost; add one with tape.cost(...) before asking for the surrogate")
        return Assembly(self.nodes, self._sets, self._free, self.batch_dims)

    def _observe(self, assembly: Assembly) -> None:
        self._observed = True
        costs: dict[int, Tensor] = {}
        for found in assembly.sets:
            node = found.node
            if node.estimator.stateful and found.downstream is not None:
                costs[node.index] = assembly.fit(found.downstream, node) + costs.get(node.index, 0)
        for index, cost in costs.items():
            self.nodes[index].estimator.observe(self.nodes[index].draw, cost)

    def _refuse_nan(self) -> None:
        """An error that names the first cost with NaN, if there is one."""
        for name, cost, _ in self._costs:
            if wrong := int(cost.isnan().sum()):
                came = f"the cost {name!r} is NaN in {wrong:,} of {cost.numel():,} rows"
                raise ProblemError(f"{came} (shape {tuple(cost.shape)}), expected numbers; look at what computes it")

    def _check_order(self, node: Node, order: int, allow_biased: bool) -> None:
        estimator, distribution = node.estimator, node.draw.distribution
        possible = estimator.order_for(distribution)
        biased = estimator.biased and order > 0 and not allow_biased
        if possible >= order and not biased:
            return
        from doxa.stochastic.estimators._catalogue import alternatives

        names = ", ".join(alternatives(distribution, order)) or "none for this distribution"
        if possible < order:
            what = f"is unbiased up to order {int(possible)} only, and order={order} was asked for"
            raise ConfigError(f"{estimator.describe()} at {node.name} {what}. Unbiased at this order: {names}")
        raise ConfigError(
            f"{estimator.describe()} at {node.name} is biased; accept that with allow_biased=True, "
            f"or use an unbiased one: {names}"
        )

    # Looking at it.

    def explain(self) -> str:
        """Who was sampled, with which axis and estimator, and which costs are credited to whom.

        >>> from torch.distributions import Bernoulli
        >>> from doxa.stochastic import LeaveOneOut
        >>> tape = Tape()
        >>> z = tape.sample(Bernoulli(torch.tensor(0.3)), LeaveOneOut(2), name="coin")
        >>> _ = tape.cost(z * 2, name="price")
        >>> print(tape.explain())
        coin     Bernoulli, axis 0 of size 2, LeaveOneOut@2 (any order), depends on nothing
        price    cost of shape (2,), credited to coin
        """
        lines = []
        for node in self.nodes:
            order = node.estimator.order_for(node.draw.distribution)
            axis = "no axis" if node.axis is None else f"axis {node.axis} of size {node.draw.m}"
            upto = "any order" if order == float("inf") else f"order {int(order)}"
            upto += ", biased" if node.estimator.biased else ""
            on = self._names(node.ancestors) or "nothing"
            kind = type(node.draw.distribution).__name__
            lines.append(f"{node.name:<8} {kind}, {axis}, {node.estimator.describe()} ({upto}), depends on {on}")
        for name, value, nodes in self._costs:
            to = self._names(nodes) or "nobody"
            lines.append(f"{name:<8} cost of shape {tuple(value.shape)}, credited to {to}")
        return "\n".join(lines)

    def _names(self, nodes: Bits) -> str:
        return ", ".join(node.name for node in self.nodes if nodes >> node.index & 1)

    # Who depends on whom.

    def _dependencies(self, shape: tuple[int, ...], deps: Iterable[Tensor] | None, what: str) -> Bits:
        """The nodes that something of this shape depends on."""
        if deps is not None:
            found = 0
            for tensor in deps:
                node = self._node_of(tensor, what)
                own = node.ancestors | 1 << node.index
                self._remember(own)
                found |= own
                self._remember(found)
            return found
        mask = self._mask(shape)
        found, start = self._latest.get(mask, (0, 0))
        for node in self.nodes[start:]:
            if node.mask & ~mask == 0:
                found |= 1 << node.index
        self._remember(found)
        self._latest[mask] = (found, len(self.nodes))
        return found

    def _remember(self, nodes: Bits) -> None:
        """Keep a set of nodes, and those without the last ones before it."""
        missing = []
        while nodes and nodes not in self._sets:
            missing.append(nodes)
            nodes = without_last(nodes)
        self._sets |= {key: [] for key in reversed(missing)}

    def _node_of(self, tensor: Tensor, what: str) -> Node:
        for node in reversed(self.nodes):
            if any(value is tensor for value in node.values):
                return node
        raise ConfigError(f"deps of this {what} names what is no sample of this tape; pass what sample() returned")

    def _mask(self, shape: tuple[int, ...]) -> Bits:
        """The particle axes that a tensor of this shape has."""
        mask = 0
        for axis in range(min(len(shape) - self.batch_dims, len(self._axes))):
            if shape[-(self.batch_dims + axis + 1)] > 1 or self._axes[axis].draw.m == 1:
                mask |= 1 << axis
        return mask

    def _check_batch_shape(self, distribution: Distribution) -> None:
        if not isinstance(distribution, Distribution):
            raise ConfigError(f"distribution is {distribution!r}, expected a torch.distributions object")
        for name, value in parameters(distribution).items():
            if not is_traced(value) and bool(value.isnan().any()):
                raise ProblemError(f"{name} of the distribution has NaN, expected numbers; look at its network")
        self._check_shape(tuple(distribution.batch_shape), "distribution")

    def _check_shape(self, shape: tuple[int, ...], what: str) -> None:
        allowed = [node.draw.m for node in reversed(self._axes)] + self._batch
        given = "batch shape" if what == "distribution" else "shape"
        if len(shape) > len(allowed):
            raise ProblemError(
                f"{what} has {given} {shape}, but the tape has only {len(self._axes)} axes and {self.batch_dims} batch "
                "dimensions. Dimensions of one draw belong to the event: wrap the distribution in "
                f"torch.distributions.Independent(d, {len(shape) - len(allowed)}), or sum the cost over them; "
                "or set Tape(batch_dims=...)"
            )
        for i in range(1, len(shape) + 1):
            size, wanted = shape[-i], allowed[-i]
            if i <= self.batch_dims and wanted == 1:
                self._batch[-i] = size
            elif size not in (1, wanted):
                kind = f"batch dimension {-i}" if i <= self.batch_dims else f"axis {i - self.batch_dims - 1}"
                raise ProblemError(
                    f"{what} has {given} {shape}; {kind} should have size {wanted} or 1, not {size}. Expected what "
                    f"broadcasts to {tuple(allowed)}: the axes of the nodes, latest first, then the batch"
                )


@contextmanager
def borrowed(generator: torch.Generator | None) -> Iterator[None]:
    """Let torch's own random numbers come from ``generator`` inside the block, and put everything back after it."""
    if generator is None:
        yield
        return
    if generator.device.type == "cuda":
        own = torch.cuda.default_generators[generator.device.index or 0]
    else:
        own = torch.default_generator
    before = own.get_state()
    own.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(own.get_state())
        own.set_state(before)
