"""Symbols of a row that are said in turn: against the list of all worlds, written out in float64."""

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
from doxa.errors import BindingError, BudgetError, ConfigError, KnowledgeError, ProblemError
from doxa.problem import Belief, BruteForce, addition
from doxa.problem._autoregressive import Autoregressive, RowSteps, WorldTable
from doxa.stochastic import Enumerate, LeaveOneOut, Score, check_unbiased
from doxa.stochastic.estimators._mixtures import JointWorlds

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")

TEXT = """sort Image; sort Digit = 0..2; sort Shape; sort Colour = {red, green}
    data pairs(left: Image, right: Image, mark: Shape, sum: Int)
    func digit(Image) -> Digit; func colour(Shape) -> Colour; pred bright(Image)
    [sum]   forall p in pairs. digit(p.left) + digit(p.right) = p.sum
    [red]   forall p in pairs. colour(p.mark) = red -> digit(p.right) > 0
    [light] forall p in pairs where p.sum > 1. bright(p.right) | digit(p.left) = 1"""
SIZES = (2, 3, 3)  # colour, then both digits
PLACES: dict[str, Any] = {"colour": "mark", "digit": ("right", "left")}


class Net(nn.Module):
    """One layer for each place, on the objects of the row and the values before."""

    def __init__(self, features: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(features + i, size).double() for i, size in enumerate(sizes)])
        self.calls: list[tuple[Any, ...]] = []

    def forward(self, prefix: Tensor, *objects: Tensor) -> Tensor:
        self.calls.append(tuple(prefix.shape))
        seen = [o.flatten(1).unsqueeze(1).expand(-1, prefix.shape[1], -1) for o in objects]
        found: Tensor = self.layers[prefix.shape[-1]](torch.cat([*seen, prefix.double()], -1))
        return found


def model_of(seed: int = 0) -> tuple[doxa.Model, Net, nn.Linear]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net, bright = Net(8, SIZES), nn.Linear(3, 1).double()
    model = doxa.Model(TEXT, "exact", bright=doxa.logits(bright), **doxa.autoregressive(doxa.logits(net), **PLACES))
    return model, net, bright


def pairs(rows: int = 4, seed: int = 1) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    left, right, mark = (torch.randn(rows, n, generator=random, dtype=torch.float64) for n in (3, 3, 2))
    return {"left": left, "right": right, "mark": mark, "sum": torch.arange(rows) % 5}


def worlds_of(net: Net, rows: dict[str, Tensor]) -> dict[tuple[int, int, int], Tensor]:
    """p(colour, right, left) of each row, one factor after the other."""
    objects, found = (rows["left"], rows["right"], rows["mark"]), {}
    for world in itertools.product(*map(range, SIZES)):
        p = torch.ones(len(rows["sum"]), dtype=torch.float64)
        for i, value in enumerate(world):
            prefix = torch.tensor(world[:i], dtype=torch.int64).expand(len(p), 1, i)
            p = p * net(prefix, *objects).softmax(-1)[:, 0, value]
        found[world] = p
    return found


def written_out(net: Net, bright: nn.Linear, rows: dict[str, Tensor]) -> dict[str, Tensor]:
    light = bright(rows["right"]).sigmoid().squeeze(-1)
    found = {axiom: torch.zeros(len(light), dtype=torch.float64) for axiom in ("sum", "red", "light")}
    for (c, b, a), p in worlds_of(net, rows).items():
        for d in range(2):
            world = p * (light if d else 1 - light)
            holds = {
                "sum": rows["sum"] == a + b,
                "red": c != 0 or b > 0,
                "light": (rows["sum"] <= 1) | bool(d or a == 1),
            }
            found = {axiom: total + world * holds[axiom] for axiom, total in found.items()}
    return found


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_and_gradients_are_those_written_out(seed: int) -> None:
    model, net, bright = model_of(seed)
    rows = pairs(seed=seed)
    expected = written_out(net, bright, rows)
    for axiom, truth in model.truth(per_row=True, pairs=rows).items():
        torch.testing.assert_close(truth, expected[axiom], rtol=1e-9, atol=1e-12)
    for axiom, truth in model.truth(pairs=rows).items():
        torch.testing.assert_close(truth, expected[axiom].prod(), rtol=1e-9, atol=1e-12)
    loss, passes = model.loss(pairs=rows), rows["sum"] > 1
    losses = {axiom: -p.log() for axiom, p in expected.items()}
    total = losses["sum"].mean() + losses["red"].mean() + losses["light"][passes].mean()
    torch.testing.assert_close(loss, total)
    parameters = list(model.parameters())
    for found, true in zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(found, true, rtol=1e-8, atol=1e-10)


def test_predictions_explanations_layers_and_marginals_are_those_written_out() -> None:
    model, net, bright = model_of()
    rows = pairs()
    worlds = worlds_of(net, rows)
    prediction = model.predict("pairs.sum", values=range(5), pairs=rows)
    sums = torch.stack(
        [sum((p for (_, b, a), p in worlds.items() if a + b == n), torch.zeros(4)) for n in range(5)], -1
    )
    light = bright(rows["right"]).sigmoid()
    ones = sum((p for (_, _, a), p in worlds.items() if a == 1), torch.zeros(4)).unsqueeze(-1)
    guarded = torch.where(torch.arange(5) > 1, 1 - (1 - light) * (1 - ones), 1.0)
    torch.testing.assert_close(prediction.truths, sums * guarded)
    some = {**rows, "sum": torch.tensor([1, 2, 3, 2])}
    for row, explanation in enumerate(model.explain("sum", k=20, pairs=some)):
        n = int(some["sum"][row])
        true: dict[tuple[int, int], float] = {}
        for (_, b, a), p in worlds.items():
            if a + b == n:
                true[a, b] = true.get((a, b), 0.0) + p[row].item()
        total = sum(true.values())
        found = {(w.values["digit(p.left)"], w.values["digit(p.right)"]): w.probability for w in explanation.worlds}
        assert found == pytest.approx({world: p / total for world, p in true.items()})
    first = torch.stack([sum((p for w, p in worlds.items() if w[2] == v), torch.zeros(4)) for v in range(3)], -1)
    torch.testing.assert_close(model.marginals("digit", "pairs.left", pairs=rows), first)
    only = doxa.Model(
        "\n".join(TEXT.splitlines()[:4]),
        "exact",
        bright=doxa.logits(bright),
        **doxa.autoregressive(doxa.logits(net), **PLACES),
    )
    layer = only.layer()(pairs=some)
    for v in range(3):
        fits = sum((p * (some["sum"] == a + b) for (_, b, a), p in worlds.items() if a == v), torch.zeros(4))
        every = sum((p * (some["sum"] == a + b) for (_, b, a), p in worlds.items()), torch.zeros(4))
        torch.testing.assert_close(layer.probs["digit(p.left)"][:, v], fits / every)
    entropy = only.diversity(pairs=some)
    for row in range(4):
        n = int(some["sum"][row])
        p = torch.stack(
            [
                sum((p[row] for (_, y, x), p in worlds.items() if (x, y) == (a, n - a)), torch.zeros(()))
                for a in range(3)
                if 0 <= n - a <= 2
            ]
        )
        p = p / p.sum()
        lacking = math.log(len(p)) + (p * p.log()).sum()
        torch.testing.assert_close(entropy.high[row], lacking)
        assert entropy.low[row] == entropy.high[row]


def test_the_most_probable_world_decides_classically() -> None:
    model, net, _ = model_of(4)
    rows = pairs()
    found = model.truth(semantics="classical", per_row=True, pairs=rows)
    worlds = worlds_of(net, rows)
    for row in range(4):
        pairs_of: dict[tuple[int, int], float] = {}
        for (_, b, a), p in worlds.items():
            pairs_of[a, b] = pairs_of.get((a, b), 0.0) + p[row].item()
        a, b = max(pairs_of, key=lambda world: pairs_of[world])
        assert bool(found["sum"][row]) == (a + b == int(rows["sum"][row]))
    assert model.satisfaction(pairs=rows)["sum"].instances == 4


@pytest.mark.parametrize("estimator", [Score(8), LeaveOneOut(16), Enumerate()], ids=repr)
def test_sampled_losses_are_unbiased(estimator: Any) -> None:
    model, *_ = model_of()
    count = 600
    rows = {name: column[3:4].repeat(count, *[1] * (column.ndim - 1)) for name, column in pairs().items()}
    random = torch.Generator().manual_seed(0)
    for axiom in ("sum", "light"):
        loss = model.losses(semantics=doxa.Sampled(estimator, log=False), generator=random, pairs=rows).by_name()[axiom]
        truth = 1 - model.truth(per_row=True, pairs=rows)[axiom].mean()
        slack = 1e-9 if isinstance(estimator, Enumerate) else 4.5 * math.sqrt(0.25 / (count * estimator.n))
        assert abs(loss.item() - truth.item()) <= slack
        slopes, true = (torch.autograd.grad(x, list(model.parameters()), allow_unused=True) for x in (loss, truth))
        for found, right in zip(slopes, true, strict=True):
            if right is not None and found is not None:
                torch.testing.assert_close(found, right, rtol=0, atol=1e-9 if isinstance(estimator, Enumerate) else 0.1)
    shares = model.truth(semantics=doxa.Sampled(), per_row=True, generator=random, pairs=rows)["sum"]
    exact = model.truth(per_row=True, pairs=rows)["sum"]
    assert abs(shares.mean().item() - exact.mean().item()) < 4.5 * math.sqrt(0.25 / (count * 128))
    log_loss = model.losses(semantics=doxa.Sampled(LeaveOneOut(200)), generator=random, pairs=rows).by_name()["sum"]
    assert log_loss.item() == pytest.approx(-exact.mean().log().item(), abs=0.05)


@pytest.mark.parametrize("estimator", [Score(), LeaveOneOut(2), Enumerate()], ids=repr)
def test_estimators_are_judged_unbiased(estimator: Any) -> None:
    """By the judge of `doxa.stochastic`, which lists what may be drawn and differentiates without autograd."""

    def worlds(theta: Tensor) -> JointWorlds:
        batch = theta.shape[:-1]
        flat = theta.reshape(-1, theta.shape[-1])

        def step(rows: Tensor, prefix: Tensor) -> Tensor:
            own = flat[rows].unsqueeze(1)  # (B, 1, parameters)
            if not prefix.shape[-1]:
                return torch.stack([own[..., 0], -own[..., 1]], -1).expand(-1, prefix.shape[1], -1).log_softmax(-1)
            chosen = prefix[..., 0].double()
            return torch.stack([own[..., 2] * chosen, own[..., 1] + chosen, own[..., 0] + 0 * chosen], -1).log_softmax(
                -1
            )

        index = torch.arange(len(flat)).reshape(batch)
        return JointWorlds(Autoregressive(RowSteps(step, (2, 3), len(flat), flat.detach()), index, (0, 1)))

    verdict = check_unbiased(
        estimator,
        worlds,
        lambda z: (z[..., 0] * 2 + z[..., 1] ** 2).double(),
        at=torch.tensor([0.3, -0.2, 0.7]),
        order=1,
    )
    assert verdict.ok, str(verdict)


def test_the_network_is_asked_once_for_each_place_and_each_row() -> None:
    model, net, _ = model_of()
    model.predict("pairs.sum", values=range(5), pairs=pairs())
    assert net.calls == [(4, 1, 0), (4, 2, 1), (4, 6, 2)]


def test_rows_that_are_too_long_are_refused_or_drawn() -> None:
    model, *_ = model_of()
    few = doxa.Budget(worlds=17)
    with pytest.raises(BudgetError, match=r"there are 18, more than Budget\(worlds=17\).*Sampled\(\)"):
        model.loss(semantics=doxa.Exact(budget=few), pairs=pairs())
    random = torch.Generator().manual_seed(0)
    loss = model.loss(semantics=doxa.Auto(budget=few), generator=random, pairs=pairs())
    assert bool(loss.isfinite())
    assert "not exact: " in model.plan(semantics=doxa.Auto(budget=few), pairs=pairs())
    assert "lists all 9 worlds" in model.plan(semantics=doxa.Auto(), pairs=pairs())


def test_it_can_be_any_distribution_and_stays_finite() -> None:
    """Certain steps, and impossible rows under each option."""
    text = "pred a; pred b; [same] a <-> b; [both] a & b"
    scores = torch.tensor(
        [[0.3, -math.inf], [-math.inf, 0.0], [0.0, -math.inf]], dtype=torch.float64, requires_grad=True
    )

    def net(prefix: Tensor) -> Tensor:
        if not prefix.shape[-1]:
            return scores[0].expand(*prefix.shape[:2], 2)
        return scores[1 + prefix[..., 0]]

    model = doxa.Model(text, **doxa.autoregressive(doxa.logits(net), a=(), b=()))  # a is false, then b is true
    for how in ("finite", "inf"):
        found = model.losses(semantics=doxa.Exact(impossible=how)).by_name()  # type: ignore[arg-type]
        assert bool(found["same"].isfinite()) == (how == "finite")
    (slope,) = torch.autograd.grad(model.loss(semantics=doxa.Exact(impossible="finite")), scores, allow_unused=True)
    assert slope is None or bool(slope.isfinite().all())
    with pytest.raises(ProblemError, match="cannot hold"):
        model.loss(semantics="exact")


def test_elements_of_sequences_are_places() -> None:
    text = """sort I; sort D = 0..1; data s(xs: I*, n: Int); func d(I) -> D
        [sum] forall r in s. d(r.xs[0]) + d(r.xs[1]) = r.n"""
    net = Net(4, (2, 2))
    model = doxa.Model(text, "exact", **doxa.autoregressive(doxa.logits(net), d=("xs[1]", "xs[0]")))
    xs = torch.randn(3, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    truth = model.truth(per_row=True, s={"xs": xs, "n": torch.tensor([0, 1, 2])})["sum"]
    for row in range(3):
        total = 0.0
        for b, a in itertools.product(range(2), repeat=2):
            p = net(torch.zeros(1, 1, 0).long(), xs[row : row + 1]).softmax(-1)[0, 0, b]
            p = p * net(torch.tensor([[[b]]]), xs[row : row + 1]).softmax(-1)[0, 0, a]
            total = total + p * (a + b == row)
        torch.testing.assert_close(truth[row], torch.as_tensor(total))


def test_copies_and_who_cannot_take_it() -> None:
    model, net, _ = model_of()
    rows = pairs()
    assert any(p is net.layers[0].weight for p in model.parameters())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(twin.loss(pairs=rows), model.loss(pairs=rows), rtol=0, atol=0)
    for word in ("fuzzy", "refined", "amortized"):
        with pytest.raises(ConfigError, match=r"doxa\.autoregressive; Exact\(\), Sampled\(\)"):
            model.loss(semantics=word, pairs=rows)


def test_mistakes_are_told() -> None:
    net, bright = Net(8, SIZES), doxa.probs(torch.full((3,), 0.5))
    with pytest.raises(BindingError, match="the network is a bare Net, which does not say"):
        doxa.autoregressive(net, digit="left")  # type: ignore[arg-type]
    with pytest.raises(BindingError, match="got a tensor"):
        doxa.autoregressive(doxa.logits(torch.zeros(2)), digit="left")
    with pytest.raises(BindingError, match="has no symbols"):
        doxa.autoregressive(doxa.logits(net))
    with pytest.raises(BindingError, match="expected a field such as"):
        doxa.autoregressive(doxa.logits(net), digit=("left.x",))
    with pytest.raises(BindingError, match="cannot be in an autoregressive belief"):
        doxa.Model(
            "sort A; sort B = 0..1; pred p(A, B); [x] forall a: A. p(a, 0)",
            **doxa.autoregressive(doxa.logits(net), p="a"),
        )

    def loss(network: Any = net, text: str = TEXT, **places: Any) -> None:
        bound = doxa.autoregressive(doxa.logits(network), **(places or PLACES))
        colour = {} if "colour" in bound else {"colour": doxa.logits(nn.Linear(2, 2).double())}
        model = doxa.Model(text, "exact", bright=doxa.logits(nn.Linear(3, 1).double()), **colour, **bound)
        model.loss(pairs=pairs())

    loss()
    with pytest.raises(
        KnowledgeError, match=r"digit\(pairs.right\) is no place of a row .*: digit\(left\); name it too"
    ):
        loss(digit="left")
    with pytest.raises(BindingError, match=r"colour\(mark\): the network should return .* \(4, 1, 2\), got shape"):
        loss(lambda prefix, *objects: torch.zeros(3))
    with pytest.raises(BindingError, match="NaN"):
        loss(lambda prefix, *objects: torch.full((*prefix.shape[:2], SIZES[prefix.shape[-1]]), math.nan))
    two = TEXT.replace("[red]   forall p in pairs.", "[red]   forall p, q in pairs. digit(q.left) = 0 |")
    with pytest.raises(KnowledgeError, match="about one row at a time"):
        loss(text=two)
    assert bright is not None


def test_a_table_of_worlds_answers_like_the_belief_it_lists() -> None:
    problem = addition(1)
    belief = Belief.from_logits(torch.randn(5, 2, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    oracle, output = BruteForce(problem, impossible="inf"), torch.tensor([1, 3])
    table = WorldTable(oracle.world_log_probs(belief), (10, 10))
    torch.testing.assert_close(oracle.log_prob(table, output), oracle.log_prob(belief, output))
    torch.testing.assert_close(oracle.posterior(table, output).probs, oracle.posterior(belief, output).probs)
    torch.testing.assert_close(oracle.marginals(table).probs, oracle.marginals(belief).probs)
    torch.testing.assert_close(oracle.entropy(table, output), doxa.exact.Elimination(problem).entropy(belief, output))
    torch.testing.assert_close(table.marginals().probs, belief.probs)
    assert torch.equal(oracle.explain(table, output, 3).worlds, oracle.explain(belief, output, 3).worlds)
    with pytest.raises(ProblemError, match="BruteForce takes it"):
        doxa.exact.Elimination(problem).log_prob(table, output)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="one number for each world"):
        WorldTable(torch.zeros(3, 99), (10, 10))
