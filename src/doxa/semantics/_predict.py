"""What a field of rows most likely is: the candidate under which the axioms about it are most true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa import _html
from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.logic import INT, REAL, Axiom, Call, Field, Interpretation, Name, Quantifier, Sort, postorder
from doxa.logic.syntax._binders import Binder, Group, first_forall
from doxa.logic.syntax._tree import fold
from doxa.logic.tensor._plan import TensorPlan
from doxa.pose import pose
from doxa.semantics._semantics import Compiled, Data, Generator, Semantics

VALUE = "value"
LINES = 20
"""So many rows are shown in a notebook."""
Candidates = Sequence[Any] | Tensor | None


class Prediction(NamedTuple):
    """What a field of rows most likely is.

    Attributes:
        values: the best candidate of each row, ``(rows,)``.
        truths: how true the axioms about the field are of each row with each candidate, ``(rows, candidates)``.
        candidates: what the columns stand for; of an enumerated sort, positions in it.

    >>> Prediction(torch.tensor([1]), torch.tensor([[0.2, 0.8]]), torch.tensor([0, 1])).values
    tensor([1])
    """

    values: Tensor
    truths: Tensor
    candidates: Tensor

    def _repr_html_(self) -> str:
        best = self.truths.amax(-1).reshape(-1).tolist()[:LINES]
        rows = [
            (i, v, _html.bar(t)) for i, (v, t) in enumerate(zip(self.values.reshape(-1).tolist(), best, strict=False))
        ]
        left = _html.more(len(rows), self.values.numel(), "rows")
        return _html.box(_html.table(("row", "value", "how true the axioms are"), rows), *left)


def predict(
    interpretation: Interpretation,
    groups: Sequence[tuple[Semantics, tuple[int, ...]]],
    ready: Callable[[Semantics, tuple[int, ...], Sequence[Axiom], str], Compiled],
    target: str,
    values: Candidates,
    generator: Generator,
    data: Data,
) -> Prediction:
    """See :meth:`Model.predict`.

    The field becomes the field of a second set of rows, the candidates: ``forall p in pairs. φ(p, p.sum)`` becomes
    ``forall p in pairs, c in candidates. φ(p, c.value)``, whose truth for each p and c is what is asked for. A network
    that looks at p runs once for p, whatever c is.
    """
    rows, _, field = target.partition(".")
    if not rows or not field or "." in field:
        raise ConfigError(f"the target is {target!r}, expected rows and their field, such as 'pairs.sum'")
    if rows not in data:
        raise BindingError(f"the rows {rows!r} did not come with the data; pass them: {rows}=dict(...)")
    axioms, listed = interpretation.kb.axioms, f"values of {target}"
    about = {i: asking for i, axiom in enumerate(axioms) if (asking := _about(axiom, rows, field, listed))}
    if not about:
        raise KnowledgeError(f"no axiom mentions {target}, so nothing says what it is")
    given = {**data, rows: _without_field(interpretation, rows, field, data[rows])}
    candidates, column = _candidates(interpretation, target, values, [axioms[i] for i in about], given)
    given[listed] = {VALUE: column}
    truths: Tensor | None = None
    spoken = torch.zeros((), dtype=torch.bool)
    for chosen, numbers in groups:
        numbers = tuple([i for i in numbers if i in about])
        if not numbers:
            continue
        asked = [about[i] for i in numbers]
        with torch.no_grad():
            rows_of = ready(chosen, numbers, asked, target).rows(given, generator)
            for axiom, each in zip(asked, rows_of, strict=True):
                truths = each if truths is None else truths * each
                spoken = spoken.to(each.device) | _speaks(axiom, interpretation, given).to(each.device)
    assert truths is not None
    # No axiom speaks of a candidate that guards exclude, so it is none; unless they exclude all candidates of a row.
    truths = truths.masked_fill(~spoken & spoken.any(-1, keepdim=True), 0.0) if spoken.ndim else truths
    return Prediction(candidates.to(truths.device)[truths.argmax(-1)], truths, candidates)


def _speaks(axiom: Axiom, interpretation: Interpretation, data: Data) -> Tensor:
    """Of which rows and candidates an axiom says something: bool ``(rows, candidates)``, or one truth for all.

    Guards about what networks say exclude nothing for certain.
    """
    formula, inner = axiom.formula, axiom.formula
    assert isinstance(formula, Quantifier)
    while isinstance(inner, Quantifier) and inner.kind == "forall" and inner.guard is None:
        inner = inner.body
    guard = inner.guard if isinstance(inner, Quantifier) and inner.kind == "forall" else None
    batch = interpretation.read(data, [g.domain.name for g in formula.groups if isinstance(g.domain, Name)])
    calls = [node.name for node in postorder(guard) if isinstance(node, Call)] if guard is not None else []
    if guard is None or any(batch.meaning(name).returns not in ("bool", "value") for name in calls):
        return torch.ones((), dtype=torch.bool)
    assert isinstance(inner, Quantifier)
    some = guard if inner is formula else Quantifier("exists", inner.groups, guard)
    return TensorPlan(Quantifier("forall", formula.groups, some), interpretation, keep=formula.names)(**data)


def _about(axiom: Axiom, rows: str, field: str, listed: str) -> Axiom | None:
    """The axiom for each row and candidate; None if it does not mention the field."""
    formula, nodes = first_forall(axiom.formula), list(postorder(axiom.formula))
    every = [group for node in nodes if isinstance(node, Binder) for group in node.groups]
    over = [g for g in every if isinstance(g.domain, Name) and g.domain.name == rows]
    bases = [node.children[0] for node in nodes if isinstance(node, Field) and node.name == field]
    mentions = {base.name for base in bases if isinstance(base, Name)} & {n for g in over for n in g.names}
    if not mentions:
        return None
    row = mentions.pop()
    first = () if formula is None else formula.groups
    own = [g for g in first if row in g.names and isinstance(g.domain, Name) and g.domain.name == rows]
    shadowed = sum(row in group.names for group in every) > 1  # a binder inside takes the name for something else
    if formula is None or mentions or not own or shadowed or own[0].sample is not None:
        raise KnowledgeError(
            f"axiom {axiom.name!r} does not speak about {rows}.{field} row by row; to predict it, the axiom would "
            f"begin with 'forall p in {rows}' and mention only the {field} of that p"
        )
    candidate = f"{field} of {row}"
    old, new = Field(Name(row), field), Field(Name(candidate), VALUE)
    others = [
        Group(names, sort=g.sort, domain=g.domain, sample=g.sample)
        for g in formula.groups
        if (names := [n for n in g.names if n != row])
    ]
    body, guard = formula.body, formula.guard
    if others:
        body, guard = Quantifier("forall", others, body, guard=guard), None
    groups = [Group([row], domain=Name(rows)), Group([candidate], domain=Name(listed))]
    asked = Quantifier("forall", groups, body, guard=guard)
    return replace(axiom, formula=fold(lambda node, below: new if node == old else node.with_children(below), asked))


def _without_field(interpretation: Interpretation, rows: str, field: str, given: Any) -> Any:
    """The rows, where a declared field may be missing: what stands there is not looked at."""
    declared = interpretation.kb.signature.rows.get(rows)
    if declared is None or field not in declared.field_names or not isinstance(given, Mapping) or field in given:
        return given
    if not given:
        raise BindingError(f"{rows}: rows need at least one field, got none")
    sort = _sort(interpretation, f"{rows}.{field}")
    count, device = len(next(iter(given.values()))), interpretation.read({}).device
    return {**given, field: torch.zeros(count, dtype=torch.float32 if sort == REAL else torch.int64, device=device)}


def _candidates(
    interpretation: Interpretation, target: str, values: Candidates, axioms: Sequence[Axiom], data: Data
) -> tuple[Tensor, Any]:
    """The candidates as numbers, and as the column of a field."""
    sort = _sort(interpretation, target)
    device = interpretation.read({}).device
    if values is None and sort is not None and sort.values is not None:
        values = list(sort.values)
    if values is None:  # those that a term can have which an axiom says equals the field
        rows, _, field = target.partition(".")
        asked = pose(axioms, interpretation, data, believe=False)
        values = sorted({value for posed in asked for value in posed.field_values.get((rows, field), ())})
        if not values:
            raise ConfigError(
                f"the values that {target} may have are not known; say which, as in predict({target!r}, "
                "values=range(10))"
            )
    if not len(values):
        raise ConfigError(f"values is empty, expected at least one candidate for {target}")
    if isinstance(values, Tensor):
        return values, values.to(device)
    listed = [v.item() if isinstance(v, Tensor) else v for v in values]
    if all(isinstance(v, str) for v in listed):
        names = sort.values if sort is not None and isinstance(sort.values, tuple) else ()
        if unknown := [v for v in listed if v not in names]:
            raise ConfigError(f"{target} cannot be {unknown[0]!r}; expected {', '.join(names) or 'numbers'}")
        return torch.tensor([names.index(v) for v in listed], device=device), listed
    try:
        numbers = torch.tensor(listed, device=device)
    except (TypeError, ValueError):
        raise ConfigError(f"values is {values!r}, expected numbers, true and false, or names of values") from None
    return numbers, numbers


def _sort(interpretation: Interpretation, target: str) -> Sort | None:
    rows, _, field = target.partition(".")
    declared = interpretation.kb.signature.rows.get(rows)
    if declared is None:
        return None
    for name, sort, many in declared.fields:
        if name == field:
            if many or (sort.is_open and sort not in (INT, REAL)):
                raise KnowledgeError(
                    f"{target} holds objects of {sort.name}; only numbers and finite values are predicted"
                )
            return sort
    raise KnowledgeError(f"{rows} has no field {field!r}; declared are {', '.join(declared.field_names)}")
