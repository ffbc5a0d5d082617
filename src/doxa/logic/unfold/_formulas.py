"""Connectives and quantifiers as formulas over atoms, simplified while they are built."""

from __future__ import annotations

from typing import Any

from doxa.logic.syntax._binders import Quantifier
from doxa.logic.syntax._simplify import Builder
from doxa.logic.syntax._tree import And, Expr, Or


class Formulas:
    """The part of `Values` that all who build formulas share."""

    def __init__(self) -> None:
        self._build = Builder()

    def connective(self, node: Expr, args: list[Any]) -> Expr:
        return self._build.rebuild(node, args)

    def excluded(self, condition: Expr) -> bool:
        return condition is self._build.false

    def quantified(self, node: Quantifier, cases: list[tuple[Any, Any]]) -> Expr:
        build, universal = self._build, node.kind == "forall"
        truths = [
            case if guard is None else build.implies(guard, case) if universal else build.join(And, (guard, case))
            for guard, case in cases
        ]
        if node.count is not None:
            return build.count(node.kind, node.count, truths)
        return build.join(And if universal else Or, truths)

    def conjunction(self, truths: list[Expr]) -> Expr:
        """All of some formulas, in their final form."""
        return self.flatten(self._build.join(And, truths))

    def flatten(self, formula: Expr) -> Expr:
        """The formula with conjunctions below conjunctions, and disjunctions below disjunctions, merged."""
        return self._build.flatten(formula)
