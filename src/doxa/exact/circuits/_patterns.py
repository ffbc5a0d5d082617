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

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, combinations, pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray

from doxa.exact.circuits._search import Group
from doxa.problem._budget import Meter

Clause = tuple[int, ...]
CHECKS = 8  # lookups for each literal of the clauses that finding subsets may take


def distinct(literals: NDArray[np.integer], offsets: NDArray[np.integer], meter: Meter) -> list[Clause]:
    """The clauses ``literals[offsets[i]:offsets[i + 1]]``, each once and in order of numbers, without those that always
    hold.

    >>> from doxa.problem import Budget
    >>> distinct(np.array([2, 1, 2, 1, 2, 3, -3]), np.array([0, 3, 5, 7]), Meter(Budget(), ""))
    [(1, 2)]
    """
    count, span = len(offsets) - 1, 1 + int(np.abs(literals).max(initial=0))
    clause = np.repeat(np.arange(count), np.diff(offsets))
    keys = np.sort(clause * (2 * span) + literals + span)  # by clause, then by literal
    meter.check_clock()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    clause, literals = keys // (2 * span), keys % (2 * span) - span
    both = np.sort(clause * span + np.abs(literals))
    always = np.zeros(count, bool)
    always[both[1:][np.diff(both) == 0] // span] = True
    meter.check_clock()
    flat, ends = literals.tolist(), np.bincount(clause, minlength=count).cumsum().tolist()
    unique = dict.fromkeys(map(tuple, [flat[a:b] for a, b in pairwise([0, *ends])]))
    if always.any():
        for number in np.flatnonzero(always).tolist():
            unique.pop(tuple(flat[ends[number - 1] if number else 0 : ends[number]]), None)
    meter.check_clock()
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
    if len(part) < 2:
        return None
    kinds = Counter([(len(clause), bisect(clause, 0)) for clause in part])  # how long, and how many are negative
    variables = sorted(set(map(abs, chain.from_iterable(part))))
    size = len(variables)
    if any(n != comb(size, length) * comb(length, negative) for (length, negative), n in kinds.items()):
        return None
    allowed = (2 << size) - 1
    for length, b in kinds:  # length - b false and b true variables are forbidden: so are up to size - (length - b)
        allowed &= ~((2 << (size - length + b)) - (1 << b))
    return Group(tuple(variables), allowed)


def _pays(size: int, clauses: int) -> bool:
    """Whether a group with so many literals is better than so many clauses."""
    return size > 2 and clauses >= size


def _same_variables(clauses: Sequence[Clause], meter: Meter) -> list[tuple[Group, list[Clause]]]:
    """Groups from clauses over the same variables."""
    sets: dict[frozenset[int], list[Clause]] = defaultdict(list)
    for clause in clauses:
        if len(clause) > 2:
            sets[frozenset(map(abs, clause))].append(clause)
    found = []
    for variables, own in sets.items():
        size, forbidden = len(variables), 0
        meter.tick(size)
        if not _pays(size, len(own)):
            continue
        kinds: dict[int, list[Clause]] = defaultdict(list)
        for clause in own:
            kinds[bisect(clause, 0)].append(clause)
        used: list[Clause] = []
        for negative, some in kinds.items():
            if len(some) == comb(size, negative):
                forbidden |= 1 << negative
                used += some
        if _pays(size, len(used)):
            found.append((Group(tuple(sorted(variables)), ((2 << size) - 1) & ~forbidden), used))
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
        meter.tick(width * len(own))
        # In a group, each clause without one literal is completed by two others at least.
        times = Counter(chain.from_iterable([combinations(clause, width - 1) for clause in own]))
        own = [clause for clause in own if 1 not in map(times.__getitem__, combinations(clause, width - 1))]
        if len(own) <= width:
            continue
        others: dict[Clause, set[int]] = defaultdict(set)  # what completes a clause without one literal
        for clause in own:
            meter.tick(width * width)
            for some, x in zip(combinations(clause, width - 1), reversed(clause), strict=True):
                others[some].add(x)
        done: set[Clause] = set()
        for clause in own:
            if clause in done:
                continue
            members = set(clause)
            near = sorted([others[some] for some in combinations(clause, width - 1)], key=len)
            checks -= len(near[0])
            if checks < 0:
                break
            candidates = near[0].intersection(*near[1:])  # what completes all subsets of the members
            for x in sorted(candidates, key=lambda x: (abs(x), x)):
                needed = comb(len(members), width - 2)
                if x not in candidates or needed > checks:
                    continue
                checks -= needed
                meter.tick(needed)
                for some in combinations(members, width - 2):
                    candidates &= others.get(tuple(sorted((*some, x))), set())
                members.add(x)
            size = len(members)
            if size > width:
                used = list(combinations(sorted(members), width))
                if _pays(size, sum(some not in done for some in used)):
                    done.update(used)
                    low = size - width + 1
                    found.append((Group(tuple(members), (2 << size) - (1 << low)), used))
    return found
