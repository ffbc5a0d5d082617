"""``doxa tasks``, ``train``, ``evaluate``, ``compare`` and ``report``, as a user types them."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

from doxa.cli import main
from doxa.data import write_idx
from doxa.logic import logits
from doxa.train import Run, Task, find_task, train_task
from doxa.train.tasks._evaluate import read_evaluation

MY_TASK = Path(__file__).parents[2] / "examples" / "my_task.py"


def test_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()[:3]] == ["addition", "multiplication", "equation"]
    assert main(["tasks", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    field = {"evenodd", "half", "xor", "parity", "mod10", "driving", "kandinsky"}
    assert set(document["tasks"]) == {"addition", "multiplication", "equation"} | field
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


def test_what_a_method_cannot_do_is_said_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--steps", "2", "--quiet", "--out", str(tmp_path)]
    assert main(["train", str(MY_TASK), "--semantics", "refined", *options]) == 0
    assert capsys.readouterr().out.startswith("note: refinement looks at the best two worlds of a row alone")


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
        assert main(again) == 1
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
        run = capsys.readouterr().out.splitlines()[-1].removeprefix("run: ")
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
        where = ["--out", str(tmp_path / "runs")] if arguments[0] in ("train", "compare") else []
        assert main([*arguments, *where]) == 1
        out, error = capsys.readouterr()
        assert out == "" and error.startswith(message) and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


SCENES = '''
"""Scenes of one to three objects; of a scene is told whether one of them is bright."""
import torch
from doxa import Ragged

KNOWLEDGE = """
sort Object
sort Answer = {no, yes}
data scenes(objects: Object*, bright: Answer)
pred bright(Object)
[some] forall s in scenes. (exists o in s.objects. bright(o)) <-> s.bright = yes
"""


def scenes(count, seed):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4, (count,), generator=random)
    truth = torch.rand(int(lengths.sum()), generator=random) < 0.3
    images = truth[:, None, None] + 0.1 * torch.randn(len(truth), 2, 2, generator=random)
    told = ["yes" if part.any() else "no" for part in Ragged(truth, lengths)]
    return {"scenes": {"objects": Ragged(images, lengths), "bright": told}}, truth.long()
'''
SCENES_TASK = """
import scenes_data
from torch import nn
import doxa
from doxa.train import Fitting


def symbols():
    from scenes_data import KNOWLEDGE  # a sibling can be imported here too

    return {"bright": doxa.logits(nn.Sequential(nn.Flatten(), nn.Linear(4, 1)))}


def task():
    (train, _), (test, truth) = scenes_data.scenes(300, 0), scenes_data.scenes(40, 1)
    return doxa.Task(
        "scenes", "Is something bright?", scenes_data.KNOWLEDGE, symbols, train, test, target="scenes.bright",
        concepts={"bright": {"scenes.objects": truth}}, images=["scenes.objects"], batch_size=20, validation=30,
        fitting=Fitting(steps=60, learning_rate=0.1, evaluate_every=30),
    )
"""


@pytest.fixture
def scenes_task(tmp_path: Path) -> Path:
    (tmp_path / "scenes_data.py").write_text(SCENES, encoding="utf-8")
    (tmp_path / "scenes_task.py").write_text(SCENES_TASK, encoding="utf-8")
    return tmp_path / "scenes_task.py"


def test_ragged_scenes_through_every_command(
    scenes_task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["exact", "fuzzy", "refined", "sampled", "amortized", "auto"]
    for word in words:
        command = ["train", str(scenes_task), "--semantics", word, "--quiet", "--out", str(tmp_path)]
        assert main(command) == 0
    runs = [tmp_path / "scenes" / word / "60-steps" / "seed-0" for word in words]
    capsys.readouterr()
    assert main(["evaluate", *map(str, runs), "--json"]) == 0
    for row in json.loads(capsys.readouterr().out):
        assert row["task_accuracy"] > 0.9 and row["concept_accuracy"] > 0.9 and row["rows"] == 40
    command = ["compare", str(scenes_task), "--semantics", "exact,fuzzy", "--quiet", "--json", "--out", str(tmp_path)]
    assert main(command) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == {} and document["runs"] == [str(run) for run in runs[:2]]
    assert main(["report", str(runs[0])]) == 0
    lengths = find_task(scenes_task).test["scenes"]["objects"].lengths
    examples = read_evaluation(Run.open(runs[0])).examples
    assert [len(example.pictures) for example in examples] == [int(lengths[example.row]) for example in examples]


def test_siblings_of_a_task_file_stay_its_own(scenes_task: Path, tmp_path: Path) -> None:
    """Two folders with equally named helpers, and a program that has a module of that name itself."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "scenes_data.py").write_text(SCENES.replace("0.3", "0.9"), encoding="utf-8")
    (other / "scenes_task.py").write_text(SCENES_TASK, encoding="utf-8")
    path, mine = list(sys.path), ModuleType("scenes_data")
    sys.modules["scenes_data"] = mine
    try:
        rare, often = (find_task(file) for file in (scenes_task, other / "scenes_task.py"))
        assert sys.modules["scenes_data"] is mine and sys.path == path
        assert set(rare.symbols()) == set(often.symbols()) == {"bright"}
        assert sys.modules["scenes_data"] is mine and sys.path == path
    finally:
        del sys.modules["scenes_data"]
    told = [task.test["scenes"]["bright"].count("yes") for task in (rare, often)]
    assert told[0] < told[1]


def test_a_task_that_draws_with_numpy_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    data = {"points": {"x": x, "label": (x[:, 0] > 0).long()}}
    calls = []

    class Noisy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(0)
            if len(calls) == stop:
                raise KeyboardInterrupt
            noise = np.random.rand() + random.random()  # noqa: NPY002
            return super().forward(x) * (1 + noise * self.training)

    task = Task(
        "noisy", "Signs.",
        """sort Point; sort Bit = 0..1; data points(x: Point, label: Bit); func sign(Point) -> Bit
           [told] forall p in points. s := sign(p.x) (s = p.label)""",
        lambda: {"sign": logits(Noisy(2, 2))}, data, data,
    )  # fmt: skip
    settings = ["steps=20", "batch_size=8", "evaluate_every=5", "log_every=1"]
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    stop = 0
    whole = train_task(task, "exact", tmp_path / "whole", settings=settings, progress=False)
    stop, calls = 13, []
    with pytest.raises(KeyboardInterrupt):
        train_task(task, "exact", tmp_path / "killed", settings=settings, progress=False)
    stop = 0
    killed = train_task(task, "exact", tmp_path / "killed", settings=settings, progress=False)
    assert killed.metrics() == whole.metrics()
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # noqa: NPY002
