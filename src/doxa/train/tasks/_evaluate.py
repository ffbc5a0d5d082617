"""Evaluating runs of a task: numbers, examples and warnings; and several semantics side by side, in one table."""

from __future__ import annotations

import base64
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from doxa import _html
from doxa.errors import ConfigError, DoxaError, RunError
from doxa.logic import Axiom, Name, Quantifier, Ragged
from doxa.semantics import Explanation, Model, Semantics
from doxa.train.runs._config import config_values
from doxa.train.runs._files import to_json, write_file
from doxa.train.runs._results import markdown_table, show_table
from doxa.train.runs._run import Run
from doxa.train.tasks import _train
from doxa.train.tasks._find import find_task
from doxa.train.tasks._measure import Measured, Scores, concept_labels, measure
from doxa.train.tasks._task import Task
from doxa.train.tasks._train import configured, run_folder, task_config, train_task

FILE = "evaluation.json"
PATIENCE = 10.0
"""So many seconds a process has to save what it has done when it is stopped."""
EXAMPLES = 3
"""So many test rows are shown, and as many of the surest mistakes."""


@dataclass(frozen=True)
class Picture:
    """A grey image as bytes, and what the network believes it shows."""

    field: str
    height: int
    width: int
    pixels: str
    concept: str = ""
    beliefs: tuple[float, ...] = ()
    truth: int = -1


@dataclass(frozen=True)
class Example:
    """A test row: its images with beliefs, what was predicted, and the worlds that explain it."""

    row: int
    truth: str
    read: str
    pictures: tuple[Picture, ...]
    explanation: str = ""


@dataclass(frozen=True)
class Evaluation(Scores):
    """What a run came to on the test data of its task; ``evaluation.json`` in its folder.

    >>> from doxa.train.tasks._measure import AxiomHeld, Reading
    >>> bit = Reading.of("bit", ["0", "1"], torch.tensor([0, 1]), torch.tensor([0, 1]), torch.ones(2))
    >>> held = (AxiomHeld("told", 2, 1),)
    >>> evaluation = Evaluation("bits", "Bits.", "exact", 2, 1.5, 300.0, concepts=(bit,), axioms=held)
    >>> evaluation.concept_accuracy, evaluation.satisfaction, evaluation.warnings
    (1.0, 0.5, ())
    """

    task: str
    about: str
    semantics: str  # the word
    rows: int  # how many test rows there are
    cpu_seconds: float  # of training
    peak_megabytes: float  # the most memory that the training process had
    examples: tuple[Example, ...] = ()
    checkpoint: int = 0  # the step of the checkpoint that was measured
    held_out: int = 0  # it was the best on so many training rows held out; 0 if it was the last
    stopped: str = ""  # where training ended before it was done

    @property
    def warnings(self) -> tuple[str, ...]:
        """Whether training was done, and what is suspicious about how concepts were read: see `Reading.warning`."""
        found = [self.stopped, *[reading.warning() for reading in self.concepts]]
        return tuple(text for text in found if text)

    def _repr_html_(self) -> str:
        whole = _html.table(COLUMNS, Comparison((self,)).cells(), numbers=True)
        rows = [(a.name, _html.bar(a.rate, label=f"{a.holds:,} of {a.instances:,}")) for a in self.axioms]
        warnings = [_html.line(warning, kind="bad") for warning in self.warnings]
        about = f"{self.rows:,} test rows, the checkpoint of step {self.checkpoint:,}"
        parts = (_html.table(("axiom", "holds"), rows), *warnings, _html.line(about, kind="quiet"))
        return _html.box(_html.line(self.about), whole, *parts, title=self.task)

    def json(self) -> dict[str, Any]:
        """The numbers, without counts and pictures."""
        before = ("task", "semantics", "rows", "checkpoint", "held_out", "task_accuracy", "concept_accuracy")
        after = ("target_calibration", "concept_calibration", "concept_confidence", "cpu_seconds", "peak_megabytes")
        return {
            **{name: getattr(self, name) for name in before},
            "satisfaction": {axiom.name: axiom.rate for axiom in self.axioms},
            **{name: getattr(self, name) for name in after},
            "warnings": list(self.warnings),
        }


def evaluate_run(path: str | Path, task: Task | None = None, semantics: Semantics | None = None) -> Evaluation:
    """Measure a trained run on all test rows of its task, and keep what was found in the folder.

    Args:
        path: the run folder.
        task: the task, where the folder cannot tell how to find it: one that was trained from Python.
        semantics: likewise, where no word was given for it.

    >>> evaluate_run("runs/none")  # `train_task` shows one that is there
    Traceback (most recent call last):
    doxa.errors.RunError: runs/none is not a run: it has no run.json; train one with doxa train
    """
    run, task, model = _train.open_run(path, task, semantics)
    measured = measure(task, model, seed=run.seed)
    evaluation = Evaluation(
        task=task.name,
        about=task.about,
        semantics=task_config(run).semantics,
        rows=task.size(),
        target=measured.target,
        concepts=measured.concepts,
        axioms=measured.axioms,
        cpu_seconds=round(run.load().cpu_seconds, 1),
        peak_megabytes=_train.noted_memory(run),
        examples=_examples(task, model, measured),
        checkpoint=_train.checkpoint_that_counts(run).step,
        held_out=task_config(run).validation,
        stopped=_stopped(run),
    )
    write_file(run.path / FILE, to_json(config_values(evaluation)))
    return evaluation


def _stopped(run: Run) -> str:
    """That a run has not made all its steps, if so; one with patience may have ended early by itself."""
    last, fitting = run.load().step, task_config(run).fitting
    done = last >= fitting.steps or fitting.patience
    return (
        "" if done else f"training was stopped, and is saved up to step {last:,} of {fitting.steps:,}; train it again"
    )


def evaluate_together(paths: Sequence[str | Path], task: Task | None = None) -> Evaluation:
    """Measure several runs of one task as one model, which believes the mean of what each believes.

    Networks that were trained apart find different shortcuts where there are several; together they are then unsure.

    Args:
        paths: the run folders, such as those of several seeds.
        task: the task, where the folders cannot tell how to find it.

    >>> evaluate_together([])
    Traceback (most recent call last):
    doxa.errors.ConfigError: no run is named; name several of one task
    """
    if not paths:
        raise ConfigError("no run is named; name several of one task")
    opened = [_train.open_run(path, task) for path in paths]
    first = opened[0][1]
    for (run, own, _), path in zip(opened, paths, strict=True):
        if own.name != first.name or task_config(run).fingerprint.test != task_config(opened[0][0]).fingerprint.test:
            raise ConfigError(
                f"{path} is of {own.name}, {paths[0]} of {first.name}; runs of one task are measured together"
            )
    measured = measure(first, [model for _, _, model in opened], seed=opened[0][0].seed)
    words = dict.fromkeys(task_config(run).semantics for run, _, _ in opened)
    return Evaluation(
        task=first.name,
        about=first.about,
        semantics=f"{len(opened)} together: {', '.join(words)}",
        rows=first.size(),
        target=measured.target,
        concepts=measured.concepts,
        axioms=measured.axioms,
        cpu_seconds=round(sum(run.load().cpu_seconds for run, _, _ in opened), 1),
        peak_megabytes=max(_train.noted_memory(run) for run, _, _ in opened),
    )


def read_evaluation(run: Run) -> Evaluation:
    """What an evaluation left in a run folder; the run is measured again if what it left is damaged.

    >>> import tempfile
    >>> from doxa.train import Fitting
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_evaluation(Run.create(folder, Fitting(), seed=0))
    Traceback (most recent call last):
    doxa.errors.RunError: ... has not been evaluated; doxa evaluate ... does
    """
    if not (run.path / FILE).exists():
        raise RunError(f"{run.path} has not been evaluated; doxa evaluate {run.path} does")
    return run.read_aside(Evaluation, FILE) or evaluate_run(run.path)


def _examples(task: Task, model: Model, measured: Measured) -> tuple[Example, ...]:
    """The first rows, and then those in which the model is surely wrong."""
    if not task.images:
        return ()
    rows = [*range(min(EXAMPLES, task.size()))]
    if measured.guesses is not None:
        truth, read, weights = measured.guesses
        sure = weights.amax(1) / weights.sum(1).clamp(min=1e-300)
        wrong = sorted((truth != read).nonzero()[:, 0].tolist(), key=lambda row: -float(sure[row]))
        rows += [row for row in wrong if row not in rows][:EXAMPLES]
    return tuple(_example(task, model, measured, row) for row in rows)


def _example(task: Task, model: Model, measured: Measured, row: int) -> Example:
    pictures = []
    for place in task.images:
        column = task.column(place)
        ragged = isinstance(column, Ragged)
        images = column[row] if ragged else column[row : row + 1]
        first = int(column.lengths[:row].sum()) if ragged else row
        symbol = next((s for s, places in task.concepts.items() if place in places), "")
        for number, image in enumerate(images, first):
            grey = _grey(image)
            probs = measured.beliefs[symbol][place][number].tolist() if symbol else []
            truth = int(concept_labels(task, symbol, place)[number]) if symbol else -1
            pixels = base64.b64encode(grey.numpy().tobytes()).decode()
            beliefs = tuple(round(p, 4) for p in probs)
            pictures.append(Picture(place, grey.shape[0], grey.shape[1], pixels, symbol, beliefs, truth))
    truth_text = read_text = ""
    if measured.guesses is not None and measured.target is not None:
        truth_text, read_text = (measured.target.values[int(found[row])] for found in measured.guesses[:2])
    return Example(row, truth_text, read_text, tuple(pictures), _explained(task, model, row))


def _explained(task: Task, model: Model, row: int) -> str:
    """The most probable worlds of a row given that each axiom holds; why not, where they cannot be found."""
    texts, random = [], torch.Generator().manual_seed(row)
    for axiom in task.kb.axioms:
        try:
            with torch.no_grad():
                found = model.explain(axiom.name, k=3, generator=random, **task.part(row, row + 1))
            texts += [f"[{axiom.name}] {_of_row(task, axiom, explanation)}" for explanation in found[:EXAMPLES]]
        except DoxaError as error:
            texts.append(f"[{axiom.name}] not explained: {error}")
    return "\n".join(texts)


def _of_row(task: Task, axiom: Axiom, explanation: Explanation) -> str:
    """An explanation without the variables that stand for the row: it is the only one, and always the first."""
    formula = axiom.formula
    groups = formula.groups if isinstance(formula, Quantifier) else ()
    rows = {
        name
        for group in groups
        for name in group.names
        if task.rows == (group.domain.name if isinstance(group.domain, Name) else group.sort)
    }
    others = {name: at for name, at in explanation.instance.items() if name not in rows}
    return str(replace(explanation, instance=others)).removeprefix("the axiom: ")


def _grey(image: Tensor) -> Tensor:
    """Grey values 0..255, ``(height, width)``; floating point images are stretched to them, colours averaged."""
    image = image.reshape(image.shape[-2:]) if image.numel() == image.shape[-1] * image.shape[-2] else image.mean(0)
    if image.dtype == torch.uint8:
        return image.contiguous()
    image = image.double()
    low, high = image.min(), image.max()
    return ((image - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8).contiguous()


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
                f"{e.peak_megabytes:.0f} MB" if e.peak_megabytes else "–",
            )
            for e in self.evaluations
        ]

    def notes(self) -> list[str]:
        """What is suspicious about the concepts, and what failed, one line each."""
        suspicious = [f"{e.semantics}: {warning}" for e in self.evaluations for warning in e.warnings]
        return suspicious + [f"{word} failed: {reason}" for word, reason in self.failed.items()]

    def _repr_html_(self) -> str:
        notes = [_html.line(note, kind="bad") for note in self.notes()]
        return _html.box(_html.table(COLUMNS, self.cells(), numbers=True), _html.line(POOLED, kind="quiet"), *notes)

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
                with _held_back():
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
                    line = f"{word}: {_outcome(found[word]) if word in found else f'failed: {failed[word]}'}"
                    print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, flush=True)
            if progress and sys.stdout.isatty():
                places = zip(semantics, paths, steps, strict=True)
                going = {word for word, _ in running.values()}
                shown = [_status(*place) for place in places if place[0] in going]
                print(f"\r\x1b[K{'   '.join(shown)}"[:160], end="", flush=True)
    except KeyboardInterrupt:
        print("interrupted; what is under way is being saved", file=sys.stderr, flush=True)
        raise KeyboardInterrupt("stopped; start it again to continue") from None
    finally:
        for _, process in running.values():
            process.terminate()
        end = time.monotonic() + PATIENCE
        for _, process in running.values():
            process.join(max(0.0, end - time.monotonic()))
            process.kill()
    reasons = {word: failed[word] for word in semantics if word in failed}
    if not found:
        raise RunError("\n".join(f"{word}: {reason}" for word, reason in reasons.items()))
    worked = [(found[word], path) for word, path in zip(semantics, paths, strict=True) if word in found]
    return Comparison(tuple(evaluation for evaluation, _ in worked), reasons), [path for _, path in worked]


@contextmanager
def _held_back() -> Iterator[None]:
    """Keep Ctrl-C waiting, also in a process that is started meanwhile: it has that from us."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # or the first process would start it, which lets Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _obey_parent() -> None:
    """Let SIGTERM, which the parent sends, mean what Ctrl-C does; what the terminal sends does not count."""
    if hasattr(signal, "pthread_sigmask"):
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one that has been waiting is forgotten
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))


def _one(sender: Any, source: str, word: str, path: Path, seed: int, settings: list[str], data: str | None) -> None:
    """Train and evaluate one run, in a process of its own; send the evaluation, or why there is none."""
    try:
        _obey_parent()
        torch.set_num_threads(1)
        task = find_task(source, data=data, progress=False)
        train_task(task, word, path, seed=seed, settings=settings, source=source, data=data or "", progress=False)
        sender.send(evaluate_run(path, task))
    except DoxaError as error:
        sender.send(str(error))
    except BaseException as error:  # its kind is named, for the words of others than doxa often say little
        sender.send(f"{type(error).__name__}: {error}; doxa train shows where")


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
