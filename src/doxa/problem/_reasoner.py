"""The face that every reasoner wears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from doxa.problem._belief import Belief
from doxa.problem._logspace import NEG_INF
from doxa.problem._problem import Problem


class Explanations(NamedTuple):
    """The best worlds that explain an output, best first.

    Attributes:
        worlds: int64 ``(*batch, k, W)``; -1 throughout where there are fewer than k.
        scores: ``(*batch, k)``, decreasing; -inf where there are fewer than k. From a reasoner whose ``exactness`` is
            not "none", this is log p(w | y, P); otherwise only the order has a meaning.

    >>> import torch
    >>> Explanations(worlds=torch.tensor([[5, 8], [8, 5]]), scores=torch.tensor([-0.1, -2.4])).worlds[0]
    tensor([5, 8])
    """

    worlds: Tensor
    scores: Tensor


@runtime_checkable
class Reasoner(Protocol):
    """What exact, fuzzy, refined, sampled and amortised reasoning have in common.

    ``exactness`` says what the numbers are: "exact" and "approximate" reasoners have probabilities and also a method
    ``log_prob(belief, output)`` that returns log p(y | P) or its estimate, ``(*batch,)``; a reasoner with "none", such
    as a fuzzy one, has truth values, which are not probabilities, and no such method.

    Outputs are int64 ``(*batch, Y)``, or ``(Y,)`` for all rows, with -1 for unobserved variables; values of given
    variables, of a problem that has such, are int64 ``(*batch, G)`` or ``(G,)``.

    >>> from doxa.problem import BruteForce, addition
    >>> isinstance(BruteForce(addition(1)), Reasoner)
    True
    """

    @property
    def problem(self) -> Problem:
        """What is reasoned about."""
        ...

    @property
    def exactness(self) -> Literal["exact", "approximate", "none"]:
        """What the numbers are."""
        ...

    def loss(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """One number per row, ``(*batch,)``, to be made small by training."""
        ...

    def predict(self, belief: Belief, *, given: Tensor | None = None) -> Tensor:
        """The best output for each row, int64 ``(*batch, Y)``."""
        ...

    def explain(self, belief: Belief, output: Tensor, k: int = 1, *, given: Tensor | None = None) -> Explanations:
        """The k best worlds that give the output."""
        ...


def describe_impossible(log_prob: Tensor, output: Tensor, given: Tensor | None, possible: Callable[..., Tensor]) -> str:
    """Which rows are impossible, why, and what to do."""
    rows = (log_prob == NEG_INF).nonzero()
    first, *more = (
        None if x is None else x.expand(*log_prob.shape, x.shape[-1])[tuple(rows[0])] for x in (output, given)
    )
    assert first is not None
    fits = possible(first, given=more[0])
    why = "the belief gives probability 0 to every world that gives" if fits else "no world gives"
    named = ", ".join(str(tuple(row.tolist())) for row in rows[:10]) + (" ..." if len(rows) > 10 else "")
    wanted = f"{tuple(first.tolist())}" + (f" with {tuple(more[0].tolist())} given" if more[0] is not None else "")
    return (
        f"impossible outputs in rows {named}: {why} {wanted}, for one; correct the rows, or for a loss that passes "
        "over them make the reasoner with impossible='finite'"
    )
