"""Rankings, paths in a grid and requirements of road events: what is read, and what is known of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from doxa.data import path_knowledge, permutation_knowledge, read_grid_paths, read_preferences, read_road
from doxa.data._structures import SUSHI, grid_edges, simple_cycles
from doxa.errors import ConfigError, DataError
from doxa.exact import Constraint
from doxa.logic import all_models, propositions
from doxa.problem import Belief

SHARED = Path(os.environ.get("DOXA_DATA", Path(__file__).parents[3] / "shared" / "data"))
HEAD = "\n".join(["10", *[f"{i},{kind}" for i, kind in enumerate(SUSHI, 1)], "4,4,4"])


def sushi(folder: Path, *rankings: str) -> Path:
    (folder / "sushi.soc").write_text("\n".join([HEAD, *rankings]))
    return folder


# -- rankings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [(1, 2, 3, 5, 7, 8), (1, 2, 3, 4), (10,)])
def test_places_are_those_among_the_chosen_kinds(tmp_path: Path, given: tuple[int, ...]) -> None:
    random = torch.Generator().manual_seed(0)
    orders = [(torch.randperm(10, generator=random) + 1).tolist() for _ in range(25)]
    parts = read_preferences(sushi(tmp_path, *(",".join(map(str, [1, *order])) for order in orders)), given=given)
    table = parts.refit + parts.test
    sought = [k for k in range(1, 11) if k not in given]
    seen = set()
    for x, y in zip(table.features, table.labels, strict=True):
        known, wanted = ([""] * len(kinds) for kinds in (given, sought))
        for chosen, names, place in ((x, table.feature_names, known), (y, table.label_names, wanted)):
            for name in (n for n, on in zip(names, chosen.tolist(), strict=True) if on):
                kind, _, at = name.rpartition("_")
                place[int(at) - 1] = kind
        seen.add((tuple(known), tuple(wanted)))
    expected = {
        tuple(tuple(SUSHI[k - 1] for k in order if k in kinds) for kinds in (given, sought)) for order in orders
    }
    assert seen == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,1,2,3,4,5,6,7,8,9,9", "expected a count and the numbers 1 .. 10, each once"),
        ("1,1,2,3", "expected a count and the numbers"),
        ("1,1,2,3,4,5,6,7,8,9,x", "expected whole numbers"),
    ],
)
def test_a_bad_ranking_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=f"line 13: .*{message}"):
        read_preferences(sushi(tmp_path, line))


def test_bad_files_and_kinds_of_rankings(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sushi.soc does not exist"):
        read_preferences(tmp_path)
    with pytest.raises(DataError, match="has no rankings"):
        read_preferences(sushi(tmp_path))
    (tmp_path / "sushi.soc").write_text("1,7,4,5\n")
    with pytest.raises(DataError, match=r"line 1: .* expected PrefLib's head"):
        read_preferences(tmp_path)
    for given in ((), (1, 1), (0, 1), tuple(range(1, 11))):
        with pytest.raises(ConfigError, match="given is"):
            read_preferences(sushi(tmp_path, "1,1,2,3,4,5,6,7,8,9,10"), given=given)


@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_what_is_known_of_rankings_has_all_permutations_as_models(side: int) -> None:
    names = [f"t{i}_{j}" for i in range(side) for j in range(side)]
    models = {
        tuple(model[a] for a in propositions(" ".join(names))) for model in all_models(permutation_knowledge(names))
    }
    expected = set()
    for places in itertools.permutations(range(side)):
        expected.add(tuple(places[i] == j for i in range(side) for j in range(side)))
    assert models == expected
    with pytest.raises(ConfigError, match="expected a square number"):
        permutation_knowledge([*names, "more"] if side > 1 else [])


# -- paths --------------------------------------------------------------------------------------------------------


def simple_paths(edges: list[tuple[int, int]], start: int, end: int) -> Iterator[frozenset[int]]:
    """All simple paths between two nodes as sets of edges, by walking."""

    def walk(node: int, seen: frozenset[int], used: frozenset[int]) -> Iterator[frozenset[int]]:
        if node == end:
            yield used
            return
        for e, pair in enumerate(edges):
            if node in pair:
                other = pair[1] if pair[0] == node else pair[0]
                if other not in seen:
                    yield from walk(other, seen | {other}, used | {e})

    yield from walk(start, frozenset([start]), frozenset())


@pytest.mark.parametrize(("side", "cycles"), [(2, 1), (3, 13), (4, 213)])
def test_simple_cycles_are_cycles_and_as_many_as_counted(side: int, cycles: int) -> None:
    """The numbers are those of OEIS A140517, cycles in the n × n grid graph."""
    edges = grid_edges(side)
    found = [frozenset(cycle) for cycle in simple_cycles(edges)]
    assert len(found) == len(set(found)) == cycles
    for cycle in found:
        nodes = [node for e in cycle for node in edges[e]]
        assert all(nodes.count(node) == 2 for node in nodes)


def paths_by_knowledge(side: int, removed: bool, ends: tuple[int, ...], gone: set[int]) -> set[frozenset[int]]:
    """All models of the knowledge, with ends and removed edges given, as sets of edges."""
    edges = grid_edges(side)
    names = {f"end_{node}": node in ends for node in range(side**2)}
    if removed:
        names |= {f"open_{a}_{b}": e not in gone for e, (a, b) in enumerate(edges)}
    atoms = zip(propositions(" ".join(names)), names.values(), strict=True)
    given = [atom if holds else ~atom for atom, holds in atoms]
    chosen = propositions(" ".join(f"path_{a}_{b}" for a, b in edges))
    models = all_models(path_knowledge(side, removed=removed), given=given)
    return {frozenset(e for e, atom in enumerate(chosen) if model[atom]) for model in models}


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("removed", [False, True])
def test_what_is_known_of_paths_has_exactly_the_simple_paths(side: int, removed: bool) -> None:
    edges = grid_edges(side)
    for ends in itertools.combinations(range(side**2), 2):
        for gone in (set[int](), {1, len(edges) - 1}):
            expected = {path for path in simple_paths(edges, *ends) if not (removed and path & gone)}
            assert paths_by_knowledge(side, removed, ends, gone) == expected


@pytest.mark.parametrize(("ends", "gone"), [((0, 15), {3, 9}), ((5, 6), set[int]()), ((0, 1), {0, 12})])
def test_what_is_known_of_paths_in_the_grid_of_the_data(ends: tuple[int, int], gone: set[int]) -> None:
    """4 × 4; in the last case the first node has lost both its edges, so nothing is possible."""
    expected = {path for path in simple_paths(grid_edges(4), *ends) if not path & gone}
    assert paths_by_knowledge(4, True, ends, gone) == expected
    assert bool(expected) == (gone != {0, 12})


@pytest.mark.slow
def test_paths_between_all_pairs_are_counted_right() -> None:
    """4 × 4: the number of models of the circuit for each pair of ends, against walking."""
    edges = grid_edges(4)
    nodes = propositions(" ".join(f"end_{node}" for node in range(16)))
    rule = Constraint(path_knowledge(4, removed=False), given=nodes)
    pairs = [*itertools.combinations(range(16), 2)]
    ends = torch.zeros(len(pairs), 16, dtype=torch.int64)
    for row, pair in zip(ends, pairs, strict=True):
        row[list(pair)] = 1
    belief = Belief.from_bernoulli(probs=torch.full((len(pairs), 24), 0.5, dtype=torch.float64))
    counts = (rule.probability(belief, given=ends) * 2.0**24).round().tolist()
    assert counts == [len([*simple_paths(edges, *pair)]) for pair in pairs]


def test_paths_are_read_with_their_ends_and_edges(tmp_path: Path) -> None:
    lines = ["21-12,13-1,17-16-15", ",0-5,0-15,12-3", "0-1,15-14,11"]
    (tmp_path / "grid.data").write_text("\n".join(lines) + "\n")
    parts = read_grid_paths(tmp_path)
    table = parts.refit + parts.test
    assert {name.split("_")[0] for name in table.feature_names} == {"open", "end"}
    found = set()
    for x, y in zip(table.features.bool().tolist(), table.labels.tolist(), strict=True):
        gone = frozenset(e for e in range(24) if not x[e])
        found.add((gone, frozenset(v for v in range(16) if x[24 + v]), frozenset(e for e in range(24) if y[e])))
    assert found == {
        (frozenset({21, 12}), frozenset({13, 1}), frozenset({17, 16, 15})),
        (frozenset(), frozenset({0, 5}), frozenset({0, 15})),
        (frozenset({0, 1}), frozenset({15, 14}), frozenset({11})),
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("21,13-1", "expected edges that are removed, two ends, and paths"),
        ("21,13-1,17-16", "expected a path between the ends"),
        ("17,13-1,17-16-15", "by edges that are there"),
        ("99,13-1,17-16-15", r"expected edges 0 \.\. 23"),
        ("21,13,17", "expected a path between the ends"),
        ("21,13-a,17", "expected whole numbers"),
    ],
)
def test_a_bad_path_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "grid.data").write_text(f"21-12,13-1,17-16-15\n{line}\n")
    with pytest.raises(DataError, match=f"line 2: .*{message}"):
        read_grid_paths(tmp_path)


def test_missing_and_empty_files_of_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"grid.data does not exist; expected the paths"):
        read_grid_paths(tmp_path)
    (tmp_path / "grid.data").write_text("\n")
    with pytest.raises(DataError, match="has no paths"):
        read_grid_paths(tmp_path)


# -- requirements -------------------------------------------------------------------------------------------------


def road(folder: Path, dimacs: str, readable: str) -> Path:
    (folder / "requirements_dimacs.txt").write_text(dimacs)
    (folder / "requirements_readable.txt").write_text(readable)
    return folder


ABOUT = '"""\nA text about the file.\n"""\n\n'


def test_requirements_have_names_from_the_words(tmp_path: Path) -> None:
    found = read_road(road(tmp_path, "p cnf 3 2\n1 -3 0\n-1 -2 3 0\n", ABOUT + "Ped not Push\nnot Ped not Car Push"))
    assert found.labels == ("Ped", "Car", "Push")
    assert found.texts == ("Ped or not Push", "not Ped or not Car or Push")
    ped, car, push = propositions("Ped Car Push")
    assert {tuple(m[a] for a in (ped, car, push)) for m in all_models(found.formula)} == {
        tuple(m[a] for a in (ped, car, push)) for m in all_models((ped | ~push) & (~ped | ~car | push))
    }


@pytest.mark.parametrize(
    ("dimacs", "readable", "message"),
    [
        ("p cnf 2 1\n1 -2 0\n", "a b", "requirement 1 is .* they do not fit"),
        ("p cnf 2 2\n1 -2 0\n1 2 0\n", "a not b", "has 1 requirements, .* 2"),
        ("p cnf 2 2\n1 -2 0\n1 2 0\n", "a not b\nb a", "calls label 1 'b', others call it 'a'"),
        ("p cnf 2 1\n1 -2 0\n", "a not a", "calls two labels 'a'"),
    ],
)
def test_requirements_that_do_not_fit_their_words(tmp_path: Path, dimacs: str, readable: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_road(road(tmp_path, dimacs, readable))
    with pytest.raises(DataError, match="does not exist; expected the requirements of ROAD-R"):
        read_road(tmp_path / "nowhere")


# -- the published files ------------------------------------------------------------------------------------------


def test_published_rankings_and_paths() -> None:
    folder = SHARED / "semantic_loss"
    if not folder.is_dir():
        pytest.skip("the data sets are not here")
    parts = read_preferences(folder)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [2955, 985, 986]
    grid = read_grid_paths(folder)
    assert [len(part) for part in (grid.train, grid.valid, grid.test)] == [966, 322, 322]
    assert (len(grid.train.feature_names), len(grid.train.label_names)) == (40, 24)


def test_published_requirements() -> None:
    folder = SHARED / "road_r"
    if not folder.is_dir():
        pytest.skip("the requirements are not here")
    found = read_road(folder)
    assert (len(found.texts), len(found.labels), found.labels[:2]) == (243, 41, ("Ped", "Car"))
