"""Which estimator suits a model: variance of the gradient and time of a step, measured on the model itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Estimator
from doxa.stochastic.tape._tape import Tape


@dataclass(frozen=True)
class ProfileRow:
    """One estimator on one model: the variance of its gradient, summed over parameters, and the time of one step.

    >>> ProfileRow("Score@1", 0.5, 0.002, 0.4, False).work
    0.001
    """

    name: str
    variance: float
    seconds: float
    value_variance: float
    biased: bool
    refused: str = ""

    @property
    def work(self) -> float:
        """Variance times seconds: the time to reach a given accuracy by averaging."""
        return self.variance * self.seconds


@dataclass(frozen=True)
class Profile:
    """What ``profile_variance`` measured, best first.

    >>> rows = (ProfileRow("b", 1.0, 0.1, 0.0, False), ProfileRow("a", 0.1, 0.1, 0.0, True))
    >>> Profile(rows, 10).recommendation
    'b'
    """

    rows: tuple[ProfileRow, ...]
    replicates: int

    @property
    def recommendation(self) -> str:
        """The unbiased estimator with the least variance times time."""
        usable = [row for row in self.rows if not row.refused and not row.biased]
        if not usable:
            raise ConfigError("no unbiased estimator could be measured, so there is none to recommend")
        return min(usable, key=lambda row: row.work).name

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [f"{'estimator':<{width}}  variance of gradient  of value     ms per step"]
        for row in self.rows:
            if row.refused:
                lines.append(f"{row.name:<{width}}  refused: {row.refused}")
                continue
            note = "  biased" if row.biased else "  recommended" if row.name == self.recommendation else ""
            numbers = f"{row.variance:<20.3g}  {row.value_variance:<9.3g}  {row.seconds * 1e3:<11.3g}"
            lines.append(f"{row.name:<{width}}  {numbers}{note}".rstrip())
        return "\n".join(lines)

    def plot(self, path: str | Path | None = None) -> Any:
        """Variance against time as a matplotlib figure; saved if a path is given."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for row in self.rows:
            if not row.refused:
                axes.scatter(row.seconds * 1e3, max(row.variance, 1e-30), marker="x" if row.biased else "o")
                axes.annotate(row.name, (row.seconds * 1e3, max(row.variance, 1e-30)), fontsize=8)
        axes.set(xscale="log", yscale="log", xlabel="milliseconds per step", ylabel="variance of the gradient")
        if path is not None:
            figure.savefig(path)
        return figure


def profile_variance(
    model: Callable[[Tape, Any], object],
    estimators: Mapping[str, Estimator] | Sequence[Estimator],
    parameters: Iterable[Tensor],
    *,
    batch_dims: int = 0,
    replicates: int = 100,
) -> Profile:
    """Measure estimators on ``model(tape, estimator)``, which samples with the estimator and adds costs.

    Args:
        model: called once for each replicate with a fresh tape.
        estimators: with names, or a sequence that is named after itself.
        parameters: of which the gradient is taken.
        batch_dims: of the tape.
        replicates: gradients for each estimator.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import LeaveOneOut, Score
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> def model(tape, estimator):
    ...     z = tape.sample(Independent(Bernoulli(logits=logits), 1), estimator)
    ...     tape.cost((z - 0.1).square().sum(-1) + 5)
    >>> profile_variance(model, [Score(2), LeaveOneOut(2)], [logits]).recommendation
    'LeaveOneOut@2'
    """
    if replicates < 2:
        raise ConfigError(f"replicates is {replicates}; a variance needs at least 2")
    named = dict(estimators) if isinstance(estimators, Mapping) else {e.describe(): e for e in estimators}
    wanted = list(parameters)

    def measured(name: str, estimator: Estimator) -> ProfileRow:
        gradients, values, times = [], [], []
        for _ in range(replicates):
            start = time.process_time()
            tape = Tape(batch_dims)
            try:
                model(tape, estimator)
                loss = tape.surrogate(allow_biased=True)
            except ConfigError as reason:
                return ProfileRow(name, float("inf"), float("inf"), float("inf"), estimator.biased, str(reason))
            found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
            times.append(time.process_time() - start)
            gradients.append(torch.cat([g.detach().double().reshape(-1) for g in found]))
            values.append(loss.detach().double())
        seconds = float(torch.tensor(times).median())
        variance = float(torch.stack(gradients).var(0).sum())
        return ProfileRow(name, variance, seconds, float(torch.stack(values).var()), estimator.biased)

    rows = [measured(name, estimator) for name, estimator in named.items()]
    return Profile(tuple(sorted(rows, key=lambda row: (bool(row.refused), row.variance))), replicates)
