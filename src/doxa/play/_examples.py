"""Knowledge to begin with: three examples of the dissertation first, then the others."""

from __future__ import annotations

import os
from pathlib import Path

from doxa.errors import DataError
from doxa.play._state import State

FIRST = ("ravens", "smokers", "sudoku4")


def examples() -> dict[str, Path]:
    """The files of the examples by name.

    >>> list(examples())[:3]
    ['ravens', 'smokers', 'sudoku4']
    """
    folder = Path(__file__).with_name("examples")  # where a wheel has them
    if not folder.is_dir():
        folder = Path(__file__).parents[3] / "examples" / "knowledge"
    found = {file.stem: file for file in folder.glob("*.doxa")}
    names = [*[name for name in FIRST if name in found], *sorted(set(found) - set(FIRST))]
    return {name: found[name] for name in names}


def read_text(file: Path) -> str:
    """The text of a file of knowledge."""
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as text: {error}") from error


def first_file() -> Path:
    """What the page begins with: the file that ``doxa play`` was given, or the first example."""
    name = os.environ.get("DOXA_PLAY_FILE")
    return Path(name) if name else next(iter(examples().values()))


def first_state() -> State:
    """The same as a state."""
    return State(read_text(first_file()))
