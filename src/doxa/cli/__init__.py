"""The command line: knowledge (``check``, ``show``, ``solve``), operators, estimators, figures, reproductions.

Every command is a frozen dataclass whose fields are its options, and a ``run`` that does the work. Answers go to
standard output (coloured on a terminal, plain when piped, JSON with ``--json``), mistakes to standard error with exit
code 1, one line each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 when all went well, 1 for mistakes, 130 after Ctrl-C.

    >>> main(["version"]) == 0
    0.1.0
    True
    """
    try:
        from doxa.cli._main import run  # here, so that Ctrl-C has its answer while this is loaded too

        return run(arguments)
    except KeyboardInterrupt as error:
        print(str(error) or "interrupted", file=sys.stderr)
        return 130
