r"""The valuation of formulas and knowledge bases (Chapter 3, Def. val), compiled once and run on batch after batch.

A formula, an interpretation and a logic make a :class:`FuzzyPlan`: grounding turns quantifiers into tensor axes, runs
each network once, shares what formulas share, and stacks formulas that differ only in constants.

Where a logic's ∀ gives logarithms (the log-product), so do all its values: ∀ then has to be outermost, and a formula
that does not begin with ∀ is read as one instance, with value log e(φ).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import torch
from torch import Tensor

from doxa._numerics import safe_log
from doxa.errors import KnowledgeError
from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.fuzzy._logic import Logic, logic
from doxa.logic import Axiom, Expr, Interpretation, KnowledgeBase, Let, Plan, Quantifier

__all__ = ["FuzzyPlan", "Valuation", "valuation"]

Made = TypeVar("Made")
STACK = 8
"""So many formulas that differ only in constants are evaluated as one: a rule for each of ten digits, say."""
KEPT = 64
"""An interpretation keeps so many plans, and lets the oldest go."""


class Valuation(NamedTuple):
    r"""The value of each axiom, and their weighted sum :math:`\sum_φ w_φ\, e(φ)`.

    >>> Valuation(torch.tensor(1.2), torch.tensor([0.4, 0.8]), torch.ones(2), ("a", "b")).loss
    tensor(-1.2000)
    """

    total: Tensor
    values: Tensor
    weights: Tensor
    names: tuple[str, ...]

    @property
    def loss(self) -> Tensor:
        """Minus the total (Chapter 3, Eq. lossrl; errata 2.2)."""
        return -self.total

    def by_name(self) -> dict[str, Tensor]:
        """The value of each axiom by its name."""
        return dict(zip(self.names, self.values.unbind(), strict=True))


class FuzzyPlan:
    r"""A formula, or all axioms of a knowledge base, ready to be valued on data.

    Args:
        what: a formula, an axiom or a knowledge base.
        interpretation: the meaning of its symbols.
        logic: the operators, or the name of a logic (see :func:`doxa.fuzzy.logic`).
        chunk: intermediate tensors have at most this many elements; larger frames are cut into tiles.
        stack: so many formulas that differ only in constants are evaluated as one.
        keep: variables of the outermost ``forall`` of a formula to keep as axes of the result.
        rewrite: whether a quantifier that is a sum of products is contracted, exactly, without a tensor of all
            instances: with product ∧ and ∨, standard ¬, Reichenbach →, and generalised means. The transitive rule
            ``forall x, y, z. Q(x, z) & R(z, y) -> P(x, y)`` is then a matrix product,
            :math:`1 - (\sum (1-P)^p (Q^p R^p) / n^3)^{1/p}`. :meth:`explain` names what was contracted.
        compile: hand what the formulas do with truth values to ``torch.compile``, which fuses connectives and
            quantifiers into few loops over the data, so that ``chunk`` is not needed. It takes seconds for each new
            number of objects, and a C++ compiler. Formulas with guards, rows or relations listed by name run as usual;
            :meth:`explain` says which.
        checkpoint: when a frame is cut into tiles, the backward pass computes each tile again instead of keeping all of
            them, so that ``chunk`` bounds its memory too. Turn it off for ``torch.func``.

    Calling it on data gives one value, or one per axiom.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)")
    >>> seen = Interpretation(kb, raven=probs(torch.tensor([0.9, 0.2])), black=probs(torch.tensor([0.3, 0.4])))
    >>> FuzzyPlan(kb, seen, "product")(Bird=2)
    tensor([0.3256])
    >>> FuzzyPlan(kb["rule"], seen, "product", keep="x")(Bird=2)
    tensor([0.3700, 0.8800])
    """

    def __init__(
        self,
        what: Expr | Axiom | KnowledgeBase,
        interpretation: Interpretation,
        logic: Logic | str,
        *,
        chunk: int = 2**22,
        stack: int = STACK,
        keep: str | Sequence[str] = (),
        rewrite: bool = True,
        compile: bool = False,
        checkpoint: bool = True,
    ) -> None:
        self.logic = as_logic(logic)
        self.rewrite = rewrite
        self.plan = Plan(
            what,
            interpretation,
            algebra=self.algebra(),
            chunk=chunk,
            stack=stack,
            keep=keep,
            compile=compile,
            checkpoint=checkpoint,
        )
        self.names = tuple([name for name, _ in self.plan.formulas])
        self._plain: list[bool] = []
        """Formulas whose value still has to become a logarithm."""
        if not self.logic.is_log and (self.logic.forall.is_log or self.logic.exists.is_log):
            self._plain = [_gives_truth(name, formula, self.logic) for name, formula in self.plan.formulas]

    def algebra(self) -> FuzzyAlgebra:
        """How formulas are evaluated."""
        return FuzzyAlgebra(self.logic, rewrite=self.rewrite)

    def plain(self, number: int) -> bool:
        """Whether the value of a formula still has to become a logarithm."""
        return bool(self._plain) and self._plain[number]

    def __call__(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        values = self.plan(generator=generator, **data)
        if not any(self._plain):
            return values
        if self.plan.one:
            return safe_log(values)
        plain = torch.tensor(self._plain, device=values.device)
        return torch.where(plain, safe_log(torch.where(plain, values, 1.0)), values)

    def explain(self, *, generator: torch.Generator | None = None, **data: Any) -> str:
        """Run on data, and say what was computed.

        >>> from doxa.logic import parse
        >>> kb = parse("sort Bird; pred black(Bird); [rule] forall x: Bird. black(x)")
        >>> seen = Interpretation(kb, black=torch.tensor([True, False]))
        >>> print(FuzzyPlan(kb, seen, "godel").explain(Bird=2).splitlines()[0])
        godel, chunks of 4194304 elements
        """
        return self.plan.explain(generator=generator, **data)


@overload
def valuation(
    what: KnowledgeBase,
    interpretation: Interpretation,
    logic: Logic | str,
    *,
    generator: torch.Generator | None = ...,
    chunk: int = ...,
    keep: str | Sequence[str] = ...,
    **data: Any,
) -> Valuation: ...
@overload
def valuation(
    what: Expr | Axiom,
    interpretation: Interpretation,
    logic: Logic | str,
    *,
    generator: torch.Generator | None = ...,
    chunk: int = ...,
    keep: str | Sequence[str] = ...,
    **data: Any,
) -> Tensor: ...
def valuation(
    what: Expr | Axiom | KnowledgeBase,
    interpretation: Interpretation,
    logic: Logic | str,
    *,
    generator: torch.Generator | None = None,
    chunk: int = 2**22,
    keep: str | Sequence[str] = (),
    **data: Any,
) -> Tensor | Valuation:
    """How true is it?

    The plan is kept by the interpretation, so that a second call with the same formulas and logic compiles nothing.

    Args:
        what: a formula or an axiom, or a knowledge base.
        interpretation: the meaning of the symbols.
        logic: the operators, or the name of a logic.
        generator: draws the batches of ``sample``.
        chunk: intermediate tensors have at most this many elements.
        keep: variables of the outermost ``forall`` to keep as axes of the result.
        data: objects of open sorts and rows, by name.

    Returns:
        The value of a formula; of a knowledge base, a :class:`Valuation` with the weights that the axioms were given.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("pred rain; pred wet; [soaked] rain -> wet; [dry, weight 0.5] !wet")
    >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.9)), wet=probs(torch.tensor(0.3)))
    >>> valuation(kb["soaked"], seen, "product")
    tensor(0.3700)
    >>> found = valuation(kb, seen, "product")
    >>> found.total, found.by_name()
    (tensor(0.7200), {'soaked': tensor(0.3700), 'dry': tensor(0.7000)})
    """
    values = _plan(what, interpretation, as_logic(logic), chunk, keep)(generator=generator, **data)
    if not isinstance(what, KnowledgeBase):
        return values
    weights = torch.tensor([a.weight for a in what.axioms], dtype=values.dtype, device=values.device)
    return Valuation(weights @ values, values, weights, tuple([a.name for a in what.axioms]))


def as_logic(chosen: Logic | str) -> Logic:
    """A logic, or the one of that name."""
    return logic(chosen) if isinstance(chosen, str) else chosen


def _plan(
    what: Expr | Axiom | KnowledgeBase,
    interpretation: Interpretation,
    logic: Logic,
    chunk: int,
    keep: str | Sequence[str],
) -> FuzzyPlan:
    if isinstance(what, KnowledgeBase):
        formulas: Any = tuple([(a.name, a.formula) for a in what.axioms])
    else:
        formulas = (what.name, what.formula) if isinstance(what, Axiom) else what
    key = ("fuzzy", formulas, logic, chunk, keep if isinstance(keep, str) else tuple(keep))
    return remember(interpretation, key, what, lambda: FuzzyPlan(what, interpretation, logic, chunk=chunk, keep=keep))


def remember(interpretation: Interpretation, key: Any, what: object, make: Callable[[], Made]) -> Made:
    """What the interpretation has kept under a key, or else what is made now; ``what`` is kept with it."""
    plans = interpretation.plans
    if key not in plans:
        made = make()
        while len(plans) >= KEPT:
            del plans[next(iter(plans))]
        plans[key] = (what, made)
    found: Made = plans[key][1]
    return found


def _gives_truth(name: str, formula: Expr, logic: Logic) -> bool:
    """Whether the value is no logarithm yet; an error if a quantifier gives logarithms to a connective."""

    def is_log(node: Expr) -> bool:
        if not isinstance(node, Quantifier) or node.count is not None:
            return False
        return (logic.forall if node.kind == "forall" else logic.exists).is_log

    body, logs = formula, is_log(formula)
    while isinstance(body, Quantifier) and logs and body.kind == getattr(formula, "kind", None):
        body = body.body  # one block
    todo, seen = [body], {id(body)}
    while todo:
        node = todo.pop()
        if is_log(node):
            raise KnowledgeError(
                f"{name}: {node} gives a logarithm in the logic {logic.name or logic!r}, and stands inside another "
                "formula; only the outermost quantifier can. Split the formula into several axioms, or choose a logic "
                "whose ∀ gives truth values, such as 'product'"
            )
        # Guards are classical, so they do not matter here.
        below = (node.body,) if isinstance(node, Quantifier | Let) else node.children
        for child in below:
            if id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return not logs
