"""The measures against loops over instances, closed forms, and what the dissertation says of its data."""

from __future__ import annotations

import math

import pytest
import torch

from doxa import fuzzy as fz
from doxa.errors import DataError, KnowledgeError
from doxa.logic import Interpretation, KnowledgeBase, logits, parse, probs

RAVENS = "sort Bird; pred raven(Bird); pred black(Bird); [rule] forall x: Bird. raven(x) -> black(x)"


def ravens(a: torch.Tensor, c: torch.Tensor) -> tuple[KnowledgeBase, Interpretation]:
    kb = parse(RAVENS)
    return kb, Interpretation(kb, raven=probs(a), black=probs(c))


@pytest.mark.parametrize("name", fz.LOGICS)
def test_against_derivatives_by_hand(name: str) -> None:
    """The same sums from the operators alone."""
    g = torch.Generator().manual_seed(1)
    a, c = (torch.rand(12, generator=g, dtype=torch.float64) for _ in range(2))
    la, lc = torch.rand(2, 12, generator=g) < 0.5
    kb, world = ravens(a, c)
    logic = fz.logic(name)
    found = fz.measure(kb, world, logic, labels={"raven": la, "black": lc}, Bird=12).total
    a.requires_grad_(), c.requires_grad_()  # by truth values, also where the logic works on logarithms
    x, y = (t.log() if logic.is_log else t for t in (a, c))
    da, dc = torch.autograd.grad(logic.forall(logic.implies(x, y)), (a, c), materialize_grads=True)
    assert found.instances == 12
    assert found.consequent == pytest.approx(dc.sum().item())
    assert found.antecedent == pytest.approx(-da.sum().item())
    assert found.consequent_correct == pytest.approx(dc[lc].sum().item())
    assert found.antecedent_correct == pytest.approx(-da[~la].sum().item())
    assert found.ponens + found.tollens + found.distrust == pytest.approx((dc.abs() + da.abs()).sum().item())
    assert found.ponens - found.tollens == pytest.approx((dc.abs() - da.abs()).sum().item())
    assert found.chance["consequent_update_ratio"] == pytest.approx(lc.double().mean().item())
    assert found.chance["antecedent_update_ratio"] == pytest.approx((~la).double().mean().item())


def test_lukasiewicz_only_distrusts() -> None:
    """Its consequent and negated antecedent derivatives are equal (Chapter 3, Eq. impl_deriv_luk)."""
    a, c = torch.tensor([0.98, 0.7]), torch.tensor([0.9, 0.65])
    found = fz.measure(*ravens(a, c), "lukasiewicz", Bird=2).total
    assert found.consequent_ratio == 0.5
    assert found.split == {"ponens": 0.0, "tollens": 0.0, "distrust": 1.0}
    assert math.isnan(found.consequent_update_ratio) and math.isnan(found.chance["ponens"])


def test_godel_r_only_reasons_by_modus_ponens() -> None:
    found = fz.measure(*ravens(torch.tensor([0.9]), torch.tensor([0.3])), "godel:r", Bird=1).total
    assert found.split == {"ponens": 1.0, "tollens": 0.0, "distrust": 0.0}


def test_random_guessing_on_the_same_problem() -> None:
    """Ten equally many digits: same(x, y) holds for 1/10 of the pairs, and both are zero for 1/100."""
    digits = torch.arange(40) % 10
    kb = parse(
        "sort Image; pred zero(Image); pred same(Image, Image)\n"
        "[one] forall x, y: Image. zero(x) & zero(y) -> same(x, y)\n"
        "[two] forall x, y: Image. zero(x) & same(x, y) -> zero(y)\n"
        "[all] forall x: Image. same(x, x)"
    )
    world = Interpretation(kb, zero=probs(torch.rand(40)), same=probs(torch.rand(40, 40)))
    labels = {"zero": digits == 0, "same": digits[:, None] == digits}
    found = fz.measure(kb, world, "log_product", labels=labels, Image=40)
    assert list(found.axioms) == ["one", "two"]  # the third is no implication
    one, two = found.axioms["one"].chance, found.axioms["two"].chance
    assert one["consequent_update_ratio"] == pytest.approx(1 / 10)
    assert one["antecedent_update_ratio"] == pytest.approx(99 / 100)
    assert (one["ponens"], one["tollens"], one["distrust"]) == pytest.approx((1 / 100, 9 / 10, 9 / 100))
    assert (two["consequent_update_ratio"], two["tollens"]) == pytest.approx((1 / 10, 9 / 10))
    total = found.total
    assert total.instances == 3200
    assert total.consequent == pytest.approx(sum(m.consequent for m in found.axioms.values()))


@pytest.mark.parametrize("chunk", [1, 3, 2**22])
def test_inner_implications_guards_and_weights(chunk: int) -> None:
    """Only the outermost implication counts; only what the guard lets through; weights scale the derivatives."""
    g = torch.Generator().manual_seed(0)
    p, q, r = (torch.rand(s, generator=g, dtype=torch.float64) for s in ((4,), (4,), (4, 4)))
    kb = parse(
        "sort P; pred p(P); pred q(P); pred r(P, P)\n"
        "[rule, weight 3] forall x, y: P where x != y. (p(x) -> q(x)) -> (r(x, y) & (p(x) -> q(y)))"
    )
    world = Interpretation(kb, p=probs(p), q=probs(q), r=probs(r))
    labels = {"p": p > 0.5, "q": q > 0.5, "r": r > 0.5}
    found = fz.measure(kb, world, "product", labels=labels, chunk=chunk, P=4).total
    places = [(i, j) for i in range(4) for j in range(4) if i != j]
    a = torch.stack([1 - p[i] + p[i] * q[i] for i, _ in places]).requires_grad_()
    c = torch.stack([r[i, j] * (1 - p[i] + p[i] * q[j]) for i, j in places]).requires_grad_()
    da, dc = torch.autograd.grad((1 - a + a * c).prod(), (a, c))
    true = torch.tensor([bool(r[i, j] > 0.5) and (p[i] <= 0.5 or bool(q[j] > 0.5)) for i, j in places])
    assert found.instances == 12
    assert found.consequent == pytest.approx(3 * dc.sum().item())
    assert found.antecedent == pytest.approx(-3 * da.sum().item())
    assert found.consequent_correct == pytest.approx(3 * dc[true].sum().item())


def test_labels_are_those_of_the_sampled_instances() -> None:
    """Gödel's derivative is 1 at one instance: with p certain, at the smallest q, which the labels name."""
    kb = parse("sort P; pred p(P); pred q(P); [rule] forall x: P sample 3. p(x) -> q(x)")
    q = (1 + torch.arange(20)) / 40
    world = Interpretation(kb, p=probs(torch.ones(20)), q=probs(q))
    hits = 0.0
    for seed in range(20):
        chosen = torch.Generator().manual_seed(seed)
        found = fz.measure(kb, world, "godel", labels={"p": q >= 0, "q": q < 0.18}, generator=chosen, P=20).total
        assert found.consequent == 1 and found.instances == 3
        # The smallest of the sample is labelled true exactly if anything in the sample is.
        assert found.consequent_correct == float(found.both_true > 0)
        hits += found.consequent_correct
    assert 0 < hits < 20


def test_networks_are_left_as_they_were() -> None:
    kb = parse("sort P; pred p(P); pred q(P); [rule] forall x, y: P sample 5. p(x) -> q(y)")
    nets = [torch.nn.Linear(2, 1) for _ in range(2)]
    x = torch.randn(30, 2)
    world = Interpretation(kb, p=logits(nets[0]), q=logits(nets[1]))
    with torch.no_grad():
        labels = {"p": nets[0](x)[:, 0] > 0, "q": nets[1](x)[:, 0] > 0}
        found = fz.measure(kb, world, "recommended", labels=labels, P=x)
    assert found.total.instances == 25
    for net in nets:
        assert all(p.grad is None for p in net.parameters())
        assert not net._forward_hooks and not net._backward_hooks


def test_mistakes_are_named() -> None:
    kb = parse("pred a; [x] a")
    with pytest.raises(KnowledgeError, match="nothing to measure"):
        fz.measure(kb, Interpretation(kb, a=True), "product")
    kb = parse("sort P; pred p(P); pred q(P); [rule] forall x: P where p(x). p(x) -> q(x)")
    world = Interpretation(kb, p=probs(torch.tensor([0.9, 0.2])), q=probs(torch.rand(2)))
    with pytest.raises(DataError, match=r"'rule' has 1 instances, but 2"):
        fz.measure(kb, world, "product", labels={"p": torch.ones(2) > 0, "q": torch.ones(2) > 0}, P=2)
