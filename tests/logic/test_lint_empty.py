"""What a warning says of an axiom is so, also where sequences, sorts and rows are empty."""

from __future__ import annotations

import re
from itertools import product

import pytest
from tests.logic.naive import World, evaluate

from doxa.logic import parse
from doxa.logic.check._lint import lint

HEAD = "sort O\nsort D = 0..1\npred b(O)\npred c(D)\ndata s(o: O*)\n"
RANGES = ["x in r.o", "x: O", "x: D", "x in r.o where b(x)", "x: O where b(x) | !b(x)", "x: D where c(x)"]
KINDS = [
    "forall",
    "exists",
    "at least 0",
    "at least 1",
    "at least 3",
    "at most 0",
    "at most 2",
    "exactly 1",
    "exactly 3",
]
BODIES = ["{p} | !{p}", "{p} & !{p}", "{p} | true", "{p} & false", "{p}", "({p} & !{p}) -> {p}"]
WORLDS = [
    World(
        {"O": objects, "D": [0, 1]},
        {"b": lambda x, true=true: x in true, "c": lambda x, true=true: x in true},
        rows={"s": rows},
    )
    for objects in ([], [0], [0, 1])
    for true in ((), (0,), (0, 1))
    for rows in ([], [{"o": []}], [{"o": objects}], [{"o": []}, {"o": objects}])
]


def verdicts(text: str) -> list[tuple[bool, str]]:
    """What is said of whole axioms: whether they hold, and the exception."""
    said = [
        re.search(r"this axiom (always|never) holds, (.*)", d.message) for d in lint(parse(HEAD + text, warn=False))
    ]
    return [(found[1] == "always", found[2]) for found in said if found]


@pytest.mark.parametrize(("outer", "kind"), list(product(["forall", "exists"], KINDS)))
def test_verdicts_hold_where_there_is_nothing(outer: str, kind: str) -> None:
    for over, body in product(RANGES, BODIES):
        text = f"[a] {outer} r in s. {kind} {over}. {body.format(p='c(x)' if ': D' in over else 'b(x)')}"
        formula = parse(HEAD + text, warn=False).axioms[0].formula
        for always, unless in verdicts(text):
            for world in WORLDS:
                if unless == "whatever the data are":
                    assert evaluate(formula, world) == always, (text, world.rows, world.sorts)
                else:
                    spared = {"`s`": not world.rows["s"], "O": not world.sorts["O"]}
                    spared["`r.o`"] = any(not row["o"] for row in world.rows["s"])
                    named = unless.removeprefix("unless ").removesuffix(" is empty").split(" or ")
                    assert any(spared[name] for name in named) or evaluate(formula, world) == always, (text, unless)


def test_what_says_that_there_is_something_is_not_doubted() -> None:
    assert verdicts("[a] forall r in s. exists x in r.o. b(x) | !b(x)") == []
    assert verdicts("[a] exists x: O. b(x) | !b(x)") == []
    assert verdicts("[a] exists r in s. forall x in r.o. b(x) | !b(x)") == []
    assert verdicts("[a] exists x: D. c(x) | !c(x)") == [(True, "whatever the data are")]
    assert verdicts("[a] forall r in s. forall x in r.o. b(x) | !b(x)") == [(True, "whatever the data are")]
    assert verdicts("[a] exists x: O. b(x) & !b(x)") == [(False, "whatever the data are")]
    assert verdicts("[a] forall r in s. forall x in r.o. b(x) & !b(x)") == [(False, "unless `s` or `r.o` is empty")]
    assert verdicts("[a] forall x: O. b(x) & !b(x)") == [(False, "unless O is empty")]
