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

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 when all went well, 1 for mistakes, 130 after Ctrl-C.

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
    """Raise KeyboardInterrupt at Ctrl-C, and again each half second: libraries that are being loaded swallow it."""

    def interrupt(number: int, frame: object) -> None:
        seen.append(number)
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        if not isinstance(sys.exc_info()[1], KeyboardInterrupt):  # it is not being handled yet
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread() or not callable(signal.getsignal(signal.SIGINT)):
        yield  # signals arrive elsewhere, or are ignored
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if seen and alone else before)  # Python takes a while to end
        if seen and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
