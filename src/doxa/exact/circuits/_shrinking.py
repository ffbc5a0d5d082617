"""Fewer edges for the same circuit: what several conjunctions have in common becomes a node of its own.

A search lists in each branch all that follows from a decision, so long lists of literals come again and again. If k
conjunctions share s children, a node for these needs s + k edges instead of s · k. The functions of the nodes that were
there stay as they are, so the circuit stays deterministic and decomposable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
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
    (72, 52)
    """
    work = _Sharing(circuit, meter)
    work.share_alike()
    work.share_pairs()
    work.share_alike()
    return work.finish()


class _Sharing:
    """The children of each inner node while they change; those of wide conjunctions, which alone can share, as sets."""

    def __init__(self, circuit: Circuit, meter: Meter) -> None:
        self.circuit, self.meter = circuit, meter
        self.first = circuit.literals
        self.kinds = circuit.kinds.tolist()
        self.children: list[Collection[int]] = list(circuit.arguments)
        meter.spend(circuit.edges)
        self.inline()
        kinds = self.kinds
        self.wide = {i: set(row) for i, row in enumerate(self.children) if len(row) > 2 and kinds[i] == AND}

    def inline(self) -> None:
        """A node that only one node of its own kind has gives its children to that."""
        uses = Counter(self.circuit.children.tolist())
        for i, row in enumerate(self.circuit.arguments):
            kind = self.kinds[i]
            for child in row:
                inner = child - self.first
                if inner >= 0 and self.kinds[inner] == kind and uses[child] == 1:
                    self.children[i] = [x for x in self.children[i] if x != child] + list(self.children[inner])
                    self.children[inner] = ()

    def share_alike(self) -> None:
        """Children that come in the same conjunctions."""
        places: dict[int, list[int]] = defaultdict(list)
        for i, row in self.wide.items():
            self.meter.tick(len(row))
            for child in row:
                places[child].append(i)
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for child in sorted(places):
            if len(places[child]) > 1:
                alike[tuple(places[child])].append(child)
        for owners, shared in alike.items():
            if len(owners) * len(shared) > len(owners) + len(shared):
                self.replace(owners, shared)

    def share_pairs(self) -> None:
        """The pair that most conjunctions share, with all else that these share; then the next one."""
        owners: dict[int, set[int]] = defaultdict(set)
        counts: Counter[tuple[int, int]] = Counter()
        some = {i: row for i, row in self.wide.items() if 2 < len(row) <= WIDE}
        for i, row in some.items():
            self.meter.spend(len(row) * len(row) // 2)
            for child in row:
                owners[child].add(i)
        often = {child for child, rows in owners.items() if len(rows) > 2}
        for row in some.values():
            counts.update(combinations(sorted(row & often), 2))
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
            shared = set.intersection(*(self.wide[i] for i in rows))
            self.meter.spend(sum(len(self.wide[i]) for i in rows))
            new = self.replace(rows, shared)
            for child in shared:
                owners[child] -= rows
            owners[new] = rows
            for x, beside in Counter([x for i in rows for x in self.wide[i] if x != new]).items():
                if beside > 2:
                    heappush(queue, (-beside, (x, new)))

    def replace(self, rows: Collection[int], shared: Collection[int]) -> int:
        """A new conjunction of what these conjunctions share, instead of it; its number."""
        new = len(self.children)
        for i in rows:
            self.wide[i].difference_update(shared)
            self.wide[i].add(self.first + new)
        self.children.append(())
        self.wide[new] = set(shared)
        self.kinds.append(AND)
        return self.first + new

    def finish(self) -> Circuit:
        """The circuit, with children before their parents again."""
        builder = CircuitBuilder(self.circuit.variables)
        first, old = self.first, self.first + len(self.circuit)
        number: dict[int, int] = {i: i for i in range(first)}
        for node in range(first, old):
            stack = [node]
            while stack:  # new nodes come before the first that has them
                top = stack[-1]
                row = self.wide.get(top - first, self.children[top - first])
                missing = [child for child in row if child >= old and child not in number]
                if missing:
                    stack += sorted(missing)
                else:
                    number[top] = builder.add(self.kinds[top - first], [number[child] for child in row])
                    stack.pop()
            self.meter.tick()
        return builder.finish(number[old - 1])
