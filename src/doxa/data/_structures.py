"""Outputs with structure: rankings of sushi, and shortest paths in a grid, with what is known of them as formulas.

Both are benchmarks of the semantic loss (Xu et al. 2018, "A semantic loss function for deep learning with symbolic
knowledge"), and lie beside its code, as ``sushi.soc`` and ``grid.data`` (there ``test.data``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from doxa.data._tables import LabelTable, Splits
from doxa.errors import ConfigError, DataError
from doxa.logic import CNF, Expr, propositions

SUSHI = ("ebi", "anago", "maguro", "ika", "uni", "sake", "tamago", "toro", "tekka", "kappa")
"""The ten kinds of sushi, in the order of their numbers."""
SIDE = 4
"""Nodes on the side of the grid."""


# -- preferences --------------------------------------------------------------------------------------------------


def read_preferences(folder: str | Path, *, given: Sequence[int] = (1, 2, 3, 5, 7, 8), seed: int = 0) -> Splits:
    """Read rankings of ten kinds of sushi: from the order of some, the order of the others is to be predicted.

    The features say of each given kind which place it has among the given ones, the labels the same of the others:
    n² Booleans for n kinds, kind by kind, each a permutation. The given kinds are those of the published code, six of
    ten; ``given=(1, 2, 3, 4)`` makes the harder task of six from four. Each ranking of the file is one row, whatever
    its count, and parts of 60 %, 20 % and 20 % are drawn with the seed; 0 draws the published ones.

    The file is PrefLib's ``sushi.soc``, https://www.preflib.org (Mattei and Walsh 2013), made from the survey of
    Kamishima 2003 ("Nantonac collaborative filtering").

    Args:
        folder: has ``sushi.soc``.
        given: the numbers of the kinds whose order is known, 1 to 10.
        seed: of the parts.

    Raises:
        DataError: with the line, what is wrong and what was expected.

    >>> import tempfile
    >>> lines = ["10", *[f"{i},{kind}" for i, kind in enumerate(SUSHI, 1)], "5,5,5", *["1,7,4,5,1,10,2,8,3,9,6"] * 5]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "sushi.soc").write_text("\\n".join(lines))
    ...     parts = read_preferences(folder)
    >>> parts.train
    LabelTable(3 rows, 36 features, 16 labels)
    >>> parts.train.label_names[:4], parts.train.labels[0, :4].int().tolist()
    (('ika_1', 'ika_2', 'ika_3', 'ika_4'), [1, 0, 0, 0])
    """
    count = len(SUSHI)
    if len({*given}) != len(given) or not 0 < len(given) < count or not {*given} <= {*range(1, count + 1)}:
        raise ConfigError(f"given is {tuple(given)}, expected different numbers of 1 .. {count}, and not all of them")
    file = Path(folder) / "sushi.soc"
    rankings = []
    for number, line in enumerate(_lines(file, "PrefLib's rankings of sushi"), 1):
        fields = line.split(",")
        if number <= count + 2:
            wanted = [str(count)] if number == 1 else [str(number - 1)] if number <= count + 1 else fields[:1]
            if fields[:1] != wanted:
                raise DataError(f"{file}, line {number}: {line!r}, expected PrefLib's head: 10, then 1,name to 10,name")
            continue
        ranking = _numbers(fields[1:], file, number)
        if sorted(ranking) != [*range(1, count + 1)]:
            raise DataError(
                f"{file}, line {number}: {line!r}, expected a count and the numbers 1 .. {count}, each once"
            )
        rankings.append(ranking)
    if not rankings:
        raise DataError(f"{file} has no rankings")
    order = torch.tensor(rankings)
    sought = [kind for kind in range(1, count + 1) if kind not in given]
    features, labels = _places(order, given), _places(order, sought)
    table = LabelTable(features.float(), labels, _place_names(given), _place_names(sought))
    return Splits.random(table, 0.6, 0.2, seed=seed)


def _places(order: Tensor, kinds: Sequence[int]) -> Tensor:
    """Which place each of the kinds has among them: bool ``(n, kinds · places)``."""
    place = torch.stack([(order == kind).int().argmax(1) for kind in kinds], 1)
    among = (place[:, :, None] > place[:, None]).sum(-1)
    return torch.nn.functional.one_hot(among, len(kinds)).bool().flatten(1)


def _place_names(kinds: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{SUSHI[kind - 1]}_{place}" for kind in kinds for place in range(1, len(kinds) + 1))


def permutation_knowledge(names: Sequence[str]) -> Expr:
    """Each thing has one place, and each place one thing: n² propositions, thing by thing, are a permutation.

    >>> knowledge = permutation_knowledge(("a_1", "a_2", "b_1", "b_2"))
    >>> from doxa.logic import count
    >>> count(knowledge)
    2
    """
    side = round(len(names) ** 0.5)
    if side**2 != len(names) or not names:
        raise ConfigError(f"there are {len(names)} names, expected a square number: one for each thing and place")
    rows = [list(range(i * side + 1, (i + 1) * side + 1)) for i in range(side)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return _formula(names, [clause for line in (*rows, *columns) for clause in _exactly_one(line)])


# -- paths in a grid ----------------------------------------------------------------------------------------------


def grid_edges(side: int = SIDE) -> list[tuple[int, int]]:
    """The edges of a grid as pairs of nodes: those within rows from left to right, then those within columns.

    >>> grid_edges(2)
    [(0, 1), (2, 3), (0, 2), (1, 3)]
    """
    across = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    down = [(side * i + j, side * (i + 1) + j) for j in range(side) for i in range(side - 1)]
    return across + down


def read_grid_paths(folder: str | Path, *, seed: int = 0) -> Splits:
    """Read shortest paths in a 4 × 4 grid of which edges are removed, between two ends.

    The features say of the 24 edges whether they are there, and of the 16 nodes whether they are ends; the labels say
    of the edges whether they are on the path. Of several shortest paths, the first is the label, as in the published
    code. Parts of 60 %, 20 % and 20 % are drawn with the seed; 0 draws the published ones.

    Args:
        folder: has ``grid.data``; a line such as ``21-12,13-1,17-16-15`` has removed edges, two ends, and paths.
        seed: of the parts.

    Raises:
        DataError: with the line, what is wrong and what was expected.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "grid.data").write_text("21-12,13-1,17-16-15\\n" * 5)
    ...     parts = read_grid_paths(folder)
    >>> parts.test
    LabelTable(1 rows, 40 features, 24 labels)
    >>> [name for name, on in zip(parts.test.label_names, parts.test.labels[0], strict=True) if on]
    ['path_1_5', 'path_5_9', 'path_9_13']
    """
    file, edges = Path(folder) / "grid.data", grid_edges()
    count = len(edges)
    features, labels = [], []
    for number, line in enumerate(_lines(file, "the paths in a grid of the semantic loss"), 1):
        fields = line.split(",")
        if len(fields) < 3:
            raise DataError(f"{file}, line {number}: {line!r}, expected edges that are removed, two ends, and paths")
        removed, ends, path = (_numbers(part.split("-") if part else [], file, number) for part in fields[:3])
        if not {*removed, *path} <= {*range(count)} or not {*ends} <= {*range(SIDE**2)}:
            raise DataError(
                f"{file}, line {number}: {line!r}, expected edges 0 .. {count - 1}, nodes 0 .. {SIDE**2 - 1}"
            )
        if not _is_path([edges[e] for e in path], ends) or not {*path}.isdisjoint(removed):
            raise DataError(
                f"{file}, line {number}: {line!r}, expected a path between the ends by edges that are there"
            )
        features.append([float(e not in removed) for e in range(count)] + [float(v in ends) for v in range(SIDE**2)])
        labels.append([e in path for e in range(count)])
    if not labels:
        raise DataError(f"{file} has no paths")
    names = [*_named("open", edges), *_ends(SIDE)], _named("path", edges)
    table = LabelTable(torch.tensor(features), torch.tensor(labels), tuple(names[0]), tuple(names[1]))
    return Splits.random(table, 0.6, 0.2, seed=seed)


def _is_path(steps: Sequence[tuple[int, int]], ends: Sequence[int]) -> bool:
    """Whether steps lead from the first end to the second, one after another."""
    if len(ends) != 2 or ends[0] == ends[1]:
        return False
    here = ends[0]
    for a, b in steps:
        if here not in (a, b):
            return False
        here = b if here == a else a
    return here == ends[1]


def path_knowledge(side: int = SIDE, *, removed: bool = True) -> Expr:
    """The chosen edges of a grid are one simple path between the two ends, by edges that are there.

    Propositions are ``path_0_1`` for the edge between the nodes 0 and 1, ``end_0`` for a node, and ``open_0_1`` for an
    edge that is there. At an end there is one chosen edge, elsewhere there are none or two: what is chosen then is a
    path between the ends, and perhaps cycles beside it. Of each simple cycle of the grid one edge is not chosen.

    Args:
        side: nodes on a side.
        removed: whether chosen edges must be there; without it, only the ends are heeded, as in the published
            experiments.

    >>> from doxa.logic import count
    >>> count(path_knowledge(2, removed=False))         # by ends: none 1, two 6 · 2, all 2
    15
    """
    edges = grid_edges(side)
    names = [*_named("path", edges), *_ends(side), *(_named("open", edges) if removed else ())]
    clauses: list[list[int]] = []
    for node in range(side**2):
        end, at = len(edges) + node + 1, [e + 1 for e, pair in enumerate(edges) if node in pair]
        clauses += [[-end, *at]] + [[-end, -a, -b] for a, b in combinations(at, 2)]
        clauses += [[end, -a, *(b for b in at if b != a)] for a in at] + [
            [-a, -b, -c] for a, b, c in combinations(at, 3)
        ]
    clauses += [[-e - 1 for e in cycle] for cycle in simple_cycles(edges)]
    if removed:
        clauses += [[-e - 1, len(edges) + side**2 + e + 1] for e in range(len(edges))]
    return _formula(names, clauses)


def simple_cycles(edges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """The simple cycles of a graph, each once, as the numbers of their edges.

    >>> len(list(simple_cycles(grid_edges(3)))), len(list(simple_cycles(grid_edges(4))))
    (13, 213)
    """
    around: dict[int, list[tuple[int, int]]] = {}
    for e, (a, b) in enumerate(edges):
        around.setdefault(a, []).append((e, b))
        around.setdefault(b, []).append((e, a))
    for start in sorted(around):  # the smallest node of the cycle; of its two edges there, the smaller comes first
        stack: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(start, (), frozenset([start]))]
        while stack:
            node, path, seen = stack.pop()
            for e, other in around[node]:
                if other == start and len(path) > 1 and path[0] < e:
                    yield (*path, e)
                elif other > start and other not in seen:
                    stack.append((other, (*path, e), seen | {other}))


def _named(kind: str, edges: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{kind}_{a}_{b}" for a, b in edges]


def _ends(side: int) -> list[str]:
    return [f"end_{node}" for node in range(side**2)]


# -- both ---------------------------------------------------------------------------------------------------------


def _exactly_one(literals: Sequence[int]) -> list[list[int]]:
    return [[*literals], *([-a, -b] for a, b in combinations(literals, 2))]


def _formula(names: Sequence[str], clauses: list[list[int]]) -> Expr:
    return CNF.from_clauses(clauses, propositions(" ".join(names))).formula()


def _lines(file: Path, what: str) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist; expected {what}") from error


def _numbers(fields: Sequence[str], file: Path, line: int) -> list[int]:
    try:
        return [int(field) for field in fields]
    except ValueError as error:
        raise DataError(f"{file}, line {line}: {','.join(fields)!r}, expected whole numbers") from error
