"""``doxa doctor``: what may go wrong with knowledge, or went wrong in a run, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._knowledge import _load
from doxa.cli._output import say, say_json
from doxa.errors import ConfigError

Sources = Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE [FILE ...] | RUN")]


@dataclass(frozen=True)
class Doctor:
    """Examine knowledge files, or a run: gradients that vanish or go one way, vacuous axioms, saturated networks."""

    sources: Sources
    """Knowledge files, which are read as one knowledge base; or the Python file of a task, or a run folder."""
    logic: str | None = None
    """The fuzzy logic to examine it under, such as product or godel:r; by default the run's own, or product."""
    draws: int = 64
    """On so many random worlds gradients are tried."""
    objects: int = 4
    """So many objects of each open sort, and rows of each kind, a random world has."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.doctor import examine, examine_run

        folders = [source for source in self.sources if source.is_dir()]
        if folders and len(self.sources) > 1:
            raise ConfigError("one run is examined at a time; name one run folder, or knowledge files")
        if folders:
            found = examine_run(folders[0], self.logic)
        else:
            found = examine(_load(self.sources), self.logic or "product", draws=self.draws, objects=self.objects)
        if self.json:
            say_json({"logic": found.logic, "findings": [asdict(f) for f in found.findings], "notes": found.notes})
        else:
            say(str(found))
        return 0
