"""Facts about what networks say are labels: each costs minus its weight times log p, under every semantics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import doxa
from doxa.errors import BindingError, ProblemError
from doxa.fuzzy import GeneralizedMeanError
from doxa.logic import parse
from doxa.stochastic import LeaveOneOut

SMOKERS = """
    sort Person; const ann: Person; const bob: Person; const eve: Person
    pred smokes(Person); pred ill(Person)
    [harm] forall x: Person. smokes(x) -> ill(x)
    fact smokes(ann)
    fact [weight 0.5] smokes(eve)
    fact [weight 2] !smokes(bob)
    fact ill(bob)
"""
SMOKES, ILL = torch.tensor([0.9, 0.3, 0.6], dtype=torch.float64), torch.tensor([0.2, 0.7, 0.4], dtype=torch.float64)
WANTED = {
    "facts smokes": -(SMOKES[0].log() + 0.5 * SMOKES[2].log()),
    "facts !smokes": -2 * (1 - SMOKES[1]).log(),
    "facts ill": -ILL[1].log(),
}
PLAIN = {
    "facts smokes": 1 - SMOKES[0] + 0.5 * (1 - SMOKES[2]),
    "facts !smokes": 2 * SMOKES[1],
    "facts ill": 1 - ILL[1],
}
AMORTIZED = doxa.Amortized(hidden=8, pretrain=1, samples=5)
LOGARITHMS = [
    doxa.Exact(),
    doxa.Exact(quantifier="logic"),
    doxa.Refined(),
    doxa.Fuzzy(),
    doxa.Fuzzy(quantifier="logic"),
    doxa.Auto(),
    AMORTIZED,
]


def smokers(kb: str = SMOKERS, **options: Any) -> doxa.Model:
    return doxa.Model(kb, smokes=doxa.probs(SMOKES), ill=doxa.probs(ILL), ann=0, bob=1, eve=2, **options)


def of_facts(model: doxa.Model, semantics: Any, **call: Any) -> dict[str, float]:
    found = model.losses(semantics=semantics, **call).by_name()
    return {name: loss.item() for name, loss in found.items() if name.startswith("facts")}


def numbers(tensors: dict[str, torch.Tensor]) -> dict[str, float]:
    return {name: tensor.item() for name, tensor in tensors.items()}


@pytest.mark.parametrize("semantics", LOGARITHMS, ids=lambda s: repr(s)[:40])
def test_a_label_costs_minus_its_weight_times_log_p(semantics: Any) -> None:
    model = smokers()
    model.inference_step(semantics=semantics, Person=3)
    found = model.losses(semantics=semantics, Person=3)
    assert of_facts(model, semantics, Person=3) == pytest.approx(numbers(WANTED), rel=1e-5)
    assert found.names == ("harm", *WANTED) and found.weights.tolist() == [1, 1, 1, 1]
    assert found.total.item() == pytest.approx(sum(loss.item() for loss in found.values))
    assert model.loss(semantics=semantics, Person=3).item() == pytest.approx(found.total.item())


@pytest.mark.parametrize(
    "semantics", [doxa.Fuzzy("product"), doxa.Fuzzy("ltn", quantifier="logic"), doxa.Fuzzy("godel")]
)
def test_without_logarithms_it_costs_1_minus_its_truth(semantics: Any) -> None:
    tolerance = 1e-3 if semantics.logic == "ltn" else 1e-6  # LTN moves truths into the open interval
    assert of_facts(smokers(), semantics, Person=3) == pytest.approx(numbers(PLAIN), abs=tolerance)


def test_sampled_labels_come_near() -> None:
    for log, wanted in ((True, WANTED), (False, PLAIN)):
        semantics = doxa.Sampled(LeaveOneOut(50_000), log=log)
        found = of_facts(smokers(), semantics, Person=3, generator=torch.Generator().manual_seed(0))
        assert found == pytest.approx(numbers(wanted), abs=0.03)


@pytest.mark.parametrize("semantics", LOGARITHMS[:6], ids=lambda s: repr(s)[:40])
def test_labels_alone_are_a_cross_entropy_that_networks_learn(semantics: Any) -> None:
    torch.manual_seed(0)
    net = nn.Linear(2, 1)
    features = torch.randn(3, 2)
    kb = "sort P; const a: P; const b: P; const c: P; pred s(P); fact s(a); fact !s(b); fact [weight 3] s(c)"
    constants = dict(zip("abc", features, strict=True))
    model = doxa.Model(kb, s=doxa.logits(net), **constants)
    loss = model.loss(semantics=semantics)
    labels, weights = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 3.0])
    wanted = nn.functional.binary_cross_entropy_with_logits(net(features).squeeze(-1), labels, weights, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(*[torch.autograd.grad(x, net.weight)[0] for x in (loss, wanted)])


def test_facts_with_several_arguments_of_finite_sorts() -> None:
    kb = """
        sort Colour = {red, green, blue}; sort Digit = 0..2
        pred likes(Colour, Digit)
        fact likes(red, 2)
        fact [weight 4] likes(blue, 0)
        fact !likes(green, 1)
    """
    p = torch.rand(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = doxa.Model(kb, likes=doxa.probs(p))
    wanted = {"facts likes": -p[0, 2].log() - 4 * p[2, 0].log(), "facts !likes": -(1 - p[1, 1]).log()}
    for semantics in (doxa.Exact(), doxa.Refined(), doxa.Fuzzy(), AMORTIZED):
        assert of_facts(model, semantics) == pytest.approx(numbers(wanted), rel=1e-5)


def test_facts_about_nothing_in_particular() -> None:
    p = torch.tensor(0.3)
    for kb, wanted in (("pred rain; fact [weight 2] rain", -2 * p.log()), ("pred rain; fact !rain", -(1 - p).log())):
        model = doxa.Model(kb, rain=doxa.probs(p))
        for semantics in (doxa.Exact(), doxa.Refined(), doxa.Fuzzy(), AMORTIZED):
            torch.testing.assert_close(model.loss(semantics=semantics), wanted, rtol=1e-5, atol=0)


def test_closed_predicates_are_known_and_no_labels() -> None:
    kb = """
        sort Animal = {cat, dog, fish}
        closed pred flies(Animal); closed pred pet(Animal, Animal)
        pred barks(Animal)
        fact pet(cat, dog); fact pet(dog, fish)
        [friends] forall x, y: Animal. pet(x, y) -> barks(y)
        [grounded] forall x: Animal. !flies(x)
    """
    p = torch.tensor([0.2, 0.5, 0.4], dtype=torch.float64)
    model = doxa.Model(parse(kb, warn=False), barks=doxa.probs(p))
    for semantics in (doxa.Exact(), doxa.Refined(), doxa.Fuzzy()):
        found = model.losses(semantics=semantics)
        assert found.names == ("friends", "grounded")
        wanted = [-(p[1].log() + p[2].log()).item() / 9, 0.0]  # of nine pairs two say something
        assert [loss.item() for loss in found.values] == pytest.approx(wanted, abs=1e-5)


def test_an_open_predicate_that_only_facts_speak_of_is_an_error_with_two_remedies() -> None:
    kb = "sort P; const a: P; pred s(P); pred t(P); [r] forall x: P. s(x) -> t(x); fact s(a)"
    with pytest.raises(BindingError, match=r"s has facts.*Bind it.*closed pred s\(P\)"):
        doxa.Model(kb, t=doxa.probs(torch.tensor([0.5])), a=0)


def test_reductions_and_combinations() -> None:
    model = smokers(SMOKERS.replace("[weight 0.5] ", "").replace("[weight 2] ", ""))
    labels = -(SMOKES[0].log() + SMOKES[2].log() + (1 - SMOKES[1]).log() + ILL[1].log())
    harm = -(1 - SMOKES * (1 - ILL)).log()
    for reduction, wanted in (("mean", harm.mean() + labels), ("sum", harm.sum() + labels), ("none", harm)):
        for combine in ("sum", "joint"):  # one axiom is as probable as all of them
            found = model.loss(semantics="exact", reduction=reduction, combine=combine, Person=3)
            torch.testing.assert_close(found, wanted)
    found = model.loss(semantics="exact", combine=GeneralizedMeanError(2), Person=3)
    losses = [harm.mean(), -(SMOKES[0].log() + SMOKES[2].log()), -(1 - SMOKES[1]).log(), -ILL[1].log()]
    torch.testing.assert_close(found, (1 - (-torch.stack(losses)).exp()).pow(2).mean().sqrt())
    alone = doxa.Model("pred rain; fact rain", rain=doxa.probs(torch.tensor(0.3)))
    only = alone.losses(semantics="exact", combine="joint")
    assert only.names == ("facts rain",) and only.total.item() == pytest.approx(-torch.tensor(0.3).log().item())


@pytest.mark.parametrize(
    "how", [doxa.Exact(), doxa.Fuzzy(), doxa.Fuzzy("product"), doxa.Refined(), doxa.Sampled(log=False), AMORTIZED]
)
def test_a_fact_that_cannot_be_is_treated_like_a_row_that_cannot_hold(how: Any) -> None:
    kb = "sort D = {mon, tue}; pred rain(D); fact rain(mon); fact rain(tue)"
    model = doxa.Model(kb, rain=doxa.probs(torch.tensor([0.5, 0.0])))
    with pytest.raises(ProblemError, match=r"'facts rain' cannot hold in rows \(1,\)"):
        model.loss(semantics=how)
    assert model.loss(semantics=replace(how, impossible="inf")) == torch.inf
    assert torch.isfinite(model.loss(semantics=replace(how, impossible="finite")))
    unlikely = doxa.Model(kb, rain=doxa.logits(torch.tensor([0.0, -80.0])))
    assert torch.isfinite(unlikely.loss(semantics=how))


def test_facts_use_the_semantics_of_the_first_axiom_where_each_has_its_own() -> None:
    found = of_facts(smokers(), {"harm": doxa.Fuzzy("product")}, Person=3)
    assert found == pytest.approx(numbers(PLAIN), rel=1e-6)
