"""Tables in files: CSV and Parquet, read column by column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa.errors import BindingError, DataError

Column = tuple[Tensor, tuple[str, ...] | None]
"""Numbers; or, with names, the place of each entry's name among these."""


def read_table(file: Path) -> list[Column]:
    """The columns of a CSV file (the first line names them) or of a Parquet file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "edges.csv"
    ...     _ = file.write_text("source,target\\nanna,0\\nbob,2\\nanna,1\\n", encoding="utf-8")
    ...     read_table(file)
    [(tensor([0, 1, 0]), ('anna', 'bob')), (tensor([0, 2, 1]), None)]
    """
    kind = file.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise BindingError(
            f"{file}: tables are read from .csv and .parquet files; make a tensor of others: table(rows)"
        )
    try:
        import pandas
    except ImportError:
        raise BindingError(f"{file}: tables in files are read by pandas; install it: pip install pandas") from None
    if not file.exists():
        raise DataError(f"{file}: there is no such file")
    if kind == ".parquet":
        try:
            frame = pandas.read_parquet(file)
        except ImportError:
            raise BindingError(
                f"{file}: Parquet needs pyarrow beside pandas; install it: pip install pyarrow"
            ) from None
        except Exception as error:  # whatever the library raises on damaged files
            raise DataError(f"{file}: no Parquet file that pandas can read: {error}") from error
    else:
        try:
            frame = pandas.read_csv(file, skipinitialspace=True, keep_default_na=False)
        except (ValueError, UnicodeDecodeError) as error:
            raise DataError(f"{file}: no CSV file that pandas can read: {error}") from error
    return columns_of(frame, str(file))


def columns_of(frame: Any, origin: str) -> list[Column]:
    """The columns of a data frame of pandas: numbers as they are, everything else by name."""
    import pandas

    found: list[Column] = []
    for label in frame.columns:
        series = frame[label]
        if series.isna().any():
            raise BindingError(f"{origin}: column {label!r} has empty cells; every argument needs a value")
        if pandas.api.types.is_bool_dtype(series):
            raise BindingError(
                f"{origin}: column {label!r} holds true and false; a table lists the tuples that are true"
            )
        if pandas.api.types.is_numeric_dtype(series):
            found.append((torch.tensor(series.to_numpy()), None))
        else:
            codes, names = pandas.factorize(series)
            found.append((torch.as_tensor(codes).long(), tuple([str(n) for n in names])))
    return found
