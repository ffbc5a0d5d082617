"""What `import doxa` costs beside `import torch`, each in a new process, in turn."""

from __future__ import annotations

import subprocess
import sys

from harness import Row, summary

TORCH = "import torch"
PLAIN = "import torch, doxa"
EVERY_NAME = "import torch, doxa\nfor name in doxa.__all__: getattr(doxa, name)"


def import_seconds(statement: str) -> float:
    """CPU seconds that a statement takes in a fresh interpreter."""
    code = f"import time; start = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def rows() -> list[Row]:
    ratios: dict[str, list[float]] = {"import doxa": [], "import doxa and touch every public name": []}
    for statement in (TORCH, PLAIN, EVERY_NAME):  # fill the file cache
        import_seconds(statement)
    for _ in range(7):
        torch_alone = import_seconds(TORCH)
        for name, statement in zip(ratios, (PLAIN, EVERY_NAME), strict=True):
            ratios[name].append(import_seconds(statement) / torch_alone)
    return [summary(f"{name}, against import torch", r, goal=1.15, better="lower") for name, r in ratios.items()]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
