"""A dictionary that forgets."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

__all__ = ["Cache", "Same"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(dict[K, V]):
    """A dictionary of at most ``size`` entries: the oldest goes when one too many comes. A copy starts empty.

    >>> squares: Cache[int, int] = Cache(2)
    >>> [squares.find(n, lambda: n * n) for n in (1, 2, 3)], list(squares)
    ([1, 4, 9], [2, 3])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self and len(self) >= self.size:
            del self[next(iter(self))]
        super().__setitem__(key, value)

    def find(self, key: K, make: Callable[[], V]) -> V:
        """The value under a key; made and kept if there is none."""
        if key not in self:
            self[key] = make()
        return self[key]

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
