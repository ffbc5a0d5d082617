"""One word for each way of reasoning, the same in Python and on the command line."""

from __future__ import annotations

import difflib
from importlib import import_module

from doxa.errors import ConfigError
from doxa.semantics._semantics import Semantics

__all__ = ["WORDS", "semantics"]

WORDS = ("classical", "fuzzy", "refined", "exact", "sampled", "amortized", "auto")
_ARGUMENT = {"fuzzy": "logic", "refined": "logic", "amortized": "model"}


def semantics(word: str | Semantics) -> Semantics:
    """The semantics that a word stands for; after a colon may stand its first argument.

    >>> semantics("exact"), semantics("refined:product").logic
    (Exact(quantifier='mean', impossible='raise', budget=Budget(...)), 'product')
    """
    if isinstance(word, Semantics):
        return word
    name, _, argument = word.partition(":") if isinstance(word, str) else (word, "", "")
    if name not in WORDS or (argument and name not in _ARGUMENT):
        near = difflib.get_close_matches(str(name), WORDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near and near[0] != name else ""
        if name in WORDS:
            hint = f"only {', '.join(_ARGUMENT)} take something after the colon, such as fuzzy:godel; "
        raise ConfigError(
            f"there is no semantics {word!r}; {hint}expected one of {', '.join(WORDS)}, or an object such as "
            "doxa.Exact()"
        )
    found = getattr(import_module(f"doxa.semantics._{name}"), name.capitalize())
    made: Semantics = found(argument) if argument else found()
    return made
