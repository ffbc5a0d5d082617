"""Texts that look otherwise than they are: names that look alike, and characters that reorder what is shown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

BIDIRECTIONAL = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Controls of the direction of writing: a text that has them may be shown in another order than it is read."""

_CYRILLIC = ("АВЕКМНОРСТУХЅІЈаеорсухѕіјһԁԛԝ", "ABEKMHOPCTYXSIJaeopcyxsijhdqw")
_GREEK = ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνο", "ABEZHIKMNOPTYXvo")
_TWINS = str.maketrans(_CYRILLIC[0] + _GREEK[0], _CYRILLIC[1] + _GREEK[1])


def skeleton(name: str) -> str:
    """What a name looks like: names of one skeleton are easily taken for each other.

    >>> skeleton("c\\u0430t") == skeleton("cat"), skeleton("Cat") == skeleton("cat")
    (True, False)
    """
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
