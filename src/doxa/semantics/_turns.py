"""One model in several threads: they take turns, for a model keeps plans and inference models."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch

__all__ = ["Turn", "one_at_a_time"]

F = TypeVar("F", bound=Callable[..., Any])


class Turn:
    """Held by one thread at a time. A copy is another one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turn, ()


def one_at_a_time(method: F) -> F:
    """A method that one thread at a time is in; ``torch.compile``, which cannot trace a lock, passes it by."""

    @wraps(method)
    def guarded(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.turn.lock:
            return method(self, *args, **kwargs)

    return cast(F, guarded)
