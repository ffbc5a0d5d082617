"""The shortcuts of a knowledge base: what its networks may get wrong while all axioms hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._finder import KNOWN, Finder
from doxa.doctor._observed import compared_values
from doxa.doctor._shortcuts import Concept, Shortcuts, search
from doxa.errors import DataError, KnowledgeError, ProblemError
from doxa.logic import (
    INT,
    REAL,
    Field,
    Function,
    Interpretation,
    KnowledgeBase,
    Name,
    Predicate,
    Quantifier,
    Sort,
    postorder,
    probs,
)
from doxa.pose import KnowledgeReasoner
from doxa.problem import Problem

__all__ = ["knowledge_shortcuts"]

_OBSERVATIONS = 4096  # so many different observations of a row
_WORLDS = 1 << 22  # so many worlds, over all observations


def knowledge_shortcuts(
    kb: KnowledgeBase,
    *,
    data: Mapping[str, Sequence[Any]] | None = None,
    symbols: Mapping[str, Any] | None = None,
    show: int = 5,
    limit: int = 100_000,
) -> Shortcuts:
    """Find the maps of concepts under which all axioms still hold, whatever is observed.

    A concept is what a network says: a function into a finite sort, or a predicate at its finite arguments. Wherever
    it is applied, it is mapped alike. Fields that hold numbers or values are observed, and so are closed predicates. Of
    a field of numbers, every number that the knowledge can compare it with is an observation, and all others together
    are one more (one for each gap between them where their order matters). A map α is one under which the networks can
    never be found out:

        φ(w, y)  ⟹  φ(α(w), y)    for all worlds w and observations y, or for those in the data.

    Args:
        kb: the knowledge, about single rows of data, objects of open sorts, or finite sorts.
        data: columns of true concepts that occur together, by name: ``digit(left)``, or just ``left`` where one concept
            is read off that field; also observed fields, if they are known. By default all worlds in which the
            knowledge holds.
        symbols: symbols that are not learned, bound as in an :class:`~doxa.logic.Interpretation`.
        show: how many of the simplest shortcuts to list.
        limit: count no further than this where counting needs listing.

    Raises:
        KnowledgeError: what a symbol or field can be cannot be listed.
        ProblemError: there are too many worlds or observations to go through.
        DataError: the data do not fit the knowledge, or contradict it.

    >>> from doxa.logic import parse
    >>> kb = parse('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data triples(x: Image, y: Image, z: Image)
    ...     func digit(Image) -> Digit
    ...     [sum] forall t in triples. digit(t.x) + digit(t.y) = digit(t.z)
    ... ''')
    >>> print(knowledge_shortcuts(kb))
    2 maps of the concepts explain all 55 worlds; 1 of them is a shortcut
    digit: 1 → 0, 2 → 0, 3 → 0, 4 → 0, 5 → 0, 6 → 0, 7 → 0, 8 → 0, 9 → 0
    labels for digit = ... rule out all of them
    1 of 1 outputs have worlds that an independent belief cannot mix: ...
    """
    unit = _Unit(kb, dict(symbols or {}))
    columns = {name.replace(" ", ""): list(values) for name, values in (data or {}).items()}
    cases = unit.cases({} if data is None else unit.observed(columns))
    variables = list(dict.fromkeys(name for case in cases for name in case.variables))
    if not variables:
        raise KnowledgeError(
            "nothing here is learned: every predicate is closed and there is no function into a finite sort, or the "
            "knowledge is always true, or never; shortcuts are about what networks say"
        )
    concepts, groups = _concepts(kb, variables)
    sizes = [len(concepts[g].values) for g in groups]
    problem = _problem(cases, variables, sizes)
    if data is None:
        worlds = _holding(problem)
    else:
        worlds = _occurring(problem, kb, variables, concepts, groups, cases, columns)
    numbers = worlds[:, -1]
    right = [worlds[numbers == k, :-1] for k in range(len(cases)) if bool((numbers == k).any())]
    if data is not None and math.prod(sizes) * len(cases) <= _WORLDS:
        holding = _holding(problem)  # what is right for an observation does not depend on what else occurs
        right = [holding[holding[:, -1] == k, :-1] for k in torch.unique(numbers).tolist()]
    finder = Finder(problem, [*groups, KNOWN], worlds)
    return search(finder, concepts, right, tuple(zip(variables, groups, strict=True)), show, limit)


@dataclass(frozen=True)
class _Case:
    """One observation: the variables that it leaves open, and which of their worlds are right."""

    observed: dict[str, Any]
    variables: tuple[str, ...]
    problem: Problem | None
    fixed: Tensor  # the world of the problem, with -1 for the variables
    holds: bool  # where nothing is open

    def right(self, worlds: Tensor, columns: Mapping[str, int]) -> Tensor:
        if self.problem is None:
            return torch.full(worlds.shape[:-1], self.holds)
        parts = [
            worlds[..., columns[name]] if fixed < 0 else worlds.new_full(worlds.shape[:-1], int(fixed))
            for name, fixed in zip(self.problem.names, self.fixed, strict=False)
        ]
        holds: Tensor = self.problem(torch.stack(parts, -1))[..., 0] == 1
        return holds


class _Unit:
    """The smallest piece of data that all axioms speak about: one row each, and as many objects as they compare."""

    def __init__(self, kb: KnowledgeBase, symbols: dict[str, Any]) -> None:
        self.kb = kb
        self.signature = signature = kb.signature
        self.counts: dict[str, int] = {}  # of objects and rows, by sort and name
        for axiom in kb.axioms:
            here: dict[str, int] = {}
            for node in postorder(axiom.formula):
                for group in node.groups if isinstance(node, Quantifier) else ():
                    name = group.sort if group.sort is not None else getattr(group.domain, "name", None)
                    if isinstance(group.domain, Name) or (group.sort and signature.sorts[group.sort].is_open):
                        here[str(name)] = here.get(str(name), 0) + len(group.names)
            for name, count in here.items():
                self.counts[name] = max(count, self.counts.get(name, 0))
        self.rows = [name for name in self.counts if name not in signature.sorts]
        self.fields: list[tuple[str, str, Sort]] = []  # observed ones
        self.data: dict[str, dict[str, Tensor]] = {name: {} for name in self.rows}
        objects = {name: count for name, count in self.counts.items() if name in signature.sorts}
        for name in self.rows:
            if name not in signature.rows:
                raise KnowledgeError(
                    f"the fields of {name} are not declared; declare them: data {name}(field: Sort, …)"
                )
            for field, sort, many in signature.rows[name].fields:
                if many:
                    raise KnowledgeError(f"{name}.{field} is a sequence; shortcuts need rows of a fixed shape")
                if sort.is_open and sort not in (INT, REAL):
                    start = objects.get(sort.name, 0)
                    objects[sort.name] = start + self.counts[name]
                    self.data[name][field] = torch.arange(start, start + self.counts[name])
                else:
                    self.fields.append((name, field, sort))
        for constant in signature.constants.values():
            if constant.sort.is_open and constant.name not in symbols:
                raise KnowledgeError(f"the constant {constant.name} is an object of an open sort; bind it in symbols")
        self.objects = objects
        known = {p.name for p in signature.predicates.values() if p.closed} | set(symbols)
        learned: list[Predicate | Function] = [*signature.predicates.values(), *signature.functions.values()]
        for symbol in learned:
            if symbol.name not in known:
                symbols[symbol.name] = self._unsure(symbol)
        self.symbols = symbols
        self.interpretation = Interpretation(kb, **symbols)

    def _unsure(self, symbol: Predicate | Function) -> Any:
        """A meaning under which everything is possible."""
        shape = []
        for sort in symbol.sorts:
            if sort in (INT, REAL):
                raise KnowledgeError(f"{symbol.name} is about numbers, which cannot all be listed; bind it in symbols")
            shape.append(self.objects.get(sort.name, 0) if sort.values is None else len(sort.values))
        if isinstance(symbol, Predicate):
            return probs(torch.full(shape, 0.5))
        if symbol.result.values is None:
            raise KnowledgeError(
                f"{symbol.name} yields {symbol.result.name}, whose values cannot all be listed; give it a finite sort, "
                "or bind it in symbols if it is not learned"
            )
        size = len(symbol.result.values)
        return probs(torch.full((*shape, size), 1 / size))

    def observed(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The values of observed fields in the data, by the name of the field."""
        if len(self.rows) != 1 or self.counts[self.rows[0]] != 1:
            raise DataError(
                "data are rows, so they need knowledge that begins with 'forall p in rows', one row at a time and "
                f"one kind of rows; this is about {', '.join(self.counts) or 'no rows'}"
            )
        return {field: columns[field] for _, field, _ in self.fields if field in columns}

    def cases(self, observed: Mapping[str, Sequence[Any]]) -> list[_Case]:
        """Every combination of observations, with the problem that it leaves."""
        given = [tuple(row) for row in zip(*observed.values(), strict=True)] if observed else [()]
        compared = compared_values(self.kb.axioms, self.signature, given=observed, constants=self.symbols)
        used = {node.name for axiom in self.kb.axioms for node in postorder(axiom.formula) if isinstance(node, Field)}
        choices: list[Sequence[Any]] = [list(dict.fromkeys(given))]
        free = []
        for rows, field, sort in self.fields:
            if field in observed:
                continue
            values: Sequence[Any]
            if sort.values is not None:
                values = sort.values if field in used else sort.values[:1]
            elif (numbers := compared.get((rows, field))) is None:
                values = [0]  # whatever it is
            elif numbers.unclear is not None:
                raise KnowledgeError(self._endless(rows, field, sort, numbers.unclear))
            else:
                values = numbers.values(sort)
            for number in range(self.counts[rows]):
                free.append((rows, field, number))
                choices.append(list(values))
        if (count := math.prod([len(c) for c in choices])) > _OBSERVATIONS:
            raise ProblemError(f"there are {count:,} different observations, too many to go through; give data")
        cases = []
        for first, *rest in product(*choices):
            seen: dict[tuple[str, str, int], Any] = {
                (self.rows[0], name, 0): v for name, v in zip(observed, first, strict=True)
            }
            cases.append(self._case(seen | dict(zip(free, rest, strict=True))))
        return cases

    def _endless(self, rows: str, field: str, sort: Sort, where: str) -> str:
        name = field.capitalize()
        such = f"such as sort {name} = 0..9" if self.signature.describe(name) is None else "such as 0..9"
        finite = f"declare a finite sort for it, {such}, or " if sort == INT else ""
        return (
            f"{rows}.{field} is {sort.name}, and which of its numbers `{where}` tells apart cannot be listed; {finite}"
            f"give data with a column {field}"
        )

    def _case(self, values: dict[tuple[str, str, int], Any]) -> _Case:
        data: dict[str, Any] = {rows: dict(fields) for rows, fields in self.data.items()}
        for rows, field, sort in self.fields:
            column = [values[rows, field, number] for number in range(self.counts[rows])]
            if isinstance(sort.values, tuple):
                column = [sort.values.index(v) for v in column]
            data[rows][field] = torch.tensor(column, dtype=torch.float64 if sort == REAL else None)
        posed = KnowledgeReasoner(self.kb, self.interpretation).posed(**data, **self.objects)
        observed = {field: value for (_, field, number), value in values.items() if not number}
        if not posed.problems:
            return _Case(observed, (), None, torch.zeros(0), not len(posed.violated))
        problem, belief, _ = posed.problems[0]
        top, place = belief.log_probs[0].max(-1)
        fixed = torch.where(top > -1e-6, place, -1)  # what is certain is observed
        names = tuple(n for n, f in zip(problem.names, fixed, strict=False) if f < 0)
        return _Case(observed, names, problem, fixed, True)


def _concepts(kb: KnowledgeBase, variables: Sequence[str]) -> tuple[list[Concept], list[int]]:
    """What the variables are called, ``digit(pairs.left)``, says which symbol they are of: one network, one concept."""
    found: dict[str, tuple[list[str], tuple[str, ...]]] = {}
    groups = []
    for variable in variables:
        name, _, inside = variable.removesuffix(")").partition("(")
        symbol = kb.signature.predicates.get(name) or kb.signature.functions[name]
        arguments = inside.split(", ") if inside else []
        shown = [a if s.values is not None else "_" for s, a in zip(symbol.sorts, arguments, strict=True)]
        title = name if all(a == "_" for a in shown) else f"{name}({', '.join(shown)})"
        values = ("false", "true") if isinstance(symbol, Predicate) else tuple(map(str, symbol.result.values or ()))
        found.setdefault(title, ([], values))[0].append(variable)
        groups.append(list(found).index(title))
    return [Concept(title, tuple(names), values) for title, (names, values) in found.items()], groups


def _problem(cases: Sequence[_Case], variables: Sequence[str], sizes: Sequence[int]) -> Problem:
    """Worlds of all variables and the number of a case; the output is whether the knowledge holds."""
    columns = {name: i for i, name in enumerate(variables)}

    def holds(worlds: Tensor) -> Tensor:
        found = torch.zeros(worlds.shape[:-1], dtype=torch.bool)
        for k in torch.unique(worlds[..., -1]).tolist():
            here = worlds[..., -1] == k
            found[here] = cases[k].right(worlds[here], columns)
        return found.long().unsqueeze(-1)

    listed = math.prod(sizes) * len(cases)
    problem = Problem((*sizes, len(cases)), (2,), holds, names=(*variables, "observed", "holds"))
    if listed > _WORLDS:
        return problem
    table = torch.cat([holds(part) for part in _all(problem)])  # to be looked up again and again
    strides = torch.tensor([math.prod(problem.world[i + 1 :]) for i in range(len(problem.world))])
    return Problem(problem.world, (2,), lambda worlds: table[(worlds * strides).sum(-1)], names=problem.names)


def _all(problem: Problem) -> Iterable[Tensor]:
    for start in range(0, problem.num_worlds, 1 << 18):
        yield problem.worlds(start, min(start + (1 << 18), problem.num_worlds))


def _holding(problem: Problem) -> Tensor:
    """All worlds in which the knowledge holds, under some observation."""
    if problem.num_worlds > _WORLDS:
        raise ProblemError(
            f"there are {problem.describe_size()} worlds, too many to go through; give those that occur as data"
        )
    return torch.cat([part[problem(part)[:, 0] == 1] for part in _all(problem)])


def _occurring(
    problem: Problem,
    kb: KnowledgeBase,
    variables: Sequence[str],
    concepts: Sequence[Concept],
    groups: Sequence[int],
    cases: Sequence[_Case],
    columns: Mapping[str, list[Any]],
) -> Tensor:
    """The worlds of the data, each with the cases that it fits."""
    rows = next(name for name in kb.signature.rows if any(f"({name}." in v for v in variables))
    read, used = [], {field for case in cases[:1] for field in case.observed}
    for variable, group in zip(variables, groups, strict=True):
        short = variable.replace(f"{rows}.", "").replace(" ", "")
        field = short.partition("(")[2].removesuffix(")")
        alone = sum(v.replace(f"{rows}.", "").endswith(f"({field})") for v in variables) == 1
        names = [n for n in (variable.replace(" ", ""), short, *([field] if alone else [])) if n in columns]
        if not names:
            raise DataError(
                f"the data have no column for {variable}; wanted one named {short}" + (f" or {field}" if alone else "")
            )
        used.add(names[0])
        places = {value: i for i, value in enumerate(concepts[group].values)}
        for line, value in enumerate(columns[names[0]], 1):
            if str(value).strip().lower() not in {str(v).lower() for v in places}:
                raise DataError(
                    f"row {line}, column {names[0]}: {value!r} is no value of {concepts[group].name}; it has "
                    f"{', '.join(concepts[group].values)}"
                )
        lower = {str(v).lower(): i for v, i in places.items()}
        read.append([lower[str(value).strip().lower()] for value in columns[names[0]]])
    if unknown := sorted(set(columns) - used):
        raise DataError(f"the data have a column {unknown[0]}, which is no concept and is not observed")
    worlds = torch.tensor(read).T
    fields = list(cases[0].observed)
    given = [field for field in fields if field in columns]
    fits = torch.ones(len(worlds), len(cases), dtype=torch.bool)
    for k, case in enumerate(cases):
        for field in given:
            fits[:, k] &= torch.tensor([value == case.observed[field] for value in columns[field]])
    row, number = fits.nonzero().T
    candidates = torch.cat([worlds[row], number.unsqueeze(-1)], -1)
    right = problem(candidates)[:, 0] == 1
    explained = torch.zeros(len(worlds), dtype=torch.bool).index_fill(0, row[right], True)
    if not bool(explained.all()):
        line = int((~explained).nonzero()[0])
        shown = ", ".join(f"{name} = {column[line]}" for name, column in columns.items())
        raise DataError(f"row {line + 1} contradicts the knowledge: {shown}")
    occurring: Tensor = torch.unique(candidates[right], dim=0)
    return occurring
