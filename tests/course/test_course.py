"""The course: every notebook runs, begins with a question, and ends with two exercises and their solutions."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "course"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]*.py"))
QUICK = ("01_knowledge", "04_probabilities")


def run(file: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    spec = importlib.util.spec_from_file_location(f"course_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, _ = module.app.run()
    return tuple(outputs)


def check(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [str(getattr(output, "text", output)) for output in run(file, monkeypatch) if output is not None]
    assert "<h1" in shown[0] and "?" in shown[0], "it begins with a question"
    assert "Solution of 1" in shown[-1] and "Solution of 2" in shown[-1]
    assert not any("Traceback" in text for text in shown)


@pytest.mark.filterwarnings("ignore")  # of other packages, in what they draw
@pytest.mark.parametrize("name", QUICK)
def test_two_notebooks_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(FOLDER / f"{name}.py", monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_every_notebook_runs(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(file, monkeypatch)


def test_there_are_ten() -> None:
    assert [file.stem[:2] for file in NOTEBOOKS] == [f"{n:02}" for n in range(1, 11)]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_jupyter_has_the_same_cells(file: Path) -> None:
    """Each line of code in a Jupyter notebook stands in the marimo file as well, and the other way round."""
    cells = json.loads(file.with_suffix(".ipynb").read_text("utf-8"))["cells"]
    code = {line.strip() for cell in cells if cell["cell_type"] == "code" for line in cell["source"]} - {""}
    prose = {line.strip() for cell in cells if cell["cell_type"] == "markdown" for line in cell["source"]} - {""}
    here = {line.strip() for line in file.read_text("utf-8").splitlines()}
    assert code <= here, f"run `make course`: {sorted(code - here)[:3]}"
    assert {line for line in prose if len(line) > 20} <= {part for line in here for part in (line, line[7:-2])} | here
    kept = {
        line for line in here if "=" in line and not line.startswith(("app =", "if __name__", "mo.md", "#", "*", "-"))
    }
    assert {line for line in kept if line.split(" ")[0].isidentifier() and " = " in line} <= code | prose


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_jupyter_notebooks_are_those_of_today(file: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.ipynb"
    command = [
        sys.executable,
        "-m",
        "marimo",
        "-q",
        "-y",
        "export",
        "ipynb",
        str(file),
        "--sort",
        "top-down",
        "-o",
        str(made),
    ]
    subprocess.run(command, check=True, capture_output=True)
    old, new = (json.loads(path.read_text("utf-8"))["cells"] for path in (file.with_suffix(".ipynb"), made))
    assert [cell["source"] for cell in old] == [cell["source"] for cell in new], "run `make course`"
