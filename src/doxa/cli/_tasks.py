"""``doxa tasks``, ``train``, ``evaluate``, ``compare`` and ``report``: tasks from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._output import say, say_json

Settings = Annotated[tuple[str, ...], arg(name="set", metavar="KEY=VALUE [KEY=VALUE ...]")]
Source = Annotated[Positional[str], arg(metavar="TASK")]


def _which(step: int, rows: int) -> str:
    return f"the checkpoint of step {step:,} counts, the best on {rows:,} training rows held out"


@dataclass(frozen=True)
class Tasks:
    """List the tasks that come with doxa, and the words for ways of reasoning."""

    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.semantics._words import WORDS
        from doxa.train.tasks._builtin import BUILT_IN

        if self.json:
            say_json({"tasks": {name: about for name, (about, _) in BUILT_IN.items()}, "semantics": list(WORDS[1:])})
            return 0
        width = max(map(len, BUILT_IN))
        for name, (about, _) in BUILT_IN.items():
            say(f"{name:<{width}}  {about}")
        say(f"\nsemantics: {', '.join(WORDS[1:])}; also fuzzy:LOGIC and refined:LOGIC, such as fuzzy:godel")
        say("A task of your own is a Python file that defines `task`: doxa train my_task.py --semantics exact")
        return 0


@dataclass(frozen=True)
class Train:
    """Train a task under a semantics, in a run folder; a run that was interrupted goes on."""

    task: Source
    """The name of a task, see doxa tasks, or a Python file that defines one."""
    semantics: str = "auto"
    """How to reason with the knowledge: one word, see doxa tasks."""
    steps: int | None = None
    """Batches to learn from, in place of the task's own number."""
    seed: int = 0
    """Of the first parameters, the order of the data and all that is sampled."""
    settings: Settings = ()
    """Change how it is trained, such as learning_rate=0.01 batch_size=32 validation=500 patience=3 devices=2."""
    out: Path = Path("runs")
    """Run folders are made here, such as runs/addition/exact/2000-steps/seed-0."""
    data: Path | None = None
    """A folder with MNIST digits of your own, for a task that comes with doxa."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.train import clean_exit, find_task, train_task
        from doxa.train.tasks._train import run_folder

        with clean_exit():
            settings = [*self.settings, *([] if self.steps is None else [f"steps={self.steps}"])]
            progress = not self.quiet and not self.json
            task = find_task(self.task, data=self.data, progress=progress)
            path = run_folder(self.out, task, self.semantics, seed=self.seed, settings=settings)
            if not self.json and (caution := task.semantics_of(self.semantics).caution):
                say(f"note: {caution}")
            run = train_task(
                task,
                self.semantics,
                path,
                seed=self.seed,
                settings=settings,
                source=self.task,
                data=str(self.data or ""),
                progress=progress,
            )
            last, held_out = run.load(), run.config["validation"]
            counts = (held_out and last.best_step) or last.step
            if self.json:
                early = last.step < run.config["fitting"]["steps"]
                about = {"steps": last.step, "stopped_early": early, "checkpoint": counts}
                say_json({"run": str(path), **about, "metrics": run.metrics_at(last.step)})
            else:
                say(f"run: {path}")
                if held_out:
                    say(_which(counts, held_out))
        return 0


@dataclass(frozen=True)
class Evaluate:
    """Measure a run on the test data: accuracies, calibration, how far each axiom holds, CPU time, memory."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]
    """Run folders that doxa train made."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.train import clean_exit, evaluate_run
        from doxa.train.tasks._compare import Comparison

        with clean_exit():
            table = Comparison(tuple(evaluate_run(path) for path in self.runs))
            if self.json:
                say_json(table.json())
                return 0
            table.show()
            for path, evaluation in zip(self.runs, table.evaluations, strict=True):
                say(f"\n{path}", "bold")
                if evaluation.held_out:
                    say(f"  {_which(evaluation.checkpoint, evaluation.held_out)}")
                for axiom in evaluation.axioms:
                    say(f"  [{axiom.name}] holds for {axiom.holds:,} of {axiom.instances:,} instances")
        return 0


@dataclass(frozen=True)
class Compare:
    """Train a task under several semantics, side by side, and set them into one table and one report."""

    task: Source
    """The name of a task, see doxa tasks, or a Python file that defines one."""
    semantics: str = "exact,amortized,sampled,refined,fuzzy"
    """Words for ways of reasoning, with commas between."""
    steps: int | None = None
    """Batches to learn from, in place of the task's own number."""
    seed: int = 0
    """Of the first parameters, the order of the data and all that is sampled."""
    settings: Settings = ()
    """Change how all are trained, such as learning_rate=0.01 batch_size=32."""
    out: Path = Path("runs")
    """Run folders are made here; those that are there already go on."""
    data: Path | None = None
    """A folder with MNIST digits of your own, for a task that comes with doxa."""
    jobs: int = 0
    """So many processes of one thread at a time; 0 for as many as there are cores."""
    quiet: bool = False
    """Show no progress."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.train import clean_exit, compare_task, write_task_report

        with clean_exit():
            table, paths = compare_task(
                self.task,
                [word.strip() for word in self.semantics.split(",") if word.strip()],
                out=self.out,
                seed=self.seed,
                settings=[*self.settings, *([] if self.steps is None else [f"steps={self.steps}"])],
                data=self.data,
                jobs=self.jobs,
                progress=not self.quiet and not self.json,
            )
            report = write_task_report(paths, self.out / table.evaluations[0].task)
            if self.json:
                runs = [str(path) for path in paths]
                say_json({"rows": table.json(), "failed": dict(table.failed), "runs": runs, "report": str(report)})
            else:
                table.show()
                say(f"report: {report}")
        return int(bool(table.failed))


@dataclass(frozen=True)
class Report:
    """Write a page about runs of one task: results, knowledge, curves, confusion, calibration, examples."""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]")]
    """Run folders that doxa train made; those not evaluated yet are evaluated first."""
    out: Annotated[Path | None, arg(metavar="DIR")] = None
    """The folder for report.html; by default that of the only run, or the folder that all runs lie in."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        import os

        from doxa.train import clean_exit, evaluate_run, write_task_report

        with clean_exit():
            for path in self.runs:
                if not (path / "evaluation.json").exists():
                    evaluate_run(path)
            out = self.out
            if out is None and len(self.runs) > 1:
                out = Path(os.path.commonpath([path.resolve() for path in self.runs]))
            report = write_task_report(self.runs, out)
            if self.json:
                say_json({"report": str(report)})
            else:
                say(f"report: {report}")
        return 0
