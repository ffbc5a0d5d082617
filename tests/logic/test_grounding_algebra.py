"""The grounding machine does not care what truth values are: a real-valued logic runs on it, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logic.generated import C, Case, Maker, make_case
from tests.logic.product import Product, SoftWorld, value
from torch import Tensor

from doxa.logic import Interpretation, Plan, logits, probs

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
    got = Plan(kb["a0"], interpretation, algebra=PRODUCT, chunk=chunk)(**case.data)
    want = value(formula, world)
    assert got.dtype == torch.float64
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    nothing = 0 * sum([leaf.sum() for leaf in leaves])  # some formulas depend on no truth value at all
    ours = torch.autograd.grad(got + nothing, leaves, retain_graph=True)
    theirs = torch.autograd.grad(want + nothing, leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)
