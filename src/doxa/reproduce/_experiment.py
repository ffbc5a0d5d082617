"""What all experiments share: named configurations with published numbers beside them, run one after another."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import cos, pi
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from doxa.data import MNIST
from doxa.errors import ConfigError
from doxa.train import Result, Row, Run, results_table, run_steps
from doxa.train.report._report import picture
from doxa.train.runs._config import did_you_mean
from doxa.train.runs._results import PREFIX_STEP, ResultsTable
from doxa.train.runs._state import seeded
from doxa.train.tasks._fit import DECAY, NOT_NEGATIVE, POSITIVE, require


@dataclass(frozen=True)
class Given:
    """What a run is given besides its configuration: a seed, perhaps data of the user's own, or digits as they are."""

    seed: int
    data: Path | None = None
    progress: bool = True
    digits: MNIST | None = None

    def mnist(self) -> MNIST:
        """The digits to learn from, or those in the user's folder."""
        if self.digits is not None:
            return self.digits
        return MNIST.load(self.data, verify=self.data is None, progress=self.progress)


@dataclass(frozen=True)
class Training:
    """How a run goes, made anew from its configuration before a checkpoint is loaded; see `run_steps`."""

    step: Callable[[int], Any]
    state: Mapping[str, Any]
    measure: Callable[[Run], Mapping[str, float]] = lambda run: {}  # what is measured after the last step
    keep: tuple[str, ...] = ()  # of what is logged at the last step, what the result keeps beside that; all if none
    evaluate: Callable[[], Mapping[str, Any]] | None = None
    best: str | None = None
    log_every: int = 50
    evaluate_every: int | None = None  # in place of the configuration's own
    evaluate_after: int = 0
    prefix_step: int = PREFIX_STEP  # the step whose metrics the result keeps


class Settings:
    """The base of configurations, which are frozen dataclasses.

    Every number must be more than 0; or at least 0, if 0 is its default or it is one of ``zero``; one whose default is
    negative may be anything. ``average`` is a decay and ``dropout`` a share, both below 1; a ``Literal`` is one of its
    words.
    """

    zero: ClassVar[tuple[str, ...]] = ()
    steps: int
    # What a configuration without such a field has.
    warmup, decay, evaluate_every, save_every = 1, 0, 1000, 0

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for setting in fields(self):  # type: ignore[arg-type]
            name, value, default = setting.name, getattr(self, setting.name), cast(Any, setting.default)
            if get_origin(hints[name]) is Literal:
                if value not in (words := get_args(hints[name])):
                    raise ConfigError(f"{name} is {value!r}, expected one of {', '.join(words)}")
            elif name in ("average", "dropout"):
                require(self, DECAY, name)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                if default == 0 or name in self.zero:
                    require(self, NOT_NEGATIVE, name)
                elif default > 0:
                    require(self, POSITIVE, name)

    def rate(self, highest: float, step: int, first: int = 0) -> float:
        """The learning rate of a step, for what starts to learn at the step ``first``, both counted from 0.

        It rises along a line for ``warmup`` steps, and has fallen to 0 along half a cosine at the step ``decay``.
        """
        done, last = step - first, self.decay - first
        left = (1 + cos(pi * min(1.0, done / last))) / 2 if last > 0 else 1.0
        return highest * min(1.0, (done + 1) / self.warmup) * left

    def training(self, given: Given) -> Training:
        """How a run with these settings goes."""
        raise NotImplementedError


def train(
    config: Settings, path: Path, *, seed: int, data: Path | None, progress: bool, digits: MNIST | None = None
) -> Result:
    """Do one run in a folder, or go on with it, and say what came out.

    At the early step whose metrics are kept, the distance of all parameters from their first values is logged beside
    them. It shows a changed rate also where, early in a warm-up, the loss does not yet.
    """
    with seeded(seed):
        run_of = config.training(Given(seed, data, progress, digits))
        run = Run.start(path, config, seed=seed)
        early = min(run_of.prefix_step, config.steps)
        first = [parameter.detach().clone() for parameter in _parameters(run_of.state)]

        def noted(i: int) -> Any:
            metrics = run_of.step(i)
            if i + 1 != early or not first:
                return metrics
            moves = [(p.detach() - before).norm() for p, before in zip(_parameters(run_of.state), first, strict=True)]
            metrics = dict(metrics) if isinstance(metrics, Mapping) else {"loss": metrics}
            return {**metrics, "parameter_distance": torch.stack(moves).norm()}

        run_steps(
            run,
            noted,
            steps=config.steps,
            state=run_of.state,
            evaluate=run_of.evaluate,
            best=run_of.best,
            log_every=run_of.log_every,
            evaluate_every=run_of.evaluate_every or config.evaluate_every,
            evaluate_after=run_of.evaluate_after,
            save_every=config.save_every or config.evaluate_every,
            prefix_step=early,
            progress=progress,
        )
        result = Result.of(run, "", prefix_step=early)
        logged = {k: v for k, v in result.metrics.items() if k != "parameter_distance" and k in (run_of.keep or (k,))}
        return replace(result, metrics={**logged, **run_of.measure(run)})


def _parameters(state: Mapping[str, Any]) -> list[Tensor]:
    return [p for thing in state.values() if isinstance(thing, nn.Module) for p in thing.parameters()]


def descend(loss: Tensor, optimizer: torch.optim.Optimizer, *, rate: float | None = None) -> Tensor:
    """One step down the gradient of a loss, with a learning rate where one is given; returns the loss, detached."""
    for group in optimizer.param_groups if rate is not None else ():
        group["lr"] = rate
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()
    return loss.detach()


def saved(drawing: Any, path: Path) -> Path:
    """Save a figure as PNG, in a folder that is made if need be; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(drawing, path)
    return path


def by_budget(results: Iterable[Result]) -> dict[tuple[str, int], list[Result]]:
    """Results that differ in their seeds only, by name and steps, sorted by both."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((result.experiment, result.steps), []).append(result)
    return dict(sorted(groups.items()))


@dataclass(frozen=True)
class Entry:
    """A named configuration: one row of a published table, or one of our own.

    >>> Entry("implications/reichenbach", config=None, published={"accuracy": 96.1}).table
    'implications'
    """

    name: str  # ``table/row`` in lower case
    config: Any  # a frozen dataclass; its field ``steps`` is the budget
    published: Mapping[str, float] = field(default_factory=dict)  # by the name of the metric
    source: str = ""  # where it was published

    @property
    def table(self) -> str:
        """The part of the name before the slash."""
        return self.name.split("/")[0]


@dataclass(frozen=True)
class Experiment:
    """An experiment: what can be run, how, and what is shown of it.

    Args:
        name: as on the command line and in the folder of results.
        about: one sentence.
        entries: the named configurations.
        train: does a run of one of them, or goes on with it: ``train(config, path, seed=…, data=…, progress=…)``, with
            ``data`` a folder of the user's own, or None for the published data. The metrics in its result are those
            that the table shows; `Result.experiment` may be left to `reproduce`.
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
    train: Callable[..., Result]
    metrics: tuple[str, ...]
    draw: Callable[[Sequence[Result], Path], list[Path]] | None = None

    def select(self, patterns: Iterable[str]) -> list[Entry]:
        """The entries whose names match one of the patterns, which may have ``*`` in them, in their own order."""
        names, chosen = [entry.name for entry in self.entries], set()
        for pattern in patterns:
            found = fnmatch.filter(names, pattern)
            if not found:
                hint = f"{did_you_mean(pattern, names, 2, 0.3)}--list shows all {len(names)}"
                raise ConfigError(f"{self.name} has no configuration {pattern!r}; {hint}")
            chosen.update(found)
        return [entry for entry in self.entries if entry.name in chosen]

    def table(self, results: Iterable[Result], entries: Sequence[Entry] | None = None) -> ResultsTable:
        """Results beside published numbers: a row for each entry, budget and metric that there are results of."""
        groups, rows = by_budget(results), []
        for entry in self.entries if entries is None else entries:
            for (name, _), group in groups.items():
                for metric in self.metrics if name == f"{self.name}/{entry.name}" else ():
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
            folder = out / experiment.name / entry.name / f"{entry.config.steps}-steps" / f"seed-{seed}"
            found = experiment.train(entry.config, folder, seed=seed, data=data, progress=progress)
            command = without_folders(found.command)
            result = replace(found, experiment=f"{experiment.name}/{entry.name}", command=command)
            result.write(folder / "result.json")
            if save is not None:
                result.write(save / experiment.name / result_name(entry.name, entry.config.steps, seed))
            results.append(result)
    return results


def without_folders(command: Sequence[str]) -> tuple[str, ...]:
    """A command without the folders of a machine: ``--out`` left out, ``--save results``, ``--data`` by its last part.

    >>> " ".join(without_folders("doxa reproduce hmc --out a/runs --save b/mine --data c/hmc".split()))
    'doxa reproduce hmc --save results --data hmc'
    """
    words, kept = iter(command), list[str]()
    for word in words:
        option, joined, folder = word.partition("=")
        if option not in ("--out", "--save", "--data"):
            kept.append(word)
            continue
        folder = folder if joined else next(words, "")
        if option != "--out":
            kept += [option, "results" if option == "--save" else Path(folder).name]
    return tuple(kept)


def result_name(entry: str, steps: int, seed: int) -> str:
    """The file of a saved result."""
    return f"{entry.replace('/', '.')}.{steps}-steps.seed-{seed}.json"


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
            if result.experiment.split("/")[0] == experiment.name:
                found.setdefault((result.experiment, result.seed, result.steps), result)
    return list(found.values())
