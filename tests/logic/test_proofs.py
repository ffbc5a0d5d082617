"""Proofs against brute force: the smallest sets of literals that make a goal true, and all simple paths of a graph."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from tests.logic.programs import ATOMS, holds, model, program

from doxa.errors import BindingError, BudgetError
from doxa.logic import Not, parse, proofs

FREE = ["edge(a, b)", "edge(b, a)", "edge(b, c)", "edge(c, a)", "mark(a)", "mark(c)"]


@pytest.mark.parametrize("seed", range(18))
def test_proofs_are_the_smallest_reasons(seed: int) -> None:
    kb = program(seed, negation=False)
    rng = random.Random(seed)
    chances = {name: rng.uniform(0.1, 0.9) for name in FREE}
    atoms = {f"{n}({', '.join(args)})": (n, args) for n, args in ATOMS}
    enough = []
    for size in range(len(FREE) + 1):
        for chosen in itertools.combinations(FREE, size):
            if any(smaller <= set(chosen) for smaller in enough):
                continue
            if holds(kb["query"].formula, {}, model(kb, frozenset([atoms[name] for name in chosen]))):
                enough.append(set(chosen))
    right = sorted([math.prod([chances[n] for n in some]) for some in enough], reverse=True)
    found = proofs(kb, kb["query"].formula, chances, k=100)
    assert [p.probability for p in found] == pytest.approx(right)
    assert sorted([sorted(map(str, p.facts)) for p in found]) == sorted([sorted(some) for some in enough])


@pytest.mark.parametrize("seed", range(11))
def test_every_proof_makes_its_goal_true(seed: int) -> None:
    """Also with negation: in all worlds that agree with the literals of a proof, the goal holds."""
    kb = program(seed)
    found = proofs(kb, kb["query"].formula, dict.fromkeys(FREE, 0.5), k=4)
    atoms = {f"{n}({', '.join(args)})": (n, args) for n, args in ATOMS}
    for proof in found:
        said = {str(f.children[0]) if isinstance(f, Not) else str(f): not isinstance(f, Not) for f in proof.facts}
        for bits in itertools.product((False, True), repeat=len(FREE)):
            on = dict(zip(FREE, bits, strict=True))
            if all(on.get(name, False) == sign for name, sign in said.items()):
                world = frozenset([atoms[name] for name, bit in on.items() if bit])
                assert holds(kb["query"].formula, {}, model(kb, world))


def test_the_best_paths_of_a_graph() -> None:
    rng = random.Random(5)
    nodes = range(7)
    chances = {(i, j): rng.uniform(0.2, 0.95) for i in nodes for j in nodes if i != j and rng.random() < 0.4}
    simple = []
    for size in range(6):
        for middle in itertools.permutations([n for n in nodes if n not in (0, 6)], size):
            steps = list(itertools.pairwise((0, *middle, 6)))
            if all(step in chances for step in steps):
                simple.append(math.prod([chances[step] for step in steps]))
    path = "define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)"
    kb = parse(f"sort Node = 0..6; pred edge(Node, Node)\n{path}")
    found = proofs(kb, "path(0, 6)", {f"edge({i}, {j})": p for (i, j), p in chances.items()}, k=5)
    assert [p.probability for p in found] == pytest.approx(sorted(simple, reverse=True)[:5])


def test_a_world_has_its_reasons_and_a_picture() -> None:
    kb = parse(
        """
        sort Person = {ann, bob}
        pred parent(Person, Person)
        fact parent(ann, bob)
        define alone(x: Person) := !exists y: Person. parent(x, y) | parent(y, x)
        define kin(x, y: Person) := parent(x, y) | kin(y, x)
        """
    )
    (proof,) = proofs(kb, "kin(bob, ann)", {})
    assert proof.probability == 1.0 and [str(f) for f in proof.facts] == ["parent(ann, bob)"]
    assert "kin(ann, bob)  by define kin(x, y: Person)" in str(proof)
    picture = proof.svg()
    assert picture.count("<rect") == 4 and "parent(ann, bob)" in picture and picture.endswith("</svg>")
    assert proofs(kb, "alone(bob)", {}) == []
    (apart,) = proofs(kb, "!alone(bob)", {})
    assert [str(f) for f in apart.facts] == ["parent(ann, bob)"]


def test_values_of_functions_exclude_each_other() -> None:
    kb = parse("sort D = 0..2; func d() -> D; func e() -> D; define big := d() + e() >= 3")
    chances = {"d() = 0": 0.2, "d() = 1": 0.3, "d() = 2": 0.5, "e() = 0": 0.1, "e() = 1": 0.6, "e() = 2": 0.3}
    found = proofs(kb, "big", chances, k=10)
    assert [p.probability for p in found] == pytest.approx([0.3, 0.15, 0.09])


def test_bad_questions() -> None:
    kb = parse("pred a; define b := a", warn=False)
    with pytest.raises(BindingError, match="between 0 and 1"):
        proofs(kb, "b", {"a": 1.5})
    with pytest.raises(BindingError, match="no atom 'c'"):
        proofs(kb, "b", {"c": 0.5})
    path = "define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)"
    large = parse(f"sort Node = 0..9; pred edge(Node, Node)\n{path}")
    with pytest.raises(BudgetError):
        proofs(large, "path(0, 9)", {}, otherwise=0.5, k=10**6, entries=20_000)
