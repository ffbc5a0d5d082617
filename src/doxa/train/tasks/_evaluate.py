"""Evaluating a run of a task: numbers, examples and warnings, kept in its folder."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa.errors import DoxaError, RunError
from doxa.logic import Axiom, Name, Quantifier, Ragged
from doxa.semantics import Explanation, Model, Semantics
from doxa.train.runs._config import config_values
from doxa.train.runs._files import to_json, write_file
from doxa.train.runs._run import Run
from doxa.train.tasks._measure import Measured, Scores, concept_labels, measure
from doxa.train.tasks._task import Task
from doxa.train.tasks._train import checkpoint_that_counts, noted_memory, open_run, task_config

FILE = "evaluation.json"
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

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is suspicious about how concepts were read: see `Reading.warning`."""
        return tuple(text for reading in self.concepts if (text := reading.warning()))

    def json(self) -> dict[str, Any]:
        """The numbers, without counts and pictures."""
        before = ("task", "semantics", "rows", "checkpoint", "held_out", "task_accuracy", "concept_accuracy")
        after = ("target_calibration", "concept_calibration", "cpu_seconds", "peak_megabytes")
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
    run, task, model = open_run(path, task, semantics)
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
        peak_megabytes=noted_memory(run),
        examples=_examples(task, model, measured),
        checkpoint=checkpoint_that_counts(run).step,
        held_out=task_config(run).validation,
    )
    write_file(run.path / FILE, to_json(config_values(evaluation)))
    return evaluation


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
