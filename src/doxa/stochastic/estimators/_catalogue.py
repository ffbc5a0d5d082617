"""All estimators in one list: the catalogue that is printed, and that every test goes through."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._differences import SPSA, MeasureValued
from doxa.stochastic.estimators._estimator import Estimator
from doxa.stochastic.estimators._factors import log_prob, parameters_of, plain, rebuilt
from doxa.stochastic.estimators._lifted import GO, FromGradient, IndeCateR, RaoBlackwell
from doxa.stochastic.estimators._noise import ARM, ARMS, ARSM, LAX, REBAR, RELAX, DisARM
from doxa.stochastic.estimators._pathwise import IMLE, GumbelSoftmax, Implicit, Reparameterise, StraightThrough
from doxa.stochastic.estimators._score import (
    VIMCO,
    Enumerate,
    ImportanceSampling,
    LearnedBaseline,
    LeaveOneOut,
    MovingAverage,
    PerturbAndMAP,
    Score,
    SelfCritical,
    SelfNormalised,
)
from doxa.stochastic.estimators._sum_and_sample import MAPO, StochasticSumAndSample, SumAndSample
from doxa.stochastic.estimators._without_replacement import ScoreWithoutReplacement, UnorderedSet


def _smooth(distribution: Distribution) -> Callable[[Tensor], Tensor]:
    """A control variate for the examples: a smooth function of a (relaxed) sample, one number for each."""
    trailing = len(distribution.event_shape) + isinstance(plain(distribution)[0], Categorical)

    def function(x: Tensor) -> Tensor:
        y = torch.tanh(x) * 0.5 + 0.2 * x
        return y.flatten(-trailing).sum(-1) if trailing else y

    return function


def _score(distribution: Distribution, value: Tensor, cost: Tensor) -> Tensor:
    return log_prob(distribution, value) * cost


def _sign(u: Tensor) -> Tensor:
    return (u > 0).to(u.dtype)


def _wider(distribution: Distribution) -> Distribution:
    """A proposal for the examples: flatter than the distribution, where it can be taken apart."""
    try:
        parameters = parameters_of(distribution)
    except ConfigError:
        return distribution
    return rebuilt(distribution, {k: 0.5 * v.detach() for k, v in parameters.items()})


# One example of each, made for a given distribution.
ESTIMATORS: tuple[Callable[[Distribution], Estimator], ...] = (
    lambda d: Enumerate(),
    lambda d: Score(2),
    lambda d: Score(2, baseline=0.7),
    lambda d: MovingAverage(2),
    lambda d: LearnedBaseline(torch.tensor(0.4), n=2),
    lambda d: SelfCritical(2),
    lambda d: LeaveOneOut(2),
    lambda d: Reparameterise(),
    lambda d: Implicit(1, order=3),
    lambda d: ImportanceSampling(_wider(d), n=2),
    lambda d: SelfNormalised(_wider(d), n=2),
    lambda d: SumAndSample(3, top=1, form="A"),
    lambda d: SumAndSample(3, top=1, form="B"),
    lambda d: StochasticSumAndSample(3, top=1, form="A"),
    lambda d: StochasticSumAndSample(2, top=1, form="B"),
    lambda d: MAPO(1, 2),
    lambda d: UnorderedSet(2),
    lambda d: ScoreWithoutReplacement(2),
    lambda d: RaoBlackwell(),
    lambda d: IndeCateR(),
    lambda d: LAX(_smooth(d)),
    lambda d: RELAX(_smooth(d)),
    lambda d: REBAR(_smooth(d)),
    lambda d: ARM(),
    lambda d: DisARM(),
    lambda d: ARMS(4),
    lambda d: ARSM(),
    lambda d: GO(),
    lambda d: SPSA(),
    lambda d: SPSA(order=2),
    lambda d: MeasureValued(),
    lambda d: MeasureValued(second=True),
    lambda d: VIMCO(3),
    lambda d: PerturbAndMAP(_sign),
    lambda d: IMLE(_sign),
    lambda d: GumbelSoftmax(),
    lambda d: StraightThrough(),
    lambda d: FromGradient(_score),
)


def alternatives(distribution: Distribution, order: int) -> list[str]:
    """The names of unbiased estimators for a distribution at an order."""
    names = []
    for make in ESTIMATORS:
        estimator = make(distribution)
        left_out = estimator.biased or isinstance(estimator, FromGradient | PerturbAndMAP | VIMCO)
        if not left_out and estimator.fits(distribution) and estimator.order_for(distribution) >= order:
            names.append(type(estimator).__name__)
    return list(dict.fromkeys(names))


def catalogue() -> list[dict[str, str]]:
    """Order, distributions, cost evaluations, whether it learns and whether it is biased, of every estimator.

    >>> rows = catalogue()
    >>> rows[0]["name"], rows[0]["order"], rows[0]["evaluations"]
    ('Enumerate', 'any', 'all values')
    """
    example = torch.distributions.Bernoulli(torch.tensor(0.5))
    rows: dict[str, dict[str, str]] = {}
    for make in ESTIMATORS:
        e = make(example)
        chosen = "chosen" if isinstance(e, FromGradient | Implicit | SPSA) else ""
        chosen = "1 or any" if isinstance(e, MeasureValued) else chosen  # of finite distributions, or of numbers
        rows[type(e).__name__] = {
            "name": type(e).__name__,
            "order": chosen or ("any" if e.order == inf else str(int(e.order))),
            "distributions": e.distributions,
            "evaluations": e.evaluations,
            "learnable": "yes" if e.learnable else "no",
            "biased": "yes" if e.biased else "no",
        }
    return list(rows.values())
