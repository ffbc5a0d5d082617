r"""Is an estimator unbiased? Proved by enumeration where the proposal is small, else tested on replicates.

The truth is computed without automatic differentiation: the expected cost is summed exactly at a few values of the
parameters, and the polynomial through them is differentiated. A stray ``detach`` in a model therefore shows up as a
bias.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isfinite

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Estimator
from doxa.stochastic.estimators._factors import broadcast
from doxa.stochastic.estimators._parameters import parameters_of, rebuilt
from doxa.stochastic.tape._magic import magic_box
from doxa.stochastic.tape._tape import Tape
from doxa.stochastic.tape._worlds import TooMany, TrueTape, WorldTape

__all__ = ["Report", "check_tape", "check_unbiased"]

Model = Callable[[Tape, Tensor], None]
TOLERANCE = 2e-5
Z = 5.0


@dataclass(frozen=True)
class Report:
    """What a check found: for each order of differentiation the truth, the estimate and its standard error.

    ``conditions`` has, for each condition of Theorem 1 that was looked at, the largest deviation (in units of
    tolerance, so above 1 is a failure) up to the order; condition 3 is not needed for unbiasedness and only reported.

    >>> import torch
    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import LeaveOneOut
    >>> print(check_unbiased(LeaveOneOut(2), Bernoulli(torch.tensor(0.3)), lambda z: z * 2.0, order=1))
    LeaveOneOut@2: unbiased up to order 1 (exact)
    """

    name: str
    exact: bool
    truth: tuple[float, ...]
    estimate: tuple[float, ...]
    error: tuple[float, ...]
    conditions: dict[int, float] = field(default_factory=dict)

    def deviation(self, order: int) -> float:
        """How far the estimate is from the truth, in units of what is tolerated."""
        return _deviation(self.truth[order], self.estimate[order], self.error[order])

    @property
    def order(self) -> int:
        """The highest order up to which everything agrees; −1 if not even the value does."""
        good = -1
        for n in range(len(self.truth)):
            if self.deviation(n) > 1:
                break
            good = n
        return good

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for holds."""
        needed = [value for condition, value in self.conditions.items() if condition != 3]
        return self.order == len(self.truth) - 1 and all(value <= 1 for value in needed)

    def __str__(self) -> str:
        how = "exact" if self.exact else f"z-test, |z| < {Z:g}"
        last = len(self.truth) - 1
        if self.ok:
            return f"{self.name}: unbiased up to order {last} ({how})"
        lines = [f"{self.name}: BIASED ({how})"]
        for n in range(last + 1):
            sign = "ok " if self.deviation(n) <= 1 else "BAD"
            lines.append(
                f"  order {n}: {sign} estimate {self.estimate[n]:.6g} ± {self.error[n]:.2g}, truth {self.truth[n]:.6g}"
            )
        lines += [f"  condition {c} of Theorem 1 violated" for c, v in self.conditions.items() if v > 1 and c != 3]
        return "\n".join(lines)


def check_unbiased(
    estimator: Estimator | Callable[[Distribution], Estimator],
    distribution: Distribution | Callable[[Tensor], Distribution],
    cost: Callable[..., Tensor],
    order: int | None = None,
    *,
    at: Tensor | None = None,
    expected: Callable[[Tensor], Tensor] | None = None,
    replicates: int = 20_000,
) -> Report:
    """Check value and derivatives of one estimator on one node, and the conditions of Theorem 1.

    Args:
        estimator: the estimator, or a function that makes it for a distribution.
        distribution: a distribution, which is then moved along a direction in its parameters; or a function of the
            parameters ``at``, which must accept extra dimensions in front of them.
        cost: a function of the sample, or of sample and parameters.
        order: how many derivatives; the estimator's declared order, at most 3, if not given.
        at: the parameters, if ``distribution`` is a function.
        expected: the expected cost as a function of the parameters, where it cannot be summed or integrated.
        replicates: for the z-test, which is used if the proposal cannot be enumerated.

    >>> import torch
    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import FromGradient
    >>> wrong = FromGradient(lambda d, x, f: 2 * d.log_prob(x) * f)          # twice the score function
    >>> report = check_unbiased(wrong, Categorical(torch.tensor([0.2, 0.8])), lambda z: z.double(), order=1)
    >>> report.ok, report.order
    (False, 0)
    """
    if isinstance(distribution, Distribution):
        at, make = torch.zeros((), dtype=torch.float64), _line(distribution)
    elif at is None:
        raise ConfigError("distribution is a function of parameters; say where to check it with at=torch.tensor(...)")
    else:
        make = distribution
    at = at.detach().double()
    count = len([p for p in inspect.signature(cost).parameters.values() if p.default is p.empty])
    used = [estimator if isinstance(estimator, Estimator) else estimator(make(at))]

    def with_theta(z: Tensor, theta: Tensor) -> Tensor:
        return cost(z, theta) if count > 1 else cost(z)

    order = int(min(used[0].order_for(make(at)), 3)) if order is None else order

    def model(tape: Tape, theta: Tensor) -> None:
        z = tape.sample(make(theta), used[0])
        tape.cost(with_theta(z, theta).double())

    conditions = not getattr(used[0], "joins", False)
    if getattr(used[0], "joins", False) and expected is None:
        expected = _joint_expectation(used[0], make, with_theta)
    return _check(model, at, order, used[0].describe(), expected, replicates, conditions)


def check_tape(
    model: Model,
    at: Tensor,
    order: int = 1,
    *,
    expected: Callable[[Tensor], Tensor] | None = None,
    replicates: int = 20_000,
) -> Report:
    """Check a whole graph: ``model(tape, theta)`` samples and adds costs, and theta may have extra dimensions in front.

    >>> import torch
    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import LeaveOneOut, Score
    >>> def model(tape, theta):
    ...     a = tape.sample(Bernoulli(logits=theta), LeaveOneOut(2))
    ...     b = tape.sample(Bernoulli(logits=(theta * a).detach()), Score())       # the detach does not belong there
    ...     tape.cost(a + 3 * b)
    >>> check_tape(model, torch.tensor(0.4)).order
    0
    """
    return _check(model, at.detach().double(), order, "tape", expected, replicates, conditions=False)


def _check(
    model: Model,
    at: Tensor,
    order: int,
    name: str,
    expected: Callable[[Tensor], Tensor] | None,
    replicates: int,
    conditions: bool,
) -> Report:
    direction = _direction(at)
    truth = _true_derivatives(model if expected is None else None, expected, at, direction, order)
    exact = True
    try:
        rows = _by_worlds(model, at, direction, order, conditions)
    except TooMany:
        exact = False
        rows = _by_replicates(model, at, direction, order, conditions, replicates)
    found: dict[int, float] = {}
    if conditions:
        found[1] = max(_deviation(truth[n], *rows[n][1]) for n in range(order + 1))
        found[2] = max(_deviation(0.0, *rows[n][2]) for n in range(order + 1))
        found[3] = max((_deviation(0.0, *rows[n][3]) for n in range(1, order + 1)), default=0.0)
        found[4] = _condition_4(model, at)
    return Report(name, exact, tuple(truth), tuple(r[0][0] for r in rows), tuple(r[0][1] for r in rows), found)


Row = list[tuple[float, float]]  # estimate and standard error of the whole, and of the sums in conditions 1, 2, 3


def _sums(tape: Tape, conditions: bool) -> Tensor:
    """The surrogate, and Σ w □(l) f, Σ w a, Σ w of the only node, stacked in front of the batch."""
    total = tape._assembly().total()
    if not conditions:
        return total.unsqueeze(0)
    node = tape.nodes[0]
    l, w = node.estimator.gradient(node.draw), node.estimator.weight(node.draw)
    (_, f, _) = tape._costs[0]
    box = torch.ones_like(f) if l is None else magic_box(l)
    w = torch.full_like(f, 1 / node.draw.m) if w is None else w
    a = node.estimator.control(node.draw, None if l is None else box, f.detach()) if node.estimator.controls else None
    terms = [w * box * f, w * f * 0 if a is None else w * a, w.expand_as(f)]
    parts = [total, *(t.sum(0) for t in terms)]
    shape = broadcast(*(p.shape for p in parts))
    return torch.stack([p.expand(shape) for p in parts])


def _by_worlds(model: Model, at: Tensor, direction: Tensor, order: int, conditions: bool) -> list[Row]:
    dry = Tape()
    with torch.no_grad():
        model(dry, at)
    s = torch.zeros((), dtype=torch.float64, requires_grad=True)
    tape = WorldTape(len(dry.nodes))
    model(tape, at + s * direction)
    sums = _sums(tape, conditions)
    probability = tape.probability
    assert probability is not None
    shape = broadcast(sums.shape[1:], probability.shape)
    means = (sums.expand(len(sums), *shape) * probability.detach()).flatten(1).sum(1)
    rows: list[list[float]] = []
    for value in means:
        column = [float(value.detach())]
        for _ in range(order):
            value = _grad(value, s)
            column.append(float(value.detach()))
        rows.append(column)
    return [[(column[n], 0.0) for column in rows] for n in range(order + 1)]


def _by_replicates(
    model: Model, at: Tensor, direction: Tensor, order: int, conditions: bool, replicates: int
) -> list[Row]:
    s = torch.zeros(replicates, dtype=torch.float64, requires_grad=True)
    tape = Tape(batch_dims=1)
    model(tape, at + s.reshape(-1, *(1,) * at.dim()) * direction)
    columns = []
    for value in _sums(tape, conditions):
        value = value.expand(replicates)
        column = [value.detach()]
        for _ in range(order):
            value = _grad(value.sum(), s)
            column.append(value.detach())
        columns.append(column)
    return [
        [(float(c[n].mean()), max(float(c[n].std()) / replicates**0.5, 1e-300)) for c in columns]
        for n in range(order + 1)
    ]


def _grad(value: Tensor, s: Tensor) -> Tensor:
    if not value.requires_grad:
        return torch.zeros_like(s)
    (found,) = torch.autograd.grad(value, s, create_graph=True, allow_unused=True)
    return torch.zeros_like(s) if found is None else found


def _condition_4(model: Model, at: Tensor, replicates: int = 4000) -> float:
    """Does ``propose`` draw what ``outcomes`` lists? Compared by the mean of a random function of the draw; 0 if not
    listed."""
    draws = Tape(batch_dims=1)
    with torch.no_grad():
        model(draws, at.expand(replicates, *at.shape))
        worlds = WorldTape(1)
        try:
            model(worlds, at)
        except TooMany:
            return 0.0
        feature = [_feature(tape.nodes[0].draw.value) for tape in (draws, worlds)]
        assert worlds.probability is not None
        listed = float((feature[1] * worlds.probability).sum())
        total = float(worlds.probability.sum())
        error = max(float(feature[0].std()) / replicates**0.5, 1e-9)
        return max(_deviation(listed, float(feature[0].mean()), error), _deviation(1.0, total, 0.0))


def _feature(value: Tensor) -> Tensor:
    """One number for each draw, (batch,), in which order and combination of its samples count."""
    flat = value.double().reshape((*value.shape[:2], -1))
    weights = torch.linspace(0.3, 1.7, flat.shape[-1], dtype=torch.float64)
    each = torch.sin((flat * weights).sum(-1) + 0.5)
    place = torch.linspace(0.5, 1.5, len(each), dtype=torch.float64).unsqueeze(-1)
    return (each * place).sum(0) + 0.7 * each.prod(0)


def _true_derivatives(
    model: Model | None, expected: Callable[[Tensor], Tensor] | None, at: Tensor, direction: Tensor, order: int
) -> list[float]:
    """Derivatives of the expected cost along the direction, by the polynomial through Chebyshev points."""
    degree, radius = 14, 0.25
    k = torch.arange(degree + 1, dtype=torch.float64)
    points = radius * torch.cos(torch.pi * (2 * k + 1) / (2 * degree + 2))
    values = []
    with torch.no_grad():
        for point in points:
            theta = at + point * direction
            if expected is not None:
                values.append(expected(theta).double().reshape(()))
                continue
            assert model is not None
            tape = TrueTape()
            model(tape, theta)
            values.append(tape._assembly().total().double().reshape(()))
    powers = (points / radius).unsqueeze(1) ** torch.arange(degree + 1)
    coefficients = torch.linalg.solve(powers, torch.stack(values))
    found, factorial = [], 1.0
    for n in range(order + 1):
        factorial *= max(n, 1)
        found.append(float(coefficients[n]) * factorial / radius**n)
    return found


def _joint_expectation(
    estimator: Estimator, make: Callable[[Tensor], Distribution], cost: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    """The expectation of a cost that is joined over n samples, by enumeration of all n-tuples."""

    def expected(theta: Tensor) -> Tensor:
        found = estimator.outcomes(make(theta), estimator.n)
        if found is None:
            raise ConfigError(f"{estimator.describe()} has too many outcomes; pass expected=")
        draw, probability = found
        joined: Tensor = estimator.joined(cost(draw.value, theta).double())  # type: ignore[attr-defined]
        return (joined[0] * probability).sum()

    return expected


def _line(distribution: Distribution) -> Callable[[Tensor], Distribution]:
    """The distribution as a function of one number, along a fixed direction in its unconstrained parameters."""
    start = {name: value.detach().double() for name, value in parameters_of(distribution).items()}
    steps = {name: _direction(value) for name, value in start.items()}

    def make(s: Tensor) -> Distribution:
        moved = {k: start[k] + s.reshape((*s.shape, *(1,) * start[k].dim())) * steps[k] for k in start}
        return rebuilt(distribution, moved)

    return make


def _direction(like: Tensor) -> Tensor:
    """A fixed direction without symmetries, in which nothing cancels by accident; 1 for a single number."""
    if like.dim() == 0:
        return torch.ones_like(like)
    return torch.cos(1.0 + 1.7 * torch.arange(like.numel(), dtype=like.dtype)).reshape(like.shape)


def _deviation(truth: float, estimate: float, error: float) -> float:
    if not isfinite(estimate):
        return inf
    return abs(estimate - truth) / max(Z * error, TOLERANCE * (1 + abs(truth)))
