"""One model in several threads: they take turns, for a model keeps plans and inference models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import torch

__all__ = ["Turn", "one_at_a_time"]

P = ParamSpec("P")
R = TypeVar("R")


class Turn:
    """Held by one thread at a time. A copy is another one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turn, ()


class _HasTurn(Protocol):
    turn: Turn


S = TypeVar("S", bound=_HasTurn)


def one_at_a_time(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that one thread at a time is in; ``torch.compile``, which cannot trace a lock, passes it by."""

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.turn.lock:
            return method(self, *args, **kwargs)

    return guarded
