"""Worlds that are too many to list: the SAT solver that looks for one against listing them, and against every map."""

from __future__ import annotations

import math
from itertools import product

import pytest

from doxa.doctor import knowledge_shortcuts
from doxa.errors import BudgetError
from doxa.logic import load, parse
from doxa.problem import Budget
from doxa.train.tasks._shortcuts import KNOWLEDGE

FEW = Budget(worlds=24, operations=1 << 25)
HEAD = "sort Image\nsort Digit = 0..4\nsort Bit = 0..1\nfunc digit(Image) -> Digit\nfunc dark(Image) -> Bit\n"
ROWS = "data t(x: Image, y: Image, z: Image, told: Int, bit: Bit)\n"
CASES = [
    "digit(p.x) + digit(p.y) = p.told",
    "(digit(p.x) + digit(p.y) + digit(p.z)) mod 2 = p.bit",
    "digit(p.x) * digit(p.y) = p.told",
    "digit(p.x) + digit(p.y) = digit(p.z)",
    "(digit(p.x) < digit(p.y)) <-> p.bit = 1",
    "digit(p.x) + dark(p.x) + digit(p.y) = p.told",
    "digit(p.x) + dark(p.y) * digit(p.z) = p.told & dark(p.x) = p.bit",
    "digit(p.x) + digit(p.y) < p.told",
]


@pytest.mark.parametrize("text", CASES)
def test_against_listing_the_worlds(text: str) -> None:
    kb = parse(f"{HEAD}{ROWS}[a] forall p in t. {text}", warn=False)
    listed = knowledge_shortcuts(kb, show=400, limit=400)
    found = knowledge_shortcuts(kb, show=400, limit=400, budget=FEW)
    assert found.worlds == 0 < listed.worlds
    if listed.count <= 200:  # more are counted by a circuit only where worlds are listed
        assert (found.count, found.complete) == (listed.count, listed.complete)
        assert {str(s) for s in found.simplest} == {str(s) for s in listed.simplest}
    else:
        assert found.count == 400 or found.count == listed.count
    assert len(found.labels) == len(listed.labels)


def test_more_worlds_than_can_be_listed() -> None:
    """Sums of seven digits, 10^7 worlds; and 9^9 boards, whose shapes and colours have any names."""
    fields = [f"x{i}" for i in range(7)]
    kb = parse(
        "sort Image\nsort Digit = 0..9\nfunc digit(Image) -> Digit\n"
        f"data t({', '.join(f'{f}: Image' for f in fields)}, told: Int)\n"
        f"[a] forall p in t. {' + '.join(f'digit(p.{f})' for f in fields)} = p.told",
        warn=False,
    )
    found = knowledge_shortcuts(kb)
    assert found.free and found.worlds == 0
    assert str(found).startswith("no shortcut: only the true concepts explain all worlds")
    boards = knowledge_shortcuts(load(KNOWLEDGE / "kandinsky.doxa"), show=100)
    assert boards.count == 2 * math.factorial(3) ** 2 and boards.complete
    assert len(boards.simplest) == boards.count - 1


def test_the_limits_hold() -> None:
    kb = parse(f"{HEAD}{ROWS}[a] forall p in t. (digit(p.x) + digit(p.y)) mod 2 = p.bit", warn=False)
    found = knowledge_shortcuts(kb, limit=5, budget=FEW)
    assert (found.count, found.complete) == (5, False)
    assert "more than 5 maps of the concepts explain all worlds" in str(found)
    found = knowledge_shortcuts(kb, budget=Budget(worlds=24, operations=20_000))
    assert not found.complete and "could not decide" in str(found)
    late = knowledge_shortcuts(load(KNOWLEDGE / "kandinsky.doxa"), seconds=0.2)
    assert not late.complete and "within 0.2 seconds" in str(late)
    formula = parse("sort L = 0..4; pred cell(L, L); [a] forall x: L. exactly 1 y: L. cell(x, y)")
    with pytest.raises(BudgetError, match="could not decide: there are 33,554,432 worlds"):
        knowledge_shortcuts(formula)


def test_worlds_of_the_brute_force_are_enough() -> None:
    """The count of the first case, by hand: all maps of five digits that keep every sum."""
    worlds = list(product(range(5), repeat=2))
    maps = [m for m in product(range(5), repeat=5) if all(m[a] + m[b] == a + b for a, b in worlds)]
    kb = parse(f"{HEAD}{ROWS}[a] forall p in t. {CASES[0]}", warn=False)
    assert knowledge_shortcuts(kb, budget=FEW).count == len(maps)
