"""Classical truth of formulas and knowledge bases on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from doxa._cache import Same
from doxa.logic.bind._interpretation import Interpretation
from doxa.logic.syntax._kb import Axiom, KnowledgeBase
from doxa.logic.syntax._tree import Expr, Not
from doxa.logic.tensor._plan import CHUNK, TensorPlan

__all__ = ["cached_plan", "fact_formulas", "truth"]


def truth(
    what: Expr | Axiom | KnowledgeBase,
    interpretation: Interpretation,
    /,
    *,
    keep: str | Sequence[str] = (),
    generator: torch.Generator | None = None,
    chunk: int = CHUNK,
    **data: Any,
) -> Tensor:
    """Is it true? Networks say what they think most likely; every quantifier ranges over all its objects.

    Args:
        what: a formula, an axiom, or a knowledge base (is every axiom true, and does every fact hold?).
        interpretation: the meaning of the symbols.
        keep: variables of the outermost ``forall`` to keep as axes of the result, such as the rows of the data.
        generator: draws the batches of ``sample``.
        chunk: intermediate tensors have at most this many elements.
        data: objects of open sorts and rows, by name.

    Returns:
        A Boolean tensor: one value, or one per object of each kept variable, and of each free variable of the formula.

    >>> from doxa.logic import Function, KnowledgeBase, Sort, forall, logits, variables, within
    >>> Digit = Sort.range("Digit", 0, 9)
    >>> digit = Function("digit", (Sort("Image"),), Digit)
    >>> (p,) = variables("p")
    >>> total = digit(p.field("left")) + digit(p.field("right"))
    >>> kb = KnowledgeBase(sums=forall(within("pairs", p))(total.eq(p.field("sum"))))
    >>> sees = Interpretation(kb, digit=logits(lambda image: image))  # these images are their own logits
    >>> images = torch.eye(10)[[3, 4, 5, 6]]
    >>> pairs = dict(left=images[:2], right=images[2:], sum=torch.tensor([8, 11]))
    >>> truth(kb, sees, pairs=pairs)
    tensor(False)
    >>> truth(kb["sums"], sees, keep="p", pairs=pairs)
    tensor([ True, False])
    """
    plan = cached_plan(what, interpretation, chunk, keep)
    batch = interpretation.read(data, plan.rows)
    value = plan.run(batch, generator)
    if not isinstance(what, KnowledgeBase):
        return value
    if what.facts:
        value = torch.cat([value, facts_plan(what, interpretation, chunk).run(batch, generator)])
    return value.all()


def cached_plan(
    what: Expr | Axiom | KnowledgeBase, interpretation: Interpretation, chunk: int, keep: str | Sequence[str] = ()
) -> TensorPlan:
    """A plan that the interpretation remembers."""
    key = (what if isinstance(what, Expr) else Same(what), chunk, keep if isinstance(keep, str) else tuple(keep))
    plan: TensorPlan = interpretation.plans.find(key, lambda: TensorPlan(what, interpretation, chunk=chunk, keep=keep))
    return plan


def facts_plan(kb: KnowledgeBase, interpretation: Interpretation, chunk: int) -> TensorPlan:
    """A plan for the facts of a knowledge base."""
    key = ("facts", Same(kb), chunk)
    plan: TensorPlan = interpretation.plans.find(
        key, lambda: TensorPlan(fact_formulas(kb), interpretation, chunk=chunk)
    )
    return plan


def fact_formulas(kb: KnowledgeBase) -> list[tuple[str, Expr]]:
    """The facts as formulas: atoms that are true, and negated ones."""
    return [(str(f), f.atom if f.label else Not(f.atom)) for f in kb.facts]
