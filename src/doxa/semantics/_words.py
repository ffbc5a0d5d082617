"""What a call of a model says beside its data: one word for the way of reasoning, and options."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal

from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import KnowledgeBase
from doxa.semantics._semantics import Semantics

__all__ = ["OPTIONS", "WORDS", "Chosen", "Combine", "check_options", "semantics"]

WORDS = ("classical", "fuzzy", "refined", "exact", "sampled", "amortized", "auto")
Chosen = str | Semantics | Mapping[str, str | Semantics] | None
Combine = Literal["sum", "joint"] | Callable[[Tensor], Tensor]
OPTIONS = ("semantics", "generator", "reduction", "combine")
"""Names in a call that are not data."""
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


def check_options(kb: KnowledgeBase, reduction: Any, combine: Any, data: Mapping[str, Any]) -> None:
    """Refuse what is no option, and options that are misspelt and would pass for data."""
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    if not callable(combine) and combine not in ("sum", "joint"):
        raise ConfigError(f"combine is {combine!r}, expected 'sum', 'joint' or an aggregator of doxa.fuzzy")
    for name in [n for n in data if kb.signature.describe(n) is None]:  # misspelt, it would pass for data
        if name in ("quantifier", "impossible", "budget"):
            raise ConfigError(f"{name} is an option of the semantics: semantics=doxa.Exact({name}=...)")
        if near := difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.75):
            raise ConfigError(f"there is no option and no data {name!r}; did you mean {near[0]}=...?")
