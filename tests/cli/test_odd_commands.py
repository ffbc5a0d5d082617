"""Odd command lines: every option of every command with odd values; an exit code and a line, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from doxa.cli import main

RULES = """
sort Item
sort Colour = {red, green}
pred on(Item)
func colour(Item) -> Colour
[some] forall x: Item. on(x) -> colour(x) = red
"""
TASK = '''
import torch, doxa
from doxa.train import Fitting, Task
x = torch.linspace(-1, 1, 24)[:, None]
data = {"points": {"x": x, "label": (x[:, 0] > 0).long()}}
task = Task(
    "signs", "Is it positive?",
    """sort Point; sort Bit = 0..1; data points(x: Point, label: Bit); func sign(Point) -> Bit
       [told] forall p in points. s := sign(p.x) (s = p.label)""",
    lambda: {"sign": doxa.logits(torch.nn.Linear(1, 2))}, data, data, fitting=Fitting(steps=2))
'''
ODD = (
    *("", " ", "-1", "0", "1.5", "1000000000", "9" * 40, "nan", "inf", "1e999", "x", "³", "é", "\x1b[31m", "\u202e"),
    *("a=b", "=", ",", "exact,", "None", "true", "'", "(", "../..", "/dev/null", "/nonexistent/x"),
)
EASY = ("--domain", "Item=2", "--limit", "20")
OPTIONS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("check",): ("{}", "rules.doxa {}"),
    ("show", "rules.doxa"): ("--as {}", "--as nnf --domain {}", "--as cnf --domain Item={}", "--limit {}"),
    ("solve", "rules.doxa", *EASY): ("--given {}", "--models {} --count", "--entails {}", "--domain Item={}"),
    ("solve", "rules.doxa", "--domain", "Item=2"): ("--limit {}",),
    ("shortcuts", "rules.doxa", "--limit", "20"): ("--data {}", "--show {}", "--maps {}", "--joint {}", "--worlds {}"),
    ("doctor", "rules.doxa", "--limit", "20"): ("--logic {}", "--quantifier {}", "--draws {}", "--objects {}"),
    ("train", "task.py", "--steps", "2", "--quiet"): (
        *("--semantics {}", "--seed {}", "--data {}", "--set {}", "--set batch_size={}", "--set learning_rate={}"),
        *("--set validation={}", "--set clip={}", "--set average={}", "--set schedule={}", "--set warmup={}"),
        *("--set accelerator={}", "--set precision={}", "--set strategy={}"),
    ),
    ("train",): ("{}",),
    ("compare", "task.py"): ("--semantics {}", "--jobs {} --semantics ,", "--set {}"),
    ("evaluate",): ("{}",),
    ("report",): ("{}", "runs --out {}"),
    ("operators",): ("{} --kind negations", "--kind {}", "standard --kind negations --plot {}"),
    ("estimators",): ("{}",),
    ("figures",): ("{}", "fuzzy --only {}", "explanations --run {}"),
    ("reproduce",): ("{}", "same --list --only {}", "same --list --table {}", "same --list --set {}"),
}
COMMANDS = [(*start, *option.split()) for start, options in OPTIONS.items() for option in options]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("odd")
    (made / "rules.doxa").write_text(RULES, encoding="utf-8")
    (made / "task.py").write_text(TASK, encoding="utf-8")
    return made


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_odd_values(command: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in ODD:
        if command[0] == "compare" and value == "exact,":
            continue  # it is right; see below
        with chdir(folder):
            try:
                code = main([part.replace("{}", value) for part in command])
            except SystemExit as error:  # the parser of command lines says what is wrong
                code = error.code if isinstance(error.code, int) else -1
        said = capsys.readouterr().err
        assert code in (0, 1, 2), (value, code)
        assert "Traceback" not in said and (code == 2 or ("\x1b" not in said and bool(said.strip()) >= code)), value


ENDS = {
    "sys.exit(3)": 1,
    "raise SystemExit(None)": 1,
    "raise SystemExit": 1,
    "raise KeyboardInterrupt": 130,
    "raise RecursionError": 1,
    "raise MemoryError": 1,
    "1 / 0": 1,
    "doxa.parse('pred')": 1,
}
PLACES = {
    "file": "import sys, doxa\n{}\n",
    "function": "import sys, doxa\ndef task():\n    {}\n",
    "symbols": TASK.replace("lambda: {", "lambda: end() or {") + "\ndef end():\n    import sys\n    {}\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("command", ["train", "check", "doctor"])
def test_a_task_that_ends_the_program(
    command: str, ends: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "task.py").write_text(PLACES[place].replace("{}", ends), encoding="utf-8")
    with chdir(tmp_path):
        if place == "symbols" and ends in ("1 / 0", "raise RecursionError") and command == "train":
            with pytest.raises((ZeroDivisionError, RecursionError)):  # a mistake in a program keeps its traceback
                main([command, "task.py"])
            return
        code = main([command, "task.py"])
    said = capsys.readouterr().err
    if place == "symbols" and command != "train":  # they need no networks
        assert code == 0
    else:
        assert code == ENDS[ends] and len([line for line in said.splitlines() if line[:1] != " "]) == 1, said


PIGEONS = """
sort Pigeon = 1..{n}
sort Hole = 1..{m}
pred sits(Pigeon, Hole)
[all] forall p: Pigeon. exists h: Hole. sits(p, h)
[one] forall p, q: Pigeon, h: Hole. sits(p, h) & sits(q, h) -> p = q
"""


def pigeons(folder: Path, n: int) -> str:
    file = folder / "pigeons.doxa"
    file.write_text(PIGEONS.replace("{n}", str(n)).replace("{m}", str(n - 1)), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("command", ["solve {}", "solve {} --count", "solve {} --entails sits(1,1)"])
def test_the_time_limit(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = pigeons(tmp_path, 30)
    assert main([*command.format(file).split(), "--limit", "0.2"]) == 1
    assert capsys.readouterr().err == "could not decide within 0.2 seconds; allow more with --limit\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "solve", "doctor", "shortcuts", "show --as dimacs", "train", "compare"])
def test_ctrl_c(command: str, tmp_path: Path) -> None:
    """Wherever it comes: while Python starts there is a traceback of its own, so we wait until it has started."""
    ready = tmp_path / "ready"
    start = f"import pathlib, sys; from doxa.cli import main; pathlib.Path({str(ready)!r}).touch(); sys.exit(main())"
    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    subject = "task.py --steps 100000000 --quiet" if command in ("train", "compare") else pigeons(tmp_path, 60)
    for seconds in (0.1, 0.5, 3.0):
        ready.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", start, *command.split(), *subject.split()],
            cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        while not ready.exists():
            assert process.poll() is None
        try:
            _, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        assert "Traceback" not in said
        ended = process.returncode in (0, 1)  # by itself, before it was interrupted
        assert (ended and not (command == "train" and seconds > 1)) or process.returncode == 130, (seconds, said)
        assert said.count("\n") == bool(process.returncode), said


@pytest.mark.slow
def test_compare_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    failing = TASK.replace("lambda: {", "lambda: end() or {") + "\ndef end():\n    import os\n    os._exit(3)\n"
    (tmp_path / "failing.py").write_text(failing, encoding="utf-8")
    with chdir(tmp_path):
        assert main(["compare", "task.py", "--semantics", "exact,", "--steps", "2", "--quiet", "--jobs", "1000"]) == 0
        capsys.readouterr()
        assert main(["compare", "failing.py", "--semantics", "exact,fuzzy", "--steps", "2", "--quiet"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["exact", "fuzzy"] and "its process ended" in lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("accelerator=cuda", "accelerator=cuda devices=1"),
        ("accelerator=tpu devices=2", "accelerator=tpu devices=2"),
        ("devices=3 batch_size=2", "a batch of 2 rows cannot be shared by 3 processes; make it larger"),
    ],
)
def test_hardware_that_is_not_there(settings: str, said: str, tmp_path: Path) -> None:
    """Processes that train together end together: none is left that waits for one that failed."""
    (tmp_path / "task.py").write_text(TASK, encoding="utf-8")
    command = [sys.executable, "-m", "doxa.cli", "train", "task.py", "--steps", "4", "--quiet", "--set"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    done = subprocess.run(
        [*command, *settings.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr and said in done.stderr


def test_control_characters_are_made_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "\x1b]0;owned\x07\x9b31m\u202e"
    (tmp_path / f"{bad}.doxa").write_text(RULES + f"# {bad}\npred {bad}(Item)\n", encoding="utf-8")
    (tmp_path / "fine.doxa").write_text(RULES + f"pred off(Item)  # {bad}\n", encoding="utf-8")
    (tmp_path / "task.py").write_text(f"raise ValueError({bad!r})\n", encoding="utf-8")
    with chdir(tmp_path):
        for file in (f"{bad}.doxa", "fine.doxa", "task.py", f"{bad}.py", bad):
            for command in ("check", "check --json", "show", "show --json", "solve --given", "doctor", "train"):
                options = command.split() + ([bad] if command.startswith("solve") else [])
                main([options[0], file, *options[1:]])
                out, err = capsys.readouterr()
                if "--json" in options and out:
                    json.loads(out)
                assert out + err and not set(bad[:1] + "\x07\x9b\u202e") & set(out + err), (command, file)


@pytest.mark.parametrize(("every", "when"), [(5, "step 2"), (1, "evaluation after step 1")])
def test_a_network_that_diverges(tmp_path: Path, capsys: pytest.CaptureFixture[str], every: int, when: str) -> None:
    """Numbers that are not finite end training in one line with symbol and step; mended, the run goes on."""
    network = """
class Once(torch.nn.Linear):
    def forward(self, x):
        if FAILS and bool((self.weight != self.first).any()):
            return super().forward(x) * float("nan")
        return super().forward(x)

def once():
    made = Once(1, 2)
    made.first = made.weight.detach().clone()
    return made
"""
    text = TASK.replace("torch.nn.Linear(1, 2)", "once()") + network
    options = f"train task.py --semantics exact --steps 4 --quiet --set evaluate_every={every}".split()
    with chdir(tmp_path):
        Path("task.py").write_text(f"FAILS = True\n{text}", encoding="utf-8")
        assert main(options) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{when}: ") and "sign: NaN" in line and "learning rate" in line
        Path("task.py").write_text(f"FAILS = False\n{text}", encoding="utf-8")
        assert main(options) == 0
