"""The instances of an axiom: which there are, which look alike, and what is certain of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Call, Expr, Field, Implies, Name, Quantifier, postorder
from doxa.logic.bind._interpretation import row_names
from doxa.logic.syntax._binders import Group, first_forall
from doxa.pose._beliefs import given_values
from doxa.pose._data import CallData
from doxa.pose._references import Cell, Indexed, Instances, Own, Question, Row
from doxa.pose._template import Template
from doxa.pose._values import InstanceValues
from doxa.pose._variables import UNDEFINED

__all__ = ["Asked", "Decided", "Open", "Poser", "decide", "undefined"]

TEMPLATES = 256
"""Cache size: templates of one axiom."""


class Asked(NamedTuple):
    """The instances of an axiom: how they are laid out, which a guard lets through, and which look alike."""

    shape: tuple[int, ...]
    passes: Tensor
    variables: tuple[str, ...]
    joint: bool
    parts: list[tuple[Instances, Template, Tensor]]


class Open(NamedTuple):
    """Instances of one template that networks decide: which they are, what is given, and what is observed."""

    instances: Instances
    template: Template
    places: Tensor
    given: Tensor
    observed: Tensor


Decided = tuple[Tensor, dict[tuple[str, str], set[Any]], list[Open]]
"""Which instances certainly hold, the values of terms that a field equals, and what networks decide."""


class _Question(NamedTuple):
    """Instances, the variables that are bound in each, how many rows of its own an instance has, and what is asked."""

    instances: Instances
    scope: dict[str, Any]
    rows_of: dict[str, int]
    formula: Expr


class Poser:
    """Poses one axiom; keeps what instances that look alike have in common."""

    def __init__(self, axiom: Axiom, whole: bool, limit: int) -> None:
        self.limit, self.formula = limit, axiom.formula
        outermost = first_forall(axiom.formula)
        self.whole = whole or outermost is None
        self.groups: list[Group] = [] if outermost is None else list(outermost.groups)
        self.body, self.guard = (axiom.formula, None) if outermost is None else (outermost.body, outermost.guard)
        self.rows = row_names([axiom.formula])
        self._templates: dict[Any, list[Template]] = {}
        self._seen: dict[Any, Any] = {}

    def __call__(self, axiom: Axiom, read: CallData, generator: torch.Generator | None) -> Asked:
        """The instances of the axiom, by template; no network runs."""
        if self.whole:
            return self._as_whole(read)
        instances, scope, shape, left = self._instances(read, generator)
        body, guard = self.body, self.guard
        passes = torch.ones(instances.count, dtype=torch.bool)
        if left:
            body = Quantifier("forall", left, body, guard=guard)
        elif guard is not None and self._is_crisp(guard, read):
            asked = self._by_template(read, _Question(instances, scope, {}, guard), passes)
            passes = decide(axiom, read, Asked(shape, passes, (), False, asked))[0]
        elif guard is not None:
            body = Implies(guard, body)
        parts = self._by_template(read, _Question(instances, scope, {}, body), passes)
        return Asked(shape, passes, tuple(scope), False, parts)

    def _is_crisp(self, formula: Expr, read: CallData) -> bool:
        return all(read.is_crisp(node.name) for node in postorder(formula) if isinstance(node, Call))

    # -- instances --------------------------------------------------------------------------------------------------

    def _instances(
        self, read: CallData, generator: torch.Generator | None
    ) -> tuple[Instances, dict[str, Any], tuple[int, ...], list[Group]]:
        """One instance for each choice of the variables of the outermost ``forall``; and groups that stay inside."""
        found, flat = Instances(1, {}, {}), False
        sizes: list[int] = []
        scope: dict[str, Any] = {}
        left = list(self.groups)
        while left:
            group = left[0]
            cell = self._sequence(group.domain, scope)
            members = None if cell is not None else self._members(read, group, generator)
            if cell is None and members is None:
                break
            left.pop(0)
            for name in group.names:
                if members is not None:
                    lengths = torch.full((found.count,), len(members))
                    sizes.append(len(members))
                elif cell is not None and (known := read.length(cell, found)) is not None:
                    lengths, flat = known.cpu(), True
                else:
                    raise KnowledgeError(f"variables cannot range over {group.domain}: it is no sequence")
                before = torch.arange(found.count).repeat_interleave(lengths)
                index = torch.arange(len(before)) - (lengths.cumsum(0) - lengths)[before]
                found = found.select(before)
                if cell is not None:
                    found.own[name] = index
                    scope[name] = Cell(cell.row, cell.field, (*cell.path, name))
                    continue
                assert members is not None
                if group.sort is not None:
                    found.own[name] = members[index]
                    sort = read.batch.signature.sorts[group.sort]
                    scope[name] = (group.sort, Indexed(0, name)) if sort.values is None else Own(name, sort)
                else:
                    over = str(_rows_of(group))
                    columns = [found.rows[over]] if over in found.rows else []
                    found.rows[over] = torch.cat([*columns, members[index].unsqueeze(1)], 1)
                    scope[name] = Row(over, found.rows[over].shape[1] - 1)
        return found, scope, (found.count,) if flat else tuple(sizes), left

    @staticmethod
    def _sequence(domain: Expr | None, scope: Mapping[str, Any]) -> Cell | None:
        """The field of a row that variables range over, as in ``x in s.objects``."""
        if isinstance(domain, Field) and isinstance(domain.children[0], Name):
            row = scope.get(domain.children[0].name)
            return Cell(row, domain.name) if isinstance(row, Row) else None
        return None

    @staticmethod
    def _members(read: CallData, group: Group, generator: torch.Generator | None) -> Tensor | None:
        """The indices of what a group ranges over; None if that depends on other variables."""
        if group.sort is not None:
            sort = read.batch.signature.sorts[group.sort]
            size = read.batch.objects(group.sort).size if sort.values is None else len(sort.values)
        elif (over := _rows_of(group)) is not None:
            size = read.batch.row_set(over).size
        else:
            return None
        if group.sample is not None and group.sample < size:
            device = generator.device if generator is not None else None
            read.looked = True
            return torch.randperm(size, generator=generator, device=device)[: group.sample].cpu()
        return torch.arange(size)

    # -- problems ---------------------------------------------------------------------------------------------------

    def _by_template(
        self, read: CallData, asked: _Question, passes: Tensor
    ) -> list[tuple[Instances, Template, Tensor]]:
        """The instances by template, with where they are among all of them."""
        left = passes.nonzero().squeeze(1)
        key = (asked.formula, tuple(asked.scope.items()), tuple(sorted(asked.rows_of.items())), read.batch.schema)
        known = self._templates.setdefault(key, [])
        everyone = asked.instances.select(left)
        found = []
        for template in list(known):
            if not len(left):
                break
            instances = asked.instances.select(left)
            fits = template.matches(read, instances)
            if not fits.any():
                continue
            instances = instances.select(fits.nonzero().squeeze(1))
            if not template.covers(read, instances):
                known.remove(template)
                continue
            found.append((instances, template, left[fits]))
            left = left[~fits]
        while len(left):
            instances = asked.instances.select(left)
            first = instances.select(torch.zeros(1, dtype=torch.int64))
            values = InstanceValues(read, first, everyone, asked.rows_of, self._seen, self.limit)
            template = values.unfold(asked.formula, asked.scope)
            known.append(template)
            if len(known) > TEMPLATES:
                del known[0]
            fits = template.matches(read, instances)
            found.append((instances.select(fits.nonzero().squeeze(1)), template, left[fits]))
            left = left[~fits]
        return sorted(found, key=lambda part: int(part[2][0]))  # whatever earlier calls have met

    # -- everything together ----------------------------------------------------------------------------------------

    def _as_whole(self, read: CallData) -> Asked:
        """The parts of an axiom that share no variable, so that their probabilities may be multiplied.

        Where the axiom does not go row by row, or object by object of an open sort, the only part is everything.
        """
        over = _row_by_row(self.formula)
        questions = [_Question(Instances(1, {}, {}), {}, {}, self.formula)]
        if over is not None and (over.sort is None or read.batch.signature.sorts[over.sort].values is None):
            questions = self._components(read, over)
        parts, count = [], 0
        for asked in questions:
            everyone = torch.ones(asked.instances.count, dtype=torch.bool)
            parts += [(of, template, at + count) for of, template, at in self._by_template(read, asked, everyone)]
            count += asked.instances.count
        return Asked((), torch.ones(count, dtype=torch.bool), (), True, parts)

    def _components(self, read: CallData, over: Group) -> list[_Question]:
        """As few rows in each part as can be."""
        count = (
            read.batch.row_set(over.domain.name).size
            if isinstance(over.domain, Name)
            else read.object_count(str(over.sort))
        )
        alone = self._of_rows(over, torch.arange(count).unsqueeze(1))
        instance, variable = self._occurrences(
            read, self._by_template(read, alone, torch.ones(count, dtype=torch.bool))
        )
        shared = _repeated(variable)
        if not len(shared):
            return [alone]
        sizes: dict[int, list[list[int]]] = {}
        for rows in _joined(count, instance[shared].tolist(), variable[shared].tolist()):
            sizes.setdefault(len(rows), []).append(rows)
        return [self._of_rows(over, torch.tensor(rows)) for rows in sizes.values()]

    def _of_rows(self, over: Group, rows: Tensor) -> _Question:
        """Parts of some rows each, ``(parts, rows)``, or of some objects each."""
        if (name := _rows_of(over)) is not None:
            return _Question(Instances(len(rows), {name: rows}, {}), {}, {name: rows.shape[1]}, self.formula)
        sort = str(over.sort)
        own = {f"{sort}{i}": column for i, column in enumerate(rows.unbind(1))}
        return _Question(Instances(len(rows), {}, own), {}, {sort: rows.shape[1]}, self.formula)

    def _occurrences(
        self, read: CallData, parts: Sequence[tuple[Instances, Template, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Which world variables occur in which instances: pairs of an instance and a number of a variable."""
        atoms: dict[Any, list[tuple[Question, Tensor]]] = {}
        for instances, template, at in parts:
            for variable in template.posed.world:
                symbol, args, fresh = variable.key
                if fresh is None:
                    atoms.setdefault(symbol, []).append(((args, instances, template.references), at))
        pairs: list[tuple[Tensor, Tensor]] = []
        first = 0
        for symbol, found in atoms.items():
            numbers = read.number_of(symbol, [question for question, _ in found])
            pairs += [(at, first + number) for (_, at), number in zip(found, numbers, strict=True)]
            first += max([int(n.max()) + 1 for n in numbers if len(n)], default=0)
        if not pairs:
            return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        together = torch.unique(torch.stack([torch.cat(column) for column in zip(*pairs, strict=True)]), dim=1)
        return together[0], together[1]


def decide(axiom: Axiom, read: CallData, asked: Asked) -> Decided:
    """Which instances certainly hold, the values of fields, and the instances that networks decide."""
    holds = torch.ones(len(asked.passes), dtype=torch.bool)
    uncertain = []
    field_values: dict[tuple[str, str], set[Any]] = {}
    for instances, template, at in asked.parts:
        posed = template.posed
        for place, output in zip(posed.described[2], posed.outputs, strict=True):
            if place is not None:
                field_values.setdefault(place, set()).update(output.values)
        if posed.problem is None:
            if posed.certain is UNDEFINED:
                raise undefined(axiom)
            holds[at] = bool(posed.certain)
            continue
        given = given_values(read, posed.given, instances, template.references)
        observed = torch.ones(instances.count, len(posed.outputs), dtype=torch.int64)
        possible = torch.ones(instances.count, dtype=torch.bool)
        for i, output in enumerate(posed.outputs):
            if output.given is not None:
                (found,) = given_values(read, [output.given], instances, template.references).unbind(1)
                possible &= found < len(output.values)
                observed[:, i] = found.clamp(max=len(output.values) - 1)
        if not posed.world:  # what is given decides
            outputs = posed.problem(torch.zeros(instances.count, 1, dtype=torch.int64), given)
            for i, output in enumerate(posed.outputs):
                if output.values[-1] is UNDEFINED and bool((outputs[:, i] == len(output.values) - 1).any()):
                    raise undefined(axiom)
            holds[at] = possible & (outputs == observed).all(-1)
            continue
        holds[at] = False
        if not bool(possible.all()):
            where = possible.nonzero().squeeze(1)
            instances, given, observed, at = instances.select(where), given[where], observed[where], at[where]
        if len(at):
            uncertain.append(Open(instances, template, at, given, observed))
    return holds, field_values, uncertain


def undefined(axiom: Axiom) -> KnowledgeError:
    """The error for an axiom some term of which may have no value."""
    return KnowledgeError(
        f"axiom {axiom.name!r}, {axiom.formula}: some term has no value in a world of positive probability, such as a "
        "quotient by zero, a function outside its table, or an index outside its sequence; keep it away from there "
        "with a guard, as in 'where d != 0'"
    )


def _rows_of(group: Group) -> str | None:
    """The rows that a group ranges over."""
    return group.domain.name if isinstance(group.domain, Name) else None


def _row_by_row(formula: Expr) -> Group | None:
    """What a formula ranges over with its first variable and nowhere else: rows, or an open sort."""
    outermost = first_forall(formula)
    if outermost is None:
        return None
    group = outermost.groups[0]
    if len(group.names) > 1 or group.sample is not None or not isinstance(group.domain, Name | None):
        return None
    over = (group.sort, group.domain)
    every = [g for node in postorder(formula) if isinstance(node, Quantifier) for g in node.groups]
    return group if [(g.sort, g.domain) for g in every].count(over) == 1 else None


def _repeated(variable: Tensor) -> Tensor:
    """The places of the variables that are in more than one instance."""
    return (variable.bincount()[variable] > 1).nonzero().squeeze(1) if len(variable) else variable


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
