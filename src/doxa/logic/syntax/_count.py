"""A counting constraint over ground formulas: what a counting quantifier becomes when its variables are gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._tree import Expr, as_formula

__all__ = ["Count"]


class Count(Expr):
    """``exactly``, ``at most`` or ``at least`` k of some formulas are true. A formula listed twice counts twice.

    >>> from doxa.logic import propositions
    >>> from doxa.logic.sat._evaluate import evaluate
    >>> a, b, c = propositions("a b c")
    >>> evaluate(Count("at most", 1, [a, b, c]), {a: True, b: False, c: True})
    False
    """

    __slots__ = ()
    KINDS: ClassVar[tuple[str, ...]] = ("exactly", "at most", "at least")

    def __init__(self, kind: str, count: int, args: Iterable[Expr]) -> None:
        if kind not in self.KINDS:
            raise KnowledgeError(f"no counting constraint {kind!r}; there are {', '.join(self.KINDS)}")
        if count < 0:
            raise KnowledgeError(f"{kind} needs a number that is not negative, got {count}")
        super().__init__((kind, count), tuple([as_formula(a) for a in args]))

    @property
    def kind(self) -> str:
        return cast(str, self.label[0])

    @property
    def count(self) -> int:
        return cast(int, self.label[1])

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of arguments that may be true.

        >>> from doxa.logic import propositions
        >>> Count("at least", 1, propositions("a b c")).bounds
        (1, 3)
        """
        kind, k = self.label
        return (0 if kind == "at most" else k), (len(self.children) if kind == "at least" else k)
