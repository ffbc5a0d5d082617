"""The wheel, installed in a new environment outside the clone, runs an example."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_and_sdist_build_and_the_wheel_runs_an_example() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's tmp_path, which is kept: this is most of a gigabyte
        build_install_and_run(Path(folder))


def build_install_and_run(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", REPOSITORY, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("doxa-*.whl")
    (_,) = (tmp_path / "dist").glob("doxa-*.tar.gz")
    knowledge = {
        f"doxa/train/tasks/knowledge/{name}.doxa" for name in ("addition", "equation", "multiplication", "same", "sum9")
    }
    assert knowledge <= set(zipfile.ZipFile(wheel).namelist())
    home = tmp_path / "elsewhere"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    run(*pip, "-c", REPOSITORY / "constraints.txt", wheel, cwd=tmp_path)
    location = run(python, "-c", "import doxa; print(doxa.__file__)", cwd=tmp_path)
    assert str(home) in location
    for script in sorted((REPOSITORY / "examples").glob("*.py"))[:1]:
        assert run(python, script, "--smoke", cwd=tmp_path)
    assert "smokes" in run(home / "bin" / "doxa", "show", REPOSITORY / "examples/knowledge/smokers.doxa", cwd=tmp_path)
