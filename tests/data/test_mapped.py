"""Columns on disk: the batches of columns in memory, and nothing that is kept."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from doxa.data import Batches, Mapped
from doxa.errors import DataError


def columns(folder: Path, rows: int = 1000) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    data = {
        "image": torch.randint(256, (rows, 4, 4), generator=random).to(torch.uint8),
        "label": torch.arange(rows),
    }
    for name, column in data.items():
        np.save(folder / f"{name}.npy", column.numpy())
    return data


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_those_of_columns_in_memory(shuffle: bool, tmp_path: Path) -> None:
    inside = columns(tmp_path)
    outside: dict[str, Any] = {name: Mapped(tmp_path / f"{name}.npy") for name in inside}
    pairs = zip(
        Batches(inside, 64, seed=3, shuffle=shuffle), Batches(outside, 64, seed=3, shuffle=shuffle), strict=True
    )
    for mine, theirs in pairs:
        for name in inside:
            assert torch.equal(mine[name], theirs[name]) and mine[name].dtype == theirs[name].dtype


def test_nothing_is_kept_from_epoch_to_epoch(tmp_path: Path) -> None:
    columns(tmp_path)
    batches = Batches({"image": Mapped(tmp_path / "image.npy")}, 16, seed=0)

    def live() -> int:
        gc.collect()
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    counts = []
    for _ in range(3):
        for batch in batches:
            assert len(batch["image"])
        del batch
        counts.append(live())
    assert counts[0] == counts[1] == counts[2]
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert "image.npy" not in maps.read_text()


def test_what_is_no_file_of_rows_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"path of a \.npy file, got a ndarray"):
        Mapped(np.arange(3))  # type: ignore[arg-type]
    (tmp_path / "empty.npy").write_bytes(b"")
    np.savez(tmp_path / "several.npz", x=np.arange(3))
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    for name in ("empty.npy", "several.npz", "objects.npy"):
        with pytest.raises(DataError, match="can be mapped") as caught:
            Mapped(tmp_path / name)
        assert "allow_pickle" not in str(caught.value)
    for kind in ("<U3", "datetime64[s]", [("a", int)]):
        np.save(tmp_path / "other.npy", np.zeros(3, kind))
        with pytest.raises(DataError, match="expected numbers or bools"):
            Mapped(tmp_path / "other.npy")
    with pytest.raises(DataError, match="can be mapped"):
        Mapped(tmp_path / "missing.npy")
    np.save(tmp_path / "one.npy", np.array(3))
    with pytest.raises(DataError, match="no rows"):
        Mapped(tmp_path / "one.npy")


def test_numbers_of_the_other_byte_order_are_the_same_numbers(tmp_path: Path) -> None:
    for order in "<>":
        np.save(tmp_path / "x.npy", np.arange(3, dtype=f"{order}i4"))
        assert Mapped(tmp_path / "x.npy")[:].tolist() == [0, 1, 2]


def test_rows_that_are_not_there_are_told(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6).reshape(3, 2))
    column = Mapped(tmp_path / "x.npy")
    assert [row.tolist() for row in column] == [[0, 1], [2, 3], [4, 5]]
    assert column[-1].tolist() == column[torch.tensor([False, False, True])][0].tolist() == [4, 5]
    wrong: list[Any] = [3, -4, 1.5, "x", None, True, (0, 0), torch.tensor([-4]), torch.tensor([0.0]), slice("a", "b")]
    for rows in [*wrong, torch.tensor([True, False])]:
        with pytest.raises(DataError, match="which has 3; expected whole numbers from -3 to 2"):
            column[rows]
    (tmp_path / "x.npy").unlink()
    with pytest.raises(DataError, match="can be mapped"):
        column[0]
