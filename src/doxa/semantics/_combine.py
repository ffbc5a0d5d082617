"""How axioms and facts are put together: weights, one axiom that says all of them, facts as rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from doxa import _html
from doxa.errors import ConfigError
from doxa.logic import (
    And,
    Axiom,
    Call,
    Expr,
    Fact,
    Field,
    Implies,
    Interpretation,
    KnowledgeBase,
    Name,
    Number,
    Or,
    Sort,
)
from doxa.logic.syntax._binders import Binder, Group, Let, Quantifier, first_forall
from doxa.logic.syntax._tree import fold, postorder


@dataclass(frozen=True, eq=False)
class AxiomLosses:
    """The loss of each axiom, its weight, and all of them together.

    Facts about a predicate that is bound are labels, and stand beside the axioms: ``facts smokes`` and
    ``facts !smokes`` are the losses of those that say true and false, each with the weights of the facts in it.

    Attributes:
        values: the loss of each axiom; with ``reduction="none"``, a tensor of the losses of its instances.
        weights: of the axioms.
        names: of the axioms.

    >>> losses = AxiomLosses((torch.tensor(1.0),), torch.ones(1), ("rule",), torch.tensor(1.0))
    >>> losses.total, losses.by_name()
    (tensor(1.), {'rule': tensor(1.)})
    """

    values: tuple[Tensor, ...]
    weights: Tensor
    names: tuple[str, ...]
    whole: Tensor | None

    @property
    def total(self) -> Tensor:
        """One number to minimise; with ``reduction="none"``, one for each instance, if the axioms have the same."""
        if self.whole is None:
            shapes = ", ".join(str(tuple(loss.shape)) for loss in self.values)
            raise ConfigError(
                f"reduction='none': the axioms have instances of shapes {shapes}, which cannot be added; take "
                "losses(reduction='none').by_name()"
            )
        return self.whole

    def by_name(self) -> dict[str, Tensor]:
        """The loss of each axiom by its name."""
        return dict(zip(self.names, self.values, strict=True))

    def _repr_html_(self) -> str:
        means = [float(v.detach().mean()) if v.numel() else 0.0 for v in self.values]
        top = max([m for m in means if math.isfinite(m)], default=1.0)
        weights = self.weights.detach().tolist()
        rows = [
            (n, _html.bar(m, top, label=f"{m:.4g}"), f"{w:g}")
            for n, m, w in zip(self.names, means, weights, strict=True)
        ]
        whole = (
            []
            if self.whole is None or self.whole.numel() != 1
            else [_html.line(f"total {float(self.whole.detach()):.4g}")]
        )
        return _html.box(_html.table(("axiom", "loss", "weight"), rows), *whole)


def joint_axiom(axioms: Sequence[Axiom], *, guarded: bool = True) -> Axiom:
    """One axiom that says all of them.

    Where all begin with ``forall`` over the same rows or objects, it is the conjunction for each of these: its
    instances are theirs, those that all guards exclude left out if it is ``guarded``. Elsewhere it is one event.
    """
    _require_unweighted(axioms, "combine='joint'")
    firsts = [q for q in [first_forall(row_by_row(axiom).formula) for axiom in axioms] if q is not None]
    over = {tuple([(g.sort, g.domain, len(g.names), g.sample) for g in q.groups]) for q in firsts}
    guards = [q.guard for q in firsts]
    unsaid = not guarded and any(guard is not None for guard in guards)
    if len(over) > 1 or unsaid:  # perhaps the first variable is over the same
        over = {tuple([(g.sort, g.domain, 1, g.sample) for g in q.groups[:1]]) for q in firsts}
        split = [_first_variable(q) for q in firsts if q.groups[0].sample is None]
        firsts, guards = [q for q, _ in split], [guard for _, guard in split]
    elif len(firsts) > 1:
        firsts = [q if q.guard is None else Quantifier("forall", q.groups, Implies(q.guard, q.body)) for q in firsts]
    if len(over) != 1 or len(firsts) < len(axioms):
        return Axiom("joint", axioms[0].formula if len(axioms) == 1 else And(*[a.formula for a in axioms]))
    first = firsts[0]
    names = [f"{name}'" for name in first.names]  # no name of the language ends so

    def all_renamed(parts: Sequence[Expr | None]) -> list[Expr]:
        pairs = zip(firsts, parts, strict=True)
        return [_renamed(part, dict(zip(q.names, names, strict=True))) for q, part in pairs if part is not None]

    bodies, spoken = all_renamed([q.body for q in firsts]), all_renamed(guards)
    guard = None
    if guarded and len(spoken) == len(firsts):  # of what all guards exclude, no axiom speaks
        guard = Or(*spoken) if len(spoken) > 1 else spoken[0]
    fresh = iter(names)
    groups = [
        Group([next(fresh) for _ in g.names], sort=g.sort, domain=g.domain, sample=g.sample) for g in first.groups
    ]
    return Axiom("joint", Quantifier("forall", groups, And(*bodies) if len(bodies) > 1 else bodies[0], guard=guard))


def row_by_row(axiom: Axiom) -> Axiom:
    """The axiom with variables over the objects of a row inside: ``forall s in scenes. forall x in s.objects. …``.

    They are part of the row, which is the instance.
    """
    first = first_forall(axiom.formula)
    groups = [] if first is None else list(first.groups)
    inside = [i for i, g in enumerate(groups) if g.domain is not None and not isinstance(g.domain, Name)]
    if first is None or not inside or not inside[0]:
        return axiom
    body = Quantifier("forall", groups[inside[0] :], first.body, guard=first.guard)
    return replace(axiom, formula=Quantifier("forall", groups[: inside[0]], body))


def _first_variable(quantifier: Quantifier) -> tuple[Quantifier, Expr | None]:
    """The same formula with one quantifier for the first variable, and one inside for the others.

    And what the guard says of the first variable alone.
    """
    first, *rest = quantifier.groups
    if first.names[1:]:
        rest = [Group(first.names[1:], sort=first.sort, domain=first.domain), *rest]
    body, guard = quantifier.body, quantifier.guard
    if rest:
        body = Quantifier("forall", rest, body, guard=guard)
        guard = None if guard is None else Quantifier("exists", rest, guard)
    elif guard is not None:
        body = Implies(guard, body)
    return Quantifier("forall", [Group(first.names[:1], sort=first.sort, domain=first.domain)], body), guard


def _renamed(root: Expr, names: dict[str, str]) -> Expr:
    """The formula with other names for its free variables; binders inside that use one of them keep it."""
    bound = {n for node in postorder(root) for n in getattr(node, "names", ()) if isinstance(node, Binder | Let)}
    if bound & set(names):
        raise ConfigError(
            f"a variable {sorted(bound & set(names))[0]!r} is bound twice, one inside the other; rename one of them "
            "to combine the axioms jointly"
        )

    def renamed(node: Expr, below: tuple[Expr, ...]) -> Expr:
        if isinstance(node, Name) and node.name in names:
            return Name(names[node.name])
        return node.with_children(below) if below else node

    return fold(renamed, root)


def _require_unweighted(axioms: Sequence[Axiom], how: str) -> None:
    """Weights make sense in a sum only."""
    for axiom in axioms:
        if axiom.learnable or axiom.weight != 1:
            weight = "?" if axiom.learnable else f"{axiom.weight:g}"
            raise ConfigError(
                f"axiom {axiom.name!r} has weight {weight}, but {how} takes all axioms alike; leave the "
                "weight out, or combine them by their weighted 'sum'"
            )


def together(
    axioms: Sequence[Axiom], losses: Sequence[tuple[Tensor, bool]], aggregate: Callable[[Tensor], Tensor]
) -> Tensor:
    """1 - A(truths), for an aggregator A such as LTN's p-mean error; each loss with whether it is a logarithm."""
    _require_unweighted(axioms, "an aggregator of truths")
    return 1 - aggregate(torch.stack([(-loss).exp() if is_log else 1 - loss for loss, is_log in losses]))


class AxiomWeights(nn.Module):
    """One weight per axiom. Those that learn (``weight ?``) are a softmax over their axioms times the sum they start
    with: a loss w·l alone would send every weight to 0, or to infinity where l is negative.
    """

    fixed: Tensor

    def __init__(self, axioms: Sequence[Axiom]) -> None:
        super().__init__()
        self.learnt = [i for i, a in enumerate(axioms) if a.learnable]
        starts = [axioms[i].weight for i in self.learnt]
        for i in self.learnt:
            if not axioms[i].weight > 0:
                raise ConfigError(
                    f"axiom {axioms[i].name!r} has a weight that learns from {axioms[i].weight}, expected a start "
                    "above 0; negate the formula instead of its weight"
                )
        self.all_one = all(a.weight == 1 and not a.learnable for a in axioms)
        self.share = sum(starts)
        self.register_buffer("fixed", torch.tensor([0.0 if a.learnable else a.weight for a in axioms]), False)
        self.scores = nn.Parameter(torch.tensor([math.log(w) for w in starts])) if starts else None

    def forward(self) -> Tensor:
        """The weight of each axiom now."""
        if self.scores is None:
            return self.fixed
        at = torch.tensor(self.learnt, device=self.fixed.device)
        return self.fixed.index_copy(0, at, (self.share * self.scores.softmax(0)).to(self.fixed.dtype))

    def total(self, losses: Sequence[Tensor], weights: Tensor) -> Tensor | None:
        """The weighted sum of the losses of axioms, by instance where they are not reduced; None if these differ."""
        if not losses:
            return torch.zeros(())
        if len({loss.shape for loss in losses}) > 1:  # instances of different axioms
            return None
        if self.all_one and len(losses) == 1:
            return losses[0]
        stacked = torch.stack([loss.to(losses[0].dtype) for loss in losses], -1)
        return (stacked if self.all_one else stacked * weights.to(stacked)).sum(-1)


class Label(Axiom):
    """What facts say, as an axiom."""


class FactRows:
    """The facts with one label about one predicate: an axiom over rows, and what the rows hold."""

    def __init__(self, predicate: str, label: bool, sorts: Sequence[Sort], facts: Sequence[Fact]) -> None:
        self.rows = f"facts {'' if label else '!'}{predicate}"
        atom: Expr = Call(predicate, tuple([Field(Name("fact"), f"a{i}") for i in range(len(sorts))]))
        body = atom if label else ~atom
        formula = Quantifier("forall", [Group(["fact"], domain=Name(self.rows))], body) if sorts else body
        self.axiom = Label(self.rows, formula)
        self.weights = torch.tensor([fact.weight for fact in facts])
        self.sorts = tuple(sorts)
        self._columns = [[plain(fact.atom.children[i]) for fact in facts] for i in range(len(sorts))]

    def data(self, interpretation: Interpretation, given: Any) -> dict[str, Any]:
        """The rows, as data of a call beside the given data."""
        pairs = enumerate(zip(self.sorts, self._columns, strict=True))
        columns = {f"a{i}": _column(interpretation, sort, names, given) for i, (sort, names) in pairs}
        return {self.rows: columns} if columns else {}


def fact_rows(kb: KnowledgeBase) -> list[FactRows]:
    """The facts that are labels: those about predicates that are bound. What is closed is known, and no label."""
    found: dict[tuple[str, bool], list[Fact]] = {}
    for fact in kb.facts:
        if not kb.signature.predicates[fact.atom.name].closed:
            found.setdefault((fact.atom.name, fact.label), []).append(fact)
    return [FactRows(name, label, kb.signature.predicates[name].sorts, facts) for (name, label), facts in found.items()]


def plain(node: Expr) -> Any:
    """A name or number of a ground atom as a Python value."""
    assert isinstance(node, Name | Number)
    return node.name if isinstance(node, Name) else node.value


def _column(interpretation: Interpretation, sort: Sort, names: list[Any], given: Any) -> Tensor | list[Any]:
    """Constants of an open sort by index or by their features, values of a finite sort by name, numbers as they are."""
    if sort.values is not None or not all(isinstance(n, str) for n in names):
        return names if isinstance(sort.values, tuple) else torch.tensor(names)
    constants = [interpretation.constant(name) for name in names]
    if all(c is not None and c.tensor is not None for c in constants):
        return torch.stack([c.tensor for c in constants if c is not None and c.tensor is not None])
    if sort.name in given:
        batch = interpretation.read({sort.name: given[sort.name]})
        return torch.tensor([batch.index_of(name) for name in names])
    return names
