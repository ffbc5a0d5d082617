"""Formulas on the grounding machine have the values and gradients of plain loops, in every logic."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzzy.conftest import EXISTS_FAMILY, FORALL_FAMILY, TNORM_FAMILY, UNBOUNDED_FAMILY
from tests.fuzzy.loops import Loops, SoftWorld
from tests.logic.generated import C, Case, Maker, make_case
from torch import Tensor

from doxa import fuzzy as fz
from doxa.fuzzy._algebra import FuzzyAlgebra
from doxa.fuzzy.operators._logspace import LogConjunction
from doxa.fuzzy.operators._wrapped import StableAggregator
from doxa.fuzzy.quantifiers._folds import Counting, Gathered, connective_fold, quantifier_fold
from doxa.logic import Interpretation, logits, probs
from doxa.logic.tensor._plan import TensorPlan

LOGICS = [*map(fz.logic, fz.LOGICS), fz.log_space(2.0, "mean"), fz.recommended(p=3.0)]
LOGICS += [
    fz.Logic(
        fz.SugenoNegation(1.0),
        fz.sigmoidal(fz.Product(), 5.0),
        fz.Product().dual,
        fz.REICHENBACH,
        fz.sigmoidal(fz.GeneralizedMeanError(4.0), 9.0),
        fz.GeneralizedMean(0.5),
        name="mixed",
    )
]


def means(p: float) -> fz.Logic:
    """A logic whose quantifiers are sums of powers of products."""
    product = fz.Product()
    return fz.Logic(
        fz.STANDARD,
        product,
        product.dual,
        fz.REICHENBACH,
        fz.GeneralizedMeanError(p),
        fz.GeneralizedMean(p),
        name=f"means{p}",
    )


LOGICS += [means(p) for p in (1.0, 2.0, 4.0)]
_BASE = fz.logic("product")
LOGICS += [
    fz.Logic(_BASE.neg, _BASE.conj, _BASE.disj, _BASE.implies, forall, fz.LogProbabilisticSum(), name=name)
    for name, forall in (("log exists", _BASE.forall), ("log forall and exists", fz.LogProduct()))
]


def soften(case: Case, seed: int, draws: bool) -> tuple[dict[str, Any], SoftWorld, list[Tensor]]:
    """The tables of a case as probabilities that learn, in a plain world and as bindings."""
    g = torch.Generator().manual_seed(seed)
    n = case.data["P"]
    shapes = {"flag": (), "p": (n,), "r": (n, n), "q": (3,), "has": (n, 2), "t": (n, 3, n)}
    soft = {k: 0.02 + 0.96 * torch.rand(s, generator=g, dtype=torch.float64) for k, s in shapes.items()}
    drawn = {"f": (n, 3), "colour": (n, 2), "both": (n, n, 2)} if draws else {}
    scores = {k: torch.randn(s, generator=g, dtype=torch.float64) for k, s in drawn.items()}
    leaves = [t.requires_grad_() for t in [*soft.values(), *scores.values()]]
    bindings = {**case.bindings, **{k: probs(v) for k, v in soft.items()}, **{k: logits(v) for k, v in scores.items()}}

    def place(name: str, number: int, arg: Any) -> int:
        if arg in C.values:
            return C.values.index(arg)
        return int(arg) - 1 if name == "q" or (name == "t" and number == 1) else int(arg)

    def soft_lookup(name: str) -> Any:
        return lambda *args: soft[name][tuple([place(name, i, a) for i, a in enumerate(args)])]

    def draw(name: str) -> Any:
        values = [1, 2, 3] if name == "f" else list(C.values)
        return lambda *args: list(zip(scores[name][args].softmax(-1), values, strict=True))

    world = case.world
    # Guards look at truth values classically: what is more likely than not, and the most probable value.
    crisp = {k: (lambda name: lambda *args: bool(soft_lookup(name)(*args) > 0.5))(k) for k in soft}
    crisp |= {k: (lambda name: lambda *args: max(draw(name)(*args), key=lambda o: o[0])[1])(k) for k in scores}
    world.symbols.update(crisp)
    return bindings, SoftWorld(world, {k: soft_lookup(k) for k in soft}, {k: draw(k) for k in scores}), leaves


def gradients(value: Tensor, leaves: list[Tensor]) -> Tensor:
    value = value + 0 * sum([leaf.sum() for leaf in leaves])  # some formulas depend on no truth value at all
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, leaves)])


@pytest.mark.parametrize("logic", LOGICS, ids=lambda logic: logic.name)
@settings(max_examples=10, deadline=None, derandomize=True)  # rounding decides at jumps such as p & !p
@given(st.data())
def test_values_and_gradients_are_those_of_loops(logic: fz.Logic, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32))
    people, rows = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 2))
    chunk, stack = data.draw(st.sampled_from([1, 4, 20, 2**22])), data.draw(st.sampled_from([2, 16]))
    case = make_case(seed, people, rows, False)
    formula = Maker(seed, people=True).formula(2 + seed % 2)
    bindings, world, leaves = soften(case, seed, draws=True)
    kb, _ = case.knowledge(formula)
    outermost = data.draw(st.sampled_from([None, None, fz.GeneralizedMeanError(1.0), fz.LogProduct("mean")]))
    algebra = FuzzyAlgebra(logic, rewrite=data.draw(st.booleans()), outermost=outermost)
    world_of = Interpretation(kb, **bindings)
    plan = TensorPlan(kb["a0"], world_of, algebra=algebra, chunk=chunk, stack=stack, checkpoint=chunk in (4, 20))
    got = plan(**case.data)
    loops = Loops(logic, world)
    want = loops.whole(formula, outermost)
    ours, theirs = gradients(got, leaves), gradients(want, leaves)
    # At kinks and jumps (p & !p in Łukasiewicz) rounding decides; then the loops disagree with themselves next to it.
    with torch.no_grad():
        noise = [1e-7 * (torch.rand(t.shape, generator=torch.Generator().manual_seed(seed)) - 0.5) for t in leaves]
        for leaf, step in zip(leaves, noise, strict=True):
            leaf += step
    beside = loops.whole(formula, outermost)
    smooth = torch.allclose(gradients(beside, leaves), theirs, rtol=1e-2, atol=1e-2)
    if torch.allclose(beside, want, rtol=1e-3, atol=1e-3):
        assert got.dtype == torch.float64
        torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-7)
    if smooth:
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


# --- folds in pieces ----------------------------------------------------------------------------------------------

AGGREGATORS = [*FORALL_FAMILY, *EXISTS_FAMILY, *UNBOUNDED_FAMILY]
AGGREGATORS += [
    StableAggregator(1e-2, fz.GeneralizedMeanError(2.0)),
    StableAggregator(1e-2, fz.GeneralizedMean(3.0)),
    fz.LogForall(),
    fz.LogForall("mean"),
    fz.LogExists(2.0),
]
IDS = torch.tensor([3, 0, 3, 1, 3, 0, 3, 3])


def pieces(fold: Any, x: Tensor) -> Tensor:
    """The last axis onto four places, in two halves; the first axis is folded."""
    state, count = None, 0
    for part, ids in ((x[..., :3], IDS[:3]), (x[..., 3:], IDS[3:])):
        new = fold.segments(fold.fold(fold.lift(part), (0,)), 1, ids, 4)
        state = new if state is None else fold.merge(state, new)
        count = count + torch.bincount(ids, minlength=4) * len(x)
    return fold.finish(state, count)


def directly(operator: Any, x: Tensor) -> Tensor:
    columns = [operator(x[..., i == IDS].movedim(0, -1).flatten(1), 1) for i in range(4)]
    return torch.stack(columns, 1)


def table(seed: int, log: bool) -> Tensor:
    x = 0.05 + 0.9 * torch.rand(3, 2, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x.log() if log else x).requires_grad_()


@pytest.mark.parametrize("aggregator", AGGREGATORS, ids=repr)
def test_aggregators_can_be_done_in_pieces(aggregator: fz.Aggregator) -> None:
    """Axes, segments (one of them empty) and merging give what the aggregator gives on all values at once."""
    for seed in range(3):
        x = table(seed, isinstance(aggregator, fz.LogForall | fz.LogExists))
        want = directly(aggregator, x)
        gradient = torch.autograd.grad(want.sum(), x)[0]
        for fold in (quantifier_fold(aggregator), Gathered(aggregator)):
            got = pieces(fold, x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), x)[0], gradient, rtol=1e-5, atol=1e-7)


CONNECTIVES: list[Any] = [*TNORM_FAMILY, *[t.dual for t in TNORM_FAMILY], LogConjunction(), fz.LogDisjunction(2.0)]
CONNECTIVES += [fz.sigmoidal(fz.Yager(2.0), 5.0), fz.StableConnective(0.01, fz.Product())]


@pytest.mark.parametrize("connective", CONNECTIVES, ids=repr)
def test_connectives_can_be_done_in_pieces(connective: Any) -> None:
    x = table(0, isinstance(connective, LogConjunction | fz.LogDisjunction))
    for fold in (connective_fold(connective), Gathered(connective.reduce)):
        torch.testing.assert_close(pieces(fold, x), directly(connective.reduce, x))


@pytest.mark.parametrize("kind", ["exactly", "at most", "at least"])
@pytest.mark.parametrize("number", [0, 1, 3, 9])
def test_counts_are_poisson_binomial(kind: str, number: int) -> None:
    """Equal chances give the binomial distribution."""
    for n in (0, 1, 7, 40):
        fold = Counting(kind, number, False)
        x = torch.full((n,), 0.3, dtype=torch.float64)
        got = fold.finish(fold.fold(fold.lift(x), (0,)), n)
        binomial = [math.comb(n, i) * 0.3**i * 0.7 ** (n - i) for i in range(n + 1)]
        fits = {"exactly": slice(number, number + 1), "at most": slice(number + 1), "at least": slice(number, None)}
        torch.testing.assert_close(got, torch.tensor(float(sum(binomial[fits[kind]])), dtype=torch.float64))


def test_small_chances_of_many_are_not_lost() -> None:
    fold = Counting("at least", 1, False)
    x = torch.full((1000,), 1e-12)
    torch.testing.assert_close(fold.finish(fold.fold(fold.lift(x), (0,)), 1000), torch.tensor(1e-9))
