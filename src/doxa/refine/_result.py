"""What refining a batch found."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class RefineResult:
    """The outcome of :meth:`doxa.refine.Refine.run`, row by row.

    >>> import torch
    >>> from doxa.logic import propositions
    >>> from doxa.refine import Refine
    >>> a, b = propositions("a b")
    >>> found = Refine(a & ~b, "product").run(torch.tensor([[0.2, 0.4], [0.9, 0.1]]))
    >>> found.truth, found.satisfied, found.iterations, found.why(0)
    (tensor([1., 1.]), tensor([True, True]), tensor([1, 1]), 'reached')
    """

    values: Tensor
    """``(*batch, atoms)``: the best iterate, the one whose truth is nearest to the target (with a guarantee: perhaps
    the solver's)."""
    last: Tensor
    """``(*batch, atoms)``: the last iterate."""
    truth: Tensor
    """``(*batch)``, or ``(*batch, formulas)`` for several: the fuzzy truth of the values."""
    satisfied: Tensor
    """``(*batch)``: whether the values, rounded at 0.5, satisfy every formula."""
    distance: Tensor
    """``(*batch)``: the L₁ distance from the input to the values."""
    iterations: Tensor
    """``(*batch)``: the passes that were made before the row was frozen."""
    status: Tensor
    """``(*batch)``: why the row stopped, a place in ``REASONS``."""
    trajectory: Tensor | None
    """``(passes + 1, *batch, atoms)``: every iterate, if it was asked for."""

    REASONS = (
        "ran out of passes",
        "reached",
        "stands still",
        "goes in a two-cycle",
        "no nearer for a while",
        "satisfied by the solver",
        "cannot be satisfied",
    )

    def why(self, row: int | tuple[int, ...]) -> str:
        """Why a row stopped, in words.

        >>> import torch
        >>> from doxa.logic import propositions
        >>> from doxa.refine import Refine
        >>> a, b = propositions("a b")
        >>> Refine(a & ~a, "godel").run(torch.tensor([[0.2]])).why(0)
        'goes in a two-cycle'
        """
        return self.REASONS[int(self.status[row])]
