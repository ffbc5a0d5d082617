"""Clauses that join known relations, evaluated semi-naively: only with what the last round found.

A clause made of ∨, ∃, ∧, atoms, negated atoms of completed relations and comparisons is a list of rules
``p(x, y) ← edge(x, z), p(z, y)``. A round asks each rule once for each atom of its own stratum, with the tuples that
are new there: by a join of index lists, or, where the lists would be longer than the product of few sorts is large, by
a product of Boolean matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import prod

import torch
from torch import Tensor

from doxa.logic.bind._interpretation import Batch
from doxa.logic.bind._join import Atom, Join, Test
from doxa.logic.bind._meanings import Named, Table, low_of
from doxa.logic.bind._tuples import Tuples
from doxa.logic.syntax._binders import Quantifier
from doxa.logic.syntax._define import Define, Stratum
from doxa.logic.syntax._symbols import COMPARISON, Sort
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Name, Not, Number, Or, Truth
from doxa.logic.tensor._pools import Sparse, unravel
from doxa.logic.tensor._run_data import Needs, RunData, check_axis
from doxa.logic.tensor._terms import known_constant

MOST = 64
"""Definitions of more rules than this are not joined."""
DENSE = 2**34
"""Products of matrices take at most so many multiplications."""
COST = 400
"""So many multiplications of matrices take as long as one tuple of a join."""

Literal = tuple[str, tuple[str | int, ...]]
"""A predicate and its arguments: names of variables, and positions of constants."""


@dataclass(frozen=True)
class Rule:
    """A head and what must hold for it."""

    head: Literal
    atoms: tuple[Literal, ...] = ()
    negated: tuple[Literal, ...] = ()
    tests: tuple[Test, ...] = ()


@dataclass(frozen=True)
class _Partial:
    """A rule in the making: formulas that are still to be taken apart, with the variables in their scope."""

    rule: Rule
    todo: tuple[tuple[Expr, Mapping[str, str]], ...]


class Rules:
    """The rules of a stratum; None where a clause is no list of rules."""

    def __init__(self, batch: Batch, stratum: Stratum) -> None:
        self.batch, self.stratum = batch, stratum
        self.sorts: dict[str, Sort] = {}
        """Of each variable."""
        self._fresh = count()

    def find(self) -> list[Rule] | None:
        rules: list[Rule] = []
        for name in self.stratum.names:
            for clause in self.batch.signature.definitions[name]:
                assert isinstance(clause, Define)
                found = self._taken_apart(clause)
                if found is None or len(rules) + len(found) > MOST:
                    return None
                rules += found
        return rules

    def _taken_apart(self, clause: Define) -> list[Rule] | None:
        symbol = self.batch.signature.predicates.get(clause.name)
        if symbol is None or any(g.sort is None for g in clause.groups):
            return None
        scope = {n: self._variable(s) for n, s in zip(clause.names, symbol.sorts, strict=True)}
        todo = [clause.body] if clause.guard is None else [clause.guard, clause.body]
        head = (clause.name, tuple([scope[n] for n in clause.names]))
        stack = [_Partial(Rule(head), tuple([(part, scope) for part in todo]))]
        done: list[Rule] = []
        while stack:
            if len(stack) + len(done) > MOST:
                return None
            partial = stack.pop()
            if not partial.todo:
                done.append(partial.rule)
                continue
            (node, names), rest = partial.todo[0], partial.todo[1:]
            match node:
                case And():
                    stack.append(replace(partial, todo=(*[(c, names) for c in node.children], *rest)))
                case Or():
                    if len(node.children) > MOST:
                        return None
                    stack += [replace(partial, todo=((c, names), *rest)) for c in reversed(node.children)]
                case Truth():
                    stack += [replace(partial, todo=rest)] if node.value else []
                case Quantifier() if node.kind == "exists":
                    inner = dict(names)
                    for group in node.groups:
                        sort = self.batch.signature.sorts.get(group.sort or "")
                        if sort is None or group.sample is not None:
                            return None
                        inner.update({n: self._variable(sort) for n in group.names})
                    parts = [node.body] if node.guard is None else [node.guard, node.body]
                    stack.append(replace(partial, todo=(*[(p, inner) for p in parts], *rest)))
                case _:
                    rule = self._literal(partial.rule, node, names)
                    if rule is None:
                        return None
                    stack.append(_Partial(rule, rest))
        return done

    def _literal(self, rule: Rule, node: Expr, names: Mapping[str, str]) -> Rule | None:
        """The rule with one more atom or comparison; None if it is neither."""
        if isinstance(node, Compare):
            test = self._test(node, names)
            return None if test is None else replace(rule, tests=(*rule.tests, test))
        atom = node.children[0] if isinstance(node, Not) else node
        if not isinstance(atom, Call) or atom.name not in self.batch.signature.predicates:
            return None
        sorts = self.batch.signature.predicates[atom.name].sorts
        args = [self._argument(a, s, names) for a, s in zip(atom.children, sorts, strict=True)]
        if any(a is None for a in args):
            return None
        found = (atom.name, tuple([a for a in args if a is not None]))
        own = atom.name in self.stratum.names
        if not own and not self._listed(atom.name):
            return None
        if node is atom:
            return replace(rule, atoms=(*rule.atoms, found))
        return None if own else replace(rule, negated=(*rule.negated, found))

    def _test(self, node: Compare, names: Mapping[str, str]) -> Test | None:
        sides: list[tuple[str | None, int]] = []
        for side, other in (node.children, node.children[::-1]):
            if isinstance(side, Name) and side.name in names:
                sides.append((names[side.name], low_of(self.sorts[names[side.name]])))
                continue
            if isinstance(side, Number) and isinstance(side.value, int):
                sides.append((None, side.value))
                continue
            if not isinstance(side, Name) or not isinstance(other, Name) or other.name not in names:
                return None
            position = self._argument(side, self.sorts[names[other.name]], names)
            if not isinstance(position, int):
                return None
            sides.append((None, position + low_of(self.sorts[names[other.name]])))
        compare, ((left, low), (right, high)) = COMPARISON[node.op], sides

        def keep(*columns: Tensor) -> Tensor:
            values = iter(columns)
            a = low if left is None else next(values) + low
            b = high if right is None else next(values) + high
            return torch.as_tensor(compare(a, b))

        return Test(tuple([n for n in (left, right) if n is not None]), keep, str(node))

    def _argument(self, node: Expr, sort: Sort, names: Mapping[str, str]) -> str | int | None:
        """A variable, or the position of a constant."""
        if isinstance(node, Number) and isinstance(sort.values, range) and node.value in sort.values:
            return int(node.value) - sort.values[0]
        if not isinstance(node, Name):
            return None
        if node.name in names:
            return names[node.name] if self.sorts[names[node.name]] == sort else None
        if isinstance(sort.values, tuple) and node.name in sort.values:
            return sort.values.index(node.name)
        constant = self.batch.signature.constants.get(node.name)
        if constant is None or constant.sort != sort or not sort.is_open:
            return None
        return self.batch.index_of(node.name) if known_constant(self.batch, node.name) is not None else None

    def _listed(self, name: str) -> bool:
        """Is a relation known, tuple by tuple?"""
        meaning = self.batch.symbols.get(name) or self.batch.interpretation.meaning(name)
        return isinstance(meaning, Table | Named) and meaning.returns == "bool"

    def _variable(self, sort: Sort) -> str:
        name = f"v{next(self._fresh)}"
        self.sorts[name] = sort
        return name

    def size(self, sort: Sort) -> int:
        return len(sort.values) if sort.values is not None else self.batch.objects(sort.name).size


class Relations:
    """The relations of a round, as tables and as lists of tuples, each made when it is asked for."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._run = RunData(batch, Needs(), 1)
        self._tables: dict[str, Tensor | Sparse] = {}
        self._tuples: dict[str, Tuples] = {}
        self._numbers: dict[str, Tensor] = {}

    def table(self, name: str) -> Tensor | Sparse:
        if name not in self._tables:
            meaning = self._batch.meaning(name)
            sorts = self._batch.signature.predicates[name].sorts
            sizes = [len(s.values) if s.values is not None else self._batch.objects(s.name).size for s in sorts]
            if isinstance(meaning, Table):
                for axis, size in enumerate(sizes):
                    check_axis(meaning, axis, meaning.tensor.shape[axis], size)
                self._tables[name] = meaning.tensor
            else:
                assert isinstance(meaning, Named)
                self._tables[name] = self._run.named_table(meaning, sizes)
        return self._tables[name]

    def put(self, name: str, table: Tensor) -> None:
        """Say what a relation is from now on."""
        self._tables[name] = table
        self._tuples.pop(name, None)
        self._numbers.pop(name, None)

    def tuples(self, name: str) -> Tuples:
        if name not in self._tuples:
            table = self.table(name)
            if isinstance(table, Sparse):
                self._tuples[name] = Tuples(unravel(table.keys, table.shape), len(table.keys))
            else:
                places = table.nonzero(as_tuple=True) if table.ndim else ()
                self._tuples[name] = Tuples(places, len(places[0])) if places else Tuples((), int(bool(table)))
        return self._tuples[name]

    def numbers(self, name: str) -> Tensor:
        """A relation as a matrix of zeros and ones."""
        if name not in self._numbers:
            table = self.table(name)
            assert isinstance(table, Tensor)
            self._numbers[name] = table.float()
        return self._numbers[name]


def closure(
    batch: Batch, stratum: Stratum, sizes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Tensor], int] | None:
    """The least relations of a stratum and the rounds that it took; None where its clauses are no rules."""
    found = Rules(batch, stratum)
    rules = found.find()
    if rules is None:
        return None
    sorts = {name: found.size(sort) for name, sort in found.sorts.items()}
    relations = Relations(batch)
    full = {name: torch.zeros(size, dtype=torch.bool, device=batch.device) for name, size in sizes.items()}
    new = {name: torch.zeros_like(table) for name, table in full.items()}
    for rule in rules:
        if not any(atom in full for atom, _ in rule.atoms):
            _derive(rule, [atom for atom, _ in rule.atoms], relations, sorts, new[rule.head[0]])
    rounds = 1
    while any(bool(table.any()) for table in new.values()):
        for name, table in new.items():
            relations.put(f"\0old {name}", full[name])
            full[name] = full[name] | table
            relations.put(f"\0new {name}", table)
            relations.put(name, full[name])
        if not stratum.recursive:
            break
        rounds += 1
        derived = {name: torch.zeros_like(table) for name, table in full.items()}
        for rule in rules:
            own = [i for i, (atom, _) in enumerate(rule.atoms) if atom in full]
            for at in own:
                if not bool(new[rule.atoms[at][0]].any()):
                    continue
                names = [
                    atom if i not in own or i > at else f"\0new {atom}" if i == at else f"\0old {atom}"
                    for i, (atom, _) in enumerate(rule.atoms)
                ]
                _derive(rule, names, relations, sorts, derived[rule.head[0]])
        new = {name: table & ~full[name] for name, table in derived.items()}
    return full, rounds


def _derive(rule: Rule, names: Sequence[str], relations: Relations, sorts: Mapping[str, int], into: Tensor) -> None:
    """Mark what a rule derives from the relations of these names."""
    if _by_matrices(rule, names, relations, sorts):
        (_, head), ((_, a), (_, b)) = rule.head, rule.atoms
        letter = {v: chr(97 + i) for i, v in enumerate(dict.fromkeys([*a, *b]))}
        left, right, out = ["".join([letter[v] for v in vs]) for vs in (a, b, head)]
        product = torch.einsum(f"{left},{right}->{out}", relations.numbers(names[0]), relations.numbers(names[1]))
        into |= product > 0
        return
    atoms = [Atom(relations.tuples(n), args, n) for n, (_, args) in zip(names, rule.atoms, strict=True)]
    atoms += [Atom(relations.tuples(n), args, n, negated=True) for n, args in rule.negated]
    given = {v for _, args in rule.atoms for v in args}
    used = [*rule.head[1], *[v for _, args in rule.negated for v in args], *[v for t in rule.tests for v in t.names]]
    domains = {str(v): sorts[v] for v in used if isinstance(v, str) and v not in given}
    if not atoms and not domains and not rule.tests:
        into.fill_(True)
        return
    for piece in Join(atoms, rule.tests, domains, device=into.device).pieces():
        if not rule.head[1]:
            into.fill_(True)
            return
        into[tuple([piece.columns[str(v)] for v in rule.head[1]])] = True


def _by_matrices(rule: Rule, names: Sequence[str], relations: Relations, sorts: Mapping[str, int]) -> bool:
    """Is a product of two matrices cheaper than the join?"""
    if len(rule.atoms) != 2 or rule.negated or rule.tests:
        return False
    (_, a), (_, b) = rule.atoms
    variables = {*a, *b}
    plain = all(isinstance(v, str) for v in variables) and len(set(a)) == len(a) and len(set(b)) == len(b)
    shared = set(a) & set(b)
    if not plain or not shared or not variables >= set(rule.head[1]) or len(set(rule.head[1])) < len(rule.head[1]):
        return False
    if any(isinstance(relations.table(n), Sparse) for n in names):
        return False
    multiplications = prod([sorts[str(v)] for v in variables])
    tuples = [int(relations.tuples(n).count) for n in names]
    rows = tuples[0] * tuples[1] / prod([sorts[str(v)] for v in shared])
    return multiplications <= min(DENSE, COST * rows)
