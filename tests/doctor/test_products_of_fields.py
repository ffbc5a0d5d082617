"""Fields that are multiplied or compared with each other, against so many numbers that no others make a difference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from doxa.doctor import knowledge_shortcuts
from doxa.errors import KnowledgeError
from doxa.logic import parse

HEAD = "sort Image\nsort Digit = 0..2\nfunc digit(Image) -> Digit\ndata s(x: Image, y: Image, a: Int, b: Int)\n"
SEEN = range(-14, 15)
PYTHON = {"p.a": "a", "p.b": "b", " = ": " == ", "<->": "==", "->": "<=", "&": "and", "mod": "%"}


def in_python(text: str) -> Callable[..., Any]:
    for sign, meant in PYTHON.items():
        text = text.replace(sign, meant)
    return eval(f"lambda d, e, a, b: {text}")


def expected(text: str) -> int | None:
    """How many maps of three digits leave everything as it is; None if the formula says nothing, or never holds."""
    formula = in_python(text)
    worlds = list(product(range(3), repeat=2))
    kinds = {tuple(bool(formula(*w, a, b)) for w in worlds) for a, b in product(SEEN, repeat=2)}
    tables = [dict(zip(worlds, kind, strict=True)) for kind in kinds]
    if len({truth for kind in kinds for truth in kind}) < 2:
        return None
    used = {v for table in tables for w, holds in table.items() if holds for v in w}
    found = 0
    for m in product(range(3), repeat=3):
        if all(m[v] == v for v in range(3) if v not in used):
            found += all(table[m[d], m[e]] for table in tables for (d, e), holds in table.items() if holds)
    return found


def counted(text: str) -> int:
    kb = parse(f"{HEAD}[r] forall p in s. d := digit(p.x), e := digit(p.y) ({text})", warn=False)
    found = knowledge_shortcuts(kb)
    assert found.complete
    return found.count


@pytest.mark.parametrize(
    "text",
    [
        "d + e = p.a * p.b",
        "d * p.a = p.b",
        "d + p.a = p.b",
        "d + p.a < p.b + e",
        "p.a * p.a = d + e",
        "p.a * p.a * p.a < d - e",
        "p.a * p.a - 3 * p.a + d = 0",
        "d * p.a + e * p.b = 2",
        "(p.a * p.b = 2) <-> (d = e)",
        "((p.a + p.b = d) & (p.a = 1)) -> (e = d)",
        "(p.a - p.b = d) & (p.a < p.b + e)",
        "(p.a = p.b) <-> (d + p.a > e)",
    ],
)
def test_against_every_map_and_many_numbers(text: str) -> None:
    assert counted(text) == expected(text)


SIDES = st.sampled_from(["d", "e", "d + e", "d * e", "2", "d - 1"])
FIELDS = st.sampled_from(["p.a + p.b", "p.a - p.b", "p.a * p.b", "d * p.a + p.b", "p.a * p.a", "p.a - d * p.b"])
ATOMS = st.builds("{} {} {}".format, FIELDS, st.sampled_from(["=", "<", ">="]), SIDES)


@settings(deadline=None, max_examples=40)
@given(ATOMS, st.sampled_from(["{}", "({}) <-> (d = e)", "({}) -> (d < e)", "d + e < 3 & ({})"]))
def test_generated_comparisons(atom: str, shape: str) -> None:
    text = shape.format(atom)
    wanted = expected(text)
    assume(wanted is not None)
    assert counted(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["p.a * p.b = d & p.a = 2", "p.a * p.a + p.b = d", "(p.a + p.b) mod 3 = d", "p.a * p.b // 2 = e + d"],
)
def test_what_is_not_decided_is_said(text: str) -> None:
    with pytest.raises(KnowledgeError, match="tells apart cannot be listed"):
        counted(text)
