"""Units of data: the rows and objects that one event is about, many of them at once.

Units that look alike, with as many rows, sequences as long, and objects that are equal to each other in the same
places, are one `Form`: their formula is unfolded once, their problem is planned once, and they are answered in one
batch. What they know and believe differs, and goes into the belief: numbers of the data are variables whose value is
certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot, pad

from doxa._numerics import log1mexp
from doxa.errors import BindingError, KnowledgeError
from doxa.exact import ExactPlan
from doxa.logic import INT, REAL, Function, Interpretation, Predicate, Reading, Sort, readings
from doxa.pose._choices import UNDEFINED, Choice, Choices
from doxa.pose._unfold import Cell, Known, Object, Row
from doxa.problem import Belief, Problem

NEG_INF = float("-inf")


@dataclass(frozen=True)
class Indexed:
    """An object of an open sort by its index, the same in every unit; or, with a name, each unit's own."""

    index: int
    name: str = ""


Reference = tuple[str, Cell | Indexed]
"""How a formula refers to an object: its sort, and where it is found."""


@dataclass(eq=False)
class Units:
    """Many units of one shape: which row each of their rows is, and which object each of their own objects."""

    count: int
    rows: dict[str, Tensor]  # (units, rows of a unit) by name of the rows
    own: dict[str, Tensor]  # (units,) by name of a variable

    def select(self, where: Tensor) -> Units:
        """Some of them."""
        return Units(
            len(where), {k: v[where] for k, v in self.rows.items()}, {k: v[where] for k, v in self.own.items()}
        )


class Data:
    """The data of one call: where objects, numbers and sequences are, for many units at once."""

    def __init__(self, interpretation: Interpretation, data: Mapping[str, Any], rows: Sequence[str]) -> None:
        self.interpretation = interpretation
        self.batch = interpretation.read(data, rows)
        # Rows are read cell by cell; a symbol is told only of objects.
        self.given = {name: value for name, value in data.items() if name not in self.batch.rows}
        self._blocks: dict[tuple[str, Any], tuple[int, Tensor]] = {}
        self._next: dict[str, int] = {}
        self._checked: set[tuple[str, str]] = set()

    def row_count(self, name: str) -> int:
        """How many rows there are of a name."""
        return self.batch.row_set(name).size

    def object_count(self, sort: str) -> int:
        """How many objects a sort has."""
        return self.batch.objects(sort).size if self.batch.has_objects(sort) else 0

    def length(self, cell: Cell, units: Units) -> Tensor | None:
        """How long the sequence in a field is, ``(units,)``; None if it is none."""
        column = self.batch.column(cell.row.rows, cell.field)
        if column.lengths is not None:
            return None if cell.path else column.lengths[self._rows(cell.row, units)]
        if column.values.ndim <= 1 + len(cell.path):
            return None
        return torch.full((units.count,), column.values.shape[1 + len(cell.path)])

    def _rows(self, row: Row, units: Units) -> Tensor:
        return torch.full((units.count,), row.number) if row.fixed else units.rows[row.rows][:, row.number]

    def _places(self, cell: Cell, units: Units) -> Tensor:
        """Where a cell is among the entries of its field, its first axes taken together: ``(units,)``."""
        column = self.batch.column(cell.row.rows, cell.field)
        at = self._rows(cell.row, units)
        if column.starts is not None:
            return column.starts.cpu()[at] + cell.path[0] if cell.path else at
        for axis, i in enumerate(cell.path):
            at = at * column.values.shape[1 + axis] + i
        return at

    def _entries(self, cell: Cell) -> Tensor:
        column = self.batch.column(cell.row.rows, cell.field)
        levels = 1 if column.lengths is not None else 1 + len(cell.path)
        return column.values.flatten(0, levels - 1) if levels > 1 else column.values

    def numbers(self, cell: Cell, units: Units) -> Tensor:
        """The numbers in a field: ``(units,)``."""
        values = self._entries(cell)
        if values.ndim != 1:
            raise BindingError(f"{cell}: a number is needed, but its entries have shape {tuple(values.shape[1:])}")
        self._check_values(cell.row.rows, cell.field)
        return values.cpu()[self._places(cell, units)]

    def _check_values(self, rows: str, field: str) -> None:
        """Refuse a field that holds what is no value of its finite sort."""
        column = self.batch.column(rows, field)
        if (rows, field) in self._checked or column.sort is None or column.sort.values is None:
            return
        self._checked.add((rows, field))
        domain = column.sort.values
        low, high = (domain[0], domain[-1]) if isinstance(domain, range) else (0, len(domain) - 1)
        values = column.values.flatten()
        wrong = (values < low) | (values > high)
        if bool(wrong.any()):
            at = int(wrong.long().argmax())
            raise BindingError(
                f"{rows}.{field}: entry {at} is {values[at].item()}, which is no value of {column.sort.name}"
            )

    def identity(self, reference: Reference, units: Units) -> Tensor:
        """Which object it is, as a number that says which objects are the same: ``(units,)``."""
        sort, at = reference
        if isinstance(at, Indexed):
            return units.own[at.name] if at.name else torch.full((units.count,), at.index)
        values = self._entries(at)
        scalar = values.ndim == 1 and not values.dtype.is_floating_point and values.dtype != torch.bool
        if scalar and self.batch.has_objects(sort):
            found = values.cpu().long()[self._places(at, units)]
            count = self.object_count(sort)
            if ((found < 0) | (found >= count)).any():
                raise BindingError(
                    f"{at}: it holds {found.min().item()} to {found.max().item()}, but {sort} has {count}"
                )
            return found
        return self._block(sort, (at.row.rows, at.field, len(at.path)), values) + self._places(at, units)

    def _block(self, sort: str, key: Any, values: Tensor) -> int:
        """The number of the first of some objects that come with features."""
        if (sort, key) not in self._blocks:
            first = self._next.get(sort, self.object_count(sort))
            self._blocks[sort, key] = (first, values)
            self._next[sort] = first + len(values)
        return self._blocks[sort, key][0]

    def own_constant(self, name: str) -> Reference:
        """A constant of an open sort."""
        sort = self.batch.signature.constants[name].sort.name
        fixed = self.interpretation.constant(name)
        if sort in self.batch.given and fixed is not None and fixed.tensor is not None:
            return sort, Indexed(self._block(sort, ("constant", name), fixed.tensor.unsqueeze(0)))
        return sort, Indexed(self.batch.index_of(name))

    def column(self, sort: str, ids: Tensor) -> Tensor:
        """What a symbol is told of objects: their indices, or their features where some have no index."""
        count = self.object_count(sort)
        if not len(ids) or int(ids.max()) < count:
            return ids.to(self.batch.device)
        last = int(ids[-1])
        blocks = [(first, values) for (of, _), (first, values) in self._blocks.items() if of == sort]
        needed = [(first, values) for first, values in blocks if int(ids[0]) < first + len(values) and first <= last]
        consecutive = last + 1 == int(ids[0]) + len(ids) and bool((ids.diff() == 1).all())
        if consecutive and int(ids[0]) == needed[0][0] and last + 1 == needed[-1][0] + len(needed[-1][1]):
            whole = [values for _, values in needed]  # all objects of some places of the data, in order
            return whole[0] if len(whole) == 1 else torch.cat(whole)
        parts = []
        for (of, _), (first, values) in self._blocks.items():
            inside = (ids >= first) & (ids < first + len(values))
            if of == sort and inside.any():
                parts.append((inside, values.index_select(0, (ids[inside] - first).to(values.device))))
        inside = ids < count
        if inside.any():
            features = self.batch.objects(sort).features
            if features is None:
                raise BindingError(f"{sort}: some of its objects have features and some have none")
            parts.append((inside, features.index_select(0, ids[inside].to(features.device))))
        if len(parts) == 1:
            return parts[0][1]
        order = torch.cat([inside.nonzero().squeeze(1) for inside, _ in parts])
        return torch.cat([values for _, values in parts]).index_select(0, order.argsort().to(self.batch.device))

    def known(self, known: Known, units: Units, form: Form) -> tuple[Tensor, Tensor]:
        """The value of what the data decide, ``(units,)``, and where it has one."""
        if known.op == "cell":
            values = self.numbers(known.args[0], units)
            return values, torch.ones(units.count, dtype=torch.bool)
        if known.op == "call":
            symbol, args = known.args
            column, index = self.tuples(symbol, [args], [(units, form)])
            reading = readings(self.interpretation, {symbol.name: column}, self.given)[symbol.name].values.detach()
            values = reading.cpu()[index[0]] if column else reading.cpu().expand(units.count)
            return values, ~values.isnan() if values.is_floating_point() else values > torch.iinfo(torch.int64).min
        parts = [
            self.known(a, units, form) if isinstance(a, Known) else (torch.as_tensor(a), torch.tensor(True))
            for a in known.args
        ]
        (a, fine), (b, also) = parts
        fine = (fine & also).expand(units.count)
        if known.op in ("//", "mod"):
            fine, b = fine & (b != 0), torch.where(b == 0, torch.ones_like(b), b)
        return _OPERATIONS[known.op](a, b).expand(units.count), fine

    def tuples(
        self, symbol: Predicate | Function, atoms: Sequence[tuple[Any, ...]], groups: Sequence[tuple[Units, Form]]
    ) -> tuple[dict[int, Tensor], list[Tensor]]:
        """The different tuples of objects and numbers that atoms are about, as columns, and where each atom's are."""
        places = [i for i, sort in enumerate(symbol.sorts) if sort.values is None]
        if not places:
            return {}, [
                torch.zeros(units.count, dtype=torch.int64) for _, (units, _) in zip(atoms, groups, strict=True)
            ]
        parts = []
        for args, (units, form) in zip(atoms, groups, strict=True):
            entries = [self._argument(args[i], units, form) for i in places]
            parts.append(torch.stack([e.double() for e in entries], -1))
        together = torch.cat(parts)
        if together.shape[-1] == 1:
            distinct, index = torch.unique(together.squeeze(-1), return_inverse=True)
            distinct = distinct.unsqueeze(-1)
        else:
            distinct, index = torch.unique(together, dim=0, return_inverse=True)
        columns = {}
        for place, values in zip(places, distinct.unbind(-1), strict=True):
            sort = symbol.sorts[place]
            if sort in (INT, REAL):
                columns[place] = (values if sort == REAL else values.long()).to(self.batch.device)
            else:
                columns[place] = self.column(sort.name, values.long())
        return columns, list(torch.split(index, [len(p) for p in parts]))

    def _argument(self, value: Any, units: Units, form: Form) -> Tensor:
        if isinstance(value, Object):
            return self.identity(form.references[value.label], units)
        if isinstance(value, Known):
            found, fine = self.known(value, units, form)
            if not fine.all():
                raise KnowledgeError(f"{value} has no value in some rows; keep it away from there with a guard")
            return found
        return torch.full((units.count,), float(value), dtype=torch.float64)


_OPERATIONS: dict[str, Any] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "//": torch.floor_divide,
    "mod": torch.remainder,
    "=": torch.eq,
    "!=": torch.ne,
    "<": torch.lt,
    "<=": torch.le,
    ">": torch.gt,
    ">=": torch.ge,
}


@dataclass(eq=False)
class Form:
    """What units that look alike have in common, found by unfolding a formula over the first of them (a `Setting`)."""

    data: Data
    first: Units  # one unit
    rows_of: Mapping[str, int]  # how many rows a unit has of its own, by name; all rows of other names
    seen: dict[Known, tuple[Any, ...]]  # values of known numbers in this and earlier data
    everyone: Units
    choices: Choices = field(default_factory=Choices)
    references: list[Reference] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    lengths: dict[Cell, int] = field(default_factory=dict)
    result: Any = None
    problem: Problem | None = None  # None where nothing is uncertain
    plan: ExactPlan | None = None  # made when it is first needed
    partial: bool = False  # whether the result may have no value
    answers: tuple[Any, ...] = ()  # the values of a term, where one is asked for
    _place: dict[Reference, int] = field(default_factory=dict)
    _label: dict[tuple[str, int], int] = field(default_factory=dict)
    _tables: dict[str, Tensor] = field(default_factory=dict)

    def rows(self, name: str) -> list[Row]:
        if name in self.rows_of:
            return [Row(name, i) for i in range(self.rows_of[name])]
        return [Row(name, i, fixed=True) for i in range(self.data.row_count(name))]

    def objects(self, sort: str) -> list[Object]:
        if sort in self.rows_of:
            return [self.refer((sort, Indexed(0, f"{sort}{i}"))) for i in range(self.rows_of[sort])]
        count = self.data.batch.objects(sort).size
        return [self.refer((sort, Indexed(i))) for i in range(count)]

    def constant(self, name: str) -> Any:
        sort = self.data.batch.signature.constants[name].sort
        fixed = self.data.interpretation.constant(name)
        if sort.is_open and sort not in (INT, REAL):
            return self.refer(self.data.own_constant(name))
        if fixed is None:
            raise BindingError(f"the constant {name} has no value; bind it: Interpretation(kb, {name}=...)")
        if sort.values is not None:
            assert fixed.index is not None
            return sort.values[fixed.index]
        assert fixed.tensor is not None
        return fixed.tensor.item()

    def refer(self, reference: Reference) -> Object:
        """The object that a reference means in the first unit, known by the first reference to it."""
        if reference not in self._place:
            here = (reference[0], int(self.data.identity(reference, self.first)))
            self._place[reference] = len(self.references)
            self.labels.append(self._label.setdefault(here, len(self.references)))
            self.references.append(reference)
        return Object(reference[0], self.labels[self._place[reference]])

    def length(self, cell: Cell) -> int | None:
        if cell not in self.lengths:
            found = self.data.length(cell, self.first)
            if found is None:
                return None
            self.lengths[cell] = int(found)
        return self.lengths[cell]

    def sort_of(self, cell: Cell) -> Sort | None:
        return self.data.batch.column(cell.row.rows, cell.field).sort

    def field(self, cell: Cell) -> Any:
        sort = self.sort_of(cell)
        if sort is not None and isinstance(sort.values, tuple):  # names of values, held as positions
            return Choice(
                self.choices.world(("known", Known("cell", (cell,))), range(len(sort.values)), str(cell)).variable,
                sort.values,
            )
        return Known("cell", (cell,))

    def object(self, value: Any, sort: Sort) -> Object:
        return value if isinstance(value, Object) else self.refer((sort.name, value))

    def domain(self, known: Known) -> tuple[Any, ...]:
        if known not in self.seen:
            self.seen[known] = ()
        values, fine = self.data.known(known, self.everyone, self)
        found = set(torch.unique(values[fine]).tolist())
        listed = set(self.seen[known]) - {UNDEFINED}
        more: tuple[Any, ...] = () if bool(fine.all()) and UNDEFINED not in self.seen[known] else (UNDEFINED,)
        self.seen[known] = (*sorted(listed | found), *more)
        return self.seen[known]

    def atom(self, symbol: Predicate | Function, args: tuple[Any, ...], fresh: int | None) -> Any:
        batch, meaning = self.data.batch, self.data.batch.meaning(symbol.name)
        crisp = meaning.returns in ("bool", "value")
        result = symbol.result if isinstance(symbol, Function) else None
        if result is not None and result in (INT, REAL):
            return Known("call", (symbol, args))
        if result is not None and result.values is None:
            raise KnowledgeError(
                f"{symbol.name} yields objects of the open sort {result.name}; exact reasoning needs functions into "
                "finite sorts or numbers"
            )
        if crisp and all(sort.values is not None for sort in symbol.sorts) and symbol.name not in batch.symbols:
            return self._constant(symbol, args)
        name = f"{symbol.name}({', '.join([self._named(a) for a in args])})" if args else symbol.name
        if result is not None:
            assert result.values is not None
            return self.choices.world(("atom", symbol, args, fresh), tuple(result.values), name)
        if getattr(meaning, "exclusive", False):
            last = symbol.sorts[-1]
            if last.values is None:
                raise KnowledgeError(f"{symbol.name}: its last argument must be of a finite sort to be exclusive")
            name = f"{symbol.name}({', '.join([*[self._named(a) for a in args[:-1]], '_'])})"
            which = self.choices.world(("atom", symbol, (*args[:-1], None), fresh), tuple(last.values), name)
            return self.choices.apply(("is", args[-1]), lambda value: value == args[-1], [which])
        return self.choices.world(("atom", symbol, args, fresh), (False, True), name)

    def _constant(self, symbol: Predicate | Function, args: tuple[Any, ...]) -> Any:
        """A table over finite sorts that is bound for good: a value, not a variable."""
        if symbol.name not in self._tables:
            self._tables[symbol.name] = readings(self.data.interpretation, {symbol.name: {}}, {})[symbol.name].values
        place = tuple([_position(s, a) for s, a in zip(symbol.sorts, args, strict=True)])
        found = self._tables[symbol.name][place].item()
        if isinstance(symbol, Predicate):
            return bool(found)
        assert symbol.result.values is not None
        return UNDEFINED if found < 0 else symbol.result.values[int(found)]

    def _named(self, value: Any) -> str:
        if not isinstance(value, Object):
            return str(value)
        at = self.references[value.label][1]
        if isinstance(at, Cell):
            return str(at)
        return at.name or f"{value.sort}#{at.index}"

    def release(self) -> None:
        """Let go of the data, which only unfolding needs."""
        del self.data, self.first, self.everyone

    def covers(self, data: Data, units: Units) -> bool:
        """Do the known numbers of these units lie among the values that the problem was made for?"""
        for world in self.choices.worlds:
            if world.key[0] != "known":
                continue
            values, fine = data.known(world.key[1], units, self)
            listed = [v for v in world.values if v is not UNDEFINED]
            values = values.long() if values.dtype == torch.bool else values
            inside = torch.isin(values, torch.tensor(listed, dtype=values.dtype)) | ~fine
            if not inside.all() or (not fine.all() and UNDEFINED not in world.values):
                return False
        return True

    def matches(self, data: Data, units: Units) -> Tensor:
        """Which units look like this: bool ``(units,)``."""
        fits = torch.ones(units.count, dtype=torch.bool)
        for cell, length in self.lengths.items():
            found = data.length(cell, units)
            fits &= False if found is None else found == length
        ids: dict[str, list[tuple[int, Tensor]]] = {}  # of the different objects so far, by sort
        if not fits.all():  # a reference may lead nowhere in units of another shape
            where = fits.nonzero().squeeze(1)
            return fits.index_put((where,), self.matches(data, units.select(where))) if len(where) else fits
        for i, reference in enumerate(self.references):
            here = data.identity(reference, units)
            others = ids.setdefault(reference[0], [])
            for label, other in others:
                fits &= (here == other) == (label == self.labels[i])
            if self.labels[i] == i:
                others.append((i, here))
        return fits


def _position(sort: Sort, value: Any) -> int:
    assert sort.values is not None
    return sort.values.index(value)


def believe(data: Data, groups: Sequence[tuple[Units, Form]]) -> list[Belief]:
    """What the networks believe about the variables of each form's units; every network runs once."""
    asked: dict[Predicate | Function, list[tuple[int, int, tuple[Any, ...]]]] = {}
    for g, (_, form) in enumerate(groups):
        for w, world in enumerate(form.choices.worlds):
            if world.key[0] == "atom":
                asked.setdefault(world.key[1], []).append((g, w, world.key[2]))
    columns, places = {}, {}
    for symbol, atoms in asked.items():
        columns[symbol.name], places[symbol] = data.tuples(
            symbol, [a for _, _, a in atoms], [groups[g] for g, _, _ in atoms]
        )
    found = readings(data.interpretation, columns, data.given) if columns else {}
    dtype = next((r.values.dtype for r in found.values() if r.values.is_floating_point()), torch.get_default_dtype())
    entries: dict[tuple[int, int], Tensor] = {}
    for symbol, atoms in asked.items():
        exclusive = any(a is None for _, _, args in atoms for a in args)
        table = _log_table(symbol, found[symbol.name], dtype, exclusive)
        if not columns[symbol.name]:
            table = table.unsqueeze(0)
        for (g, w, args), index in zip(atoms, places[symbol], strict=True):
            finite = [(s, a) for s, a in zip(symbol.sorts, args, strict=True) if s.values is not None and a is not None]
            part = table
            for s, a in finite:
                part = part.select(1, _position(s, a))
            entries[g, w] = part.index_select(0, index.to(part.device))
    beliefs = []
    for g, (units, form) in enumerate(groups):
        worlds = form.choices.worlds
        width = max(len(w.values) for w in worlds)
        rows = []
        for w, world in enumerate(worlds):
            row = entries.get((g, w))
            if row is None:
                row = _certain(data, units, form, world.key[1], world.values).to(dtype).to(data.batch.device)
            rows.append(pad(row, (0, width - row.shape[-1]), value=NEG_INF))
        beliefs.append(Belief(torch.stack(rows, -2), tuple([len(w.values) for w in worlds]), validate=False))
    return beliefs


def _certain(data: Data, units: Units, form: Form, known: Known, values: tuple[Any, ...]) -> Tensor:
    """0 for the value that the data decide, -inf for all others: ``(units, values)``."""
    found, fine = data.known(known, units, form)
    found = found.long() if found.dtype == torch.bool else found
    numbers = [v for v in values if v is not UNDEFINED]
    place = torch.full((units.count,), len(values) - 1)
    if numbers:
        listed = torch.tensor(numbers).to(found.dtype)
        place = torch.where(fine, torch.searchsorted(listed, found.contiguous()), place)
    return one_hot(place, len(values)).double().log()


def _log_table(symbol: Predicate | Function, reading: Reading, dtype: torch.dtype, exclusive: bool) -> Tensor:
    """Log-probabilities over the values of a symbol, on the last axis."""
    values, returns = reading.values, reading.returns
    if exclusive:
        return values.to(dtype)
    if isinstance(symbol, Function):
        assert symbol.result.values is not None
        if returns == "value":
            if (values < 0).any():
                raise KnowledgeError(
                    f"{symbol.name} has no value for some objects; keep it away from them with a guard"
                )
            return one_hot(values, len(symbol.result.values)).to(dtype).log()
        if returns == "prob":
            flat = values.reshape(-1, values.shape[-1])
            return Belief.from_probs(flat).log_probs.reshape(values.shape).to(dtype)
        return values.to(dtype)
    if returns == "bool":
        return torch.stack([~values, values], -1).to(dtype).log()
    if returns == "prob":
        return Belief.from_bernoulli(probs=values.reshape(-1)).log_probs.reshape(*values.shape, 2).to(dtype)
    if returns == "logit":
        return torch.stack([logsigmoid(-values), logsigmoid(values)], -1).to(dtype)
    return torch.stack([log1mexp(-values), values], -1).to(dtype)
