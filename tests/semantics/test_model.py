"""One knowledge base under every semantics: they agree where they must, and each is what it says."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION, WEATHER
from torch import Tensor, nn

import doxa
from doxa.errors import BindingError, ConfigError, ProblemError
from doxa.fuzzy import valuation
from doxa.logic import Interpretation, parse, satisfaction
from doxa.refine import Refine
from doxa.stochastic import Enumerate, LeaveOneOut, Score

ALL = [
    doxa.Classical(),
    doxa.Fuzzy("product"),
    doxa.Fuzzy("godel"),
    doxa.Refined(),
    doxa.Exact(impossible="finite"),
    doxa.Auto(),
]
ALL += [doxa.Sampled(LeaveOneOut(4)), doxa.Sampled(Enumerate())]


def softmax(x: Tensor) -> Tensor:
    return x.log_softmax(-1)


def addition(n: int = 5, seed: int = 0) -> tuple[doxa.Model, dict[str, Tensor], Tensor]:
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, n, 4, generator=random, dtype=torch.float64).requires_grad_()
    sums = torch.randint(7, (n,), generator=random)
    model = doxa.Model(ADDITION, digit=doxa.log_probs(softmax))
    return model, {"left": scores[0], "right": scores[1], "sum": sums}, scores


def weather(n: int = 3, seed: int = 0, crisp: bool = False) -> tuple[doxa.Model, dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    truth = {s: torch.rand(n, generator=random, dtype=torch.float64) for s in ("rain", "wet", "warm")}
    if crisp:
        truth = {s: t.round() for s, t in truth.items()}
    return doxa.Model(WEATHER, **{s: doxa.probs(t) for s, t in truth.items()}), truth


@pytest.mark.parametrize("semantics", ALL, ids=lambda s: str(s).split(" object")[0][:40])
@pytest.mark.parametrize("seed", range(4))
def test_on_crisp_data_all_say_what_is_true(semantics: Any, seed: int) -> None:
    model, _ = weather(crisp=True, seed=seed)
    classical = {n: bool(v) for n, v in model.truth(semantics=doxa.Classical(), Day=3).items()}
    report = model.satisfaction(Day=3)
    assert classical == {axiom.name: axiom.satisfied for axiom in report.axioms}
    found = model.truth(semantics=semantics, Day=3)
    assert {n: v.item() for n, v in found.items()} == pytest.approx({n: float(v) for n, v in classical.items()})


def numbers(tensors: dict[str, Tensor]) -> dict[str, float]:
    return {name: tensor.item() for name, tensor in tensors.items()}


def test_product_logic_is_exact_where_no_atom_repeats() -> None:
    model, _ = weather(4)
    rules = doxa.Model(parse(WEATHER), **{s: model.interpretation.meaning(s) for s in ()}, **_bindings(model))
    fuzzy, exact = (rules.truth(semantics=s, Day=4) for s in (doxa.Fuzzy("product"), doxa.Exact()))
    for name in ("soaked", "some"):  # in [cold] no atom repeats either, but ∨ is read as independent
        assert fuzzy[name].item() == pytest.approx(exact[name].item())


def _bindings(model: doxa.Model) -> dict[str, Any]:
    return {s: doxa.probs(model.interpretation.meaning(s).tensor) for s in ("rain", "wet", "warm")}  # type: ignore[union-attr]


def test_exact_is_the_sum_over_all_worlds() -> None:
    model, pairs, scores = addition()
    p = scores.softmax(-1)
    expected = torch.stack(
        [
            sum(a[i] * b[s - i] for i in range(4) if 0 <= s - i < 4)
            for a, b, s in zip(p[0], p[1], pairs["sum"].tolist(), strict=True)
        ]
    )
    loss = model.loss(semantics=doxa.Exact(), pairs=pairs)
    assert loss.item() == pytest.approx(-expected.log().mean().item())
    torch.testing.assert_close(*[torch.autograd.grad(x, scores)[0] for x in (loss, -expected.log().mean())])


def test_sampling_every_world_is_the_expected_violation() -> None:
    model, pairs, scores = addition(3)
    each = doxa.Model(ADDITION, digit=doxa.log_probs(softmax))
    probability = torch.stack([
        each.truth(semantics=doxa.Exact(impossible="finite"), pairs={k: v[i : i + 1] for k, v in pairs.items()})["sum"]
        for i in range(3)
    ])  # fmt: skip
    loss = model.loss(semantics=doxa.Sampled(Enumerate(), log=False), pairs=pairs)
    assert loss.item() == pytest.approx(1 - probability.mean().item())
    torch.testing.assert_close(*[torch.autograd.grad(x, scores)[0] for x in (loss, -probability.mean())])
    random = torch.Generator().manual_seed(0)
    many = model.loss(semantics=doxa.Sampled(Score(20_000), log=False), pairs=pairs, generator=random)
    assert many.item() == pytest.approx(loss.item(), abs=0.01)


def test_the_logarithm_of_the_share_of_samples() -> None:
    model, pairs, scores = addition(3)
    random = torch.Generator().manual_seed(0)
    loss = model.loss(semantics=doxa.Sampled(Score(50_000)), pairs=pairs, generator=random)
    exact = model.loss(semantics=doxa.Exact(impossible="finite"), pairs=pairs)
    assert loss.item() == pytest.approx(exact.item(), abs=0.05)
    a, b = (torch.autograd.grad(x, scores)[0] for x in (loss, exact))
    torch.testing.assert_close(a, b, atol=0.02, rtol=0)
    never = doxa.Model(
        parse("pred a; pred b; [no] a & b", warn=False), **dict.fromkeys("ab", doxa.probs(torch.tensor(1e-30)))
    )
    worst = torch.tensor(8.0).log().item()  # half a world of four
    assert never.loss(semantics=doxa.Sampled(Score(4))).item() == pytest.approx(worst)
    nothing = doxa.Model(parse("pred a; [no] a & !a", warn=False), a=doxa.probs(torch.tensor(0.5)))
    with pytest.raises(ProblemError, match="axiom 'no' cannot hold"):
        nothing.loss(semantics=doxa.Sampled(Score(4)))
    finite = nothing.loss(semantics=doxa.Sampled(Score(4), impossible="finite"))
    assert finite.item() == pytest.approx(worst)


def test_refined_is_the_addition_layer_of_chapter_4() -> None:
    model, pairs, scores = addition()
    p = scores.softmax(-1)
    best = torch.stack([
        torch.stack([torch.minimum(a[i], b[s - i]) for i in range(4) if 0 <= s - i < 4]).max()
        for a, b, s in zip(p[0], p[1], pairs["sum"].tolist(), strict=True)
    ])  # fmt: skip
    assert model.truth(semantics=doxa.Refined(), pairs=pairs)["sum"].item() == pytest.approx(best.min().item())
    other = torch.stack([
        torch.stack([torch.minimum(a[i], b[j]) for i, j in itertools.product(range(4), repeat=2) if i + j != s]).max()
        for a, b, s in zip(p[0], p[1], pairs["sum"].tolist(), strict=True)
    ])  # fmt: skip
    loss = -(best / (best + other)).log().mean()
    assert model.loss(semantics=doxa.Refined(), pairs=pairs).item() == pytest.approx(loss.item())
    # the same by the layer itself: a rule for each world, the sums start at 0
    atoms = doxa.propositions(
        " ".join([*[f"x{i}" for i in range(4)], *[f"y{i}" for i in range(4)], *[f"s{i}" for i in range(7)]])
    )
    x, y, s = atoms[:4], atoms[4:8], atoms[8:]
    rules = {f"{i}{j}": (x[i] & y[j]) >> s[i + j] for i, j in itertools.product(range(4), repeat=2)}
    layer = Refine(rules, "godel:r", steps=1, atoms=atoms, constants=(*x, *y))
    refined = layer(torch.cat([p[0], p[1], torch.zeros(5, 7, dtype=p.dtype)], -1))
    torch.testing.assert_close(refined[torch.arange(5), 8 + pairs["sum"]], best)
    others = refined[:, 8:].scatter(1, pairs["sum"][:, None], 0.0).amax(-1)
    torch.testing.assert_close(others, other)


def test_fuzzy_is_the_fuzzy_loss() -> None:
    model, truth = weather()
    kb = parse(WEATHER)
    for logic in ("product", "log_product", "godel", "ltn"):
        seen = Interpretation(kb, **{s: doxa.probs(t) for s, t in truth.items()})
        # the engine minimises -Σ w e, which is Σ w (1 - e) less the sum of the weights; in log space it is -Σ w log e
        shift = 0.0 if logic == "log_product" else sum(axiom.weight for axiom in kb.axioms)
        as_logic = doxa.Fuzzy(logic, quantifier="logic")
        assert model.loss(semantics=as_logic, Day=3).item() == pytest.approx(
            shift + valuation(kb, seen, logic, Day=3).loss.item()
        )
        assert all(0 <= v <= 1 for v in model.truth(semantics=doxa.Fuzzy(logic), Day=3).values())
    assert model.loss(semantics="fuzzy", Day=3) == model.loss(semantics=doxa.Fuzzy("log_product"), Day=3)


def test_refinement_costs_nothing_where_an_axiom_certainly_holds() -> None:
    kb = (
        "sort D; pred a(D); pred b(D); pred on(D); [either] forall d: D. a(d) | b(d); [then] forall d: D. on(d) -> b(d)"
    )
    model = doxa.Model(
        kb,
        a=doxa.probs(torch.tensor([1.0, 0.9, 0.3])),
        b=doxa.probs(torch.tensor([0.4, 0.4, 0.6])),
        on=torch.tensor([True, False, True]),
    )
    each = model.losses(semantics="refined", reduction="none", D=3).by_name()
    torch.testing.assert_close((-each["either"]).exp(), torch.tensor([1.0, 0.6 / 0.7, 0.6]))
    torch.testing.assert_close((-each["then"]).exp(), torch.tensor([0.4, 1.0, 0.6]))


def test_the_fuzzy_loss_of_an_axiom_is_the_mean_of_its_instances() -> None:
    model, truth = weather(4)
    rain, wet, warm = (truth[s] for s in ("rain", "wet", "warm"))
    soaked, some = 1 - rain * (1 - wet), 1 - (1 - warm).prod()
    cold = 1 - (1 - rain * (1 - wet)) * (1 - warm)
    for semantics, loss in (("fuzzy:product", lambda e: 1 - e), ("fuzzy", lambda e: -e.log())):
        found = numbers(model.losses(semantics=semantics, Day=4).by_name())
        by_hand = {"soaked": loss(soaked).mean(), "cold": loss(cold).mean(), "some": loss(some)}
        assert found == pytest.approx(numbers(by_hand), rel=1e-5)


def test_a_semantics_for_each_axiom_with_weights() -> None:
    model, _ = weather()
    mixed = {"soaked": doxa.Exact(), "cold": doxa.Fuzzy("godel"), "some": doxa.Exact()}
    found = model.losses(semantics=mixed, Day=3)
    alone = {s: model.losses(semantics=s, Day=3).by_name() for s in set(mixed.values())}
    expected = {name: alone[s][name] for name, s in mixed.items()}
    assert numbers(found.by_name()) == pytest.approx(numbers(expected))
    assert found.total.item() == pytest.approx(
        sum(w * v for w, v in zip((1, 2, 1), expected.values(), strict=True)).item()
    )
    default = doxa.Model(WEATHER, doxa.Fuzzy("godel"), **_bindings(model))
    partly = default.losses(semantics={"soaked": doxa.Exact()}, Day=3).by_name()
    assert partly["soaked"].item() == pytest.approx(alone[doxa.Exact()]["soaked"].item())
    assert partly["cold"].item() == pytest.approx(default.losses(Day=3).by_name()["cold"].item())


def test_weights_that_learn_keep_their_sum() -> None:
    model = doxa.Model(
        "pred a; pred b; [x, weight ?] a; [y, weight ?] b",
        doxa.Fuzzy(),
        a=doxa.probs(torch.tensor(0.9)),
        b=doxa.probs(torch.tensor(0.1)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(500):
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()
    weights = model.weights()
    assert weights.sum().item() == pytest.approx(2.0) and weights[0] > 1.9


def test_text_and_copies_change_nothing(tmp_path: Any) -> None:
    model, _truth = weather()
    again = doxa.Model(parse(str(model.kb)), **_bindings(model))
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for semantics in (doxa.Exact(), doxa.Fuzzy("product")):
            again_, before = (numbers(m.truth(semantics=semantics, Day=3)) for m in (other, model))
            assert again_ == pytest.approx(before)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    again.load_state_dict(torch.load(tmp_path / "state.pt"))


def test_auto_is_exact_where_it_can_be_and_says_why_not() -> None:
    model, _ = weather()
    auto, exact = (numbers(model.truth(semantics=s, Day=3)) for s in (doxa.Auto(), doxa.Exact()))
    assert auto == pytest.approx(exact)
    assert "exact, which the budget allows" in model.plan(semantics=doxa.Auto(), Day=3)
    hard = doxa.Model(
        "sort Node; pred edge(Node, Node); [any] exists x, y, z: Node. edge(x, y) & edge(y, z) & edge(z, x)",
        edge=doxa.probs(torch.full((7, 7), 0.3)),
    )
    auto = doxa.Auto(budget=doxa.Budget(operations=10))
    with pytest.raises(ProblemError):
        hard.truth(semantics=doxa.Exact(budget=auto.budget), Node=7)
    truth = hard.truth(semantics=auto, Node=7, generator=torch.Generator().manual_seed(0))
    assert 0 <= truth["any"] <= 1
    plan = hard.plan(semantics=auto, Node=7)
    assert any(line.startswith("not exact: ") for line in plan.splitlines()) and "LeaveOneOut(100)" in plan


def test_plans_tell_their_assumptions() -> None:
    model, pairs, _ = addition()
    for semantics, words in [
        (doxa.Exact(), "independent, given the data"),
        (doxa.Sampled(log=False), "LeaveOneOut(100), unbiased"),
        (doxa.Sampled(), "LeaveOneOut(100), biased"),
        (doxa.Sampled(), "independent, given the data"),
        (doxa.Refined(), "a truth value, not a probability"),
        (doxa.Fuzzy(), "no independence is assumed"),
        (doxa.Classical(), "classical"),
    ]:
        assert words in model.plan(semantics=semantics, pairs=pairs)


def test_networks_learn_under_each_semantics() -> None:
    torch.manual_seed(0)
    digits = torch.randint(4, (2, 64))
    images = torch.nn.functional.one_hot(digits, 4).double() + 0.1 * torch.randn(2, 64, 4, dtype=torch.float64)
    pairs = {"left": images[0], "right": images[1], "sum": digits.sum(0)}
    for semantics in (doxa.Exact(), doxa.Sampled(LeaveOneOut(16)), doxa.Fuzzy("log_product")):
        net = nn.Linear(4, 4, dtype=torch.float64)
        model = doxa.Model(ADDITION, semantics, digit=doxa.logits(net))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        before = model.truth(semantics=doxa.Exact(impossible="finite"), pairs=pairs)["sum"].log()
        for _ in range(40):
            optimizer.zero_grad()
            model.loss(pairs=pairs).backward()
            optimizer.step()
        assert model.truth(semantics=doxa.Exact(impossible="finite"), pairs=pairs)["sum"].log() > before + 20


def test_mistakes() -> None:
    model, _ = weather()
    for semantics, message in [
        (None, "say how to reason"),
        ("exactly", r"no semantics 'exactly'; did you mean 'exact'\? expected one of classical, .*doxa\.Exact\(\)"),
        ("exact:godel", "no semantics 'exact:godel'; only fuzzy, refined, amortized take .* such as fuzzy:godel"),
        ({"soked": doxa.Exact()}, "semantics names 'soked', which is no axiom; the axioms are soaked, cold, some"),
        ({"soaked": doxa.Exact()}, "no semantics is given for axiom 'cold'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            model.loss(semantics=semantics, Day=3)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="classical truth has no derivative"):
        model.loss(semantics=doxa.Classical(), Day=3)
    with pytest.raises(ConfigError, match="which is no axiom"):
        doxa.Model(WEATHER, {"rule": doxa.Exact()})
    with pytest.raises(ProblemError, match="refinement lists worlds"):
        big = doxa.Model("sort Day; pred wet(Day); [any] exists d: Day. wet(d)", wet=doxa.probs(torch.full((20,), 0.5)))
        big.loss(semantics=doxa.Refined(), Day=20)


def test_what_is_not_finite_is_found() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(-1) / 0

    text = "sort Day; pred wet(Day); pred rain(Day); [rule] forall d: Day. rain(d) -> wet(d)"
    net = nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
    model = doxa.Model(text, wet=doxa.logits(Broken()), rain=doxa.logits(net))
    days = torch.ones(3, 2)
    assert (
        model.find_nonfinite(semantics=doxa.Fuzzy(), Day=days)
        == "what wet is bound to returned numbers that are not finite"
    )
    fine = doxa.Model(text, wet=doxa.logits(net), rain=doxa.logits(net))
    assert "finite" in fine.find_nonfinite(semantics=doxa.Fuzzy(), Day=days)
    net[0].bias.data.fill_(float("nan"))
    assert fine.find_nonfinite(semantics=doxa.Fuzzy(), Day=days).startswith("the parameter interpretation.meanings")
    assert not net._forward_hooks


def test_satisfaction_is_that_of_the_interpretation() -> None:
    model, _ = weather()
    assert model.satisfaction(Day=3) == satisfaction(model.kb, model.interpretation, Day=3)


SEEN = """
    sort Image; sort Digit = 0..2
    data seen(image: Image, digit: Digit, number: Int)
    func digit(Image) -> Digit
    [digit] forall s in seen. digit(s.image) = s.digit
    [number] forall s in seen. digit(s.image) = s.number
"""
LEARNS = [doxa.Exact(), doxa.Sampled(), doxa.Refined(), doxa.Fuzzy("product")]


def seen(digits: list[int], numbers: list[int]) -> dict[str, Any]:
    return {"image": torch.eye(4)[: len(digits)], "digit": torch.tensor(digits), "number": torch.tensor(numbers)}


@pytest.mark.parametrize("semantics", LEARNS, ids=lambda s: type(s).__name__)
def test_data_that_are_no_values_of_their_sort_are_refused(semantics: Any) -> None:
    model = doxa.Model(SEEN, digit=doxa.logits(nn.Linear(4, 3)))
    assert torch.isfinite(model.loss(semantics=semantics, seen=seen([0, 1], [2, 1])))
    with pytest.raises(BindingError, match=r"seen.digit: entry 1 is 7, which is no value of Digit"):
        model.loss(semantics=semantics, seen=seen([0, 7], [2, 1]))


@pytest.mark.parametrize("semantics", LEARNS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    ("declare", "numbers", "message"),
    [
        (doxa.probs, [[3.0, 2.0]], r"lie in \[0, 1\], but what the network returned reaches from 2 to 3.*say logits"),
        (doxa.probs, [[-0.5, 1.5]], r"reaches from -0.5 to 1.5"),
        (doxa.probs, [[0.9, 0.9]], r"some that add up to 1.8.*say logits"),
        (doxa.probs, [[float("nan"), 0.5]], r"holds NaN"),
        (doxa.log_probs, [[0.5, -1.0]], r"are at most 0, but what the network returned reaches up to 0.5"),
        (doxa.log_probs, [[-1.0, -1.0]], r"some that add up to 0.7358"),
    ],
)
def test_networks_whose_numbers_are_no_probabilities(semantics: Any, declare: Any, numbers: Any, message: str) -> None:
    model = doxa.Model(
        "sort I; sort Bit = 0..1; func bit(I) -> Bit; [one] forall x: I. bit(x) = 1", bit=declare(nn.Identity())
    )
    with pytest.raises(BindingError, match=f"bit: .*{message}"):
        model.loss(semantics=semantics, I=torch.tensor(numbers))


def test_numbers_that_cannot_hold_are_named() -> None:
    model = doxa.Model(SEEN, digit=doxa.logits(nn.Linear(4, 3)))
    data = seen([0, 1, 2], [2, 9, 5])
    with pytest.raises(
        ProblemError, match=r"axiom 'number' cannot hold in rows \(1,\), \(2,\): .*as in Exact\(impossible='finite'\)"
    ):
        model.loss(semantics=doxa.Exact(), seen=data)
    assert model.loss(semantics=doxa.Exact(impossible="inf"), seen=data) == torch.inf
    assert torch.isfinite(model.loss(semantics=doxa.Exact(impossible="finite"), seen=data))


def test_sampled_truth_is_that_of_all_instances() -> None:
    model = doxa.Model("sort I; pred s(I); [all] forall x: I. s(x)", s=doxa.probs(nn.Identity()))
    data = torch.tensor([0.9, 0.8, 0.5])
    found = model.truth(
        semantics=doxa.Sampled(LeaveOneOut(20_000)), generator=torch.Generator().manual_seed(0), I=data
    )["all"]
    assert abs(found - data.prod()) < 0.02  # five standard errors


def test_what_is_no_semantics_and_no_option(tmp_path: Path) -> None:
    for make, message in [
        (lambda: doxa.Fuzzy("godell"), "did you mean 'godel'"),
        (lambda: doxa.Refined("godell"), "did you mean 'godel'"),
        (lambda: doxa.Exact(impossible="rise"), "impossible is 'rise', expected 'raise' or 'inf' or 'finite'"),  # type: ignore[arg-type]
        (lambda: doxa.Exact(quantifier="all"), "quantifier is 'all', expected 'mean' or 'logic'"),  # type: ignore[arg-type]
        (lambda: doxa.Sampled("loo"), "estimator is 'loo', expected one of doxa.stochastic"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(ConfigError, match=message):
            make()
    (tmp_path / "rain.doxa").write_text("pred rain; [wet] rain")
    model = doxa.Model(tmp_path / "rain.doxa", rain=doxa.probs(torch.tensor(0.3)))
    with pytest.raises(ConfigError, match=r"did you mean semantics=\.\.\.\?"):
        model.loss(semantcs=doxa.Exact())
    with pytest.raises(ConfigError, match=r"no semantics <class .*; expected one of .*doxa\.Exact\(\)"):
        model.loss(semantics=doxa.Exact)  # type: ignore[arg-type]


def test_nan_is_traced_to_its_symbol_even_where_nothing_can_be_drawn() -> None:
    nan = doxa.logits(lambda: torch.tensor(float("nan")))
    model = doxa.Model("pred rain; [wet] rain", rain=nan, check_finite=False)
    with pytest.raises(ProblemError, match=r"no world can be drawn from NaN.*Model\.find_nonfinite"):
        model.loss(semantics=doxa.Sampled())
    assert (
        model.find_nonfinite(semantics=doxa.Sampled()) == "what rain is bound to returned numbers that are not finite"
    )


@pytest.mark.parametrize("depth", ["a", None, 1.5, 2.0, True, 0, -3, float("inf")])
def test_depth_is_a_whole_number(depth: Any) -> None:
    with pytest.raises(ConfigError, match=r"depth is .*, expected a whole number of at least 1"):
        doxa.Fuzzy("product", depth=depth)


def test_depth_of_one_is_fine() -> None:
    assert doxa.Fuzzy("product", depth=1).depth == 1
