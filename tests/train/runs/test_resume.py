"""Resuming continues exactly: every optimiser, every scheduler, every generator, at every step."""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler, swa_utils

from doxa.errors import ConfigError, RunError, RunWarning
from doxa.train import GlobalRandom, Run, run_steps
from doxa.train.runs._checkpoint import pack


@dataclass(frozen=True)
class Config:
    rate: float = 0.1


OPTIMISERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1),
    "AdamW tensor lr": lambda p: optim.AdamW(p, lr=torch.tensor(0.1), foreach=False),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1, t0=2),
    "LBFGS": lambda p: optim.LBFGS(p, lr=0.1, max_iter=3, history_size=2),
    "Muon": lambda p: optim.Muon(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "SparseAdam": lambda p: optim.SparseAdam(p, lr=0.1),
}

SCHEDULERS: dict[str, Callable[[optim.Optimizer], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 5]),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 8),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 9),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.05, anneal_epochs=4),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [4]
    ),
}


def test_no_optimiser_of_torch_is_left_out() -> None:
    classes = {
        name for name, kind in vars(optim).items() if inspect.isclass(kind) and issubclass(kind, optim.Optimizer)
    }
    assert classes - {"Optimizer"} <= set(OPTIMISERS)


def network(optimiser: str, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    if optimiser == "SparseAdam":
        return nn.Sequential(nn.EmbeddingBag(5, 3, sparse=True, mode="sum", dtype=dtype))
    bias = optimiser != "Muon"
    return nn.Sequential(nn.Linear(4, 5, bias=bias), nn.Tanh(), nn.Linear(5, 3, bias=bias)).to(dtype)


def a_step(model: nn.Module, optimizer: optim.Optimizer, scheduler: Any, i: int, dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(i)  # the data are a function of the step here
    if isinstance(model[0], nn.EmbeddingBag):  # type: ignore[index]
        inputs = torch.randint(5, (6, 2), generator=generator)
    else:
        inputs = torch.randn(6, 4, generator=generator, dtype=dtype)
    target = torch.randn(6, 3, generator=generator, dtype=dtype)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(inputs) - target).square().mean()
        loss.backward()
        return loss

    loss = optimizer.step(closure).item()
    if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
        scheduler.step(loss)
    elif scheduler is not None:
        scheduler.step()
    return loss


def bits(tree: Any) -> Any:
    tensors, skeleton = pack(tree)
    return skeleton, {name: (t.dtype, t.shape, t.numpy(force=True).tobytes()) for name, t in tensors.items()}


def check_resume(tmp_path: Path, optimiser: str, scheduler: str | None, dtype: torch.dtype, total: int = 9) -> None:
    def build() -> dict[str, Any]:
        model = network(optimiser, dtype)
        optimizer = OPTIMISERS[optimiser](model.parameters())
        state = {"model": model, "optimizer": optimizer}
        return state | ({"scheduler": SCHEDULERS[scheduler](optimizer)} if scheduler else {})

    def go(state: dict[str, Any], start: int, stop: int) -> list[float]:
        return [
            a_step(state["model"], state["optimizer"], state.get("scheduler"), i, dtype) for i in range(start, stop)
        ]

    whole = build()
    losses = go(whole, 0, total)
    for stop in (1, 4):
        run = Run.create(tmp_path / str(stop), Config(), seed=0)
        first = build()
        before = go(first, 0, stop)
        run.save(stop, first)
        second = build()
        found = Run.open(run.path).resume(second)
        assert found is not None and found.step == stop
        assert before + go(second, stop, total) == losses
        for name, thing in whole.items():
            assert bits(thing.state_dict()) == bits(second[name].state_dict()), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_optimisers(tmp_path: Path, optimiser: str, dtype: torch.dtype) -> None:
    check_resume(tmp_path, optimiser, None, dtype)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedulers(tmp_path: Path, scheduler: str) -> None:
    check_resume(tmp_path, "SGD momentum", scheduler, torch.float32)


def test_generators_and_dicts(tmp_path: Path) -> None:
    def draws(state: dict[str, Any]) -> list[float]:
        return [
            float(torch.rand((), generator=state["torch"])),
            float(state["pcg"].random()),
            float(state["twister"].normal()),
            float(torch.rand(())),
            float(np.random.rand()),  # noqa: NPY002
            float(np.random.randn()),  # noqa: NPY002
            random.random(),
            random.gauss(),
        ]

    def build() -> dict[str, Any]:
        return {
            "torch": torch.Generator(),
            "pcg": np.random.default_rng(5),
            "twister": np.random.Generator(np.random.MT19937(5)),
            "global": GlobalRandom(),
            "notes": {},
        }

    state = build()
    state["notes"].update(epoch=3, names=["a", ("b", None)], weights=torch.ones(2), nan=float("nan"))
    draws(state)  # half of NumPy's and Python's pairs of normals are kept for the next call
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.save(1, state)
    expected = [draws(state) for _ in range(3)]
    draws(state)
    other = build()
    other["notes"]["old"] = 1
    Run.open(run.path).resume(other)
    assert [draws(other) for _ in range(3)] == expected
    assert bits(other["notes"]) == bits(state["notes"])


def test_the_loop_resumes_at_every_step(tmp_path: Path, small_task: ModuleType) -> None:
    config = small_task.Config(steps=12, save_every=3)
    run, go, _ = small_task.build(tmp_path / "whole", config)
    final = go()
    expected = small_task.fingerprint(run.path)
    for stop in range(12):
        folder = tmp_path / str(stop)
        run, go, state = small_task.build(folder, config)

        def fail(optimizer: Any, *_: Any, left: list[int] = [stop]) -> None:  # noqa: B006
            if left[0] == 0:
                raise LookupError("something in the step")
            left[0] -= 1

        state["optimizer"].register_step_pre_hook(fail)
        with pytest.raises(LookupError):
            go()
        assert small_task.build(folder, config)[1]() == final
        assert small_task.fingerprint(folder) == expected
    # Finished, it does nothing more, and says the same.
    assert small_task.build(folder, config)[1]() == final
    assert small_task.fingerprint(folder) == expected


def test_cpu_time_adds_up(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    state: dict[str, Any] = {"notes": {}}
    run.resume(state)
    sum(range(100_000))
    run.save(1, state)
    first = run.load()
    again = Run.open(run.path)
    again.resume(state)
    sum(range(100_000))
    again.save(2, state)
    second = again.load()
    assert 0 < first.cpu_seconds < second.cpu_seconds and 0 < first.wall_seconds < second.wall_seconds


def test_the_dtypes_of_a_states_tensors_survive(tmp_path: Path) -> None:
    """torch casts the state of an optimiser to its parameter's dtype on loading; a checkpoint must not."""
    model = network("NAdam", torch.float64)
    optimizer = OPTIMISERS["NAdam"](model.parameters())
    a_step(model, optimizer, None, 0, torch.float64)
    assert optimizer.state_dict()["state"][0]["mu_product"].dtype == torch.float32
    plain = OPTIMISERS["NAdam"](model.parameters())
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert plain.state_dict()["state"][0]["mu_product"].dtype == torch.float64  # why there is something to do
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.save(1, {"optimizer": optimizer})
    fresh = OPTIMISERS["NAdam"](model.parameters())
    run.resume({"optimizer": fresh})
    assert fresh.state_dict()["state"][0]["mu_product"].dtype == torch.float32


def test_a_state_lies_in_memory_as_its_parameter_does(tmp_path: Path) -> None:
    """A fused optimiser walks over parameter and state side by side, so both must have one order."""

    def build() -> tuple[nn.Module, optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Conv2d(3, 4, 5).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return model, optim.Adam(model.parameters(), lr=0.1, fused=True)

    def steps(model: nn.Module, optimizer: optim.Optimizer, n: int) -> None:
        for i in range(n):
            images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(i))
            optimizer.zero_grad()
            model(images).square().mean().backward()
            optimizer.step()

    model, optimizer = build()
    steps(model, optimizer, 3)
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.save(3, {"model": model, "optimizer": optimizer})
    again, fresh = build()
    run.resume({"model": again, "optimizer": fresh})
    for one, other in [(model, optimizer), (again, fresh)]:
        steps(one, other, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_objects_that_do_not_fit_are_named(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.save(1, {"model": nn.Linear(2, 2)})
    with pytest.raises(RunError, match=r"holds the state of \['model'\], but the state given now is of \['net'\]"):
        run.resume({"net": nn.Linear(2, 2)})
    with pytest.raises(RunError, match=r"model cannot take its state .* size mismatch"):
        run.resume({"model": nn.Linear(3, 2)})
    with pytest.raises(RunError, match=r"state\['x'\] is a int"):
        run.save(2, {"x": 3})  # type: ignore[dict-item]


def test_saving_goes_forward_and_only_after_resuming(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    run.save(5, {"notes": {}})
    with pytest.raises(RunError, match="the last checkpoint is of step 5, cannot save one of step 5"):
        run.save(5, {"notes": {}})
    with pytest.raises(RunError, match=r"up to step 5; call resume\(\) before save\(\)"):
        Run.open(run.path).save(6, {"notes": {}})
    assert run.load().step == 5


def test_starting_compares_configuration_and_seed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = Run.start(folder, Config(), seed=1)
    assert Run.start(folder, Config(), seed=1).started == first.started
    with pytest.raises(ConfigError, match=r"another run \(rate was 0.1, now 0.2\)"):
        Run.start(folder, Config(rate=0.2), seed=1)
    with pytest.raises(ConfigError, match="seed was 1, now 2"):
        Run.start(folder, Config(), seed=2)
    with pytest.raises(RunError, match="holds a run already"):
        Run.create(folder, Config(), seed=1)
    with pytest.raises(RunError, match=r"seed is 1.5"):
        Run.create(tmp_path / "other", Config(), seed=1.5)  # type: ignore[arg-type]
    file = folder / "run.json"
    file.write_text(file.read_text().replace(torch.__version__, "1.0"))
    with pytest.warns(RunWarning, match=r"torch 1.0 is now 2"):
        Run.start(folder, Config(), seed=1)


def test_a_new_key_of_the_configuration_takes_its_default(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Longer:
        rate: float = 0.1
        extra: int = 3

    Run.create(tmp_path / "run", Config(), seed=1)
    Run.start(tmp_path / "run", Longer(), seed=1)
    with pytest.raises(ConfigError, match="extra was 3, now 4"):
        Run.start(tmp_path / "run", Longer(extra=4), seed=1)


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    size: int = 3


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    text: str = "one\ntwo"


def test_only_what_differs_is_told(tmp_path: Path) -> None:
    Run.create(tmp_path / "run", Outer(), seed=1)
    with pytest.raises(ConfigError) as caught:
        Run.start(tmp_path / "run", Outer(Inner(rate=0.2), "one\nthree"), seed=1)
    differences = "(inner.rate was 0.1, now 0.2; text is another text); choose another folder (--out)"
    assert differences in str(caught.value)


def test_only_one_process_trains_in_a_folder(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)

    def step(i: int) -> float:
        run_steps(Run.open(run.path), lambda i: 0.0, steps=1, state={}, progress=False)
        return 0.0

    with pytest.raises(RunError, match="another process is training in"):
        run_steps(run, step, steps=1, state={}, progress=False)


def test_train_checks_its_arguments(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", Config(), seed=0)

    def go(returned: Any = 0.0, steps: int = 1, **more: Any) -> None:
        run_steps(run, lambda i: returned, steps=steps, state={}, progress=False, **more)

    with pytest.raises(ConfigError, match="log_every is 0, wanted at least 1"):
        go(log_every=0)
    with pytest.raises(ConfigError, match="no evaluate is given"):
        go(best="accuracy")
    with pytest.raises(ConfigError, match="best='accuracy', but evaluate returned only"):
        go(best="accuracy", evaluate=lambda: {"error": 1.0})
    with pytest.raises(ConfigError, match="wanted 'loss' among them"):
        go({"error": 1.0})
    with pytest.raises(RunError, match=r"metric 'loss' is a Tensor of shape \(2,\)"):
        go(torch.ones(2))
    with pytest.raises(RunError, match="a metric is called 'step'"):
        go({"loss": 1.0, "step": 2})
    go(steps=3)
    with pytest.raises(RunError, match="is at step 3 already, cannot train it to step 2"):
        go(steps=2)
