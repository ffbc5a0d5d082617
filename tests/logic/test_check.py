"""Every mistake that static checking knows: what is said, where, and how to mend it."""

from __future__ import annotations

import re

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import (
    And,
    Call,
    Constant,
    Function,
    KnowledgeBase,
    Not,
    Number,
    Predicate,
    Rows,
    Sort,
    Truth,
    forall,
    parse,
    variables,
)
from doxa.logic.check._check import check_axiom, check_declaration, check_fact
from doxa.logic.syntax._symbols import Signature

WORLD = """
sort Person
sort Image
sort Object
sort Digit = 0..9
sort Line = 1..4
sort Colour = {red, green, blue}
sort Light = {on, off}
const alice, bob: Person
const seven: Digit
pred friends(Person, Person)
pred smokes(Person)
pred shows(Image, Digit)
pred rain
func digit(Image) -> Digit
func mother(Person) -> Person
func age(Person) -> Int
func height(Person) -> Real
func colour(Object) -> Colour
func cell(Line, Line) -> Digit
func today() -> Digit
data pairs(left: Image, right: Image, sum: Int)
data scenes(objects: Object*, label: Int)
"""

# The text at fault stands between « and »; each is followed here by what is said about it and how it is mended.
MISTAKES: list[tuple[str, list[tuple[str, str]]]] = [
    # unknown symbols, with the nearest known name, and nothing silly when none is near
    ("forall x: Person. «frends»(x, x)", [("unknown predicate or function 'frends'", "did you mean 'friends'")]),
    ("forall x: Person. «Smokes»(x)", [("unknown predicate or function 'Smokes'", "did you mean 'smokes'")]),
    ("forall x: Person. «zzz»(x)", [("unknown predicate or function 'zzz'", r"declare it: pred zzz\(Person\)")]),
    ("forall p in stuff. «zzz»(p.a)", [("unknown predicate or function 'zzz'", r"declare it: pred zzz\(\.\.\.\)")]),
    ("«rian» -> rain", [("unknown proposition 'rian'", "did you mean 'rain'")]),
    ("«snow» & rain", [("unknown proposition 'snow'", "declare it: pred snow")]),
    ("smokes(«alcie»)", [("unknown name 'alcie'", "did you mean 'alice'")]),
    ("smokes(«quixote»)", [("unknown name 'quixote'", "bind it with forall or exists, or declare it: const quixote")]),
    ("forall object: Object. colour(«objekt») = red", [("unknown name 'objekt'", "did you mean 'object'")]),
    ("forall o: Object. colour(o) = «gren»", [("unknown name 'gren'", "did you mean 'green'")]),
    # free variables
    ("forall x: Person. friends(x, «y»)", [("unknown name 'y'", "bind it with forall or exists")]),
    ("(forall x: Person. smokes(x)) & smokes(«x»)", [("unknown name 'x'", "bind it")]),
    ("forall x: Person where smokes(«y»). smokes(x)", [("unknown name 'y'", "bind it")]),
    ("d := digit(«x») (d = 3)", [("unknown name 'x'", "bind it")]),
    # arity
    ("«friends(alice)»", [("friends takes 2 arguments, got 1", r"write friends\(Person, Person\)")]),
    ("«smokes(alice, bob)»", [("smokes takes 1 argument, got 2", r"write smokes\(Person\)")]),
    ("«rain(alice)»", [("rain takes 0 arguments, got 1", "write rain$")]),
    ("«smokes»", [("smokes takes 1 argument, got 0", r"write smokes\(Person\)")]),
    ("today() = «today(3)»", [("today takes 0 arguments, got 1", r"write today\(\)")]),
    # sorts of arguments
    (
        "forall d: Digit. friends(alice, «d»)",
        [("argument 2 of friends must be a Person, but `d` is a Digit", r"friends takes \(Person, Person\)")],
    ),
    ("shows(«3», 3)", [("argument 1 of shows must be an Image, but `3` is an Int", "takes")]),
    ("smokes(«red»)", [("argument 1 of smokes must be a Person, but `red` is a Colour", "")]),
    ("smokes(«digit(«alice»)»)", [("argument 1 of digit", ""), ("argument 1 of smokes .* is a Digit", "")]),
    ("smokes(«smokes(alice)»)", [("argument 1 of smokes must be a Person, but `smokes\\(alice\\)` is a formula", "")]),
    ("smokes(«alice = bob»)", [("argument 1 of smokes must be a Person, but `alice = bob` is a formula", "")]),
    ("forall d: Digit. cell(«d», 1) = 3", [("argument 1 of cell must be a Line, but `d` is a Digit", "")]),
    ("cell(«height(alice)», 1) = 3", [("argument 1 of cell must be a Line, but .* is a Real", "")]),
    ("cell(«2.0», 1) = 3", [("argument 1 of cell must be a Line, but `2.0` is a Real", "")]),
    ("forall p in pairs. digit(«p») = 3", [("must be an Image, but `p` is a row of pairs", r"p\.left, \.right")]),
    ("forall s in scenes. colour(«s.objects») = red", [("is several objects of sort Object", "")]),
    # numbers outside a range
    ("forall i: Image. shows(i, «12»)", [("argument 2 of shows must be a Digit, but `12` is outside 0..9", "")]),
    ("forall i: Image. shows(i, «-1»)", [("`-1` is outside 0..9", "")]),
    ("cell(1, «0») = 3", [("argument 2 of cell must be a Line, but `0` is outside 1..4", "")]),
    # predicates, functions, sorts and rows where they cannot stand
    ("forall x: Person. «mother(x)»", [("a formula is needed here, but `mother\\(x\\)` is a Person", "compare it")]),
    ("rain -> «today()»", [("a formula is needed here, but `today` is a Digit", "compare it")]),
    ("!«3»", [("a formula is needed here, but `3` is an Int", "compare it")]),
    ("rain & «seven + 1»", [("a formula is needed here, but `seven \\+ 1` is an Int", "seven \\+ 1 = ")]),
    ("forall p in pairs. «p.sum»", [("a formula is needed here, but `p.sum` is an Int", "p.sum = ")]),
    ("rain <-> «seven»", [("'seven' is a constant of sort Digit, not a formula", "compare it, such as seven = ")]),
    ("rain | «red»", [("'red' is a value of sort Colour, not a formula", "compare it")]),
    ("forall d: Digit. «d»", [("'d' is a variable, not a formula", "compare it, such as d = ")]),
    ("forall p in stuff. «p»", [("'p' is a variable, not a formula", "compare it")]),
    ("«alice»(bob)", [("'alice' is a constant of sort Person, not a predicate or function", "without arguments")]),
    ("forall x: Person. «x»(x)", [("'x' is a variable, not a predicate or function", "without arguments")]),
    ("forall x: Person. «Person»(x)", [("'Person' is a sort, not a predicate or function", "forall x: Person")]),
    ("«pairs»(alice)", [("'pairs' is data rows, not a predicate or function", "forall row in pairs")]),
    ("smokes(«Person»)", [("'Person' is a sort, not a term", "forall x: Person")]),
    ("smokes(«mother»)", [("'mother' is a function, not a term", r"apply it: mother\(Person\)")]),
    ("«rain» = rain", [("'=' compares terms, but `rain` is a formula", "a <-> b")]),
    ("friends(alice, «smokes»)", [("'smokes' is a predicate, not a term", "where a formula stands")]),
    ("smokes(«pairs»)", [("'pairs' names data rows, not a term", "forall row in pairs")]),
    # fields and indices
    ("forall p in pairs. digit(«p.lft») = 3", [("pairs has no field 'lft'", "did you mean 'left'")]),
    ("forall p in pairs. digit(«p.third») = 3", [("no field 'third'", "its fields are left, right, sum")]),
    ("forall x: Person. smokes(«x.mother»)", [("only data rows have fields, but `x` is a Person", "row.field")]),
    ("digit(«pairs».left) = 3", [("'pairs' names data rows, not a term", "take one row")]),
    (
        "forall s in scenes. «s.objects.label» = 3",
        [("only data rows have fields, but .* is several", "take one of them")],
    ),
    ("forall p in pairs. digit(«p.left[0]») = 3", [("`p.left` is an Image, not a sequence", "declared with a star")]),
    ("forall s in scenes. colour(s.objects[«red»]) = red", [("an index is an integer, but `red` is a Colour", "")]),
    ("forall s in scenes. colour(s.objects[«1.5»]) = red", [("an index is an integer, but `1.5` is a Real", "")]),
    ("forall s in scenes. colour(s.objects[«-1»]) = red", [("an index is not negative, got -1", "first element")]),
    # arithmetic
    ("«alice» + 1 = 3", [(r"'\+' needs numbers, but `alice` is a Person", "numbers are Int, Real and range sorts")]),
    ("3 * «red» = 3", [(r"'\*' needs numbers, but `red` is a Colour", "")]),
    ("rain & -«alice» = 3", [("'-' needs numbers, but `alice` is a Person", "")]),
    ("seven - «(rain & rain)» = 3", [("a term is needed here, but `rain & rain` is a formula", "")]),
    ("«seven // 0» = 1", [("`seven // 0` divides by zero", "divide by another")]),
    ("«seven mod 0» = 1", [("`seven mod 0` divides by zero", "")]),
    ("forall i: Image. shows(i, seven) & smokes(«seven + 1»)", [("must be a Person, but `seven \\+ 1` is an Int", "")]),
    ("forall p in stuff. smokes(«p.a + 1»)", [("must be a Person, but `p.a \\+ 1` is a number", "")]),
    # comparisons
    ("forall o: Object. «colour(o) = 3»", [("'=' cannot compare: .* is a Colour and `3` is an Int", "one sort")]),
    ("forall o: Object. «colour(o) != on»", [("'!=' cannot compare: .* is a Colour and `on` is a Light", "")]),
    ("forall x: Person, i: Image. «x = i»", [("`x` is a Person and `i` is an Image", "one sort, or numbers")]),
    ("forall p in pairs, s in scenes. «p = s»", [("`p` is a row of pairs and `s` is a row of scenes", "")]),
    ("forall s in scenes. «s.objects = s.objects»", [("is several objects of sort Object", "")]),
    ("«alice» < bob", [("'<' needs numbers, but `alice` is a Person", "= and !=")]),
    ("3 >= «red»", [("'>=' needs numbers, but `red` is a Colour", "= and !=")]),
    ("«smokes(alice)» = smokes(bob)", [("'=' compares terms, but `smokes\\(alice\\)` is a formula", "a <-> b")]),
    ("seven != «smokes(bob)»", [("'!=' compares terms, but `smokes\\(bob\\)` is a formula", "a xor b")]),
    # quantifiers
    ("forall x: «Persn». smokes(x)", [("unknown sort 'Persn'", "did you mean 'Person'")]),
    ("forall x: «Weather». rain", [("unknown sort 'Weather'", "declare it: sort Weather")]),
    ("forall n: «Int». n = n", [("'Int' is endless", "declare a range")]),
    ("exists n: «Real». n = 1.5", [("'Real' is endless", "declare a range")]),
    ("forall p: «pairs». p.sum = 3", [("'pairs' is data rows, not a sort", "write: in pairs")]),
    ("forall p: «smokes». rain", [("'smokes' is a predicate of 1 arguments?, not a sort", "sorts and data rows")]),
    ("forall x in «Person». smokes(x)", [("'Person' is a sort, not data rows", "write x: Person")]),
    ("forall x in «alice». smokes(x)", [("'alice' is a constant of sort Person, not data rows", "data rows")]),
    ("forall p in pairs. forall x in «p.left». rain", [("x cannot range over `p.left`, which is an Image", "star")]),
    ("forall p in pairs. forall x in «p». rain", [("x cannot range over `p`, which is a row of pairs", "")]),
    ("forall x in «digit(«alice»)». rain", [("argument 1 of digit", ""), ("x cannot range over", "")]),
    ("forall «x», x: Person. smokes(x)", [("variable 'x' is bound twice in one place", "its own name")]),
    ("forall «x»: Person, x: Image. digit(x) = 3", [("variable 'x' is bound twice in one place", "")]),
    # statements
    ("b := «smokes(alice)» (b = 3)", [("draws the value of a function, but .* is a formula", "where b stands")]),
    ("forall i: Image. «d» := digit(i), d := digit(i) (d = 3)", [("variable 'd' is bound twice", "")]),
]


def split(marked: str) -> tuple[str, list[tuple[int, int]]]:
    """The text without its marks, and the columns between them, in the order in which they close."""
    text, opened, spans = "", [], []
    for character in marked:
        if character == "«":
            opened.append(len(text) + 1)
        elif character == "»":
            spans.append((opened.pop(), len(text) + 1))
        else:
            text += character
    return text, spans


def test_the_world_has_no_mistakes() -> None:
    kb = parse(WORLD, warn=False)
    assert len(kb.signature.sorts) == 9


@pytest.mark.parametrize(("marked", "said"), MISTAKES, ids=[m for m, _ in MISTAKES])
def test_a_mistake_is_reported_where_it_stands(marked: str, said: list[tuple[str, str]]) -> None:
    text, spans = split(marked)
    with pytest.raises(KnowledgeError) as caught:
        parse(WORLD + text, file="world.doxa", warn=False)
    found = sorted(caught.value.diagnostics, key=lambda d: (d.span.end_column, -d.span.column))
    assert len(found) == len(said) == len(spans), str(caught.value)
    for diagnostic, (message, remedy), (start, end) in zip(found, said, spans, strict=True):
        assert diagnostic.severity == "error"
        assert re.search(message, diagnostic.message), diagnostic.message
        assert re.search(remedy, diagnostic.remedy), diagnostic.remedy
        assert (diagnostic.span.file, diagnostic.span.text) == ("world.doxa", text)
        assert diagnostic.span.line == WORLD.count("\n") + 1
        assert (diagnostic.span.column, diagnostic.span.end_column) == (start, end), str(caught.value)
        assert diagnostic.render() in str(caught.value)


RIGHT = [
    "true",
    "rain & !rain",
    "forall x: Person. smokes(mother(x)) -> smokes(mother(mother(x)))",
    "forall i: Image. shows(i, digit(i)) & shows(i, seven) & shows(i, 9)",
    "forall i: Image. shows(i, digit(i) + 1)",  # a computed Int may be a Digit
    "forall x: Person. age(x) = 3 & height(x) > age(x) & height(x) = 1.5",
    "forall l: Line, d: Digit. l = d & l < d & l + d = cell(l, 2)",  # numbers mix
    "forall p in pairs. digit(p.left) + digit(p.right) = p.sum",
    "forall p, q in pairs where p != q. p.sum = q.sum",
    "forall s in scenes. forall x, y in s.objects. colour(x) = colour(y) | x = y",
    "forall s in scenes, x in s.objects. colour(x) = red",
    "forall s in scenes. colour(s.objects[0]) = colour(s.objects[s.label])",
    "forall p in undeclared. smokes(p.who) & p.number < 3 & p.list[2] = p.thing & digit(p.list[0]) = p.number",
    "forall g in undeclared. forall x in g.members. smokes(x)",
    "forall i: Image. d := digit(i), e := fresh digit(i) (d + e = 9 & shows(i, d))",
    "forall p in pairs. p := digit(p.left) (p = 3)",  # the value is read before the name is bound
    "forall x: Person sample 8. exactly 1 y: Person where y != x. friends(x, y)",
    "exists d: Digit sample 3. d = today()",
    "forall smokes: Person. smokes(smokes)",  # a variable does not hide a predicate that has arguments
    "forall alice: Digit. alice = 3",
    "red != green & seven mod 2 = 1 & -seven < 0",
    "forall x: Person. forall x: Image. digit(x) = 3",
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_is_right_passes(text: str) -> None:
    assert len(parse(WORLD + text, warn=False)) == 1


def test_several_mistakes_come_out_at_once() -> None:
    text = "[a] smokes(alcie) & frends(alice, bob)\n[b] rain\n[c] forall d: Digit. smokes(d) -> friends(alice)\n"
    with pytest.raises(KnowledgeError) as caught:
        parse(WORLD + text, warn=False)
    first = WORLD.count("\n") + 1
    assert sorted((d.span.line - first, d.span.column) for d in caught.value.diagnostics) == [
        (0, 12),
        (0, 21),
        (2, 29),
        (2, 35),
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("forall x: Persn. smokes(x) & friends(x, x) & digit(x) = 3 & x < 3", 1),  # x is unknown, not wrong
        ("unknown(alice) = 3 & smokes(unknown(bob)) & friends(unknown(alice), alice)", 1),
        ("forall p in pairs. smokes(p.nothing) & p.nothing < 3 & p.nothing[3] = red", 3),  # three times the same field
        ("smokes(nobody) & smokes(nobody) & friends(nobody, nobody)", 1),
        ("d := nothing(alice) (d = 3 & smokes(d) & d = red)", 1),
        ("smokes(alice + red + bob)", 4),  # three that are no numbers, and a number that is no person
        ("digit(nobody) = red", 2),
    ],
)
def test_one_mistake_does_not_drag_others_along(text: str, count: int) -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse(WORLD + text, warn=False)
    assert len(caught.value.diagnostics) == count, str(caught.value)


# -- declarations ------------------------------------------------------------------------------------------------------

DECLARATIONS = [
    ("sort Digit = 0..9\npred Digit", "Digit", "'Digit' is already declared as a sort", "choose another name"),
    ("pred p(Persn)\nsort Person", "Persn", "unknown sort 'Persn'", "did you mean 'Person'"),
    ("pred p(Zebra)", "Zebra", "unknown sort 'Zebra'", "declare it: sort Zebra"),
    ("func f(Int) -> Real2", "Real2", "unknown sort 'Real2'", "did you mean 'Real'"),
    ("const c: Thing", "Thing", "unknown sort 'Thing'", "declare it"),
    ("data rows(a: Thing)", "Thing", "unknown sort 'Thing'", "declare it"),
    ("data rows(a: Int, a: Real)", "a", "rows has two fields 'a'", "its own name"),
    ("sort C = {red, red}", "red", "sort 'C' lists 'red' twice", "once"),
    ("sort C = {red}\nsort D = {red}", "red", "'red' is already declared as a value of sort C", "another name"),
    ("sort C = {C}", "C", "'C' names both a sort and its value", "another name"),
    ("pred p\nconst c: p", "p", "'p' is a predicate of 0 arguments, not a sort", "declared with"),
    ("pred p(Int)\npred p(Real)", "p", "'p' is already declared as a predicate of 1 arguments?", "another name"),
]


@pytest.mark.parametrize(("text", "word", "message", "remedy"), DECLARATIONS, ids=[d[0] for d in DECLARATIONS])
def test_mistakes_in_declarations(text: str, word: str, message: str, remedy: str) -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse(text, warn=False)
    (diagnostic,) = caught.value.diagnostics
    assert re.search(message, diagnostic.message), diagnostic.message
    assert re.search(remedy, diagnostic.remedy), diagnostic.remedy
    assert diagnostic.span.text[diagnostic.span.column - 1 : diagnostic.span.end_column - 1] == word


def said_of_declaration(*declarations: Sort | Constant | Predicate | Function | Rows) -> list[tuple[str, str]]:
    signature = Signature()
    for known in declarations[:-1]:
        signature.add(known)
    said: list[tuple[str, str]] = []
    check_declaration(declarations[-1], signature, lambda word, message, remedy: said.append((word, message)))
    return said


def test_a_sort_without_values() -> None:
    assert said_of_declaration(Sort("Empty", ())) == [("Empty", "sort 'Empty' has no values")]


def test_a_right_declaration_says_nothing() -> None:
    digit = Sort.range("Digit", 0, 9)
    for declaration in (
        digit,
        Sort("Colour", ("red", "green")),
        Constant("c", digit),
        Predicate("p", (digit, digit)),
        Function("f", (), digit),
        Rows("rows", (("a", digit, True), ("b", digit, False))),
    ):
        known = () if declaration is digit else (digit,)
        assert said_of_declaration(*known, declaration) == []


# -- facts and weights -------------------------------------------------------------------------------------------------

FACTS = [
    ("«alice = bob»", "a fact is an atom", "axiom"),
    ("!«fresh smokes(alice)»", "'fresh' has no meaning", "leave"),
    ("smokes(«mother(alice)»)", "constants, values and numbers, not of `mother\\(alice\\)`", "axiom"),
    ("smokes(«alcie»)", "unknown name 'alcie'", "did you mean 'alice'"),
    ("«smokes(alice, bob)»", "smokes takes 1 argument", "write"),
    ("«digit(alice)»", "", ""),
    ("«frends»(alice, bob)", "unknown predicate or function 'frends'", "did you mean 'friends'"),
    ("friends(alice, «red»)", "argument 2 of friends must be a Person", "takes"),
]


@pytest.mark.parametrize(("marked", "message", "remedy"), FACTS)
def test_mistakes_in_facts(marked: str, message: str, remedy: str) -> None:
    text, ((start, end),) = split("fact " + marked)
    with pytest.raises(KnowledgeError) as caught:
        parse(WORLD + text, warn=False)
    diagnostic = caught.value.diagnostics[0]
    assert re.search(message, diagnostic.message), diagnostic.message
    assert re.search(remedy, diagnostic.remedy), diagnostic.remedy
    if message:
        assert (diagnostic.span.column, diagnostic.span.end_column) == (start, end)


def test_a_fact_is_an_atom() -> None:
    said: list[str] = []
    for fact in (Truth(True), And(Call("a"), Call("b")), Not(Not(Call("a"))), Number(3)):
        signature = Signature(predicates={"a": Predicate("a"), "b": Predicate("b")})
        check_fact(fact, 1.0, signature, lambda n, m, r: said.append(m))
    assert len(said) == 4
    assert all(m.startswith("a fact is an atom") for m in said)


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), -float("inf")])
def test_weights_that_cannot_be(weight: float) -> None:
    said: list[str] = []
    check_axiom("rule", Truth(True), weight, Signature(), lambda node, message, remedy: said.append(message))
    assert said == [f"the weight of axiom 'rule' is {weight!r}"]


def test_weights_that_can_be() -> None:
    said: list[str] = []
    for weight in (0.0, 1.0, 1e9):
        check_axiom("rule", Truth(True), weight, Signature(), lambda *a: said.append(a[1]))
    assert said == []


def test_a_proposition_named_like_a_variable_is_judged_in_every_scope() -> None:
    """The same subtree, without the variable, with another one, and with the variable that has its name."""
    S = Sort("S")
    x, y, z = variables("x y z", S)
    p = Predicate("p", (S,))
    shared = forall(y)(Call("x") | p(y))
    declared = [S, p, Predicate("x")]
    KnowledgeBase(*declared, fine=shared & forall(z)(shared & p(z)))
    with pytest.raises(KnowledgeError, match="'x' is a variable, not a formula"):
        KnowledgeBase(*declared, wrong=shared & forall(z)(shared & p(z)) & forall(x)(shared & p(x)))
