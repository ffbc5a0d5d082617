"""DIMACS in and out: round trips, the habits of SATLIB, and mistakes with their line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.errors import DataError
from doxa.logic import (
    CNF,
    Call,
    Compare,
    Expr,
    Name,
    Number,
    propositions,
    read_dimacs,
    satisfiable,
    to_cnf,
    write_dimacs,
)
from doxa.logic.syntax._simplify import evaluate

SATLIB = Path(__file__).parents[3] / "shared" / "data" / "satlib" / "uf20-91"

names = st.text(min_size=1, max_size=8) | st.sampled_from(["alice", "New York", "forall", "x1", 'say "hi"', "a\\b"])
terms = st.one_of(names.map(Name), st.integers(-99, 99).map(Number))
calls = st.builds(lambda name, args: Call(name, tuple(args)), names, st.lists(terms, max_size=3))
atoms = st.one_of(
    calls, st.builds(lambda f, v: Compare("=", f, v), calls, terms), st.sampled_from(propositions("x1 x2"))
)


@st.composite
def cnfs(draw: st.DrawFn) -> CNF:
    named = draw(st.lists(atoms, unique=True, max_size=6))
    variables: list[Expr | None] = draw(st.permutations([*named, *[None] * draw(st.integers(0, 3))]))
    literals = [v for v in range(-len(variables), len(variables) + 1) if v]
    clause = st.lists(st.sampled_from(literals), max_size=4) if literals else st.just([])
    return CNF.from_clauses(draw(st.lists(clause, max_size=6)), variables)


@settings(max_examples=200, deadline=None)
@given(cnfs())
def test_round_trip(cnf: CNF) -> None:
    assert read_dimacs(write_dimacs(cnf)) == cnf


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9).flatmap(lambda n: st.lists(st.lists(st.integers(1, max(n, 1)), max_size=3), max_size=5)))
def test_numbered_variables_need_no_names(clauses: list[list[int]]) -> None:
    cnf = CNF.from_clauses(clauses, 9)
    text = write_dimacs(cnf)
    assert text.startswith("p cnf 9") and read_dimacs(text) == cnf


def test_every_habit_of_files(tmp_path: Path) -> None:
    file = tmp_path / "odd.cnf"
    file.write_text(
        "c comment\nc\n\n  c 2 = not an atom\nc 1 = smokes(alice)\r\n"
        "p  cnf 4   3  \n\n1\t-2\n 3 0 4 0\nc between\n-1\n0\n%\n0\n\n"
    )
    cnf = read_dimacs(file)
    assert cnf.clauses == [[1, -2, 3], [4], [-1]]
    assert [str(a) for a in cnf.atoms] == ["smokes(alice)", "x2", "x3", "x4"]
    assert read_dimacs(str(file)) == cnf


def test_projection_lines_mark_auxiliary_variables() -> None:
    assert read_dimacs("p cnf 4 0\nc p show 1 0\nc p show 3 0\n").auxiliary == (2, 4)
    a, b, c, d = propositions("a b c d")
    cnf = to_cnf((a & b) | (c & d))
    assert read_dimacs(write_dimacs(cnf)).auxiliary == cnf.auxiliary == (5, 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 0\n", r"line 1: clauses begin with '1 2 0' before any header"),
        ("c nothing\n\n", r"DIMACS has no header 'p cnf VARIABLES CLAUSES'"),
        ("c\np sat 3 1\n1 0\n", r"line 2: the header is 'p sat 3 1', wanted"),
        ("p cnf 3\n1 0\n", r"line 1: the header is 'p cnf 3', wanted"),
        ("p cnf -3 1\n1 0\n", r"line 1: the header"),
        ("p cnf 1 1\np cnf 1 1\n1 0\n", r"line 2: there is a second header; the first is in line 1"),
        ("p cnf 2 2\n\n1 0\n", r"line 1: the header announces 2 clauses, but there are 1"),
        ("p cnf 2 1\n1 0\n2 0\n", r"line 1: the header announces 1 clauses, but there are 2"),
        ("p cnf 2 2\n1 0\n2 -3 0\n", r"line 3: there is a literal -3, but the header in line 1 announces 2 variables"),
        ("p cnf 2 1\n1\nc\n2\n", r"line 4: the last clause does not end with 0"),
        ("p cnf 2 1\n1 two 0\n", r"line 2: 'two' is not a literal"),
        ("p cnf 2 1\n1 1.5 0\n", r"line 2: '1.5' is not a literal"),
        ("p cnf 2 1\n1 99999999999999999999 0\n", r"line 2: '99999999999999999999' is not a literal"),
        ("p cnf 99999999999 1\n1 0\n", r"line 1: the header announces 99999999999 variables; at most"),
        ("c 1 = a\nc 2 = a\np cnf 2 0\n", r"line 2: a names two variables, 1 and 2"),
        ("c 2 = x1\np cnf 2 0\n", r"line 1: x1 names two variables, 1 and 2"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_dimacs(text)


def test_missing_file(tmp_path: Path) -> None:
    for odd, said in (("", "an empty text came"), (None, "a NoneType came"), (b"p cnf 1 0\n", "a bytes came")):
        with pytest.raises(DataError, match=f"{said}; wanted the path of a DIMACS file, or its text"):
            read_dimacs(odd)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"cannot read '.*none.cnf': No such file"):
        read_dimacs(tmp_path / "none.cnf")


def test_large_files() -> None:
    n = 50_000
    cnf = CNF.from_clauses([[i, -(i * 7 % n + 1), i * 11 % n + 1] for i in range(1, n + 1)] * 4, n)
    assert read_dimacs(write_dimacs(cnf)) == cnf
    named = CNF.from_clauses([], [Call("smokes", (Name(f"p{i}"),)) for i in range(5000)])
    assert read_dimacs(write_dimacs(named)) == named


@pytest.mark.skipif(not SATLIB.is_dir(), reason="the SATLIB instances are not here; generated ones are tested in tasks")
def test_all_satlib_instances() -> None:
    files = sorted(SATLIB.glob("*.cnf"))
    assert files
    for file in files:
        cnf = read_dimacs(file)
        assert (cnf.variables, len(cnf)) == (20, 91)
        assert read_dimacs(write_dimacs(cnf)) == cnf
        model = satisfiable(cnf)
        assert model is not None and evaluate(cnf.formula(), model) is True
