"""Tables of rows with features and Boolean labels, and the ARFF files of hierarchical classification.

A hierarchical ARFF file is Weka's attribute-relation format with one more kind of attribute,
``@ATTRIBUTE class hierarchical 01,01/01,02``: the classes, each as its path from the top. A row has one or more of
them, ``01/01@02``, and with a class also all classes above it.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from doxa.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class LabelTable:
    """Rows with features and Boolean labels.

    Args:
        features: float32 ``(n, F)``, NaN where a value is missing.
        labels: bool ``(n, L)``.
        feature_names: one for each column of features.
        label_names: one for each column of labels.

    >>> table = LabelTable(torch.zeros(3, 2), torch.ones(3, 1, dtype=torch.bool), ("x", "y"), ("positive",))
    >>> table
    LabelTable(3 rows, 2 features, 1 labels)
    >>> len(table[torch.tensor([0, 2])]), len(table + table)
    (2, 6)
    """

    features: Tensor
    labels: Tensor
    feature_names: tuple[str, ...]
    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.labels)
        wanted = {
            "features": (torch.float32, (n, len(self.feature_names))),
            "labels": (torch.bool, (n, len(self.label_names))),
        }
        for name, (dtype, shape) in wanted.items():
            tensor = getattr(self, name)
            if tensor.dtype != dtype or tuple(tensor.shape) != shape:
                raise DataError(f"{name} are {tensor.dtype} {tuple(tensor.shape)}, expected {dtype} {shape}")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"LabelTable({len(self)} rows, {len(self.feature_names)} features, {len(self.label_names)} labels)"

    def __getitem__(self, rows: Tensor) -> LabelTable:
        return LabelTable(self.features[rows], self.labels[rows], self.feature_names, self.label_names)

    def __add__(self, other: LabelTable) -> LabelTable:
        for ours, theirs in ((self.feature_names, other.feature_names), (self.label_names, other.label_names)):
            if ours != theirs:
                i = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
                what = f"{len(ours)} and {len(theirs)} columns" if i is None else f"{ours[i]!r} and {theirs[i]!r}"
                raise DataError(f"the tables have different columns: {what}; expected the same in the same order")
        features = torch.cat([self.features, other.features])
        return LabelTable(features, torch.cat([self.labels, other.labels]), self.feature_names, self.label_names)


@dataclass(frozen=True)
class Splits:
    """A table in three parts: what is learnt from, what is chosen by, and what is measured on.

    >>> table = LabelTable(torch.zeros(10, 1), torch.ones(10, 1, dtype=torch.bool), ("x",), ("positive",))
    >>> Splits.random(table, 0.6, 0.2)
    Splits(train=LabelTable(6 rows, ...), valid=LabelTable(2 rows, ...), test=LabelTable(2 rows, ...))
    """

    train: LabelTable
    valid: LabelTable
    test: LabelTable

    def __post_init__(self) -> None:
        self.train + self.valid + self.test  # the same columns, or an error that says what differs

    @property
    def refit(self) -> LabelTable:
        """What the last model learns from, when all is chosen: train and valid together."""
        return self.train + self.valid

    @classmethod
    def random(cls, table: LabelTable, train: float, valid: float, *, seed: int = 0) -> Splits:
        """Shares of a table, drawn with a seed; what is left is the test.

        The order is that of NumPy's ``RandomState``, which never changes: with seed 0 and shares of 60 %, 20 % and 20 %
        the parts are those of the published code for preferences and grids.
        """
        if min(train, valid) < 0 or train + valid > 1:
            raise DataError(
                f"the shares are {train} and {valid}, expected two that are not negative and at most 1 together"
            )
        order = torch.from_numpy(np.random.RandomState(seed).permutation(len(table)))
        first, second = int(len(table) * train), int(len(table) * (train + valid))
        return cls(table[order[:first]], table[order[first:second]], table[order[second:]])


def hierarchy(classes: Sequence[str]) -> dict[str, list[str]]:
    """What class paths say of each other: for each class that is not at the top, the one above it.

    >>> hierarchy(["01", "01/01", "01/01/03", "02"])
    {'01/01': ['01'], '01/01/03': ['01/01']}
    """
    return {path: [path.rsplit("/", 1)[0]] for path in classes if "/" in path}


def read_arff(path: str | Path) -> LabelTable:
    """Read a hierarchical ARFF file.

    Features are numeric attributes, and one column for each value of a nominal attribute, 1 where the row has it. A
    missing value, ``?``, is NaN (in all columns of a nominal attribute). Labels are all classes and the classes above
    them, by depth and then by name; a row has its classes and all above them.

    Args:
        path: the file.

    Raises:
        DataError: with the file and the line, what is wrong and what was expected.

    >>> import tempfile
    >>> text = '''@RELATION toy
    ... @ATTRIBUTE size numeric
    ... @ATTRIBUTE strand {w,c}
    ... @ATTRIBUTE class hierarchical 01,01/01,01/02,02
    ... @DATA
    ... 1.5,w,01/02@02     % a comment
    ... ?,c,01
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "toy.arff").write_text(text)
    ...     table = read_arff(Path(folder) / "toy.arff")
    >>> table.label_names, table.feature_names
    (('01', '02', '01/01', '01/02'), ('size', 'strand=w', 'strand=c'))
    >>> table.labels.int().tolist(), table.features.tolist()
    ([[1, 1, 0, 1], [1, 0, 0, 0]], [[1.5, 1.0, 0.0], [nan, 0.0, 1.0]])
    """
    return _Arff(Path(path)).table()


class _Arff:
    """What has been read of a file so far."""

    def __init__(self, file: Path) -> None:
        self.file, self.line = file, 0
        self.attributes: list[tuple[str, tuple[str, ...]]] = []  # name and values; no values: numeric
        self.classes: tuple[str, ...] = ()
        self.place = -1  # of the class among the attributes

    def table(self) -> LabelTable:
        try:
            lines = self.file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError as error:
            raise DataError(f"{self.file} does not exist; expected a hierarchical ARFF file") from error
        rows: list[list[float]] = []
        found: list[list[int]] = []
        in_data = False
        for self.line, text in enumerate(lines, 1):
            text = text.split("%")[0].strip()
            if not text:
                continue
            if in_data:
                row, paths = self._row(text)
                rows.append(row)
                found.append(paths)
            elif text.lower().startswith("@attribute"):
                self._attribute(text)
            elif text.lower().startswith("@data"):
                in_data = True
                self._close()
            elif not text.lower().startswith("@relation"):
                self._wrong(f"{text[:40]!r} is none of @RELATION, @ATTRIBUTE and @DATA")
        if not in_data:
            self._wrong("the file ends without @DATA")
        labels = torch.zeros(len(found), len(self.classes), dtype=torch.bool)
        for i, paths in enumerate(found):
            labels[i, paths] = True
        features = torch.tensor(rows, dtype=torch.float32).reshape(len(rows), len(self.columns))
        return LabelTable(features, labels, self.columns, self.classes)

    def _attribute(self, text: str) -> None:
        name, kind = _name_and_kind(text[len("@attribute") :].strip())
        if kind.lower() in ("numeric", "real", "integer"):
            self.attributes.append((name, ()))
        elif kind.startswith("{") and kind.endswith("}"):
            self.attributes.append((name, tuple(_bare(value) for value in kind[1:-1].split(","))))
        elif kind.lower().startswith("hierarchical"):
            if self.place >= 0:
                self._wrong("there is a second hierarchical attribute, expected one")
            self.place = len(self.attributes)
            paths = [path.strip() for path in kind[len("hierarchical") :].split(",") if path.strip()]
            above = {"/".join(parts[:i]) for path in paths for parts in [path.split("/")] for i in range(1, len(parts))}
            self.classes = tuple(sorted({*paths, *above}, key=lambda path: (path.count("/"), path)))
            self.attributes.append((name, ()))
        else:
            self._wrong(f"attribute {name!r} is {kind[:40]!r}, expected numeric, {{a,b,...}} or hierarchical")

    def _close(self) -> None:
        if not self.classes:
            self._wrong("no attribute is hierarchical: expected one such as '@ATTRIBUTE class hierarchical 01,01/01'")
        self.index = {path: i for i, path in enumerate(self.classes)}
        self.columns = tuple(
            column
            for i, (name, values) in enumerate(self.attributes)
            for column in ((name,) if not values else [f"{name}={value}" for value in values])
            if i != self.place
        )

    def _row(self, text: str) -> tuple[list[float], list[int]]:
        if text.startswith("{"):
            self._wrong("the row is in the sparse format, {index value, ...}; expected all values, separated by commas")
        cells = [
            cell.strip() for cell in (text.split(",") if "'" not in text else next(csv.reader([text], quotechar="'")))
        ]
        if len(cells) != len(self.attributes):
            self._wrong(f"the row has {len(cells)} values, expected {len(self.attributes)}, one for each attribute")
        row: list[float] = []
        for i, (cell, (name, values)) in enumerate(zip(cells, self.attributes, strict=True)):
            if i == self.place:
                continue
            if cell == "?":
                row += [math.nan] * max(1, len(values))
            elif values:
                if _bare(cell) not in values:
                    self._wrong(f"{name} is {cell!r}, expected one of {', '.join(values)}, or ? where it is missing")
                row += [float(_bare(cell) == value) for value in values]
            else:
                try:
                    row.append(float(cell))
                except ValueError:
                    self._wrong(f"{name} is {cell!r}, expected a number, or ? where it is missing")
        found = []
        for path in cells[self.place].split("@"):
            parts = path.strip().split("/")
            if path.strip() not in self.index:
                self._wrong(f"{path.strip()!r} is none of the {len(self.index)} classes that the attribute names")
            found += [self.index["/".join(parts[: i + 1])] for i in range(len(parts))]
        return row, found

    def _wrong(self, message: str) -> NoReturn:
        raise DataError(f"{self.file}, line {self.line}: {message}")


def _name_and_kind(text: str) -> tuple[str, str]:
    """The name of an attribute, perhaps quoted, and what follows."""
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1:end], text[end + 1 :].strip()
    name, _, kind = text.replace("\t", " ").partition(" ")
    return name, kind.strip()


def _bare(value: str) -> str:
    value = value.strip()
    return value[1:-1] if len(value) > 1 and value[0] in "'\"" and value[-1] == value[0] else value
