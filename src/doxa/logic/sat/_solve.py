"""Asking a SAT solver: satisfiability, models, their number, and what follows from knowledge.

Everything here takes knowledge in four forms: a `KnowledgeBase` (grounded over its finite sorts; every axiom must hold,
whatever its weight), a `Propositional` (already ground), a propositional formula, or a `CNF`. In a formula, calls and
comparisons are atoms that mean nothing by themselves: that ``digit(x) = 3`` and ``digit(x) = 4`` exclude each other is
known only where `ground` has said so. A model gives the truth of every atom, by atom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from doxa.errors import KnowledgeError
from doxa.logic.sat._cnf import CNF
from doxa.logic.sat._encode import to_cnf
from doxa.logic.sat._evaluate import evaluate
from doxa.logic.syntax._diagnostics import nearest
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._simplify import atoms_of
from doxa.logic.syntax._tree import And, Call, Expr, Not
from doxa.logic.unfold._domains import Domains
from doxa.logic.unfold._propositional import Propositional, ground_together

Assignment = dict[Expr, bool]
"""The truth of every atom."""
Knowledge = KnowledgeBase | Propositional | Expr | CNF
"""What solvers take."""
Given = Iterable[Expr] | Mapping[Expr, bool]
"""Formulas that are taken to hold, or the truth of atoms by atom."""

_ENGINE = "cadical195"


def satisfiable(knowledge: Knowledge, *, given: Given = (), domains: Domains | None = None) -> Assignment | None:
    """A model of the knowledge, or None when there is none.

    Args:
        knowledge: a knowledge base, a ground one, a propositional formula or clauses.
        given: atoms, negated atoms or other formulas that hold as well; or the truth of atoms by atom.
        domains: the objects of open sorts of a knowledge base, as in `ground`.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> satisfiable(a | b, given=[~a]) == {a: False, b: True}
    True
    >>> satisfiable(a & ~a) is None
    True
    """
    with Solver(_load(knowledge, given, domains)) as solver:
        return solver.solve()


def all_models(
    knowledge: Knowledge, limit: int | None = None, *, given: Given = (), domains: Domains | None = None
) -> Iterator[Assignment]:
    """The models one by one, each once, at most ``limit`` of them; in no particular order.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> len(list(all_models(a | b))), len(list(all_models(a | b, limit=2)))
    (3, 2)
    """
    with Solver(_load(knowledge, given, domains)) as solver:
        found = 0
        while (limit is None or found < limit) and (model := solver.solve()) is not None:
            yield model
            found += 1
            solver.exclude(model)


def count(knowledge: Knowledge, *, given: Given = (), domains: Domains | None = None, limit: int = 1_000_000) -> int:
    """How many models there are: over all assignments when the atoms are few, else by enumeration up to ``limit``.

    >>> from doxa.logic import Count, propositions
    >>> count(Count("exactly", 3, propositions("a b c d e f")))
    20
    """
    if not isinstance(knowledge, CNF):
        theory, extra = _ground(knowledge, _listed(given), domains)
        formula = And(theory.theory, *extra)
        atoms = dict.fromkeys((*theory.atoms, *atoms_of(*extra)))
        if len(atoms) <= 16:
            bits = np.arange(2 ** len(atoms))
            truth = evaluate(formula, {a: (bits >> i) & 1 == 1 for i, a in enumerate(atoms)})
            return int(np.sum(np.broadcast_to(truth, bits.shape)))
        knowledge, given = to_cnf(formula, method="polarity", atoms=tuple(atoms)), ()
    found = sum(1 for _ in all_models(knowledge, limit + 1, given=given))
    if found > limit:
        raise KnowledgeError(
            f"there are more than {limit} models, too many to count one by one; "
            "raise limit, or count with an exact engine"
        )
    return found


@dataclass(frozen=True)
class Entailment:
    """Whether a formula follows, and when it does not, a model of the knowledge in which the formula is false.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> print(entails(a | b, a))
    does not follow; counter-model: !a, b
    >>> print(entails(a & b, a), bool(entails(a & b, a)))
    follows True
    """

    holds: bool
    counter_model: Assignment | None = None
    vacuous: bool = False
    """Whether it follows only because the knowledge contradicts itself, so that everything follows."""

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.counter_model is None:
            return "follows, but only because the knowledge contradicts itself" if self.vacuous else "follows"
        # The values that a function does not have go without saying.
        literals = [a if true else Not(a) for a, true in self.counter_model.items() if true or isinstance(a, Call)]
        return f"does not follow; counter-model: {', '.join(map(str, literals)) or 'the empty one'}"


def entails(knowledge: Knowledge, formula: Expr, *, given: Given = (), domains: Domains | None = None) -> Entailment:
    """Does the formula hold in every model of the knowledge?

    With a knowledge base the formula may have quantifiers, and its symbols must be declared there.

    >>> from doxa.logic import KnowledgeBase, Constant, Predicate, Sort, forall, variables
    >>> Person = Sort("Person")
    >>> alice, (x,) = Constant("alice", Person), variables("x", Person)
    >>> smokes, cancer = Predicate("smokes", (Person,)), Predicate("cancer", (Person,))
    >>> kb = KnowledgeBase(alice, rule=forall(x)(smokes(x) >> cancer(x)))
    >>> print(entails(kb, cancer(alice)))
    does not follow; counter-model: !smokes(alice), !cancer(alice)
    >>> entails(kb, cancer(alice), given=[smokes(alice)]).holds
    True
    """
    if isinstance(knowledge, CNF):
        premise, goal = _load(knowledge, given, domains), formula
    else:
        theory, (goal, *extra) = _ground(knowledge, [formula, *_listed(given)], domains)
        premise = to_cnf(And(theory.theory, *extra), method="polarity", atoms=theory.atoms)
    with Solver(premise & to_cnf(Not(goal), method="polarity")) as solver:
        counter = solver.solve()
    return Entailment(counter is None, counter, counter is None and satisfiable(premise) is None)


class Solver:
    """A SAT solver that has read its knowledge, to be asked many times under different given atoms.

    Close it when done, or use it in a ``with`` block.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> with Solver(a >> b) as solver:
    ...     print(solver.solve([a]) == {a: True, b: True}, solver.solve({a: True, b: False}))
    True None
    """

    def __init__(self, knowledge: Knowledge, *, domains: Domains | None = None) -> None:
        from pysat.solvers import Solver as Engine

        self.cnf = _load(knowledge, (), domains)
        self._engine: Any = Engine(_ENGINE, bootstrap_with=self.cnf.clauses)

    def solve(self, given: Given = ()) -> Assignment | None:
        """A model in which the given atoms and negated atoms hold, or None."""
        if not self._engine.solve(assumptions=_literals(self.cnf, given)):
            return None
        true = {v for v in self._engine.get_model() if v > 0}
        return {atom: v in true for atom, v in self.cnf.index.items()}

    def exclude(self, model: Mapping[Expr, bool]) -> None:
        """From now on, no model that agrees with this one on all its atoms."""
        self._engine.add_clause([-v for v in _literals(self.cnf, model)])

    def close(self) -> None:
        """Free the memory of the solver."""
        self._engine.delete()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _listed(given: Given) -> list[Expr]:
    if isinstance(given, Mapping):
        return [atom if truth else Not(atom) for atom, truth in given.items()]
    return list(given)


def _literals(cnf: CNF, given: Given) -> list[int]:
    literals = []
    for formula in _listed(given):
        atom = formula.children[0] if isinstance(formula, Not) else formula
        if atom not in cnf.index:
            near = nearest(str(atom), [str(a) for a in cnf.index])
            hint = "" if near is None else f"; did you mean {near}?"
            raise KnowledgeError(f"given {formula}: the knowledge has no atom {atom}{hint}")
        literals.append(cnf.index[atom] if atom is formula else -cnf.index[atom])
    return literals


def _ground(
    knowledge: KnowledgeBase | Propositional | Expr, formulas: Sequence[Expr], domains: Domains | None
) -> tuple[Propositional, list[Expr]]:
    """The knowledge and further formulas about it over the same atoms."""
    if isinstance(knowledge, KnowledgeBase):
        return ground_together(knowledge, formulas, domains)
    _no_domains(domains)
    if not isinstance(knowledge, Propositional):
        knowledge = Propositional({"formula": knowledge}, (), (), atoms_of(knowledge))
    return knowledge, list(formulas)


def _load(knowledge: Knowledge, given: Given, domains: Domains | None) -> CNF:
    """The knowledge and what is given as clauses; one variable for each atom of either."""
    if isinstance(knowledge, CNF):
        _no_domains(domains)
        extra = _listed(given)
        return knowledge & to_cnf(And(*extra), method="polarity") if extra else knowledge
    theory, extra = _ground(knowledge, _listed(given), domains)
    return to_cnf(And(theory.theory, *extra), method="polarity", atoms=theory.atoms)


def _no_domains(domains: Domains | None) -> None:
    if domains is not None:
        raise KnowledgeError("domains are the objects of a KnowledgeBase; ground knowledge has all it speaks of")
