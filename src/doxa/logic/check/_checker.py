"""The walk of a static check: the kind of every node (see ``_sorts``), bottom up, in the scope that binders make.

A mistake leaves the unknown kind behind, which fits everywhere: one mistake is one report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from doxa.logic.check import _sorts
from doxa.logic.check._sorts import FORMULA, Kind, Many, describe, is_number, listing, plain, shape, show
from doxa.logic.syntax._binders import Aggregate, Binder, Let, Quantifier, free_variables
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._node import below
from doxa.logic.syntax._symbols import INT, REAL, Function, Predicate, Rows, Signature, Sort, literal
from doxa.logic.syntax._tree import CONNECTIVES, Arith, Call, Compare, Expr, Field, Index, Name, Number, Truth

Report = Callable[[Expr, str, "str | None"], None]  # called with the node at fault, what is wrong, and how to mend it

LEAVES: tuple[type[Expr], ...] = (Name, Number, Truth)
BINDERS: tuple[type[Expr], ...] = (Quantifier, Let, Aggregate)


class Checker:
    """The state of one check: the scope, the kinds found in it so far, and the steps still to take."""

    def __init__(self, signature: Signature, report: Report) -> None:
        self.signature = signature
        self.report = report
        self.scope: dict[str, Kind] = {}
        self.kinds: dict[int, Kind] = {}
        self.outer: list[tuple[dict[int, Kind], list[tuple[str, Kind, bool]]]] = []
        self.todo: list[tuple[Callable[[Any], None], Any]] = []
        self.said: set[tuple[int, str]] = set()
        self.unknown: set[str] = set()
        self.seen: set[int] = set()
        self.done: set[tuple[int, ...]] = set()
        self.free: dict[int, frozenset[str]] | None = None
        self.results: dict[int, Kind] = {}
        """The kinds of aggregates."""
        self.clashes: set[str] = set()
        """Propositions that are named like a variable; whether they are one depends on the scope."""

    def run(self, root: Expr) -> None:
        """Check a formula, which must stand on its own, or a clause of a definition."""
        self.root = root
        if isinstance(root, Define):
            self.open(root)
        else:
            self.todo.append((self.visit, root))
        while self.todo:
            step, subject = self.todo.pop()
            step(subject)
        self.formula(root)

    def visit(self, node: Expr) -> None:
        if id(node) in self.kinds:
            return
        if type(node) in BINDERS:
            if self.settled(node):
                self.kinds[id(node)] = self.results.get(id(node), FORMULA)
            else:
                self.open(node)  # type: ignore[arg-type]
            return
        unknown = [c for c in node.children if type(c) not in LEAVES and id(c) not in self.kinds]
        if unknown:
            self.todo.append((self.close, node))
            self.todo += [(self.visit, c) for c in reversed(unknown)]
        else:
            self.close(node)

    def close(self, node: Expr) -> None:
        rule = self.rules.get(type(node))
        if rule is None:
            self.say(node, f"a {type(node).__name__} is no part of the language", "use it on ground formulas only")
        self.kinds[id(node)] = None if rule is None else rule(self, node)

    def say(self, node: Expr, message: str, remedy: str | None) -> None:
        """Report, but only once when a shared node is met in several scopes."""
        if (id(node), message) not in self.said:
            self.said.add((id(node), message))
            self.report(node, message, remedy)

    # -- the kind of a node, those of its children being known -------------------------------------------------------

    def kind(self, node: Expr) -> Kind:
        if type(node) is Name:
            return self.name(node)
        if type(node) is Number:
            return REAL if isinstance(node.value, float) else INT
        return FORMULA if type(node) is Truth else self.kinds[id(node)]

    def formula(self, node: Expr) -> None:
        """Want a formula."""
        kind = self.kind(node)
        if kind is not FORMULA and kind is not None:
            message = f"a formula is needed here, but {show(node)} is {describe(kind)}"
            self.say(node, message, f"compare it with something, such as {plain(node, '...')} = ...")

    def term(self, node: Expr) -> Kind:
        """Want a term, and get its kind."""
        kind = self.kind(node)
        if kind is not FORMULA:
            return kind
        message = f"a term is needed here, but {show(node)} is a formula"
        self.say(node, message, "terms are variables, constants, numbers, fields and functions of terms")
        return None

    def connective(self, node: Expr) -> Kind:
        for child in node.children:
            self.formula(child)
        return FORMULA

    def name(self, node: Name) -> Kind:
        name = node.name
        if name in self.scope:
            return self.scope[name]
        signature = self.signature
        if name in signature.constants:
            return signature.constants[name].sort
        if name in signature.value_sorts:
            return signature.value_sorts[name]
        if name in signature.sorts:
            self.say(node, f"{name!r} is a sort, not a term", f"take an object of it: forall x: {name}. ...")
        elif name in signature.predicates:
            self.say(node, f"{name!r} is a predicate, not a term", "a predicate stands where a formula stands")
        elif name in signature.functions:
            self.say(node, f"{name!r} is a function, not a term", f"apply it: {shape(signature.functions[name])}")
        elif name in signature.rows:
            self.say(node, f"{name!r} names data rows, not a term", f"take one row: forall row in {name}. ...")
        elif name not in self.unknown:
            self.unknown.add(name)
            known = [*self.scope, *signature.constants, *signature.value_sorts]
            otherwise = f"bind it with forall or exists, or declare it: const {name}: ..."
            self.say(node, f"unknown name {name!r}", did_you_mean(name, known, otherwise))
        return None

    def call(self, node: Expr) -> Kind:
        name, args = node.label[0], node.children
        symbol: Predicate | Function | None = None
        result: Kind = FORMULA
        if args or name not in self.scope:
            symbol = self.signature.predicates.get(name)
            if symbol is None and (function := self.signature.functions.get(name)) is not None:
                symbol, result = function, function.result
        if symbol is None:
            self.not_applicable(node, name)
            return None
        if node.label[1] and name in self.signature.definitions:
            self.say(node, f"{name!r} is defined, so there is nothing to draw", "leave 'fresh' out")
        if len(args) != len(symbol.sorts):
            for arg in args:
                self.term(arg)
            wanted = f"{len(symbol.sorts)} argument{'' if len(symbol.sorts) == 1 else 's'}"
            self.say(node, f"{name} takes {wanted}, got {len(args)}", f"write {shape(symbol)}")
            return result
        for place, (arg, sort) in enumerate(zip(args, symbol.sorts, strict=True)):
            kind = self.kind(arg)
            if kind is not sort and kind is not None and (problem := self.misfit(arg, kind, sort)) is not None:
                message = f"argument {place + 1} of {name} must be {describe(sort)}, but {show(arg)} {problem}"
                remedy = f"{name} takes {listing(symbol)}"
                if isinstance(kind, Rows) and kind.fields:
                    remedy = f"use a field of the row: {plain(arg, 'row')}.{', .'.join(kind.field_names[:6])}"
                self.say(arg, message, remedy)
        return result

    def misfit(self, arg: Expr, kind: Kind, wanted: Sort) -> str | None:
        """Why a term is no argument of a sort."""
        if kind is FORMULA or not _sorts.fits(kind, wanted):
            return f"is {describe(kind)}"
        value = literal(arg) if isinstance(wanted.values, range) else None
        if value is not None and isinstance(wanted.values, range) and value not in wanted.values:
            return f"is outside {wanted.values[0]}..{wanted.values[-1]}"
        return None

    def not_applicable(self, node: Expr, name: str) -> None:
        signature = self.signature
        kinds = [self.term(a) for a in node.children]
        what = "predicate or function" if kinds else "formula"
        known = "a variable" if name in self.scope else signature.describe(name)
        if known is None:
            if name not in self.unknown:
                self.unknown.add(name)
                sorts = f"({', '.join([k.name if isinstance(k, Sort) else '...' for k in kinds])})" if kinds else ""
                what = "predicate or function" if kinds else "proposition"
                remedy = did_you_mean(
                    name, [*signature.predicates, *signature.functions], f"declare it: pred {name}{sorts}"
                )
                self.say(node, f"unknown {what} {name!r}", remedy)
            return
        remedy = f"compare it, such as {name} = ..., or write it as an argument"
        if name in signature.sorts:
            remedy = f"sorts are named where variables are bound: forall x: {name}. ..."
        elif name in signature.rows:
            remedy = f"take one row: forall row in {name}. ..."
        elif kinds:
            remedy = f"write {name} without arguments"
        self.say(node, f"{name!r} is {known}, not a {what}", remedy)

    def field(self, node: Expr) -> Kind:
        base, name = node.children[0], node.label
        kind = self.term(base)
        if isinstance(kind, Rows):
            for known, sort, many in kind.fields:
                if known == name:
                    return Many(sort) if many else sort
            fields = f"its fields are {', '.join(kind.field_names)}" if kind.fields else "it is declared without fields"
            self.say(node, f"{kind.name} has no field {name!r}", did_you_mean(name, kind.field_names, fields))
        elif kind is not None:
            remedy = "take a row: forall row in rows. row.field"
            if isinstance(kind, Many):
                remedy = f"take one of them: forall x in {plain(base, '...')}. ..."
            self.say(node, f"only data rows have fields, but {show(base)} is {describe(kind)}", remedy)
        return None

    def index(self, node: Expr) -> Kind:
        base, place = node.children
        kind, at, value = self.term(base), self.term(place), literal(place)
        if at is not None and (not is_number(at) or at == REAL):
            self.say(place, f"an index is an integer, but {show(place)} is {describe(at)}", "count with integers")
        elif value is not None and value < 0:
            self.say(place, f"an index is not negative, got {value}", "count from the first element on")
        if isinstance(kind, Many):
            return kind.sort
        if kind is not None:
            remedy = "only fields that hold several objects have indices; they are declared with a star: field: Sort*"
            self.say(node, f"{show(base)} is {describe(kind)}, not a sequence", remedy)
        return None

    def arith(self, node: Expr) -> Kind:
        kinds: list[Kind] = []
        for child in node.children:
            kind = self.term(child)
            if kind is not None and not is_number(kind):
                message = f"'{node.label}' needs numbers, but {show(child)} is {describe(kind)}"
                self.say(child, message, "numbers are Int, Real and range sorts such as sort Digit = 0..9")
                kind = None
            kinds.append(kind)
        if node.label in ("//", "mod") and literal(node.children[1]) == 0:
            self.say(node, f"{show(node)} divides by zero", "divide by another number")
        return _sorts.calculated(kinds)

    def compare(self, node: Expr) -> Kind:
        op, sides = node.label, node.children
        kinds = [FORMULA if self.is_proposition(s) else self.kind(s) for s in sides]
        if any(k is FORMULA for k in kinds):
            side = sides[0] if kinds[0] is FORMULA else sides[1]
            remedy = {"=": "two formulas are equal when a <-> b", "!=": "two formulas differ when a xor b"}.get(op)
            message = f"'{op}' compares terms, but {show(side)} is a formula"
            self.say(side, message, remedy or "formulas have no order; compare terms")
        elif op in ("=", "!="):
            if not _sorts.comparable(*kinds):
                each = " and ".join([f"{show(s)} is {describe(k)}" for s, k in zip(sides, kinds, strict=True)])
                self.say(node, f"'{op}' cannot compare: {each}", "compare objects of one sort, or numbers")
        else:
            for side, kind in zip(sides, kinds, strict=True):
                if kind is not None and not is_number(kind):
                    message = f"'{op}' needs numbers, but {show(side)} is {describe(kind)}"
                    self.say(side, message, "only numbers have an order; other objects are compared with = and !=")
                    break
        return FORMULA

    def is_proposition(self, node: Expr) -> bool:
        """Is a name where a term stands that of a proposition?"""
        return type(node) is Name and node.name not in self.scope and node.name in self.signature.predicates

    # -- scopes ------------------------------------------------------------------------------------------------------

    def settled(self, node: Expr) -> bool:
        """Was this shared binder checked before, with the same meaning of the names that are free in it?"""
        if id(node) not in self.seen:
            self.seen.add(id(node))
            return False
        if self.free is None:
            self.free = free_variables(self.root)
            nodes = list(below([self.root]))
            bound = {name for n in nodes if isinstance(n, Binder | Let) for name in n.names}
            self.clashes = {n.name for n in nodes if isinstance(n, Call) and not n.children and n.name in bound}
        names = self.free[id(node)] | self.clashes
        key = (id(node), *[id(self.scope[n]) if n in self.scope else 0 for n in sorted(names)])
        if key in self.done:
            return True
        self.done.add(key)
        return False

    def open(self, node: Binder | Let) -> None:
        names = node.names
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            self.say(node, f"variable {twice!r} is bound twice in one place", "give each variable its own name")
        self.outer.append((self.kinds, []))
        steps: list[tuple[Callable[[Any], None], Any]] = []
        if isinstance(node, Let):
            for name, value in zip(names, node.values, strict=True):
                if type(value) not in LEAVES:
                    steps.append((self.visit, value))
                steps.append((self.bind_value, (name, value)))
            inside = iter([node.body])
        else:
            inside = iter(node.children)
            for group, sort, sample in node.label[2]:
                domain = next(inside) if sort is None else None
                if domain is not None and type(domain) not in LEAVES:
                    steps.append((self.visit, domain))
                steps.append((self.bind_group, (node, group, sort, domain, sample)))
        steps += [(self.visit, c) for c in inside]
        steps.append((self.shut, node))
        self.todo += reversed(steps)

    def shut(self, node: Binder | Let) -> None:
        if isinstance(node, Binder) and node.guard is not None:
            self.guard(node, node.guard)
        result: Kind = FORMULA
        if isinstance(node, Aggregate):
            result = self.results[id(node)] = self.aggregate(node)
        elif isinstance(node, Define) and node.result is not None:
            self.value(node, self.term(node.body))
        else:
            self.formula(node.body)
        self.kinds, hidden = self.outer.pop()
        for name, kind, was_bound in reversed(hidden):
            if was_bound:
                self.scope[name] = kind
            else:
                del self.scope[name]
        self.kinds[id(node)] = result

    def guard(self, node: Binder, guard: Expr) -> None:
        """Want a guard that is a formula."""
        kind = self.kind(guard)
        if isinstance(node, Aggregate) and node.kind == "count" and kind is not FORMULA and kind is not None:
            message = f"a formula is needed after 'where', but {show(guard)} is {describe(kind)}"
            self.say(guard, message, "put what is counted in parentheses: count x: S where (x > 3)")
        else:
            self.formula(guard)

    def aggregate(self, node: Aggregate) -> Kind:
        """The kind of an aggregate, in the scope of its variables."""
        kind = self.term(node.body)
        if node.is_formula:
            return FORMULA
        if kind is not None and not is_number(kind):
            message = f"'{node.kind}' needs numbers, but {show(node.body)} is {describe(kind)}"
            self.say(node.body, message, "numbers are Int, Real and range sorts such as sort Digit = 0..9")
            kind = None
        if node.kind in ("argmin", "argmax"):
            return self.scope.get(node.names[0])
        return INT if node.kind == "count" else _sorts.calculated([kind]) if node.kind == "sum" else kind

    def value(self, node: Define, kind: Kind) -> None:
        """Want a body whose kind is that of the values of a function."""
        wanted = self.signature.sorts.get(str(node.result))
        if wanted is not None and kind is not None and (problem := self.misfit(node.body, kind, wanted)) is not None:
            message = f"the value of {node.name} must be {describe(wanted)}, but {show(node.body)} {problem}"
            self.say(node.body, message, f"{node.name} yields {wanted.name}")

    def bind(self, names: tuple[str, ...], kind: Kind) -> None:
        for name in names:
            self.outer[-1][1].append((name, self.scope.get(name), name in self.scope))
            self.scope[name] = kind
        self.kinds = {}  # what was found in the wider scope may be otherwise in this one

    def bind_value(self, binding: tuple[str, Expr]) -> None:
        name, value = binding
        kind: Kind = None
        if type(value) is not Call:
            message = f"'{name} :=' needs a function applied to something, got {show(value)}"
            self.say(value, message, f"write {name} := f(...), or put {plain(value, 'the value')} where {name} stands")
        elif (kind := self.kind(value)) is FORMULA:
            message = f"'{name} :=' draws the value of a function, but {show(value)} is a formula"
            self.say(value, message, f"put {plain(value, 'the formula')} where {name} stands")
            kind = None
        self.bind((name,), kind)

    def bind_group(self, group: tuple[Quantifier, tuple[str, ...], str | None, Expr | None, int | None]) -> None:
        node, names, sort, domain, sample = group
        if sample is not None and sample < 1:
            self.say(node, f"sample {sample} draws nothing", "sample at least one object")
        if domain is not None:
            self.bind(names, self.element(domain, names[0]))
        elif sort is not None:
            self.bind(names, self.universe(node, sort))

    def universe(self, node: Expr, name: str) -> Kind:
        """The kind of variables of a sort."""
        signature = self.signature
        if name in ("Int", "Real"):
            self.say(node, f"{name!r} is endless, so nothing can range over it", "declare a range: sort Digit = 0..9")
        elif name in signature.sorts:
            return signature.sorts[name]
        elif (known := signature.describe(name)) is not None:
            remedy = f"write: in {name}" if name in signature.rows else "variables range over sorts and data rows"
            self.say(node, f"{name!r} is {known}, not a sort", remedy)
        elif name not in self.unknown:
            self.unknown.add(name)
            self.say(node, f"unknown sort {name!r}", did_you_mean(name, signature.sorts, f"declare it: sort {name}"))
        return None

    def element(self, domain: Expr, variable: str) -> Kind:
        """The kind of variables that range over the value of a domain."""
        if type(domain) is Name and domain.name not in self.scope:
            name = domain.name
            if name in self.signature.rows:
                return self.signature.rows[name]
            if (known := self.signature.describe(name)) is not None:
                remedy = f"write {variable}: {name}" if name in self.signature.sorts else "after 'in' stand data rows"
                self.say(domain, f"{name!r} is {known}, not data rows", remedy)
            return None  # data rows need no declaration
        kind = self.term(domain)
        if isinstance(kind, Many):
            return kind.sort
        if kind is not None:
            message = f"{variable} cannot range over {show(domain)}, which is {describe(kind)}"
            self.say(domain, message, "after 'in' stand data rows, or a field declared with a star: field: Sort*")
        return None

    rules: ClassVar[dict[type[Expr], Callable[[Any, Any], Kind]]] = {
        **dict.fromkeys(CONNECTIVES, connective),
        **dict.fromkeys(LEAVES, kind),
        Call: call,
        Field: field,
        Index: index,
        Arith: arith,
        Compare: compare,
    }
