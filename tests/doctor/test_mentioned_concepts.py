"""A concept that knowledge mentions counts, though its truth does not depend on it: the spelling changes no verdict."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doxa.cli import main
from doxa.doctor import knowledge_shortcuts
from doxa.errors import KnowledgeError
from doxa.logic import parse

Object = tuple[int, int]  # a and b, or a and f
Said = tuple[str, Callable[[Object, Object, int], bool]]
HEAD = "sort Img\nsort Bit = 0..1\npred a(Img)\npred b(Img)\nfunc f(Img) -> Bit\ndata rows(x: Img, y: Img, u: Bit)\n"
ATOMS: list[list[Said]] = [
    [
        ("a({x})", lambda x, y, u: x[0] == 1),
        (second.format("{x}"), lambda x, y, u: x[1] == 1),
        ("a({y})", lambda x, y, u: y[0] == 1),
        (second.format("{y}"), lambda x, y, u: y[1] == 1),
    ]
    for second in ("b({})", "(f({}) = 1)")
]
SEEN: Said = ("{u}", lambda x, y, u: u == 1)


def joined(left: Said, sign: str, right: Said) -> Said:
    both: dict[str, Callable[[bool, bool], bool]] = {
        "&": lambda p, q: p and q,
        "|": lambda p, q: p or q,
        "->": lambda p, q: not p or q,
        "<->": lambda p, q: p == q,
    }
    truth = both[sign]
    return f"({left[0]} {sign} {right[0]})", lambda x, y, u: truth(left[1](x, y, u), right[1](x, y, u))


def spliced(said: str, atom: str, way: int) -> str:
    """The same, with an atom on which it does not depend."""
    return [
        f"({said} & ({atom} | !{atom}))",
        f"({said} | ({atom} & !{atom}))",
        f"(({said} & {atom}) | ({said} & !{atom}))",
        f"({said} <-> ({atom} <-> {atom}))",
        f"(({atom} xor !{atom}) -> {said})",
        f"({said} | false & {atom})",
    ][way]


@st.composite
def spellings(draw: st.DrawFn) -> tuple[list[str], Callable[[Object, Object, int], bool]]:
    """Three spellings, each of which mentions all concepts of both objects."""
    atoms = draw(st.sampled_from(ATOMS))
    said: Said = SEEN
    for sign in draw(st.lists(st.sampled_from(["&", "|", "->", "<->"]), min_size=1, max_size=3)):
        pair = [draw(st.sampled_from(atoms)), said]
        said = joined(*[pair[0], sign, pair[1]]) if draw(st.booleans()) else joined(*[pair[1], sign, pair[0]])
    texts = []
    for _ in range(3):
        text = said[0]
        for atom, _ in draw(st.permutations(atoms)):
            text = spliced(text, atom, draw(st.integers(0, 5)))
        texts.append(text)
    return texts, said[1]


def every_map(worlds: list[tuple[Object, Object, int]], holds: Callable[[Object, Object, int], bool]) -> int:
    """The maps of an object's values under which all that holds still does; what does not occur stays as it is."""
    values = list(product((0, 1), repeat=2))
    right = [world for world in worlds if holds(*world)]
    occurring = {value for x, y, _ in right for value in (x, y)}
    found = 0
    for images in product(values, repeat=4):
        taken = dict(zip(values, images, strict=True))
        if all(taken[v] == v for v in values if v not in occurring):
            found += all(holds(taken[x], taken[y], u) for x, y, u in right)
    return found


VALUES = list(product((0, 1), repeat=2))


@settings(deadline=None, max_examples=30)
@given(spellings(), st.booleans())
def test_spellings_against_every_map(drawn: tuple[list[str], Callable[..., bool]], rows: bool) -> None:
    texts, holds = drawn
    if rows:
        start, names = "forall r in rows. ", {"x": "r.x", "y": "r.y", "u": "(r.u = 1)"}
        count = every_map([(x, y, u) for x in VALUES for y in VALUES for u in (0, 1)], holds)
        possible = any(holds(x, y, u) for x in VALUES for y in VALUES for u in (0, 1))
    else:  # every pair of two objects, also of one with itself
        start, names = "forall x, y: Img. ", {"x": "x", "y": "y", "u": "true"}

        def all_pairs(x: Object, y: Object, u: int) -> bool:
            return all(holds(v, w, 1) for v in (x, y) for w in (x, y))

        count = every_map([(x, y, 1) for x in VALUES for y in VALUES], all_pairs)
        possible = any(all_pairs(x, y, 1) for x in VALUES for y in VALUES)
    for text in texts if possible else ():
        found = knowledge_shortcuts(parse(f"{HEAD}[it] {start}{text.format(**names)}", warn=False), show=0)
        assert found.complete and found.count == count, text


ONE = "sort Img\nsort D = 0..1\ndata rows(x: Img, o: D)\npred a(Img)\npred b(Img)\nfunc f(Img) -> D\n"
OBSERVED = "[q0] forall r in rows. b(r.x) <-> r.o = 1\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (OBSERVED + "[q1] forall r in rows. a(r.x) | !a(r.x)", 16),
        (OBSERVED + "[q1] forall r in rows. (a(r.x) & b(r.x)) | (a(r.x) & !b(r.x)) | !a(r.x)", 16),
        (OBSERVED + "[q1] forall r in rows where a(r.x). a(r.x)", 16),
        (OBSERVED + "[q1] forall r in rows. at least 0 d: D. f(r.x) = d", 16),
        (OBSERVED + "[q1] forall r in rows. d := f(r.x) (d = d)", 16),
        ("[q] forall x: Img. (f(x) = 1 <-> f(x) = 0) <-> !a(x)", 4),
        ("[q] forall x: Img. a(x) & (b(x) | !b(x))", 4),
        ("[q] forall x: Img. a(x) | !a(x)", 4),
    ],
)
def test_what_simplification_removes_counts(text: str, count: int) -> None:
    found = knowledge_shortcuts(parse(ONE + text, warn=False))
    assert found.complete and found.count == count and not found.free


@pytest.mark.parametrize(
    "text", ["", "sort S = {a}\n", 'include "empty.doxa"\n', "sort S\npred p(S)\nconst c: S\nfact p(c)\n"]
)
def test_no_axioms_is_said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.doxa"
    file.write_text(text)
    assert main(["shortcuts", str(file)]) == 1
    assert "there are no axioms, so nothing is said about any concept" in capsys.readouterr().err


def test_a_function_that_is_not_learned_is_to_be_bound() -> None:
    text = "sort I; sort D = 0..2; data rows(x: I, y: I, k: Int); func d(I) -> D; sort K = 0..4; func f(D, D) -> {}\n"
    text += "[q] forall r in rows. f(d(r.x), d(r.y)) = r.k"
    with pytest.raises(KnowledgeError, match="if f is not learned, let it yield a finite sort, and bind it: symbols="):
        knowledge_shortcuts(parse(text.format("Int"), warn=False))
    found = knowledge_shortcuts(parse(text.format("K"), warn=False), symbols={"f": lambda a, b: a + b})
    assert found.free and found.worlds == 9  # as the message says


def test_a_guard_that_keeps_a_term_defined_stays() -> None:
    text = "sort D = 0..2\npred p(D)\n[q] forall d, e: D where e != 0. p(d // e) | !p(d // e)"
    assert knowledge_shortcuts(parse(text, warn=False), show=0).count == 8**8  # any set of values for any other
