"""The command line: knowledge (``check``, ``show``, ``solve``), operators, estimators, figures, reproductions.

Every command is a frozen dataclass whose fields are its options, and a ``run`` that does the work. Answers go to
standard output (coloured on a terminal, plain when piped, JSON with ``--json``), mistakes to standard error with exit
code 1, one line each.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 when all went well, 1 for mistakes, 130 after Ctrl-C or when it
    was told to terminate.

    >>> main(["version"]) == 0
    0.1.0
    True
    """
    seen: list[int] = []
    with _insisting(seen, alone=arguments is None):
        try:
            from doxa.cli._main import run  # here, so that Ctrl-C has its answer while this is loaded too

            return run(arguments)
        except BaseException as error:
            told = isinstance(error.__cause__, KeyboardInterrupt)  # by clean_exit
            if not (seen or told or isinstance(error, KeyboardInterrupt)):
                raise
            seen.append(signal.SIGINT)
            if told:
                return 130
            said = str(error) if isinstance(error, KeyboardInterrupt) else ""
    print(said or "interrupted", file=sys.stderr)
    return 130


@contextmanager
def _insisting(seen: list[int], alone: bool) -> Iterator[None]:
    """Raise KeyboardInterrupt at Ctrl-C, and again each half second: libraries that are being loaded swallow it.

    A command that is told to terminate does the same, also where Ctrl-C is ignored, as in the background of a shell.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):  # it is not being handled yet
            raise KeyboardInterrupt

    def terminate(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # of this moment: training holds Ctrl-C back until a step is done
        (handler if callable(handler) else interrupt)(number, frame)

    if threading.current_thread() is not threading.main_thread():
        yield  # signals arrive elsewhere
        return
    before = {}
    if callable(signal.getsignal(signal.SIGINT)):  # not ignored
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    if alone:
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if seen and alone else handler)  # Python takes a while to end
        if seen and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
