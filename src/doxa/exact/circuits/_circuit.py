"""Circuits in deterministic decomposable negation normal form (Darwiche and Marquis 2002), as one flat array of nodes.

Children of a conjunction share no variables, those of a disjunction exclude each other: with products and sums for ∧
and ∨ they count models, with any weights. A circuit is *smooth* if those of a disjunction mention the same variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_

import numpy as np
from numpy.typing import NDArray

from doxa._html import Html, box, line
from doxa.errors import ProblemError
from doxa.exact.circuits._drawing import circuit_svg
from doxa.problem._budget import Meter

AND, OR = 0, 1
TRUE, FALSE = -1, -2  # in a CircuitBuilder


@dataclass(frozen=True, eq=False, repr=False)
class Circuit:
    """A rooted graph of conjunctions and disjunctions over the literals of numbered Boolean variables.

    Node 2 (v - 1) is the literal v, node 2 (v - 1) + 1 is -v. Inner node i, whose number is 2 · variables + i, has the
    children ``children[offsets[i]:offsets[i + 1]]``, all with smaller numbers; the last node is the root. A
    conjunction without children is true, a disjunction without children false.

    Make one with ``compile_cnf``, with a builder such as ``exactly_one``, or with ``read_nnf``.

    >>> circuit = exactly_one(3)
    >>> circuit
    Circuit(3 variables, 4 nodes, 12 edges)
    >>> circuit.count()
    3
    """

    variables: int
    kinds: NDArray[np.int8]
    offsets: NDArray[np.int64]
    children: NDArray[np.int64]

    @property
    def literals(self) -> int:
        """How many leaves there are: two for each variable."""
        return 2 * self.variables

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def edges(self) -> int:
        """How many edges there are."""
        return len(self.children)

    @cached_property
    def arguments(self) -> list[list[int]]:
        """The children of each inner node."""
        flat, ends = self.children.tolist(), self.offsets.tolist()
        return [flat[a:b] for a, b in pairwise(ends)]

    @cached_property
    def scopes(self) -> list[int]:
        """For each node, inner or not, the variables that it mentions, as bits: bit v - 1 for variable v."""
        scopes = [1 << (i >> 1) for i in range(self.literals)]
        for children in self.arguments:
            scopes.append(reduce(or_, (scopes[child] for child in children), 0))
        return scopes

    def count(self) -> int:
        """How many assignments to all variables satisfy the circuit, exactly: the counting semiring.

        >>> cardinality(40, 20, 20).count()
        137846528820
        """
        return self.smooth().total()

    def total(self) -> int:
        """The value of the circuit when each literal weighs 1: the number of models, if the circuit is smooth.

        >>> exactly_one(4).total()
        4
        """
        values = [1] * self.literals
        for kind, children in zip(self.kinds.tolist(), self.arguments, strict=True):
            values.append((sum if kind == OR else math.prod)(values[child] for child in children))
        return values[-1]

    def smooth(self, variables: Iterable[int] | None = None, meter: Meter | None = None) -> Circuit:
        """The same circuit in which, for the given variables (all by default), alternatives mention the same ones.

        A variable that an alternative does not mention is free there: it is added as v ∨ ¬v, which weighs w⁺ + w⁻.

        >>> builder = CircuitBuilder(2)
        >>> circuit = builder.build(builder.disjoin([1, builder.conjoin([-1, 2])]))
        >>> len(circuit), len(circuit.smooth())
        (2, 4)
        """
        wanted = sum(1 << (v - 1) for v in (range(1, self.variables + 1) if variables is None else variables))
        builder = CircuitBuilder(self.variables)
        scopes = self.scopes
        new = list(range(self.literals))
        for number, (kind, children) in enumerate(zip(self.kinds.tolist(), self.arguments, strict=True)):
            scope = scopes[self.literals + number] & wanted
            if meter is not None:
                meter.tick(len(children))
            if kind == OR:
                parts = [builder.add(AND, [new[c], builder.free(scope & ~scopes[c])]) for c in children]
            else:
                parts = [new[c] for c in children]
            new.append(builder.add(kind, parts))
        missing = wanted & ~scopes[-1] if len(self) else 0
        return builder.finish(builder.add(AND, [new[-1], builder.free(missing)]))

    def forget(self, literals: Iterable[int], meter: Meter | None = None) -> Circuit:
        """The circuit without these literals: as if each were true, or weighed 1.

        Right where the variables are determined by the others, as auxiliary variables of an encoding are.

        >>> exactly_one(3).forget([-1, -2, -3])
        Circuit(3 variables, 1 nodes, 3 edges)
        """
        gone = {_leaf(literal, self.variables) for literal in literals}
        builder = CircuitBuilder(self.variables)
        new = [TRUE if i in gone else i for i in range(self.literals)]
        for kind, children in zip(self.kinds.tolist(), self.arguments, strict=True):
            if meter is not None:
                meter.tick(len(children))
            new.append(builder.add(kind, [new[c] for c in children]))
        return builder.finish(new[-1])

    def drawing(self, names: Mapping[int, str]) -> Html:
        """A picture where it is small, with the names of variables; otherwise a remark."""
        kinds = ["∨" if kind == OR else "∧" for kind in self.kinds.tolist()]
        shown = circuit_svg(self.literals, kinds, self.arguments, names)
        return shown or line("The circuit is too large to be drawn.", kind="quiet")

    def _repr_html_(self) -> str:
        return box(line(repr(self), kind="quiet"), self.drawing({}))

    def __repr__(self) -> str:
        return f"Circuit({self.variables} variables, {len(self)} nodes, {self.edges} edges)"


class CircuitBuilder:
    """Builds a circuit from below; equal nodes are one node, and constants disappear.

    Whoever builds a circuit sees to it that conjunctions share no variables and disjunctions exclude each other.

    Args:
        variables: how many Boolean variables there are.

    >>> builder = CircuitBuilder(2)
    >>> both, neither = builder.conjoin([1, 2]), builder.conjoin([-1, -2])
    >>> builder.build(builder.disjoin([both, neither])).count()
    2
    """

    def __init__(self, variables: int) -> None:
        self.variables = variables
        self.kinds: list[int] = []
        self.arguments: list[tuple[int, ...]] = []
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._free: dict[int, int] = {}

    def conjoin(self, parts: Sequence[int | Node]) -> Node:
        """The conjunction of literals (1, -1, 2, ...) and nodes."""
        return Node(self.add(AND, [self._number(part) for part in parts]))

    def disjoin(self, parts: Sequence[int | Node]) -> Node:
        """The disjunction of literals and nodes."""
        return Node(self.add(OR, [self._number(part) for part in parts]))

    def build(self, root: Node | int) -> Circuit:
        """The circuit below a node."""
        return self.finish(self._number(root))

    def _number(self, part: int | Node) -> int:
        return part.number if isinstance(part, Node) else _leaf(part, self.variables)

    def add(self, kind: int, parts: Iterable[int]) -> int:
        """The number of a node, given the numbers of its children; TRUE and FALSE are numbers too."""
        neutral, absorbing = (TRUE, FALSE) if kind == AND else (FALSE, TRUE)
        kept = []
        for part in parts:
            if part == absorbing:
                return absorbing
            if part != neutral:
                kept.append(part)
        if len(kept) < 2:
            return kept[0] if kept else neutral
        key = kind, tuple(sorted(kept))
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = 2 * self.variables + len(self.kinds)
            self.kinds.append(kind)
            self.arguments.append(key[1])
        return number

    def copy(self, root: int, leaves: Mapping[int, int], meter: Meter) -> int:
        """The node below which other leaves take the place of these."""
        new = {TRUE: TRUE, FALSE: FALSE, **leaves}
        stack = [root]
        while stack:
            node = stack[-1]
            if node in new:
                stack.pop()
                continue
            inner = node - 2 * self.variables
            children = self.arguments[inner]
            missing = [child for child in children if child not in new]
            if missing:
                stack += missing
            else:
                meter.spend(len(children))
                new[node] = self.add(self.kinds[inner], [new[child] for child in children])
        return new[root]

    def free(self, scope: int) -> int:
        """The conjunction of v ∨ ¬v over the variables of a scope, given as bits."""
        if scope not in self._free:
            bits = [i for i in range(scope.bit_length()) if scope >> i & 1]
            self._free[scope] = self.add(AND, [self.add(OR, [2 * i, 2 * i + 1]) for i in bits])
        return self._free[scope]

    def finish(self, root: int) -> Circuit:
        """The circuit below a node, without what it does not need."""
        literals = 2 * self.variables
        if root < literals:  # a constant or a literal still gets a node of its own, to be the last
            kind, only = (OR, ()) if root == FALSE else (AND, ()) if root == TRUE else (AND, (root,))
            return _flat(self.variables, [kind], [only])
        needed = {root}
        for i in range(root - literals, -1, -1):
            if i + literals in needed:
                needed.update(c for c in self.arguments[i] if c >= literals)
        order = sorted(needed)
        new = {old: literals + i for i, old in enumerate(order)}
        arguments = [tuple(new.get(c, c) for c in self.arguments[old - literals]) for old in order]
        return _flat(self.variables, [self.kinds[old - literals] for old in order], arguments)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a ``CircuitBuilder``."""

    number: int


def _leaf(literal: int, variables: int) -> int:
    if literal == 0 or abs(literal) > variables:
        raise ProblemError(f"literal {literal} is out of range; literals are 1 to {variables} or their negatives")
    return 2 * (abs(literal) - 1) + (literal < 0)


def _flat(variables: int, kinds: Sequence[int], arguments: Sequence[Sequence[int]]) -> Circuit:
    offsets = np.zeros(len(kinds) + 1, np.int64)
    np.cumsum([len(children) for children in arguments], out=offsets[1:])
    children = np.array([c for children in arguments for c in children], np.int64)
    return Circuit(variables, np.array(kinds, np.int8), offsets, children)


def exactly_one(count: int) -> Circuit:
    """Exactly one of the variables 1 to ``count`` is true.

    >>> exactly_one(5).count()
    5
    """
    builder = CircuitBuilder(count)
    cases = [builder.conjoin([i if i == j else -i for i in range(1, count + 1)]) for j in range(1, count + 1)]
    return builder.build(builder.disjoin(cases))


def cardinality(count: int, low: int, high: int) -> Circuit:
    """Between ``low`` and ``high`` of the variables 1 to ``count`` are true; of quadratic size.

    >>> cardinality(10, 9, 10).count()
    11
    """
    if count < 0 or low < 0:
        raise ProblemError(f"count is {count} and low is {low}, expected numbers that are not negative")
    transitions = [[k, min(k + 1, high + 1)] for k in range(high + 2)]
    return machine(transitions, count, accepting=range(low, high + 1))


def chain(count: int, table: Sequence[Sequence[bool]]) -> Circuit:
    """Neighbouring variables i and i + 1 of 1 to ``count`` have one of the allowed pairs of values: ``table[a][b]``.

    >>> chain(10, [[True, True], [True, False]]).count()                     # no two neighbours are both true
    144
    """
    # State 0 is the beginning, 1 and 2 are the last value, 3 is a mistake.
    step = [[1 + b if table[a][b] else 3 for b in range(2)] for a in range(2)]
    return machine([[1, 2], *step, [3, 3]], count, accepting=range(3))


def machine(
    transitions: Sequence[Sequence[int]], count: int, *, start: int = 0, accepting: Iterable[int] = (0,)
) -> Circuit:
    """The words of ``count`` bits that a finite-state machine accepts; variable t is bit t.

    ``transitions[state][bit]`` is the next state. The size is the number of reachable states times ``count``.

    >>> machine([[0, 1], [1, 0]], 10, accepting=[1]).count()                  # an odd number of ones
    512
    """
    builder = CircuitBuilder(count)
    accepted = set(accepting)
    # From the last bit on: which node accepts the rest of the word, for each state.
    below = [TRUE if state in accepted else FALSE for state in range(len(transitions))]
    for bit in reversed(range(count)):
        ways = [
            [builder.add(AND, [2 * bit + 1 - value, below[row[value]]]) for value in range(2)] for row in transitions
        ]
        below = [builder.add(OR, branches) for branches in ways]
    return builder.finish(below[start])
