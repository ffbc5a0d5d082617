"""The propositional view of knowledge: what it says over finite sorts, without variables.

Quantifiers expand over the objects of their sorts, counting quantifiers become counting constraints (`Count`), and
arithmetic and comparisons of values are computed. What cannot be computed is an atom:

- a predicate applied to objects, ``friends(alice, bob)``, is an atom;
- a function f into a finite sort is a family of atoms ``f(t) = v``, one for each value v, exactly one of which is true.
  The statement ``d := digit(x) (...)`` speaks of the same atoms as ``digit(x)``.

Equal subformulas are one object, so the result is a graph that is often much smaller than it would be written out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import And, Expr, Not, Truth, postorder
from doxa.logic.unfold._domains import Domains, Universe
from doxa.logic.unfold._limits import ENTRIES, Clock, check_grounding
from doxa.logic.unfold._propositions import Propositions
from doxa.logic.unfold._unfolder import Unfolder


@dataclass(frozen=True, eq=False)
class Propositional:
    """Ground knowledge.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> ground(a >> b)
    Propositional(2 atoms, 1 axioms, 0 facts, 0 functions)
    """

    axioms: dict[str, Expr]
    """The ground formula of each axiom, by name; a single formula is named ``formula``."""
    facts: tuple[Expr, ...]
    """The labelled facts: atoms and negated atoms."""
    constraints: tuple[Expr, ...]
    """For each function at each of its arguments: exactly one of its values."""
    atoms: tuple[Expr, ...]
    """Every atom that was met, in order; also those that do not matter to the formula in the end."""

    @cached_property
    def formula(self) -> Expr:
        """What is said: the axioms and the facts. Whatever their weights, all of them."""
        return And(*self.axioms.values(), *self.facts)

    @cached_property
    def theory(self) -> Expr:
        """The formula together with the constraints; its models are the possible worlds."""
        return And(self.formula, *self.constraints)

    def __repr__(self) -> str:
        return (
            f"Propositional({len(self.atoms)} atoms, {len(self.axioms)} axioms, {len(self.facts)} facts, "
            f"{len(self.constraints)} functions)"
        )


def ground(
    knowledge: KnowledgeBase | Expr,
    kb: KnowledgeBase | Signature | None = None,
    *,
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> Propositional:
    """Knowledge or a formula over ground atoms.

    Args:
        knowledge: a knowledge base, or one formula.
        kb: where the symbols of the formula are declared; without it, those it was built from in Python.
        domains: the objects of open sorts that have more than their declared constants, by the name of the sort: their
            number or their names; and the data rows that the knowledge ranges over, by name, as mappings by field.
        entries: the most that may be built, of about a kilobyte each: subformulas for each choice of their variables.
        seconds: the most time that it may take.

    Raises:
        BudgetError: it would take more entries, found before anything is built, or it takes longer.

    >>> from doxa.logic import Constant, Function, KnowledgeBase, Predicate, Sort, forall, variables, within
    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> x, y = variables("x y", Person)
    >>> symmetry = forall(x, y, where=x.ne(y))(friends(x, y) >> friends(y, x))
    >>> print(ground(symmetry, domains={"Person": ["ann", "bob"]}).formula)
    (friends(ann, bob) -> friends(bob, ann)) & (friends(bob, ann) -> friends(ann, bob))

    >>> coin = Function("coin", (Sort("Toss"),), Sort.range("Bit", 0, 1))
    >>> (p,) = variables("p")
    >>> two = forall(within("pairs", p))((coin(p.field("left")) + coin(p.field("right"))).eq(p.field("sum")))
    >>> ones = ground(two, domains={"pairs": [{"left": "first", "right": "second", "sum": 2}]})
    >>> print(ones.formula)
    coin(first) = 1 & coin(second) = 1
    """
    if isinstance(knowledge, KnowledgeBase):
        if kb is not None:
            raise KnowledgeError("ground(kb) takes one knowledge base; the second is for a formula about it")
        return ground_together(knowledge, (), domains, entries, Clock(seconds))[0]
    signature = kb.signature if isinstance(kb, KnowledgeBase) else kb or _declared(knowledge)
    universe = Universe(signature, domains, entries)
    check_grounding([knowledge], universe, entries)
    view = Propositions(
        signature, universe, strict=kb is not None, known=_known(kb), entries=entries, clock=Clock(seconds)
    )
    formula = view.finished(Unfolder(view).formula(knowledge))
    return Propositional({"formula": formula}, (), view.constraints, tuple(view.atoms))


def ground_together(
    kb: KnowledgeBase, formulas: Sequence[Expr], domains: Domains | None, entries: int, clock: Clock
) -> tuple[Propositional, list[Expr]]:
    """A knowledge base and formulas about it, over the same atoms."""
    universe = Universe(kb.signature, domains, entries)
    check_grounding([*[a.formula for a in kb.axioms], *formulas], universe, entries)
    view = Propositions(kb.signature, universe, strict=True, known=_known(kb), entries=entries, clock=clock)
    unfolder = Unfolder(view)
    axioms = {a.name: view.finished(unfolder.formula(a.formula)) for a in kb.axioms}
    stated = [view.finished(unfolder.formula(f.atom if f.label else Not(f.atom))) for f in kb.facts]
    facts = tuple([fact for fact in stated if fact != Truth(True)])  # the others are known
    others = [view.finished(unfolder.formula(f)) for f in formulas]
    return Propositional(axioms, facts, view.constraints, tuple(view.atoms)), others


def _known(kb: KnowledgeBase | Signature | None) -> Callable[[str, tuple[Any, ...]], bool | None] | None:
    """The truth of atoms of closed predicates; facts about open ones stand beside the axioms."""
    if not isinstance(kb, KnowledgeBase):
        return None
    closed = {name for name, predicate in kb.signature.predicates.items() if predicate.closed}
    return (lambda name, args: kb.known(name, args) if name in closed else None) if closed else None


def _declared(formula: Expr) -> Signature:
    """The symbols that a formula was built from in Python."""
    signature = Signature()
    for node in postorder(formula):
        if node.hint is not None:
            signature.declare(node.hint)
    return signature
