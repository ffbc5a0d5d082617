"""What all experiments share: named configurations with published numbers beside them, run one after another."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from doxa.errors import ConfigError
from doxa.train import Result, Row, Run, results_table, run_steps
from doxa.train.runs._results import PREFIX_STEP, ResultsTable

__all__ = ["Entry", "Experiment", "collect", "reproduce"]


@dataclass(frozen=True)
class Entry:
    """A named configuration: one row of a published table, or one of our own.

    Args:
        name: ``table/row`` in lower case, such as ``"implications/reichenbach"``.
        config: a frozen dataclass; its field ``steps`` is the budget.
        published: published values by the name of the metric.
        source: where they were published.

    >>> Entry("implications/reichenbach", config=None, published={"accuracy": 96.1}).table
    'implications'
    """

    name: str
    config: Any
    published: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    @property
    def table(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/")[0]


class Train(Protocol):
    """Do one run in a folder, or go on with it, and say what came out.

    ``data`` is a folder with data of the user's own, or None for the published ones. The metrics in the result are
    those the table shows; `Result.experiment` may be left to `reproduce`.
    """

    def __call__(self, config: Any, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result: ...


def by_config(trainers: Mapping[type, Train]) -> Train:
    """Do a run by what fits the type of its configuration."""

    def train(config: Any, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
        return trainers[type(config)](config, path, seed=seed, data=data, progress=progress)

    return train


def run_experiment(
    config: Any,
    path: Path,
    step: Callable[[int], Any],
    state: Mapping[str, Any],
    *,
    seed: int,
    experiment: str = "",
    evaluate: Callable[[], Mapping[str, Any]] | None = None,
    best: str | None = None,
    log_every: int = 50,
    evaluate_every: int = 1000,
    evaluate_after: int = 0,
    save_every: int = 1000,
    prefix_step: int = PREFIX_STEP,
    progress: bool = True,
) -> tuple[Run, Result]:
    """Do the steps of an experiment in a run folder, or go on with them.

    At ``prefix_step`` the distance of all parameters from their first values is logged beside the metrics. It shows a
    changed rate also where, early in a warm-up, the loss does not yet.

    Args:
        config: a frozen dataclass; its field ``steps`` is the budget.
        path: the run folder.
        seed: of the run.
        experiment: its name, for the result.
        prefix_step: the step whose metrics the result keeps.
        step, state, and all others: see `run_steps`.

    Returns:
        The run, and its result with the metrics of the last step.
    """
    run = Run.start(path, config, seed=seed)
    early = min(prefix_step, config.steps)
    first = [parameter.detach().clone() for parameter in _parameters(state)]

    def noted(i: int) -> Any:
        metrics = step(i)
        if i + 1 != early or not first:
            return metrics
        moves = [(p.detach() - before).norm() for p, before in zip(_parameters(state), first, strict=True)]
        metrics = dict(metrics) if isinstance(metrics, Mapping) else {"loss": metrics}
        return {**metrics, "parameter_distance": torch.stack(moves).norm()}

    run_steps(
        run,
        noted,
        steps=config.steps,
        state=state,
        evaluate=evaluate,
        best=best,
        log_every=log_every,
        evaluate_every=evaluate_every,
        evaluate_after=evaluate_after,
        save_every=save_every,
        prefix_step=early,
        progress=progress,
    )
    result = Result.of(run, experiment, prefix_step=early)
    return run, replace(result, metrics={k: v for k, v in result.metrics.items() if k != "parameter_distance"})


def _parameters(state: Mapping[str, Any]) -> list[Tensor]:
    return [p for thing in state.values() if isinstance(thing, nn.Module) for p in thing.parameters()]


def descend(loss: Tensor, *optimizers: torch.optim.Optimizer, rate: float | None = None) -> Tensor:
    """One step down the gradient of a loss, with a learning rate where one is given; returns the loss, detached."""
    for optimizer in optimizers:
        for group in optimizer.param_groups if rate is not None else ():
            group["lr"] = rate
        optimizer.zero_grad()
    torch.autograd.backward(loss)
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()


def moving_average(module: nn.Module, decay: float) -> Any:
    """The moving average of a module's parameters, as a module."""
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Experiment:
    """An experiment: what can be run, how, and what is shown of it.

    Args:
        name: as on the command line and in the folder of results.
        about: one sentence.
        entries: the named configurations.
        train: does one of them; see `Train`.
        metrics: which metrics the table shows, the main one first.
        draw: draws figures of whatever results there are into a folder, and says which files it made.

    >>> from doxa.errors import ConfigError
    >>> toy = Experiment("toy", "Nothing.", (Entry("a/x", None), Entry("a/y", None)), train=None, metrics=("loss",))
    >>> [entry.name for entry in toy.select(["a/*"])]
    ['a/x', 'a/y']
    >>> toy.select(["a/z"])
    Traceback (most recent call last):
    doxa.errors.ConfigError: toy has no configuration 'a/z'; did you mean 'a/y' or 'a/x'? --list shows all 2
    """

    name: str
    about: str
    entries: tuple[Entry, ...]
    train: Train
    metrics: tuple[str, ...]
    draw: Callable[[Sequence[Result], Path], list[Path]] | None = None

    def select(self, patterns: Iterable[str]) -> list[Entry]:
        """The entries whose names match one of the patterns, which may have ``*`` in them, in their own order."""
        names, chosen = [entry.name for entry in self.entries], set()
        for pattern in patterns:
            found = fnmatch.filter(names, pattern)
            if not found:
                near = " or ".join(map(repr, get_close_matches(pattern, names, 2, 0.3)))
                hint = f"; did you mean {near}?" if near else ";"
                raise ConfigError(f"{self.name} has no configuration {pattern!r}{hint} --list shows all {len(names)}")
            chosen.update(found)
        return [entry for entry in self.entries if entry.name in chosen]

    def table(self, results: Iterable[Result], entries: Sequence[Entry] | None = None) -> ResultsTable:
        """Results beside published numbers: a row for each entry, budget and metric that there are results of."""
        groups: dict[tuple[str, int], list[Result]] = {}
        for result in results:
            groups.setdefault((result.experiment, result.steps), []).append(result)
        rows = []
        for entry in self.entries if entries is None else entries:
            for (name, _), group in sorted(groups.items()):
                if name == f"{self.name}/{entry.name}":
                    for metric in self.metrics:
                        if all(metric in result.metrics for result in group):
                            published = entry.published.get(metric)
                            rows.append(Row.of(group, metric, published=published, source=entry.source))
        return results_table(rows, title=self.about)


def reproduce(
    experiment: Experiment,
    entries: Sequence[Entry],
    *,
    seeds: Sequence[int],
    out: Path,
    data: Path | None = None,
    save: Path | None = None,
    progress: bool = True,
) -> list[Result]:
    """Run entries of an experiment with each seed, in run folders; what was begun goes on, what is done stays.

    Args:
        experiment: which.
        entries: some of its entries, perhaps with changed configurations.
        seeds: one run of each entry for each of them.
        out: run folders are ``out/experiment/table/row/14000-steps/seed-0``.
        data: data of the user's own.
        save: also write the results as ``save/experiment/table.row.14000-steps.seed-0.json``.
        progress: show how far it is.

    Returns:
        The results, in order.

    >>> import tempfile
    >>> @dataclass(frozen=True)
    ... class Config:
    ...     steps: int = 3
    >>> def train(config, path, *, seed, data, progress):
    ...     return Result("", config={}, seed=seed, steps=config.steps, metrics={"loss": 0.5}, prefix={})
    >>> toy = Experiment("toy", "Nothing.", (Entry("a/x", Config()),), train=train, metrics=("loss",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = reproduce(toy, toy.entries, seeds=(0, 1), out=Path(folder))
    >>> [(result.experiment, result.seed) for result in done]
    [('toy/a/x', 0), ('toy/a/x', 1)]
    """
    results = []
    for entry in entries:
        for seed in seeds:
            budget = f"{entry.config.steps}-steps"
            folder = out / experiment.name / entry.name / budget / f"seed-{seed}"
            found = experiment.train(entry.config, folder, seed=seed, data=data, progress=progress)
            result = Result(**{**vars(found), "experiment": f"{experiment.name}/{entry.name}"})
            result.write(folder / "result.json")
            if save is not None:
                result.write(save / experiment.name / f"{entry.name.replace('/', '.')}.{budget}.seed-{seed}.json")
            results.append(result)
    return results


def collect(experiment: Experiment, *folders: Path) -> list[Result]:
    """All results of an experiment under some folders: run folders, or folders of saved results.

    A result found twice, by entry, seed and number of steps, is taken from the first folder.

    >>> import tempfile
    >>> toy = Experiment("toy", "Nothing.", (Entry("a/x", None),), train=None, metrics=("loss",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = Result("toy/a/x", config={}, seed=0, steps=3, metrics={"loss": 0.5}, prefix={})
    ...     result.write(Path(folder) / "toy" / "a.x.3-steps.seed-0.json")
    ...     collect(toy, Path(folder)) == [result]
    True
    """
    found: dict[tuple[str, int, int], Result] = {}
    for folder in folders:
        root = folder / experiment.name
        for file in sorted([*root.glob("*.json"), *root.glob("**/result.json")]):
            result = Result.read(file)
            if result.experiment.startswith(f"{experiment.name}/"):
                found.setdefault((result.experiment, result.seed, result.steps), result)
    return list(found.values())
