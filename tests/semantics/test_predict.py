"""Predictions: for every row the candidate under which the axioms about the field are most true."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION
from torch import Tensor, nn

import doxa
from doxa.errors import BindingError, ConfigError, KnowledgeError
from doxa.stochastic import Enumerate, Score

ALL = [doxa.Exact(), doxa.Fuzzy("product"), doxa.Fuzzy("log_product"), doxa.Fuzzy("godel"), doxa.Refined()]
ALL += [doxa.Sampled(Score(16)), doxa.Sampled(Enumerate()), doxa.Classical(), doxa.Auto()]


def scores(rows: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(2, rows, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2


def of_sums(p: Tensor) -> Tensor:
    """p(sum) of each row, by listing all worlds."""
    found = torch.zeros(p.shape[1], 7, dtype=p.dtype)
    for i, j in itertools.product(range(4), repeat=2):
        found[:, i + j] += p[0, :, i] * p[1, :, j]
    return found


def addition() -> tuple[doxa.Model, list[int]]:
    calls: list[int] = []

    def digit(image: Tensor) -> Tensor:
        calls.append(len(image))
        return image.log_softmax(-1)

    return doxa.Model(ADDITION, digit=doxa.log_probs(digit)), calls


def test_exact_prediction_is_that_of_all_worlds_and_networks_run_once() -> None:
    model, calls = addition()
    x = scores()
    found = model.predict("pairs.sum", semantics=doxa.Exact(), pairs={"left": x[0], "right": x[1]})
    torch.testing.assert_close(found.truths, of_sums(x.softmax(-1)))
    assert found.candidates.tolist() == list(range(7))
    assert found.values.tolist() == of_sums(x.softmax(-1)).argmax(-1).tolist()
    assert calls == [12]


@pytest.mark.parametrize("semantics", ALL, ids=repr)
def test_certain_images_have_one_sum(semantics: Any) -> None:
    model, calls = addition()
    digits = torch.tensor([[0, 3, 1, 2], [3, 3, 0, 2]])
    x = torch.where(nn.functional.one_hot(digits, 4) == 1, 0.0, float("-inf"))
    pairs = {"left": x[0], "right": x[1], "sum": torch.zeros(4, dtype=torch.int64)}  # what stands there is ignored
    found = model.predict("pairs.sum", semantics=semantics, pairs=pairs)
    assert found.values.tolist() == digits.sum(0).tolist()
    cap = 1e-6 if semantics == doxa.Fuzzy("log_product") else 0.0  # its logarithms end at 1.2e-7
    torch.testing.assert_close(
        found.truths.double(), nn.functional.one_hot(digits.sum(0), 7).double(), atol=cap, rtol=0
    )
    assert sum(calls) == 8


def test_each_row_has_the_truth_it_has_alone() -> None:
    model, _ = addition()
    x = scores(4)
    pairs = {"left": x[0], "right": x[1], "sum": torch.tensor([0, 2, 3, 6])}
    for semantics in (doxa.Exact(), doxa.Fuzzy("product"), doxa.Fuzzy("log_product"), doxa.Refined(), doxa.Classical()):
        (each,) = semantics.compile(model.kb.axioms, model.interpretation).rows({"pairs": pairs}, None)
        alone = [
            model.truth(semantics=semantics, pairs={k: v[i : i + 1] for k, v in pairs.items()})["sum"] for i in range(4)
        ]
        torch.testing.assert_close(each, torch.stack(alone))
    drawn = doxa.Sampled(Score(20_000)).compile(model.kb.axioms, model.interpretation)
    (each,) = drawn.rows({"pairs": pairs}, torch.Generator().manual_seed(0))
    exact = of_sums(x.softmax(-1))[torch.arange(4), pairs["sum"]]
    torch.testing.assert_close(each, exact, atol=0.02, rtol=0)


def test_an_axiom_about_nothing_in_particular_is_one_instance() -> None:
    model = doxa.Model("pred a; pred b; [any] a | b", a=doxa.probs(torch.tensor(0.5)), b=doxa.probs(torch.tensor(0.2)))
    for semantics in ALL:
        (each,) = semantics.compile(model.kb.axioms, model.interpretation).rows({}, None)
        assert each.shape == ()
    (exact,) = doxa.Exact().compile(model.kb.axioms, model.interpretation).rows({}, None)
    assert exact.item() == pytest.approx(0.6)


def test_objects_and_guards_and_inner_quantifiers() -> None:
    """The truth of an object is that of everything said about it; where the guard fails, it is 1."""
    kb = """
        sort Day; sort Hour = 0..1
        pred rain(Day, Hour); pred late(Day)
        [wet] forall d: Day where late(d). forall h: Hour. rain(d, h)
    """
    p = torch.tensor([[0.5, 0.4], [0.9, 0.3], [1.0, 0.2]], dtype=torch.float64)
    model = doxa.Model(kb, rain=doxa.probs(p), late=torch.tensor([True, True, False]))
    wanted = torch.cat([p[:2].prod(-1), torch.ones(1)])
    for semantics in (doxa.Exact(), doxa.Fuzzy("product"), doxa.Fuzzy("log_product")):
        (each,) = semantics.compile(model.kb.axioms, model.interpretation).rows({"Day": 3}, None)
        torch.testing.assert_close(each, wanted)


def test_several_axioms_are_multiplied_also_under_different_semantics() -> None:
    model = doxa.Model(
        ADDITION + "[even] forall p in pairs. p.sum mod 2 = 0", digit=doxa.log_probs(lambda x: x.log_softmax(-1))
    )
    x = scores()
    pairs = {"left": x[0], "right": x[1]}
    wanted = of_sums(x.softmax(-1)) * torch.tensor([1.0, 0, 1, 0, 1, 0, 1])
    for semantics in (doxa.Exact(), {"sum": doxa.Exact(), "even": doxa.Classical()}):
        found = model.predict("pairs.sum", semantics=semantics, values=range(7), pairs=pairs)
        torch.testing.assert_close(found.truths, wanted)
    some = model.predict("pairs.sum", semantics=doxa.Exact(), values=[5, 2, 3], pairs=pairs)
    torch.testing.assert_close(some.truths, wanted[:, [5, 2, 3]])
    assert some.candidates.tolist() == [5, 2, 3] and set(some.values.tolist()) == {2}


def test_values_of_finite_sorts_and_truth_values() -> None:
    kb = """
        sort Image; sort Digit = 1..3; sort Size = {small, large}
        data shots(image: Image, digit: Digit, size: Size)
        func seen(Image) -> Digit
        pred big(Image)
        [digit] forall s in shots. seen(s.image) = s.digit
        [size]  forall s in shots. big(s.image) <-> s.size = large
        [loud]  forall s in more. big(s.image) <-> s.loud
    """
    p = torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4]])
    big = torch.tensor([0.9, 0.2])
    model = doxa.Model(
        kb, doxa.Exact(), seen=doxa.probs(lambda i: p[i.long()]), big=doxa.probs(lambda i: big[i.long()])
    )
    shots = {"image": torch.arange(2.0), "digit": torch.ones(2, dtype=torch.int64), "size": ["small", "small"]}
    digit = model.predict("shots.digit", shots=shots)
    assert digit.values.tolist() == [2, 1] and digit.candidates.tolist() == [1, 2, 3]
    torch.testing.assert_close(digit.truths, p)
    size = model.predict("shots.size", shots=shots)
    assert size.values.tolist() == [1, 0]
    torch.testing.assert_close(size.truths, torch.stack([1 - big, big], -1))
    assert model.predict("shots.size", values=["large"], shots=shots).values.tolist() == [1, 1]
    loud = model.predict("more.loud", values=[False, True], more={"image": torch.arange(2.0)})
    assert loud.values.tolist() == [True, False]


def test_mistakes() -> None:
    model, _ = addition()
    x = scores(2)
    pairs = {"left": x[0], "right": x[1]}
    for target, error, message in [
        ("sum", ConfigError, "expected rows and their field"),
        ("pairs.left", KnowledgeError, "holds objects of Image"),
        ("pairs.total", KnowledgeError, "no axiom mentions pairs.total"),
        ("rows.sum", BindingError, "did not come with the data"),
    ]:
        with pytest.raises(error, match=message):
            model.predict(target, semantics=doxa.Exact(), pairs=pairs)
    with pytest.raises(ConfigError, match="values is empty"):
        model.predict("pairs.sum", semantics=doxa.Exact(), values=[], pairs=pairs)
    with pytest.raises(ConfigError, match="cannot be 'one'"):
        model.predict("pairs.sum", semantics=doxa.Exact(), values=["one"], pairs=pairs)
    both = doxa.Model(
        ADDITION.replace("[sum]", "[same] forall p, q in pairs. p.sum = q.sum\n[sum]"),
        digit=doxa.log_probs(lambda x: x),
    )
    with pytest.raises(KnowledgeError, match="row by row"):
        both.predict("pairs.sum", semantics=doxa.Exact(), pairs=pairs)
    less = doxa.Model(ADDITION.replace("d + e =", "d + e <"), digit=doxa.log_probs(lambda x: x))
    with pytest.raises(ConfigError, match="say which, as in predict"):
        less.predict("pairs.sum", semantics=doxa.Exact(), pairs=pairs)


@pytest.mark.parametrize("semantics", [*ALL, doxa.Amortized(hidden=8, samples=5)], ids=lambda s: repr(s)[:40])
def test_without_rows_nothing_is_predicted(semantics: Any) -> None:
    model, _ = addition()
    none = {"left": torch.zeros(0, 4), "right": torch.zeros(0, 4), "sum": torch.zeros(0, dtype=torch.int64)}
    found = model.predict("pairs.sum", semantics=semantics, values=range(7), pairs=none)
    assert found.values.shape == (0,) and found.truths.shape == (0, 7)
    assert model.truth(semantics=semantics, pairs=none)["sum"] == 1
    assert model.explain(pairs=none) == []


GUARDED = """
    sort Image; sort Digit = 0..3
    data pairs(left: Image, right: Image, known: Int, sum: Int)
    func digit(Image) -> Digit
"""
SEES = torch.eye(4) * 0.96 + 0.01
EVERY = ("classical", "fuzzy", "fuzzy:godel", "refined", "exact", "sampled", "auto")


@pytest.mark.parametrize("word", EVERY)
def test_what_a_guard_excludes_is_no_candidate(word: str) -> None:
    model = doxa.Model(
        GUARDED + "[s] forall p in pairs where p.sum < 3. digit(p.left) + digit(p.right) = p.sum",
        word,
        digit=doxa.probs(lambda image: image),
    )
    rows = {"left": SEES[[1, 0]], "right": SEES[[1, 1]], "known": torch.ones(2, dtype=torch.int64)}
    found = model.predict("pairs.sum", values=range(7), pairs=rows)
    assert found.values.tolist() == [2, 1]
    assert (found.truths[:, 3:] == 0).all()


@pytest.mark.parametrize("word", EVERY)
def test_guards_that_tell_cases_apart_leave_all_candidates(word: str) -> None:
    model = doxa.Model(
        GUARDED
        + """[low] forall p in pairs where p.sum < 3. digit(p.left) + digit(p.right) = p.sum
        [high] forall p in pairs where p.sum >= 3. digit(p.left) + digit(p.right) = p.sum""",
        word,
        digit=doxa.probs(lambda image: image),
    )
    rows = {"left": SEES[[1, 3]], "right": SEES[[1, 2]], "known": torch.ones(2, dtype=torch.int64)}
    assert model.predict("pairs.sum", values=range(7), pairs=rows).values.tolist() == [2, 5]


@pytest.mark.parametrize("word", EVERY)
def test_a_row_that_a_guard_excludes_has_all_candidates(word: str) -> None:
    model = doxa.Model(
        GUARDED + "[s] forall p in pairs where p.known = 1. digit(p.left) + digit(p.right) = p.sum",
        word,
        digit=doxa.probs(lambda image: image),
    )
    rows = {"left": SEES[[1, 3]], "right": SEES[[1, 2]], "known": torch.tensor([1, 0])}
    found = model.predict("pairs.sum", values=range(7), pairs=rows)
    assert found.values[0] == 2 and (found.truths[1] == 1).all()


def test_a_guard_about_other_variables_excludes_where_none_is_left() -> None:
    text = GUARDED + "[s] forall p in pairs, n: Digit where n = p.sum. digit(p.left) = n"
    model = doxa.Model(text, digit=doxa.probs(lambda image: image))
    rows = {"left": SEES[[2]], "right": SEES[[2]], "known": torch.tensor([1])}
    for word in ("exact", "fuzzy", "classical"):
        found = model.predict("pairs.sum", values=range(6), semantics=word, pairs=rows)
        assert found.values.tolist() == [2] and (found.truths[:, 4:] == 0).all()


def test_a_row_variable_that_is_bound_again_is_refused() -> None:
    """The field of an inner row is not the one that is predicted, though it is called alike."""
    text = """sort I; sort D = 0..2; func d(I) -> D; data rows(x: I, t: Int)
    [q] forall p in rows. d(p.x) = p.t & (exists p in rows. p.t = 5)"""
    model = doxa.Model(
        doxa.parse(text, warn=False), "exact", d=doxa.probs(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]))
    )
    with pytest.raises(KnowledgeError, match=r"does not speak about rows\.t row by row"):
        model.predict("rows.t", values=[0, 1, 2], I=2, rows={"x": torch.tensor([0, 1]), "t": torch.tensor([5, 1])})
