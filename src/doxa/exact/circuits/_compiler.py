"""From clauses to a circuit: a top-down compiler (Huang and Darwiche 2007), or packages that are installed.

Assign a variable, propagate units, split what is left into components, look each up: the trace is the circuit.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from doxa.errors import ConfigError
from doxa.exact.circuits._circuit import AND, FALSE, OR, TRUE, Circuit, CircuitBuilder
from doxa.logic import CNF
from doxa.problem._budget import Budget, Meter


@dataclass(slots=True)
class _Frame:
    """A component being compiled: first with the variable true, then with it false."""

    key: bytes
    variables: list[int]
    variable: int
    mark: int  # how long the trail was
    literals: list[int]  # what the current branch has fixed
    pending: list[tuple[bytes, list[int], int]]  # components still to compile: key, variables, first decision
    parts: list[int]  # compiled components
    branches: list[int]
    second: bool = False


def compile_cnf(cnf: CNF, budget: Budget | None = None) -> Circuit:
    """The clauses as a d-DNNF circuit over the same variables (not smooth).

    Which variable comes next is decided anew for each component: the one in the most clauses that are left, short ones
    counting more. The search keeps its own stack, so deep problems are no problem for Python's.

    Args:
        cnf: the clauses.
        budget: when to give up with a ``BudgetError``.

    >>> compile_cnf(CNF.from_clauses([(1, 2), (-2, 3), (-1, -3)], 3)).count()
    2
    """
    return compile_with("doxa", cnf, budget or Budget())[0]


class Compiler:
    """The search. With ``broken`` clauses: the clauses hold, and at least one of the broken ones does not."""

    def __init__(
        self,
        variables: int,
        clauses: Sequence[Sequence[int]],
        meter: Meter,
        broken: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.variables = variables
        self.meter = meter
        self.clauses = self.distinct(clauses)
        self.holding = len(self.clauses)
        self.negated = broken is not None
        self.clauses += self.distinct(broken or ())
        self.value = [0] * (variables + 1)  # 1, -1, or 0 while unassigned
        self.true_in: list[list[int]] = [[] for _ in range(2 * variables + 1)]  # by literal, negative ones from the end
        for number, clause in enumerate(self.clauses):
            meter.tick(len(clause))
            for literal in clause:
                self.true_in[literal].append(number)
        self.left = [len(clause) for clause in self.clauses]  # literals that are not false
        self.satisfied = [0] * len(self.clauses)  # literals that are true
        self.trail: list[int] = []
        self.builder = CircuitBuilder(variables)
        self.known: dict[bytes, int] = {}
        longest = max(self.left, default=0)
        self.weight = [0.0, 0.0] + [2.0 ** (2 - n) for n in range(2, longest + 1)]

    def run(self) -> Circuit:
        """The circuit."""
        self.meter.spend(sum(map(len, self.clauses)))
        if not self.negated:
            return self.builder.finish(self.search([]))
        # The cases exclude each other: clause i is the first of the broken ones that does not hold.
        later = range(self.holding, len(self.clauses))
        for c in later:  # not yet
            self.satisfied[c] += 1
        cases = []
        for c in later:
            cases.append(self.search([-literal for literal in self.clauses[c]]))
            self.satisfied[c] -= 1
            self.holding += 1
        return self.builder.finish(self.builder.add(OR, cases))

    def search(self, literals: list[int]) -> int:
        """The node for the clauses that must hold, and these literals."""
        active = self.clauses[: self.holding]
        self.meter.spend(len(active))
        units = [clause[0] for clause in active if len(clause) == 1]
        if any(not clause for clause in active) or not self.assign(literals + units):
            self.undo(0)
            return FALSE
        free = self.components(range(1, self.variables + 1))
        bottom = _Frame(b"", [], 0, 0, list(self.trail), free, [], [], True)
        stack = [bottom]
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
                    self.deliver(frame, result)
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
            result = self.builder.add(OR, frame.branches)
            self.known[frame.key] = result
            stack.pop()
            self.deliver(stack[-1], result)

    def deliver(self, frame: _Frame, result: int) -> None:
        frame.parts.append(result)
        if result == FALSE:  # the branch is lost whatever the other components are
            frame.pending = []

    def branch(self, frame: _Frame, literal: int) -> None:
        """Start a branch; a conflict is a part that is false."""
        if self.assign([literal]):
            frame.literals = self.trail[frame.mark :]
            frame.pending = self.components(frame.variables)
            frame.parts = []
        else:
            frame.pending, frame.parts = [], [FALSE]

    def assign(self, literals: list[int]) -> bool:
        """Make literals true, and what follows from them by unit propagation; False on a conflict."""
        value, left, satisfied, clauses = self.value, self.left, self.satisfied, self.clauses
        queue = literals
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
            work += len(self.true_in[literal]) + len(self.true_in[-literal])
            for c in self.true_in[literal]:
                satisfied[c] += 1
            conflict = False
            for c in self.true_in[-literal]:
                left[c] -= 1
                if not satisfied[c]:
                    if left[c] == 1:
                        for other in clauses[c]:
                            if not value[abs(other)]:
                                queue.append(other)
                                break
                    elif left[c] == 0:
                        conflict = True
            if conflict:
                return False
        self.meter.spend(work)
        return True

    def undo(self, mark: int) -> None:
        for literal in reversed(self.trail[mark:]):
            self.value[abs(literal)] = 0
            for c in self.true_in[literal]:
                self.satisfied[c] -= 1
            for c in self.true_in[-literal]:
                self.left[c] += 1
        del self.trail[mark:]

    def components(self, variables: Sequence[int]) -> list[tuple[bytes, list[int], int]]:
        """What is left over these variables, in parts that share no variable: key, variables, and which to decide."""
        value, satisfied, clauses, left = self.value, self.satisfied, self.clauses, self.left
        true_in, weight = self.true_in, self.weight
        seen: set[int] = set()
        seen_clauses: set[int] = set()
        found = []
        work = len(variables)
        for first in variables:
            if value[first] or first in seen:
                continue
            seen.add(first)
            part = [first]
            own: list[int] = []  # its clauses, as negative numbers
            best, best_score = first, -1.0
            for v in part:  # grows while it is read
                score = 0.0
                work += len(true_in[v]) + len(true_in[-v])
                for c in (*true_in[v], *true_in[-v]):
                    if satisfied[c]:
                        continue
                    score += weight[left[c]]
                    if c not in seen_clauses:
                        seen_clauses.add(c)
                        own.append(~c)
                        work += len(clauses[c])
                        for literal in clauses[c]:
                            other = literal if literal > 0 else -literal
                            if not value[other] and other not in seen:
                                seen.add(other)
                                part.append(other)
                if score > best_score:
                    best, best_score = v, score
            if best_score > 0.0:  # otherwise the variable is free
                # A component is named by its variables and clauses.
                found.append((array("i", sorted(part + own)).tobytes(), part, best))
        self.meter.spend(work)
        found.sort(key=lambda component: len(component[1]))
        return list(reversed(found))  # the smallest is taken first: if it is false, the others need no work

    def distinct(self, clauses: Sequence[Sequence[int]]) -> list[list[int]]:
        """The clauses, each once, without those that always hold."""
        unique = dict[tuple[int, ...], None]()
        for clause in clauses:
            self.meter.tick(len(clause))
            unique[tuple(sorted(set(clause)))] = None
        return [list(c) for c in unique if not any(-literal in c for literal in c)]


Backend = Literal["doxa", "pysdd", "dd"]


def compile_with(
    backend: Backend,
    cnf: CNF,
    budget: Budget,
    broken: Sequence[Sequence[int]] | None = None,
    meter: Meter | None = None,
) -> tuple[Circuit, Meter]:
    """A circuit by one of the compilers, and its meter; only doxa's own counts, and knows ``broken`` clauses."""
    meter = meter or Meter(budget, "")
    meter.task = f"compiling {len(cnf) + len(broken or ()):,} clauses over {cnf.variables:,} variables"
    if backend == "doxa":
        return Compiler(cnf.variables, cnf.clauses, meter, broken).run(), meter
    if backend == "pysdd":
        return _pysdd(cnf), meter
    if backend == "dd":
        return _dd(cnf), meter
    raise ConfigError(f"backend is {backend!r}, expected 'doxa', 'pysdd' or 'dd'")


def _import(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(f"backend needs the package {package}: pip install 'doxa[circuits]'") from None


def _pysdd(cnf: CNF) -> Circuit:
    """By sentential decision diagrams, with automatic minimisation."""
    sdd = _import("pysdd.sdd", "PySDD")
    builder = CircuitBuilder(cnf.variables)
    if cnf.variables == 0:
        return builder.finish(TRUE if len(cnf) == 0 else FALSE)
    manager = sdd.SddManager(var_count=cnf.variables, auto_gc_and_minimize=True)
    root = manager.true()
    root.ref()
    for clause in sorted(cnf.clauses, key=lambda c: max(map(abs, c), default=0)):
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        joined = root & part
        joined.ref()
        root.deref()
        root = joined
    done: dict[int, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node.id in done:
            stack.pop()
        elif node.is_true():
            done[node.id] = TRUE
        elif node.is_false():
            done[node.id] = FALSE
        elif node.is_literal():
            done[node.id] = 2 * abs(node.literal) - 2 + (node.literal < 0)
        else:
            elements = node.elements()
            missing = [part for pair in elements for part in pair if part.id not in done]
            if missing:
                stack += missing
            else:
                pairs = [builder.add(AND, [done[prime.id], done[sub.id]]) for prime, sub in elements]
                done[node.id] = builder.add(OR, pairs)
    return builder.finish(done[root.id])


def _dd(cnf: CNF) -> Circuit:
    """By binary decision diagrams: CUDD where `dd` was built with it, else pure Python."""
    try:
        module = importlib.import_module("dd.cudd")
    except ImportError:
        module = _import("dd.autoref", "dd")
    bdd = module.BDD()
    names = [f"x{v}" for v in range(1, cnf.variables + 1)]
    bdd.declare(*names)
    bdd.configure(reordering=True)
    root = bdd.true
    for clause in sorted(cnf.clauses, key=lambda c: max(map(abs, c), default=0)):
        part = bdd.false
        for literal in clause:
            variable = bdd.var(names[abs(literal) - 1])
            part |= variable if literal > 0 else ~variable
        root &= part
    builder = CircuitBuilder(cnf.variables)
    done: dict[int, int] = {int(bdd.true): TRUE, int(bdd.false): FALSE}
    stack = [root]
    while stack:
        node = stack[-1]
        if int(node) in done:
            stack.pop()
            continue
        # A complemented edge negates both branches.
        low, high = (~node.low, ~node.high) if node.negated else (node.low, node.high)
        missing = [part for part in (low, high) if int(part) not in done]
        if missing:
            stack += missing
        else:
            v = int(node.var[1:]) - 1
            branches = [builder.add(AND, [2 * v, done[int(high)]]), builder.add(AND, [2 * v + 1, done[int(low)]])]
            done[int(node)] = builder.add(OR, branches)
    return builder.finish(done[int(root)])
