"""The grounding machine does not care what truth values are: a real-valued logic runs on it, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logic.generated import C, Case, Maker, make_case
from tests.logic.product import Counting, Product, SoftWorld, value
from torch import Tensor

from doxa.logic import Interpretation, KnowledgeBase, logits, parse, probs
from doxa.logic.tensor._algebra import Monoid
from doxa.logic.tensor._plan import TensorPlan

PRODUCT = Product()


def soften(case: Case, seed: int) -> tuple[dict[str, Any], SoftWorld, list[Tensor]]:
    """The tables of a case as probabilities that learn, in a plain world and as bindings."""
    g = torch.Generator().manual_seed(seed)
    n = case.data["P"]
    shapes = {"flag": (), "p": (n,), "r": (n, n), "q": (3,), "has": (n, 2), "t": (n, 3, n)}
    soft = {k: torch.rand(s, generator=g, dtype=torch.float64) for k, s in shapes.items()}
    drawn = {"f": (n, 3), "colour": (n, 2), "both": (n, n, 2)}
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


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 2), st.sampled_from([1, 4, 20, 2**22]), st.integers(2, 3)
)
def test_values_and_gradients_are_those_of_loops(seed: int, people: int, rows: int, chunk: int, depth: int) -> None:
    case = make_case(seed, people, rows, False)
    formula = Maker(seed, people=True).formula(depth)
    bindings, world, leaves = soften(case, seed)
    kb, _ = case.knowledge(formula)
    interpretation = Interpretation(kb, **bindings)
    got = TensorPlan(kb["a0"], interpretation, algebra=PRODUCT, chunk=chunk)(**case.data)
    want = value(formula, world)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    nothing = 0 * sum([leaf.sum() for leaf in leaves])  # some formulas depend on no truth value at all
    ours = torch.autograd.grad(got + nothing, leaves, retain_graph=True)
    theirs = torch.autograd.grad(want + nothing, leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


MONOIDS = [
    Monoid("all"),
    Monoid("any"),
    Monoid("sum"),
    Monoid("sum", lift=lambda x: x**2, finish=lambda s, n: s / torch.as_tensor(n).clamp(min=1), counts=True),
    Monoid("prod"),
    Monoid("min"),
    Monoid("max"),
    Monoid("min", neutral=5.0),
    Counting("at least", 2),
    Counting("exactly", 1),
]


@pytest.mark.parametrize("accumulator", MONOIDS, ids=range(len(MONOIDS)))
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 3), st.integers(0, 6))
def test_folding_in_pieces_is_folding_at_once(accumulator: Any, seed: int, rows: int, columns: int, cut: int) -> None:
    """Whole, in two halves, by segments, or axis by axis: the fold is the same, also over nothing."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, columns, generator=g, dtype=torch.float64)
    if isinstance(accumulator, Monoid) and accumulator.op in ("all", "any"):
        x = x < 0.7
    a = accumulator
    whole = a.finish(a.fold(a.lift(x), (0,)), rows)
    assert whole.shape == (columns,)
    halves = a.merge(a.fold(a.lift(x[:cut]), (0,)), a.fold(a.lift(x[cut:]), (0,)))
    torch.testing.assert_close(a.finish(halves, rows), whole)
    ids = torch.randint(0, 4, (rows,), generator=g)
    parts = a.segments(a.lift(x), 0, ids, 4)
    each = torch.stack([a.finish(a.fold(a.lift(x[ids == i]), (0,)), int((ids == i).sum())) for i in range(4)])
    torch.testing.assert_close(a.finish(parts, torch.bincount(ids, minlength=4)[:, None]), each)
    torch.testing.assert_close(a.finish(a.fold(parts, (0,)), rows), whole)
    both = a.finish(a.fold(a.lift(x), (0, 1)), rows * columns)
    torch.testing.assert_close(a.finish(a.fold(a.fold(a.lift(x), (1,)), (0,)), rows * columns), both)


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_folds_have_the_right_gradients(op: Any) -> None:
    x = torch.rand(5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([2, 0, 2, 2, 0])
    a = Monoid(op)
    assert torch.autograd.gradcheck(lambda x: a.fold((x,), (0,)), (x,))
    assert torch.autograd.gradcheck(lambda x: a.segments((x,), 0, ids, 3), (x,))
    with torch.no_grad():
        x[1] = 0.0
    assert torch.autograd.gradcheck(lambda x: a.segments((x,), 0, ids, 3), (x,))


def test_stacked_rules_have_the_same_values_and_gradients() -> None:
    kb = parse(
        """
        sort Image
        sort Digit = 0..5
        pred is(Image, Digit)
        pred same(Image, Image)
        """
        + "\n".join([f"[r{d}] forall x, y: Image. is(x, {d}) & same(x, y) -> is(y, {d})" for d in range(6)])
    )
    g = torch.Generator().manual_seed(0)
    leaves = [torch.rand(s, generator=g, dtype=torch.float64).requires_grad_() for s in ((4, 6), (4, 4))]
    world = Interpretation(kb, same=probs(leaves[1]), **{"is": probs(leaves[0])})
    found = []
    for stack, chunk in ((2, 2**22), (2, 11), (100, 2**22)):
        values = TensorPlan(kb, world, algebra=PRODUCT, stack=stack, chunk=chunk)(Image=4)
        found.append((values, *torch.autograd.grad(values.sum(), leaves)))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_an_empty_knowledge_base() -> None:
    kb = KnowledgeBase()
    assert TensorPlan(kb, Interpretation(kb), algebra=PRODUCT)().shape == (0,)
    assert TensorPlan(kb, Interpretation(kb))().dtype == torch.bool


def test_the_type_of_truth_values_is_that_of_the_interpretation() -> None:
    kb = parse("sort D = 0..3\npred p(D)\n[a] forall d: D. d < 9\n[b] forall d: D. p(d)", warn=False)
    for dtype in (torch.float32, torch.float64):
        world = Interpretation(kb, p=torch.ones(4, dtype=dtype))
        assert TensorPlan(kb["a"], world, algebra=PRODUCT)().dtype == dtype
    assert TensorPlan(kb["a"], Interpretation(kb, p={1}), algebra=PRODUCT)().dtype == torch.get_default_dtype()
