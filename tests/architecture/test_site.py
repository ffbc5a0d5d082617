"""The site is built from its pages, strictly: a dead link or a page that is in no part of it is an error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    assert (site / "javascripts" / "katex.min.js").stat().st_size > 100_000
    fetched = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(https?:)?//""")
    for page in site.rglob("*.html"):
        found = [m for m in fetched.finditer(page.read_text("utf-8")) if "canonical" not in m[0]]
        assert not found, f"{page.relative_to(site)}: {found[0][0]}"


def test_it_has_the_course_the_commands_and_every_error(site: Path) -> None:
    from doxa import errors
    from doxa.cli._main import COMMANDS

    assert len(list((site / "learn").iterdir())) == 10
    assert "Solution of 1" in (site / "learn" / "01_knowledge" / "index.html").read_text("utf-8")
    commands = (site / "cli" / "index.html").read_text("utf-8")
    assert all(f"doxa {command.__name__.lower()}" in commands for command in COMMANDS)
    named = [name for name in errors.__all__ if name.endswith("Error") and name != "DoxaError"]
    assert all((site / "errors" / name / "index.html").exists() for name in named)
    assert "arithmatex" in (site / "stochastic" / "index.html").read_text("utf-8")
