"""Every way a run can end leaves one message and a folder from which it continues."""

from __future__ import annotations

import errno
import getpass
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from doxa.errors import ConfigError, RunError, RunWarning
from doxa.train import Run, clean_exit, run_steps

PROGRAM = Path(__file__).with_name("small_task.py")


@dataclass(frozen=True)
class Config:
    rate: float = 0.1


def temporary_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*.tmp"))


# Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_in_a_real_process(tmp_path: Path, small_task: ModuleType) -> None:
    command = [sys.executable, str(PROGRAM), "train", str(tmp_path / "stopped")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "1000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # even if it is ignored here
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("step 1/1000000  loss ")  # it is training; and lines are plain
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert len(errors.splitlines()) == 1 and "stopped at step" in errors and "start it again to continue" in errors
    run = Run.open(tmp_path / "stopped")
    assert f"stopped at step {run.load().step} of 1000000" in errors
    assert temporary_files(run.path) == []


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_the_end_of_the_step(tmp_path: Path, small_task: ModuleType) -> None:
    config = small_task.Config(steps=20, save_every=6)
    small_task.build(tmp_path / "whole", config)[1]()
    expected = small_task.fingerprint(tmp_path / "whole")
    for stop in (1, 6, 7, 13, 20):
        folder = tmp_path / str(stop)
        _, go, state = small_task.build(folder, config)
        hits = [0]

        def press(*_: Any, hits: list[int] = hits, stop: int = stop) -> None:
            hits[0] += 1
            if hits[0] == stop:
                signal.raise_signal(signal.SIGINT)  # in the middle of a step

        state["optimizer"].register_step_pre_hook(press)
        with pytest.raises(KeyboardInterrupt, match=f"stopped at step {stop} of 20, saved in"):
            go()
        assert Run.open(folder).load().step == stop
        small_task.build(folder, config)[1]()
        assert small_task.fingerprint(folder)["metrics"] == expected["metrics"]
        last = [name for name in expected["checkpoints"] if "20" in name]
        assert len(last) == 2
        for name in last:
            assert small_task.fingerprint(folder)["checkpoints"][name] == expected["checkpoints"][name]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)

    def step(i: int) -> float:
        if i == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return 1.0

    with pytest.raises(KeyboardInterrupt, match="stopped at once"):
        run_steps(run, step, steps=10, state={}, save_every=2, progress=False)
    assert run.load().step == 4


def test_training_outside_the_main_thread(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    thread = threading.Thread(
        target=run_steps, args=(run, lambda i: 1.0), kwargs={"steps": 3, "state": {}, "progress": False}
    )
    thread.start()
    thread.join()
    assert run.load().step == 3


# --- Numbers that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), torch.tensor(float("nan"))])
def test_a_loss_that_is_not_finite(tmp_path: Path, value: Any) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    notes = {"value": 0}

    def step(i: int) -> Any:
        notes["value"] = i + 1
        return value if i == 7 else 1.0

    with pytest.raises(RunError, match=r"the loss is (nan|-?inf) after step 8; the last checkpoint is of step 6"):
        run_steps(run, step, steps=10, state={"notes": notes}, save_every=3, log_every=1, progress=False)
    assert run.load().state["notes"] == {"value": 6}
    value = 1.0  # mended, it goes on
    run_steps(Run.open(run.path), step, steps=10, state={"notes": notes}, save_every=3, log_every=1, progress=False)
    assert [line["step"] for line in run.metrics()] == list(range(1, 11))


def test_a_ruined_model_never_becomes_a_checkpoint(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    model = nn.Linear(1, 1)

    def step(i: int) -> float:
        if i == 3:  # the update ruins the model, after a finite loss
            with torch.no_grad():
                model.bias.fill_(float("inf"))
        return 1.0

    with pytest.raises(RunError, match=r"model.bias holds a number that is not finite after step 4; .* step 2"):
        run_steps(run, step, steps=10, state={"model": model}, save_every=2, progress=False)
    assert torch.isfinite(run.load().state["model"]["bias"]).all()


def test_buffers_and_metrics_may_be_infinite(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    model = nn.Linear(1, 1)
    model.register_buffer("mask", torch.tensor([-float("inf")]))
    found = run_steps(
        run, lambda i: {"loss": 1.0, "ratio": float("inf")}, steps=2, state={"model": model}, progress=False
    )
    assert found == {"loss": 1.0, "ratio": float("inf")}


# --- A full disk


def checked_after_failure(folder: Path, small_task: ModuleType, config: Any, expected: dict[str, Any]) -> None:
    """The folder is clean, its last checkpoint is whole, and the run continues from it to the same end."""
    assert temporary_files(folder) == []
    run = Run.open(folder)
    if list(folder.glob("checkpoints/*.json")):
        run.load()  # any warning here would be an error
    small_task.build(folder, config)[1]()
    assert not small_task.differs(folder, expected)


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_disk_that_is_really_full(
    tmp_path: Path, small_task: ModuleType, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_task.Config(steps=8, save_every=2)
    small_task.build(tmp_path / "whole", config)[1]()
    folder = tmp_path / "full"
    _, go, _ = small_task.build(folder, config)
    opened = os.open

    def full(name: Any, *rest: Any, **named: Any) -> int:
        if Path(name).name.startswith(f".step-000000006.{suffix}."):
            return opened("/dev/full", os.O_WRONLY)  # which answers every write as a full disk does
        return opened(name, *rest, **named)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(
        RunError, match=rf"step-000000006\.{suffix}: the disk is full; everything written before is intact"
    ):
        go()
    assert Run.open(folder).load().step == 4
    assert not list(folder.glob("checkpoints/*6.*"))
    monkeypatch.undo()
    checked_after_failure(folder, small_task, config, small_task.fingerprint(tmp_path / "whole"))


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO], ids=["full disk", "EIO"])
def test_a_write_that_fails_anywhere(
    fault: int, tmp_path: Path, small_task: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th opening, sync or rename of a file fails, for every n."""
    config = small_task.Config(steps=4, save_every=2)
    small_task.build(tmp_path / "whole", config)[1]()
    expected = small_task.fingerprint(tmp_path / "whole")
    real = {"open": os.open, "fsync": os.fsync, "replace": os.replace}
    failures = 0
    while True:
        left = [failures]

        def failing(name: str, left: list[int] = left) -> Any:
            def call(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] == -1:
                    raise OSError(fault, os.strerror(fault))
                return real[name](*arguments)

            return call

        folder = tmp_path / f"failure-{failures}"
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, failing(name))
            try:
                small_task.build(folder, config)[1]()
            except RunError as error:
                assert ("the disk is full" if fault == errno.ENOSPC else "Input/output error") in str(error)
            else:
                break
        if folder.exists() and (folder / "run.json").exists():
            checked_after_failure(folder, small_task, config, expected)
        failures += 1
    assert failures > 25
    print(f"{failures} faults injected and survived")


def test_a_line_of_metrics_that_the_system_cuts_short(tmp_path: Path, small_task: ModuleType) -> None:
    config = small_task.Config(steps=12, save_every=5)
    small_task.build(tmp_path / "whole", config)[1]()
    run, go, state = small_task.build(tmp_path / "limited", config)
    before, hits = resource.getrlimit(resource.RLIMIT_FSIZE), [0]

    def limit(*_: Any) -> None:
        hits[0] += 1
        if hits[0] == 9:  # there is room for ten bytes more
            size = (run.path / "metrics.jsonl").stat().st_size + 10
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    state["optimizer"].register_step_pre_hook(limit)
    try:
        with pytest.raises(RunError, match=r"metrics\.jsonl: File too large; everything written before is intact"):
            go()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (run.path / "metrics.jsonl").read_bytes().endswith(b"}\n") and run.metrics()[-1]["step"] == 8
    checked_after_failure(run.path, small_task, config, small_task.fingerprint(tmp_path / "whole"))


# --- Missing files


def test_missing_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run: it has no run\.json"):
        Run.open(tmp_path / "nowhere")
    deep = tmp_path / "runs" / "coins" / "exact" / "9-steps" / "seed-0"
    Run.create(deep, Config(), seed=0)
    with pytest.raises(RunError, match=rf"it has no run\.json; below it is {deep}$"):
        Run.open(tmp_path / "runs")
    for i in range(9):
        Run.create(tmp_path / "runs" / str(i), Config(), seed=0)
    with pytest.raises(RunError, match=rf"below it are {tmp_path / 'runs' / '0'}, .* and 2 more$"):
        Run.open(tmp_path / "runs")
    with pytest.raises(RunError, match="train one with doxa train"):
        Run.open(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is not a run"):
        Run.open(tmp_path / "file")
    with pytest.raises(RunError, match="is not empty; for a new run choose another folder"):
        Run.create(tmp_path, Config(), seed=0)
    with pytest.raises(RunError, match="cannot write"):
        Run.create(tmp_path / "file" / "below", Config(), seed=0)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"config": {}}'])
def test_damaged_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        Run.open(tmp_path)


def test_missing_metrics(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.log(1, {"loss": 1.0})
    run.save(1, {})
    (run.path / "metrics.jsonl").unlink()
    assert run.metrics() == []
    with pytest.warns(RunWarning, match=r"metrics\.jsonl has lost 25 bytes of older lines"):
        run.resume({})
    run.log(2, {"loss": 1.0})
    run.save(2, {})
    Run.open(run.path).resume({})
    assert [line["step"] for line in run.metrics()] == [2]


def test_a_missing_file_in_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)

    def step(i: int) -> float:
        if i == 3:
            (tmp_path / "no-data").read_bytes()
        return 1.0

    with pytest.raises(SystemExit, match="1"), clean_exit():
        run_steps(run, step, steps=5, state={}, save_every=2, progress=False)
    assert capsys.readouterr().err == f"{tmp_path / 'no-data'}: No such file or directory\n"
    assert run.load().step == 2


# --- One message


@pytest.mark.parametrize(
    "error, code, message",
    [
        (RunError("the disk is full"), 1, "the disk is full"),
        (ConfigError("unknown key"), 1, "unknown key"),
        (KeyboardInterrupt("stopped at step 3"), 130, "stopped at step 3"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError("something"), 1, "something"),
    ],
)
def test_clean_exit(error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, clean_exit():
        raise error
    assert caught.value.code == code
    assert capsys.readouterr().err == message + "\n"


def test_clean_exit_lets_mistakes_through() -> None:
    with pytest.raises(ZeroDivisionError), clean_exit():
        _ = 1 / 0
    with clean_exit():
        pass


def test_ctrl_c_is_ignored_where_it_was_ignored_before(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_steps(run, lambda i: signal.raise_signal(signal.SIGINT) or 1.0, steps=3, state={}, progress=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.load().step == 3


@pytest.mark.parametrize(
    "spec, expected",
    [(None, "program.py"), (ModuleSpec("doxa.__main__", None), "python -m doxa")],
    ids=["file", "module"],
)
def test_the_command_names_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None, expected: str
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(sys, "argv", ["/somewhere/secret/program.py", "train", "--steps", "3"])
    assert Run.create(tmp_path / "run", Config(), seed=0).command == [expected, "train", "--steps", "3"]


def test_nothing_private_is_noted(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=4)
    text = (run.path / "run.json").read_text()
    about = json.loads(text)
    assert set(about) == {"config", "seed", "versions", "machine", "command", "started"}
    assert about["config"] == {"rate": 0.1} and about["seed"] == 4
    assert (
        set(about["versions"]) == {"doxa", "torch", "numpy", "python"}
        and about["versions"]["torch"] == torch.__version__
    )
    assert set(about["machine"]) == {"platform", "cpus", "threads"}
    words = text.replace('"', " ").split()
    assert socket.gethostname() not in words and getpass.getuser() not in words
    assert not about["command"][0].startswith(("/", "\\"))
