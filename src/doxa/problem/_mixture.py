"""A belief that need not be independent: a weighted mixture of beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import NoReturn

import torch
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem._autoregressive import Autoregressive, WorldTable
from doxa.problem._belief import Belief, Index, as_floating, require_worlds, take, tolerance
from doxa.problem._logspace import NEG_INF, at_row, draw, is_traced, logsumexp, shown

TAKE = "the exact reasoners (Enumeration, Elimination, Compilation, Constraint), ConstrainedLayer and BruteForce"
"""Who can reason with a mixture."""


class NotOfMixtures(ProblemError, AttributeError):
    """A question that has an answer for one belief, and none for a mixture."""


def refuse(what: str, remedy: str = "") -> NoReturn:
    """The error for what a mixture cannot do."""
    raise NotOfMixtures(f"{what}: a Mixture is not one independent belief; {remedy or f'{TAKE} take it'}")


_MISSING = {
    "log_probs": "read mixture.components.log_probs and mixture.log_weights, or take mixture.marginals()",
    "probs": "read mixture.components.probs and mixture.log_weights, or take mixture.marginals()",
    "mask": "read mixture.components.mask",
    "mode": "ConstrainedLayer.decode and explain of an exact reasoner look for the most probable world",
    "entropy": "mixture.entropy_bounds() says between which numbers it lies",
}


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A mixture of K independent beliefs P_1, ..., P_K with weights π: for each row of a batch,

        p(w) = Σ_k π_k ∏_i P_k[i, w_i]

    One belief cannot say "both or neither": its variables are independent. A mixture can, and K point masses represent
    any distribution over K worlds. One component is the plain belief. Whatever is linear in p(w) is as exact
    for a mixture as for its components. It has no ``log_probs`` of its own, so nothing takes it for one belief.

    Args:
        components: the beliefs, with a batch ``(*batch, K)``.
        log_weights: log π, ``(*batch, K)``, normalised; or ``(K,)`` for all rows. -inf is a weight of 0.
        validate: look at the weights. Under ``torch.compile`` and ``torch.func`` it is off by itself.

    >>> both_or_neither = Belief.from_bernoulli(probs=torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    >>> mixture = Mixture(both_or_neither, torch.tensor([0.75, 0.25]).log())
    >>> mixture
    Mixture(batch=(), components=2, sizes=(2, 2), dtype=torch.float32)
    >>> mixture.log_prob(torch.tensor([[1, 1], [1, 0], [0, 0]])).exp()
    tensor([0.7500, 0.0000, 0.2500])
    """

    components: Belief
    log_weights: Tensor
    validate: InitVar[bool] = True

    def __post_init__(self, validate: bool) -> None:
        came: object = self.components
        if not isinstance(came, Belief):
            what = "one Belief whose last batch axis runs over the components"
            raise ProblemError(f"components is a {type(came).__name__}, expected {what}")
        weights, batch = as_floating("log_weights", self.log_weights), self.components.batch_shape
        if not batch or not batch[-1]:
            wanted = "(*batch, K) with at least one component; say belief[None] for one component without a batch"
            raise ProblemError(f"the components have batch {batch}, expected {wanted}")
        if tuple(weights.shape) not in (batch, batch[-1:]):
            wanted = f"{batch}, or {batch[-1:]} for all rows: one weight for each component"
            raise ProblemError(f"log_weights has {shown(self.log_weights)}, expected {wanted}")
        weights = weights.to(self.components.dtype).expand(batch)
        object.__setattr__(self, "log_weights", weights)
        if validate and not is_traced(weights):
            given = weights.detach()
            bad = ~(given.logsumexp(-1).abs() <= tolerance(given.dtype))
            if bad.any():
                row = tuple(bad.nonzero()[0].tolist())
                wanted = "numbers that sum to 1; use Mixture.from_logits, or log_softmax(-1), to normalise"
                raise ProblemError(f"the weights{at_row(row, 'of')} are {given[row].exp().tolist()}, expected {wanted}")

    @classmethod
    def from_logits(
        cls, logits: Tensor | Sequence[Tensor], weights: Tensor, sizes: Sequence[int] = (), *, validate: bool = True
    ) -> Mixture:
        """A mixture from what a network returns: log P_k = log softmax(logits_k), log π = log softmax(weights).

        Args:
            logits: ``(*batch, K, W, D)``, or one tensor ``(*batch, K, D_i)`` for each variable.
            weights: logits of the weights, ``(*batch, K)`` or ``(K,)``; -inf is a weight of 0.
            sizes: for one tensor with domains of different size, as in `Belief.from_logits`.
            validate: refuse logits that do not make a distribution (NaN, +inf, all -inf).

        >>> Mixture.from_logits(torch.zeros(8, 3, 5, 4), torch.zeros(8, 3))             # 3 components, 5 variables
        Mixture(batch=(8,), components=3, sizes=(4, 4, 4, 4, 4), dtype=torch.float32)
        """
        return cls._weighted(Belief.from_logits(logits, sizes, validate=validate), weights, validate)

    @classmethod
    def from_bernoulli(
        cls, *, probs: Tensor | None = None, logits: Tensor | None = None, weights: Tensor, validate: bool = True
    ) -> Mixture:
        """A mixture over Boolean variables, from the probabilities or the logits of *true* ``(*batch, K, W)`` (exactly
        one of them), and the logits of the weights ``(*batch, K)`` or ``(K,)``.

        >>> Mixture.from_bernoulli(logits=torch.tensor([[9.0, 9.0], [-9.0, -9.0]]), weights=torch.zeros(2)).sizes
        (2, 2)
        """
        return cls._weighted(Belief.from_bernoulli(probs=probs, logits=logits, validate=validate), weights, validate)

    @classmethod
    def _weighted(cls, components: Belief, weights: Tensor, validate: bool) -> Mixture:
        log_weights = as_floating("weights", weights).log_softmax(-1)
        if validate and not is_traced(log_weights) and bool(log_weights.detach().isnan().any()):
            row = tuple(log_weights.detach().isnan().any(-1).nonzero()[0].tolist())
            wanted = "numbers below +inf, not all of them -inf"
            raise ProblemError(f"the weights{at_row(row, 'of')} are {weights[row].tolist()}, expected {wanted}")
        return cls(components, log_weights, validate=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each variable."""
        return self.components.sizes

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes before the components."""
        return self.components.batch_shape[:-1]

    @property
    def dtype(self) -> torch.dtype:
        """The precision."""
        return self.components.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.components.device

    def __getattr__(self, name: str) -> NoReturn:
        if name in _MISSING:
            refuse(f"a Mixture has no {name}", f"{_MISSING[name]}; {TAKE} take a Mixture")
        raise AttributeError(f"'Mixture' object has no attribute {name!r}")

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Mixture:
        """Index the batch axes, as with a tensor.

        >>> Mixture.from_logits(torch.zeros(8, 3, 5, 4), torch.zeros(8, 3))[2:4].batch_shape
        (2,)
        """
        components = self.components._like(take(self.components.log_probs, index, 3))
        return Mixture(components, take(self.log_weights, index, 1), validate=False)

    def expand(self, *batch: int) -> Mixture:
        """The same mixture for more rows, as with a tensor.

        >>> Mixture.from_logits(torch.zeros(3, 5, 4), torch.zeros(3)).expand(7).batch_shape
        (7,)
        """
        count = self.log_weights.shape[-1]
        return Mixture(self.components.expand(*batch, count), self.log_weights.expand(*batch, count), validate=False)

    def to(self, target: torch.device | str | torch.dtype) -> Mixture:
        """The same mixture on another device or in another dtype.

        >>> Mixture.from_logits(torch.zeros(3, 5, 4), torch.zeros(3)).to(torch.float64).dtype
        torch.float64
        """
        return Mixture(self.components.to(target), self.log_weights.to(target), validate=False)

    def detach(self) -> Mixture:
        """The same mixture, cut from the graph that computed it.

        >>> weights = torch.zeros(3, requires_grad=True)
        >>> Mixture.from_logits(torch.zeros(3, 5, 4), weights).detach().log_weights.requires_grad
        False
        """
        return Mixture(self.components.detach(), self.log_weights.detach(), validate=False)

    def _clone(self) -> Mixture:
        return Mixture(self.components._clone(), self.log_weights.clone(), validate=False)

    def log_prob(self, worlds: Tensor) -> Tensor:
        """log p(w) = log Σ_k π_k ∏_i P_k[i, w_i], for worlds int64 ``(*sample, *batch, W)``: ``(*sample, *batch)``.

        >>> uniform = Mixture.from_logits(torch.zeros(3, 2, 4), torch.zeros(3))
        >>> uniform.log_prob(torch.tensor([0, 3])).exp() * 16
        tensor(1.)
        """
        require_worlds(worlds, self.batch_shape, self.sizes)
        return self._gather(worlds)

    def _gather(self, worlds: Tensor) -> Tensor:
        """``log_prob`` of worlds that are known to fit."""
        return logsumexp(self._joint(worlds), -1)

    def joint(self, worlds: Tensor) -> Tensor:
        """log (π_k p_k(w)) of each component, ``(*sample, *batch, K)``; softmax over k makes it the responsibilities.

        >>> point = Belief.from_bernoulli(probs=torch.tensor([[1.0], [0.5]]))
        >>> Mixture(point, torch.tensor([0.5, 0.5]).log()).joint(torch.tensor([1])).softmax(-1)
        tensor([0.6667, 0.3333])
        """
        require_worlds(worlds, self.batch_shape, self.sizes)
        return self._joint(worlds)

    def _joint(self, worlds: Tensor) -> Tensor:
        every = worlds.unsqueeze(-2).expand(*worlds.shape[:-1], self.log_weights.shape[-1], -1)
        return self.log_weights + self.components._gather(every)

    def sample(self, count: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Worlds drawn from the mixture, component first: int64 ``(count, *batch, W)``; not differentiable.

        >>> point = Belief.from_bernoulli(probs=torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        >>> Mixture(point, torch.tensor([1.0, 0.0]).log()).sample(2)
        tensor([[0, 1],
                [0, 1]])
        """
        component = draw(self.log_weights.exp(), count, generator)  # (count, *batch)
        return draw(picked(self.components.probs.detach(), component), 1, generator)[0]

    def marginals(self) -> Belief:
        """p(w_i = v) = Σ_k π_k P_k[i, v], as the independent belief with these marginals: what the mixture says of each
        variable alone.

        >>> point = Belief.from_bernoulli(probs=torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
        >>> Mixture(point, torch.tensor([0.75, 0.25]).log()).marginals().probs[:, 1]
        tensor([0.7500, 0.7500])
        """
        joint = self.log_weights.unsqueeze(-1).unsqueeze(-1) + self.components.log_probs
        return Belief(logsumexp(joint, -3), self.sizes, validate=False)

    def entropy_bounds(self) -> tuple[Tensor, Tensor]:
        """Numbers ``(*batch,)`` between which -Σ_w p(w) log p(w) lies, in nats.

        With H_k the entropies of the components, B their Bhattacharyya coefficients Σ_w √(p_k(w) p_j(w)) and KL their
        divergences,

            Σ_k π_k (H_k - log Σ_j π_j B_kj)  ≤  H  ≤  Σ_k π_k (H_k - log Σ_j π_j exp(-KL_kj))

        (Kolchinsky and Tracey 2017, "Estimating mixture entropy with pairwise distances"). Both are exact for one
        component, for equal ones, and for components that have no world in common, such as different point masses.

        >>> point = Belief.from_bernoulli(probs=torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
        >>> [x.exp() for x in Mixture(point, torch.tensor([0.5, 0.5]).log()).entropy_bounds()]
        [tensor(2.), tensor(2.)]
        """
        log_probs = self.components.log_probs
        one, other = log_probs.unsqueeze(-3), log_probs.unsqueeze(-4)  # (*batch, K, K, W, D)
        affinity = logsumexp((one + other) / 2, -1).sum(-1)
        seen, excluded = one > NEG_INF, (one > NEG_INF) & (other == NEG_INF)
        ratio = torch.where(seen, one, 0.0) - torch.where(seen & ~excluded, other, 0.0)
        divergence = (one.exp() * ratio).sum((-1, -2)).masked_fill(excluded.any(-1).any(-1), torch.inf)
        return entropy_between(self.components.entropy(), self.log_weights, affinity, divergence)

    def __repr__(self) -> str:
        count = self.log_weights.shape[-1]
        return f"Mixture(batch={self.batch_shape}, components={count}, sizes={self.sizes}, dtype={self.dtype})"


AnyBelief = Belief | Mixture


def require_belief(belief: object) -> None:
    """A ``ProblemError`` for a tensor, or anything else that is not said to be a belief."""
    if not isinstance(belief, AnyBelief):
        made = "Belief.from_bernoulli(logits=...) of a tensor (*batch, W), or Belief.from_logits of (*batch, W, D)"
        raise ProblemError(f"the belief is a {type(belief).__name__}, expected a Belief or a Mixture; say {made}")


def one_belief(belief: AnyBelief | WorldTable | Autoregressive) -> Belief:
    """The belief; an error for a mixture, from who cannot reason with it."""
    if not isinstance(belief, Belief):
        refuse(f"one Belief is wanted here, and a {type(belief).__name__} came")
    return belief


def marginals(belief: AnyBelief | WorldTable) -> Belief:
    """What is believed of each variable alone."""
    return belief if isinstance(belief, Belief) else belief.marginals()


def entropy_between(
    entropies: Tensor, log_weights: Tensor, affinity: Tensor, divergence: Tensor
) -> tuple[Tensor, Tensor]:
    """The bounds of `Mixture.entropy_bounds` from H_k ``(*batch, K)``, log π, log B and KL ``(*batch, K, K)``."""
    weights, same = log_weights.exp(), torch.eye(log_weights.shape[-1], dtype=torch.bool, device=log_weights.device)
    mean = (weights * entropies).sum(-1)
    bounds = []
    for distance in (-affinity, divergence):
        near = log_weights.unsqueeze(-2) - distance.masked_fill(same, 0.0)
        spread = logsumexp(near, -1)
        bounds.append(mean - (weights * spread.masked_fill(spread == NEG_INF, 0.0)).sum(-1))
    return bounds[0], torch.maximum(bounds[0], bounds[1])  # rounding must not turn them round


def picked(x: Tensor, component: Tensor) -> Tensor:
    """Of ``(*batch, K, W, D)`` the component ``(count, *batch)`` of each draw: ``(count, *batch, W, D)``."""
    index = component[..., None, None, None].expand(*component.shape, 1, *x.shape[-2:])
    return x.expand(len(component), *x.shape).gather(-3, index).squeeze(-3)


def rows_of(belief: AnyBelief | WorldTable) -> Tensor:
    """The log-weights of worlds: ``(*batch, W, D)``; of a mixture ``(*batch, K, W, D)``, with log π in the first
    variable of each component, so that all of it is one tensor; of a list of worlds ``(*batch, worlds)``."""
    if not isinstance(belief, Mixture):
        return belief.log_probs
    log_probs = belief.components.log_probs
    first = log_probs[..., :1, :] + belief.log_weights[..., None, None]
    return torch.cat([first, log_probs[..., 1:, :]], -2)
