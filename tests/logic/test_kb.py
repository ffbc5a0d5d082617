"""Knowledge bases: putting them together, looking things up, extending and pickling them."""

from __future__ import annotations

import copy
import pickle

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import (
    Axiom,
    Call,
    Constant,
    Fact,
    KnowledgeBase,
    Name,
    Predicate,
    Sort,
    exists,
    forall,
    parse,
    parse_formula,
    postorder,
    propositions,
    variables,
)
from doxa.logic.syntax._diagnostics import Diagnostic
from doxa.logic.syntax._symbols import Signature

a, b, c = propositions("a b c")
person = Sort("Person")
friends = Predicate("friends", (person, person))
x, y = variables("x y", person)


def test_axioms_without_a_name_are_named_after_their_place() -> None:
    kb = parse("pred a, b; a; [axiom3] b; a & b; [axiom4] a | b; b -> a")
    assert [x.name for x in kb] == ["axiom1", "axiom3", "axiom3_", "axiom4", "axiom5"]
    assert [x.named for x in kb] == [False, True, False, True, False]
    assert str(kb).split("\n")[2:] == ["a", "[axiom3] b", "a & b", "[axiom4] a | b", "b -> a"]
    assert parse(str(kb)) == kb
    renamed = KnowledgeBase(Axiom("whatever", a, named=False), Axiom("first", b))
    assert [x.name for x in renamed] == ["axiom1", "first"]


def test_axioms_are_looked_up_by_name() -> None:
    kb = KnowledgeBase(symmetry=a >> b, homophily=b >> a)
    assert kb["symmetry"].formula == a >> b
    assert "symmetry" in kb
    assert "symetry" not in kb
    assert len(kb) == 2
    with pytest.raises(KeyError, match="no axiom 'symetry'; did you mean 'symmetry'"):
        kb["symetry"]
    with pytest.raises(KeyError, match="there are: symmetry, homophily"):
        kb["zzz"]
    with pytest.raises(KeyError, match="there are: none"):
        KnowledgeBase()["zzz"]


def test_two_axioms_of_one_name_are_refused() -> None:
    with pytest.raises(KnowledgeError, match="two axioms are named 'r'"):
        KnowledgeBase(Axiom("r", a), Axiom("r", b))


def test_python_formulas_are_checked_and_quoted() -> None:
    with pytest.raises(KnowledgeError) as caught:
        KnowledgeBase(
            person,
            friends,
            one=forall(x)(Call("frends", (x, x))),
            two=exists(y)(friends(y, y) & Name("z").eq(y)),
            three=a.eq(3),
        )
    found = [d for d in caught.value.diagnostics if isinstance(d, Diagnostic)]
    assert len(found) >= 3
    assert all(d.span is None for d in found)
    assert any("frends" in d.message and "[one] forall x: Person. frends(x, x)" in d.message for d in found)
    assert any(d.remedy == "did you mean 'friends'?" for d in found)
    assert any("[two]" in d.message for d in found)


def test_python_facts_are_checked() -> None:
    alice = Constant("alice", person)
    fine = KnowledgeBase(Fact(friends(alice, alice)))  # type: ignore[arg-type]
    assert fine.signature.constants == {"alice": alice}
    with pytest.raises(KnowledgeError, match="'bob'"):
        KnowledgeBase(friends, Fact(Call("friends", (Name("bob"), Name("bob")))))


def test_weights_are_checked() -> None:
    with pytest.raises(KnowledgeError, match="weight"):
        KnowledgeBase(Axiom("r", a, weight=float("nan")))
    with pytest.raises(KnowledgeError, match="weight"):
        parse("pred a; [r, weight -1] a")


def test_what_is_no_part_of_a_knowledge_base_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot put 'rain' of type str into a knowledge base"):
        KnowledgeBase("rain")  # type: ignore[arg-type]
    with pytest.raises(KnowledgeError, match="'friends' is already declared as a predicate of 2 arguments"):
        KnowledgeBase(friends, Predicate("friends", (person,)))


def test_a_bare_name_is_a_proposition() -> None:
    kb = KnowledgeBase(Predicate("rain"), wet=Name("rain"))
    assert kb["wet"].formula == Call("rain")


def test_equal_subformulas_are_one_object() -> None:
    kb = KnowledgeBase(
        friends, one=forall(x, y)(friends(x, y) >> friends(y, x)), two=forall(x, y)(friends(x, y) >> friends(x, x))
    )
    for each in (kb, pickle.loads(pickle.dumps(kb)), parse(str(kb)), copy.deepcopy(kb)):
        assert each == kb
        first, second = each["one"].formula.children[0], each["two"].formula.children[0]
        assert first.children[0] is second.children[0]
        nodes = list(postorder(*[axiom.formula for axiom in each]))
        assert len(set(nodes)) == len(nodes)


def test_copies_have_declarations_of_their_own() -> None:
    kb = KnowledgeBase(r=a)
    for twin in (copy.copy(kb), copy.deepcopy(kb)):
        twin.signature.add(Predicate("new"))
        assert "new" not in kb.signature.predicates


def test_the_union_of_knowledge_bases() -> None:
    first, second = KnowledgeBase(one=a >> b), KnowledgeBase(Fact(c), two=b >> c)  # type: ignore[arg-type]
    both = first | second
    assert [x.name for x in both] == ["one", "two"]
    assert both == parse("pred a, b, c; fact c; [one] a -> b; [two] b -> c", warn=False)
    assert first == KnowledgeBase(one=a >> b), "neither operand is changed"
    with pytest.raises(KnowledgeError, match="two axioms are named 'one'"):
        first | first
    with pytest.raises(KnowledgeError, match="'a' is already declared"):
        first | KnowledgeBase(Constant("a", person))
    with pytest.raises(TypeError):
        first | 3  # type: ignore[operator]


def test_a_knowledge_base_is_extended_by_text() -> None:
    kb = parse("pred a, b; [one] a -> b; fact a")
    more = parse("pred c\n[two] b -> c\nfact !c", base=kb)
    assert more == parse("pred a, b, c; [one] a -> b; [two] b -> c; fact a; fact !c", warn=False)
    assert len(kb) == 1
    assert "c" not in kb.signature.predicates
    assert more["one"].formula.children[1] is more["two"].formula.children[0], "shared with what was there"
    with pytest.raises(KnowledgeError, match="two axioms are named 'one'"):
        parse("[one] b", base=kb)
    with pytest.raises(KnowledgeError, match="'a' is already declared"):
        parse("pred a", base=kb)


def test_only_what_is_new_is_warned_of() -> None:
    kb = parse("pred a, b; [idle] a | !a; b", warn=False)
    assert len(parse("[new] a & b", base=kb)) == 3
    with pytest.warns(UserWarning, match="always holds") as caught:
        parse("[other] b | !b", base=kb)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_formulas_in_the_language_of_a_knowledge_base() -> None:
    kb = parse("sort P; const k: P; pred p(P), q; q -> p(k)", warn=False)
    assert parse_formula("forall x: P.\n p(x)\n & q", kb).unicode() == "∀x: P. p(x) ∧ q"
    assert parse_formula("q", kb) == Call("q")
    for wrong in ("", "# nothing", "[name] q", "pred r", "q; q", "fact q"):
        with pytest.raises(KnowledgeError, match="one formula is wanted"):
            parse_formula(wrong, kb)
    with pytest.raises(KnowledgeError, match="<text>:1:3: error: unknown name 'j'"):
        parse_formula("p(j)", kb)
    with pytest.raises(KnowledgeError, match="something is missing after '&'"):
        parse_formula("q & ", kb)


def test_signatures_compare_and_list_their_declarations() -> None:
    kb = parse("sort P; const k: P; pred p(P); func f(P) -> P; data rows(a: P); p(f(k))", warn=False)
    again = Signature()
    for declaration in kb.signature:
        again.add(declaration)
    assert again == kb.signature
    assert kb != KnowledgeBase()
    assert kb != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(kb)
    assert repr(kb) == "<KnowledgeBase of 1 axioms and 0 facts>"
