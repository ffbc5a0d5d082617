"""Shortcuts against going through every map of the concepts."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch

from doxa.doctor import _maps, shortcuts
from doxa.errors import BudgetError, ProblemError
from doxa.problem import Problem, addition

Maps = tuple[tuple[int, ...], ...]


def explaining(problem: Problem, groups: list[int], worlds: torch.Tensor) -> list[Maps]:
    """Every map that leaves all outputs as they are; values that never occur stay."""
    sizes = [next(s for s, g in zip(problem.world, groups, strict=True) if g == k) for k in range(max(groups) + 1)]
    occurs = {(g, int(v)) for w in worlds for g, v in zip(groups, w, strict=True)}
    found = []
    for maps in product(*[product(range(n), repeat=n) for n in sizes]):
        if any(u != v and (k, v) not in occurs for k, row in enumerate(maps) for v, u in enumerate(row)):
            continue
        taken = torch.tensor([[maps[g][v] for g, v in zip(groups, w, strict=True)] for w in worlds.tolist()])
        if torch.equal(problem(taken), problem(worlds)):
            found.append(maps)
    return found


def moved(maps: Maps) -> set[tuple[int, int]]:
    return {(k, v) for k, row in enumerate(maps) for v, u in enumerate(row) if u != v}


CASES = [
    ((3, 3), [0, 0], 3, 0),
    ((3, 3), [0, 1], 2, 1),
    ((2, 2, 2), [0, 0, 0], 2, 2),
    ((2, 3, 2), [0, 1, 0], 3, 3),
    ((3, 3, 3), [0, 0, 0], 2, 4),
    ((2, 2), [0, 1], 1, 5),  # one output: everything explains it
]


@pytest.mark.parametrize(("sizes", "groups", "outputs", "seed"), CASES, ids=[str(i) for i in range(len(CASES))])
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("rows", [None, 4])
def test_against_every_map(
    sizes: tuple[int, ...], groups: list[int], outputs: int, seed: int, listed: bool, rows: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    random = torch.Generator().manual_seed(seed)
    table = torch.randint(outputs, sizes, generator=random)
    problem = Problem(sizes, (outputs,), lambda w: table[tuple(w.unbind(-1))].unsqueeze(-1))
    everything = problem.worlds(0, problem.num_worlds)
    worlds = everything if rows is None else everything[torch.randperm(len(everything), generator=random)[:rows]]
    if listed:
        monkeypatch.setattr(_maps, "COMPILED", 0)
    else:
        monkeypatch.setattr(_maps, "LISTED", 1)
    found = shortcuts(problem, groups, data=None if rows is None else worlds, show=1000)
    expected = explaining(problem, groups, worlds)
    assert found.count == len(expected)
    wrong = sorted((m for m in expected if moved(m)), key=lambda m: len(moved(m)))
    shown = {tuple(tuple(sorted(m.items())) for m in s.moves) for s in found.simplest}
    assert shown == {tuple(tuple((v, u) for v, u in enumerate(row) if u != v) for row in m) for m in wrong}
    assert [s.moved for s in found.simplest] == sorted(s.moved for s in found.simplest)
    concepts = sorted({label for m in wrong for label in moved(m)})
    enough = next(
        n for n in range(len(concepts) + 1)
        if any(all(moved(m) & set(chosen) for m in wrong) for chosen in combinations(concepts, n))
    )  # fmt: skip
    assert len(found.labels) == enough
    assert all(moved(m) & set(found.labels) for m in wrong)


def test_mixtures_against_pairs_of_worlds() -> None:
    for seed in range(5):
        table = torch.randint(2, (2, 3, 2), generator=torch.Generator().manual_seed(seed))
        problem = Problem((2, 3, 2), (2,), lambda w, table=table: table[tuple(w.unbind(-1))].unsqueeze(-1))
        worlds = [tuple(w) for w in problem.worlds(0, 12).tolist()]
        bad = set()
        for a, b in product(worlds, worlds):
            for between in product(*[{x, y} for x, y in zip(a, b, strict=True)]):
                if table[a] == table[b] != table[between]:
                    bad.add(int(table[a]))
        found = shortcuts(problem)
        assert found.unmixable == len(bad)
        assert (found.mixture is None) == (not bad)
        if found.mixture is not None:
            a, b, between = found.mixture
            assert table[a] == table[b] != table[between]
            assert all(c in (x, y) for x, y, c in zip(a, b, between, strict=True))


def test_three_images_without_labels_can_all_be_zero() -> None:
    """x + y = z, with no label at all: the output says only that it holds."""
    holds = Problem((10, 10, 10), (2,), lambda w: (w[..., 0] + w[..., 1] == w[..., 2]).long().unsqueeze(-1))
    true = holds.worlds(0, 1000)
    found = shortcuts(holds, data=true[holds(true)[:, 0] == 1], show=3)
    assert not found.free
    zero = dict.fromkeys(range(1, 10), 0)
    assert any(s.moves[0] == zero for s in shortcuts(holds, data=true[holds(true)[:, 0] == 1], show=10_000).simplest)
    assert len(found.labels) == 1 and found.labels[0][1] > 0  # α is linear: whoever knows one of them knows them all
    assert "labels for" in str(found)


def test_few_rows_of_a_large_problem() -> None:
    two = addition(2)
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(10, (300, 4), generator=random)
    assert shortcuts(two, data=rows).free
    with pytest.raises(BudgetError, match=r"could not decide: .* more than the limit of 1,048,576; .* occur as data"):
        shortcuts(addition(4))


def test_mistakes() -> None:
    for arguments, message in [
        ({"concepts": [0]}, "expected a number for each of the 2 world variables"),
        ({"concepts": [0, 2]}, "from 0 and none left out"),
        ({"data": torch.tensor([[0.0, 1.0]])}, "expected worlds, int64"),
        ({"data": torch.tensor([[0, 10]])}, "outside of the domains"),
    ]:
        with pytest.raises(ProblemError, match=message):
            shortcuts(addition(1), **arguments)  # type: ignore[arg-type]
    mixed = Problem((2, 3), (2,), lambda w: w[..., :1])
    with pytest.raises(ProblemError, match=r"have \[2, 3\] values, expected equally many"):
        shortcuts(mixed, [0, 0])
