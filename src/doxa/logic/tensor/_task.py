"""Work that waits for other work, without recursion: formulas nest deeper than Python's stack."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

__all__ = ["Task", "drive"]

Task = Generator["Task", Any, Any]
"""Work that may wait for other work: it yields tasks and is sent what they return."""


def drive(task: Task) -> Any:
    """Run a generator that yields generators, sending each what the one it yielded returned."""
    stack: list[Task] = [task]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as end:
            stack.pop()
            value = end.value
        else:
            stack.append(inner)
            value = None
    return value
