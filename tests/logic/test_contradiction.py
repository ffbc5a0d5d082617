"""Contradictions: what is said is right, judged by trying all worlds."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest

from doxa.logic import KnowledgeBase, ground, load, parse, satisfiable
from doxa.logic.sat._contradiction import contradiction
from doxa.logic.syntax._simplify import evaluate


def statement(draw: random.Random, names: list[str]) -> str:
    def formula(depth: int) -> str:
        if depth == 0:
            return f"{draw.choice(['', '!'])}{draw.choice(['p', 'q'])}({draw.choice(names)})"
        return f"({formula(depth - 1)} {draw.choice(['&', '|', '->', '<->', 'xor'])} {formula(depth - 1)})"

    return formula(draw.randint(0, 2))


def some_world(kb: KnowledgeBase, objects: list[str]) -> bool:
    """Is there a world with these objects in which everything holds? By trying them all."""
    grounded = ground(kb, domains={"T": objects})
    theory = [*grounded.axioms.values(), *grounded.facts]
    return any(
        all(evaluate(f, dict(zip(grounded.atoms, world, strict=True))) for f in theory)
        for world in product([False, True], repeat=len(grounded.atoms))
    )


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_is_right_for_every_number_of_objects(seed: int) -> None:
    draw = random.Random(seed)
    lines = ["sort T", "const u, v: T", "pred p(T), q(T)"]
    for i in range(draw.randint(1, 3)):
        quantifier = draw.choice(["forall x: T. ", "exists x: T. ", "forall x: T where p(x). ", ""])
        lines.append(f"[a{i}] {quantifier}{statement(draw, ['x', 'u'] if quantifier else ['u', 'v'])}")
    lines += [f"fact {draw.choice(['', '!'])}{p}({c})" for p in "pq" for c in "uv" if draw.random() < 0.5]
    kb = parse("\n".join(lines), warn=False)
    found = contradiction(kb)
    worlds = [some_world(kb, ["u", "v", *extra]) for extra in ([], ["w"])]
    if found is not None:
        assert not any(worlds), f"{found}\n{kb}"
    elif "exists" not in str(kb):
        assert worlds[0], f"nothing is said of\n{kb}"  # universal knowledge about named objects is decided


@pytest.mark.parametrize(
    "text",
    [
        "pred a; [x, weight 0.5] a; fact !a",  # it may be broken
        "pred a; [x, weight ?] a; fact !a",
        "pred a; [x] a; fact [weight 0.5] !a",
        "sort P; const u: P; pred a(P); [e] exists x: P. a(x); fact !a(u)",  # another object may be a
        "sort P; func age(P) -> Int; const u: P; [r] forall x: P. age(x) < 0 & age(x) > 3",  # not decided here
        "data rows(n: Int); pred a; [r] forall r in rows. a; fact !a",  # there may be no rows
        "sort P = 1..5000; pred f(P, P); [r] forall x, y: P. f(x, y); fact !f(1, 1)",  # too large
        "sort P; const u, v: P; pred f(P, P); define alone(x: P) := !exists y: P. f(x, y); "
        "[a] forall x: P. alone(x); [b] forall x: P. !alone(x) | x = u; fact !f(u, u)",  # others may be friends of u
        "pred a; fact a",
        "",
    ],
)
def test_silent_where_nothing_is_proven(text: str) -> None:
    assert contradiction(parse(text, warn=False)) is None


def test_definitions_count() -> None:
    found = contradiction(parse("pred a, b; define c := a | b; [r] !c; fact a", warn=False))
    assert found is not None and "fact a; [r] !c" in found.message


def test_only_what_contradicts_is_named() -> None:
    lines = [f"pred p{i}; [r{i}] p{i} | !p{i}" for i in range(9)] + [f"fact p{i}" for i in range(8)]
    kb = parse("\n".join([*lines, "[bad] p3 -> p8", "fact !p8"]), warn=False)
    found = contradiction(kb)
    assert found is not None and satisfiable(kb) is None
    assert found.message.endswith("true: fact p3; fact !p8; [bad] p3 -> p8")


def test_examples_do_not_contradict_themselves() -> None:
    for file in sorted((Path(__file__).parents[2] / "examples" / "knowledge").glob("*.doxa")):
        assert contradiction(load(file, warn=False), seconds=20) is None, file
