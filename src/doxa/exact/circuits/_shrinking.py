"""Fewer edges for the same circuit: what several conjunctions have in common becomes a node of its own.

A search lists in each branch all that follows from a decision, so long lists of literals come again and again. If k
conjunctions share s children, a node for these needs s + k edges instead of s · k. The functions of the nodes that were
there stay as they are, so the circuit stays deterministic and decomposable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations

from doxa.exact.circuits._circuit import AND, Circuit, CircuitBuilder
from doxa.problem._budget import Meter

WIDE = 48  # children of a conjunction whose pairs are looked at


def shrink(circuit: Circuit, meter: Meter) -> Circuit:
    """The same circuit with conjunctions of what others have in common.

    >>> from doxa.problem import Budget
    >>> from doxa.exact.circuits import exactly_one
    >>> exactly_one(8).edges, shrink(exactly_one(8), Meter(Budget(), "")).edges
    (72, 48)
    """
    work = _Sharing(circuit, meter)
    work.inline()
    work.share_alike()
    work.share_pairs()
    work.share_alike()
    return work.finish()


class _Sharing:
    """The children of each inner node while they change, and for each node the conjunctions that have it."""

    def __init__(self, circuit: Circuit, meter: Meter) -> None:
        self.circuit, self.meter = circuit, meter
        self.first = circuit.literals
        self.kinds = circuit.kinds.tolist()
        self.children = [set(row) for row in circuit.arguments]
        meter.spend(circuit.edges)

    def inline(self) -> None:
        """A node that only one node of its own kind has gives its children to that."""
        uses = Counter(child for row in self.circuit.arguments for child in row)
        for i, row in enumerate(self.circuit.arguments):
            for child in row:
                inner = child - self.first
                if inner >= 0 and uses[child] == 1 and self.kinds[inner] == self.kinds[i]:
                    self.children[i].discard(child)
                    self.children[i] |= self.children[inner]
                    self.children[inner] = set()

    def share_alike(self) -> None:
        """Children that come in the same conjunctions."""
        places: dict[int, list[int]] = defaultdict(list)
        for i, row in enumerate(self.children):
            if self.kinds[i] == AND and len(row) > 2:
                self.meter.tick(len(row))
                for child in row:
                    places[child].append(i)
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for child, rows in places.items():
            if len(rows) > 1:
                alike[tuple(rows)].append(child)
        for rows, shared in alike.items():
            if _saves(len(rows), len(shared)):
                self.replace(rows, shared)

    def share_pairs(self) -> None:
        """The pair that most conjunctions share, with all else that these share; then the next one."""
        owners: dict[int, set[int]] = defaultdict(set)
        counts: Counter[tuple[int, int]] = Counter()
        for i, row in enumerate(self.children):
            if self.kinds[i] == AND and 2 < len(row) <= WIDE:
                self.meter.spend(len(row) * len(row) // 2)
                for child in row:
                    owners[child].add(i)
        for i, row in enumerate(self.children):
            if self.kinds[i] == AND and 2 < len(row) <= WIDE:
                counts.update(combinations(sorted([x for x in row if len(owners[x]) > 2]), 2))
        queue = [(-n, pair) for pair, n in counts.items() if n > 2]
        heapify(queue)
        while queue:
            n, (a, b) = heappop(queue)
            rows = owners[a] & owners[b]
            if len(rows) < 3:
                continue
            if len(rows) < -n:  # something else took some of them
                heappush(queue, (-len(rows), (a, b)))
                continue
            some = list(rows)
            shared = self.children[some[0]].intersection(*(self.children[i] for i in some[1:]))
            self.meter.spend(sum(len(self.children[i]) for i in some))
            new = self.replace(some, shared)
            for child in shared:
                owners[child] -= rows
            owners[new] = rows
            beside = Counter(x for i in some for x in self.children[i] if x != new)
            for x, often in beside.items():
                if often > 2:
                    heappush(queue, (-often, (x, new)))

    def replace(self, rows: Sequence[int], shared: Iterable[int]) -> int:
        """A new conjunction of what these conjunctions share, instead of it; its number."""
        new = self.first + len(self.children)
        for i in rows:
            self.children[i].difference_update(shared)
            self.children[i].add(new)
        self.children.append(set(shared))
        self.kinds.append(AND)
        return new

    def finish(self) -> Circuit:
        """The circuit, with children before their parents again."""
        builder = CircuitBuilder(self.circuit.variables)
        number: dict[int, int] = {i: i for i in range(self.first)}
        root = self.first + len(self.circuit) - 1
        stack = [root]
        while stack:
            node = stack[-1]
            if node in number:
                stack.pop()
                continue
            row = self.children[node - self.first]
            missing = [child for child in row if child not in number]
            if missing:
                stack += missing
            else:
                self.meter.tick(len(row))
                number[node] = builder.add(self.kinds[node - self.first], [number[child] for child in row])
        return builder.finish(number[root])


def _saves(rows: int, shared: int) -> bool:
    return rows * shared > rows + shared
