"""A loop that can be stopped at any moment, and shows how far it is."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from doxa.errors import ConfigError, DoxaError, RunError
from doxa.train.runs._files import plain_numbers, writing
from doxa.train.runs._run import Run
from doxa.train.runs._state import Stateful, capture, non_finite_parameter


def run_steps(
    run: Run,
    step: Callable[[int], Any],
    *,
    steps: int,
    state: Mapping[str, Stateful],
    evaluate: Callable[[], Mapping[str, Any]] | None = None,
    best: str | None = None,
    log_every: int = 100,
    evaluate_every: int = 1000,
    save_every: int = 1000,
    evaluate_after: int = 0,
    prefix_step: int = 0,
    patience: int | None = None,
    leader: bool = True,
    progress: bool = True,
) -> dict[str, float]:
    """Do the steps of a run, from wherever it stands to the end.

    The loop is plain: ``step(i)`` for i = 0, 1, …; after it, where due, a line of metrics, an evaluation and a
    checkpoint, in this order. You own the model and the optimiser; ``step`` does forward, backward and update as it
    likes. If everything that changes from step to step is in ``state`` (for dropout: `GlobalRandom` too), a run
    that was killed at any moment and started again ends with the same bits as one that was not, on one thread.

    Besides the end there are these ways out, each with one message and a folder from which the same call continues:

    - Ctrl-C: the step under way is finished, a checkpoint is saved and ``KeyboardInterrupt`` raised. A second Ctrl-C
      raises it at once, without a checkpoint. (Within `clean_exit` the program ends with exit code 130.)
    - A loss or a parameter that is not finite: ``RunError``; the last checkpoint is from before.
    - A full disk, or any other write that fails: ``RunError``; older checkpoints are intact.
    - Whatever ``step`` or ``evaluate`` raise passes through.

    Args:
        run: the folder to work in.
        step: does the i-th step (from 0) and returns the loss, or metrics by name among which ``"loss"``.
        steps: how many steps there are in all.
        state: whatever has a state, by name; see `Run.save`.
        evaluate: returns metrics by name.
        best: the metric of ``evaluate`` by which the best checkpoint is kept: the highest ``"accuracy"``, or with a
            minus the lowest: ``"-error"``.
        log_every: log the metrics of every n-th step, and of the last.
        evaluate_every: evaluate after every n-th step, and after the last.
        save_every: save after every n-th step, after the last, and whenever an evaluation is the best so far.
        evaluate_after: evaluate after later steps than this only.
        prefix_step: log the metrics of this early step too, for a `Result` to keep.
        patience: stop early when so many evaluations in a row were no better than the best before them.
        leader: of several processes that train together, one leads. The others, with False, do the same steps, read
            checkpoints to go on from, and write nothing.
        progress: show it on standard output.

    Returns:
        The metrics logged at the last step.

    >>> import dataclasses, tempfile, torch
    >>> @dataclasses.dataclass(frozen=True)
    ... class Config:
    ...     rate: float = 0.1
    >>> weight = torch.nn.Linear(1, 1, bias=False)
    >>> optimizer = torch.optim.SGD(weight.parameters(), lr=0.1)
    >>> def step(i):
    ...     loss = (weight(torch.ones(1, 1)) - 3).square().mean()
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = Run.start(folder, Config(), seed=0)
    ...     metrics = run_steps(run, step, steps=100, state={"model": weight, "optimizer": optimizer}, progress=False)
    >>> metrics["loss"] < 1e-6
    True
    """
    for name, every in [("log_every", log_every), ("evaluate_every", evaluate_every), ("save_every", save_every)]:
        if every < 1:
            raise ConfigError(f"{name} is {every}, wanted at least 1")
    if best is not None and evaluate is None:
        raise ConfigError(f"best={best!r} names a metric of evaluate, but no evaluate is given")
    if patience is not None and (best is None or patience < 1):
        raise ConfigError(f"patience={patience} counts evaluations without a new best: at least 1, and best= is needed")
    log = run.log if leader else lambda step, metrics: None
    with _locked(run.path) if leader else nullcontext(), _held_interrupt() as interrupted:
        resumed = run.resume(state) if leader else run.follow(state)
        done = saved = resumed.step if resumed else 0
        best_score = resumed.best_score if resumed else None
        best_step = (resumed.best_step if resumed else None) or 0
        stopped = _lost_patience(patience, done, best_step, evaluate_every)
        if done > steps:
            raise RunError(f"{run.path} is at step {done} already, cannot train it to step {steps}")
        began = done
        with Progress(steps, start=done) if progress and leader else nullcontext() as bar:
            while done < steps and not stopped and not interrupted:
                returned = step(done)
                metrics = plain_numbers(returned if isinstance(returned, Mapping) else {"loss": returned})
                if "loss" not in metrics:
                    raise ConfigError(f"the step returned the metrics {sorted(metrics)}, wanted 'loss' among them")
                done += 1
                if not math.isfinite(metrics["loss"]):
                    raise RunError(_not_finite(f"the loss is {metrics['loss']}", done, saved))
                last, score, shown = done == steps, None, {}
                logged = last or done == prefix_step or done % log_every == 0
                if logged:
                    log(done, metrics)
                    shown = metrics
                if evaluate is not None and done > evaluate_after and (last or done % evaluate_every == 0):
                    measured = plain_numbers(evaluate())
                    log(done, measured)
                    shown = shown | measured
                    score = _score(best, measured)
                new_best = score is not None and (best_score is None or score > best_score)
                best_step = done if new_best else best_step
                stopped = _lost_patience(patience, done, best_step, evaluate_every)
                if stopped and not logged:
                    log(done, metrics)  # the last step is logged, whichever it is
                if bar is not None:
                    bar.show(done, shown)
                if last or stopped or done % save_every == 0 or new_best:
                    _save(run, done, saved, state, score, leader)
                    saved, best_score = done, score if new_best else best_score
        if progress and leader and (began == steps or (stopped and done < steps)):  # what the progress does not show
            before, rest = (" was reached before", "; nothing to do") if began == done else ("", "")
            early = f", stopped early: nothing later was better than step {best_step}" if done < steps else ""
            print(f"step {done} of {steps}{before}{early}{rest}", flush=True)
        if interrupted:
            if done > saved:
                _save(run, done, saved, state, None, leader)
            raise KeyboardInterrupt(
                f"stopped at step {done} of {steps}, saved in {run.path}; start it again to continue"
            )
        return run.metrics_at(done)


@contextmanager
def clean_exit() -> Iterator[None]:
    """End a program with one line on standard error instead of a traceback.

    For the errors of doxa and the system (a missing file, say) the exit code is 1, for Ctrl-C it is 130. Other
    errors are mistakes in a program, and keep their traceback.

    >>> with clean_exit():
    ...     raise RunError("the loss is nan at step 12")
    Traceback (most recent call last):
    SystemExit: 1
    """
    try:
        yield
    except (KeyboardInterrupt, DoxaError, OSError) as error:
        message = str(error) or "interrupted"
        if isinstance(error, OSError) and error.filename:
            message = f"{error.filename}: {error.strerror}"
        print(message, file=sys.stderr)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from error


def _score(best: str | None, measured: Mapping[str, float]) -> float | None:
    if best is None:
        return None
    name = best.removeprefix("-")
    if name not in measured:
        raise ConfigError(f"best={best!r}, but evaluate returned only {sorted(measured)}")
    value = -measured[name] if best.startswith("-") else measured[name]
    return value if math.isfinite(value) else None


def _lost_patience(patience: int | None, done: int, best_step: int, evaluate_every: int) -> bool:
    """A rule over numbers that a checkpoint holds, so that a run that stopped early stays stopped."""
    return patience is not None and best_step > 0 and done - best_step >= patience * evaluate_every


def _save(run: Run, done: int, saved: int, state: Mapping[str, Stateful], score: float | None, leader: bool) -> None:
    # The loss can still be finite after the update that ruined the model; such a state must not become a checkpoint.
    if bad := non_finite_parameter(state):
        raise RunError(_not_finite(f"{bad} holds a number that is not finite", done, saved))
    if leader:
        run.save(done, state, score=score)
    else:
        capture(state)  # taking a state may need all processes


def _not_finite(what: str, done: int, saved: int) -> str:
    where = f"the last checkpoint is of step {saved}" if saved else "there is no checkpoint yet"
    return f"{what} after step {done}; {where}. A lower learning rate or clipped gradients often help"


@contextmanager
def _held_interrupt() -> Iterator[list[int]]:
    """Hold back the first Ctrl-C: it fills the list and the loop looks there between steps."""
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield seen  # signals arrive elsewhere, or are ignored
        return

    def hold(number: int, frame: object) -> None:
        if seen:
            raise KeyboardInterrupt("stopped at once; the last checkpoint is as it was")
        seen.append(number)

    signal.signal(signal.SIGINT, hold)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def discard_unlearnt(run: Run) -> bool:
    """Forget a run that has no checkpoint, so that another may begin in its folder; say whether that was done.

    What else is in the folder stays.
    """
    with _locked(run.path):  # no process is about to write the first one
        if run.saved_steps():
            return False
        for name in ("metrics.jsonl", "run.json"):  # in this order: without run.json it is no run
            (run.path / name).unlink(missing_ok=True)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep a second process from training in the same folder. The system lets go of the lock when a process dies."""
    try:
        import fcntl
    except ImportError:  # not on this system
        yield
        return
    with writing(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        message = f"another process is training in {folder}; wait for it, or choose another folder (--out)"
        raise RunError(message) from error
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)


class Progress:
    """Shows steps, metrics and the time left while a ``with`` block runs.

    On a terminal it is a bar (by rich, loaded only then) that moves with every step. Elsewhere it prints a plain
    line when metrics arrive, at most one in so many seconds, and one for the last step. The ``start`` steps that are
    done already do not count for the time left.

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
        """Say how many steps are done, and which metrics are new; older ones of other names stay in sight."""
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
