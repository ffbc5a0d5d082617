"""What is printed, word for word; that it parses back is tested with generated trees."""

from __future__ import annotations

import pytest

from doxa.logic import (
    And,
    Arith,
    Axiom,
    Call,
    Compare,
    Count,
    Expr,
    Field,
    Iff,
    Implies,
    Index,
    KnowledgeBase,
    Let,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Quantifier,
    Sort,
    Truth,
    Xor,
    propositions,
)
from doxa.logic.syntax._binders import Group

a, b, c = propositions("a b c")
x, y, p = Name("x"), Name("y"), Name("p")
D = Group(["x"], sort="Digit")


def every(body: Expr, **kwargs: object) -> Expr:
    return Quantifier("forall", [D], body, **kwargs)  # type: ignore[arg-type]


CASES = [
    # precedence and association
    (Implies(Implies(a, b), Implies(b, c)), "(a -> b) -> b -> c", "(a → b) → b → c"),
    (Iff(Iff(a, b), c), "a <-> b <-> c", "a ↔ b ↔ c"),
    (Iff(a, Iff(b, c)), "a <-> (b <-> c)", "a ↔ (b ↔ c)"),
    (Xor(a, Xor(b, Or(a, c))), "a xor (b xor a | c)", "a ⊕ (b ⊕ a ∨ c)"),
    (And(Or(a, b), Not(And(a, c))), "(a | b) & !(a & c)", "(a ∨ b) ∧ ¬(a ∧ c)"),
    (Not(Not(a)), "!!a", "¬¬a"),
    (Not(Compare("=", x, y)), "!x = y", "¬x = y"),
    # quantifiers reach as far right as they can
    (And(a, every(b)), "a & forall x: Digit. b", "a ∧ ∀x: Digit. b"),
    (And(every(b), a), "(forall x: Digit. b) & a", "(∀x: Digit. b) ∧ a"),
    (Or(And(a, every(b)), c), "a & (forall x: Digit. b) | c", "a ∧ (∀x: Digit. b) ∨ c"),
    (Or(c, And(a, Not(every(b)))), "c | a & !forall x: Digit. b", "c ∨ a ∧ ¬∀x: Digit. b"),
    (every(every(a), guard=b), "forall x: Digit where b. forall x: Digit. a", "∀x: Digit where b. ∀x: Digit. a"),
    (every(a, guard=every(b)), "forall x: Digit where forall x: Digit. b. a", "∀x: Digit where ∀x: Digit. b. a"),
    # statements
    (Let([("d", Call("f", (x,))), ("e", Call("g", ()))], a), "d := f(x), e := g() (a)", "d := f(x), e := g() (a)"),
    (And(Let([("d", Call("f", (x,)))], a), b), "(d := f(x) (a)) & b", "(d := f(x) (a)) ∧ b"),
    # quantifiers in full
    (
        Quantifier(
            "at most",
            [Group(["x", "y"], sort="Digit", sample=64), Group(["z"], domain=Field(p, "objects"))],
            a,
            count=2,
            guard=Compare("!=", x, y),
        ),
        "at most 2 x, y: Digit sample 64, z in p.objects where x != y. a",
        "∃≤2 x, y: Digit sample 64, z ∈ p.objects where x ≠ y. a",
    ),
    (Quantifier("exactly", [D], a, count=1), "exactly 1 x: Digit. a", "∃=1 x: Digit. a"),
    (Quantifier("at least", [D], a, count=0), "at least 0 x: Digit. a", "∃≥0 x: Digit. a"),
    (Quantifier("exists", [Group(["x"], domain=Arith("+", x, y))], a), "exists x in (x + y). a", "∃x ∈ (x + y). a"),
    # terms
    (Compare("<=", x - (y - 1), (x + 1) * y), "x - (y - 1) <= (x + 1) * y", "x - (y - 1) ≤ (x + 1) · y"),
    (Compare("=", -(x * y), -x * y), "-(x * y) = -x * y", "-(x · y) = -x · y"),
    (Compare("=", x // 2 % 3, x // (y % 3)), "x // 2 mod 3 = x // (y mod 3)", "x // 2 mod 3 = x // (y mod 3)"),
    (Compare("<", x - -3, Number(-0.5)), "x - -3 < -0.5", "x - -3 < -0.5"),
    (Compare(">", Index(-x, Number(2)), Field(Number(-1), "f")), "(-x)[2] > (-1).f", "(-x)[2] > (-1).f"),
    (Compare("=", Index(Field(p, "a"), x + 1), -Field(p, "b")), "p.a[x + 1] = -p.b", "p.a[x + 1] = -p.b"),
    (Compare("=", Number(1e30), Number(1e-7)), "1e+30 = 1e-07", "1e+30 = 1e-07"),
    (Compare("=", Call("f", (), fresh=True), Call("f", (x,), fresh=True)), *["fresh f() = fresh f(x)"] * 2),
    # a predicate of no arguments is bare where a formula stands, a function of none is not
    (And(Call("a"), Call("p", (Call("a"),))), "a & p(a())", "a ∧ p(a())"),
    (And(Truth(True), Truth(False)), "true & false", "⊤ ∧ ⊥"),
    # names that need quotation marks
    (Call("is in", (Name("New York"), Name("where"))), '"is in"("New York", "where")', '"is in"("New York", "where")'),
    (Compare("=", Field(p, "left hand"), Name('a "b" \\')), *[r'p."left hand" = "a \"b\" \\"'] * 2),
    (Quantifier("forall", [Group(["in"], sort="my sort")], a), 'forall "in": "my sort". a', '∀"in": "my sort". a'),
    # ground counting
    (Count("exactly", 1, [a, Not(b)]), "exactly 1 of (a, !b)", "∃=1 of (a, ¬b)"),
]


@pytest.mark.parametrize(("tree", "text", "symbols"), CASES)
def test_text_and_unicode(tree: Expr, text: str, symbols: str) -> None:
    assert str(tree) == text
    assert tree.unicode() == symbols


@pytest.mark.parametrize(
    ("tree", "latex"),
    [
        (Implies(a, Or(Not(b), c)), r"\mathrm{a} \rightarrow \neg \mathrm{b} \lor \mathrm{c}"),
        (Iff(a, Xor(b, Truth(False))), r"\mathrm{a} \leftrightarrow \mathrm{b} \oplus \bot"),
        (every(Compare("<=", x, Number(9))), r"\forall x \colon \mathrm{Digit}.\; x \leq 9"),
        (
            Quantifier("exactly", [Group(["x1"], domain=Name("rows"))], a, count=2, guard=b),
            r"\exists^{=2} x_{1} \in \mathit{rows} \text{ where } \mathrm{b}.\; \mathrm{a}",
        ),
        (Quantifier("at most", [D], a, count=1), r"\exists^{\leq 1} x \colon \mathrm{Digit}.\; \mathrm{a}"),
        (Quantifier("at least", [D], a, count=1), r"\exists^{\geq 1} x \colon \mathrm{Digit}.\; \mathrm{a}"),
        (
            Let([("d", Call("digit_of", (Name("img"),)))], Compare("!=", Name("d"), Number(1e-7))),
            r"d := \mathrm{digit\_of}(\mathit{img})\; (d \neq 1 \cdot 10^{-7})",
        ),
        (Compare(">=", x * 2 // 3 % y, Number(0)), r"x \cdot 2 \mathbin{/\!/} 3 \bmod y \geq 0"),
        (Call("50% {off}", ()), r"\mathrm{50\%\ \{off\}}"),
        (Count("at most", 1, [a, b]), r"\exists^{\leq 1} \text{of } (\mathrm{a}, \mathrm{b})"),
    ],
)
def test_latex(tree: Expr, latex: str) -> None:
    assert tree.latex() == latex


def test_a_knowledge_base_in_full() -> None:
    person = Sort("Person")
    knows = Predicate("knows", (person, person))
    from doxa.logic import INT, Constant, Fact, Function, Rows, forall, variables

    (v,) = variables("v", person)
    ann, bob = Constant("ann", person), Constant("bob", person)
    kb = KnowledgeBase(
        Sort.range("Digit", -1, 9),
        Sort("Colour", ("red", "dark green")),
        Function("age", (person,), INT),
        Function("now", (), INT),
        Rows("scenes", (("people", person, True), ("label", INT, False))),
        Predicate("rain"),
        bob,
        Fact(knows(ann, bob)),  # type: ignore[arg-type]
        Fact(knows(bob, ann), False),  # type: ignore[arg-type]
        Axiom("self", forall(v)(knows(v, v)), weight=0.25),
        Axiom("my rule", knows(ann, bob) >> knows(bob, ann), learnable=True),
        Axiom("start", Call("rain"), weight=2.0, learnable=True),
        ~Call("rain"),
        (-Call("age", (Name("ann"),))) < 3,
    )
    assert str(kb).split("\n") == [
        "sort Digit = -1..9",
        'sort Colour = {red, "dark green"}',
        "sort Person",
        "const bob, ann: Person",
        "pred rain",
        "pred knows(Person, Person)",
        "func age(Person) -> Int",
        "func now() -> Int",
        "data scenes(people: Person*, label: Int)",
        "fact knows(ann, bob)",
        "fact !knows(bob, ann)",
        "[self, weight 0.25] forall v: Person. knows(v, v)",
        '["my rule", weight ?] knows(ann, bob) -> knows(bob, ann)',
        "[start, weight 2.0?] rain",
        "!rain",
        "(-age(ann) < 3)",
    ]
    assert kb.latex().split("\n") == [
        r"\begin{align*}",
        r"  & \mathrm{knows}(\mathit{ann}, \mathit{bob}) \\",
        r"  & \neg \mathrm{knows}(\mathit{bob}, \mathit{ann}) \\",
        r"  & \forall v \colon \mathrm{Person}.\; \mathrm{knows}(v, v) && \text{self, weight $0.25$} \\",
        r"  & \mathrm{knows}(\mathit{ann}, \mathit{bob}) \rightarrow \mathrm{knows}(\mathit{bob}, \mathit{ann}) "
        r"&& \text{my rule, weight $w$} \\",
        r"  & \mathrm{rain} && \text{start, weight $w$} \\",
        r"  & \neg \mathrm{rain} \\",
        r"  & -\mathrm{age}(\mathit{ann}) < 3",
        r"\end{align*}",
    ]


def test_long_lists_of_constants_are_wrapped() -> None:
    from doxa.logic import Constant

    person = Sort("Person")
    lines = str(KnowledgeBase(*[Constant(f"c{i}", person) for i in range(25)])).split("\n")
    assert [line.count(",") for line in lines] == [0, 9, 9, 4]
