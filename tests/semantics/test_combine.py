"""How axioms and their instances are put together: reductions, quantifiers, joint probabilities, aggregators."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION, WEATHER, random_axioms
from torch import Tensor

import doxa
from doxa.errors import ConfigError
from doxa.exact import Constraint
from doxa.fuzzy import GeneralizedMeanError
from doxa.logic import Call, Name, parse
from doxa.stochastic import Enumerate, LeaveOneOut

LABELS = [f"a{i}" for i in range(6)]
LEARNS = [doxa.Exact(), doxa.Refined(), doxa.Fuzzy(), doxa.Fuzzy("product"), doxa.Sampled(), doxa.Auto()]


def probabilities(seed: int, rows: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.rand(rows, len(LABELS), generator=random, dtype=torch.float64).requires_grad_()


def of_labels(seed: int, p: Tensor) -> tuple[doxa.Model, Any]:
    kb, judge = random_axioms(seed, LABELS, 4)
    return doxa.Model(kb, **{a: doxa.probs(lambda i, at=at: p[i.long(), at]) for at, a in enumerate(LABELS)}), judge


def summed(p: Tensor, holds: Any) -> Tensor:
    """The probability of each row of what holds, by listing all worlds."""
    total = torch.zeros(len(p), dtype=p.dtype)
    for bits in product([False, True], repeat=p.shape[1]):
        if holds(dict(zip(LABELS, bits, strict=True))):
            total = total + torch.stack([p[:, i] if b else 1 - p[:, i] for i, b in enumerate(bits)]).prod(0)
    return total


@pytest.mark.parametrize("seed", range(6))
def test_joint_is_the_probability_that_all_axioms_hold_of_a_row(seed: int) -> None:
    p = probabilities(seed)
    model, judge = of_labels(seed, p)
    things = torch.arange(3.0)
    wanted = -summed(p, lambda w: all(judge(w))).log()
    each = model.loss(semantics="exact", combine="joint", reduction="none", Thing=things)
    torch.testing.assert_close(each, wanted)
    found = model.losses(semantics="exact", combine="joint", Thing=things)
    torch.testing.assert_close(found.total, wanted.mean())
    assert found.names == ("joint",)
    torch.testing.assert_close(
        model.loss(semantics="exact", combine="joint", reduction="sum", Thing=things), wanted.sum()
    )
    torch.testing.assert_close(*[torch.autograd.grad(x, p)[0] for x in (found.total, wanted.mean())])


@pytest.mark.parametrize("seed", range(4))
def test_joint_is_the_semantic_loss_of_the_constraint(seed: int) -> None:
    p = probabilities(seed)
    model, _ = of_labels(seed, p)
    constraint = Constraint(model.kb, domains={"Thing": ["thing"]})
    atoms = {Call(a, (Name("thing"),)): p[:, at] for at, a in enumerate(LABELS)}
    theirs = constraint.semantic_loss(constraint.belief({x: atoms[x] for (x, *_) in constraint.variables}))
    ours = model.loss(semantics="exact", combine="joint", reduction="none", Thing=torch.arange(3.0))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_is_each_axiom_alone(seed: int) -> None:
    p = probabilities(seed)
    model, judge = of_labels(seed, p)
    found = model.losses(semantics="exact", Thing=torch.arange(3.0))
    for number, value in enumerate(found.values):
        wanted = -summed(p, lambda w, number=number: judge(w)[number]).log().mean()
        torch.testing.assert_close(value, wanted)
    torch.testing.assert_close(found.total, torch.stack(found.values).sum())


def test_joint_axioms_about_different_things_are_one_event() -> None:
    kb = "sort Day; pred a(Day); pred b(Day); [x] forall d: Day. a(d) -> b(d); [y] exists d: Day. a(d)"
    a, b = torch.tensor([0.3, 0.6], dtype=torch.float64), torch.tensor([0.5, 0.9], dtype=torch.float64)
    model = doxa.Model(kb, a=doxa.probs(a), b=doxa.probs(b))
    total = 0.0
    for wa, wb in product(product([0, 1], repeat=2), repeat=2):
        if any(wa) and all(not x or y for x, y in zip(wa, wb, strict=True)):
            chances = [p if w else 1 - p for p, w in zip([*a.tolist(), *b.tolist()], [*wa, *wb], strict=True)]
            total += torch.tensor(chances, dtype=torch.float64).prod()
    assert model.loss(semantics="exact", combine="joint", Day=2).item() == pytest.approx(-total.log().item())
    every = doxa.Sampled(Enumerate())  # lists all worlds
    assert model.loss(semantics=every, combine="joint", Day=2) > 0


@pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")
@pytest.mark.parametrize("axioms", [
    ["forall r in rows where r.n = 1. p(r.x)"],
    ["forall r in rows where r.n = 1. p(r.x)", "forall s in rows where s.n > 0. p(s.x) -> q(s.x)"],
    ["forall r in rows where r.n = 1. p(r.x)", "forall s in rows. q(s.x)"],
    ["forall r in rows, d: D where r.n = d. p(r.x)"],
    ["forall r in rows where r.n = 2. p(r.x)", "forall r in rows, d: D where r.n = d. q(r.x) | d = 2"],
])  # fmt: skip
def test_joint_leaves_out_what_all_guards_exclude(axioms: list[str]) -> None:
    """Against a list of the worlds of each row."""
    says: dict[str, Any] = {
        "forall r in rows where r.n = 1. p(r.x)": (lambda n, d: n == 1, lambda p, q, d: p),
        "forall r in rows where r.n = 2. p(r.x)": (lambda n, d: n == 2, lambda p, q, d: p),
        "forall s in rows where s.n > 0. p(s.x) -> q(s.x)": (lambda n, d: n > 0, lambda p, q, d: q or not p),
        "forall s in rows. q(s.x)": (lambda n, d: True, lambda p, q, d: q),
        "forall r in rows, d: D where r.n = d. p(r.x)": (lambda n, d: n == d, lambda p, q, d: p),
        "forall r in rows, d: D where r.n = d. q(r.x) | d = 2": (lambda n, d: n == d, lambda p, q, d: q or d == 2),
    }
    x = torch.tensor([[0.5, 0.7], [0.6, 0.2], [0.3, 0.9], [0.8, 0.4], [0.1, 0.3]], dtype=torch.float64)
    n = torch.tensor([1, 0, 2, 0, 5])
    text = "sort I; sort D = 1..2; data rows(x: I, n: Int); pred p(I); pred q(I); "
    bound = {"p": doxa.probs(lambda x: x[:, 0]), "q": doxa.probs(lambda x: x[:, 1])}
    model = doxa.Model(text + "; ".join([f"[a{i}] {a}" for i, a in enumerate(axioms)]), **bound)
    losses = []
    for (p, q), number in zip(x.tolist(), n.tolist(), strict=True):
        said = [(says[a][1], d) for a in axioms for d in (1, 2) if says[a][0](number, d)]
        chance = 0.0
        for a, b in product([False, True], repeat=2):
            if all(judge(a, b, d) for judge, d in said):
                chance += (p if a else 1 - p) * (q if b else 1 - q)
        losses += [-torch.tensor(chance).log().item()] if said else []
    rows = {"x": x, "n": n}
    for how, slack in (("exact", 1e-6), (doxa.Sampled(LeaveOneOut(20_000)), 0.02)):
        found = model.loss(semantics=how, combine="joint", rows=rows, generator=torch.Generator().manual_seed(0))
        assert found.item() == pytest.approx(sum(losses) / len(losses), abs=slack)
    if len(axioms) == 1:
        for word in ("exact", "refined", "refined:product"):
            torch.testing.assert_close(
                model.loss(semantics=word, combine="joint", rows=rows), model.loss(semantics=word, rows=rows)
            )


def test_an_axiom_and_its_instances_that_share_variables() -> None:
    """The mean takes instances one by one; with the logic's quantifier what they share counts once."""
    kb = "sort Day; pred a(Day); pred b; [x] forall d: Day. a(d) | b"
    a, b = torch.tensor([0.3, 0.6]), torch.tensor(0.5)
    model = doxa.Model(kb, a=doxa.probs(a), b=doxa.probs(b))
    each = 1 - (1 - a) * (1 - b)
    whole = b + (1 - b) * a.prod()
    torch.testing.assert_close(model.loss(semantics="exact", Day=2), -each.log().mean())
    torch.testing.assert_close(model.loss(semantics=doxa.Exact(quantifier="logic"), Day=2), -whole.log())
    torch.testing.assert_close(model.truth(semantics="exact", Day=2)["x"], whole)
    torch.testing.assert_close(model.truth(semantics="exact", per_row=True, Day=2)["x"], each)


def test_joint_refuses_what_it_cannot_mean() -> None:
    days = {"rain": torch.tensor([0.3]), "wet": torch.tensor([0.4]), "warm": torch.tensor([0.5])}
    model = doxa.Model(WEATHER, **{n: doxa.probs(v) for n, v in days.items()})
    for combine in ("joint", GeneralizedMeanError(2)):
        with pytest.raises(ConfigError, match="axiom 'cold' has weight 2"):
            model.loss(semantics="exact", combine=combine, Day=1)
    kb = "pred a; pred b; [x] a; [y] b"
    plain = doxa.Model(kb, a=doxa.probs(torch.tensor(0.5)), b=doxa.probs(torch.tensor(0.5)))
    for semantics, message in [
        ("fuzzy", "combine='joint' is a probability, which Fuzzy has not"),
        ({"x": "exact", "y": "sampled"}, "combine='joint' needs one semantics for all axioms"),
    ]:
        with pytest.raises(ConfigError, match=message):
            plain.loss(semantics=semantics, combine="joint")
    with pytest.raises(ConfigError, match="combine is 'product', expected 'sum', 'joint' or an aggregator"):
        plain.loss(semantics="exact", combine="product")
    with pytest.raises(ConfigError, match="reduction is 'none', but an aggregator takes one truth of each axiom"):
        plain.loss(semantics="fuzzy", combine=GeneralizedMeanError(2), reduction="none")


def test_an_aggregator_is_the_loss_of_logic_tensor_networks() -> None:
    """1 - (1 - (1/n Σ_i (1 - t_i)^2)^(1/2)), where t_i is the truth of axiom i under LTN's own quantifiers."""
    kb = """
        sort Day; pred a(Day); pred b(Day)
        [x] forall d: Day. a(d) -> b(d)
        [y] exists d: Day. a(d)
        [z] forall d: Day. !a(d) | b(d)
    """
    random = torch.Generator().manual_seed(0)
    a, b = torch.rand(2, 5, generator=random, dtype=torch.float64)
    model = doxa.Model(kb, a=doxa.probs(a), b=doxa.probs(b))
    instances = [1 - a + a * b, a, 1 - a * (1 - b)]
    truths = torch.stack([1 - ((1 - x) ** 2).mean().sqrt() if i != 1 else (x**2).mean().sqrt()
                          for i, x in enumerate(instances)])  # fmt: skip
    by_hand = ((1 - truths) ** 2).mean().sqrt()
    ltn = doxa.Fuzzy("ltn", quantifier="logic")
    torch.testing.assert_close(torch.stack(list(model.truth(semantics=ltn, Day=5).values())), truths, atol=1e-3, rtol=0)
    found = model.loss(semantics=ltn, combine=GeneralizedMeanError(2), Day=5)
    torch.testing.assert_close(found, by_hand, atol=1e-3, rtol=0)
    # where losses are logarithms, they become truths first
    exact = model.losses(semantics="exact", Day=5).values
    wanted = (1 - torch.stack([(-loss).exp() for loss in exact])).pow(2).mean().sqrt()
    torch.testing.assert_close(model.loss(semantics="exact", combine=GeneralizedMeanError(2), Day=5), wanted)


GUARDED = """
    sort Day; pred rain(Day); pred wet(Day); pred late(Day)
    [x] forall d: Day where late(d). rain(d) -> wet(d)
    [y, weight 3] forall d: Day. wet(d)
"""


def guarded(late: list[bool]) -> doxa.Model:
    p = torch.rand(2, len(late), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return doxa.Model(GUARDED, rain=doxa.probs(p[0]), wet=doxa.probs(p[1]), late=torch.tensor(late))


@pytest.mark.parametrize("semantics", LEARNS, ids=lambda s: repr(s)[:50])
def test_reductions_are_those_of_torch(semantics: Any) -> None:
    late = [True, False, True, True, False]
    model = guarded(late)

    def losses(reduction: Any) -> Any:
        return model.losses(semantics=semantics, reduction=reduction, Day=5, generator=torch.Generator().manual_seed(0))

    none, total, mean = losses("none"), losses("sum"), losses("mean")
    x, y = none.values
    assert x.shape == y.shape == none.total.shape == (5,)
    assert x[1] == x[4] == 0 and bool((x[[0, 2, 3]] > 0).all())  # what the guard excludes costs nothing
    torch.testing.assert_close(none.total, x + 3 * y)
    torch.testing.assert_close(torch.stack(total.values), torch.stack([x.sum(), y.sum()]))
    torch.testing.assert_close(torch.stack(mean.values), torch.stack([x.sum() / 3, y.mean()]))  # and is not counted
    torch.testing.assert_close(total.total, x.sum() + 3 * y.sum())
    torch.testing.assert_close(mean.total, x.sum() / 3 + 3 * y.mean())


@pytest.mark.parametrize("semantics", LEARNS, ids=lambda s: repr(s)[:50])
def test_a_guard_that_excludes_everything_leaves_no_loss(semantics: Any) -> None:
    for reduction in ("mean", "sum"):
        found = guarded([False] * 3).losses(semantics=semantics, reduction=reduction, Day=3)
        assert found.values[0] == 0 and torch.isfinite(found.total)


@pytest.mark.parametrize("semantics", LEARNS, ids=lambda s: repr(s)[:50])
def test_instances_of_two_variables_have_two_axes_and_unequal_shapes_are_an_error(semantics: Any) -> None:
    kb = "sort A; sort B; pred r(A, B); pred s(A); [x] forall a: A, b: B. r(a, b); [y] forall a: A. s(a)"
    model = doxa.Model(kb, r=doxa.probs(torch.full((2, 3), 0.5)), s=doxa.probs(torch.tensor([0.5, 0.5])))
    with pytest.raises(ConfigError, match=r"shapes \(2, 3\), \(2,\), which cannot be added"):
        model.loss(semantics=semantics, reduction="none", A=2, B=3)
    both = model.losses(semantics=semantics, reduction="none", A=2, B=3).by_name()
    assert both["x"].shape == (2, 3) and both["y"].shape == (2,)
    alone = doxa.Model(parse(kb.split(" [y]")[0], warn=False), r=doxa.probs(torch.full((2, 3), 0.5)))
    each = alone.losses(semantics=semantics, reduction="none", A=2, B=3).by_name()["x"]
    assert each.shape == (2, 3) and bool((each > 0).all())


@pytest.mark.parametrize(
    "semantics", [s for s in LEARNS if not isinstance(s, doxa.Sampled)], ids=lambda s: repr(s)[:50]
)
def test_repeating_all_rows_changes_nothing(semantics: Any) -> None:
    p = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    model = doxa.Model(ADDITION, digit=doxa.probs(lambda image: image))
    pairs = {"left": p[0], "right": p[1], "sum": torch.tensor([1, 2, 3, 4])}
    more = {name: torch.cat([column] * 8) for name, column in pairs.items()}
    torch.testing.assert_close(*[model.loss(semantics=semantics, pairs=rows) for rows in (pairs, more)])


@pytest.mark.parametrize(
    "semantics",
    [doxa.Exact(quantifier="logic"), doxa.Fuzzy("ltn", quantifier="logic"), doxa.Sampled(quantifier="logic")],
    ids=lambda s: repr(s)[:50],
)
def test_an_axiom_as_a_whole_has_no_instances(semantics: Any) -> None:
    model = guarded([True, False])
    assert model.losses(semantics=semantics, Day=2).values[0].shape == ()
    for reduction in ("none", "sum"):
        with pytest.raises(ConfigError, match=f"reduction is '{reduction}', but with quantifier='logic'"):
            model.loss(semantics=semantics, reduction=reduction, Day=2)
    with pytest.raises(ConfigError, match="reduction is 'max', expected 'mean', 'sum' or 'none'"):
        model.loss(semantics=semantics, reduction="max", Day=2)  # type: ignore[arg-type]
