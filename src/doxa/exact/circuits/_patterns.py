"""Constraints that clauses spell out: cardinalities, parities, and other functions of how many literals are true.

A found group stands for exactly the clauses that it replaces: it is taken only when every one of them is there.

- Clauses over the same w variables: if all C(w, j) of them with j negative literals are there, j true variables are
  forbidden. All j of one parity make an XOR.
- All subsets with w members of a set of m literals: at least m - w + 1 of these literals are true.
- All variables of a connected part, if swapping any two of them maps its clauses to its clauses: a clause with a
  positive and b negative literals then forbids b to m - a true variables.

A group must pay: it is taken only when it replaces at least as many clauses, not replaced yet, as it has literals, and
has more than two. Smaller ones are as fast as clauses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from doxa.exact.circuits._search import Group
from doxa.problem._budget import Meter

Clause = tuple[int, ...]
CHECKS = 8  # lookups for each literal of the clauses that finding subsets may take


def distinct(clauses: Iterable[Sequence[int]], meter: Meter) -> list[Clause]:
    """The clauses, each once and in order of numbers, without those that always hold."""
    unique = dict[Clause, None]()
    for clause in clauses:
        meter.tick(len(clause))
        literals = set(clause)
        if not any(-literal in literals for literal in literals):
            unique[tuple(sorted(literals))] = None
    return list(unique)


def find_groups(clauses: Sequence[Clause], meter: Meter) -> tuple[list[Clause], list[Group]]:
    """The clauses that are left, and the groups that the others stand for; ``clauses`` are distinct and sorted.

    >>> from doxa.problem import Budget
    >>> find_groups([(1, 2, 3), (-2, -1), (-3, -1), (-3, -2)], Meter(Budget(), ""))    # exactly one
    ([], [Group(literals=(1, 2, 3), allowed=2)])
    """
    left: dict[Clause, None] = dict.fromkeys(clauses)
    groups: list[Group] = []
    for part in _connected(clauses, meter):
        group = _symmetric(part)
        if group is not None:
            groups.append(group)
            for clause in part:
                del left[clause]
    for find in (_subsets, _same_variables):
        for group, used in find(list(left), meter):
            groups.append(group)
            for clause in used:
                left.pop(clause, None)
    merged = dict[Clause, Group]()
    for group in map(_upright, groups):
        seen = merged.get(group.literals)
        merged[group.literals] = group if seen is None else Group(group.literals, seen.allowed & group.allowed)
    for literals, group in merged.items():  # one clause over all literals of a group belongs to it
        size = len(literals)
        for clause, count in ((literals, 0), (tuple(-x for x in literals), size)):
            if left.pop(tuple(sorted(clause)), 0) is None:
                merged[literals] = group = Group(literals, group.allowed & ~(1 << count))
    return list(left), list(merged.values())


def _upright(group: Group) -> Group:
    """The same group with the first of its variables positive, in order of variables."""
    upright = Group(tuple(sorted(group.literals, key=abs)), group.allowed)
    return upright if upright.literals[0] > 0 else upright.mirrored


def _connected(clauses: Sequence[Clause], meter: Meter) -> list[list[Clause]]:
    """The clauses in parts that share no variable."""
    above: dict[int, int] = {}

    def top(v: int) -> int:
        while above[v] != v:
            above[v] = above[above[v]]
            v = above[v]
        return v

    for clause in clauses:
        meter.tick(len(clause))
        if not clause:
            continue
        first = abs(clause[0])
        above.setdefault(first, first)
        root = top(first)
        for literal in clause[1:]:
            v = abs(literal)
            if above.setdefault(v, root) != root:
                above[top(v)] = root
    parts: dict[int, list[Clause]] = defaultdict(list)
    for clause in clauses:
        if clause:
            parts[top(abs(clause[0]))].append(clause)
    return list(parts.values())


def _symmetric(part: Sequence[Clause]) -> Group | None:
    """The group that a part is, if its clauses stay the same whichever of its variables are swapped."""
    kinds: dict[tuple[int, int], int] = defaultdict(int)
    for clause in part:
        negative = sum(x < 0 for x in clause)
        kinds[len(clause) - negative, negative] += 1
    variables = tuple(sorted({abs(x) for clause in part for x in clause}))
    size = len(variables)
    if len(part) < 2 or any(n != comb(size, a) * comb(size - a, b) for (a, b), n in kinds.items()):
        return None
    allowed = (2 << size) - 1
    for a, b in kinds:  # a false and b true variables are forbidden: b to size - a true ones
        allowed &= ~((2 << (size - a)) - (1 << b))
    return Group(variables, allowed)


def _pays(size: int, clauses: int) -> bool:
    """Whether a group with so many literals is better than so many clauses."""
    return size > 2 and clauses >= size


def _same_variables(clauses: Sequence[Clause], meter: Meter) -> list[tuple[Group, list[Clause]]]:
    """Groups from clauses over the same variables."""
    sets: dict[Clause, list[Clause]] = defaultdict(list)
    for clause in clauses:
        meter.tick(len(clause))
        sets[tuple(sorted(map(abs, clause)))].append(clause)
    found = []
    for variables, own in sets.items():
        if len(own) < 2:
            continue
        kinds: dict[int, list[Clause]] = defaultdict(list)
        for clause in own:
            kinds[sum(x < 0 for x in clause)].append(clause)
        size, forbidden = len(variables), 0
        used: list[Clause] = []
        for negative, some in kinds.items():
            if len(some) == comb(size, negative):
                forbidden |= 1 << negative
                used += some
        if _pays(size, len(used)):
            found.append((Group(variables, ((2 << size) - 1) & ~forbidden), used))
    return found


def _subsets(clauses: Sequence[Clause], meter: Meter) -> list[tuple[Group, list[Clause]]]:
    """Groups from all subsets of some literals: grown from one clause, a literal at a time."""
    sizes: dict[int, list[Clause]] = defaultdict(list)
    for clause in clauses:
        if len(clause) > 1:
            sizes[len(clause)].append(clause)
    found = []
    for width, own in sizes.items():
        # A group has more clauses than a clause has literals; and the table below must fit.
        if len(own) <= width or width * width * len(own) > meter.budget.entries // 4:
            continue
        checks = CHECKS * width * len(own)
        others: dict[Clause, set[int]] = defaultdict(set)  # what completes a clause without one literal
        for clause in own:
            meter.tick(width * width)
            for i in range(width):
                others[clause[:i] + clause[i + 1 :]].add(clause[i])
        done: set[Clause] = set()
        for clause in own:
            if clause in done:
                continue
            members = set(clause)
            near = sorted((others[clause[:i] + clause[i + 1 :]] for i in range(width)), key=len)
            checks -= len(near[0])
            if checks < 0:
                break
            candidates = near[0].intersection(*near[1:])
            if not candidates:
                continue
            for x in sorted(candidates - members, key=lambda x: (abs(x), x)):
                needed = comb(len(members), width - 1)
                if -x in members or needed > checks:
                    continue
                checks -= needed
                meter.tick(needed)
                if all(x in others.get(some, ()) for some in combinations(sorted(members), width - 1)):
                    members.add(x)
            size = len(members)
            if size > width:
                used = list(combinations(sorted(members), width))
                if _pays(size, sum(some not in done for some in used)):
                    done.update(used)
                    low = size - width + 1
                    found.append((Group(tuple(members), (2 << size) - (1 << low)), used))
    return found
