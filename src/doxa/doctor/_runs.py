"""The examination of a run: the knowledge with the networks that were trained, on test data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from doxa.doctor._examine import Examination, Finding, examine, on_data
from doxa.semantics import Fuzzy, Semantics

if TYPE_CHECKING:
    from doxa.train import Task


def examine_run(
    path: str | Path, logic: str | None = None, *, task: Task | None = None, rows: int = 256
) -> Examination:
    """Examine a run of ``doxa train``: its knowledge, its networks and its test data.

    The gradients are those of the logic that it was trained with, or of another; a run that was trained without one is
    examined without, unless a logic is named. Concepts that were read wrongly by rule are findings too.

    Args:
        path: the run folder.
        logic: the name of a fuzzy logic, in place of the run's own.
        task: the task, where the folder cannot tell how to find it: one that was trained from Python.
        rows: so many test rows are looked at.

    >>> examine_run("nowhere")
    Traceback (most recent call last):
    doxa.errors.RunError: ...
    """
    from doxa.train import evaluate_run, open_run

    run, task, model = open_run(path, task)
    data = task.part(0, min(rows, task.size()))
    semantics = model.semantics
    chosen = logic if logic is not None else semantics.logic if isinstance(semantics, Fuzzy) else None
    if chosen is None:
        name = type(semantics).__name__
        note = f"trained under {name}, which has no operators to examine; --logic says under which ones to look at it"
        found = Examination("", {}, tuple(on_data(model.kb, model.interpretation, data)), (note,))
    else:
        found = examine(
            model.kb,
            chosen,
            quantifier=semantics.quantifier if isinstance(semantics, Semantics) else "mean",
            interpretation=model.interpretation,
            data=data,
            objects=run.config.get("batch_size", task.batch_size),
        )
    change = "train longer; or the knowledge cannot tell: doxa shortcuts lists such maps, and labels that rule them out"
    concepts = [Finding("concepts", *_parted(text), change) for text in evaluate_run(path, task).warnings]
    return Examination(found.logic, found.axioms, (*found.findings, *concepts), found.notes)


def _parted(warning: str) -> tuple[str, str]:
    symbol, _, text = warning.partition(": ")
    return symbol, text
