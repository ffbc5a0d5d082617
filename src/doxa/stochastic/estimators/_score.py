r"""Exact enumeration, and the score function with its baselines.

    Expectation:           all values,   w = p(x) live,   l = 0,          a = 0
    Score function:        x_j ~ p,      w = 1/m,         l = log p(⊥x),  a = (1 − □(l)) b
    Importance sampling:   x_j ~ q,      w = ⊥(p/q)/m,    l = log p(⊥x),  a = (1 − □(l)) b
    Self-normalised:       x_j ~ q,      w = p/q / Σ p/q, l = 0,          a = 0

A baseline b must not depend on the sample it is used for; it then has mean zero at every order of differentiation
(dissertation, "Any-order control variates"; errata 4.2). Downstream costs that enter a baseline are detached.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from doxa.errors import ConfigError, ProblemError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import log_prob, mode, repeat_batch, support, total_size
from doxa.stochastic.tape._magic import is_wrapped


class Enumerate(Estimator):
    """The exact expectation: every value, weighted by its probability. Nothing is random, at any order.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> p = torch.tensor(0.3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(p), Enumerate())
    >>> _ = tape.cost(2 * z)
    >>> loss = tape.surrogate(); loss.detach(), torch.autograd.grad(loss, p)[0]
    (tensor(0.6000), tensor(2.))
    """

    distributions = "finite"
    evaluations = "all values"

    def __init__(self) -> None:
        super().__init__(1)

    def checked(self, n: int) -> int:
        if n != 1:
            raise ConfigError(f"Enumerate takes every value once, so n cannot be chosen; got n={n}")
        return n

    def propose(self, distribution: Distribution, n: int) -> Draw:
        return Draw(support(distribution, "Enumerate"), distribution)

    def weight(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.value).exp()

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        if total_size(distribution) is None:
            return None
        value = support(distribution).unsqueeze(1)
        sure = torch.ones((1, *distribution.batch_shape), device=value.device, dtype=torch.float64)
        return Draw(value, repeat_batch(distribution, 1)), sure

    def fits(self, distribution: Distribution) -> bool:
        return total_size(distribution) is not None

    def describe(self) -> str:
        return "Enumerate"

    def __repr__(self) -> str:
        return "Enumerate()"


class Score(Estimator):
    """The score function (REINFORCE) on n independent samples, with no baseline or a constant one.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(logits=logits), Score(n=10, baseline=0.5))
    >>> _ = tape.cost(z.float())
    >>> tape.surrogate(order=2).shape
    torch.Size([])
    """

    independent = True

    def __init__(self, n: int = 1, baseline: float | Tensor = 0.0) -> None:
        super().__init__(n)
        self.baseline = baseline

    def gradient(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.value)

    @property
    def controls(self) -> bool:
        own = type(self).control is not Score.control
        return own or isinstance(self.baseline, Tensor) or self.baseline != 0.0

    @property
    def additive(self) -> bool:
        return type(self).control is not Score.control  # a constant is subtracted once, however the costs are grouped

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor | None:
        return (1 - box) * (self.baseline.detach() if isinstance(self.baseline, Tensor) else self.baseline)


class LeaveOneOut(Score):
    """The score function whose baseline for each sample is the average cost of the others (VIMCO's, RLOO).

    b_j = ⊥ 1/(m−1) Σ_{j'≠j} f(x_{j'}), unbiased at any order (errata 4.2: the summand's index is j').

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(torch.tensor(0.3, requires_grad=True)), LeaveOneOut(4))
    >>> _ = tape.cost(torch.ones(4))                      # a constant cost has no gradient, not even a noisy one
    >>> tape.surrogate().item()
    1.0
    """

    least = 2

    def __init__(self, n: int = 2) -> None:
        super().__init__(n)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        return (1 - box) * ((cost.sum(0, keepdim=True) - cost) / (draw.m - 1))


class PerturbAndMAP(LeaveOneOut):
    """Solutions z(u) of perturbed inputs u ~ q_θ, with the score function of q_θ: unbiased at any order.

    >>> from torch.distributions import Independent, Normal
    >>> from doxa.stochastic import Tape
    >>> solver = lambda u: torch.nn.functional.one_hot(u.argmax(-1), u.shape[-1]).float()
    >>> theta = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Normal(theta, 1.0), 1), PerturbAndMAP(solver, n=8))
    >>> _ = tape.cost(z @ torch.tensor([1.0, 2.0, 4.0]))
    >>> (g,) = torch.autograd.grad(tape.surrogate(), theta)
    """

    distributions = "any, as the solver's input"
    independent = False

    def __init__(self, solver: Callable[[Tensor], Tensor], n: int = 2) -> None:
        super().__init__(n)
        self.solver = solver

    def propose(self, distribution: Distribution, n: int) -> Draw:
        u = distribution.sample(torch.Size([n]))
        with torch.no_grad():
            return Draw(self.solver(u), distribution, input=u)

    def gradient(self, draw: Draw) -> Tensor:
        return log_prob(draw.distribution, draw.notes["input"])


class SelfCritical(Score):
    """The score function with the cost of the most probable value as baseline: one more evaluation, of weight 0.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(torch.tensor([0.2, 0.9])), SelfCritical(3))
    >>> z.shape, z[-1]
    (torch.Size([4, 2]), tensor([0., 1.]))
    """

    evaluations = "n + 1"

    def __init__(self, n: int = 1) -> None:
        super().__init__(n)

    def complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        try:
            greedy = mode(distribution)
        except NotImplementedError:
            raise ConfigError(f"{type(distribution).__name__} has no mode; use LeaveOneOut(n)") from None
        greedy = greedy.detach().to(drawn.dtype).expand(drawn.shape[1:])
        return Draw(torch.cat([drawn, greedy.unsqueeze(0)]), distribution)

    def weight(self, draw: Draw) -> Tensor:
        return draw.first(draw.m - 1)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        return (1 - box) * cost[-1:]


class MovingAverage(nn.Module, Score):
    """The score function with an exponentially decaying average of earlier costs as baseline.

    The average is a buffer, so it is saved with ``state_dict``; it is updated once per tape, after its use.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> estimator = MovingAverage(n=5, decay=0.9)
    >>> for _ in range(3):
    ...     tape = Tape()
    ...     z = tape.sample(Bernoulli(torch.tensor(0.3, requires_grad=True)), estimator)
    ...     _ = tape.cost(torch.full((5,), 2.0))
    ...     loss = tape.surrogate()
    >>> estimator.average
    tensor(2., dtype=torch.float64)
    """

    stateful = True
    additive = False

    def __init__(self, n: int = 1, decay: float = 0.9) -> None:
        nn.Module.__init__(self)
        Score.__init__(self, n)
        if not 0 <= decay < 1:
            raise ConfigError(f"decay is {decay}, expected 0 <= decay < 1")
        self.decay = decay
        self.average: Tensor
        self.steps: Tensor
        self.register_buffer("average", torch.zeros((), dtype=torch.float64))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        # A copy: the graph keeps it, and the buffer changes in place.
        return (1 - box) * self.average.to(box.dtype, copy=True)

    def observe(self, draw: Draw, cost: Tensor) -> None:
        refuse_tracing(self, cost)
        with torch.no_grad():
            # The first average is the first cost; the bias towards 0 would only slow the start down.
            rate = 1 - self.decay if int(self.steps) else 1.0
            self.average += rate * (cost.mean().double() - self.average)
            self.steps += 1

    def __repr__(self) -> str:
        return f"MovingAverage({self.n}, decay={self.decay})"


class LearnedBaseline(Score):
    """The score function with a prediction of the cost as baseline, such as ``LearnedBaseline(value_network(x))``.

    The prediction has the shape of the batch (or broadcasts to it) and must not depend on the sample. It stays
    connected: the loss gives it no first derivative, and ``Tape.variance_objective`` or a regression on the costs
    trains it.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits, b = torch.zeros(4, requires_grad=True), torch.nn.Parameter(torch.tensor(0.0))
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), LearnedBaseline(b.expand(4)))
    >>> _ = tape.cost(z + 1)
    >>> (slope,) = torch.autograd.grad(tape.variance_objective([logits]), b)
    """

    learnable = True
    additive = False

    def __init__(self, prediction: Tensor, n: int = 1) -> None:
        super().__init__(n)
        self.prediction = prediction

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        return (1 - box) * self.prediction


class ImportanceSampling(Score):
    """The score function on samples from ``proposal``: w = ⊥(p/q)/n, l = log p, any order (errata 4.2).

    A weight belongs to a whole sample: the dimensions of one draw must be in the event of both distributions.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(logits=logits), ImportanceSampling(Categorical(torch.tensor([0.2, 0.5, 0.3])), n=8))
    >>> _ = tape.cost(z.double())
    >>> loss = tape.surrogate(order=2)
    """

    def __init__(self, proposal: Distribution, n: int = 1, baseline: float = 0.0) -> None:
        super().__init__(n, baseline)
        self.proposal = proposal

    def source(self, distribution: Distribution) -> Distribution:
        if self.proposal.event_shape != distribution.event_shape:
            shapes = f"{tuple(self.proposal.event_shape)}, the distribution {tuple(distribution.event_shape)}"
            raise ProblemError(f"the proposal has event shape {shapes}; wrap the smaller one in Independent")
        wide: Distribution = self.proposal.expand(distribution.batch_shape)
        return wide

    def complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        with torch.no_grad():
            log_weight = log_prob(distribution, drawn) - log_prob(self.source(distribution), drawn)
        return Draw(drawn, distribution, weight=log_weight.exp() / drawn.shape[0])

    def weight(self, draw: Draw) -> Tensor:
        return draw.notes["weight"]


class SelfNormalised(ImportanceSampling):
    r"""Self-normalised importance sampling: the weights p/q are divided by their sum over the n samples.

        w_j = softmax_j(log p(x_j) − log q(x_j)),  live,      l = 0,

    so p and q need be known up to constants only, and a constant added to the cost changes no derivative. A quotient of
    averages is biased, by O(1/n) at every order; it is consistent. Samples that p finds all impossible count alike.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Categorical(logits=logits), SelfNormalised(Categorical(torch.tensor([0.2, 0.5, 0.3])), n=8))
    >>> _ = tape.cost(torch.ones(8))
    >>> torch.autograd.grad(tape.surrogate(allow_biased=True), logits)[0].abs().max() < 1e-6
    tensor(True)
    """

    biased = True
    least = 2

    def __init__(self, proposal: Distribution, n: int = 10) -> None:
        super().__init__(proposal, n)

    def complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        with torch.no_grad():
            return Draw(drawn, distribution, log_q=log_prob(self.source(distribution), drawn))

    def weight(self, draw: Draw) -> Tensor:
        log_p = log_prob(draw.distribution, draw.value)
        possible = log_p.isfinite()
        ratio = torch.where(possible, log_p, 0.0) - draw.notes["log_q"]
        lowest = torch.finfo(ratio.dtype).min / 4  # what is impossible, next to what is not
        return torch.softmax(torch.where(possible, ratio, lowest), 0)

    def gradient(self, draw: Draw) -> None:  # type: ignore[override]
        return None


class VIMCO(Score):
    r"""The objective −log 1/n Σ_j exp(−c_j) over n samples of total cost c_j, instead of their average.

    With c_j = −log p(x, z_j)/q(z_j) this is the importance-weighted bound. The n samples are one joint draw,
    credited with one cost, so l = Σ_j log p(z_j); the baseline of sample j is the objective with c_j replaced by the
    average of the others (Mnih and Rezende 2016). It does not depend on z_j, hence any order. Later nodes need
    ``n=None``.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(4, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), VIMCO(5))
    >>> _ = tape.cost(torch.where(z > 0, 1.0, 2.0))
    >>> (g,) = torch.autograd.grad(tape.surrogate(), logits)
    """

    least = 2
    joins = True

    def __init__(self, n: int = 5) -> None:
        super().__init__(n)

    def joined(self, cost: Tensor) -> Tensor:
        """The objective (1, …) from the costs (n, …)."""
        return math.log(cost.shape[0]) - torch.logsumexp(-cost, 0, keepdim=True)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        n = draw.m
        others = (cost.sum(0, keepdim=True) - cost) / (n - 1)
        own = torch.eye(n, dtype=torch.bool, device=cost.device).reshape(n, n, *(1,) * (cost.dim() - 1))
        replaced = torch.where(own, others.unsqueeze(1), cost.unsqueeze(0))
        return (1 - box) * (math.log(n) - torch.logsumexp(-replaced, 1))


def refuse_tracing(estimator: Estimator, cost: Tensor) -> None:
    """Estimators with a state cannot change it inside a traced function."""
    if torch.compiler.is_compiling() or is_wrapped(cost):
        name = type(estimator).__name__
        raise ConfigError(f"{name} keeps a state, which torch.compile and torch.func cannot change; use LeaveOneOut(n)")
