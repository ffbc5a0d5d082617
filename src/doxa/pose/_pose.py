"""Posing: from knowledge, an interpretation and data to batches of equal problems."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import Axiom, Call, Expr, Field, Implies, Interpretation, Name, Quantifier, postorder
from doxa.logic.syntax._binders import Group, first_forall
from doxa.pose._beliefs import Arranged, arrange, believed, given_values
from doxa.pose._components import joined, repeated, row_by_row
from doxa.pose._data import CallData, Cell, Indexed, Instances, Own, Question, Row
from doxa.pose._template import Template
from doxa.pose._values import InstanceValues
from doxa.pose._variables import UNDEFINED
from doxa.problem import Belief, Problem

__all__ = ["PosedAxiom", "ProblemBatch", "pose"]

TEMPLATES = 256
"""Cache size: templates of one axiom."""
LIMIT = 1 << 20
"""Joint values of variables that a term may depend on."""


@dataclass(frozen=True, eq=False)
class ProblemBatch:
    """Equal problems of many instances: any engine can be asked how probable it is that the outputs are as observed.

    Attributes:
        problem: what all of them share.
        belief: what networks believe of its world variables, one row for each instance.
        given: what the data decide, int64 ``(instances, G)``; None where the problem has no given variables.
        observed: the outputs under which the axiom holds, int64 ``(instances, Y)``.
        instances: which instances of the axiom these are, int64.
        values: the values of each world variable.
        outputs: the values of each output; the last one may be "undefined".
        fields: the field ``(rows, name)`` that each output is observed from; None where it is none, as for "holds".

    >>> from doxa.problem import parity
    >>> batch = ProblemBatch(parity(2), Belief.uniform((2, 2), batch=(3,)), None, torch.ones(3, 1).long(),
    ...                      torch.arange(3), ((0, 1), (0, 1)), ((False, True),), (None,))
    >>> len(batch.instances)
    3
    """

    problem: Problem
    belief: Belief
    given: Tensor | None
    observed: Tensor
    instances: Tensor
    values: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]
    fields: tuple[tuple[str, str] | None, ...]

    @property
    def partial(self) -> list[int]:
        """The outputs that may have no value."""
        return [i for i, values in enumerate(self.outputs) if values and values[-1] is UNDEFINED]


@dataclass(frozen=True, eq=False)
class PosedAxiom:
    """What an axiom asks about data.

    Attributes:
        axiom: the axiom.
        shape: how many values each variable of its outermost ``forall`` has; the number of instances where later ones
            depend on earlier ones; empty for an axiom that is one event.
        passes: the instances that its guard lets through, bool ``(instances,)``.
        holds: the instances that are certainly true, bool ``(instances,)``; those of the batches are not.
        batches: the problems of all other instances that are not certainly false.
        variables: the variables that make an instance.
        joint: whether the instances are independent parts of one event instead.
        field_values: by rows and field, the values of the terms that the axiom says a field equals.

    >>> import doxa
    >>> kb = doxa.parse("sort Day; pred wet(Day); [dry] forall d: Day. !wet(d)")
    >>> (posed,) = pose(kb.axioms, doxa.Interpretation(kb, wet=torch.tensor([True, False])), dict(Day=2))
    >>> posed.shape, posed.holds
    ((2,), tensor([False,  True]))
    """

    axiom: Axiom
    shape: tuple[int, ...]
    passes: Tensor
    holds: Tensor
    batches: list[ProblemBatch]
    variables: tuple[str, ...]
    joint: bool = False
    field_values: dict[tuple[str, str], set[Any]] = field(default_factory=dict)

    def gather(self, parts: Sequence[Tensor], *, true: float, false: float) -> Tensor:
        """A number for every instance, from those of the batches; ``true`` and ``false`` for those that are certain."""
        if len(parts) == 1 and len(parts[0]) == len(self.holds):
            return parts[0]
        like = parts[0] if parts else torch.zeros(())
        certain = torch.where(self.holds.to(like.device), like.new_tensor(true), like.new_tensor(false))
        if not parts:
            return certain
        places = torch.cat([batch.instances for batch in self.batches]).to(like.device)
        return certain.index_put((places,), torch.cat(list(parts)))


def pose(
    axioms: Iterable[Axiom],
    interpretation: Interpretation,
    data: Mapping[str, Any],
    *,
    whole: bool = False,
    believe: bool = True,
    limit: int = LIMIT,
    generator: torch.Generator | None = None,
) -> list[PosedAxiom]:
    """The problems that axioms pose about data.

    The random variables of a problem are what networks say: a neural function at its arguments, ``digit(p.left)``, is
    one variable with as many values as its sort; a predicate at its arguments is a Boolean one; the values of an
    *exclusive* predicate are one variable together. They are taken to be independent given the data. The same symbol at
    the same objects is the same variable wherever it is written. Objects are the same when they have the same index;
    features in two places of the data are two objects. What the data decide is given to a problem, or observed.

    Instances that look alike share one problem, which is made once: a second call with data of the same form makes
    nothing.

    Args:
        axioms: what to ask.
        interpretation: the meaning of the symbols, which also keeps what was made.
        data: objects of open sorts and rows, by name.
        whole: ask whether each axiom holds as a whole, instead of each choice of the variables of its outermost
            ``forall``. Rows that share no variable are then independent parts of it.
        believe: ask the networks; without, all beliefs are uniform.
        limit: how many joint values of variables a term may depend on.
        generator: draws the objects of ``sample``.

    >>> import doxa
    >>> kb = doxa.parse('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func digit(Image) -> Digit
    ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    ... ''')
    >>> sees = doxa.Interpretation(kb, digit=doxa.logits(lambda image: image))
    >>> pairs = dict(left=torch.randn(8, 10), right=torch.randn(8, 10), sum=torch.arange(8))
    >>> (posed,) = pose(kb.axioms, sees, dict(pairs=pairs))
    >>> (batch,) = posed.batches
    >>> batch.problem, batch.belief
    (Problem(world=(10, 10), output=(19,), factors=2), Belief(batch=(8,), sizes=(10, 10), dtype=torch.float32))
    """
    if torch.compiler.is_compiling():
        raise ConfigError(
            "posing looks at the data, which torch.compile cannot trace; compile the networks instead of the loss, or "
            "use Fuzzy(...), whose loss can be compiled"
        )
    _require_values(interpretation, data)
    axioms = list(axioms)
    plans = interpretation.plans
    posers = []
    for axiom in axioms:
        made = ("pose", axiom.formula, whole, limit)
        if made not in plans:
            plans[made] = _Poser(axiom, interpretation, whole, limit)
        posers.append(plans[made])
    read = CallData(interpretation, data, sorted({name for poser in posers for name in poser.rows}))
    shapes = _shapes(interpretation, data)
    key = ("posed", tuple(posers), shapes)
    plan = plans.get(key) if shapes is not None else None
    if not isinstance(plan, _Plan):
        plan = _Plan([poser.parts(axiom, read, generator) for axiom, poser in zip(axioms, posers, strict=True)])
        if shapes is not None and not read.looked and not _is_passing():
            plans[key] = plan
    decided = plan.decided
    if decided is None:
        read.looked = False
        decided = [_decided(axiom, read, asked) for axiom, asked in zip(axioms, plan.asked, strict=True)]
        if not read.looked and plans.get(key) is plan:
            plan.decided = decided
    open_ = [part for *_, own in decided for part in own]
    beliefs: list[Belief] | list[None] = [None] * len(open_)
    if believe:
        instances = [part.instances for part in open_]
        arranged = plan.arranged
        if arranged is None or not all(map(operator.is_, instances, plan.arranged_for)):
            read.looked = False
            arranged = arrange(read, [(p.template.posed.world, p.instances, p.template.references) for p in open_])
            if not read.looked and plans.get(key) is plan:
                plan.arranged, plan.arranged_for = arranged, instances
        beliefs = believed(read, arranged)
    found, each = [], iter(beliefs)
    for axiom, asked, (holds, field_values, own) in zip(axioms, plan.asked, decided, strict=True):
        batches = [_batch(part, next(each)) for part in own]
        found.append(
            PosedAxiom(axiom, asked.shape, asked.passes, holds, batches, asked.variables, asked.joint, field_values)
        )
    return found


def _require_values(interpretation: Interpretation, data: Mapping[str, Any]) -> None:
    """Refuse fake and meta tensors, which have a shape and no values."""
    fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    given = [v for value in data.values() for v in (value.values() if isinstance(value, Mapping) else (value,))]
    for tensor in (*given, next(interpretation.tensors(), None)):
        fake |= isinstance(tensor, Tensor) and (tensor.is_meta or hasattr(tensor, "fake_mode"))
    if fake:
        raise ConfigError(
            "posing looks at the values of data and networks, which fake and meta tensors do not have; use Fuzzy(...) "
            "or Classical(), which need only shapes, or give real tensors"
        )


def _shapes(interpretation: Interpretation, data: Mapping[str, Any]) -> Any:
    """What is known of data without a look at its values; None where that is no tensors and numbers of objects."""
    found: list[Any] = []
    signature = interpretation.kb.signature
    for name, value in data.items():
        if name in signature.predicates or name in signature.functions:
            return None
        for part, column in value.items() if isinstance(value, Mapping) else [(None, value)]:
            if isinstance(column, Tensor):
                found.append((name, part, column.shape, column.dtype, column.device))
            elif type(column) is int:
                found.append((name, part, column))
            else:
                return None
    if not any(len(each) == 5 for each in found):  # no tensor says where the call is
        found.append(next((t.device for t in interpretation.tensors()), None))
    return tuple(found)


def _is_passing() -> bool:
    """Are tensors made here for this call only: in inference mode, or inside a ``torch.func`` transformation?"""
    return torch.is_inference_mode_enabled() or torch._C._functorch.peek_interpreter_stack() is not None


class _Asked(NamedTuple):
    """The instances of an axiom: how they are laid out, which a guard lets through, and which look alike."""

    shape: tuple[int, ...]
    passes: Tensor
    variables: tuple[str, ...]
    joint: bool
    parts: list[tuple[Instances, Template, Tensor]]


class _Open(NamedTuple):
    """Instances of one template that networks decide: which they are, what is given, and what is observed."""

    instances: Instances
    template: Template
    places: Tensor
    given: Tensor
    observed: Tensor


_Decided = tuple[Tensor, dict[tuple[str, str], set[Any]], list[_Open]]
"""Which instances certainly hold, the values of terms that a field equals, and what networks decide."""


@dataclass
class _Plan:
    """What was decided for data of some shapes. It is kept where shapes alone decide it, step by step.

    Attributes:
        asked: for each axiom its instances.
        decided: for each axiom what is certain and what is open; None where the values of the data say it.
        arranged: where the beliefs about what is open are found; None where the data say it.
        arranged_for: the instances that are then open.
    """

    asked: list[_Asked]
    decided: list[_Decided] | None = None
    arranged: Arranged | None = None
    arranged_for: Sequence[Instances] = ()


def _batch(part: _Open, belief: Belief | None) -> ProblemBatch:
    posed = part.template.posed
    assert posed.problem is not None
    belief = Belief.uniform(posed.problem.world, (len(part.places),)) if belief is None else belief
    device = belief.log_probs.device
    given = part.given.to(device) if posed.given else None
    return ProblemBatch(posed.problem, belief, given, part.observed.to(device), part.places, *posed.described)


class _Question(NamedTuple):
    """Instances, the variables that are bound in each, how many rows of its own an instance has, and what is asked."""

    instances: Instances
    scope: dict[str, Any]
    rows_of: dict[str, int]
    formula: Expr


class _Poser:
    """Poses one axiom; keeps what instances that look alike have in common."""

    def __init__(self, axiom: Axiom, interpretation: Interpretation, whole: bool, limit: int) -> None:
        self.interpretation, self.limit = interpretation, limit
        self.formula = axiom.formula
        outermost = first_forall(axiom.formula)
        self.whole = whole or outermost is None
        self.groups: list[Group] = [] if outermost is None else list(outermost.groups)
        self.over = [g.domain.name if isinstance(g.domain, Name) else None for g in self.groups]
        self.body, self.guard = (axiom.formula, None) if outermost is None else (outermost.body, outermost.guard)
        quantifiers = [n for n in postorder(axiom.formula) if isinstance(n, Quantifier)]
        self.rows = sorted({g.domain.name for q in quantifiers for g in q.groups if isinstance(g.domain, Name)})
        self._templates: dict[Any, list[Template]] = {}
        self._seen: dict[Any, Any] = {}

    def parts(self, axiom: Axiom, read: CallData, generator: torch.Generator | None) -> _Asked:
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
            passes = _decided(axiom, read, _Asked(shape, passes, (), False, asked))[0]
        elif guard is not None:
            body = Implies(guard, body)
        parts = self._by_template(read, _Question(instances, scope, {}, body), passes)
        return _Asked(shape, passes, tuple(scope), False, parts)

    def _is_crisp(self, formula: Expr, read: CallData) -> bool:
        return all(read.is_crisp(node.name) for node in postorder(formula) if isinstance(node, Call))

    # -- instances --------------------------------------------------------------------------------------------------

    def _instances(
        self, read: CallData, generator: torch.Generator | None
    ) -> tuple[Instances, dict[str, Any], tuple[int, ...], list[Group]]:
        """One instance for each choice of the variables of the outermost ``forall``; and groups that stay inside."""
        rows: dict[str, list[Tensor]] = {}
        found, flat = Instances(1, {}, {}), False
        sizes: list[int] = []
        scope: dict[str, Any] = {}
        for number, (group, over) in enumerate(zip(self.groups, self.over, strict=True)):
            cell = self._sequence(group.domain, scope)
            members = None if cell is not None else self._members(read, group, over, generator)
            if cell is None and members is None:
                return (
                    self._laid(found, rows),
                    scope,
                    tuple(sizes) if not flat else (found.count,),
                    self.groups[number:],
                )
            for name in group.names:
                if cell is not None:
                    lengths = read.length(cell, self._laid(found, rows))
                    if lengths is None:
                        raise KnowledgeError(f"variables cannot range over {group.domain}: it is no sequence")
                    lengths = lengths.cpu()
                    before = torch.arange(found.count).repeat_interleave(lengths)
                    index = torch.arange(len(before)) - (lengths.cumsum(0) - lengths)[before]
                    flat = True
                else:
                    assert members is not None
                    before = torch.arange(found.count).repeat_interleave(len(members))
                    index = members.repeat(found.count)
                    sizes.append(len(members))
                rows = {k: [column[before] for column in columns] for k, columns in rows.items()}
                found = Instances(len(before), {}, {k: v[before] for k, v in found.own.items()})
                if cell is not None:
                    found.own[name] = index
                    scope[name] = Cell(cell.row, cell.field, (*cell.path, name))
                elif group.sort is not None:
                    found.own[name] = index
                    sort = read.batch.signature.sorts[group.sort]
                    scope[name] = (group.sort, Indexed(0, name)) if sort.values is None else Own(name, sort)
                else:
                    assert over is not None
                    rows.setdefault(over, []).append(index)
                    scope[name] = Row(over, len(rows[over]) - 1)
        return self._laid(found, rows), scope, (found.count,) if flat else tuple(sizes), []

    @staticmethod
    def _laid(found: Instances, rows: Mapping[str, list[Tensor]]) -> Instances:
        return Instances(found.count, {k: torch.stack(columns, 1) for k, columns in rows.items()}, found.own)

    @staticmethod
    def _sequence(domain: Expr | None, scope: Mapping[str, Any]) -> Cell | None:
        """The field of a row that variables range over, as in ``x in s.objects``."""
        if isinstance(domain, Field) and isinstance(domain.children[0], Name):
            row = scope.get(domain.children[0].name)
            return Cell(row, domain.name) if isinstance(row, Row) else None
        return None

    @staticmethod
    def _members(read: CallData, group: Group, over: str | None, generator: torch.Generator | None) -> Tensor | None:
        """The indices of what a group ranges over; None if that depends on other variables."""
        if group.sort is not None:
            sort = read.batch.signature.sorts[group.sort]
            size = read.batch.objects(group.sort).size if sort.values is None else len(sort.values)
        elif over is not None:
            size = read.row_count(over)
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

    def _as_whole(self, read: CallData) -> _Asked:
        """The parts of an axiom that share no variable, so that their probabilities may be multiplied.

        Where the axiom does not go row by row, or object by object of an open sort, the only part is everything.
        """
        over = row_by_row(self.formula)
        questions = [_Question(Instances(1, {}, {}), {}, {}, self.formula)]
        if over is not None and (over.sort is None or read.batch.signature.sorts[over.sort].values is None):
            questions = self._components(read, over)
        parts, count = [], 0
        for asked in questions:
            everyone = torch.ones(asked.instances.count, dtype=torch.bool)
            parts += [(of, template, at + count) for of, template, at in self._by_template(read, asked, everyone)]
            count += asked.instances.count
        return _Asked((), torch.ones(count, dtype=torch.bool), (), True, parts)

    def _components(self, read: CallData, over: Group) -> list[_Question]:
        """As few rows in each part as can be."""
        count = read.row_count(over.domain.name) if isinstance(over.domain, Name) else read.object_count(str(over.sort))
        alone = self._of_rows(over, torch.arange(count).unsqueeze(1))
        instance, variable = self._occurrences(
            read, self._by_template(read, alone, torch.ones(count, dtype=torch.bool))
        )
        shared = repeated(variable)
        if not len(shared):
            return [alone]
        sizes: dict[int, list[list[int]]] = {}
        for rows in joined(count, instance[shared].tolist(), variable[shared].tolist()):
            sizes.setdefault(len(rows), []).append(rows)
        return [self._of_rows(over, torch.tensor(rows)) for rows in sizes.values()]

    def _of_rows(self, over: Group, rows: Tensor) -> _Question:
        """Parts of some rows each, ``(parts, rows)``, or of some objects each."""
        if isinstance(over.domain, Name):
            name = over.domain.name
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


def _decided(axiom: Axiom, read: CallData, asked: _Asked) -> _Decided:
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
            uncertain.append(_Open(instances, template, at, given, observed))
    return holds, field_values, uncertain


def undefined(axiom: Axiom) -> KnowledgeError:
    """The error for an axiom some term of which may have no value."""
    return KnowledgeError(
        f"axiom {axiom.name!r}, {axiom.formula}: some term has no value in a world of positive probability, such as a "
        "quotient by zero, a function outside its table, or an index outside its sequence; keep it away from there "
        "with a guard, as in 'where d != 0'"
    )
