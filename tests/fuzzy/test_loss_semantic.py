"""The semantic loss by product logic: exact when it says so, against weighing every world."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzzy.test_plan import chairs
from tests.logic import naive

from doxa import fuzzy as fz
from doxa.logic import (
    And,
    Call,
    Expr,
    Iff,
    Implies,
    Interpretation,
    KnowledgeBase,
    Not,
    Or,
    Predicate,
    Xor,
    logits,
    parse,
    probs,
)


def weighed(formula: Expr, chances: dict[str, float]) -> float:
    """The probability of a propositional formula, world by world."""
    total = 0.0
    for world in product([False, True], repeat=len(chances)):
        facts = dict(zip(chances, world, strict=True))
        symbols = {name: partial(facts.__getitem__, name) for name in facts}
        if naive.evaluate(formula, naive.World({}, symbols)):
            weight = 1.0
            for name, p in chances.items():
                weight *= p if facts[name] else 1 - p
            total += weight
    return total


ATOMS = ("a", "b", "c", "d", "e")


def formulas() -> st.SearchStrategy[Expr]:
    atoms: Any = st.sampled_from(ATOMS).map(lambda n: Call(n))

    def grow(inner: Any) -> Any:
        pair = st.tuples(inner, inner)
        return st.one_of(
            inner.map(Not),
            pair.map(lambda p: And(*p)),
            pair.map(lambda p: Or(*p)),
            pair.map(lambda p: Implies(*p)),
            pair.map(lambda p: Iff(*p)),
            pair.map(lambda p: Xor(*p)),
        )

    return st.recursive(atoms, grow, max_leaves=5)


@settings(max_examples=150, deadline=None)
@given(formulas(), st.lists(st.floats(0.05, 0.95), min_size=5, max_size=5))
def test_what_is_called_exact_is_exact(formula: Expr, values: list[float]) -> None:
    chances = dict(zip(ATOMS, values, strict=True))
    kb = KnowledgeBase(*[Predicate(n) for n in ATOMS], rule=formula)
    world = Interpretation(kb, **{k: probs(torch.tensor(v, dtype=torch.float64)) for k, v in chances.items()})
    found = fz.semantic_loss(kb["rule"], world)
    written = str(formula)
    once = all(written.count(n) <= 1 for n in ATOMS) and "xor" not in written and "<->" not in written
    assert found.exact == once
    if found.exact:
        assert found.loss.item() == pytest.approx(-log(weighed(formula, chances)), abs=1e-9)


def test_golden() -> None:
    """Errata 2.19: a conjunction of (p0 -> p1) and (p2 -> p3 | p4)."""
    kb = parse("pred p0; pred p1; pred p2; pred p3; pred p4; [x] (p0 -> p1) & (p2 -> p3 | p4)")
    p = torch.tensor([0.9, 0.4, 0.05, 0.5, 0.1], dtype=torch.float64)
    world = Interpretation(kb, **{f"p{i}": probs(p[i].clone()) for i in range(5)})
    found = fz.semantic_loss(kb, world)
    assert found.exact
    assert found.loss.exp().reciprocal().item() == pytest.approx(0.449650, abs=1e-6)
    assert found.loss.item() == pytest.approx(0.799286, abs=1e-6)


def test_repeated_atoms_are_noticed() -> None:
    """Errata 2.19, 2.1: P and P, P -> P, and the chairs, which repeat chair(x) for every part."""
    kb = parse("pred p; pred q; [both] p & q | p; [self] p -> q & p")
    world = Interpretation(kb, p=probs(torch.tensor(0.6)), q=probs(torch.tensor(1.0)))
    assert all(not fz.semantic_loss(axiom, world).exact for axiom in kb.axioms)
    chairs_kb, beliefs, _ = chairs()
    found = fz.semantic_loss(chairs_kb, beliefs, Object=2)
    assert found.loss.item() == pytest.approx(0.490336, abs=1e-6)
    assert not found.exact and "2 times" in found.why


@pytest.mark.parametrize("chunk", [1, 2**22])
def test_quantifiers_are_exact_where_instances_share_nothing(chunk: int) -> None:
    kb = parse(
        "sort P; pred p(P); pred r(P, P); pred k(P)\n"
        "[once] forall x: P. p(x) -> exists y: P. r(x, y)\n"
        "[inner] exists x: P. forall y: P. r(x, y)\n"
        "[count] exactly 2 x: P. p(x)\n"
        "[shared] forall x, y: P. p(x) | r(x, y)\n"
        "[known] forall x, y: P. k(x) | r(x, y)"
    )
    g = torch.Generator().manual_seed(0)
    p, r = (torch.rand(s, generator=g, dtype=torch.float64) for s in ((3,), (3, 3)))
    world = Interpretation(kb, p=probs(p), r=probs(r), k=torch.tensor([True, False, True]))
    found = {a.name: fz.semantic_loss(a, world, chunk=chunk, P=3) for a in kb.axioms}
    assert {n for n, f in found.items() if f.exact} == {"once", "inner", "count", "known"}
    total = {"once": 0.0, "inner": 0.0}
    for bits in product([False, True], repeat=12):
        weight = 1.0
        for bit, chance in zip(bits, [*p.tolist(), *r.flatten().tolist()], strict=True):
            weight *= chance if bit else 1 - chance
        rows = [bits[3 + 3 * i : 6 + 3 * i] for i in range(3)]
        total["once"] += weight * all(not bits[i] or any(rows[i]) for i in range(3))
        total["inner"] += weight * any(all(row) for row in rows)
    for name, chance in total.items():
        assert found[name].loss.item() == pytest.approx(-log(chance))
    assert not fz.semantic_loss(kb, world, P=3).exact  # its axioms share atoms


def test_distributions_are_not_independent_atoms() -> None:
    kb = parse("sort P; sort D = 0..2; func f(P) -> D; [a] forall x: P. f(x) = 1; [b] forall x: P. d := f(x) (d > 0)")
    world = Interpretation(kb, f=logits(torch.randn(2, 3)))
    assert all("exclude" in fz.semantic_loss(a, world, P=2).why for a in kb.axioms)
