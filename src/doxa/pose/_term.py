"""The value of a term, row by row: knowledge as a function from worlds to numbers instead of to true and false."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Compare, Expr, Interpretation, Let
from doxa.pose._choices import UNDEFINED, Choice
from doxa.pose._knowledge import KnowledgeReasoner
from doxa.pose._unfold import Unfolder
from doxa.pose._unit import Form, believe
from doxa.problem import Belief, Problem

__all__ = ["KnowledgeTerm", "Valued"]


@dataclass(frozen=True, eq=False)
class Valued:
    """What value a term has in each unit, before any engine answers.

    Attributes:
        count: how many units there are.
        certain: values that are the same in every world, and the units that have them.
        problems: for units that look alike their problem, the values that its output stands for (None where the term
            has no value), what is believed of its variables, one row for each unit, and which units they are.

    >>> import torch
    >>> Valued(2, [(3, torch.tensor([0, 1]))], []).count
    2
    """

    count: int
    certain: list[tuple[Any, Tensor]]
    problems: list[tuple[Problem, tuple[Any, ...], Belief, Tensor]]


class KnowledgeTerm(KnowledgeReasoner):
    """The problems that the term of an equation poses: for ``... (d + e = p.sum)`` the value of d + e in each row.

    Args:
        axiom: ``forall p in rows. x := f(p.a), ... (term = other)``.
        interpretation: the meaning of the symbols.
        term: the side of the equation that is asked about.
        keep: the variables of its ``forall`` that make a unit.

    >>> import torch
    >>> from doxa.logic import log_probs, parse
    >>> kb = parse('''
    ...     sort Image
    ...     sort Bit = 0..1
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func bit(Image) -> Bit
    ...     [sum] forall p in pairs. d := bit(p.left), e := bit(p.right) (d + e = p.sum)
    ... ''')
    >>> sees = Interpretation(kb, bit=log_probs(lambda image: image))
    >>> term = kb["sum"].formula.body.body.children[0]
    >>> images = torch.full((4, 2), 0.5).log()
    >>> pairs = dict(left=images[:2], right=images[2:], sum=torch.tensor([0, 1]))
    >>> found = KnowledgeTerm(kb["sum"], sees, term, keep="p").valued(pairs=pairs)
    >>> found.problems[0][:2]
    (Problem(world=(2, 2), output=(3,), factors=2), (0, 1, 2))
    """

    def __init__(
        self, axiom: Axiom, interpretation: Interpretation, term: Expr, *, keep: str | Sequence[str] = ()
    ) -> None:
        super().__init__(axiom, interpretation, keep=keep)
        self.term = term

    def valued(self, **data: Any) -> Valued:
        """What value the term has in each unit of the data.

        Args:
            data: objects of open sorts and rows, by name.
        """
        read = self._read(data)
        asked = self._instances(read)
        forms = self._forms_of(read, asked)
        uncertain = [(units, form, at) for units, form, at in forms if form.problem is not None]
        beliefs = believe(read, [(units, form) for units, form, _ in uncertain])
        problems = [
            (f.problem, f.answers, b, at) for (_, f, at), b in zip(uncertain, beliefs, strict=True) if f.problem
        ]
        certain = [(form.answers[0], at) for _, form, at in forms if form.problem is None]
        return Valued(asked.units.count, certain, problems)

    def values(self, **data: Any) -> tuple[Any, ...]:
        """All values that the term can have in some world and some unit of the data, in order; no network runs.

        Args:
            data: objects of open sorts and rows, by name.
        """
        read = self._read(data)
        forms = self._forms_of(read, self._instances(read))
        return tuple(sorted({value for _, form, _ in forms for value in form.answers if value is not None}))

    def _pose(self, form: Form, unfolder: Unfolder, formulas: Sequence[Expr], scope: dict[str, Any]) -> None:
        (formula,) = formulas
        while isinstance(formula, Let):
            for name, value in zip(formula.names, formula.values, strict=True):
                scope = {**scope, name: unfolder.value(value, scope)}
            formula = formula.body
        if not isinstance(formula, Compare) or self.term not in formula.children:
            raise KnowledgeError(f"{formula} does not compare {self.term} with anything")
        form.result = unfolder.term(self.term, scope)
        if isinstance(form.result, Choice):
            form.problem, labels = form.choices.valued(form.result)
        else:
            labels = (form.result,)
        form.answers = tuple([None if label is UNDEFINED else label for label in labels])
