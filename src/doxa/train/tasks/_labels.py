"""Concept labels as a table: which objects of which training rows are what. Written to be filled in, and read again.

    row,field,concept,value
    17,pairs.left,digit,3

A row is counted from 0, as in the training data. A value that is left empty is not told.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from doxa._files import write_atomic
from doxa.errors import DataError
from doxa.logic import Function, Predicate, Ragged
from doxa.train.tasks._measure import value_names
from doxa.train.tasks._task import Task, columns, nearest

HEADER = ("row", "field", "concept", "value")
Labels = dict[str, dict[str, Tensor]]
"""By symbol and field: positions among the values, int64 ``(training rows,)``, -1 where nothing is told."""


def concept_places(task: Task) -> dict[str, list[str]]:
    """The fields that each concept of a task is read off, such as ``{"digit": ["pairs.left", "pairs.right"]}``.

    A concept is what is said of one object: a function into a finite sort, or a predicate, perhaps over a finite sort.
    """
    signature = task.kb.signature
    declared = signature.rows.get(task.rows)
    if declared is None:
        return {symbol: list(places) for symbol, places in task.concepts.items()}
    found = {}
    symbols: list[Predicate | Function] = [*signature.predicates.values(), *signature.functions.values()]
    for symbol in symbols:
        finite = symbol.result if isinstance(symbol, Function) else symbol.sorts[-1] if len(symbol.sorts) == 2 else None
        alone = len(symbol.sorts) == 1 or (len(symbol.sorts) == 2 and isinstance(symbol, Predicate))
        closed = isinstance(symbol, Predicate) and symbol.closed
        if alone and not closed and symbol.sorts[0].values is None and (finite is None or finite.values is not None):
            fields = [name for name, sort, _ in declared.fields if sort == symbol.sorts[0]]
            found[symbol.name] = [f"{task.rows}.{name}" for name in fields]
    return {symbol: places for symbol, places in found.items() if places}


def read_labels(file: str | Path, task: Task) -> Labels:
    """Concept labels for training rows of a task, from a table with the columns row, field, concept and value.

    Raises:
        DataError: something in the table is no row, field, concept or value of the task, or is told twice and
            differently; with the line.

    >>> import tempfile
    >>> from doxa.train.tasks._shortcuts import driving_drawn
    >>> task = driving_drawn((8, 4)).task
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as stream:
    ...     _ = stream.write("row,field,concept,value\\n2,streets.view,red,true\\n3,streets.view,red,\\n")
    ...     stream.flush()
    ...     read_labels(stream.name, task)["red"]["streets.view"]
    tensor([-1, -1,  1, -1, -1, -1, -1, -1])
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no table of text: {error}") from error
    lines = list(csv.reader(io.StringIO(text), skipinitialspace=True))
    filled = [(n, [cell.strip() for cell in line]) for n, line in enumerate(lines, 1) if any(c.strip() for c in line)]
    if not filled or sorted(filled[0][1]) != sorted(HEADER):
        came = ",".join(filled[0][1]) if filled else "nothing"
        raise DataError(f"{path}: wanted a header {','.join(HEADER)}, got {came}; doxa ask writes such a table")
    header, places, count = filled[0][1], concept_places(task), task.size("train")
    found: Labels = {}
    for number, line in filled[1:]:
        where = f"{path}:{number}"
        if len(line) != len(header):
            raise DataError(f"{where}: wanted {len(header)} cells, as the header has, got {len(line)}")
        cells = dict(zip(header, line, strict=True))
        concept, place, said = cells["concept"], cells["field"], cells["value"]
        if concept not in places:
            raise DataError(f"{where}: {concept!r} is no concept; {nearest(concept, places, 'there are the concepts')}")
        if place not in places[concept]:
            near = nearest(place, places[concept], "it is read off")
            raise DataError(f"{where}: {concept} is not read off {place!r}; {near}")
        if isinstance(columns(task.train, task.rows, "train")[place.partition(".")[2]], Ragged):
            raise DataError(f"{where}: {place} holds several objects in a row; labels are for fields that hold one")
        if not (cells["row"].isascii() and cells["row"].isdigit()) or int(cells["row"]) >= count:
            raise DataError(f"{where}: row is {cells['row']!r}, expected a number from 0 to {count - 1}")
        if not said:
            continue
        names = value_names(task.kb, concept)[0]
        if concept in task.kb.signature.predicates and said in ("0", "1"):
            said = names[int(said)]
        if said.lower() not in (known := [name.lower() for name in names]):
            raise DataError(f"{where}: {said!r} is no value of {concept}; {nearest(said, names, 'it has')}")
        column = found.setdefault(concept, {}).setdefault(place, torch.full((count,), -1))
        row, value = int(cells["row"]), known.index(said.lower())
        if int(column[row]) not in (-1, value):
            raise DataError(f"{where}: row {row} was told to be {names[int(column[row])]} before, and is now {said}")
        column[row] = value
    return found


def with_labels(task: Task, file: str | Path) -> Task:
    """A task that learns from a table of labels as well; an error if none is filled in."""
    labels = read_labels(file, task)
    if not labels:
        raise DataError(f"{file}: no label is filled in; write values into its last column")
    return replace(task, labels=labels)


def count_labels(labels: Mapping[str, Mapping[str, Tensor]]) -> int:
    """How many there are.

    >>> count_labels({"digit": {"pairs.left": torch.tensor([-1, 3])}})
    1
    """
    return sum(int((column >= 0).sum()) for places in labels.values() for column in places.values())


def write_labels(file: str | Path, lines: Iterable[tuple[int, str, str, str]]) -> Path:
    """Write a table of row, field, concept and value; an empty value is one to fill in.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_labels(f"{folder}/ask.csv", [(17, "pairs.left", "digit", "")]).read_text())
    row,field,concept,value
    17,pairs.left,digit,
    <BLANKLINE>
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(lines)
    write_atomic(Path(file), stream.getvalue().encode())
    return Path(file)
