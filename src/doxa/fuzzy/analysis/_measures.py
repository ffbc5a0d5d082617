"""What the gradients of implications ∀x (α → γ) do (Chapter 3, "Measures"; errata 2.17).

|cons| and |ant| add up the derivatives of the aggregated value by consequents and, negated, by antecedents; cons% is
their ratio, cu the part that raises what is true, or lowers what is false, by the labels. The mass of an instance
splits into *modus ponens* and *modus tollens*, by how much one side moves more, and *distrust*, in which both move
alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from doxa._cache import Same
from doxa._numerics import safe_log
from doxa.errors import DataError, KnowledgeError
from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.fuzzy._logic import Logic, logic
from doxa.fuzzy._plan import FuzzyPlan, as_logic
from doxa.logic import Axiom, Expr, Implies, Interpretation, KnowledgeBase, Quantifier


@dataclass(frozen=True)
class GradientMeasures:
    """The measures of an axiom, or of several together (``a + b``). Without labels, what needs them is NaN.

    >>> m = GradientMeasures(instances=4, consequent=1.0, antecedent=3.0, ponens=0.5, tollens=2.5, distrust=1.0)
    >>> m.consequent_ratio, m.split
    (0.25, {'ponens': 0.125, 'tollens': 0.625, 'distrust': 0.25})
    """

    instances: int = 0
    consequent: float = 0.0
    """Consequent magnitude |cons|."""
    antecedent: float = 0.0
    """Antecedent magnitude |ant|."""
    ponens: float = 0.0
    tollens: float = 0.0
    distrust: float = 0.0
    consequent_correct: float = 0.0
    """The part of |cons| where the consequent is true."""
    antecedent_correct: float = 0.0
    """The part of |ant| where the antecedent is false."""
    both_true: float = 0.0
    """How many instances are true in antecedent and consequent, by the labels."""
    both_false: float = 0.0
    only_consequent: float = 0.0
    labelled: bool = False

    def __add__(self, other: GradientMeasures) -> GradientMeasures:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "labelled"}
        return GradientMeasures(**sums, labelled=self.labelled and other.labelled)

    @property
    def consequent_ratio(self) -> float:
        """cons%: how much of the derivatives goes to the consequent."""
        return _ratio(self.consequent, self.consequent + self.antecedent)

    @property
    def split(self) -> dict[str, float]:
        """The shares of modus ponens, modus tollens and distrust."""
        mass = self.ponens + self.tollens + self.distrust
        return {name: _ratio(getattr(self, name), mass) for name in ("ponens", "tollens", "distrust")}

    @property
    def consequent_update_ratio(self) -> float:
        """cu_cons: how much of what raises consequents raises true ones."""
        return _ratio(self.consequent_correct, self.consequent) if self.labelled else float("nan")

    @property
    def antecedent_update_ratio(self) -> float:
        """cu_ant: how much of what lowers antecedents lowers false ones."""
        return _ratio(self.antecedent_correct, self.antecedent) if self.labelled else float("nan")

    @property
    def chance(self) -> dict[str, float]:
        """What random guessing gives on these data: a derivative that is the same for all instances, and for consequent
        and antecedent; of the split, how often each of the three conclusions is the right one.

        >>> GradientMeasures(instances=4, both_true=1, both_false=2, only_consequent=1, labelled=True).chance
        {'consequent_ratio': 0.5, 'consequent_update_ratio': 0.5, 'antecedent_update_ratio': 0.75, 'ponens': 0.25, ...}
        """
        n = self.instances if self.labelled else 0
        return {
            "consequent_ratio": 0.5,
            "consequent_update_ratio": _ratio(self.both_true + self.only_consequent, n),
            "antecedent_update_ratio": _ratio(self.both_false + self.only_consequent, n),
            "ponens": _ratio(self.both_true, n),
            "tollens": _ratio(self.both_false, n),
            "distrust": _ratio(self.only_consequent, n),
        }


class MeasuredAxioms(NamedTuple):
    """The measures of all implications together, and of each by name."""

    total: GradientMeasures
    axioms: dict[str, GradientMeasures]


def measure(
    kb: KnowledgeBase,
    interpretation: Interpretation,
    logic: Logic | str,
    *,
    labels: Interpretation | Mapping[str, Any] | None = None,
    generator: torch.Generator | None = None,
    chunk: int = 2**22,
    **data: Any,
) -> MeasuredAxioms:
    """Measure what the gradients of the implications of a knowledge base do; other axioms are left out.

    The networks are run but nothing flows back into them, and nothing is left behind on them.

    Args:
        kb: the knowledge; its implications are the axioms ``forall ... (α -> γ)`` and ``α -> γ``.
        interpretation, logic, chunk, data: as in :func:`doxa.fuzzy.valuation`.
        labels: the true meaning of the symbols, as an interpretation or by name, as in ``{"raven": table}``.
        generator: draws the batches of ``sample``; labels are looked up for the same draws.

    >>> from doxa.logic import parse, probs
    >>> kb = parse("sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)")
    >>> seen = Interpretation(kb, raven=probs(torch.tensor([0.9, 0.2])), black=probs(torch.tensor([0.3, 0.4])))
    >>> true = {"raven": torch.tensor([True, False]), "black": torch.tensor([True, False])}
    >>> found = measure(kb, seen, "product", labels=true, Bird=2).total
    >>> print(f"{found.consequent_ratio:.4f} {found.consequent_update_ratio:.4f}")
    0.5082 0.9145
    """
    rules = [a for a in kb.axioms if isinstance(_matrix(a.formula), Implies)]
    if not rules:
        raise KnowledgeError("no axiom is an implication 'forall ... (a -> b)', so there is nothing to measure")
    chosen = as_logic(logic)
    seed = int(torch.randint(2**62, (), generator=generator))

    def instances(of: Interpretation, logic: Logic) -> list[_Instances]:
        def make() -> _TappedPlan:
            # Not stacked: each axiom has derivatives of its own.
            rulebook = KnowledgeBase.from_parts(kb.signature, rules)
            return _TappedPlan(rulebook, of, logic, chunk=chunk, stack=2**62, checkpoint=False)

        tapped: _TappedPlan = of.plans.find(("measure", Same(kb), logic, chunk), make)
        return tapped.instances(data, seed)  # the labels are drawn for the same sample

    found = instances(interpretation, chosen)
    if labels is None:
        measured = [_measures(rule, instances, None) for rule, instances in zip(rules, found, strict=True)]
    else:
        if not isinstance(labels, Interpretation):
            data = {**data, **labels}
            known: Interpretation = interpretation.plans.find(("labels", Same(kb)), lambda: Interpretation(kb))
            labels = known
        true = instances(labels, _CRISP)
        measured = [_measures(*both) for both in zip(rules, found, true, strict=True)]
    return MeasuredAxioms(
        sum(measured, GradientMeasures(labelled=labels is not None)),
        {rule.name: m for rule, m in zip(rules, measured, strict=True)},
    )


class _Instances(NamedTuple):
    """Antecedents and consequents of all instances, and the derivatives of the axiom's value."""

    antecedent: Tensor
    consequent: Tensor
    by_antecedent: Tensor
    by_consequent: Tensor


_CRISP = logic("product")
"""True on true and false on false, for every connective and quantifier."""


@dataclass(frozen=True)
class _Tapped(FuzzyAlgebra):
    """Cuts every implication off from what lies below it, and remembers where.

    Only the outermost implications then still lead to the value: the others were cut off from above.
    """

    cuts: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def factors(self, node: Expr, truth: bool) -> None:
        return None  # every implication is asked how true it is

    def implies(self, a: Tensor, b: Tensor) -> Tensor:
        is_log = self.logic.is_log
        pair = torch.broadcast_tensors(a, b)  # type: ignore[no-untyped-call]
        a, b = [(t.exp() if is_log else t).detach().requires_grad_() for t in pair]
        self.cuts.append((a, b))  # derivatives are those by truths, also where logarithms are computed with
        return super().implies(safe_log(a), safe_log(b)) if is_log else super().implies(a, b)


class _TappedPlan(FuzzyPlan):
    def algebra(self) -> FuzzyAlgebra:
        return _Tapped(self.logic)

    def instances(self, data: Mapping[str, Any], seed: int) -> list[_Instances]:
        algebra = self.plan.algebra
        assert isinstance(algebra, _Tapped)
        batch = self.plan.interpretation.read(data, self.plan.rows)
        found = []
        try:
            with torch.enable_grad():
                values = self.plan.values(batch, torch.Generator(batch.device).manual_seed(seed))
                cuts = [t for pair in algebra.cuts for t in pair]
                for value in values:
                    slopes: tuple[Tensor | None, ...] = torch.autograd.grad(value, cuts, allow_unused=True)
                    parts = [
                        [a, b, *[torch.zeros_like(a) if slope is None else slope for slope in (da, db)]]
                        for (a, b), da, db in zip(algebra.cuts, slopes[::2], slopes[1::2], strict=True)
                        if da is not None or db is not None
                    ]
                    columns = zip(*parts, strict=True) if parts else [[torch.zeros(0)]] * 4
                    flat = [torch.cat([t.detach().reshape(-1) for t in column]) for column in columns]
                    found.append(_Instances(*flat))
        finally:
            algebra.cuts.clear()
        return found


def _measures(rule: Axiom, found: _Instances, true: _Instances | None) -> GradientMeasures:
    up = rule.weight * found.by_consequent.double()
    down = -rule.weight * found.by_antecedent.double()
    common = 2 * torch.minimum(up.abs(), down.abs())
    by_labels: dict[str, Any] = {}
    if true is not None:
        a, c = true.antecedent.double(), true.consequent.double()
        if a.shape != up.shape:
            came = f"axiom {rule.name!r} has {len(up)} instances, but {len(a)} by the labels"
            raise DataError(f"{came}; bind the symbols of its guards ('where') to the same thing in both")
        by_labels = {
            "labelled": True,
            "consequent_correct": (c * up).sum().item(),
            "antecedent_correct": ((1 - a) * down).sum().item(),
            "both_true": (a * c).sum().item(),
            "both_false": ((1 - a) * (1 - c)).sum().item(),
            "only_consequent": ((1 - a) * c).sum().item(),
        }
    return GradientMeasures(
        instances=len(up),
        consequent=up.sum().item(),
        antecedent=down.sum().item(),
        ponens=(up.abs() - down.abs()).clamp_min(0).sum().item(),
        tollens=(down.abs() - up.abs()).clamp_min(0).sum().item(),
        distrust=common.sum().item(),
        **by_labels,
    )


def _matrix(formula: Expr) -> Expr:
    """What stands behind the outermost ``forall``."""
    while isinstance(formula, Quantifier) and formula.kind == "forall":
        formula = formula.body
    return formula


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")
