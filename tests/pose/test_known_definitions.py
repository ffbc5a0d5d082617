"""Recursive definitions over known relations: against searching the graph, and against unfolding."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import doxa
from doxa.errors import BudgetError, KnowledgeError
from doxa.logic.syntax._simplify import Builder, evaluate
from doxa.logic.syntax._tree import And, Call, Expr, Or
from doxa.logic.unfold._definitions import Least, Spend
from doxa.pose._known_definitions import with_known_definitions
from doxa.pose._values import InstanceValues

TEXT = """
    sort N
    pred e(N, N)
    pred s(N)
    define way(x, y: N) := e(x, y)
    define way(x, y: N) := exists z: N. e(x, z) & way(z, y)
    define even(x, y: N) := exists z: N. e(x, z) & odd(z, y)
    define odd(x, y: N) := e(x, y) | exists z: N. e(x, z) & even(z, y)
    define lost(x: N) := forall y: N. !way(x, y) | s(y)
    define apart(x, y: N) := x != y & !way(x, y)
    define apart(x, y: N) := exists z: N. apart(x, z) & e(z, y) & x != y
    [back] forall x: N where way(x, x). s(x)
    [on] forall x, y: N. way(x, y) & s(x) -> s(y)
    [even] forall x: N. even(x, x) -> s(x)
    [apart] forall x, y: N where apart(x, y). s(x) | s(y)
    [lost] forall x: N. lost(x)
"""


def drawn(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.rand(n, n, generator=generator) < 1.3 / n
    return edges, torch.rand(n, dtype=torch.float64, generator=generator)


def searched(e: Tensor, steps: Callable[[int], bool]) -> list[list[bool]]:
    """Is there a walk from one to the other whose length passes? Among pairs of an object and a parity."""
    n = len(e)
    found = [[False] * n for _ in range(n)]
    for start in range(n):
        todo = [(b, 1) for b in range(n) if e[start, b]]
        seen = set(todo)
        while todo:
            at, parity = todo.pop()
            found[start][at] |= steps(parity)
            for b in range(n):
                if e[at, b] and (b, 1 - parity) not in seen:
                    seen.add((b, 1 - parity))
                    todo.append((b, 1 - parity))
    return found


def right(e: Tensor, s: Tensor) -> dict[str, float]:
    """The mean over instances of -log of the probability, from walks found by search."""
    n, p = len(e), s.tolist()
    way, even = searched(e, lambda parity: True), searched(e, lambda parity: parity == 0)
    apart = [[x != y and not way[x][y] for y in range(n)] for x in range(n)]
    for _ in range(n):
        apart = [
            [apart[x][y] or (x != y and any(apart[x][z] and bool(e[z, y]) for z in range(n))) for y in range(n)]
            for x in range(n)
        ]
    back = [p[x] for x in range(n) if way[x][x]]
    on = [1 - p[x] * (1 - p[y]) if way[x][y] and x != y else 1.0 for x in range(n) for y in range(n)]
    either = [1 - (1 - p[x]) * (1 - p[y]) for x in range(n) for y in range(n) if apart[x][y]]
    found = {"back": back, "on": on, "apart": either}
    found["even"] = [p[x] if even[x][x] else 1.0 for x in range(n)]
    found["lost"] = [math.prod([p[y] for y in range(n) if way[x][y]]) for x in range(n)]
    return {name: -sum(map(math.log, each)) / max(len(each), 1) for name, each in found.items()}


BOUND: dict[str, Callable[[Tensor], Any]] = {
    "table": lambda e: doxa.table(e.nonzero()),
    "tensor": lambda e: e,
    "sparse": lambda e: e.to_sparse(),
    "function": lambda e: lambda a, b: e[a, b],
}


def losses(model: doxa.Model, **data: Any) -> dict[str, float]:
    return {name: float(loss) for name, loss in model.losses(semantics="exact", **data).by_name().items()}


@pytest.mark.parametrize("bound", BOUND)
@pytest.mark.parametrize(("n", "seed"), [(1, 0), (3, 1), (4, 2), (6, 3), (9, 4), (14, 5)])
def test_exact_values_are_those_of_a_search(n: int, seed: int, bound: str) -> None:
    e, s = drawn(n, seed)
    model = doxa.Model(TEXT, e=BOUND[bound](e), s=doxa.probs(s))
    assert losses(model, N=n) == pytest.approx(right(e, s))


@pytest.mark.parametrize("seed", range(4))
def test_relations_that_come_with_the_data_differ_from_call_to_call(seed: int) -> None:
    _, s = drawn(5, seed)
    model = doxa.Model(TEXT, s=doxa.probs(s))
    for other in range(3):
        e, _ = drawn(5, 10 * seed + other)
        assert losses(model, N=5, e=e) == pytest.approx(right(e, s))


@pytest.mark.parametrize("seed", range(3))
def test_tables_and_unfolding_agree(seed: int) -> None:
    e, s = drawn(3, seed)
    known = doxa.Model(TEXT, e=e, s=doxa.probs(s))
    unfolded = doxa.Model(TEXT, e=doxa.probs(e.double()), s=doxa.probs(s))
    for whole in (True, False):
        kinds = {"quantifier": "logic"} if whole else {}
        one, two = [m.truth(semantics=doxa.Exact(**kinds), N=3) for m in (known, unfolded)]
        assert {k: float(v) for k, v in one.items()} == pytest.approx({k: float(v) for k, v in two.items()})


def test_a_large_ring_gets_its_value() -> None:
    n = 40
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n], 1)
    text = TEXT.split("define even")[0] + "[back] forall x: N where way(x, x). s(x)"
    s = torch.linspace(0.1, 0.9, n, dtype=torch.float64)
    model = doxa.Model(text, e=doxa.table(ring), s=doxa.probs(s))
    assert float(model.loss(semantics="exact", N=n)) == pytest.approx(float(-s.log().mean()))


def test_what_is_tabulated() -> None:
    """Recursive predicates that known relations decide, and nothing that a network or a row's own object does."""
    kb = doxa.parse(TEXT)
    formulas = [axiom.formula for axiom in kb.axioms]
    e = torch.zeros(3, 3, dtype=torch.bool)

    def names(**bindings: Any) -> set[str]:
        batch = doxa.Interpretation(kb, **bindings).read({"N": 3})
        return set(with_known_definitions(batch, formulas).symbols)

    assert names(e=e, s=doxa.probs(torch.rand(3))) == {"way", "even", "odd", "apart"}
    assert names(e=doxa.probs(torch.rand(3, 3)), s=e[0]) == set()
    batch = doxa.Interpretation(kb, e=e).read({"N": 3})
    assert set(with_known_definitions(batch, [kb["back"].formula]).symbols) == {"way"}
    assert not with_known_definitions(batch, [doxa.parse("pred s; [a] s")["a"].formula]).symbols


def test_functions_in_clauses_and_terms_without_a_value() -> None:
    text = """
        sort N
        sort D = 0..5
        pred e(N, N)
        pred s(N)
        func f(N) -> D
        define way(x, y: N) := e(x, y) & f(x) = 1
        define way(x, y: N) := exists z: N. e(x, z) & way(z, y)
        [q] forall x: N. way(x, x) -> s(x)
    """
    ring, s = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.25], dtype=torch.float64)
    whole = doxa.Model(text, e=doxa.table(ring), f=doxa.table({0: 1, 1: 2}), s=doxa.probs(s))
    assert float(whole.loss(semantics="exact", N=2)) == pytest.approx(-math.log(0.25) / 2)  # from 1 alone
    with pytest.raises(KnowledgeError, match="no value"):
        doxa.Model(text, e=doxa.table(ring), f=doxa.table({0: 1}), s=doxa.probs(s)).loss(semantics="exact", N=2)


def test_objects_of_rows_that_have_no_index_are_unfolded() -> None:
    """The first argument is seen by a network's features alone, so no table has it."""
    text = """
        sort N
        data rows(own: N, to: N)
        pred e(N, N)
        pred s(N)
        define near(x, y: N) := e(x, y)
        define near(x, y: N) := exists z: N. e(x, z) & near(z, y)
        [q] forall r in rows. near(r.own, r.to) -> s(r.own)
    """
    model = doxa.Model(text, e=lambda a, b: (b - a).sum(-1) == 1, s=doxa.probs(lambda x: 0.1 * x[:, 0] + 0.2))
    places = torch.arange(3.0).unsqueeze(1)
    rows = {"own": torch.tensor([[1.0], [0.0], [3.0]]), "to": torch.tensor([[2.0], [2.0], [0.0]])}
    expected = -(math.log(0.3) + math.log(0.2)) / 3
    assert float(model.loss(semantics="exact", N=places, rows=rows)) == pytest.approx(expected)


def test_gradients_are_those_of_the_search() -> None:
    e, s = drawn(5, 3)
    e[0, 1] = e[1, 0] = True
    model = doxa.Model(TEXT.split("[on]")[0], e=e, s=doxa.probs(s.requires_grad_()))
    (found,) = torch.autograd.grad(model.loss(semantics="exact", N=5), s)
    way = searched(e, lambda parity: True)
    back = torch.tensor([way[x][x] for x in range(5)])
    assert int(back.sum()) > 0
    torch.testing.assert_close(found, torch.where(back, -1 / s.detach() / back.sum(), 0.0))


def ring(n: int, build: Builder) -> dict[Expr, Expr]:
    """Every atom is one of its neighbours, and a proposition of its own."""
    atoms = [build.share(Call(f"p{i}", ())) for i in range(n)]
    own = [[build.share(Call(f"a{i}_{j}", ())) for j in range(n)] for i in range(n)]
    return {
        atoms[i]: build.join(Or, [build.join(And, (own[i][j], atoms[j])) for j in range(n) if j != i] + [own[i][i]])
        for i in range(n)
    }


def test_the_work_of_elimination_is_counted() -> None:
    build, spent = Builder(), []

    def solve(n: int, spend: Spend) -> None:
        bodies = ring(n, build)
        found = Least(bodies, build, spend)
        found[next(iter(bodies))]

    solve(6, spent.append)
    few = sum(spent)
    spent.clear()
    solve(12, spent.append)
    assert min(spent) >= 0 and len(spent) > 12 and sum(spent) > 2 * few

    def stop(entries: int) -> None:
        spent.append(entries)
        if len(spent) > 5:
            raise BudgetError("entries", "enough")

    spent.clear()
    with pytest.raises(BudgetError, match="enough"):
        solve(12, stop)
    assert len(spent) == 6


@pytest.mark.parametrize("seed", range(20))
def test_least_solutions_are_those_that_grow_from_nothing(seed: int) -> None:
    """Whatever is asked for first, in every world."""
    draw, build = random.Random(seed), Builder()
    atoms, own = ([build.share(Call(f"{kind}{i}", ())) for i in range(5)] for kind in "pa")

    def formula(depth: int) -> Expr:
        if depth == 0:
            return draw.choice([*atoms, *own])
        return build.join(draw.choice([And, Or]), [formula(depth - 1) for _ in range(draw.randint(1, 3))])

    bodies = {atom: formula(2) for atom in atoms}
    found = Least(bodies, build)
    solved = {atom: found[atom] for atom in draw.sample(atoms, len(atoms))}
    for world in itertools.product((False, True), repeat=len(own)):
        known = dict(zip(own, world, strict=True))
        values = dict.fromkeys(atoms, False)
        for _ in atoms:
            values = {atom: evaluate(body, {**known, **values}) for atom, body in bodies.items()}
        assert {atom: evaluate(formula, known) for atom, formula in solved.items()} == values


@pytest.mark.parametrize("seed", range(12))
def test_what_is_passed_over_does_not_matter(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random formulas over what is known and what is not: the same probability."""
    draw = random.Random(seed)

    def formula(depth: int) -> str:
        if depth == 0:
            return draw.choice(["e(x, y)", "s(x)", "s(y)", "x = y", "way(y, x)", "e(y, x)", "x != 0"])
        if draw.random() < 0.2:
            return f"!({formula(depth - 1)})"
        if draw.random() < 0.2:
            return f"(exists z{depth}: N. e(x, z{depth}) & s(z{depth}) & ({formula(depth - 1)}))"
        return f"({formula(depth - 1)} {draw.choice(['&', '|', '->', '<->', '&'])} {formula(depth - 1)})"

    kb = f"""
        sort N = 0..2
        pred e(N, N)
        pred s(N)
        define way(x, y: N) := e(x, y) & s(y)
        define way(x, y: N) := exists z: N. e(x, z) & s(z) & way(z, y)
        [all] forall x, y: N. {formula(2)}
    """
    e, s = drawn(3, seed)
    found = []
    for skips in (True, False):
        monkeypatch.setattr(InstanceValues, "skips", skips)
        model = doxa.Model(kb, e=e, s=doxa.probs(s))
        found.append(model.truth(semantics="exact", per_row=True)["all"])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)
