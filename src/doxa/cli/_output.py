"""How commands speak: styled on a terminal, plain when piped, JSON when asked."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from doxa.logic.syntax._diagnostics import Diagnostic


def say(text: str, style: str | None = None, *, stream: TextIO | None = None) -> None:
    """Print text; in a style where the stream is a terminal that has colours."""
    stream = stream or sys.stdout
    if style is not None and stream.isatty():
        from rich.console import Console

        # no markup and no highlighting: knowledge is full of brackets
        Console(file=stream, soft_wrap=True).print(text, style=style, markup=False, highlight=False)
    else:
        print(text, file=stream)


def say_json(document: Any) -> None:
    """Print a JSON document."""
    print(json.dumps(document, ensure_ascii=False, indent=2))


def complain(diagnostic: Diagnostic) -> None:
    """Print a diagnostic to standard error."""
    say(diagnostic.render(), "red" if diagnostic.severity == "error" else "yellow", stream=sys.stderr)


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """A diagnostic for machines."""
    span = diagnostic.span
    place = {} if span is None else {"file": span.file, "line": span.line, "column": span.column}
    return {
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "remedy": diagnostic.remedy,
        **place,
    }


def plural(count: int, thing: str) -> str:
    """``1 axiom``, ``2 axioms``."""
    ending = "ies" if thing.endswith("y") else "s"
    stem = thing[:-1] if thing.endswith("y") else thing
    return f"{count:,} {thing if count == 1 else stem + ending}"
