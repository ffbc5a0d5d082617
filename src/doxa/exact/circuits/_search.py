"""The search of the compiler: assign a variable, propagate, split what is left into parts, look each up.

It knows two kinds of constraints: clauses, and *groups*, of whose literals an allowed number are true. With t of them
true and f open, the bits (allowed >> t) below 2^(f + 1) say how many of the open ones may be true: none left is a
conflict, all of them that the group holds, only the first or the last that all open literals are false or true. What
is left of a group depends on counts alone, so variables that a group cannot tell apart share their nodes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from doxa.exact.circuits._circuit import AND, FALSE, OR, Circuit, CircuitBuilder
from doxa.problem._budget import Meter

UNIT = 22  # a clause with n literals left weighs 2^(UNIT - n)
WIDE = 64  # literals of a constraint that makes its variables neighbours


class Group(NamedTuple):
    """Literals, of which k may be true where bit k of ``allowed`` is set."""

    literals: tuple[int, ...]
    allowed: int

    @property
    def negation(self) -> Group:
        """That another number of them is true."""
        return Group(self.literals, ((2 << len(self.literals)) - 1) & ~self.allowed)

    @property
    def mirrored(self) -> Group:
        """The same constraint on the opposite literals."""
        size = len(self.literals)
        return Group(tuple(-x for x in self.literals), sum((self.allowed >> k & 1) << (size - k) for k in range(size + 1)))


Part = tuple[bytes, list[int], int]
"""The numbers of what is left of a problem's constraints, in a part; its variables, and which of them to decide first."""


@dataclass(slots=True)
class _Frame:
    """A part being compiled: first with the variable true, then with it false."""

    key: bytes
    variables: list[int]
    variable: int
    mark: int  # how long the trail was
    literals: list[int]  # what the current branch has fixed
    pending: list[Part]  # parts still to compile
    parts: list[int]  # compiled parts
    branches: list[int]
    second: bool = False
    count: int = 0  # parts of the branch


class Search:
    """Clauses and groups that must hold, unless they are switched off."""

    def __init__(self, variables: int, clauses: Sequence[tuple[int, ...]], groups: Sequence[Group], meter: Meter) -> None:
        self.variables = variables
        self.meter = meter
        self.clauses, self.groups = clauses, groups
        self.value = [0] * (variables + 1)  # 1, -1, or 0 while unassigned
        self.clauses_of: list[list[int]] = [
            [] for _ in range(2 * variables + 1)
        ]  # by literal, negative ones at the end
        self.groups_of: list[list[int]] = [[] for _ in range(2 * variables + 1)]
        for number, clause in enumerate(clauses):
            meter.tick(len(clause))
            for literal in clause:
                self.clauses_of[literal].append(number)
        for number, group in enumerate(groups):
            meter.tick(len(group.literals))
            for literal in group.literals:
                self.groups_of[literal].append(number)
        self.left = [len(clause) for clause in clauses]  # literals that are not false
        self.weight = [1 << max(UNIT - n, 0) for n in range(max(self.left, default=0) + 1)]
        self.satisfied = [0] * len(clauses)  # literals that are true
        self.true = [0] * len(groups)
        self.open = [len(group.literals) for group in groups]
        self.off = [0] * len(groups)
        self.rank = self.ranked()
        self.trail: list[int] = []
        self.builder = CircuitBuilder(variables)
        # What is left of constraints has a number, equal ones the same; a clause as it came has its place.
        self.contents: list[object] = list(clauses)
        self.names: dict[object, int] = {clause: number for number, clause in enumerate(clauses)}
        self.known: dict[bytes, int] = {}

    def ranked(self) -> list[int]:
        """A rank for each variable: high ones are decided first among those that matter about as much.

        By maximum cardinality search (Tarjan and Yannakakis 1984): next comes the variable with the most neighbours
        before it, then the one with the lowest number. Decisions stay close to each other, so that few constraints are
        cut in two, and what is left is the same more often.
        """
        near: list[set[int]] = [set() for _ in self.value]
        for constraint in (*self.clauses, *(group.literals for group in self.groups)):
            if len(constraint) <= WIDE:
                self.meter.tick(len(constraint))
                together = [abs(x) for x in constraint]
                for v in together:
                    near[v].update(together)
        rank, before = [0] * len(near), [0] * len(near)
        queue = [(0, v) for v in range(1, len(near))]  # already a heap
        after = self.variables
        while queue:
            count, v = heappop(queue)
            if rank[v] or -count != before[v]:
                continue
            self.meter.tick(len(near[v]))
            rank[v] = after
            after -= 1
            for other in near[v]:
                if not rank[other]:
                    before[other] += 1
                    heappush(queue, (-before[other], other))
        return rank

    def switch(self, number: int, group: bool, change: int) -> None:
        """A clause or a group need not hold (+1), or must again (-1)."""
        (self.off if group else self.satisfied)[number] += change

    def finish(self, cases: list[int]) -> Circuit:
        """The circuit of cases that exclude each other."""
        return self.builder.finish(self.builder.add(OR, cases))

    def run(self, literals: list[int]) -> int:
        """The node for what must hold, and these literals."""
        self.meter.spend(len(self.clauses) + len(self.groups))
        queue, lost = list(literals), False
        for c, clause in enumerate(self.clauses):
            if not self.satisfied[c]:
                lost = lost or not clause
                queue += clause if len(clause) == 1 else []
        for g in range(len(self.groups)):
            rest, every = self.residual(g)
            lost = lost or rest == 0
            queue += self.forced(g, rest, every)
        if lost or not self.assign(queue):
            self.undo(0)
            return FALSE
        parts = self.components(range(1, self.variables + 1))
        bottom = _Frame(b"", [], 0, 0, list(self.trail), parts, [], [], True, len(parts))
        stack = [bottom]
        self.meter.progress = lambda: progress(stack)
        while True:
            frame = stack[-1]
            if frame.pending:
                key, variables, variable = frame.pending.pop()
                result = self.known.get(key)
                if result is None:
                    self.meter.check_nodes(len(self.builder.kinds) + len(self.known))
                    stack.append(_Frame(key, variables, variable, len(self.trail), [], [], [], []))
                    self.branch(stack[-1], variable)
                else:
                    deliver(frame, result)
                continue
            # The branch is complete.
            if frame.parts and frame.parts[-1] == FALSE:
                node = FALSE
            else:
                leaves = [2 * abs(literal) - 2 + (literal < 0) for literal in frame.literals]
                node = self.builder.add(AND, leaves + frame.parts)
            self.undo(frame.mark)
            if frame is bottom:
                return node
            frame.branches.append(node)
            if not frame.second:
                frame.second = True
                self.branch(frame, -frame.variable)
                continue
            result = self.join(*frame.branches)
            self.known[frame.key] = result
            stack.pop()
            deliver(stack[-1], result)

    def join(self, first: int, second: int) -> int:
        """Either branch of a decision. What both have comes out: (C ∧ A) ∨ (C ∧ B) = C ∧ (A ∨ B)."""
        if first < 0 or second < 0:
            return self.builder.add(OR, [first, second])
        ours, theirs = self.conjuncts(first), self.conjuncts(second)
        common = ours & theirs
        if not common:
            return self.builder.add(OR, [first, second])
        rests = [self.builder.add(AND, ours - common), self.builder.add(AND, theirs - common)]
        if max(rests) < 2 * self.variables:  # v ∨ ¬v: the decision does not matter
            return self.builder.add(AND, common)
        return self.builder.add(AND, [*common, self.builder.add(OR, rests)])

    def conjuncts(self, node: int) -> set[int]:
        inner = node - 2 * self.variables
        return set(self.builder.arguments[inner]) if inner >= 0 and self.builder.kinds[inner] == AND else {node}

    def branch(self, frame: _Frame, literal: int) -> None:
        """Start a branch; a conflict is a part that is false."""
        if self.assign([literal]):
            frame.literals = self.trail[frame.mark :]
            frame.pending = self.components(frame.variables)
            frame.parts = []
        else:
            frame.pending, frame.parts = [], [FALSE]
        frame.count = len(frame.pending)

    def residual(self, g: int) -> tuple[int, int]:
        """How many of the open literals of a group may be true, as bits; and all bits."""
        every = (2 << self.open[g]) - 1
        return every if self.off[g] else self.groups[g].allowed >> self.true[g] & every, every

    def forced(self, g: int, rest: int, every: int) -> Iterator[int]:
        """Literals that follow from a group."""
        if rest != every and rest in (1, every + 1 >> 1):
            self.meter.spend(len(self.groups[g].literals))
            for literal in self.groups[g].literals:
                if not self.value[abs(literal)]:
                    yield -literal if rest == 1 else literal

    def assign(self, queue: list[int]) -> bool:
        """Make literals true, and what follows from them; False on a conflict."""
        value, left, satisfied, clauses = self.value, self.left, self.satisfied, self.clauses
        at = work = 0
        while at < len(queue):
            literal = queue[at]
            at += 1
            known = value[abs(literal)]
            if known:
                if (known > 0) != (literal > 0):
                    return False
                continue
            value[abs(literal)] = 1 if literal > 0 else -1
            self.trail.append(literal)
            with_it, against, groups = self.clauses_of[literal], self.clauses_of[-literal], self.groups_of[literal]
            others = self.groups_of[-literal]
            work += len(with_it) + len(against) + len(groups) + len(others)
            for c in with_it:
                satisfied[c] += 1
            conflict = False
            for c in against:
                left[c] -= 1
                if not satisfied[c]:
                    if left[c] == 1:
                        for other in clauses[c]:
                            if not value[abs(other)]:
                                queue.append(other)
                                break
                    elif left[c] == 0:
                        conflict = True
            if groups or others:
                for g in groups:
                    self.true[g] += 1
                for g in groups + others:
                    self.open[g] -= 1
                for g in groups + others:
                    rest, every = self.residual(g)
                    conflict = conflict or rest == 0
                    queue += self.forced(g, rest, every)
            if conflict:
                return False
        self.meter.spend(work)
        return True

    def undo(self, mark: int) -> None:
        for literal in reversed(self.trail[mark:]):
            self.value[abs(literal)] = 0
            for c in self.clauses_of[literal]:
                self.satisfied[c] -= 1
            for c in self.clauses_of[-literal]:
                self.left[c] += 1
            for g in self.groups_of[literal]:
                self.true[g] -= 1
                self.open[g] += 1
            for g in self.groups_of[-literal]:
                self.open[g] += 1
        del self.trail[mark:]

    def components(self, variables: Sequence[int]) -> list[Part]:
        """What is left over these variables, in parts that share no variable."""
        value, satisfied, left, clauses, weight = self.value, self.satisfied, self.left, self.clauses, self.weight
        clauses_of, groups_of, names, contents = self.clauses_of, self.groups_of, self.names, self.contents
        rank, span = self.rank, len(self.rank)
        seen: set[int] = set()
        seen_clauses: set[int] = set()
        seen_groups: set[int] = set()
        found: list[Part] = []
        work = len(variables)
        for first in variables:
            if value[first] or first in seen:
                continue
            seen.add(first)
            part = [first]
            own: set[int] = set()
            best, best_score = first, -1
            for v in part:  # grows while it is read
                score = 0
                with_it, against = clauses_of[v], clauses_of[-v]
                work += len(with_it) + len(against)
                for c in (*with_it, *against):
                    if satisfied[c]:
                        continue
                    clause = clauses[c]
                    size = left[c]
                    score += weight[size]
                    if c not in seen_clauses:
                        seen_clauses.add(c)
                        work += len(clause)
                        if size == len(clause):
                            own.add(c)
                        else:
                            clause = tuple([x for x in clause if not value[abs(x)]])
                            name = names.get(clause)
                            if name is None:
                                name = names[clause] = len(contents)
                                contents.append(clause)
                            own.add(name)
                        for other in clause:
                            near = other if other > 0 else -other
                            if near not in seen:
                                seen.add(near)
                                part.append(near)
                for g in (*groups_of[v], *groups_of[-v]):
                    work += 1
                    rest, every = self.residual(g)
                    if rest == every:
                        continue
                    score += 1 << (UNIT - 2)
                    if g not in seen_groups:
                        seen_groups.add(g)
                        literals = self.groups[g].literals
                        work += len(literals)
                        open_ones = tuple([x for x in literals if not value[abs(x)]])
                        own.add(self.name_group(open_ones, rest, every))
                        for other in open_ones:
                            near = other if other > 0 else -other
                            if near not in seen:
                                seen.add(near)
                                part.append(near)
                score = score.bit_length() * span + rank[v]
                if score > best_score:
                    best, best_score = v, score
            if own:  # otherwise the variable is free
                found.append((array("i", sorted(own)).tobytes(), part, best))
        self.meter.spend(work)
        found.sort(key=lambda component: len(component[1]))
        return list(reversed(found))  # the smallest is taken first: if it is false, the others need no work

    def name_group(self, literals: tuple[int, ...], rest: int, every: int) -> int:
        """The number of what is left of a group. What is a clause is named like that clause."""
        content: object
        if rest == every - 1:  # at least one is true
            content = tuple(sorted(literals))
        elif rest == every >> 1:  # not all are true
            content = tuple(sorted([-x for x in literals]))
        elif literals[0] > 0:
            content = (literals, rest)
        else:
            content = Group(literals, rest).mirrored
        name = self.names.get(content)
        if name is None:
            name = self.names[content] = len(self.contents)
            self.contents.append(content)
        return name


def deliver(frame: _Frame, result: int) -> None:
    """A part of a branch is compiled."""
    frame.parts.append(result)
    if result == FALSE:  # the branch is lost whatever the other parts are
        frame.pending = []


def progress(stack: Sequence[_Frame]) -> float:
    """About which part of the search is done: branches count half each, parts of a branch alike."""
    done, width = 0.0, 1.0
    for depth, frame in enumerate(stack):
        if depth:
            width /= 2
            done += width * frame.second
        if frame.count and depth + 1 < len(stack):
            width /= frame.count
            done += width * (frame.count - len(frame.pending) - 1)
    return done
