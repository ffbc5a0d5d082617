r"""Refinement of random vectors towards 3-SAT formulas, against gradient descent (Chapter 4, "Experiments on 3SAT").

A step of a run is ten formulas, which share no atoms and so are refined as one formula graph: of each of them, ten
uniformly random vectors are refined towards the target, and whatever is measured is averaged over vectors and formulas,
those of the steps before included. Truth and distance are those of the *last* iterate, as in the chapter's figures; a
truth of 1 may be a fractional point, so whether the vector rounded at 0.5 satisfies the formula stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from doxa.data import ksat_instances
from doxa.errors import ConfigError, DataError
from doxa.logic import CNF, Call, read_dimacs
from doxa.refine import GradientRefine, Refine, hybrid, restarts
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, saved, train
from doxa.train import Result
from doxa.train.report._report import figure
from doxa.train.runs._results import markdown_table

LogicName = Literal["godel", "lukasiewicz", "product"]
VARIABLES, ALL_CLAUSES = 20, 91
FORMULAS_SEED = 2091
"""The formulas are the same for every run, like the files of SATLIB; a run's seed is that of its vectors."""
CURVE = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500)
"""After how many passes truth and distance are noted."""
THRESHOLD = 0.01
"""A vector has arrived when its truth is this near to the target, and settled when it stays this near to its last."""


@dataclass(frozen=True)
class SatConfig(Settings):
    """How random vectors are refined towards random 3-SAT formulas."""

    zero = ("target",)
    save_every = 1
    logic: LogicName = "godel"  # in which the formulas are read
    # ``"refine"`` or ``"adam"``, as in the chapter; ``"restarts"``, ``"hybrid"`` and ``"guarantee"`` begin with
    # refinement and do more
    method: Literal["refine", "adam", "restarts", "hybrid", "guarantee"] = "refine"
    schedule: float = 1.0  # α of refinement
    beta: float = 0.0  # β of Adam, the weight of the distance
    target: float = 1.0  # the wanted truth
    clauses: int = ALL_CLAUSES  # the first so many of the 91
    steps: int = 5  # how many times ``formulas`` are refined
    formulas: int = 10  # so many at a time
    vectors: int = 10  # for each formula; Adam takes its norms over all of them together
    passes: int = 500  # at most so many, or steps of Adam
    times: int = 200  # copies of each vector, for restarts
    satlib: bool = False  # SATLIB's own formulas, in a folder that has to be given, instead of generated ones

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.clauses <= ALL_CLAUSES:
            raise ConfigError(f"clauses is {self.clauses}, expected 1 to {ALL_CLAUSES}: each formula has so many")

    def training(self, given: Given) -> Training:
        """The metrics are means over the formulas so far."""
        every = _formulas(self, given.data)
        sums: dict[str, float] = {}

        def step(i: int) -> dict[str, float]:
            formulas = every[i * self.formulas : (i + 1) * self.formulas]
            for name, value in measure(self, formulas, 1000 * given.seed + i).items():
                sums[name] = sums.get(name, 0.0) + value
            return {name: total / (i + 1) for name, total in sums.items()}

        return Training(step, {"sums": sums}, log_every=1, prefix_step=1)


def train_sat(config: SatConfig, path: Path, **given: Any) -> Result:
    """Do one run, or go on with it; curves are no part of the early step that is kept."""
    result = train(config, path, **given)
    return replace(result, prefix={name: value for name, value in result.prefix.items() if "@" not in name})


def _formulas(config: SatConfig, data: Path | None) -> list[CNF]:
    if config.satlib != (data is not None):
        raise DataError(
            "this configuration takes the formulas of SATLIB: unpack its uf20-91.tar.gz and name the folder with --data"
            if config.satlib
            else "this configuration generates its formulas; those for a folder of SATLIB are called satlib-..."
        )
    count = config.steps * config.formulas
    if data is None:
        generator = torch.Generator().manual_seed(FORMULAS_SEED)
        found = ksat_instances(count, VARIABLES, ALL_CLAUSES, generator=generator)
    else:
        files = sorted(data.glob("*.cnf"), key=lambda file: file.name)  # the order in which folders list them
        if len(files) < count:
            raise DataError(f"{data} has {len(files)} .cnf files, expected {count}: SATLIB's uf20-91 has 1000")
        found = [read_dimacs(file) for file in files[:count]]
    return [CNF.from_clauses(cnf.clauses[: config.clauses], cnf.variables) for cnf in found]


@torch.no_grad()
def measure(config: SatConfig, formulas: Sequence[CNF], seed: int) -> dict[str, float]:
    """Refine random vectors towards formulas; means over both."""
    generator = torch.Generator().manual_seed(seed)
    vectors = [torch.rand(config.vectors, cnf.variables, generator=generator) for cnf in formulas]
    if config.method in ("refine", "adam"):
        found = _as_in_the_chapter(config, formulas, vectors)
    else:
        single = [_with_more(config, *problem, generator) for problem in zip(formulas, vectors, strict=True)]
        found = {name: torch.stack([one[name] for one in single]) for name in single[0]}
    return {name: float(values.double().mean()) for name, values in found.items()}


def _as_in_the_chapter(config: SatConfig, formulas: Sequence[CNF], vectors: list[Tensor]) -> dict[str, Tensor]:
    """Refinement or Adam, all formulas at once, each on atoms of its own; values are (vectors, formulas)."""
    atoms = [[Call(f"x{i}_{k}") for k in range(cnf.variables)] for i, cnf in enumerate(formulas)]
    own = [CNF.from_clauses(cnf.clauses, names).formula() for cnf, names in zip(formulas, atoms, strict=True)]
    layer = Refine(
        own,
        config.logic,
        config.target,
        config.schedule,
        atoms=[atom for names in atoms for atom in names],
        max_steps=config.passes,
        patience=config.passes,  # the chapter lets vectors go on that come no nearer
    )
    x = torch.cat(vectors, 1)
    if config.method == "adam":
        adam = GradientRefine(layer, beta=config.beta, steps=config.passes, joint=True, freeze=False)
        found = adam.run(x, trajectory=True)
    else:
        found = layer.run(x, trajectory=True)
    assert found.trajectory is not None
    truth = torch.cat([layer.truth(some) for some in torch.split(found.trajectory, 50)])
    truth = truth.view(len(found.trajectory), config.vectors, len(formulas))
    distance = torch.unflatten((found.trajectory - x).abs(), -1, (len(formulas), -1)).sum(-1)
    rounded = layer.truth((found.last > 0.5).to(x.dtype)).view_as(truth[0])
    nearest = (truth - config.target).abs().argmin(0, keepdim=True)
    away = (truth - truth[-1]).abs() > THRESHOLD
    curves: dict[str, Tensor] = {}
    for k in (k for k in CURVE if k <= config.passes):  # who has stopped stays
        at = min(k, len(truth) - 1)
        curves |= {f"truth@{k}": truth[at], f"l1@{k}": distance[at]}
    return {
        **_final(config, truth[-1], distance[-1], rounded > 0.5),
        "best_truth": truth.gather(0, nearest),
        "settled": torch.where(away, torch.arange(1, len(away) + 1).view(-1, 1, 1), 0).amax(0),
        **curves,
    }


def _with_more(config: SatConfig, cnf: CNF, x: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """One of the methods that go beyond the chapter, for one formula; values are (vectors)."""
    guarantee: Literal["sat"] | None = "sat" if config.method == "guarantee" else None
    layer = Refine(cnf, config.logic, config.target, config.schedule, max_steps=config.passes, guarantee=guarantee)
    match config.method:
        case "restarts":
            found = restarts(layer, x, times=config.times, spread=1.0, generator=generator)
        case "hybrid":
            found = hybrid(layer, x, descent=GradientRefine(layer, steps=config.passes))
        case _:
            found = layer.run(x)
    return {**_final(config, found.truth, found.distance, found.satisfied), "best_truth": found.truth}


def _final(config: SatConfig, truth: Tensor, distance: Tensor, satisfied: Tensor) -> dict[str, Tensor]:
    gap = (truth - config.target).abs()
    return {
        "loss": gap,
        "truth": truth,
        "l1": distance,
        "satisfied": 100.0 * satisfied,
        "reached": 100.0 * (gap <= THRESHOLD),
    }


_FIGURES = """
godel-refine-1         | 0.016 9.7  | 0.974 4.1
godel-refine-0.1       | 0.474 1.0  | 0.775 2.0
godel-adam-0           | 0.494 1.1  | 0.769 1.8
lukasiewicz-refine-1   | 1.0 2.07   | 1.0 0.71
lukasiewicz-refine-0.1 | 1.0 2.07   | 1.0 0.72
lukasiewicz-adam-0     | 1.0 4.8    | 1.0 1.98
product-refine-1       | 0.016 9.7  | 0.974 4.1
product-refine-0.1     | 0.012 7.5  | 0.904 3.2
product-adam-0         | 0.473 8.5  | 0.997 8.2
"""
"""Truth and L₁ at the right end of the chapter's figures, with 91 clauses and with 20."""


def _shown(row: str, clauses: int) -> dict[str, float]:
    """What the chapter's figures show of a row."""
    for line in _FIGURES.strip().splitlines():
        name, *columns = line.split("|")
        if name.strip() == row:
            return dict(zip(("truth", "l1"), map(float, columns[clauses == 20].split()), strict=True))
    return {}


def _methods(logic: LogicName, target: float) -> dict[str, SatConfig]:
    """The configurations of one logic, by name; the chapter's only, but for the target 1."""
    rows = {f"refine-{alpha:g}": SatConfig(logic, schedule=alpha) for alpha in (1.0, 0.1)}
    rows |= {f"adam-{beta:g}": SatConfig(logic, "adam", beta=beta) for beta in (0.0, 0.01, 0.1)}
    if target == 1:
        rows |= {name: SatConfig(logic, name) for name in ("restarts", "hybrid", "guarantee")}
    return rows


def _entries() -> Iterator[Entry]:
    for satlib, clauses, target in product((False, True), (91, 20), (1.0, 0.8, 0.5, 0.3)):
        table = f"{'satlib-' * satlib}{clauses}-clauses{'' if target == 1 else f'-to-{target:g}'}"
        for logic in get_args(LogicName):
            for method, config in _methods(logic, target).items():
                row = f"{logic}-{method}"
                shown = _shown(row, clauses) if target == 1 else {}
                yield Entry(
                    f"{table}/{row}",
                    replace(config, target=target, clauses=clauses, satlib=satlib),
                    shown,
                    "Chapter 4, figures on uf20-91" if shown else "",
                )


_LOGICS = {"godel": "Gödel", "lukasiewicz": "Łukasiewicz", "product": "product"}
_METHODS = {
    "refine-1": ("refinement, α = 1", "C0", "-"),
    "refine-0.1": ("refinement, α = 0.1", "C2", "-"),
    "adam-0": ("Adam, β = 0", "C1", "-"),
    "adam-0.01": ("Adam, β = 0.01", "C3", "--"),
    "adam-0.1": ("Adam, β = 0.1", "C4", ":"),
    "restarts": ("refinement, 200 restarts", "", ""),
    "hybrid": ("refinement, then Adam", "", ""),
    "guarantee": ("refinement, then MaxSAT", "", ""),
}
_COLUMNS = {
    "truth": ("truth", "{:.3f}"),
    "l1": ("L₁", "{:.2f}"),
    "settled": ("settled after", "{:.0f}"),
    "reached": ("reached (%)", "{:.1f}"),
    "satisfied": ("satisfied when rounded (%)", "{:.1f}"),
    "best_truth": ("best truth", "{:.3f}"),
}


def draw_sat(results: Sequence[Result], folder: Path) -> list[Path]:
    """A figure and a table in markdown for each table of entries that has results; several seeds are averaged."""
    tables: dict[str, dict[tuple[str, str], list[Result]]] = {}
    for result in results:
        _, table, row = result.experiment.split("/")
        logic, _, method = row.partition("-")
        if method in _METHODS:  # changed configurations stand in the long table only
            tables.setdefault(table, {}).setdefault((logic, method), []).append(result)
    files = []
    for table, rows in sorted(tables.items()):
        files += [folder / f"{table}.md", saved(_figure(table, rows), folder / f"{table}.png")]
        files[-2].write_text(_markdown(rows), encoding="utf-8")
    return files


def _mean(results: list[Result], metric: str) -> float | None:
    values = [result.metrics[metric] for result in results if metric in result.metrics]
    return sum(values) / len(values) if values else None


def _markdown(rows: dict[tuple[str, str], list[Result]]) -> str:
    head = ("logic", "method", *(title for title, _ in _COLUMNS.values()), "CPU seconds")
    lines = []
    for logic, title in _LOGICS.items():
        for method, (label, *_) in _METHODS.items():
            if results := rows.get((logic, method)):
                cells = ["–" if (v := _mean(results, m)) is None else f.format(v) for m, (_, f) in _COLUMNS.items()]
                seconds = sum(result.cpu_seconds for result in results) / len(results)
                lines.append((title, label, *cells, f"{seconds:.1f}"))
    return markdown_table(head, lines) + "\n"


def _figure(table: str, rows: dict[tuple[str, str], list[Result]]) -> Any:
    drawing, axes = figure(2, 3, size=(10, 5.2))
    for column, (logic, title) in enumerate(_LOGICS.items()):
        for row, (metric, label) in enumerate((("truth", "truth"), ("l1", "L₁ distance"))):
            ax = axes[3 * row + column]
            for method, (name, colour, style) in _METHODS.items():
                results = rows.get((logic, method), [])
                points = [(k, v) for k in CURVE if (v := _mean(results, f"{metric}@{k}")) is not None]
                if points:
                    ax.plot(*zip(*points, strict=True), style, color=colour, label=name, linewidth=1.6)
            ax.set_xscale("symlog", linthresh=10, linscale=1.5)
            ax.set_xlim(0, CURVE[-1])
            ax.set_xticks([0, 2, 4, 6, 8, 10, 30, 100, 300], [0, 2, 4, 6, 8, 10, 30, 100, 300])
            ax.minorticks_off()
            ax.set_ylim(*((-0.03, 1.03) if metric == "truth" else (0, None)))
            ax.grid(alpha=0.3)
            if not row:
                ax.set_title(title)
            else:
                ax.set_xlabel("iterations")
            if not column:
                ax.set_ylabel(label)
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes), key=lambda both: len(both[0]))
    drawing.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    drawing.suptitle(table.replace("-", " "))
    return drawing


SAT = Experiment(
    "sat",
    "Random vectors refined towards 3-SAT formulas of 20 variables",
    tuple(_entries()),
    train_sat,
    ("truth", "l1", "satisfied", "settled", "reached", "best_truth"),
    draw_sat,
)
