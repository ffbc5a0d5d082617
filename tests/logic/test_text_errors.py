"""What is said about mistakes in a text: where they are, what is wrong, and how to mend it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.logic.strategies import knowledge_bases

from doxa.errors import KnowledgeError
from doxa.logic import KnowledgeBase, parse
from doxa.logic.syntax._diagnostics import Diagnostic
from doxa.logic.syntax._words import SOFT, SYMBOLS


def mistakes(text: str, **kwargs: Any) -> list[Diagnostic]:
    with pytest.raises(KnowledgeError) as caught:
        parse(text, **kwargs)
    found = [d for d in caught.value.diagnostics if isinstance(d, Diagnostic)]
    assert found, "every error has a diagnostic"
    assert len(found) == len(caught.value.diagnostics)
    return found


# (text with the marked place in ‹›, what is wrong, what to do)
SYNTAX = [
    # quantifiers
    ("forall x: P‹.p›(x)", "read as a field", "put a space after the dot of a quantifier: '. p'"),
    ("forall p in pairs‹.q›(p)", "read as a field", "put a space after the dot"),
    ("forall p in pairs‹.q› & b", "read as a field", "put a space after the dot"),
    ("forall x: P where x = a‹.p›(x)", "read as a field", "put a space after the dot"),
    ("forall x‹.› p(x)", "nothing says what x ranges over", "forall x: Sort. ..."),
    ("forall x: P, y‹.› p(x)", "nothing says what y ranges over", "forall y: Sort"),
    ("forall ‹(›x: P) p(x)", "variables are not put in parentheses", "forall x, y: Sort"),
    ("forall x: P ‹p›(x)", "a dot is missing before 'p'", "with a dot and a space"),
    ("forall x: P, p‹(›x)", "before the variables of 'forall' are complete", "with a dot and a space"),
    ("exists x in D‹:› p(x)", "before the variables of 'exists' are complete", "with a dot and a space"),
    ("∀x: P ‹|› p(x)", "before the variables of '∀' are complete", "with a dot and a space"),
    ("forall x: P where p(x) ‹q›(x)", "the dot that ends 'forall ... where ...' is missing", "with a dot and a space"),
    ("forall x: P ‹sample› -3. p(x)", "'sample' is followed by a positive number", "sample 64"),
    ("forall ‹x: P sample 0›. p(x)", "positive number of objects, got 0", "sample 64"),
    ("forall ‹x: P sample 2.5›. p(x)", "a whole number, not 2.5", "without a dot"),
    ("‹exactly 1.5 x: P. p(x)›", "a whole number, not 1.5", "without a dot"),
    ("exactly ‹-1› x: P. p(x)", "a whole number of at least 0, got -1$", "write exactly 1 x: Sort"),
    ("exactly ‹-1› x = 3", "a whole number of at least 0, got -1$", "write exactly 1 x: Sort"),
    ("a -> at most ‹- 2› x: P. p(x)", "a whole number of at least 0, got -2$", "write at most 1 x: Sort"),
    ("at least ‹-0.5› x in rows. p(x)", "a whole number of at least 0, got -0.5$", "write at least 1 x: Sort"),
    ("exists = ‹-1› x: P. p(x)", "a whole number of at least 0, got -1$", "write exists = 1 x: Sort"),
    ("exactly ‹x›: P. p(x)", "'exactly' is followed by a number", "exactly 1 x: Sort"),
    ("exists ‹3› x: P. a", "takes no number", "exactly 3, at least 3 or at most 3"),
    ("‹exists <› 3 x: P. a", "'exists <' means nothing", "exists <= 1"),
    ("forall ‹in›: P. p(x)", "'in' is a reserved word", 'in quotation marks: "in"'),
    ("forall x ‹!=› y: P. p(x)", "a condition on the variables comes after 'where'", "where x != ..."),
    ("forall x: P‹›", "the statement ends before the variables", "with a dot and a space"),
    ("a ‹where› b", "'where' belongs to a quantifier", "forall x: Sort where"),
    ("x ‹in› D", "'in' belongs to a quantifier", "forall x in rows"),
    # operators of other languages
    ("a ‹==› b", "'==' has no meaning here", "equality is written ="),
    ("a ‹&&› b", "'&&' has no meaning here", "'and' is written &"),
    ("a ‹||› b", "'||' has no meaning here", "'or' is written |"),
    ("x ‹<>› y", "'<>' has no meaning here", "'not equal' is written !="),
    ("x ‹%› 2 = 1", "'%' has no meaning here", "the remainder is written mod"),
    ("x ‹/› 2 = 1", "'/' has no meaning here", "integer division is written //"),
    ("a ‹^› b", "has no meaning here", "exclusive or is written xor"),
    ("x ‹**› 2 = 1", "has no meaning here", "no powers"),
    ("‹'›a' & b", "has no meaning here", 'double ones: "New York"'),
    ('a & ‹"›b', "has no meaning here", "not closed on this line"),
    ("‹\\›forall x", "has no meaning here", "∀, ∧, →"),
    ("a ‹₿› b", "'₿' has no meaning here", "letters, digits and _"),
    ("a ‹\x07› b", "'U\\+0007' has no meaning here", "letters, digits and _"),
    # operands
    ("x = 3 ‹<› 4", "comparisons do not chain", "a < b & b < c"),
    ("a <= b ‹=› c & d", "comparisons do not chain", "a < b & b < c"),
    ("a &‹›", "something is missing after '&'", "a formula or a term"),
    ("‹&› a", "something is missing before '&'", "a formula or a term"),
    ("a -> ‹->› b", "something is missing before '->'", "a formula or a term"),
    ("a ‹b›", "'a' and 'b' stand side by side", "put an operator"),
    ("p(a) ‹q›(b)", "stand side by side", "put an operator"),
    ("a = ‹!›b", "'!' cannot stand in a term", "in parentheses"),
    ("a = ‹forall› x: P. b", "'forall' cannot stand in a term", "in parentheses"),
    ("a‹,› b", "a comma separates arguments and variables only", "join formulas with &"),
    ("p(‹,›)", "',' cannot stand here", "a formula or a term or '\\)'"),
    ("p(a,‹)›", "cannot stand here", "a formula or a term"),
    ("(‹)›", "nothing between the parentheses", "put a formula"),
    ("3‹(›x)", "'3' cannot be applied", "only names"),
    ("p.q‹(›x)", "'.q' cannot be applied", "only names"),
    ("x = ‹.›5", "no quantifier that this dot belongs to", "decimals begin with a digit: 0.5"),
    ("a ‹:›- b", "a colon stands after variables", "b -> a"),
    ("0‹..›9", "only stand in the declaration of a sort", "0..9"),
    ("{a}".replace("{", "‹{›"), "cannot stand here", "a formula or a term"),
    # brackets
    ("‹(›a & b", "'\\(' is never closed", "close it with '\\)'"),
    ("p(a, b‹]›", "'\\(' is closed by '\\]'", "close it with '\\)' first"),
    ("a & b‹)›", "never opened", "leave it out"),
    ("‹[›name a & b", "'\\[' is never closed", "write \\[name\\]"),
    # words
    ("‹foral› x: P. p(x)", "'foral' is a name", "did you mean 'forall'?"),
    ("‹all› x: P. p(x)", "'all' is a name", "did you mean 'forall'?"),
    ("‹predicate› p(P)", "'predicate' is a name", "did you mean 'pred'?"),
    ("‹function› f(P) -> P", "'function' is a name", "did you mean 'func'?"),
    ("‹type› P", "'type' is a name", "did you mean 'sort'?"),
    ("a ‹AND› b", "'AND' is a name", "did you mean 'and'?"),
    ("a ‹implise› b", "'implise' is a name", "did you mean 'implies'?"),
    ("‹if› a then b", "there is no 'if'", "a -> b"),
    ("‹axiom› foo: a -> b", "there is no keyword 'axiom'", "\\[name\\] and then the formula"),
    ("fact ‹forall› x: P. p(x)", "a fact is an atom", "fact !parent"),
    # statements
    ("d := f(x)‹›", "the scope of ':=' is missing", "in parentheses"),
    ("d := f(x) ‹&› a", "the scope of ':=' is missing", "in parentheses"),
    ("d := ‹3› (a)", "':=' names the value of a function", "d := digit\\(x\\)"),
    ("‹:=› f(x) (a)", "':=' comes after a name", "d := digit\\(x\\)"),
    # headers
    ("[name ‹weight› 2] a", "a comma is missing before 'weight'", "\\[name, weight 0.5\\]"),
    ("[two ‹words›] a", "a name of several words", "my name"),
    ("[my-‹name›] a", "not an identifier", "my-name"),
    ("[‹iff›] a", "'iff' is a reserved word", 'quotation marks: "iff"'),
    ("[‹in›, weight 2] a", "'in' is a reserved word", 'quotation marks: "in"'),
    ("[name, weight ‹abc›] a", "a weight is a number, such as 0.5, got 'abc'", "\\[name, weight 0.5\\]"),
    ("[name, weight ‹true›] a", "a weight is a number, such as 0.5, got 'true'", "or weight \\?"),
    ("[name, weight‹]› a", "a weight is a number, such as 0.5, got ']'", "\\[name, weight 0.5\\]"),
    ("[name, weight ‹=› 2] a", "there is no '=' after 'weight'", "weight \\?"),
    ("[name, ‹wieght› 2] a", "'wieght' cannot stand here", "did you mean 'weight'?"),
    ("[name]‹:› a", "does not belong after an axiom's name", "and then the formula"),
    ("[name]‹›", "something is missing after '\\]'", "a formula"),
    ("[name] ‹pred› p", "only axioms have a name", "leave the brackets out"),
    ("[3‹]› a".replace("[3", "[‹3›").replace("‹]›", "]"), "in the header of an axiom", "write \\[name\\]"),
    # declarations
    ("pred ‹in›(P)", "'in' is a reserved word", 'quotation marks: "in"'),
    ("pred p(‹and›)", "'and' is a reserved word", 'quotation marks: "and"'),
    ("pred p(x‹:› P)", "the arguments of a predicate have no names", "list the sorts only"),
    ("pred p(P) ‹->› Bool", "a predicate has no result", "func name"),
    ("closed ‹p›(P)", "'closed' stands before 'pred'", "closed pred name"),
    ("closed ‹predicate› p(P)", "'closed' stands before 'pred'", "closed pred name"),
    ("pred closed ‹p›(P)", "'closed' stands before 'pred'", "closed pred name"),
    ("closed ‹sort› P", "only predicates are declared closed", "leave 'closed' out"),
    ("closed ‹func› f(P) -> P", "only predicates are declared closed", "leave 'closed' out"),
    ("closed pred ‹in›(P)", "'in' is a reserved word", 'quotation marks: "in"'),
    ("closed pred p(x‹:› P)", "the arguments of a predicate have no names", "list the sorts only"),
    ("closed pred p(P) ‹->› Bool", "a predicate has no result", "func name"),
    ("closed pred p(P, ‹)›", "cannot stand here", "closed pred name"),
    ("fact [weight ‹x›] p(a)", "no weight of a fact", "fact \\[weight 0.5\\]"),
    ("fact [weight ‹2›]", "no weight of a fact", "fact \\[weight 0.5\\]"),
    ("‹fact [weight ?] p(a)›", "the weight of a fact is not learned", "fact \\[weight 0.5\\]"),
    ("[weight 2] ‹fact› p(a)", "stands after 'fact'", "fact \\[weight 0.5\\]"),
    ("func f(P)‹›", "not complete", "func name\\(Sort\\) -> Sort"),
    ("func f(P)‹:› P", "stands after an arrow", "func name\\(Sort\\) -> Sort"),
    ("func f(x‹:› P) -> P", "the arguments of a function have no names", "list the sorts only"),
    ("const alice‹›", "not complete", "const name: Sort"),
    ("const alice ‹Person›", "'Person' cannot stand here", "const name: Sort"),
    ("sort Digit = 0‹-›9", "a range is not written with '-'", "write two dots"),
    ("sort Digit = 0..‹.›9", "a range is not written with '.'", "write two dots"),
    ("sort Digit = {‹0›, 1}", "integers are given as a range", "0..9"),
    ("sort Colour = ‹red›, green", "values are listed in braces", "{red, green}"),
    ("‹sort D = 9..0›", "is empty", "must not exceed the second"),
    ("sort D = 0..‹99999999999999999999›", "must fit into 64 bits", "a smaller one"),
    ("data rows(a‹)›", "cannot stand here", "data name\\(field: Sort"),
    ("include ‹other›.doxa", "a file name stands in quotation marks", 'include "other.doxa"'),
    ('facts p ‹of› "f.csv"', "'of' cannot stand here", "did you mean 'from'?"),
    ("facts p from f‹.csv›", "cannot stand here", 'from "file.csv"'),
    ('facts p from "f.csv" ‹headers›', "'headers' cannot stand here", "did you mean 'header'?"),
    # numbers and names
    ("‹1e999› = x", "must be finite", "below 1e308"),
    ("‹99999999999999999999› = x", "must fit into 64 bits", "a decimal such as 1e30"),
    ('‹"bad \\q escape"›', "this name cannot be read", "a backslash is written"),
]


@pytest.mark.parametrize(("marked", "message", "remedy"), SYNTAX, ids=[c[0] for c in SYNTAX])
def test_syntax(marked: str, message: str, remedy: str) -> None:
    text = marked.replace("‹", "").replace("›", "")
    start, end = marked.index("‹"), marked.index("›") - 1
    (found,) = mistakes(f"# a comment\n\n   {text} # another", file="zoo.doxa")
    assert re.search(message, found.message), found
    assert re.search(remedy, found.remedy or ""), found
    assert found.span is not None
    assert (found.span.file, found.span.line) == ("zoo.doxa", 3)
    assert found.span.column == 4 + start, found.render()
    assert found.span.end_column == 4 + max(end, start + 1), found.render()
    assert found.span.text == f"   {text} # another"


def test_a_message_in_full() -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse("sort Person\npred friends(Person, Person)\nforall x: Person. frends(x, x)\n", file="zoo.doxa")
    assert str(caught.value).split("\n") == [
        "zoo.doxa:3:19: error: unknown predicate or function 'frends'",
        "    forall x: Person. frends(x, x)",
        "                      ^^^^^^",
        "    did you mean 'friends'?",
    ]


def test_several_mistakes_come_out_at_once_in_order() -> None:
    found = mistakes(
        """sort P
        forall x: P.p(x)
        pred p(P), q(Q)
        const c: P; const c: P
        [r] p(c)
        [r] p(d) & p(c, c)
        a == b
        forall x, x: P. p(x) & (p(x)
        pred z
        fact p(e)
        """
    )
    lines = [(d.span.line, d.message) for d in found if d.span is not None]
    assert [line for line, _ in lines] == sorted([line for line, _ in lines])
    for line, message in [
        (2, "read as a field"),
        (3, "unknown sort 'Q'"),
        (4, "'c' is already declared as a constant of sort P (<text>:4:15)"),
        (6, "two axioms are named 'r' (the first: <text>:5:10)"),
        (6, "unknown name 'd'"),
        (6, "p takes 1 argument, got 2"),
        (7, "'==' has no meaning"),
        (8, "'(' is never closed"),
        (10, "'e'"),
    ]:
        assert any(at == line and message in said for at, said in lines), (line, message, lines)
    assert len(lines) == 9


def test_one_mistake_in_a_declaration_is_one_message() -> None:
    (found,) = mistakes("sort Bird; pred sings(Brid); forall x: Bird. sings(x); forall y: Bird. !sings(y)")
    assert (found.message, found.remedy) == ("unknown sort 'Brid'", "did you mean 'Bird'?")
    (found,) = mistakes("pred sings(Bird); forall x: Bird. sings(x)")
    assert found.message == "unknown sort 'Bird'"
    (found,) = mistakes("sort Bird; prd sings(Bird); forall x: Bird. sings(x)")
    assert found.remedy == "did you mean 'pred'?"
    (found,) = mistakes("sort Colour = {red, red}; const c: Colour; c = red")
    assert "lists 'red' twice" in found.message
    assert found.span is not None
    assert found.span.column == 21


def test_the_place_of_a_mistake_is_the_word_it_is_about() -> None:
    text = "sort P; pred p(P); forall x: P, y: Q.\n  p(x) &\n  (p(x) | p(z) | p(p(x)))"
    places = {(d.span.line, d.span.column) for d in mistakes(text) if d.span is not None}
    assert places == {(1, 36), (3, 13), (3, 20)}


def test_many_mistakes_are_counted() -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse("\n".join([f"a{i} == b" for i in range(1000)]))
    assert len(caught.value.diagnostics) == 1000
    assert "and 980 more errors" in str(caught.value)


def test_the_line_of_a_mistake_after_other_line_ends() -> None:
    (found,) = mistakes("pred a\r\n# \u2028 \x0b\r\na & &\r\n")
    assert found.span is not None
    assert (found.span.line, found.span.column, found.span.text) == (3, 5, "a & &\r")


# --- nothing but documented errors --------------------------------------------------------------------------------

WORDS = [s for spellings in SYMBOLS.values() for s in spellings]
WORDS += [kind.lower() for kind in SOFT] + ["at most 1", "at least 2", "exactly 1", "sample 3", "fresh", "weight"]
WORDS += [
    "x",
    "y",
    "P",
    "p",
    "(x)",
    "(x, y)",
    "forall x: P.",
    "exists y in x.f.",
    "d := f(x)",
    "\n",
    ";",
    "#",
    '"',
    '"s"',
]
WORDS += [
    "[r]",
    "[r, weight 2]",
    "0",
    "3.5",
    "1e400",
    "==",
    "..",
    "...",
    "'",
    "\\",
    "\x00",
    "\ud800",
    "½",
    "٣",
    "sort P",
]


def survives(text: str) -> None:
    try:
        kb = parse(text, warn=False)
    except KnowledgeError as error:
        assert error.diagnostics
        assert str(error)
    else:
        assert parse(str(kb), warn=False) == kb


fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@fuzz
@given(st.text())
def test_any_text(text: str) -> None:
    survives(text)


@fuzz
@given(st.lists(st.sampled_from(WORDS), max_size=30), st.sampled_from(["", " "]))
def test_any_words(words: list[str], gap: str) -> None:
    survives(gap.join(words))


@fuzz
@given(knowledge_bases(max_axioms=2), st.data())
def test_any_damage(kb: KnowledgeBase, data: st.DataObject) -> None:
    text = str(kb)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 8)))
        text = text[:start] + data.draw(st.sampled_from(["", *WORDS])) + text[end:]
    survives(text)


def test_words_of_counting_and_weights_are_names_where_they_can_be() -> None:
    (found,) = mistakes("const exactly, at: Int\n[weight] exactly - 1 = 2\n[b, weight 2] exactly -1 < at - unknown")
    assert found.message == "unknown name 'unknown'" and found.span is not None and found.span.line == 3
