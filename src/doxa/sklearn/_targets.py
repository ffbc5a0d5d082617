"""What y says: one class for each row, or any number of labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from doxa.errors import DataError, DoxaWarning, users_line


class LabelError(DataError, ValueError):
    """The rows or their labels are of the wrong kind; also a ``ValueError``, which scikit-learn expects.

    >>> raise LabelError("y has NaN in rows 3 and 4")
    Traceback (most recent call last):
    doxa.sklearn._targets.LabelError: y has NaN in rows 3 and 4
    """


@dataclass(frozen=True, eq=False)
class Targets:
    """The classes or labels in order, and how y is written in them."""

    classes: NDArray[Any]
    """The values of y (one class for each row), or the names or numbers of the labels."""
    many: bool
    """Whether a row may have several labels."""

    @property
    def names(self) -> tuple[str, ...]:
        """As knowledge calls them."""
        return tuple(map(str, self.classes.tolist()))

    def alias(self, name: Any) -> dict[str, str]:
        """Of a column of 0 and 1 with a name: the name, which says that the class is 1."""
        truths = self.classes.dtype.kind in "biuf" and self.classes.tolist() == [0, 1]
        return {str(name): self.names[1]} if truths and name is not None and str(name) not in self.names else {}

    def encode(self, y: Any) -> NDArray[np.bool_]:
        """bool ``(n, labels)``."""
        values, _ = read_y(y)
        if len(self.classes) == 1 and self.many and values.ndim == 1 and np.isin(values, (0, 1)).all():
            values = values[:, None]
        if self.many:
            if values.ndim != 2 or values.shape[1] != len(self.classes):
                raise LabelError(
                    f"y has shape {values.shape}, expected (rows, {len(self.classes)}): one column a label"
                )
            columns = None if not hasattr(y, "columns") else [str(c) for c in y.columns]
            if columns is not None and columns != list(self.names):
                raise LabelError(f"y has the columns {columns}, expected {list(self.names)}, in this order")
            return values.astype(bool)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise LabelError(f"y has shape {values.shape}, expected one class for each row, as in fit")
        place = np.minimum(np.searchsorted(self.classes, values), len(self.classes) - 1)
        if (wrong := np.flatnonzero(self.classes[place] != values)).size:
            raise LabelError(f"y has {values[wrong[0]]!r} in row {wrong[0]}, which is none of the classes of fit")
        return np.asarray(place[:, None] == np.arange(len(self.classes)))

    def tensor(self, labels: NDArray[np.bool_]) -> Tensor:
        """As what the head learns from: float32 ``(n, labels)``, or the number of the class."""
        if self.many:
            return torch.from_numpy(labels.astype(np.float32))
        return torch.from_numpy(labels.argmax(1).astype(np.int64))

    def decode(self, labels: NDArray[np.bool_]) -> NDArray[Any]:
        """As y was written."""
        return labels.astype(np.int64) if self.many else self.classes[labels.argmax(1)]


def targets_of(y: Any, classes: Any = None) -> Targets:
    """Read from y, or from the classes that are said to exist."""
    values, names = read_y(y)
    if values.ndim == 2 and values.shape[1] == 1 and classes is not None and len(classes) > 1:
        values = values[:, 0]  # a table of one column, of which more than two classes are said to exist
    if values.ndim == 2:
        found = np.arange(values.shape[1]) if names is None else np.asarray(names, dtype=object)
        if classes is not None and len(classes) != len(found):
            raise LabelError(f"y has {len(found)} columns, but classes names {len(classes)} labels")
        targets = Targets(found, True)
        if classes is None and len(values):
            warn_empty(targets, values)
        return targets
    if classes is not None:
        return Targets(np.unique(np.asarray(classes)), False)
    check_classification_targets(values)
    return Targets(np.unique(values), False)


def warn_empty(targets: Targets, values: NDArray[Any]) -> None:
    """Labels without a single example are learnt from knowledge alone."""
    empty = [name for name, seen in zip(targets.names, np.asarray(values.any(0)), strict=True) if not seen]
    if empty:
        listed = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        count = "1 label has" if len(empty) == 1 else f"{len(empty)} labels have"
        message = f"{count} no positive example ({listed}) and will hardly be predicted"
        warnings.warn(DoxaWarning(message), stacklevel=users_line())


def read_y(y: Any) -> tuple[NDArray[Any], Sequence[str] | None]:
    """The values of y, ``(n,)`` or 0 and 1 ``(n, labels)``, and the names of the columns, if they are labels.

    A table of one column of 0 and 1 is one label, which knowledge calls by the name of the column.
    """
    if y is None:
        raise LabelError("This estimator requires y to be passed, but the target y is None")
    names = [str(c) for c in y.columns] if hasattr(y, "columns") else None
    if hasattr(y, "toarray"):
        y = y.toarray()
    values = _array(y)
    if values.ndim > 2 or values.ndim == 0:
        raise LabelError(f"y has shape {values.shape}, expected (rows,) classes or (rows, labels) of 0 and 1")
    if values.ndim == 2 and values.shape[1] == 0:
        raise LabelError("y has no columns; give one column for each label")
    if missing := _missing(values):
        listed = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        # scikit-learn looks for the words "Input y contains NaN"
        what = "infinity" if _has_infinity(values) else "NaN"
        raise LabelError(f"Input y contains {what} in rows {listed}; drop these rows, or fill the labels in")
    labels = names is not None and len(names) == 1 and bool(np.isin(values, (0, 1)).all())  # a table of one label
    if values.ndim == 1 or (values.shape[1] == 1 and not labels):
        return column_or_1d(values, warn=True), None
    if values.dtype == object or values.dtype.kind in "USOmM":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            wrong = f"y has several columns of {type(values.flat[0]).__name__} such as {str(values.flat[0])!r}"
            remedy = "say y == 'yes' for words, or sklearn.preprocessing.MultiLabelBinarizer for lists of labels"
            raise LabelError(f"{wrong}, expected 0 and 1, one column for each label; {remedy}") from None
    if not np.isin(values, (0, 1)).all():
        row, column = np.argwhere(~np.isin(values, (0, 1)))[0]
        label = column if names is None else repr(names[column])
        raise LabelError(f"y has {values[row, column]} in row {row}, label {label}; several labels are 0 and 1 each")
    return values.astype(bool), names


def _array(y: Any) -> NDArray[Any]:
    """y as an array, unless it has lists or sets of labels."""
    some = next(iter(y), None) if isinstance(y, list | tuple) or getattr(y, "ndim", 0) == 1 else None
    uneven = isinstance(some, list | tuple) and len({len(row) for row in y}) > 1
    if isinstance(some, set | frozenset) or uneven:
        remedy = "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y) makes a table of 0 and 1 of it"
        raise LabelError(f"y has {type(some).__name__}s of labels, expected one column for each label; {remedy}")
    return np.asarray(y)


def _missing(values: NDArray[Any]) -> list[int]:
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values)
    elif values.dtype == object:
        bad = np.array([v is None or v != v or type(v).__name__ == "NAType" for v in values.ravel()], dtype=bool)
        bad = bad.reshape(values.shape)
    else:
        return []
    rows = bad if bad.ndim == 1 else bad.any(1)
    found: list[int] = np.flatnonzero(rows).tolist()
    return found


def _has_infinity(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and bool(np.isinf(values).any())


def read_numbers(y: Any) -> tuple[NDArray[np.float64], tuple[str, ...], bool]:
    """The real values of y, ``(n, values)``, their names, and whether y is one column without an axis for it."""
    if y is None:
        raise LabelError("This estimator requires y to be passed, but the target y is None")
    names = tuple([str(c) for c in y.columns]) if hasattr(y, "columns") else None
    values = np.asarray(y)
    if values.ndim not in (1, 2) or (values.ndim == 2 and not values.shape[1]):
        raise LabelError(f"y has shape {values.shape}, expected (rows,) or (rows, values)")
    if missing := _missing(values):
        listed = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        what = "infinity" if _has_infinity(values) else "NaN"
        raise LabelError(f"Input y contains {what} in rows {listed}; drop these rows, or fill the values in")
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        raise LabelError(f"y has {type(values.flat[0]).__name__} in it, expected real numbers") from None
    if numbers.ndim == 2 and numbers.shape[1] == 1 and names is None:
        numbers = column_or_1d(numbers, warn=True)
    if numbers.ndim == 1:
        return numbers[:, None], (str(getattr(y, "name", None) or "y"),), True
    return numbers, names or tuple([f"y{i}" for i in range(numbers.shape[1])]), False
