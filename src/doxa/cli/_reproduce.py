"""``doxa reproduce``: the experiments under one roof."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from doxa.cli._output import say, say_json

if TYPE_CHECKING:
    from doxa.reproduce import Experiment
    from doxa.reproduce._experiment import Entry

    Entries = list[Entry]  # inside the commands ``list`` is an option

Settings = Annotated[tuple[str, ...], arg(name="set", metavar="KEY=VALUE [KEY=VALUE ...]")]


@dataclass(frozen=True, kw_only=True)
class Reproduce:
    """What the commands of all experiments have in common; each names its experiment, and may add ways to select."""

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
    json: bool = False
    """Print JSON."""

    def experiment(self) -> Experiment:
        """The experiment."""
        raise NotImplementedError

    def entries(self, experiment: Experiment) -> Entries:
        """The configurations that the options select."""
        patterns = [*(f"{table}/*" for table in self.table), *self.only]
        return experiment.select(patterns or ["*"])

    def run(self) -> int:
        from dataclasses import replace

        from doxa.reproduce import collect, reproduce
        from doxa.train import clean_exit, config_values, load_config

        experiment = self.experiment()
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
            if experiment.draw is not None:
                for file in experiment.draw(found, self.out / experiment.name / "figures"):
                    say(f"figure: {file}")
        return 0


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
class Everything:
    """List all experiments with their configurations and published values; nothing is run."""

    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.reproduce import ADDITION, PATHS, SAME, SAT, SUDOKU, SUM9, VAE

        experiments = (SAME, SUM9, SAT, ADDITION, VAE, PATHS, SUDOKU)
        if self.json:
            say_json({e.name: {"about": e.about, "configurations": listed([*e.entries])} for e in experiments})
            return 0
        for experiment in experiments:
            say(f"{experiment.name}: {experiment.about}", "bold")
            say_entries([*experiment.entries])
            say("")
        say("doxa reproduce NAME runs one of them; doxa reproduce NAME --help says how to choose a part of it")
        return 0


@dataclass(frozen=True, kw_only=True)
class Same(Reproduce):
    """Digits of which 1 % are labelled, with the knowledge of which pairs are the same (Chapter 3)."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import SAME

        return SAME


@dataclass(frozen=True, kw_only=True)
class Sum9(Reproduce):
    """Digits of which 1 % are labelled, with the knowledge of which pairs add up to nine (Chapter 3)."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import SUM9

        return SUM9


@dataclass(frozen=True, kw_only=True)
class Vae(Reproduce):
    """Discrete VAEs on MNIST, one row for each gradient estimator (Chapter 5)."""

    estimator: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these estimators, with both kinds of variables unless --table chooses one; loo@5 or just loo."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import VAE

        return VAE

    def entries(self, experiment: Experiment) -> Entries:
        chosen = super().entries(experiment)
        if not self.estimator:
            return chosen
        wanted = {
            entry.name
            for name in self.estimator
            for entry in experiment.select([f"*/{name}" if "@" in name else f"*/{name}@*"])
        }
        return [entry for entry in chosen if entry.name in wanted]


@dataclass(frozen=True, kw_only=True)
class Sat(Reproduce):
    """Random vectors refined towards 3-SAT formulas: SATLIB's, in the folder --data, or generated ones (Chapter 4)."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import SAT

        return SAT

    def entries(self, experiment: Experiment) -> list[Entry]:
        patterns = [*(f"{table}/*" for table in self.table), *self.only]
        if self.data is not None:  # the same configurations, with the formulas in that folder
            return experiment.select(p if p.startswith("satlib-") else f"satlib-{p}" for p in patterns or ["*"])
        if patterns or self.list or self.show:
            return experiment.select(patterns or ["*"])
        return [entry for entry in experiment.entries if not entry.config.satlib]


@dataclass(frozen=True, kw_only=True)
class Paths(Reproduce):
    """Cheapest paths across maps: the Warcraft maps, in the folder --data, or generated terrain (Chapter 6)."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import PATHS

        return PATHS

    def entries(self, experiment: Experiment) -> list[Entry]:
        patterns = [*(f"{table}/*" for table in self.table), *self.only]
        if not patterns and not self.list and not self.show:
            patterns = ["terrain-12/*" if self.data is None else "warcraft-12/*"]
        return experiment.select(patterns or ["*"])


@dataclass(frozen=True, kw_only=True)
class Sudoku(Reproduce):
    """Visual Sudoku: telling correct grids of digits from incorrect ones (Chapter 6). Each seed is a split."""

    reasoner: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these ways of reasoning: exact, amortized, pairs (the closed form for pairs of cells), neural."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import SUDOKU

        return SUDOKU

    def entries(self, experiment: Experiment) -> Entries:
        chosen = super().entries(experiment)
        wanted = {e.table for name in self.reasoner for e in experiment.select([f"{name}/*"])}
        return [entry for entry in chosen if not wanted or entry.table in wanted]


@dataclass(frozen=True, kw_only=True)
class Addition(Reproduce):
    """Digits learnt from sums of MNIST digits alone (Chapters 4 and 6)."""

    reasoner: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = ()
    """Only these ways of reasoning: refine, exact, amortized, or none: neural."""
    digits: Annotated[tuple[int, ...], arg(aliases=("-N",))] = ()
    """Only numbers of so many digits."""
    variant: tuple[Literal["predict", "explain", "prune", "no-prior"], ...] = ()
    """Of amortized reasoning only these variants."""
    model: tuple[Literal["mlp", "scan"], ...] = ()
    """Of amortized reasoning only these inference models."""

    def experiment(self) -> Experiment:
        from doxa.reproduce import ADDITION

        return ADDITION

    def entries(self, experiment: Experiment) -> Entries:
        chosen = super().entries(experiment)
        if self.reasoner:
            wanted = {e.name for name in self.reasoner for e in experiment.select([f"{name}/*"])}
            chosen = [entry for entry in chosen if entry.name in wanted]
        if self.digits:
            chosen = [entry for entry in chosen if getattr(entry.config, "digits", 1) in self.digits]
        for name in ("variant", "model"):
            if wanted := set(getattr(self, name)):
                chosen = [entry for entry in chosen if getattr(entry.config, name, None) in wanted]
        return chosen
