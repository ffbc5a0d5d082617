"""What the playground shows, as a value that fits into a link."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from doxa.errors import ConfigError

MOST_CHARACTERS = 20_000
"""Of a text in the playground."""


@dataclass(frozen=True)
class State:
    """Knowledge, what is believed, and how to reason: all that a page needs to be shown again.

    Args:
        text: the knowledge.
        beliefs: how probable atoms are, by name; the others are drawn at random from ``seed``.
        counts: how many objects of an open sort, or rows, there are.
        semantics: the two ways of reasoning that stand side by side.

    >>> state = State("pred rain; [wet] rain", {"rain": 0.25})
    >>> State.decode(state.encode()) == state
    True
    """

    text: str = ""
    beliefs: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    semantics: tuple[str, str] = ("exact", "fuzzy:product")

    def encode(self) -> str:
        """As letters, digits, - and _, for a link.

        >>> State("pred rain").encode().isascii()
        True
        """
        packed = zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode(), 9)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, code: str) -> State:
        """The state that `encode` wrote; anything else is an error.

        >>> State.decode("hello")
        Traceback (most recent call last):
        doxa.errors.ConfigError: this link does not hold a state of the playground; copy it again, from ? to its end
        """
        try:
            packed = base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
            unpack = zlib.decompressobj()
            text = unpack.decompress(packed, 40 * MOST_CHARACTERS)
            if unpack.unconsumed_tail:
                raise ValueError("too long")
            return cls._checked(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError, zlib.error, RecursionError):
            said = "this link does not hold a state of the playground; copy it again, from ? to its end"
            raise ConfigError(said) from None

    @classmethod
    def _checked(cls, found: Any) -> State:
        text, semantics = found["text"], found["semantics"]
        if not isinstance(text, str) or len(semantics) != 2 or not all(isinstance(word, str) for word in semantics):
            raise TypeError
        beliefs = {str(name): float(value) for name, value in found["beliefs"].items()}
        if not all(math.isfinite(value) for value in beliefs.values()):
            raise ValueError
        counts = {str(name): int(number) for name, number in found["counts"].items()}
        return cls(text, beliefs, counts, int(found["seed"]), (semantics[0], semantics[1]))
