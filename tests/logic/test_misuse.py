"""Networks and data that are wrong are refused where a symbol is read, by its name; and plans serve several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doxa.errors import BindingError, KnowledgeError
from doxa.fuzzy import FuzzyPlan
from doxa.logic import Interpretation, Ragged, logits, parse, probs, truth, values
from doxa.logic.tensor._plan import TensorPlan
from doxa.logic.tensor._symbol_values import symbol_values

KB = parse("""
    sort Image; sort Digit = 0..2
    func digit(Image) -> Digit
    pred bright(Image)
    func size(Image) -> Real
    data pairs(left: Image, right: Image, sum: Digit)
    [bright] forall x: Image. bright(x)
    [digit] forall p in pairs. digit(p.left) + digit(p.right) = p.sum
    [size] forall x: Image. size(x) > 0
""")
IMAGES = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
PAIRS = {"left": IMAGES[:2], "right": IMAGES[2:], "sum": torch.tensor([1, 2])}
NAN, INF = float("nan"), float("inf")
Net = Callable[[Tensor], Any]


def first_row(value: float) -> Net:
    """Images with their first row made something else."""
    return lambda x: torch.cat([torch.full_like(x[:1], value), x[1:]])


def ask(semantics: str, bound: Interpretation, axiom: str, data: dict[str, Any]) -> None:
    if semantics == "classical":
        truth(KB[axiom], bound, **data)
    elif semantics == "fuzzy":
        FuzzyPlan(KB[axiom], bound, "product")(**data)
    else:
        symbol_values(bound, {"digit": {0: data["pairs"]["left"]}}, {})


@pytest.mark.parametrize("semantics", ["classical", "fuzzy", "symbol_values"])
@pytest.mark.parametrize(
    ("net", "message"),
    [
        (first_row(NAN), r"digit: NaN \(not a number\) in 3 of the \d+ numbers of what the network returned on \S+"),
        (first_row(INF), r"digit: \+inf in 3 of the \d+ numbers"),
        (first_row(-INF), r"digit: what the network returned on .* is -inf for all values of some object"),
        (
            lambda x: x[:, :2],
            r"digit: for digit\(Image\) -> Digit the network should return a tensor of shape \(2, 3\)",
        ),
        (lambda x: x.unsqueeze(0), r"digit: for digit\(Image\) -> Digit the network should return"),
        (lambda x: x.half(), r"digit: wanted float32 or float64 from the network, got .*float16; call \.float\(\)"),
        (lambda x: x.bfloat16(), r"digit: wanted float32 or float64 from the network, got .*bfloat16"),
        (lambda x: x.long(), r"digit: wanted floating point numbers from the network, got .*int64"),
        (lambda x: x.to(torch.complex64), r"digit: wanted real numbers from the network, got .*complex64"),
        (lambda x: x.to_sparse(), r"digit: wanted a dense tensor from the network, got a sparse_coo tensor"),
        (lambda x: x.to("meta"), r"digit: wanted a tensor on cpu from the network, got .*it is on meta"),
        (lambda x: x.tolist(), r"digit: .* got a list"),
    ],
)
def test_what_a_network_returns(semantics: str, net: Net, message: str) -> None:
    bound = Interpretation(KB, digit=logits(net))
    with pytest.raises(BindingError, match=message):
        ask(semantics, bound, "digit", {"pairs": PAIRS})


def test_minus_infinity_is_a_probability_of_zero() -> None:
    bound = Interpretation(KB, digit=logits(lambda x: torch.where(x == x.amax(-1, keepdim=True), x, -INF)))
    ask("fuzzy", bound, "digit", {"pairs": PAIRS})
    bright = Interpretation(KB, bright=logits(lambda x: x[:, 0] * 0 - INF))
    assert FuzzyPlan(KB["bright"], bright, "godel")(Image=IMAGES) == 0


def test_large_finite_numbers_pass() -> None:
    """Their sum overflows, and all of them are finite."""
    bound = Interpretation(KB, digit=logits(lambda x: x.sign() * 3e38))
    ask("fuzzy", bound, "digit", {"pairs": PAIRS})


@pytest.mark.parametrize("semantics", ["fuzzy", "symbol_values"])
def test_the_check_can_be_turned_off(semantics: str) -> None:
    bound = Interpretation(KB, check_finite=False, digit=logits(first_row(NAN)))
    ask(semantics, bound, "digit", {"pairs": PAIRS})
    negative = Interpretation(KB, check_finite=False, bright=probs(lambda x: x[:, 0] * 0 - 1))
    FuzzyPlan(KB["bright"], negative, "godel")(Image=IMAGES)
    with pytest.raises(BindingError, match="check_finite is an option, True or False, got 3"):
        Interpretation(KB, check_finite=3)


def test_computed_numbers_and_tensors_that_learn() -> None:
    with pytest.raises(BindingError, match=r"size: NaN \(not a number\) in 1 of the 4 numbers"):
        truth(KB["size"], Interpretation(KB, size=values(lambda x: first_row(NAN)(x)[:, 0])), Image=IMAGES)
    with pytest.raises(BindingError, match=r"bright: NaN .* of the tensor"):
        Interpretation(KB, bright=logits(torch.tensor([0.0, NAN])))
    learns = nn.Parameter(torch.zeros(4))
    bound = Interpretation(KB, bright=logits(learns))
    FuzzyPlan(KB["bright"], bound, "product")(Image=4)
    learns.data[2] = NAN
    with pytest.raises(BindingError, match=r"bright: NaN .* in 1 of the 4 numbers of the tensor"):
        FuzzyPlan(KB["bright"], bound, "product")(Image=4)


def test_one_look_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sum for all that a network returns, of both fields together."""
    sums = []
    real = Tensor.item
    monkeypatch.setattr(Tensor, "item", lambda t: sums.append(t.shape) or real(t))
    plan = FuzzyPlan(KB["digit"], Interpretation(KB, digit=logits(lambda x: x)), "product")
    plan(pairs=PAIRS)
    sums.clear()
    plan(pairs=PAIRS)
    assert len(sums) == 1


def test_under_transforms_nothing_is_looked_at() -> None:
    net = nn.Linear(3, 1)
    bound = Interpretation(KB, bright=logits(net))
    plan = FuzzyPlan(KB["bright"], bound, "product", checkpoint=False)
    plan(Image=IMAGES)
    weights = {k: v.detach() for k, v in net.named_parameters()}

    def loss(weights: dict[str, Tensor], images: Tensor) -> Tensor:
        own = Interpretation(KB, bright=logits(lambda x: torch.func.functional_call(net, weights, (x,))))
        return FuzzyPlan(KB["bright"], own, "product", checkpoint=False)(Image=images)

    bad = {k: v * NAN for k, v in weights.items()}
    assert torch.func.grad(loss)(bad, IMAGES)["bias"].isnan().all()
    each = torch.vmap(loss, (None, 0))(bad, torch.stack([IMAGES, IMAGES]))
    assert each.isnan().all()
    fine = torch.vmap(loss, (None, 0))(weights, torch.stack([IMAGES, IMAGES]))
    assert torch.allclose(fine, plan(Image=IMAGES).expand(2))


def test_halves_are_welcome_under_autocast() -> None:
    bound = Interpretation(KB, bright=logits(nn.Linear(3, 1)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert FuzzyPlan(KB["bright"], bound, "product")(Image=IMAGES).dtype == torch.float32


def test_what_a_network_raises_is_passed_on() -> None:
    class Own(Exception):
        pass

    def fails(x: Tensor) -> Tensor:
        raise Own("no")

    wrong_width, wrong_dtype = nn.Linear(5, 3), nn.Linear(3, 3).double()
    for net, kind in ((fails, Own), (wrong_width, RuntimeError), (wrong_dtype, RuntimeError)):
        with pytest.raises(kind) as caught:
            ask("fuzzy", Interpretation(KB, digit=logits(net)), "digit", {"pairs": PAIRS})
        assert caught.value.__notes__ == [
            "in what digit(Image) -> Digit is bound to, called on pairs.left, pairs.right with "
            "a tensor of shape (4, 3) and dtype float32"
        ]


# --- data ---------------------------------------------------------------------------------------------------------

UNDECLARED = parse("""
    sort Image; sort Digit = 0..2; func digit(Image) -> Digit
    [digit] forall p in pairs. digit(p.left) + digit(p.right) = p.sum
""")


@pytest.mark.parametrize("kb", [KB, UNDECLARED], ids=["declared", "undeclared"])
@pytest.mark.parametrize(
    ("right", "shown"),
    [(torch.zeros(2, 5), r"\(5,\) and dtype float32"), (torch.zeros(2, 3).double(), r"\(3,\) and dtype float64")],
)
def test_fields_of_one_sort_look_alike(kb: Any, right: Tensor, shown: str) -> None:
    bound = Interpretation(kb, digit=logits(lambda x: x[:, :3]))
    message = (
        rf"Image: all objects of a sort .* pairs\.left have shape \(3,\) and dtype float32, .* pairs\.right .*{shown}"
    )
    with pytest.raises(BindingError, match=message):
        FuzzyPlan(kb["digit"], bound, "product")(pairs={**PAIRS, "right": right})


def test_two_sorts_may_share_a_network() -> None:
    kb = parse("sort A; sort B; pred p(A); pred q(B); [both] forall x: A, y: B. p(x) & q(y)")

    def total(x: Tensor) -> Tensor:
        return x.sum(-1) + 1

    bound = Interpretation(kb, p=logits(total), q=logits(total))
    assert truth(kb, bound, A=torch.zeros(2, 3), B=torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"Image": IMAGES.to_sparse()}, r"Image: wanted a dense tensor, got a sparse_coo tensor of shape \(4, 3\)"),
        ({"pairs": {**PAIRS, "left": IMAGES[:2].to_sparse()}}, r"pairs\.left: wanted a dense tensor"),
        (
            {"pairs": {**PAIRS, "sum": torch.zeros(2, 2).long()}},
            r"pairs\.sum: wanted integers of sort Digit with 1 axes",
        ),
        ({"pairs": {**PAIRS, "sum": torch.zeros(2)}}, r"pairs\.sum: wanted integers of sort Digit .* dtype float32"),
        ({"pairs": {**PAIRS, "left": Ragged(IMAGES, [2, 2])}}, r"pairs\.left holds one Image per row"),
    ],
)
def test_data(data: dict[str, Any], message: str) -> None:
    with pytest.raises(BindingError, match=message):
        ask("fuzzy", Interpretation(KB, digit=logits(lambda x: x), bright=logits(lambda x: x[:, 0])), "digit", data)


# --- division behind a guard that asks a network -------------------------------------------------------------------

DIVISION = """
    sort Image; sort Digit = 0..2; func d(Image) -> Digit
    data rows(a: Image, n: Int, m: Int)
    [all] forall p in rows{guard}. {body}
"""
ROWS = {"a": torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]]), "n": torch.tensor([4, 4]), "m": torch.tensor([2, 4])}
SEES = probs(lambda image: image)


@pytest.mark.parametrize("body", ["p.n // d(p.a) = p.m", "v := d(p.a) (p.n // v = p.m)"])
def test_a_guard_rules_zero_divisors_out(body: str) -> None:
    """The guard lets the second row through, whose digit is most likely 1; of its values 0 has no quotient."""
    kb = parse(DIVISION.format(guard=" where d(p.a) > 0", body=body))
    plan = FuzzyPlan(kb["all"], Interpretation(kb, d=SEES), "product", keep="p")
    image = ROWS["a"].clone().requires_grad_()
    found = plan(rows={**ROWS, "a": image})
    assert torch.allclose(found, torch.tensor([1.0, 0.6]))  # 4 // 1 = 4; 4 // 2 is not
    found[1].backward()
    assert torch.allclose(image.grad, torch.tensor([[0.0, 0, 0], [0, 1, 0]]))


@pytest.mark.parametrize("guard", ["", " where d(p.a) < 2", " where p.n > 0"])
def test_a_guard_that_lets_zero_through_is_an_error(guard: str) -> None:
    kb = parse(DIVISION.format(guard=guard, body="p.n // d(p.a) = p.m"))
    with pytest.raises(KnowledgeError, match=r"axiom 'all': p\.n // d\(p\.a\) divides by zero; guard it with"):
        FuzzyPlan(kb["all"], Interpretation(kb, d=SEES), "product")(rows=ROWS)


def test_a_guard_on_another_object_of_the_same_name() -> None:
    body = "forall p in rows. p.n // d(p.a) = p.m"
    kb = parse(DIVISION.format(guard=" where d(p.a) > 0", body=body), warn=False)
    with pytest.raises(KnowledgeError, match="divides by zero"):
        FuzzyPlan(kb["all"], Interpretation(kb, d=SEES), "product")(rows=ROWS)


# --- random batches and threads -------------------------------------------------------------------------------------


def test_plans_may_share_what_they_draw() -> None:
    kb = parse("""
        sort P; pred p(P); pred q(P)
        [body] forall x: P sample 5 where q(x). p(x)
        [guard] forall x: P sample 5. q(x)
    """)
    truths = torch.rand(100, generator=torch.Generator().manual_seed(0)) < 0.5
    bound = Interpretation(kb, p=~truths, q=truths)
    body, guard = (TensorPlan(kb[name], bound, keep="x") for name in ("body", "guard"))
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        batch, samples = bound.read({"P": 100}), {}
        value = body.run(batch, generator, samples=samples)
        passes = guard.run(batch, generator, samples=samples)
        assert torch.equal(value, ~passes), "false exactly where the guard lets it through"


@pytest.mark.parametrize("semantics", ["classical", "fuzzy"])
def test_eight_threads_share_an_interpretation(semantics: str) -> None:
    """New sizes, guards that are kept, named tables and few places in the caches, all at once."""
    kb = parse("""
        sort P; pred near(P, P); pred seen(P, P); pred p(P); pred r(P, P)
        [guard] forall x, y: P where near(x, y). p(x) -> p(y)
        [pairs] forall x, y: P where seen(x, y). r(x, y) | p(x)
        [chain] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)
    """)
    near = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    net = nn.Linear(3, 1)

    def relation(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(-1)

    def interpretation() -> Interpretation:
        return Interpretation(kb, seen={(0, 1), (2, 3)}, p=logits(net), r=logits(relation))

    def value(bound: Interpretation, size: int) -> Tensor:
        images = torch.linspace(-1, 1, size * 3).view(size, 3).sin()
        data = {"P": images, "near": near.repeat(2, 2)[:size, :size]}
        if semantics == "classical":
            return torch.stack([truth(a, bound, **data) for a in kb.axioms])
        from doxa.fuzzy import valuation

        return valuation(kb, bound, "product", **data).values.detach()

    sizes = [4, 6, 8, 10]
    wanted = {n: value(interpretation(), n) for n in sizes}
    bound = interpretation()
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            start.wait()
            for turn in range(12):
                n = sizes[(turn + number) % len(sizes)]
                found = value(bound, n)
                if not torch.equal(found, wanted[n]):
                    wrong.append((n, found, wanted[n]))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
