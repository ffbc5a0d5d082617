"""Grounding keeps the meaning: compared with an interpreter that runs through all objects, on random worlds."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.logic.generated import simplify

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import (
    INT,
    And,
    Arith,
    Axiom,
    Call,
    Compare,
    Constant,
    Count,
    Expr,
    Fact,
    Field,
    Function,
    Iff,
    Implies,
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
    all_models,
    count,
    exactly,
    exists,
    forall,
    fresh,
    ground,
    let,
    postorder,
    sample,
    variables,
    within,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._simplify import evaluate

PERSON = Sort("Person")
DIGIT = Sort.range("Digit", 0, 2)
COLOUR = Sort("Colour", ("red", "blue"))
CONSTANTS = [Constant("ann", PERSON), Constant("bob", PERSON)]
OBJECTS: dict[str, list[Any]] = {"Person": ["ann", "bob"], "Digit": [0, 1, 2], "Colour": ["red", "blue"]}
SYMBOLS: dict[str, tuple[str, ...]] = {
    "rain": (),
    "smokes": ("Person",),
    "friends": ("Person", "Person"),
    "is": ("Person", "Digit"),
}
FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "age": (("Person",), "Digit"),
    "likes": (("Person",), "Colour"),
    "boss": (("Person",), "Person"),
    "best": ((), "Digit"),
}
SORTS = {"Person": PERSON, "Digit": DIGIT, "Colour": COLOUR}
DECLARED = [
    *CONSTANTS,
    COLOUR,
    *[Predicate(n, tuple([SORTS[s] for s in args])) for n, args in SYMBOLS.items()],
    *[Function(n, tuple([SORTS[s] for s in args]), SORTS[r]) for n, (args, r) in FUNCTIONS.items()],
]
ROWS = [{"who": "ann", "n": 2, "all": ["bob", "ann"]}, {"who": "bob", "n": 0, "all": []}]


class Maker:
    """Random well-sorted formulas with every construct."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fresh = 0

    def term(self, sort: str, scope: dict[str, str], depth: int) -> Expr:
        rng = self.rng
        choices = [Name(n) for n, s in scope.items() if s == sort]
        if sort == "Digit":
            choices.append(Number(rng.randrange(3)))
        else:
            choices.append(Name(rng.choice([o for o in OBJECTS[sort] if o not in scope])))
        rows = [n for n, s in scope.items() if s == "row"]
        if rows and sort in ("Person", "Digit"):
            choices.append(Field(Name(rng.choice(rows)), "who" if sort == "Person" else "n"))
        if depth > 0 and rng.random() < 0.5:
            name, (args, _) = rng.choice([(n, f) for n, f in FUNCTIONS.items() if f[1] == sort])
            return Call(name, tuple([self.term(a, scope, depth - 1) for a in args]))
        return rng.choice(choices)

    def number(self, scope: dict[str, str], depth: int) -> Expr:
        if depth > 0 and self.rng.random() < 0.6:
            op = self.rng.choice(["+", "-", "*", "//", "mod"])
            left, right = self.number(scope, depth - 1), self.number(scope, depth - 1)
            if op in ("//", "mod"):
                right = Arith("+", Number(3), Arith("*", right, right))  # never zero
            return Arith("-", left) if op == "-" and self.rng.random() < 0.3 else Arith(op, left, right)
        return self.term("Digit", scope, depth)

    def comparison(self, scope: dict[str, str], depth: int) -> Expr:
        if self.rng.random() < 0.5:
            op = self.rng.choice(Compare.OPERATORS)
            return Compare(op, self.number(scope, depth), self.number(scope, depth))
        sort = self.rng.choice(["Person", "Colour"])
        return Compare(self.rng.choice(["=", "!="]), self.term(sort, scope, 1), self.term(sort, scope, 1))

    def formula(self, depth: int, scope: dict[str, str] | None = None) -> Expr:
        rng, scope = self.rng, scope or {}
        if depth == 0 or rng.random() < 0.1:
            if rng.random() < 0.4:
                return self.comparison(scope, 1)
            name, args = rng.choice(list(SYMBOLS.items()))
            return Call(name, tuple([self.term(a, scope, 1) for a in args]))
        kind = rng.choice(["not", "and", "or", "implies", "iff", "xor", "all", "all", "count", "let", "rows"])
        if kind == "not":
            return Not(self.formula(depth - 1, scope))
        if kind in ("and", "or"):
            args = [self.formula(depth - 1, scope) for _ in range(rng.randint(0, 3))]
            return And(*args) if kind == "and" else Or(*args)
        if kind in ("implies", "iff", "xor"):
            build = {"implies": Implies, "iff": Iff, "xor": Xor}[kind]
            return build(self.formula(depth - 1, scope), self.formula(depth - 1, scope))
        if kind == "let":
            name, (args, result) = rng.choice(list(FUNCTIONS.items()))
            variable = self.variable()
            value = Call(name, tuple([self.term(a, scope, 1) for a in args]))
            return Let([(variable, value)], self.formula(depth - 1, {**scope, variable: result}))
        if kind == "rows":
            row, member = self.variable(), self.variable()
            body = self.formula(depth - 1, {**scope, row: "row", member: "Person"})
            inner = Quantifier("exists", [Group([member], domain=Field(Name(row), "all"))], body)
            return Quantifier("forall", [Group([row], domain=Name("rows"))], inner)
        sort = rng.choice(list(SORTS))
        names = list({self.variable(): None for _ in range(rng.randint(1, 2))})
        inside = {**scope, **dict.fromkeys(names, sort)}
        guard = self.formula(1, inside) if rng.random() < 0.4 else None
        quantifier = rng.choice(["forall", "exists"] if kind == "all" else ["exactly", "at most", "at least"])
        number = None if kind == "all" else rng.randrange(4)
        return Quantifier(
            quantifier, [Group(names, sort=sort)], self.formula(depth - 1, inside), count=number, guard=guard
        )

    def variable(self) -> str:
        self.fresh += 1
        return self.rng.choice([f"v{self.fresh}", "x", "bob"])  # hides an outer variable or the constant


class World:
    """A random meaning of every symbol, and truth by running through all objects."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.holds = {
            (n, a): rng.random() < 0.5 for n, sorts in SYMBOLS.items() for a in product(*[OBJECTS[s] for s in sorts])
        }
        self.value = {
            (n, a): rng.choice(OBJECTS[result])
            for n, (sorts, result) in FUNCTIONS.items()
            for a in product(*[OBJECTS[s] for s in sorts])
        }

    def of(self, node: Expr, scope: dict[str, Any]) -> Any:
        args = node.children
        match node:
            case Name():
                return scope.get(node.name, node.name)
            case Number() | Truth():
                return node.value
            case Call():
                key = (node.name, tuple([self.of(a, scope) for a in args]))
                return self.value[key] if node.name in FUNCTIONS else self.holds[key]
            case Field():
                return self.of(args[0], scope)[node.name]
            case Arith():
                values = [self.of(a, scope) for a in args]
                if len(values) == 1:
                    return -values[0]
                left, right = values
                return {
                    "+": left + right,
                    "-": left - right,
                    "*": left * right,
                    "//": left // (right or 1),
                    "mod": left % (right or 1),
                }[node.op]
            case Compare(op=op):
                left, right = [self.of(a, scope) for a in args]
                if op in ("=", "!="):
                    return (left == right) == (op == "=")
                return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[op]
            case Let():
                inner = dict(scope)
                for name, value in zip(node.names, node.values, strict=True):
                    inner[name] = self.of(value, inner)
                return self.of(node.body, inner)
            case Quantifier():
                found = [
                    self.of(node.body, inner)
                    for inner in self.instances(node, scope)
                    if node.guard is None or self.of(node.guard, inner)
                ]
                if node.count is None:
                    return all(found) if node.kind == "forall" else any(found)
                return {"exactly": sum(found) == node.count, "at most": sum(found) <= node.count}.get(
                    node.kind, sum(found) >= node.count
                )
        truths = [self.of(a, scope) for a in args]
        match node:
            case Not():
                return not truths[0]
            case And():
                return all(truths)
            case Or():
                return any(truths)
            case Implies():
                return not truths[0] or truths[1]
            case Iff():
                return truths[0] == truths[1]
            case Xor():
                return truths[0] != truths[1]
        raise AssertionError(node)

    def instances(self, node: Quantifier, scope: dict[str, Any]) -> list[dict[str, Any]]:
        scopes = [dict(scope)]
        for g in node.groups:
            if g.sort is not None:
                over = [OBJECTS[g.sort]] * len(scopes)
            else:
                over = [ROWS if g.domain == Name("rows") else self.of(g.domain, s) for s in scopes]  # type: ignore[arg-type]
            scopes = [
                {**s, **dict(zip(g.names, chosen, strict=True))}
                for s, objects in zip(scopes, over, strict=True)
                for chosen in product(objects, repeat=len(g.names))
            ]
        return scopes

    def truth(self, atom: Expr) -> bool:
        return bool(self.of(atom, {}))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_ground_formula_says_the_same(formula_seed: int, world_seed: int) -> None:
    formula = Maker(formula_seed).formula(4)
    kb = KnowledgeBase(*DECLARED, axiom=formula)
    view = ground(kb, domains={"rows": ROWS})
    for seed in (world_seed, world_seed + 1):
        world = World(seed)
        assignment = {atom: world.truth(atom) for atom in view.atoms}
        assert evaluate(view.formula, assignment) is bool(world.of(formula, {}))
        assert all(evaluate(c, assignment) is True for c in view.constraints)
        assert evaluate(ground(formula, kb, domains={"rows": ROWS}).theory, assignment) is bool(world.of(formula, {}))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_equal_subformulas_are_one_object(seed: int) -> None:
    formula = Maker(seed).formula(4)
    view = ground(KnowledgeBase(*DECLARED, axiom=formula), domains={"rows": ROWS})
    nodes = [n for n in postorder(view.formula) if not isinstance(n, Name | Number)]
    assert len({id(n) for n in nodes}) == len(set(nodes))
    assert set(view.atoms) >= {n for n in nodes if isinstance(n, Compare)}


def test_atoms_and_constraints_of_functions() -> None:
    age = Function("age", (PERSON,), DIGIT)
    (d,) = variables("d")
    view = ground(let((d, age(CONSTANTS[0])))((d + d).eq(4) & (d > 0)))
    assert [str(a) for a in view.atoms] == [f"age(ann) = {v}" for v in range(3)]
    assert view.constraints == (Count("exactly", 1, view.atoms),)
    assert view.formula == And(view.atoms[2], Or(*view.atoms[1:]))
    assert [m[view.atoms[2]] for m in all_models(view)] == [True]


def test_a_sum_of_many_functions_grows_with_its_values_and_not_with_its_choices() -> None:
    coin = Function("coin", (Sort.range("Toss", 1, 30),), Sort.range("Bit", 0, 1))
    total = coin(1)
    for i in range(2, 31):
        total = total + coin(i)
    view = ground(total.eq(15))
    assert len(list(postorder(view.formula))) < 30 * 30 * 5
    assignment = {a: bool(a.children[1].value == (a.children[0].children[0].value % 2)) for a in view.atoms}  # type: ignore[attr-defined]
    assert evaluate(view.formula, assignment) is True
    assert count(ground((coin(1) + coin(2) + coin(3)).eq(2))) == 3


def test_subformulas_are_grounded_once_for_the_variables_they_mention() -> None:
    number = Sort.range("Number", 1, 60)
    (x,), (y,), (z,) = variables("x", number), variables("y", number), variables("z", number)
    p, q = Predicate("p", (number, number)), Predicate("q", (number,))
    view = ground(forall(x)(forall(y)(exists(z)(p(x, z)) | q(y))))
    assert len(view.atoms) == 60 * 60 + 60
    assert sum(isinstance(n, Or) and len(n.children) == 61 for n in postorder(view.formula)) == 3600


def test_deeply_nested_quantifiers() -> None:
    bit = Sort.range("Bit", 0, 1)
    (x,), (y,) = variables("x", bit), variables("y", bit)
    q = Predicate("q", (bit,))
    deep = q(x)
    for _ in range(10_000):
        deep = exists(x)(forall(y)(~deep))
    assert ground(deep).formula == Not(Or(Not(q(0)), Not(q(1))))


def test_a_variable_hides_a_constant_of_the_same_name() -> None:
    p = Call("smokes", (Name("bob"),))
    everyone = Quantifier("forall", [Group(["bob"], sort="Person")], p)
    kb = KnowledgeBase(*DECLARED, one=p, all=everyone, both=And(p, everyone), again=p)
    ann, bob = Call("smokes", (Name("ann"),)), p
    assert ground(kb).axioms == {"one": bob, "all": ann & bob, "both": bob & ann, "again": bob}


def test_facts_are_literals() -> None:
    smokes = Predicate("smokes", (PERSON,))
    ann, bob = [smokes(c) for c in CONSTANTS]
    kb = KnowledgeBase(*CONSTANTS, Fact(ann), Fact(bob, False), Axiom("rule", ann >> ann, weight=0.5))  # type: ignore[arg-type]
    view = ground(kb)
    assert view.facts == (ann, Not(bob)) and view.axioms == {"rule": Truth(True)}
    assert view.atoms == (ann, bob)
    assert simplify(view.formula) == ann & ~bob
    assert list(all_models(kb)) == [{ann: True, bob: False}]


def test_counting_quantifiers_become_counting_constraints() -> None:
    (d,) = variables("d", DIGIT)
    p = Predicate("p", (DIGIT,))
    assert ground(exactly(1, d)(p(d))).formula == Count("exactly", 1, [p(i) for i in range(3)])
    assert ground(exactly(1, d, where=d.ne(1))(p(d) | d.eq(0))).formula == Not(p(2))


def test_objects_of_open_sorts() -> None:
    (x,) = variables("x", PERSON)
    smokes = Predicate("smokes", (PERSON,))
    kb = KnowledgeBase(CONSTANTS[0], axiom=forall(x)(smokes(x)))

    def people(**domains: Any) -> list[str]:
        return [str(a.children[0]) for a in ground(kb, domains=domains or None).atoms]

    assert people() == ["ann"]
    assert people(Person=3) == ["ann", "Person1", "Person2"]
    assert people(Person=["ann", "New York"]) == ["ann", '"New York"']
    assert ground(KnowledgeBase(axiom=forall(x)(smokes(x))), domains={"Person": []}).formula == Truth(True)


def test_what_does_not_exist_matters_only_where_it_is_used() -> None:
    (d,) = variables("d", DIGIT)
    p = Predicate("p", (DIGIT,))
    assert ground(forall(d, where=d < 2)(p(d) >> p(d + 1))).axioms
    assert (
        ground(forall(d)((d < 2) >> (p(d) >> p(d + 1)))).formula
        == ground(forall(d, where=d < 2)(p(d) >> p(d + 1))).formula
    )
    with pytest.raises(KnowledgeError, match=r"p\(3\) is not defined: 3 is no Digit.*with a guard"):
        ground(forall(d)(p(d + 1)))
    with pytest.raises(KnowledgeError, match="1 // 0 divides by zero"):
        ground(exists(d)((Number(1) // d).eq(1) & p(d)))
    (row,) = variables("row")
    pick = forall(within("rows", row))(p(row.field("digits")[1]))
    assert ground(pick, domains={"rows": [{"digits": [2, 0]}]}).formula == p(0)
    with pytest.raises(KnowledgeError, match="there is no element 1 among 1"):
        ground(pick, domains={"rows": [{"digits": [2]}]})


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ({"Persn": 3}, "no open sort 'Persn'; did you mean 'Person'"),
        ({"Digit": 3}, "Digit has its own 3 values"),
        ({"Person": 1}, "Person has 2 declared constants, more than 1"),
        ({"Person": ["ann", "bob", "ann"]}, "Person lists an object twice"),
        ({"Person": "ann"}, "Person must be a number or a sequence, got str"),
        ({"Person": ["ann", "bob", 1.5j]}, "cannot ground over 1.5j of type complex"),
        ({"Person": ["bob"]}, "constant ann is not among the objects given for Person"),
    ],
)
def test_wrong_domains(domains: dict[str, Any], message: str) -> None:
    (x,), (d,) = variables("x", PERSON), variables("d", DIGIT)
    formula = forall(x, d)(Call("is", (x, d)) | Call("smokes", (Name("ann"),)))
    with pytest.raises(BindingError, match=message):
        ground(KnowledgeBase(*DECLARED, axiom=formula), domains=domains)


x, (thing,) = Name("x"), variables("x", Sort("Thing"))
age, smokes = Function("age", (PERSON,), INT), Predicate("smokes", (PERSON,))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (forall(thing)(Call("p", (thing,))), "sort Thing is open, and nothing says which objects"),
        (forall(within("rows", x))(x.field("a").eq(1)), "no data rows 'rows'; give them"),
        (forall(sample(3, *variables("x", DIGIT)))(Call("p", (x,))), "range over a random sample"),
        (fresh(Call("p", (Number(1),))).eq(1), "draws anew wherever it is used"),
        (age(Name("ann", CONSTANTS[0])).eq(1), "age yields Int, and nothing says which values"),
        (Call("p", (Name("nobody"),)), "unknown name 'nobody'"),
        (smokes(Name("ann", CONSTANTS[0])) & age(Name("ann", CONSTANTS[0])), "age yields Int"),
        (Compare("=", smokes(Name("ann", CONSTANTS[0])), Number(1)), "a term is wanted in .* is a formula"),
        (Compare("<", Name("ann", CONSTANTS[0]), Number(1)), "numbers are wanted in .* there is 'ann'"),
        (And(Number(1), Call("p")), "a formula is wanted, but 1 is a term"),
    ],
)
def test_what_has_no_ground_form(formula: Expr, message: str) -> None:
    with pytest.raises((KnowledgeError, BindingError), match=message):
        ground(formula)


def test_symbols_must_be_declared_in_the_knowledge_base() -> None:
    kb = KnowledgeBase(*DECLARED)
    with pytest.raises(KnowledgeError, match="unknown predicate or function 'smoks'; did you mean 'smokes'"):
        ground(Call("smoks", (Name("ann"),)), kb)
    with pytest.raises(KnowledgeError, match="friends takes 2 arguments, got 1"):
        ground(Call("friends", (Name("ann"),)), kb)
