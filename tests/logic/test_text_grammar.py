"""What texts mean: precedence, spellings, layout, and keywords that are also names."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import lark
import pytest
from hypothesis import given, settings
from tests.logic.strategies import SOFT_WORDS, trees

from doxa.logic import Axiom, Expr, KnowledgeBase, Predicate, Rows, Sort, load, parse
from doxa.logic.syntax._words import RESERVED
from doxa.logic.text._builder import Builder, FactItem
from doxa.logic.text._grammar import GRAMMAR, run, table
from doxa.logic.text._lexer import Vocabulary, tokens

TERMINALS = sorted(set(re.findall(r"\b[A-Z]{2,}\b", GRAMMAR)))


def statements(text: str) -> list[Any]:
    builder = Builder()
    run(table(), tokens(text, Vocabulary(builder.share)), builder)
    return builder.items


def formula(text: str) -> Expr:
    (item,) = statements(text)
    assert isinstance(item, Axiom)
    return item.formula


# --- the grammar and its driver -----------------------------------------------------------------------------------


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    """Lark would settle a shift/reduce conflict silently, and say so only in its log."""
    caplog.set_level(logging.DEBUG, logger="lark")
    lark.Lark(f"{GRAMMAR}\n%declare {' '.join(TERMINALS)}", parser="lalr", lexer="basic", start="text", debug=True)
    assert "conflict" not in caplog.text.lower()


class _Token(lark.Token):
    meaning: Any


class _Feed(lark.lexer.Lexer):
    """Our tokens for Lark's own parser."""

    def __init__(self, _conf: object) -> None:
        pass

    def lex(self, text: Any) -> Iterator[lark.Token]:  # type: ignore[override]
        for token in tokens(str(getattr(text, "text", text)), Vocabulary(lambda node: node)):
            wrapped = _Token(token.kind, token.text)
            wrapped.meaning = token.value
            yield wrapped


@cache
def _lark() -> lark.Lark:
    rules = f"{GRAMMAR}\n%declare {' '.join(TERMINALS)}"
    return lark.Lark(rules, parser="lalr", lexer=_Feed, start="text", keep_all_tokens=True)


def by_lark(text: str) -> list[Any]:
    """The same text through Lark's own loop, which makes a tree, and the builder called on that tree."""
    builder = Builder()

    def value(node: Any) -> Any:
        if isinstance(node, _Token):
            return node.meaning
        return getattr(builder, node.data)(*[value(child) for child in node.children]) if node.children else None

    value(_lark().parse(text))
    return builder.items


@settings(deadline=None)
@given(trees)
def test_our_loop_does_what_larks_does(tree: Expr) -> None:
    for text in (str(tree), f"[name, weight 2] {tree.unicode()}; pred p(A, B), q; sort D = -1..3; const a, b: D"):
        assert by_lark(text) == statements(text)


# --- formulas -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("a & b | c & d", "(a & b) | (c & d)"),
        ("a | b xor c | d", "(a | b) xor (c | d)"),
        ("a xor b -> c xor d", "(a xor b) -> (c xor d)"),
        ("a -> b <-> c -> d", "(a -> b) <-> (c -> d)"),
        ("a -> b -> c", "a -> (b -> c)"),
        ("a <-> b <-> c", "(a <-> b) <-> c"),
        ("a xor b xor c", "(a xor b) xor c"),
        ("!a & b", "(!a) & b"),
        ("!a = b", "!(a = b)"),
        ("!!a | b", "(!(!a)) | b"),
        ("x + y * z - w = -u * v", "((x + (y * z)) - w) = ((-u) * v)"),
        ("x - y - z < x // y mod z", "((x - y) - z) < ((x // y) mod z)"),
        ("-x.f[2] = --y", "(-((x.f)[2])) = (-(-y))"),
        ("x + 1 <= y & p(x)", "((x + 1) <= y) & p(x)"),
        ("forall x: A. a & b -> c", "forall x: A. ((a & b) -> c)"),
        ("a & forall x: A. b -> c", "a & (forall x: A. (b -> c))"),
        ("a -> forall x: A. b & exists y: B. c | d", "a -> (forall x: A. (b & (exists y: B. (c | d))))"),
        ("!forall x: A. a & b", "!(forall x: A. (a & b))"),
        ("a <-> !exists x: A. b <-> c", "a <-> (!(exists x: A. (b <-> c)))"),
        ("(forall x: A. a) & b", "(forall x: A. a) & b"),
        ("forall x: A where a -> b. c", "forall x: A where (a -> b). c"),
        ("forall x: A where exists y: B. a & b. c", "forall x: A where (exists y: B. (a & b)). c"),
        ("a & d := f(x) (b) | c", "(a & (d := f(x) (b))) | c"),
        ("!d := f(x), e := fresh g() (b) -> c", "(!(d := f(x), e := fresh g() (b))) -> c"),
        ("forall x: A. d := f(x) (b) & c", "forall x: A. ((d := f(x) (b)) & c)"),
        ("exactly 1 x: A. a & b", "exactly 1 x: A. (a & b)"),
        (
            "a | at most 2 x, y: A, z in B.c[0] sample 3. b | c",
            "a | (at most 2 x, y: A, z in (B.c)[0] sample 3. (b | c))",
        ),
        ("p(a & b, forall x: A. b, c)", "p((a & b), (forall x: A. b), c)"),
    ],
)
def test_precedence(text: str, grouped: str) -> None:
    assert formula(text) == formula(grouped)
    assert formula(f"({text})") == formula(text)


@pytest.mark.parametrize(
    ("ascii_text", "others"),
    [
        ("!a", ["¬a", "~a", "not a", "! a", "not(a)"]),
        ("a & b", ["a ∧ b", "a and b", "a&b"]),
        ("a | b", ["a ∨ b", "a or b"]),
        ("a xor b", ["a ⊕ b"]),
        ("a -> b", ["a → b", "a => b", "a ⇒ b", "a implies b"]),
        ("a <-> b", ["a ↔ b", "a <=> b", "a ⇔ b", "a iff b"]),
        ("true & false", ["⊤ ∧ ⊥"]),
        ("x != 1 & x <= 2 & x >= 3", ["x ≠ 1 & x ≤ 2 & x ≥ 3"]),
        ("x * 2 - 1 = 0", ["x · 2 − 1 = 0", "x × 2 - 1 = 0", "x*2-1=0"]),
        ("forall x: A. exists y in b. c", ["∀x: A. ∃y ∈ b. c", "∀ x:A . ∃ y in b. c"]),
        ("exactly 1 x: A. a", ["∃=1 x: A. a", "exists = 1 x: A. a", "exactly  1 x:A. a"]),
        ("at most 1 x: A. a", ["∃≤1 x: A. a", "exists <= 1 x: A. a", "at  most 1 x: A. a"]),
        ("at least 1 x: A. a", ["∃≥1 x: A. a", "exists>=1 x: A. a"]),
        ("d := f(x) (a)", ["d ≔ f(x) (a)", "d:=f(x)(a)"]),
        ("rain", ["rain()", "(rain)", '"rain"', '"r\\u0061in"()']),
        ("x = 0.5", ["x = 5e-1", "x = 5E-1", "x = 0.50"]),
        ("x = p.left", ['x = p."left"', "x = (p).left"]),
        ("forall x: A, y: A. a", ["forall x, y: A. a"]),
    ],
)
def test_spellings(ascii_text: str, others: list[str]) -> None:
    for other in others:
        assert formula(other) == formula(ascii_text), other


@pytest.mark.parametrize("text", ["0..9", "0 .. 9", "0…9"])
def test_ranges(text: str) -> None:
    assert parse(f"sort D = {text}", warn=False).signature.sorts["D"].values == range(10)
    assert parse(f"sort D = -{text}", warn=False).signature.sorts["D"].values == range(10)
    assert parse("sort D = -3..-1", warn=False).signature.sorts["D"].values == range(-3, 0)


def test_the_dot_of_a_quantifier_and_the_dot_of_a_field() -> None:
    assert formula("forall p in pairs. d := f(p.left) (d = p.sum)") == formula(
        "forall p in pairs.\nd := f(p.left)(d=p.sum)"
    )
    assert str(formula("forall x: A.(a)")) == "forall x: A. a"
    assert str(formula("forall x: A.!a")) == "forall x: A. !a"
    assert str(formula("forall x: A.∃y: B.¬a")) == "forall x: A. exists y: B. !a"
    assert str(formula("forall x: A.3 = x")) == "forall x: A. 3 = x"
    assert str(formula("forall x in a.b.c. a")) == "forall x in a.b.c. a"


# --- layout -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("# only a comment", 0),
        ("\n\n;;\n ; # a\n", 0),
        ("a\nb", 2),
        ("a;b;;c;", 3),
        ("a # one\n# two\n\n\n  b # three", 2),
        ("a &\n\n# comment\n b", 1),
        ("a\n  & b\n  -> c\n  or d", 1),
        ("p(\n x,\n y\n)\nq", 2),
        ("[name]\n a\n[other,\n weight 2]\n\n b", 2),
        ("forall x:\n A.\n a\nb", 2),
        ("forall x: A\n where b\n . a", 1),
        ("forall x\n in c\n . a", 1),
        ("x =\n 3\n+ 4\n- 5", 1),
        ("d := f(x),\n e := g(x)\n (a)\n(b)", 2),
        ("d := f(x)\n(a)", 1),
        ("a\n(b)", 2),
        ("a\n[n] b", 2),
        ("a\n!b\nnot c", 3),
        ("a\n.left = 3", 1),
        ("sort A\nsort B = {\n x,\n y }\npred p(\nA, B)\nfunc f(A)\n -> B", 4),
        ("a\r\nb\r\n", 2),
        ("a\u2028& b", 1),
    ],
)
def test_where_statements_end(text: str, count: int) -> None:
    assert len(statements(text)) == count


def test_declarations_may_come_after_their_use() -> None:
    kb = parse("[r] forall x: P. p(x) -> likes(x, ann)\nfact p(ann)\npred likes(P, P), p(P)\nconst ann: P\nsort P")
    assert kb == parse(
        "sort P; const ann: P; pred p(P), likes(P, P); fact p(ann); [r] forall x: P. p(x) -> likes(x, ann)"
    )


def test_a_byte_order_mark_is_passed_over(tmp_path: Any) -> None:
    assert parse("\ufeffpred a; a") == parse("pred a; a")
    (tmp_path / "bom.doxa").write_bytes("pred a\r\na".encode("utf-8-sig"))
    assert load(tmp_path / "bom.doxa") == parse("pred a; a")


# --- keywords that are names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", SOFT_WORDS)
def test_words_are_keywords_only_where_they_must_be(word: str) -> None:
    others = "sort S; const k: S; pred p(S), q(S, S); func f(S) -> S; data rows(one: S, many: S*)"
    uses = [
        f"sort {word}; pred r({word}), s; func g({word}) -> {word}; forall x: {word} sample 3 where r(x). r(g(x)) & s",
        f"const {word}: S; p({word}); {word} = k; fact q(k, {word}); p(f({word})) & {word} != k",
        f"pred {word}(S); {word}(k); fact {word}(k); fact !{word}(k); {word}(k) & p(k)",
        f"pred {word}; {word}; fact {word}; !{word} & {word} -> {word}; [{word}] {word}; [w, weight 3] {word} | {word}",
        f"func {word}(S) -> S; p({word}(k)); d := {word}(k) (p(d)); d := fresh {word}(k) (p(d))",
        f"data {word}({word}: S, other: S*); forall x in {word}. p(x.{word}); forall x in {word} sample 3. p(x.{word})",
        f"forall {word}: S. p({word}); forall {word}, y: S. q({word}, y); forall {word} in rows. p({word}.one)",
        f"{word} := f(k) (p({word})); exactly 1 {word}: S. p({word}); at most 2 {word} in rows. p({word}.one)",
        f"sort E = {{{word}, z}}; const c: E; c = {word}",
    ]
    for use in uses:
        kb = parse(f"{others}; {use}", warn=False)
        assert parse(str(kb), warn=False) == kb
        assert f'"{word}"' not in str(kb)
        assert parse(f"{others}\n{use}".replace("; ", "\n"), warn=False) == kb


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_reserved_words_are_names_in_quotation_marks(word: str) -> None:
    text = f'sort "{word}"; pred p("{word}"); forall "{word}x": "{word}". p("{word}x")'
    kb = parse(text)
    assert f'sort "{word}"' in str(kb)
    assert parse(str(kb)) == kb


def test_a_file_of_facts_for_a_predicate_with_the_name_of_a_keyword(tmp_path: Any) -> None:
    (tmp_path / "f.csv").write_text("ann\n")
    for word in SOFT_WORDS:
        kb = parse(f'sort S; pred {word}(S)\nfacts {word} from "f.csv"', file=str(tmp_path / "main.doxa"))
        assert [str(f) for f in kb.facts] == [f"fact {word}(ann)"]


def test_every_kind_of_statement() -> None:
    items = statements(
        """
        sort Image; sort Digit = 0..9; sort Colour = {red, "dark blue"}
        const ann, bob: Person
        pred rain, likes(Person, Person), snow()
        func digit(Image) -> Digit; func now() → Int
        data scenes(objects: Object*, label: Int)
        closed pred known(Person), "odd"; fact [weight 0.5] likes(ann, bob); fact not rain; fact [ weight 2 ] ¬rain
        facts likes from "likes.csv"; facts likes from "likes.csv" header
        include "other.doxa"
        [one, weight 0.5] rain; [weight ?] rain; [two, weight 2?] rain; [weight -1.5] rain; [weight] rain
        [weight, weight 3] rain
        """
    )
    first = [item[0] if isinstance(item, list) else item for item in items]
    kinds = [type(item).__name__.removesuffix("Item") for item in first]
    assert kinds == [
        *["Sort"] * 3,
        "Constant",
        "Predicate",
        *["Function"] * 2,
        "Rows",
        "Predicate",
        *["Fact"] * 3,
        *["Facts"] * 2,
        "Include",
        *["Axiom"] * 6,
    ]
    rules = [(i.name if i.named else None, i.weight, i.learnable) for i in items if isinstance(i, Axiom)]
    assert rules == [
        ("one", 0.5, False),
        (None, 1.0, True),
        ("two", 2.0, True),
        (None, -1.5, False),
        ("weight", 1.0, False),
        ("weight", 3.0, False),
    ]
    person = Sort("Person")
    assert items[4] == [Predicate("rain"), Predicate("likes", (person, person)), Predicate("snow")]
    assert items[8] == [Predicate("known", (person,), closed=True), Predicate("odd", closed=True)]
    assert [i.weight for i in items if isinstance(i, FactItem)] == [0.5, 1.0, 2.0]
    assert items[7] == [Rows("scenes", (("objects", Sort("Object"), True), ("label", Sort("Int"), False)))]
    assert [str(i.formula) for i in items if isinstance(i, FactItem)] == ["likes(ann, bob)", "!rain", "!rain"]
    assert [i.header for i in items[12:14]] == [False, True]


def test_the_example_of_the_language() -> None:
    kb = parse(EXAMPLE, warn=False)
    assert isinstance(kb, KnowledgeBase)
    assert len(kb) == 9
    assert kb["homophily"].weight == 0.5
    assert kb["learned"].learnable
    assert parse(kb.unicode(), warn=False) == kb


EXAMPLE = """
# --- declarations
sort Image                                    # objects that arrive with the data
sort Person; sort Object
sort Digit = 0..9                             # finite, integers
sort Colour = {red, green, blue}              # finite, names
const alice, bob: Person
pred friends(Person, Person)                  # a truth value
pred smokes(Person), cancer(Person), parent(Person, Person)
pred sum9(Image, Image), same(Image, Image), is(Image, Digit), left(Object, Object)
func digit(Image) -> Digit                    # a neural function
func succ(Digit) -> Digit

# --- axioms: optional [name] and weight
[symmetry]                forall x, y: Person. friends(x, y) -> friends(y, x)
[homophily, weight 0.5]   forall x, y: Person where x != y. friends(x, y) & smokes(x) -> smokes(y)
[learned,  weight ?]      forall x: Person. smokes(x) -> cancer(x)          # the weight is a parameter
[has9]                    forall x: Image. exists y: Image. sum9(x, y)
[one]                     forall x: Image. exactly 1 d: Digit. is(x, d)      # also: at most k, at least k
[batchwise]               forall x, y: Image sample 64. same(x, y) -> same(y, x)   # a fresh random batch each time
[rows]                    forall p in pairs. digit(p.left) + digit(p.right) = p.sum    # zipped data rows
[scene]                   forall s in scenes. forall x, y in s.objects. left(x, y) -> !left(y, x)
fact parent(alice, bob)

# --- statements: draw once, use in the scope
forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum & d <= e)
"""
