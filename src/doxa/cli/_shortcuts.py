"""``doxa shortcuts``: what networks may get wrong while all knowledge holds, before any of them is trained."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from doxa.cli._knowledge import AboutFiles, load_files
from doxa.cli._output import Limited
from doxa.errors import ConfigError, DataError

if TYPE_CHECKING:
    from doxa.doctor import Shortcuts as Found


@dataclass(frozen=True)
class Shortcuts(AboutFiles, Limited):
    """Count the maps of concepts under which all that the knowledge says stays true: wrong concepts, right answers."""

    data: Annotated[Path | None, arg(metavar="CSV")] = None
    """A table with the true concepts of rows that occur, under a header such as left,right; by default all that can."""
    show: int = 5
    """How many of the simplest shortcuts to list."""
    maps: int = 10_000
    """List no more maps than this to count them."""
    joint: int = 64
    """Concepts of one object with more joint values than this are mapped one by one."""
    worlds: int = 1 << 20
    """Go through no more worlds than this."""

    def run(self) -> int:
        from doxa.doctor import LIMITS, knowledge_shortcuts

        if self.worlds < 1:
            raise ConfigError(f"--worlds is {self.worlds}, expected at least 1")
        found = knowledge_shortcuts(
            load_files(self.files),
            data=None if self.data is None else _columns(self.data),
            show=self.show,
            limit=self.maps,
            joint=self.joint,
            budget=replace(LIMITS, worlds=self.worlds),
            seconds=self.limit,
        )
        return self.answer(_json(found), str(found))


def _columns(file: Path) -> dict[str, list[Any]]:
    """The columns of a table by their names; whole numbers are numbers."""
    with file.open(encoding="utf-8-sig", newline="") as stream:
        lines = [line for line in csv.reader(stream, skipinitialspace=True) if any(cell.strip() for cell in line)]
    if len(lines) < 2:
        raise DataError(f"{file}: wanted a header and at least one row below it, got {len(lines)} lines")
    header = [name.strip() for name in lines[0]]
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise DataError(f"{file}:{number}: wanted {len(header)} cells, as the header has, got {len(line)}")
    cells = zip(*lines[1:], strict=True)
    return {name: [_value(cell.strip()) for cell in column] for name, column in zip(header, cells, strict=True)}


def _value(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def _json(found: Found) -> dict[str, Any]:
    return {
        "maps": found.count,
        "complete": found.complete,
        "assumption": found.assumption,
        "undecided": found.undecided,
        "worlds": found.worlds,
        "concepts": {c.name: list(c.variables) for c in found.concepts},
        "simplest": [
            {
                c.name: {c.values[v]: c.values[u] for v, u in moves.items()}
                for c, moves in zip(found.concepts, shortcut.moves, strict=True)
                if moves
            }
            for shortcut in found.simplest
        ],
        "labels": [{"concept": c.name, "value": c.values[v]} for c, v in found.labelled],
        "outputs": found.outputs,
        "unmixable": found.unmixable,
    }
