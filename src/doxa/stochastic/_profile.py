r"""Which estimator suits a model: variance of the gradient and time of a step, measured on the model itself.

In a graph the variance of the gradient g is a sum over its nodes z_1, …, z_k, in the order in which they are sampled:

    Var g = Σ_i E Var( E[g | z_1..z_i] | z_1..z_{i−1} ) = Σ_i (R_{i−1} − R_i),      R_i = E Var( g | z_1..z_i ).

R_i is half the mean square of g − g', where g' has the same z_1..z_i and new samples from there on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa import _html
from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator
from doxa.stochastic.tape._tape import Tape


@dataclass(frozen=True)
class NodeShare:
    """What the samples of one node add to the variance of the gradient, given those before; with its standard error.

    >>> print(NodeShare("rain", "Score@1", 0.25, 0.01))
    rain: 0.25 ± 0.01 by Score@1
    """

    name: str
    estimator: str
    variance: float
    error: float

    def __str__(self) -> str:
        return f"{self.name}: {self.variance:.3g} ± {self.error:.1g} by {self.estimator}"


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
    nodes: tuple[NodeShare, ...] = ()

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
            lines += [f"  {share}" for share in row.nodes]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, rows = ("estimator", "variance of gradient", "of value", "ms per step", ""), []
        for row in self.rows:
            note = row.refused or ("biased" if row.biased else "recommended" if row.name == self.recommendation else "")
            numbers = (row.variance, row.value_variance, row.seconds * 1e3)
            rows.append((row.name, *["" if row.refused else f"{n:.3g}" for n in numbers], note))
        return _html.box(_html.table(head, rows, numbers=True), title=f"{self.replicates:,} replicates")

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
    by_node: bool = False,
) -> Profile:
    """Measure estimators on ``model(tape, estimator)``, which samples with the estimator and adds costs.

    Args:
        model: called once for each replicate with a fresh tape.
        estimators: with names, or a sequence that is named after itself.
        parameters: of which the gradient is taken.
        batch_dims: of the tape.
        replicates: gradients for each estimator.
        by_node: also find out how much of the variance each node adds, by one more gradient for each node.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import LeaveOneOut, Score
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> def model(tape, estimator):
    ...     z = tape.sample(Independent(Bernoulli(logits=logits), 1), estimator)
    ...     tape.cost((z - 0.1).square().sum(-1) + 5)
    >>> profile_variance(model, [Score(2), LeaveOneOut(2)], [logits]).recommendation
    'LeaveOneOut@2'

    Which of two coins is to blame? The second one matters ten times as much:

    >>> def coins(tape, estimator):
    ...     a = tape.sample(Bernoulli(logits=logits[0]), estimator, name="a")
    ...     b = tape.sample(Bernoulli(logits=logits[1]), estimator, name="b")
    ...     tape.cost(a + 10 * b)
    >>> _ = torch.manual_seed(0)
    >>> (row,) = profile_variance(coins, [LeaveOneOut(2)], [logits], replicates=300, by_node=True).rows
    >>> a, b = row.nodes
    >>> bool(b.variance > a.variance)
    True
    """
    least = 3 if by_node else 2  # the first one shows how many nodes there are
    if replicates < least:
        raise ConfigError(f"replicates is {replicates}; a variance needs at least {least}")
    named = dict(estimators) if isinstance(estimators, Mapping) else {e.describe(): e for e in estimators}
    wanted = list(parameters)

    def gradient(tape: Tape, estimator: Estimator) -> tuple[Tensor, Tensor]:
        model(tape, estimator)
        loss = tape.surrogate(allow_biased=True)
        found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        return loss.detach().double(), torch.cat([g.detach().double().reshape(-1) for g in found])

    def measured(name: str, estimator: Estimator) -> ProfileRow:
        gradients, values, times, left = [], [], [], []
        tape = Tape(batch_dims)
        for _ in range(replicates):
            seed, *others = torch.randint(2**62, (1 + len(tape.nodes),)).tolist() if by_node else [None]
            frozen = copy.deepcopy(estimator) if by_node and estimator.stateful else estimator
            start = time.process_time()
            tape = _Resampled(batch_dims)
            try:
                with _seeded(seed):
                    value, whole = gradient(tape, estimator)
            except ConfigError as reason:
                return ProfileRow(name, float("inf"), float("inf"), float("inf"), estimator.biased, str(reason))
            times.append(time.process_time() - start)
            gradients.append(whole)
            values.append(value)
            if others:
                if len(others) != len(tape.nodes):
                    counts = f"{len(others)} nodes and then {len(tape.nodes)}"
                    raise ConfigError(f"the model sampled {counts}; by_node=True needs the same number every time")
                rest = torch.zeros(len(others) + 1, dtype=torch.float64)
                for kept, other in enumerate(others):
                    used = copy.deepcopy(frozen) if estimator.stateful else estimator
                    with _seeded(seed):
                        rest[kept] = (gradient(_Resampled(batch_dims, kept, other), used)[1] - whole).square().sum() / 2
                left.append(rest)
        seconds = float(torch.tensor(times).median())
        variance = float(torch.stack(gradients).var(0).sum())
        nodes = _shares(tape, torch.stack(left)) if left else ()
        spread = float(torch.stack(values).var())
        return ProfileRow(name, variance, seconds, spread, estimator.biased, nodes=nodes)

    rows = [measured(name, estimator) for name, estimator in named.items()]
    return Profile(tuple(sorted(rows, key=lambda row: (bool(row.refused), row.variance))), replicates)


class _Resampled(Tape):
    """A tape that draws anew after its first nodes: what was drawn before depends on the seed it was begun with."""

    def __init__(self, batch_dims: int, kept: int | None = None, seed: int = 0) -> None:
        super().__init__(batch_dims)
        self.kept, self.seed = kept, seed

    def _propose(self, estimator: Estimator, distribution: Distribution, n: int) -> Draw:
        if len(self.nodes) == self.kept:
            torch.manual_seed(self.seed)
        return super()._propose(estimator, distribution, n)


@contextmanager
def _seeded(seed: int | None) -> Iterator[None]:
    """Random numbers from a seed inside the block, and as before after it."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _shares(tape: Tape, left: Tensor) -> tuple[NodeShare, ...]:
    """The nodes' shares from what is left of the variance after each of them, (replicates, nodes + 1)."""
    share = left[:, :-1] - left[:, 1:]
    mean, error = share.mean(0).tolist(), (share.std(0) / len(share) ** 0.5).tolist()
    found = zip(tape.nodes, mean, error, strict=True)
    return tuple(NodeShare(node.name, node.estimator.describe(), m, e) for node, m, e in found)
