"""Probabilities of knowledge about data, against listing all worlds and asking classical truth in each."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact import BudgetError, Elimination, KnowledgeReasoner, _knowledge
from doxa.logic import Interpretation, KnowledgeBase, Ragged, log_probs, logits, parse, probs, truth
from doxa.problem import Belief, BruteForce, addition

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")  # no formula uses all that is declared

DECLARED = """
    sort Image
    sort Digit = 0..2
    sort Colour = {red, green}
    const best: Image
    data pairs(left: Image, right: Image, sum: Int, size: Real, hue: Colour, digit_: Digit)
    data scenes(objects: Image*, wanted: Int)
    func digit(Image) -> Digit
    func next(Digit) -> Digit
    func colour(Image) -> Colour
    func half(Int) -> Int
    pred bright(Image)
    pred near(Image, Image)
    pred rain
    pred odd(Digit)
    pred is(Image, Digit)
"""
IMAGES = 3


def sampled(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + 0.05


DIGIT = sampled((IMAGES, 3), 0)
DIGIT = DIGIT / DIGIT.sum(-1, keepdim=True)
COLOUR = sampled((IMAGES, 2), 1)
COLOUR = COLOUR / COLOUR.sum(-1, keepdim=True)
BRIGHT = sampled((IMAGES,), 2).clamp(max=0.9)
NEAR = sampled((IMAGES, IMAGES), 3).clamp(max=0.9)
IS = sampled((IMAGES, 3), 4)
IS = IS / IS.sum(-1, keepdim=True)
RAIN = torch.tensor(0.3, dtype=torch.float64)
NEXT = {0: 1, 1: 2}

PAIRS = {
    "left": torch.tensor([0, 1, 2, 0]),
    "right": torch.tensor([1, 1, 0, 2]),
    "sum": torch.tensor([2, 2, 0, 3]),
    "size": torch.tensor([0.5, 2.0, 1.5, 0.1]),
    "hue": torch.tensor([0, 1, 1, 0]),
    "digit_": torch.tensor([1, 0, 2, 2]),
}
SCENES = {"objects": Ragged(torch.tensor([0, 1, 2, 1, 0]), [2, 0, 3]), "wanted": torch.tensor([1, 0, 3])}
CONSTANTS: dict[str, Any] = {
    "best": 1,
    "next": NEXT,
    "odd": torch.tensor([False, True, False]),
    "half": lambda n: n // 2,
}

ROWS = {
    "statement": "forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)",
    "sugar": "forall p in pairs. digit(p.left) + digit(p.right) = p.sum",
    "twice": "forall p in pairs. digit(p.left) * 2 - digit(p.right) * digit(p.left) <= p.sum",
    "known": "forall p in pairs. p.size > 1 | digit(p.left) != digit(p.right)",
    "guard": "forall p in pairs where p.size > 1. digit(p.left) = digit(p.right)",
    "quotient": "forall p in pairs where p.sum != 0. 6 // p.sum > digit(p.left)",
    "uncertain quotient": "forall p in pairs. digit(p.left) != 0 -> 2 // digit(p.left) = digit(p.right)",
    "connectives": "forall p in pairs. (bright(p.left) xor bright(p.right)) <-> (near(p.left, p.right) -> rain)",
    "counting": "forall p in pairs. exactly 1 d: Digit. digit(p.left) = d & bright(p.right)",
    "at most": "forall p in pairs. at most 1 d: Digit where d < 2. digit(p.left) <= d",
    "exists": "forall p in pairs. exists d: Digit. digit(p.left) = d & digit(p.right) = d & d < 2",
    "table": "forall p in pairs where digit(p.left) < 2. next(digit(p.left)) = digit(p.right) | odd(digit(p.right))",
    "colours": "forall p in pairs. colour(p.left) = p.hue | colour(p.right) != red",
    "value": "forall p in pairs. digit(p.left) = p.digit_ -> is(p.right, p.digit_)",
    "exclusive": "forall p in pairs. is(p.left, 0) | is(p.left, 2) & is(p.right, 1)",
    "constant": "forall p in pairs. digit(best) = digit(p.left) -> bright(best)",
    "objects": "forall p in pairs. p.left = p.right | digit(p.left) < digit(p.right)",
    "numbers": "forall p in pairs. half(p.sum) = digit(p.left)",
    "all images": "forall p in pairs. exists x: Image. near(p.left, x) & !bright(x)",
    "sequence": "forall s in scenes. forall x, y in s.objects. near(x, y) -> near(y, x)",
    "counted": "forall s in scenes. at least 2 x in s.objects. bright(x)",
    "sorted": "forall x: Image. bright(x) -> digit(x) > 0",
    "two": "forall x: Image, y: Image. near(x, y) & bright(x) -> bright(y)",
}
VARIABLE = {"sequence": "s", "counted": "s", "sorted": "x", "two": ("x", "y")}


def knowledge(formula: str) -> KnowledgeBase:
    return parse(DECLARED + f"\n[rule] {formula}\n")


def uncertain(kb: KnowledgeBase) -> Interpretation:
    return Interpretation(
        kb,
        digit=probs(DIGIT),
        colour=log_probs(COLOUR.log()),
        bright=probs(BRIGHT),
        near=logits(NEAR.logit()),
        rain=probs(RAIN),
        **CONSTANTS,
        **{"is": logits(IS.log(), exclusive=True)},
    )


def used(formula: str) -> list[str]:
    """The symbols that are uncertain."""
    names = ("digit(", "colour(", "bright(", "near(", "rain", "is(")
    return [name.rstrip("(") for name in names if name in formula]


def by_listing(formula: str, keep: Any, data: dict[str, Any]) -> Tensor:
    """Σ over all crisp interpretations of what the formula mentions, of their probability times classical truth."""
    kb = knowledge(formula)
    axes: list[list[tuple[float, Any]]] = []
    names = used(formula)
    for name in names:
        if name in ("digit", "colour", "is"):
            table = {"digit": DIGIT, "colour": COLOUR, "is": IS}[name]
            options = []
            for values in itertools.product(range(table.shape[1]), repeat=IMAGES):
                p = math.prod(table[i, v].item() for i, v in enumerate(values))
                tensor = torch.tensor(values)
                options.append((p, torch.nn.functional.one_hot(tensor, 3).bool() if name == "is" else tensor))
        else:
            table = {"bright": BRIGHT, "near": NEAR, "rain": RAIN}[name]
            options = []
            for bits in itertools.product((False, True), repeat=table.numel()):
                chosen = torch.tensor(bits).reshape(table.shape)
                options.append((torch.where(chosen, table, 1 - table).prod().item(), chosen))
        axes.append(options)
    total: Tensor | float = 0.0
    for choice in itertools.product(*axes):
        crisp = {"digit": torch.zeros(IMAGES).long(), "colour": torch.zeros(IMAGES).long()}
        crisp |= {"bright": torch.zeros(IMAGES).bool(), "near": torch.zeros(IMAGES, IMAGES).bool()}
        crisp |= {"rain": torch.tensor(False), "is": torch.zeros(IMAGES, 3).bool()}
        crisp |= dict(zip(names, [value for _, value in choice], strict=True))
        holds = truth(kb["rule"], Interpretation(kb, **CONSTANTS, **crisp), keep=keep, **data)
        total = total + math.prod(p for p, _ in choice) * holds.double()
    assert isinstance(total, Tensor)
    return total


def data_of(formula: str) -> dict[str, Any]:
    data: dict[str, Any] = {"Image": IMAGES}
    if "pairs" in formula:
        data["pairs"] = PAIRS
    if "scenes" in formula:
        data["scenes"] = SCENES
    return data


HEAVY = {"connectives", "two", "all images"}  # 2^13 worlds to list


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in HEAVY else []) for n in ROWS])
def test_each_row_and_all_rows_together(name: str) -> None:
    formula = ROWS[name]
    kb, keep, data = knowledge(formula), VARIABLE.get(name, "p"), data_of(formula)
    interpretation = uncertain(kb)
    for kept in (keep, ()):
        expected = by_listing(formula, kept, data)
        reasoner = KnowledgeReasoner(kb["rule"], interpretation, keep=kept)
        found = reasoner.log_prob(**data).exp()
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, msg=f"keep={kept}")
        torch.testing.assert_close(reasoner.log_prob(**data).exp(), expected)  # from what is kept of the first time
        assert "independent, given the data" in reasoner.explain(**data)
