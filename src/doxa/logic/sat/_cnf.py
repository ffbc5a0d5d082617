"""A formula in conjunctive normal form: clauses of numbered literals, and which atom each variable stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from doxa.errors import KnowledgeError
from doxa.logic.syntax._node import make
from doxa.logic.syntax._simplify import atoms_of
from doxa.logic.syntax._tree import And, Call, Expr, Not, Or, Truth


@dataclass(frozen=True, eq=False, repr=False)
class CNF:
    """Clauses over variables 1, 2, ...; literal v says that variable v is true, literal -v that it is false.

    Clause i is ``literals[offsets[i]:offsets[i + 1]]``. Variable v stands for ``atoms[v - 1]``; None marks an
    auxiliary variable, one that an encoding added and that no model shows.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> cnf = CNF.from_clauses([(1, -2), (2,)], [a, b])
    >>> cnf
    CNF(2 clauses, 2 variables)
    >>> print(cnf.formula())
    (a | !b) & b
    >>> CNF.from_formula((a | ~b) & b) == cnf
    True
    """

    literals: NDArray[np.int32]
    offsets: NDArray[np.int64]
    atoms: tuple[Expr | None, ...]

    @classmethod
    def from_clauses(cls, clauses: Iterable[Sequence[int]], atoms: int | Sequence[Expr | None]) -> CNF:
        """From clauses as sequences of literals, and the atoms in order or just how many variables there are.

        >>> CNF.from_clauses([(1, -3), (2, 3)], 3).clauses
        [[1, -3], [2, 3]]
        """
        listed = list(clauses)
        offsets = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(c) for c in listed], out=offsets[1:])
        literals = np.fromiter(chain.from_iterable(listed), np.int64, count=int(offsets[-1]))
        return cls.from_arrays(literals, offsets, atoms)

    @classmethod
    def from_arrays(
        cls, literals: NDArray[np.integer], offsets: NDArray[np.integer], atoms: int | Sequence[Expr | None]
    ) -> CNF:
        """From all literals in a row and where each clause begins (and the last ends).

        >>> CNF.from_arrays(np.array([1, -3, 2]), np.array([0, 2, 3]), 3).clauses
        [[1, -3], [2]]
        """
        names = tuple(numbered(atoms) if isinstance(atoms, int) else atoms)
        if literals.size and (not literals.all() or np.abs(literals).max() > len(names)):
            wrong = next(int(v) for v in literals if v == 0 or abs(v) > len(names))
            raise KnowledgeError(f"literal {wrong} is out of range; literals are 1 to {len(names)} or their negatives")
        return cls(literals.astype(np.int32), offsets.astype(np.int64), names)

    @classmethod
    def from_formula(cls, formula: Expr, atoms: Sequence[Expr] = ()) -> CNF:
        """A formula that already is a conjunction of clauses; any other becomes one by `to_cnf`.

        Variables are numbered in the order of ``atoms``, then in the order in which further atoms appear.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> CNF.from_formula(a >> b)
        Traceback (most recent call last):
        doxa.errors.KnowledgeError: the formula is no conjunction of clauses: it has an Implies. Use to_cnf(formula)
        """
        index = {atom: v for v, atom in enumerate(dict.fromkeys((*atoms, *atoms_of(formula))), 1)}
        clauses = []
        for clause in _args(formula, And):
            literals = []
            for literal in _args(clause, Or):
                atom = literal.children[0] if isinstance(literal, Not) else literal
                if atom not in index:
                    name = type(atom).__name__
                    raise KnowledgeError(
                        f"the formula is no conjunction of clauses: it has a{'n' * (name[0] in 'AIO')} {name}. "
                        "Use to_cnf(formula)"
                    )
                literals.append(-index[atom] if isinstance(literal, Not) else index[atom])
            clauses.append(literals)
        return cls.from_clauses(clauses, list(index))

    def formula(self) -> Expr:
        """The conjunction of the clauses; auxiliary variables become propositions `aux1`, `aux2`, ... by number.

        >>> print(CNF.from_clauses([(1, 2), (-2,)], [Call("a"), None]).formula())
        (a | aux2) & !aux2
        """
        known = {a.name for a in self.atoms if isinstance(a, Call)}
        prefix = "aux"
        while any(name.startswith(prefix) for name in known):
            prefix = "_" + prefix
        positive = [Call(f"{prefix}{i}") if a is None else a for i, a in enumerate(self.atoms, 1)]
        negative = [make(Not, None, (a,)) for a in positive]
        return And(*[Or(*[positive[v - 1] if v > 0 else negative[-v - 1] for v in c]) for c in self.clauses])

    @property
    def variables(self) -> int:
        """How many variables there are, auxiliary ones included."""
        return len(self.atoms)

    @cached_property
    def index(self) -> dict[Expr, int]:
        """The variable of each atom."""
        return {atom: v for v, atom in enumerate(self.atoms, 1) if atom is not None}

    @property
    def auxiliary(self) -> tuple[int, ...]:
        """The variables that stand for no atom."""
        return tuple([v for v, atom in enumerate(self.atoms, 1) if atom is None])

    @property
    def clauses(self) -> list[list[int]]:
        """The clauses as lists of literals."""
        flat, ends = self.literals.tolist(), self.offsets.tolist()
        return [flat[a:b] for a, b in pairwise(ends)]

    def __and__(self, other: CNF) -> CNF:
        """Both: equal atoms are one variable, auxiliary variables stay apart.

        >>> from doxa.logic import propositions
        >>> a, b, c = propositions("a b c")
        >>> (CNF.from_clauses([(1, 2)], [a, b]) & CNF.from_clauses([(1, -2)], [c, b])).clauses
        [[1, 2], [3, -2]]
        """
        if not isinstance(other, CNF):
            return NotImplemented
        atoms = list(self.atoms)
        number = np.zeros(other.variables + 1, np.int32)
        for v, atom in enumerate(other.atoms, 1):
            known = None if atom is None else self.index.get(atom)
            if known is None:
                atoms.append(atom)
            number[v] = len(atoms) if known is None else known
        renamed = np.sign(other.literals) * number[np.abs(other.literals)]
        offsets = np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]])
        return CNF.from_arrays(np.concatenate([self.literals, renamed]), offsets, atoms)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.clauses)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CNF):
            return NotImplemented
        return (
            np.array_equal(self.literals, other.literals)
            and np.array_equal(self.offsets, other.offsets)
            and self.atoms == other.atoms
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        extra = f", {len(self.auxiliary)} of them auxiliary" if None in self.atoms else ""
        return f"CNF({len(self)} clauses, {self.variables} variables{extra})"


class Clauses:
    """Clauses that grow, with new variables on demand."""

    def __init__(self, variables: int) -> None:
        self.variables = variables
        self.lists: list[list[int]] = []

    def add(self, *literals: int) -> None:
        self.lists.append(list(literals))

    def fresh(self) -> int:
        """A new variable."""
        self.variables += 1
        return self.variables


def numbered(count: int) -> list[Expr]:
    """The propositions ``x1``, ``x2``, ..."""
    return [Call(f"x{i}") for i in range(1, count + 1)]


def _args(node: Expr, kind: type[Expr]) -> tuple[Expr, ...]:
    if isinstance(node, Truth):
        return () if node.value == (kind is And) else (node,)
    return node.children if type(node) is kind else (node,)
