"""Every table and figure, one job after another: what is done stays, what was begun goes on.

A job is one run with one seed, or one gallery of figures, in a process and on a thread of its own. It is done when its
file is there: the JSON file of its result, or the page of its figures. The page of results is made from such files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from doxa._files import write_atomic
from doxa.errors import ConfigError, RunError
from doxa.reproduce import _compared
from doxa.reproduce._addition import ADDITION
from doxa.reproduce._aggregates import AGGREGATES
from doxa.reproduce._counting import COUNTING
from doxa.reproduce._experiment import Entry, Experiment, by_budget, collect, result_name, train
from doxa.reproduce._graphs import GRAPHS
from doxa.reproduce._kinship import KINSHIP
from doxa.reproduce._labels import GRID, HMC, PREFERENCES
from doxa.reproduce._paths import PATHS
from doxa.reproduce._road import ROAD
from doxa.reproduce._same_tables import SAME, SUM9
from doxa.reproduce._sat import SAT
from doxa.reproduce._scale import SCALE
from doxa.reproduce._shortcuts import SHORTCUTS
from doxa.reproduce._sudoku import SUDOKU
from doxa.reproduce._times import TIMES
from doxa.reproduce._vae import VAE
from doxa.reproduce._ways import ways_page
from doxa.train import Result, Row, Run
from doxa.train.runs._results import _number, _time, markdown_table

EXPERIMENTS = (
    *(SAME, SUM9, SAT, ADDITION, VAE, PATHS, SUDOKU, COUNTING),
    *(HMC, PREFERENCES, GRID, ROAD, SHORTCUTS, AGGREGATES, GRAPHS, KINSHIP, SCALE, TIMES),
)
PATIENCE = 60.0
"""Seconds that a job has to save what it has done when it is stopped."""


@dataclass(frozen=True)
class Item:
    """Some configurations of an experiment, each with so many seeds, from ``first`` on."""

    experiment: Experiment
    only: str
    seeds: int = 1
    steps: int | None = None  # in place of the configuration's own
    first: int = 0


QUEUE = (
    Item(ADDITION, "refine/*", 10),
    Item(ADDITION, "ltn/*", 10),
    Item(ADDITION, "exact/n-15", 3),
    Item(ADDITION, "exact/n-15-dropout", 3),
    Item(ADDITION, "amortized/scan-predict-n-15*", 2),
    Item(ADDITION, "amortized/scan-*", 2),
    Item(ADDITION, "amortized/mlp-predict-n-1", 1, 11_250),  # about half an hour each, as the two below
    Item(ADDITION, "amortized/mlp-predict-n-4", 1, 4_212),
    Item(ADDITION, "amortized/mlp-no-prior-n-4", 1, 4_212),
    Item(SUDOKU, "exact/4x4*", 10),
    Item(SUDOKU, "amortized/4x4", 10),
    Item(SUDOKU, "pairs/4x4", 10),
    Item(SUDOKU, "neural/4x4", 10),
    Item(SUDOKU, "amortized/9x9", 3),
    Item(SUDOKU, "pairs/9x9", 3),
    Item(SUDOKU, "neural/9x9", 3),
    Item(SUDOKU, "published/*", 1, 10_000),  # of 50,000
    Item(COUNTING, "*", 2),
    Item(AGGREGATES, "*", 3),
    Item(KINSHIP, "*", 3),
    Item(TIMES, "*", 3),
    Item(SCALE, "*", 2),
    Item(PATHS, "terrain-12/*", 2),
    Item(PATHS, "terrain-30/*"),
    Item(VAE, "*/loo@5"),
    Item(VAE, "*/*@1"),
    Item(VAE, "*/unordered-set@5"),
    Item(SAME, "*", 1, 14_000),
    Item(SUM9, "*", 1, 14_000),
    Item(SAME, "baseline/supervised"),
    Item(SAME, "symmetric/product"),
    Item(SAME, "implications/reichenbach-sigmoidal"),
    Item(SHORTCUTS, "[!l]*", 3),
    Item(SHORTCUTS, "labels-*", 5, first=5),  # settings were tried with the seeds before
    Item(VAE, "*"),
    Item(SAT, "[0-9]*"),
    Item(ADDITION, "exact/*", 3),
    Item(ADDITION, "neural/*"),
)
"""What is worth most comes first. Left out is what needs data of the user's own: SATLIB's formulas, Warcraft maps,
hierarchies, preferences, grid paths, requirements."""
GENERATED = (SAT, PATHS)
"""Experiments whose jobs here generate what they learn from; a folder of data would hold other files than MNIST's."""
FIGURES = ("fuzzy", "timings", "refine")


@dataclass(frozen=True)
class Job:
    """One process: ``doxa`` with some arguments, and the file that is there when it is done."""

    name: str
    arguments: tuple[str, ...]
    file: Path
    folder: Path | None = None  # of the run, whose metrics say how far it is
    steps: int = 0
    seconds: float | None = None  # of CPU time, as far as committed results tell

    @property
    def done(self) -> bool:
        """Whether its file is there."""
        return self.file.exists()


def plan(
    *, out: Path, save: Path, only: Sequence[str] = (), steps: int | None = None, data: Path | None = None
) -> list[Job]:
    """The jobs of the queue in their order, each once; ``only`` takes patterns such as ``"sudoku/*"``.

    ``data`` is a folder with MNIST's files, for those that read digits.
    """
    found: dict[Path, Job] = {}
    for item in QUEUE:
        rates = _seconds_a_step(collect(item.experiment, save))
        for entry in item.experiment.select([item.only]):
            for seed in range(item.first, item.first + item.seeds):
                name = f"{item.experiment.name}/{entry.name}"
                count = steps or item.steps or entry.config.steps
                budget = f"{count}-steps"
                arguments = ["reproduce", item.experiment.name, "--only", entry.name, "--seeds", str(seed)]
                arguments += ["--steps", str(count), "--out", str(out), "--save", str(save), "--quiet"]
                arguments += [] if data is None or item.experiment in GENERATED else ["--data", str(data)]
                job = Job(
                    f"{name}, {count:,} steps, seed {seed}",
                    tuple(arguments),
                    save / item.experiment.name / result_name(entry.name, count, seed),
                    out / name / budget / f"seed-{seed}",
                    count,
                    count * rates[name] if name in rates else None,
                )
                found.setdefault(job.file, job)
    for topic in FIGURES:
        folder = out / "figures" / topic
        job = Job(f"figures/{topic}", ("figures", topic, "--out", str(folder)), folder / "index.html")
        found[job.file] = job
    chosen = [j for j in found.values() if not only or any(fnmatch(j.name.split(",")[0], pattern) for pattern in only)]
    if not chosen:
        raise ConfigError(f"no job is called {' or '.join(only)}; --dry-run shows all {len(found)}")
    return chosen


def _seconds_a_step(results: Iterable[Any]) -> dict[str, float]:
    """What results tell of the CPU seconds of a step, by name; their mean over seeds and budgets."""
    totals: dict[str, list[float]] = {}
    for result in results:
        spent = totals.setdefault(result.experiment, [0.0, 0.0])
        spent[0] += result.cpu_seconds
        spent[1] += result.steps
    return {name: seconds / steps for name, (seconds, steps) in totals.items() if seconds}


def _listen() -> None:
    """Let Ctrl-C through again, which a process started in the background of a shell is deaf to."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Running:
    """A process that does a job."""

    job: Job
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)
    began: float = field(default_factory=time.monotonic)
    first: int = 0

    def __post_init__(self) -> None:
        self.first = self.step()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        alone = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "doxa", *self.job.arguments],
                env={**os.environ, **alone},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches it once, and from us
                preexec_fn=_listen,
            )

    def step(self) -> int:
        """How many steps its run has logged."""
        try:
            lines = Run.open(self.job.folder).metrics() if self.job.folder else []
        except RunError:
            return 0  # not yet begun
        return max((int(line["step"]) for line in lines), default=0)

    def left(self) -> str:
        """The time left, by how fast it has been since it was started."""
        now = self.step()
        if now <= self.first:
            return "time left unknown"
        seconds = (time.monotonic() - self.began) * (self.job.steps - now) / (now - self.first)
        return f"{now:,} of {self.job.steps:,} steps, {timedelta(seconds=round(seconds))} left"

    def stop(self) -> None:
        """Ask it to save what it has done and to end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def failed(self) -> str:
        """Why it ended without its file, or nothing."""
        if self.process.poll() is None or self.job.done:
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return f"exit code {self.process.returncode}: {said} ({self.log})"


@dataclass
class Standing:
    """How the queue stands: jobs that are done, running, waiting, and why some failed."""

    done: list[Job]
    waiting: list[Job]
    running: list[Running] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """One table: done, failed, running with the time left, waiting with its CPU time."""
        counts = f"done {len(self.done)}, running {len(self.running)}, waiting {len(self.waiting)}"
        yield f"{counts} ({cpu_time(sum(job.seconds or 0 for job in self.waiting))} known)"
        yield from (f"  failed   {name}: {why}" for name, why in self.failed.items())
        yield from (f"  running  {run.job.name}: {run.left()}" for run in self.running)
        yield from (f"  waiting  {job.name}: {cpu_time(job.seconds)}" for job in self.waiting[:5])


def cpu_time(seconds: float | None) -> str:
    """CPU time in words; None is unknown."""
    return "CPU time unknown" if seconds is None else f"{timedelta(seconds=round(seconds))} of CPU time"


def work(
    jobs: Sequence[Job],
    *,
    at_once: int = 1,
    budget: float | None = None,
    logs: Path,
    show: Callable[[Standing], None] = lambda standing: None,
    every: float = 2.0,
) -> Standing:
    """Do the jobs that are not done, some at once, until the budget of seconds is used up.

    Whatever ends it, Ctrl-C included, every job is asked to stop and saves what it has done; the same call goes on.
    ``logs`` is a folder for what the jobs print; ``show`` is told how the queue stands, ``every`` so many seconds.
    """
    if at_once < 1:
        raise ConfigError(f"jobs is {at_once}, expected at least 1")
    end = None if budget is None else time.monotonic() + budget
    standing = Standing([job for job in jobs if job.done], [job for job in jobs if not job.done])
    try:
        while (standing.waiting or standing.running) and (end is None or time.monotonic() < end):
            while standing.waiting and len(standing.running) < at_once:
                job = standing.waiting.pop(0)
                if job.done:  # by somebody else in the meantime
                    standing.done.append(job)
                    continue
                standing.running.append(Running(job, logs / f"{job.name.replace('/', '.').replace(', ', '.')}.log"))
            show(standing)
            time.sleep(every)
            _settle(standing)
    finally:
        for run in standing.running:
            run.stop()
        for run in standing.running:
            try:
                run.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                run.process.kill()
        _settle(standing)
        show(standing)
    return standing


def _settle(standing: Standing) -> None:
    """Take note of the processes that have ended."""
    for run in [run for run in standing.running if run.process.poll() is not None]:
        standing.running.remove(run)
        if run.job.done:
            standing.done.append(run.job)
        elif run.process.returncode in (130, -signal.SIGINT):  # it was stopped, and goes on next time
            standing.waiting.insert(0, run.job)
        else:
            standing.failed[run.job.name] = run.failed()


HEAD = """# Results

Made from the JSON files in these folders by `doxa reproduce all`; do not edit. What is to be said of them: `NOTES.md`.

Each file is one run with one seed: configuration, metrics, budget in steps, CPU time, machine, versions, date, and the
command that made it. `doxa reproduce EXPERIMENT --only CONFIGURATION --steps STEPS --seeds SEEDS --save results` makes
a row again. Several seeds are shown as mean ± standard error, published values in brackets, CPU time as that of a run.
"""
DIGITS = Experiment(
    "digits",
    "A digit classifier, learnt from labels",
    (Entry("", None, {"test_accuracy": 0.9905}, "LeNet-5, LeCun et al. 1998"),),
    train,
    ("test_accuracy",),
)


DISSERTATION = (SAME, SUM9, SAT, ADDITION, VAE, PATHS, SUDOKU)


def write_results_page(folder: Path) -> Path:
    """Write ``README.md`` into a folder of results, from these alone, with ``COMPARED.md`` and ``ways.md`` beside it.

    The first has every result, the second every number of the dissertation and whether it is reached, the third how
    ways to use knowledge in a classifier compare.
    """
    found = {e.name: collect(e, folder) for e in (DIGITS, *EXPERIMENTS)}
    parts = [HEAD, *[_section(e, found[e.name]) for e in (DIGITS, *EXPERIMENTS) if found[e.name]]]
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "README.md", "\n".join(parts).encode())
    beside = [_compared.HEAD, *[_compared.section(e, found[e.name]) for e in DISSERTATION]]
    write_atomic(folder / "COMPARED.md", "\n".join(beside).encode())
    if any(found[experiment.name] for experiment in (HMC, PREFERENCES, GRID)):
        write_atomic(folder / "ways.md", ways_page(folder).encode())
    return folder / "README.md"


def _section(experiment: Experiment, results: Sequence[Result]) -> str:
    order = {f"{experiment.name}/{entry.name}".rstrip("/"): entry for entry in experiment.entries}
    places = {name: i for i, name in enumerate(order)}
    metrics = [metric for metric in experiment.metrics if any(metric in result.metrics for result in results)]
    head = ["configuration", "steps", "seeds", *metrics, "CPU time", "published in"]
    lines = []
    # A configuration with changed settings stands behind the one it was made from.
    groups = by_budget(results).items()
    for (name, steps), group in sorted(groups, key=lambda g: (places.get(g[0][0].split("+")[0], len(places)), g[0])):
        entry = order.get(name, Entry(name, None))
        cells = [_cell(group, metric, entry.published.get(metric)) for metric in metrics]
        rows = Row.of(group, next(iter(group[0].metrics)))
        label = name.removeprefix(f"{experiment.name}/")
        seconds = _time(sum(rows.cpu_seconds) / len(rows.cpu_seconds))
        lines.append([label, f"{steps:,}", ", ".join(map(str, rows.seeds)), *cells, seconds, entry.source])
    return f"## `{experiment.name}`: {experiment.about.rstrip('.')}\n\n{markdown_table(head, lines)}\n"


def _cell(group: Sequence[Result], metric: str, published: float | None) -> str:
    if not all(metric in result.metrics for result in group):
        return "–" if published is None else f"– ({published:g})"
    row = Row.of(group, metric)
    return _number(row.mean, row.standard_error) + ("" if published is None else f" ({published:g})")
