"""State trees: nested Python values with tensors in them, as named tensors plus JSON, and back."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doxa.errors import RunError


def pack(tree: object) -> tuple[dict[str, Tensor], Any]:
    """Split a tree into named tensors and a JSON skeleton that says where they belong.

    A tree is made of ``None``, ``bool``, ``int``, ``float``, ``str``, tensors and NumPy arrays, in lists, tuples
    and dicts (also ``OrderedDict`` and ``Counter``, which modules and schedulers use) to any depth. Everything
    comes back from `unpack` as it was: the types and order of dict keys, every float including ``nan`` and the
    infinities, empty and 0-dimensional tensors, every dtype. Tensors come back contiguous, on the CPU and without
    ``requires_grad``. Two entries that are the very same memory (tied weights) are stored once and are one tensor
    again; NumPy scalars become Python numbers.

    Args:
        tree: what to store; ``state_dict()`` of any module, optimiser or scheduler is such a tree.

    Returns:
        Copies of the tensors by name, contiguous and on the CPU, and the skeleton: JSON values only.

    Raises:
        RunError: something in the tree is of another type; the message says where.

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
    """Put a tree together again: the inverse of `pack`. Only data are built, no code runs.

    Args:
        tensors: by name, as `pack` gave them.
        skeleton: as `pack` gave it, perhaps after a journey through JSON.

    Raises:
        RunError: the skeleton is not one, or names a tensor that is not there.

    >>> unpack({}, {"tuple": [1, None, "a"]})
    (1, None, 'a')
    """
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
