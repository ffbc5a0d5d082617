"""The loss: its sign, weights that learn and stay bounded, parameters of operators."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, logits, parse, probs, propositions


def test_the_loss_is_minus_the_weighted_sum() -> None:
    kb = parse("pred a; pred b; [x, weight 0.5] a; [y] a -> b; [z, weight 3] !b")
    loss = fz.FuzzyLoss(kb, Interpretation(kb, a=probs(torch.tensor(0.8)), b=probs(torch.tensor(0.3))), "product")
    assert loss().item() == pytest.approx(-(0.5 * 0.8 + 0.44 + 3 * 0.7))
    assert loss.evaluate().names == ("x", "y", "z")
    assert not list(loss.parameters())


def test_learnt_weights_stay_bounded_for_500_steps() -> None:
    """Minus w times e alone would send w to infinity; here the weights that learn share a fixed total."""
    kb = parse("pred a; pred b; [x, weight ?] a | b; [y, weight ?] !a; [z, weight 2] b")
    a, b = (torch.nn.Parameter(torch.zeros(())) for _ in range(2))
    loss = fz.FuzzyLoss(kb, Interpretation(kb, a=logits(a), b=logits(b)), "product")
    torch.testing.assert_close(loss.weights, torch.tensor([1.0, 1.0, 2.0]))
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
    first = loss().item()
    for _ in range(500):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        assert loss.weights.min() >= 0
        assert loss.weights[:2].sum().item() == pytest.approx(2.0, abs=1e-5)
        assert loss.weights[2] == 2
    assert loss().item() < first
    assert loss.weights[0] != 1  # they did learn


def test_a_start_is_kept_and_must_be_positive() -> None:
    a, b = propositions("a b")
    kb = KnowledgeBase(Axiom("x", a, weight=3.0, learnable=True), Axiom("y", b, weight=1.0, learnable=True))
    world = Interpretation(kb, a=True, b=False)
    torch.testing.assert_close(fz.FuzzyLoss(kb, world, "product").weights, torch.tensor([3.0, 1.0]))
    bad = KnowledgeBase(Axiom("x", a, weight=0.0, learnable=True))
    with pytest.raises(ConfigError, match=r"'x' .* above 0"):
        fz.FuzzyLoss(bad, Interpretation(bad, a=True), "product")


def test_parameters_of_operators_are_registered_and_learn() -> None:
    kb = parse("sort P; pred p(P); pred q(P); [x, weight ?] forall v: P. p(v) -> q(v); [y, weight ?] exists v: P. p(v)")

    def build() -> fz.FuzzyLoss:
        logic = fz.recommended(p=fz.Learnable(1.5, low=1.0), s=fz.Learnable(9.0, low=0.0))
        world = Interpretation(kb, p=logits(torch.nn.Linear(3, 1)), q=logits(torch.nn.Linear(3, 1)))
        return fz.FuzzyLoss(kb, world, logic)

    loss, other = build(), build()
    names = set(loss.state_dict())
    assert {"scores", "operators.conj_p.raw", "operators.implies_s.raw"} <= names
    data = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    before = loss(P=data)
    before.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in loss.parameters())
    torch.optim.SGD(loss.parameters(), lr=0.1).step()
    assert loss(P=data) < before
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(P=data), loss(P=data))


def test_a_loss_in_double_precision() -> None:
    kb = parse("pred a; [x] a")
    loss = fz.FuzzyLoss(kb, Interpretation(kb, a=probs(torch.tensor(0.25, dtype=torch.float64))), "product")
    assert loss().dtype == torch.float64


def test_a_copy_is_a_loss_of_its_own() -> None:
    kb = parse("pred a; pred b; [x, weight ?] a; [y, weight 2] b -> a")
    logic = fz.symmetric(fz.Yager(fz.Learnable(2.0, low=1.0)))
    loss = fz.FuzzyLoss(kb, Interpretation(kb, a=logits(torch.nn.Parameter(torch.tensor(1.0))), b=True), logic)
    want = loss().item()
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other().item() == want
        with torch.no_grad():
            for parameter in other.parameters():
                parameter += 1
        assert other().item() != want and loss().item() == want


FACTS = """
sort P; const ann: P; const bob: P; const eve: P
pred smokes(P); pred friends(P, P); closed pred known(P)
fact smokes(ann); fact !smokes(bob); fact friends(ann, eve); fact known(eve)
[rule, weight 0.5] forall x: P. known(x) -> smokes(x)
"""


@pytest.mark.parametrize("logic", ["product", "recommended", "log_ltn"])
def test_facts_are_a_cross_entropy(logic: str) -> None:
    """Facts about what is learnt; `known` is closed, so it is certain."""
    kb = parse(FACTS)
    smokes, friends = torch.randn(3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    world = Interpretation(kb, smokes=logits(smokes), friends=logits(friends))

    def entropy() -> torch.Tensor:
        return torch.stack([smokes.sigmoid()[0], 1 - smokes.sigmoid()[1], friends.sigmoid()[0, 2]]).log().sum()

    without = fz.FuzzyLoss(kb, world, logic, facts=0.0)
    assert without.evaluate().names == ("rule",)
    for weight in (1.0, 0.3):
        loss = fz.FuzzyLoss(kb, world, logic, facts=weight)
        want = without() - weight * entropy()
        torch.testing.assert_close(loss(), want)
        for got, wanted in zip(*[torch.autograd.grad(v, [smokes, friends]) for v in (loss(), want)], strict=True):
            torch.testing.assert_close(got, wanted)
        found = loss.evaluate()
        assert found.names == ("rule", "facts")
        torch.testing.assert_close(found.by_name()["facts"], entropy())
        assert found.weights.tolist() == pytest.approx([0.5, weight])
    torch.testing.assert_close(copy.deepcopy(loss)(), loss())


def test_facts_train_a_network_and_impossible_ones_are_finite() -> None:
    kb = parse("sort P; const ann: P; const bob: P; pred smokes(P); fact smokes(ann); fact !smokes(bob)")
    smokes = torch.nn.Parameter(torch.zeros(2))
    loss = fz.FuzzyLoss(kb, Interpretation(kb, smokes=logits(smokes)), "product")
    optimizer = torch.optim.SGD(loss.parameters(), 1.0)
    for _ in range(50):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert smokes[0] > 2 and smokes[1] < -2
    wrong = torch.tensor([0.0, 1.0], requires_grad=True)
    value = fz.FuzzyLoss(kb, Interpretation(kb, smokes=probs(wrong)), "product")()
    assert torch.isfinite(value) and torch.isfinite(torch.autograd.grad(value, wrong)[0]).all()
