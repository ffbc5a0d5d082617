"""Amortised inference on a tape: as one more loss, or as a control variate that keeps the gradient unbiased."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Independent
from torch.nn.functional import one_hot

from doxa.amortized._reasoner import AmortizedReasoner
from doxa.errors import ConfigError
from doxa.problem import Belief
from doxa.stochastic import Draw, Estimator, LeaveOneOut, Tape


def worlds_of(belief: Belief) -> Independent[Categorical]:
    """p(w | P) as a distribution that a tape can sample: batch ``(*batch,)``, event ``(W,)``.

    >>> worlds_of(Belief.uniform((2, 3), batch=(4,))).sample().shape
    torch.Size([4, 2])
    """
    # Values that do not exist get the smallest log-probability there is instead of -inf: never drawn, and no 0 · inf.
    logits = belief.log_probs.clamp(min=torch.finfo(belief.log_probs.dtype).min)
    return Independent(Categorical(logits=logits, validate_args=False), 1, validate_args=False)


class AmortizedControl(LeaveOneOut):
    """The score function with what a learned model expects as control variate; unbiased at any order.

    A model h(P) predicts the expected cost, differentiably in the probabilities P. Around P its tangent plane

        c(w) = h(P) + ⟨∇h(P), onehot(w) - P⟩          has          E_{p(w|P)}[c(w)] = h(P) + ⟨∇h(P), P - P⟩,

    and with ∇h held fixed the derivatives of that expectation are known: those of ⟨∇h, P⟩. So the model may carry the
    gradient, and sampling only corrects what it gets wrong:

        a_j = s (⟨∇h, P⟩ - ⊥⟨∇h, P⟩) - (□(l_j) - 1) ⊥(s c(w_j) + b_j),

    where b_j is the average of the other samples' cost - s c(w), and s a scale. Where h is right to first order, the
    gradient has the variance of the residual; where it is wrong, only the variance is. (This is MuProp, Gu et al. 2016,
    with a learned model in place of a mean-field one; the dissertation adds the two gradients, which is biased.)

    Args:
        surrogate: from a ``Belief`` to an expected cost ``(*batch,)``: ``expected_miss`` or ``expected_hamming`` of an
            engine, or anything else that is differentiable.
        n: the number of samples, at least 2.
        scale: s; 1 trusts the model, 0 is plain leave-one-out.
        sizes: of the domains, where they differ.

    >>> from doxa.problem import addition
    >>> engine = AmortizedReasoner(addition(1))
    >>> logits = torch.zeros(8, 2, 10, requires_grad=True)
    >>> y, belief = torch.tensor([1, 3]), Belief.from_logits(logits)
    >>> tape = Tape(batch_dims=1)
    >>> w = tape.sample(worlds_of(belief), AmortizedControl(lambda p: engine.expected_miss(p, y), n=10))
    >>> _ = tape.cost((engine.problem(w) != y).any(-1).float())
    >>> tape.surrogate().backward()
    """

    distributions = "Categorical"

    def __init__(
        self, surrogate: Callable[[Belief], Tensor], n: int = 10, *, scale: float = 1.0, sizes: tuple[int, ...] = ()
    ) -> None:
        super().__init__(n)
        self.surrogate, self.scale, self.sizes = surrogate, scale, sizes

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        assert box is not None
        probs = _probs(draw.distribution)  # (*batch, W, D), live
        level, slope = self._tangent(probs)
        chosen = one_hot(draw.value.long(), probs.shape[-1]).to(probs)
        planes = self.scale * (level + ((chosen - probs.detach()) * slope).sum((-1, -2)))  # c(w), (m, *batch)
        rest = cost - planes
        baseline = planes + (rest.sum(0, keepdim=True) - rest) / (draw.m - 1)
        moved = self.scale * ((probs - probs.detach()) * slope).sum((-1, -2))
        return moved + (1 - box) * baseline

    def _tangent(self, probs: Tensor) -> tuple[Tensor, Tensor]:
        """h(P) and ∇h(P), detached."""
        with torch.enable_grad():
            point = probs.detach().requires_grad_()
            positive = point.clamp(min=torch.finfo(point.dtype).tiny)
            level = self.surrogate(Belief(positive.log(), self.sizes, validate=False))
            if level.shape != point.shape[:-2]:
                wanted = f"one cost for each row, {tuple(point.shape[:-2])}"
                raise ConfigError(f"the surrogate returned shape {tuple(level.shape)}, expected {wanted}")
            (slope,) = torch.autograd.grad(level.sum(), point)
        return level.detach(), slope.detach()

    def fits(self, distribution: Distribution) -> bool:
        return isinstance(_base(distribution), Categorical)

    @property
    def additive(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"AmortizedControl({self.n}, scale={self.scale})"


def with_sampling(
    engine: AmortizedReasoner,
    belief: Belief,
    output: Tensor,
    cost: Callable[[Tensor, Tensor], Tensor],
    estimator: Estimator | None = None,
    *,
    given: Tensor | None = None,
    weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """A-NeSI and a sampled estimate as a sum, ``(*batch,)``: -log q(y | P) + weight · E[cost(c(w), y)].

    The dissertation's "A-NeSI + RLOO". The two terms pull in the same direction, one with bias and no variance, one
    the other way round; their sum is the gradient of neither. For an unbiased combination use ``AmortizedControl``.

    Args:
        engine: the amortised reasoner.
        belief: batch of one dimension.
        output: what was observed.
        cost: of the outputs of sampled worlds ``(m, *batch, Y)`` and the observed one, ``(m, *batch)``.
        estimator: of the sampled part; by default ``LeaveOneOut(10)``.
        given: what the data decide, int64 ``(*batch, G)``.
        weight: of the sampled part.
        generator: of the sampling.

    >>> from doxa.problem import addition
    >>> logits = torch.zeros(8, 2, 10, requires_grad=True)
    >>> hamming = lambda found, wanted: (found != wanted).float().sum(-1)
    >>> loss = with_sampling(AmortizedReasoner(addition(1)), Belief.from_logits(logits), torch.tensor([1, 3]), hamming)
    >>> loss.mean().backward(); loss.shape
    torch.Size([8])
    """
    tape = Tape(batch_dims=len(belief.batch_shape), generator=generator)
    worlds = tape.sample(worlds_of(belief), LeaveOneOut(10) if estimator is None else estimator)
    tape.cost(cost(engine.problem(worlds, given), output))
    return engine.loss(belief, output, given=given) + weight * tape.surrogate(reduction="none")


def _base(distribution: Distribution) -> Distribution:
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    return distribution


def _probs(distribution: Distribution) -> Tensor:
    base = _base(distribution)
    if not isinstance(base, Categorical):
        raise ConfigError(f"AmortizedControl needs worlds_of(belief), got {type(base).__name__}")
    probs: Tensor = base.probs
    if probs.dim() < len(distribution.batch_shape) + 2:
        raise ConfigError("AmortizedControl needs an event of world variables; sample worlds_of(belief)")
    return probs
