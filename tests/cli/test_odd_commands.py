"""Odd command lines: every option of every command with odd values; an exit code and a line, never a traceback."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.cli._knowledge import Show, Solve
from doxa.cli._main import time_limit
from doxa.errors import BudgetError
from doxa.logic.unfold._domains import ENTRIES
from doxa.train import Run

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
    ("show", "rules.doxa"): (
        "--as {}",
        "--as nnf --domain {}",
        "--as cnf --domain Item={}",
        "--limit {}",
        "--as nnf --entries {}",
    ),
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
        code = main([command, "task.py"])
    said = capsys.readouterr().err
    if place == "symbols" and command != "train":  # they need no networks
        assert code == 0
    elif place == "symbols" and ends in (
        "1 / 0",
        "raise RecursionError",
    ):  # the user's own lines
        assert code == 1 and "task.py:" in said and "Traceback" not in said and "site-packages" not in said, said
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
    said = capsys.readouterr().err
    assert said.startswith("could not decide within 0.2 seconds; ") and "--limit" in said and said.count("\n") == 1


def test_the_time_limit_passes_over_the_garbage_collector() -> None:
    """An error in one of its callbacks is lost: the limit waits until the callback is over."""
    inside = []

    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not inside:
            inside.append(phase)
            until = time.monotonic() + 1.5  # the first alarm comes after 1.01 seconds
            while time.monotonic() < until:
                pass

    gc.callbacks.append(callback)
    try:
        with pytest.raises(BudgetError, match="could not decide"), time_limit(0.01):
            gc.collect()
            while True:
                pass
    finally:
        gc.callbacks.remove(callback)
    assert inside


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
        lines = (1, 2) if command == "compare" else (1,)  # one at once, and one when its processes have saved
        assert said.count("\n") in (lines if process.returncode else (0,)), said


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(130) from KeyboardInterrupt()"])
def test_a_second_ctrl_c_changes_nothing(raised: str) -> None:
    """Neither the exit code nor what is said, though it comes when all is done: Python needs a while to end."""
    program = f"""
import os, signal, sys
import doxa.cli, doxa.cli._main
def run(arguments):
    raise {raised}
doxa.cli._main.run = run
signal.signal(signal.SIGINT, signal.default_int_handler)
code = doxa.cli.main()
os.kill(os.getpid(), signal.SIGINT)
sys.exit(code)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "" if "from" in raised else "interrupted\n")


def test_called_from_python_ctrl_c_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("doxa.cli._main.run", run)
    handler = signal.getsignal(signal.SIGINT)
    assert main([]) == 130
    assert signal.getsignal(signal.SIGINT) is handler


def lines_of(file: Path, process: subprocess.Popen[str], count: int) -> None:
    """Wait until a file has so many lines."""
    while not file.exists() or len(file.read_bytes().splitlines()) < count:
        assert process.poll() is None
        time.sleep(0.05)


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "task.py").write_text(TASK.replace("steps=2", "log_every=1, evaluate_every=10**6"), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", "doxa", *arguments, "task.py", "--steps", "10000000", "--quiet"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # even if it is ignored here
    )


def test_training_saves_when_it_is_told_to_terminate(tmp_path: Path) -> None:
    process = started(tmp_path, "train", "--semantics", "exact")
    run = tmp_path / "runs" / "signs" / "exact" / "10000000-steps" / "seed-0"
    lines_of(run / "metrics.jsonl", process, 3)
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"stopped at step {Run.open(run).load().step} of 10000000, saved in" in said


def test_termination_ends_what_is_deaf_to_ctrl_c() -> None:
    """As a queue of jobs in the background of a shell: what is to be done at the end is done."""
    program = """
import os, signal, sys
import doxa.cli, doxa.cli._main
def run(arguments):
    os.kill(os.getpid(), signal.SIGINT)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        print("jobs are stopped")
doxa.cli._main.run = run
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(doxa.cli.main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "jobs are stopped\n", "interrupted\n")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists processes as Linux does")
@pytest.mark.parametrize("to_all", [False, True], ids=["to the parent", "to the group, as a terminal does"])
def test_compare_saves_when_it_is_interrupted(to_all: bool, tmp_path: Path) -> None:
    process = started(tmp_path, "compare", "--semantics", "exact,fuzzy", "--jobs", "2")
    runs = [tmp_path / "runs" / "signs" / word / "10000000-steps" / "seed-0" for word in ("exact", "fuzzy")]
    for run in runs:
        lines_of(run / "metrics.jsonl", process, 3)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    groups = {int(pid): os.getpgid(int(pid)) for pid in children.split()}
    others = [pid for pid, group in groups.items() if group != os.getpgid(process.pid)]
    assert len(others) == 2
    for pid in [process.pid, *(pid for pid in groups if to_all and pid not in others)]:
        os.kill(pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said == "interrupted; what is under way is being saved\nstopped; start it again to continue\n"
    for run in runs:
        assert any((run / "checkpoints").iterdir())  # though none was due
    assert not any(Path(f"/proc/{pid}").exists() for pid in others)


def test_a_second_process_in_a_run_folder_is_told_so(tmp_path: Path) -> None:
    first = started(tmp_path, "train", "--semantics", "exact")
    metrics = tmp_path / "runs" / "signs" / "exact" / "10000000-steps" / "seed-0" / "metrics.jsonl"
    lines_of(metrics, first, 3)
    second = started(tmp_path, "train", "--semantics", "exact")
    _, said = second.communicate(timeout=120)
    folder = "runs/signs/exact/10000000-steps/seed-0"
    message = f"another process is training in {folder}; wait for it, or choose another folder (--out)\n"
    assert (second.returncode, said) == (1, message)
    lines_of(metrics, first, len(metrics.read_bytes().splitlines()) + 3)  # the first goes on
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=120)
    assert first.returncode == 130 and said.startswith("stopped at step ")
    steps = [json.loads(line)["step"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert steps == sorted(set(steps))  # nothing was written twice


def test_a_network_that_raises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user's own lines, the error, the symbol and the shape: no traceback through libraries."""
    own = (
        TASK.replace("torch.nn.Linear(1, 2)", "Net()")
        + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 2)
    def forward(self, x):
        return self.line(x)
"""
    )
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    (tmp_path / "plain.py").write_text(TASK.replace("Linear(1, 2)", "Linear(3, 2)"), encoding="utf-8")
    line = own.splitlines().index("        return self.line(x)") + 1
    with chdir(tmp_path):
        for file in ("own.py", "plain.py"):
            assert main(["train", file, "--quiet", "--out", file.removesuffix(".py")]) == 1
            said = capsys.readouterr().err.splitlines()
            where = [f"own.py:{line}: in forward"] if file == "own.py" else []
            error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (24x1 and 3x2)"
            assert said[:-1] == [*where, error]
            assert said[-1].startswith("in what sign(Point) -> Bit is bound to") and "shape (24, 1)" in said[-1]


def test_a_task_that_raises_tells_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "raises.py").write_text("import doxa\n\ndef task():\n    return 1 / 0\n", encoding="utf-8")
    with chdir(tmp_path):
        for file in ("raises.py", "./raises.py", str(tmp_path / "raises.py")):
            assert main(["train", file]) == 1
            assert capsys.readouterr().err == f"{Path(file)}:4: ZeroDivisionError: division by zero\n"


@pytest.mark.parametrize("command", ["show {} --as nnf", "show {} --as dimacs", "solve {}", "solve {} --count"])
def test_entries(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Messages advise to raise them, so one can."""
    words = [*command.format(pigeons(tmp_path, 4)).split(), "--limit", "20"]
    assert main([*words, "--entries", "10"]) == 1
    assert "more than entries=10; " in (said := capsys.readouterr().err) and said.endswith("or raise entries\n")
    assert main([*words, "--entries", "100000"]) == 0


def test_entries_are_as_many_as_in_python() -> None:
    assert Solve.entries == Show.entries == ENTRIES


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
    command = [sys.executable, "-m", "doxa", "train", "task.py", "--steps", "4", "--quiet", "--set"]
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
    with pytest.raises(SystemExit):  # a choice that there is not
        main(["operators", "Score", "--kind", bad])
    out, err = capsys.readouterr()
    assert r"\x1b]0;owned\x07" in out + err and not set(bad[:1] + "\x07\x9b\u202e") & set(out + err)


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
