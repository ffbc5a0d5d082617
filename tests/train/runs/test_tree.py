"""State trees come back as they were."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings

from doxa.errors import RunError
from doxa.train.runs._checkpoint import pack, unpack


def journey(tree: Any) -> Any:
    """Through bytes and back, as in a checkpoint."""
    tensors, skeleton = pack(tree)
    return unpack(
        safetensors.torch.load(safetensors.torch.save(tensors)), json.loads(json.dumps(skeleton, allow_nan=False))
    )


def same(a: Any, b: Any) -> bool:
    """Equal in type, value and order, bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.resolve_conj().contiguous().flatten().view(torch.uint8).tolist()) if tensor.numel() else b""


DTYPES = [
    *(
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
    ),
    *(
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
    ),
]


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    raw = draw(st.binary(min_size=math.prod(shape) * dtype.itemsize, max_size=math.prod(shape) * dtype.itemsize))
    if dtype == torch.bool:
        raw = bytes(byte % 2 for byte in raw)
    tensor = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    return tensor.reshape(shape).transpose(0, -1) if shape else tensor.reshape(())


keys = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False)
    | st.tuples(st.integers(), st.text())
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | tensors()
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(OrderedDict)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(trees)
def test_round_trip(tree: Any) -> None:
    assert same(journey(tree), tree)


def test_the_comparison_of_these_tests_sees_differences() -> None:
    assert not same(1, True) and not same(0.0, -0.0) and not same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not same(torch.zeros(1), torch.zeros(1, dtype=torch.float64)) and not same((1,), [1])
    assert not same(torch.tensor(0.0), torch.tensor(-0.0))


@pytest.mark.parametrize(
    "tree",
    [
        Counter({3: 1, 7: 2}),
        {
            "__metadata__": torch.ones(1),
            "a/b": torch.zeros(1),
            "a": {"b": torch.ones(2)},
            0: torch.ones(3),
            "0": torch.ones(4),
        },
        {"\ud800": torch.ones(1), "é": torch.zeros(2)},
        np.random.default_rng(1).bit_generator.state,
        np.random.Generator(np.random.MT19937(1)).bit_generator.state,
        np.arange(6, dtype=np.uint32).reshape(2, 3).T,
        torch.arange(3.0).expand(2, 3),
        torch.tensor([1 + 2j, 3 - 4j]).conj(),
        -(2**200),
        5e-324,
    ],
)
def test_odd_trees(tree: Any) -> None:
    assert same(journey(tree), tree)


def test_names_that_collide_keep_their_own_tensors() -> None:
    tree = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, 0: torch.tensor(2.0), "0": torch.tensor(3.0)}
    assert len(pack(tree)[0]) == 4


def test_shared_memory_is_stored_once_and_shared_again() -> None:
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    state = torch.nn.ModuleList([first, second]).state_dict()
    packed, _ = pack(state)
    assert len(packed) == 3
    back = journey(state)
    assert back["0.weight"] is back["1.weight"]
    # A different view of the same memory is not the same tensor.
    base = torch.arange(6.0)
    assert same(journey([base, base[:3], base.reshape(2, 3)]), [base, base[:3], base.reshape(2, 3)])


def test_a_state_dict_keeps_the_versions_of_its_modules() -> None:
    state = torch.nn.BatchNorm1d(2).state_dict()
    assert journey(state)._metadata == state._metadata  # type: ignore[attr-defined]


def test_numpy_scalars_become_numbers() -> None:
    assert same(journey([np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(True)]), [0.1, 0.5, 3, True])


@pytest.mark.parametrize(
    "tree, message",
    [
        ({"a": [1, {2}]}, r"cannot store /a/1: it is a builtins\.set"),
        ({"f": print}, r"cannot store /f: .*builtin_function"),
        ({"n": np.array(["a"])}, r"cannot store /n"),
        ({"n": np.longdouble(1)}, r"cannot store /n"),
        ({torch.ones(1): 1}, r"a key is a tensor"),
        (torch.ones(2).to_sparse(), r"wanted a dense one"),
        (torch.ones(2, device="meta"), r"wanted a dense one with data"),
    ],
)
def test_what_cannot_be_stored_is_named(tree: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        pack(tree)


@pytest.mark.parametrize("skeleton", [{"tensor": "x"}, {"what": 1}, {"dict": 3}, {"ordered": []}, {}])
def test_what_is_not_a_skeleton_is_refused(skeleton: Any) -> None:
    with pytest.raises(RunError, match="not a piece of a state tree"):
        unpack({}, skeleton)
