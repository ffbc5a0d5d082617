"""Explanations: the most probable worlds in which an axiom holds, against all worlds listed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION

import doxa
from doxa.errors import ConfigError
from doxa.logic import parse
from doxa.problem import Budget


def addition(rows: int = 5) -> tuple[doxa.Model, dict[str, torch.Tensor], torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    p = torch.randn(2, rows, 4, generator=random, dtype=torch.float64).softmax(-1)
    model = doxa.Model(ADDITION, digit=doxa.probs(lambda image: image))
    return model, {"left": p[0], "right": p[1], "sum": torch.randint(1, 6, (rows,), generator=random)}, p


def by_hand(p: torch.Tensor, row: int, total: int) -> list[tuple[float, tuple[int, int]]]:
    worlds = [
        (float(p[0, row, i] * p[1, row, j]), (i, j)) for i, j in itertools.product(range(4), repeat=2) if i + j == total
    ]
    return sorted(((chance / sum(c for c, _ in worlds)), world) for chance, world in worlds)[::-1]


def test_the_best_worlds_are_those_of_all_worlds_listed() -> None:
    model, pairs, p = addition()
    found = model.explain(k=3, pairs=pairs)
    assert [e.row for e in found] == list(range(5))
    for explanation in found:
        wanted = by_hand(p, explanation.row, int(pairs["sum"][explanation.row]))[:3]
        assert [w.probability for w in explanation.worlds] == pytest.approx([chance for chance, _ in wanted])
        assert [tuple(w.values.values()) for w in explanation.worlds] == [world for _, world in wanted]
        assert list(explanation.worlds[0].values) == ["digit(p.left)", "digit(p.right)"]
        assert explanation.how == "exact: the 3 most probable"
    assert str(found[1]).startswith("p = 1: ") and "digit(p.left) = " in str(found[1])


def test_from_samples_where_exact_is_too_hard_or_not_wanted() -> None:
    model, pairs, p = addition(2)
    random = torch.Generator().manual_seed(0)
    for explanation in model.explain("sum", k=2, semantics=doxa.Sampled(), generator=random, pairs=pairs):
        wanted = {w: c for c, w in by_hand(p, explanation.row, int(pairs["sum"][explanation.row]))}
        assert "samples" in explanation.how
        for world in explanation.worlds:
            assert world.probability == pytest.approx(wanted[tuple(world.values.values())], abs=0.05)  # type: ignore[index]
    hard = doxa.Model(
        "sort Node; pred edge(Node, Node); [any] exists x, y, z: Node. edge(x, y) & edge(y, z) & edge(z, x)",
        edge=doxa.probs(torch.full((5, 5), 0.3)),
    )
    (one,) = hard.explain(semantics=doxa.Exact(budget=Budget(operations=10)), Node=5, generator=random)
    assert "estimated" in one.how and len(one.worlds) == 3 and len(one.worlds[0].values) == 25


def test_certain_and_impossible_instances_and_readable_names() -> None:
    kb = """
        sort Day; sort Sky = {clear, grey}
        pred rain(Day); pred late(Day); func sky(Day) -> Sky
        [rule] forall d, e: Day where late(d). rain(d) -> sky(e) = grey
    """
    model = doxa.Model(
        kb,
        rain=doxa.probs(torch.tensor([0.5, 0.9])),
        late=torch.tensor([True, False]),
        sky=doxa.probs(torch.tensor([[0.2, 0.8], [1.0, 0.0]])),
    )
    found = model.explain(Day=2)
    assert [e.instance for e in found] == [{"d": i, "e": j} for i in range(2) for j in range(2)]
    for excluded in found[2:]:  # its guard fails, so nothing is asked of the networks
        assert [(w.values, w.probability) for w in excluded.worlds] == [({}, 1.0)]
        assert excluded.how == "its guard excludes it"
    best = found[0].worlds[0]
    assert best.values == {"rain(d)": best.values["rain(d)"], "sky(d)": "grey"}  # one day, and what networks decide
    assert best.probability == pytest.approx(0.4 / 0.9)
    plain = doxa.Model("sort Day; pred late(Day); [all] forall d: Day. late(d)", late=torch.tensor([True, False]))
    one, other = plain.explain(Day=2)
    assert one.worlds[0].probability == 1 and one.worlds[0].values == {} and other.worlds == []
    assert one.how == "nothing is uncertain" and other.how == "it cannot hold"
    never = doxa.Model(parse("pred a; [no] false", warn=False), a=doxa.probs(torch.tensor(0.3)))
    (one,) = never.explain()
    assert one.worlds == [] and str(one) == "the axiom: 0 worlds (it cannot hold)"
    unlikely = doxa.Model("pred a; [yes] a", a=doxa.probs(torch.tensor(0.0)))
    assert unlikely.explain()[0].worlds == []


def test_mistakes() -> None:
    model = doxa.Model("pred a; [x] a; [y] !a", a=doxa.probs(torch.tensor(0.3)))
    wrong: list[tuple[Any, ...]] = [
        (("z",), {}, "there is no axiom 'z'; the axioms are x, y"),
        ((), {}, "say which axiom to explain"),
        (("x",), {"k": 0}, "k is 0"),
    ]
    for given, options, message in wrong:
        with pytest.raises(ConfigError, match=message):
            model.explain(*given, **options)


def test_objects_are_called_by_their_names() -> None:
    text = """
        sort Person = {anna, bob}
        sort Level = 3..4
        sort Animal
        const rex: Animal
        pred smokes(Person)
        pred fits(Level)
        pred cat(Animal)
        [all] forall x: Person, n: Level, a: Animal. smokes(x) | fits(n) | cat(a)
    """
    half = torch.full((2,), 0.5)
    model = doxa.Model(text, "exact", smokes=doxa.probs(half), fits=doxa.probs(half), cat=doxa.probs(half[:1]))
    found = [tuple(e.instance.values()) for e in model.explain("all")]
    assert found == [(x, n, "rex") for x in ("anna", "bob") for n in ("3", "4")]
    numbered = model.explain("all", Animal=1)  # these come with the data, and have no names
    assert [e.instance["a"] for e in numbered] == [0] * 4
    assert str(numbered[3]).startswith("x = bob, n = 4, a = 0: ")
