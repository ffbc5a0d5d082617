"""What is known about labels: requirements by name, and the circuit over them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from doxa.errors import ConfigError, KnowledgeError
from doxa.exact import Constraint
from doxa.logic import And, Call, Expr, satisfiable
from doxa.logic.syntax._simplify import atoms_of, evaluate
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Budget
from doxa.refine import Rules
from doxa.sklearn._read import Names, Requirement, read, renamed

_ROWS = 8192
"""Rows whose requirements are evaluated at a time."""


class LabelKnowledge:
    """Knowledge about labels by name, read from any form, as requirements and as a circuit.

    A label is a proposition. Knowledge may also mention Boolean features by name; their truth is *given* with each row.

    Args:
        knowledge: one of

            - text in the knowledge language, one requirement a line: ``"bird & !penguin -> flies"`` (labels need no
              declaration; a name that is no word stands in quotation marks), or a ``.doxa`` file;
            - a formula, a list of them, or a ``KnowledgeBase``;
            - DIMACS clauses, as a text, a file or a ``CNF``: variable i is the i-th label;
            - a hierarchy: ``{"cat": ["animal"]}``, child to parents; a networkx ``DiGraph`` with edges child to parent;
              or a list of class paths ``["01", "01/01", "01/01/03"]``;
            - a list of forbidden combinations: ``[{"cat", "dog"}, {"cat": True, "animal": False}]``;
            - `Allowed`, a list of all allowed combinations;
            - a tuple of several of these, all of which hold.
        names: the labels, in the order of the columns of y.
        features: the names of features that the knowledge may mention.
        aliases: other names by which it may speak of labels.
        budget: what compiling may cost.

    Raises:
        KnowledgeError: it cannot be read, mentions an unknown name, or contradicts itself.

    >>> pets = LabelKnowledge(({"cat": ["animal"], "dog": ["animal"]}, [{"cat", "dog"}]), ["animal", "cat", "dog"])
    >>> [text for text, _ in pets.requirements]
    ['cat -> animal', 'dog -> animal', '!(cat & dog)']
    >>> pets.violations(np.array([[True, True, True], [False, True, False]])).tolist()
    [[False, False, True], [True, False, False]]
    >>> pets.constraint.models
    4
    """

    def __init__(
        self,
        knowledge: Any,
        names: Sequence[str],
        *,
        features: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        if isinstance(names, str):
            raise ConfigError(f"names is the text {names!r}, expected a list of labels")
        self.names = tuple(map(str, names))
        if len(set(self.names)) < len(self.names):
            twice = next(n for n in self.names if self.names.count(n) > 1)
            raise KnowledgeError(f"two labels are named {twice!r}; rename a column of y")
        others = [str(f) for f in features]
        known = (*self.names, *(aliases or {}))
        found = read(knowledge, Names(known, others))
        said = {str(a.name) for r in found for a in atoms_of(r.formula) if isinstance(a, Call)}
        if both := said & set(known) & set(others):
            raise KnowledgeError(
                f"{min(both)!r} is a label and a feature, so the knowledge is unclear; rename one of them"
            )
        self.requirements = tuple([Requirement(text, renamed(formula, aliases or {})) for text, formula in found])
        mentioned = {(aliases or {}).get(name, name) for name in said}
        labels = set(self.names)
        self.given = tuple(name for name in dict.fromkeys(others) if name in mentioned and name not in labels)
        self.free = tuple(name for name in self.names if name not in mentioned)
        self.budget = budget
        if self.requirements and satisfiable(self.formula) is None:
            core = contradiction([r.formula for r in self.requirements])
            listed = "; ".join(self.requirements[i].text for i in core[:8])
            raise KnowledgeError(f"the knowledge contradicts itself: these cannot all hold: {listed}")

    @property
    def atoms(self) -> tuple[Expr, ...]:
        """The labels in order, then the given features."""
        return tuple(Call(name) for name in (*self.names, *self.given))

    @property
    def formula(self) -> Expr:
        """All requirements."""
        return And(*[r.formula for r in self.requirements])

    @cached_property
    def constraint(self) -> Constraint:
        """The circuit: its world variables are all labels in order; those that are not mentioned are free.

        Raises:
            BudgetError: the circuit would be too large.
        """
        axioms = {f"requirement{i}": r.formula for i, r in enumerate(self.requirements)}
        theory = Propositional(axioms, (), (), self.atoms)
        return Constraint(theory, given=[Call(name) for name in self.given], budget=self.budget)

    @cached_property
    def rules(self) -> Rules | None:
        """The requirements as stratified rules, if all of them are; a hierarchy is the simplest kind."""
        with contextlib.suppress(ConfigError):
            return Rules([r.formula for r in self.requirements], self.atoms, [Call(name) for name in self.given])
        return None

    def violations(self, labels: NDArray[Any], given: NDArray[Any] | None = None) -> NDArray[np.bool_]:
        """Which requirement each row violates, by plain Boolean evaluation.

        Args:
            labels: true and false, or 1 and 0, ``(n, labels)``; the columns of a table in the order of ``names``.
            given: bool ``(n, given features)``, if the knowledge mentions features.

        Returns:
            bool ``(n, requirements)``.
        """
        columns = [str(name) for name in getattr(labels, "columns", self.names)]
        if columns != list(self.names):
            raise KnowledgeError(f"labels has the columns {columns}, expected {list(self.names)}, in this order")
        if not np.isin(np.asarray(labels), (0, 1)).all():
            raise KnowledgeError("labels has other numbers than 0 and 1; say labels > 0.5, or what makes one true")
        truth = np.asarray(labels).astype(bool)
        if truth.ndim != 2 or truth.shape[1] != len(self.names):
            raise KnowledgeError(f"labels has shape {truth.shape}, expected (rows, {len(self.names)})")
        if self.given:
            shape = None if given is None else given.shape
            if given is None or shape != (len(truth), len(self.given)):
                wanted = f"{(len(truth), len(self.given))}: one column for each of {', '.join(self.given)}"
                raise KnowledgeError(f"given has shape {shape}, expected {wanted}")
            truth = np.concatenate([truth, np.asarray(given).astype(bool)], 1)
        broken = np.zeros((len(truth), len(self.requirements)), dtype=bool)
        for first in range(0, len(truth), _ROWS):
            values = dict(zip(self.atoms, np.ascontiguousarray(truth[first : first + _ROWS].T), strict=True))
            for i, requirement in enumerate(self.requirements):
                broken[first : first + _ROWS, i] = ~np.asarray(evaluate(requirement.formula, values), dtype=bool)
        return broken

    def __repr__(self) -> str:
        given = f", given {', '.join(self.given)}" if self.given else ""
        return f"LabelKnowledge({len(self.names)} labels, {len(self.requirements)} requirements{given})"


def contradiction(formulas: Sequence[Expr]) -> list[int]:
    """A smallest set of formulas that cannot all hold: without any one of them, the others can.

    Halves of the formulas are left out while the rest still contradicts itself, down to single ones.
    """
    kept = list(range(len(formulas)))
    step = max(1, len(kept) // 2)
    while True:
        place = 0
        while place < len(kept):
            fewer = kept[:place] + kept[place + step :]
            if fewer and satisfiable(And(*[formulas[i] for i in fewer])) is None:
                kept = fewer
            else:
                place += step
        if step == 1:
            return kept
        step = max(1, step // 2)
