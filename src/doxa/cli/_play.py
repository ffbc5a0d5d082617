"""``doxa play``: the playground in the browser."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._output import say


@dataclass(frozen=True)
class Play:
    """Open the playground in the browser: type knowledge, move beliefs, and see what every semantics makes of it."""

    file: Annotated[Positional[Path | None], arg(metavar="[FILE]")] = None
    """Knowledge to begin with; an example if none is given."""
    port: int | None = None
    """Listen on this port of this machine; by default on any that is free."""
    no_browser: bool = False
    """Print the address, and open nothing."""

    def run(self) -> int:
        from doxa.play._serve import serve

        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
            serve(self.file, port=self.port, open_browser=not self.no_browser, say=say)
        sys.stdout.flush()
        os._exit(0)  # the threads of open pages would keep the process
