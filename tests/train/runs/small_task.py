"""A small training task with every kind of state, and a program that trains it, is killed and is interrupted.

python small_task.py train FOLDER            train to the end, ending with one message whatever happens
python small_task.py kill FOLDER N           kill it N times at random moments, going on each time; print a report
python small_task.py points FOLDER           kill it at every single file operation, one after another
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from doxa.errors import RunWarning
from doxa.train import GlobalRandom, Run, clean_exit, run_steps


@dataclass(frozen=True)
class Config:
    steps: int = 60
    save_every: int = 2
    rate: float = 0.01


class Order:
    """Indices in a new random order every epoch."""

    def __init__(self, n: int, size: int, seed: int) -> None:
        self.n, self.size = n, size
        self.generator = torch.Generator().manual_seed(seed)
        self.order, self.place = torch.randperm(n, generator=self.generator), 0

    def next(self) -> torch.Tensor:
        if self.place + self.size > self.n:
            self.order, self.place = torch.randperm(self.n, generator=self.generator), 0
        self.place += self.size
        return self.order[self.place - self.size : self.place]

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state(), "order": self.order, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
        self.order, self.place = state["order"], state["place"]


def build(folder: Path, config: Config, seed: int = 3) -> tuple[Run, Callable[[], dict[str, float]], dict[str, Any]]:
    """The run, a function that trains it to the end, and its state."""
    run = Run.start(folder, config, seed=seed)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    inputs = torch.randn(40, 6)
    labels = (inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.rate)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [config.steps // 3, config.steps // 2])
    order, noise, counters = Order(40, 8, seed), torch.Generator().manual_seed(seed), {"seen": 0}
    numbers = np.random.default_rng(seed)
    state = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": scheduler,
        "order": order,
        "noise": noise,
        "numbers": numbers,
        "counters": counters,
        "random": GlobalRandom(),
    }

    def step(i: int) -> dict[str, Any]:
        index = order.next()
        counters["seen"] += len(index)
        scale = 0.1 + 0.01 * random.random() + 0.01 * np.random.rand() + 0.01 * numbers.random()  # noqa: NPY002
        batch = inputs[index] + scale * torch.randn(len(index), 6, generator=noise)
        loss = nn.functional.cross_entropy(model(batch), labels[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return {"loss": loss, "seen": counters["seen"]}

    def evaluate() -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(model(inputs), labels)
        model.train()
        return {"error": loss}

    def go() -> dict[str, float]:
        return run_steps(
            run,
            step,
            steps=config.steps,
            state=state,
            evaluate=evaluate,
            best="-error",
            log_every=1,
            evaluate_every=7,
            save_every=config.save_every,
        )

    return run, go, state


def fingerprint(folder: Path) -> dict[str, Any]:
    """All of a finished run that must not depend on whether it was interrupted: everything but times."""
    documents = {}
    for file in sorted((folder / "checkpoints").iterdir()):
        if file.suffix == ".json":
            document = json.loads(file.read_text())
            for key in ("cpu_seconds", "wall_seconds", "sha256"):
                del document[key]
            documents[file.name] = document
        else:
            documents[file.name] = file.read_bytes().hex()
    return {"metrics": (folder / "metrics.jsonl").read_text(), "checkpoints": documents}


def differs(folder: Path, expected: dict[str, Any]) -> bool:
    """Whether a finished run is not as expected. (A kill after the last checkpoint may leave an older one behind.)"""
    found = fingerprint(folder)
    return (
        found["metrics"] != expected["metrics"] or not expected["checkpoints"].items() <= found["checkpoints"].items()
    )


def in_child(work: Callable[[], object]) -> int:
    """Do something in a forked process, which starts at once since torch is loaded already; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.simplefilter("ignore", RunWarning)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def unfinished(folder: Path) -> bool:
    """Whether a checkpoint was being written when the process died."""
    names = {path.name for path in folder.glob("checkpoints/*")}
    return any(name.endswith(".tmp") or name.replace(".safetensors", ".json") not in names for name in names)


def kill_at_random(root: Path, kills: int) -> dict[str, Any]:
    began = time.monotonic()
    assert exit_code(in_child(lambda: build(root / "whole", Config())[1]())) == 0
    duration = time.monotonic() - began
    expected = fingerprint(root / "whole")
    report: dict[str, Any] = {"kills": 0, "while_saving": 0, "finished": 0, "different": 0, "failed": 0}
    while report["kills"] < kills or not report["finished"]:
        folder = root / f"killed-{report['finished']}"
        child = in_child(lambda folder=folder: build(folder, Config())[1]())
        if report["kills"] < kills:
            time.sleep(random.uniform(0, 0.3 * duration))
            os.kill(child, signal.SIGKILL)
        code = exit_code(child)
        if code == -signal.SIGKILL:
            report["kills"] += 1
            report["while_saving"] += unfinished(folder)
        else:
            report["failed"] += code != 0
            report["finished"] += 1
            report["different"] += code == 0 and differs(folder, expected)
    return report


def die_at(point: int, folder: Path, config: Config) -> None:
    """Train until the process is about to do its n-th file operation in the folder, and then kill it."""
    left = point

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        files = event in ("open", "os.rename", "os.remove", "os.truncate", "os.mkdir")
        if files and str(folder) in str(arguments[0]):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(hook)
    build(folder, config)[1]()


def kill_everywhere(root: Path) -> dict[str, Any]:
    config = Config(steps=3, save_every=1)
    assert exit_code(in_child(lambda: build(root / "whole", config)[1]())) == 0
    folders: list[Path] = []
    while True:
        folder = root / f"point-{len(folders)}"
        code = exit_code(in_child(lambda folder=folder: die_at(len(folders), folder, config)))
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
        folders.append(folder)
    report = {"points": len(folders), "while_saving": sum(map(unfinished, folders))}
    assert exit_code(in_child(lambda: [build(folder, config)[1]() for folder in folders])) == 0
    expected = fingerprint(root / "whole")
    return report | {"different": sum(differs(folder, expected) for folder in folders)}


if __name__ == "__main__":
    heavy = sorted({"lightning", "matplotlib", "rich", "tyro"} & set(sys.modules))
    torch.set_num_threads(1)
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.AdamW([weight]).step()  # loads what torch loads late, so that forked processes start at once
    command, root = sys.argv[1], Path(sys.argv[2])
    if command == "train":
        with clean_exit():
            build(root, Config(steps=int(sys.argv[3]), save_every=20))[1]()
    elif command == "kill":
        print(json.dumps(kill_at_random(root, int(sys.argv[3]))))
    else:
        print(json.dumps({**kill_everywhere(root), "heavy": heavy}))
