"""From formulas to tensors: equal-shaped nodes of the formula graph become one tensor operation.

Nodes are conjunctions, disjunctions and residua; negations are signs on edges. Those of one height, operator and
numbers of free and constant arguments form a *group*, refined in one call: 3-SAT is two groups, whatever its clauses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from doxa.errors import ConfigError
from doxa.fuzzy import STANDARD, Logic, RImplication, SImplication
from doxa.logic import And, Call, Compare, Count, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic.sat._nnf import to_nnf
from doxa.logic.syntax._simplify import formulas, parts
from doxa.refine._base import Direction, Refinement
from doxa.refine._catalogue import refinement

Edge = tuple[int, bool]
"""A node by number, and whether it is negated."""
_CLAUSES = 2000
"""Up to how many clauses a counting constraint is written as clauses, which are flat; above it is a deeper graph."""


@dataclass(frozen=True)
class Node:
    """One operator application: ``key`` says which refinement, ``edges`` its free arguments, then its constant ones."""

    key: str
    edges: tuple[Edge, ...]
    free: int
    height: int


@dataclass
class Group:
    """Equal-shaped nodes: ``rows`` nodes of ``free`` + ``fixed`` arguments each."""

    key: str
    free: int
    fixed: tuple[bool, ...]
    nodes: list[int] = field(default_factory=list)
    directions: set[str] = field(default_factory=set)

    @property
    def direction(self) -> Direction:
        """Which way its truth may have to move."""
        return "up" if self.directions == {"up"} else "down" if self.directions == {"down"} else "both"


@dataclass
class Plan:
    """The formula graph: atoms are nodes 0, 1, …, then a node for `true` if there is one, then operators."""

    atoms: tuple[Expr, ...]
    constant: list[bool]
    nodes: list[Node | None]
    groups: list[Group]
    roots: list[Edge]
    refinements: dict[str, Refinement]
    place: dict[int, Edge]
    """Where a subformula (by identity) stands, for explanations."""
    has_true: bool


class Compiler:
    """Makes a plan of formulas over atoms, some of them constant."""

    def __init__(self, atoms: tuple[Expr, ...], constants: frozenset[Expr], logic: Logic, p: float | None) -> None:
        if logic.is_log or logic.neg != STANDARD:
            came = f"{logic.neg!r}{' on logarithms' if logic.is_log else ''}"
            named = f"the logic {logic.name or logic!r}"
            raise ConfigError(f"{named} has the negation {came}; refinement needs the standard negation, 1 - a")
        self.logic = logic
        self.atoms = atoms
        self.refinements = {"and": refinement(logic.conj, p), "or": refinement(logic.disj, p)}
        self.implication = logic.implies
        if isinstance(self.implication, SImplication):
            if self.implication.negation != STANDARD:
                refinement(self.implication, p)  # says what is wrong
            self.implies_key = "implies" if self.implication.tconorm != logic.disj else "or"
            self.refinements[self.implies_key] = refinement(self.implication.tconorm, p)
        else:
            self.implies_key = "residuum"
            self.refinements["residuum"] = refinement(self.implication, p)
        self.index = {atom: i for i, atom in enumerate(atoms)}
        self.nodes: list[Node | None] = [None] * (len(atoms) + 1)
        self.true = len(atoms)
        self.uses_true = False
        self.constant = [a in constants for a in atoms] + [True]
        self.place: dict[int, Edge] = {}
        self.kept: list[Expr] = []
        self.stand_ins: dict[Expr, Edge] = {}
        """Calls that stand for the arguments of a large counting constraint."""

    def add(self, root: Expr) -> Edge:
        """The edge of a formula."""
        for node in formulas(root):
            if id(node) not in self.place:
                self.place[id(node)] = self._edge(node, [self.place[id(c)] for c in parts(node)])
                self.kept.append(node)  # so that no other object gets its identity
        return self.place[id(root)]

    def _edge(self, node: Expr, below: list[Edge]) -> Edge:
        match node:
            case Call() | Compare():
                if node in self.stand_ins:
                    return self.stand_ins[node]
                if node not in self.index:
                    raise ConfigError(f"the atom {node} is in a formula but not in atoms; add it there")
                return self.index[node], False
            case Truth():
                self.uses_true = True
                return self.true, not node.value
            case Not():
                return below[0][0], not below[0][1]
            case And():
                return self._operator("and", below)
            case Or():
                return self._operator("or", below)
            case Implies():
                return self._implies(below[0], below[1])
            case Iff() | Xor():
                if (self.logic.iff_operator if isinstance(node, Iff) else self.logic.xor_operator) is not None:
                    raise ConfigError("a logic with operators of its own for <-> or xor has no refinement function")
                a, b = below
                number, negated = self._operator("and", [self._implies(a, b), self._implies(b, a)])
                return number, negated != isinstance(node, Xor)
            case Count():
                return self._count(node, below)
        remedy = "ground it over finite sorts first: ground(formula, kb).formula"
        raise ConfigError(f"{node} is not propositional; {remedy}")

    def _implies(self, a: Edge, c: Edge) -> Edge:
        if isinstance(self.implication, RImplication):
            return self._operator("residuum", [a, c])
        return self._operator(self.implies_key, [(a[0], not a[1]), c])

    def _operator(self, key: str, edges: list[Edge]) -> Edge:
        # Commutative operators have their constant arguments last; a residuum keeps its order.
        free = [e for e in edges if not self.constant[e[0]]]
        fixed = [e for e in edges if self.constant[e[0]]]
        ordered = tuple(edges if key == "residuum" else free + fixed)
        heights = [n.height if (n := self.nodes[e[0]]) is not None else 0 for e in edges]
        self.nodes.append(Node(key, ordered, len(free), 1 + max(heights)))
        self.constant.append(not free)
        return len(self.nodes) - 1, False

    def _count(self, node: Count, below: list[Edge]) -> Edge:
        n = len(below)
        low, high = node.bounds
        parts: list[Edge] = []
        # At least k: of any n - k + 1 one is true. At most k: of any k + 1 one is false.
        for wanted, size, negated in ((low > 0, n - low + 1, False), (high < n, high + 1, True)):
            if not wanted:
                continue
            if size <= 0 or size > n:
                self.uses_true = True
                parts.append((self.true, size <= 0))
            elif comb(n, size) <= _CLAUSES:
                edges = [(e[0], e[1] != negated) for e in below]
                parts += [
                    self._operator("or", list(chosen)) if size > 1 else chosen[0]
                    for chosen in combinations(edges, size)
                ]
            else:
                parts.append(self._grid(node.kind if negated else "at least", high if negated else low, below))
        if not parts:
            self.uses_true = True
            return self.true, False
        return self._operator("and", parts) if len(parts) > 1 else parts[0]

    def _grid(self, kind: str, k: int, below: list[Edge]) -> Edge:
        """A large counting constraint as a graph of k·n small conjunctions and disjunctions."""
        inputs = [Call(f"_{len(self.stand_ins) + i}") for i in range(len(below))]
        self.stand_ins |= dict(zip(inputs, below, strict=True))
        return self.add(to_nnf(Count("at least" if kind == "at least" else "at most", k, inputs), counting="expand"))

    def plan(self, roots: Iterable[Expr], directions: Sequence[Direction]) -> Plan:
        """The plan; ``directions`` are those of the formulas."""
        edges = [self.add(f) for f in roots]
        flow = self._directions(edges, directions)
        groups: dict[tuple[int, str, int, tuple[bool, ...], bool], Group] = {}
        for number, node in enumerate(self.nodes):
            if node is None:
                continue
            fixed = tuple(self.constant[e[0]] for e in node.edges)
            group = groups.setdefault(
                (node.height, node.key, node.free, fixed, node.free > 0), Group(node.key, node.free, fixed)
            )
            group.nodes.append(number)
            group.directions |= flow[number]
        ordered = [groups[k] for k in sorted(groups, key=lambda k: k[0])]
        return Plan(self.atoms, self.constant, self.nodes, ordered, edges, self.refinements, self.place, self.uses_true)

    def _directions(self, roots: list[Edge], directions: Sequence[Direction]) -> list[set[str]]:
        """Which way each node may have to move, from the roots down; parents have higher numbers than children."""
        flow: list[set[str]] = [set() for _ in self.nodes]
        opposite = {"up": "down", "down": "up"}
        for (number, negated), direction in zip(roots, directions, strict=True):
            ways = {"up", "down"} if direction == "both" else {direction}
            flow[number] |= {opposite[w] for w in ways} if negated else ways
        for number in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[number]
            if node is None:
                continue
            ways = {"up", "down"} if self.refinements[node.key].turns else flow[number]
            turned = {opposite[w] for w in ways}
            for k, (child, negated) in enumerate(node.edges):
                against = negated != (node.key == "residuum" and k == 0)
                flow[child] |= turned if against else ways
        return flow
