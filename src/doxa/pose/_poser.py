"""The instances of an axiom: which there are, which look alike, and what is certain of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa._cache import Cache, for_later
from doxa.errors import KnowledgeError
from doxa.logic import Aggregate, Axiom, Call, Expr, Field, Implies, Name, Quantifier, postorder
from doxa.logic.bind._interpretation import row_names
from doxa.logic.syntax._binders import Group, first_forall
from doxa.logic.syntax._define import Definitions
from doxa.logic.tensor._instances import guarded
from doxa.logic.unfold._definitions import reachable
from doxa.pose._beliefs import given_values
from doxa.pose._data import CallData
from doxa.pose._problem import Template
from doxa.pose._references import Cell, Indexed, Instances, Own, Question, Row, Symbol
from doxa.pose._values import InstanceValues
from doxa.pose._variables import UNDEFINED

FEW = 2**20
"""Up to so many choices of variables are laid out, an axis for each; of more, those that a guard passes are listed."""
TEMPLATES = 256
"""Cache size: templates of one axiom for one schema of data, and such schemas."""
AlikeInstances = tuple[Instances, Template, Tensor]
"""Instances that look alike, their template, and where they are among all instances of the axiom."""
OpenInstances = tuple[AlikeInstances, Tensor, Tensor]
"""Instances that networks decide, what is given, and what is observed."""


class Listed(NamedTuple):
    """What each variable stands for in each instance, int64 ``(instances,)``, and how the guard was joined."""

    columns: dict[str, Tensor]
    plan: str


class AxiomInstances(NamedTuple):
    """The instances of an axiom: how they are laid out, which a guard lets through, and which look alike."""

    shape: tuple[int, ...]
    passes: Tensor
    variables: tuple[str, ...]
    joint: bool
    alike: list[AlikeInstances]
    listed: Listed | None = None
    """What each variable stands for in each instance, where only those are listed that the guard lets through."""


class Decided(NamedTuple):
    """Which instances certainly hold, the values of terms that a field equals, and what networks decide."""

    holds: Tensor
    field_values: dict[tuple[str, str], set[Any]]
    open: list[OpenInstances]


class Poser:
    """Poses one axiom; keeps what instances that look alike have in common."""

    def __init__(self, axiom: Axiom, whole: bool, limit: int) -> None:
        self.limit, self.formula = limit, axiom.formula
        self.first = None if whole else first_forall(axiom.formula)
        self.rows = row_names([axiom.formula])
        self._templates: Cache[Any, list[Template]] = Cache(TEMPLATES)
        self._seen: Cache[Any, Any] = Cache(TEMPLATES)

    def __call__(self, axiom: Axiom, read: CallData, generator: torch.Generator | None) -> AxiomInstances:
        """The instances of the axiom, by template; no network runs."""
        if self.first is None:
            return self._as_whole(read)
        if (listed := self._listed(read, self.first)) is not None:
            return listed
        instances, scope, shape, left = self._instances(read, self.first.groups, generator)
        body, guard = self.first.body, self.first.guard
        passes = torch.ones(instances.count, dtype=torch.bool)
        if left:
            body = Quantifier("forall", left, body, guard=guard)
        elif guard is not None:
            if _is_crisp(read, guard):
                alike = self._by_template(read, guard, instances, scope)
                passes = decide(axiom, read, AxiomInstances(shape, passes, (), False, alike)).holds
            else:
                body = Implies(guard, body)
        alike = self._by_template(read, body, instances, scope, passes=passes)
        return AxiomInstances(shape, passes, tuple(scope), False, alike)

    def _listed(self, read: CallData, first: Quantifier) -> AxiomInstances | None:
        """The instances that a guard lets through, where it is certain and the choices of its variables are many."""
        if first.guard is None or not _is_crisp(read, first.guard):
            return None
        if any(
            isinstance(node, Call) and node.name in read.batch.signature.definitions for node in postorder(first.guard)
        ):
            return None
        sizes: list[int] = []
        for group in first.groups:
            if group.sample is not None or (group.sort is None and _rows_of(group) is None):
                return None
            sizes += [_size(read, group)] * len(group.names)
        if prod(sizes) <= FEW:
            return None
        read.looked = True
        lists, plan = guarded(read.batch, first)
        columns = {name: column.cpu() for name, column in lists.items()}
        count = len(next(iter(columns.values())))
        found, scope = Instances(count, {}, {}), dict[str, Any]()
        for group in first.groups:
            for name in group.names:
                self._bind(read, group, name, columns[name], found, scope)
        passes = torch.ones(count, dtype=torch.bool)
        alike = self._by_template(read, first.body, found, scope)
        return AxiomInstances((count,), passes, tuple(scope), False, alike, Listed(columns, plan))

    def _bind(
        self, read: CallData, group: Group, name: str, index: Tensor, found: Instances, scope: dict[str, Any]
    ) -> None:
        """A variable over a sort or over rows: what it stands for in each instance."""
        if group.sort is not None:
            found.own[name] = index
            sort = read.batch.signature.sorts[group.sort]
            scope[name] = (group.sort, Indexed(0, name)) if sort.values is None else Own(name, sort)
        else:
            over = str(_rows_of(group))
            columns = [found.rows[over]] if over in found.rows else []
            found.rows[over] = torch.cat([*columns, index.unsqueeze(1)], 1)
            scope[name] = Row(over, found.rows[over].shape[1] - 1)

    def _instances(
        self, read: CallData, groups: Sequence[Group], generator: torch.Generator | None
    ) -> tuple[Instances, dict[str, Any], tuple[int, ...], Sequence[Group]]:
        """One instance for each choice of the variables of the outermost ``forall``; and groups that stay inside."""
        found, flat = Instances(1, {}, {}), False
        sizes: list[int] = []
        scope: dict[str, Any] = {}
        for i, group in enumerate(groups):
            cell = _sequence(group.domain, scope)
            members = None if cell is not None else _members(read, group, generator)
            if cell is None and members is None:
                return found, scope, (found.count,) if flat else tuple(sizes), groups[i:]
            for name in group.names:
                if members is not None:
                    lengths = torch.full((found.count,), len(members))
                    sizes.append(len(members))
                elif cell is not None and (known := read.length(cell, found)) is not None:
                    lengths, flat = known, True
                else:
                    raise KnowledgeError(f"variables cannot range over {group.domain}: it is no sequence")
                before = torch.arange(found.count).repeat_interleave(lengths)
                index = torch.arange(len(before)) - (lengths.cumsum(0) - lengths)[before]
                found = found.select(before)
                if members is not None:
                    index = members[index]
                if cell is not None:
                    found.own[name] = index
                    scope[name] = Cell(cell.row, cell.field, (*cell.path, name))
                else:
                    self._bind(read, group, name, index, found, scope)
        return found, scope, (found.count,) if flat else tuple(sizes), ()

    def _by_template(
        self,
        read: CallData,
        formula: Expr,
        every: Instances,
        scope: dict[str, Any],
        rows_of: Mapping[str, int] | None = None,
        passes: Tensor | None = None,
    ) -> list[AlikeInstances]:
        """The instances that pass, by template; ``rows_of`` says how many rows or objects of its own each has."""
        rows_of = rows_of or {}
        left = torch.arange(every.count) if passes is None else passes.nonzero().squeeze(1)
        key = (formula, tuple(scope.items()), tuple(rows_of.items()), read.batch.schema)
        known: list[Template] = self._templates.find(key, list)
        everyone, earlier = every.select(left), list(known)
        found = []
        while len(left):
            instances = every.select(left)
            if made := not earlier:
                first = instances.select(torch.zeros(1, dtype=torch.int64))
                values = InstanceValues(read, first, everyone, rows_of, self._seen, self.limit)
                known.append(for_later(partial(values.unfold, formula, scope)))
                if len(known) > TEMPLATES:
                    del known[0]
            template = known[-1] if made else earlier.pop(0)
            fits = template.matches(read, instances)
            if not fits.any():
                continue
            instances = instances.select(fits.nonzero().squeeze(1))
            if not made and not template.covers(read, instances):
                known.remove(template)
                continue
            found.append((instances, template, left[fits]))
            left = left[~fits]
        return sorted(found, key=lambda alike: int(alike[2][0]))  # whatever earlier calls have met

    # -- everything together ----------------------------------------------------------------------------------------

    def _as_whole(self, read: CallData) -> AxiomInstances:
        """The parts of an axiom that share no variable, so that their probabilities may be multiplied.

        Where the axiom does not go row by row, or object by object of an open sort, the only part is everything.
        """
        over = _row_by_row(self.formula, read.batch.signature.definitions)
        parts: list[tuple[Instances, dict[str, int]]] = [(Instances(1, {}, {}), {})]
        if over is not None and (over.sort is None or read.batch.signature.sorts[over.sort].values is None):
            parts = self._components(read, over)
        alike, count = [], 0
        for instances, rows_of in parts:
            own = self._by_template(read, self.formula, instances, {}, rows_of)
            alike += [(some, template, at + count) for some, template, at in own]
            count += instances.count
        return AxiomInstances((), torch.ones(count, dtype=torch.bool), (), True, alike)

    def _components(self, read: CallData, over: Group) -> list[tuple[Instances, dict[str, int]]]:
        """As few rows in each part as can be: those that share a variable, directly or through others."""
        name = _rows_of(over)
        count = read.object_count(str(over.sort)) if name is None else read.batch.row_set(name).size
        alone = _of_rows(over, torch.arange(count).unsqueeze(1))
        instance, variable = _occurrences(read, self._by_template(read, self.formula, alone[0], {}, alone[1]))
        shared = variable.bincount()[variable] > 1
        if not shared.any():
            return [alone]
        sizes: dict[int, list[list[int]]] = {}
        for rows in _joined(count, instance[shared].tolist(), variable[shared].tolist()):
            sizes.setdefault(len(rows), []).append(rows)
        return [_of_rows(over, torch.tensor(rows)) for rows in sizes.values()]


def _is_crisp(read: CallData, guard: Expr) -> bool:
    """Do tables and functions alone decide a guard, also through definitions?"""
    defined = read.batch.signature.definitions
    calls = [node.name for node in postorder(*reachable([guard], defined)) if isinstance(node, Call)]
    return all(read.is_crisp(name) for name in calls if name not in defined)


def _sequence(domain: Expr | None, scope: Mapping[str, Any]) -> Cell | None:
    """The field of a row that variables range over, as in ``x in s.objects``."""
    if isinstance(domain, Field) and isinstance(domain.children[0], Name):
        row = scope.get(domain.children[0].name)
        return Cell(row, domain.name) if isinstance(row, Row) else None
    return None


def _size(read: CallData, group: Group) -> int:
    """How many objects, values or rows a group ranges over."""
    if group.sort is None:
        return read.batch.row_set(str(_rows_of(group))).size
    sort = read.batch.signature.sorts[group.sort]
    return read.batch.objects(group.sort).size if sort.values is None else len(sort.values)


def _members(read: CallData, group: Group, generator: torch.Generator | None) -> Tensor | None:
    """The indices of what a group ranges over; None if that depends on other variables."""
    if group.sort is None and _rows_of(group) is None:
        return None
    size = _size(read, group)
    if group.sample is not None and group.sample < size:
        device = generator.device if generator is not None else None
        read.looked = True
        return torch.randperm(size, generator=generator, device=device)[: group.sample].cpu()
    return torch.arange(size)


def _of_rows(over: Group, rows: Tensor) -> tuple[Instances, dict[str, int]]:
    """Instances of some rows each, ``(instances, rows)``, or of some objects each; and how many that are."""
    if (name := _rows_of(over)) is not None:
        return Instances(len(rows), {name: rows}, {}), {name: rows.shape[1]}
    sort = str(over.sort)
    own = {f"{sort}{i}": column for i, column in enumerate(rows.unbind(1))}
    return Instances(len(rows), {}, own), {sort: rows.shape[1]}


def _occurrences(read: CallData, alike: Sequence[AlikeInstances]) -> tuple[Tensor, Tensor]:
    """Which world variables occur in which instances: pairs of an instance and a number of a variable."""
    asked: dict[Symbol, list[Question]] = {}
    instances: dict[Symbol, list[Tensor]] = {}
    for some, template, at in alike:
        for variable in template.posed.world:
            symbol, args, fresh = variable.key
            if fresh is None:
                asked.setdefault(symbol, []).append((args, some, template.references))
                instances.setdefault(symbol, []).append(at)
    if not asked:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    places = read.locate(asked).places
    pairs = [torch.stack([torch.cat(instances[symbol]), torch.cat(places[symbol])]) for symbol in asked]
    instance, variable = torch.unique(torch.cat(pairs, 1), dim=1)
    return instance, variable


def decide(axiom: Axiom, read: CallData, asked: AxiomInstances) -> Decided:
    """What is certain of the instances of an axiom, and what networks decide."""
    found = Decided(torch.ones(len(asked.passes), dtype=torch.bool), {}, [])
    for instances, template, at in asked.alike:
        posed = template.posed
        for place, output in zip(posed.described[2], posed.outputs, strict=True):
            if place is not None:
                found.field_values.setdefault(place, set()).update(output.values)
        if posed.problem is None:
            if posed.certain is UNDEFINED:
                raise undefined(axiom)
            found.holds[at] = bool(posed.certain)
            continue
        given = given_values(read, posed.given, instances, template.references)
        observed = torch.ones(instances.count, len(posed.outputs), dtype=torch.int64)
        possible = torch.ones(instances.count, dtype=torch.bool)
        for i, output in enumerate(posed.outputs):
            if output.given is not None:
                (value,) = given_values(read, [output.given], instances, template.references).unbind(1)
                possible &= value < len(output.values)
                observed[:, i] = value.clamp(max=len(output.values) - 1)
        if not posed.world:  # what is given decides
            outputs = posed.problem(torch.zeros(instances.count, 1, dtype=torch.int64), given)
            for i, output in enumerate(posed.outputs):
                if output.values[-1] is UNDEFINED and bool((outputs[:, i] == len(output.values) - 1).any()):
                    raise undefined(axiom)
            found.holds[at] = possible & (outputs == observed).all(-1)
            continue
        found.holds[at] = False
        if not bool(possible.all()):
            where = possible.nonzero().squeeze(1)
            instances, given, observed, at = instances.select(where), given[where], observed[where], at[where]
        if len(at):
            found.open.append(((instances, template, at), given, observed))
    return found


def undefined(axiom: Axiom) -> KnowledgeError:
    """The error for an axiom some term of which may have no value."""
    return KnowledgeError(
        f"axiom {axiom.name!r}, {axiom.formula}: some term has no value in a world of positive probability, such as a "
        "quotient by zero, inf - inf (the min of nothing is inf), a function outside its table, or an index outside "
        "its sequence; keep it away from there with a guard, as in 'where d != 0'"
    )


def _rows_of(group: Group) -> str | None:
    """The rows that a group ranges over."""
    return group.domain.name if isinstance(group.domain, Name) else None


def _row_by_row(formula: Expr, definitions: Definitions) -> Group | None:
    """What a formula ranges over with its first variable and nowhere else: rows, or an open sort."""
    outermost = first_forall(formula)
    if outermost is None:
        return None
    group = outermost.groups[0]
    if len(group.names) > 1 or group.sample is not None or not isinstance(group.domain, Name | None):
        return None
    inside = postorder(*reachable([formula], definitions))
    every = [(g.sort, g.domain) for node in inside if isinstance(node, Quantifier | Aggregate) for g in node.groups]
    return group if every.count((group.sort, group.domain)) == 1 else None


def _joined(count: int, instances: Sequence[int], variables: Sequence[int]) -> list[list[int]]:
    """Instances that share a variable, directly or through others, together."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    holder: dict[int, int] = {}
    for instance, variable in zip(instances, variables, strict=True):
        parent[root(instance)] = root(holder.setdefault(variable, instance))
    together: dict[int, list[int]] = {}
    for i in range(count):
        together.setdefault(root(i), []).append(i)
    return list(together.values())
