"""Amortised semantics: q approaches what exact reasoning says, keeps to itself, and goes on to the bit."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION, WEATHER
from torch import Tensor, nn

import doxa
from doxa.errors import ConfigError, ProblemError
from doxa.semantics import Amortized

SMALL = Amortized(hidden=64, pretrain=600, samples=200, learning_rate=1e-2)


def data(rows: int = 16, seed: int = 0) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    digits = torch.randint(4, (2, rows), generator=random)
    images = nn.functional.one_hot(digits, 4) + 0.3 * torch.randn(2, rows, 4, generator=random)
    return {"left": images[0], "right": images[1], "sum": digits.sum(0)}


def model(how: Any = None, seed: int = 0) -> doxa.Model:
    torch.manual_seed(seed)
    return doxa.Model(ADDITION, how, digit=doxa.logits(nn.Linear(4, 4)))


def test_it_approaches_exact_probabilities() -> None:
    ours, pairs = model(), data()
    ours.interpretation.meaning("digit").module.weight.data.mul_(6)  # type: ignore[union-attr]
    ours.loss(semantics=SMALL, pairs=pairs)
    exact, learnt = (ours.predict("pairs.sum", semantics=s, pairs=pairs).truths for s in (doxa.Exact(), SMALL))
    torch.testing.assert_close(learnt.sum(-1), torch.ones(len(learnt)))
    divergence = (exact * (exact.log() - learnt.log())).sum(-1).mean()
    of_uniform = (exact * (exact * 7).log()).sum(-1).mean()
    assert divergence < 0.1 < 0.3 < of_uniform
    assert (exact - learnt).abs().mean() < 0.04


def test_each_axiom_on_crisp_data_is_as_true_as_classically() -> None:
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        truth = {s: torch.rand(3, generator=random).round() for s in ("rain", "wet", "warm")}
        ours = doxa.Model(WEATHER, **{s: doxa.probs(t) for s, t in truth.items()})
        how = Amortized(hidden=64, pretrain=300, samples=200, learning_rate=1e-2, impossible="finite")
        torch.manual_seed(0)
        ours.losses(semantics=how, Day=3)
        found, wanted = (ours.truth(semantics=s, Day=3) for s in (how, doxa.Classical()))
        assert {n: v.round().item() for n, v in found.items()} == {n: v.item() for n, v in wanted.items()}


def test_the_user_trains_the_networks_and_q_trains_itself() -> None:
    ours, pairs = model(Amortized(hidden=16, samples=20)), data()
    names = {name for name, _ in ours.named_parameters()}
    assert all(name.startswith("interpretation.") for name in names) and len(names) == 2
    ours.loss(pairs=pairs).backward()
    (learner,) = ours.inference._live.values()
    assert all(p.grad is not None for p in ours.parameters())
    assert learner.updates == 1 and {n for n, _ in ours.named_parameters()} == names
    before = copy.deepcopy(learner.engine.state_dict())
    ours.eval()
    ours.loss(pairs=pairs)
    ours.train()
    with torch.no_grad():
        ours.loss(pairs=pairs)
    ours.truth(pairs=pairs)
    ours.predict("pairs.sum", pairs=pairs)
    for name, value in learner.engine.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    ours.loss(pairs=pairs)
    assert learner.updates == 2


def steps(ours: doxa.Model, optimizer: torch.optim.Optimizer, pairs: dict[str, Tensor], count: int) -> list[float]:
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = ours.loss(pairs=pairs)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("prior", ["fitted", "mixture", "replay"])
def test_a_run_goes_on_to_the_bit(prior: Any) -> None:
    how, pairs = Amortized(hidden=16, samples=20, pretrain=3, prior=prior), data()
    ours = model(how)
    optimizer = torch.optim.Adam(ours.parameters(), 0.01)
    steps(ours, optimizer, pairs, 2)
    file = io.BytesIO()
    torch.save({"model": ours.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}, file)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    wanted = steps(ours, optimizer, pairs, 3)
    file.seek(0)
    saved = torch.load(file)
    fresh = model(how, seed=7)
    for other in (fresh, *copies):
        other.load_state_dict(saved["model"])
        again = torch.optim.Adam(other.parameters(), 0.01)
        again.load_state_dict(copy.deepcopy(saved["optimizer"]))  # which would share its tensors otherwise
        torch.set_rng_state(saved["random"])
        assert steps(other, again, pairs, 3) == wanted
    for a, b in zip(ours.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    one, other = (m.predict("pairs.sum", pairs=pairs).truths for m in (ours, fresh))
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_copy_keeps_what_was_learnt() -> None:
    ours, pairs = model(Amortized(hidden=16, samples=20, pretrain=5)), data()
    ours.loss(pairs=pairs)
    wanted = ours.predict("pairs.sum", pairs=pairs).truths
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), ours.float()):
        torch.testing.assert_close(other.predict("pairs.sum", pairs=pairs).truths, wanted, rtol=0, atol=0)


def test_it_learns_digits_from_sums() -> None:
    how = Amortized(hidden=64, pretrain=200, samples=200, learning_rate=3e-3)
    ours, pairs = model(how), data(64)
    optimizer = torch.optim.Adam(ours.parameters(), 0.1)
    before = ours.loss(semantics=doxa.Exact(), pairs=pairs)
    steps(ours, optimizer, pairs, 60)
    assert ours.loss(semantics=doxa.Exact(), pairs=pairs) < before - 1
    assert (ours.predict("pairs.sum", pairs=pairs).values == pairs["sum"]).float().mean() > 0.8


@pytest.mark.parametrize("kind", ["mlp", "scan", "transformer"])
def test_kinds_of_inference_models(kind: Any) -> None:
    ours = model(Amortized(kind, hidden=16, samples=20))
    assert torch.isfinite(ours.loss(pairs=data()))
    assert f"by inference models of kind {kind}" in ours.plan(pairs=data())


def test_fields_of_several_forms() -> None:
    """A term may be on either side, be an enumerated value, and be about other rows than the field."""
    kb = """
        sort Image; sort Size = {small, large}
        data shots(image: Image, size: Size)
        data marks(size: Size)
        func size(Image) -> Size
        [one] forall s in shots. s.size = size(s.image)
        [two] forall m in marks, s in shots. size(s.image) = m.size
    """
    p = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    ours = doxa.Model(kb, size=doxa.probs(lambda image: image))
    how = Amortized(hidden=64, pretrain=400, samples=200, learning_rate=3e-3)
    given: dict[str, Any] = {
        "shots": {"image": p, "size": ["large", "small"]},
        "marks": {"size": ["small", "large", "small"]},
    }
    torch.manual_seed(0)
    ours.loss(semantics=how, **given)
    one, two = how.compile(ours.kb.axioms, ours.interpretation).each(given, None)
    assert one.shape == (2,) and two.shape == (3, 2)  # untrained: compiled outside of the model
    compiled = ours._ready(how, (0, 1))
    one, two = compiled.each(given, None)
    torch.testing.assert_close(one, torch.tensor([0.9, 0.8]), atol=0.06, rtol=0)
    torch.testing.assert_close(two, p.T[[0, 1, 0]], atol=0.06, rtol=0)


def test_mistakes() -> None:
    for wrong, message in [
        ({"model": "rnn"}, "model is 'rnn', expected 'mlp' or 'scan' or 'transformer'"),
        ({"prior": "flat"}, "prior is 'flat'"),
        ({"samples": 0}, "samples is 0, expected a whole number of at least 1"),
        ({"steps": -1}, "steps is -1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Amortized(**wrong)  # type: ignore[arg-type]
    pairs = data(3) | {"sum": torch.tensor([1, 9, 2])}
    with pytest.raises(ProblemError, match=r"axiom 'sum' cannot hold in rows \(1,\)"):
        model().loss(semantics=Amortized(hidden=8, samples=5), pairs=pairs)
    finite = model().loss(semantics=Amortized(hidden=8, samples=5, impossible="finite"), pairs=pairs)
    assert torch.isfinite(finite) and finite > 20
    ours = doxa.Model(
        "sort I; sort D = 0..1; data rows(x: I, y: Int); func d(I) -> D; [less] forall r in rows. d(r.x) <= r.y",
        d=doxa.logits(nn.Linear(2, 2)),
    )
    how = Amortized(hidden=8, samples=5)
    ours.loss(semantics=how, rows={"x": torch.randn(2, 2), "y": torch.tensor([0, 1])})
    with pytest.raises(ConfigError, match="numbers that training never met"):
        ours.truth(semantics=how, rows={"x": torch.randn(2, 2), "y": torch.tensor([0, -1])})


def test_auto_with_amortized_says_why() -> None:
    hard = doxa.Model(
        "sort Node; pred edge(Node, Node); [any] exists x, y, z: Node. edge(x, y) & edge(y, z) & edge(z, x)",
        edge=doxa.probs(torch.full((5, 5), 0.3)),
    )
    auto = doxa.Auto(Amortized(hidden=16, samples=20), doxa.exact.Budget(seconds=0.01, nodes=10))
    assert torch.isfinite(hard.loss(semantics=auto, Node=5))
    plan = hard.plan(semantics=auto, Node=5)
    assert plan.splitlines()[1].startswith("not exact: ") and "after 1 updates" in plan
    assert len(hard.state_dict()["inference._extra_state"]) == 1
    easy = model()
    assert "exact, which is affordable" in easy.plan(semantics=auto, pairs=data())
    torch.testing.assert_close(easy.loss(semantics=auto, pairs=data()), easy.loss(semantics=doxa.Exact(), pairs=data()))
