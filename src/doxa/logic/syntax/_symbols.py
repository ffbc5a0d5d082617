"""Declarations: sorts, constants, predicates, functions and data rows, and the signature that holds them."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from doxa.errors import KnowledgeError
from doxa.logic.syntax._tree import Arith, Call, Expr, ExprLike, Name, Number, as_expr, postorder


@dataclass(frozen=True)
class Sort:
    """A kind of objects: open (they arrive with the data), a range of integers, or an enumeration of names.

    >>> Sort("Image").is_open, Sort.range("Digit", 0, 9).size, Sort("Colour", ("red", "green")).values
    (True, 10, ('red', 'green'))
    """

    name: str
    values: range | tuple[str, ...] | None = None

    @classmethod
    def range(cls, name: str, low: int, high: int) -> Sort:
        """The integers from ``low`` to ``high``, both included.

        >>> Sort.range("Digit", 0, 9).values
        range(0, 10)
        """
        if high < low:
            raise KnowledgeError(f"sort {name} = {low}..{high} is empty; the first bound must not exceed the second")
        if high - low >= sys.maxsize:
            raise KnowledgeError(f"sort {name} = {low}..{high} has too many values; use Int for integers of any size")
        return cls(name, range(low, high + 1))

    @property
    def is_open(self) -> bool:
        return self.values is None

    @property
    def is_integer(self) -> bool:
        """Are the values integers, so that arithmetic and order make sense?"""
        return isinstance(self.values, range) or self in (INT, REAL)

    @property
    def size(self) -> int | None:
        """The number of values; None for an open sort."""
        if isinstance(self.values, range):  # which may be longer than len can say
            return -((self.values.start - self.values.stop) // self.values.step)
        return None if self.values is None else len(self.values)

    def __getitem__(self, value: str) -> Name:
        """A value of an enumerated sort, as a term.

        >>> print(Sort("Colour", ("red", "green"))["red"])
        red
        """
        if not isinstance(self.values, tuple) or value not in self.values:
            raise KnowledgeError(f"sort {self.name} has no value {value!r}; it has {_listing(self.values)}")
        return Name(value, hint=self)


@dataclass(frozen=True)
class RowSort(Sort):
    """The rows of a name, as what a parameter of a definition ranges over (``define p(r in pairs) := ...``).

    >>> RowSort("pairs") == Sort("pairs")
    False
    """


INT = Sort("Int")
"""Built in: integers that functions, fields and arithmetic yield."""
REAL = Sort("Real")
"""Built in: real numbers that functions, fields and arithmetic yield."""


@dataclass(frozen=True)
class Constant:
    """A named object of a sort.

    >>> print(Constant("alice", Sort("Person")).term)
    alice
    """

    name: str
    sort: Sort

    @property
    def term(self) -> Name:
        return Name(self.name, hint=self)


@dataclass(frozen=True)
class Predicate:
    """A relation: applied to terms it is a formula. A ``closed`` one is false of whatever no fact says.

    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> print(friends(Name("x"), Name("y")))
    friends(x, y)
    """

    name: str
    sorts: tuple[Sort, ...] = ()
    closed: bool = False

    def __call__(self, *args: ExprLike) -> Expr:
        return _apply(self, args)


@dataclass(frozen=True)
class Function:
    """A function: applied to terms it is a term. Neural when it is bound to a distribution over a finite sort.

    >>> digit = Function("digit", (Sort("Image"),), Sort.range("Digit", 0, 9))
    >>> print(digit(Name("x")) + 1)
    digit(x) + 1
    """

    name: str
    sorts: tuple[Sort, ...]
    result: Sort

    def __call__(self, *args: ExprLike) -> Expr:
        return _apply(self, args)


@dataclass(frozen=True)
class Rows:
    """The fields of data rows: ``data pairs(left: Image, right: Image, sum: Int)``.

    A field marked ``many`` holds several objects per row, a different number in each (``objects: Object*``).
    Declaring rows is optional; declared ones are checked before anything runs.

    >>> Rows("pairs", (("left", Sort("Image"), False), ("sum", INT, False))).field_names
    ('left', 'sum')
    """

    name: str
    fields: tuple[tuple[str, Sort, bool], ...]

    @property
    def sort(self) -> RowSort:
        """The rows as what a parameter of a definition ranges over.

        >>> Rows("pairs", ()).sort.name
        'pairs'
        """
        return RowSort(self.name)

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple([name for name, _, _ in self.fields])


Declaration = Sort | Constant | Predicate | Function | Rows


def sorts_of(declaration: Declaration) -> tuple[Sort, ...]:
    """The sorts that a declaration speaks of, other than itself."""
    match declaration:
        case Constant():
            return (declaration.sort,)
        case Predicate():
            return declaration.sorts
        case Function():
            return (*declaration.sorts, declaration.result)
        case Rows():
            return tuple([sort for _, sort, _ in declaration.fields])
    return ()


@dataclass
class Signature:
    """Everything declared, by name. A name is declared once, whatever it names.

    >>> s = Signature()
    >>> s.add(Sort("Colour", ("red", "green")))
    >>> s.value_sorts["red"].name
    'Colour'
    >>> s.add(Predicate("red"))
    Traceback (most recent call last):
    doxa.errors.KnowledgeError: 'red' is already declared as a value of sort Colour; choose another name
    """

    sorts: dict[str, Sort] = field(default_factory=lambda: {"Int": INT, "Real": REAL})
    constants: dict[str, Constant] = field(default_factory=dict)
    predicates: dict[str, Predicate] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    value_sorts: dict[str, Sort] = field(default_factory=dict)
    """The enumerated sort that each value name belongs to."""
    definitions: dict[str, tuple[Expr, ...]] = field(default_factory=dict)
    """The clauses (:class:`~doxa.logic.Define`) of every predicate and function that is defined, by its name."""

    def declare(self, declaration: Declaration) -> None:
        """Add a declaration and, first, the sorts it speaks of."""
        for sort in sorts_of(declaration):
            if not isinstance(sort, RowSort):
                self.add(sort)
        self.add(declaration)

    def declare_used(self, *formulas: Expr) -> None:
        """Add the declarations that formulas were built from in Python."""
        for hint in {id(node.hint): node.hint for node in postorder(*formulas) if node.hint is not None}.values():
            self.declare(hint)

    def add(self, declaration: Declaration) -> None:
        """Declare; the same declaration twice is one, a different one under a known name is an error."""
        tables: dict[type, dict[str, Any]] = {
            Sort: self.sorts,
            Constant: self.constants,
            Predicate: self.predicates,
            Function: self.functions,
            Rows: self.rows,
        }
        table = tables[type(declaration)]
        name = declaration.name
        if table.get(name) == declaration:
            return
        if (known := self.describe(name)) is not None:
            raise KnowledgeError(f"{name!r} is already declared as {known}; choose another name")
        if isinstance(declaration, Sort) and isinstance(declaration.values, tuple):
            if len(set(declaration.values)) != len(declaration.values):
                raise KnowledgeError(f"sort {name} lists a value twice: {_listing(declaration.values)}")
            for value in declaration.values:
                if (known := self.describe(value)) is not None:
                    raise KnowledgeError(f"{value!r} is already declared as {known}; choose another name")
            self.value_sorts.update(dict.fromkeys(declaration.values, declaration))
        table[name] = declaration

    def define(self, clause: Expr) -> None:
        """Add a clause to the definition of its symbol; the same clause twice is one."""
        known = self.definitions.get(clause.label[0], ())
        if clause not in known:
            self.definitions[clause.label[0]] = (*known, clause)

    def copy(self) -> Signature:
        """A signature of its own with the same declarations."""
        return Signature(*[dict(getattr(self, f.name)) for f in fields(self)])

    def __iter__(self) -> Iterator[Declaration]:
        """Every declaration, sorts first."""
        for table in (self.sorts, self.constants, self.predicates, self.functions, self.rows):
            yield from table.values()

    def describe(self, name: str) -> str | None:
        """What a name is, in words, or None when it is not declared."""
        if name in self.sorts:
            return "a sort"
        if name in self.constants:
            return f"a constant of sort {self.constants[name].sort.name}"
        if name in self.predicates:
            predicate = self.predicates[name]
            kind = "closed " if predicate.closed else "defined " if name in self.definitions else ""
            return f"a {kind}predicate of {_arguments(predicate.sorts)}"
        if name in self.functions:
            kind = "defined " if name in self.definitions else ""
            return f"a {kind}function of {_arguments(self.functions[name].sorts)}"
        if name in self.rows:
            return "data rows"
        if name in self.value_sorts:
            return f"a value of sort {self.value_sorts[name].name}"
        return None

    def names(self) -> list[str]:
        """Every declared name, for suggesting the nearest one."""
        return [name for f in fields(self) for name in getattr(self, f.name)]


def _arguments(sorts: tuple[Sort, ...]) -> str:
    return f"{len(sorts)} argument{'' if len(sorts) == 1 else 's'}"


def _apply(symbol: Predicate | Function, args: tuple[ExprLike, ...]) -> Expr:
    if len(args) != len(symbol.sorts):
        wanted = ", ".join([s.name for s in symbol.sorts])
        raise KnowledgeError(f"{symbol.name}({wanted}) takes {len(symbol.sorts)} arguments, got {len(args)}")
    return Call(symbol.name, tuple([as_expr(a) for a in args]), hint=symbol)


def _listing(values: range | tuple[str, ...] | None) -> str:
    if values is None:
        return "no values of its own (it is open)"
    if isinstance(values, range):
        return f"{values[0]}..{values[-1]}"
    shown = ", ".join(values[:8])
    return shown if len(values) <= 8 else f"{shown}, ... ({len(values)} in all)"


# --- operations on numbers ----------------------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "mod": operator.mod,
}
"""Division rounds down and ``mod`` has the sign of the divisor, as in Python. Zero divisors are the caller's matter."""


def calculated(op: str, a: Any, b: Any) -> Any:
    """An operation on two numbers, which may be infinite; None where it has no value.

    Sums, differences, products and quotients have their usual limits. There is no value of a quotient by 0, of ∞ - ∞,
    of 0 · ∞, and of a remainder of or a quotient by something infinite.

    >>> calculated("-", math.inf, 1), calculated("//", math.inf, -2), calculated("-", math.inf, math.inf)
    (inf, -inf, None)
    """
    if op in ("//", "mod") and (b == 0 or abs(b) == math.inf):
        return None
    if op in ("//", "mod") and abs(a) == math.inf:
        return None if op == "mod" else a * b
    found = ARITHMETIC[op](a, b)
    return None if found != found else found


COMPARISON: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal(node: Expr) -> int | float | None:
    """The value of a number that is written out, perhaps with a minus sign; None for anything else."""
    sign = 1
    while type(node) is Arith and len(node.children) == 1:
        sign, node = -sign, node.children[0]
    return sign * node.value if isinstance(node, Number) else None
