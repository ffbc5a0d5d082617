"""How far a transfer is: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Report = Callable[[int, int | None], None]
"""Told the bytes there are so far, and the bytes there will be (None where the server does not say)."""


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


@contextmanager
def transfer(label: str, *, show: bool = True, stream: TextIO | None = None) -> Iterator[Report]:
    """Give a function that reports progress on ``stream`` (standard error by default)."""
    stream = sys.stderr if stream is None else stream
    if not show:
        yield lambda done, total: None
    elif stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(file=stream)) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(label, stream)


def _lines(label: str, stream: TextIO) -> Report:
    quarter = -1

    def report(done: int, total: int | None) -> None:
        nonlocal quarter
        now = 4 * done // total if total else 0
        if now != quarter:
            quarter = now
            size = f"{_megabytes(done)} of {_megabytes(total)} ({25 * now} %)" if total else "fetching"
            print(f"{label}: {size}", file=stream, flush=True)

    return report
