r"""Refinement of random vectors towards 3-SAT formulas, against gradient descent (Chapter 4, "Experiments on 3SAT").

A step of a run is one formula: ten uniformly random vectors are refined towards the target, and whatever is measured is
averaged over the vectors, and over the formulas so far. Truth and distance are those of the *last* iterate, as in the
chapter's figures; a truth of 1 may be a fractional point, so whether the vector rounded at 0.5 satisfies the formula
stands beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from doxa.errors import ConfigError, DataError
from doxa.experiments._experiment import Entry, Experiment
from doxa.experiments._sat_figures import CURVE, draw_sat
from doxa.logic import CNF, read_dimacs
from doxa.refine import GradientRefine, Refine, Refined, hybrid, restarts
from doxa.runs import Result, Run, train
from doxa.tasks import ksat_instances

__all__ = ["SAT", "SatConfig"]

LOGICS: tuple[Literal["godel", "lukasiewicz", "product"], ...] = ("godel", "lukasiewicz", "product")
VARIABLES, ALL_CLAUSES = 20, 91
FORMULAS_SEED = 2091
"""The formulas are the same for every run, like the files of SATLIB; a run's seed is that of its vectors."""
THRESHOLD = 0.01
"""A vector has arrived when its truth is this near to the target, and settled when it stays this near to its last."""
PREFIX_FORMULAS = 5


@dataclass(frozen=True)
class SatConfig:
    """How random vectors are refined towards random 3-SAT formulas.

    Args:
        logic: in which the formulas are read.
        method: ``"refine"`` or ``"adam"``, as in the chapter; ``"restarts"``, ``"hybrid"`` and ``"guarantee"`` begin
            with refinement and do more.
        schedule: α of refinement.
        beta: β of Adam, the weight of the distance.
        target: the wanted truth.
        clauses: the first so many of the 91.
        steps: how many formulas.
        vectors: for each of them; Adam takes its norms over all of them together.
        passes: at most so many, or steps of Adam.
        times: copies of each vector, for restarts.
        satlib: SATLIB's own formulas, in a folder that has to be given, instead of generated ones.

    >>> SatConfig(logic="product", method="adam", beta=0.1).target
    1.0
    """

    logic: Literal["godel", "lukasiewicz", "product"] = "godel"
    method: Literal["refine", "adam", "restarts", "hybrid", "guarantee"] = "refine"
    schedule: float = 1.0
    beta: float = 0.0
    target: float = 1.0
    clauses: int = ALL_CLAUSES
    steps: int = 50
    vectors: int = 10
    passes: int = 500
    times: int = 200
    satlib: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "vectors", "passes", "times"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1")
        if not 1 <= self.clauses <= ALL_CLAUSES:
            raise ConfigError(f"clauses is {self.clauses}, expected 1 to {ALL_CLAUSES}: each formula has so many")


def train_sat(config: SatConfig, path: Path, *, seed: int, data: Path | None, progress: bool) -> Result:
    """Refine the vectors of one formula after the other; the metrics are means over the formulas so far."""
    formulas = _formulas(config, data)
    run = Run.start(path, config, seed=seed)
    sums: dict[str, float] = {}

    def step(i: int) -> dict[str, float]:
        for name, value in measure(config, formulas[i], 1000 * seed + i).items():
            sums[name] = sums.get(name, 0.0) + value
        return {name: total / (i + 1) for name, total in sums.items()}

    train(run, step, steps=config.steps, state={"sums": sums}, log_every=1, save_every=10, progress=progress)
    result = Result.of(run, "sat", prefix_step=min(PREFIX_FORMULAS, config.steps))
    return replace(result, prefix={name: value for name, value in result.prefix.items() if "@" not in name})


def _formulas(config: SatConfig, data: Path | None) -> list[CNF]:
    if config.satlib != (data is not None):
        raise DataError(
            "this configuration takes the formulas of SATLIB: unpack its uf20-91.tar.gz and name the folder with --data"
            if config.satlib
            else "this configuration generates its formulas; those for a folder of SATLIB are called satlib-..."
        )
    if data is None:
        generator = torch.Generator().manual_seed(FORMULAS_SEED)
        found = ksat_instances(config.steps, VARIABLES, ALL_CLAUSES, generator=generator)
    else:
        files = sorted(data.glob("*.cnf"), key=lambda file: [int(n) for n in re.findall(r"\d+", file.stem)])
        if len(files) < config.steps:
            raise DataError(f"{data} has {len(files)} .cnf files, expected {config.steps}: SATLIB's uf20-91 has 1000")
        found = [read_dimacs(file) for file in files[: config.steps]]
    return [CNF.from_clauses(cnf.clauses[: config.clauses], cnf.variables) for cnf in found]


@torch.no_grad()
def measure(config: SatConfig, cnf: CNF, seed: int) -> dict[str, float]:
    """Refine random vectors towards one formula; means over the vectors."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(config.vectors, cnf.variables, generator=generator)
    layer = Refine(
        cnf,
        config.logic,
        config.target,
        config.schedule,
        max_steps=config.passes,
        # the chapter lets vectors go on that come no nearer; only the extra methods give up on them early
        patience=config.passes if config.method == "refine" else 10,
        guarantee="sat" if config.method == "guarantee" else None,
    )
    found = _solve(config, layer, x, generator)
    last = found.last if config.method in ("refine", "adam") else found.values
    truth = layer.truth(last)
    gap = (truth - config.target).abs()
    metrics = {
        "loss": gap,
        "truth": truth,
        "l1": (last - x).abs().sum(1),
        "satisfied": 100.0 * layer.satisfied(last),
        "reached": 100.0 * (gap <= THRESHOLD),
        "best_truth": found.truth,
    }
    if found.trajectory is not None:
        metrics |= _curves(layer, found.trajectory, config.passes)
    return {name: float(values.double().mean()) for name, values in metrics.items()}


def _solve(config: SatConfig, layer: Refine, x: Tensor, generator: torch.Generator) -> Refined:
    match config.method:
        case "adam":
            adam = GradientRefine(layer, beta=config.beta, steps=config.passes, joint=True, freeze=False)
            return adam.run(x, trajectory=True)
        case "restarts":
            return restarts(layer, x, times=config.times, spread=1.0, generator=generator)
        case "hybrid":
            return hybrid(layer, x)
        case "guarantee":
            return layer.run(x)
    return layer.run(x, trajectory=True)


def _curves(layer: Refine, trajectory: Tensor, passes: int) -> dict[str, Tensor]:
    """When each vector settled, and truth and distance after some numbers of passes; who stopped stays."""
    truth = layer.truth(trajectory)
    distance = (trajectory - trajectory[0]).abs().sum(-1)
    away = (truth - truth[-1]).abs() > THRESHOLD
    numbered = torch.arange(1, len(away) + 1).unsqueeze(1)
    curves = {"settled": torch.where(away, numbered, 0).amax(0)}
    for k in CURVE:
        if k <= passes:
            at = min(k, len(truth) - 1)
            curves |= {f"truth@{k}": truth[at], f"l1@{k}": distance[at]}
    return curves


_FIGURES = {
    91: {
        "godel-refine-1": (0.016, 9.7),
        "godel-refine-0.1": (0.474, 1.0),
        "godel-adam-0": (0.494, 1.1),
        "lukasiewicz-refine-1": (1.0, 2.07),
        "lukasiewicz-refine-0.1": (1.0, 2.07),
        "lukasiewicz-adam-0": (1.0, 4.8),
        "product-refine-1": (0.016, 9.7),
        "product-refine-0.1": (0.012, 7.5),
        "product-adam-0": (0.473, 8.5),
    },
    20: {
        "godel-refine-1": (0.974, 4.1),
        "godel-refine-0.1": (0.775, 2.0),
        "godel-adam-0": (0.769, 1.8),
        "lukasiewicz-refine-1": (1.0, 0.71),
        "lukasiewicz-refine-0.1": (1.0, 0.72),
        "lukasiewicz-adam-0": (1.0, 1.98),
        "product-refine-1": (0.974, 4.1),
        "product-refine-0.1": (0.904, 3.2),
        "product-adam-0": (0.997, 8.2),
    },
}
"""Truth and L₁ at the right end of the chapter's figures, by number of clauses."""


def _methods(logic: Literal["godel", "lukasiewicz", "product"], target: float) -> dict[str, SatConfig]:
    """The configurations of one logic, by name; the chapter's only, but for the target 1."""
    rows = {f"refine-{alpha:g}": SatConfig(logic, schedule=alpha) for alpha in (1.0, 0.1)}
    rows |= {f"adam-{beta:g}": SatConfig(logic, "adam", beta=beta) for beta in (0.0, 0.01, 0.1)}
    if target == 1:
        rows |= {name: SatConfig(logic, name) for name in ("restarts", "hybrid", "guarantee")}
    return rows


def _entries() -> tuple[Entry, ...]:
    entries = []
    for satlib, clauses, target in product((False, True), (91, 20), (1.0, 0.8, 0.5, 0.3)):
        table = f"{'satlib-' * satlib}{clauses}-clauses{'' if target == 1 else f'-to-{target:g}'}"
        for logic in LOGICS:
            for method, config in _methods(logic, target).items():
                row = f"{logic}-{method}"
                shown = _FIGURES[clauses].get(row) if target == 1 else None
                entries.append(
                    Entry(
                        f"{table}/{row}",
                        replace(config, target=target, clauses=clauses, satlib=satlib),
                        dict(zip(("truth", "l1"), shown, strict=True)) if shown else {},
                        "Chapter 4, figures on uf20-91" if shown else "",
                    )
                )
    return tuple(entries)


SAT = Experiment(
    "sat",
    "Random vectors refined towards 3-SAT formulas of 20 variables",
    _entries(),
    train_sat,
    ("truth", "l1", "satisfied", "settled", "reached", "best_truth"),
    draw_sat,
)
