"""Axioms that say what a field is: ``forall p in pairs. d := digit(p.left), ... (term = p.field)``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from doxa.logic import Axiom, Compare, Expr, Field, Group, Interpretation, Let, Name, Quantifier, postorder
from doxa.pose import KnowledgeTerm
from doxa.semantics._instances import outer

__all__ = ["Equation", "equation"]


@dataclass(frozen=True)
class Equation:
    """A term that is said to equal a field.

    Attributes:
        axiom: the statements and the equation, for each choice of ``units``.
        term: the side that is no field.
        variable: whose field it is.
        rows: what the variable ranges over.
        field: the name of the field.
        units: the variables that the term depends on; the variable of the field is among them or comes after them.
    """

    axiom: Axiom
    term: Expr
    variable: str
    rows: str
    field: str
    units: tuple[str, ...]

    @property
    def unasked(self) -> set[str]:
        """Rows that the term does not range over: those of the field, unless they are those of the term as well."""
        formula = self.axiom.formula
        groups = formula.groups if isinstance(formula, Quantifier) else ()
        return {self.rows} - {g.domain.name for g in groups if isinstance(g.domain, Name)}

    def poser(self, interpretation: Interpretation) -> KnowledgeTerm:
        """Who poses the problems of the term."""
        return KnowledgeTerm(self.axiom, interpretation, self.term, keep=self.units)


def equation(axiom: Axiom, interpretation: Interpretation) -> Equation | None:
    """The equation that an axiom is, or None if it is of another form."""
    formula = axiom.formula
    if not isinstance(formula, Quantifier) or formula.guard is not None:
        return None
    if formula.kind != "forall" or formula.names != outer(axiom, interpretation):
        return None
    rows = {n: g.domain.name for g in formula.groups if isinstance(g.domain, Name) for n in g.names}
    body = formula.body
    before: list[Expr] = []
    while isinstance(body, Let):
        before += body.values
        body = body.body
    if not isinstance(body, Compare) or body.op != "=":
        return None
    for side, other in (body.children, body.children[::-1]):
        name = other.children[0].name if isinstance(other, Field) and isinstance(other.children[0], Name) else None
        used = list(postorder(*before, side))
        if name not in rows or not isinstance(other, Field) or other in used:
            continue
        mentioned = {node.name for node in used if isinstance(node, Name)}
        units = tuple([n for n in formula.names if n in mentioned])
        if {*units, name} != set(formula.names):
            continue
        groups = [Group([n], sort=g.sort, domain=g.domain) for g in formula.groups for n in g.names if n in mentioned]
        stated = Quantifier("forall", groups, formula.body) if groups else formula.body
        return Equation(replace(axiom, formula=stated), side, str(name), rows[str(name)], other.name, units)
    return None
