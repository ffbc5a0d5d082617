r"""Any unbiased gradient as a control variate of the score function.

If h is an expression whose derivatives estimate those of E[f] without bias (dissertation, "GO Gradient"), then

    w = 1/n,      l = log p(⊥x),      a = (h − ⊥h) − ⊥f(x) (□(l) − 1)

adds h's gradient and subtracts the score function's. Independent finite factors x_j can vary one at a time (errata
4.2): with probabilities p_{j,v}, P_{j,v} = Σ_{u≤v} p_{j,u} and f_{j,v} the cost with factor j set to v,

    GO:              h = Σ_j 1[x_j<d] ⊥((f_{j,x_j} − f_{j,x_j+1}) / p_{j,x_j}) P_{j,x_j}
    Rao-Blackwell:   h = Σ_j Σ_v p_{j,v} ⊥f_{j,v}

and what is subtracted is Σ_j (□(log p_{j,x_j}) − 1), because h differentiates one factor at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import Factors, each_alone, factors, has_factors, log_prob
from doxa.stochastic.tape._magic import magic_box


class Lifted(Estimator):
    """Base of estimators that replace the score function's gradient by another one."""

    independent = True

    def extra(self, distribution: Distribution) -> int:
        """How many more points each of the n samples wants evaluated."""
        return 0

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        """Those points, (extra, n, *batch, *event), from the samples (n, …) and the fresh draws (draws − 1, n, …)."""
        raise NotImplementedError

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        """h (n, …), and what stands for □(l) − 1 in the subtracted score function (``None``: that itself)."""
        raise NotImplementedError

    def complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        n = drawn.shape[0] // self.draws(distribution)
        main = drawn[:n]
        if not self.extra(distribution):
            return Draw(main, distribution)
        fresh = drawn[n:].reshape(self.draws(distribution) - 1, *main.shape)
        return Draw(torch.cat([main, self.points(distribution, main, fresh).flatten(0, 1)]), distribution)

    def _count(self, draw: Draw) -> int:
        return draw.m // (1 + self.extra(draw.distribution))

    def weight(self, draw: Draw) -> Tensor | None:
        n = self._count(draw)
        return None if n == draw.m else draw.first(n)

    def gradient(self, draw: Draw) -> Tensor:
        n = self._count(draw)
        return padded(log_prob(draw.distribution, draw.value[:n]), draw.m)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        n = self._count(draw)
        main, f = draw.value[:n], cost[:n]
        h, minus = self.term(draw, main, f, cost[n:].reshape(self.extra(draw.distribution), *f.shape))
        score = box[:n] - 1 if minus is None else minus
        return padded(h - h.detach() - f * score, draw.m)


class FromGradient(Lifted):
    """Lifts a gradient of your own into the tape.

    Args:
        function: from (distribution, samples (n, …), costs (n, …)) to an expression (n, …) whose derivatives, with
            the costs held fixed, are unbiased estimates of the derivatives of the expected cost.
        order: up to which order that holds.
        n: the number of samples.
        points: optionally, further points (extra, n, …) from (distribution, samples); their costs (extra, n, …) are
            then passed as a fourth argument.
        extra: how many points ``points`` returns for each sample.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> def score(distribution, value, cost):
    ...     return log_prob(distribution, value) * cost
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(torch.tensor(0.3)), FromGradient(score, order=1, n=4))
    >>> _ = tape.cost(z * 2)
    >>> loss = tape.surrogate()
    """

    evaluations = "n (1 + extra)"

    def __init__(
        self,
        function: Callable[..., Tensor],
        order: int = 1,
        n: int = 1,
        points: Callable[[Distribution, Tensor], Tensor] | None = None,
        extra: int = 0,
    ) -> None:
        super().__init__(n)
        if (points is None) != (extra == 0):
            raise ConfigError(f"points and extra belong together; got extra={extra} and points={points!r}")
        self.function, self.order, self._points, self._extra = function, order, points, extra

    def extra(self, distribution: Distribution) -> int:
        return self._extra

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        assert self._points is not None
        return self._points(distribution, main)

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        given = (extra,) if self._extra else ()
        return self.function(draw.distribution, main, cost, *given), None


def padded(x: Tensor, m: int) -> Tensor:
    """``x`` with zeros for the samples of weight 0."""
    if x.shape[0] == m:
        return x
    return torch.cat([x, x.new_zeros((m - x.shape[0], *x.shape[1:]))])


class _Local(Lifted):
    distributions = "independent finite factors"

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution)

    def _factors(self, distribution: Distribution) -> Factors:
        return factors(distribution, type(self).__name__)


def chosen(table: Tensor, index: Tensor) -> Tensor:
    """The entries (n, *batch, R) of a table (*batch, R, C) at indices (n, *batch, R)."""
    table = table.expand(*index.shape, table.shape[-1])
    return table.gather(-1, index.unsqueeze(-1)).squeeze(-1)


def factor_boxes(f: Factors, index: Tensor) -> Tensor:
    """Σ_j (□(log p_{j,x_j}) − 1), (n, *batch)."""
    return (magic_box(chosen(f.log_probs, index)) - 1).sum(-1)


def _successors(f: Factors) -> Tensor:
    """The next value that has a probability, (*batch, R, C); the last one follows itself."""
    table = f.log_probs.detach()
    width = table.shape[-1]
    place = torch.arange(width, device=table.device).expand(table.shape)
    following = torch.where(table > float("-inf"), place, width).flip(-1).cummin(-1).values.flip(-1)
    following = torch.cat([following[..., 1:], torch.full_like(following[..., :1], width)], -1)
    return torch.where(following < width, following, place)


class GO(_Local):
    """The GO gradient: differences of neighbouring values, weighted by the derivative of the distribution function.

    Each factor's term looks at the sampled value x_j and its successor, so it is random even where the other factors do
    not matter. Its average over x_j is ``RaoBlackwell``'s term, Σ_v ⊥f_{j,v} ∇p_{j,v}, by summation by parts; that one
    costs as many evaluations as there are values.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logit = torch.tensor(0.5, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Bernoulli(logits=logit), GO())
    >>> _ = tape.cost((z - 0.45) ** 2)
    >>> (g,) = torch.autograd.grad(tape.surrogate(), logit)          # one binary factor: f(1) − f(0) or nothing
    """

    evaluations = "n (1 + factors)"

    def extra(self, distribution: Distribution) -> int:
        return len(self._factors(distribution).sizes)

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        f = self._factors(distribution)
        index = f.index(main)
        return f.value(each_alone(index, chosen(_successors(f), index)))

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        f = self._factors(draw.distribution)
        index = f.index(main)
        p = f.log_probs.exp()
        # The factor's largest value has P = 1, whose derivative is 0.
        slope = (cost - extra).movedim(0, -1) / chosen(p, index).detach()
        h = (torch.where(chosen(_successors(f), index) > index, slope, 0.0) * chosen(p.cumsum(-1), index)).sum(-1)
        return h, factor_boxes(f, index)


class RaoBlackwell(_Local):
    """Sums each factor out exactly while the others stay as sampled (local expectation gradients).

    One sample is shared by all factors. See ``SumAndSample`` for the Rao-Blackwellisation over the most probable
    values.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Bernoulli(torch.tensor([0.3, 0.6])), 1), RaoBlackwell())
    >>> z.shape                                                      # the sample, and 2 values of 2 factors
    torch.Size([5, 2])
    """

    evaluations = "n (1 + values of all factors)"

    def extra(self, distribution: Distribution) -> int:
        f = self._factors(distribution)
        return f.log_probs.shape[-1] * len(f.sizes)

    def _varied(self, f: Factors, base: Tensor) -> Tensor:
        """(R·C, n, *batch, R) indices: factor j of base[j] set to each of its values."""
        count, width = len(f.sizes), f.log_probs.shape[-1]
        last = torch.tensor(f.sizes, device=base.device) - 1
        shape = (count, width, *base.shape[1:])
        value = torch.arange(width, device=base.device).reshape(1, width, *(1,) * (base.dim() - 1))
        here = torch.eye(count, dtype=torch.bool, device=base.device).reshape(count, 1, *(1,) * (base.dim() - 2), count)
        varied = torch.where(here, torch.minimum(value, last), base.unsqueeze(1)).expand(shape)
        return varied.flatten(0, 1)

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        f = self._factors(distribution)
        index = f.index(main)
        return f.value(self._varied(f, index.unsqueeze(0).expand(len(f.sizes), *index.shape)))

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        f = self._factors(draw.distribution)
        count, width = len(f.sizes), f.log_probs.shape[-1]
        costs = extra.reshape(count, width, *cost.shape).movedim((0, 1), (-2, -1))
        h = (f.log_probs.exp() * costs).sum((-2, -1))
        return h, factor_boxes(f, f.index(main))


class IndeCateR(RaoBlackwell):
    """Sums each factor out exactly, with a fresh sample of the other factors for each (IndeCateR).

    >>> from torch.distributions import Categorical, Independent
    >>> from doxa.stochastic import Tape
    >>> tape = Tape()
    >>> z = tape.sample(Independent(Categorical(torch.ones(3, 4)), 1), IndeCateR(2))
    >>> z.shape                                                      # 2 · (1 + 3 · 4)
    torch.Size([26, 3])
    """

    def draws(self, distribution: Distribution) -> int:
        return 1 + len(self._factors(distribution).sizes)

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        f = self._factors(distribution)
        return f.value(self._varied(f, f.index(fresh)))
