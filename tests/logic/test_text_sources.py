"""Knowledge from files: several of them, included ones, and facts from CSV."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import KnowledgeBase, load, parse
from doxa.logic.syntax._diagnostics import Diagnostic


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_csv", ".csv")
        path = path if path.suffix else path.with_suffix(".doxa")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "main.doxa"


def mistakes(path: Path) -> list[Diagnostic]:
    with pytest.raises(KnowledgeError) as caught:
        load(path)
    return [d for d in caught.value.diagnostics if isinstance(d, Diagnostic)]


# --- files --------------------------------------------------------------------------------------------------------


def test_several_files_make_one_knowledge_base(tmp_path: Path) -> None:
    write(tmp_path, main="[one] a -> b", other="pred a, b\n[two] b -> a")
    both = load(tmp_path / "main.doxa", str(tmp_path / "other.doxa"))
    assert both == parse("pred a, b; [one] a -> b; [two] b -> a")
    assert load() == KnowledgeBase()
    assert load(tmp_path / "other.doxa", tmp_path / "other.doxa") == load(tmp_path / "other.doxa"), "each file once"


def test_included_statements_stand_where_they_are_included(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='pred a, b, c\n[first] a\ninclude "parts/one.doxa"\n[last] c',
        parts__one='include "two.doxa"\n[middle] b',
        parts__two="[inner] a & b",
    )
    assert [axiom.name for axiom in load(main)] == ["first", "inner", "middle", "last"]
    assert load(main) == parse(main.read_text(), file=str(main))


def test_each_file_is_included_once_and_circles_are_fine(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main='include "one.doxa"\ninclude "./parts/../one.doxa"; include "main.doxa"\n[m] a',
        one='include "main.doxa"\npred a; include "parts/two.doxa"',
        parts__two='include "../one.doxa"\n[t] a & a',
    )
    assert [axiom.name for axiom in load(main, warn=False)] == ["t", "m"]


def test_a_long_chain_of_files(tmp_path: Path) -> None:
    for i in range(1200):
        (tmp_path / f"f{i}.doxa").write_text(f'include "f{i + 1}.doxa"\n')
    (tmp_path / "f1200.doxa").write_text("pred a; a")
    assert len(load(tmp_path / "f0.doxa")) == 1


def test_mistakes_carry_the_file_they_are_in(tmp_path: Path) -> None:
    main = write(tmp_path, main='include "other.doxa"\npred a\n\na & c', other="a ->\n\n[x] a & bb\npred b")
    found = mistakes(main)
    places = [(Path(d.span.file or "").name, d.span.line, d.message) for d in found if d.span is not None]
    assert places == [
        ("main.doxa", 4, "unknown proposition 'c'"),
        ("other.doxa", 3, "something is missing after '->'"),
    ]
    write(tmp_path, other="a -> b\n\n[x] a & bb\npred b")
    places = [(Path(d.span.file or "").name, d.span.line) for d in mistakes(main) if d.span is not None]
    assert places == [("main.doxa", 4), ("other.doxa", 3)]
    rendered = mistakes(main)[1].render()
    assert rendered.startswith(str(tmp_path / "other.doxa") + ":3:9: error: unknown proposition 'bb'")


def test_axioms_of_one_name_in_two_files(tmp_path: Path) -> None:
    main = write(tmp_path, main='include "other.doxa"\n[r] a', other="pred a\n  [r] a & a")
    (found,) = mistakes(main)
    assert found.message == f"two axioms are named 'r' (the first: {tmp_path / 'other.doxa'}:2:4)"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    main = write(tmp_path, main='include "othre.doxa"\nunknown', other="pred a")
    (found,) = mistakes(main)
    assert "there is no file" in found.message
    assert found.remedy == "did you mean 'other.doxa'?"
    assert found.span is not None
    assert (found.span.line, found.span.column, found.span.end_column) == (1, 9, 21)
    with pytest.raises(KnowledgeError, match=r"there is no file .*nothing.doxa"):
        load(tmp_path / "nothing.doxa")
    with pytest.raises(KnowledgeError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(KnowledgeError, match="no file"):
        parse('include "no/such/folder/file.doxa"')
    with pytest.raises(KnowledgeError):
        parse('include "\\u0000"')
    with pytest.raises(KnowledgeError, match=r"'x+\.\.\.' cannot be read"):
        parse(f'include "{"x" * 5000}"')


def test_files_that_are_not_text(tmp_path: Path) -> None:
    (tmp_path / "latin.doxa").write_bytes("pred café".encode("latin-1"))
    with pytest.raises(KnowledgeError, match="not text in UTF-8"):
        load(tmp_path / "latin.doxa")


def test_text_without_a_file_starts_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, other="pred a")
    monkeypatch.chdir(tmp_path)
    assert parse('include "other.doxa"; a') == parse("pred a; a")


# --- facts from CSV -----------------------------------------------------------------------------------------------

FAMILY = "sort Person; pred parent(Person, Person)\n"


def test_facts_from_a_file(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main=FAMILY
        + 'const zoe: Person\nfact parent(zoe, ann)\nfacts parent from "parents.csv"\nfact parent(bob, zoe)',
        parents_csv="ann,bob\nbob , carol,false\n\nann,zoe,TRUE\ncarol,ann,0\nzoe,bob,1\n",
    )
    kb = load(main, warn=False)
    assert [str(f) for f in kb.facts] == [
        "fact parent(zoe, ann)",
        "fact parent(ann, bob)",
        "fact !parent(bob, carol)",
        "fact parent(ann, zoe)",
        "fact !parent(carol, ann)",
        "fact parent(zoe, bob)",
        "fact parent(bob, zoe)",
    ]
    assert list(kb.signature.constants) == ["zoe", "ann", "bob", "carol"]
    assert kb.facts[1].atom.children[0] is kb.facts[3].atom.children[0]
    assert parse(str(kb), warn=False) == kb


def test_a_header_and_quoted_cells(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main=FAMILY + 'facts parent from "p.csv" header',
        p_csv='\ufeffmother,child\r\n"New, York","O\'Neil"\r\n"a ""b""",x.y\r\n',
    )
    kb = load(main, warn=False)
    assert list(kb.signature.constants) == ["New, York", "O'Neil", 'a "b"', "x.y"]
    assert parse(str(kb), warn=False) == kb


def test_every_kind_of_column(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="sort P; sort D = 0..9; sort C = {red, blue}; pred all(P, D, C, Int, Real), rain; "
        'facts all from "all.csv"; facts rain from "rain.csv"',
        all_csv="ann, 3, red, -12, 0.5\nbob, 0, blue, 7, 1e-3, false\n",
        rain_csv="false\n",
    )
    kb = load(main, warn=False)
    assert [str(f) for f in kb.facts] == [
        "fact all(ann, 3, red, -12, 0.5)",
        "fact !all(bob, 0, blue, 7, 0.001)",
        "fact !rain",
    ]
    assert parse(str(kb), warn=False) == kb


def test_constants_of_a_file_are_known_to_axioms(tmp_path: Path) -> None:
    main = write(tmp_path, main=FAMILY + '[r] !parent(bob, ann)\nfacts parent from "p.csv"', p_csv="ann,bob")
    assert len(load(main)) == 1


@pytest.mark.parametrize(
    ("sorts", "cells", "message", "remedy", "place"),
    [
        ("P, P", "ann,bob\nann", "1 columns, but p\\(P, P\\) takes 2 arguments", "one column each", (2, 1, 4)),
        ("P, P", "ann,bob,maybe", "'maybe' is not a label", "true or false", (1, 1, 14)),
        ("P, P", "ann,bob,true,true", "4 columns", "one column each", (1, 1, 18)),
        ("P, P", "ann,", "an empty cell", "needs a name", (1, 1, 5)),
        ("D, P", "12,ann", "12 is not in D", "0..9", (1, 1, 3)),
        ("D, P", "ann,3", "'ann' is not an integer", "such as 3", (1, 1, 4)),
        ("P, Int", "ann,3.5", "'3.5' is not an integer", "such as 3", (1, 5, 8)),
        ("P, Real", "ann,nan", "'nan' is not a number", "such as 0.5", (1, 5, 8)),
        ("C, P", "blau,ann", "'blau' is not a value of sort C", "did you mean 'blue'", (1, 1, 5)),
        ("Q, P", "ann,bob\nbob,ann", "'bob' is a constant of sort P, not Q", "another name", (2, 1, 4)),
        ("P, P", "ann,p", "'p' is already declared as a predicate", "another name", (1, 5, 6)),
        ("P, P", 'ann,"bob', "not CSV", "quotation marks", (1, 1, 9)),
    ],
)
def test_mistakes_in_a_file(
    tmp_path: Path, sorts: str, cells: str, message: str, remedy: str, place: tuple[int, int, int]
) -> None:
    declarations = "sort P; sort Q; sort D = 0..9; sort C = {red, blue}"
    main = write(tmp_path, main=f'{declarations}; pred p({sorts})\nfacts p from "p.csv"\np(x, y, z)', p_csv=cells)
    found = mistakes(main)[0]
    assert found.span is not None
    assert found.span.file == str(tmp_path / "p.csv")
    assert (found.span.line, found.span.column, found.span.end_column) == place
    assert found.span.text == cells.split("\n")[place[0] - 1]
    assert re.search(message, found.message)
    assert re.search(remedy, found.remedy or "")


def test_mistakes_about_a_file(tmp_path: Path) -> None:
    main = write(tmp_path, main=FAMILY + 'facts parnt from "p.csv"\nfacts parent from "q.csv"', p_csv="ann,bob")
    first, second = mistakes(main)
    assert (first.message, first.remedy) == ("unknown predicate 'parnt'", "did you mean 'parent'?")
    assert "there is no file" in second.message
    assert first.span is not None
    assert second.span is not None
    assert (first.span.line, second.span.line) == (2, 3)
    (tmp_path / "q.csv").write_bytes(b"caf\xe9,bob")
    assert "not text in UTF-8" in mistakes(main)[1].message


def test_several_mistakes_in_a_file_come_out_at_once(tmp_path: Path) -> None:
    rows = "\n".join([f"c{i}" for i in range(50)])
    assert len(mistakes(write(tmp_path, main=FAMILY + 'facts parent from "p.csv"', p_csv=rows))) == 50


def test_many_facts(tmp_path: Path) -> None:
    rows = "\n".join([f"c{i},c{i + 1}" for i in range(20_000)])
    kb = load(write(tmp_path, main=FAMILY + 'facts parent from "p.csv"', p_csv=rows), warn=False)
    assert len(kb.facts) == 20_000
    assert len(kb.signature.constants) == 20_001
