"""Symbols that share the component of a mixture, from the language down; enumeration in float64 is the oracle."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import doxa
from doxa.errors import BindingError, ConfigError, ProblemError
from doxa.stochastic import Enumerate, LeaveOneOut, Score

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")

SUM = """sort Image; sort Digit = 0..2; sort Shape; sort Colour = {red, green}
    data pairs(left: Image, right: Image, mark: Shape, sum: Int)
    func digit(Image) -> Digit; func colour(Shape) -> Colour; pred bright(Image)
    [sum]   forall p in pairs. digit(p.left) + digit(p.right) = p.sum
    [red]   forall p in pairs. colour(p.mark) = red -> digit(p.left) > 0
    [light] forall p in pairs where p.sum > 1. bright(p.right) | colour(p.mark) = green"""
SIZES = {"digit(p.left)": 3, "digit(p.right)": 3, "colour(p.mark)": 2, "bright(p.right)": 2}
ROWS = 4


class Heads(nn.Module):
    """K beliefs about every object, perhaps with values; it notes what it was given."""

    def __init__(self, features: int, *shape: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, math.prod(shape)), nn.Unflatten(-1, shape)).double()
        self.calls: list[tuple[Tensor, ...]] = []

    def forward(self, objects: Tensor) -> Tensor:
        self.calls.append((objects,))
        found: Tensor = self.net(objects)
        return found


class Gate(nn.Module):
    """The weights of a row, from all of its objects."""

    def __init__(self, features: int, components: int) -> None:
        super().__init__()
        self.net = nn.Linear(features, components).double()
        self.calls: list[tuple[Tensor, ...]] = []

    def forward(self, *objects: Tensor) -> Tensor:
        self.calls.append(objects)
        found: Tensor = self.net(torch.cat([o.flatten(1) for o in objects], -1))
        return found


def networks(components: int, seed: int = 0) -> tuple[Gate, Heads, Heads, Heads]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return (
            Gate(8, components),
            Heads(3, components, 3),
            Heads(2, components, 2),
            Heads(3, components),
        )


def model_of(components: int, seed: int = 0) -> tuple[doxa.Model, tuple[Gate, Heads, Heads, Heads]]:
    nets = networks(components, seed)
    gate, digit, colour, bright = nets
    parts = {"digit": doxa.logits(digit), "colour": doxa.logits(colour), "bright": doxa.logits(bright)}
    return doxa.Model(SUM, "exact", **doxa.mixture(weights=doxa.logits(gate), **parts)), nets


def pairs(rows: int = ROWS, seed: int = 1) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    left, right, mark = (torch.randn(rows, n, generator=random, dtype=torch.float64) for n in (3, 3, 2))
    return {"left": left, "right": right, "mark": mark, "sum": torch.arange(rows) % 5}


def written_out(nets: tuple[Gate, Heads, Heads, Heads], rows: dict[str, Tensor]) -> dict[str, Tensor]:
    """How probable each axiom is of each row, world by world and component by component."""
    gate, digit, colour, bright = nets
    weights = gate(rows["left"], rows["right"], rows["mark"]).softmax(-1)  # (rows, K)
    left, right = digit(rows["left"]).softmax(-1), digit(rows["right"]).softmax(-1)
    mark, light = colour(rows["mark"]).softmax(-1), bright(rows["right"]).sigmoid()
    found = {axiom: torch.zeros(len(weights), dtype=torch.float64) for axiom in ("sum", "red", "light")}
    for a, b, c, d in itertools.product(range(3), range(3), range(2), range(2)):
        p = left[..., a] * right[..., b] * mark[..., c] * (light if d else 1 - light)
        world = (weights * p).sum(-1)
        holds = {"sum": rows["sum"] == a + b, "red": c != 0 or a > 0, "light": (rows["sum"] <= 1) | bool(d or c == 1)}
        found = {axiom: total + world * holds[axiom] for axiom, total in found.items()}
    return found


@pytest.mark.parametrize(("components", "seed"), [(1, 0), (2, 1), (3, 2), (5, 3)])
def test_probabilities_and_gradients_are_those_written_out(components: int, seed: int) -> None:
    model, nets = model_of(components, seed)
    rows = pairs(seed=seed)
    expected = written_out(nets, rows)
    truths = model.truth(per_row=True, pairs=rows)
    for axiom, truth in truths.items():
        torch.testing.assert_close(truth, expected[axiom], rtol=1e-10, atol=1e-12)
    whole = model.truth(pairs=rows)  # each row has a component of its own, so rows are independent
    for axiom, truth in whole.items():
        torch.testing.assert_close(truth, expected[axiom].prod(), rtol=1e-10, atol=1e-12)
    for how, reduce in ((doxa.Exact(), "mean"), (doxa.Exact(quantifier="logic"), "sum")):
        loss = model.loss(semantics=how, pairs=rows)
        passes = rows["sum"] > 1
        losses = {axiom: -p.log() for axiom, p in expected.items()}
        if reduce == "mean":
            total = losses["sum"].mean() + losses["red"].mean() + losses["light"][passes].mean()
        else:
            total = sum(each.sum() for each in losses.values())
        torch.testing.assert_close(loss, torch.as_tensor(total))
        found = torch.autograd.grad(loss, list(model.parameters()))
        true = torch.autograd.grad(torch.as_tensor(total), list(model.parameters()), retain_graph=True)
        for slope, right in zip(found, true, strict=True):
            torch.testing.assert_close(slope, right, rtol=1e-8, atol=1e-10)


class Single(nn.Module):
    """The only component of heads."""

    def __init__(self, heads: nn.Module) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, objects: Tensor) -> Tensor:
        found: Tensor = self.heads(objects)
        return found.squeeze(1)


def test_one_component_is_an_ordinary_belief() -> None:
    mixed, (_, digit, colour, bright) = model_of(1)
    plain = doxa.Model(
        SUM,
        "exact",
        digit=doxa.logits(Single(digit)),
        colour=doxa.logits(Single(colour)),
        bright=doxa.logits(Single(bright)),
    )
    rows = pairs()
    parameters = [*digit.parameters(), *colour.parameters(), *bright.parameters()]
    losses = [model.loss(pairs=rows) for model in (mixed, plain)]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    for one, two in zip(*[torch.autograd.grad(loss, parameters) for loss in losses], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-12)
    found = [model.predict("pairs.sum", pairs=rows) for model in (mixed, plain)]
    assert torch.equal(found[0].values, found[1].values)
    torch.testing.assert_close(found[0].truths, found[1].truths)
    some = {**rows, "sum": torch.tensor([1, 2, 3, 2])}
    for one, two in zip(*[m.explain("sum", k=3, pairs=some) for m in (mixed, plain)], strict=True):
        assert [w.values for w in one.worlds] == [w.values for w in two.worlds]
        assert [w.probability for w in one.worlds] == pytest.approx([w.probability for w in two.worlds])
        assert all(w.components == pytest.approx((1.0,)) for w in one.worlds)
    one, two = (model.layer()(pairs=some) for model in (mixed, plain))
    for name, probs in two.probs.items():
        torch.testing.assert_close(one.probs[name], probs)
        assert torch.equal(one.values[name], two.values[name])
    classical = [m.truth(semantics="classical", per_row=True, pairs=rows) for m in (mixed, plain)]
    assert all(torch.equal(classical[0][axiom], classical[1][axiom].to(classical[0][axiom])) for axiom in classical[1])


@pytest.mark.parametrize("seed", range(4))
def test_components_that_are_certain_are_any_worlds(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    count = 2 + seed
    worlds = torch.randperm(27, generator=random)[:count]
    digits = torch.stack([worlds // 9, worlds // 3 % 3, worlds % 3], -1)  # (K, objects)
    shares = torch.rand(count, generator=random, dtype=torch.float64)
    shares = shares / shares.sum()
    text = """sort O; sort D = 0..2; func d(O) -> D; data rows(a: O, b: O, c: O)
        [any] forall r in rows. d(r.a) + d(r.b) + d(r.c) < 100
        [up] forall r in rows. d(r.a) <= d(r.b) & d(r.b) <= d(r.c)"""
    heads = nn.functional.one_hot(digits, 3).double()
    model = doxa.Model(text, "exact", **doxa.mixture(weights=doxa.probs(shares), d=doxa.probs(heads)))
    data = {"O": 3, "rows": {"a": torch.tensor([0]), "b": torch.tensor([1]), "c": torch.tensor([2])}}
    up = (digits[:, 0] <= digits[:, 1]) & (digits[:, 1] <= digits[:, 2])
    truth = model.truth(per_row=True, **data)
    assert truth["up"].item() == pytest.approx(shares[up].sum().item())
    assert truth["any"].item() == pytest.approx(1.0)
    (explained,) = model.explain("up", k=count, **data)
    listed = {tuple(world.values.values()): world for world in explained.worlds}
    assert set(listed) == {tuple(w) for w in digits[up].tolist()}
    for k, (share, world) in enumerate(zip(shares.tolist(), digits.tolist(), strict=True)):
        if bool(up[k]):
            found = listed[tuple(world)]
            assert found.probability == pytest.approx(share / shares[up].sum().item())
            assert found.components[k] == pytest.approx(1.0)
            assert f"component {k}: 1.00" in str(found) and f"{k}: 1.00" in found._repr_html_()
    losses = model.losses(semantics=doxa.Sampled(Enumerate(), log=False), **data).by_name()
    assert losses["up"].item() == pytest.approx(1 - shares[up].sum().item())


@pytest.mark.parametrize("estimator", [Score(4), LeaveOneOut(8), Enumerate()], ids=repr)
def test_sampled_losses_are_unbiased(estimator: Any) -> None:
    model, _ = model_of(3)
    rows = {name: column[3:4].repeat(400, *[1] * (column.ndim - 1)) for name, column in pairs().items()}
    loss = model.losses(semantics=doxa.Sampled(estimator, log=False), generator=seeded(), pairs=rows).by_name()["sum"]
    truth = 1 - model.truth(per_row=True, pairs=rows)["sum"].mean()
    spread = 0.0 if isinstance(estimator, Enumerate) else 4.5 * math.sqrt(0.25 / (400 * estimator.n))
    assert abs(loss.item() - truth.item()) <= spread + 1e-9
    slopes, true = (torch.autograd.grad(x, list(model.parameters()), allow_unused=True) for x in (loss, truth))
    for found, right in zip(slopes, true, strict=True):
        if right is not None and found is not None:
            slack = 1e-9 if isinstance(estimator, Enumerate) else 0.1
            torch.testing.assert_close(found, right, rtol=0, atol=slack)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_gate_sees_each_row_once_and_no_label() -> None:
    model, (gate, digit, *_) = model_of(2)
    rows = pairs()
    model.loss(pairs=rows)
    (seen,) = gate.calls  # for all three axioms together
    assert all(torch.equal(a, b) for a, b in zip(seen, (rows["left"], rows["right"], rows["mark"]), strict=True))
    assert len(digit.calls) == 1
    gate.calls.clear()
    model.predict("pairs.sum", pairs=rows)
    assert [len(objects) for call in gate.calls for objects in call] == [ROWS] * 3


def test_a_gate_sees_objects_that_rows_refer_to_and_sequences_of_any_length() -> None:
    text = """sort I; data scenes(objects: I*, first: I, many: Int); pred b(I)
        [some] forall s in scenes. (exists x in s.objects. b(x)) | b(s.first) | s.many = 0"""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[Tensor, ...]] = []

        def forward(self, objects: Tensor, first: Tensor) -> Tensor:
            self.calls.append((objects, first))
            return torch.stack([objects.sum((1, 2)), first.sum(1)], -1)

    features = torch.randn(5, 3, generator=seeded(), dtype=torch.float64)
    gate, heads = Mean(), Heads(3, 2)
    model = doxa.Model(text, "exact", **doxa.mixture(weights=doxa.logits(gate), b=doxa.logits(heads)))
    lists = [[0, 1], [], [2, 3], [4]]
    scenes = {
        "objects": doxa.Ragged(torch.tensor([i for some in lists for i in some]), [len(x) for x in lists]),
        "first": torch.tensor([4, 0, 1, 2]),
        "many": torch.tensor([1, 2, 3, 4]),
    }
    truth = model.truth(per_row=True, I=features, scenes=scenes)["some"]
    for i, members in enumerate(lists):
        first = [4, 0, 1, 2][i]
        weights = torch.stack([features[members].sum(), features[first].sum()]).softmax(-1)
        said = heads.net(features[[*members, first]]).sigmoid()  # (objects, K)
        none = (1 - said).prod(0)
        torch.testing.assert_close(truth[i], (weights * (1 - none)).sum())


def test_what_is_not_mixed_stands_beside_it() -> None:
    text = "pred a; pred b; pred c; [all] a & b & c; [same] a <-> b; [alone] c"
    table = torch.tensor([[1.0, 0.0], [0.2, 0.6]], dtype=torch.float64)  # of a and b, by component
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    parts = doxa.mixture(weights=doxa.probs(weights), a=doxa.probs(table[0]), b=doxa.probs(table[1]))
    model = doxa.Model(text, "exact", c=doxa.probs(torch.tensor(0.4, dtype=torch.float64)), **parts)
    truth = model.truth()
    assert truth["all"].item() == pytest.approx(0.3 * 1.0 * 0.2 * 0.4)
    assert truth["same"].item() == pytest.approx(0.3 * 0.2 + 0.7 * 0.4)
    assert truth["alone"].item() == pytest.approx(0.4)
    assert model.truth(semantics={"all": "exact", "same": "exact", "alone": "fuzzy"})["alone"].item() == pytest.approx(
        0.4
    )
    assert model.losses(combine="joint").total.item() == pytest.approx(-math.log(0.3 * 1.0 * 0.2 * 0.4))


def test_symbols_that_only_definitions_speak_of() -> None:
    text = """sort P = {ann, bob}; pred a(P); pred b(P); define both(x: P) := a(x) & b(x)
        [all] forall x: P. both(x)"""
    table = torch.tensor([[1.0, 0.5], [0.0, 0.5]], dtype=torch.float64)
    half = doxa.probs(torch.tensor([0.5, 0.5], dtype=torch.float64))
    model = doxa.Model(text, "exact", **doxa.mixture(weights=half, a=doxa.probs(table), b=doxa.probs(table)))
    truth = model.truth(per_row=True)["all"]
    torch.testing.assert_close(truth, torch.tensor([0.5, 0.25], dtype=torch.float64))
    assert model.truth()["all"].item() == pytest.approx(0.125)  # each row has a component of its own
    with pytest.raises(ConfigError, match=r"bound by doxa\.mixture"):
        model.loss(semantics="refined")


@pytest.mark.parametrize("how", ["raise", "inf", "finite"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_with_weights_of_zero_certain_components_and_impossible_rows(how: str, dtype: torch.dtype) -> None:
    text = "sort O; sort D = 0..2; func d(O) -> D; data r(a: O, b: O, n: Int); [s] forall x in r. d(x.a) + d(x.b) = x.n"
    scores = torch.tensor([[[9.0, 0, 0], [0, 9, 0]], [[0, 0, 9], [9, 0, 0]], [[0, 1, 2], [2, 1, 0]]], dtype=dtype)
    scores[0] = torch.where(scores[0] == 9, 0.0, -math.inf)
    scores.requires_grad_()
    weights = torch.tensor([0.0, 1.0, -math.inf], dtype=dtype, requires_grad=True)
    model = doxa.Model(text, **doxa.mixture(weights=doxa.logits(weights), d=doxa.logits(scores)))
    data = {"O": 2, "r": {"a": torch.tensor([0, 0]), "b": torch.tensor([1, 1]), "n": torch.tensor([1, 7])}}
    for semantics in (doxa.Exact(impossible=how), doxa.Sampled(LeaveOneOut(16), log=False, impossible=how)):  # type: ignore[arg-type]
        if how == "raise":
            with pytest.raises(ProblemError, match=r"cannot hold in rows \(1,\)"):
                model.loss(semantics=semantics, **data)
            continue
        each = model.losses(semantics=semantics, reduction="none", generator=seeded(), **data).by_name()["s"]
        assert bool(each[0].isfinite()) and bool(each[1].isinf()) == (how == "inf")
        for slope in torch.autograd.grad(each[0] if how == "inf" else each.sum(), (scores, weights)):
            assert bool(slope.isfinite().all())


def test_what_learns_is_part_of_the_model_and_can_be_copied() -> None:
    model, (gate, *_) = model_of(3)
    rows = pairs()
    names = dict(model.named_parameters())
    assert any(p is gate.net.weight for p in names.values())
    assert len(names) == 8
    other, _ = model_of(3, seed=9)
    other.load_state_dict(model.state_dict())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), other):
        torch.testing.assert_close(twin.loss(pairs=rows), model.loss(pairs=rows), rtol=0, atol=0)
        assert twin.interpretation.joint is not model.interpretation.joint


def test_who_cannot_take_it_says_who_can() -> None:
    model, _ = model_of(2)
    rows = pairs()
    for word in ("fuzzy", "refined", "amortized"):
        with pytest.raises(ConfigError, match=r"bound by doxa.mixture.*; Exact\(\), Sampled\(\), Auto\(\)"):
            model.loss(semantics=word, pairs=rows)
    with pytest.raises(ConfigError, match=r"bound by doxa\.mixture"):
        model.inference_step(semantics="amortized", pairs=rows)
    with pytest.raises(ConfigError, match=r"bound by doxa\.mixture"):
        model.refine(pairs=rows)
    with pytest.raises(ConfigError, match="classical truth has no derivative"):
        model.loss(semantics="classical", pairs=rows)


def test_mistakes_are_told() -> None:
    gate, digit, colour, bright = networks(2)
    parts: dict[str, Any] = {"digit": doxa.logits(digit), "colour": doxa.logits(colour), "bright": doxa.logits(bright)}
    with pytest.raises(BindingError, match="weights is a bare Gate, which does not say what it returns"):
        doxa.mixture(weights=gate, **parts)  # type: ignore[arg-type]
    with pytest.raises(BindingError, match="digit is a bare Heads, which does not say what it returns"):
        doxa.mixture(weights=doxa.logits(gate), digit=digit)  # type: ignore[arg-type]
    with pytest.raises(BindingError, match="has no symbols"):
        doxa.mixture(weights=doxa.logits(gate))
    with pytest.raises(BindingError, match=r"a tensor \(components,\)"):
        doxa.mixture(weights=doxa.logits(torch.zeros(2, 2)), **parts)
    with pytest.raises(BindingError, match="unknown symbol 'dgit'; did you mean"):
        doxa.Model(SUM, **doxa.mixture(weights=doxa.logits(gate), dgit=parts["digit"]))
    first, second = (doxa.mixture(weights=doxa.logits(gate), **{n: parts[n]}) for n in ("digit", "colour"))
    with pytest.raises(BindingError, match="belong to one, as in mixture"):
        doxa.Model(SUM, **first, **second, bright=parts["bright"])

    def loss(**changed: Any) -> None:
        given = {"weights": doxa.logits(gate), **parts, **changed}
        doxa.Model(SUM, "exact", **doxa.mixture(**given)).loss(pairs=pairs())

    loss()
    with pytest.raises(BindingError, match="digit has 4, colour has 2, bright has 2, weights has 2"):
        loss(digit=doxa.logits(Heads(3, 4, 3)))
    with pytest.raises(
        BindingError, match=r"weights: .* shape \(rows, components\), here \(4, components\), got shape"
    ):
        loss(weights=doxa.logits(lambda *objects: torch.zeros(3, 2)))
    rows = {"pairs": {"left": torch.randn(2, 3), "right": torch.randn(2, 3), "differ": torch.tensor([0, 1])}}
    xor = """sort Image; sort Bit = 0..1; data pairs(left: Image, right: Image, differ: Bit); func bit(Image) -> Bit
             [d] forall p in pairs. a := bit(p.left), b := bit(p.right) ((a + b) mod 2 = p.differ)"""
    plain = doxa.mixture(weights=doxa.logits(torch.zeros(2)), bit=doxa.logits(nn.Linear(3, 2)))
    with pytest.raises(BindingError, match=r"of each component, got .* the second axis is that of the components"):
        doxa.Model(xor, "exact", **plain).loss(**rows)
    with pytest.raises(BindingError, match=r"digit: in a mixture the network should return a tensor \(8, components"):
        loss(digit=doxa.logits(lambda objects: torch.zeros(3, 2, 3)))
    with pytest.raises(BindingError, match="weights: NaN"):
        loss(weights=doxa.logits(lambda *objects: torch.full((4, 2), math.nan)))
    with pytest.raises(BindingError, match="add up to 1"):
        loss(weights=doxa.probs(lambda *objects: torch.full((4, 2), 0.2)))
    with pytest.raises(BindingError, match="one tensor for each component"):
        doxa.Model(
            "pred a; [x] a", **doxa.mixture(weights=doxa.logits(torch.zeros(2)), a=doxa.probs(torch.tensor(0.5)))
        )
    objects = doxa.Model(
        "sort O; pred a(O); [x] forall o: O. a(o)",
        "exact",
        **doxa.mixture(weights=doxa.logits(torch.zeros(2)), a=doxa.probs(torch.full((2, 3), 0.5))),
    )
    with pytest.raises(BindingError, match="axis 1 of its tensor has size 3, but O has 4 objects"):
        objects.loss(O=4)
    seen = doxa.Model(
        "sort O; pred a(O); [x] forall o: O. a(o)",
        "exact",
        **doxa.mixture(weights=doxa.logits(gate), a=doxa.probs(torch.full((2, 3), 0.5))),
    )
    with pytest.raises(BindingError, match="needs the features of their objects, but O has none"):
        seen.loss(O=3)


def test_marginals_are_those_of_the_whole_row() -> None:
    model, (gate, digit, colour, bright) = model_of(3)
    rows = pairs()
    weights = gate(rows["left"], rows["right"], rows["mark"]).softmax(-1).unsqueeze(-1)
    asked = {"pairs.left": digit(rows["left"]), "pairs.right": digit(rows["right"])}
    for place, said in asked.items():
        torch.testing.assert_close(model.marginals("digit", place, pairs=rows), (weights * said.softmax(-1)).sum(1))
    found = model.marginals("colour", "pairs.mark", pairs=rows)
    torch.testing.assert_close(found, (weights * colour(rows["mark"]).softmax(-1)).sum(1))
    light = (weights.squeeze(-1) * bright(rows["right"]).sigmoid()).sum(-1)
    torch.testing.assert_close(model.marginals("bright", "pairs.right", pairs=rows)[:, 1], light)


def test_marginals_of_objects_in_sequences_of_any_length() -> None:
    text = """sort I; sort C = {x, y}; data s(o: I*); data t(o: I*); pred b(I); pred is(I, C)
        [a] forall r in s. exists q in r.o. b(q)"""
    features = torch.randn(6, 3, generator=seeded(), dtype=torch.float64)
    heads, family = Heads(3, 2), Heads(3, 2, 2)
    weights = doxa.probs(torch.tensor([0.25, 0.75], dtype=torch.float64))
    parts = {"b": doxa.logits(heads), "is": doxa.logits(family)}
    model = doxa.Model(text, **doxa.mixture(weights=weights, **parts))
    true = (heads.net(features).sigmoid() * torch.tensor([0.25, 0.75])).sum(-1)
    ragged = model.marginals("b", "s.o", s={"o": doxa.Ragged(features, [2, 0, 1, 3])})
    torch.testing.assert_close(ragged[:, 1], true)
    torch.testing.assert_close(model.marginals("b", "t.o", t={"o": features.view(3, 2, 3)})[:, 1], true)
    torch.testing.assert_close(model.marginals("b", "I", I=features)[:, 1], true)
    own = (family.net(features).sigmoid() * torch.tensor([0.25, 0.75]).view(2, 1)).sum(1)
    torch.testing.assert_close(model.marginals("is", "I", I=features), own)
    with pytest.raises(ConfigError, match="expected data and their field"):
        model.marginals("b", "u.o", I=features)
    with pytest.raises(ConfigError, match="there is no symbol 'c'"):
        model.marginals("c", "I", I=features)


def test_satisfaction_is_that_of_the_most_probable_world() -> None:
    text = """sort P = {ann, bob}; pred s(P); pred t(P); fact s(ann); fact !s(bob)
        [same] forall x: P. s(x) <-> t(x)"""
    # of two components the first is more probable, but the second has the most probable world
    weights = doxa.probs(torch.tensor([0.6, 0.4]))
    s = torch.tensor([[0.5, 0.6], [1.0, 0.0]])
    t = torch.tensor([[0.5, 0.2], [1.0, 0.0]])
    model = doxa.Model(text, **doxa.mixture(weights=weights, s=doxa.probs(s), t=doxa.probs(t)))
    report = model.satisfaction()
    assert (report["same"].instances, report["same"].holds) == (2, 2)
    assert (report["facts"].instances, report["facts"].holds) == (2, 2)
    marginal = doxa.Model(text, s=doxa.probs(torch.tensor([0.7, 0.36])), t=doxa.probs(torch.tensor([0.7, 0.12])))
    assert marginal.truth(semantics="classical")["same"].item() == 1
    other = doxa.Model(text, **doxa.mixture(weights=weights, s=doxa.probs(s), t=doxa.probs(1 - t)))
    found = other.satisfaction()
    assert (found["same"].holds, found["same"].violations) == (0, ({"x": "ann"}, {"x": "bob"}))


def test_a_family_of_values_that_exclude_each_other_is_a_function() -> None:
    heads = Heads(4, 2, 3)
    weights = doxa.logits(torch.tensor([0.3, -0.2], dtype=torch.float64))
    data = "sort I; sort D = 0..2; data r(x: I, y: I);"
    family = doxa.Model(
        data + "pred p(I, D); [s] forall t in r. exists d: D. p(t.x, d) & p(t.y, d)",
        "exact",
        **doxa.mixture(weights=weights, p=doxa.logits(heads, exclusive=True)),
    )
    function = doxa.Model(
        data + "func p(I) -> D; [s] forall t in r. p(t.x) = p(t.y)",
        "exact",
        **doxa.mixture(weights=weights, p=doxa.logits(heads)),
    )
    x, y = torch.randn(2, 3, 4, generator=seeded(), dtype=torch.float64)
    truths = [model.truth(per_row=True, r={"x": x, "y": y})["s"] for model in (family, function)]
    torch.testing.assert_close(*truths)
    own = torch.tensor([0.3, -0.2], dtype=torch.float64).softmax(0)
    same = (heads.net(x).softmax(-1) * heads.net(y).softmax(-1)).sum(-1)
    torch.testing.assert_close(truths[0], (own * same).sum(-1))
    torch.testing.assert_close(*[m.marginals("p", "r.x", r={"x": x, "y": y}) for m in (family, function)])


def test_a_mixture_that_is_bound_to_one_symbol() -> None:
    both = doxa.mixture(weights=doxa.logits(torch.zeros(2)), rain=doxa.logits(torch.zeros(2)))
    with pytest.raises(doxa.BindingError, match=r"write \*\*doxa\.mixture"):
        doxa.Model("pred rain; [wet] rain", "exact", rain=both)
