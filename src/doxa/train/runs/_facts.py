"""What a run notes about the place where it began, and nothing that is private."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from doxa._version import __version__


def facts() -> dict[str, Any]:
    """Versions, machine, command line and date. No host, user or folder names, and no path of the program."""
    return {
        "versions": {
            "doxa": __version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        "machine": {
            "platform": f"{platform.system()} {platform.machine()}",
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
        },
        "command": [_program(), *sys.argv[1:]],
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _program() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:  # started by `python -m`
        return f"python -m {spec.name.removesuffix('.__main__')}"
    return PurePath(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
