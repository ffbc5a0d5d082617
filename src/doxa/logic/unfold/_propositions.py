"""The propositional view: values where they are known, formulas over ground atoms where they are not.

A term whose value is not known is a table: for every value it can have, the formula under which it has it; of these
formulas exactly one is true as long as every function has exactly one value. Tables add, multiply and compare value by
value,

    (s + t = w)  ⟺  ⋁_{u + v = w} (s = u) ∧ (t = v).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._simplify import formulas
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON, Function, Predicate, Signature
from doxa.logic.syntax._tree import And, Arith, Call, Compare, Expr, Field, Index, Name, Number, Or
from doxa.logic.unfold._domains import Row, Universe, Value
from doxa.logic.unfold._limits import ENTRIES, Clock, check_entries
from doxa.logic.unfold._unfolder import Formulas


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
    """Formulas over ground atoms, each atom once: the propositional view.

    Args:
        signature: the symbols.
        universe: the objects and rows.
        strict: whether every predicate must be declared; otherwise a call that is no function is an atom.
        known: the truth of an atom that is not open, by name and arguments; None where it is.
        entries: the most cases of functions and of arithmetic over them.
        clock: what stops it when it takes too long.
    """

    def __init__(
        self,
        signature: Signature,
        universe: Universe,
        *,
        strict: bool,
        known: Callable[[str, tuple[Value, ...]], bool | None] | None = None,
        entries: int = ENTRIES,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        self._entries, self._spent = entries, 0
        self._clock = clock or Clock(None)
        self._signature = signature
        self._universe = universe
        self._strict = strict
        self._known = known
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

    def finished(self, formula: Expr) -> Expr:
        """The formula in its final form; an error if some term in it has no value."""
        for node in formulas(formula):
            if isinstance(node, Undefined):
                raise KnowledgeError(f"{node.label}. Leave such cases out with a guard: forall ... where ...")
        return self.flatten(formula)

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
        if symbol is None and self._strict:
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
            fact = self._known(node.name, args) if self._known is not None else None
            if fact is not None:
                return self._build.truth(fact)
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
        operate = ARITHMETIC[node.op]
        if len(args) == 1:
            args = [0, args[0]]

        def result(left: Value, right: Value) -> Value:
            for value in (left, right):
                if isinstance(value, Undefined):
                    return value
                self._number(node, value)
            if node.op in ("//", "mod") and right == 0:
                return Undefined(f"{left} {node.op} {right} divides by zero")
            return operate(left, right)

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
