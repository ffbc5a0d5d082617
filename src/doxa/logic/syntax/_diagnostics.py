"""What is said about a mistake, and where: spans of source text, diagnostics, and raising all of them at once."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from doxa.errors import KnowledgeError, visible

WINDOW = 120
"""Longer source lines are shown only around the caret."""
SHOWN = 20
"""An error message shows this many diagnostics; ``KnowledgeError.diagnostics`` holds all of them."""


@dataclass(frozen=True)
class Span:
    """A place in a source text: lines and columns count from 1, ``end_column`` is one past the last character.

    ``text`` is the source line; ``file`` is None for text that came from a string.

    >>> Span("zoo.doxa", 3, 5, 8, "pred owl(Bird)").location
    'zoo.doxa:3:5'
    """

    file: str | None
    line: int
    column: int
    end_column: int
    text: str

    @property
    def location(self) -> str:
        """``file:line:column``."""
        return f"{self.file or '<text>'}:{self.line}:{self.column}"

    def excerpt(self) -> str:
        """The source line and, below it, carets under the span.

        >>> print(Span(None, 1, 6, 9, "pred owl(Bird)").excerpt())
        pred owl(Bird)
             ^^^
        """
        start = min(max(self.column - 1, 0), len(self.text))
        end = min(max(self.end_column - 1, start), len(self.text))
        line = [visible(c, keep="\t") for c in self.text]  # some characters are written as several
        first, last = 0, len(line)
        if sum(map(len, line)) > WINDOW:  # a quarter of the window stands before the span, if there is so much
            first, last, room = start, start, WINDOW // 4
            while first and len(line[first - 1]) <= room:
                first, room = first - 1, room - len(line[first - 1])
            room += WINDOW - WINDOW // 4
            while last < len(line) and len(line[last]) <= room:
                last, room = last + 1, room - len(line[last])
            while first and len(line[first - 1]) <= room:
                first, room = first - 1, room - len(line[first - 1])
        left, right = ("..." if first else ""), ("..." if last < len(line) else "")
        before = " " * len(left) + "".join(["\t" if c == "\t" else " " * _width(c) for c in "".join(line[first:start])])
        under = "^" * max(1, sum([_width(c) for c in "".join(line[start : min(end, last)])]))
        return f"{left}{''.join(line[first:last])}{right}\n{before}{under}"


@dataclass(frozen=True)
class Diagnostic:
    """One mistake (``error``) or one doubt (``warning``): what is wrong, how to mend it, and where.

    >>> span = Span("zoo.doxa", 1, 23, 26, "forall x: Bird. flies(oew)")
    >>> print(Diagnostic("error", "unknown name 'oew'", "did you mean 'owl'?", span).render())
    zoo.doxa:1:23: error: unknown name 'oew'
        forall x: Bird. flies(oew)
                              ^^^
        did you mean 'owl'?
    """

    severity: Literal["error", "warning"]
    message: str
    remedy: str | None = None
    span: Span | None = None

    @classmethod
    def of(cls, error: Exception, span: Span | None = None) -> Diagnostic:
        """The diagnostic of an error whose message is ``what; remedy``."""
        message, _, remedy = str(error).partition("; ")
        return cls("error", message, remedy or None, span)

    def render(self) -> str:
        """The diagnostic for people: location and message, source line, carets, remedy; nothing in it is invisible."""
        lines = [visible(f"{self.severity}: {self.message}")]
        if self.span is not None:
            lines = [f"{visible(self.span.location)}: {lines[0]}", *self.span.excerpt().split("\n")]
        if self.remedy is not None:
            lines.append(visible(self.remedy))
        return "\n    ".join(lines)

    __str__ = render


def raise_all(diagnostics: Iterable[Diagnostic]) -> None:
    """Raise one :class:`~doxa.errors.KnowledgeError` that holds all errors; nothing happens when there are none."""
    errors = tuple([d for d in diagnostics if d.severity == "error"])
    if not errors:
        return
    parts = [d.render() for d in errors[:SHOWN]]
    if len(errors) > SHOWN:
        parts.append(f"... and {len(errors) - SHOWN} more errors")
    raise KnowledgeError("\n".join(parts), errors)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like a given one, or None when nothing is near.

    >>> nearest("frends", ["friends", "smokes"]), nearest("Alice", ["alice"]), nearest("x", ["y", "z"])
    ('friends', 'alice', None)
    """
    folded = name.casefold()
    slack = max(1, len(name) // 3)
    likely: list[str] = []
    for other in known:
        if other.casefold() == folded:
            return other
        # Cheap tests first: there may be 100,000 constants.
        if abs(len(other) - len(name)) <= slack and other and name and (other[0] == name[0] or other[-1] == name[-1]):
            likely.append(other)
    matches = difflib.get_close_matches(name, likely[:10_000], n=3, cutoff=0.7)
    swapped = [m for m in matches if sorted(m) == sorted(name)]  # letters that changed places, the commonest slip
    return next(iter(swapped or matches), None)


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """A remedy that names the nearest known name, or else the given one."""
    known = list(known)
    twin = None if name.isascii() and all(map(str.isascii, known)) else skeleton(name)
    for other in known if twin is not None else ():
        if skeleton(other) == twin:
            return f"did you mean {other!r}? They only look alike: {difference(name, other)}"
    near = nearest(name, known)
    return otherwise if near is None else f"did you mean {near!r}?"


def _width(character: str) -> int:
    """Columns a character takes on a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


# --- names that look alike ----------------------------------------------------------------------------------------

BIDIRECTIONAL = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls of the direction of writing: a text that has them may be shown in another order than it is read."""

_CYRILLIC = ("АВЕКМНОРСТУХЅІЈаеорсухѕіјһԁԛԝ", "ABEKMHOPCTYXSIJaeopcyxsijhdqw")
_GREEK = ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνο", "ABEZHIKMNOPTYXvo")
_TWINS = str.maketrans(_CYRILLIC[0] + _GREEK[0], _CYRILLIC[1] + _GREEK[1])


def skeleton(name: str) -> str:
    """What a name looks like: names of one skeleton are easily taken for each other."""
    return name if name.isascii() else unicodedata.normalize("NFKC", name).translate(_TWINS)


def describe(character: str) -> str:
    """A character by its number and name, such as ``U+0430 CYRILLIC SMALL LETTER A``."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def difference(name: str, other: str) -> str:
    """The characters by which names that look alike differ."""
    parts = []
    for this, that in ((name, other), (other, name)):
        own = [describe(c) for c in dict.fromkeys(this) if c not in that]
        parts += [f"{this!r} has {', '.join(own)}"] if own else []
    return "; ".join(parts)


def lookalikes(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names with an earlier one that they look like."""
    first: dict[str, str] = {}
    for name in names:
        if (other := first.setdefault(skeleton(name), name)) != name:
            yield name, other


def mixed(name: str) -> str:
    """The letters of another script in a Latin word that look like Latin ones."""
    letters = [c for c in name if c.isalpha()]
    latin = any(unicodedata.name(c, "").startswith("LATIN") for c in letters)
    return "".join([c for c in letters if latin and c.translate(_TWINS) != c])
