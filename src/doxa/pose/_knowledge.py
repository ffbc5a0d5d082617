"""Exact inference for knowledge about data: how probable is it that the rows are as the knowledge says?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact import Budget, ExactPlan, ExactReasoner, plan
from doxa.logic import Axiom, Expr, Group, Implies, Interpretation, KnowledgeBase, Name, Not, Quantifier, postorder
from doxa.pose._choices import UNDEFINED, Choice
from doxa.pose._unfold import Row, Unfolder
from doxa.pose._unit import NEG_INF, Data, Form, Indexed, Units, believe
from doxa.problem import Belief, Impossible, Problem

KEPT = 256
"""So many forms are kept, and the oldest are let go."""


class Asked(NamedTuple):
    """A batch of equal problems that knowledge asks about: any question can be put to them.

    Attributes:
        reasoner: an exact engine; output 1 is that the knowledge holds.
        belief: what is believed of its variables, one row for each unit.
        units: int64, which rows they are, counted over all axes that are kept.

    >>> from doxa.problem import exactly
    >>> from doxa.exact import Enumeration
    >>> Asked(Enumeration(exactly(1, 2)), Belief.uniform((2, 2), batch=(3,)), torch.arange(3)).units
    tensor([0, 1, 2])
    """

    reasoner: ExactReasoner
    belief: Belief
    units: Tensor


@dataclass(frozen=True, eq=False)
class Posed:
    """What knowledge asks about data, before any engine answers.

    Attributes:
        count: how many units there are: rows, or everything as one.
        violated: int64, the units in which the knowledge is certainly false.
        problems: for units that look alike their problem (output 1 is that the knowledge holds), what is believed of
            its variables, one row for each unit, and which units they are. All other units are certainly true.
        values: for each problem, the values of each of its world variables, whose names are in ``problem.names``.
        believed: for each problem, which of these variables something is believed of; the data decide the others.

    >>> Posed(3, torch.tensor([1]), []).violated
    tensor([1])
    """

    count: int
    violated: Tensor
    problems: list[tuple[Problem, Belief, Tensor]]
    values: list[tuple[tuple[Any, ...], ...]] = field(default_factory=list)
    believed: list[tuple[bool, ...]] = field(default_factory=list)


class KnowledgeReasoner:
    """The probability that knowledge is true of data, exactly: weighted model counting, compiled once, run in batches.

        log p(φ) = log Σ_w p(w) [φ holds in w],   p(w) = Π_i p(w_i)

    The random variables w_i are what networks say: a neural function at its arguments, ``digit(p.left)``, is one
    variable with as many values as its sort; a predicate at its arguments is a Boolean one; the values of an
    *exclusive* predicate are one variable together. They are taken to be independent given the data. The same symbol at
    the same objects is the same variable wherever it is written, and is counted once. Objects are the same when they
    have the same index; features in two places of the data are two objects. Numbers in the data are certain.

    With ``keep="p"``, where the knowledge begins with ``forall p in pairs``, every row is asked about on its own:
    ``log_prob`` has one entry per row. Without ``keep`` it is the probability of the whole formula. Rows that share an
    object are then one problem together, and rows that share none are multiplied, which is exact.

    Rows that look alike share one problem: it is planned, or compiled, once, and answered for all of them in one batch.

    Args:
        what: a formula, an axiom, or a knowledge base (all its axioms and facts together).
        interpretation: the meaning of the symbols.
        keep: variables of the outermost ``forall`` to keep as axes of the result.
        impossible: what ``loss`` does where the knowledge cannot hold: "raise", "inf" or "finite".
        budget: what exact reasoning may cost.

    >>> from doxa.logic import log_probs, parse
    >>> kb = parse('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func digit(Image) -> Digit
    ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    ... ''')
    >>> sees = Interpretation(kb, digit=log_probs(lambda image: image))      # these images are their own beliefs
    >>> images = torch.full((4, 10), 0.1).log()
    >>> pairs = dict(left=images[:2], right=images[2:], sum=torch.tensor([0, 9]))
    >>> rows = KnowledgeReasoner(kb["sum"], sees, keep="p")
    >>> rows.log_prob(pairs=pairs).exp()
    tensor([0.0100, 0.1000])
    >>> KnowledgeReasoner(kb["sum"], sees).log_prob(pairs=pairs).exp()       # no image is in both rows
    tensor(0.0010)
    """

    def __init__(
        self,
        what: Expr | Axiom | KnowledgeBase,
        interpretation: Interpretation,
        *,
        keep: str | Sequence[str] = (),
        impossible: Impossible = "raise",
        budget: Budget | None = None,
    ) -> None:
        if impossible not in ("raise", "inf", "finite"):
            raise ConfigError(f"impossible is {impossible!r}, expected 'raise', 'inf' or 'finite'")
        self.interpretation = interpretation
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self.impossible = impossible
        self._options: dict[str, Any] = {"budget": budget}
        self.formulas = _formulas(what)
        if self.keep and len(self.formulas) != 1:
            raise KnowledgeError("keep names variables of one formula; give one axiom instead of a knowledge base")
        self._rows = sorted({g.domain.name for g in _groups(self.formulas) if isinstance(g.domain, Name)})
        self._kept = [_kept(self.formulas[0], name) for name in self.keep]
        self._forms: dict[Any, list[Form]] = {}
        self._seen: dict[Any, Any] = {}

    def log_prob(self, **data: Any) -> Tensor:
        """log p(the knowledge holds), with an axis for each kept variable; -inf with derivative 0 where it cannot.

        Args:
            data: objects of open sorts and rows, by name.
        """
        read = self._read(data)
        if self.keep:
            shape = [self._size(read, group) for group in self._kept]
            return self._answer(read, self._instances(read)).reshape(shape)
        parts = [self._answer(read, asked).sum() for asked in self._components(read)]
        return sum(parts[1:], start=parts[0])

    def loss(self, **data: Any) -> Tensor:
        """-log p(the knowledge holds), with an axis for each kept variable.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("pred rain; pred wet; rain -> wet")
        >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.5)), wet=probs(torch.tensor(0.5)))
        >>> KnowledgeReasoner(kb, seen).loss()
        tensor(0.2877)
        """
        log_prob = self.log_prob(**data)
        if self.impossible == "finite":
            return -log_prob.masked_fill(log_prob == NEG_INF, math.log(torch.finfo(log_prob.dtype).tiny))
        if self.impossible == "raise" and bool((log_prob == NEG_INF).any()):
            rows = [tuple(row.tolist()) for row in (log_prob == NEG_INF).nonzero()[:10]]
            named = f" in rows {', '.join(map(str, rows))}" if self.keep else ""
            raise ProblemError(
                f"the knowledge cannot hold{named}: every world in which it does has probability 0; correct the data, "
                "or for a loss that passes over them say impossible='finite'"
            )
        return -log_prob

    def asked(self, **data: Any) -> list[Asked]:
        """The problems that the kept rows pose, in batches of equal ones, for any other question.

        Rows whose truth is certain pose no problem and are left out.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("sort Day; pred rain(Day); pred wet(Day); forall d: Day. rain(d) -> wet(d)")
        >>> seen = Interpretation(kb, rain=probs(torch.tensor([0.9, 0.1])), wet=probs(torch.tensor([0.2, 0.7])))
        >>> (days,) = KnowledgeReasoner(kb["axiom1"], seen, keep="d").asked(Day=2)
        >>> days.reasoner.explain(days.belief, torch.tensor([1])).worlds.squeeze(1)      # rain, wet: most probably
        tensor([[1, 1],
                [0, 1]])
        """
        if not self.keep:
            raise KnowledgeError("asked tells about rows: say which variable they are, as in keep='p'")
        read = self._read(data)
        found = [(u, f, at) for u, f, at in self._forms_of(read, self._instances(read)) if f.problem is not None]
        beliefs = believe(read, [(u, f) for u, f, _ in found])
        return [Asked(self._planned(f).reasoner, b, at) for (_, f, at), b in zip(found, beliefs, strict=True)]

    def posed(self, **data: Any) -> Posed:
        """The problems of the kept rows, or of everything, as they are before any engine has to solve them.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("sort Day; pred rain(Day); pred wet(Day); forall d: Day. rain(d) -> wet(d)")
        >>> seen = Interpretation(kb, rain=probs(torch.tensor([0.9, 0.1])), wet=torch.tensor([True, True]))
        >>> KnowledgeReasoner(kb["axiom1"], seen, keep="d").posed(Day=2).count
        2
        """
        read = self._read(data)
        asked = self._instances(read) if self.keep else _Instances(Units(1, {}, {}), {}, {}, self.formulas)
        forms = self._forms_of(read, asked)
        uncertain = [(units, form, at) for units, form, at in forms if form.problem is not None]
        beliefs = believe(read, [(units, form) for units, form, _ in uncertain])
        problems = [(f.problem, b, at) for (_, f, at), b in zip(uncertain, beliefs, strict=True) if f.problem]
        violated = [at for _, form, at in forms if form.problem is None and not form.result]
        worlds = [form.choices.worlds for _, form, _ in uncertain]
        crisp = {
            world.key
            for variables in worlds
            for world in variables
            if world.key[0] == "known" or read.batch.meaning(world.key[1].name).returns in ("bool", "value")
        }
        return Posed(
            asked.units.count,
            torch.cat([torch.zeros(0, dtype=torch.int64), *violated]),
            problems,
            [tuple([world.values for world in variables]) for variables in worlds],
            [tuple([world.key not in crisp for world in variables]) for variables in worlds],
        )

    def explain(self, **data: Any) -> str:
        """What is computed for these data, by which engine, and under which assumptions.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("pred rain; pred wet; [wet] rain -> wet")
        >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.5)), wet=probs(torch.tensor(0.5)))
        >>> print(KnowledgeReasoner(kb["wet"], seen).explain())
        rain -> wet
        assumes that rain, wet are independent, given the data; a variable that occurs twice is counted once
        1 problem: Problem(world=(2, 2), output=(2,), factors=...)
        uses Enumeration: 4 worlds in one matrix product
        ...
        """
        read = self._read(data)
        lines = [str(f) for f in self.formulas]
        batches = [self._instances(read)] if self.keep else self._components(read)
        forms = [part for asked in batches for part in self._forms_of(read, asked)]
        worlds = list(dict.fromkeys(w.name for _, f, _ in forms for w in f.choices.worlds if w.key[0] == "atom"))
        shown = ", ".join(worlds[:6]) + (", ..." if len(worlds) > 6 else "")
        lines.append(
            f"assumes that {shown} are independent, given the data; a variable that occurs twice is counted once"
            if worlds
            else "nothing is uncertain"
        )
        if self.keep:
            unit, variable = self._occurrences(read, forms)
            shared = len(torch.unique(variable[_repeated(unit, variable)]))
            product = (
                f"their product is not the probability of all together, for {shared:,} variables are in more than one"
                if shared
                else "their product is the probability of all together, for no variable is in two of them"
            )
            lines.append(f"every {', '.join(self.keep)} has a probability of its own; {product}")
        for units, form, _ in forms:
            many = f"{units.count:,} problems" if units.count != 1 else "1 problem"
            if form.problem is None:
                lines.append(f"{many} without uncertainty: {form.result}")
            else:
                lines.append(f"{many}: {form.problem}")
                lines += self._planned(form).explain().splitlines()[2:]
        return "\n".join(lines)

    # -- units ------------------------------------------------------------------------------------------------------

    def _read(self, data: dict[str, Any]) -> Data:
        return Data(self.interpretation, data, self._rows)

    def _size(self, data: Data, group: Group) -> int:
        if group.sort is None:
            assert isinstance(group.domain, Name)
            return data.row_count(group.domain.name)
        sort = data.batch.signature.sorts[group.sort]
        if sort.values is not None:
            raise KnowledgeError(f"keep: {sort.name} is finite; keep variables over rows or over an open sort")
        return data.batch.objects(group.sort).size

    def _instances(self, data: Data) -> _Instances:
        """One unit for each choice of the kept variables."""
        sizes = [self._size(data, group) for group in self._kept]
        count = math.prod(sizes)
        rows: dict[str, list[Tensor]] = {}
        own: dict[str, Tensor] = {}
        scope: dict[str, Any] = {}
        rest, number = count, torch.arange(count)
        for name, group, size in zip(self.keep, self._kept, sizes, strict=True):
            rest //= max(size, 1)
            index = number // max(rest, 1) % max(size, 1)
            if group.sort is not None:
                own[name] = index
                scope[name] = (group.sort, Indexed(0, name))
            else:
                assert isinstance(group.domain, Name)
                rows.setdefault(group.domain.name, []).append(index)
                scope[name] = Row(group.domain.name, len(rows[group.domain.name]) - 1)
        formulas = [_without(f, set(self.keep)) for f in self.formulas]
        return _Instances(Units(count, {k: torch.stack(v, 1) for k, v in rows.items()}, own), scope, {}, formulas)

    def _forms_of(self, data: Data, asked: _Instances) -> list[tuple[Units, Form, Tensor]]:
        """The units by form, with where they are among all of them."""
        key = (tuple(asked.scope.items()), tuple(sorted(asked.rows_of.items())), data.batch.schema)
        known = self._forms.setdefault(key, [])
        left = torch.arange(asked.units.count)
        found = []
        for form in list(known):
            if not len(left):
                break
            units = asked.units.select(left)
            fits = form.matches(data, units)
            if not fits.any():
                continue
            units = units.select(fits.nonzero().squeeze(1))
            if not form.covers(data, units):
                known.remove(form)
                continue
            found.append((units, form, left[fits]))
            left = left[~fits]
        while len(left):
            form = self._unfold(data, asked, int(left[0]))
            known.append(form)
            if len(known) > KEPT:
                del known[0]
            units = asked.units.select(left)
            fits = form.matches(data, units)
            found.append((units.select(fits.nonzero().squeeze(1)), form, left[fits]))
            left = left[~fits]
        return found

    def _unfold(self, data: Data, asked: _Instances, at: int) -> Form:
        first = asked.units.select(torch.tensor([at]))
        form = Form(data, first, asked.rows_of, self._seen, asked.units)
        unfolder = Unfolder(self.interpretation.kb.signature, form, form.choices)
        scope = {n: v if isinstance(v, Row) else form.refer(v) for n, v in asked.scope.items()}
        self._pose(form, unfolder, asked.formulas, scope)
        form.release()
        return form

    def _pose(self, form: Form, unfolder: Unfolder, formulas: Sequence[Expr], scope: dict[str, Any]) -> None:
        """Unfold what is asked: whether all formulas hold."""
        form.result = unfolder._and([unfolder.formula(f, scope) for f in formulas])
        if form.result is UNDEFINED:
            raise self._undefined()
        if isinstance(form.result, Choice):
            form.problem = form.choices.problem(form.result)

    def _planned(self, form: Form) -> ExactPlan:
        """The plan of a form's problem, made when it is first asked for."""
        if form.plan is None:
            assert form.problem is not None
            form.plan = plan(form.problem, impossible="inf", **self._options)
            form.partial = form.problem.output == (3,) and bool(form.plan.reasoner.possible(torch.tensor([2])))
        return form.plan

    def _answer(self, data: Data, asked: _Instances) -> Tensor:
        """log p of each unit."""
        forms = self._forms_of(data, asked)
        uncertain = [(units, form) for units, form, _ in forms if form.problem is not None]
        beliefs = iter(believe(data, uncertain))
        parts, places = [], []
        for units, form, at in forms:
            if form.problem is None:
                parts.append(torch.full((units.count,), 0.0 if form.result else NEG_INF, device=data.batch.device))
            else:
                belief, reasoner = next(beliefs), self._planned(form).reasoner
                one = torch.ones(1, dtype=torch.int64, device=data.batch.device)
                if form.partial and bool((reasoner.log_prob(belief.detach(), 2 * one) > NEG_INF).any()):
                    raise self._undefined()
                parts.append(reasoner.log_prob(belief, one))
            places.append(at)
        if not parts:
            return torch.zeros(0, device=data.batch.device)
        order = torch.cat(places).argsort().to(data.batch.device)
        dtype = next((p.dtype for p, (_, f, _) in zip(parts, forms, strict=True) if f.problem), parts[0].dtype)
        return torch.cat([p.to(dtype) for p in parts]).index_select(0, order)

    def _undefined(self) -> KnowledgeError:
        return KnowledgeError(
            f"{' and '.join(map(str, self.formulas))}: some term has no value in a world of positive probability, such "
            "as a quotient by zero, a function outside its table, or an index outside its sequence; keep it away from "
            "there with a guard, as in 'where d != 0'"
        )

    # -- everything together ----------------------------------------------------------------------------------------

    def _components(self, data: Data) -> list[_Instances]:
        """Units that share no variable, so that their probabilities may be multiplied: as few rows in each as can be.

        Where the knowledge does not go row by row, or object by object of an open sort, the only unit is everything.
        """
        over = _row_by_row(self.formulas)
        if over is None or (over.sort is not None and data.batch.signature.sorts[over.sort].values is not None):
            return [_Instances(Units(1, {}, {}), {}, {}, self.formulas)]
        count = self._size(data, over)
        alone = self._of_rows(over, torch.arange(count).unsqueeze(1))
        unit, variable = self._occurrences(data, self._forms_of(data, alone)) if count else (torch.zeros(0), None)
        if variable is None or not len(shared := _repeated(unit, variable)):
            return [alone]
        joined = _joined(count, unit[shared].tolist(), variable[shared].tolist())
        sizes: dict[int, list[list[int]]] = {}
        for rows in joined:
            sizes.setdefault(len(rows), []).append(rows)
        return [self._of_rows(over, torch.tensor(rows)) for rows in sizes.values()]

    def _of_rows(self, over: Group, rows: Tensor) -> _Instances:
        """Units of some rows each, ``(units, rows)``, or of some objects each."""
        if over.sort is None:
            assert isinstance(over.domain, Name)
            return _Instances(
                Units(len(rows), {over.domain.name: rows}, {}), {}, {over.domain.name: rows.shape[1]}, self.formulas
            )
        own = {f"{over.sort}{i}": column for i, column in enumerate(rows.unbind(1))}
        return _Instances(Units(len(rows), {}, own), {}, {over.sort: rows.shape[1]}, self.formulas)

    def _occurrences(self, data: Data, forms: Sequence[tuple[Units, Form, Tensor]]) -> tuple[Tensor, Tensor]:
        """Which uncertain variables occur in which units: pairs of a unit and a number of a variable."""
        atoms: dict[Any, list[tuple[Any, tuple[Units, Form], Tensor]]] = {}
        for units, form, at in forms:
            for world in form.choices.worlds:
                kind, symbol, *rest = world.key
                if kind == "atom" and data.batch.meaning(symbol.name).returns not in ("bool", "value"):
                    args, fresh = rest
                    if fresh is None:
                        atoms.setdefault(symbol, []).append((args, (units, form), at))
        pairs: list[tuple[Tensor, Tensor]] = []
        first = 0
        for symbol, found in atoms.items():
            _, places = data.tuples(symbol, [args for args, _, _ in found], [group for _, group, _ in found])
            size = max([int(p.max()) + 1 for p in places if len(p)], default=0)
            numbers: dict[Any, int] = {}  # of the finite arguments
            for (args, _, at), place in zip(found, places, strict=True):
                finite = tuple([a for a, s in zip(args, symbol.sorts, strict=True) if s.values is not None])
                pairs.append((at, first + size * numbers.setdefault(finite, len(numbers)) + place))
            first += size * len(numbers)
        if not pairs:
            return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        together = torch.unique(torch.stack([torch.cat(column) for column in zip(*pairs, strict=True)]), dim=1)
        return together[0], together[1]


class _Instances(NamedTuple):
    """Units, the variables that are bound in each, how many rows of its own a unit has, and what is asked of it."""

    units: Units
    scope: dict[str, Any]
    rows_of: dict[str, int]
    formulas: list[Expr]


def _formulas(what: Expr | Axiom | KnowledgeBase) -> list[Expr]:
    if isinstance(what, KnowledgeBase):
        facts = [f.atom if f.label else Not(f.atom) for f in what.facts]
        found = [a.formula for a in what.axioms] + facts
        if not found:
            raise KnowledgeError("the knowledge base says nothing: it has no axioms and no facts")
        return found
    return [what.formula if isinstance(what, Axiom) else what]


def _groups(formulas: Sequence[Expr]) -> list[Group]:
    return [g for node in postorder(*formulas) if isinstance(node, Quantifier) for g in node.groups]


def _levels(formula: Expr) -> list[Quantifier]:
    """The outermost quantifiers ``forall``, one inside the other."""
    levels = []
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        levels.append(formula)
        formula = formula.body
    return levels


def _kept(formula: Expr, name: str) -> Group:
    """What a variable of the outermost ``forall`` ranges over."""
    for level in _levels(formula):
        for group in level.groups:
            if name in group.names:
                if group.domain is not None and not isinstance(group.domain, Name):
                    raise KnowledgeError(f"keep={name!r}: only variables over rows or over an open sort can be kept")
                return group
    bound = ", ".join([n for level in _levels(formula) for n in level.names]) or "nothing"
    raise KnowledgeError(f"keep={name!r}: the outermost 'forall' of the formula does not bind that; it binds {bound}")


def _without(formula: Expr, keep: set[str]) -> Expr:
    """The formula with some variables of its outermost ``forall`` left free."""
    levels = _levels(formula)
    if not levels:
        return formula
    body = levels[-1].body
    for level in reversed(levels):
        groups = [
            Group(names, sort=g.sort, domain=g.domain, sample=g.sample)
            for g in level.groups
            if (names := [n for n in g.names if n not in keep])
        ]
        if groups:
            body = Quantifier("forall", groups, body, guard=level.guard)
        elif level.guard is not None:
            body = Implies(level.guard, body)
    return body


def _row_by_row(formulas: Sequence[Expr]) -> Group | None:
    """What all formulas range over with their first variable and nowhere else: rows, or an open sort."""
    found: list[Group] = []
    for formula in formulas:
        if not isinstance(formula, Quantifier) or formula.kind != "forall":
            return None
        group = formula.groups[0]
        if len(group.names) > 1 or group.sample is not None or not isinstance(group.domain, Name | None):
            return None
        found.append(group)
    over = (found[0].sort, found[0].domain)
    if any((g.sort, g.domain) != over for g in found):
        return None
    again = [g for g in _groups(formulas) if (g.sort, g.domain) == over]
    return found[0] if len(again) == len({id(f) for f in formulas}) else None


def _repeated(unit: Tensor, variable: Tensor) -> Tensor:
    """The places of the variables that are in more than one unit."""
    return (variable.bincount()[variable] > 1).nonzero().squeeze(1) if len(variable) else variable


def _joined(count: int, units: Sequence[int], variables: Sequence[int]) -> list[list[int]]:
    """Units that share a variable, directly or through others, together."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    holder: dict[int, int] = {}
    for unit, variable in zip(units, variables, strict=True):
        parent[root(unit)] = root(holder.setdefault(variable, unit))
    together: dict[int, list[int]] = {}
    for i in range(count):
        together.setdefault(root(i), []).append(i)
    return list(together.values())
