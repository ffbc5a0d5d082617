"""``doxa doctor``: what may go wrong with knowledge, or went wrong in a run, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from doxa.cli._knowledge import load_files
from doxa.cli._output import Limited
from doxa.errors import ConfigError


@dataclass(frozen=True)
class Doctor(Limited):
    """Examine knowledge files, or a run: gradients that vanish or go one way, vacuous axioms, saturated networks."""

    sources: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...] | RUN")]
    """Knowledge files, which are read as one knowledge base; or the Python file of a task, or a run folder."""
    logic: str | None = None
    """The fuzzy logic to examine it under, such as product or godel:r; by default the run's own, or product."""
    quantifier: Literal["mean", "logic"] = "mean"
    """What the loss of an axiom is: the mean of the losses of its instances, or the logic's own ∀."""
    draws: int = 64
    """On so many random worlds gradients are tried."""
    objects: int | None = None
    """So many objects of each open sort, and rows of each kind; by default a batch of the task, or 64 if they fit."""

    def run(self) -> int:
        from doxa.doctor import examine, examine_run

        folders = [source for source in self.sources if source.is_dir()]
        if folders and len(self.sources) > 1:
            raise ConfigError("one run is examined at a time; name one run folder, or knowledge files")
        if folders:
            found = examine_run(folders[0], self.logic, seconds=self.limit)
        else:
            found = examine(
                load_files(self.sources),
                self.logic or "product",
                quantifier=self.quantifier,
                draws=self.draws,
                objects=self.objects if self.objects is not None else self._batch_size(),
                seconds=self.limit,
            )
        document = {"logic": found.logic, "findings": [asdict(f) for f in found.findings], "notes": found.notes}
        return self.answer(document, str(found))

    def _batch_size(self) -> int | None:
        """Rows in a batch of the task; None for knowledge files."""
        if self.sources[0].suffix != ".py":
            return None
        from doxa.train import find_task

        return find_task(self.sources[0]).batch_size
