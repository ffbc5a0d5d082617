"""How far a run is: a bar on a terminal, plain lines in a pipe or a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TextIO


class Progress:
    """Shows steps, metrics and the time left while a ``with`` block runs.

    On a terminal it is a bar (by rich, loaded only then) that moves with every step. Elsewhere it prints a plain
    line when metrics arrive, at most one every few seconds, and one for the last step.

    Args:
        total: how many steps there are.
        start: how many are done already; they do not count for the time left.
        stream: where to; standard output if left out.
        seconds: the least time between two plain lines.

    >>> with Progress(200) as progress:
    ...     progress.show(200, {"loss": 0.51234})
    step 200/200  loss 0.5123  time left 0:00:00
    """

    def __init__(self, total: int, *, start: int = 0, stream: TextIO | None = None, seconds: float = 5.0) -> None:
        self.total = total
        self._start = start
        self._stream = stream or sys.stdout
        self._seconds = seconds
        self._began = time.monotonic()
        self._printed = -float("inf")
        self._metrics: dict[str, float] = {}
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            from rich import progress as bar
            from rich.console import Console

            metrics, left = bar.TextColumn("{task.fields[metrics]}"), bar.TextColumn("left")
            times = (bar.TimeElapsedColumn(), left, bar.TimeRemainingColumn())
            columns = (bar.BarColumn(), bar.MofNCompleteColumn(), metrics, *times)
            self._bar = bar.Progress(*columns, console=Console(file=self._stream))
            self._task = self._bar.add_task("", total=self.total, completed=self._start, metrics="")
            self._bar.start()
        return self

    def show(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Say that a step is done.

        Args:
            step: how many steps are done.
            metrics: what is new; older metrics of other names stay in sight.
        """
        self._metrics.update(metrics or {})
        if self._bar is not None:
            self._bar.update(self._task, completed=step, metrics=self._text())
        elif metrics and (step == self.total or time.monotonic() - self._printed >= self._seconds):
            elapsed = time.monotonic() - self._began
            left = elapsed / max(step - self._start, 1) * (self.total - step)
            line = f"step {step}/{self.total}  {self._text()}  time left {timedelta(seconds=round(left))}"
            print(line, file=self._stream, flush=True)
            self._printed = time.monotonic()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _text(self) -> str:
        return "  ".join(f"{name} {value:.4g}" for name, value in self._metrics.items())
