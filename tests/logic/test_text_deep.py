"""Nesting 100,000 deep and 100,000 operands: parsed, checked, printed and parsed again, without recursion."""

from __future__ import annotations

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import And, Expr, Implies, Not, Quantifier, parse, postorder

DEEP = 100_000
DECLARATIONS = "sort S; const k: S; pred a, b, p(S); func f(S) -> S\n"


def formula(text: str) -> Expr:
    return parse(DECLARATIONS + text, warn=False).axioms[0].formula


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!" * DEEP + "a", Not),
        ("a -> " * DEEP + "b", Implies),
        ("(" * DEEP + "a" + " -> b)" * DEEP, Implies),
        ("forall x: S. " * DEEP + "p(x)", Quantifier),
    ],
    ids=["negations", "implications", "implications to the left", "quantifiers"],
)
def test_depth(text: str, kind: type[Expr]) -> None:
    tree = formula(text)
    assert sum(type(node) is kind for node in postorder(tree)) == DEEP
    printed = str(tree)
    assert printed in (text, text[1:-1])  # the outermost parentheses are not needed


def test_parentheses() -> None:
    assert formula("(" * DEEP + "a" + ")" * DEEP) == formula("a")


@pytest.mark.parametrize(
    "text",
    ["a & b & " * (DEEP // 2) + "a", "(" * DEEP + "a" + " & b)" * DEEP, "(a & " * DEEP + "b" + ")" * DEEP],
    ids=["flat", "to the left", "to the right"],
)
def test_conjuncts(text: str) -> None:
    tree = formula(text)
    assert isinstance(tree, And)
    assert len(tree.children) == DEEP + 1
    assert str(tree) == text.replace("(", "").replace(")", "")


def test_terms_and_statements() -> None:
    nested = formula("p(" + "f(" * DEEP + "k" + ")" * DEEP + ")")
    assert len(str(nested)) == 3 * DEEP + 4
    statements = formula("d := f(k) (" * 10_000 + "p(d)" + ")" * 10_000)
    assert str(statements).count(":=") == 10_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * DEEP + "a", "'\\(' is never closed"),
        ("!" * DEEP, "something is missing after '!'"),
        ("a & " * 20_000 + "c", "unknown proposition 'c'"),
        ("!" * 20_000 + "p(j)", "unknown name 'j'"),
    ],
    ids=["brackets", "negations", "conjuncts", "check"],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(KnowledgeError, match=message):
        formula(text)


def test_many_axioms() -> None:
    kb = parse(DECLARATIONS + "\n".join([f"[r{i}] p(k) & a -> b | p(f(k))" for i in range(5_000)]), warn=False)
    assert len(kb) == 5_000
    assert len({id(axiom.formula) for axiom in kb}) == 1
