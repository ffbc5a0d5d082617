"""``doxa reproduce``: the experiments under one roof; ``doxa figures``: the figures of a chapter, drawn anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from doxa.cli._output import Command, plural, say, say_json
from doxa.errors import ConfigError

if TYPE_CHECKING:
    from doxa.reproduce import Experiment
    from doxa.reproduce._experiment import Entry
    from doxa.reproduce._queue import Standing

    Entries = list[Entry]  # inside the commands ``list`` is an option
    from doxa.reproduce.figures._gallery import Gallery


Settings = Annotated[tuple[str, ...], arg(name="set", metavar="KEY=VALUE [KEY=VALUE ...]")]


@dataclass(frozen=True, kw_only=True)
class Rerun(Command):
    """What the commands of all experiments have in common; each is named as its experiment, and may select more."""

    table: tuple[str, ...] = ()
    """Only the configurations of these tables."""
    only: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these configurations; * stands for anything, as in "implications/*"."""
    list: bool = False
    """List the configurations that the other options select, with their published values, and run nothing."""
    seeds: tuple[int, ...] = (0,)
    """One run for each."""
    steps: int | None = None
    """Steps of each run, in place of the configuration's own."""
    settings: Settings = ()
    """Change the configurations, such as batch_size=32."""
    out: Path = Path("runs")
    """Run folders are made here; a run that is there already goes on."""
    data: Path | None = None
    """A folder with data of your own, in place of the published ones."""
    save: Path | None = None
    """Also write the results into this folder, a JSON file each."""
    show: bool = False
    """Run nothing: print the table and draw the figures of the results that are there."""
    quiet: bool = False
    """Show no progress."""

    def entries(self, experiment: Experiment) -> Entries:
        """The configurations that the options select."""
        return experiment.select(self.patterns() or ["*"])

    def patterns(self) -> tuple[str, ...]:
        """What --table and --only ask for."""
        return (*(f"{table}/*" for table in self.table), *self.only)

    def run(self) -> int:
        from doxa.reproduce import collect, reproduce
        from doxa.reproduce._queue import EXPERIMENTS
        from doxa.train import clean_exit, config_values, load_config

        (experiment,) = [e for e in EXPERIMENTS if e.name == type(self).__name__.lower()]
        changes = [*self.settings, *([] if self.steps is None else [f"steps={self.steps}"])]
        # A changed configuration is another one, and says so by its name; a budget of its own is not.
        chosen = [
            replace(
                entry,
                name="+".join((entry.name, *self.settings)),
                config=load_config(type(entry.config), config_values(entry.config), overrides=changes),
            )
            for entry in self.entries(experiment)
        ]
        if self.list:
            if self.json:
                say_json(listed(chosen))
            else:
                say_entries(chosen)
            return 0
        with clean_exit():
            if not self.show:
                reproduce(
                    experiment,
                    chosen,
                    seeds=self.seeds,
                    out=self.out,
                    data=self.data,
                    save=self.save,
                    progress=not self.quiet,
                )
            names = {f"{experiment.name}/{entry.name}" for entry in chosen}
            found = collect(experiment, *(folder for folder in (self.out, self.save) if folder is not None))
            table = experiment.table([result for result in found if result.experiment in names], chosen)
            if self.json:
                say_json(table.json())
            else:
                table.show()
            if self.show and (begun := _unfinished(self.out / experiment.name)):
                runs = f"{plural(len(begun), 'run')} begun and not done, such as {begun[0]}"
                say(f"{runs}; without --show they go on", "yellow", stream=sys.stderr)
            elif self.show and not found:
                none = f"there are no results in {self.out / experiment.name}"
                say(f"{none}; without --show they are made", "yellow", stream=sys.stderr)
            if experiment.draw is not None:
                for file in experiment.draw(found, self.out / experiment.name / "figures"):
                    say(f"figure: {file}")
        return 0


def _unfinished(folder: Path) -> list[Path]:
    """The run folders below one that have no result yet."""
    return [file.parent for file in sorted(folder.glob("**/run.json")) if not (file.parent / "result.json").is_file()]


def _among(chosen: Entries, experiment: Experiment, patterns: Sequence[str]) -> Entries:
    """The chosen entries that match one of the patterns; all, if there are none."""
    wanted = {entry.name for entry in experiment.select(patterns)}
    return [entry for entry in chosen if not patterns or entry.name in wanted]


def listed(entries: Entries) -> list[dict[str, Any]]:
    """Configurations for JSON."""
    from doxa.train import config_values

    return [
        {"name": e.name, "published": e.published, "source": e.source, "config": config_values(e.config)}
        for e in entries
    ]


def say_entries(entries: Entries) -> None:
    """Configurations with their published values, a line each."""
    width = max((len(entry.name) for entry in entries), default=0)
    for entry in entries:
        published = ", ".join(f"{metric} {value:g}" for metric, value in entry.published.items())
        say(f"{entry.name:<{width}}  {published or '–'}{f'  ({entry.source})' if entry.source else ''}")


@dataclass(frozen=True, kw_only=True)
class Everything(Command):
    """List all experiments with their configurations and published values; nothing is run."""

    def run(self) -> int:
        from doxa.reproduce._queue import EXPERIMENTS

        if self.json:
            say_json({e.name: {"about": e.about, "configurations": listed([*e.entries])} for e in EXPERIMENTS})
            return 0
        for experiment in EXPERIMENTS:
            say(f"{experiment.name}: {experiment.about}", "bold")
            say_entries([*experiment.entries])
            say("")
        say("doxa reproduce NAME runs one of them; doxa reproduce NAME --help says how to choose a part of it")
        return 0


@dataclass(frozen=True, kw_only=True)
class All(Command):
    """Work through every table and figure, what is worth most first; what is done stays, what was begun goes on."""

    jobs: int = 1
    """So many at once, each a process of one thread."""
    budget: Annotated[str | None, arg(metavar="TIME")] = None
    """Stop after so long, such as 90m or 5h; the same command goes on."""
    only: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these, such as "sudoku/*" or "figures/*"."""
    dry_run: bool = False
    """Print the queue with the CPU time that each is expected to take, and run nothing."""
    steps: int | None = None
    """Steps of each run, in place of what the queue says."""
    out: Path = Path("runs")
    """Run folders are made here; a run that is there already goes on."""
    save: Path = Path("results")
    """Results are written here, a JSON file each, and a README.md of all of them at the end."""
    data: Path | None = None
    """A folder with MNIST's four files, in place of those that are found or fetched."""

    def run(self) -> int:
        from doxa.reproduce._queue import cpu_time, plan, work, write_results_page
        from doxa.train import clean_exit

        budget = None if self.budget is None else _seconds(self.budget)
        jobs = plan(out=self.out, save=self.save, only=self.only, steps=self.steps, data=self.data)
        if self.dry_run:
            queue = [{"name": j.name, "done": j.done, "cpu_seconds": j.seconds} for j in jobs]
            lines = [f"{job.name}: {'done' if job.done else cpu_time(job.seconds)}" for job in jobs]
            left = [job for job in jobs if not job.done]
            unknown = sum(job.seconds is None for job in left)
            known = cpu_time(sum(job.seconds or 0 for job in left))
            lines.append(f"{len(jobs)} jobs, {len(left)} not done: {known}, and {unknown} of which it is unknown")
            return self.answer(queue, "\n".join(lines))
        with clean_exit(), _screen(self.json) as show:
            try:
                standing = work(jobs, at_once=self.jobs, budget=budget, logs=self.out / "logs", show=show)
            finally:
                page = write_results_page(self.save)
        counts = {"done": len(standing.done), "waiting": len(standing.waiting)}
        self.answer({**counts, "failed": standing.failed, "page": str(page)}, f"page: {page}")
        return 1 if standing.failed else 0


@contextmanager
def _screen(quiet: bool) -> Iterator[Callable[[Standing], None]]:
    """Shows the table of the queue: kept up to date on a terminal, elsewhere whenever a job begins or ends."""
    if not quiet and sys.stdout.isatty():
        from rich.live import Live
        from rich.text import Text

        with Live() as live:
            yield lambda standing: live.update(Text("\n".join(standing.lines())))  # no markup: messages have brackets
        return
    seen: tuple[int, ...] = ()

    def show(standing: Standing) -> None:
        nonlocal seen
        before = seen
        seen = (len(standing.done), len(standing.waiting), len(standing.failed), len(standing.running))
        if not quiet and seen != before:
            say("\n".join(standing.lines()))

    yield show


def _seconds(text: str) -> float:
    """A time such as 90s, 5h or 1.5h in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        seconds = float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"budget is {text!r}, expected a number and s, m, h or d, such as 90m or 5h")
    return seconds


@dataclass(frozen=True, kw_only=True)
class Same(Rerun):
    """Digits of which 1 % are labelled, with the knowledge of which pairs are the same (Chapter 3)."""


@dataclass(frozen=True, kw_only=True)
class Sum9(Rerun):
    """Digits of which 1 % are labelled, with the knowledge of which pairs add up to nine (Chapter 3)."""


@dataclass(frozen=True, kw_only=True)
class Vae(Rerun):
    """Discrete VAEs on MNIST, one row for each gradient estimator (Chapter 5)."""

    estimator: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these estimators, with both kinds of variables unless --table chooses one; loo@5 or just loo."""

    def entries(self, experiment: Experiment) -> Entries:
        patterns = [f"*/{name}" if "@" in name else f"*/{name}@*" for name in self.estimator]
        return _among(super().entries(experiment), experiment, patterns)


@dataclass(frozen=True, kw_only=True)
class Sat(Rerun):
    """Random vectors refined towards 3-SAT formulas: SATLIB's, in the folder --data, or generated ones (Chapter 4)."""

    def entries(self, experiment: Experiment) -> list[Entry]:
        patterns = self.patterns()
        if self.data is not None:  # the same configurations, with the formulas in that folder
            return experiment.select(p if p.startswith("satlib-") else f"satlib-{p}" for p in patterns or ["*"])
        if patterns or self.list or self.show:
            return experiment.select(patterns or ["*"])
        return [entry for entry in experiment.entries if not entry.config.satlib]


@dataclass(frozen=True, kw_only=True)
class Paths(Rerun):
    """Cheapest paths across maps: the Warcraft maps, in the folder --data, or generated terrain (Chapter 6)."""

    def entries(self, experiment: Experiment) -> list[Entry]:
        patterns = self.patterns()
        if not patterns and not self.list and not self.show:
            patterns = ("terrain-12/*" if self.data is None else "warcraft-12/*",)
        return experiment.select(patterns or ["*"])


@dataclass(frozen=True, kw_only=True)
class Sudoku(Rerun):
    """Visual Sudoku: telling correct grids of digits from incorrect ones (Chapter 6). Each seed is a split."""

    reasoner: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these ways of reasoning: exact, amortized, published (its settings), pairs (in closed form), neural."""

    def entries(self, experiment: Experiment) -> Entries:
        return _among(super().entries(experiment), experiment, [f"{name}/*" for name in self.reasoner])


@dataclass(frozen=True, kw_only=True)
class Counting(Rerun):
    """How probable it is that generated knowledge holds, learnt by inference models and compared with the truth."""


@dataclass(frozen=True, kw_only=True)
class Addition(Rerun):
    """Digits learnt from sums of MNIST digits alone (Chapters 4 and 6)."""

    reasoner: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these ways of reasoning: refine, exact, amortized, or none: neural."""
    digits: Annotated[tuple[int, ...], arg(aliases=("-N",))] = ()
    """Only numbers of so many digits."""
    variant: tuple[Literal["predict", "explain", "prune", "no-prior"], ...] = ()
    """Of amortized reasoning only these variants."""
    model: tuple[Literal["mlp", "scan"], ...] = ()
    """Of amortized reasoning only these inference models."""

    def entries(self, experiment: Experiment) -> Entries:
        chosen = _among(super().entries(experiment), experiment, [f"{name}/*" for name in self.reasoner])
        if self.digits:
            chosen = [entry for entry in chosen if getattr(entry.config, "digits", 1) in self.digits]
        for name in ("variant", "model"):
            if wanted := set(getattr(self, name)):
                chosen = [entry for entry in chosen if getattr(entry.config, name, None) in wanted]
        return chosen


@dataclass(frozen=True, kw_only=True)
class Hmc(Rerun):
    """Labels that imply the labels above them: yeast genes, algae, e-mail and X-rays, in the folder --data."""

    name = "hmc"


@dataclass(frozen=True, kw_only=True)
class Preferences(Rerun):
    """The order of some kinds of sushi, predicted from that of the others; sushi.soc is in the folder --data."""

    name = "preferences"


@dataclass(frozen=True, kw_only=True)
class Grid(Rerun):
    """Shortest paths in a grid with removed edges; grid.data is in the folder --data."""

    name = "grid"


@dataclass(frozen=True, kw_only=True)
class Road(Rerun):
    """ROAD-R's requirements, in the folder --data, on generated scores: how often they break, and what mends them."""

    name = "road"


@dataclass(frozen=True, kw_only=True)
class Shortcuts(Rerun):
    """Tasks in which networks may be right for the wrong reasons, learnt in several ways, with and without labels."""

    name = "shortcuts"


@dataclass(frozen=True, kw_only=True)
class Aggregates(Rerun):
    """Digits learnt from sums and maxima of lists, and from what the cheapest ways through grids cost."""

    name = "aggregates"


@dataclass(frozen=True, kw_only=True)
class Graphs(Rerun):
    """Missing triples of Nations, Kinships and UMLS, in the folder --data, with and without rules."""

    name = "graphs"


@dataclass(frozen=True, kw_only=True)
class Kinship(Rerun):
    """Kinship learnt from stories of two facts, and asked of stories of up to ten."""

    name = "kinship"


@dataclass(frozen=True, kw_only=True)
class Scale(Rerun):
    """Digits learnt from long sums: numbers of up to 1,000 digits, lists of up to 1,024."""

    name = "scale"


@dataclass(frozen=True, kw_only=True)
class Times(Rerun):
    """CPU-seconds until digits learnt from sums are read well enough, for every way of reasoning."""

    name = "times"


Topic = Literal["fuzzy", "refine", "timings", "explanations", "ways"]


@dataclass(frozen=True)
class Figures(Command):
    """Draw the figures of a chapter anew: a PNG for each, and a page that shows them with their numbers."""

    topic: Positional[Topic]
    """fuzzy: differentiable fuzzy logics (Chapter 3). refine: what refinement does to a prediction (Chapter 4).
    timings: how long inference takes as sums grow (Chapter 6). explanations: which digits explain a sum (Chapter 6).
    ways: ways to use knowledge in a classifier, from results."""
    out: Annotated[Path, arg(metavar="DIR")] = Path("figures")
    """The folder for the pictures and their index.html."""
    only: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these figures."""
    seed: int = 0
    """The seed of whatever is sampled."""
    trained: Annotated[Path | None, arg(name="run", metavar="DIR")] = None
    """For explanations: the folder of a run of addition by amortized reasoning, variant explain or prune."""
    data: Path | None = None
    """For explanations: a folder with digits of your own."""
    results: Annotated[Path, arg(metavar="DIR")] = Path("results")
    """For ways: the folder that `doxa reproduce --save` wrote."""

    def run(self) -> int:
        from doxa.reproduce import write_gallery

        title, gallery = self._gallery()
        files = []
        for path in write_gallery(self.out, title, gallery, self.only):
            files.append(str(path))
            if not self.json:
                say(str(path))
        if self.json:
            say_json({"files": files})
        return 0

    def _gallery(self) -> tuple[str, Gallery]:
        from doxa import reproduce

        if self.topic == "fuzzy":
            return "Differentiable fuzzy logics: the figures", reproduce.fuzzy_figures(self.seed)
        if self.topic == "refine":
            return "Refinement: the figures", reproduce.refine_figures()
        if self.topic == "timings":
            return "How long inference takes", reproduce.timing_figures()
        if self.topic == "ways":
            from doxa.reproduce._ways import ways_figures

            return "Which way to use knowledge in a classifier", ways_figures(self.results)
        from doxa.reproduce.figures._gallery import explanation_figures

        if self.trained is None:
            raise ConfigError(
                "explanations are those of a trained model: make one with `doxa reproduce addition --reasoner amortized"
                " --variant prune -N 1`, then name its folder with --run"
            )
        return "Which digits explain a sum", explanation_figures(self.trained, data=self.data, seed=self.seed)
