"""Knowledge as a layer: what is believed given the knowledge, against all worlds listed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION, random_axioms
from torch import Tensor, nn

import doxa
from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.problem import Belief, BruteForce, Problem

LABELS = [f"a{i}" for i in range(5)]


def of_labels(seed: int, rows: int = 4) -> tuple[doxa.Model, Tensor, BruteForce, Any]:
    """A model of random knowledge, its probabilities ``(rows, labels)``, and the oracle for the same knowledge."""
    kb, judge = random_axioms(seed, LABELS, 3)
    random = torch.Generator().manual_seed(seed)
    p = torch.rand(rows, len(LABELS), generator=random, dtype=torch.float64).requires_grad_()

    def holds(*bits: int) -> int:
        return int(all(judge(dict(zip(LABELS, map(bool, bits), strict=True)))))

    oracle = BruteForce(Problem.from_function(holds, (2,) * len(LABELS), (2,)))
    model = doxa.Model(kb, **{a: doxa.probs(lambda i, at=at: p[i.long(), at]) for at, a in enumerate(LABELS)})
    return model, p, oracle, judge


def things(rows: int = 4) -> Tensor:
    return torch.arange(float(rows))


def label(name: str) -> int:
    return LABELS.index(name.split("(")[0])


ONE = torch.ones(1, dtype=torch.int64)


@pytest.mark.parametrize("seed", range(8))
def test_of_several_axioms_it_is_the_posterior_of_all_worlds(seed: int) -> None:
    model, p, oracle, judge = of_labels(seed)
    found = model.layer()(Thing=things())
    belief = Belief.from_bernoulli(probs=p)
    wanted = oracle.posterior(belief, ONE).probs[..., 1]
    torch.testing.assert_close(found.log_prob, oracle.log_prob(belief, ONE))
    best = oracle.explain(belief, ONE, 1).worlds[:, 0]
    for name, probs in found.probs.items():
        torch.testing.assert_close(probs, wanted[:, label(name)])
        assert torch.equal(found.values[name], best[:, label(name)])
    free = dict.fromkeys(LABELS, False)  # no axiom speaks of what the layer does not mention
    for row in range(4):
        world = free | {LABELS[label(name)]: bool(v[row]) for name, v in found.values.items()}
        assert all(judge(world))


@pytest.mark.parametrize("seed", range(4))
def test_its_derivatives_are_those_of_all_worlds(seed: int) -> None:
    model, p, oracle, _ = of_labels(seed)
    found = model.layer()(Thing=things())
    wanted = oracle.posterior(Belief.from_bernoulli(probs=p), ONE).probs[..., 1]
    weights = {n: torch.randn(4, generator=torch.Generator().manual_seed(i), dtype=p.dtype)
               for i, n in enumerate(found.probs)}  # fmt: skip
    ours = sum((w * found.probs[n]).sum() for n, w in weights.items())
    theirs = sum((w * wanted[:, label(n)]).sum() for n, w in weights.items())
    torch.testing.assert_close(*[torch.autograd.grad(x, p)[0] for x in (ours, theirs)])


@pytest.mark.parametrize("target", [0.2, 0.5])
def test_a_target_mixes_what_is_believed_if_it_holds_and_if_not(target: float) -> None:
    changed = []
    for seed in range(6):
        model, p, oracle, _ = of_labels(seed)
        found = model.layer(target=target)(Thing=things())
        belief = Belief.from_bernoulli(probs=p)
        held, denied = (oracle.posterior(belief, ONE * v).probs[..., 1] for v in (1, 0))
        low = oracle.log_prob(belief, ONE).exp() < target
        mixed = torch.where(low.unsqueeze(-1), target * held + (1 - target) * denied, p)
        for name, probs in found.probs.items():
            torch.testing.assert_close(probs, mixed[:, label(name)])
        changed += low.tolist()
    assert True in changed and False in changed  # both cases were met


def test_functions_and_what_the_data_say() -> None:
    p = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    model = doxa.Model(ADDITION, digit=doxa.probs(lambda image: image))
    sums = torch.tensor([0, 2, 3, 5, 6])
    found = model.layer()(pairs={"left": p[0], "right": p[1], "sum": sums})
    oracle = BruteForce(Problem.from_function(lambda a, b: a + b, (4, 4), (7,)))
    belief = Belief.from_probs(p.movedim(0, 1))
    wanted = oracle.posterior(belief, sums.unsqueeze(-1)).probs
    torch.testing.assert_close(found.probs["digit(p.left)"], wanted[:, 0])
    torch.testing.assert_close(found.probs["digit(p.right)"], wanted[:, 1])
    assert torch.equal(found.values["digit(p.left)"] + found.values["digit(p.right)"], sums)
    again = model.truth(semantics="exact", per_row=True, pairs={"left": p[0], "right": p[1], "sum": sums})["sum"]
    torch.testing.assert_close(found.log_prob, again.log())


def test_a_network_learns_through_it() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    model = doxa.Model(ADDITION, digit=doxa.logits(net))
    x = torch.randn(2, 3, 4)
    found = model.layer()(pairs={"left": x[0], "right": x[1], "sum": torch.tensor([1, 2, 5])})
    found.probs["digit(p.left)"][:, 1].sum().backward()
    assert net.weight.grad is not None and torch.isfinite(net.weight.grad).all() and net.weight.grad.any()


def test_what_the_networks_say_then_satisfies_the_knowledge_classically() -> None:
    for seed in range(6):
        model, _, _, _ = of_labels(seed)
        found = model.layer()(Thing=things())
        values = {a: torch.zeros(4) for a in LABELS} | {n.split("(")[0]: v.double() for n, v in found.values.items()}
        after = doxa.Model(model.kb, **{a: doxa.probs(v) for a, v in values.items()})
        assert after.satisfaction(Thing=4).satisfied


def test_rows_that_cannot_hold_are_named() -> None:
    kb = "sort Day; pred rain(Day); pred wet(Day); [soaked] forall d: Day. rain(d) -> wet(d)"
    model = doxa.Model(
        kb, rain=doxa.probs(torch.tensor([0.5, 1.0, 0.3, 1.0])), wet=doxa.probs(torch.tensor([0.5, 0.0, 0.0, 0.0]))
    )
    with pytest.raises(ProblemError, match=r"cannot hold in rows \(1,\), \(3,\)"):
        model.layer()(Day=4)
    sums = doxa.Model(ADDITION, digit=doxa.probs(lambda image: image))
    flat = torch.full((3, 4), 0.25)
    with pytest.raises(ProblemError, match=r"cannot hold in rows \(1,\)"):
        sums.layer()(pairs={"left": flat, "right": flat, "sum": torch.tensor([1, 9, 2])})


def test_mistakes() -> None:
    model, *_ = of_labels(0)
    with pytest.raises(ConfigError, match="target is 0, expected a probability above 0"):
        model.layer(target=0)
    with pytest.raises(KnowledgeError, match="no axioms to condition on"):
        doxa.Model("pred a", a=doxa.probs(torch.tensor(0.5))).layer()
    weighted = doxa.Model("pred a; [x, weight 2] a", a=doxa.probs(torch.tensor(0.5)))
    with pytest.raises(ConfigError, match="axiom 'x' has weight 2"):
        weighted.layer()
