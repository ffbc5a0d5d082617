"""The fingerprint of a task: what a run keeps to notice that its task has become another one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from doxa.logic import Ragged
from doxa.semantics import Model
from doxa.train.tasks._task import Task

__all__ = ["Fingerprint"]


@dataclass(frozen=True)
class Fingerprint:
    """SHA-256 of the data of a task, and of the shapes of its parameters; empty in runs from before there were any.

    Args:
        train: of the training data.
        test: of the test data.
        networks: of the names and shapes of the parameters.

    >>> Fingerprint("a", "b", "c").changes(Fingerprint("a", "d", "c")), Fingerprint().changes(Fingerprint("a"))
    (['its test data have changed'], [])
    """

    train: str = ""
    test: str = ""
    networks: str = ""

    @classmethod
    def of(cls, task: Task, model: Model) -> Fingerprint:
        """The fingerprint of a task as it is now, with a model of it."""
        shapes = {
            name: "not known yet" if nn.parameter.is_lazy(parameter) else list(parameter.shape)
            for name, parameter in model.named_parameters()
        }
        return cls(_hashed(task.train), _hashed(task.test), _hashed(shapes))

    def changes(self, now: Fingerprint) -> list[str]:
        """What is another thing now; of what was not noted nothing is known."""
        said = {
            "train": "its training data have changed",
            "test": "its test data have changed",
            "networks": "the shapes of its networks have changed",
        }
        return [text for name, text in said.items() if getattr(self, name) not in ("", getattr(now, name))]


def _hashed(value: Any) -> str:
    found = hashlib.sha256()
    _feed(found, value)
    return found.hexdigest()


def _feed(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        whole = value.detach().cpu()
        whole = whole if whole.layout == torch.strided else whole.to_dense()
        found.update(f"tensor {value.dtype} {tuple(value.shape)} ".encode())
        found.update(whole.contiguous().reshape(-1).view(torch.uint8).numpy())
    elif isinstance(value, np.ndarray):
        _feed(found, value.tolist() if value.dtype == object else torch.from_numpy(np.ascontiguousarray(value)))
    elif isinstance(value, Ragged):
        _feed(found, [value.values, value.lengths])
    elif isinstance(value, Mapping):
        found.update(f"mapping {len(value)} ".encode())
        for key in sorted(value, key=str):
            _feed(found, str(key))
            _feed(found, value[key])
    elif isinstance(value, list | tuple):
        found.update(f"list {len(value)} ".encode())
        for item in value:
            _feed(found, item)
    elif value is None or isinstance(value, str | int | float):
        found.update(f"{value!r} ".encode())
    else:
        found.update(f"{type(value).__name__} ".encode())  # its text may hold an address, which changes
