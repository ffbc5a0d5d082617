"""What every semantics can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from doxa.logic import Axiom, Interpretation

__all__ = ["Compiled", "Semantics"]


class Compiled(Protocol):
    """Axioms made ready for one way of reasoning.

    >>> import doxa, torch
    >>> model = doxa.Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
    >>> doxa.Exact().compile(model.kb.axioms, model.interpretation).truths({}, None)
    tensor([0.3000])
    """

    def losses(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        """One number per axiom, to be made small."""
        ...

    def truths(self, data: Mapping[str, Any], generator: torch.Generator | None) -> Tensor:
        """How true each axiom is, from 0 to 1: a probability, a truth value, or true and false."""
        ...

    def each(self, data: Mapping[str, Any], generator: torch.Generator | None) -> list[Tensor]:
        """For each axiom, how true it is of every row or object of its first ``forall``, in order.

        The truth of ``forall p in pairs. ...`` has shape ``(rows,)``, with an axis for each further variable of that
        quantifier; that of an axiom that does not begin so has shape ``(1,)``.
        """
        ...

    def explain(self, data: Mapping[str, Any]) -> str:
        """What is computed, and under which assumptions."""
        ...


@runtime_checkable
class Semantics(Protocol):
    """A way of reasoning with axioms: a small frozen object that compares by value, so that plans can be kept.

    >>> from doxa.semantics import Exact
    >>> isinstance(Exact(), Semantics), Exact() == Exact()
    (True, True)
    """

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        """Make axioms ready for this way of reasoning."""
        ...
