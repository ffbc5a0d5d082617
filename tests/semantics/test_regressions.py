"""Faults that were found in use, each with the answer by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import doxa
from doxa.errors import BindingError, ConfigError

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")
DIGITS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
P = torch.tensor([0.5, 0.6, 0.7], dtype=torch.float64)
LEARN = ("exact", "fuzzy", "refined", "sampled", "amortized")


def test_relations_and_tables_that_come_with_the_data_are_read_anew() -> None:
    text = "sort P = {a, b, c}; pred e(P, P); pred q(P); [s] exists x, y: P. e(x, y) & q(x) & q(y)"
    model = doxa.Model(text, q=doxa.probs(P))
    for pairs, expected in ([((0, 1),), 0.3], [((1, 2), (2, 0)), 0.56]):
        edges = torch.zeros(3, 3, dtype=torch.bool)
        for i, j in pairs:
            edges[i, j] = True
        assert model.truth(semantics="exact", e=edges)["s"].item() == pytest.approx(expected)
    text = "sort P = {a, b, c}; sort I; func next(P) -> P; func k(I) -> P; [x] forall x: I. next(k(x)) = a"
    model = doxa.Model(text, k=doxa.probs(torch.tensor([[0.2, 0.3, 0.5]])))
    for table, expected in (({"a": "a", "b": "b", "c": "c"}, 0.2), ({"a": "b", "b": "a", "c": "a"}, 0.8)):
        assert model.truth(semantics="exact", I=1, next=table)["x"].item() == pytest.approx(expected)


def test_tables_of_a_loaded_state_count() -> None:
    text = "sort P = {a, b}; pred on(P); pred q(P); [x] exists x: P. on(x) & q(x)"
    first = doxa.Model(text, q=doxa.probs(P[:2]), on=torch.tensor([True, False]))
    other = doxa.Model(text, q=doxa.probs(P[:2]), on=torch.tensor([False, True]))
    assert first.truth(semantics="exact")["x"].item() == pytest.approx(0.5)
    first.load_state_dict(other.state_dict())
    assert first.truth(semantics="exact")["x"].item() == pytest.approx(0.6)


def test_numbers_that_made_no_difference_before_may_make_one() -> None:
    text = """sort I; sort D = 0..3; data t(a: I, b: I, n: Int); func d(I) -> D
    [x] forall p in t. (d(p.a) * p.n != 2) <-> d(p.b) = 1"""
    used, new = (doxa.Model(text, d=doxa.probs(DIGITS)) for _ in range(2))

    def ask(model: doxa.Model, *n: int) -> list[float]:
        rows = {"a": torch.tensor([0] * len(n)), "b": torch.tensor([1] * len(n)), "n": torch.tensor(n)}
        return model.truth(semantics="exact", per_row=True, I=3, t=rows)["x"].tolist()

    ask(used, 3, 0)
    expected = [0.8 * 0.4 + 0.2 * 0.6, 0.7 * 0.4 + 0.3 * 0.6]
    assert ask(used, 2, 1) == pytest.approx(expected)
    assert ask(new, 2, 1) == pytest.approx(expected)


def test_numbers_of_the_data_are_whole_and_real_as_they_come() -> None:
    text = """sort I; pred q(I); data t(a: I, n: Int, k: Int)
    [neg] forall r in t. -r.n < 0
    [sub] forall r in t. r.n - r.k < 0"""
    model = doxa.Model(text, q=doxa.probs(P[:1]))
    for dtype in (torch.uint8, torch.int16, torch.int64):
        rows = {"a": torch.tensor([0]), "n": torch.tensor([100], dtype=dtype), "k": torch.tensor([200], dtype=dtype)}
        assert all(t.item() == 1 for t in model.truth(semantics="exact", I=1, t=rows).values())
    big = 2**53
    model = doxa.Model(
        f"sort I; sort D = 0..3; data t(a: I, n: Int); func d(I) -> D; [x] forall r in t. d(r.a) + {big} = r.n",
        d=doxa.probs(DIGITS),
    )
    rows = {"a": torch.tensor([0]), "n": torch.tensor([big + 1])}
    assert model.truth(semantics="exact", I=3, t=rows)["x"].item() == pytest.approx(0.2)
    text = """sort I; sort D = 0..3; func d(I) -> D; data t(a: I, x: Real)
    [eq] forall r in t. r.x = 0.1
    [product] forall r in t. d(r.a) * 0.1 = r.x"""
    model = doxa.Model(text, d=doxa.probs(torch.tensor([[0.0, 1.0, 0.0, 0.0]])))
    for dtype in (torch.float32, torch.float64):
        found = model.truth(semantics="exact", I=1, t={"a": torch.tensor([0]), "x": torch.tensor([0.1], dtype=dtype)})
        assert all(t.item() == pytest.approx(1.0) for t in found.values())


def test_sequences_of_numbers_and_guards_that_keep_zero_away() -> None:
    text = "sort I; sort D = 0..3; data s(a: I, ns: Int*, t: Int); func d(I) -> D\n"
    model = doxa.Model(text + "[x] forall r in s. exists n in r.ns. d(r.a) + n = r.t", d=doxa.probs(DIGITS))
    rows = {"a": torch.tensor([0, 1]), "ns": doxa.Ragged(torch.tensor([1, 2, 5]), [2, 1]), "t": torch.tensor([3, 6])}
    assert model.truth(semantics="exact", per_row=True, I=3, s=rows)["x"].tolist() == pytest.approx([0.5, 0.4])
    text = """sort I; sort D = 0..3; data s(a: I, n: Int, t: Int); func d(I) -> D; func h(Int) -> Int
    [x] forall r in s where r.n != 0. d(r.a) + h(10 // r.n) = r.t"""
    model = doxa.Model(text, d=doxa.probs(DIGITS), h=lambda n: n // 2)
    rows = {"a": torch.tensor([0, 1]), "n": torch.tensor([2, 0]), "t": torch.tensor([3, 6])}
    assert model.truth(semantics="exact", per_row=True, I=3, s=rows)["x"].tolist() == pytest.approx([0.2, 1.0])


def test_objects_of_a_row_are_part_of_it_under_every_semantics() -> None:
    text = "sort I; data s(o: I*); pred b(I); [y] forall r in s, x in r.o. b(x)"
    model = doxa.Model(text, b=doxa.probs(P))
    data: dict[str, Any] = {"I": 3, "s": {"o": doxa.Ragged(torch.tensor([0, 1, 2]), [2, 1])}}
    for word in ("exact", "fuzzy", "refined:product"):
        assert model.truth(semantics=word, per_row=True, **data)["y"].tolist() == pytest.approx([0.3, 0.7])
        # row 0 holds in a world of 0.3, and the best other world has 0.3 too: refinement chooses between these
        chances = [0.5, 0.7] if word == "refined:product" else [0.3, 0.7]
        assert model.loss(semantics=word, **data).item() == pytest.approx(
            -torch.tensor(chances).log().mean().item(), rel=1e-5
        )
    joint = -torch.tensor([0.3, 0.7]).log().mean().item()
    assert model.loss(semantics="exact", combine="joint", **data).item() == pytest.approx(joint, rel=1e-5)
    assert [e.instance for e in model.explain(**data)] == [{"r": 0}, {"r": 1}]


def test_auto_is_exact_about_rows_that_share_a_variable() -> None:
    text = "sort I; sort D = 0..3; data t(a: I); func d(I) -> D; [x] forall p in t. d(p.a) > 1"
    model = doxa.Model(text, d=doxa.probs(DIGITS))
    data: dict[str, Any] = {"I": 3, "t": {"a": torch.tensor([0, 0])}}
    for word in ("exact", "auto"):
        assert model.truth(semantics=word, **data)["x"].item() == pytest.approx(0.7)


def test_what_was_asked_before_makes_no_difference_to_draws() -> None:
    text = """sort O; sort C = {a, b, c}; data s(o: O*, col: C); func k(O) -> C
    [m] forall r in s. exists x in r.o. k(x) = r.col"""
    net = nn.Linear(4, 3)

    def batch(*lengths: int) -> dict[str, Any]:
        objects = torch.arange(sum(lengths) * 4).reshape(-1, 4).float().sin()
        return {"s": {"o": doxa.Ragged(objects, lengths), "col": ["a"] * len(lengths)}}

    new, used = (doxa.Model(text, "sampled", k=doxa.logits(net)) for _ in range(2))
    used.loss(**batch(2, 3))
    first, second = (m.loss(generator=torch.Generator().manual_seed(0), **batch(3, 2)) for m in (new, used))
    assert torch.equal(first, second)


@pytest.mark.parametrize("word", ["exact", "fuzzy", "refined"])
def test_nothing_hides_what_is_not_a_number(word: str) -> None:
    text = "sort P = {ann, bob}; pred s(P); fact s(ann); [h] forall x: P. s(x)"
    model = doxa.Model(text, word, s=doxa.logits(torch.tensor([float("nan")] * 2)), check_finite=False)
    assert all(value.isnan() for value in model.losses().values)


@pytest.mark.parametrize("word", LEARN)
def test_a_batch_without_instances_has_a_gradient(word: str) -> None:
    text = """sort I; sort C = {a, b}; data r(x: I, known: Int, y: C); func k(I) -> C
    [l] forall q in r where q.known = 1. k(q.x) = q.y"""
    model = doxa.Model(text, word, k=doxa.logits(nn.Linear(3, 2)))
    loss = model.loss(r={"x": torch.rand(4, 3), "known": torch.zeros(4, dtype=torch.int64), "y": ["a"] * 4})
    loss.backward()
    assert loss.item() == 0


@pytest.mark.parametrize("word", LEARN)
def test_labels_that_are_confidently_wrong_have_a_gradient(word: str) -> None:
    score = nn.Parameter(torch.tensor([-9.0, 0.0]))
    loss = doxa.Model("sort P = {ann, bob}; pred s(P); fact s(ann)", word, s=doxa.logits(score)).loss()
    loss.backward()
    assert loss.item() == pytest.approx(9.0, abs=0.01) and score.grad is not None
    assert score.grad.tolist() == pytest.approx([-1.0, 0.0], abs=0.01)


def test_small_mistakes_are_told() -> None:
    text = """sort I; sort D = 0..9; data r(x: I, y: Int); func d(I) -> D; func f(D, D) -> Int
    [l] forall q in r. f(d(q.x), d(q.x)) = q.y"""
    model = doxa.Model(text, "exact", d=doxa.logits(nn.Linear(3, 10)), f=lambda x, y: 10.5 * x + y)
    rows = {"x": torch.rand(2, 3), "y": torch.tensor([11, 22])}
    with pytest.raises(BindingError, match="f yields Int, but what it is bound to returned float"):
        model.loss(r=rows)
    with pytest.raises(ConfigError, match="impossible is an option of the semantics"):
        model.loss(r=rows, impossible="finite")
    untrained = doxa.Model("pred a; [x] a", "amortized", a=doxa.logits(nn.Parameter(torch.zeros(()))))
    with pytest.raises(ConfigError, match="does not exist yet"):
        torch.func.grad(lambda p: torch.func.functional_call(untrained, p, (), {}))(dict(untrained.named_parameters()))
    twice = doxa.Model(
        "sort D = 0..1; pred q(D); func n(D) -> D; [x] forall i: D. i := n(i) (q(i)); [y] forall j: D. q(j)",
        q=doxa.probs(P[:2]),
        n=torch.tensor([0, 0]),
    )
    with pytest.raises(ConfigError, match="a variable 'i' is bound twice"):
        twice.loss(semantics="exact", combine="joint")


def test_functions_of_constants_alone() -> None:
    text = "sort I; sort D = 0..3; const k: I; func d(I) -> D; func g(Int, Int) -> Int; [x] g(d(k), 2) = 3"
    model = doxa.Model(text, d=doxa.probs(DIGITS), g=lambda a, b: a + b, k=0)
    for word in ("exact", "fuzzy"):
        assert model.truth(semantics=word, I=3)["x"].item() == pytest.approx(0.2)
    assert model.truth(semantics="classical", I=3)["x"].item() == 0


def test_a_layer_of_functions_with_two_values() -> None:
    text = "sort I; sort B = 0..1; func b(I) -> B; func c(I) -> B; [y] forall x: I. b(x) = 1 | c(x) = 0"
    model = doxa.Model(text, b=doxa.probs(torch.tensor([[0.3, 0.7]])), c=doxa.probs(torch.tensor([[0.3, 0.7]])))
    found = model.layer()(I=1).probs["b(x)"]
    assert found.tolist() == [pytest.approx([0.09 / 0.79, 0.7 / 0.79])]


def test_truths_and_losses_stay_within_their_bounds() -> None:
    model = doxa.Model(
        "sort I; pred a(I); pred b(I); [x] forall x: I. a(x) | !a(x) & (b(x) | !b(x))",
        a=doxa.probs(torch.rand(1000)),
        b=doxa.probs(torch.rand(1000)),
    )
    assert model.truth(semantics="exact", per_row=True, I=1000)["x"].max() <= 1
    assert model.losses(semantics="exact", reduction="none", I=1000).values[0].min() >= 0


def test_kept_plans_meet_only_data_they_were_made_for() -> None:
    """One model asked in turn about data that differ in size, in numbers, in objects, in tables and in type."""
    text = """sort I; sort D = 0..3; data t(a: I, b: I, n: Int); func d(I) -> D; pred on(D); const k: I
    [x] forall p in t where p.n > 0. d(p.a) + d(p.b) = p.n
    [y] forall i: I. on(d(i)) | d(i) = d(k)"""
    draw = torch.Generator().manual_seed(0)

    def rows(count: int, *, indices: bool, objects: int) -> dict[str, Any]:
        n = torch.randint(-1, 7, (count,), generator=draw)
        if not indices:
            return {"t": {"a": torch.rand(count, 4, generator=draw), "b": torch.rand(count, 4, generator=draw), "n": n}}
        a, b = torch.randint(objects, (2, count), generator=draw)
        return {"t": {"a": a, "b": b, "n": n}}

    net, table = nn.Linear(4, 4), torch.tensor([True, False, True, False])
    used = doxa.Model(text, d=doxa.logits(net), on=table.clone(), k=1)
    for step in range(12):
        objects = 2 + step % 3
        data = rows(1 + step // 2 % 3, indices=bool(step % 2), objects=objects)
        data["I"] = torch.rand(objects, 4, generator=draw)
        if step % 5 == 4:
            table = ~table
            dict(used.named_buffers())["interpretation.meanings.on.tensor"].copy_(table)
        new = doxa.Model(text, d=doxa.logits(net), on=table.clone(), k=1)
        for semantics in (
            doxa.Exact(impossible="inf"),
            doxa.Refined(impossible="inf"),
            doxa.Exact(quantifier="logic", impossible="inf"),
        ):
            expected, found = (m.losses(semantics=semantics, **data).by_name() for m in (new, used))
            torch.testing.assert_close(found, expected)
        assert torch.equal(*[m.truth(semantics="exact", **data)["x"] for m in (new, used)])


def test_numbers_bound_to_constants_are_read_anew() -> None:
    text = "sort I; sort D = 0..3; const c: Int; func d(I) -> D; [x] forall i: I. d(i) = c"
    first, other = (doxa.Model(text, d=doxa.probs(DIGITS), c=c) for c in (1, 2))
    assert first.truth(semantics="exact", per_row=True, I=3)["x"].tolist() == DIGITS[:, 1].tolist()
    first.load_state_dict(other.state_dict())
    assert first.truth(semantics="exact", per_row=True, I=3)["x"].tolist() == DIGITS[:, 2].tolist()


@pytest.mark.parametrize("word", ["exact", "refined"])
def test_plans_that_were_made_for_another_purpose_still_give_derivatives(word: str) -> None:
    text = "sort I; sort D = 0..3; func d(I) -> D; pred q(I); [x] forall i: I. q(i) -> d(i) > 1"
    nets = {"d": doxa.logits(nn.Linear(2, 4)), "q": doxa.logits(nn.Sequential(nn.Linear(2, 1), nn.Flatten(0)))}
    things = torch.rand(3, 2)
    expected = torch.autograd.grad(doxa.Model(text, word, **nets).loss(I=things), nets["d"].thing.weight)
    model = doxa.Model(text, word, **nets)
    with torch.inference_mode():
        model.loss(I=things)
    model.truth(I=things)
    torch.func.grad(lambda p: torch.func.functional_call(model, p, (), {"I": things}))(dict(model.named_parameters()))
    for _ in range(2):
        found = torch.autograd.grad(model.loss(I=things), nets["d"].thing.weight)
        torch.testing.assert_close(found, expected)


def test_a_network_that_two_symbols_share_sees_each_object_once() -> None:
    seen: list[int] = []

    def net(things: torch.Tensor) -> torch.Tensor:
        seen.append(len(things))
        return things.sum(-1)

    text = "sort I; pred a(I); pred b(I); [x] forall i: I. a(i) -> b(i)"
    model = doxa.Model(text, a=doxa.logits(net), b=doxa.logits(net))
    for _ in range(2):
        model.loss(semantics="exact", I=torch.rand(5, 2))
    assert seen == [5, 5]


def test_warnings_point_at_the_line_of_the_user() -> None:
    model = doxa.Model("pred a; [x] a", doxa.Amortized(), a=doxa.probs(torch.tensor(0.5)))
    for ask in (model.loss, model, model.truth):
        with pytest.warns(doxa.DoxaWarning, match="has not learnt anything yet") as caught:
            ask()
        assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("word", ["exact", "fuzzy", "refined"])
def test_a_guard_about_objects_of_a_row_excludes_no_row(word: str) -> None:
    """A row with one object has no pair of two; it is an instance that holds, and counts in the mean."""
    for axiom in (
        "forall s in scenes. forall x, y in s.o where x != y",
        "forall s in scenes, x, y in s.o where x != y",
    ):
        model = doxa.Model(
            f"sort Obj; data scenes(o: Obj*); pred b(Obj); {axiom}. b(x) -> b(y)", word, b=doxa.probs(lambda o: o[:, 0])
        )
        scenes = {"o": doxa.Ragged.cat([torch.tensor([[0.9], [0.2]]), torch.tensor([[0.5]]), torch.zeros(0, 1)])}
        each = model.loss(scenes=scenes, reduction="none")
        torch.testing.assert_close(model.loss(scenes=scenes), each.sum() / 3)


@pytest.mark.parametrize("word", LEARN)
@pytest.mark.parametrize("rule", ["forall x: I. at least 2 d: D. t(x, d)", "forall x: I, d: D where d < 2. t(x, d)"])
@pytest.mark.filterwarnings("ignore::doxa.errors.DoxaWarning")
def test_a_model_can_learn_after_inference_mode(word: str, rule: str) -> None:
    slopes = []
    for first in (False, True):
        torch.manual_seed(0)
        net, x = nn.Linear(4, 8), torch.randn(3, 4)
        model = doxa.Model(f"sort I; sort D = 1..8; pred t(I, D); [r] {rule}", word, t=doxa.logits(net))
        if first:
            with torch.inference_mode():
                model.loss(I=x, generator=torch.Generator().manual_seed(1))
        model.loss(I=x, generator=torch.Generator().manual_seed(1)).backward()
        assert net.weight.grad is not None
        slopes.append(net.weight.grad)
    assert torch.equal(*slopes)


@pytest.mark.parametrize("kind", ["mlp", "scan", "transformer"])
def test_inference_models_learn_and_answer_alike_under_autocast(kind: Any) -> None:
    truths = []
    for lower in (False, True):
        model = doxa.Model(
            "pred a; pred b; [x] a | b",
            doxa.Amortized(kind, hidden=32, pretrain=20),
            a=doxa.probs(torch.tensor(0.5)),
            b=doxa.probs(torch.tensor(0.4)),
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            for _ in range(3):
                model.inference_step(generator=torch.Generator().manual_seed(0))
            truths.append(model.truth()["x"])
    assert torch.equal(*truths)


@pytest.mark.parametrize("logic", ["log_product", "product", "godel", "lukasiewicz"])
def test_no_fuzzy_loss_is_minus_zero(logic: str) -> None:
    model = doxa.Model("pred a; [x] a", doxa.Fuzzy(logic), a=doxa.probs(torch.tensor(1.0)))
    assert str(model.loss().item()) == "0.0"


def test_an_aggregator_names_itself_where_weights_make_no_sense() -> None:
    model = doxa.Model("pred a; [x, weight 2] a", "fuzzy", a=doxa.probs(torch.tensor(1.0)))
    with pytest.raises(ConfigError, match="but an aggregator of truths takes all axioms alike"):
        model.loss(combine=doxa.fuzzy.GeneralizedMeanError(2))
    with pytest.raises(ConfigError, match="but combine='joint' takes all axioms alike"):
        model.loss(combine="joint", semantics="exact")
    with pytest.raises(ConfigError, match=r"use Exact\(\), Refined\(\), Sampled"):
        doxa.Model("pred a; [x] a", "fuzzy", a=doxa.probs(torch.tensor(1.0))).loss(combine="joint")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("word", ["exact", "fuzzy"])
@pytest.mark.parametrize("kind", [doxa.logits, doxa.probs])
@pytest.mark.parametrize("nested", [False, True])
def test_tensors_that_torch_can_do_little_with_are_refused_by_symbol(word: str, kind: Any, nested: bool) -> None:
    def made(x: torch.Tensor) -> torch.Tensor:
        return torch.nested.nested_tensor([x[0, :2], x[1, :3]]) if nested else x[:, 0].to(torch.float8_e4m3fn)

    message = r"p: wanted float32 or float64.* got .* dtype float8_e4m3fn; call \.float\(\)"
    if nested:
        message = r"p: wanted a dense tensor.* got a nested tensor of dtype float32; call \.to_padded_tensor"
    text = "sort I; pred p(I); [a] forall x: I. p(x)"
    with pytest.raises(BindingError, match=message):
        doxa.Model(text, word, p=kind(made)).loss(I=torch.rand(3, 4))
    with pytest.raises(BindingError, match=message):
        doxa.Model(text, word, p=kind(made(torch.rand(3, 4))))


@pytest.mark.parametrize("word", ["exact", "fuzzy", "refined"])
def test_derivatives_row_by_row(word: str) -> None:
    """Objects may be mapped over; numbers of the data, which posing looks at, only where nothing is posed."""
    net, x = nn.Linear(6, 4), torch.randn(5, 6)
    text = "sort I; sort D = 0..3; data t(a: I, n: Int); func d(I) -> D; "
    for rule, looked in (("[a] forall x: I. d(x) > 1", False), ("[a] forall r in t. d(r.a) = r.n", True)):
        model = doxa.Model(text + rule, word, d=doxa.logits(net))

        def loss(values: Any, x: torch.Tensor, n: torch.Tensor, model: Any = model, looked: bool = looked) -> Any:
            data = {"t": {"a": x.unsqueeze(0), "n": n.unsqueeze(0)}} if looked else {"I": x.unsqueeze(0)}
            return torch.func.functional_call(model, values, (), data)

        mapped = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        values, n = dict(model.named_parameters()), torch.arange(5) % 4
        if looked and word != "fuzzy":
            with pytest.raises(ConfigError, match="posing looks at numbers and indices of the data"):
                mapped(values, x, n)
            continue
        found = mapped(values, x, n)
        for i in range(5):
            own = torch.func.grad(loss)(values, x[i], n[i])
            for name, slope in own.items():
                torch.testing.assert_close(found[name][i], slope)


def test_a_constant_with_features_beside_objects_that_change_in_number() -> None:
    torch.manual_seed(0)
    network, best = nn.Linear(3, 1), torch.randn(3)
    text = """
        sort Image; const best: Image; data rows(x: Image); pred bright(Image)
        [rule] forall r in rows. bright(best) -> bright(r.x)
    """
    model = doxa.Model(text, "exact", bright=doxa.logits(network), best=best)
    for count in (2, 2, 4, 1, 4):
        images, x = torch.randn(count, 3), torch.randint(count, (3,))
        found = model.truth(per_row=True, Image=images, rows={"x": x})["rule"]
        p, q = network(best).sigmoid(), network(images[x]).sigmoid().squeeze(-1)
        torch.testing.assert_close(found, 1 - p + p * q)
