r"""Logic on logarithms of truth values, in the manner of logLTN (Badreddine, Serafini and Spranger 2023).

∧ and ∀ are sums (∀ may be a mean), ∨ and ∃ are :math:`\mathrm{LME}_α(l) = \frac1α \log \frac1n \sum_i e^{α l_i}`, ¬ is
:math:`\log(1 - e^l)`. A logarithm of 0 is read as -1/ε.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from doxa._numerics import Dims, cap, lift, safe_log, size_of, truth
from doxa.fuzzy.operators._connectives import Implication, Negation, prepare
from doxa.fuzzy.operators._parameters import Parameter, current, require
from doxa.fuzzy.quantifiers._aggregators import Aggregator, LogSum, count, total


def finite(x: Tensor, eps: float | None) -> Tensor:
    """A logarithm of 0 read as -1/ε."""
    return x.clamp_min(-1 / cap(x, eps))


@dataclass(frozen=True)
class LogNegation(Negation):
    r"""¬ in log space: :math:`\log \max(1 - e^l, ε)`."""

    eps: float | None = None

    def __call__(self, a: Tensor) -> Tensor:
        return safe_log(-torch.expm1(truth(a)), self.eps)


@dataclass(frozen=True)
class LogConjunction:
    """∧ in log space: the sum; a weight multiplies its summand."""

    eps: float | None = None

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return finite(truth(a), self.eps) + finite(truth(b), self.eps)

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """The sum over ``dim``, 0 where there is nothing to join."""
        return total(finite(prepare(x, mask), self.eps), dim, mask, weight)


@dataclass(frozen=True)
class LogDisjunction:
    """∨ in log space: LME_α of the arguments; weights make the mean inside it a weighted one.

    >>> a, b = torch.tensor(0.2).log(), torch.tensor(0.6).log()
    >>> LogDisjunction(1.0)(a, b).exp(), LogDisjunction(1000.0)(a, b).exp()
    (tensor(0.4000), tensor(0.5996))
    """

    alpha: Parameter = 1.0
    eps: float | None = None

    def __post_init__(self) -> None:
        require("the α of a log-mean-exp", self.alpha, 0)

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        return self.reduce(torch.stack(torch.broadcast_tensors(truth(a), truth(b))), 0)  # type: ignore[no-untyped-call]

    def reduce(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """LME_α over ``dim``, -1/ε where there is nothing to join."""
        x = finite(prepare(x, mask), self.eps)
        alpha, low = current(self.alpha), -1 / cap(x, self.eps)
        dims = tuple(range(x.dim())) if dim is None else dim
        if not size_of(x, dim):
            return x.sum(dims) + low
        some = mask if weight is None else (weight > 0 if mask is None else mask & (weight > 0))
        top = (x if some is None else torch.where(some, x, low)).detach().amax(dims, keepdim=True)
        # From the largest one: accurate for small α too, where the mean is nearly 1.
        mean = total(torch.expm1(alpha * (x - top)), dim, some, weight) / count(x, dim, some, weight)
        return top.squeeze(dims) + torch.log1p(lift(mean, cap(x) / 2 - 1)) / alpha


@dataclass(frozen=True)
class LogForall(LogSum):
    """∀ in log space, of logarithms: their sum or mean. A weight multiplies its summand; a mean divides by their sum.

    >>> LogForall("mean")(torch.tensor([0.8, 0.7, 0.9]).log())
    tensor(-0.2284)
    """

    def logs(self, x: Tensor) -> Tensor:
        return finite(x, self.eps)


@dataclass(frozen=True)
class LogExists(Aggregator):
    """∃ in log space, of logarithms: LME_α; weights make the mean inside it a weighted one.

    >>> LogExists(2.0)(torch.tensor([0.2, 0.3, 0.1]).log()).exp()      # the quadratic mean
    tensor(0.2160)
    """

    alpha: Parameter = 1.0
    eps: float | None = None
    kind = "exists"
    is_log = True
    bounded = False

    def __post_init__(self) -> None:
        require("the α of a log-mean-exp", self.alpha, 0)

    def __call__(self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        return LogDisjunction(self.alpha, self.eps).reduce(x, dim, mask, weight)


@dataclass(frozen=True)
class LogImplication(Implication):
    """→ in log space: ¬a ∨ c."""

    disjunction: LogDisjunction = LogDisjunction()
    negation: LogNegation = LogNegation()

    def __call__(self, a: Tensor, c: Tensor) -> Tensor:
        return self.disjunction(self.negation(a), c)
