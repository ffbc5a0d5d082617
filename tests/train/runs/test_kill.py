"""Killed at any moment and started again, a run ends with the same bits. Real processes, real SIGKILL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("small_task.py")


def report(*arguments: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ten_kills_at_random_moments(tmp_path: Path) -> None:
    found = report("kill", tmp_path, 10)
    assert found["kills"] == 10 and found["finished"] >= 1
    assert found["failed"] == found["different"] == 0, found


@pytest.mark.slow
def test_a_hundred_kills_at_random_moments(tmp_path: Path) -> None:
    found = report("kill", tmp_path, 100)
    assert found["kills"] == 100 and found["finished"] >= 1
    assert found["while_saving"] > 0, "no kill fell into the writing of a checkpoint"
    assert found["failed"] == found["different"] == 0, found


def test_a_kill_at_every_file_operation(tmp_path: Path) -> None:
    found = report("points", tmp_path)
    assert found["points"] >= 30 and found["while_saving"] >= 10
    assert found["different"] == 0, found
    assert found["heavy"] == []  # and loading the room loads nothing that may not be needed
