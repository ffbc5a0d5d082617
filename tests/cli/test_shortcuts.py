"""``doxa shortcuts`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.train import Fitting, Run

ADDITION = Path(__file__).parents[2] / "examples" / "knowledge" / "addition.doxa"


def test_addition_is_free_of_shortcuts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shortcuts", str(ADDITION)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no shortcut: only the true concepts explain all 100 worlds\n17 of 19 outputs")


def test_few_rows_leave_shortcuts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "digits.csv"
    table.write_text("left, right, sum\n0,1,1\n\n0,0,0\n", encoding="utf-8")
    assert main(["shortcuts", str(ADDITION), "--data", str(table), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["maps"] == 1 and said["worlds"] == 2  # 0 + 0 = 0 fixes the 0, and that the 1
    table.write_text("left,right\n0,1\n", encoding="utf-8")
    assert main(["shortcuts", str(ADDITION), "--data", str(table), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["maps"] == 2 and said["simplest"] == [{"digit": {"0": "1", "1": "0"}}]
    assert said["labels"] in ([{"concept": "digit", "value": "0"}], [{"concept": "digit", "value": "1"}])


def test_of_a_task_and_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = str(ADDITION.parents[1] / "my_task.py")
    assert main(["shortcuts", task]) == 0
    said = capsys.readouterr().out
    assert said.startswith("no shortcut: only the true concepts explain all 16 worlds")
    assert main(["train", task, "--steps", "1", "--quiet", "--out", str(tmp_path)]) == 0
    run = capsys.readouterr().out.removeprefix("run: ").strip()
    assert main(["shortcuts", run]) == 0
    assert capsys.readouterr().out == said
    Run.create(tmp_path / "other", Fitting(), seed=0)
    assert main(["shortcuts", str(tmp_path / "other")]) == 1
    assert "is a run without knowledge" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("left,right\n", "a header and at least one row"),
        ("left,right\n1\n", ":2: wanted 2 cells"),
        ("a\n1\n", "column"),
    ],
)
def test_mistakes_in_tables(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "digits.csv"
    table.write_text(text, encoding="utf-8")
    assert main(["shortcuts", str(ADDITION), "--data", str(table)]) == 1
    assert message in capsys.readouterr().err
