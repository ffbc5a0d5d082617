"""Ctrl-C during a long search."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

KNOWLEDGE = """
sort Image
sort Digit = 0..9
data triples(x: Image, y: Image, z: Image)
func digit(Image) -> Digit
[even] forall t in triples. (digit(t.x) + digit(t.y) + digit(t.z)) mod 2 = 0
"""
PROGRAM = """
import sys
from doxa.cli import main
from doxa.doctor._maps import MapSearch

models = MapSearch._models

def announced(search):
    print("searching", flush=True)
    return models(search)

MapSearch._models = announced
sys.exit(main(["shortcuts", sys.argv[1]]))
"""


def test_ctrl_c_in_a_long_search(tmp_path: Path) -> None:
    """2 · 5^10 maps explain everything; they are listed one by one, up to a limit, for seconds."""
    file = tmp_path / "even.doxa"
    file.write_text(KNOWLEDGE)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # even if it is ignored here
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "searching\n"
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    assert process.returncode == 130
    assert not rest and "Traceback" not in errors
