"""The shortcuts of a knowledge base: what its networks may get wrong while all axioms hold."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from doxa.doctor._layout import Layout, fields_of, ranged_rows, ranges
from doxa.doctor._observed import Place, told_apart
from doxa.doctor._right_worlds import Observation, RightWorlds, pose_observations
from doxa.doctor._scenes import Scene, Variable
from doxa.doctor._shortcuts import LIMITS, Search, Shortcuts, by_number
from doxa.errors import BudgetError, ConfigError, DataError, KnowledgeError
from doxa.logic import INT, REAL, Axiom, Call, Fact, Field, KnowledgeBase, Name, Not, Predicate, Sort, postorder
from doxa.logic.bind._bindings import Entries, PythonFunction
from doxa.problem import Budget
from doxa.problem._budget import Meter

_APART = 512  # so many observations are posed one by one, where rows are compared with rows


def knowledge_shortcuts(
    kb: KnowledgeBase,
    *,
    data: Mapping[str, Sequence[Any]] | None = None,
    symbols: Mapping[str, Any] | None = None,
    show: int = 5,
    limit: int = 10_000,
    joint: int = 64,
    length: int = 3,
    budget: Budget = LIMITS,
    seconds: float | None = None,
) -> Shortcuts:
    """Find the maps of concepts under which all axioms still hold, whatever is observed.

    A concept is what networks say of an object: a function into a finite sort, a predicate at its finite arguments, or
    several of them together, for a network sees all of an object. Wherever a concept is read, it is mapped alike.
    Fields that hold numbers or values are observed, and so are closed predicates; facts about other predicates are
    labels, which restrict the maps. Of a field of numbers, every number that the knowledge can compare it with is an
    observation, and all others together are one more (one for each gap between them where their order matters). A map
    α is one under which the networks can never be found out:

        φ(w, y)  ⟹  φ(α(w), y)    for all worlds w and observations y, or for those in the data.

    Where a field is a sequence, rows of every length from 0 to ``length`` are looked at, each with its own objects, and
    the answer says so; with data, rows as long as those. Longer rows can rule out more maps, and never allow more. In a
    row without objects nothing can be mistaken, so it is not among the worlds that are counted.

    Args:
        kb: the knowledge, about single rows of data, objects of open sorts, or finite sorts.
        data: columns of true concepts that occur together, by name: ``digit(left)``, or just ``left`` where one concept
            is read off that field; also observed fields, if they are known. A field that is a sequence has a list in
            each row. By default all worlds in which the knowledge holds.
        symbols: symbols that are not learned, bound as in an :class:`~doxa.logic.Interpretation`.
        show: how many of the simplest shortcuts to list.
        limit: list no more maps than this to count them.
        joint: concepts of one object with more joint values than this are mapped one by one; the answer says so.
        length: of fields that are sequences, at most, where there are no data.
        budget: its ``worlds`` have to be explained at most, and ``operations`` worlds are looked at, for all maps.
        seconds: stop after this time; what is then not known is said to be undecided.

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
    search = Search(show, limit, joint, budget, seconds)
    return search(*knowledge_scenes(kb, search, data=data, symbols=symbols, length=length))


def knowledge_scenes(
    kb: KnowledgeBase,
    search: Search,
    *,
    data: Mapping[str, Sequence[Any]] | None = None,
    observed: Mapping[str, Sequence[Any]] | None = None,
    symbols: Mapping[str, Any] | None = None,
    length: int = 3,
) -> tuple[list[Scene], str]:
    """What has to be explained, and what was assumed for it; of ``observed`` columns only what they hold is observed.

    The first scene is about rows, where there are any and none of their fields is a sequence.
    """
    budget = search.budget
    if length < 0:
        raise ConfigError(f"length is {length}, expected at least 0")
    used = {n.name for axiom in kb.axioms for n in postorder(axiom.formula) if isinstance(n, Call)}
    if defined := sorted(used & kb.signature.definitions.keys()):
        raise KnowledgeError(
            f"could not decide: {defined[0]} is defined, and shortcuts are not looked for behind definitions; write "
            "out what it stands for in the axioms"
        )
    if not kb.axioms:
        raise KnowledgeError("there are no axioms, so nothing is said about any concept, and shortcuts cannot be found")
    bound = dict(symbols or {})
    columns = {name.replace(" ", ""): list(values) for name, values in (data or {}).items()}
    rows = sorted(ranged_rows(*[axiom.formula for axiom in kb.axioms]))
    sequences = [(name, field) for name in rows for field, _, many in fields_of(kb.signature, name) if many]
    assumption = ""
    if data is not None:
        parts = _by_length(columns, sequences)
    else:
        choices = product(range(length, -1, -1), repeat=len(sequences))
        parts = [(dict(zip(sequences, sizes, strict=True)), {}, []) for sizes in choices]
        if sequences:
            where = " and ".join(f"{name}.{field}" for name, field in sequences)
            assumption = f"rows of every length from 0 to {length} occur in {where}, and none longer"
    units = [(_Unit(kb, bound, found[0], search.meter), found) for found in parts]
    single = observed is None and len(units) == 1
    asked = [unit.scene(None if data is None else found, budget, observed, unlisted=single) for unit, found in units]
    scenes = [scene for scene in asked if scene is not None]
    if not scenes:
        raise KnowledgeError(
            "nothing here is learned: every predicate is closed and there is no function into a finite sort, or all "
            "rows are empty, or the knowledge never holds; shortcuts are about what networks say"
        )
    facts = [about.scene(None, budget) for about in units[0][0].fact_scenes()]
    return [*scenes, *[scene._replace(right=()) for scene in facts if scene is not None]], assumption


# Lengths of sequences, the columns of data that have them, and the numbers of these rows.
def known_symbols(kb: KnowledgeBase, symbols: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a task binds, what is not learned: Python functions, tables and numbers; networks are left out.

    >>> from doxa.logic import parse, logits
    >>> kb = parse("sort Digit = 0..9; sort Image; func digit(Image) -> Digit; func next(Digit) -> Digit")
    >>> list(known_symbols(kb, {"digit": logits(torch.nn.Linear(2, 10)), "next": lambda d: (d + 1) % 10}))
    ['next']
    """
    used = {node.name for axiom in kb.axioms for node in postorder(axiom.formula) if isinstance(node, Call)}
    found = {}
    for name, value in symbols.items():
        calls = isinstance(value, PythonFunction) or (callable(value) and not isinstance(value, torch.nn.Module))
        crisp = isinstance(value, Tensor) and not value.is_floating_point()
        if not (calls or crisp or isinstance(value, Entries | Mapping | set | frozenset | int | float | str)):
            continue
        symbol = kb.signature.predicates.get(name) or kb.signature.functions.get(name)
        endless = [s.name for s in symbol.sorts if s.values is None] if symbol is not None and calls else []
        if endless and name in used:
            why = f"{name} is a Python function of {endless[0]}, which cannot be listed, so its values are not known"
            raise KnowledgeError(f"could not decide: {why}; give it arguments of finite sorts")
        if not endless:
            found[name] = value
    return found


_Part = tuple[dict[Place, int], dict[str, list[Any]], list[int]]


def _by_length(columns: dict[str, list[Any]], sequences: Sequence[Place]) -> list[_Part]:
    """The rows of the data that have equally long sequences."""
    count = max([len(column) for column in columns.values()], default=0)
    lengths: list[tuple[int, ...]] = [()] * count
    for rows, field in sequences:
        names = [c for c in columns if re.sub(r".*\(|\)|.*\.", "", c) == field]
        if not names or not all(isinstance(cell, list | tuple | Tensor) for name in names for cell in columns[name]):
            raise DataError(f"{rows}.{field} is a sequence; the data need a column for it, with a list in each row")
        for name in names:
            if [len(cell) for cell in columns[name]] != [len(cell) for cell in columns[names[0]]]:
                raise DataError(f"the columns {names[0]} and {name} have lists of different lengths")
        lengths = [(*so_far, len(cell)) for so_far, cell in zip(lengths, columns[names[0]], strict=True)]
    found = []
    for sizes in sorted(set(lengths), reverse=True) or [(0,) * len(sequences)]:
        lines = [line for line, own in enumerate(lengths) if own == sizes]
        part = {name: [column[line] for line in lines] for name, column in columns.items()}
        found.append((dict(zip(sequences, sizes, strict=True)), part if sequences else columns, lines))
    return found


class _Unit:
    """The smallest piece of data that axioms speak about: one row each, and as many objects as they compare.

    Given ``constants``, these are the only objects, and there are no rows.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        symbols: Mapping[str, Any],
        lengths: Mapping[Place, int],
        clock: Meter,
        constants: Sequence[str] = (),
    ) -> None:
        self.kb, self.symbols, self.clock = kb, symbols, clock
        self.signature = signature = kb.signature
        alone = bool(constants)
        self.axioms = [a for a in kb.axioms if not (alone and ranged_rows(a.formula))]
        self.counts: Counter[str] = Counter()  # of objects and rows that axioms range over, by sort and name
        for axiom in () if alone else self.axioms:
            self.counts |= Counter(self._ranged(axiom))
        rows = {name: count for name, count in self.counts.items() if name not in signature.sorts}
        objects = {name: count for name, count in self.counts.items() if name in signature.sorts}
        self.layout = Layout(signature, rows, objects, lengths)
        open_ = {c.name: c.sort for c in signature.constants.values() if c.sort.is_open and c.name not in symbols}
        if not alone:
            used = {n.name for a in self.axioms for n in postorder(a.formula) if isinstance(n, Name)}
            used |= {n for f in kb.facts if signature.predicates[f.atom.name].closed for n in self._named(f)}
            if missing := [n for n, s in open_.items() if n in used and s in (INT, REAL)]:
                raise KnowledgeError(f"the constant {missing[0]} is a number that is not known; bind it in symbols")
            constants = [name for name in open_ if name in used]
        self.constants: dict[str, int] = {}
        objects = self.layout.objects
        for name in constants:
            self.constants[name] = objects.get(open_[name].name, 0)
            objects[open_[name].name] = self.constants[name] + 1
        self.facts = [f for f in kb.facts if self._is_label(f) and self._named(f) <= set(self.constants)]

    def fact_scenes(self) -> list[_Unit]:
        """For each fact about objects that no axiom names: these objects alone, with all that is said of them."""
        groups = dict.fromkeys(
            tuple(sorted(self._named(f))) for f in self.kb.facts if self._is_label(f) and f not in self.facts
        )
        return [_Unit(self.kb, self.symbols, {}, self.clock, group) for group in groups]

    def _is_label(self, fact: Fact) -> bool:
        return not self.signature.predicates[fact.atom.name].closed and fact.atom.name not in self.symbols

    def _named(self, fact: Fact) -> set[str]:
        """The constants of open sorts in a fact."""
        names = {node.name for node in fact.atom.children if isinstance(node, Name)}
        return {n for n in names if n in self.signature.constants and self.signature.constants[n].sort.is_open}

    def _ranged(self, axiom: Axiom) -> Iterator[str]:
        """The rows and open sorts that an axiom's variables range over, one for each variable."""
        for group in ranges(axiom.formula):
            if isinstance(group.domain, Name):
                yield from [group.domain.name] * len(group.names)
            elif group.sort and self.signature.sorts[group.sort].is_open:
                yield from [group.sort] * len(group.names)

    def scene(
        self,
        data: _Part | None,
        budget: Budget,
        observed: Mapping[str, Sequence[Any]] | None = None,
        *,
        unlisted: bool = False,
    ) -> Scene | None:
        """What has to be explained: the worlds in the data, or all in which the knowledge holds; None if nothing.

        Where they are too many to list, and may be ``unlisted``, the scene has none of them.
        """
        seen = {name: list(column) for name, column in (observed or {}).items()} if data is None else data[1]
        posed = self.posed(self.observed(seen) if data is not None or observed is not None else {}, budget)
        if not posed.sizes and data is None:
            return None
        variables = _variables(self.kb, list(posed.sizes))
        right: list[Tensor] = []
        if data is None:
            try:
                worlds, numbers = posed.all(budget.worlds, self.clock)
            except BudgetError as error:
                if error.field != "worlds" or not unlisted:
                    raise
                none = torch.zeros(0, len(variables), dtype=torch.int64)
                return Scene(variables, none, lambda taken, rows: rows > 0, unlisted=(posed, error))
            right = by_number(worlds, numbers)
        else:
            worlds, numbers = _occurring(posed, next(iter(self.layout.rows)), variables, data)
            if math.prod(posed.sizes.values()) <= budget.worlds:  # what is right does not depend on what else occurs
                every, which = posed.all(budget.worlds, self.clock)
                occurs = torch.isin(which, numbers)
                right = by_number(every[occurs], which[occurs])
        found = Scene(
            variables,
            worlds,
            lambda taken, rows: posed.right(taken, numbers[rows]),
            right,
            numbers,
            posed.observations,
        )
        return found if variables else None

    def observed(self, columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """The values of observed fields in the data, by the name of the field."""
        if list(self.layout.rows.values()) != [1]:
            raise DataError(
                "data are rows, so they need knowledge that begins with 'forall p in rows', one row at a time and "
                f"one kind of rows; this is about {', '.join(self.counts) or 'no rows'}"
            )
        found = {}
        for rows, field in self.layout.observed:
            if field in columns:
                many = (rows, field) in self.layout.lengths
                found[field] = [tuple(cell) if many else cell for cell in columns[field]]
        return found

    def posed(self, observed: Mapping[str, Sequence[Any]], budget: Budget) -> RightWorlds:
        """Every combination of observations, and which worlds are right under it."""
        given = [tuple(row) for row in zip(*observed.values(), strict=True)] if observed else [()]
        layout, known = self.layout, {f: [v for c in cells for v in _cells(c)] for f, cells in observed.items()}
        copies: dict[str, int] = {}
        for rows, field in layout.sorts:
            copies[rows] = max(layout.total(rows, field), copies.get(rows, 1))
        formulas = [axiom.formula for axiom in self.axioms]
        compared, joint = told_apart(formulas, self.signature, given=known, constants=self.symbols, rows=copies)
        used = {node.name for node in postorder(*formulas) if isinstance(node, Field)}
        choices: list[Sequence[Any]] = [list(dict.fromkeys(given))]
        free: list[tuple[tuple[str, str, int], ...]] = []  # what is observed together
        for places, numbers_of in joint:
            free.append(tuple([(rows, field, 0) for rows, field in places]))
            choices.append(numbers_of)
        together = {place for places, _ in joint for place in places}
        for (rows, field), sort in layout.observed.items():
            if field in observed or (rows, field) in together:
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
            for number in range(layout.total(rows, field)):
                free.append(((rows, field, number),))
                choices.append([(value,) for value in values])
        labels = [Axiom(str(f), f.atom if f.label else Not(f.atom)) for f in self.facts]
        one_row = list(self.counts.values()) == [1] and len(layout.rows) == 1
        most = budget.worlds if one_row else min(budget.worlds, _APART)
        if (count := math.prod([len(c) for c in choices])) > most:
            said = f"there are {count:,} different observations, more than the limit of {most:,}"
            raise BudgetError("worlds", f"could not decide: {said}; give data")
        observations: list[Observation] = []
        for first, *rest in product(*choices):
            seen: Observation = {}
            for name, cell in zip(observed, first, strict=True):
                seen |= {(next(iter(layout.rows)), name, i): v for i, v in enumerate(_cells(cell))}
            for own, chosen in zip(free, rest, strict=True):
                seen |= dict(zip(own, chosen, strict=True))
            observations.append(seen)
        axioms = [*self.axioms, *labels]
        bound = {**self.symbols, **self.constants}
        return pose_observations(self.kb, axioms, bound, layout, observations, clock=self.clock, one_row=one_row)

    def _endless(self, rows: str, field: str, sort: Sort, where: str) -> str:
        name = field.capitalize()
        such = f"such as sort {name} = 0..9" if self.signature.describe(name) is None else "such as 0..9"
        finite = f"declare a finite sort for it, {such}, or " if sort == INT else ""
        unlisted = [f.name for f in self.signature.functions.values() if f.result == INT and f"{f.name}(" in where]
        known = [
            f"; if {f} is not learned, let it yield a finite sort, and bind it: symbols={{{f!r}: …}}" for f in unlisted
        ]
        return (
            f"{rows}.{field} is {sort.name}, and which of its numbers `{where}` tells apart cannot be listed; {finite}"
            f"give data with a column {field}{''.join(known[:1])}"
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


def _cells(cell: Any) -> Sequence[Any]:
    """What stands in a cell: a sequence, or one value."""
    return tuple(cell) if isinstance(cell, list | tuple | Tensor) else (cell,)


def _occurring(posed: RightWorlds, rows: str, variables: Sequence[Variable], data: _Part) -> tuple[Tensor, Tensor]:
    """The worlds of the data, each with the observations that it fits."""
    _, columns, lines = data
    fields = {field for _, field, _ in posed.observations[0]}
    read, used = [], set(fields)
    for variable in variables:
        name, element = _column(rows, variable, variables, columns)
        used.add(name)
        cells = columns[name] if element is None else [cell[element] for cell in columns[name]]
        read.append([_place(variable, name, line, cell) for line, cell in zip(lines, cells, strict=True)])
    if variables and (unknown := sorted(set(columns) - used)):
        raise DataError(f"the data have a column {unknown[0]}, which is no concept and is not observed")
    worlds = torch.tensor(read).T if read else torch.zeros(len(lines), 0, dtype=torch.int64)
    given = [field for field in fields if field in columns]
    fitting: dict[tuple[Any, ...], list[int]] = {}
    for k, observation in enumerate(posed.observations):
        key = tuple(tuple(v for (_, f, _), v in observation.items() if f == field) for field in given)
        fitting.setdefault(key, []).append(k)
    seen = list(zip(*[map(_cells, columns[field]) for field in given], strict=True)) if given else [()] * len(worlds)
    pairs = [(row, k) for row, values in enumerate(seen) for k in fitting[tuple(values)]]
    row, number = torch.tensor(pairs).T
    right = posed.right(worlds[row], number)
    explained = torch.zeros(len(worlds), dtype=torch.bool).index_fill(0, row[right], True)
    if not bool(explained.all()):
        line = int((~explained).nonzero()[0])
        shown = ", ".join(f"{name} = {column[line]}" for name, column in columns.items())
        raise DataError(f"row {lines[line] + 1} contradicts the knowledge: {shown}")
    occurring = torch.unique(torch.cat([worlds[row], number.unsqueeze(-1)], -1)[right], dim=0)
    return occurring[:, :-1], occurring[:, -1]


def _place(variable: Variable, column: str, line: int, value: Any) -> int:
    """The number of a value."""
    places = {known.lower(): i for i, known in enumerate(variable.values)}
    if (said := str(value).strip().lower()) not in places:
        known = ", ".join(variable.values)
        raise DataError(f"row {line + 1}, column {column}: {value!r} is no value of {variable.output}; it has {known}")
    return places[said]


def _column(
    rows: str, variable: Variable, variables: Sequence[Variable], columns: Mapping[str, list[Any]]
) -> tuple[str, int | None]:
    """The column of the data with a variable, and which element: ``digit(images[2])`` is in ``digit(images)``."""
    full, short, field, element = _read_off(rows, variable)
    alone = len({v.output for v in variables if _read_off(rows, v)[2] == field}) == 1
    for name in (full, short, *([field] if alone else [])):
        if name in columns:
            return name, element
    wanted = f"wanted one named {short}" + (f" or {field}" if alone else "")
    raise DataError(f"the data have no column for {variable.name}; {wanted}")


def _read_off(rows: str, variable: Variable) -> tuple[str, str, str, int | None]:
    """The name of a variable, in full and without the rows; the field it is read off, and which element of it."""
    full = variable.name.replace(" ", "")
    element = None if "," in full else re.fullmatch(r"(.*)\[(\d+)\]\)", full)
    full = f"{element[1]})" if element else full
    short = full.replace(f"{rows}.", "")
    return full, short, short.partition("(")[2].removesuffix(")"), int(element[2]) if element else None
