"""The valuation of knowledge: the worked example of Chapter 3, logarithms, caching and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from doxa import fuzzy as fz
from doxa.errors import BindingError, ConfigError
from doxa.logic import Interpretation, KnowledgeBase, parse, probs

CHAIRS = """
sort Object
pred chair(Object); pred cushion(Object); pred armRest(Object); pred partOf(Object, Object)
[parts] forall x, y: Object. chair(x) & partOf(y, x) -> cushion(y) | armRest(y)
"""


def chairs() -> tuple[KnowledgeBase, Interpretation, dict[str, torch.Tensor]]:
    kb = parse(CHAIRS)
    beliefs = {
        "chair": [0.9, 0.4],
        "cushion": [0.05, 0.5],
        "armRest": [0.05, 0.1],
        "partOf": [[0.001, 0.01], [0.95, 0.001]],
    }
    leaves = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in beliefs.items()}
    return kb, Interpretation(kb, **{k: probs(v) for k, v in leaves.items()}), leaves


# Errata 2.1: derivatives of the valuation; partOf(1, 2) is partOf(o1, o2).
CHAIR_GRADIENTS = {
    "chair": [-0.426087, -0.005823],
    "cushion": [0.002860, 0.766182],
    "armRest": [0.002860, 0.425657],
    "partOf": [[-0.497843, -0.221885], [-0.403138, -0.110256]],
}


@pytest.mark.parametrize("chunk", [1, 2, 3, 2**22])
def test_the_worked_example(chunk: int) -> None:
    kb, beliefs, leaves = chairs()
    value = fz.valuation(kb["parts"], beliefs, "product", chunk=chunk, Object=2)
    assert value.item() == pytest.approx(0.612421, abs=1e-6)
    for (name, want), got in zip(
        CHAIR_GRADIENTS.items(), torch.autograd.grad(value, list(leaves.values())), strict=True
    ):
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), atol=1e-6, rtol=0, msg=name)


def test_the_log_product_is_the_logarithm_of_the_product() -> None:
    kb, beliefs, _ = chairs()
    log = fz.valuation(kb["parts"], beliefs, "log_product", Object=2)
    assert (-log).item() == pytest.approx(0.490336, abs=1e-6)  # errata 2.1


def test_instances_can_be_kept() -> None:
    kb, beliefs, _ = chairs()
    by_chair = fz.valuation(kb["parts"], beliefs, "product", keep="x", Object=2)
    each = fz.valuation(kb["parts"], beliefs, "product", keep=("x", "y"), Object=2)
    assert by_chair.shape == (2,) and each.shape == (2, 2)
    torch.testing.assert_close(each.prod(1), by_chair)
    assert by_chair.prod().item() == pytest.approx(0.612421, abs=1e-6)


def test_a_knowledge_base_has_values_and_a_total() -> None:
    kb = parse("sort P; pred p(P); pred q; [a] forall x: P. p(x); [b, weight 0.25] exists x: P. p(x); [c, weight 2] q")
    world = Interpretation(kb, p=probs(torch.tensor([0.5, 0.4])), q=probs(torch.tensor(0.1)))
    found = fz.valuation(kb, world, "product", P=2)
    torch.testing.assert_close(found.values, torch.tensor([0.2, 0.7, 0.1]))
    assert found.names == ("a", "b", "c")
    assert found.total.item() == pytest.approx(0.2 + 0.25 * 0.7 + 2 * 0.1)
    assert found.loss.item() == -found.total.item()
    assert list(found.by_name()) == ["a", "b", "c"]


def test_all_values_of_a_logarithmic_logic_are_logarithms() -> None:
    kb = parse("sort P; pred p(P); pred q; [a] forall x: P. p(x); [b] exists x: P. p(x); [c] q")
    world = Interpretation(kb, p=probs(torch.tensor([0.5, 0.4])), q=probs(torch.tensor(0.1)))
    plain, logs = (fz.valuation(kb, world, name, P=2).values for name in ("product", "log_product"))
    torch.testing.assert_close(logs, plain.log())
    torch.testing.assert_close(fz.valuation(kb["c"], world, "log_product", P=2), torch.tensor(0.1).log())


@pytest.mark.parametrize(
    "text",
    [
        "q -> exists x: P. forall y: P. r(x, y)",
        "q | !(forall x, y: P. r(x, y))",
        "forall x: P. q | forall y: P. r(x, y)",
    ],
)
def test_a_logarithm_inside_a_formula_is_a_truth_value(text: str) -> None:
    """The log-product has the truth values and gradients of the product, wherever ∀ stands."""
    kb = parse(f"sort P; pred r(P, P); pred q; [rule] {text}")
    r = torch.rand(2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    world = Interpretation(kb, r=probs(r), q=probs(torch.tensor(0.7, dtype=torch.float64)))
    logs, plain = (fz.valuation(kb["rule"], world, name, P=2) for name in ("log_product", "product"))
    torch.testing.assert_close(logs.exp(), plain)
    torch.testing.assert_close(*[torch.autograd.grad(v, r)[0] for v in (logs, plain.log())])
    assert torch.isfinite(fz.valuation(kb["rule"], world, "recommended", P=2))


def test_a_guard_may_quantify_and_blocks_are_one() -> None:
    kb = parse("sort P; pred r(P, P); [rule] forall x: P where forall z: P. r(x, z). forall y: P. r(y, x)")
    world = Interpretation(kb, r=probs(torch.tensor([[0.9, 0.8], [0.2, 0.7]])))
    value = fz.valuation(kb["rule"], world, "log_product", P=2)
    assert value.item() == pytest.approx(torch.tensor([0.9 * 0.2]).log().item())


def test_plans_are_kept_by_structure() -> None:
    kb, beliefs, _ = chairs()
    for _ in range(3):
        fz.valuation(parse(CHAIRS)["parts"], beliefs, "product", Object=2)
    assert len(beliefs.plans) == 1
    fz.valuation(kb, beliefs, fz.logic("yager(2)"), Object=2)
    fz.valuation(kb, beliefs, "yager(2.0)", Object=2)
    assert len(beliefs.plans) == 2
    beliefs.plans.size = 8
    for p in range(20):
        fz.valuation(kb, beliefs, f"yager({p + 1})", Object=2)
    assert len(beliefs.plans) <= 8


def test_networks_run_once_for_all_axioms() -> None:
    calls = []

    class Net(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            return super().forward(x)

    rules = "\n".join([f"forall x, y: P. is(x, {i}) & is(y, {i}) -> same(x, y)" for i in range(10)])
    kb = parse(f"sort P; sort D = 0..9; pred is(P, D); pred same(P, P)\n{rules}\nforall x: P. same(x, x)")
    world = Interpretation(kb, **{"is": _logits(Net(4, 10)), "same": _logits(fz.Bilinear(4))})
    values = {s: fz.FuzzyPlan(kb, world, "recommended", stack=s)(P=torch.randn(5, 4)) for s in (2, 100)}
    assert calls == [5, 5]
    assert values[2].shape == (11,)


def _logits(module: Any) -> Any:
    from doxa.logic import logits

    return logits(module)


def test_mistakes_are_named() -> None:
    kb, beliefs, _ = chairs()
    with pytest.raises(ConfigError, match="unknown logic"):
        fz.valuation(kb, beliefs, "prodict", Object=2)
    with pytest.raises(BindingError, match="Objekt"):
        fz.valuation(kb, beliefs, "product", Objekt=2)


@pytest.mark.parametrize("name", fz.LOGICS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_finite_at_the_edges(name: str, dtype: torch.dtype) -> None:
    """Crisp beliefs, no objects at all, and one object."""
    kb = parse(
        CHAIRS + "[some] forall x: Object. chair(x) & !cushion(x) | armRest(x)\n[count] at most 1 x: Object. chair(x)"
    )
    for n in (0, 1, 3):
        for fill in (0.0, 1.0):
            shapes = {"chair": (n,), "cushion": (n,), "armRest": (n,), "partOf": (n, n)}
            leaves = [torch.full(s, fill, dtype=dtype, requires_grad=True) for s in shapes.values()]
            world = Interpretation(kb, **{k: probs(v) for k, v in zip(shapes, leaves, strict=True)})
            found = fz.valuation(kb, world, name, Object=n)
            assert torch.isfinite(found.values).all() and found.values.dtype == dtype
            gradients = torch.autograd.grad(found.total + 0 * sum([t.sum() for t in leaves]), leaves)
            assert all(torch.isfinite(g).all() for g in gradients)
