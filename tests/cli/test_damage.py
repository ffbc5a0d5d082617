"""Run folders with damaged files: every file, every kind of damage, every command; an exit code and a line each."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from doxa.cli import main
from doxa.train import Run

TASK = '''
import torch, doxa
from doxa.train import Fitting, Task
x = torch.linspace(-1, 1, 24)[:, None]
data = {"points": {"x": x, "label": (x[:, 0] > 0).long()}}
task = Task(
    "signs", "Is it positive?",
    """sort Point; sort Bit = 0..1; data points(x: Point, label: Bit); func sign(Point) -> Bit
       [told] forall p in points. s := sign(p.x) (s = p.label)""",
    lambda: {"sign": doxa.logits(torch.nn.Linear(1, 2))}, data, data, target="points.label",
    concepts={"sign": {"points.x": data["points"]["label"]}}, fitting=Fitting(steps=4, evaluate_every=2, log_every=1))
'''

BYTES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "not UTF-8": lambda data: b"\xff\xfe" + data[2:],
    "zeros": lambda data: bytes(len(data)),
    "a list": lambda data: b"[]\n",
    "a string": lambda data: b'"x"\n',
    "null": lambda data: b"null\n",
    "nested too deep": lambda data: b"[" * 100_000 + b"\n",
    "an object of objects": lambda data: b'{"loss": {}, "step": {}, "peak_megabytes": {}, "config": {}}\n',
}
DAMAGE = [*BYTES, "a folder", "missing"]
FILES = ["run.json", "metrics.jsonl", "memory.json", "evaluation.json", "last.json", "last.safetensors", "all.json"]
AGAIN = ["task.py", "--semantics", "fuzzy", "--quiet"]
QUICK = ["train", "evaluate", "check", "doctor"]
COMMANDS = [*QUICK, "report", "show", "solve", "shortcuts"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    (folder / "task.py").write_text(TASK, encoding="utf-8")
    with chdir(folder):
        assert main(["train", *AGAIN]) == 0
        (run,) = folder.glob("runs/signs/fuzzy/*/seed-0")
        assert main(["evaluate", str(run)]) == 0
    return run


def damaged(trained: Path, folder: Path, file: str, damage: str) -> Path:
    """A copy of a run in which a file is damaged: the last checkpoint for "last", or all of them."""
    run = folder / "runs" / trained.relative_to(trained.parents[3])
    shutil.copytree(trained, run)
    shutil.copy(trained.parents[4] / "task.py", folder / "task.py")
    checkpoints = sorted((run / "checkpoints").glob(f"*{Path(file).suffix}"))
    assert len(checkpoints) == 2 or file == "metrics.jsonl"
    for path in {"last": checkpoints[-1:], "all": checkpoints}.get(Path(file).stem, [run / file]):
        data = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        elif damage != "missing":
            path.write_bytes(BYTES[damage](data))
    return run


def run_command(command: str, run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and what was said on standard error; whatever else than these is raised fails the test."""
    options = {"train": AGAIN, "show": [str(run), "--as", "unicode"]}.get(command, [str(run)])
    with warnings.catch_warnings(), chdir(run.parents[4]):
        warnings.simplefilter("always")
        code = main([command, *options])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("command", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS])
def test_every_file_and_every_damage(
    command: str, file: str, damage: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged(trained, tmp_path, file, damage)
    code, said = run_command(command, run, capsys)
    assert_one_line(code, said)
    if command == "train":  # it can do without all but its description and one good checkpoint
        blocked = damage == "a folder" and file.startswith("last")  # where the next checkpoint is to be written
        assert code == (file == "run.json" or blocked or (file == "all.json" and damage != "missing"))
        assert code or Run.open(run).load().step == 4


def assert_one_line(code: int, said: str) -> None:
    """One line if it failed, besides warnings, and the indented remedy below a mistake in knowledge."""
    assert code in (0, 1)
    lines = [line for line in said.splitlines() if not line.startswith(("warning: ", "    "))]
    assert len(lines) == code and "Traceback" not in said, said


ODD: list[Any] = ["x", [], {}, None, -1, 1.5, True, {"a": {}}]
KEYS = ["config", "seed", "versions", "machine", "command", "started"]
KEYS += [f"config.{key}" for key in ("task", "semantics", "meaning", "knowledge", "data", "batch_size", "validation")]
KEYS += ["config.fitting", "config.fitting.steps", "config.fitting.schedule", "config.fingerprint"]


@pytest.mark.parametrize("command", QUICK)
@pytest.mark.parametrize("key", KEYS)
def test_odd_values_in_the_description_of_a_run(
    key: str, command: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged(trained, tmp_path, "run.json", "missing")
    for value in ODD:
        about = json.loads((trained / "run.json").read_text(encoding="utf-8"))
        *parents, last = key.split(".")
        inner = about
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
        (run / "run.json").write_text(json.dumps(about), encoding="utf-8")
        assert_one_line(*run_command(command, run, capsys))


def test_side_files_are_set_aside(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("memory.json", "evaluation.json"):
        run = damaged(trained, tmp_path / file, file, "half")
        before = (run / file).read_bytes()
        code, said = run_command("report" if file == "evaluation.json" else "evaluate", run, capsys)
        assert code == 0 and said.startswith("warning: ") and f"was renamed to {file}.damaged" in said
        assert (run / f"{file}.damaged").read_bytes() == before
        code, said = run_command("evaluate", run, capsys)
        assert (code, said) == (0, "")
    assert (run / "evaluation.json").read_bytes() == (trained / "evaluation.json").read_bytes()


def test_damaged_lines_of_metrics_are_set_aside_and_the_others_kept(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged(trained, tmp_path, "memory.json", "missing")
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    torn = lines[1].replace(b"0", b"!")  # as long as before
    (run / "metrics.jsonl").write_bytes(b"".join([lines[0], torn, *lines[2:]]))
    code, said = run_command("train", run, capsys)
    assert code == 0 and "metrics.jsonl, line 2: not a line of metrics" in said and said.count("\n") == 1
    assert (run / "metrics.jsonl").read_bytes() == b"".join([lines[0], *lines[2:]])
    assert (run / "metrics.jsonl.damaged").read_bytes().splitlines(keepends=True)[1] == torn


def test_superseded_checkpoints_are_removed_on_the_next_start(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = damaged(trained, tmp_path, "memory.json", "missing")
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    for suffix in ("json", "safetensors"):  # as if killed before it was removed
        shutil.copy(run / "checkpoints" / f"step-000000002.{suffix}", run / "checkpoints" / f"step-000000001.{suffix}")
    assert run_command("train", run, capsys) == (0, "")
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == kept
