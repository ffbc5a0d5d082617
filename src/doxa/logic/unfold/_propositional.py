"""The propositional view of knowledge: what it says over finite sorts, without variables.

Quantifiers expand over the objects of their sorts, counting quantifiers become counting constraints (`Count`), and
arithmetic and comparisons of values are computed. What cannot be computed is an atom:

- a predicate applied to objects, ``friends(alice, bob)``, is an atom;
- a function f into a finite sort is a family of atoms ``f(t) = v``, one for each value v, exactly one of which is true.
  The statement ``d := digit(x) (...)`` speaks of the same atoms as ``digit(x)``.

A term whose value is not known is a table: for every value it can have, the formula under which it has it; of these
formulas exactly one is true as long as every function has exactly one value. Tables add, multiply and compare value by
value,

    (s + t = w)  ⟺  ⋁_{u + v = w} (s = u) ∧ (t = v).

Equal subformulas are one object, so the result is a graph that is often much smaller than it would be written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.syntax._binders import Aggregate, Group
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._kb import KnowledgeBase
from doxa.logic.syntax._simplify import formulas
from doxa.logic.syntax._symbols import COMPARISON, Function, Predicate, Signature, calculated
from doxa.logic.syntax._tree import And, Arith, Call, Compare, Expr, Field, Index, Name, Number, Or, Truth
from doxa.logic.unfold._aggregates import CHAINS, NOTHING, joined
from doxa.logic.unfold._definitions import Definer, reachable
from doxa.logic.unfold._domains import ENTRIES, Clock, Domains, Row, Universe, Value, check_entries, check_grounding
from doxa.logic.unfold._unfolder import Case, Formulas, Unfolder


@dataclass(frozen=True, eq=False)
class Propositional:
    """Ground knowledge.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> ground(a >> b)
    Propositional(2 atoms, 1 axioms, 0 facts, 0 functions)
    """

    axioms: dict[str, Expr]
    """The ground formula of each axiom, by name; a single formula is named ``formula``."""
    facts: tuple[Expr, ...]
    """The labelled facts: atoms and negated atoms."""
    constraints: tuple[Expr, ...]
    """For each function at each of its arguments: exactly one of its values."""
    atoms: tuple[Expr, ...]
    """Every atom that was met, in order; also those that do not matter to the formula in the end."""

    @cached_property
    def formula(self) -> Expr:
        """What is said: the axioms and the facts. Whatever their weights, all of them."""
        return And(*self.axioms.values(), *self.facts)

    @cached_property
    def theory(self) -> Expr:
        """The formula together with the constraints; its models are the possible worlds."""
        return And(self.formula, *self.constraints)

    def __repr__(self) -> str:
        return (
            f"Propositional({len(self.atoms)} atoms, {len(self.axioms)} axioms, {len(self.facts)} facts, "
            f"{len(self.constraints)} functions)"
        )


def ground(
    knowledge: KnowledgeBase | Expr,
    kb: KnowledgeBase | Signature | None = None,
    *,
    domains: Domains | None = None,
    entries: int = ENTRIES,
    seconds: float | None = None,
) -> Propositional:
    """Knowledge or a formula over ground atoms.

    Args:
        knowledge: a knowledge base, or one formula.
        kb: where the symbols of the formula are declared; without it, those it was built from in Python.
        domains: the objects of open sorts that have more than their declared constants, by the name of the sort: their
            number or their names; and the data rows that the knowledge ranges over, by name, as mappings by field.
        entries: the most that may be built, of about a kilobyte each: subformulas for each choice of their variables.
        seconds: the most time that it may take.

    Raises:
        BudgetError: it would take more entries, found before anything is built, or it takes longer.

    >>> from doxa.logic import Constant, Function, KnowledgeBase, Predicate, Sort, forall, variables, within
    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> x, y = variables("x y", Person)
    >>> symmetry = forall(x, y, where=x.ne(y))(friends(x, y) >> friends(y, x))
    >>> print(ground(symmetry, domains={"Person": ["ann", "bob"]}).formula)
    (friends(ann, bob) -> friends(bob, ann)) & (friends(bob, ann) -> friends(ann, bob))

    >>> coin = Function("coin", (Sort("Toss"),), Sort.range("Bit", 0, 1))
    >>> (p,) = variables("p")
    >>> two = forall(within("pairs", p))((coin(p.field("left")) + coin(p.field("right"))).eq(p.field("sum")))
    >>> ones = ground(two, domains={"pairs": [{"left": "first", "right": "second", "sum": 2}]})
    >>> print(ones.formula)
    coin(first) = 1 & coin(second) = 1
    """
    if isinstance(knowledge, KnowledgeBase):
        if kb is not None:
            raise KnowledgeError("ground(kb) takes one knowledge base; the second is for a formula about it")
        return ground_together(knowledge, (), domains, entries, Clock(seconds))[0]
    signature = kb.signature if isinstance(kb, KnowledgeBase) else kb
    if signature is None:
        signature = Signature()
        signature.declare_used(knowledge)
    view = Propositions(signature, kb, [knowledge], domains, entries, Clock(seconds))
    formula = view.unfold(knowledge)
    return Propositional({"formula": formula}, (), view.constraints, tuple(view.atoms))


def ground_together(
    kb: KnowledgeBase, formulas: Sequence[Expr], domains: Domains | None, entries: int, clock: Clock
) -> tuple[Propositional, list[Expr]]:
    """A knowledge base and formulas about it, over the same atoms."""
    view = Propositions(kb.signature, kb, [*[a.formula for a in kb.axioms], *formulas], domains, entries, clock)
    axioms = {a.name: view.unfold(a.formula) for a in kb.axioms}
    stated = [view.unfold(f.literal) for f in kb.facts]
    facts = tuple([fact for fact in stated if fact != Truth(True)])  # the others are known
    others = [view.unfold(f) for f in formulas]
    return Propositional(axioms, facts, view.constraints, tuple(view.atoms)), others


# --- values and tables --------------------------------------------------------------------------------------------


class Undefined(Expr):
    """A term or atom without a value, such as ``3 // 0``, and why. It is an error only if it matters in the end."""

    __slots__ = ()

    def __init__(self, reason: str) -> None:
        super().__init__(reason, ())


class Table:
    """The values of a term, each with its condition. Compared by identity."""

    __slots__ = ("cases",)

    def __init__(self, cases: dict[Value, Expr]) -> None:
        self.cases = cases


class Propositions(Formulas):
    """Formulas over ground atoms, each atom once.

    ``kb`` says which atoms of closed predicates are true; without it, a call that is no function is an atom, even of a
    predicate that is not declared. ``formulas`` are what is going to be unfolded, to be measured first.
    """

    def __init__(
        self,
        signature: Signature,
        kb: KnowledgeBase | Signature | None,
        formulas: Sequence[Expr],
        domains: Domains | None,
        entries: int,
        clock: Clock,
    ) -> None:
        super().__init__(signature.definitions)
        self._entries, self._spent, self._clock = entries, 0, clock
        self._signature, self._kb = signature, kb
        self._universe = Universe(signature, domains, entries)
        check_grounding(reachable(formulas, signature.definitions), self._universe, entries)
        self._unfolder = Unfolder(self)
        self._made: dict[tuple[Any, ...], Expr | Table] = {}
        self._owner: dict[int, int] = {}
        self.atoms: list[Expr] = []
        """Every atom met so far, in order."""
        self.families: list[tuple[Expr, ...]] = []
        """For each function and arguments: the atoms of its values."""

    @property
    def constraints(self) -> tuple[Expr, ...]:
        """What makes the atoms of each function met so far a function: exactly one value."""
        return tuple([self._build.count("exactly", 1, family) for family in self.families])

    @property
    def definer(self) -> Definer | None:
        """What finds out what is defined; None where nothing is."""
        return self._unfolder.definer

    def unfold(self, formula: Expr) -> Expr:
        """The formula over atoms; an error if some term in it has no value and matters."""
        found: Expr = self._unfolder.formula(formula)
        for node in formulas(found):
            if isinstance(node, Undefined):
                raise KnowledgeError(f"{node.label}. Leave such cases out with a guard: forall ... where ...")
        return self._build.flatten(found)

    def step(self) -> None:
        self._clock.check()

    def _spend(self, node: Expr, *tables: int) -> None:
        """Count cases before they are made."""
        self._spent += math.prod(tables)
        remedy = "give the functions fewer values, calculate with fewer of them at once, or raise entries"
        check_entries(self._spent, self._entries, f"calculating the cases of {node}", remedy)
        self.step()

    # -- what there is ----------------------------------------------------------------------------------------------

    def objects(self, sort: str) -> Sequence[Value]:
        return self._universe.objects(sort)

    def rows(self, name: str) -> Sequence[Value]:
        return self._universe.rows(name)

    def members(self, group: Group, value: Any) -> Sequence[Value]:
        if not isinstance(value, tuple):
            raise BindingError(f"{', '.join(group.names)} cannot range over {group.domain}: it is no sequence")
        return value

    def name(self, name: str) -> Value:
        signature = self._signature
        constant = signature.constants.get(name)
        if constant is None and name not in signature.value_sorts:
            known = [*signature.constants, *signature.value_sorts]
            raise KnowledgeError(f"unknown name {name!r}; {did_you_mean(name, known, 'declare it as a constant')}")
        if constant is not None and not self._universe.contains(constant.sort, name):
            raise BindingError(f"constant {name} is not among the objects given for {constant.sort.name}; add it there")
        return name

    def field(self, node: Field, row: Any) -> Value:
        if not isinstance(row, Row):
            raise BindingError(f"{node}: only data rows have fields")
        return row.get(node.name)

    def element(self, node: Index, base: Any, place: Any) -> Any:
        if not isinstance(base, tuple):
            raise BindingError(f"{node}: only sequences have elements")
        if isinstance(place, Table) or not isinstance(place, int):
            raise BindingError(f"{node}: an index must be a known integer")
        if not 0 <= place < len(base):
            return Undefined(f"{node}: there is no element {place} among {len(base)}, counted from 0")
        return base[place]

    # -- formulas ---------------------------------------------------------------------------------------------------

    def truth(self, node: Expr, value: Any) -> Expr:
        if not isinstance(value, Expr):
            raise KnowledgeError(f"a formula is wanted, but {node} is a term")
        return value

    # -- applications -----------------------------------------------------------------------------------------------

    def call(self, node: Call, args: list[Any]) -> Expr | Table:
        """A predicate or function of values or tables."""
        if node.fresh:
            raise KnowledgeError(
                f"fresh {node.name}(...) draws anew wherever it is used, so it has no ground atom; leave 'fresh' out"
            )
        known = self._signature
        symbol = known.functions.get(node.name) or known.predicates.get(node.name)
        if symbol is None and self._kb is not None:
            near = did_you_mean(node.name, [*known.functions, *known.predicates], "declare it first")
            raise KnowledgeError(f"unknown predicate or function {node.name!r}; {near}")
        if symbol is not None and len(args) != len(symbol.sorts):
            raise KnowledgeError(f"{symbol.name} takes {len(symbol.sorts)} arguments, got {len(args)}")
        if all(not isinstance(a, Table | Expr | Row | tuple) for a in args):
            return self._ground(node, symbol, tuple(args))
        build, is_function = self._build, isinstance(symbol, Function)
        found: dict[Value, list[Expr]] = {} if is_function else {True: []}
        for condition, values in self._choices(node, args):
            result: Any = self._ground(node, symbol, values)
            for value, case in self._cases(result) if is_function else ((True, result),):
                found.setdefault(value, []).append(build.join(And, (condition, case)))
        table = {value: build.join(Or, cases) for value, cases in found.items()}
        return Table(table) if is_function else table[True]

    def arguments(self, node: Call, args: list[Any]) -> Iterator[tuple[Expr, Any]]:
        known = self._signature
        symbol = known.predicates.get(node.name) or known.functions[node.name]
        if len(args) != len(symbol.sorts):
            raise KnowledgeError(f"{symbol.name} takes {len(symbol.sorts)} arguments, got {len(args)}")
        cases = [[(a, self._build.true)] if isinstance(a, Row) else list(self._cases(a)) for a in args]
        self._spend(node, *map(len, cases))
        for choice in product(*cases):
            condition = self._both([c for _, c in choice])
            values: list[Any] = []
            for (value, _), sort in zip(choice, symbol.sorts, strict=True):
                if isinstance(value, Undefined):
                    values = [value]
                    break
                if not isinstance(value, Row) and not self._universe.contains(sort, value):
                    values = [Undefined(f"{node.name} is not defined: {value} is no {sort.name}")]
                    break
                values.append(value)
            undefined = len(values) == 1 and isinstance(values[0], Undefined)
            if condition is not self._build.false:
                yield condition, values[0] if undefined else tuple(values)

    def choose(self, node: Call, cases: list[tuple[Expr, Any]]) -> Any:
        symbol, build = self._signature.functions[node.name], self._build
        found: dict[Value, list[Expr]] = {}
        for condition, value in cases:
            for v, case in self._cases(value):
                if not isinstance(v, Undefined) and not self._universe.contains(symbol.result, v):
                    v = Undefined(f"{node.name} is not defined: its value {v} is no {symbol.result.name}")
                found.setdefault(v, []).append(build.join(And, (condition, case)))
        table = {value: build.join(Or, some) for value, some in found.items()}
        table = {value: condition for value, condition in table.items() if condition is not build.false}
        return next(iter(table)) if len(table) == 1 else Table(table)

    def undefined(self, reason: str) -> Any:
        return Undefined(reason)

    def _choices(self, node: Call, args: list[Any]) -> Iterator[tuple[Expr, tuple[Value, ...]]]:
        """Every choice of values for the arguments, with its condition."""
        for place, arg in enumerate(args):
            if isinstance(arg, Row | tuple) or (isinstance(arg, Expr) and not isinstance(arg, Undefined)):
                what = "a formula" if isinstance(arg, Expr) else "data" if isinstance(arg, tuple) else "a data row"
                raise KnowledgeError(f"argument {place + 1} of {node.name} must be a term, but it is {what}")
        cases = [list(self._cases(a)) for a in args]
        self._spend(node, *map(len, cases))
        for choice in product(*cases):
            condition = self._both([c for _, c in choice])
            if condition is not self._build.false:
                yield condition, tuple([v for v, _ in choice])

    def _ground(self, node: Call, symbol: Function | Predicate | None, args: tuple[Value, ...]) -> Expr | Table:
        """The atom of a predicate, or the table of a function, at known arguments."""
        for value in args:
            if isinstance(value, Undefined):
                return value
        key = (node.name, *[(type(a), a) for a in args])
        if key not in self._made:
            self._made[key] = self._make(node, symbol, args)
        return self._made[key]

    def _make(self, node: Call, symbol: Function | Predicate | None, args: tuple[Value, ...]) -> Expr | Table:
        call = Call(node.name, tuple([_term(a) for a in args]))
        for value, sort in zip(args, symbol.sorts if symbol is not None else (), strict=symbol is not None):
            if not self._universe.contains(sort, value):
                return Undefined(f"{call} is not defined: {value} is no {sort.name}")
        if not isinstance(symbol, Function):
            # Facts about open predicates stand beside the axioms.
            if isinstance(self._kb, KnowledgeBase) and symbol is not None and symbol.closed:
                return self._build.truth(self._kb.known(node.name, args) is True)
            atom = self._build.share(call)
            self.atoms.append(atom)
            return atom
        values = self._universe.sort(symbol.result)
        if values is None:
            raise BindingError(
                f"{symbol.name} yields {symbol.result.name}, and nothing says which values that has. Let it yield a "
                f"finite sort, or give the values: domains={{{symbol.result.name!r}: [...]}}"
            )
        self._spend(node, len(values))
        family = tuple([self._build.share(Compare("=", call, _term(v))) for v in values])
        self._owner.update(dict.fromkeys([id(atom) for atom in family], len(self.families)))
        self.families.append(family)
        self.atoms.extend(family)
        return Table(dict(zip(values, family, strict=True)))

    # -- arithmetic and comparison ----------------------------------------------------------------------------------

    def arithmetic(self, node: Arith, args: list[Any]) -> Any:
        """The value or table of ``+ - * // mod`` or of unary minus."""
        if len(args) == 1:
            args = [0, args[0]]

        def result(left: Value, right: Value) -> Value:
            for value in (left, right):
                if isinstance(value, Undefined):
                    return value
                self._number(node, value)
            if node.op in ("//", "mod") and right == 0:
                return Undefined(f"{left} {node.op} {right} divides by zero")
            found = calculated(node.op, left, right)
            return Undefined(f"{left} {node.op} {right} has no value, in {node}") if found is None else found

        self._check_terms(node, args)
        if not any(isinstance(a, Table) for a in args):
            return result(args[0], args[1])
        self._spend(node, *[len(a.cases) for a in args if isinstance(a, Table)])
        found: dict[Value, list[Expr]] = {}
        for left, if_left in self._cases(args[0]):
            for right, if_right in self._cases(args[1]):
                condition = self._both([if_left, if_right])
                if condition is not self._build.false:
                    found.setdefault(result(left, right), []).append(condition)
        return Table({value: self._build.join(Or, cases) for value, cases in found.items()})

    def compare(self, node: Compare, args: list[Any]) -> Expr:
        """The truth of a comparison, or the condition under which it holds."""
        build, holds = self._build, COMPARISON[node.op]
        self._check_terms(node, args)
        if node.op == "!=" and any(isinstance(a, Table) for a in args):
            return build.negate(self.compare(Compare("=", *node.children), args))
        self._spend(node, *[len(a.cases) for a in args if isinstance(a, Table)])
        cases = []
        for left, if_left in self._cases(args[0]):
            true: list[Expr] = []
            for right, if_right in self._cases(args[1]):
                undefined = next((v for v in (left, right) if isinstance(v, Undefined)), None)
                if undefined is not None:
                    true.append(build.join(And, (if_right, undefined)))
                    continue
                if node.op not in ("=", "!="):
                    self._number(node, left)
                    self._number(node, right)
                if holds(left, right):
                    true.append(self._both([if_left, if_right]))
            cases.append(build.join(And, (if_left, build.join(Or, true))))
        return build.join(Or, cases)

    def aggregate(self, node: Aggregate, cases: list[Case]) -> Any:
        """The value, table or formula of an aggregate: the chain of its states, each with its condition."""
        chain, build = CHAINS[node.kind], self._build
        states: list[dict[Any, Expr]] = [{chain.empty: build.true}]
        for place, (guard, value, _) in enumerate(cases):
            self._check_terms(node, [value])
            condition = build.true if guard is None else guard
            state: dict[Any, list[Expr]] = {}
            for v, case in self._cases(value):
                if not isinstance(v, Undefined) and node.kind != "all_different":
                    self._number(node, v)
                key = v if isinstance(v, Undefined) else chain.one(v, place)
                state.setdefault(key, []).append(build.join(And, (condition, case)))
            if condition is not build.true:
                state.setdefault(chain.empty, []).append(build.negate(condition))
            states.append({v: build.join(Or, some) for v, some in state.items()})

        def join(a: dict[Any, Expr], b: dict[Any, Expr]) -> dict[Any, Expr]:
            self._spend(node, len(a), len(b))
            found: dict[Any, list[Expr]] = {}
            for left, if_left in a.items():
                for right, if_right in b.items():
                    condition = self._both([if_left, if_right])
                    if condition is not build.false:
                        undefined = [v for v in (left, right) if isinstance(v, Undefined)]
                        found.setdefault(undefined[0] if undefined else chain.join(left, right), []).append(condition)
            return {v: build.join(Or, some) for v, some in found.items()}

        found: dict[Any, list[Expr]] = {}
        last: dict[Any, Expr] = joined(states, join, len)
        for total, condition in last.items():
            value = total if isinstance(total, Undefined) else chain.finish(total)
            if value is NOTHING:
                why = "it adds inf and -inf" if node.kind == "sum" else "there is nothing to choose from"
                value = Undefined(f"{node} is not defined: {why}")
            elif node.kind in ("argmin", "argmax") and not isinstance(value, Undefined):
                value = cases[value].scope[node.names[0]]
            found.setdefault(value, []).append(condition)
        table = {value: build.join(Or, some) for value, some in found.items()}
        if node.is_formula:
            wrong = [build.join(And, (c, v)) for v, c in table.items() if isinstance(v, Undefined)]
            return build.join(Or, [table.get(True, build.false), *wrong])
        if len(table) == 1:
            return next(iter(table))
        return Table(table)

    def _cases(self, value: Any) -> Iterator[tuple[Value, Expr]]:
        if isinstance(value, Table):
            yield from value.cases.items()
        else:
            yield value, self._build.true

    def _both(self, conditions: list[Expr]) -> Expr:
        """All conditions; false where they want two values of one function at once."""
        owners: dict[int, Expr] = {}
        for c in conditions:
            owner = self._owner.get(id(c))
            if owner is not None and owners.setdefault(owner, c) is not c:
                return self._build.false
        return self._build.join(And, conditions)

    def _check_terms(self, node: Expr, args: list[Any]) -> None:
        for child, value in zip(node.children[-len(args) :], args[-len(node.children) :], strict=True):
            if isinstance(value, Expr) and not isinstance(value, Undefined):
                raise KnowledgeError(f"a term is wanted in {node}, but {child} is a formula")
            if isinstance(value, tuple):
                raise KnowledgeError(f"a single value is wanted in {node}, but {child} is a sequence")

    def _number(self, node: Expr, value: Value) -> None:
        if not isinstance(value, int | float):
            raise KnowledgeError(f"numbers are wanted in {node}, but there is {value!r}")


def _term(value: Value) -> Expr:
    return Name(value) if isinstance(value, str) else Number(value)
