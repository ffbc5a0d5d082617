"""Formulas, data and their plain-Python world, generated: what the tests of grounding compare on; simplification."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from tests.logic.naive import Undefined, World
from torch import Tensor, nn

from doxa.logic import (
    INT,
    And,
    Arith,
    Axiom,
    Call,
    Compare,
    Constant,
    Expr,
    Field,
    Function,
    Iff,
    Implies,
    Index,
    Interpretation,
    KnowledgeBase,
    Let,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Quantifier,
    Ragged,
    Rows,
    Sort,
    Truth,
    Xor,
    logits,
    probs,
)
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._simplify import Builder, formulas, parts

P = Sort("P")
D = Sort.range("D", 1, 3)
C = Sort("C", ("red", "green"))
DECLARATIONS = (
    P,
    D,
    C,
    Constant("someone", P),
    Constant("two", D),
    Predicate("flag"),
    Predicate("p", (P,)),
    Predicate("r", (P, P)),
    Predicate("q", (D,)),
    Predicate("has", (P, C)),
    Predicate("t", (P, D, P)),
    Function("f", (P,), D),
    Function("g", (D,), D),
    Function("next", (D,), D),
    Function("parent", (P,), P),
    Function("colour", (P,), C),
    Function("both", (P, P), C),
    Function("age", (P,), INT),
    Rows(
        "rows",
        (
            ("who", P, False),
            ("d", D, False),
            ("k", INT, False),
            ("seq", INT, True),
            ("pair", P, True),
            ("some", P, True),
        ),
    ),
)


class Pairs(nn.Module):
    """A relation head: logits for pairs of feature vectors, with one output per value or a single one."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("na,kab,nb->nk", x, self.weight, y).squeeze(-1)


class Fast(Pairs):
    """The same with all pairs at once."""

    def pairwise(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("na,kab,mb->nmk", x, self.weight, y).squeeze(-1)


@dataclass
class Case:
    """One interpretation with its data, as tensors and as a plain world."""

    bindings: dict[str, Any]
    data: dict[str, Any]
    world: World

    def knowledge(self, *formulas: Expr) -> tuple[KnowledgeBase, Interpretation]:
        kb = KnowledgeBase(*DECLARATIONS, *[Axiom(f"a{i}", f) for i, f in enumerate(formulas)])
        return kb, Interpretation(kb, **self.bindings)


def make_case(seed: int, people: int, rows: int, neural: bool) -> Case:
    """Random tables or random networks over ``people`` objects, and ``rows`` rows."""
    g = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g)

    def ints(high: int, *shape: int) -> Tensor:
        return torch.randint(0, max(1, high), shape, generator=g)

    n = people
    rows = rows if n else 0  # a row speaks of somebody
    features = rand(n, 3)
    bindings: dict[str, Any] = {
        "flag": bool(rand(1) > 0),
        "q": rand(3) > 0,
        "g": ints(3, 3) + 1,
        "next": lambda d: d + 1,
        "t": rand(n, 3, n) > 0,
        "parent": ints(n, n),
        "age": ints(7, n) - 2,
        "two": 2,
    }
    if n:
        bindings["someone"] = int(ints(n, 1))
    tables: dict[str, Tensor] = {k: v for k, v in bindings.items() if isinstance(v, Tensor)}
    if neural:
        has, colour, f = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 3)
        for layer in (has, colour, f):
            layer.weight.data = rand(*layer.weight.shape)
            layer.bias.data = rand(*layer.bias.shape)
        r, both, p = Fast(rand(1, 3, 3)), Pairs(rand(2, 3, 3)), nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
        p[0].weight.data = rand(1, 3)
        bindings |= {
            "p": probs(p),
            "has": logits(has),
            "colour": logits(colour),
            "f": logits(f),
            "r": logits(r),
            "both": logits(both),
        }
        with torch.no_grad():
            # One object, or one pair, at a time: what the machine may never do.
            tables["p"] = _stack([p(x[None])[0, 0] > 0.5 for x in features], n)
            tables["has"] = _stack([has(x[None])[0] > 0 for x in features], n, 2)
            tables["colour"] = _stack([colour(x[None])[0].argmax() for x in features], n)
            tables["f"] = _stack([f(x[None])[0].argmax() + 1 for x in features], n)
            tables["r"] = _stack([r(x[None], y[None]).reshape(()) > 0 for x in features for y in features], n, n)
            tables["both"] = _stack([both(x[None], y[None])[0].argmax() for x in features for y in features], n, n)
    else:
        given = {
            "p": rand(n) > 0,
            "has": rand(n, 2) > 0,
            "colour": ints(2, n),
            "f": ints(3, n) + 1,
            "r": rand(n, n) > 0,
            "both": ints(2, n, n),
        }
        bindings |= given
        tables |= given
    lengths = ints(4, rows)
    table = {
        "who": ints(n, rows),
        "d": ints(3, rows) + 1,
        "k": ints(6, rows) - 1,
        "seq": ints(4, rows, 2),
        "pair": ints(n, rows, 2),
        "some": Ragged(ints(n, int(lengths.sum())), lengths),
    }
    return Case(bindings, {"P": features if neural else n, "rows": table}, _world(n, bindings, tables, table, lengths))


def _stack(values: list[Tensor], *shape: int) -> Tensor:
    return torch.stack(values).reshape(shape) if values else torch.zeros(shape, dtype=torch.bool)


def _world(
    n: int, bindings: dict[str, Any], tables: dict[str, Tensor], table: dict[str, Any], lengths: Tensor
) -> World:
    low = {"q": 1, "g": 1}

    def lookup(name: str) -> Any:
        entries = tables[name].tolist()

        def call(*args: Any) -> Any:
            value = entries
            for place, arg in enumerate(args):
                is_d = name in low or (name == "t" and place == 1)
                at = C.values.index(arg) if arg in C.values else arg - 1 if is_d else arg
                if not 0 <= at < len(value):
                    raise Undefined(f"{name}{args}")
                value = value[at]
            return C.values[value] if name in ("colour", "both") else value

        return call

    def following(d: int) -> int:
        if d + 1 > 3 or not d >= 1:
            raise Undefined(f"next({d})")
        return d + 1

    symbols = {name: lookup(name) for name in tables} | {"flag": lambda: bindings["flag"], "next": following}
    starts = (lengths.cumsum(0) - lengths).tolist()
    rows = [
        {
            "who": table["who"][i].item(),
            "d": table["d"][i].item(),
            "k": table["k"][i].item(),
            "seq": table["seq"][i].tolist(),
            "pair": table["pair"][i].tolist(),
            "some": table["some"].values[starts[i] : starts[i] + int(lengths[i])].tolist(),
        }
        for i in range(len(lengths))
    ]
    constants = {"two": 2} | ({"someone": bindings["someone"]} if n else {})
    return World({"P": list(range(n)), "D": [1, 2, 3], "C": list(C.values)}, symbols, constants, {"rows": rows})


# --- formulas -----------------------------------------------------------------------------------------------------


class Maker:
    """Random well-sorted formulas; ``partial`` lets terms without a value occur."""

    def __init__(self, seed: int, *, people: bool, partial: bool = False) -> None:
        self.random = random.Random(seed)
        self.people = people
        self.partial = partial
        self.fresh = 0

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def term(self, sort: str, scope: dict[str, str], depth: int) -> Expr:
        """A term of sort P, D, C or Int (``N``)."""
        r = self.random
        names: list[Expr] = [Name(n) for n, s in scope.items() if s == sort]
        rows = [n for n, s in scope.items() if s == "row"]
        options: list[Any] = [lambda: r.choice(names)] * (3 if names else 0)
        deep = depth > 0
        if sort == "P":
            if rows:
                options.append(lambda: Field(Name(r.choice(rows)), "who"))
            if self.people:
                options.append(lambda: Name("someone"))
            if deep:
                options.append(lambda: Call("parent", (self.term("P", scope, depth - 1),)))
        elif sort == "D":
            options += [lambda: Number(r.randint(1, 3)), lambda: Name("two")]
            if rows:
                options.append(lambda: Field(Name(r.choice(rows)), "d"))
            if deep:
                options.append(lambda: Call("g", (self.term("D", scope, depth - 1),)))
                options.append(lambda: 1 + self.term("N", scope, depth - 1) % 3)
                if self.has_people(scope):
                    options.append(lambda: Call("f", (self.term("P", scope, depth - 1),)))
                if self.partial:
                    options.append(lambda: Call("next", (self.term("D", scope, depth - 1),)))
                    options.append(lambda: self.term("D", scope, depth - 1) + 1)
        elif sort == "C":
            options += [lambda: Name(r.choice(C.values))]
            if deep and self.has_people(scope):
                options.append(lambda: Call("colour", (self.term("P", scope, depth - 1),)))
                options.append(lambda: Call("both", tuple([self.term("P", scope, depth - 1) for _ in range(2)])))
        else:
            options += [lambda: Number(r.randint(-2, 4))]
            if rows:
                options.append(lambda: Field(Name(r.choice(rows)), "k"))
                options.append(lambda: Index(Field(Name(r.choice(rows)), "seq"), Number(r.randint(0, 1))))
                if self.partial:
                    options.append(lambda: Index(Field(Name(r.choice(rows)), "seq"), self.term("N", scope, 0)))
            if deep:
                options.append(lambda: self.term("D", scope, depth - 1))
                options.append(self.arith(scope, depth))
                if self.has_people(scope):
                    options.append(lambda: Call("age", (self.term("P", scope, depth - 1),)))
        return r.choice(options)()

    def arith(self, scope: dict[str, str], depth: int) -> Any:
        def make() -> Expr:
            op = self.pick("+", "-", "*", "//", "mod")
            left = self.term("N", scope, depth - 1)
            if op in ("//", "mod") and not self.partial:
                return Arith(op, left, Number(self.random.randint(1, 3)))
            return Arith(op, left, self.term("N", scope, depth - 1))

        return make

    def has_people(self, scope: dict[str, str]) -> bool:
        return self.people or "P" in scope.values() or "row" in scope.values()

    def atom(self, scope: dict[str, str], depth: int) -> Expr:
        sorts = {"p": "P", "r": "PP", "q": "D", "has": "PC", "t": "PDP", "flag": ""}
        people = self.has_people(scope)
        usable = [n for n, s in sorts.items() if people or "P" not in s]
        kind = self.random.random()
        if kind < 0.65:
            name = self.random.choice(usable)
            return Call(name, tuple([self.term(s, scope, depth) for s in sorts[name]]))
        sort = self.pick("D", "C", "N", *(["P"] if people else []))
        ops = ("=", "!=", "<", "<=", ">", ">=") if sort in "DN" else ("=", "!=")
        return Compare(self.pick(*ops), self.term(sort, scope, depth), self.term(sort, scope, depth))

    def formula(self, depth: int, scope: dict[str, str] | None = None) -> Expr:
        scope = scope or {}
        if depth <= 0 or self.random.random() < 0.1:
            return Truth(self.pick(True, False)) if self.random.random() < 0.05 else self.atom(scope, 2)
        kind = self.pick("not", "and", "or", "implies", "iff", "xor", "let", "q", "q", "q", "q")
        if kind == "q":
            return self.quantifier(depth, scope)
        if kind == "let":
            names, inner = [], dict(scope)
            for _ in range(self.pick(1, 1, 2)):
                sort = self.pick("D", "D", *(["C"] if self.has_people(scope) else []))
                name = self.name(inner)
                while name in [n for n, _ in names]:
                    name = self.name({})
                call = self.term(sort, inner, 2)
                while not isinstance(call, Call):
                    call = Call("g", (self.term("D", inner, 1),))
                    sort = "D"
                names.append((name, call))
                inner[name] = sort
            return Let(names, self.formula(depth - 1, inner))
        many = self.pick(2, 3) if kind in ("and", "or") else 1 if kind == "not" else 2
        parts = [self.formula(depth - 1, scope) for _ in range(many)]
        build: Any = {"not": Not, "and": And, "or": Or, "implies": Implies, "iff": Iff, "xor": Xor}[kind]
        made: Expr = build(*parts)
        return made

    def name(self, scope: dict[str, str]) -> str:
        """Mostly a new name, sometimes one that hides another."""
        if scope and self.random.random() < 0.15:
            return self.random.choice([*scope])
        self.fresh += 1
        return f"v{self.fresh}"

    def quantifier(self, depth: int, scope: dict[str, str]) -> Expr:
        inner = dict(scope)
        groups = []
        taken: set[str] = set()
        for _ in range(self.pick(1, 1, 2)):
            rows = [n for n, s in inner.items() if s == "row"]
            over = self.pick("P", "P", "P", "D", "C", "rows", *(["some", "some", "pair", "seq"] if rows else []))
            base = self.random.choice(rows) if rows else ""
            names = []
            for _ in range(self.pick(1, 1, 2)):
                name = self.name(inner)
                while name in taken or name == base:
                    self.fresh += 1
                    name = f"v{self.fresh}"
                names.append(name)
                taken.add(name)
            if over in "PDC":
                groups.append(Group(names, sort=over))
            elif over == "rows":
                groups.append(Group(names, domain=Name("rows")))
            else:
                groups.append(Group(names, domain=Field(Name(base), over)))
            sort = {"rows": "row", "some": "P", "pair": "P", "seq": "N"}.get(over, over)
            inner |= dict.fromkeys(names, sort)
        kind = self.pick("forall", "forall", "exists", "exists", "exactly", "at most", "at least")
        number = self.random.randint(0, 3) if kind not in ("forall", "exists") else None
        guard = None
        if self.random.random() < 0.5:
            guard = self.pick(self.atom, self.atom, lambda s, d: And(self.atom(s, 1), self.atom(s, 1)))(inner, 1)
            if self.random.random() < 0.1:
                guard = self.formula(1, inner)
        return Quantifier(kind, groups, self.formula(depth - 1, inner), count=number, guard=guard)


cases = st.builds(
    make_case,
    seed=st.integers(0, 2**32),
    people=st.integers(0, 4),
    rows=st.integers(0, 3),
    neural=st.booleans(),
)


def simplify(formula: Expr) -> Expr:
    """A formula built anew by a builder, which leaves out what does not matter."""
    build = Builder()
    value: dict[int, Expr] = {}
    for node in formulas(formula):
        value[id(node)] = build.rebuild(node, [value[id(c)] for c in parts(node)])
    return build.flatten(value[id(formula)])
