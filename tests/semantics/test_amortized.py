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
from doxa.errors import ConfigError, DoxaWarning, ProblemError
from doxa.semantics import Amortized

SMALL = Amortized(hidden=64, pretrain=800, samples=200, learning_rate=1e-2)


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
    assert ours.inference_step(semantics=SMALL, pairs=pairs) == 801
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
        ours.inference_step(semantics=how, Day=3)
        found, wanted = (ours.truth(semantics=s, Day=3) for s in (how, doxa.Classical()))
        assert {n: v.round().item() for n, v in found.items()} == {n: v.item() for n, v in wanted.items()}


def test_the_user_trains_the_networks_and_q_learns_only_when_told() -> None:
    ours, pairs = model(Amortized(hidden=16, samples=20, pretrain=0)), data()
    names = {name for name, _ in ours.named_parameters()}
    assert all(name.startswith("interpretation.") for name in names) and len(names) == 2
    assert ours.inference_step(pairs=pairs) == 1
    (learner,) = ours.inference._live.values()
    assert learner.updates == 1 and {n for n, _ in ours.named_parameters()} == names
    assert all(p.grad is None for p in ours.parameters())
    before, random = copy.deepcopy(learner.engine.state_dict()), torch.get_rng_state()
    slopes = [copy.deepcopy(p.grad) for p in learner.engine.model.parameters()]
    first = ours.loss(pairs=pairs)
    first.backward()
    assert all(p.grad is not None for p in ours.parameters())
    for parameter, slope in zip(learner.engine.model.parameters(), slopes, strict=True):
        assert (parameter.grad is None) if slope is None else torch.equal(parameter.grad, slope)
    ours.eval()
    assert ours.loss(pairs=pairs) == first
    ours.train()
    assert ours.loss(pairs=pairs) == first
    ours.truth(pairs=pairs)
    ours.predict("pairs.sum", pairs=pairs)
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in learner.engine.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert ours.inference_step(pairs=pairs) == 1 and learner.updates == 2
    assert ours.loss(pairs=pairs) != first


def test_one_that_has_not_learnt_warns_and_other_semantics_have_nothing_to_learn() -> None:
    ours, pairs = model(Amortized(hidden=16, samples=20, pretrain=2, steps=3)), data()
    with pytest.warns(DoxaWarning, match="the inference model of axiom 'sum' has not learnt anything yet"):
        ours.loss(pairs=pairs)
    assert [ours.inference_step(pairs=pairs) for _ in range(2)] == [5, 3]  # and no warning from now on
    assert torch.isfinite(ours.loss(pairs=pairs))
    assert ours.inference_step(semantics="exact", pairs=pairs) == 0


def test_it_starts_alike_in_every_process_and_costs_no_randomness() -> None:
    found = []
    for seed in (0, 1):  # the networks are the same, what torch draws elsewhere is not
        ours, pairs = model(Amortized(hidden=16, samples=20)), data()
        torch.manual_seed(seed)
        with pytest.warns(DoxaWarning, match="has not learnt"):
            found.append(ours.loss(pairs=pairs).item())
        assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(seed).get_state())
    assert found[0] == found[1]


def steps(ours: doxa.Model, optimizer: torch.optim.Optimizer, pairs: dict[str, Tensor], count: int) -> list[float]:
    found = []
    for _ in range(count):
        ours.inference_step(pairs=pairs)
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
    ours.inference_step(pairs=pairs)
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
    ours = model(Amortized(kind, hidden=16, samples=20, pretrain=1))
    ours.inference_step(pairs=data())
    assert torch.isfinite(ours.loss(pairs=data()))
    assert f"learnt by a model of kind {kind}, so an approximation, after 2 updates" in ours.plan(pairs=data())


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
    how = Amortized(hidden=32, pretrain=200, samples=500, learning_rate=1e-2, prior="replay")
    given: dict[str, Any] = {
        "shots": {"image": p, "size": ["large", "small"]},
        "marks": {"size": ["small", "large", "small"]},
    }
    torch.manual_seed(0)
    ours.inference_step(semantics=how, **given)
    with pytest.warns(DoxaWarning, match="has not learnt"):  # compiled outside of the model
        one, two = how.compile(ours.kb.axioms, ours.interpretation).rows(given, None)
    assert one.shape == (2,) and two.shape == (3, 2)
    one, two = ours.truth(semantics=how, per_row=True, **given).values()
    torch.testing.assert_close(one, torch.tensor([0.9, 0.8]), atol=0.06, rtol=0)
    torch.testing.assert_close(two, p.T[[0, 1, 0]], atol=0.06, rtol=0)


def trained(how: Amortized, pairs: dict[str, Tensor]) -> Tensor:
    ours = model(how)
    ours.inference_step(pairs=pairs)
    return ours.loss(pairs=pairs)


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
        trained(Amortized(hidden=8, samples=5, pretrain=0), pairs)
    finite = trained(Amortized(hidden=8, samples=5, pretrain=0, impossible="finite"), pairs)
    assert torch.isfinite(finite) and finite > 20
    assert trained(Amortized(hidden=8, samples=5, pretrain=0, impossible="inf"), pairs) == torch.inf


def test_numbers_of_the_data_are_part_of_what_q_sees() -> None:
    kb = "sort I; sort D = 0..3; data rows(x: I, y: Int); func d(I) -> D; [less] forall r in rows. d(r.x) <= r.y"
    p = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).softmax(-1).requires_grad_()
    ours = doxa.Model(kb, d=doxa.probs(lambda x: p[x.long()]))
    how = Amortized(hidden=64, pretrain=400, samples=200, learning_rate=1e-2, impossible="finite")
    rows = {"x": torch.arange(6.0), "y": torch.tensor([0, 1, 2, 1, 0, -1])}
    torch.manual_seed(0)
    assert ours.inference_step(semantics=how, rows=rows) == 401
    for numbers in ([0, 1, 2, 1, 0, -1], [1, 0, 3, 7, -2, 2]):  # also such that it never met
        rows["y"] = torch.tensor(numbers)
        wanted = torch.stack([p[i, : max(y + 1, 0)].sum() for i, y in enumerate(numbers)])
        found = ours.truth(semantics=how, per_row=True, rows=rows)["less"]
        torch.testing.assert_close(found, wanted, atol=0.15, rtol=0)
        assert (found - wanted).abs().mean() < 0.06
    (slope,) = torch.autograd.grad(ours.loss(semantics=how, rows=rows), p)
    assert torch.isfinite(slope).all() and slope.any()


def test_auto_with_amortized_says_why() -> None:
    hard = doxa.Model(
        "sort Node; pred edge(Node, Node); [any] exists x, y, z: Node. edge(x, y) & edge(y, z) & edge(z, x)",
        edge=doxa.probs(torch.full((5, 5), 0.3)),
    )
    auto = doxa.Auto(Amortized(hidden=16, samples=20, pretrain=0), budget=doxa.Budget(operations=10))
    assert hard.inference_step(semantics=auto, Node=5) == 1
    assert torch.isfinite(hard.loss(semantics=auto, Node=5))
    plan = hard.plan(semantics=auto, Node=5)
    assert any(line.startswith("not exact: ") for line in plan.splitlines()) and "after 1 updates" in plan
    assert len(hard.state_dict()["inference._extra_state"]["learners"]) == 1
    easy = model()
    assert easy.inference_step(semantics=auto, pairs=data()) == 0
    assert "exact, which the budget allows" in easy.plan(semantics=auto, pairs=data())
    torch.testing.assert_close(easy.loss(semantics=auto, pairs=data()), easy.loss(semantics=doxa.Exact(), pairs=data()))


def test_joint_axioms_have_an_inference_model_of_their_own() -> None:
    kb = "sort Day; pred a(Day); pred b(Day); [x] forall d: Day. a(d) | b(d); [y] forall d: Day. a(d) -> b(d)"
    p = torch.tensor([[0.3, 0.9], [0.6, 0.8]])
    ours = doxa.Model(kb, a=doxa.probs(p[0]), b=doxa.probs(p[1]))
    how = Amortized(hidden=64, pretrain=400, samples=200, learning_rate=1e-2)
    torch.manual_seed(0)
    assert ours.inference_step(semantics=how, combine="joint", Day=2) == 401
    learnt = ours.loss(semantics=how, combine="joint", reduction="none", Day=2)
    torch.testing.assert_close(learnt, -p[1].log(), atol=0.15, rtol=0)  # both hold exactly where b does
