"""What the settings of experiments have in common: checks, and a learning rate that falls."""

from __future__ import annotations

from math import cos, pi
from typing import Any, get_args

from doxa.errors import ConfigError


def require_positive(config: Any, *names: str) -> None:
    """Raise an error that names the first of these settings that is not more than 0."""
    for name in names:
        if not getattr(config, name) > 0:
            raise ConfigError(f"{name} is {getattr(config, name)}, expected more than 0")


def require_nonnegative(config: Any, *names: str) -> None:
    """Raise an error that names the first of these settings that is less than 0."""
    for name in names:
        if not getattr(config, name) >= 0:
            raise ConfigError(f"{name} is {getattr(config, name)}, expected 0 or more")


def require_decay(config: Any, name: str) -> None:
    """Raise an error if a setting cannot be the decay of a moving average."""
    if not 0 <= getattr(config, name) < 1:
        raise ConfigError(f"{name} is {getattr(config, name)}, expected at least 0 and below 1, such as 0.999")


def require_one_of(config: Any, name: str, literal: Any) -> None:
    """Raise an error if a setting is none of the words of a ``Literal``."""
    if getattr(config, name) not in get_args(literal):
        raise ConfigError(f"{name} is {getattr(config, name)!r}, expected one of {', '.join(get_args(literal))}")


def half_cosine(step: int, last: int) -> float:
    """The share of the learning rate that is left at a step: from 1 at 0 to 0 at the last, and always 1 if last is 0.

    >>> [round(half_cosine(step, 100), 3) for step in (0, 50, 100, 150)], half_cosine(7, 0)
    ([1.0, 0.5, 0.0, 0.0], 1.0)
    """
    return (1 + cos(pi * min(1.0, step / last))) / 2 if last > 0 else 1.0
