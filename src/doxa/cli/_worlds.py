"""``doxa ask`` and ``doxa certify``: which labels rule out shortcuts, and whether those there are do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from doxa.cli._output import Limited
from doxa.errors import ConfigError

if TYPE_CHECKING:
    from doxa.semantics import Model
    from doxa.train import Task


@dataclass(frozen=True)
class AboutLabels(Limited):
    """A command about concept labels of a task."""

    source: Annotated[Positional[str], arg(metavar="TASK | RUN")]
    """The name of a task, see doxa tasks, a Python file that defines one, or a run folder."""
    concepts: Annotated[Path | None, arg(metavar="CSV")] = None
    """A table of concept labels that are known: row, field, concept, value. A run has those it learnt from."""
    joint: int = 64
    """Concepts of one object with more joint values than this are mapped one by one."""
    worlds: int = 1 << 20
    """Go through no more worlds than this."""
    data: Path | None = None
    """A folder with MNIST digits of your own, for a task that comes with doxa."""

    def found(self) -> tuple[Task, Model | None, dict[str, Any]]:
        """The task, the model of a run, and labels and limits as arguments."""
        from doxa.doctor import LIMITS
        from doxa.train import find_task, open_run, read_labels
        from doxa.train.tasks._train import labels_of_run

        if self.worlds < 1:
            raise ConfigError(f"--worlds is {self.worlds}, expected at least 1")
        run = Path(self.source)
        if run.is_dir():
            if self.data is not None:
                raise ConfigError("a run knows its data; --data is for tasks")
            opened, task, model = open_run(run)
        else:
            opened, task, model = None, find_task(self.source, data=self.data, progress=False), None
        if self.concepts is not None:
            labels = read_labels(self.concepts, task)
        else:
            labels = {} if opened is None else labels_of_run(opened, task)
        limits = {"joint": self.joint, "budget": replace(LIMITS, worlds=self.worlds), "seconds": self.limit}
        return task, model, {"labels": labels, **limits}


@dataclass(frozen=True)
class Ask(AboutLabels):
    """Say which concept labels would rule out the most shortcuts, and write a table to fill in."""

    budget: int = 20
    """How many labels to ask for."""
    out: Annotated[Path, arg(metavar="CSV")] = Path("ask.csv")
    """The table to fill in; doxa train --concepts learns from it, doxa certify says what it rules out."""
    maps: int = 2000
    """List no more shortcuts than this."""

    def run(self) -> int:
        from doxa.doctor import ask

        if self.budget < 1:
            raise ConfigError(f"--budget is {self.budget}, expected at least 1")
        task, model, arguments = self.found()
        if self.out.exists():
            raise ConfigError(f"{self.out} is there already, perhaps filled in; name another with --out, or delete it")
        found = ask(task, size=self.budget, model=model, limit=self.maps, **arguments)
        file = found.write(self.out) if found.questions else None
        names = ("shortcuts", "complete", "expected", "share", "assumption")
        document = {
            **{name: getattr(found, name) for name in names},
            "questions": [
                {"row": q.row, "field": q.field, "concept": q.concept, "gain": q.gain, "doubt": q.doubt}
                for q in found.questions
            ],
            "unsure": [{"row": row, "doubt": doubt} for row, doubt in found.unsure],
            "file": None if file is None else str(file),
        }
        return self.answer(document, str(found) + (f"\nto fill in: {file}" if file is not None else ""))


@dataclass(frozen=True)
class Certify(AboutLabels):
    """Say whether concept labels leave a shortcut, and which is the simplest."""

    maps: int = 10_000
    """List no more maps than this to count them."""

    def run(self) -> int:
        from doxa.cli._knowledge import shortcuts_json
        from doxa.doctor import certify

        task, _, arguments = self.found()
        found = certify(task, arguments.pop("labels"), limit=self.maps, **arguments)
        document = {"certified": found.free, "labels_told": found.labels, **shortcuts_json(found.left)}
        return self.answer(document, str(found), "bold green" if found.free else None)
