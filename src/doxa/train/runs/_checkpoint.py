"""Checkpoints: a pair of files per step, which is whole or passed over."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from doxa.errors import RunError, RunWarning
from doxa.train.runs._files import make_folder, read_object, sha256, to_json, write_file, writing
from doxa.train.runs._tree import pack, unpack

_FORMAT = 1
_NAME = re.compile(r"step-(\d+)\.(json|safetensors)")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a number of steps.

    On disk it is ``step-N.safetensors`` with the tensors and ``step-N.json`` with everything else, the SHA-256 of
    the tensors and a SHA-256 of itself. The JSON file is written last: without it there is no checkpoint.

    Args:
        step: how many steps were done.
        state: the state of every object, by name; ``state["model"]`` is what the model's ``load_state_dict`` takes.
        score: what an evaluation at this step gave, higher is better; None where there was none.
        best_step: the step of the highest score so far, this checkpoint included; None where there was none.
        best_score: that score.
        cpu_seconds: CPU time spent on the steps up to here, over all resumptions.
        wall_seconds: likewise by the clock on the wall.
        metrics_size: how many bytes of the metrics file belong to these steps.

    >>> checkpoint = Checkpoint(step=10, state={"counters": {"epoch": 2}}, cpu_seconds=1.5)
    >>> checkpoint.step, checkpoint.state["counters"]
    (10, {'epoch': 2})
    """

    step: int
    state: Mapping[str, Any]
    score: float | None = None
    best_step: int | None = None
    best_score: float | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    metrics_size: int = 0


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint: first the tensors, then the JSON that makes them count."""
    tensors, state = pack(dict(checkpoint.state))
    data = safetensors.torch.save(tensors)
    document: dict[str, Any] = {
        **{name: value for name, value in vars(checkpoint).items() if name != "state"},
        "format": _FORMAT,
        "state": state,
        "tensors_sha256": sha256(data),
    }
    document["sha256"] = sha256(to_json(document))
    make_folder(folder)
    tensor_file, json_file = _files(folder, checkpoint.step)
    try:
        write_file(tensor_file, data)
        write_file(json_file, to_json(document))
    except BaseException:
        if not json_file.exists():
            tensor_file.unlink(missing_ok=True)
        raise


def steps(folder: Path) -> list[int]:
    """The steps of which there are files, lowest first."""
    found = (_NAME.fullmatch(path.name) for path in folder.glob("step-*"))
    return sorted({int(match[1]) for match in found if match})


def read_last(folder: Path) -> Checkpoint | None:
    """Read the newest checkpoint that is whole, warning of every newer one passed over; None if there is none at all.

    Raises:
        RunError: there are checkpoints, and all of them are damaged.
    """
    damaged: list[str] = []
    unfinished: list[str] = []
    found = None
    for step in reversed(steps(folder)):
        tensor_file, json_file = _files(folder, step)
        if not json_file.exists():
            unfinished.append(
                f"{tensor_file} has no {json_file.name}: the checkpoint was cut short or the file is lost"
            )
            continue
        try:
            found = read(folder, step)
            break
        except RunError as error:
            damaged.append(str(error))
    if damaged and found is None:
        raise RunError(
            f"no checkpoint in {folder} can be used: {'; '.join(damaged)}; "
            "put back a copy of these files, or remove the folder to start from step 0"
        )
    for reason in damaged + unfinished:
        warnings.warn(f"{reason}; going on from step {found.step if found else 0}", RunWarning, stacklevel=3)
    return found


def remove_superseded(folder: Path, last: Checkpoint) -> None:
    """Remove what a kill kept from being removed: all before the last two but their best."""
    before = [step for step in steps(folder) if step < last.step]
    keep = {last.best_step, *before[-1:]}
    with suppress(OSError, ValueError, IndexError):  # it is damaged and will not be gone back to, or there is none
        keep.add(read_object(_files(folder, before[-1])[1]).get("best_step"))
    keep_only(folder, set(steps(folder)) - (set(before) - keep))


def keep_only(folder: Path, keep: set[int]) -> None:
    """Remove all other checkpoints; the JSON file first, since a checkpoint counts as long as that is there."""
    for step in set(steps(folder)) - keep:
        tensor_file, json_file = _files(folder, step)
        with writing(json_file):
            json_file.unlink(missing_ok=True)
            tensor_file.unlink(missing_ok=True)


def _files(folder: Path, step: int) -> tuple[Path, Path]:
    return folder / f"step-{step:09d}.safetensors", folder / f"step-{step:09d}.json"


def read(folder: Path, step: int) -> Checkpoint:
    """Read the checkpoint of one step.

    Raises:
        RunError: it is damaged; the message names the file.
    """
    tensor_file, json_file = _files(folder, step)
    try:
        document = read_object(json_file)
        untouched = json_file.read_bytes() == to_json(document)  # not a space was changed
        untouched &= document.pop("sha256", None) == sha256(to_json(document))
        data = tensor_file.read_bytes()
    except OSError as error:
        raise RunError(f"{error.filename} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(str(error)) from error
    if not untouched:
        raise RunError(f"{json_file} is not as it was written (its SHA-256 differs)")
    if document.pop("format", None) != _FORMAT:
        raise RunError(f"{json_file} is of a format that this version of doxa does not know")
    if document.pop("tensors_sha256", None) != sha256(data):
        raise RunError(f"{tensor_file} is not as it was written ({len(data)} bytes, its SHA-256 differs)")
    try:
        state = unpack(safetensors.torch.load(data), document.pop("state", None))
        return Checkpoint(**document, state=state)
    except (safetensors.SafetensorError, RunError, TypeError, ValueError) as error:
        raise RunError(f"{tensor_file} does not hold a checkpoint ({error})") from error
