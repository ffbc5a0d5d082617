"""Trees and knowledge bases come back from text, from Unicode, from pickles and from the Python builder."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from tests.logic.strategies import knowledge_bases, trees

import doxa.logic as logic
from doxa.logic import (
    And,
    Arith,
    Axiom,
    Call,
    Compare,
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
    parse,
    postorder,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import as_expr, fold
from doxa.logic.text._builder import Builder
from doxa.logic.text._grammar import Unexpected, run, table
from doxa.logic.text._lexer import Vocabulary, tokens

pytestmark = pytest.mark.filterwarnings("ignore::doxa.errors.KnowledgeWarning")
slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def parsed(text: str) -> Expr:
    """The one formula of a text, unchecked."""
    builder = Builder()
    run(table(), tokens(text, Vocabulary(builder.share)), builder)
    (item,) = builder.items
    assert isinstance(item, Axiom)
    return item.formula


@slow
@given(trees)
def test_trees_come_back_from_text_and_unicode(tree: Expr) -> None:
    formula = logic.Not(tree).children[0]  # a bare name where a formula stands is a proposition
    assert parsed(str(formula)) == formula
    assert parsed(formula.unicode()) == formula
    if '"' not in str(formula):
        assert parsed(str(formula).replace(" ", "\t \r")) == formula
    assert formula.latex()


@slow
@given(trees)
def test_no_parentheses_can_be_left_out(tree: Expr) -> None:
    """Each pair of parentheses matters: without it the text means something else or nothing."""
    formula = logic.Not(tree).children[0]
    text = str(formula)
    if '"' in text:
        return
    opened: list[int] = []
    for i, character in enumerate(text):
        if character == "(":
            opened.append(i)
        elif character == ")":
            start = opened.pop()
            before = text[:start].rstrip()
            if ":=" in text[start:i]:  # parentheses around a statement are a courtesy
                continue
            # The parentheses of applications and statements are part of them.
            if before and (before[-1].isalnum() or before[-1] in "_)" or not before[-1].isascii()):
                continue
            bare = f"{text[:start]} {text[start + 1 : i]} {text[i + 1 :]}"
            with contextlib.suppress(Unexpected, ValueError):
                assert parsed(bare) != formula, (text, bare)


# --- the Python builder -------------------------------------------------------------------------------------------

_OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "mod": operator.mod,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": lambda a, b: a.eq(b),
    "!=": lambda a, b: a.ne(b),
}


def in_python(root: Expr, signature: Signature) -> Expr:
    """The same formula, written with the operators and functions of the Python builder."""

    def name(label: str) -> Expr:
        return logic.Name(label)

    def binder(group: Group, domain: Expr | None) -> list[Name | Group]:
        if domain is not None:
            names = [Name(n) for n in group.names]
            return [logic.within(domain, *names, sample=group.sample)]
        names = [Name(n, hint=signature.sorts[group.sort or ""]) for n in group.names]
        return list(names) if group.sample is None else [logic.sample(group.sample, *names)]

    def build(node: Expr, below: tuple[Expr, ...]) -> Expr:
        match node:
            case Name():
                return name(node.name)
            case Number():
                return as_expr(node.value)
            case Truth():
                return as_expr(node.value)
            case Call():
                symbol = signature.predicates.get(node.name) or signature.functions[node.name]
                return logic.fresh(symbol(*below)) if node.fresh else symbol(*below)
            case Field():
                return below[0].field(node.name)
            case Index():
                return below[0][below[1]]
            case Arith() if len(below) == 1:
                return -below[0]
            case Arith() | Compare():
                return _OPERATORS[node.op](*below)
            case Not():
                return ~below[0]
            case And():
                return functools.reduce(operator.and_, below)
            case Or():
                return functools.reduce(operator.or_, below)
            case Xor():
                return below[0] ^ below[1]
            case Implies():
                return below[0] >> below[1]
            case Iff():
                return below[0].iff(below[1])
            case Let():
                pairs = zip(node.names, below[:-1], strict=True)
                return logic.let(*[(Name(n), v) for n, v in pairs])(below[-1])
            case Quantifier():
                domains = iter(below)
                binders: list[Name | Group] = []
                for group in node.groups:
                    binders += binder(group, next(domains) if group.domain is not None else None)
                guard = below[-2] if node.guard is not None else None
                counted = {"exactly": logic.exactly, "at most": logic.at_most, "at least": logic.at_least}
                if node.count is not None:
                    return counted[node.kind](node.count, *binders, where=guard)(below[-1])
                plain = {"forall": logic.forall, "exists": logic.exists}[node.kind]
                return plain(*binders, where=guard)(below[-1])
        raise AssertionError(node)

    return fold(build, root)


@slow
@given(knowledge_bases())
def test_knowledge_bases_come_back(kb: KnowledgeBase) -> None:
    # from text and Unicode
    again = parse(str(kb), warn=False)
    assert again == kb
    assert str(again) == str(kb)
    assert parse(kb.unicode(), warn=False) == kb
    assert kb.latex().startswith("\\begin{align*}")
    # from pickles and copies, with what they share
    back = pickle.loads(pickle.dumps(kb))
    assert copy.deepcopy(kb) == copy.copy(kb) == back == kb
    for one in (kb, back, again):
        nodes = list(postorder(*[a.formula for a in one.axioms], *[f.atom for f in one.facts]))
        assert len(set(nodes)) == len(nodes), "equal subtrees are one object"
    # from the Python builder
    signature = kb.signature
    axioms = [Axiom(a.name, in_python(a.formula, signature), a.weight, a.learnable, a.named) for a in kb.axioms]
    facts = [logic.Fact(in_python(f.atom, signature), f.label, f.weight) for f in kb.facts]  # type: ignore[arg-type]
    assert KnowledgeBase(*signature, *axioms, *facts) == kb
    # one formula at a time
    for axiom in kb.axioms:
        assert logic.parse_formula(str(axiom.formula), kb) == axiom.formula


def test_declarations_are_found_in_formulas() -> None:
    person = Sort("Person")
    digit = logic.Function("age", (person,), Sort.range("Age", 0, 99))
    (x,) = logic.variables("x", person)
    mood = Sort("Mood", ("good", "bad"))
    feels = Predicate("feels", (person, mood))
    alice = logic.Constant("alice", person)
    kb = KnowledgeBase(
        old=logic.forall(x)((digit(x) > 60) >> feels(x, mood["good"])),
        alice=feels(alice, mood["bad"]),
    )
    assert kb == parse(
        """
        [old] forall x: Person. age(x) > 60 -> feels(x, good)
        [alice] feels(alice, bad)
        sort Person; sort Mood = {good, bad}; sort Age = 0..99
        func age(Person) -> Age; pred feels(Person, Mood); const alice: Person
        """
    )
