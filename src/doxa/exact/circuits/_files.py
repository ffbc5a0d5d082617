"""Circuits in files: the ``.nnf`` text of compilers such as c2d and dsharp, and doxa's own cache of circuits."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from doxa._files import write_atomic
from doxa.errors import DataError
from doxa.exact.circuits._circuit import AND, OR, Circuit, CircuitBuilder
from doxa.logic import CNF


def write_nnf(circuit: Circuit, path: str | Path) -> None:
    """Write a circuit: ``nnf nodes edges variables``, then lines ``L literal``, ``A n children``, ``O 0 n children``.

    >>> import tempfile
    >>> from doxa.exact.circuits import exactly_one
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_nnf(exactly_one(2), Path(folder, "one.nnf"))
    ...     print(Path(folder, "one.nnf").read_text().splitlines()[0], read_nnf(Path(folder, "one.nnf")).count())
    nnf 7 6 2
    2
    """
    used = sorted({c for children in circuit.arguments for c in children if c < circuit.literals})
    number = {leaf: i for i, leaf in enumerate(used)}
    lines = [f"L {(leaf // 2 + 1) * (-1 if leaf % 2 else 1)}" for leaf in used]
    for i, (kind, children) in enumerate(zip(circuit.kinds.tolist(), circuit.arguments, strict=True)):
        number[circuit.literals + i] = len(lines)
        listed = " ".join(str(number[c]) for c in children)
        lines.append(f"{'A' if kind == AND else 'O 0'} {len(children)} {listed}".rstrip())
    head = f"nnf {len(lines)} {circuit.edges} {circuit.variables}"
    Path(path).write_text("\n".join([head, *lines]) + "\n", encoding="ascii")


def read_nnf(path: str | Path) -> Circuit:
    """Read a circuit. It is taken on trust that conjunctions share no variables and disjunctions exclude each other.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "or.nnf")
    ...     _ = file.write_text("nnf 5 4 2\\nL 1\\nL -1\\nL 2\\nA 2 1 2\\nO 1 2 0 3\\n")
    ...     read_nnf(file).count()
    3
    """
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot read {str(path)!r}: {reason}; wanted a .nnf file, as write_nnf makes it") from error
    lines = [line.split() for line in text.splitlines()]
    rows = [(n, row) for n, row in enumerate(lines, 1) if row and row[0] != "c"]
    if not rows or rows[0][1][0] != "nnf" or len(rows[0][1]) != 4:
        raise DataError(f"{path}: the first line is not 'nnf nodes edges variables'; this is no .nnf file")
    try:
        nodes, _, variables = map(int, rows[0][1][1:])
    except ValueError:
        raise DataError(f"{path}:{rows[0][0]}: expected three numbers after 'nnf'") from None
    if len(rows) - 1 != nodes or nodes == 0:
        raise DataError(f"{path}: has {len(rows) - 1} nodes, expected {nodes} as its first line says, at least 1")
    builder = CircuitBuilder(variables)
    numbers: list[int] = []
    for line, (kind, *rest) in rows[1:]:
        try:
            values = [int(x) for x in rest]
            if kind == "L" and len(values) == 1 and 1 <= abs(values[0]) <= variables:
                numbers.append(2 * abs(values[0]) - 2 + (values[0] < 0))
                continue
            values = values[1:] if kind == "O" else values
            if kind not in ("A", "O") or len(values) != values[0] + 1 or min(values) < 0:
                raise ValueError
            numbers.append(builder.add(AND if kind == "A" else OR, [numbers[i] for i in values[1:]]))
        except (ValueError, IndexError):
            wanted = "'L literal', 'A n children' or 'O variable n children' with children from lines before"
            raise DataError(f"{path}:{line}: {' '.join([kind, *rest])!r} is no node; expected {wanted}") from None
    return builder.finish(numbers[-1])


FORMAT = b"doxa circuit 5\n"


def key_of(cnf: CNF, *more: str) -> str:
    """A name that depends on the clauses and on whatever else decides the circuit."""
    parts = [FORMAT, str(cnf.variables).encode(), cnf.literals.tobytes(), cnf.offsets.tobytes(), *map(str.encode, more)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


class Kept(NamedTuple):
    """A circuit, and how many operations and nodes at a time it took to compile it."""

    circuit: Circuit
    operations: int
    nodes: int


def load(key: str, folder: Path) -> Kept | None:
    """What is kept under this name, or None unless every byte is as it was written."""
    try:
        content = (folder / f"{key}.circuit").read_bytes()
    except OSError:
        return None
    start = len(FORMAT)
    body = content[start + 32 :]
    if content[:start] != FORMAT or hashlib.sha256(key.encode() + body).digest() != content[start : start + 32]:
        return None
    variables, nodes, edges, *cost = np.frombuffer(body, "<i8", 5).tolist()
    kinds = np.frombuffer(body, "<i1", nodes, 40).astype(np.int8)
    offsets = np.frombuffer(body, "<i8", nodes + 1, 40 + nodes).astype(np.int64)
    children = np.frombuffer(body, "<i8", edges, 40 + nodes + 8 * (nodes + 1)).astype(np.int64)
    return Kept(Circuit(variables, kinds, offsets, children), *cost)


def save(key: str, kept: Kept, folder: Path) -> None:
    """Keep a circuit; a full or read-only disk is no reason to fail."""
    with contextlib.suppress(OSError):
        write_atomic(folder / f"{key}.circuit", pack(kept, key), private=True)


def pack(kept: Kept, key: str) -> bytes:
    """A circuit as bytes: what it is, a checksum that includes its name, three arrays."""
    circuit = kept.circuit
    sizes = np.array([circuit.variables, len(circuit), circuit.edges, kept.operations, kept.nodes], "<i8").tobytes()
    arrays = ((circuit.kinds, "<i1"), (circuit.offsets, "<i8"), (circuit.children, "<i8"))
    body = b"".join([sizes, *(array.astype(kind).tobytes() for array, kind in arrays)])
    return FORMAT + hashlib.sha256(key.encode() + body).digest() + body
