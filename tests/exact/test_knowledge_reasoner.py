"""Probabilities of knowledge about data, against listing all worlds and asking classical truth in each."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact import BudgetError, Elimination
from doxa.logic import Interpretation, KnowledgeBase, Ragged, log_probs, logits, parse, probs, truth
from doxa.pose import KnowledgeReasoner, _knowledge
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
    "uncertain quotient": "forall p in pairs where digit(p.left) != 0. 2 // digit(p.left) = digit(p.right)",
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
    crisp = {"digit": torch.zeros(IMAGES).long(), "colour": torch.zeros(IMAGES).long()}
    crisp |= {"bright": torch.zeros(IMAGES).bool(), "near": torch.zeros(IMAGES, IMAGES).bool()}
    crisp |= {"rain": torch.tensor(False), "is": torch.zeros(IMAGES, 3).bool()}
    world = Interpretation(kb, **CONSTANTS, **crisp)
    total: Tensor | float = 0.0
    for choice in itertools.product(*axes):
        for name, (_, value) in zip(names, choice, strict=True):
            world.get_buffer(f"meanings.{name}.tensor").copy_(value)
        holds = truth(kb["rule"], world, keep=keep, **data)
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


HEAVY = {"connectives", "two", "all images", "value", "sequence"}  # up to 2^13 worlds to list


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


SUMS = """
    sort Image
    sort Digit = 0..9
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""


def sums(rows: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(2, rows, 10, generator=generator, dtype=torch.float64)
    return {"left": images[0], "right": images[1], "sum": torch.randint(0, 19, (rows,), generator=generator)}


@pytest.mark.parametrize("formula", ["forall x: Digit. odd(x) -> small(x)", "forall x: Digit. odd(x)"])
def test_a_finite_sort_alone_is_quantified_over(formula: str) -> None:
    kb = parse(f"sort Digit = 0..2; pred odd(Digit); pred small(Digit); [rule] {formula}")
    odd, small = sampled((3,), 5).clamp(max=0.9), sampled((3,), 6).clamp(max=0.9)
    found = KnowledgeReasoner(kb["rule"], Interpretation(kb, odd=probs(odd), small=probs(small)))
    each = 1 - odd * (1 - small) if "->" in formula else odd
    torch.testing.assert_close(found.log_prob().exp(), each.prod())
    assert "1 problem" in found.explain()


def test_ten_thousand_rows_are_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    kb = parse(SUMS)
    planned: list[Any] = []

    def counted(problem: Any, **options: Any) -> Any:
        planned.append(problem)
        return plan_of(problem, **options)

    plan_of = _knowledge.plan
    monkeypatch.setattr(_knowledge, "plan", counted)
    reasoner = KnowledgeReasoner(kb["sum"], Interpretation(kb, digit=logits(lambda image: image)), keep="p")
    pairs = sums(10_000)
    pairs["left"].requires_grad_()
    loss = reasoner.loss(pairs=pairs)
    (gradient,) = torch.autograd.grad(loss.sum(), pairs["left"])
    belief = Belief.from_logits(torch.stack([pairs["left"], pairs["right"]], 1))
    output = torch.stack([pairs["sum"] // 10, pairs["sum"] % 10], -1)
    expected = BruteForce(addition(1)).loss(belief, output)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected.sum(), pairs["left"]))
    reasoner.loss(pairs=sums(17, seed=1))
    assert len(planned) == 1
    together = KnowledgeReasoner(kb["sum"], reasoner.interpretation).log_prob(pairs=sums(100))
    torch.testing.assert_close(together, reasoner.log_prob(pairs=sums(100)).sum())


def test_numbers_that_were_not_seen_before_are_learnt() -> None:
    kb = parse(SUMS)
    reasoner = KnowledgeReasoner(kb, Interpretation(kb, digit=logits(lambda image: image)), impossible="finite")
    pairs = sums(8)
    for values in ([3] * 8, [3, 4] * 4, [18, 40] * 4, [3] * 8):
        pairs["sum"] = torch.tensor(values)
        belief = Belief.from_logits(torch.stack([pairs["left"], pairs["right"]], 1))
        output = torch.stack([pairs["sum"] // 10, pairs["sum"] % 10], -1).clamp(max=torch.tensor([1, 9]))
        expected = BruteForce(addition(1)).log_prob(belief, output).masked_fill(pairs["sum"] > 18, -math.inf)
        torch.testing.assert_close(reasoner.log_prob(pairs=pairs), expected.sum())


def test_an_image_that_comes_twice_is_one_variable() -> None:
    kb = parse(SUMS)
    images = torch.randn(3, 10, dtype=torch.float64)
    p = images.softmax(-1)
    rows = KnowledgeReasoner(kb["sum"], Interpretation(kb, digit=logits(lambda image: image)), keep="p")
    same = {"left": torch.tensor([0, 0]), "right": torch.tensor([0, 1]), "sum": torch.tensor([8, 8])}
    both = rows.log_prob(Image=images, pairs=same).exp()
    assert both[0].item() == pytest.approx(p[0, 4].item())
    assert both[1].item() == pytest.approx(sum(p[0, i] * p[1, 8 - i] for i in range(9)).item())
    assert "1 variables are in more than one" in rows.explain(Image=images, pairs=same)
    # The rows agree that image 0 is a 4, so the second one adds only that image 1 is a 4 too.
    joint = KnowledgeReasoner(kb["sum"], rows.interpretation)
    assert joint.log_prob(Image=images, pairs=same).exp().item() == pytest.approx((p[0, 4] * p[1, 4]).item())
    # Features in two places of the data are two images, also if they are equal.
    twins = {"left": images[:1], "right": images[:1], "sum": torch.tensor([8])}
    apart = rows.log_prob(pairs=twins).exp()
    assert apart.item() == pytest.approx(sum(p[0, i] * p[0, 8 - i] for i in range(9)).item())
    assert "no variable is in two of them" in rows.explain(pairs=twins)


def test_a_long_chain_of_rows_is_one_problem() -> None:
    kb = parse(SUMS)
    images = torch.randn(30, 10, dtype=torch.float64)
    digits = torch.randint(0, 10, (30,))
    chain = {"left": torch.arange(29), "right": torch.arange(1, 30), "sum": digits[:-1] + digits[1:]}
    joint = KnowledgeReasoner(kb["sum"], Interpretation(kb, digit=logits(lambda image: image)))
    log_p = images.log_softmax(-1)
    expected = torch.full((), -math.inf, dtype=torch.float64)  # the first digit decides all others
    for first in range(10):
        values = [first]
        for total in chain["sum"].tolist():
            values.append(total - values[-1])
        if all(0 <= v <= 9 for v in values):
            expected = torch.logaddexp(expected, log_p[torch.arange(30), torch.tensor(values)].sum())
    torch.testing.assert_close(joint.log_prob(Image=images, pairs=chain), expected)


def test_numbers_of_two_digits() -> None:
    kb = parse("""
        sort Image
        sort Digit = 0..9
        data sums(a: Image*, b: Image*, sum: Int)
        func digit(Image) -> Digit
        [sum] forall p in sums. 10 * digit(p.a[0]) + digit(p.a[1]) + 10 * digit(p.b[0]) + digit(p.b[1]) = p.sum
    """)
    problem = addition(2)
    logits_ = torch.randn(5, 4, 10, dtype=torch.float64)
    output = problem(problem.random_worlds(5))
    total = (output * torch.tensor([100, 10, 1])).sum(-1)
    reasoner = KnowledgeReasoner(kb["sum"], Interpretation(kb, digit=logits(lambda image: image)), keep="p")
    found = reasoner.log_prob(sums={"a": logits_[:, :2], "b": logits_[:, 2:], "sum": total})
    torch.testing.assert_close(found, Elimination(problem).log_prob(Belief.from_logits(logits_), output))


def test_fresh_draws_are_independent() -> None:
    kb = parse(
        "sort Image; sort Bit = 0..1; func bit(Image) -> Bit; [r] forall x: Image. bit(x) = 1 & fresh bit(x) = 1"
    )
    reasoner = KnowledgeReasoner(kb["r"], Interpretation(kb, bit=probs(torch.tensor([[0.4, 0.6]]))), keep="x")
    assert reasoner.log_prob(Image=1).exp().item() == pytest.approx(0.36)


def test_a_knowledge_base_is_all_of_its_axioms_and_facts() -> None:
    kb = parse(
        "sort P; const a: P; const b: P; pred s(P); pred c(P); forall x: P. s(x) -> c(x); s(a) | s(b); fact s(b)"
    )
    s, c = torch.tensor([0.3, 0.8]), torch.tensor([0.5, 0.4])
    found = KnowledgeReasoner(kb, Interpretation(kb, s=probs(s), c=probs(c))).log_prob().exp()
    assert found.item() == pytest.approx((1 - 0.3 * 0.5) * 0.8 * 0.4)


def test_certain_knowledge_and_no_data() -> None:
    kb = parse("sort D = 0..3; sort I; func f(I) -> D; data r(x: I, n: Int); [r] forall p in r. p.n > 0 & f(p.x) >= 0")
    interpretation = Interpretation(kb, f=logits(torch.nn.Linear(2, 4)))
    rows = KnowledgeReasoner(kb["r"], interpretation, keep="p", impossible="inf")
    data = {"x": torch.zeros(3, 2), "n": torch.tensor([1, 0, 2])}
    torch.testing.assert_close(rows.log_prob(r=data), torch.tensor([0.0, -math.inf, 0.0]))
    empty = {"x": torch.zeros(0, 2), "n": torch.zeros(0).long()}
    assert rows.log_prob(r=empty).shape == (0,)
    assert KnowledgeReasoner(kb, interpretation).log_prob(r=empty).item() == 0.0


def test_impossible_rows_are_named_and_refusals_are_clear() -> None:
    kb = parse(SUMS)
    interpretation = Interpretation(kb, digit=logits(lambda image: image))
    pairs = sums(3)
    pairs["sum"] = torch.tensor([3, 19, 20])
    with pytest.raises(ProblemError, match=r"cannot hold in rows \(1,\), \(2,\): every world"):
        KnowledgeReasoner(kb["sum"], interpretation, keep="p").loss(pairs=pairs)
    finite = KnowledgeReasoner(kb["sum"], interpretation, keep="p", impossible="finite").loss(pairs=pairs)
    assert finite.isfinite().all()
    with pytest.raises(ConfigError, match="impossible is 'never'"):
        KnowledgeReasoner(kb, interpretation, impossible="never")  # type: ignore[arg-type]
    with pytest.raises(KnowledgeError, match=r"keep='q': .* it binds p"):
        KnowledgeReasoner(kb["sum"], interpretation, keep="q")
    other = parse(
        "sort I; sort D = 0..3; func f(I) -> D; [q] forall x: I. 3 // f(x) > 1; [s] forall x: I sample 2. f(x) > 1"
    )
    seen = Interpretation(other, f=logits(torch.zeros(4, 4)))
    with pytest.raises(KnowledgeError, match=r"some term has no value .* 'where d != 0'"):
        KnowledgeReasoner(other["q"], seen).log_prob(I=4)
    with pytest.raises(KnowledgeError, match="random sample"):
        KnowledgeReasoner(other["s"], seen).log_prob(I=4)
    wide = parse("sort I; sort D = 0..1999; func f(I) -> D; data r(a: I, b: I); [r] forall p in r. f(p.a) * f(p.b) = 7")
    with pytest.raises(BudgetError, match="4,000,000 joint values of 2 variables"):
        KnowledgeReasoner(wide["r"], Interpretation(wide, f=logits(torch.nn.Linear(1, 2000)))).log_prob(
            r={"a": torch.zeros(1, 1), "b": torch.zeros(1, 1)}
        )
