"""How commands speak: styled on a terminal, plain when piped, JSON when asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from tyro.conf import arg

from doxa.errors import visible

if TYPE_CHECKING:
    from doxa.logic.syntax._diagnostics import Diagnostic


@dataclass(frozen=True, kw_only=True)
class Command:
    """What all commands have in common."""

    json: bool = False
    """Print JSON."""

    def answer(self, document: Any, text: str, style: str | None = None) -> int:
        """Print the document or the text, whichever was asked for; all went well."""
        say_json(document) if self.json else say(text, style)
        return 0


@dataclass(frozen=True, kw_only=True)
class Limited(Command):
    """A command that may take long."""

    limit: Annotated[float | None, arg(metavar="SECONDS")] = None
    """Give up after so many seconds."""


def say(text: str, style: str | None = None, *, stream: TextIO | None = None) -> None:
    """Print text; in a style where the stream is a terminal that has colours."""
    stream, text = stream or sys.stdout, visible(text, keep="\n\t")
    if style is not None and stream.isatty():
        from rich.console import Console

        # no markup and no highlighting: knowledge is full of brackets
        Console(file=stream, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
    else:
        print(text, file=stream)


def say_json(document: Any) -> None:
    """Print a JSON document; in ASCII where a character of it would not be seen, or would steer a terminal."""
    text = json.dumps(document, ensure_ascii=False, indent=2)
    print(text if text.replace("\n", "").isprintable() else json.dumps(document, indent=2))


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with their columns aligned, the first as their heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        say(line, None if number else "bold")


def complain(diagnostic: Diagnostic) -> None:
    """Print a diagnostic to standard error."""
    say(diagnostic.render(), "red" if diagnostic.severity == "error" else "yellow", stream=sys.stderr)


def plural(count: int, thing: str) -> str:
    """``1 axiom``, ``2 axioms``."""
    return f"{count:,} {thing}{'s' * (count != 1)}"
