"""What a verdict asks about: how much the cost of a graph varies, plain samples, costs that mix them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import EllipsisType

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic._truth import Truth
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.estimators._score import Score
from doxa.stochastic.tape._surrogate import DependencySet, Node
from doxa.stochastic.tape._tape import Tape

TOLERANCE = 2e-5  # relative to the mean absolute deviation of the cost
SMALL = 0.1  # what is tolerated if enumerated must be so small beside the truth or the variation of the cost
TRIES = 8  # to see whether a cost mixes samples
ROUNDING = 1e-12  # or so small beside the range of the cost, where nearly everything has one value


class PlainTape(Tape):
    """Draws one sample of every node from its distribution, whatever the estimator."""

    def sample(
        self,
        distribution: Distribution,
        estimator: Estimator,
        n: int | EllipsisType | None = ...,
        deps: Iterable[Tensor] | None = None,
        name: str | None = None,
    ) -> Tensor:
        return super().sample(distribution, Score(), n, deps, name)


@dataclass(frozen=True)
class CostScale:
    """How much the cost varies: its mean absolute deviation, its range, and how large it is with any offset."""

    deviation: float
    range: float
    largest: float
    eps: float

    @classmethod
    def of(cls, tape: Tape, probability: Tensor) -> CostScale:
        """Of all costs on a tape whose batch has these probabilities."""
        assembly = tape._assembly()
        assembly.total()
        deviation = width = largest = 0.0
        costs = [(c.detach().double(), s) for s in assembly.sets for c in s.costs]

        def mean(cost: Tensor, s: DependencySet) -> float:
            each = assembly.average(cost, s).detach()
            return float(torch.where(probability > 0, each * probability, 0.0).sum())

        for cost, s in costs:
            deviation += abs(mean((cost - mean(cost, s)).abs(), s))
            width += float(cost.max() - cost.min())
            largest += float(cost.abs().max())
        free = [c.detach() for c in assembly.free]
        largest += sum(float(c.abs().max()) for c in free)
        return cls(deviation, width, largest, max(torch.finfo(c.dtype).eps for _, c, _ in tape._costs))

    @classmethod
    def joined(cls, parts: list[tuple[int, CostScale]]) -> CostScale:
        """Of several tapes of so many replicates."""
        total, every = sum(n for n, _ in parts), [s for _, s in parts]
        deviation = sum(n * s.deviation for n, s in parts) / total
        return cls(deviation, *(max(getattr(s, name) for s in every) for name in ("range", "largest", "eps")))

    def limits(self, truth: list[Truth]) -> tuple[float, ...]:
        """What is tolerated at each order if nothing is sampled."""
        noise = [100 * self.eps * (self.largest + abs(t.value)) + 1e-300 for t in truth]
        return tuple(TOLERANCE * self.deviation + x + t.error for x, t in zip(noise, truth, strict=True))

    def too_coarse(
        self, truth: list[Truth], limits: tuple[float, ...], share: float = SMALL, rounding: float = ROUNDING
    ) -> str:
        """Why nothing was shown: so much is tolerated that a large bias would be, too."""
        sizes = [max(abs(t.value), self.deviation, 1e-300) for t in truth]
        least = rounding * (self.range or self.largest)
        wide = {x / y: n for n, (x, y) in enumerate(zip(limits, sizes, strict=True)) if x > max(share * y, least)}
        if not wide:
            return ""
        n = wide[max(wide)]
        why = "take more replicates, or subtract a constant from the cost"
        if truth[n].error > limits[n] / 2:
            why = "compute the cost in float64, or pass expected="
        return f"at order {n} a difference of {limits[n]:.1g} is tolerated, too much beside {sizes[n]:.1g}; {why}"


def point(at: object) -> Tensor:
    """Where a graph is checked, in double precision."""
    if not isinstance(at, Tensor):
        raise ConfigError(f"at is {at!r}, expected a tensor of parameters, such as torch.tensor(0.3)")
    return at.detach().double()


def checked_order(order: object) -> int:
    if not isinstance(order, int) or order < 0:
        raise ConfigError(f"order is {order!r}, expected a whole number of at least 0")
    return order


class _Again(Tape):
    """The values of another tape, in a batch of rows."""

    def __init__(self, draws: list[Draw]) -> None:
        super().__init__(batch_dims=1)
        self._draws = draws

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        return self._draws[len(self.nodes)]


def mixes_samples(model: Callable[[Tape, Tensor], None], at: Tensor, rows: int = 64) -> bool:
    """Does a cost of one row, or of one sample, change where those of others do? Not said of what cannot be asked."""
    theta = at.expand(rows, *at.shape)

    def nodes() -> list[Node]:
        tape = Tape(batch_dims=1)
        model(tape, theta)
        return tape.nodes

    def costs(draws: list[Draw]) -> list[Tensor]:
        tape = _Again(draws)
        model(tape, theta)
        return [cost.double() for _, cost, _ in tape._costs]

    def changed(which: list[Node], others: list[Node], dim: Callable[[Node], int]) -> list[Draw]:
        """The draws of these nodes, with those of others in the first half of a dimension."""
        made = {}
        for node in which:
            value, place = node.draw.value.clone(), dim(node)
            half = value.shape[place] // 2
            value.narrow(place, 0, half).copy_(others[node.index].draw.value.flip(place).narrow(place, 0, half))
            made[node.index] = Draw(value, node.draw.distribution, **node.draw.notes)
        return [made.get(node.index, node.draw) for node in every]

    def differ(found: list[Tensor], dim: int) -> bool:
        """Do costs differ from the plain ones, apart from those in the first half of a dimension?"""
        for a, b in zip(plain, found, strict=True):
            slack = 1e-3 * float(a.max() - a.min()) + 1e-4 * float(a.abs().max())
            off = (a - b).abs()
            if off.dim() >= -dim and off.shape[dim] > 1:
                off = off.narrow(dim, off.shape[dim] // 2, (off.shape[dim] + 1) // 2)
            if float(off.max()) > slack:
                return True
        return False

    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            every = nodes()
            if any(getattr(node.estimator, "joins", False) for node in every):
                return False
            kept = [node.draw for node in every]
            plain = costs(kept)
            if not all(map(torch.equal, plain, costs(kept))):  # they are random
                return False
            axes = [node for node in every if node.axis is not None and node.draw.m > 1]
            for _ in range(TRIES):  # what was drawn anew may have the same sum
                others = nodes()
                if differ(costs(changed(every, others, lambda node: 1 + node.earlier)), -1):
                    return True
                if any(differ(costs(changed([n], others, lambda _: 0)), -2 - (n.axis or 0)) for n in axes):
                    return True
            return False
        except Exception:  # whatever is wrong is told by the check itself
            return False
