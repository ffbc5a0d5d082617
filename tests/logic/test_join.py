"""Joins of index lists, against nested loops over all choices."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.logic.bind import _join
from doxa.logic.bind._join import Atom, Join, Test
from doxa.logic.bind._tuples import Tuples

TESTS = {
    "<": lambda a, b: a < b,
    "!=": lambda a, b: a != b,
    "sum": lambda a, b: (a + b) % 3 == 1,
}


class Case:
    """A random conjunction over few objects, once as a join, and once as a plain test of one choice."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.sizes = {n: draw.choice([1, 2, 3, 4, 5]) for n in "xyzw"}
        names = draw.sample("xyzw", draw.randint(1, 4))
        self.atoms: list[Atom] = []
        self.facts: list[set[tuple[int, ...]]] = []
        for number in range(draw.randint(0, 4)):
            arity = draw.choice([0, 1, 2, 2, 2, 3])
            columns: list[str | int] = [draw.choice(names) for _ in range(arity)]
            columns = [draw.randint(0, 4) if draw.random() < 0.15 else c for c in columns]
            count = draw.choice([0, 1, 3, 8, 30])
            bound = [self.sizes[c] if isinstance(c, str) else 5 for c in columns]
            rows = [tuple([draw.randrange(b) for b in bound]) for _ in range(count)]
            tensor = torch.tensor(rows, dtype=torch.int64).reshape(count, arity)
            negated = draw.random() < 0.2
            self.atoms.append(Atom(Tuples.of(tensor), tuple(columns), f"r{number}", negated))
            self.facts.append(set(rows))
        self.tests = []
        for _ in range(draw.randint(0, 2)):
            word = draw.choice(list(TESTS))
            pair = (draw.choice(names), draw.choice(names))
            self.tests.append(Test(pair, TESTS[word], word, total=draw.random() < 0.7))
        used = [n for a in self.atoms for n in a.names] + [n for t in self.tests for n in t.names]
        self.names = list(dict.fromkeys([*used, *(names if draw.random() < 0.5 else [])]))
        self.domains = {n: self.sizes[n] for n in self.names}

    def join(self) -> Join:
        return Join(self.atoms, self.tests, self.domains)

    def holds(self, choice: dict[str, int]) -> bool:
        for atom, facts in zip(self.atoms, self.facts, strict=True):
            values = tuple([choice[v] if isinstance(v, str) else v for v in atom.variables])
            if (values in facts) == atom.negated:
                return False
        return all(test.keep(*[torch.tensor(choice[n]) for n in test.names]) for test in self.tests)

    def loops(self, names: list[str]) -> set[tuple[int, ...]]:
        found = set()
        for values in product(*[range(self.sizes[n]) for n in self.names]):
            choice = dict(zip(self.names, values, strict=True))
            if self.holds(choice):
                found.add(tuple([choice[n] for n in names]))
        return found


def listed(columns: dict[str, Tensor], names: list[str]) -> list[tuple[int, ...]]:
    return list(zip(*[columns[n].tolist() for n in names], strict=True)) if names else []


@pytest.mark.parametrize("seed", range(300))
def test_a_join_is_what_nested_loops_find(seed: int) -> None:
    case = Case(seed)
    join = case.join()
    wanted = case.loops(case.names)
    assert join.count() == len(wanted)
    assert set(join.names) == set(case.names)
    for piece in (1, 3, 10**7):
        found = listed(join.columns(piece=piece), case.names)
        assert sorted(found) == sorted(wanted if case.names else [])
    if case.names:
        kept = case.names[: len(case.names) // 2 + 1]
        assert sorted(listed(join.columns(kept, piece=2), kept)) == sorted(case.loops(kept))


@pytest.mark.parametrize("block", [1, 3])
def test_lists_are_the_same_in_blocks_of_any_size(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100):
        join = Case(seed).join()
        wanted = join.columns()
        with monkeypatch.context() as patch:
            patch.setattr(_join, "BLOCK", block)
            for piece in (4, 10**7):
                assert {n: c.tolist() for n, c in join.columns(piece=piece).items()} == {
                    n: c.tolist() for n, c in wanted.items()
                }


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("size", [1, 2, 5])
def test_pieces_are_small_and_can_be_made_again(seed: int, size: int) -> None:
    join = Case(seed).join()
    for piece in list(join.pieces(size)):
        assert 0 < piece.count <= size
        again = join.piece(piece.path)
        assert again.count == piece.count
        assert {n: c.tolist() for n, c in again.columns.items()} == {n: c.tolist() for n, c in piece.columns.items()}


@pytest.mark.parametrize("shift", [0, -7, 2**40, 2**61])
@pytest.mark.parametrize("arity", [1, 2, 4])
def test_values_of_any_size(shift: int, arity: int) -> None:
    generator = torch.Generator().manual_seed(arity)
    small = [torch.randint(0, 4, (20, arity), generator=generator) for _ in range(2)]
    far = [torch.where(rows > 1, rows + shift, rows - shift) for rows in small]
    names = tuple("abcd"[:arity])
    joins = [Join([Atom(Tuples.of(r), names) for r in rows]) for rows in (small, far)]
    found = [{tuple(t) for t in zip(*[c.tolist() for c in j.columns().values()], strict=True)} for j in joins]
    assert {tuple([v + shift if v > 1 else v - shift for v in t]) for t in found[0]} == found[1]
    one, two = (Tuples.of(rows) for rows in far)
    sets = [{tuple(t) for t in rows.tolist()} for rows in far]
    assert [tuple(t) for t in one.plus(two).rows.tolist()] == sorted(sets[0] | sets[1])
    assert [tuple(t) for t in one.minus(two).rows.tolist()] == sorted(sets[0] - sets[1])
    assert [one.distinct(c) for c in range(arity)] == [len({t[c] for t in sets[0]}) for c in range(arity)]


def test_the_smallest_relation_comes_first() -> None:
    large = Tuples.of(torch.stack([torch.arange(1000), torch.arange(1000) % 10], 1))
    small = Tuples.of(torch.tensor([[3]]))
    join = Join([Atom(large, ("x", "y"), "large"), Atom(large, ("z", "y"), "other"), Atom(small, ("x",), "small")])
    assert join.count() == 100
    assert str(join) == "small(x) 1, large(x, y) 1, other(z, y) 100"


def test_a_test_is_asked_before_the_next_join() -> None:
    pairs = Tuples.of(torch.cartesian_prod(torch.arange(50), torch.arange(50)))
    few = Test(("x", "y"), lambda x, y: x + y == 3, "x + y = 3")
    join = Join([Atom(pairs, ("x", "y"), "p"), Atom(pairs, ("y", "z"), "p")], [few])
    assert join.count() == 4 * 50
    assert str(join) == "p(x, y) & x + y = 3 4, p(y, z) 200"


def test_a_test_that_may_fail_sees_only_what_is_left() -> None:
    def fails_at_zero(x: Tensor) -> Tensor:
        assert bool((x != 0).all())
        return 6 // x == 3

    numbers = Tuples.all(5)
    join = Join(
        [Atom(numbers, ("x",))], [Test(("x",), fails_at_zero, total=False), Test(("x",), lambda x: x > 0, "x > 0")]
    )
    assert join.columns()["x"].tolist() == [2]


def test_too_many_entries_are_an_error() -> None:
    join = Join([], domains={"x": 1000, "y": 1000})
    with pytest.raises(BudgetError, match="more than 1,000 entries"):
        join.columns(limit=1000, piece=100)
    assert len(join.columns(limit=2_000_000)["x"]) == 10**6


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="no relation says what 'x' may be"):
        Join([], [Test(("x",), lambda x: x > 0)])
    with pytest.raises(ValueError, match="has 1 arguments, but its tuples have 2"):
        Join([Atom(Tuples.of(torch.zeros(1, 2, dtype=torch.int64)), ("x",))])
    with pytest.raises(ValueError, match="int64"):
        Tuples.of(torch.zeros(3))
