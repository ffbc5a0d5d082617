r"""The semantic loss by product logic, exact where no ground atom occurs twice (Chapter 3; errata 2.19).

The semantic loss of φ is :math:`-\log p(φ)`, the probability that φ is true when its atoms are independent events. In
product logic :math:`e(φ) = p(φ)` if every ground atom occurs at most once: then the parts of every connective are
independent too. If an atom occurs twice, it need not be: for p(A) = 0.6, e(A ∧ A) = 0.36.

Occurrences are counted by evaluating the formula once more, with the sum for every connective and quantifier: the
derivative of that sum for an atom is how often the atom occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from doxa._numerics import safe_log
from doxa.errors import KnowledgeError
from doxa.fuzzy._plan import FuzzyPlan, remember
from doxa.logic import (
    Accumulator,
    Axiom,
    Call,
    Expr,
    Interpretation,
    KnowledgeBase,
    Let,
    Monoid,
    Plan,
    Quantifier,
    postorder,
)

__all__ = ["SemanticLoss", "semantic_loss"]


class SemanticLoss(NamedTuple):
    """A loss, whether it is exactly the semantic loss, and if not, why.

    >>> SemanticLoss(torch.tensor(0.5), False, "an atom occurs 2 times").exact
    False
    """

    loss: Tensor
    exact: bool
    why: str


def semantic_loss(
    what: Expr | Axiom | KnowledgeBase, interpretation: Interpretation, *, chunk: int = 2**22, **data: Any
) -> SemanticLoss:
    """Minus the logarithm of the value in product logic; of a knowledge base, of the conjunction of its axioms.

    Objects that come as features in two places of the data count as two. For exact values whatever the formula, see
    :mod:`doxa.exact`.

    Args:
        what: a formula, an axiom or a knowledge base.
        interpretation: the meaning of the symbols.
        chunk: intermediate tensors have at most this many elements.
        data: objects of open sorts and rows, by name.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("pred a; pred b; [once] a -> b; [twice] a -> a & b")
    >>> seen = Interpretation(kb, a=probs(torch.tensor(0.9)), b=probs(torch.tensor(0.4)))
    >>> semantic_loss(kb["once"], seen)
    SemanticLoss(loss=tensor(0.7765), exact=True, why='no ground atom occurs twice')
    >>> semantic_loss(kb["twice"], seen).why
    'a ground atom occurs 2 times'
    """
    formulas: list[tuple[str, Expr]]
    if isinstance(what, KnowledgeBase):
        formulas = [(a.name, a.formula) for a in what.axioms]
    else:
        formulas = [(what.name, what.formula) if isinstance(what, Axiom) else ("the formula", what)]
    plan, counting = remember(
        interpretation,
        ("semantic", tuple(formulas), chunk),
        what,
        lambda: _plans(what, formulas, interpretation, chunk),
    )
    values = plan(**data)
    logs = values if plan.logic.name == "log_product" else safe_log(values)
    why = _doubt([f for _, f in formulas], interpretation) or _repetition(counting, data)
    return SemanticLoss(-logs.sum(), not why, why or "no ground atom occurs twice")


def _plans(
    what: Expr | Axiom | KnowledgeBase, formulas: list[tuple[str, Expr]], interpretation: Interpretation, chunk: int
) -> tuple[FuzzyPlan, Plan]:
    # Not stacked, so that a proposition has one place only.
    # Nor computed again in the backward pass, which counts every atom once.
    counting = Plan(formulas, interpretation, algebra=_Occurrences(), chunk=chunk, stack=2**62, checkpoint=False)
    try:
        return FuzzyPlan(what, interpretation, "log_product", chunk=chunk), counting
    except KnowledgeError:  # a ∀ inside the formula
        return FuzzyPlan(what, interpretation, "product", chunk=chunk), counting


@dataclass(frozen=True)
class _Occurrences:
    """The sum of all atoms below a formula."""

    name: str = "occurrences"
    statements: Literal["mode", "axis"] = "axis"
    associative: bool = True
    atoms: list[Tensor] = field(default_factory=list)

    def atom(self, raw: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
        zeros = torch.zeros(raw.shape, dtype=torch.float64, device=raw.device)
        if kind != "bool":
            self.atoms.append(zeros.requires_grad_())
        return zeros

    def not_(self, x: Tensor) -> Tensor:
        return x

    def and_(self, xs: Sequence[Tensor]) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*xs)).sum(0)  # type: ignore[no-untyped-call]

    or_ = and_

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        return 2 * (a + b)  # (a -> b) & (b -> a)

    xor = iff

    def connective(self, kind: Literal["and", "or"]) -> Accumulator:
        return Monoid("sum")

    def quantifier(self, kind: str, count: int | None) -> Accumulator:
        return Monoid("sum")

    def draw(self) -> Accumulator:
        return Monoid("sum")


def _repetition(counting: Plan, data: dict[str, Any]) -> str:
    algebra = counting.algebra
    assert isinstance(algebra, _Occurrences)
    try:
        with torch.enable_grad():
            total = counting(**data).sum()
        used = [t for t in algebra.atoms if t.numel()]
        if not used or not total.requires_grad:
            return ""
        counts = torch.autograd.grad(total, used, materialize_grads=True)
        most = round(max(c.max().item() for c in counts))
        return f"a ground atom occurs {most} times" if most > 1 else ""
    finally:
        algebra.atoms.clear()


def _doubt(formulas: Sequence[Expr], interpretation: Interpretation) -> str:
    """What makes atoms dependent, or their occurrences impossible to count."""
    functions = interpretation.kb.signature.functions
    listed = several = ""
    for node in postorder(*formulas):
        if isinstance(node, Let):
            return "a statement draws from a distribution, whose values exclude each other"
        if isinstance(node, Quantifier):
            if node.guard is not None or any(g.domain is not None for g in node.groups):
                listed = "behind a guard or inside rows"
            if any(g.sample is not None for g in node.groups):
                return "a sample may hold an object that occurs elsewhere too"
        if not isinstance(node, Call):
            continue
        meaning = interpretation.meaning(node.name)
        if meaning is not None and node.name in functions and meaning.returns != "value":
            return f"{node.name} is drawn from a distribution, whose values exclude each other"
        if getattr(meaning, "exclusive", False):
            return f"the values of {node.name} exclude each other"
        if len(getattr(meaning, "inputs", ())) > 1:
            several = node.name
    return f"{several} is run on single pairs {listed}, whose occurrences are not counted" if listed and several else ""
