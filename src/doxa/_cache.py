"""What is kept from call to call: a dictionary that forgets, a key for what cannot be hashed, and a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import Any, TypeVar

import torch

__all__ = ["Cache", "Lock", "Same", "for_later"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lock:
    """A lock that its thread may take again; a copy is a lock of its own, so that what has one can be copied.

    >>> lock = Lock()
    >>> with lock, lock:
    ...     print("inside")
    inside
    """

    def __init__(self) -> None:
        self.held = threading.RLock()

    def __enter__(self) -> None:
        self.held.acquire()

    def __exit__(self, *_: object) -> None:
        self.held.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()


def for_later(make: Callable[[], V]) -> V:
    """What is made, such that later calls may differentiate with it: without inference mode, whose tensors forbid that.

    >>> with torch.inference_mode():
    ...     for_later(lambda: torch.ones(2)).is_inference()
    False
    """
    with ExitStack() as modes:
        if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))
            modes.enter_context(torch.no_grad())
        return make()


class Cache(dict[K, V]):
    """A dictionary of at most ``size`` entries: the oldest goes when one too many comes. A copy starts empty.

    >>> squares: Cache[int, int] = Cache(2)
    >>> [squares.find(n, lambda: n * n) for n in (1, 2, 3)], list(squares)
    ([1, 4, 9], [2, 3])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._lock = Lock()

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            if key not in self and len(self) >= self.size:
                del self[next(iter(self))]
            super().__setitem__(key, value)

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value under a key; made and kept if there is none."""
        try:
            return self[key]
        except KeyError:
            pass
        self[key] = value = for_later(make)  # another thread may do the same, or push it out again
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.size,)


class Same:
    """A key that equals itself alone, for things that cannot be hashed; it keeps them alive.

    >>> things: list[int] = []
    >>> Same(things) == Same(things), Same(things) == Same([])
    (True, False)
    """

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)
