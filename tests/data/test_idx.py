from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.data import read_idx, write_idx
from doxa.data._mnist import decode_idx, encode_idx
from doxa.errors import DataError

# type code of the format, format character of `struct`, dtype: read from the format's description, not from our table
KINDS = [
    (0x08, "B", torch.uint8),
    (0x09, "b", torch.int8),
    (0x0B, "h", torch.int16),
    (0x0C, "i", torch.int32),
    (0x0D, "f", torch.float32),
    (0x0E, "d", torch.float64),
]


@pytest.mark.parametrize(("code", "character", "dtype"), KINDS)
def test_reads_hand_made_bytes(code: int, character: str, dtype: torch.dtype) -> None:
    values = [0, 1, 2, 100, 127, 3]
    data = struct.pack(">BBBBII", 0, 0, code, 2, 2, 3) + struct.pack(f">6{character}", *values)
    tensor = decode_idx(data)
    assert tensor.dtype == dtype
    assert tensor.tolist() == [values[:3], values[3:]]
    tensor += 1  # it owns its memory
    assert encode_idx(decode_idx(data)) == data


def test_extremes_and_signs() -> None:
    data = bytes([0, 0, 0x0B, 1, 0, 0, 0, 3, 0x80, 0x00, 0xFF, 0xFF, 0x7F, 0xFF])
    assert decode_idx(data).tolist() == [-32768, -1, 32767]


@settings(deadline=None)  # the machine may be busy
@given(
    shape=st.lists(st.integers(0, 3), max_size=5),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**31),
    transposed=st.booleans(),
)
def test_round_trip(shape: list[int], kind: tuple[int, str, torch.dtype], seed: int, transposed: bool) -> None:
    random = torch.Generator().manual_seed(seed)
    tensor = (torch.rand(shape, generator=random, dtype=torch.float64) * 100).to(kind[2])
    if transposed:
        tensor = tensor.permute(tuple(reversed(range(tensor.dim()))))
    back = decode_idx(encode_idx(tensor))
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_files_plain_and_packed(tmp_path: Path) -> None:
    tensor = torch.arange(24, dtype=torch.int32).reshape(2, 3, 4)
    write_idx(tmp_path / "x", tensor)
    write_idx(str(tmp_path / "x.gz"), tensor)
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == (tmp_path / "x").read_bytes()
    assert torch.equal(read_idx(tmp_path / "x"), tensor)
    assert torch.equal(read_idx(str(tmp_path / "x.gz")), tensor)


GOOD = encode_idx(torch.arange(6, dtype=torch.int16).reshape(2, 3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"bad: not an idx file: it starts with nothing, expected 00 00"),
        (b"\0\0\x08", r"not an idx file: it starts with 00 00 08,"),
        (b"<html>", r"not an idx file.*3c 68 74 6d.*a page saved by mistake"),
        (b"\0\0\x0a\x01", r"not an idx file.*a type among 0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E"),
        (gzip.compress(GOOD), r"not an idx file.*still packed"),
        (b"\0\0\x08\x03\0\0", r"truncated idx file: 6 bytes, the header alone has 16"),
        (GOOD[:-1], r"truncated idx file: 23 bytes, shape \(2, 3\) asks for 24"),
        (GOOD + b"\0", r"trailing bytes after the idx data: 25 bytes, shape \(2, 3\) asks for 24"),
        (b"\0\0\x08\x02" + b"\xff" * 8, r"truncated idx file: 12 bytes, shape \(4294967295, 4294967295\)"),
        (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"\0", r"rank 255; at most 32"),
    ],
    ids=["empty", "short", "page", "type", "packed", "header", "truncated", "trailing", "huge", "rank"],
)
def test_bad_bytes(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        decode_idx(data, "bad")


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent: cannot be read \(No such file"):
        read_idx(tmp_path / "absent")
    packed = gzip.compress(GOOD)
    for name, data in {"cut.gz": packed[:-9], "plain.gz": GOOD, "flip.gz": packed[:-5] + b"\1" + packed[-4:]}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}: not a whole gzip file"):
            read_idx(tmp_path / name)


def test_what_idx_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got torch\.int64: convert it first"):
        write_idx(tmp_path / "x", torch.arange(3))
    with pytest.raises(DataError, match=r"got rank 33"):
        write_idx(tmp_path / "x", torch.zeros([1] * 33))
    assert not (tmp_path / "x").exists()
