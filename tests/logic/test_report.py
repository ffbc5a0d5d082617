"""Satisfaction reports count what plain loops count, and show vacuous satisfaction."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logic.generated import DECLARATIONS, Maker, make_case
from tests.logic.naive import World, evaluate, instances

from doxa.errors import KnowledgeError
from doxa.logic import (
    Axiom,
    Expr,
    Implies,
    Interpretation,
    KnowledgeBase,
    Quantifier,
    Ragged,
    SatisfactionReport,
    function,
    parse,
    satisfaction,
)
from doxa.logic.tensor._report import AxiomReport


def count(formula: Expr, world: World) -> tuple[list[dict[str, Any]], list[bool], list[bool] | None]:
    """The instances of the outermost ``forall``, which of them hold, and which are active."""
    envs: list[dict[str, Any]] = [{}]
    bound: set[str] = set()
    while isinstance(formula, Quantifier) and formula.kind == "forall" and bound.isdisjoint(formula.names):
        bound.update(formula.names)
        envs = [inner for e in envs for inner in instances(formula, world, e)]
        formula = formula.body
    holds = [bool(evaluate(formula, world, e)) for e in envs]
    active = None
    if isinstance(formula, Implies):
        active = [bool(evaluate(formula.children[0], world, e)) for e in envs]
    return envs, holds, active


def named(env: dict[str, Any], world: World, formula: Expr) -> dict[str, Any]:
    """An assignment as a report shows it; rows and their parts go by place."""
    kinds: dict[str, str] = {}
    while isinstance(formula, Quantifier) and formula.kind == "forall" and kinds.keys().isdisjoint(formula.names):
        for group in formula.groups:
            kinds |= dict.fromkeys(group.names, group.sort or str(group.domain))
        formula = formula.body
    return {n: f"P#{v}" if kinds[n] == "P" else v for n, v in env.items() if kinds[n] in ("P", "D", "C")}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 3), st.booleans(), st.sampled_from([1, 6, 2**22]))
def test_counts_are_those_of_loops(seed: int, people: int, neural: bool, chunk: int) -> None:
    case = make_case(seed, people, 2, neural)
    make = Maker(seed, people=people > 0)
    formulas = [make.formula(3), make.quantifier(2, {}), make.quantifier(2, {})]
    kb, interpretation = case.knowledge(*formulas)
    report = satisfaction(kb, interpretation, chunk=chunk, examples=4, **case.data)
    for got, formula in zip(report.axioms, formulas, strict=True):
        envs, holds, active = count(formula, case.world)
        assert (got.instances, got.holds) == (len(envs), sum(holds))
        assert got.active == (None if active is None else sum(active))
        wrong = [named(e, case.world, formula) for e, held in zip(envs, holds, strict=True) if not held]
        assert len(got.violations) == min(4, len(wrong))
        for violation in got.violations:
            assert {k: v for k, v in violation.items() if "rows" not in str(v)} in [
                {k: v for k, v in w.items() if k in violation} for w in wrong
            ]
    assert report.satisfied is all(bool(evaluate(f, case.world)) for f in formulas)


FAMILY = """
    sort Person
    const anna: Person
    const bob: Person
    const carl: Person
    closed pred parent(Person, Person)
    pred old(Person)
    pred king(Person)
    fact parent(anna, bob)
    fact parent(bob, carl)
    fact !parent(carl, carl)
    [older]   forall x, y: Person where parent(x, y). old(y) -> old(x)
    [crown]   forall x, y: Person. king(x) & parent(x, y) -> king(y)
    [nobody]  forall x: Person where king(x). old(x)
    [anna]    old(anna)
    [someone] exists x: Person. king(x)
    [rule]    king(anna) -> old(anna)
"""


def test_a_table_for_people_and_json_for_machines() -> None:
    kb = parse(FAMILY)
    world = Interpretation(kb, old={"bob", "carl"}, king=set())
    report = satisfaction(kb, world)
    assert str(report).splitlines() == [
        "axiom    holds        antecedent true  violated by",
        "older    1 of 2  50%           2 of 2  x = anna, y = bob",
        "crown    9 of 9 100%           0 of 9  vacuous: the antecedent is never true",
        "nobody   0 of 0 100%                   vacuous: no instances",
        "anna     0 of 1   0%                   -",
        "someone  0 of 1   0%                   -",
        "rule     1 of 1 100%           0 of 1  vacuous: the antecedent is never true",
        "facts    3 of 3 100%",
    ]
    assert report["crown"].vacuous and report["nobody"].vacuous and not report["older"].vacuous
    assert not report.satisfied
    loaded = json.loads(report.to_json())
    assert [a["name"] for a in loaded] == ["older", "crown", "nobody", "anna", "someone", "rule", "facts"]
    assert loaded[0] == {
        "name": "older",
        "instances": 2,
        "holds": 1,
        "active": 2,
        "violations": [{"x": "anna", "y": "bob"}],
        "vacuous": False,
    }
    with pytest.raises(KeyError):
        report["nothing"]


def test_facts_that_do_not_hold_are_named() -> None:
    kb = parse(FAMILY.replace("closed pred", "pred"))
    table = torch.zeros(3, 3)
    world = Interpretation(kb, parent=table, old=set(), king=set())
    report = satisfaction(kb, world, examples=1)
    assert report["facts"] == AxiomReport("facts", 3, 1, None, ({"fact": "parent(anna, bob)"},))
    assert str(report).splitlines()[-1].endswith("fact = parent(anna, bob); 1 more")


def test_rows_and_structures_are_named_by_place() -> None:
    kb = parse("""
        sort Object
        data scenes(objects: Object*, grid: Int*)
        pred left(Object, Object)
        [strict] forall s in scenes. forall x, y in s.objects. left(x, y) -> !left(y, x)
        [small] forall s in scenes. forall g in s.grid. g < 4
    """)
    world = Interpretation(kb, left=lambda x, y: (x - y).abs() < 1)
    batch = {"objects": Ragged(torch.tensor([0.0, 5.0, 2.0, 9.0, 9.5]), [2, 3]), "grid": torch.tensor([[1, 2], [3, 4]])}
    report = satisfaction(kb, world, examples=9, scenes=batch)
    assert {"s": "scenes#1", "x": "scenes.objects#1[1]", "y": "scenes.objects#1[2]"} in report["strict"].violations
    assert report["strict"].instances == 13
    assert report["small"].violations == ({"s": "scenes#1", "g": "scenes.grid#1[1]"},)


def test_sampled_instances_are_named_by_their_object() -> None:
    kb = parse(
        "sort P\ndata rows(k: Int)\npred q(P)\n[a] forall x: P sample 2. q(x)\n[b] forall p in rows sample 1. p.k < 0"
    )
    generator = torch.Generator().manual_seed(0)
    report = satisfaction(
        kb,
        Interpretation(kb, q=function(lambda i: i < 0, per_object=True)),
        P=50,
        rows={"k": torch.arange(50)},
        generator=generator,
    )
    replay = torch.Generator().manual_seed(0)
    drawn, row = torch.randperm(50, generator=replay)[:2], torch.randperm(50, generator=replay)[:1]
    assert [v["x"] for v in report["a"].violations] == [f"P#{i}" for i in drawn.tolist()]
    assert report["b"].violations == ({"p": f"rows#{row.item()}"},)


def test_a_rate_that_is_not_quite_one_does_not_look_like_it() -> None:
    assert "999 of 1000  99%" in str(SatisfactionReport((AxiomReport("a", 1000, 999),)))
    assert "1 of 1000   1%" in str(SatisfactionReport((AxiomReport("a", 1000, 1),)))
    assert AxiomReport("a", 0, 0).rate == 1.0


def test_many_axioms_without_variables() -> None:
    p = DECLARATIONS[8]
    kb = KnowledgeBase(*DECLARATIONS, *[Axiom(f"a{i}", p(1 + i % 3) >> p(1 + (i + 1) % 3)) for i in range(300)])
    report = satisfaction(kb, Interpretation(kb, q=torch.tensor([True, False, False])), P=1)
    assert [a.holds for a in report.axioms[:4]] == [0, 1, 1, 0]
    assert [a.active for a in report.axioms[:4]] == [1, 0, 0, 1]


def test_an_error_names_the_axiom() -> None:
    kb = parse("sort D = 0..3\npred p(D)\n[up] forall d: D. p(d + 1)")
    with pytest.raises(KnowledgeError, match=r"axiom 'up': p\(d \+ 1\): 4 is no value of D"):
        satisfaction(kb, Interpretation(kb, p=torch.ones(4, dtype=torch.bool)))
