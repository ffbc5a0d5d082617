"""Facts about bound symbols, as axioms over rows: labels to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from doxa.logic import (
    Axiom,
    Call,
    Expr,
    Fact,
    Field,
    Interpretation,
    KnowledgeBase,
    Name,
    Not,
    Number,
    Quantifier,
    Sort,
)
from doxa.logic.syntax._binders import Group

__all__ = ["FactRows", "fact_rows"]


class FactRows:
    """The facts with one label about one predicate: an axiom over rows, and what the rows hold."""

    def __init__(self, predicate: str, label: bool, sorts: Sequence[Sort], facts: Sequence[Fact]) -> None:
        self.rows = f"facts {'' if label else '!'}{predicate}"
        fields: list[Expr] = [Field(Name("fact"), f"a{i}") for i in range(len(sorts))]
        atom: Expr = Call(predicate, tuple(fields))
        body = atom if label else Not(atom)
        formula = Quantifier("forall", [Group(["fact"], domain=Name(self.rows))], body) if sorts else body
        self.axiom = Axiom(self.rows, formula)
        self.weights = torch.tensor([fact.weight for fact in facts])
        self.sorts = tuple(sorts)
        self._columns = [[_plain(fact.atom.children[i]) for fact in facts] for i in range(len(sorts))]

    def data(self, interpretation: Interpretation, given: Any) -> dict[str, Any]:
        """The rows, as data of a call beside the given data."""
        if not self.sorts:
            return {}
        return {
            self.rows: {
                f"a{i}": _column(interpretation, sort, names, given)
                for i, (sort, names) in enumerate(zip(self.sorts, self._columns, strict=True))
            }
        }


def fact_rows(kb: KnowledgeBase, interpretation: Interpretation) -> list[FactRows]:
    """The facts that are labels: those about predicates that are bound. What is closed is known, and no label."""
    found: dict[tuple[str, bool], list[Fact]] = {}
    for fact in kb.facts:
        if not kb.signature.predicates[fact.atom.name].closed:
            found.setdefault((fact.atom.name, fact.label), []).append(fact)
    return [FactRows(name, label, kb.signature.predicates[name].sorts, facts) for (name, label), facts in found.items()]


def _plain(node: Expr) -> Any:
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
