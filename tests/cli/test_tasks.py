"""``doxa tasks``, ``train``, ``evaluate``, ``compare`` and ``report``, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from doxa.cli import main
from doxa.data import write_idx

MY_TASK = Path(__file__).parents[2] / "examples" / "my_task.py"


def test_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()[:3]] == ["addition", "multiplication", "equation"]
    assert main(["tasks", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["tasks"]) == {"addition", "multiplication", "equation"}
    assert {"exact", "amortized", "sampled", "refined", "fuzzy", "auto"} == set(document["semantics"])


def test_the_example_is_short_and_does_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(MY_TASK.read_text(encoding="utf-8").splitlines()) <= 60
    out = ["--out", str(tmp_path)]
    assert main(["train", str(MY_TASK), "--semantics", "exact", "--steps", "200", "--quiet", *out]) == 0
    run = tmp_path / "heights" / "exact" / "200-steps" / "seed-0"
    assert capsys.readouterr().out == f"run: {run}\n"
    assert main(["report", str(run)]) == 0  # it has not been evaluated, and is now
    assert capsys.readouterr().out == f"report: {run / 'report.html'}\n"
    assert "heights: exact" in (run / "report.html").read_text(encoding="utf-8")
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert "| exact | 9" in printed or "| exact | 100" in printed
    assert "[difference] holds for " in printed

    # the run that is there is not trained again
    before = (run / "metrics.jsonl").read_bytes()
    assert main(["compare", str(MY_TASK), "--semantics", "fuzzy, exact", "--steps", "200", "--json", *out]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["semantics"] for row in document["rows"]] == ["fuzzy", "exact"] and document["failed"] == {}
    for row in document["rows"]:
        assert row["task_accuracy"] > 0.9 and row["concept_accuracy"] > 0.9 and row["warnings"] == []
    assert (run / "metrics.jsonl").read_bytes() == before
    assert document["runs"][1] == str(run) and document["report"] == str(tmp_path / "heights" / "report.html")
    page = Path(document["report"]).read_text(encoding="utf-8")
    assert "heights under 2 semantics" in page and "height(p.left) = " in page  # a world that explains a row


def test_an_early_end_and_the_checkpoint_that_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So small a rate changes nothing: the first of equal checkpoints is the best, and patience ends it."""
    settings = ["--set", "validation=200", "patience=2", "evaluate_every=5", "learning_rate=1e-12"]
    command = ["train", str(MY_TASK), "--steps", "60", *settings, "--out", str(tmp_path)]
    assert main(command) == 0
    *_, ended, where, which = capsys.readouterr().out.splitlines()
    assert ended == "step 15 of 60, stopped early: nothing later was better than step 5"
    assert which == "the checkpoint of step 5 counts, the best on 200 training rows held out"
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("step 15 of 60 was reached before, stopped early: ")
    assert main([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["steps"], document["stopped_early"], document["checkpoint"]) == (15, True, 5)
    run = where.removeprefix("run: ")
    assert main(["evaluate", run]) == 0
    assert which in capsys.readouterr().out
    assert main(["evaluate", run, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["checkpoint"], row["held_out"]) == (5, 200)


def test_compare_tells_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    supervised = "supervised=lambda model, data: None if isinstance(model.semantics, doxa.Fuzzy) else 0.0"
    text = MY_TASK.read_text(encoding="utf-8").replace("fitting=", f"{supervised}, fitting=")
    file.write_text(text, encoding="utf-8")
    command = ["compare", str(file), "--semantics", "fuzzy,exact", "--steps", "2", "--quiet", "--out", str(tmp_path)]
    assert main(command) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| exact | ") and "Satisfaction is the share of instances that hold" in lines[4]
    assert lines[-2].startswith("- fuzzy failed: supervised returned NoneType")
    assert lines[-1] == f"report: {tmp_path / 'heights' / 'report.html'}" and Path(lines[-1][8:]).is_file()


def test_a_changed_file_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MY_TASK.read_text(encoding="utf-8"), encoding="utf-8")
    command = ["train", str(file), "--steps", "2", "--out", str(tmp_path / "runs")]
    assert main(command) == 0
    run = capsys.readouterr().out.splitlines()[-1].removeprefix("run: ")
    assert main(command) == 0
    assert capsys.readouterr().out == f"step 2 of 2 was reached before; nothing to do\nrun: {run}\n"
    file.write_text(file.read_text(encoding="utf-8").replace("pairs(2000, seed=0)", "pairs(2000, seed=7)"))
    for again in (command, ["evaluate", run]):
        with pytest.raises(SystemExit):
            main(again)
        error = capsys.readouterr().err
        assert f"the run in {run} is of another version of {file} (its training data have changed); train" in error


def test_a_task_that_comes_with_doxa_on_digits_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = tmp_path / "digits"
    digits.mkdir()
    for name, count in (("train", 200), ("t10k", 60)):
        labels = torch.arange(count) % 10
        images = (25 * labels)[:, None, None].expand(count, 28, 28).to(torch.uint8)
        write_idx(digits / f"{name}-images-idx3-ubyte", images.contiguous())
        write_idx(digits / f"{name}-labels-idx1-ubyte", labels.to(torch.uint8))
    options = ["--data", str(digits), "--out", str(tmp_path / "runs"), "--steps", "2", "--quiet"]
    for task, rows in (("addition", 30), ("multiplication", 30), ("equation", 1)):
        assert main(["train", task, "--semantics", "refined", *options]) == 0
        run = capsys.readouterr().out.removeprefix("run: ").strip()
        assert main(["evaluate", run, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert row["rows"] >= rows and 0 <= row["satisfaction"][next(iter(row["satisfaction"]))] <= 1


def test_mistakes_end_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import doxa\n", encoding="utf-8")
    for arguments, message in [
        (["train", "adition"], "there is no task 'adition'; did you mean 'addition'?"),
        (["train", str(file)], f"{file} has no `task`: define `task = doxa.Task(...)` in it"),
        (["train", str(tmp_path / "none.py")], f"there is no file {tmp_path / 'none.py'}"),
        (["train", str(MY_TASK), "--semantics", "exakt"], "there is no semantics 'exakt'; did you mean 'exact'?"),
        (["train", str(MY_TASK), "--set", "step=3"], "unknown key 'step'; did you mean 'steps'?"),
        (["compare", str(MY_TASK), "--semantics", "exact,exact"], "the semantics 'exact' is named twice"),
        (["compare", str(MY_TASK), "--semantics", "exact,fuzy"], "there is no semantics 'fuzy'; did you mean 'fuzzy'?"),
        (["evaluate", str(tmp_path)], f"{tmp_path} is not a run"),
        (["report", str(tmp_path)], f"{tmp_path} is not a run: it has no run.json; train one with doxa train"),
    ]:
        with pytest.raises(SystemExit) as caught:
            main([*arguments, *(["--out", str(tmp_path / "runs")] if arguments[0] in ("train", "compare") else [])])
        assert caught.value.code == 1
        out, error = capsys.readouterr()
        assert out == "" and error.startswith(message) and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()
