"""Checkpoints: a pair of files per step, which is whole or passed over; and how a state becomes tensors and JSON."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doxa.errors import RunError, RunWarning
from doxa.train.runs._files import make_folder, read_object, sha256, to_json, write_file, writing


def pack(tree: object) -> tuple[dict[str, Tensor], Any]:
    """Split a tree into named tensors and a JSON skeleton that says where they belong.

    A tree is made of ``None``, ``bool``, ``int``, ``float``, ``str``, tensors and NumPy arrays, in lists, tuples
    and dicts (also ``OrderedDict`` and ``Counter``, which modules and schedulers use). Everything comes back from
    `unpack` as it was, but tensors contiguous, on the CPU and without ``requires_grad``, and NumPy scalars as Python
    numbers. Two entries that are the very same memory (tied weights) are stored once and are one tensor again.

    >>> tensors, skeleton = pack({"weight": torch.ones(2), 3: (1, float("inf"))})
    >>> tensors
    {'/weight': tensor([1., 1.])}
    >>> skeleton
    {'dict': [['weight', {'tensor': '/weight'}], [3, {'tuple': [1, {'float': 'inf'}]}]]}
    >>> unpack(tensors, skeleton)
    {'weight': tensor([1., 1.]), 3: (1, inf)}
    """
    packer = _Packer()
    skeleton = packer.encode(tree, "")
    return packer.tensors, skeleton


def unpack(tensors: Mapping[str, Tensor], skeleton: Any) -> Any:
    """Put a tree together again: the inverse of `pack`. Only data are built, no code runs."""
    match skeleton:
        case None | bool() | int() | float() | str():
            return skeleton
        case list():
            return [unpack(tensors, item) for item in skeleton]
        case {"tuple": list(items)}:
            return tuple(unpack(tensors, item) for item in items)
        case {"float": str(text)}:
            return float(text)
        case {"tensor": str(name)} if name in tensors:
            return tensors[name]
        case {"complex": str(name)} if name in tensors:
            return torch.view_as_complex(tensors[name])
        case {"array": str(name)} if name in tensors:
            return tensors[name].numpy()
        case {"dict": list(pairs)} | {"counter": list(pairs)} | {"ordered": list(pairs), "metadata": _}:
            found = {unpack(tensors, key): unpack(tensors, value) for key, value in pairs}
            if "ordered" not in skeleton:
                return Counter(found) if "counter" in skeleton else found
            ordered = OrderedDict(found)
            if (metadata := skeleton["metadata"]) is not None:
                ordered._metadata = unpack(tensors, metadata)  # type: ignore[attr-defined]
            return ordered
    raise RunError(f"not a piece of a state tree: {str(skeleton)[:80]!r}; was the file written by a newer doxa?")


class _Packer:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}  # memory -> name, so that shared memory is stored once
        self._alive: list[Tensor] = []  # an address may be reused once its tensor is gone

    def encode(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if isinstance(value, np.bool_ | np.integer | np.float16 | np.float32 | np.float64):
            return self.encode(value.item(), path)
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if kind is np.ndarray and value.dtype.kind in "biuf" and value.itemsize <= 8:
            native = value.astype(value.dtype.newbyteorder("="))
            return {"array": self._tensor(torch.from_numpy(native), path)["tensor"]}
        if kind is list:
            return [self.encode(item, f"{path}/{i}") for i, item in enumerate(value)]
        if kind is tuple:
            return {"tuple": [self.encode(item, f"{path}/{i}") for i, item in enumerate(value)]}
        if kind in (dict, Counter):
            return {kind.__name__.lower(): self._pairs(value, path)}
        if kind is OrderedDict:
            # `Module.state_dict` hangs the versions of its modules on an attribute of the dict.
            metadata = self.encode(getattr(value, "_metadata", None), f"{path}/metadata")
            return {"ordered": self._pairs(value, path), "metadata": metadata}
        raise RunError(
            f"cannot store {path or 'the tree'}: it is a {kind.__module__}.{kind.__qualname__}, wanted None, a bool, "
            "number, string, tensor or array, or a list, tuple or dict of them; convert it in state_dict()"
        )

    def _pairs(self, value: Mapping[Any, Any], path: str) -> list[Any]:
        for key in value:
            if isinstance(key, Tensor):
                raise RunError(f"cannot store {path or 'the tree'}: a key is a tensor, wanted a string or a number")
        return [[self.encode(key, path), self.encode(item, f"{path}/{key}")] for key, item in value.items()]

    def _tensor(self, value: Tensor, path: str) -> dict[str, str]:
        if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
            raise RunError(
                f"cannot store {path}: it is a {value.layout} tensor on {value.device}, wanted a dense one with data"
            )
        place = (value.data_ptr(), value.shape, value.stride(), value.device)
        memory = (*place, value.dtype, value.is_conj(), value.is_neg())
        kind = "complex" if value.is_complex() else "tensor"
        if value.numel() and memory in self._names:
            return {kind: self._names[memory]}
        # A leading "/" keeps clear of the name "__metadata__", which safetensors reserves.
        name = path.encode("ascii", "backslashreplace").decode() or "/"
        while name in self.tensors:
            name += "'"
        data = value.detach().resolve_conj().resolve_neg()
        data = torch.view_as_real(data) if value.is_complex() else data
        # A copy, since safetensors wants no two tensors in one memory, and views of one may be in the tree.
        self.tensors[name] = data.to("cpu", copy=True, memory_format=torch.contiguous_format)
        self._names[memory] = name
        self._alive.append(value)
        return {kind: name}


_FORMAT = 1
_NAME = re.compile(r"step-(\d+)\.(json|safetensors)")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a number of steps.

    On disk it is ``step-N.safetensors`` with the tensors and ``step-N.json`` with everything else, the SHA-256 of
    the tensors and a SHA-256 of itself. The JSON file is written last: without it there is no checkpoint.

    >>> checkpoint = Checkpoint(step=10, state={"counters": {"epoch": 2}}, cpu_seconds=1.5)
    >>> checkpoint.step, checkpoint.state["counters"]
    (10, {'epoch': 2})
    """

    step: int  # how many steps were done
    state: Mapping[str, Any]  # of every object, by name, as its ``load_state_dict`` takes it
    score: float | None = None  # what an evaluation at this step gave, higher is better
    best_step: int | None = None  # the step of the highest score so far, this checkpoint included
    best_score: float | None = None
    cpu_seconds: float = 0.0  # spent on the steps up to here, over all resumptions
    wall_seconds: float = 0.0
    metrics_size: int = 0  # how many bytes of the metrics file belong to these steps


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint: first the tensors, then the JSON that makes them count."""
    import safetensors.torch

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
    import safetensors.torch

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
