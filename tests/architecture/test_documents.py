"""Every Python block of the README and the docs runs, top to bottom, page by page; so does every example script."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / n for n in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")] + sorted(
    (REPOSITORY / "docs").rglob("*.md")
)
EXAMPLES = sorted((REPOSITORY / "examples").rglob("*.py"))
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Language, text and line of each fenced block."""
    text = page.read_text(encoding="utf-8")
    return [(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page share their names; ```python raises nothing, ```output is what the block before printed."""
    monkeypatch.chdir(tmp_path)
    os.symlink(REPOSITORY / "examples", tmp_path / "examples")
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for language, code, line in blocks(page):
        if language == "python":
            stream = io.StringIO()
            # the newlines put the right line number into a traceback
            with contextlib.redirect_stdout(stream):
                exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
            printed = stream.getvalue()
        elif language == "output":
            assert printed.split() == code.split(), f"{page.name}:{line}: prints\n{printed}"
        elif language == "doxa":
            import doxa

            assert isinstance(doxa.parse(code, warn=False), doxa.KnowledgeBase)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), "--smoke"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), f"{script.name} shows nothing"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 100
