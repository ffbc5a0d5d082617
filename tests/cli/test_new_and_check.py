"""``doxa new``, ``doxa check`` of several files, contradictions, and runs that are mended or found from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.train import Run

FIRST = "sort P\npred q(P)\n[first] forall x: P. q(x)\n"
SECOND = "sort P\npred r(P)\n[second] forall x: P. r(x)\n"
WRONG = "pred rain\npred wet\n[soaked] rain -> wet\n\nfact rain\nfact !wet\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("a", FIRST), ("b", SECOND), ("c", "pred s\nfact s\n"), ("wrong", WRONG)):
        (tmp_path / f"{name}.doxa").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_checked_one_by_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.doxa", "b.doxa"]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("fine") == 2 and printed.out.index("a.doxa") < printed.out.index("b.doxa")
    assert main(["check", "a.doxa", "b.doxa", "--together"]) == 1
    assert "already declared" in capsys.readouterr().err
    assert main(["check", "a.doxa", "c.doxa", "--together"]) == 0
    assert "q, s" in capsys.readouterr().out


def test_one_wrong_file_among_several(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "a.doxa", "wrong.doxa", "b.doxa", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert [(f["file"], f["ok"]) for f in document["files"]] == [
        ("a.doxa", True),
        ("wrong.doxa", False),
        ("b.doxa", True),
    ]


def test_a_fact_that_contradicts_an_axiom_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "wrong.doxa"]) == 1
    printed = capsys.readouterr()
    assert (
        "wrong.doxa:5:1: error: no world makes all of this true: fact rain; fact !wet; [soaked] rain -> wet"
        in printed.err
    )
    assert printed.out.strip() == "1 error"
    assert main(["solve", "wrong.doxa"]) == 0, "other commands answer as before"
    assert "unsatisfiable" in capsys.readouterr().out


def test_weights_that_contradict_are_fine_and_solve_says_that_it_takes_them_to_hold(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "weighted.doxa").write_text("pred a\n[maybe, weight 2] a\n[never] !a\n", encoding="utf-8")
    assert main(["check", "weighted.doxa"]) == 0
    assert capsys.readouterr().out.strip().endswith("fine")
    assert main(["solve", "weighted.doxa"]) == 0
    assert capsys.readouterr().out.strip().endswith("axioms with a weight as if they must hold: maybe")


def test_knowledge_is_shown_as_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.doxa").write_text(
        'pred "<script>alert(1)</script>"\n[t] "<script>alert(1)</script>"\n', encoding="utf-8"
    )
    assert main(["show", "odd.doxa", "--as", "html"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!DOCTYPE html>") and "<script" not in page and "&lt;script&gt;" in page


def test_a_new_task_checks_and_trains_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "my_task"]) == 0
    assert main(["check", "my_task.py"]) == 0
    assert main(["train", "my_task.py", "--semantics", "exact", "--steps", "60", "--quiet"]) == 0
    run = "runs/my_task/exact/60-steps/seed-0"
    capsys.readouterr()
    assert main(["evaluate", run, "--json"]) == 0
    (scores,) = json.loads(capsys.readouterr().out)
    assert scores["concept_accuracy"] > 0.9, "bars are easy, and it learns them"
    assert main(["new", "my_task"]) == 1 and "exists already" in capsys.readouterr().err
    for name in ("two words", "9", "../../x y", ""):
        assert main(["new", name]) == 1 and "expected letters" in capsys.readouterr().err
    text = (folder / "my_task.py").read_text("utf-8")
    assert text.count("#") >= 5 and max(map(len, text.splitlines())) <= 120


def test_a_run_that_failed_at_once_does_not_stand_in_the_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "task"]) == 0
    good = (folder / "task.py").read_text("utf-8")
    train = ["train", "task.py", "--semantics", "exact", "--steps", "4", "--quiet"]
    (folder / "task.py").write_text(good.replace("nn.Linear(64, 32)", "nn.Linear(63, 32)"), "utf-8")
    assert main(train) == 1
    (folder / "task.py").write_text(good, "utf-8")
    assert main(train) == 0, capsys.readouterr().err
    run = Run.open("runs/task/exact/4-steps/seed-0")
    assert run.load().step == 4
    # one that has learnt something does
    (folder / "task.py").write_text(
        good.replace("nn.Linear(64, 32)", "nn.Linear(64, 33)").replace("(32, 4)", "(33, 4)"), "utf-8"
    )
    assert main(train) == 1 and "another version" in capsys.readouterr().err
    assert Run.open(run.path).load().step == 4


def test_a_run_is_evaluated_from_another_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "task"]) == 0
    assert main(["train", "task.py", "--semantics", "exact", "--steps", "4", "--quiet"]) == 0
    (folder / "sub").mkdir()
    for place, path in (
        (folder / "sub", "../runs"),
        (folder / "runs" / "task", ".."),
        (Path("/"), str(folder / "runs")),
    ):
        monkeypatch.chdir(place)
        assert main(["evaluate", f"{path}/task/exact/4-steps/seed-0"]) == 0, capsys.readouterr().err
