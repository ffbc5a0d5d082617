"""Mistakes in bindings and data: each is refused with the symbol's name, what came, what was wanted, and a remedy."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import (
    Interpretation,
    Ragged,
    function,
    log_probs,
    logits,
    parse,
    probs,
    table,
    truth,
    values,
)

KB = parse(
    """
    sort Image
    sort Digit = 0..9
    sort Colour = {red, green}
    sort Person
    const anna: Person
    const best: Digit
    const limit: Int
    pred rain
    pred is(Image, Digit)
    pred bright(Image)
    pred friends(Person, Person)
    pred odd(Digit)
    pred close(Person, Real)
    func digit(Image) -> Digit
    func age(Person) -> Int
    func mother(Person) -> Person
    func shade(Colour) -> Colour
    data pairs(left: Image, right: Image, sum: Digit, colour: Colour, who: Person)
    data scenes(objects: Image*)
    [digit] forall x: Image, d: Digit. is(x, d) -> digit(x) = d
    [bright] forall x: Image. bright(x)
    [friends] forall x: Person. friends(x, anna)
    [odd] forall d: Digit. odd(d)
    [sum] forall p in pairs. digit(p.left) = p.sum & p.colour = red
    [who] forall p in pairs. friends(p.who, p.who)
    [rows] forall p in others. p.left = p.right
    """,
    warn=False,
)


class Net(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image


BINDINGS: list[tuple[str, Any, str]] = [
    ("digit", Net(), r"digit: a bare Net does not say what it returns; wrap it: digit=logits\(\.\.\.\)"),
    ("is", nn.Linear(2, 2), r"is: a bare Linear does not say what it returns"),
    ("frends", {("anna", "anna")}, r"unknown symbol 'frends'; did you mean 'friends'\?"),
    ("Image", torch.zeros(3), r"Image is a sort: pass it with the data"),
    ("pairs", {}, r"pairs is data rows: pass it with the data"),
    (
        "odd",
        torch.zeros(9, dtype=torch.bool),
        r"odd: axis 0 ranges over the 10 values of Digit, but the tensor has size 9",
    ),
    (
        "odd",
        torch.zeros(10, 1, dtype=torch.bool),
        r"odd: odd\(Digit\) needs a tensor of 1 axes \(Digit\), got a tensor of shape \(10, 1\)",
    ),
    ("odd", torch.zeros(10, dtype=torch.int64), r"odd: truth values are wanted, got .*int64; use \.bool\(\)"),
    ("odd", nn.Parameter(torch.zeros(10)), r"odd: a bare parameter may leave \[0, 1\].*wrap it: logits"),
    (
        "odd",
        torch.full((10,), 1.5),
        r"odd: truth values lie in \[0, 1\], but the tensor reaches from 1\.5 to 1\.5.*logits",
    ),
    ("odd", probs(torch.full((10,), -0.5)), r"odd: truth values lie in \[0, 1\]"),
    ("odd", logits(torch.zeros(10, dtype=torch.int64)), r"odd: probabilities and logits are floating point"),
    ("odd", {10}, r"odd: 10 is no value of Digit \(0, 1, 2"),
    ("odd", {"red"}, r"odd: 'red' is no value of Digit"),
    ("odd", {(1, 2)}, r"odd: odd\(Digit\) takes 1 arguments, but the table has the tuple \(1, 2\)"),
    ("odd", table({1: 2}), r"odd\(1,\): a predicate is true or false, got 2"),
    ("odd", values(Net()), r"odd is a predicate: it needs logits"),
    ("odd", "often", r"odd: odd\(Digit\) cannot mean 'often' of type str"),
    ("odd", 3, r"odd: odd\(Digit\) cannot mean 3 of type int"),
    ("bright", logits(Net(), exclusive=True), r"bright: exclusive needs an argument of a finite sort"),
    ("friends", {("ana", "anna")}, r"friends: no constant 'ana' of sort Person; did you mean 'anna'\?"),
    ("friends", {("best", "anna")}, r"friends: no constant 'best' of sort Person; declare it: const best: Person"),
    ("friends", {(1.5, 2)}, r"friends: 1\.5 names nothing of sort Person"),
    ("friends", {(-1, 2)}, r"friends: -1 names nothing of sort Person"),
    (
        "close",
        torch.zeros(2, 2),
        r"close has an argument of sort Real, which no axis can range over; bind a",
    ),
    ("close", {(1, "far")}, r"close: 'far' names nothing of sort Real"),
    ("digit", torch.zeros(3), r"digit: wanted int64 values of Digit, got .*float32; for a distribution say probs"),
    ("digit", torch.tensor([3, 12]), r"digit: the tensor holds 12, which is no value of Digit; it has 0\.\.9"),
    ("digit", probs(torch.zeros(3, 9)), r"digit: axis 1 ranges over the 10 values of Digit"),
    (
        "digit",
        probs(torch.zeros(3)),
        r"digit: digit\(Image\) -> Digit needs a tensor of 2 axes \(Image, Digit\) \(the last is the distribution",
    ),
    ("digit", values(Net()), r"digit has values in the finite sort Digit: bind logits"),
    ("shade", torch.tensor([0, 2]), r"shade: the tensor holds 2, which is no value of Colour; give positions 0\.\.1"),
    ("shade", {"red": "blue"}, r"shade: 'blue' is no value of Colour \(red, green\)"),
    ("age", logits(Net()), r"age has values in Int, which is not finite, so it has no distribution; bind age=values"),
    ("age", torch.tensor([1.5]), r"age: wanted int64 values of Int, got"),
    ("age", {"anna": 1.5}, r"age: 1\.5 names nothing of sort Int"),
    ("anna", Net(), r"anna: a constant is a tensor, a number or a name, not a network"),
    ("anna", -1, r"anna: wanted features .* or an index into the objects of Person, got -1"),
    ("best", 10, r"best: 10 is no value of Digit"),
    ("best", "red", r"best: 'red' is no value of Digit"),
    ("limit", 1.5, r"limit: wanted one number of sort Int"),
    ("limit", True, r"limit: wanted a number of sort Int, got True"),
    ("limit", torch.zeros(2), r"limit: wanted one number of sort Int, got a tensor of shape \(2,\)"),
]


@pytest.mark.parametrize(("name", "value", "message"), BINDINGS)
def test_what_does_not_fit_a_symbol(name: str, value: Any, message: str) -> None:
    with pytest.raises(BindingError, match=message):
        Interpretation(KB, **{name: value})


def test_wrappers_refuse_what_cannot_be_called() -> None:
    with pytest.raises(BindingError, match=r"logits\(\.\.\.\) needs a network, a function or a tensor, got 3"):
        logits(3)  # type: ignore[arg-type]
    with pytest.raises(BindingError, match=r"log_probs\(\.\.\.\) needs"):
        log_probs("x")  # type: ignore[arg-type]
    with pytest.raises(BindingError, match=r"function\(\.\.\.\) needs something to call"):
        function(3)  # type: ignore[arg-type]
    with pytest.raises(BindingError, match=r"say what the network Net returns"):
        function(Net())


# --- what networks and functions return ---------------------------------------------------------------------------

IMAGES = torch.zeros(4, 10)
RETURNS: list[tuple[str, dict[str, Any], str]] = [
    (
        "bright",
        {"bright": logits(lambda x: x)},
        r"axiom 'bright': bright: for bright\(Image\) the network should return .* \(4,\) here, got shape \(4, 10\)",
    ),
    (
        "bright",
        {"bright": logits(lambda x: x[:3, 0])},
        r"should return a tensor of shape \(4,\) here, got shape \(3,\)",
    ),
    ("bright", {"bright": logits(lambda x: 3)}, r"bright: .* got a int"),
    (
        "bright",
        {"bright": lambda x: x[:, 0]},
        r"bright: the function returned float32, but a predicate is true or false; return bool, or say",
    ),
    ("bright", {"bright": logits(lambda x: x[:, 0].long())}, r"bright: wanted floating point numbers from the network"),
    (
        "digit",
        {"is": torch.zeros(4, 10), "digit": logits(lambda x: x[:, :9])},
        r"digit: for digit\(Image\) -> Digit the network should return a tensor of shape \(4, 10\)",
    ),
    (
        "digit",
        {"is": torch.zeros(5, 10), "digit": logits(lambda x: x)},
        r"is: axis 0 of its tensor has size 5, but Image has 4 objects",
    ),
    ("digit", {"digit": logits(lambda x: x)}, r"is has no meaning yet: bind it, as in Interpretation\(kb, is=\.\.\.\)"),
]


@pytest.mark.parametrize(("axiom", "bindings", "message"), RETURNS)
def test_what_networks_return(axiom: str, bindings: dict[str, Any], message: str) -> None:
    with pytest.raises(BindingError, match=message):
        truth(KB[axiom], Interpretation(KB, **bindings), Image=IMAGES)


def test_a_network_that_fails_says_where_it_was_called() -> None:
    with pytest.raises(RuntimeError) as caught:
        truth(KB["bright"], Interpretation(KB, bright=logits(nn.Linear(3, 1))), Image=IMAGES)
    assert caught.value.__notes__ == [
        "in what bright(Image) is bound to, called on Image with a tensor of shape (4, 10) and dtype float32"
    ]


def test_objects_without_features() -> None:
    with pytest.raises(BindingError, match="bright is a network on Image, but the objects of Image have no features"):
        truth(KB["bright"], Interpretation(KB, bright=logits(Net())), Image=4)
    with pytest.raises(BindingError, match="features of different shapes"):
        kb = parse("sort P\nconst a: P\nconst b: P\npred q(P)\n[q] forall x: P. q(x)")
        truth(kb, Interpretation(kb, q=logits(Net()), a=torch.zeros(2), b=torch.zeros(3)))


def test_constants_that_are_not_said() -> None:
    friends = {(0, 1)}
    with pytest.raises(BindingError, match=r"anna: the objects of Person come with the data, so say which one"):
        truth(KB["friends"], Interpretation(KB, friends=friends), Person=3)
    bound = Interpretation(KB, friends=friends, anna=2)
    truth(KB["friends"], bound, Person=3)
    with pytest.raises(BindingError, match=r"anna is object 2 of Person, which has 2 objects"):
        truth(KB["friends"], bound, Person=2)
    with pytest.raises(BindingError, match=r"friends: the table names object 5, but Person has 3 objects"):
        truth(KB["friends"], Interpretation(KB, friends={(5, 1)}, anna=2), Person=3)
    with pytest.raises(BindingError, match=r"best: Digit has no value; bind it"):
        truth(KB.signature.predicates["odd"](KB.signature.constants["best"].term), Interpretation(KB, odd={1}))
    with pytest.raises(BindingError, match=r"limit: Int has no value; bind it"):
        truth(KB.signature.constants["limit"].term > 3, Interpretation(KB))


def test_functions_that_return_several_kinds() -> None:
    odd = function(lambda d: d if d < 5 else "many", per_object=True)
    with pytest.raises(BindingError, match="odd: the function returned different kinds of values"):
        truth(KB["odd"], Interpretation(KB, odd=odd))


# --- data ---------------------------------------------------------------------------------------------------------


def pairs(**changed: Any) -> dict[str, Any]:
    two = torch.zeros(2, 10)
    zero = torch.zeros(2, dtype=torch.int64)
    return {"left": two, "right": two, "sum": zero, "colour": ["red", "red"], "who": zero, **changed}


DATA: list[tuple[str, dict[str, Any], str]] = [
    ("bright", {"Imag": IMAGES}, r"unknown data 'Imag'; did you mean 'Image'\?"),
    ("bright", {"zebra": 3}, r"unknown data 'zebra'; known are Image, Person, others, pairs"),
    ("bright", {"anna": 3}, r"anna is a constant: bind it in the interpretation"),
    ("bright", {"Digit": 3}, r"Digit: the values of this sort are known; only open sorts come with the data"),
    ("bright", {"Image": -1}, r"Image: wanted a tensor with one object of the sort per entry .* got -1"),
    ("bright", {"Image": torch.tensor(3)}, r"Image: wanted a tensor with one object"),
    ("bright", {"Image": True}, r"Image: wanted a tensor with one object .* got True"),
    ("bright", {}, r"sort Image has no objects: pass them with the data, as in Image=tensor"),
    ("sum", {}, r"axiom 'sum': the rows 'pairs' did not come with the data; pass them: pairs=dict"),
    ("sum", {"pairs": 3}, r"pairs: wanted rows as a dict or a dataclass of tensors"),
    ("sum", {"pairs": {}}, r"pairs: the field 'left' is declared but did not come"),
    ("sum", {"pairs": pairs(lefd=torch.zeros(2))}, r"pairs has no field 'lefd'; did you mean 'left'\?"),
    (
        "sum",
        {"pairs": pairs(sum=torch.zeros(3, dtype=torch.int64))},
        r"pairs: every field needs one entry per row, but 'left' has 2 and 'sum' has 3",
    ),
    (
        "sum",
        {"pairs": pairs(sum=torch.zeros(2))},
        r"pairs\.sum: wanted integers of sort Digit with 1 axes, got .*float32",
    ),
    (
        "sum",
        {"pairs": pairs(sum=torch.tensor([3, 11]))},
        r"axiom 'sum': pairs\.sum: entry 1 is 11, which is no value of Digit",
    ),
    ("sum", {"pairs": pairs(sum=object())}, r"pairs\.sum: wanted a tensor with one entry per row, Ragged, or a list"),
    ("sum", {"pairs": pairs(sum=torch.tensor(3))}, r"pairs\.sum: wanted a tensor \(rows, \.\.\.\)"),
    (
        "sum",
        {"pairs": pairs(colour=["red", "geen"])},
        r"pairs\.colour: 'geen' is not a value of sort Colour; did you mean 'green'\?",
    ),
    (
        "sum",
        {"pairs": pairs(left=Ragged(torch.zeros(2, 10), [1, 1]))},
        r"pairs\.left holds one Image per row, got Ragged\(2 rows, 2 objects of shape \(10,\)\)",
    ),
    (
        "who",
        {"pairs": pairs(who=torch.tensor([0, 7])), "Person": 3},
        r"axiom 'who': pairs\.who: entry 1 is 7, but Person has 3 objects",
    ),
    (
        "who",
        {"pairs": pairs(who=torch.zeros(2, 4)), "Person": 3},
        r"friends\(p\.who, p\.who\): the table of friends needs objects by their index.*Person=tensor",
    ),
    (
        "who",
        {"pairs": pairs(who=["anna", "anna"]), "Person": 3},
        r"pairs\.who names constants, but the objects of Person come with the data",
    ),
    (
        "sum",
        {"scenes": {"objects": torch.zeros(3)}, "pairs": pairs()},
        r"scenes\.objects: wanted a tensor \(rows, objects per row, \.\.\.\), or Ragged",
    ),
]


@pytest.mark.parametrize(("axiom", "data", "message"), DATA)
def test_what_does_not_fit_as_data(axiom: str, data: dict[str, Any], message: str) -> None:
    bound = Interpretation(
        KB,
        digit=logits(Net()),
        bright=lambda x: x[:, 0] == 0,
        friends=torch.ones(3, 3, dtype=torch.bool) if "Person" in data else {("anna", "anna")},
    )
    with pytest.raises((BindingError, KnowledgeError), match=message):
        truth(KB[axiom], bound, **data)


def test_rows_as_mapping_dataclass_and_named_tuple() -> None:
    bound = Interpretation(KB, digit=logits(Net()), friends={("anna", "anna")})
    one = torch.eye(10)[[3, 4]]
    fields = pairs(left=one, sum=[3, 4])

    @dataclass
    class Pairs:
        left: Any
        right: Any
        sum: Any
        colour: Any
        who: Any

    for rows in (fields, Pairs(**fields), namedtuple("P", fields)(**fields)):
        assert truth(KB["sum"], bound, pairs=rows)
    assert truth(KB["who"], bound, pairs=pairs(who=["anna", "anna"]))


def test_undeclared_rows() -> None:
    """Rows need no declaration; what a field holds follows from its use."""
    kb = parse("""
        sort Image
        sort Digit = 0..9
        sort Colour = {red, green}
        sort Person
        pred is(Image, Digit)
        pred old(Person)
        [uses] forall p in others. is(p.image, p.digit) & p.colour = green & old(p.who) & p.n + 1 > p.x & p.yes
    """)
    others = {
        "image": torch.eye(10)[[3, 4]],
        "digit": torch.tensor([3, 4]),
        "colour": ["green", "green"],
        "who": torch.tensor([1, 1]),
        "n": torch.tensor([1, 2], dtype=torch.int16),
        "x": torch.tensor([0.5, 2.5]),
        "yes": torch.tensor([True, True]),
    }
    bound = Interpretation(kb, **{"is": logits(lambda i: i - 0.5)}, old=torch.tensor([False, True]))
    assert truth(kb, bound, Person=2, others=others)
    for field, value in {"digit": [3, 3], "who": [0, 1], "n": [1, 0], "yes": [True, False]}.items():
        changed = {**others, field: torch.tensor(value)}
        assert truth(kb["uses"], bound, keep="p", Person=2, others=changed).tolist().count(False) == 1, field
    with pytest.raises(BindingError, match=r"others has no field 'image'; did you mean 'imago'\?"):
        truth(kb, bound, Person=2, others={"imago": others["image"]})
    with pytest.raises(KnowledgeError, match=r"a formula is needed, but p\.yes is the field others\.yes"):
        truth(kb, bound, Person=2, others={**others, "yes": torch.tensor([1, 1])})
    with pytest.raises(BindingError, match=r"others\.n: numbers are needed, but its entries have shape \(2,\)"):
        truth(kb, bound, Person=2, others={**others, "n": torch.zeros(2, 2)})
    with pytest.raises(BindingError, match=r"others\.digit: wanted integers, values of Digit"):
        truth(kb, bound, Person=2, others={**others, "digit": torch.zeros(2)})


def test_objects_that_come_as_features_have_no_equality() -> None:
    two = torch.zeros(2, 4)
    kb = parse("""
        sort P
        data rows(a: P, b: P)
        [a] forall p in rows. p.a = p.b
        [b] exactly 2 p, q in rows. p.a = q.a
    """)
    with pytest.raises(KnowledgeError, match=r"equality of objects from different places needs objects by their index"):
        truth(kb["a"], Interpretation(kb), rows={"a": two, "b": two})
    assert truth(kb["b"], Interpretation(kb), rows={"a": two, "b": two}), "within one column, by place"


RAGGED: list[tuple[Any, Any, str]] = [
    (torch.zeros(3), [1, 1], r"Ragged lengths add up to 2, but there are 3 values"),
    (torch.zeros(3), [4, -1], r"Ragged lengths must not be negative, got -1"),
    (
        torch.zeros(3),
        torch.ones(1, 3),
        r"Ragged needs values \(total, \.\.\.\) and lengths \(rows,\), got shapes \(3,\) and \(1, 3\)",
    ),
]


@pytest.mark.parametrize(("entries", "lengths", "message"), RAGGED)
def test_ragged_lengths(entries: Any, lengths: Any, message: str) -> None:
    with pytest.raises(BindingError, match=message):
        Ragged(entries, lengths)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([torch.zeros(2, 3), torch.zeros(1, 4)], r"objects of one shape, got \(3,\) and \(4,\)"),
        ([Ragged(torch.zeros(2), [2]), torch.zeros(1, 4)], r"objects of one shape, got \(\) and \(4,\)"),
        ([torch.zeros(2), [1.0, 2.0]], r"takes tensors .*, got \[1.0, 2.0\] of type list"),
        ([torch.tensor(1.0)], r"takes tensors .*, got a tensor of shape \(\)"),
        (5, r"takes tensors .*, got 5 of type int"),
    ],
)
def test_what_makes_no_ragged_is_told(parts: Any, message: str) -> None:
    with pytest.raises(BindingError, match=message):
        Ragged.cat(parts)


def test_ragged_of_nothing() -> None:
    with pytest.raises(BindingError, match=r"needs at least one tensor"):
        Ragged.cat([])
    assert Ragged.cat([torch.zeros(2, 3), torch.tensor([])]).lengths.tolist() == [2, 0]
    assert repr(Ragged(torch.zeros(0, 3), [0, 0])) == "Ragged(2 rows, 0 objects of shape (3,))"


SCOPES: list[tuple[str, str]] = [
    (
        "[a] forall p in rows. forall x in p.k. q(x)",
        r"variables cannot range over p\.k: its field holds one value per row",
    ),
    ("[a] forall p in rows. p.k[0] = 1", r"p\.k\[0\]: p\.k is no sequence"),
    (
        "[a] forall p in rows sample 2. exists x in p.many. q(x)",
        r"rows\.many is ragged, and its rows cannot be sampled",
    ),
    (
        "[a] forall p in rows. exists x in p.many sample 2. q(x)",
        r"sample draws from a sort or from rows, not from p\.many",
    ),
    (
        "sort D = 0..3\n[a] forall d: D sample 2. d < 4",
        r"sample draws from the objects of an open sort, and D is finite",
    ),
    ("[a] forall p in rows. exists x in p. q(x)", r"variables cannot range over p; after 'in' stand rows"),
]


@pytest.mark.parametrize(("text", "message"), SCOPES)
def test_domains_that_are_none(text: str, message: str) -> None:
    kb = parse("sort P\npred q(P)\n" + text, warn=False)
    rows = {"k": torch.tensor([1, 2]), "many": Ragged(torch.tensor([0, 1, 1]), [1, 2])}
    used = {"rows": rows} if "rows" in text else {}
    with pytest.raises(KnowledgeError, match=message):
        truth(kb, Interpretation(kb, q=torch.ones(2)), P=2, **used)


def test_wrong_kinds_of_questions() -> None:
    with pytest.raises(TypeError, match="wanted a formula, an axiom or a knowledge base, got str"):
        truth("bright", Interpretation(KB))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep names variables of one formula"):
        truth(KB, Interpretation(KB), keep="x")
    from doxa.logic import Call, Name

    for formula, message in (
        (Call("brite", (Name("best"),)), "'brite' is neither a predicate nor a function"),
        (Call("bright", ()), "bright takes 1 arguments, got 0"),
        (Call("odd", (Name("nobody"),)), "unknown name 'nobody'"),
        (Name("best").eq(Name("anna")), r"a value of sort|an object of sort"),
    ):
        with pytest.raises(KnowledgeError, match=message):
            truth(formula, Interpretation(KB, odd={1}, best=1))
