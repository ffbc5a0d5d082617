"""A formula in conjunctive normal form, and as text in the DIMACS format, which SAT solvers and SATLIB use.

    c 1 = smokes(alice)      a comment; those of this form name a variable
    c p show 1 2 0           the variables that matter; all others are auxiliary
    p cnf 3 2                how many variables and clauses there are
    1 -3 0                   a clause: x1 or not x3
    2 3 -1 0

Clauses may run over several lines. The files of SATLIB end with a line ``%`` and a line ``0``, which say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from doxa.errors import DataError, KnowledgeError
from doxa.logic.syntax._kb import Axiom
from doxa.logic.syntax._node import make
from doxa.logic.syntax._simplify import atoms_of
from doxa.logic.syntax._tree import And, Call, Compare, Expr, Not, Or, Truth

_MOST = 10_000_000  # a damaged header must not fill the memory with names
_NAME = re.compile(r"c\s+([0-9]{1,18})\s*=\s*(.*\S)")
_SHOW = re.compile(r"c\s+p\s+show\b((?:\s+[0-9]{1,18})*)")
_HEADER = re.compile(r"p\s+cnf\s+([0-9]{1,18})\s+([0-9]{1,18})")


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
        return self.atoms == other.atoms and self.clauses == other.clauses

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        extra = f", {len(self.auxiliary)} of them auxiliary" if None in self.atoms else ""
        return f"CNF({len(self)} clauses, {self.variables} variables{extra})"


def numbered(count: int) -> list[Expr]:
    """The propositions ``x1``, ``x2``, ..."""
    return [Call(f"x{i}") for i in range(1, count + 1)]


def _args(node: Expr, kind: type[Expr]) -> tuple[Expr, ...]:
    if isinstance(node, Truth):
        return () if node.value == (kind is And) else (node,)
    return node.children if type(node) is kind else (node,)


# --- DIMACS -------------------------------------------------------------------------------------------------------


def read_dimacs(source: str | Path) -> CNF:
    """The clauses of a DIMACS file, or of a text in that format.

    Variables have the names that comments of the form ``c 1 = smokes(alice)`` give them, otherwise ``x1``, ``x2``, ...

    Args:
        source: a path, or the text itself (a string of more than one line).

    Raises:
        DataError: the file is missing or not in the format; the message names the line.

    >>> cnf = read_dimacs('''c a comment
    ... p cnf 3 2
    ... 1 -3 0
    ... 2 3
    ... -1 0
    ... %
    ... 0
    ... ''')
    >>> cnf.clauses
    [[1, -3], [2, 3, -1]]
    >>> read_dimacs("p cnf 2 1\\n1 -3 0\\n")
    Traceback (most recent call last):
    doxa.errors.DataError: DIMACS line 2: there is a literal -3, but the header in line 1 announces 2 variables
    """
    text, where = _open(source)
    header: tuple[int, int] | None = None
    header_line = 0
    lines: list[tuple[int, str]] = []
    names: dict[int, tuple[int, str]] = {}
    shown: set[int] | None = None

    def wrong(line: int, message: str) -> NoReturn:
        raise DataError(f"{where} line {line}: {message}")

    for number, raw in enumerate(text.split("\n"), 1):
        content = raw.strip()
        first = content[:1]
        if first == "c":
            if match := _NAME.fullmatch(content):
                names[int(match[1])] = (number, match[2])
            elif match := _SHOW.fullmatch(content):
                shown = (shown or set()) | {int(v) for v in match[1].split()}
        elif first == "p":
            if header is not None:
                wrong(number, f"there is a second header; the first is in line {header_line}")
            if (match := _HEADER.fullmatch(content)) is None:
                wrong(number, f"the header is {content[:80]!r}, wanted 'p cnf VARIABLES CLAUSES'")
            header, header_line = (int(match[1]), int(match[2])), number
            if header[0] > _MOST:
                wrong(number, f"the header announces {header[0]} variables; at most {_MOST} can be read")
        elif first == "%":
            break
        elif first:
            if header is None:
                wrong(number, f"clauses begin with {content[:40]!r} before any header 'p cnf VARIABLES CLAUSES'")
            lines.append((number, content))
    if header is None:
        raise DataError(f"{where} has no header 'p cnf VARIABLES CLAUSES'")
    variables, announced = header
    tokens = " ".join([content for _, content in lines]).split()
    try:
        numbers = np.fromiter(map(int, tokens), np.int64, len(tokens))
    except (ValueError, OverflowError):
        line, token = _locate(lines, lambda token: re.fullmatch(r"[+-]?\d{1,18}", token) is None)
        wrong(line, f"{token[:40]!r} is not a literal; literals are integers, and 0 ends a clause")
    if numbers.size and np.abs(numbers).max() > variables:
        line, token = _locate(lines, lambda token: abs(int(token)) > variables)
        message = f"there is a literal {token}, but the header in line {header_line} announces {variables} variables"
        wrong(line, message)
    if numbers.size and numbers[-1] != 0:
        wrong(lines[-1][0], "the last clause does not end with 0")
    ends = np.flatnonzero(numbers == 0)
    if len(ends) != announced:
        wrong(header_line, f"the header announces {announced} clauses, but there are {len(ends)}")
    offsets = np.concatenate([[0], ends - np.arange(len(ends))])
    atoms: list[Expr | None] = [*numbered(variables)]
    if shown is not None:
        atoms = [atom if v in shown else None for v, atom in enumerate(atoms, 1)]
    for v, named in zip(names, _read_atoms([name for _, name in names.values()]), strict=True):
        if named is not None and 0 < v <= variables:
            atoms[v - 1] = named
    variable: dict[Expr, int] = {}
    for v, atom in enumerate(atoms, 1):
        if atom is not None and variable.setdefault(atom, v) != v:
            both = (variable[atom], v)
            wrong(max(names[u][0] for u in both if u in names), f"{atom} names two variables, {both[0]} and {v}")
    return CNF.from_arrays(numbers[numbers != 0], offsets, atoms)


def write_dimacs(cnf: CNF) -> str:
    """The clauses in the DIMACS format, with the names of the variables; `read_dimacs` gives the same clauses back.

    >>> from doxa.logic import propositions, to_cnf
    >>> rain, wet = propositions("rain wet")
    >>> print(write_dimacs(to_cnf(rain >> wet)), end="")
    c 1 = rain
    c 2 = wet
    p cnf 2 1
    -1 2 0
    """
    lines: list[str] = []
    if any(atom not in (None, default) for atom, default in zip(cnf.atoms, numbered(cnf.variables), strict=True)):
        lines += [f"c {v} = {atom}" for v, atom in enumerate(cnf.atoms, 1) if atom is not None]
    if None in cnf.atoms:
        lines.append("c p show " + "".join([f"{v} " for v in cnf.index.values()]) + "0")
    lines.append(f"p cnf {cnf.variables} {len(cnf)}")
    lines += [" ".join(map(str, [*clause, 0])) for clause in cnf]
    return "\n".join(lines) + "\n"


def _open(source: str | Path) -> tuple[str, str]:
    """The text, and what messages call it."""
    came: object = source
    if not isinstance(came, str | Path) or came == "":
        shown = "an empty text" if came == "" else f"a {type(came).__name__}"
        raise DataError(
            f"{shown} came; wanted the path of a DIMACS file, or its text: a header 'p cnf 2 1', clauses '1 -2 0'"
        )
    if isinstance(source, str) and "\n" in source:
        return source, "DIMACS"
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace"), str(source)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot read {str(source)!r}: {reason}; wanted a DIMACS file or its text") from error


def _locate(lines: list[tuple[int, str]], is_wrong: Callable[[str], bool]) -> tuple[int, str]:
    """The first token that is wrong, and its line."""
    return next((number, token) for number, line in lines for token in line.split() if is_wrong(token))


def _read_atoms(texts: list[str]) -> list[Expr | None]:
    """The atoms that names of variables stand for; None for a text that is not one."""
    from doxa.logic.text._builder import Builder
    from doxa.logic.text._grammar import Unexpected, run, table
    from doxa.logic.text._lexer import Vocabulary, tokens

    if not texts:
        return []
    builder = Builder()
    try:
        run(table(), tokens(";\n".join(texts), Vocabulary(builder.share)), builder)
    except (Unexpected, KnowledgeError):
        builder.items = []
    if len(builder.items) == len(texts):
        found = [item.formula if isinstance(item, Axiom) and not item.named else None for item in builder.items]
        return [f if isinstance(f, Call | Compare) else None for f in found]
    # Some comment only looks like a name: read them one by one.
    return [None] if len(texts) == 1 else [_read_atoms([text])[0] for text in texts]
