"""One task under several semantics: trained side by side, one process each, and set into one table."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any, TextIO

from doxa.errors import ConfigError, DoxaError, RunError
from doxa.train.runs._results import markdown_table, show_table
from doxa.train.runs._run import Run
from doxa.train.tasks._evaluate import Evaluation, evaluate_run
from doxa.train.tasks._find import find_task
from doxa.train.tasks._train import configured, run_folder, train_task

COLUMNS = ("semantics", "task accuracy", "concept accuracy", "satisfaction", "calibration error", "CPU time", "memory")

POOLED = "Satisfaction is the share of instances that hold, of all axioms together."


@dataclass(frozen=True)
class Comparison:
    """Evaluations of one task, a row for each; calibration is of the target, and of the concepts after the slash.

    >>> from doxa.train.tasks._measure import AxiomHeld
    >>> one = Evaluation("bits", "Bits.", "exact", 2, 61.2, 301.5, axioms=(AxiomHeld("told", 4, 3),))
    >>> print(Comparison((one,), {"fuzzy": "the loss is nan"}).markdown())
    | semantics | task accuracy | concept accuracy | satisfaction | calibration error | CPU time | memory |
    | --- | --- | --- | --- | --- | --- | --- |
    | exact | – | – | 75.0 % | – / – | 61 s | 302 MB |
    <BLANKLINE>
    Satisfaction is the share of instances that hold, of all axioms together.
    <BLANKLINE>
    - fuzzy failed: the loss is nan
    """

    evaluations: tuple[Evaluation, ...]  # of the runs that worked
    failed: Mapping[str, str] = field(default_factory=dict)  # why others did not, by their semantics

    def cells(self) -> list[tuple[str, ...]]:
        """The table without its heading."""
        return [
            (
                e.semantics,
                _percent(e.task_accuracy),
                _percent(e.concept_accuracy),
                _percent(e.satisfaction),
                f"{_number(e.target_calibration)} / {_number(e.concept_calibration)}",
                f"{e.cpu_seconds:.0f} s",
                f"{e.peak_megabytes:.0f} MB",
            )
            for e in self.evaluations
        ]

    def notes(self) -> list[str]:
        """What is suspicious about the concepts, and what failed, one line each."""
        suspicious = [f"{e.semantics}: {warning}" for e in self.evaluations for warning in e.warnings]
        return suspicious + [f"{word} failed: {reason}" for word, reason in self.failed.items()]

    def markdown(self) -> str:
        """The table as markdown, with the notes under it."""
        notes = [f"- {note}" for note in self.notes()]
        return "\n".join([markdown_table(COLUMNS, self.cells()), "", POOLED, *([""] if notes else []), *notes])

    def json(self) -> list[dict[str, Any]]:
        """The rows for machines."""
        return [evaluation.json() for evaluation in self.evaluations]

    def show(self, stream: TextIO | None = None) -> None:
        """Print the table: drawn by rich on a terminal, as markdown elsewhere."""
        show_table(COLUMNS, self.cells(), self.markdown(), notes=[POOLED, *self.notes()], stream=stream)


def compare_task(
    source: str | Path,
    semantics: Sequence[str],
    *,
    out: str | Path = "runs",
    seed: int = 0,
    settings: Iterable[str] = (),
    data: str | Path | None = None,
    jobs: int = 0,
    progress: bool = True,
) -> tuple[Comparison, list[Path]]:
    """Train a task under each semantics in a process of its own, a few at a time, and evaluate them.

    What was begun goes on, what is done is only evaluated.

    Args:
        source: the name of a task, or a Python file, see `find_task`.
        semantics: words, see `Task.semantics_of`.
        out: run folders are ``out/addition/exact/2000-steps/seed-0``.
        seed: of all runs.
        settings: changes for all runs, such as ``"steps=100"``.
        data: a folder with digits of the user's own.
        jobs: so many processes at a time, of one thread each; 0 for as many as there are cores.
        progress: tell how far they are.

    Returns:
        The table, and the run folders in the same order: of those that worked. The table names the others.

    Raises:
        DoxaError: a word, a setting or the task is wrong; or all runs failed.

    >>> compare_task("addition", [])
    Traceback (most recent call last):
    doxa.errors.ConfigError: no semantics is named; name some, such as exact, fuzzy, sampled
    """
    settings, out = list(settings), Path(out)
    if not semantics:
        raise ConfigError("no semantics is named; name some, such as exact, fuzzy, sampled")
    if jobs < 0:
        raise ConfigError(f"jobs is {jobs}, expected 0 or more processes at a time")
    if repeated := [word for word in semantics if list(semantics).count(word) > 1]:
        raise ConfigError(f"the semantics {repeated[0]!r} is named twice")
    task = find_task(source, data=data, progress=progress)  # mistakes are told before anything is trained
    steps = [configured(task, word, settings).fitting.steps for word in semantics]
    paths = [run_folder(out, task, word, seed=seed, settings=settings) for word in semantics]
    del task
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    found: dict[str, Evaluation] = {}
    failed: dict[str, str] = {}
    left, running = list(semantics), dict[Any, tuple[str, Any]]()
    context, more = multiprocessing.get_context("spawn"), (seed, settings, None if data is None else str(data))
    try:
        while left or running:
            while left and len(running) < (jobs or cores):
                word = left.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                arguments = (theirs, str(source), word, paths[list(semantics).index(word)], *more)
                process = context.Process(target=_one, args=arguments)
                process.start()
                theirs.close()
                running[ours] = word, process
            finished: list[Any] = connection.wait(list(running), timeout=1.0)
            for ready in finished:
                word, process = running.pop(ready)
                try:
                    outcome: Any = ready.recv()
                except EOFError:
                    outcome = "its process ended before it was done, perhaps for lack of memory; --jobs 1 needs less"
                process.join()
                (failed if isinstance(outcome, str) else found)[word] = outcome
                if progress:
                    _tell(f"{word}: {_outcome(found[word]) if word in found else f'failed: {failed[word]}'}")
            if progress and sys.stdout.isatty():
                places = zip(semantics, paths, steps, strict=True)
                going = {word for word, _ in running.values()}
                shown = [_status(*place) for place in places if place[0] in going]
                print(f"\r\x1b[K{'   '.join(shown)}"[:160], end="", flush=True)
    finally:
        for _, process in running.values():  # we were interrupted, and so are they: they save where they are
            process.join(5)
            process.kill()
    reasons = {word: failed[word] for word in semantics if word in failed}
    if not found:
        raise RunError("\n".join(f"{word}: {reason}" for word, reason in reasons.items()))
    worked = [(found[word], path) for word, path in zip(semantics, paths, strict=True) if word in found]
    return Comparison(tuple(evaluation for evaluation, _ in worked), reasons), [path for _, path in worked]


def _one(sender: Any, source: str, word: str, path: Path, seed: int, settings: list[str], data: str | None) -> None:
    """Train and evaluate one run, in a process of its own; send the evaluation, or why there is none."""
    import torch

    try:
        torch.set_num_threads(1)
        task = find_task(source, data=data, progress=False)
        train_task(task, word, path, seed=seed, settings=settings, source=source, data=data or "", progress=False)
        sender.send(evaluate_run(path, task))
    except DoxaError as error:
        sender.send(str(error))
    except BaseException as error:  # its kind is named, for the words of others than doxa often say little
        sender.send(f"{type(error).__name__}: {error}; doxa train shows where")


def _tell(line: str) -> None:
    print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, flush=True)


def _outcome(found: Evaluation) -> str:
    parts = [("task", found.task_accuracy), ("concepts", found.concept_accuracy), ("knowledge", found.satisfaction)]
    return ", ".join(f"{name} {_percent(value)}" for name, value in parts if value is not None)


def _status(word: str, path: Path, steps: int) -> str:
    """How far a run is, from the last line of its metrics."""
    try:
        lines = [line for line in Run.open(path).metrics() if "loss" in line]
    except DoxaError:
        return f"{word} waits"
    if not lines:
        return f"{word} 0/{steps}"
    return f"{word} {lines[-1]['step']}/{steps} loss {lines[-1]['loss']:.3f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
