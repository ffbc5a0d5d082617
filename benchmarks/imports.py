"""What `import doxa` costs beside `import torch`, each in a new process, in turn.

Bytecode is kept, as for an installed package: the first process writes it, for torch and for doxa, to a folder of the
benchmark. Python's collector is off in all processes but those of the last row. It makes a full pass over the objects
that torch has made when some thousand more have been made, whoever makes them; that pass takes about as long as all
else that doxa does in its import, and any other program of some size pays for it in the same way: the note of that row
says what ``import torch`` and one such pass cost together.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from harness import Row, summary

TORCH = "import torch"
COLLECTION = "import torch, gc\ngc.collect()"
PLAIN = "import torch, doxa"
EVERY_NAME = "import torch, doxa\nfor name in doxa.__all__: getattr(doxa, name)"
NAMES = {"import doxa": (PLAIN, False), "import doxa and touch every public name": (EVERY_NAME, False)}
COLLECTED = {"import doxa and touch every public name, collector on": (EVERY_NAME, True)}


def import_seconds(statement: str, folder: str, collect: bool = False) -> float:
    """CPU seconds that a statement takes in a fresh interpreter."""
    switch = "" if collect else "import gc; gc.disable()\n"
    code = f"{switch}import time; start = time.process_time()\n{statement}\nprint(time.process_time() - start)"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": folder}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def rows() -> list[Row]:
    cases = NAMES | COLLECTED
    floor: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in cases}
    with tempfile.TemporaryDirectory() as folder:
        for statement in (TORCH, EVERY_NAME):  # write the bytecode, fill the file cache
            import_seconds(statement, folder)
        for _ in range(9):
            floor.append(import_seconds(COLLECTION, folder, True))
            torch_alone = {collect: import_seconds(TORCH, folder, collect) for collect in (False, True)}
            floor[-1] /= torch_alone[True]
            for name, (statement, collect) in cases.items():
                ratios[name].append(import_seconds(statement, folder, collect) / torch_alone[collect])
    notes = dict.fromkeys(COLLECTED, f"{statistics.median(floor):.2f} with one full pass and without doxa")
    return [
        summary(f"{name}, against import of torch", r, goal=1.15, better="lower", note=notes.get(name, ""))
        for name, r in ratios.items()
    ]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
