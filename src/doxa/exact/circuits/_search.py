"""The search of the compiler: assign a variable, propagate, split what is left into parts, look each up.

It knows two kinds of constraints: clauses, and *groups*, of whose literals an allowed number are true. With t of them
true and f open, the bits (allowed >> t) below 2^(f + 1) say how many of the open ones may be true: none left is a
conflict, all of them that the group holds, only the first or the last that all open literals are false or true. What
is left of a group depends on counts alone, so variables that a group cannot tell apart share their nodes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

from doxa.exact.circuits._circuit import AND, FALSE, OR, Circuit, CircuitBuilder
from doxa.problem._budget import Meter

UNIT = 22  # a clause with n literals left weighs 2^(UNIT - n)
COPIED = 8  # constraints of a part that is looked for under other names
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
        return Group(
            tuple(-x for x in self.literals), sum((self.allowed >> k & 1) << (size - k) for k in range(size + 1))
        )


class Part(NamedTuple):
    """A part of what is left, which shares no variable with the others."""

    key: bytes
    names: list[int]  # the numbers of its contents
    constraints: list[int]  # one for each: the number of a clause, or ~ that of a group
    times: dict[int, int]  # how many constraints have the same content, where it is not one


class Shape(NamedTuple):
    """What parts have in common that are the same but for the names of variables."""

    key: tuple[int, ...]
    variables: list[int]  # in order of numbers


@dataclass(slots=True)
class _Frame:
    """A part being compiled: first with the variable true, then with it false."""

    part: Part
    shape: Shape | None
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

    def __init__(
        self, variables: int, clauses: Sequence[tuple[int, ...]], groups: Sequence[Group], meter: Meter
    ) -> None:
        self.variables = variables
        self.meter = meter
        self.clauses, self.groups = clauses, groups
        # By literal, negative ones at the end: 1 if it is true, -1 if it is false, 0 while it is open.
        self.value = [0] * (2 * variables + 1)
        self.clauses_of: list[list[int]] = [[] for _ in range(2 * variables + 1)]
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
        # What is left of a constraint has a number, equal ones the same: its variables, and how much it matters.
        self.names: dict[tuple[Any, ...], int] = {}
        self.contents: list[tuple[Any, ...]] = []
        self.scopes: list[tuple[int, ...]] = []
        self.matters: list[int] = []
        self.name_of = [self.name(clause, clause, self.weight[len(clause)]) for clause in clauses]
        self.name_of += [self.name_group(*group, (2 << len(group.literals)) - 1) for group in reversed(groups)]
        self.known: dict[bytes, int] = {}
        self.shapes: dict[tuple[int, ...], tuple[list[int], list[int], int]] = {}

    def ranked(self) -> list[int]:
        """A rank for each variable: high ones are decided first among those that matter about as much.

        By maximum cardinality search (Tarjan and Yannakakis 1984): next comes the variable with the most neighbours
        before it, then the one with the lowest number. Decisions stay close to each other, so that few constraints are
        cut in two, and what is left is the same more often.
        """
        near: list[set[int]] = [set() for _ in range(self.variables + 1)]
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
        clauses = [c for c, satisfied in enumerate(self.satisfied) if not satisfied]
        groups = [g for g, off in enumerate(self.off) if not off]
        names = [*(self.name_of[c] for c in clauses), *(self.name_of[~g] for g in groups)]
        whole = Part(b"", names, [*clauses, *(~g for g in groups)], {})
        parts = self.components(whole)
        bottom = _Frame(whole, None, 0, 0, list(self.trail), parts, [], [], True, len(parts))
        stack = [bottom]
        self.meter.progress = lambda: progress(stack)
        while True:
            frame = stack[-1]
            if frame.pending:
                part = frame.pending.pop()
                result = self.known.get(part.key)
                if result is None:
                    self.meter.check_nodes(len(self.builder.kinds) + len(self.known))
                    score = self.scores(part)
                    shape = self.shape(part, score)
                    result = self.copied(part, shape)
                    if result is not None:
                        self.known[part.key] = result
                        deliver(frame, result)
                        continue
                    variable = self.choose(score)
                    stack.append(_Frame(part, shape, variable, len(self.trail), [], [], [], []))
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
            self.known[frame.part.key] = result
            if frame.shape is not None and frame.shape.key not in self.shapes:
                self.shapes[frame.shape.key] = frame.shape.variables, frame.part.names, result
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
            frame.pending = self.components(frame.part)
            frame.parts = []
        else:
            frame.pending, frame.parts = [], [FALSE]
        frame.count = len(frame.pending)

    def residual(self, g: int) -> tuple[int, int]:
        """How many of the open literals of a group may be true, as bits; and all bits."""
        every = (2 << self.open[g]) - 1
        return every if self.off[g] else self.groups[g].allowed >> self.true[g] & every, every

    def forced(self, g: int, rest: int, every: int) -> list[int]:
        """Literals that follow from a group."""
        if rest == every or rest not in (1, every + 1 >> 1):
            return []
        literals, value = self.groups[g].literals, self.value
        self.meter.spend(len(literals))
        return [-x if rest == 1 else x for x in literals if not value[x]]

    def assign(self, queue: list[int]) -> bool:
        """Make literals true, and what follows from them; False on a conflict."""
        value, left, satisfied, clauses = self.value, self.left, self.satisfied, self.clauses
        work, conflict = 0, False
        for literal in queue:  # grows while it is read
            if value[literal]:
                if value[literal] < 0:
                    conflict = True
                    break
                continue
            value[literal], value[-literal] = 1, -1
            self.trail.append(literal)
            with_it, against, groups = self.clauses_of[literal], self.clauses_of[-literal], self.groups_of[literal]
            others = self.groups_of[-literal]
            work += len(with_it) + len(against) + len(groups) + len(others)
            for c in with_it:
                satisfied[c] += 1
            for c in against:
                left[c] -= 1
                if left[c] < 2 and not satisfied[c]:
                    if left[c]:
                        for other in clauses[c]:
                            if not value[other]:
                                queue.append(other)
                                break
                    else:
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
                break
        self.meter.spend(work)
        return not conflict

    def undo(self, mark: int) -> None:
        value, satisfied, left = self.value, self.satisfied, self.left
        for literal in self.trail[mark:]:
            value[literal] = value[-literal] = 0
            for c in self.clauses_of[literal]:
                satisfied[c] -= 1
            for c in self.clauses_of[-literal]:
                left[c] += 1
            for g in self.groups_of[literal]:
                self.true[g] -= 1
                self.open[g] += 1
            for g in self.groups_of[-literal]:
                self.open[g] += 1
        del self.trail[mark:]

    def components(self, part: Part) -> list[Part]:
        """What is left of a part, in parts that share no variable."""
        value, satisfied, left, names, scopes = self.value, self.satisfied, self.left, self.names, self.scopes
        ours: dict[int, int] = {}  # what is left, and of what; of equal ones the last
        times: dict[int, int] = {}
        for name, c in zip(part.names, part.constraints, strict=True):
            often = part.times.get(name, 1) if part.times else 1
            if c >= 0:
                if satisfied[c]:
                    continue
                if left[c] != len(scopes[name]):
                    clause = tuple([x for x in self.clauses[c] if not value[x]])
                    known = names.get(clause)
                    name = self.name(clause, clause, self.weight[len(clause)]) if known is None else known
            elif self.open[~c] != len(scopes[name]):
                rest, every = self.residual(~c)
                if rest == every:
                    continue
                name = self.name_group(tuple([x for x in self.groups[~c].literals if not value[x]]), rest, every)
            if name in ours:
                times[name] = times.get(name, 1) + often
            elif often > 1:
                times[name] = often
            ours[name] = c
        self.meter.spend(len(part.names) + len(ours))
        # The smallest is taken first, from the end: if it is false, the others need no work.
        found = [sorted(own) for own in self.connected(list(ours))]
        return [
            Part(array("i", own).tobytes(), own, [ours[name] for name in own], times)
            for own in sorted(found, key=lambda own: (-len(own), own[0]))
        ]

    def connected(self, names: list[int]) -> list[list[int]]:
        """The contents in parts that share no variable."""
        scopes = self.scopes
        if not names:
            return []
        # What is left mostly hangs together: a few looks at what touches the first one find that out.
        mine, variables, others = names[:1], set(scopes[names[0]]), names[1:]
        for _ in range(3):
            if not others:
                return [mine]
            apart = []
            for name in others:
                if variables.isdisjoint(scopes[name]):
                    apart.append(name)
                else:
                    variables.update(scopes[name])
                    mine.append(name)
            others = apart
        found = [(mine, list(variables))]
        home = dict.fromkeys(variables, 0)  # in which of them a variable is
        for name in others:
            scope = scopes[name]
            self.meter.tick(len(scope))
            homes = {home[v] for v in scope if v in home}
            into = max(homes, key=lambda i: len(found[i][1]), default=len(found))
            if not homes:
                found.append(([], []))
            own, its = found[into]
            own.append(name)
            fresh = [v for v in scope if v not in home]
            its += fresh
            home.update(dict.fromkeys(fresh, into))
            for other in homes - {into}:
                theirs, moved = found[other]
                own += theirs
                its += moved
                home.update(dict.fromkeys(moved, into))
                self.meter.tick(len(moved))
                found[other] = ([], [])
        return [own for own, _ in found if own]

    def scores(self, part: Part) -> dict[int, int]:
        """How much each variable of a part matters: short clauses count more."""
        score: dict[int, int] = {}
        for name in part.names:
            matters = self.matters[name] * part.times.get(name, 1)
            for v in self.scopes[name]:
                score[v] = score.get(v, 0) + matters
        self.meter.spend(len(score))
        return score

    def choose(self, score: dict[int, int]) -> int:
        """The variable to decide next: of those that matter most, by powers of two, the one of highest rank."""
        rank, span = self.rank, len(self.rank)
        return max(score, key=lambda v: score[v].bit_length() * span + rank[v])

    def shape(self, part: Part, score: dict[int, int]) -> Shape | None:
        """The shape of a part that is large enough to be worth a copy: what its variables matter, in their order."""
        if len(part.names) < COPIED:
            return None
        variables = sorted(score)
        return Shape((len(part.names), *[score[v] for v in variables]), variables)

    def copied(self, part: Part, shape: Shape | None) -> int | None:
        """The node of a part that was compiled over other variables, in the same order: a copy of that node."""
        found = None if shape is None else self.shapes.get(shape.key)
        if shape is None or found is None:
            return None
        variables, names, node = found
        new = dict(zip(variables, shape.variables, strict=True))
        new |= {-old: -v for old, v in new.items()}
        ours = set(part.names)
        for name in names:
            content = self.contents[name]
            self.meter.tick(len(self.scopes[name]))
            if isinstance(content[0], tuple):  # a group
                content = (tuple([new[x] for x in content[0]]), content[1])
            else:
                content = tuple([new[x] for x in content])
            if self.names.get(content) not in ours:
                return None
        leaves = {2 * abs(x) - 2 + (x < 0): 2 * abs(y) - 2 + (y < 0) for x, y in new.items()}
        return self.builder.copy(node, leaves, self.meter)

    def name(self, content: tuple[Any, ...], literals: Sequence[int], matters: int) -> int:
        """The number of what is left of a constraint over these literals."""
        number = self.names.setdefault(content, len(self.scopes))
        if number == len(self.scopes):
            self.contents.append(content)
            self.scopes.append(tuple(map(abs, literals)))
            self.matters.append(matters)
        return number

    def name_group(self, literals: tuple[int, ...], rest: int, every: int) -> int:
        """The number of what is left of a group. What is a clause is named like that clause."""
        content: tuple[Any, ...]
        if rest == every - 1:  # at least one is true
            content = tuple(sorted(literals))
        elif rest == every >> 1:  # not all are true
            content = tuple(sorted([-x for x in literals]))
        else:
            content = (literals, rest) if literals[0] > 0 else Group(literals, rest).mirrored
        return self.name(content, literals, 1 << (UNIT - 2))


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
