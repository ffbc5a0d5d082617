"""Hierarchical ARFF files, tables of labels, and the sets made of them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from doxa.data import HMC, LabelTable, Splits, hierarchy, read_arff, read_hmc
from doxa.data._hmc import HMC_FILES
from doxa.errors import ConfigError, DataError

SHARED = Path(os.environ.get("DOXA_DATA", Path(__file__).parents[3] / "shared" / "data"))

HEAD = """% a comment
@RELATION 'toy'

@ATTRIBUTE size   numeric
@attribute 'long name' REAL
@ATTRIBUTE strand {w, c}
@ATTRIBUTE class  hierarchical 01,02,01/01,01/01/03,02/05/07
@DATA
"""


def written(folder: Path, rows: str, head: str = HEAD) -> Path:
    file = folder / "toy.arff"
    file.write_text(head + rows)
    return file


def test_values_classes_and_all_classes_above(tmp_path: Path) -> None:
    table = read_arff(written(tmp_path, "1.5,2,w,01/01/03@02\n?,-1e3, c ,02/05/07 % said of the row\n\n0,?,?,01/01\n"))
    assert table.feature_names == ("size", "long name", "strand=w", "strand=c")
    assert table.label_names == ("01", "02", "01/01", "02/05", "01/01/03", "02/05/07")
    expected = torch.tensor([[1.5, 2, 1, 0], [math.nan, -1000, 0, 1], [0, math.nan, math.nan, math.nan]])
    torch.testing.assert_close(table.features, expected, equal_nan=True)
    chosen = [{n for n, on in zip(table.label_names, row, strict=True) if on} for row in table.labels]
    assert chosen == [{"01", "01/01", "01/01/03", "02"}, {"02", "02/05", "02/05/07"}, {"01", "01/01"}]


def test_every_row_has_what_its_hierarchy_asks_for(tmp_path: Path) -> None:
    """The labels of rows drawn at random, against a closure by sets of path prefixes."""
    random = np.random.default_rng(0)
    leaves = [f"{a}/{b}/{c}" for a in range(3) for b in range(2) for c in range(2)]
    drawn = [random.choice(leaves, size=random.integers(1, 4), replace=False).tolist() for _ in range(50)]
    head = f"@RELATION r\n@ATTRIBUTE x numeric\n@ATTRIBUTE class hierarchical {','.join(leaves)}\n@DATA\n"
    table = read_arff(written(tmp_path, "".join(f"0,{'@'.join(paths)}\n" for paths in drawn), head))
    for row, paths in zip(table.labels, drawn, strict=True):
        closure = {path[:end] for path in paths for end in (1, 3, 5)}
        assert {n for n, on in zip(table.label_names, row, strict=True) if on} == closure
    place = {name: i for i, name in enumerate(table.label_names)}
    for child, parents in hierarchy(table.label_names).items():
        for parent in parents:
            assert not (table.labels[:, place[child]] & ~table.labels[:, place[parent]]).any()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("1,2,w\n", r"line 9: the row has 3 values, expected 4"),
        ("1,2,x,01\n", r"line 9: strand is 'x', expected one of w, c, or \?"),
        ("one,2,w,01\n", r"line 9: size is 'one', expected a number"),
        ("1,2,w,01\n1,2,w,01/09\n", r"line 10: '01/09' is none of the 6 classes"),
        ("{0 1.5, 3 01}\n", r"line 9: the row is in the sparse format"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_arff(written(tmp_path, rows))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("@RELATION r\n@ATTRIBUTE x numeric\n@DATA\n1\n", r"no attribute is hierarchical"),
        ("@RELATION r\n@ATTRIBUTE x string\n", r"line 2: attribute 'x' is 'string', expected numeric"),
        ("@RELATION r\nhello\n", r"line 2: 'hello' is none of"),
        ("@RELATION r\n@ATTRIBUTE class hierarchical 1\n", r"ends without @DATA"),
        ("@ATTRIBUTE c hierarchical 1\n@ATTRIBUTE d hierarchical 1\n", r"line 2: there is a second hierarchical"),
    ],
)
def test_a_bad_head_is_named(tmp_path: Path, head: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_arff(written(tmp_path, "", head))


def test_no_rows_are_a_table_too(tmp_path: Path) -> None:
    table = read_arff(written(tmp_path, ""))
    assert len(table) == 0
    assert table.features.shape == (0, 4)


def test_tables_with_other_columns_do_not_add_up() -> None:
    one = LabelTable(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), ("x",), ("a",))
    other = LabelTable(torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), ("y",), ("a",))
    with pytest.raises(DataError, match="'x' and 'y'"):
        one + other
    with pytest.raises(DataError, match=r"labels are torch.float32 \(1, 1\), expected torch.bool"):
        LabelTable(torch.zeros(1, 1), torch.ones(1, 1), ("x",), ("a",))


def test_random_parts_are_the_table_again_and_depend_on_the_seed() -> None:
    table = LabelTable(torch.arange(50.0)[:, None], torch.ones(50, 1, dtype=torch.bool), ("x",), ("a",))
    parts = [Splits.random(table, 0.6, 0.2, seed=seed) for seed in (0, 0, 1)]
    for part in parts:
        assert [len(p) for p in (part.train, part.valid, part.test)] == [30, 10, 10]
        assert sorted((part.refit + part.test).features.flatten().tolist()) == [*range(50)]
    assert torch.equal(parts[0].train.features, parts[1].train.features)
    assert not torch.equal(parts[0].train.features, parts[2].train.features)
    with pytest.raises(DataError, match=r"shares are 0\.9 and 0\.2"):
        Splits.random(table, 0.9, 0.2)


def test_sets_with_and_without_a_validation_part(tmp_path: Path) -> None:
    head = "@RELATION r\n@ATTRIBUTE x numeric\n@ATTRIBUTE class hierarchical 1,1/2\n@DATA\n"
    for name, rows in (("Diatoms_train", range(20)), ("Diatoms_test", range(100, 103))):
        (tmp_path / f"{name}.arff").write_text(head + "".join(f"{i},1/2\n" for i in rows))
    for i, part in enumerate(("train", "valid", "test")):
        (tmp_path / f"seq_FUN.{part}.arff").write_text(head + f"{i},1\n" * (i + 1))
    held_out = read_hmc(tmp_path, "diatoms")
    assert (len(held_out.train), len(held_out.valid), len(held_out.test)) == (16, 4, 3)
    assert sorted(held_out.refit.features.flatten().tolist()) == [*range(20)]
    assert torch.equal(read_hmc(tmp_path, "diatoms").valid.features, held_out.valid.features)
    published = read_hmc(tmp_path, "seq")
    assert (len(published.train), len(published.valid), len(published.test)) == (1, 2, 3)
    assert published.hierarchy == {"1/2": ["1"]}
    with pytest.raises(ConfigError, match="name is 'yeast', expected one of cellcycle"):
        read_hmc(tmp_path, "yeast")
    (tmp_path / "seq_FUN.test.arff").write_text(head.replace("ATTRIBUTE x", "ATTRIBUTE z") + "1,1\n")
    with pytest.raises(DataError, match="'x' and 'z'"):
        read_hmc(tmp_path, "seq")


# Rows of all parts, features and labels, as the paper's table of data sets has them (Giunchiglia and Lukasiewicz 2020).
SIZES = {
    "cellcycle": (3757, 77, 499),
    "derisi": (3725, 63, 499),
    "eisen": (2424, 79, 461),
    "gasch1": (3764, 173, 499),
    "seq": (3919, 529, 499),
    "diatoms": (3119, 371, 398),
    "enron": (1648, 1001, 56),
    "imclef07a": (11006, 80, 96),
}


@pytest.mark.parametrize("name", sorted(HMC_FILES))
def test_published_files_have_the_published_sizes(name: str) -> None:
    folder = SHARED / "hmc"
    if not folder.is_dir():
        pytest.skip("the data sets are not here")
    data: HMC = read_hmc(folder, name)
    table = data.refit + data.test
    assert (len(table), len(table.feature_names), len(table.label_names)) == SIZES[name]
    place = {label: i for i, label in enumerate(table.label_names)}
    child, parent = zip(*((place[c], place[p]) for c, (p,) in data.hierarchy.items()), strict=True)
    assert not (table.labels[:, list(child)] & ~table.labels[:, list(parent)]).any()
    assert table.labels.any(1).all()
