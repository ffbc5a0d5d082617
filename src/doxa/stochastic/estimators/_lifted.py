r"""Any unbiased gradient as a control variate of the score function.

Dissertation, "GO Gradient": if h is an expression whose derivatives estimate those of E[f] without bias, then

    w = 1/n,      l = log p(⊥x),      a = (h − ⊥h) − ⊥f(x) (□(l) − 1)

adds h's gradient and subtracts the score function's, so the node works in any graph. Extra points at which the gradient
needs the cost are samples of weight 0.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._factors import first_weights, log_prob, repeat_batch
from doxa.stochastic.estimators._outcomes import independent_values

__all__ = ["FromGradient", "Lifted"]


class Lifted(Estimator):
    """Base of estimators that replace the score function's gradient by another one."""

    def extra(self, distribution: Distribution) -> int:
        """How many more points each of the n samples wants evaluated."""
        return 0

    def draws(self, distribution: Distribution) -> int:
        """How many independent draws each of the n samples needs, itself included."""
        return 1

    def points(self, distribution: Distribution, main: Tensor, fresh: Tensor) -> Tensor:
        """Those points, (extra, n, *batch, *event), from the samples (n, …) and the fresh draws (draws − 1, n, …)."""
        raise NotImplementedError

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        """h (n, …), and what stands for □(l) − 1 in the subtracted score function (``None``: that itself)."""
        raise NotImplementedError

    def propose(self, distribution: Distribution, n: int) -> Draw:
        drawn = distribution.sample(torch.Size([n * self.draws(distribution)]))
        return self._complete(distribution, drawn)

    def _complete(self, distribution: Distribution, drawn: Tensor) -> Draw:
        n = drawn.shape[0] // self.draws(distribution)
        main = drawn[:n]
        if not self.extra(distribution):
            return Draw(main, distribution)
        fresh = drawn[n:].reshape(-1, *main.shape)
        return Draw(torch.cat([main, self.points(distribution, main, fresh).flatten(0, 1)]), distribution)

    def _count(self, draw: Draw) -> int:
        return draw.m // (1 + self.extra(draw.distribution))

    def weight(self, draw: Draw) -> Tensor | None:
        n = self._count(draw)
        return None if n == draw.m else first_weights(n, draw)

    def gradient(self, draw: Draw) -> Tensor:
        n = self._count(draw)
        return padded(log_prob(draw.distribution, draw.value[:n]), draw.m)

    def control(self, draw: Draw, box: Tensor | None, cost: Tensor) -> Tensor:
        n = self._count(draw)
        assert box is not None
        main, f = draw.value[:n], cost[:n]
        h, minus = self.term(draw, main, f, cost[n:].reshape(-1, *f.shape))
        score = box[:n] - 1 if minus is None else minus
        return padded(h - h.detach() - f * score, draw.m)

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        found = independent_values(distribution, n * self.draws(distribution))
        if found is None:
            return None
        return self._complete(repeat_batch(distribution, found[1].shape[0]), found[0]), found[1]


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

    >>> import torch
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
