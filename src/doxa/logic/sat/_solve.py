"""Asking a SAT solver: satisfiability, models, their number, and what follows from knowledge.

Everything here takes knowledge in four forms: a `KnowledgeBase` (grounded over its finite sorts; every axiom must hold,
whatever its weight), a `Propositional` (already ground), a propositional formula, or a `CNF`. In a formula, calls and
comparisons are atoms that mean nothing by themselves: that ``digit(x) = 3`` and ``digit(x) = 4`` exclude each other is
known only where `ground` has said so. A model gives the truth of every atom, by atom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from doxa._html import said
from doxa.errors import BudgetError, KnowledgeError
from doxa.logic.sat._cnf import CNF
from doxa.logic.sat._encode import to_cnf
from doxa.logic.syntax._diagnostics import nearest
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._simplify import atoms_of, evaluate, formulas
from doxa.logic.syntax._tree import And, Call, Expr, Not
from doxa.logic.unfold._domains import ENTRIES, Clock, Domains
from doxa.logic.unfold._propositional import Propositional, ground_together

Assignment = dict[Expr, bool]
"""The truth of every atom."""
Knowledge = KnowledgeBase | Propositional | Expr | CNF
"""What solvers take."""
Given = Iterable[Expr] | Mapping[Expr, bool]
"""Formulas that are taken to hold, or the truth of atoms by atom."""

_ENGINE = "cadical195"
_CONFLICTS = 5_000
"""After so many conflicts the solver lets the clock be looked at, and goes on with all it has learnt."""


def satisfiable(
    knowledge: Knowledge,
    *,
    given: Given = (),
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> Assignment | None:
    """A model of the knowledge, or None when there is none.

    Args:
        knowledge: a knowledge base, a ground one, a propositional formula or clauses.
        given: atoms, negated atoms or other formulas that hold as well; or the truth of atoms by atom.
        domains: the objects of open sorts of a knowledge base, as in `ground`.
        entries: the most that grounding and clauses may build, as in `ground` and `to_cnf`.
        seconds: the most time that it may take.

    Raises:
        BudgetError: it would be too large, or it could not be decided in time.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> satisfiable(a | b, given=[~a]) == {a: False, b: True}
    True
    >>> satisfiable(a & ~a) is None
    True
    """
    clock = Clock(seconds)
    with Solver(_load(knowledge, given, domains, entries, clock)) as solver:
        return solver.solve(clock=clock)


def all_models(
    knowledge: Knowledge,
    limit: int | None = None,
    *,
    given: Given = (),
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> Iterator[Assignment]:
    """The models one by one, each once, at most ``limit`` of them; in no particular order. See `satisfiable`.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> len(list(all_models(a | b))), len(list(all_models(a | b, limit=2)))
    (3, 2)
    """
    clock = Clock(seconds)
    models = _models(_load(knowledge, given, domains, entries, clock), clock)
    yield from models if limit is None else islice(models, max(limit, 0))


def _models(cnf: CNF, clock: Clock) -> Iterator[Assignment]:
    with Solver(cnf) as solver:
        while (model := solver.solve(clock=clock)) is not None:
            clock.check()
            yield model
            solver.exclude(model)


def count(
    knowledge: Knowledge,
    *,
    given: Given = (),
    domains: Domains | None = None,
    limit: int = 1_000_000,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> int:
    """How many models there are: over all assignments when the atoms are few, else by enumeration up to ``limit``.

    Models beyond the limit raise a :class:`~doxa.errors.BudgetError`, as sizes and times do: see `satisfiable`.

    >>> from doxa.logic import Count, propositions
    >>> count(Count("exactly", 3, propositions("a b c d e f")))
    20
    """
    clock = Clock(seconds)
    if isinstance(knowledge, CNF):
        cnf = _load(knowledge, given, domains, entries, clock)
    else:
        theory, extra = _ground(knowledge, _listed(given), domains, entries, clock)
        formula = And(theory.theory, *extra)
        atoms = dict.fromkeys((*theory.atoms, *atoms_of(*extra)))
        if len(atoms) <= 16:
            return _count_all(formula, tuple(atoms), clock)
        cnf = _clauses(formula, entries, clock, tuple(atoms))
    found = 0
    for found, _ in enumerate(_models(cnf, clock), 1):
        if found > limit:
            message = f"there are more than {limit:,} models, too many to count one by one"
            raise BudgetError("limit", f"{message}; raise limit (--models), or count them with doxa.exact.Constraint")
    return found


def _count_all(formula: Expr, atoms: tuple[Expr, ...], clock: Clock) -> int:
    """The number of assignments that satisfy a formula, some at a time so that they fit into memory."""
    total, worlds = 0, 2 ** len(atoms)
    step = max(1, 2**28 // sum(1 for _ in formulas(formula)))  # a truth value is a byte
    for start in range(0, worlds, step):
        clock.check()
        bits = np.arange(start, min(start + step, worlds))
        truth = evaluate(formula, {a: (bits >> i) & 1 == 1 for i, a in enumerate(atoms)})
        total += int(np.sum(np.broadcast_to(truth, bits.shape)))
    return total


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

    def _repr_html_(self) -> str:
        return said(self)


def entails(
    knowledge: Knowledge,
    formula: Expr,
    *,
    given: Given = (),
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> Entailment:
    """Does the formula hold in every model of the knowledge? ``entries`` and ``seconds`` are as in `satisfiable`.

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
    clock = Clock(seconds)
    if isinstance(knowledge, CNF):
        premise, goal = _load(knowledge, given, domains, entries, clock), formula
    else:
        theory, (goal, *extra) = _ground(knowledge, [formula, *_listed(given)], domains, entries, clock)
        premise = _clauses(And(theory.theory, *extra), entries, clock, theory.atoms)
    with Solver(premise & _clauses(Not(goal), entries, clock)) as solver:
        counter = solver.solve(clock=clock)
    if counter is not None:
        return Entailment(False, counter)
    with Solver(premise) as solver:
        return Entailment(True, vacuous=solver.solve(clock=clock) is None)


class Solver:
    """A SAT solver that has read its knowledge, to be asked many times; close it, or use it in a ``with`` block.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> with Solver(a >> b) as solver:
    ...     print(solver.solve([a]) == {a: True, b: True}, solver.solve({a: True, b: False}))
    True None
    """

    def __init__(self, knowledge: Knowledge, *, domains: Domains | None = None, entries: int = ENTRIES) -> None:
        from pysat.solvers import Solver as Engine

        self.cnf = _load(knowledge, (), domains, entries, Clock(None))
        self._engine: Any = Engine(_ENGINE, bootstrap_with=self.cnf.clauses)

    def solve(self, given: Given = (), *, clock: Clock | None = None) -> Assignment | None:
        """A model in which the given atoms and negated atoms hold, or None; a clock says for how long to try."""
        literals, answer = _literals(self.cnf, given), None
        while answer is None:
            self._engine.conf_budget(_CONFLICTS)
            try:
                answer = self._engine.solve_limited(assumptions=literals)
            except Exception as error:
                if "keyboard interrupt" in str(error):  # the engine's own error for Ctrl-C
                    raise KeyboardInterrupt from None
                raise
            if answer is None and clock is not None:
                clock.check()
        if not answer:
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
    knowledge: KnowledgeBase | Propositional | Expr,
    formulas: Sequence[Expr],
    domains: Domains | None,
    entries: int,
    clock: Clock,
) -> tuple[Propositional, list[Expr]]:
    """The knowledge and further formulas about it over the same atoms."""
    if isinstance(knowledge, KnowledgeBase):
        return ground_together(knowledge, formulas, domains, entries, clock)
    _no_domains(domains)
    if not isinstance(knowledge, Propositional):
        knowledge = Propositional({"formula": knowledge}, (), (), atoms_of(knowledge))
    return knowledge, list(formulas)


def _load(knowledge: Knowledge, given: Given, domains: Domains | None, entries: int, clock: Clock) -> CNF:
    """The knowledge and what is given as clauses; one variable for each atom of either."""
    if isinstance(knowledge, CNF):
        _no_domains(domains)
        extra = _listed(given)
        return knowledge & _clauses(And(*extra), entries, clock) if extra else knowledge
    theory, extra = _ground(knowledge, _listed(given), domains, entries, clock)
    return _clauses(And(theory.theory, *extra), entries, clock, theory.atoms)


def _clauses(formula: Expr, entries: int, clock: Clock, atoms: Sequence[Expr] = ()) -> CNF:
    return to_cnf(formula, method="polarity", atoms=atoms, entries=entries, clock=clock)


def _no_domains(domains: Domains | None) -> None:
    if domains is not None:
        raise KnowledgeError("domains are the objects of a KnowledgeBase; ground knowledge has all it speaks of")
