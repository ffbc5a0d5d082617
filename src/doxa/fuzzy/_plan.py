"""The valuation of formulas and knowledge bases (Chapter 3, Def. val), compiled once and run on batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.fuzzy._logic import Logic, logic
from doxa.fuzzy.quantifiers._aggregators import Aggregator
from doxa.logic import And, Axiom, Expr, Interpretation, KnowledgeBase, Quantifier
from doxa.logic.syntax._binders import Group
from doxa.logic.tensor._defined import DEPTH
from doxa.logic.tensor._plan import TensorPlan, formulas_of
from doxa.logic.tensor._plan import outermost as outermost_forall

STACK = 8
"""So many formulas that differ only in constants are evaluated as one: a rule for each of ten digits, say."""


class Valuation(NamedTuple):
    r"""The value of each axiom, and their weighted sum :math:`\sum_φ w_φ\, e(φ)`."""

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
        outermost: the aggregator of the first ``forall`` of each formula, with all its variables and its guard,
            instead of the logic's ∀. ``GeneralizedMeanError(1.0)`` gives the mean truth of its instances,
            ``LogProduct("mean")`` the mean of their logarithms. A formula without ``forall`` is one instance.
        keep: variables of the outermost ``forall`` of a formula to keep as axes of the result: one value for each
            instance, true where a guard leaves it out (see :meth:`guard`).
        rewrite: whether a quantifier that is a sum of products is contracted, exactly, without a tensor of all
            instances: with product ∧ and ∨, standard ¬, Reichenbach →, and generalised means. The transitive rule
            ``forall x, y, z. Q(x, z) & R(z, y) -> P(x, y)`` is then a matrix product,
            :math:`1 - (\sum (1-P)^p (Q^p R^p) / n^3)^{1/p}`. :meth:`explain` names what was contracted. Without it
            such a quantifier still multiplies the powers of its factors, one product for each instance.
        compile: hand what the formulas do with truth values to ``torch.compile``, which fuses connectives and
            quantifiers into few loops over the data, so that ``chunk`` is not needed. It takes seconds for each new
            number of objects, and a C++ compiler. Formulas with guards, rows or relations listed by name run as usual;
            :meth:`explain` says which.
        checkpoint: when a frame is cut into tiles, the backward pass computes each tile again instead of keeping all of
            them, so that ``chunk`` bounds its memory too. Turn it off for ``torch.func``.
        depth: how often the clauses of recursive definitions are evaluated, at most; :meth:`explain` reports how much
            the last time still changed. In Gödel logic that is nothing as soon as no derivation is longer.

    Calling it on data gives one value, or one per axiom. ``torch.compile`` follows a module that calls it without graph
    breaks, if the formulas have no guards and the plan was called once before on data of this kind.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)")
    >>> seen = Interpretation(kb, raven=probs(torch.tensor([0.9, 0.2])), black=probs(torch.tensor([0.3, 0.4])))
    >>> FuzzyPlan(kb, seen, "product")(Bird=2)
    tensor([0.3256])
    >>> FuzzyPlan(kb["rule"], seen, "product", keep="x")(Bird=2)
    tensor([0.3700, 0.8800])
    >>> from doxa.fuzzy import GeneralizedMeanError
    >>> FuzzyPlan(kb["rule"], seen, "product", outermost=GeneralizedMeanError(1.0))(Bird=2)
    tensor(0.6250)
    """

    def __init__(
        self,
        what: Expr | Axiom | KnowledgeBase,
        interpretation: Interpretation,
        logic: Logic | str,
        *,
        outermost: Aggregator | None = None,
        keep: str | Sequence[str] = (),
        chunk: int = 2**22,
        stack: int = STACK,
        rewrite: bool = True,
        compile: bool = False,
        checkpoint: bool = True,
        depth: int = DEPTH,
    ) -> None:
        self.logic = as_logic(logic)
        self.outermost = outermost
        self.rewrite = rewrite
        self.plan = TensorPlan(
            what,
            interpretation,
            algebra=self.algebra(),
            chunk=chunk,
            stack=stack,
            keep=keep,
            compile=compile,
            checkpoint=checkpoint,
            depth=depth,
        )
        self.names = tuple([name for name, _ in self.plan.formulas])

    def algebra(self) -> FuzzyAlgebra:
        """How formulas are evaluated."""
        return FuzzyAlgebra(self.logic, rewrite=self.rewrite, outermost=self.outermost)

    @property
    def is_log(self) -> bool:
        """Are the values of this plan logarithms of truth values?

        >>> from doxa.logic import parse
        >>> kb = parse("pred rain; rain")
        >>> [FuzzyPlan(kb, Interpretation(kb), name).is_log for name in ("product", "log_product")]
        [False, True]
        """
        return self.algebra().is_log

    def __call__(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        return self.plan(generator=generator, **data)

    def guard(self, *, generator: torch.Generator | None = None, **data: Any) -> Tensor | None:
        """Which instances of the kept variables the guards of the outermost ``forall`` let through; None without guard.

        A guard beside variables that are not kept lets every instance through: what it excludes is inside of it.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("sort N = 0..3; pred even(N); [rule] forall n: N where n > 1. even(n)")
        >>> seen = Interpretation(kb, even=probs(torch.tensor([1, 0, 0.9, 0.2])))
        >>> plan = FuzzyPlan(kb["rule"], seen, "product", keep="n")
        >>> plan(), plan.guard()
        (tensor([1.0000, 1.0000, 0.9000, 0.2000]), tensor([False, False,  True,  True]))
        """
        return None if self._guards is None else self._guards(generator=generator, **data)

    def value_and_guard(self, *, generator: torch.Generator | None = None, **data: Any) -> tuple[Tensor, Tensor | None]:
        """The value and :meth:`guard`, of the same data and the same random batches of ``sample``.

        >>> from doxa.logic import parse, probs
        >>> kb = parse("sort P; pred a(P); pred b(P); [rule] forall x: P sample 1 where a(x). b(x)")
        >>> seen = Interpretation(kb, a=torch.tensor([True, False]), b=probs(torch.tensor([0.3, 0.3])))
        >>> value, drawn = FuzzyPlan(kb["rule"], seen, "product", keep="x").value_and_guard(P=2)
        >>> bool((value < 1) == drawn)
        True
        """
        if self._guards is None:
            return self.plan(generator=generator, **data), None
        samples: dict[Any, Tensor] = {}
        batch = self.plan.interpretation.read(data, self.plan.rows)
        value = self.plan.run(batch, generator, samples=samples)
        return value, self._guards.run(batch, generator, samples=samples)

    @cached_property
    def _guards(self) -> TensorPlan | None:
        formula = _guard_formula(self.plan.formulas[0][1], self.plan.keep, alone=self.outermost is not None)
        if formula is None:
            return None
        return TensorPlan(formula, self.plan.interpretation, keep=self.plan.keep, chunk=self.plan.chunk)

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
def valuation(what: KnowledgeBase, interpretation: Interpretation, logic: Logic | str, **options: Any) -> Valuation: ...
@overload
def valuation(what: Expr | Axiom, interpretation: Interpretation, logic: Logic | str, **options: Any) -> Tensor: ...
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

    Arguments are those of :class:`FuzzyPlan`; a generator draws the batches of ``sample``, and objects of open sorts
    and rows come by name. The value of a knowledge base is a :class:`Valuation`, with the weights of its axioms.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("pred rain; pred wet; [soaked] rain -> wet; [dry, weight 0.5] !wet")
    >>> seen = Interpretation(kb, rain=probs(torch.tensor(0.9)), wet=probs(torch.tensor(0.3)))
    >>> valuation(kb["soaked"], seen, "product")
    tensor(0.3700)
    >>> found = valuation(kb, seen, "product")
    >>> found.total, found.by_name()
    (tensor(0.7200), {'soaked': tensor(0.3700), 'dry': tensor(0.7000)})
    """
    chosen = as_logic(logic)
    formulas = what if isinstance(what, Expr) else tuple(formulas_of(what))
    key = (FuzzyPlan, type(what), formulas, chosen, chunk, keep if isinstance(keep, str) else tuple(keep))
    plan: FuzzyPlan = interpretation.plans.find(
        key, lambda: FuzzyPlan(what, interpretation, chosen, chunk=chunk, keep=keep)
    )
    values = plan(generator=generator, **data)
    if not isinstance(what, KnowledgeBase):
        return values
    weights = torch.tensor([a.weight for a in what.axioms], dtype=values.dtype, device=values.device)
    return Valuation(weights @ values, values, weights, tuple([a.name for a in what.axioms]))


def as_logic(chosen: Logic | str) -> Logic:
    """A logic, or the one of that name."""
    return logic(chosen) if isinstance(chosen, str) else chosen


def _guard_formula(formula: Expr, keep: tuple[str, ...], *, alone: bool) -> Expr | None:
    """``forall`` over the kept variables: do they pass the guards that speak of no other? None without such guards."""
    levels, _ = outermost_forall(formula, alone=alone)
    guards: list[Expr] = []
    for groups, guard in levels:
        if any(name not in keep for group in groups for name in group.names):
            break
        guards += [] if guard is None else [guard]
    if not guards:
        return None
    kept = [(g, [n for n in g.names if n in keep]) for groups, _ in levels for g in groups]
    over = [Group(names, sort=g.sort, domain=g.domain, sample=g.sample) for g, names in kept if names]
    return Quantifier("forall", over, And(*guards))
