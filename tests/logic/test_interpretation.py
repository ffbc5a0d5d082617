"""Everything that can be bound means what it says, and what does not fit is refused with the symbol's name."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import (
    Interpretation,
    Predicate,
    Sort,
    function,
    log_probs,
    logits,
    parse,
    probs,
    satisfaction,
    table,
    trainable,
    truth,
    values,
    variables,
)

KB = parse(
    """
    sort Image
    sort Digit = 1..3
    sort Colour = {red, green}
    sort Person
    const anna: Person
    const bob: Person
    const best: Digit
    const like: Colour
    const limit: Real
    pred rain
    pred is(Image, Digit)
    pred first(Digit, Image)
    pred bright(Image)
    pred same(Image, Image)
    pred friends(Person, Person)
    pred warm(Colour)
    pred odd(Digit)
    pred tall(Person, Real)
    func digit(Image) -> Digit
    func colour(Image) -> Colour
    func next(Digit) -> Digit
    func wins(Colour, Digit) -> Colour
    func mother(Person) -> Person
    func height(Person) -> Real
    func code(Image) -> Person
    data rows(left: Image, k: Int, d: Digit, c: Colour, who: Person, x: Real)
    """,
    warn=False,
)
IMAGES = torch.tensor([[2.0, -1.0, 0.5], [-3.0, 1.0, -0.5]])
x, y = variables("x y", KB.signature.sorts["Image"])
(d,) = variables("d", KB.signature.sorts["Digit"])
(c,) = variables("c", KB.signature.sorts["Colour"])
a, b = variables("a b", KB.signature.sorts["Person"])


def symbol(name: str) -> Any:
    return KB.signature.predicates.get(name) or KB.signature.functions[name]


def ask(name: str, *args: Any, **bindings: Any) -> list[Any]:
    """The table of a predicate, or for each value of a function where it has that value."""
    data = bindings.pop("data", {})
    bound = Interpretation(KB, **bindings)
    return truth(symbol(name)(*args), bound, **data).tolist()


# --- predicates ---------------------------------------------------------------------------------------------------

SIGNS = [[True, False, True], [False, True, False]]


@pytest.mark.parametrize(
    "binding",
    [
        logits(nn.Identity()),
        probs(nn.Sigmoid()),
        log_probs(nn.LogSigmoid()),
        logits(lambda image: image),
        probs(torch.sigmoid),
    ],
    ids=["logits", "probs", "log_probs", "logits of a function", "probs of a function"],
)
def test_a_family_is_one_network(binding: Any) -> None:
    assert ask("is", x, d, **{"is": binding}, data={"Image": IMAGES}) == SIGNS
    assert ask("first", d, x, first=binding, data={"Image": IMAGES}) == [list(col) for col in zip(*SIGNS, strict=True)]


def test_exclusive_values_share_one_probability() -> None:
    """A softmax, not a sigmoid: at most one value is more likely than not."""
    data = {"Image": torch.tensor([[2.0, 1.9, 1.8], [0.0, 4.0, 0.0]])}
    assert ask("is", x, d, **{"is": logits(nn.Identity())}, data=data) == [[True] * 3, [False, True, False]]
    exclusive = logits(nn.Identity(), exclusive=True)
    assert ask("is", x, d, **{"is": exclusive}, data=data) == [[False] * 3, [False, True, False]]


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_a_unary_network_may_keep_its_last_axis(shape: tuple[int, ...]) -> None:
    bright = logits(lambda image: image.sum(-1).reshape(shape))
    assert ask("bright", x, bright=bright, data={"Image": IMAGES}) == [True, False]


def test_relations_of_networks_tensors_tables_and_functions() -> None:
    tensor = torch.tensor([[True, False], [True, True]])
    pairs = {("anna", "anna"), ("bob", "anna"), ("bob", "bob")}
    for binding in (
        tensor,
        tensor.float() * 0.6 + 0.1,
        logits(tensor.float() - 0.5),
        pairs,
        table(pairs),
        table(dict.fromkeys(pairs, True)),
    ):
        assert ask("friends", a, b, friends=binding) == tensor.tolist()
    assert ask("friends", a, b, friends=lambda p, q: p >= q) == tensor.tolist()
    assert (
        ask("friends", a, b, friends=function(lambda p, q: p == "bob" or q == "anna", per_object=True))
        == tensor.tolist()
    )
    near = logits(lambda p, q: p[:, 0] - q[:, 0] + 0.5)
    features = {"anna": torch.tensor([0.0]), "bob": torch.tensor([1.0])}
    assert ask("friends", a, b, friends=near, **features) == tensor.tolist()


def test_predicates_over_finite_sorts() -> None:
    for odd in (
        torch.tensor([True, False, True]),
        {1, 3},
        lambda n: n % 2 == 1,
        function(lambda n: n != 2, per_object=True),
    ):
        assert ask("odd", d, odd=odd) == [True, False, True]
    by_name = function(lambda s: s == "red", per_object=True)
    for warm in ({"red"}, torch.tensor([0.9, 0.1]), lambda i: i == 0, by_name):
        assert ask("warm", c, warm=warm) == [True, False]
    learned = nn.Module()
    learned.scores = nn.Parameter(torch.tensor([1.0, -1.0, 1.0]))
    learned.forward = lambda: learned.scores
    assert ask("odd", d, odd=logits(learned)) == [True, False, True]


def test_propositions() -> None:
    for yes in (
        True,
        torch.tensor(True),
        0.9,
        logits(torch.tensor(3.0)),
        probs(torch.tensor(0.8)),
        lambda: torch.tensor(True),
    ):
        assert ask("rain", rain=yes) is True
    assert ask("rain", rain=0.5) is False, "not more likely than not"


# --- functions and constants --------------------------------------------------------------------------------------


def where(name: str, *args: Any, value: Any, **bindings: Any) -> list[Any]:
    data = bindings.pop("data", {})
    return truth(symbol(name)(*args).eq(value), Interpretation(KB, **bindings), **data).tolist()


def test_neural_functions_take_their_most_probable_value() -> None:
    data = {"Image": IMAGES}
    for digit in (logits(nn.Identity()), probs(nn.Softmax(-1)), log_probs(nn.LogSoftmax(-1))):
        assert where("digit", x, value=1, digit=digit, data=data) == [True, False]
        assert where("digit", x, value=2, digit=digit, data=data) == [False, True]
    assert where("digit", x, value=3, digit=probs(torch.eye(3)[[2, 0]]), data={"Image": 2}) == [True, False]


def test_functions_by_tensor_table_and_python() -> None:
    for step in (
        torch.tensor([2, 3, 1]),
        {1: 2, 2: 3, 3: 1},
        lambda n: n % 3 + 1,
        function(lambda n: n % 3 + 1, per_object=True),
    ):
        assert where("next", d, value=1, next=step) == [False, False, True]
        assert truth(symbol("next")(symbol("next")(d)).eq(d), Interpretation(KB, next=step)).tolist() == [False] * 3
    red = KB.signature.sorts["Colour"]["red"]
    entries = {(k, n): "red" if n > 1 else k for k in ("red", "green") for n in (1, 2, 3)}
    for wins in (
        entries,
        torch.tensor([[0, 0, 0], [1, 0, 0]]),
        function(lambda k, n: "red" if n > 1 else k, per_object=True),
    ):
        assert where("wins", c, d, value=red, wins=wins) == [[True, True, True], [False, True, True]]


def test_functions_between_objects() -> None:
    for mother in (
        {"anna": "bob", "bob": "anna"},
        torch.tensor([1, 0]),
        lambda i: 1 - i,
        function(lambda s: "bob" if s == "anna" else "anna", per_object=True),
    ):
        assert truth(symbol("mother")(a).eq(b), Interpretation(KB, mother=mother)).tolist() == [
            [False, True],
            [True, False],
        ]
    assert truth(symbol("height")(a) > 1.7, Interpretation(KB, height={"anna": 1.6, "bob": 1.8})).tolist() == [
        False,
        True,
    ]
    high = values(lambda p: p[:, 0])
    bound = Interpretation(KB, height=high, anna=torch.tensor([1.9]), bob=torch.tensor([1.0]))
    assert truth(symbol("height")(a) > 1.7, bound).tolist() == [True, False]


def test_a_function_without_a_value_is_noticed_where_it_is_asked() -> None:
    with pytest.raises(KnowledgeError, match=r"mother\(Person#1\) has no value"):
        truth(symbol("mother")(a).eq(a), Interpretation(KB, mother={"anna": "bob"}))
    with pytest.raises(KnowledgeError, match=r"height\(Person#0\) has no value"):
        truth(symbol("height")(a) > 1.7, Interpretation(KB, height={"bob": 1.8}))
    anna = KB.signature.constants["anna"].term
    assert truth(symbol("mother")(anna).ne(anna), Interpretation(KB, mother={"anna": "bob"}))


def test_constants() -> None:
    best, like, limit = [KB.signature.constants[n].term for n in ("best", "like", "limit")]
    assert truth(d.eq(best), Interpretation(KB, best=2)).tolist() == [False, True, False]
    assert truth(c.eq(like), Interpretation(KB, like="green")).tolist() == [False, True]
    learns = nn.Parameter(torch.tensor(1.5))
    bound = Interpretation(KB, limit=learns)
    assert truth((d > limit), bound).tolist() == [False, True, True]
    assert [id(p) for p in bound.parameters()] == [id(learns)]
    anna = KB.signature.constants["anna"].term
    assert truth(a.eq(anna), Interpretation(KB)).tolist() == [True, False], "without data, constants are the objects"
    assert truth(a.eq(anna), Interpretation(KB, anna=2), Person=3).tolist() == [False, False, True]


def test_constants_with_features_beside_the_data() -> None:
    """A trainable constant joins the network's one call, but is none of the objects that variables range over."""
    calls = []

    def near(p: Tensor, q: Tensor) -> Tensor:
        calls.append(len(p))
        return ((p - q) ** 2).sum(-1) < 1

    anna = KB.signature.constants["anna"].term
    bound = Interpretation(KB, friends=near, anna=torch.zeros(2))
    people = torch.tensor([[0.1, 0.0], [5.0, 5.0], [0.0, 0.5]])
    assert truth(symbol("friends")(a, anna), bound, Person=people).tolist() == [True, False, True]
    with pytest.raises(KnowledgeError, match="needs objects by their index"):
        truth(a.eq(anna), bound, Person=people)
    with pytest.raises(KnowledgeError, match="the table of friends needs objects by their index"):
        truth(symbol("friends")(a, anna), Interpretation(KB, friends={(0, 1)}, anna=torch.zeros(2)), Person=people)


def test_tables_with_numbers() -> None:
    """Of the numbers, only those that are listed matter; all others are alike."""
    kb = parse("""
        sort P = {u, v}
        closed pred age(P, Int)
        pred weight(Real)
        func price(Int, P) -> Int
        data rows(k: Int, x: Real)
        fact age(u, 30)
        fact age(v, -4)
        fact !age(v, 30)
        [a] forall p: P. forall r in rows. age(p, r.k)
        [u] forall r in rows. age(u, r.k) | age(v, r.k + 1)
        [b] age(u, 30) & !age(u, 31) & !age(v, 30)
        [c] forall r in rows. weight(r.x)
        [d] forall r in rows where r.k > 0. price(r.k, u) = 3
    """)
    rows = {"k": torch.tensor([30, -4, 7, -5]), "x": torch.tensor([0.5, 0.1, 2.0, 0.1])}
    bound = Interpretation(kb, weight={(0.1,), (0.5,)}, price={(30, "u"): 3})
    assert truth(kb["b"], bound)
    assert truth(kb["u"], bound, keep="r", rows=rows).tolist() == [True, False, False, True]
    assert truth(kb["a"], bound, keep=("p", "r"), rows=rows).tolist() == [
        [True, False, False, False],
        [False, True, False, False],
    ]
    assert truth(kb["c"], bound, keep="r", rows=rows).tolist() == [True, True, False, True]
    with pytest.raises(KnowledgeError, match=r"price\(7, u\) has no value"):
        truth(kb["d"], bound, rows=rows)
    weighed = Interpretation(kb)
    for known in ({(2.0,)}, {(0.1,), (0.5,), (2.0,)}):  # a table that comes with the data is read anew
        assert truth(kb["c"], weighed, rows=rows, weight=known).item() is (len(known) == 3)


def test_the_facts_of_a_closed_predicate_are_all_that_holds() -> None:
    kb = parse("""
        sort P = {u, v}
        closed pred r(P, P)
        fact r(u, v)
        fact !r(v, u)
        [a] forall x, y: P. r(x, y) <-> x = u & y = v
    """)
    assert truth(kb, Interpretation(kb))
    empty = parse("sort P = {u, v}; closed pred r(P, P); [a] forall x, y: P. !r(x, y)", warn=False)
    assert truth(empty, Interpretation(empty))


def test_facts_about_an_open_predicate_are_labels() -> None:
    kb = parse("sort P = {u, v}; pred r(P, P); fact r(u, v); fact [weight 0.5] !r(v, u); [a] forall x: P. !r(x, x)")
    likely = Interpretation(kb, r=torch.tensor([[0.1, 0.2], [0.9, 0.1]]))
    assert kb.facts[1].weight == 0.5
    assert truth(kb["a"], likely) and not truth(kb, likely)
    assert satisfaction(kb, likely)["facts"].holds == 0


# --- a module like any other --------------------------------------------------------------------------------------


def module() -> Interpretation:
    return Interpretation(
        KB,
        digit=logits(nn.Linear(3, 3)),
        bright=logits(nn.Linear(3, 1)),
        friends=torch.tensor([[0.2, 0.8], [0.9, 0.1]]),
        odd=logits(nn.Parameter(torch.zeros(3))),
        anna=trainable(4),
        next={1: 2},
        rain=True,
    )


def test_parameters_state_dict_and_dtype() -> None:
    one, two = module(), module()
    names = dict(one.named_parameters())
    assert set(names) == {
        "meanings.digit.module.weight",
        "meanings.digit.module.bias",
        "meanings.bright.module.weight",
        "meanings.bright.module.bias",
        "meanings.odd.tensor",
        "constants.anna.tensor",
    }
    two.load_state_dict(one.state_dict())
    for p, q in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(p, q)
    one.to(torch.float64)
    assert {t.dtype for t in one.parameters()} == {torch.float64}
    assert truth(symbol("bright")(x), one, Image=IMAGES.double()).shape == (2,)
    assert "unbound: " in repr(one)


def test_copies_and_pickles_forget_their_plans() -> None:
    one = Interpretation(KB, bright=logits(nn.Linear(3, 1)), odd={1})
    before = truth(symbol("bright")(x), one, Image=IMAGES)
    assert len(one.plans) == 1
    two = copy.deepcopy(one)
    three = pickle.loads(pickle.dumps(one))
    buffer = io.BytesIO()
    torch.save(one, buffer)
    buffer.seek(0)
    four = torch.load(buffer, weights_only=False)
    for other in (two, three, four):
        assert len(other.plans) == 0
        assert torch.equal(truth(symbol("bright")(x), other, Image=IMAGES), before)
    assert truth(symbol("odd")(d), three).tolist() == [True, False, False]
    with torch.no_grad():
        next(two.parameters()).neg_()
        next(two.parameters()).sub_(9)
    assert torch.equal(truth(symbol("bright")(x), one, Image=IMAGES), before), "the copy is a copy"


def test_symbols_named_like_methods_of_modules() -> None:
    from doxa.logic import KnowledgeBase

    names = ["to", "training", "forward", "items", "type", "a.b", "a_b", "a%b", "pop"]
    kb = KnowledgeBase(*[Predicate(n) for n in names])
    bound = Interpretation(kb, **{n: i % 2 == 0 for i, n in enumerate(names)})
    assert [truth(Predicate(n)(), bound).item() for n in names] == [i % 2 == 0 for i in range(len(names))]
    assert len(bound.state_dict()) == len(names)


ALL = parse(
    """
    sort Image
    sort Digit = 0..9
    sort Person
    const anna: Person
    data pairs(left: Image, right: Image, sum: Int, d: Digit)
    func digit(Image) -> Digit
    func succ(Digit) -> Digit
    pred is(Image, Digit)
    pred same(Image, Image)
    pred friends(Person, Person)
    pred near(Person, Person)
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum & is(p.left, p.d))
    [same] forall x, y: Image, d: Digit. is(x, d) & is(y, d) -> same(x, y)
    [one] forall x: Image. exactly 1 d: Digit. is(x, d) & d < 5
    [near] forall x: Person. friends(x, anna) -> exists y: Person. friends(x, y) & x != y & near(x, y)
    [own] forall x: Person. near(x, x) xor 3 + 1 = 4
    """,
    warn=False,
)


class Layer(nn.Module):
    """A linear layer whose weights are made where they shall be."""

    def __init__(self, inputs: int, outputs: int, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inputs, outputs, device=device))

    def forward(self, *xs: Tensor) -> Tensor:
        return torch.cat([t.flatten(1) for t in xs], -1) @ self.weight


def everything(device: str) -> tuple[Interpretation, dict[str, Any]]:
    cnn = Layer(16, 10, device)
    bound = Interpretation(
        ALL,
        digit=logits(cnn),
        same=logits(Layer(32, 1, device)),
        near=logits(Layer(20, 1, device)),
        friends=torch.zeros(4, 4, dtype=torch.bool, device=device),
        succ=lambda d: d + 1,
        anna=2,
        **{"is": logits(cnn)},
    )
    left, right = [torch.ones(3, 1, 4, 4, device=device) for _ in range(2)]
    numbers = torch.zeros(3, dtype=torch.int64, device=device)
    data = {
        "Image": torch.ones(6, 1, 4, 4, device=device),
        "Person": torch.ones(4, 10, device=device),
        "pairs": {"left": left, "right": right, "sum": numbers, "d": numbers},
    }
    return bound, data


def test_fake_cuda_tensors_stay_on_their_device() -> None:
    """Every tensor made on the way is made on the device of the data: mixing devices raises, also on fake ones."""
    with FakeTensorMode(), torch.no_grad():
        bound, data = everything("cuda:0")
        for chunk in (7, 2**22):
            found = truth(ALL, bound, chunk=chunk, **data)
            assert found.device == torch.device("cuda:0") and found.dtype == torch.bool
        with pytest.raises(BindingError, match="Person is on cpu, but the interpretation is on cuda:0; move"):
            truth(ALL, bound, **{**data, "Person": torch.ones(4, 10)})


def test_moving_an_interpretation() -> None:
    bound, data = everything("cpu")
    here = truth(ALL, bound, **data)
    assert here.device.type == "cpu"
    bound.to("meta")
    _, away = everything("meta")
    assert truth(ALL, bound, **away).device.type == "meta"
    with pytest.raises(BindingError, match="Image is on cpu, but the interpretation is on meta"):
        truth(ALL, bound, **data)


def test_no_gradient_is_kept_for_true_and_false() -> None:
    bound, data = everything("cpu")
    seen = []
    hook = bound.meaning("same").module.register_forward_hook(lambda m, i, o: seen.append(o.requires_grad))  # type: ignore[union-attr]
    assert not truth(ALL, bound, **data).requires_grad
    hook.remove()
    assert seen and not any(seen)


def test_sorts_may_be_asked_for_before_they_are_declared_open() -> None:
    kb = parse("sort P\npred q(P)\n[a] forall x: P. q(x)")
    with pytest.raises(BindingError, match="sort P has no objects: pass them with the data, as in P=tensor"):
        truth(kb, Interpretation(kb, q=torch.ones(3)))
    assert truth(kb, Interpretation(kb, q=torch.ones(3)), P=3)
    assert Sort("P").is_open


@pytest.mark.parametrize("hide", [lambda n: lambda x: n(x), lambda n: n.forward, lambda n: partial(n.__call__)])
def test_a_network_inside_a_function_is_pointed_out(hide: Callable[[nn.Module], Callable[..., Tensor]]) -> None:
    with pytest.warns(UserWarning, match="will not be among those of the model; give the nn.Module itself"):
        probs(hide(nn.Linear(3, 1)))
    frozen = nn.Linear(3, 1).requires_grad_(False)  # it has nothing to learn
    for harmless in (hide(frozen), torch.sigmoid, lambda x: x.sum(-1), nn.Linear(3, 1)):
        logits(harmless)
