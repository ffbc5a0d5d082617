"""``doxa tasks``, ``train``, ``evaluate``, ``compare`` and ``report``: tasks from the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._output import Command, say, say_json
from doxa.errors import visible

Runs = Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]


@dataclass(frozen=True)
class Tasks(Command):
    """List the tasks that come with doxa, and the words for ways of reasoning."""

    def run(self) -> int:
        from doxa.semantics._semantics import WORDS
        from doxa.train.tasks._find import TASKS

        width = max(map(len, TASKS))
        lines = [
            *(f"{name:<{width}}  {about}" for name, about in TASKS.items()),
            f"\nsemantics: {', '.join(WORDS[1:])}; also fuzzy:LOGIC and refined:LOGIC, such as fuzzy:godel",
            "A task of your own is a Python file that defines `task`: doxa train my_task.py --semantics exact",
        ]
        return self.answer({"tasks": TASKS, "semantics": list(WORDS[1:])}, "\n".join(lines))


@dataclass(frozen=True)
class Training(Command):
    """What the commands that train have in common."""

    task: Annotated[Positional[str], arg(metavar="TASK")]
    """The name of a task, see doxa tasks, or a Python file that defines one."""
    steps: int | None = None
    """Batches to learn from, in place of the task's own number."""
    seed: int = 0
    """Of the first parameters, the order of the data and all that is sampled."""
    settings: Annotated[tuple[str, ...], arg(name="set", metavar="KEY=VALUE [KEY=VALUE ...]")] = ()
    """Change how it is trained, such as learning_rate=0.01 batch_size=32 validation=500 patience=3 devices=2."""
    out: Path = Path("runs")
    """Run folders are made here, such as runs/addition/exact/2000-steps/seed-0; those that are there already go on."""
    data: Path | None = None
    """A folder with MNIST digits of your own, for a task that comes with doxa."""
    quiet: bool = False
    """Show no progress."""

    @property
    def changes(self) -> list[str]:
        """All changed settings."""
        return [*self.settings, *([] if self.steps is None else [f"steps={self.steps}"])]

    @property
    def progress(self) -> bool:
        """Whether to show it."""
        return not self.quiet and not self.json


@dataclass(frozen=True)
class Train(Training):
    """Train a task under a semantics, in a run folder; a run that was interrupted goes on."""

    semantics: str = "auto"
    """How to reason with the knowledge: one word, see doxa tasks."""
    concepts: Annotated[Path | None, arg(metavar="CSV")] = None
    """A table of concept labels to learn from as well, such as doxa ask writes to be filled in."""

    def run(self) -> int:
        from doxa.train import find_task, train_task
        from doxa.train.tasks._labels import with_labels
        from doxa.train.tasks._train import run_folder

        task = find_task(self.task, data=self.data, progress=self.progress)
        if self.concepts is not None:
            task = with_labels(task, self.concepts)
        path = run_folder(self.out, task, self.semantics, seed=self.seed, settings=self.changes, concepts=self.concepts)
        if not self.json and (caution := task.semantics_of(self.semantics).caution):
            say(f"note: {caution}")
        run = train_task(
            task,
            self.semantics,
            path,
            seed=self.seed,
            settings=self.changes,
            source=self.task,
            data=str(self.data or ""),
            concepts=str(self.concepts or ""),
            progress=self.progress,
        )
        last, held_out = run.load(), run.config["validation"]
        counts = (held_out and last.best_step) or last.step
        early = last.step < run.config["fitting"]["steps"]
        about = {"run": str(path), "steps": last.step, "stopped_early": early, "checkpoint": counts}
        which = f"\n{_which(counts, held_out)}" if held_out else ""
        return self.answer({**about, "metrics": run.metrics_at(last.step)}, f"run: {path}{which}")


@dataclass(frozen=True)
class Evaluate(Command):
    """Measure a run on the test data: accuracies, calibration, how far each axiom holds, CPU time, memory."""

    runs: Runs
    """Run folders that doxa train made."""
    together: bool = False
    """Measure also all of them as one model, which believes the mean of what each believes."""

    def run(self) -> int:
        from doxa.train import evaluate_run, evaluate_together
        from doxa.train.tasks._evaluate import Comparison

        every = [evaluate_together(self.runs)] if self.together else []
        table = Comparison((*[evaluate_run(path) for path in self.runs], *every))
        if self.json:
            say_json(table.json())
            return 0
        table.show()
        for path, evaluation in zip([*self.runs, *(["together"] if every else [])], table.evaluations, strict=True):
            say(f"\n{path}", "bold")
            if evaluation.held_out:
                say(f"  {_which(evaluation.checkpoint, evaluation.held_out)}")
            for axiom in evaluation.axioms:
                say(f"  [{axiom.name}] holds for {axiom.holds:,} of {axiom.instances:,} instances")
        return 0


@dataclass(frozen=True)
class Compare(Training):
    """Train a task under several semantics, side by side, and set them into one table and one report."""

    semantics: str = "exact,amortized,sampled,refined,fuzzy"
    """Words for ways of reasoning, with commas between."""
    jobs: int = 0
    """So many processes of one thread at a time; 0 for as many as there are cores."""

    def run(self) -> int:
        from doxa.train import compare_task, write_task_report

        table, paths = compare_task(
            self.task,
            [word.strip() for word in self.semantics.split(",") if word.strip()],
            out=self.out,
            seed=self.seed,
            settings=self.changes,
            data=self.data,
            jobs=self.jobs,
            progress=self.progress,
        )
        report = write_task_report(paths, self.out / table.evaluations[0].task)
        if not self.json:
            replace(table, failed={word: visible(reason, keep="\n\t") for word, reason in table.failed.items()}).show()
        runs = [str(path) for path in paths]
        document = {"rows": table.json(), "failed": dict(table.failed), "runs": runs, "report": str(report)}
        self.answer(document, f"report: {report}")
        return int(bool(table.failed))


@dataclass(frozen=True)
class Report(Command):
    """Write a page about runs of one task: results, knowledge, curves, confusion, calibration, examples."""

    runs: Runs
    """Run folders that doxa train made; those not evaluated yet are evaluated first."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """The folder for report.html; by default that of the only run, or the folder that all runs lie in."""

    def run(self) -> int:
        from doxa.train import evaluate_run, write_task_report

        for path in self.runs:
            if not (path / "evaluation.json").exists():
                evaluate_run(path)
        together = Path(os.path.commonpath([path.resolve() for path in self.runs])) if len(self.runs) > 1 else None
        report = write_task_report(self.runs, self.out or together)
        return self.answer({"report": str(report)}, f"report: {report}")


def _which(step: int, rows: int) -> str:
    return f"the checkpoint of step {step:,} counts, the best on {rows:,} training rows held out"
