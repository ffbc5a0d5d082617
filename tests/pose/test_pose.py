"""Probabilities of knowledge about data, against listing all worlds and asking classical truth in each."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa.errors import KnowledgeError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, Ragged, log_probs, logits, parse, probs, truth
from doxa.pose import PosedAxiom, pose
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


def log_prob(axiom: Axiom, interpretation: Interpretation, data: dict[str, Any], *, whole: bool = False) -> Tensor:
    """log p of each instance, or of the axiom as a whole, by listing the worlds of the problems that are posed."""
    (posed,) = pose([axiom], interpretation, data, whole=whole)
    parts = []
    for batch in posed.batches:
        worlds = batch.problem.worlds()
        given = None if batch.given is None else batch.given.unsqueeze(0)
        outputs = batch.problem(worlds.unsqueeze(1).expand(-1, len(batch.instances), -1), given)
        holds = (outputs == batch.observed).all(-1)
        weights = batch.belief.log_prob(worlds.unsqueeze(1).expand(-1, len(batch.instances), -1))
        parts.append(weights.masked_fill(~holds, -math.inf).logsumexp(0))
    found = posed.gather(parts, true=0.0, false=-math.inf)
    return found.sum() if posed.joint else found.reshape(posed.shape)


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
    for whole in (False, True):
        expected = by_listing(formula, () if whole else keep, data)
        for _ in range(2):  # the second time from what is kept of the first
            found = log_prob(kb["rule"], interpretation, data, whole=whole).exp()
            torch.testing.assert_close(found, expected)


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


def seen_sums() -> tuple[KnowledgeBase, Interpretation]:
    kb = parse(SUMS)
    return kb, Interpretation(kb, digit=logits(lambda image: image))


@pytest.mark.parametrize("formula", ["forall x: Digit. odd(x) -> small(x)", "forall x: Digit. odd(x)"])
def test_a_finite_sort_is_quantified_over(formula: str) -> None:
    kb = parse(f"sort Digit = 0..2; pred odd(Digit); pred small(Digit); [rule] {formula}")
    odd, small = sampled((3,), 5).clamp(max=0.9), sampled((3,), 6).clamp(max=0.9)
    world = Interpretation(kb, odd=probs(odd), small=probs(small))
    each = 1 - odd * (1 - small) if "->" in formula else odd
    torch.testing.assert_close(log_prob(kb["rule"], world, {}).exp(), each)
    torch.testing.assert_close(log_prob(kb["rule"], world, {}, whole=True).exp(), each.prod())
    (posed,) = pose([kb["rule"]], world, {})
    assert [len(batch.instances) for batch in posed.batches] == [3]


FINITE = """
    sort P = {ann, bob}
    sort N = 1..3
    pred f(P, P)
    pred s(P)
    pred big(N)
    func age(P) -> N
    func next(N) -> Int
"""


@pytest.mark.parametrize(
    "formula",
    [
        "forall x, y: P. f(x, y) -> f(y, x)",
        "forall x, y: P where x != y. f(x, y) & s(x) -> s(y)",
        "forall x: P. f(x, ann) | s(x) & s(ann)",
        "forall x: P, n: N where n > 1. age(x) = n -> big(n) | s(x)",
        "forall n: N. big(n) -> n mod 2 = 0 | exists x: P. age(x) < n",
        "forall x: P, n: N. age(x) + n <= 5 | next(age(x)) = n | x = bob",
        "forall x: P where s(x). age(x) > 2",
    ],
)
def test_instances_over_finite_sorts(formula: str) -> None:
    """Every choice of values is an instance; against listing all interpretations."""
    kb = parse(f"{FINITE}[rule] {formula}", warn=False)
    f, s, big = sampled((2, 2), 0).clamp(max=0.9), sampled((2,), 1).clamp(max=0.9), sampled((3,), 2).clamp(max=0.9)
    age = sampled((2, 3), 3)
    age = age / age.sum(-1, keepdim=True)
    world = Interpretation(kb, f=probs(f), s=probs(s), big=probs(big), age=probs(age), next=lambda n: n + 1)
    (posed,) = pose([kb["rule"]], world, {})
    found = log_prob(kb["rule"], world, {}).exp()
    names = [n for n in ("f(", "s(", "big(", "age(") if n in formula.replace("next(age(x))", "")]
    listed = {
        "f(": [(torch.tensor(b).reshape(2, 2), f) for b in itertools.product((False, True), repeat=4)],
        "s(": [(torch.tensor(b), s) for b in itertools.product((False, True), repeat=2)],
        "big(": [(torch.tensor(b), big) for b in itertools.product((False, True), repeat=3)],
        "age(": [(torch.tensor(v), age) for v in itertools.product(range(1, 4), repeat=2)],
    }
    names = [*names, *(["age("] if "age(" not in names and "age(" in formula else [])]
    total = torch.zeros(posed.shape, dtype=torch.float64)
    for choice in itertools.product(*[listed[n] for n in names]):
        p = 1.0
        crisp: dict[str, Any] = {
            "f": torch.zeros(2, 2).bool(),
            "s": torch.zeros(2).bool(),
            "big": torch.zeros(3).bool(),
        }
        crisp |= {"age": torch.ones(2).long(), "next": lambda n: n + 1}
        for name, (value, table) in zip(names, choice, strict=True):
            crisp[name.rstrip("(")] = value
            if value.dtype == torch.bool:
                p *= torch.where(value, table, 1 - table).prod().item()
            else:
                p *= table[torch.arange(2), value - 1].prod().item()
        holds = truth(kb["rule"], Interpretation(kb, **crisp), keep=posed.variables)
        total += p * holds.double()
    torch.testing.assert_close(found, total)


def test_ten_thousand_rows_are_one_problem() -> None:
    kb, world = seen_sums()
    pairs = sums(10_000)
    pairs["left"].requires_grad_()
    loss = -log_prob(kb["sum"], world, {"pairs": pairs})
    (gradient,) = torch.autograd.grad(loss.sum(), pairs["left"])
    belief = Belief.from_logits(torch.stack([pairs["left"], pairs["right"]], 1))
    output = torch.stack([pairs["sum"] // 10, pairs["sum"] % 10], -1)
    expected = BruteForce(addition(1)).loss(belief, output)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected.sum(), pairs["left"]))
    (first,), (second,) = (pose(kb.axioms, world, {"pairs": sums(n, seed=n)}) for n in (17, 10))
    assert first.batches[0].problem is second.batches[0].problem  # a second call makes nothing
    together = log_prob(kb["sum"], world, {"pairs": sums(100)}, whole=True)
    torch.testing.assert_close(together, log_prob(kb["sum"], world, {"pairs": sums(100)}).sum())


def test_numbers_that_no_world_gives_are_certainly_false() -> None:
    kb, world = seen_sums()
    pairs = sums(8)
    for values in ([3] * 8, [3, 4] * 4, [18, 40] * 4, [-1, 3] * 4):
        pairs["sum"] = torch.tensor(values)
        belief = Belief.from_logits(torch.stack([pairs["left"], pairs["right"]], 1))
        output = torch.stack([pairs["sum"] // 10, pairs["sum"] % 10], -1)
        output = output.clamp(torch.tensor([0, 0]), torch.tensor([1, 9]))
        wrong = (pairs["sum"] > 18) | (pairs["sum"] < 0)
        expected = BruteForce(addition(1)).log_prob(belief, output).masked_fill(wrong, -math.inf)
        torch.testing.assert_close(log_prob(kb["sum"], world, {"pairs": pairs}), expected)
        (posed,) = pose(kb.axioms, world, {"pairs": pairs})
        assert not posed.holds.any()
        assert sum(len(batch.instances) for batch in posed.batches) == int((~wrong).sum())


def test_an_image_that_comes_twice_is_one_variable() -> None:
    kb, world = seen_sums()
    images = torch.randn(3, 10, dtype=torch.float64)
    p = images.softmax(-1)
    same = {"left": torch.tensor([0, 0]), "right": torch.tensor([0, 1]), "sum": torch.tensor([8, 8])}
    both = log_prob(kb["sum"], world, {"Image": images, "pairs": same}).exp()
    assert both[0].item() == pytest.approx(p[0, 4].item())
    assert both[1].item() == pytest.approx(sum(p[0, i] * p[1, 8 - i] for i in range(9)).item())
    # The rows agree that image 0 is a 4, so the second one adds only that image 1 is a 4 too.
    joint = log_prob(kb["sum"], world, {"Image": images, "pairs": same}, whole=True).exp()
    assert joint.item() == pytest.approx((p[0, 4] * p[1, 4]).item())
    # Features in two places of the data are two images, also if they are equal.
    twins = {"left": images[:1], "right": images[:1], "sum": torch.tensor([8])}
    apart = log_prob(kb["sum"], world, {"pairs": twins}).exp()
    assert apart.item() == pytest.approx(sum(p[0, i] * p[0, 8 - i] for i in range(9)).item())


def test_fresh_draws_are_independent() -> None:
    kb = parse(
        "sort Image; sort Bit = 0..1; func bit(Image) -> Bit; [r] forall x: Image. bit(x) = 1 & fresh bit(x) = 1"
    )
    world = Interpretation(kb, bit=probs(torch.tensor([[0.4, 0.6]])))
    assert log_prob(kb["r"], world, {"Image": 1}).exp().item() == pytest.approx(0.36)


def test_certain_knowledge_and_no_data() -> None:
    kb = parse("sort D = 0..3; sort I; func f(I) -> D; data r(x: I, n: Int); [r] forall p in r. p.n > 0 & f(p.x) >= 0")
    world = Interpretation(kb, f=logits(torch.nn.Linear(2, 4)))
    data = {"x": torch.zeros(3, 2), "n": torch.tensor([1, 0, 2])}
    torch.testing.assert_close(log_prob(kb["r"], world, {"r": data}), torch.tensor([0.0, -math.inf, 0.0]))
    empty = {"x": torch.zeros(0, 2), "n": torch.zeros(0).long()}
    assert log_prob(kb["r"], world, {"r": empty}).shape == (0,)
    assert log_prob(kb["r"], world, {"r": empty}, whole=True).item() == 0.0


def test_guards_say_which_instances_there_are() -> None:
    kb = parse("sort I; pred a(I); pred b(I); [r] forall x, y: I where a(x) & x != y. b(x) | b(y)")
    b = torch.tensor([0.5, 0.25, 0.125])
    world = Interpretation(kb, a=torch.tensor([True, False, True]), b=probs(b))
    (posed,) = pose(kb.axioms, world, {"I": 3})
    assert posed.passes.reshape(3, 3).tolist() == [[False, True, True], [False] * 3, [True, True, False]]
    soft = Interpretation(kb, a=probs(torch.tensor([0.5, 0.0, 1.0])), b=probs(b))  # not known: an implication
    (posed,) = pose(kb.axioms, soft, {"I": 3})
    assert posed.passes.all()
    assert log_prob(kb["r"], soft, {"I": 3}).exp()[0, 1].item() == pytest.approx(1 - 0.5 * 0.5 * 0.75)


def test_a_variable_over_the_objects_of_a_row_makes_an_instance() -> None:
    kb = parse(
        "sort I; data scenes(objects: I*, k: Int); pred b(I); [r] forall s in scenes, x in s.objects. b(x) | s.k > 1"
    )
    b = torch.tensor([0.5, 0.25, 0.125, 0.75])
    scenes = {"objects": Ragged(torch.tensor([0, 1, 2, 3]), [1, 0, 3]), "k": torch.tensor([0, 0, 1])}
    world = Interpretation(kb, b=probs(b))
    torch.testing.assert_close(log_prob(kb["r"], world, {"I": 4, "scenes": scenes}).exp(), b)
    scenes["k"] = torch.tensor([0, 0, 2])
    expected = torch.tensor([0.5, 1.0, 1.0, 1.0])
    torch.testing.assert_close(log_prob(kb["r"], world, {"I": 4, "scenes": scenes}).exp(), expected)


def test_samples_are_drawn_anew_from_the_generator() -> None:
    kb = parse("sort I; pred b(I); [r] forall x, y: I sample 3. b(x) | b(y)")
    world = Interpretation(kb, b=probs(torch.linspace(0.1, 0.9, 9)))
    first, again, other = (
        pose(kb.axioms, world, {"I": 9}, generator=torch.Generator().manual_seed(seed))[0] for seed in (0, 0, 1)
    )
    assert first.shape == (3, 3)

    def beliefs(posed: PosedAxiom) -> list[Any]:
        return [b.belief.probs.tolist() for b in posed.batches]

    assert beliefs(first) == beliefs(again) != beliefs(other)


FUNCTIONS = {
    "Int": ("func f(Digit, Digit) -> Int", "f(digit(p.a), digit(p.b)) = p.n", lambda a, b: 3 * a + b),
    "Digit": ("func f(Digit, Digit) -> Digit", "f(digit(p.a), digit(p.b)) = p.n", lambda a, b: (a + b) % 4),
    "Real": ("func f(Digit, Digit) -> Real", "f(digit(p.a), digit(p.b)) < p.n", lambda a, b: a / 2 + b),
    "Int to Int": ("func f(Int) -> Int", "f(digit(p.a) + digit(p.b)) = p.n", lambda n: n * n),
    "of the data": ("func f(Int, Digit) -> Int", "f(p.n, digit(p.b)) >= digit(p.a)", lambda n, d: n - d),
    "predicate": ("pred f(Digit, Digit)", "f(digit(p.a), digit(p.b)) <-> p.n > 1", lambda a, b: a > b),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_python_functions_of_any_sort(name: str) -> None:
    declared, formula, function = FUNCTIONS[name]
    kb = parse(
        f"sort Image; sort Digit = 0..3; func digit(Image) -> Digit; {declared}; data rows(a: Image, b: Image, n: Int);"
        f"[r] forall p in rows. {formula}"
    )
    images = torch.randn(2, 5, 4, dtype=torch.float64)
    n = torch.tensor([1, 2, 0, 3, 4])
    world = Interpretation(kb, digit=logits(lambda image: image), f=function)
    found = log_prob(kb["r"], world, {"rows": {"a": images[0], "b": images[1], "n": n}}).exp()
    p, q = images.softmax(-1)

    def holds(a: int, b: int, k: int) -> bool:
        return {
            "Int": lambda: function(a, b) == k,
            "Digit": lambda: function(a, b) == k,
            "Real": lambda: function(a, b) < k,
            "Int to Int": lambda: function(a + b) == k,
            "of the data": lambda: function(k, b) >= a,
            "predicate": lambda: function(a, b) == (k > 1),
        }[name]()

    expected = [sum(p[i, a] * q[i, b] for a in range(4) for b in range(4) if holds(a, b, int(n[i]))) for i in range(5)]
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64))


def test_refusals_are_clear() -> None:
    other = parse(
        "sort I; sort D = 0..3; func f(I) -> D; [q] forall x: I. 3 // f(x) > 1; [s] forall x: I sample 2. f(x) > 1"
    )
    seen = Interpretation(other, f=logits(torch.zeros(4, 4)))
    (posed,) = pose([other["q"]], seen, {"I": 4})
    assert posed.batches[0].partial == [0]  # dividing by 0 has no value
    with pytest.raises(KnowledgeError, match="random sample"):
        pose([other["s"]], seen, {"I": 4}, whole=True)
    wide = parse("sort I; sort D = 0..1999; func f(I) -> D; data r(a: I, b: I); [r] forall p in r. f(p.a) * f(p.b) = 7")
    world = Interpretation(wide, f=logits(torch.nn.Linear(1, 2000)))
    rows = {"a": torch.zeros(1, 1), "b": torch.zeros(1, 1)}
    (posed,) = pose(wide.axioms, world, {"r": rows}, limit=1 << 22)
    assert posed.batches[0].problem.world == (2000, 2000)


def test_terms_too_large_to_list_are_computed() -> None:
    """Numbers of fifteen digits: the problem is a program, which sampling calls."""
    kb = parse("""
        sort Image
        sort Digit = 0..9
        data sums(a: Image*, b: Image*, sum: Int)
        func digit(Image) -> Digit
        [product] forall p in sums.
            (1000 * digit(p.a[0]) + 100 * digit(p.a[1]) + 10 * digit(p.a[2]) + digit(p.a[3]))
            * (1000 * digit(p.b[0]) + 100 * digit(p.b[1]) + 10 * digit(p.b[2]) + digit(p.b[3])) + 5 = p.sum
        [less] forall p in sums. digit(p.a[0]) * 7 < digit(p.b[0]) | p.sum > 3
    """)
    digits = torch.randint(10, (6, 8), generator=torch.Generator().manual_seed(0))
    images = torch.nn.functional.one_hot(digits, 10).double()
    powers = torch.tensor([1000, 100, 10, 1])
    total = (digits[:, :4] * powers).sum(1) * (digits[:, 4:] * powers).sum(1) + 5
    total[3:] += torch.tensor([1, -1, 0])
    world = Interpretation(kb, digit=probs(lambda image: image))
    data = {"sums": {"a": images[:, :4], "b": images[:, 4:], "sum": total}}
    (posed,) = pose([kb["product"]], world, data)
    (batch,) = posed.batches
    assert batch.problem.world == (10,) * 8 and batch.problem.factors is None
    holds = (batch.problem(digits, batch.given) == batch.observed).all(-1)
    assert holds.tolist() == [True, True, True, False, False, True]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "formula", ["forall x: I. exists y: I. b(y) | a(x)", "forall x, y: I. a(x) | b(y)", "exists x: I. a(x) & b(x)"]
)
def test_data_of_other_sizes_pose_other_problems(formula: str, whole: bool) -> None:
    kb = parse(f"sort I; pred a(I); pred b(I); [r] {formula}")
    scores = torch.randn(2, 9, generator=torch.Generator().manual_seed(0))
    bound = {"a": probs(lambda i: scores[0].sigmoid()[i.long()]), "b": probs(lambda i: scores[1].sigmoid()[i.long()])}
    kept = Interpretation(kb, **bound)
    for n in (3, 2, 4, 3):
        new = Interpretation(kb, **bound)
        objects = {"I": torch.arange(float(n))}
        found, expected = (log_prob(kb["r"], i, objects, whole=whole) for i in (kept, new))
        torch.testing.assert_close(found, expected)
