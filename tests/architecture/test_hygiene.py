"""A repository a stranger can trust: no path of any machine, no secret, no large file, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import doxa

REPOSITORY = Path(__file__).parents[2]
LARGEST = 1_000_000  # bytes
# Written in pieces so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w./])/(?:" + "|".join(["work", "root", "home", "farm", "opt"]) + r")/\w")
SECRET = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|AKIA[0-9A-Z]{16}|gh[pousr]_\w{36}|npm_\w{36}|pypi-AgEI\w{16}")
HOSTS = (r"pypi\." + "org", r"pythonhosted\." + "org", r"registry\.npm" + "js", r"deb\." + "debian")
REGISTRY = re.compile("|".join(HOSTS))


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [REPOSITORY / name for name in listing.stdout.split("\0") if name and (REPOSITORY / name).is_file()]


def test_no_large_file() -> None:
    assert [f.name for f in tracked() if f.stat().st_size > LARGEST] == []


@pytest.mark.parametrize("pattern", [MACHINE_PATH, SECRET, REGISTRY], ids=["path", "secret", "registry"])
def test_no_machine_path_secret_or_registry(pattern: re.Pattern[str]) -> None:
    found = []
    for file in tracked():
        text = file.read_bytes().decode("utf-8", errors="ignore")
        found += [f"{file.relative_to(REPOSITORY)}: {m[0]}" for m in pattern.finditer(text)]
    assert found == []


def test_version_is_one() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert doxa.__version__ == project["version"]
    assert f"version: {project['version']}\n" in citation
    assert f"## {project['version']}" in changelog
