"""The shortcuts of a knowledge base: what its networks may get wrong while all axioms hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._asked import Asked, Observation, ask
from doxa.doctor._observed import compared_values
from doxa.doctor._scenes import Explains, Variable
from doxa.doctor._shortcuts import LIMITS, Shortcuts, search
from doxa.errors import BudgetError, DataError, KnowledgeError
from doxa.logic import INT, REAL, Axiom, Fact, Field, KnowledgeBase, Name, Not, Predicate, Quantifier, Sort, postorder
from doxa.problem import Budget

__all__ = ["knowledge_shortcuts"]

_APART = 512  # so many observations are posed one by one, where rows are compared with rows


def knowledge_shortcuts(
    kb: KnowledgeBase,
    *,
    data: Mapping[str, Sequence[Any]] | None = None,
    symbols: Mapping[str, Any] | None = None,
    show: int = 5,
    limit: int = 10_000,
    joint: int = 64,
    budget: Budget = LIMITS,
) -> Shortcuts:
    """Find the maps of concepts under which all axioms still hold, whatever is observed.

    A concept is what networks say of an object: a function into a finite sort, a predicate at its finite arguments, or
    several of them together, for a network sees all of an object. Wherever a concept is read, it is mapped alike.
    Fields that hold numbers or values are observed, and so are closed predicates; facts about other predicates are
    labels, which restrict the maps. Of a field of numbers, every number that the knowledge can compare it with is an
    observation, and all others together are one more (one for each gap between them where their order matters). A map
    α is one under which the networks can never be found out:

        φ(w, y)  ⟹  φ(α(w), y)    for all worlds w and observations y, or for those in the data.

    Args:
        kb: the knowledge, about single rows of data, objects of open sorts, or finite sorts.
        data: columns of true concepts that occur together, by name: ``digit(left)``, or just ``left`` where one concept
            is read off that field; also observed fields, if they are known. By default all worlds in which the
            knowledge holds.
        symbols: symbols that are not learned, bound as in an :class:`~doxa.logic.Interpretation`.
        show: how many of the simplest shortcuts to list.
        limit: list no more maps than this to count them.
        joint: concepts of one object with more joint values than this are mapped one by one; the answer says so.
        budget: its ``worlds`` have to be explained at most, and ``operations`` worlds are looked at, for all maps.

    Raises:
        KnowledgeError: what a symbol or field can be cannot be listed.
        BudgetError: there are more worlds or observations than the budget allows.
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
    asked = unit.ask({} if data is None else unit.observed(columns), budget)
    if not asked.variables:
        raise KnowledgeError(
            "nothing here is learned: every predicate is closed and there is no function into a finite sort, or the "
            "knowledge is always true, or never; shortcuts are about what networks say"
        )
    variables = _variables(kb, asked.variables)
    right: list[Tensor] = []
    if data is None:
        worlds, numbers = asked.holding(budget.worlds)
        right = _by_observation(worlds, numbers)
    else:
        worlds, numbers = _occurring(asked, kb, variables, columns)
        if math.prod(asked.sizes) <= budget.worlds:  # what is right does not depend on what else occurs
            every, which = asked.holding(budget.worlds)
            occurs = torch.isin(which, numbers)
            right = _by_observation(every[occurs], which[occurs])
    scenes: list[tuple[Tensor, Explains]] = [(worlds, lambda taken, rows: asked.holds(taken, numbers[rows]))]
    parts_of = [variables]
    for about in unit.fact_scenes():
        labelled = about.ask({}, budget)
        if labelled.variables:
            known, which = labelled.holding(budget.worlds)
            scenes.append((known, _keeps(labelled, which)))
            parts_of.append(_variables(kb, labelled.variables))
    return search(parts_of, scenes, right, show, limit, joint, budget)


def _by_observation(worlds: Tensor, numbers: Tensor) -> list[Tensor]:
    """The worlds of each observation that has any."""
    order = numbers.argsort(stable=True)
    return [part for part in torch.split(worlds[order], numbers.bincount().tolist()) if len(part)]


def _keeps(asked: Asked, numbers: Tensor) -> Explains:
    return lambda taken, rows: asked.holds(taken, numbers[rows])


class _Unit:
    """The smallest piece of data that axioms speak about: one row each, and as many objects as they compare.

    Args:
        kb: the knowledge.
        symbols: what is bound.
        constants: the only objects there are, and no rows; by default all that the axioms name or range over.
    """

    def __init__(self, kb: KnowledgeBase, symbols: dict[str, Any], constants: Sequence[str] = ()) -> None:
        self.kb, self.symbols = kb, symbols
        self.signature = signature = kb.signature
        alone = bool(constants)
        self.axioms = [a for a in kb.axioms if not (alone and self._ranges(a, rows=True))]
        self.counts: dict[str, int] = {}  # of objects and rows, by sort and name
        for axiom in () if alone else self.axioms:
            here = self._ranges(axiom, rows=True) + self._ranges(axiom, rows=False)
            for name in here:
                self.counts[name] = max(here.count(name), self.counts.get(name, 0))
        self.rows = [name for name in self.counts if name not in signature.sorts]
        self.fields: list[tuple[str, str, Sort]] = []  # observed ones
        self.cells: dict[str, dict[str, list[int]]] = {name: {} for name in self.rows}  # objects in rows
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
                    self.cells[name][field] = list(range(start, start + self.counts[name]))
                else:
                    self.fields.append((name, field, sort))
        open_ = {c.name: c.sort for c in signature.constants.values() if c.sort.is_open and c.name not in symbols}
        if not alone:
            used = {n.name for a in self.axioms for n in postorder(a.formula) if isinstance(n, Name)}
            used |= {n for f in kb.facts if signature.predicates[f.atom.name].closed for n in self._named(f)}
            if missing := [n for n, s in open_.items() if n in used and s in (INT, REAL)]:
                raise KnowledgeError(f"the constant {missing[0]} is a number that is not known; bind it in symbols")
            constants = [name for name in open_ if name in used]
        self.constants: dict[str, int] = {}
        for name in constants:
            self.constants[name] = objects.get(open_[name].name, 0)
            objects[open_[name].name] = self.constants[name] + 1
        self.objects = objects
        self.facts = [f for f in kb.facts if self._is_label(f) and self._named(f) <= set(self.constants)]

    def fact_scenes(self) -> list[_Unit]:
        """For each fact about objects that no axiom names: these objects alone, with all that is said of them."""
        groups = dict.fromkeys(
            tuple(sorted(self._named(f))) for f in self.kb.facts if self._is_label(f) and f not in self.facts
        )
        return [_Unit(self.kb, dict(self.symbols), group) for group in groups]

    def _is_label(self, fact: Fact) -> bool:
        return not self.signature.predicates[fact.atom.name].closed and fact.atom.name not in self.symbols

    def _named(self, fact: Fact) -> set[str]:
        """The constants of open sorts in a fact."""
        names = {node.name for node in fact.atom.children if isinstance(node, Name)}
        return {n for n in names if n in self.signature.constants and self.signature.constants[n].sort.is_open}

    def _ranges(self, axiom: Axiom, *, rows: bool) -> list[str]:
        """What the variables of an axiom range over, one for each: rows, or open sorts."""
        found = []
        for node in postorder(axiom.formula):
            for group in node.groups if isinstance(node, Quantifier) else ():
                if rows and isinstance(group.domain, Name):
                    found += [group.domain.name] * len(group.names)
                elif not rows and group.sort and self.signature.sorts[group.sort].is_open:
                    found += [group.sort] * len(group.names)
        return found

    def observed(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The values of observed fields in the data, by the name of the field."""
        if len(self.rows) != 1 or self.counts[self.rows[0]] != 1:
            raise DataError(
                "data are rows, so they need knowledge that begins with 'forall p in rows', one row at a time and "
                f"one kind of rows; this is about {', '.join(self.counts) or 'no rows'}"
            )
        return {field: columns[field] for _, field, _ in self.fields if field in columns}

    def ask(self, observed: Mapping[str, Sequence[Any]], budget: Budget) -> Asked:
        """Every combination of observations, and which worlds are right under it."""
        given = [tuple(row) for row in zip(*observed.values(), strict=True)] if observed else [()]
        compared = compared_values(
            self.axioms, self.signature, given=observed, constants=self.symbols, rows=self.counts
        )
        used = {node.name for axiom in self.axioms for node in postorder(axiom.formula) if isinstance(node, Field)}
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
                choices.append(values)
        labels = [Axiom(str(f), f.atom if f.label else Not(f.atom)) for f in self.facts]
        one_row = len(self.rows) == 1 and self.counts == {self.rows[0]: 1}
        most = budget.worlds if one_row else min(budget.worlds, _APART)
        if (count := math.prod([len(c) for c in choices])) > most:
            raise BudgetError(
                "worlds",
                f"could not decide: there are {count:,} different observations, more than the limit of {most:,}; give "
                "data",
            )
        observations: list[Observation] = []
        for first, *rest in product(*choices):
            seen = {(self.rows[0], name, 0): v for name, v in zip(observed, first, strict=True)}
            observations.append(seen | dict(zip(free, rest, strict=True)))
        return ask(
            self.kb, [*self.axioms, *labels], self.symbols | self.constants, self.objects, self.cells, self.fields,
            self.counts, observations,
        )  # fmt: skip

    def _endless(self, rows: str, field: str, sort: Sort, where: str) -> str:
        name = field.capitalize()
        such = f"such as sort {name} = 0..9" if self.signature.describe(name) is None else "such as 0..9"
        finite = f"declare a finite sort for it, {such}, or " if sort == INT else ""
        return (
            f"{rows}.{field} is {sort.name}, and which of its numbers `{where}` tells apart cannot be listed; {finite}"
            f"give data with a column {field}"
        )


def _variables(kb: KnowledgeBase, names: Sequence[str]) -> list[Variable]:
    """What the variables are called, ``digit(pairs.left)``, says which symbol they are of, and of which objects."""
    found = []
    for variable in names:
        name, _, inside = variable.removesuffix(")").partition("(")
        symbol = kb.signature.predicates.get(name) or kb.signature.functions[name]
        arguments = inside.split(", ") if inside else []
        if len(arguments) != len(symbol.sorts):
            raise KnowledgeError(f"{variable} is drawn more than once; shortcuts need every value to be read once")
        shown = [a if s.values is not None else "_" for s, a in zip(symbol.sorts, arguments, strict=True)]
        title = name if all(a == "_" for a in shown) else f"{name}({', '.join(shown)})"
        values = ("false", "true") if isinstance(symbol, Predicate) else tuple(map(str, symbol.result.values or ()))
        read = tuple((s.name, a) for s, a in zip(symbol.sorts, arguments, strict=True) if s.values is None)
        found.append(Variable(variable, title, read, values))
    return found


def _occurring(
    asked: Asked, kb: KnowledgeBase, variables: Sequence[Variable], columns: Mapping[str, list[Any]]
) -> tuple[Tensor, Tensor]:
    """The worlds of the data, each with the observations that it fits."""
    rows = next(name for name in kb.signature.rows if any(f"({name}." in v.name for v in variables))
    fields = {field for _, field, _ in asked.observations[0]}
    read, used = [], set(fields)
    for variable in variables:
        short = variable.name.replace(f"{rows}.", "").replace(" ", "")
        field = short.partition("(")[2].removesuffix(")")
        alone = sum(v.name.replace(f"{rows}.", "").endswith(f"({field})") for v in variables) == 1
        names = [n for n in (variable.name.replace(" ", ""), short, *([field] if alone else [])) if n in columns]
        if not names:
            raise DataError(
                f"the data have no column for {variable.name}; wanted one named {short}"
                + (f" or {field}" if alone else "")
            )
        used.add(names[0])
        places = {value.lower(): i for i, value in enumerate(variable.values)}
        for line, value in enumerate(columns[names[0]], 1):
            if str(value).strip().lower() not in places:
                raise DataError(
                    f"row {line}, column {names[0]}: {value!r} is no value of {variable.output}; it has "
                    f"{', '.join(variable.values)}"
                )
        read.append([places[str(value).strip().lower()] for value in columns[names[0]]])
    if unknown := sorted(set(columns) - used):
        raise DataError(f"the data have a column {unknown[0]}, which is no concept and is not observed")
    worlds = torch.tensor(read).T
    given = [field for field in fields if field in columns]
    fitting: dict[tuple[Any, ...], list[int]] = {}
    for k, observation in enumerate(asked.observations):
        fitting.setdefault(tuple(observation[rows, field, 0] for field in given), []).append(k)
    seen = list(zip(*[columns[field] for field in given], strict=True)) if given else [()] * len(worlds)
    pairs = [(row, k) for row, values in enumerate(seen) for k in fitting[tuple(values)]]
    row, number = torch.tensor(pairs).T
    right = asked.holds(worlds[row], number)
    explained = torch.zeros(len(worlds), dtype=torch.bool).index_fill(0, row[right], True)
    if not bool(explained.all()):
        line = int((~explained).nonzero()[0])
        shown = ", ".join(f"{name} = {column[line]}" for name, column in columns.items())
        raise DataError(f"row {line + 1} contradicts the knowledge: {shown}")
    occurring = torch.unique(torch.cat([worlds[row], number.unsqueeze(-1)], -1)[right], dim=0)
    return occurring[:, :-1], occurring[:, -1]
