"""Joins: all choices of variables for which relations hold, by sorted index lists, the cheapest relation next.

{(x, y, z): R(x, y), S(y, z), x < y} is the list of R, filtered by x < y, and each of its tuples beside those of S that
begin with its y. Work and memory go with the tuples of the lists that are made, not with the product of the domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from doxa.errors import BudgetError
from doxa.logic.bind._tuples import Tuples

PIECE = 10**7
"""Longer lists are made in pieces of at most this many tuples."""
BLOCK = 2**18
"""So many tuples of a list are made at once, in memory that is used again and stays in the cache."""
LIMIT = 10**9
"""The most entries of a list that is made as a whole."""
MOST_FIRST = 8
"""With more relations than this, plans start with the smallest; with fewer, each is tried as the first."""
PASSES = 1 / 3
"""The share of tuples that a test is thought to let through, when a plan is made."""


@dataclass(frozen=True)
class Atom:
    """A relation of variables; a number among them is a value that its column must have, a name may occur twice.

    A ``negated`` one only tests values that other atoms or the domains give.
    """

    tuples: Tuples
    variables: tuple[str | int, ...]
    name: str = "relation"
    negated: bool = False

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys([v for v in self.variables if isinstance(v, str)]))

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{self.name}({', '.join([str(v) for v in self.variables])})"


@dataclass(frozen=True)
class Test:
    """What the values of some variables must pass: ``keep`` gets a column of each, and says which tuples stay.

    One that is not ``total`` may fail on some values: it is asked last, in the order given.
    """

    __test__ = False  # no test of pytest's
    names: tuple[str, ...]
    keep: Callable[..., Tensor]
    label: str = "test"
    total: bool = True


@dataclass
class Step:
    """One step of a plan, and how many tuples there are behind it, over all pieces made so far."""

    text: str
    test: Test | None = None
    tuples: Tuples | None = None
    columns: dict[str, int] = field(default_factory=dict)
    """The variables of the relation, and the column of each."""
    shared: tuple[str, ...] = ()
    """Those that are known before this step."""
    kind: str = "join"
    count: int = 0


@dataclass(frozen=True)
class Piece:
    """Part of a join: a column per variable, how many tuples, and where it was cut out, to make it again."""

    columns: dict[str, Tensor]
    count: int
    path: tuple[tuple[int, int], ...]
    last: bool = True
    """Does no other piece come after it?"""


@dataclass(frozen=True)
class _Table:
    columns: dict[str, Tensor]
    count: int
    last: bool = True


class Join:
    """All choices of variables for which atoms hold and tests pass, each once.

    Args:
        atoms: relations of variables.
        tests: conditions on the values of variables, asked as soon as these are known.
        domains: how many objects (0, 1, ...) a variable has that occurs in no atom, or only in negated ones.
        device: where the lists are.

    ``columns()`` gives them all; ``pieces()`` one part after the other, when there may be very many, and
    ``piece(path)`` makes one of these again. ``str`` shows the plan, with the sizes of the lists that were made last.

    >>> edge = Tuples.of(torch.tensor([[0, 1], [1, 2], [1, 3], [3, 0]]))
    >>> hops = Join([Atom(edge, ("x", "y"), "edge"), Atom(edge, ("y", "z"), "edge")],
    ...             [Test(("x", "z"), lambda x, z: x != z, "x != z")])
    >>> hops.columns()
    {'x': tensor([0, 0, 1, 3]), 'y': tensor([1, 1, 3, 0]), 'z': tensor([2, 3, 0, 1])}
    >>> print(hops)
    edge(x, y) 4, edge(y, z) 4, x != z 4
    """

    def __init__(
        self,
        atoms: Sequence[Atom],
        tests: Sequence[Test] = (),
        domains: Mapping[str, int] | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        mentioned = [*[a.names for a in atoms], *[t.names for t in tests]]
        self.names = list(dict.fromkeys([n for names in mentioned for n in names]))
        """The variables, in the order in which they occur."""
        domains = domains or {}
        self.names += [n for n in domains if n not in self.names]
        given = {n for a in atoms if not a.negated for n in a.names}
        free = [n for n in self.names if n not in given]
        missing = [n for n in free if n not in domains]
        if missing:
            raise ValueError(f"no relation says what {missing[0]!r} may be; give its number of objects in domains")
        own = [(n, Tuples.all(domains[n], self.device)) for n in free]
        sources = [_selected(a) for a in atoms] + [(n, t, {n: 0}, False) for n, t in own]
        self.expected, self.steps = _plan(sources, tests)

    def __str__(self) -> str:
        return ", ".join([f"{step.text} {step.count}" for step in self.steps]) or "one"

    def columns(
        self, keep: Sequence[str] | None = None, *, limit: int = LIMIT, piece: int = PIECE
    ) -> dict[str, Tensor]:
        """A column for each variable, or for those to ``keep``, of which each choice then comes once.

        More than ``limit`` entries are an error; ``piece`` bounds the lists on the way.
        """
        names = self.names if keep is None else list(keep)
        parts: list[Tuples | _Table] = []
        total = 0
        for part in self.pieces(piece, names):
            found: Tuples | _Table = _Table({n: part.columns[n] for n in names}, part.count)
            if len(names) < len(self.names):
                found = Tuples.of_columns([part.columns[n] for n in names], part.count)
                if parts:
                    found, total = found.plus(_tuples(parts.pop())), 0
            parts.append(found)
            total += found.count
            if total * max(1, len(names)) > limit:
                raise BudgetError(
                    "entries",
                    f"the join of {self} has more than {limit:,} entries in {len(names)} columns; add a condition that "
                    "leaves fewer tuples, or raise the limit",
                )
        lists = [p.columns if isinstance(p, _Table) else dict(zip(names, p.columns, strict=True)) for p in parts]
        if len(lists) == 1:
            return lists[0]
        empty = torch.zeros(0, dtype=torch.int64, device=self.device)
        return {n: torch.cat([some[n] for some in lists]) if lists else empty for n in names}

    def count(self, piece: int = PIECE) -> int:
        """How many choices there are.

        >>> Join([], domains={"x": 3, "y": 4}).count()
        12
        """
        return sum([part.count for part in self.pieces(piece, ())])

    def pieces(self, size: int = PIECE, names: Sequence[str] | None = None) -> Iterator[Piece]:
        """The join in pieces of at most ``size`` tuples each, and no longer list on the way.

        With ``names``, only the columns of these; there are as many tuples as with all of them.
        """
        needed = self._needed(names)
        for step in self.steps:
            step.count = 0
        stack: list[Iterator[tuple[_Table, tuple[tuple[int, int], ...]]]] = [iter([(_Table({}, 1), ())])]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif len(stack) <= len(self.steps):
                number = len(stack) - 1
                stack.append(self._grown(self.steps[number], *found, size, needed[number]))
            elif found[0].count:
                yield Piece(found[0].columns, found[0].count, found[1], found[0].last)

    def piece(self, path: Sequence[tuple[int, int]], names: Sequence[str] | None = None) -> Piece:
        """The piece that was cut out there."""
        table = _Table({}, 1)
        cuts = iter(path)
        for step, needed in zip(self.steps, self._needed(names), strict=True):
            if step.kind == "join":
                start, count = _matches(step, table)
                table = _expanded(step, table, start, count, count.cumsum(0), *next(cuts), needed)
            else:
                table = _kept(step, table, needed)
        return Piece(table.columns, table.count, tuple(path))

    def _needed(self, names: Sequence[str] | None) -> list[set[str]]:
        """Behind each step, the variables that a later one looks at, or that are asked for."""
        needed = {*(self.names if names is None else names)}
        found: list[set[str]] = []
        for step in reversed(self.steps):
            found.append(set(needed))
            needed.update(step.shared if step.test is None else step.test.names)
        return found[::-1]

    def _grown(
        self, step: Step, table: _Table, path: tuple[tuple[int, int], ...], size: int, needed: set[str]
    ) -> Iterator[tuple[_Table, tuple[tuple[int, int], ...]]]:
        """A table behind one more step, in pieces."""
        if step.kind != "join":
            found = _kept(step, table, needed)
            step.count += found.count
            yield found, path
            return
        start, count = _matches(step, table)
        ends = count.cumsum(0)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, size):
            last = min(total, first + size)
            found = _expanded(step, table, start, count, ends, first, last, needed)
            found = replace(found, last=table.last and last == total)
            step.count += found.count
            yield found, (*path, (first, last))


def _tuples(found: Tuples | _Table) -> Tuples:
    assert isinstance(found, Tuples)
    return found


# --- one step ---


def _matches(step: Step, table: _Table) -> tuple[Tensor, Tensor]:
    assert step.tuples is not None
    index = step.tuples.index(tuple([step.columns[n] for n in step.shared]))
    return index.find([table.columns[n] for n in step.shared], table.count)


def _expanded(
    step: Step, table: _Table, start: Tensor, count: Tensor, ends: Tensor, first: int, last: int, needed: set[str]
) -> _Table:
    """Each tuple of a table beside its matches; of all of these, those from ``first`` to before ``last``."""
    tuples, new = step.tuples, [n for n in step.columns if n not in step.shared and n in needed]
    assert tuples is not None
    total = last - first
    if table.count == 1 and not step.shared:  # as for the first relation of all: nothing is repeated
        whole = total == tuples.count
        columns = {n: c.expand(total) for n, c in table.columns.items() if n in needed}
        return _Table(columns | {n: c if whole else c[first:last] for n, c in _named(step, new)}, total)
    old = [(n, c) for n, c in table.columns.items() if n in needed]
    index = tuples.index(tuple([step.columns[n] for n in step.shared]))
    found = {n: ends.new_empty(total) for n in [*[n for n, _ in old], *new]}
    shift = start - (ends - count)  # from the place among all matches to the place in the relation
    cuts = torch.arange(first, last, BLOCK, device=ends.device)
    lows = torch.searchsorted(ends, cuts, right=True).tolist()
    highs = torch.searchsorted(ends, (cuts + (BLOCK - 1)).clamp_(max=last - 1), right=True).tolist()
    for a, low, high in zip(range(first, last, BLOCK), lows, highs, strict=True):
        b = min(last, a + BLOCK)
        own = count[low : high + 1].clone()
        own[0] = ends[low] - a
        own[-1] -= ends[high] - b
        left = torch.repeat_interleave(own, output_size=b - a)
        for name, column in old:
            torch.index_select(column[low : high + 1], 0, left, out=found[name][a - first : b - first])
        if new:
            right = torch.arange(a, b, device=left.device).add_(shift[low : high + 1].index_select(0, left))
            right = right if index.order is None else index.order.index_select(0, right)
            for name, column in _named(step, new):
                torch.index_select(column, 0, right, out=found[name][a - first : b - first])
    return _Table(found, total)


def _named(step: Step, names: Sequence[str]) -> list[tuple[str, Tensor]]:
    assert step.tuples is not None
    return [(n, step.tuples.columns[step.columns[n]]) for n in names]


def _kept(step: Step, table: _Table, needed: set[str]) -> _Table:
    """What passes the tests of a step, and what is in its relation if that brings no variable, or not in it."""
    if step.kind in ("in", "not in"):
        _, count = _matches(step, table)
        return _where(table, (count > 0) if step.kind == "in" else (count == 0), needed)
    if step.test is not None and table.count:
        return _where(table, step.test.keep(*[table.columns[n] for n in step.test.names]), needed)
    return table


def _where(table: _Table, keep: Tensor, needed: set[str]) -> _Table:
    at = keep.expand(table.count).nonzero().squeeze(1)
    columns = {n: c for n, c in table.columns.items() if n in needed}
    if len(at) < table.count:
        columns = {n: c.index_select(0, at) for n, c in columns.items()}
    return _Table(columns, len(at), table.last)


# --- plans ---

_Source = tuple[str, Tuples, dict[str, int], bool]
"""What it is called, its tuples, the columns of its variables, and whether it is negated."""


def _selected(atom: Atom) -> _Source:
    """The tuples of an atom that have its constants, and equal values where a variable stands twice."""
    tuples, columns = atom.tuples, dict[str, int]()
    if len(atom.variables) != len(tuples.columns):
        raise ValueError(f"{atom} has {len(atom.variables)} arguments, but its tuples have {len(tuples.columns)}")
    keep: Tensor | None = None
    for number, variable in enumerate(atom.variables):
        if isinstance(variable, str) and variable not in columns:
            columns[variable] = number
            continue
        other = tuples.columns[columns[variable]] if isinstance(variable, str) else variable
        same = tuples.columns[number] == other
        keep = same if keep is None else keep & same
    if keep is not None:
        tuples = tuples.where(keep)
        tuples = Tuples.of_columns([tuples.columns[c] for c in columns.values()], tuples.count)
        columns = {n: i for i, n in enumerate(columns)}
    return str(atom), tuples, columns, atom.negated


def _plan(sources: list[_Source], tests: Sequence[Test]) -> tuple[float, list[Step]]:
    """The cheapest order that is found by taking the relation that leaves the fewest tuples, from every first one.

    Before it, the sum of the sizes of all lists, as far as that can be said.
    """
    sources, tests = _pushed(sources, tests)
    positive = [s for s in sources if not s[3]]
    firsts = range(len(positive))
    if len(positive) > MOST_FIRST:
        firsts = range(smallest := min(firsts, key=lambda i: positive[i][1].count), smallest + 1)
    orders = [_greedy(positive, first, tests) for first in firsts]
    cost, chosen = min(orders, key=lambda o: o[0]) if orders else (1.0, [])
    return cost, _steps([positive[i] for i in chosen], [s for s in sources if s[3]], tests)


def _pushed(sources: list[_Source], tests: Sequence[Test]) -> tuple[list[_Source], list[Test]]:
    """Tests of the variables of one relation are asked of its tuples, before anything is joined."""
    sources, left = list(sources), list[Test]()
    for test in tests:
        inside = [
            i for i, (_, _, columns, negated) in enumerate(sources) if not negated and columns.keys() >= {*test.names}
        ]
        if not test.total or not test.names or not inside:
            left.append(test)
            continue
        text, tuples, columns, _ = sources[inside[0]]
        if tuples.count:
            keep = test.keep(*[tuples.columns[columns[n]] for n in test.names])
            tuples = tuples.where(keep.expand(tuples.count))
        sources[inside[0]] = (f"{text} & {test.label}", tuples, columns, False)
    return sources, left


def _greedy(sources: list[_Source], first: int, tests: Sequence[Test]) -> tuple[float, list[int]]:
    """The sum of all sizes as they are estimated, and the order."""
    if len(sources) == 1:
        return float(sources[0][1].count), [0]
    order: list[int] = []
    size, cost = 1.0, 0.0
    times = Counter([n for _, _, columns, _ in sources for n in columns])
    distinct: dict[str, float] = {}
    waiting = dict.fromkeys(range(len(sources)))
    asked = [t for t in tests if t.total]
    while waiting:
        best = first
        if order:
            linked = [i for i in waiting if not sources[i][2] or any(n in distinct for n in sources[i][2])]
            best = min(linked or waiting, key=lambda i: _estimate(size, distinct, sources[i]))
        size = _estimate(size, distinct, sources[best])
        _, tuples, columns, _ = sources[best]
        for name, column in columns.items():
            here = float(tuples.distinct(column)) if times[name] > 1 else 1.0
            distinct[name] = min(distinct.get(name, here), here)
        size *= PASSES ** len([t for t in asked if distinct.keys() >= {*t.names}])
        asked = [t for t in asked if not distinct.keys() >= {*t.names}]
        cost += size
        order.append(best)
        del waiting[best]
    return cost, order


def _estimate(size: float, distinct: Mapping[str, float], source: _Source) -> float:
    """|R join S| = |R| |S| / prod over shared variables of the larger number of different values."""
    _, tuples, columns, _ = source
    size *= tuples.count
    for name, column in columns.items():
        if name in distinct:
            size /= max(1.0, distinct[name], float(tuples.distinct(column)))
    return size


def _steps(positive: list[_Source], negated: list[_Source], tests: Sequence[Test]) -> list[Step]:
    """The steps of an order; each test, and each negated relation, as soon as its variables are known."""
    steps: list[Step] = []
    known: set[str] = set()
    total, left = [t for t in tests if t.total], list(negated)

    def check() -> None:
        nonlocal total, left
        steps.extend([Step(t.label, t, kind="test") for t in total if known.issuperset(t.names)])
        total = [t for t in total if not known.issuperset(t.names)]
        for text, tuples, columns, _ in [s for s in left if known.issuperset(s[2])]:
            steps.append(Step(text, None, tuples, columns, tuple(columns), "not in"))
        left = [s for s in left if not known.issuperset(s[2])]

    check()
    for text, tuples, columns, _ in positive:
        shared = tuple([n for n in columns if n in known])
        steps.append(Step(text, None, tuples, columns, shared, "in" if len(shared) == len(columns) else "join"))
        known.update(columns)
        check()
    return steps + [Step(t.label, t, kind="test") for t in tests if not t.total]
