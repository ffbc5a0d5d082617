"""Warnings: every doubt is raised where it stands, and sound knowledge raises none."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import doxa
from doxa.errors import KnowledgeWarning
from doxa.logic import (
    And,
    Axiom,
    Call,
    Compare,
    Expr,
    Iff,
    Implies,
    KnowledgeBase,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Sort,
    Truth,
    Xor,
    exists,
    forall,
    fresh,
    load,
    parse,
    postorder,
    variables,
)
from doxa.logic.check._judge import Judge
from doxa.logic.check._lint import lint, warn_all
from doxa.logic.check._sorts import Kind
from doxa.logic.syntax._diagnostics import SHOWN, Diagnostic
from doxa.logic.syntax._tree import fold

WORLD = """
sort Person
sort Image
sort Object
sort Digit = 0..9
sort Big = 0..1000000
sort Colour = {red, green, blue}
const alice: Person
pred friends(Person, Person)
pred smokes(Person)
pred shows(Image, Digit)
pred rain
func digit(Image) -> Digit
func age(Person) -> Int
func height(Person) -> Real
func colour(Object) -> Colour
data pairs(left: Image, right: Image, sum: Int)
data scenes(objects: Object*, label: Digit)
"""
# So that nothing in the world is unused, and nothing doubtful is said.
USED = """
[used1] forall x, y: Person. friends(x, y) & smokes(alice) & rain -> age(x) = 3 & height(x) > 1
[used2] forall p in pairs. shows(p.left, digit(p.right))
[used3] forall s in scenes, x in s.objects. colour(x) = red
[used4] exists b: Big. b = 4
"""

DOUBTS = [
    # variables
    ("forall x, «y»: Person. smokes(x)", ["variable 'y' is not used"]),
    ("exists «d»: Digit. rain", ["variable 'd' is not used"]),
    ("forall i: Image. «d» := digit(i) (shows(i, 3))", ["variable 'd' is not used"]),
    ("forall x: Person. smokes(x) | (exists «y»: Person. smokes(x))", ["variable 'y' is not used"]),
    ("forall «alice»: Person. smokes(alice)", ["variable 'alice' hides a constant of sort Person"]),
    ("forall «red»: Person. smokes(red)", ["variable 'red' hides a value of sort Colour"]),
    ("forall «rain»: Person. smokes(rain)", ["variable 'rain' hides a proposition"]),
    ("forall «pairs»: Person. smokes(pairs)", ["variable 'pairs' hides data rows"]),
    ("forall x: Person. smokes(x) & (exists «x»: Person. smokes(x))", ["variable 'x' hides a variable bound outside"]),
    # comparisons that are known
    ("forall d: Digit, i: Image. shows(i, d) & «d <= 9»", ["`d <= 9` always holds"]),
    ("forall d: Digit, i: Image. shows(i, d) & «d > 9»", ["`d > 9` never holds"]),
    ("forall i: Image. shows(i, 3) | «digit(i) = 10»", [r"`digit\(i\) = 10` never holds"]),
    ("forall p in pairs. shows(p.left, 1) | «digit(p.left) + digit(p.right) > 18»", ["never holds"]),
    ("forall d: Digit. rain | «2 * d = 3»", ["never holds"]),
    ("forall d: Digit. rain | «d - d = 0»", ["always holds"]),
    ("forall d: Digit. rain | «d mod 3 < 3»", ["always holds"]),
    ("forall d: Digit. rain | «d < 9.5»", ["always holds"]),
    ("forall s in scenes. rain | «s.label < 10»", ["`s.label < 10` always holds"]),
    ("forall b: Big. rain | «b <= 1000000»", ["always holds"]),
    ("forall b: Big. rain | «-1 > b»", ["never holds"]),
    ("forall x: Person. smokes(x) | «x = x»", ["always holds"]),
    ("forall x: Person. smokes(x) | «age(x) < age(x)»", ["never holds"]),
    ("rain | «red = green»", ["`red = green` never holds"]),
    ("rain | «3 + 4 = 7»", ["always holds"]),
    # guards
    ("forall d: Digit, i: Image where «d < 3 & d > 5». shows(i, d)", ["the guard .* never holds"]),
    ("forall d: Digit, i: Image where «d < 7 | d > 5». shows(i, d)", ["the guard .* always holds"]),
    ("forall x: Person where «smokes(x) | !smokes(x)». friends(x, alice)", ["the guard .* always holds"]),
    ("forall x: Person where «false». smokes(x)", ["the guard `false` never holds"]),
    # antecedents
    ("forall x: Person. «smokes(x) & !smokes(x)» -> friends(x, x)", ["the antecedent .* never holds"]),
    ("forall d: Digit, i: Image. «d < 3 & d > 5» -> shows(i, d)", ["the antecedent .* never holds"]),
    ("forall p in pairs. «p.sum = 3 & p.sum = 4» -> shows(p.left, 1)", ["the antecedent .* never holds"]),
    ("forall p in pairs. «p.sum < 3 & p.sum >= 3.5» -> shows(p.left, 1)", ["the antecedent .* never holds"]),
    ("forall x, y: Person. «x = y & y != x» -> friends(x, y)", ["the antecedent .* never holds"]),
    ("forall x, y: Person. «age(x) < age(y) & age(y) <= age(x)» -> friends(x, y)", ["the antecedent .* never holds"]),
    ("forall o: Object. «colour(o) = red & colour(o) = green» -> rain", ["the antecedent .* never holds"]),
    # whole axioms
    ("«forall x: Person. smokes(x) -> smokes(x)»", ["this axiom always holds"]),
    ("«forall x: Person. exists y: Person. friends(x, y) & !friends(x, y)»", ["this axiom never holds"]),
    ("«forall d: Digit. d < 3 | d > 2»", ["this axiom always holds"]),
    ("«forall x: Person where smokes(x). smokes(x)»", ["this axiom always holds"]),
    ("«exists x: Person where smokes(x). !smokes(x)»", ["this axiom never holds"]),
    ("«forall i: Image. d := digit(i) (d = 3 & d = 4)»", ["this axiom never holds"]),
    ("«(forall x: Person. smokes(x)) | !(forall x: Person. smokes(x))»", ["this axiom always holds"]),
    ("«true»", ["this axiom always holds"]),
    ("«rain xor rain»", ["this axiom never holds"]),
    ("«rain <-> !!rain»", ["this axiom always holds"]),
    # memoisation
    ("forall i: Image. «fresh digit(i)» = digit(i)", [r"`fresh digit\(i\)` is drawn anew, while `digit\(i\)`"]),
    ("forall x: Person. smokes(x) -> «fresh smokes(x)»", ["is drawn anew"]),
    # numbers of objects
    ("forall i: Image. «exactly 20 d: Digit. shows(i, d)»", ["'exactly 20' of the 10 there are never holds"]),
    ("forall i: Image. «at most 10 d: Digit. shows(i, d)»", ["'at most 10' of the 10 there are always holds"]),
    ("forall i: Image. «at least 0 d: Digit. shows(i, d)»", ["'at least 0' of the 10 there are always holds"]),
    ("«at least 101 d, e: Digit where d != e. rain & d < e»", ["'at least 101' of the 100 there are never holds"]),
    ("«at least 0 x: Person. smokes(x)»", ["'at least 0' of the objects always holds"]),
    ("«forall d: Digit sample 64, i: Image. shows(i, d)»", ["sample 64 of Digit, which has 10 values"]),
    # rows
    ("forall p in «pair». shows(p.left, 3)", ["data rows 'pair' are not declared, but 'pairs' are"]),
    # axioms
    ("[idle, weight 0] «rain»", ["this axiom has weight 0"]),
    ("«exists b: Big. b = 4»", ["this axiom says the same as 'used4'"]),
    # several at once
    ("forall «alice», «y»: Person. smokes(alice)", ["variable 'alice' hides", "variable 'y' is not used"]),
]


def split(marked: str) -> tuple[str, list[tuple[int, int]]]:
    text, opened, spans = "", [], []
    for character in marked:
        if character == "«":
            opened.append(len(text) + 1)
        elif character == "»":
            spans.append((opened.pop(), len(text) + 1))
        else:
            text += character
    return text, spans


def warnings_of(text: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parse(text)
    assert all(issubclass(w.category, KnowledgeWarning) for w in caught)
    return [str(w.message) for w in caught]


def test_the_world_is_without_doubt() -> None:
    assert warnings_of(WORLD + USED) == []


@pytest.mark.parametrize(("marked", "said"), DOUBTS, ids=[d for d, _ in DOUBTS])
def test_a_doubt_is_raised_where_it_stands(marked: str, said: list[str]) -> None:
    text, spans = split(marked)
    found = warnings_of(WORLD + USED + text)
    line = (WORLD + USED).count("\n") + 1
    assert len(found) == len(said), found
    for warning, message, (start, end) in zip(found, said, spans, strict=True):
        assert re.search(message, warning), warning
        assert warning.startswith(f"<text>:{line}:{start}: warning: ")
        assert warning.split("\n")[2] == "    " + " " * (start - 1) + "^" * (end - start), warning


SOUND = [
    "forall x, y: Person. friends(x, y) -> friends(y, x)",
    "forall x, _y: Person. smokes(x)",
    "forall x: Person. (smokes(x) -> rain) & (rain -> smokes(x))",
    "forall i: Image. fresh digit(i) = fresh digit(i)",
    "forall x: Person. fresh smokes(x) & !fresh smokes(x)",
    "forall d, e: Digit where d != e. d + 1 < e | e < d | rain",
    "forall d: Digit, i: Image. d < 5 & d > 3 -> shows(i, d)",
    "forall p in pairs. p.sum > 3 & p.sum < 4 -> rain",  # whether a sum is whole is not looked at
    "forall p in undeclared. p.a = p.b & p.b = p.c",
    "forall p in undeclared. p.a = 3 | p.a = 4",
    "forall i: Image. exactly 10 d: Digit. shows(i, d)",
    "forall i: Image. at most 9 d: Digit. shows(i, d)",
    "forall d: Digit. exists e: Digit. d + e = 9",
    "forall d: Digit. 9 // d = 1 | rain",  # may divide by zero: not judged
    "forall s in scenes. forall s in s.objects. colour(s) = red | colour(s) = blue",
    "forall d: Digit. (rain & d = 1) | (!rain & d = 2)",
    "(forall x: Person. smokes(x)) | (forall y: Person. !smokes(y))",
    "forall b: Big. b * b * b * b = 3 | rain",
]


@pytest.mark.parametrize("text", SOUND)
def test_sound_knowledge_raises_no_doubt(text: str) -> None:
    found = warnings_of(WORLD + USED + text)
    if text.startswith("forall s in scenes"):  # the name is used again on purpose there
        assert len(found) == 1
        assert "hides a variable bound outside" in found[0]
    else:
        assert found == []


def test_a_name_that_changes_its_meaning_on_the_way_is_not_mixed_up() -> None:
    text = "forall x: Person where smokes(alice). forall alice: Person. smokes(alice) | friends(x, alice)"
    (warning,) = warnings_of(WORLD + USED + text)
    assert "variable 'alice' hides" in warning
    text = "forall x: Person where smokes(x). forall x: Person. smokes(x)"
    (warning,) = warnings_of(WORLD + USED + text)
    assert "variable 'x' hides" in warning


UNUSED = [
    ("sort Thing", "sort 'Thing' is declared but not used"),
    ("sort Season = {spring, autumn}", "sort 'Season' is declared but not used"),
    ("const shelf: Object\nfunc f() -> Object", "constant 'shelf' is declared but not used"),
    ("pred p(Person)", "predicate 'p' is declared but not used"),
    ("func f(Person) -> Digit", "function 'f' is declared but not used"),
    ("data rows(a: Int)", "data rows 'rows' are declared but not used"),
]


@pytest.mark.parametrize(("declaration", "message"), UNUSED)
def test_unused_declarations(declaration: str, message: str) -> None:
    found = [w for w in warnings_of(WORLD + USED + declaration) if message in w]
    assert len(found) == 1
    name = message.split("'")[1]
    line = declaration.split("\n")[0]
    assert found[0].split("\n")[1:] == [
        f"    {line}",
        "    " + " " * re.search(rf"\b{name}\b", line).start() + "^" * len(name),
    ]


@pytest.mark.parametrize(
    "use",
    [
        "sort Thing\nconst t: Thing\nforall x: Thing. x = x | rain",  # its constants are its objects
        "sort Season = {spring, autumn}\nspring != autumn | rain",
        "pred p(Person)\nfact p(alice)",
        "sort Thing\nconst t: Thing\npred p(Thing)\nfact !p(t)",
        "data rows(a: Int)\nforall r in rows. r.a = 3",
    ],
)
def test_what_is_used_is_not_called_unused(use: str) -> None:
    assert not any("declared but not used" in w for w in warnings_of(WORLD + USED + use))


def test_declarations_alone_are_not_unused() -> None:
    assert warnings_of(WORLD) == []


def test_facts_that_are_given_twice_or_contradict() -> None:
    facts = "sort P\nconst a: P\npred p(P)\nfact p(a)\nfact p(a)\nfact !p(a)\n"
    found = warnings_of(facts)
    assert ["given twice" in found[0], "both as true and as false" in found[1], len(found)] == [True, True, 2]
    assert found[0].startswith("<text>:5:")
    assert found[1].startswith("<text>:6:")


def test_without_a_text_the_axiom_is_named() -> None:
    (x,) = variables("x", Sort("P"))
    p = Predicate("p", (Sort("P"),))
    kb = KnowledgeBase(idle=forall(x)(p(x) >> p(x)))
    (warning,) = lint(kb)
    assert warning.message == "in axiom 'idle': this axiom always holds, whatever the data are"
    assert warning.span is None


def test_the_examples_raise_no_doubt() -> None:
    folder = Path(__file__).parents[2] / "examples" / "knowledge"
    files = sorted(folder.glob("*.doxa"))
    assert len(files) >= 10
    for file in files:
        assert lint(load(file)) == (), file.name


def test_many_warnings_are_counted() -> None:
    many = [Diagnostic("warning", f"doubt {i}") for i in range(100)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_all(many)
    assert len(caught) == SHOWN + 1
    assert str(caught[-1].message) == "... and 80 more warnings"


@pytest.mark.parametrize("read", [parse, doxa.Model])
def test_warnings_point_at_the_caller(read: Callable[[str], object]) -> None:
    with pytest.warns(KnowledgeWarning) as caught:
        read(WORLD + USED + "true")
    assert caught[0].filename == __file__


# -- judging, against brute force --------------------------------------------------------------------------------------

DIGIT = Sort.range("Digit", 0, 3)
COLOUR = Sort("Colour", ("red", "green"))


def meaning(node: Expr) -> Kind | int:
    if isinstance(node, Name):
        return {"d": DIGIT, "e": DIGIT, "c": COLOUR}.get(node.name, {"red": 0, "green": 1}.get(node.name))
    return None


numbers = st.integers(-2, 5).map(Number)
terms = st.recursive(
    st.one_of(numbers, st.sampled_from("de").map(Name)),
    lambda t: st.one_of(
        st.builds(lambda a, b: a + b, t, t), st.builds(lambda a, b: a - b, t, t), st.builds(lambda a, b: a * b, t, t)
    ),
    max_leaves=3,
)
unknown_terms = st.sampled_from([Name("u"), Name("v")])
orders = st.sampled_from(Compare.OPERATORS)
atoms = st.one_of(
    st.sampled_from("ab").map(Call),
    st.builds(Compare, orders, terms, terms),
    st.builds(Compare, orders, unknown_terms, st.one_of(numbers, unknown_terms)),
    st.builds(
        Compare, st.sampled_from(["=", "!="]), st.just(Name("c")), st.sampled_from(["c", "red", "green"]).map(Name)
    ),
    st.booleans().map(Truth),
)
formulas = st.recursive(
    atoms,
    lambda f: st.one_of(
        f.map(Not),
        st.lists(f, min_size=2, max_size=3).map(lambda fs: And(*fs)),
        st.lists(f, min_size=2, max_size=3).map(lambda fs: Or(*fs)),
        *[st.builds(kind, f, f) for kind in (Implies, Iff, Xor)],
    ),
    max_leaves=6,
)
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def evaluate(formula: Expr, values: dict[str, object]) -> object:
    def value(node: Expr, below: tuple[object, ...]) -> object:
        match node:
            case Name() | Call():
                return values[node.name]
            case Number() | Truth():
                return node.value
            case Not():
                return not below[0]
            case And():
                return all(below)
            case Or():
                return any(below)
            case Implies():
                return not below[0] or below[1]
            case Iff():
                return below[0] == below[1]
            case Xor():
                return below[0] != below[1]
        return OPERATIONS[node.label](*below)

    return fold(value, formula)


def truths(formula: Expr) -> set[object]:
    """The truth of a formula under every meaning of its names; unknown numbers take halves in between."""
    domains: dict[str, Sequence[object]] = {
        "d": range(4),
        "e": range(4),
        "c": [0, 1],
        "red": [0],
        "green": [1],
        "a": [False, True],
        "b": [False, True],
        "u": [n / 2 for n in range(-6, 13)],
        "v": [n / 2 for n in range(-6, 13)],
    }
    names = sorted({n.name for n in postorder(formula) if isinstance(n, Name | Call)})
    found: set[object] = set()
    for values in itertools.product(*[domains[n] for n in names]):
        found.add(evaluate(formula, dict(zip(names, values, strict=True))))
        if len(found) == 2:
            break
    return found


@settings(deadline=None)
@given(formulas)
def test_what_is_judged_is_so(formula: Expr) -> None:
    verdict = Judge().verdict(formula, meaning)
    if verdict is not None:
        assert truths(formula) == {verdict}


@settings(deadline=None)
@given(
    st.recursive(
        atoms.filter(lambda a: not ({"u", "v"} & {n.label for n in postorder(a)})),
        lambda f: st.one_of(f.map(Not), st.builds(And, f, f), st.builds(Or, f, f), st.builds(Implies, f, f)),
        max_leaves=5,
    )
)
def test_what_is_so_is_judged(formula: Expr) -> None:
    """Over finite sorts and propositions nothing is missed, but comparisons that are known by themselves."""
    assume(isinstance(formula, Compare) or all(len(truths(n)) == 2 for n in postorder(formula) if type(n) is Compare))
    found = truths(formula)
    verdict = Judge().verdict(formula, meaning)
    if isinstance(formula, Call):
        assert verdict is None
    else:
        assert verdict == (found.pop() if len(found) == 1 else None)


def test_a_budget_bounds_the_questions() -> None:
    a, b = Call("a"), Call("b")
    judge = Judge(tables=0, questions=2)
    assert judge.verdict(Or(a, Not(a)), meaning) is True
    assert judge.verdict(Or(b, Not(b)), meaning) is True  # the same shape: known
    assert judge.verdict(And(a, Not(a)), meaning) is None
    assert judge.verdict(Name("d") <= 9, meaning) is None


def test_large_formulas_are_linted_in_linear_time_and_without_recursion() -> None:
    P = Sort("P")
    p, q = Predicate("p", (P,)), Predicate("q", (P,))
    x, y = variables("x y", P)
    deep: Expr = p(x)
    for _ in range(10_000):
        deep = Implies(Not(deep), q(x))
    wide = Or(*[p(x) for _ in range(20_000)])
    nested: Expr = p(x)
    for _ in range(2_000):
        nested = exists(y)(And(nested, p(y)))
    kb = KnowledgeBase(deep=forall(x)(deep), wide=forall(x)(wide), nested=forall(x)(nested))
    assert {w.message.split(": ")[1] for w in lint(kb)} == {"variable 'y' hides a variable bound outside"}


def test_very_many_axioms_are_linted() -> None:
    P = Sort("P")
    (x,) = variables("x", P)
    axioms = [
        Axiom(f"a{i}", forall(x)(Predicate(f"p{i}", (P,))(x) >> Predicate(f"q{i}", (P,))(x))) for i in range(5000)
    ]
    assert lint(KnowledgeBase(*axioms)) == ()


def test_fresh_in_python() -> None:
    P = Sort("P")
    (x,) = variables("x", P)
    p = Predicate("p", (P,))
    (warning,) = lint(KnowledgeBase(rule=forall(x)(fresh(p(x)) >> p(x))))
    assert "drawn anew" in warning.message
