"""One knowledge base, many semantics: where they must agree, they do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import doxa
from doxa.logic import parse
from doxa.stochastic import Enumerate, Score

ADDITION = """
    sort Image
    sort Digit = 0..3
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit
    pred odd(Image)
    [sum]            forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    [odd, weight 2]  forall p in pairs where p.sum > 0. odd(p.left) <-> digit(p.left) mod 2 = 1
"""
AMORTIZED = doxa.Amortized(hidden=32, pretrain=2, samples=20, impossible="finite")
ALL = [doxa.Classical(), doxa.Fuzzy("product"), doxa.Fuzzy("log_product"), doxa.Fuzzy("godel"), doxa.Refined()]
ALL += [doxa.Exact(impossible="finite"), doxa.Sampled(Score(16)), doxa.Sampled(Enumerate()), doxa.Auto(), AMORTIZED]


def model(kb: Any, scores: Tensor, parity: Tensor) -> doxa.Model:
    """Images are numbers, which say what is believed of them."""
    return doxa.Model(
        kb,
        digit=doxa.logits(lambda image: scores[image.long()]),
        odd=doxa.logits(lambda image: parity[image.long()]),
    )


def beliefs(seed: int, scale: float = 1.0) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    random = torch.Generator().manual_seed(seed)
    scores, parity = scale * torch.randn(6, 4, generator=random), scale * torch.randn(6, generator=random)
    sums = torch.randint(7, (3,), generator=random)
    return scores, parity, {"left": torch.arange(3.0), "right": torch.arange(3.0, 6.0), "sum": sums}


@pytest.mark.parametrize("semantics", ALL, ids=lambda s: repr(s)[:40])
def test_knowledge_through_text_changes_nothing(semantics: Any) -> None:
    scores, parity, pairs = beliefs(0)
    pairs["sum"][0] = 0  # so that an inference model meets rows with and without the guard
    kb = parse(ADDITION)
    found = []
    for base in (kb, parse(str(kb)), parse(str(parse(str(kb))))):
        ours = model(base, scores, parity)
        torch.manual_seed(0)
        ours.inference_step(semantics=semantics, pairs=pairs)
        losses = [] if isinstance(semantics, doxa.Classical) else ours.losses(semantics=semantics, pairs=pairs).values
        random = torch.Generator().manual_seed(0)
        truth = ours.truth(semantics=semantics, generator=random, pairs=pairs)
        guess = ours.predict("pairs.sum", semantics=semantics, values=range(7), generator=random, pairs=pairs)
        values = [value.item() for value in (*losses, *truth.values())]
        found.append([*values, *guess.truths.flatten().tolist()])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("seed", range(3))
def test_on_crisp_beliefs_all_rows_are_as_true_as_they_are_classically(seed: int) -> None:
    scores, parity, pairs = beliefs(seed)
    crisp = torch.where(torch.nn.functional.one_hot(scores.argmax(-1), 4) == 1, 0.0, float("-inf"))
    sure = torch.where(parity > 0, 100.0, -100.0)
    pairs["sum"][0] = (crisp.argmax(-1)[0] + crisp.argmax(-1)[3]).item()  # one row holds at least
    ours = model(parse(ADDITION), crisp, sure)
    wanted = doxa.Classical().compile(ours.kb.axioms, ours.interpretation).rows({"pairs": pairs}, None)
    for semantics in ALL[1:-1]:
        found = semantics.compile(ours.kb.axioms, ours.interpretation).rows({"pairs": pairs}, None)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a.float(), b, atol=1e-4, rtol=0)


def test_samples_approach_exact_predictions_and_truths() -> None:
    scores, parity, pairs = beliefs(3)
    ours = model(parse(ADDITION), scores, parity)
    random = torch.Generator().manual_seed(0)
    exact = ours.predict("pairs.sum", semantics=doxa.Exact(), values=range(7), pairs=pairs).truths
    errors = []
    for count in (200, 20_000):
        drawn = doxa.Sampled(Score(count))
        found = ours.predict("pairs.sum", semantics=drawn, values=range(7), generator=random, pairs=pairs).truths
        errors.append((found - exact).abs().mean().item())
    assert errors[1] < 0.01 and errors[1] < errors[0]


def test_product_logic_predicts_as_exact_reasoning_where_no_atom_repeats() -> None:
    kb = """
        sort Image; data shots(image: Image, loud: Int)
        pred odd(Image); pred big(Image)
        [loud] forall s in shots. odd(s.image) & !big(s.image) <-> s.loud = 1
    """
    p = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
    ours = doxa.Model(kb, odd=doxa.probs(lambda i: p[0][i.long()]), big=doxa.probs(lambda i: p[1][i.long()]))
    shots = {"image": torch.arange(5.0)}
    one, other = (
        ours.predict("shots.loud", semantics=s, values=[0, 1], shots=shots)
        for s in (doxa.Exact(), doxa.Fuzzy("product"))
    )
    torch.testing.assert_close(one.truths, other.truths)
    torch.testing.assert_close(one.truths[:, 1], p[0] * (1 - p[1]))
