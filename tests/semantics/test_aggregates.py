"""Aggregates under every semantics: against enumeration of worlds, on generated knowledge and ragged data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import doxa
from doxa.errors import KnowledgeError, ProblemError
from doxa.logic import ground
from doxa.logic.syntax._simplify import evaluate

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning", "ignore::UserWarning")

HEAD = """
sort Image
sort Digit = 0..2
func digit(Image) -> Digit
pred red(Image)
data rows(items: Image*, other: Image*, n: Int)
"""
Item = tuple[int, bool]
Judge = Callable[[list[Item], list[Item], int], bool]


def extreme(kind: str, values: list[int]) -> float:
    return max(values, default=-math.inf) if kind == "max" else min(values, default=math.inf)


TERMS: dict[str, Callable[[list[Item]], float]] = {
    "sum x in r.{0}. digit(x)": lambda xs: sum(d for d, _ in xs),
    "sum x in r.{0}. digit(x) * 2 - 1": lambda xs: sum(2 * d - 1 for d, _ in xs),
    "sum x in r.{0} where red(x). digit(x)": lambda xs: sum(d for d, red in xs if red),
    "count x in r.{0}": len,
    "count x in r.{0} where red(x)": lambda xs: sum(red for _, red in xs),
    "count x in r.{0} where (digit(x) > 0 & !red(x))": lambda xs: sum(d > 0 and not red for d, red in xs),
    "count x, y in r.{0} where (digit(x) < digit(y))": lambda xs: sum(a < b for (a, _), (b, _) in product(xs, xs)),
    "max x in r.{0}. digit(x)": lambda xs: extreme("max", [d for d, _ in xs]),
    "min x in r.{0} where red(x). digit(x)": lambda xs: extreme("min", [d for d, red in xs if red]),
    "min x in r.{0}. max y in r.{0}. digit(x) + digit(y)": lambda xs: extreme(
        "min", [max(a + b for b, _ in xs) for a, _ in xs]
    ),
    "sum x in r.{0}. r.n": lambda xs: math.nan,  # filled in below, for it needs n
}


def atom(random: Random) -> tuple[str, Judge]:
    """A comparison of an aggregate with a number, the field or another aggregate, and what it says in Python."""
    if random.random() < 0.15:
        field = random.choice(["items", "other"])
        some = (lambda a, b, n: a) if field == "items" else (lambda a, b, n: b)

        def different(a: list[Item], b: list[Item], n: int) -> bool:
            digits = [d for d, _ in some(a, b, n)]
            return len(set(digits)) == len(digits)

        return f"(all_different x in r.{field}. digit(x))", different
    sides: list[tuple[str, Callable[[list[Item], list[Item], int], float]]] = []
    for _ in range(2):
        text = random.choice(list(TERMS))
        term, field = TERMS[text], random.choice(["items", "other"])
        known = text.endswith("r.n")

        def value(
            a: list[Item], b: list[Item], n: int, term: Any = term, field: Any = field, known: Any = known
        ) -> float:
            xs = a if field == "items" else b
            return len(xs) * n if known else term(xs)

        sides.append((f"({text.format(field)})", value))
    k = random.randint(0, 3)
    sides[1] = random.choice([sides[1], (str(k), lambda a, b, n: k), ("r.n", lambda a, b, n: n)])
    sign, holds = random.choice([("=", "=="), ("<", "<"), (">=", ">="), ("!=", "!=")])
    compare = eval(f"lambda p, q: p {holds} q")
    (left, one), (right, two) = sides
    return f"{left} {sign} {right}", lambda a, b, n: bool(compare(one(a, b, n), two(a, b, n)))


def axioms(seed: int) -> tuple[str, Judge]:
    random = Random(seed)
    (left, one), (right, two) = atom(random), atom(random)
    sign, how = random.choice(
        [("&", lambda p, q: p and q), ("|", lambda p, q: p or q), ("->", lambda p, q: not p or q)]
    )
    return f"[a] forall r in rows. {left} {sign} {right}", lambda a, b, n: how(one(a, b, n), two(a, b, n))


def worlds(digits: Tensor, reds: Tensor) -> Iterator[tuple[Tensor, list[Item]]]:
    """Every world of some items, with its probability."""
    count = len(digits)
    for values in product(range(3), repeat=count):
        for marks in product((False, True), repeat=count):
            prob = torch.ones((), dtype=digits.dtype)
            for i in range(count):
                prob = prob * digits[i, values[i]] * (reds[i] if marks[i] else 1 - reds[i])
            yield prob, list(zip(values, marks, strict=True))


def data(seed: int, lengths: list[int], others: list[int]) -> tuple[dict[str, Any], torch.Generator]:
    random = torch.Generator().manual_seed(seed)
    features = torch.randn(sum(lengths) + sum(others), 3, generator=random, dtype=torch.float64)
    split = sum(lengths)
    rows = {
        "items": doxa.Ragged(features[:split], lengths),
        "other": doxa.Ragged(features[split:], others),
        "n": torch.randint(0, 4, (len(lengths),), generator=random),
    }
    return rows, random


class Sees(torch.nn.Module):
    def __init__(self, size: int, random: torch.Generator, sharp: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, size, generator=random, dtype=torch.float64))
        self.sharp = sharp

    def forward(self, x: Tensor) -> Tensor:
        found = self.sharp * x @ self.weight
        return found if found.shape[-1] > 1 else found.squeeze(-1)


LENGTHS = [2, 0, 1, 2], [0, 1, 1, 2]


@pytest.mark.parametrize("seed", range(24))
def test_generated_knowledge_against_all_worlds(seed: int) -> None:
    text, judge = axioms(seed)
    rows, random = data(seed, *LENGTHS)
    digit, red = Sees(3, random), Sees(1, random)
    model = doxa.Model(HEAD + text, "exact", digit=doxa.logits(digit), red=doxa.logits(red)).double()
    found = model.truth(rows=rows, per_row=True)["a"]
    expected = []
    for r in range(4):
        parts = [worlds(digit(x).softmax(-1), red(x).sigmoid()) for x in (rows["items"][r], rows["other"][r])]
        first, second = [list(part) for part in parts]
        total = torch.zeros((), dtype=torch.float64)
        for p, a in first:
            for q, b in second:
                if judge(a, b, int(rows["n"][r])):
                    total = total + p * q
        expected.append(total)
    torch.testing.assert_close(found.double(), torch.stack(expected))
    parameters = [digit.weight, red.weight]
    gradients = [
        torch.autograd.grad(value.sum(), parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        if value.requires_grad
        else tuple(torch.zeros_like(p) for p in parameters)
        for value in (found, torch.stack(expected))
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("how", ["classical", "product", "godel", "lukasiewicz", "refined"])
def test_on_certain_networks_all_say_the_same(seed: int, how: str) -> None:
    text, judge = axioms(seed)
    rows, random = data(seed, *LENGTHS)
    digit, red = Sees(3, random, 1e5), Sees(1, random, 1e5)
    semantics = {"classical": doxa.Classical(), "refined": doxa.Refined()}.get(how) or doxa.Fuzzy(how)
    model = doxa.Model(HEAD + text, semantics, digit=doxa.logits(digit), red=doxa.logits(red)).double()
    found = model.truth(rows=rows, per_row=True)["a"]
    for r in range(4):
        both = [
            [(int(d), bool(m)) for d, m in zip(digit(x).argmax(-1), red(x) > 0, strict=True)]
            for x in (rows["items"][r], rows["other"][r])
        ]
        assert float(found[r]) == pytest.approx(float(judge(*both, int(rows["n"][r]))), abs=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_grounded_knowledge_has_the_same_models(seed: int) -> None:
    """What is unfolded over ground atoms says what enumeration of worlds says."""
    text, judge = axioms(seed)
    n = seed % 4
    rows = [{"items": ("a", "b"), "other": ("c",), "n": n}]
    theory = ground(doxa.parse(HEAD + text), domains={"rows": rows, "Image": ["a", "b", "c"]})
    names = ["a", "b", "c"]
    for values in product(range(3), repeat=3):
        for marks in product((False, True), repeat=3):
            items = dict(zip(names, zip(values, marks, strict=True), strict=True))
            truth = {}
            for x in theory.atoms:
                shown = str(x)
                name = shown[shown.index("(") + 1]
                value, mark = items[name]
                truth[x] = mark if shown.startswith("red") else shown.endswith(f"= {value}")
            expected = judge([items["a"], items["b"]], [items["c"]], n)
            assert bool(evaluate(theory.axioms["a"], truth)) == expected


def model_of(text: str, how: Any = "exact", seed: int = 0, size: int = 3, **more: Any) -> tuple[doxa.Model, Sees]:
    random = torch.Generator().manual_seed(seed)
    digit, red = Sees(size, random), Sees(1, random)
    head = HEAD.replace("0..2", f"0..{size - 1}")
    return doxa.Model(head + text, how, digit=doxa.logits(digit), red=doxa.logits(red), **more).double(), digit


def test_a_field_that_equals_an_aggregate_is_predicted_and_explained() -> None:
    model, digit = model_of("[a] forall r in rows. (sum x in r.items. digit(x)) = r.n")
    rows, _ = data(1, *LENGTHS)
    found = model.predict("rows.n", rows={k: v for k, v in rows.items() if k != "n"})
    for r, x in enumerate([rows["items"][i] for i in range(4)]):
        sums = torch.zeros(5, dtype=torch.float64)
        for p, items in worlds(digit(x).softmax(-1), torch.zeros(len(x), dtype=torch.float64)):
            sums[sum(d for d, _ in items)] += p.detach()
        assert int(found.values[r]) == int(sums.argmax())
    rows["n"] = found.values
    for explanation in model.explain(rows=rows, k=2):
        r = explanation.instance["r"]
        for world in explanation.worlds:
            assert len(world.values) == len(rows["items"][r])
            assert sum(world.values.values()) == int(found.values[r])


def test_argmax_is_the_first_and_an_object() -> None:
    text = "[a] forall r in rows. red(argmax x in r.items. digit(x))"
    rows, _ = data(3, [2, 1, 2], [0, 0, 0])
    for how in ("exact", "classical", "product"):
        model, digit = model_of(text, doxa.Fuzzy(how) if how == "product" else how, seed=5)
        found = model.truth(rows=rows, per_row=True)["a"]
        (red,) = [p for p in model.parameters() if p.shape[-1] == 1]
        for r in range(3):
            x = rows["items"][r]
            marks = (x @ red).sigmoid().squeeze(-1)
            if how == "exact":
                expected = 0.0
                for p, items in worlds(digit(x).softmax(-1), marks):
                    best = max(range(len(items)), key=lambda i: (items[i][0], -i))
                    expected += float(p) * items[best][1]
                assert float(found[r]) == pytest.approx(expected)
            elif how == "classical":
                assert bool(found[r]) == bool(marks[digit(x).argmax(-1).argmax()] > 0.5)
    model, _ = model_of("[a] forall r in rows. red(argmax x in r.items. 1)", "classical")  # all are equal
    (red,) = [p for p in model.parameters() if p.shape[-1] == 1]
    first = torch.stack([rows["items"][r][0] for r in range(3)])
    assert torch.equal(model.truth(rows=rows, per_row=True)["a"].bool(), (first @ red).squeeze(-1) > 0)


@pytest.mark.parametrize("how", ["classical", "exact", "product", "sampled"])
def test_nothing_to_choose_from_is_an_error(how: str) -> None:
    model, _ = model_of(
        "[a] forall r in rows. red(argmin x in r.items. digit(x))", doxa.Fuzzy(how) if how == "product" else how
    )
    rows, _ = data(0, [0, 0], [1, 1])
    with pytest.raises(KnowledgeError, match=r"nothing to choose|no value"):
        model.truth(rows=rows)


def test_nothing_is_a_sum_of_zero_and_extremes_are_infinite() -> None:
    rows, _ = data(0, [0, 0], [1, 1])
    text = """[sum] forall r in rows. (sum x in r.items. digit(x)) = 0 & (count x in r.items) = 0
    [max] forall r in rows. (max x in r.items. digit(x)) < 0 & !((max x in r.items. digit(x)) >= 0)
    [min] forall r in rows. (min x in r.items. digit(x)) > r.n
    [different] forall r in rows. all_different x in r.items. digit(x)"""
    for how in ("classical", "exact", doxa.Fuzzy("product"), "refined", "sampled"):
        model, _ = model_of(text, how)
        assert all(float(v) == pytest.approx(1.0, abs=1e-6) for v in model.truth(rows=rows).values())


# --- arithmetic on the min and max of nothing ---------------------------------------------------------------------

SEMANTICS = ["classical", "fuzzy:godel", "fuzzy:product", "fuzzy:log_product", "exact", "sampled", "refined"]
LEAST, MOST = "(min y: S where c(y). y)", "(max y: S where c(y). y)"
INFINITIES = {
    f"(sum x: S. {LEAST}) > 5": 1,
    f"(sum x: S. {MOST}) < 3": 1,
    f"{LEAST} * 2 > 0": 1,
    f"{LEAST} * (0 - 2) < 0": 1,
    f"{LEAST} * {MOST} < 0": 1,
    f"{LEAST} - 1 = {LEAST}": 1,
    f"{LEAST} + 1.5 = {LEAST}": 1,
    f"{LEAST} - {MOST} = {LEAST}": 1,
    f"-{LEAST} = {MOST}": 1,
    f"{MOST} // 2 < 0": 1,
    f"{LEAST} // 2 > 5": 1,
    f"{LEAST} // (0 - 2) = {MOST}": 1,
    f"{MOST} + 1 >= 0": 0,
    f"(max x: S. {MOST} + x) < 0": 1,
    f"{LEAST} - {LEAST} = 0": None,
    f"{LEAST} + {MOST} = 0": None,
    f"0 * {LEAST} = 0": None,
    f"{MOST} mod 2 = 0": None,
    f"3 mod {LEAST} = 3": None,
    f"3 // {LEAST} = 0": None,
    f"(sum x: S. {LEAST} * (1 - x)) > 0": None,
    f"(sum x: S where x != 1. {LEAST} * (1 - x)) > 0": None,
    "(argmax x: S where c(x). x) >= 0": None,
}


@pytest.mark.parametrize("how", SEMANTICS)
@pytest.mark.parametrize("kind", ["known", "believed"])
def test_infinity_has_one_arithmetic(how: str, kind: str) -> None:
    c = torch.zeros(3).bool() if kind == "known" else doxa.probs(torch.zeros(3))
    for text, expected in INFINITIES.items():
        model = doxa.Model(f"sort S = 0..2\npred c(S)\n[q] {text}", how, c=c)
        if expected is None:
            with pytest.raises(KnowledgeError, match=r"no value|nothing to choose"):
                model.truth()
        else:
            assert float(model.truth()["q"]) == pytest.approx(expected, abs=1e-6), text


def test_infinity_over_ground_atoms() -> None:
    for text, expected in INFINITIES.items():
        kb = doxa.parse(f"sort S = 0..2\npred c(S)\n[q] {text}")
        if expected is None or text.startswith(f"{LEAST} * {MOST}"):  # 0 * inf, if both were free
            with pytest.raises(KnowledgeError, match=r"no value|not defined|divides by zero"):
                ground(kb)
        else:
            theory = ground(kb)
            assert bool(evaluate(theory.axioms["q"], dict.fromkeys(theory.atoms, False))) == bool(expected), text


@pytest.mark.parametrize("how", ["classical", "fuzzy:godel"])
def test_infinity_is_the_same_among_whole_and_real_numbers(how: str) -> None:
    head = "sort S = 0..2\npred c(S)\nfunc w(S) -> Real\n"
    real = "(min y: S where c(y). w(y))"
    for text in (f"{real} = {LEAST}", f"-{real} = {MOST}", f"{real} + {LEAST} > 5", f"{real} * 2 = {LEAST} // 2"):
        model = doxa.Model(f"{head}[q] {text}", how, c=torch.zeros(3).bool(), w=torch.rand(3))
        assert float(model.truth()["q"]) == 1
    model = doxa.Model(f"{head}[q] {real} - {LEAST} = 0", how, c=torch.zeros(3).bool(), w=torch.rand(3))
    with pytest.raises(KnowledgeError, match="no value"):
        model.truth()


@pytest.mark.parametrize("how", ["godel", "product", "lukasiewicz", "log_product"])
def test_fuzzy_argmax_wants_something_certain(how: str) -> None:
    for probs, fine in ([0.2, 0.9, 0.4], False), ([0.2, 1.0, 0.4], True), ([0.0, 0.0, 1.0], True), ([0.0] * 3, False):
        text = "sort S = 0..2\npred c(S)\n[q] (argmax x: S where c(x). x) >= 0"
        model = doxa.Model(text, doxa.Fuzzy(how), c=doxa.probs(torch.tensor(probs)))
        if fine:
            assert model.truth()["q"].isfinite()
        else:
            with pytest.raises(KnowledgeError, match="nothing to choose"):
                model.truth()


def limit(op: str, a: float | None, b: float | None) -> float | None:
    """What a op b tends to as its infinite sides grow, each at its own pace; None if that depends on how."""
    if a is None or b is None or (op in ("//", "mod") and (b == 0 or math.isinf(b))):
        return None
    found = set()
    for i, j in product((10**6, 10**9), repeat=2):
        x, y = [int(math.copysign(k, v)) if math.isinf(v) else v for v, k in ((a, i), (b, j))]
        value = {"+": x + y, "-": x - y, "*": x * y, "//": x // (y or 1), "mod": x % (y or 1)}[op]
        found.add(value if abs(value) < 10**5 else math.copysign(math.inf, value))
    if op == "mod" and math.isinf(a):
        return None
    if 0 in (a, b) and op == "*" and (math.isinf(a) or math.isinf(b)):
        return None
    return found.pop() if len(found) == 1 and not (op == "-" and math.isinf(a) and a == b) else None


def calculation(seed: int) -> tuple[str, Callable[[list[Item], list[Item], int], bool | None]]:
    """A comparison of one calculation with another number; None where it has no value."""
    random = Random(1000 + seed)
    extremes = [text for text in TERMS if text.startswith(("min", "max"))]
    left, right = random.choice(extremes), random.choice([*extremes, "sum x in r.{0}. digit(x)", "r.n", "2"])
    fields = [random.choice(["items", "other"]) for _ in range(2)]
    op, k = random.choice(["+", "-", "*", "//", "mod"]), random.randint(-1, 3)
    sign, holds = random.choice([("=", "=="), ("<", "<"), (">=", ">="), ("!=", "!=")])
    compare = eval(f"lambda p, q: p {holds} q")

    def value(text: str, field: str, a: list[Item], b: list[Item], n: int) -> float:
        if text in TERMS:
            return TERMS[text](a if field == "items" else b)
        return n if text == "r.n" else int(text)

    def judge(a: list[Item], b: list[Item], n: int) -> bool | None:
        found = limit(op, value(left, fields[0], a, b, n), value(right, fields[1], a, b, n))
        return None if found is None else bool(compare(found, k))

    sides = [f"({text.format(field)})" for text, field in zip((left, right), fields, strict=True)]
    return f"[a] forall r in rows. {sides[0]} {op} {sides[1]} {sign} {k}", judge


def single(rows: dict[str, Any], r: int) -> dict[str, Any]:
    """One row of the data."""
    parts = {name: doxa.Ragged(rows[name][r], [len(rows[name][r])]) for name in ("items", "other")}
    return {**parts, "n": rows["n"][r : r + 1]}


@pytest.mark.parametrize("seed", range(24))
def test_calculations_with_infinity_against_all_worlds(seed: int) -> None:
    text, judge = calculation(seed)
    rows, random = data(seed, *LENGTHS)
    digit, red = Sees(3, random), Sees(1, random)
    model = doxa.Model(HEAD + text, "exact", digit=doxa.logits(digit), red=doxa.logits(red)).double()
    for r in range(4):
        parts = [list(worlds(digit(x).softmax(-1), red(x).sigmoid())) for x in (rows["items"][r], rows["other"][r])]
        found = [(float(p * q), judge(a, b, int(rows["n"][r]))) for (p, a), (q, b) in product(*parts)]
        if any(holds is None for _, holds in found):
            with pytest.raises(KnowledgeError, match="no value"):
                model.truth(rows=single(rows, r))
        else:
            expected = sum(p for p, holds in found if holds)
            assert float(model.truth(rows=single(rows, r))["a"]) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize(
    "how", ["classical", "fuzzy:product", "fuzzy:godel", "fuzzy:lukasiewicz", "refined", "sampled"]
)
def test_calculations_with_infinity_on_certain_networks(seed: int, how: str) -> None:
    text, judge = calculation(seed)
    rows, random = data(seed, *LENGTHS)
    digit, red = Sees(3, random, 1e5), Sees(1, random, 1e5)
    model = doxa.Model(HEAD + text, how, digit=doxa.logits(digit), red=doxa.logits(red)).double()
    for r in range(4):
        both = [
            [(int(d), bool(m)) for d, m in zip(digit(x).argmax(-1), red(x) > 0, strict=True)]
            for x in (rows["items"][r], rows["other"][r])
        ]
        expected = judge(*both, int(rows["n"][r]))
        if expected is None:
            with pytest.raises(KnowledgeError, match=r"no value|divides by zero"):
                model.truth(rows=single(rows, r))
        else:
            assert float(model.truth(rows=single(rows, r))["a"]) == pytest.approx(float(expected), abs=1e-4)


def test_fuzzy_sums_are_the_chain_with_the_operators_of_the_logic() -> None:
    rows, _ = data(2, [2, 2], [0, 0])
    model, digit = model_of("[a] forall r in rows. (sum x in r.items. digit(x)) = 2", doxa.Fuzzy("godel"))
    found = model.truth(rows=rows, per_row=True)["a"]
    for r in range(2):
        p = digit(rows["items"][r]).softmax(-1)
        expected = max(min(float(p[0, i]), float(p[1, 2 - i])) for i in range(3))
        assert float(found[r]) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_a_hundred_outputs(kind: str) -> None:
    model, digit = model_of(f"[a] forall r in rows. ({kind} x in r.items. digit(x)) = r.n", size=10)
    random = torch.Generator().manual_seed(0)
    items = torch.randn(2, 100, 3, generator=random, dtype=torch.float64)
    n = torch.tensor([430, 17]) if kind == "sum" else torch.tensor([9, 8]) if kind == "max" else torch.tensor([0, 1])
    rows = {"items": items, "other": items[:, :0], "n": n}
    value = model.truth(rows=rows, per_row=True)["a"]
    probs = digit(items).softmax(-1)
    if kind == "sum":
        expected = []
        for row, total in zip(probs, n.tolist(), strict=True):
            state = torch.ones(1, dtype=torch.float64)
            for p in row:
                state = torch.nn.functional.conv1d(state.view(1, 1, -1), p.flip(0).view(1, 1, -1), padding=9).view(-1)
            expected.append(state[total])
        wanted = torch.stack(expected)
    else:  # products of cumulative probabilities
        below = probs.cumsum(-1) if kind == "max" else probs.flip(-1).cumsum(-1).flip(-1)
        all_below = below.prod(1)
        other = n - 1 if kind == "max" else n + 1
        rows_ = torch.arange(2)
        missing = torch.zeros(2, dtype=torch.float64)
        beyond = torch.where((other >= 0) & (other < 10), all_below[rows_, other.clamp(0, 9)], missing)
        wanted = all_below[rows_, n] - beyond
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-12)
    (gradient,) = torch.autograd.grad(value.log().sum(), digit.weight, retain_graph=True)
    (expected_gradient,) = torch.autograd.grad(wanted.log().sum(), digit.weight)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-8)


def test_too_many_values_to_be_different_are_refused_by_exact_and_sampled_by_worlds() -> None:
    rows, _ = data(0, [18], [0])
    model, _ = model_of("[a] forall r in rows. all_different x in r.items. digit(x)", size=20)
    with pytest.raises(ProblemError, match=r"(?s)no exact engine fits axiom 'a', of 18 unknowns .*semantics='sampled'"):
        model.loss(rows=rows)
    assert model.loss(semantics="sampled", rows=rows, generator=torch.Generator().manual_seed(0)).isfinite()
    small, digit = model_of("[a] forall r in rows. all_different x in r.items. digit(x)", size=8)
    x = data(0, [6], [0])[0]
    p = digit(x["items"][0]).softmax(-1)
    permanent = sum(
        math.prod(float(p[i, v]) for i, v in enumerate(choice))
        for choice in product(range(8), repeat=6)
        if len(set(choice)) == 6
    )
    assert float(small.truth(rows=x)["a"]) == pytest.approx(permanent)
