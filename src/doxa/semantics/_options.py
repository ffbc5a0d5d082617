"""The options of a call of a model, which stand beside the data."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import KnowledgeBase
from doxa.semantics._semantics import Semantics

__all__ = ["OPTIONS", "Chosen", "Combine", "check_options", "unsaid"]

Chosen = str | Semantics | Mapping[str, str | Semantics] | None
Combine = Literal["sum", "joint"] | Callable[[Tensor], Tensor]
OPTIONS = ("semantics", "generator", "reduction", "combine")
"""Names in a call that are not data."""


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


def unsaid() -> ConfigError:
    """The error where nobody says how to reason."""
    return ConfigError("say how to reason: loss(semantics='exact', ...), or Model(kb, 'exact', ...)")
