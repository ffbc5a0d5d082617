"""Training on one device and on two, with everything that the configuration offers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doxa.data import Batches
from doxa.errors import ConfigError, RunError
from doxa.train import Fitting, Run, fit

HOW = Fitting(steps=40, learning_rate=0.05, log_every=1, evaluate_every=10)


class Regression(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        error = self.layers(x).squeeze(-1) - y
        return {"loss": error.square().mean(), "absolute": error.abs().mean()}


def data(n: int = 64) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(n, 3, generator=random)
    return x, x @ torch.tensor([1.0, -2.0, 0.5])


def test_a_plain_loop_does_the_same(tmp_path: Path) -> None:
    """Schedule, clipping, averaging and weight decay against a loop written out by hand."""
    how = replace(
        HOW, optimizer="adamw", schedule="cosine", warmup=5, clip=0.5, average=0.9, weight_decay=0.1, learning_rate=0.1
    )
    ours = Regression()
    run = fit(
        ours, Batches(data(), 16, seed=3), tmp_path, how, fitting=how, evaluate=lambda m: m(*data()), progress=False
    )

    model, batches = Regression(), Batches(data(), 16, seed=3)
    average = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    for step in range(40):
        rate = step / 5 if step < 5 else (1 + math.cos(math.pi * (step - 5) / 35)) / 2
        optimizer.param_groups[0]["lr"] = 0.1 * rate
        optimizer.zero_grad()
        model(*batches.next())["loss"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        for mean, p in zip(average, model.parameters(), strict=True):
            # the first average is the first parameters
            mean.copy_(p.detach() if step == 0 else 0.9 * mean + 0.1 * p.detach())
    torch.testing.assert_close(list(ours.parameters()), list(model.parameters()))
    kept = run.load().state["average"]
    torch.testing.assert_close([kept[f"module.{n}"] for n, _ in model.named_parameters()], average)
    for p, mean in zip(model.parameters(), average, strict=True):
        p.data.copy_(mean)
    assert run.metrics_at(40)["absolute"] == pytest.approx(model(*data())["absolute"].item())


def test_interrupted_it_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def start(name: str, stop: int | None = None) -> Regression:
        model, batches = Regression(dropout=0.5), Batches(data(), 16, seed=3)
        if stop is not None:
            real, count = batches.next, iter(range(stop))

            def limited() -> Any:
                if next(count, None) is None:
                    raise KeyboardInterrupt
                return real()

            batches.next = limited  # type: ignore[method-assign]
        how = replace(HOW, average=0.9, schedule="linear")
        fit(model, batches, tmp_path / name, how, fitting=how, evaluate=lambda m: m(*data()), progress=False)
        return model

    with pytest.raises(KeyboardInterrupt):
        start("broken", stop=25)
    assert Run.open(tmp_path / "broken").load().step == 20
    broken, whole = start("broken"), start("whole")
    assert all(torch.equal(a, b) for a, b in zip(broken.parameters(), whole.parameters(), strict=True))
    assert Run.open(tmp_path / "broken").metrics() == Run.open(tmp_path / "whole").metrics()


def test_patience(tmp_path: Path) -> None:
    scores = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    how = replace(HOW, patience=2)
    run = fit(
        Regression(), Batches(data(), 16, seed=3), tmp_path, how,
        fitting=how, evaluate=lambda m: {"score": next(scores)}, best="score", progress=False,
    )  # fmt: skip
    assert run.load().step == 40 and run.load("best").step == 20
    longer = replace(how, steps=1000, learning_rate=0.01)
    scores = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    for _ in range(2):  # started again, it stays stopped and asks for no further score
        run = fit(
            Regression(), Batches(data(), 16, seed=3), tmp_path / "longer", longer,
            fitting=longer, evaluate=lambda m: {"score": next(scores)}, best="score", progress=False,
        )  # fmt: skip
        assert run.load().step == 40
    with pytest.raises(ConfigError, match="best= is needed"):
        fit(Regression(), Batches(data(), 16), tmp_path / "none", how, fitting=how, progress=False)


def test_mistakes(tmp_path: Path) -> None:
    for change, message in [
        ({"steps": 0}, "steps is 0, expected more than 0"),
        ({"clip": -1.0}, "clip is -1.0, expected 0 or more"),
        ({"average": 1.0}, "average is 1.0, expected at least 0 and below 1"),
    ]:
        with pytest.raises(ConfigError, match=message):
            replace(HOW, **change)

    class Silent(Regression):
        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"error": super().forward(x, y)["loss"]}

    class Broken(Regression):
        def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
            return {"loss": super().forward(x, y)["loss"] * math.nan}

        def blame(self, x: Tensor, y: Tensor) -> str:
            return f"{len(x)} rows are to blame"

    with pytest.raises(ConfigError, match="wanted 'loss' among them"):
        fit(Silent(), Batches(data(), 16), tmp_path / "a", HOW, fitting=HOW, progress=False)
    with pytest.raises(RunError, match="the loss is nan after step 1: 16 rows are to blame"):
        fit(Broken(), Batches(data(), 16), tmp_path / "b", HOW, fitting=HOW, progress=False)


def test_tensorboard_holds_the_metrics(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    how = replace(HOW, steps=20, tensorboard=True)
    run = fit(
        Regression(), Batches(data(), 16, seed=3), tmp_path, how,
        fitting=how, evaluate=lambda m: {"score": 1.0}, progress=False,
    )  # fmt: skip
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    logged = {(e.step, round(e.value, 5)) for e in events.Scalars("loss")}
    assert logged == {(line["step"], round(line["loss"], 5)) for line in run.metrics() if "loss" in line}
    assert [e.step for e in events.Scalars("score")] == [10, 20]


SCRIPT = """
import sys, torch
sys.path[:0] = {path!r}
from test_fit import HOW, Regression, data
from doxa.train import fit
from doxa.data import Batches
from dataclasses import replace
for steps in (20, 40):  # the second call goes on where the first stopped
    how = replace(HOW, steps=steps, devices=2, strategy="ddp")
    fit(Regression(), Batches(data(), 16, seed=3), sys.argv[1], HOW, fitting=how,
        evaluate=lambda m: m(*data()), progress=False)
"""


def test_two_processes_do_what_one_does_with_the_doubled_batch(tmp_path: Path) -> None:
    pytest.importorskip("lightning_fabric")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=[str(Path(__file__).parent)]))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "two")], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    fit(
        Regression(), Batches(data(), 16, seed=3), tmp_path / "one", HOW,
        fitting=HOW, evaluate=lambda m: m(*data()), progress=False,
    )  # fmt: skip
    one, two = Run.open(tmp_path / "one").metrics(), Run.open(tmp_path / "two").metrics()
    assert [line["step"] for line in one] == [line["step"] for line in two]
    for a, b in zip(one, two, strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6), json.dumps([a, b])
