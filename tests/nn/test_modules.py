"""Losses and layers from logits, against sums over all worlds."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import nn

import doxa
from doxa import exact, refine
from doxa.errors import ConfigError, ProblemError
from doxa.logic import propositions
from doxa.nn import ConstrainedLayer, KnowledgeLoss, Refine, SemanticLoss
from doxa.problem import Belief

a, b, c = propositions("a b c")
FORMULAS = {
    "xor": (a ^ b, lambda x, y: x != y),
    "rule": (a >> b, lambda x, y: not x or y),
    "three": ((a | b) & (b >> c), lambda x, y, z: (x or y) and (not y or z)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FORMULAS)
def test_losses_and_layers_are_sums_over_worlds(name: str, dtype: torch.dtype) -> None:
    formula, holds = FORMULAS[name]
    loss, layer = SemanticLoss(formula, reduction="none"), ConstrainedLayer(formula)
    size = len(loss.atoms)
    assert loss.atoms == ("a", "b", "c")[:size]
    logits = torch.randn(4, 3, size, dtype=dtype, generator=torch.Generator().manual_seed(0), requires_grad=True)
    p = logits.sigmoid()
    worlds = [w for w in product([False, True], repeat=size) if holds(*w)]
    each = torch.stack([torch.where(torch.tensor(w), p, 1 - p).prod(-1) for w in worlds])
    torch.testing.assert_close(loss(logits), -each.sum(0).log())
    marginals = torch.stack([each[[w[i] for w in worlds]].sum(0) for i in range(size)], -1) / each.sum(0)[..., None]
    torch.testing.assert_close(layer(logits), marginals)
    for got, wanted in (
        (loss(logits).sum(), -each.sum(0).log().sum()),
        (layer(logits)[..., 0].sum(), marginals[..., 0].sum()),
    ):
        torch.testing.assert_close(
            torch.autograd.grad(got, logits, retain_graph=True)[0],
            torch.autograd.grad(wanted, logits, retain_graph=True)[0],
        )
    torch.testing.assert_close(SemanticLoss(formula)(logits), loss(logits).mean())
    torch.testing.assert_close(SemanticLoss(formula, reduction="sum")(logits), loss(logits).sum())


def test_beliefs_and_constraints_are_taken_too() -> None:
    kb = doxa.parse("sort P = {u}; sort D = 0..2; func f(P) -> D; pred q; f(u) = 2 | q")
    constraint = exact.Constraint(kb)
    belief = Belief.uniform(constraint.problem.world)
    assert SemanticLoss(constraint)(belief).exp().item() == pytest.approx(1 / (1 - 2 / 3 * 1 / 2))
    assert isinstance(ConstrainedLayer(kb)(belief), Belief)
    with pytest.raises(ProblemError, match="more than two values; give a Belief over"):
        SemanticLoss(constraint)(torch.zeros(2))
    with pytest.raises(ConfigError, match="made already"):
        SemanticLoss(constraint, domains={"P": 2})


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_wrong_shapes_are_told(shape: tuple[int, ...]) -> None:
    with pytest.raises(ProblemError, match=r"expected \(\*, 2\): one for each of a, b"):
        SemanticLoss(a ^ b)(torch.zeros(shape))
    with pytest.raises(ConfigError, match="reduction"):
        SemanticLoss(a, reduction="average")  # type: ignore[arg-type]


@pytest.mark.parametrize("logits", [torch.zeros(0, 2), torch.full((1, 2), 80.0), torch.full((1, 2), -80.0)])
def test_empty_and_sure_inputs_stay_finite(logits: torch.Tensor) -> None:
    logits = logits.requires_grad_()
    loss = SemanticLoss(a ^ b, reduction="sum")(logits)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logits.grad).all()
    assert torch.isfinite(ConstrainedLayer(a ^ b)(logits)).all()


def test_knowledge_is_the_model_under_another_name() -> None:
    text = "sort Day; pred rain(Day); pred wet(Day); [soaked] forall d: Day. rain(d) -> wet(d)"
    text += "; [dry] forall d: Day. !wet(d)"
    days = torch.randn(6, 4)
    for semantics in ("exact", "fuzzy", "fuzzy:godel"):
        net = nn.Linear(4, 1)
        loss = KnowledgeLoss(text, semantics, rain=doxa.logits(net), wet=doxa.logits(net))
        model = doxa.Model(text, rain=doxa.logits(net), wet=doxa.logits(net))
        torch.testing.assert_close(loss(Day=days), model.loss(semantics=semantics, Day=days))
        loss(Day=days).backward()
        assert net.weight.grad is not None and list(loss.losses(Day=days).by_name()) == ["soaked", "dry"]
        assert {id(p) for p in loss.parameters()} == {id(p) for p in net.parameters()}
    summed = KnowledgeLoss(text, reduction="sum", rain=doxa.logits(net), wet=doxa.logits(net))
    torch.testing.assert_close(summed(Day=days), 6 * loss.model.loss(semantics="exact", Day=days))


def test_they_stand_in_a_network() -> None:
    assert Refine is refine.Refine and issubclass(ConstrainedLayer, exact.ConstrainedLayer)
    net = nn.Sequential(nn.Linear(8, 3), ConstrainedLayer((a >> b) & (b >> c)))
    found = net(torch.randn(5, 8))
    assert found.shape == (5, 3) and bool((found[:, 0] <= found[:, 1] + 1e-6).all())
    found.sum().backward()
    nn.Sequential(nn.Linear(8, 2), nn.Sigmoid(), Refine(a & b))(torch.randn(2, 8)).sum().backward()
