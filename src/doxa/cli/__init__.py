"""The command line: knowledge (``check``, ``show``, ``solve``), operators, estimators, figures, reproductions.

Every command is a frozen dataclass whose fields are its options, and a ``run`` that does the work. Answers go to
standard output (coloured on a terminal, plain when piped, JSON with ``--json``), mistakes to standard error with exit
code 1.
"""

from doxa.cli._main import main

__all__ = ["main"]
