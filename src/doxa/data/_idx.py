"""Idx files: the format in which MNIST is published.

A file is two zero bytes, one byte for the type, one byte for the rank r, then r sizes as big-endian unsigned 32-bit
numbers, then the values in row-major order, big endian too.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from doxa.errors import DataError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CODES = {
    torch.uint8: 0x08,
    torch.int8: 0x09,
    torch.int16: 0x0B,
    torch.int32: 0x0C,
    torch.float32: 0x0D,
    torch.float64: 0x0E,
}
_MAX_RANK = 32  # of a NumPy 1 array; NumPy 2 allows 64


def gunzip(data: bytes, name: str) -> bytes:
    """Undo gzip; a damaged stream is a `DataError` that names the file."""
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: not a whole gzip file ({error}); fetch it again") from error


def decode_idx(data: bytes, name: str = "data") -> Tensor:
    """The tensor in the bytes of an (unpacked) idx file; ``name`` is used in messages."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        known = ", ".join(f"0x{code:02X}" for code in _TYPES)
        raise DataError(
            f"{name}: not an idx file: it starts with {data[:4].hex(' ') or 'nothing'}, expected 00 00, "
            f"a type among {known}, and a rank. Is it still packed, or a page saved by mistake?"
        )
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if rank > _MAX_RANK:
        raise DataError(f"{name}: an idx file of rank {rank}; at most {_MAX_RANK} can be held in an array")
    if len(data) < start:
        raise DataError(f"{name}: truncated idx file: {len(data)} bytes, the header alone has {start}; fetch it again")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        fault = "truncated idx file" if len(data) < expected else "trailing bytes after the idx data"
        raise DataError(f"{name}: {fault}: {len(data)} bytes, shape {shape} asks for {expected}; fetch it again")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), copy=True))


def encode_idx(tensor: Tensor) -> bytes:
    """The bytes of the idx file that holds ``tensor``."""
    if tensor.dtype not in _CODES:
        raise DataError(f"idx files hold {', '.join(map(str, _CODES))}; got {tensor.dtype}: convert it first")
    if tensor.dim() > _MAX_RANK:
        raise DataError(f"idx files are written up to rank {_MAX_RANK}; got rank {tensor.dim()}: reshape it first")
    code = _CODES[tensor.dtype]
    header = struct.pack(f">BBBB{tensor.dim()}I", 0, 0, code, tensor.dim(), *tensor.shape)
    return header + tensor.detach().cpu().numpy().astype(_TYPES[code]).tobytes()


def read_idx(path: str | Path) -> Tensor:
    """Read an idx file of any type and rank; a name that ends in ``.gz`` is unpacked on the way.

    Args:
        path: the file.

    Returns:
        A tensor with the file's shape and the matching dtype, on the CPU.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels-idx1-ubyte.gz"
    ...     write_idx(path, torch.tensor([7, 2, 1], dtype=torch.uint8))
    ...     read_idx(path)
    tensor([7, 2, 1], dtype=torch.uint8)
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return decode_idx(gunzip(data, str(path)) if path.suffix == ".gz" else data, str(path))


def write_idx(path: str | Path, tensor: Tensor) -> None:
    """Write ``tensor`` as an idx file; a name that ends in ``.gz`` is packed on the way.

    Args:
        path: the file; an existing one is replaced.
        tensor: uint8, int8, int16, int32, float32 or float64, of any shape.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_idx(Path(folder) / "x", torch.zeros(2, 3, dtype=torch.int16))
    ...     (Path(folder) / "x").read_bytes()[:12].hex(" ")
    '00 00 0b 02 00 00 00 02 00 00 00 03'
    """
    path = Path(path)
    data = encode_idx(tensor)
    # mtime=0: the same tensor gives the same file
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
