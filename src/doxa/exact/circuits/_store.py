"""Compiled circuits on disk: found by content, written whole or not at all, verified when read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np

from doxa.exact.circuits._circuit import Circuit
from doxa.logic import CNF

FORMAT = b"doxa circuit 2\n"


def key_of(cnf: CNF, *more: str) -> str:
    """A name that depends on the clauses and on whatever else decides the circuit."""
    parts = [FORMAT, str(cnf.variables).encode(), cnf.literals.tobytes(), cnf.offsets.tobytes(), *map(str.encode, more)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def load(key: str, folder: Path) -> tuple[Circuit, int] | None:
    """The circuit under this name and how many operations it took, or None; a damaged file counts as none."""
    try:
        content = (folder / f"{key}.circuit").read_bytes()
    except OSError:
        return None
    return unpack(content, key)


def save(key: str, circuit: Circuit, operations: int, folder: Path) -> None:
    """Keep a circuit; a full or read-only disk is no reason to fail."""
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(pack(circuit, operations, key))
            os.replace(name, folder / f"{key}.circuit")
        except OSError:
            os.unlink(name)
            raise


def pack(circuit: Circuit, operations: int, key: str) -> bytes:
    """A circuit as bytes: what it is, a checksum that includes its name, three arrays."""
    sizes = np.array([circuit.variables, len(circuit.kinds), len(circuit.children), operations], "<i8").tobytes()
    arrays = [
        circuit.kinds.astype("<i1").tobytes(),
        circuit.offsets.astype("<i8").tobytes(),
        circuit.children.astype("<i8").tobytes(),
    ]
    body = b"".join([sizes, *arrays])
    return FORMAT + hashlib.sha256(key.encode() + body).digest() + body


def unpack(content: bytes, key: str) -> tuple[Circuit, int] | None:
    """The circuit, or None unless every byte is as it was written."""
    start = len(FORMAT)
    body = content[start + 32 :]
    if content[:start] != FORMAT or hashlib.sha256(key.encode() + body).digest() != content[start : start + 32]:
        return None
    variables, nodes, edges, operations = np.frombuffer(body, "<i8", 4).tolist()
    kinds = np.frombuffer(body, "<i1", nodes, 32).astype(np.int8)
    offsets = np.frombuffer(body, "<i8", nodes + 1, 32 + nodes).astype(np.int64)
    children = np.frombuffer(body, "<i8", edges, 32 + nodes + 8 * (nodes + 1)).astype(np.int64)
    return Circuit(variables, kinds, offsets, children), operations
