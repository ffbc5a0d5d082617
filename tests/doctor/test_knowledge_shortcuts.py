"""Shortcuts of knowledge bases, against going through every map of the concepts in plain Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from doxa.cli import main
from doxa.doctor import knowledge_shortcuts
from doxa.errors import BudgetError, DataError, DoxaError, KnowledgeError, ProblemError
from doxa.logic import parse

HEAD = "sort Image\nsort Digit = 0..3\nfunc digit(Image) -> Digit\n"
PAIRS = HEAD + "data pairs(left: Image, right: Image, sum: Int)\n"
ADDITION = PAIRS + "[sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)"
EQUATION = HEAD + "data t(x: Image, y: Image, z: Image)\n[sum] forall p in t. digit(p.x) + digit(p.y) = digit(p.z)"
XOR = (
    "sort Image\nsort Bit = 0..1\npred on(Image)\ndata pairs(x: Image, y: Image, z: Bit)\n"
    "[either] forall p in pairs. (on(p.x) xor on(p.y)) <-> p.z = 1"
)


def explaining(size: int, worlds: list[tuple[int, ...]], right: Callable[..., bool], seen: list[int]) -> list[tuple]:
    """Every map under which what is right stays right, for all worlds and everything that is seen beside them."""
    return [
        maps
        for maps in product(range(size), repeat=size)
        if all(right(*[maps[c] for c in w], y) for w in worlds for y in seen if right(*w, y))
    ]


CASES = {
    "xor": (XOR, 2, 2, lambda x, y, z: (x != y) == (z == 1), [0, 1]),
    "addition": (ADDITION, 4, 2, lambda x, y, z: x + y == z, list(range(7))),
    "equation": (EQUATION, 4, 3, lambda x, y, z, _: x + y == z, [0]),
    "product": (ADDITION.replace("d + e", "d * e"), 4, 2, lambda x, y, z: x * y == z, list(range(10))),
    "modulo": (ADDITION.replace("d + e", "(d + e) mod 2"), 4, 2, lambda x, y, z: (x + y) % 2 == z, [0, 1]),
    "difference": (ADDITION.replace("d + e", "d - e"), 4, 2, lambda x, y, z: x - y == z, list(range(-3, 4))),
    "at most": (ADDITION.replace("d + e =", "d + e <="), 4, 2, lambda x, y, z: x + y <= z, list(range(-1, 8))),
    "one number": (
        ADDITION.replace("d + e = p.sum", "p.sum = 1 <-> d + e > 3"),
        4, 2, lambda x, y, z: (z == 1) == (x + y > 3), [0, 1],
    ),
    "solved for the field": (
        ADDITION.replace("d + e = p.sum", "e - (p.sum + 2) = -d"),
        4, 2, lambda x, y, z: x + y - 2 == z, list(range(-2, 6)),
    ),
    "something twice": (
        ADDITION.replace("d + e = p.sum", "p.sum = d * d <-> e = 0"),
        4, 2, lambda x, y, z: (z == x * x) == (y == 0), [0, 1, 2, 4, 9],
    ),
    "order and equality": (
        ADDITION.replace("d + e = p.sum", "p.sum < 3 & p.sum != 1 -> d = e"),
        4, 2, lambda x, y, z: not (z < 3 and z != 1) or x == y, [0, 1, 3, 4],
    ),
    "all numbers are told": (
        ADDITION.replace("d + e = p.sum", "(p.sum = 1 <-> d = e) & p.sum >= 0 & p.sum < 2"),
        4, 2, lambda x, y, z: (z == 1) == (x == y) and 0 <= z < 2, [0, 1],
    ),
    "twice the field": (
        ADDITION.replace("= p.sum", "= p.sum * 2"), 4, 2, lambda x, y, z: x + y == 2 * z, list(range(4)),
    ),
    "at most half": (
        ADDITION.replace("d + e = p.sum", "d + e < p.sum * 2 + 1"), 4, 2, lambda x, y, z: x + y < 2 * z + 1, None,
    ),
    "an even field": (
        ADDITION.replace("d + e = p.sum", "p.sum mod 2 = (d + e) mod 2"),
        4, 2, lambda x, y, z: z % 2 == (x + y) % 2, [0, 1],
    ),
    "a field in steps": (
        ADDITION.replace("d + e = p.sum", "p.sum // 3 = d"), 4, 2, lambda x, y, z: z // 3 == x, None,
    ),
    "two axioms": (
        ADDITION + "\n[order] forall q in pairs. digit(q.left) < digit(q.right)",
        4, 2, lambda x, y, z: x + y == z and x < y, list(range(7)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_every_map(name: str) -> None:
    text, size, width, right, seen = CASES[name]
    worlds = list(product(range(size), repeat=width))
    listed = seen is not None  # which numbers are observations is up to the search
    seen = seen or range(-50, 50)
    expected = explaining(size, worlds, right, seen)
    used = {c for w in worlds for y in seen if right(*w, y) for c in w}
    expected = [m for m in expected if all(m[v] == v for v in range(size) if v not in used)]
    found = knowledge_shortcuts(parse(text, warn=False), show=1000)
    assert found.count == len(expected)
    shown = {tuple(s.moves[0].get(v, v) for v in range(size)) for s in found.simplest}
    assert shown == {m for m in expected if m != tuple(range(size))}
    assert all(any(m[v] != v for _, v in found.labels) for m in expected if m != tuple(range(size)))
    if not listed:
        return
    boxes = [[w for w in worlds if right(*w, y)] for y in seen]
    mixed = [b for b in boxes if set(product(*[{w[i] for w in b} for i in range(width)])) != set(b)]
    assert found.unmixable == len([b for b in mixed if b])
    assert found.worlds == sum(map(len, boxes))


TERMS = st.recursive(
    st.sampled_from(["d", "e", "2", "3"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("({} {} 2)".format, inner, st.sampled_from(["//", "mod"])),
    ),
    max_leaves=4,
)
Atom = tuple[str, str]
ATOMS = st.tuples(st.sampled_from(["=", "!=", "<", ">="]), TERMS)
SHAPES = ["d + e < 4 & ({})", "({}) <-> (d = e)", "({}) -> (d < e)", "(d = e) | ({})"]
PYTHON = {"p.sum": "z", " = ": " == ", "<->": "==", "->": "<=", "&": "and", "|": "or", "mod": "%"}


def in_python(text: str) -> Callable[..., Any]:
    for sign, meant in PYTHON.items():
        text = text.replace(sign, meant)
    return eval(f"lambda d, e, z: {text}")


@settings(deadline=None, max_examples=30)
@given(st.lists(ATOMS, min_size=1, max_size=2), st.sampled_from(SHAPES))
def test_numbers_are_told_apart(atoms: list[Atom], shape: str) -> None:
    """Against so many numbers that no others can make a difference."""
    text = shape.format(" & ".join(f"p.sum {sign} {term}" for sign, term in atoms))
    worlds = list(product(range(3), repeat=2))
    seen = range(-100, 100)  # no term is beyond ±81
    formula = in_python(text)
    table = {(*w, z): bool(formula(*w, z)) for w in worlds for z in seen}
    assume(len(set(table.values())) == 2)  # it says something, and can be true
    found = knowledge_shortcuts(parse(ADDITION.replace("0..3", "0..2").replace("d + e = p.sum", text), warn=False))
    used = {c for (*w, _), holds in table.items() if holds for c in w}
    maps = explaining(3, worlds, lambda *key: table[key], list(seen))
    assert found.count == len([m for m in maps if all(m[v] == v for v in range(3) if v not in used)])
    # A number that something is compared with is one observation; others are one if every comparison says the same.
    named = {in_python(term)(*w, None) for w in worlds for _, term in atoms}
    said = [in_python(f"p.sum {sign} {term}") for sign, term in atoms]
    classes = {z if z in named else tuple(a(*w, z) for w in worlds for a in said): z for z in seen}
    assert found.worlds == sum(table[*w, z] for w in worlds for z in classes.values())


def test_numbers_without_a_sort() -> None:
    """Red and amber cannot be told apart, whatever 'go' is called."""
    text = (
        "sort Photo; sort Colour = {red, amber, green}; sort Bit = 0..1; data c(n: Photo, go: Int)\n"
        "func colour(Photo) -> Colour\n[go] forall p in c. p.go = 1 <-> colour(p.n) = green"
    )
    everything = knowledge_shortcuts(parse(text, warn=False))
    assert (everything.count, everything.worlds) == (4, 3)
    assert everything == knowledge_shortcuts(parse(text.replace("Int", "Bit")))
    colours = ["red", "amber", "green"]
    for data in ({"n": colours}, {"n": colours, "go": [0, 0, 1]}, {"n": colours, "go": [7, 9, 1]}):
        assert knowledge_shortcuts(parse(text, warn=False), data=data).count == 4
    real = text.replace("Int", "Real").replace("p.go = 1", "p.go > 0.1")
    assert knowledge_shortcuts(parse(real, warn=False)).count == 4


def test_fields_beside_a_field() -> None:
    """What is added to a finite field, a given field or a constant can be listed."""
    text = HEAD + "const k: Int\ndata s(x: Image, by: Digit, to: Int)\n[a] forall p in s. digit(p.x) + p.by + k = p.to"
    found = knowledge_shortcuts(parse(text), symbols={"k": 5})
    assert found.free and found.worlds == 16
    text = text.replace("by: Digit", "by: Int")
    assert knowledge_shortcuts(parse(text), symbols={"k": 5}).free
    text = text.replace("p.by + k", "(p.by * p.to) mod 7 + k")
    with pytest.raises(
        KnowledgeError, match=r"s.by is Int, .*; declare a finite sort for it, such as sort By = 0..9, or"
    ):
        knowledge_shortcuts(parse(text), symbols={"k": 5})
    text = text.replace("(p.by * p.to) mod 7 + k", "p.by + k")
    found = knowledge_shortcuts(parse(text), symbols={"k": 5}, data={"x": [0, 1], "by": [2, 40]})
    assert found.free and found.worlds == 2


@pytest.mark.parametrize(
    ("axiom", "right"),
    [
        ("p.a < p.b <-> digit(p.x) > 1", lambda x, a, b: (a < b) == (x > 1)),
        ("p.a = p.b -> digit(p.x) = p.a", lambda x, a, b: a != b or x == a),
        ("(p.a < p.b & p.b != 3) -> digit(p.x) < p.a", lambda x, a, b: not (a < b and b != 3) or x < a),
    ],
)
def test_fields_that_are_compared_with_each_other(axiom: str, right: Callable[..., bool]) -> None:
    text = HEAD + f"data s(x: Image, a: Int, b: Int)\n[r] forall p in s. {axiom}"
    seen = list(product(range(-9, 10), repeat=2))
    maps = explaining(4, [(x,) for x in range(4)], lambda x, y: right(x, *y), seen)
    used = {x for x in range(4) for y in seen if right(x, *y)}
    found = knowledge_shortcuts(parse(text, warn=False))
    assert found.count == len([m for m in maps if all(m[v] == v for v in range(4) if v not in used)])


def test_a_name_that_is_bound_twice() -> None:
    text = (
        HEAD + "sort Two = 5..6\ndata s(x: Image, n: Int)\n[a] forall p in s. "
        "(exists k: Digit. p.n = k & digit(p.x) = k) | (exists k: Two. p.n = k) & digit(p.x) = 0"
    )
    found = knowledge_shortcuts(parse(text, warn=False))
    assert found.free and found.worlds == 6


def test_what_it_says() -> None:
    found = str(knowledge_shortcuts(parse(EQUATION)))
    assert found.startswith("2 maps of the concepts explain all 10 worlds; 1 of them is a shortcut\n")
    assert "digit: 1 → 0, 2 → 0, 3 → 0\nlabels for digit = " in found
    assert "(digit(t.y) = 0, digit(t.z) = 0) and (digit(t.y) = 1, digit(t.z) = 1) give the same output" in found
    free = str(knowledge_shortcuts(parse(ADDITION)))
    assert free.startswith("no shortcut: only the true concepts explain all 16 worlds\n5 of 7 outputs")


def test_values_have_names_and_concepts_are_symbols() -> None:
    kb = parse(
        "sort Image\nsort Colour = {red, green}\nfunc colour(Image) -> Colour\npred round(Image)\n"
        "data shots(image: Image)\n[ball] forall s in shots. round(s.image) -> colour(s.image) = red"
    )
    found = knowledge_shortcuts(kb, show=1)
    assert [(c.name, c.values[1]) for c in found.concepts] == [("(round, colour)", "(false, green)")]
    assert found.describe(found.simplest[0]).startswith("(round, colour): (")
    one_by_one = knowledge_shortcuts(kb, show=1, joint=3)
    assert {c.name for c in one_by_one.concepts} == {"colour", "round"}
    assert one_by_one.describe(one_by_one.simplest[0]) in ("colour: green → red", "round: true → false")
    assert str(one_by_one).startswith("under the assumption that round and colour are mapped one by one: ")


def test_data_leave_more_shortcuts() -> None:
    kb = parse(ADDITION)
    assert knowledge_shortcuts(kb).free
    few = {"left": [1, 3], "right": [2, 3]}  # 1 + 2 = 3 and 3 + 3 = 6: α(1) and α(2) are 0 and 3, 1 and 2, 2 and 1, …
    found = knowledge_shortcuts(kb, data=few, show=10)
    assert found.count == 4 and found.worlds == 2
    assert {tuple(sorted(s.moves[0].items())) for s in found.simplest} == {
        ((1, 0), (2, 3)), ((1, 2), (2, 1)), ((1, 3), (2, 0)),
    }  # fmt: skip
    assert knowledge_shortcuts(kb, data={"digit(left)": ["1"], "digit(right)": ["2"], "sum": [3]}).count == 4


@pytest.mark.parametrize(
    ("text", "arguments", "error", "message"),
    [
        (ADDITION, {"data": {"left": [1]}}, DataError, r"no column for digit\(pairs.right\).*digit\(right\) or right"),
        (ADDITION, {"data": {"left": [1], "right": [7]}}, DataError, "row 1, column right: 7 is no value of digit"),
        (ADDITION, {"data": {"left": [1], "right": [2], "sum": [4]}}, DataError, "row 1 contradicts the knowledge"),
        (ADDITION, {"data": {"left": [1], "right": [2], "x": [4]}}, DataError, "a column x, which is no concept"),
        (ADDITION.replace("= p.sum", "= p.sum * p.sum // 3"), {}, KnowledgeError, "p.sum [*] p.sum // 3` tells"),
        ("sort A; func f(A) -> Int; [a] forall x: A. f(x) > 0", {}, KnowledgeError, "f yields Int"),
        ("closed pred a; fact a; [b] a", {}, KnowledgeError, "nothing here is learned"),
        (HEAD + "data s(o: Image*)\n[a] forall t in s, x in t.o. digit(x)=0", {"data": {"o": [1]}}, DataError, "list"),
        ("sort L = 0..4; pred cell(L, L); [a] forall x: L. exactly 1 y: L. cell(x, y)", {}, BudgetError, "33,554,432"),
    ],
)  # fmt: skip
def test_mistakes(text: str, arguments: dict, error: type[DoxaError], message: str) -> None:
    with pytest.raises(error, match=message):
        knowledge_shortcuts(parse(text, warn=False), **arguments)


BOUND = """
import torch
import doxa
from doxa.train import Task

KNOWLEDGE = '''
    sort Image
    sort Digit = 0..3
    sort Sum = 0..6
    data pairs(left: Image, right: Image, sum: Sum)
    func digit(Image) -> Digit
    func both({argument}, Digit) -> Sum
    [sum] forall p in pairs. both({left}, digit(p.right)) = p.sum
'''


def data():
    images = torch.zeros(4, 2)
    return {{"pairs": {{"left": images, "right": images, "sum": torch.zeros(4, dtype=torch.int64)}}}}


def symbols():
    return {{"digit": doxa.logits(torch.nn.Linear(2, 4)), "both": {function}}}


task = Task("both", "two digits", KNOWLEDGE, symbols, data(), data(), target="pairs.sum")
"""


@pytest.mark.parametrize(
    ("function", "python"),
    [
        ("lambda a, b: a + b", lambda a, b: a + b),
        ("lambda a, b: a * b % 7", lambda a, b: a * b % 7),
        ("lambda a, b: (a - b).abs()", lambda a, b: abs(a - b)),
        ("doxa.function(lambda a, b: max(a, b), per_object=True)", max),
    ],
)
def test_functions_of_a_task_are_used(
    function: str, python: Callable[[int, int], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "task.py"
    file.write_text(BOUND.format(argument="Digit", left="digit(p.left)", function=function))
    assert main(["shortcuts", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    pairs = list(product(range(4), repeat=2))
    maps = [m for m in product(range(4), repeat=4) if all(python(m[a], m[b]) == python(a, b) for a, b in pairs)]
    assert found["complete"] and found["maps"] == len(maps) and list(found["concepts"]) == ["digit"]


def test_functions_of_what_cannot_be_listed_are_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "task.py"
    file.write_text(BOUND.format(argument="Image", left="p.left", function="lambda x, b: b"))
    assert main(["shortcuts", str(file)]) != 0
    assert "could not decide: both is a Python function of Image" in " ".join(capsys.readouterr().err.split())


def test_knowledge_that_never_holds_is_not_judged() -> None:
    text = (
        "sort Item = {a, b}; pred p(Item); pred q(Item)\nforall x: Item. p(x) <-> !q(x)\nforall x: Item. p(x) <-> q(x)"
    )
    with pytest.raises(ProblemError, match="could not decide: no world has to be explained"):
        knowledge_shortcuts(parse(text, warn=False))


def test_a_table_that_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rules.doxa").write_text(
        "sort Item\npred p(Item)\ndata rows(x: Item, q: Int)\nforall r in rows. p(r.x)"
    )
    (tmp_path / "rows.csv").write_bytes("x,q\né,1\n".encode("latin-1"))
    assert main(["shortcuts", str(tmp_path / "rules.doxa"), "--data", str(tmp_path / "rows.csv")]) == 1
    assert "no table of text in UTF-8" in capsys.readouterr().err
