"""Damaged checkpoints are noticed and passed over; the best and the last are kept; nothing in a file is executed."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import safetensors.torch
import torch

from doxa.errors import RunError, RunWarning
from doxa.train import Run
from doxa.train.runs._files import sha256, to_json


@dataclass(frozen=True)
class Config:
    rate: float = 0.1


def state(value: float = 0.0) -> dict[str, Any]:
    return {"notes": {"weight": torch.full((50,), value), "value": value}}


def make(tmp_path: Path, *steps: int, scores: dict[int, float] | None = None) -> Run:
    run = Run.create(tmp_path / "run", Config(), seed=0)
    for step in steps:
        run.log(step, {"loss": 1 / step})
        run.save(step, state(float(step)), score=(scores or {}).get(step))
    return run


def files(run: Run, step: int) -> tuple[Path, Path]:
    stem = run.path / "checkpoints" / f"step-{step:09d}"
    return stem.with_suffix(".safetensors"), stem.with_suffix(".json")


def kept(run: Run) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in run.path.glob("checkpoints/*.json"))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flip_last(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


DAMAGE = [truncate, empty, flip, flip_last, remove]


@pytest.mark.parametrize("which", [0, 1], ids=["tensors", "json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: Callable[[Path], None], which: int) -> None:
    run = make(tmp_path, 10, 20, 30)
    before = (run.path / "metrics.jsonl").read_bytes()
    file = files(run, 30)[which]
    damage(file)
    again, notes = Run.open(run.path), state()
    with pytest.warns(RunWarning, match=rf"{file.name}.*going on from step 20"):
        found = again.resume(notes)
    assert found is not None and found.step == 20
    assert notes["notes"]["value"] == 20.0 and torch.equal(notes["notes"]["weight"], torch.full((50,), 20.0))
    assert [line["step"] for line in again.metrics()] == [10, 20]
    # It goes on from there, and the damaged files are replaced.
    again.log(30, {"loss": 1 / 30})
    again.save(30, state(30.0))
    assert (run.path / "metrics.jsonl").read_bytes() == before
    assert Run.open(run.path).load().step == 30 and kept(run) == [20, 30]


@pytest.mark.parametrize("which", [0, 1], ids=["tensors", "json"])
@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_any_flipped_bit_is_noticed(tmp_path: Path, place: float, which: int) -> None:
    run = make(tmp_path, 10, 20)
    file = files(run, 20)[which]
    whole = file.read_bytes()
    for bit in range(8):
        data = bytearray(whole)
        data[int(place * len(data))] ^= 1 << bit
        file.write_bytes(data)
        with pytest.warns(RunWarning, match=file.name):
            assert Run.open(run.path).load().step == 10


def test_edited_values_are_noticed(tmp_path: Path) -> None:
    run = make(tmp_path, 10, 20)
    _, file = files(run, 20)
    document = json.loads(file.read_text())
    for change in ({"step": 21}, {"cpu_seconds": 0.0}, {"best_step": 20}, {"more": 1}, {"cpu_seconds": float("nan")}):
        file.write_text(json.dumps({**document, **change}))
        with pytest.warns(RunWarning, match=file.name):
            assert Run.open(run.path).load().step == 10


def test_all_damaged_is_an_error_that_names_them(tmp_path: Path) -> None:
    run = make(tmp_path, 10, 20)
    flip(files(run, 10)[0])
    truncate(files(run, 20)[1])
    with pytest.raises(
        RunError, match=r"no checkpoint in .* can be used: .*20\.json is not JSON.*10\.safetensors is not as"
    ):
        Run.open(run.path).resume(state())
    with pytest.raises(RunError, match="no checkpoint in"):
        run.load()


def test_a_first_checkpoint_cut_short_is_a_start_from_nothing(tmp_path: Path) -> None:
    run = make(tmp_path, 10)
    files(run, 10)[1].unlink()
    again = Run.open(run.path)
    with pytest.warns(RunWarning, match="cut short or the file is lost; going on from step 0"):
        assert again.resume(state()) is None
    assert again.metrics() == []
    again.save(5, state())
    assert kept(run) == [5] and not files(run, 10)[0].exists()


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("kind", ["pickle", "torch.save"])
@pytest.mark.parametrize("forged", [False, True], ids=["plain", "forged hashes"])
def test_pickles_are_not_executed(tmp_path: Path, forged: bool, kind: str) -> None:
    run, trap = make(tmp_path, 10, 20), tmp_path / "executed"
    tensor_file, json_file = files(run, 20)
    if kind == "pickle":
        tensor_file.write_bytes(pickle.dumps(Trap(trap)))
    else:
        torch.save(Trap(trap), tensor_file)
    if forged:
        document = json.loads(json_file.read_text())
        del document["sha256"]
        document["tensors_sha256"] = sha256(tensor_file.read_bytes())
        json_file.write_bytes(to_json({**document, "sha256": sha256(to_json(document))}))
    with pytest.warns(RunWarning, match=tensor_file.name):
        assert Run.open(run.path).load().step == 10
    assert not trap.exists()
    pickle.loads(pickle.dumps(Trap(trap)))
    assert trap.exists()  # the trap does work


def test_forged_skeletons_are_refused(tmp_path: Path) -> None:
    run = make(tmp_path, 10, 20)
    _, json_file = files(run, 20)
    document = json.loads(json_file.read_text())
    del document["sha256"]
    for change in ({"state": {"call": "os.system"}}, {"state": {"dict": [1]}}, {"format": 99}, {"unknown": 1}):
        forged = {**document, **change}
        json_file.write_bytes(to_json({**forged, "sha256": sha256(to_json(forged))}))
        with pytest.warns(RunWarning, match="step-000000020"):
            assert Run.open(run.path).load().step == 10


def test_last_two_and_best_are_kept(tmp_path: Path) -> None:
    scores = {10: 0.5, 20: 0.9, 30: float("nan"), 40: 0.8, 50: 0.9, 60: float("inf")}
    run = make(tmp_path, 10, 20, 30, 40, 50, 60, scores=scores)
    assert kept(run) == [20, 50, 60]
    best = Run.open(run.path).load("best")
    assert (best.step, best.score, best.state["notes"]["value"]) == (20, 0.9, 20.0)
    assert run.load().best_step == 20 and run.load().score is None
    with pytest.raises(RunError, match="which is 'worst', wanted 'last' or 'best'"):
        run.load("worst")


def test_the_previous_checkpoint_still_has_its_best_when_a_new_best_is_damaged(tmp_path: Path) -> None:
    run = make(tmp_path, 10, 20, 30, scores={10: 0.5, 20: 0.4, 30: 0.9})
    flip(files(run, 30)[0])
    with pytest.warns(RunWarning):
        assert Run.open(run.path).load("best").step == 10


def test_a_damaged_best_is_an_error(tmp_path: Path) -> None:
    run = make(tmp_path, 10, 20, 30, scores={10: 0.5, 20: 0.4, 30: 0.3})
    flip(files(run, 10)[0])
    with pytest.raises(RunError, match=r"10\.safetensors is not as it was written"):
        run.load("best")


def test_nothing_to_load(tmp_path: Path) -> None:
    run = make(tmp_path)
    with pytest.raises(RunError, match="has no checkpoint yet"):
        run.load()
    run.save(1, state())
    with pytest.raises(RunError, match="no checkpoint was saved with a score"):
        run.load("best")


def test_files_are_plain_safetensors_and_json(tmp_path: Path) -> None:
    run = make(tmp_path, 10)
    tensor_file, json_file = files(run, 10)
    tensors = safetensors.torch.load_file(tensor_file)
    assert torch.equal(tensors["/notes/weight"], torch.full((50,), 10.0))
    assert json.loads(json_file.read_text())["step"] == 10


def test_the_best_of_a_trained_run(tmp_path: Path, small_task: ModuleType) -> None:
    run, go, _ = small_task.build(tmp_path / "run", small_task.Config(steps=30, save_every=100))
    go()
    errors = {line["step"]: line["error"] for line in run.metrics() if "error" in line}
    assert set(errors) == {7, 14, 21, 28, 30}
    best = run.load("best")
    assert best.step == min(errors, key=errors.__getitem__) and best.score == -min(errors.values())


def test_strangers_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    run = make(tmp_path, 10)
    stranger = run.path / "checkpoints" / "step-notes.txt"
    stranger.write_text("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.save(20, state())
        run.save(30, state())
        assert Run.open(run.path).load().step == 30
    assert stranger.exists() and kept(run) == [20, 30]
