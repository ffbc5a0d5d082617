r"""Is an estimator unbiased? Proved by enumeration where the proposal is finite, else tested on replicates.

The truth is computed without automatic differentiation, so a stray ``detach`` in a model shows up as a bias. What
cannot be told from rounding, rare draws or an integral that does not settle is not judged: the verdict says why.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import copysign, inf, isfinite
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa._html import said
from doxa.errors import ConfigError
from doxa.stochastic._costs import TOLERANCE, CostScale, PlainTape, checked_order, mixes_samples, point
from doxa.stochastic._truth import TooMany, Truth, Unknown, WorldTape, derivatives, expectation, graph_derivatives
from doxa.stochastic.estimators._estimator import Estimator
from doxa.stochastic.estimators._factors import broadcast, parameters_of, rebuilt
from doxa.stochastic.tape._magic import magic_box
from doxa.stochastic.tape._tape import Tape

CLEARLY = 10.0  # a deviation is a bias if it is so many times what is tolerated
Z = 5.0
SUSPECT = 3.0  # so many standard errors are looked at again, with more replicates
DOUBTFUL = 4.0  # and if it stays so many, nothing is said
RESOLUTION = 0.2  # what is tolerated if sampled must be so small beside the scale
FEW = 30  # a standard error means nothing if fewer replicates than this carry the variance
UNSEEN = 30  # a draw of probability below 1 / replicates may have been missed: so many times its size is tolerated
ROUNDS = (1, 4, 16)  # so many times the replicates are drawn, until something can be said
CHUNK = 50_000  # replicates at a time
MIXES = "the cost mixes samples: what one of them costs depends on the others; make it a function of each alone"


@dataclass(frozen=True)
class Verdict:
    """What a check found, one of four: unbiased (enumerated), no bias found (sampled), biased, or undecided.

    For each order of differentiation there are the truth, the estimate with its standard error (0 if enumerated), what
    was tolerated, and the scale: the truth itself or, if larger, the mean absolute deviation of the cost. "No bias
    found" says how large a bias could still be: the difference that was found and 5 standard errors, beside the scale.
    ``conditions`` has, for each condition of Theorem 1 that was looked at, the largest deviation in units of what is
    tolerated; condition 3 is not needed for unbiasedness.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import LeaveOneOut
    >>> print(check_unbiased(LeaveOneOut(2), Bernoulli(torch.tensor(0.3)), lambda z: z * 2.0, order=1))
    LeaveOneOut@2: unbiased to 2e-05 up to order 1 (enumerated)
    """

    name: str
    kind: Literal["unbiased", "no bias found", "biased", "undecided"]
    truth: tuple[float, ...] = ()
    estimate: tuple[float, ...] = ()
    error: tuple[float, ...] = ()
    tolerance: tuple[float, ...] = ()
    samples: int = 0
    reason: str = ""
    conditions: dict[int, float] = field(default_factory=dict)
    scale: tuple[float, ...] = ()

    @property
    def resolution(self) -> float:
        """The largest bias that was not ruled out beside the scale, at the order where that is the most."""
        return max([self._room(n) / s if s else inf for n, s in enumerate(self.scale)], default=inf)

    def _room(self, order: int) -> float:
        """How large the bias may be, as far as this check can tell."""
        return abs(self.estimate[order] - self.truth[order]) + self.tolerance[order]

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the estimator: unbiased, or no bias found."""
        return self.kind in ("unbiased", "no bias found")

    @property
    def enumerated(self) -> bool:
        """Whether all draws were gone through, so that the verdict is a proof."""
        return not self.samples and self.kind != "undecided"

    def deviation(self, order: int) -> float:
        """How far the estimate is from the truth, in units of what is tolerated."""
        return abs(self.estimate[order] - self.truth[order]) / self.tolerance[order]

    @property
    def order(self) -> int:
        """The highest order up to which everything agrees; −1 if not even the value does."""
        wrong = [n for n in range(len(self.estimate)) if not self.deviation(n) <= 1]
        return wrong[0] - 1 if wrong else len(self.estimate) - 1

    def __str__(self) -> str:
        count = f"{self.samples:,} samples"
        if self.kind == "undecided":
            return f"{self.name}: could not decide: {self.reason}"
        if self.kind == "unbiased":
            return f"{self.name}: unbiased to {max(self.tolerance):.0e} up to order {self.order} (enumerated)"
        if self.kind == "no bias found":
            z = Z * max(self.deviation(n) for n in range(len(self.truth)))
            seen = f"to ± {100 * self.resolution:.2g} % of the scale"
            return f"{self.name}: no bias found up to order {self.order}, {seen} (|z| up to {z:.1f}, {count})"
        n = self.order + 1
        if n == len(self.truth):
            return f"{self.name}: BIASED in a graph, though not alone: {self.reason}"
        gap = self.estimate[n] - self.truth[n]
        times = gap / self.error[n] if self.error[n] else copysign(inf, gap)
        how = f"± {self.error[n]:.1g}, z = {times:.0f}, {count}" if self.samples else "enumerated"
        return (
            f"{self.name}: BIASED at order {n} by {gap:.3g} ({how}): "
            f"estimate {self.estimate[n]:.6g}, truth {self.truth[n]:.6g}"
        )

    def _repr_html_(self) -> str:
        return said(self)


def check_unbiased(
    estimator: Estimator | Callable[[Distribution], Estimator],
    distribution: Distribution | Callable[[Tensor], Distribution],
    cost: Callable[..., Tensor],
    order: int | None = None,
    *,
    at: Tensor | None = None,
    expected: Callable[[Tensor], Tensor] | None = None,
    replicates: int = 20_000,
) -> Verdict:
    """Check value and derivatives of one estimator on one node, and the conditions of Theorem 1.

    Derivatives are taken along one fixed direction in the parameters, without symmetries in which a bias would cancel.

    Args:
        estimator: the estimator, or a function that makes it for a distribution.
        distribution: a distribution, which is then moved along a direction in its parameters; or a function of the
            parameters ``at``, which must accept extra dimensions in front of them.
        cost: a function of the sample, or of sample and parameters.
        order: how many derivatives; the estimator's declared order, at most 3, if not given.
        at: the parameters, if ``distribution`` is a function.
        expected: the expected cost as a function of the parameters, where it cannot be summed or integrated.
        replicates: of the test, if the proposal cannot be enumerated.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import FromGradient
    >>> wrong = FromGradient(lambda d, x, f: 2 * d.log_prob(x) * f)          # twice the score function
    >>> print(check_unbiased(wrong, Categorical(torch.tensor([0.2, 0.8])), lambda z: z.double(), order=1))
    FromGradient@1: BIASED at order 1 by -0.231 (enumerated): estimate -0.4622, truth -0.2311
    """
    if isinstance(distribution, Distribution):
        at, make = torch.zeros((), dtype=torch.float64), _line(distribution)
    elif at is None:
        raise ConfigError("distribution is a function of parameters; say where to check it with at=torch.tensor(...)")
    else:
        make = distribution
    at = point(at)
    try:
        count = len([p for p in inspect.signature(cost).parameters.values() if p.default is p.empty])
    except ValueError:  # torch.exp and the like do not tell
        count = 1
    used = estimator if isinstance(estimator, Estimator) else estimator(make(at))

    def with_theta(z: Tensor, theta: Tensor) -> Tensor:
        return cost(z, theta) if count > 1 else cost(z)

    order = int(min(used.order_for(make(at)), 3)) if order is None else checked_order(order)
    joins = getattr(used, "joins", False)

    def model(tape: Tape, theta: Tensor) -> None:
        z = tape.sample(make(theta), used)
        found = with_theta(z, theta)
        tape.cost(found.double())  # so that no digit is lost besides those of the cost itself

    def summed(theta: Tensor) -> Tensor:
        if not joins:
            return expectation(make(theta), lambda z: with_theta(z, theta))
        found = used.outcomes(make(theta), used.n)  # a cost that is joined over n samples: all n-tuples
        if found is None:
            raise Unknown(f"{used.describe()} has too many outcomes to list")
        joined: Tensor = used.joined(with_theta(found[0].value, theta).double())  # type: ignore[attr-defined]
        return (joined[0] * found[1]).sum()

    def without(offset: float) -> Verdict:
        return check_unbiased(used, make, lambda z, theta: with_theta(z, theta).double() - offset, order, at=at)

    case = _Case(model, at, order, used.describe(), not joins, None if expected or joins else without)
    return case.judge(expected or summed, replicates)


def check_tape(
    model: Callable[[Tape, Tensor], None],
    at: Tensor,
    order: int = 1,
    *,
    expected: Callable[[Tensor], Tensor] | None = None,
    replicates: int = 20_000,
) -> Verdict:
    """Check a whole graph: ``model(tape, theta)`` samples and adds costs, and theta may have extra dimensions in front.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import LeaveOneOut, Score
    >>> def model(tape, theta):
    ...     a = tape.sample(Bernoulli(logits=theta), LeaveOneOut(2))
    ...     b = tape.sample(Bernoulli(logits=(theta * a).detach()), Score())       # the detach does not belong there
    ...     tape.cost(a + 3 * b)
    >>> print(check_tape(model, torch.tensor(0.4)))
    tape: BIASED at order 1 by -0.432 (enumerated): estimate 0.311393, truth 0.742916
    """
    return _Case(model, point(at), checked_order(order), "tape", conditions=False).judge(expected, replicates)


@dataclass(frozen=True)
class _Case:
    """A graph to check at some parameters, along a direction in them; conditions of Theorem 1 need a single node.

    ``without`` judges the same without an offset of the cost, in whose rounding errors all else may be lost.
    """

    model: Callable[[Tape, Tensor], None]
    at: Tensor
    order: int
    name: str
    conditions: bool
    without: Callable[[float], Verdict] | None = None

    def judge(self, expected: Callable[[Tensor], Tensor] | None, replicates: int) -> Verdict:
        if mixes_samples(self.model, self.at):
            return Verdict(self.name, "undecided", reason=MIXES)
        try:
            if expected is None:
                truth = graph_derivatives(self.model, self.at, _direction(self.at), self.order)
            else:
                truth = derivatives(expected, self.at, _direction(self.at), self.order)
        except Unknown as why:
            return Verdict(self.name, "undecided", reason=f"{why}; pass expected=, a function that computes it")
        try:
            try:
                rows, scale = self._by_worlds()
            except TooMany:
                return self._sampled(truth, replicates)
        except NotImplementedError as why:  # torch has no such derivative
            return Verdict(self.name, "undecided", reason=f"no derivatives up to order {self.order}: {why}")
        values, limits = tuple(t.value for t in truth), scale.limits(truth)
        found = self._deviations(rows, values, lambda n, c: limits[n])
        if self.conditions:
            found[4] = self._condition_4()
        off = found.pop(0)
        violated = [c for c, v in found.items() if c != 3 and v > CLEARLY]
        reason = f"condition {violated[0]} of Theorem 1 is violated" if violated else ""
        kind: Literal["unbiased", "biased", "undecided"] = "unbiased"
        if not isfinite(off):
            kind, reason = "undecided", "the estimate is not finite"
        elif violated:
            kind = "undecided" if violated == [4] else "biased"
        elif off > CLEARLY:
            kind = "biased"
        elif max([off, *(v for c, v in found.items() if c != 3)]) > 1:
            kind = "undecided"
            reason = f"the difference is {off:.1f} times what is tolerated, too little to call a bias"
        elif reason := scale.too_coarse(truth, limits):
            kind = "undecided"
            if self.without is not None and scale.largest > CLEARLY * scale.range > 0:
                apart = self.without(values[0])  # a constant, which agrees already, and the rest
                if apart.kind == "biased":
                    return apart
                kind, reason = ("unbiased", "") if apart.ok else ("undecided", reason)
        estimate = tuple(row[0] for row in rows)
        return Verdict(self.name, kind, values, estimate, (0.0,) * len(values), limits, 0, reason, found)

    def _deviations(
        self, rows: list[list[float]], values: tuple[float, ...], limit: Callable[[int, int], float]
    ) -> dict[int, float]:
        """The largest deviation of the whole (0), and of the sums in conditions 1, 2 and 3 of Theorem 1."""
        found = {}
        for c in range(len(rows[0])):
            wanted = values if c < 2 else (0.0,) * len(values)
            size = [limit(n, c) if c < 3 else TOLERANCE for n in range(self.order + 1)]  # weights have no unit
            off = [_units(rows[n][c], wanted[n], size[n]) for n in range(c == 3, self.order + 1)]
            found[c] = max(off, default=0.0)
        return found

    def _sampled(self, truth: list[Truth], replicates: int) -> Verdict:
        """The test on replicates, on more of them until it can tell; what looks like a bias must be one again."""
        values = tuple(t.value for t in truth)
        before: list[float] = [0.0] * len(truth)
        for times in ROUNDS:
            samples = times * replicates
            means, errors, reach, carried, scale = self._by_replicates(samples)
            floors, sizes = scale.limits(truth), tuple(max(abs(v), scale.deviation) for v in values)
            found = self._deviations(means, values, lambda n, c, e=errors, f=floors: Z * e[n][c] + f[n])  # type: ignore[misc]
            del found[0]
            estimate, error = tuple(row[0] for row in means), tuple(row[0] for row in errors)
            limits = tuple(Z * e + floor for e, floor in zip(error, floors, strict=True))
            of = (values, estimate, error, limits, samples)
            gaps = [e - v for e, v in zip(estimate, values, strict=True)]
            off = [n for n, gap in enumerate(gaps) if not abs(gap) <= limits[n]]
            few = [n for n in off or range(self.order + 1) if carried[n] < FEW][:1]
            why = ""
            if not all(isfinite(gap) for gap in gaps):
                return Verdict(self.name, "undecided", *of, "the estimate is not finite", found, sizes)
            if scale.range == 0 and off[:1] in ([], [0]):
                why = "all replicates have the same cost; what differs may be too rare to be drawn"
                break
            if few:
                why = (
                    f"about {carried[few[0]]:.0f} of {samples:,} replicates carry all of the variance at order {few[0]}"
                )
                why += ", so its standard error means nothing; take more replicates"
            elif off:
                n = off[0]
                if abs(gaps[n]) <= limits[n] + UNSEEN / samples * reach[n]:
                    why = f"the difference at order {n} may come from draws too rare to be drawn; take more replicates"
                elif before[n] * gaps[n] < 0:
                    why = f"two tests contradict each other at order {n}"
                elif before[n] or times == ROUNDS[-1]:
                    if self._plain_mean_misses(values[0], floors[0], samples):
                        why = "plain samples miss the true expectation, too: draws too rare to be drawn matter"
                        break
                    return Verdict(self.name, "biased", *of, "", found, sizes)
                before = [gap if n in off else 0.0 for n, gap in enumerate(gaps)]
            elif doubts := self._doubts(gaps, error, floors, SUSPECT if times != ROUNDS[-1] else DOUBTFUL):
                why = doubts
            elif not (why := scale.too_coarse(truth, limits, RESOLUTION, 0.0)):
                return Verdict(self.name, "no bias found", *of, "", found, sizes)
            elif max(x / y for x, y in zip(limits, sizes, strict=True)) > RESOLUTION * (ROUNDS[-1] / times) ** 0.5:
                break  # no more than there are will do
        return Verdict(self.name, "undecided", *of, why, found, sizes)

    @staticmethod
    def _doubts(gaps: Sequence[float], errors: Sequence[float], floors: Sequence[float], most: float) -> str:
        """Of which order the difference is too large to be called chance, and too small to be called a bias."""
        for n, (gap, error, floor) in enumerate(zip(gaps, errors, floors, strict=True)):
            if abs(gap) > most * error + floor:
                z = f"{abs(gap) / error:.1f}" if error else "many"
                return f"the difference at order {n} is {z} standard errors, too many for chance, too few for a bias"
        return ""

    def _plain_mean_misses(self, truth: float, floor: float, samples: int) -> bool:
        """Does the mean cost of samples from the distributions themselves differ from the truth as well?"""
        costs = []
        for done in range(0, samples, CHUNK):
            tape, count = PlainTape(batch_dims=1), min(CHUNK, samples - done)
            with torch.no_grad():
                self.model(tape, self.at.expand(count, *self.at.shape))
                costs.append(tape._assembly().total().double().expand(count))
        cost = torch.cat(costs)
        return not abs(float(cost.mean()) - truth) <= Z * float(cost.std()) / samples**0.5 + floor

    def _sums(self, tape: Tape) -> Tensor:
        """The surrogate, and Σ w □(l) f, Σ w a, Σ w of the only node, stacked in front of the batch; in float64."""
        total = tape._assembly().total().double()
        if not self.conditions:
            return total.unsqueeze(0)
        node = tape.nodes[0]
        l, w = node.estimator.gradient(node.draw), node.estimator.weight(node.draw)
        (_, f, _) = tape._costs[0]
        box = torch.ones_like(f) if l is None else magic_box(l)
        w = torch.full_like(f, 1 / node.draw.m) if w is None else w
        a = node.estimator.control(node.draw, box, f.detach()) if node.estimator.controls else None
        terms = [w * box * f, w * f * 0 if a is None else w * a, w.expand_as(f)]
        parts = [total, *(t.sum(0).double() for t in terms)]
        shape = broadcast(*(p.shape for p in parts))
        return torch.stack([p.expand(shape) for p in parts])

    def _by_worlds(self) -> tuple[list[list[float]], CostScale]:
        """For each order the expectation of the whole and of the sums in conditions 1, 2, 3; the scale of the cost."""
        dry = Tape()
        with torch.no_grad():
            self.model(dry, self.at)
        rows, scale = self._over_worlds(len(dry.nodes))
        if self._over_worlds(len(dry.nodes))[0] != rows:
            raise TooMany(
                "something is drawn beside the worlds, by the estimator or the cost, which no list of them has"
            )
        return rows, scale

    def _over_worlds(self, nodes: int) -> tuple[list[list[float]], CostScale]:
        s = torch.zeros((), dtype=torch.float64, requires_grad=True)
        tape = WorldTape(nodes)
        self.model(tape, self.at + s * _direction(self.at))
        sums = self._sums(tape)
        assert tape.probability is not None
        shape = broadcast(sums.shape[1:], tape.probability.shape)
        weights = tape.probability.detach().expand(shape)
        # A world that never happens counts nothing, whatever its estimate is.
        means = torch.where(weights > 0, sums.expand(len(sums), *shape) * weights, 0.0).flatten(1).sum(1)
        columns = [[float(x) for x in self._derivatives(value, s)] for value in means]
        return [list(row) for row in zip(*columns, strict=True)], CostScale.of(tape, tape.probability.detach())

    def _by_replicates(
        self, replicates: int
    ) -> tuple[list[list[float]], list[list[float]], list[float], list[float], CostScale]:
        """The same with standard errors; the largest deviation up to each order, how many carry the variance.

        If k of n replicates deviate by as much, and all others not at all, (Σ d²)² / Σ d⁴ is k.
        """
        start: Tensor | None = None
        largest: list[Tensor] = []
        scales: list[tuple[int, CostScale]] = []
        for done in range(0, replicates, CHUNK):
            count = min(CHUNK, replicates - done)
            s = torch.zeros(count, dtype=torch.float64, requires_grad=True)
            tape = Tape(batch_dims=1)
            self.model(tape, self.at + s.reshape(-1, *(1,) * self.at.dim()) * _direction(self.at))
            columns = [torch.stack(self._derivatives(value.expand(count), s)) for value in self._sums(tape)]
            x = torch.stack(columns, 1)  # (order, sum, replicate)
            if start is None:
                start = x.mean(-1)
                unit = (x - start.unsqueeze(-1)).abs().amax(-1).clamp_min(1e-300)
                powers = torch.zeros(4, *start.shape, dtype=torch.float64)
            d = (x - start.unsqueeze(-1)) / unit.unsqueeze(-1)
            powers += torch.stack([(d**k).sum(-1) for k in range(1, 5)])
            largest.append(d.abs().amax(-1) * unit)
            scales.append((count, CostScale.of(tape, torch.full_like(s, 1 / count).detach())))
        assert start is not None
        mean = powers[0] / replicates
        second = powers[1] - replicates * mean**2
        fourth = powers[3] - 4 * mean * powers[2] + 6 * mean**2 * powers[1] - 3 * replicates * mean**4
        carried = torch.where(second > 0, second**2 / fourth.clamp_min(1e-300), inf)[:, 0]
        errors = (second.clamp_min(0) / max(replicates - 1, 1) / replicates).sqrt() * unit
        reach = torch.stack(largest).amax(0)[:, 0].cummax(0).values
        return (
            (start + mean * unit).tolist(),
            errors.tolist(),
            reach.tolist(),
            carried.tolist(),
            CostScale.joined(scales),
        )

    def _derivatives(self, value: Tensor, s: Tensor) -> list[Tensor]:
        """A value and its derivatives with respect to s, up to the order."""
        found = [value.detach()]
        for _ in range(self.order):
            slope = None
            if value.requires_grad:
                (slope,) = torch.autograd.grad(value.sum(), s, create_graph=True, allow_unused=True)
            value = torch.zeros_like(s) if slope is None else slope
            found.append(value.detach())
        return found

    def _condition_4(self, replicates: int = 4000) -> float:
        """Does ``propose`` draw what ``outcomes`` lists? Compared by the mean of a random function of the draw."""
        draws, worlds = Tape(batch_dims=1), WorldTape(1)
        with torch.no_grad():
            self.model(draws, self.at.expand(replicates, *self.at.shape))
            self.model(worlds, self.at)
            drawn, listed = (_feature(tape.nodes[0].draw.value) for tape in (draws, worlds))
            assert worlds.probability is not None
            mean, total = float((listed * worlds.probability).sum()), float(worlds.probability.sum())
            # A draw that is too rare to be seen may move the mean by 3 / replicates of the range.
            reach = float(listed.max() - listed.min()) / replicates
            error = float(drawn.std()) / replicates**0.5
            off = _units(float(drawn.mean()), mean, Z * error + 5 * reach + 1e-9)
            return max(off, _units(total, 1.0, TOLERANCE))


def _units(estimate: float, truth: float, limit: float) -> float:
    return abs(estimate - truth) / limit if isfinite(estimate) else float("inf")


def _feature(value: Tensor) -> Tensor:
    """One number for each draw, (batch,), in which order and combination of its samples count."""
    flat = value.double().reshape((*value.shape[:2], -1))
    weights = torch.linspace(0.3, 1.7, flat.shape[-1], dtype=torch.float64)
    each = torch.sin((flat * weights).sum(-1) + 0.5)
    place = torch.linspace(0.5, 1.5, len(each), dtype=torch.float64).unsqueeze(-1)
    return (each * place).sum(0) + 0.7 * each.prod(0)


def _line(distribution: Distribution) -> Callable[[Tensor], Distribution]:
    """The distribution as a function of one number, along a fixed direction in its unconstrained parameters."""
    try:
        start = {name: value.detach().double() for name, value in parameters_of(distribution).items()}
        rebuilt(distribution, start)
    except (ConfigError, TypeError) as error:
        how = "pass a function that makes it from its parameters, and these with at=torch.tensor(...)"
        raise ConfigError(f"{type(distribution).__name__} has no parameters that can be moved; {how}") from error
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
