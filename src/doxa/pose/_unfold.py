"""A formula, unfolded over one unit of data: quantifiers become conjunctions, terms become choices.

What a unit is made of (rows, objects, what symbols say of them) is known to a `Setting`; here is only the language.
Nothing recurses on the depth of a formula: subformulas under evaluation are generators on a stack.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Protocol

from doxa.errors import BindingError, KnowledgeError
from doxa.logic import (
    INT,
    REAL,
    And,
    Arith,
    Call,
    Compare,
    Count,
    Expr,
    Field,
    Function,
    Group,
    Iff,
    Implies,
    Index,
    Let,
    Name,
    Not,
    Number,
    Or,
    Predicate,
    Quantifier,
    Signature,
    Sort,
    Truth,
    Xor,
    postorder,
)
from doxa.pose._choices import UNDEFINED, Choice, Choices, conjunction, negation, strict


@dataclass(frozen=True)
class Row:
    """A data row of a unit: of which rows, and the how-manieth."""

    rows: str
    number: int
    fixed: bool = False
    """Whether the number is that of the data, the same in every unit."""


@dataclass(frozen=True)
class Cell:
    """A field of a row, or an element of the sequence in it; its use decides whether it is an object or a number."""

    row: Row
    field: str
    path: tuple[int, ...] = ()

    def __str__(self) -> str:
        place = f"{self.row.rows}[{self.row.number}]" if self.row.number else self.row.rows
        return f"{place}.{self.field}" + "".join([f"[{i}]" for i in self.path])


@dataclass(frozen=True)
class Object:
    """An object of an open sort: the how-manieth different one of its unit."""

    sort: str
    label: int


@dataclass(frozen=True)
class Known:
    """A number or truth value that the data alone decide, the same way in every unit."""

    op: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        if self.op == "cell":
            return str(self.args[0])
        if self.op == "call":
            return f"{self.args[0]}(...)"
        return f" {self.op} ".join(map(str, self.args)) if len(self.args) > 1 else f"{self.op}{self.args[0]}"


class Setting(Protocol):
    """What a unit of data is made of."""

    def rows(self, name: str) -> Sequence[Any]:
        """The rows of a name."""

    def objects(self, sort: str) -> Sequence[Any]:
        """The objects of an open sort."""

    def constant(self, name: str) -> Any:
        """A declared constant."""

    def length(self, cell: Cell) -> int | None:
        """How many elements the sequence in a field has; None if it is none."""

    def field(self, cell: Cell) -> Any:
        """What a field holds where no object is wanted: a number that the data decide, or a value of its sort."""

    def object(self, value: Any, sort: Sort) -> Object:
        """A field as an object of a sort."""

    def sort_of(self, cell: Cell) -> Sort | None:
        """The sort that a field was declared with."""

    def domain(self, known: Known) -> Sequence[Any]:
        """The values that a known number has in the data."""

    def atom(self, symbol: Predicate | Function, args: tuple[Any, ...], fresh: int | None) -> Any:
        """What a symbol says of objects, values and numbers."""


Scope = dict[str, Any]
Task = Generator[tuple[Expr, Scope], Any, Any]

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": lambda a, b: UNDEFINED if b == 0 else a // b,
    "mod": lambda a, b: UNDEFINED if b == 0 else a % b,
}
_COMPARISON: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Unfolder:
    """Evaluates formulas in a setting; all of them share their variables."""

    def __init__(self, signature: Signature, setting: Setting, choices: Choices) -> None:
        self.signature = signature
        self.setting = setting
        self.choices = choices
        self._free: dict[int, tuple[str, ...]] = {}
        self._kept: list[Expr] = []
        self._memo: dict[Any, Any] = {}
        self._fresh = 0
        self._redrawn: set[int] = set()

    def formula(self, root: Expr, scope: Scope) -> Any:
        """The truth value of a formula: True, False, undefined, or a choice."""
        return self.truth(root, self.value(root, scope))

    def term(self, root: Expr, scope: Scope) -> Any:
        """The value of a term: a value, undefined, or a choice; what the data decide is a choice too."""
        return self._choice(self.value(root, scope))

    def value(self, root: Expr, scope: Scope) -> Any:
        """What a term or formula stands for, as it is used inside others."""
        self._kept.append(root)  # nodes are known by their identity
        self._free.update(_free_variables(root))
        for node in postorder(root):  # what draws anew is evaluated anew wherever it stands
            if getattr(node, "fresh", False) or any(id(c) in self._redrawn for c in node.children):
                self._redrawn.add(id(node))
        stack: list[tuple[Any, Task]] = [(self._key(root, scope), self._run(root, scope))]
        answer: Any = None
        while stack:
            key, task = stack[-1]
            try:
                node, inner = task.send(answer)
            except StopIteration as stop:
                stack.pop()
                answer = self._memo[key] = stop.value
            else:
                key = self._key(node, inner)
                answer = self._memo.get(key, _MISSING)
                if answer is _MISSING:
                    stack.append((key, self._run(node, inner)))
                    answer = None
        return answer

    def _key(self, node: Expr, scope: Scope) -> Any:
        if id(node) in self._redrawn:
            return object()
        return (id(node), tuple([scope[n] for n in self._free[id(node)] if n in scope]))

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _run(self, node: Expr, scope: Scope) -> Task:
        if isinstance(node, Quantifier):
            return (yield from self._quantifier(node, scope))
        if isinstance(node, Let):
            inner = dict(scope)
            for name, value in zip(node.names, node.values, strict=True):
                inner[name] = yield value, inner
            return (yield node.body, inner)
        if isinstance(node, Name):
            return scope[node.name] if node.name in scope else self._named(node.name)
        args = []
        for child in node.children:
            value = yield child, scope
            args.append(value)
        return self._visit(node, args)

    def _visit(self, node: Expr, args: list[Any]) -> Any:
        match node:
            case Number():
                return node.value
            case Truth():
                return node.value
            case Call():
                return self._call(node, args)
            case Arith():
                numbers = [self._number(node, a) for a in ([0, *args] if len(args) == 1 else args)]
                return self._compute(node.op, strict(_ARITHMETIC[node.op]), numbers)
            case Compare():
                return self._compare(node, args)
            case Field():
                if not isinstance(args[0], Row):
                    raise BindingError(f"{node}: only data rows have fields")
                return Cell(args[0], node.name)
            case Index():
                return self._element(node, *args)
        truths = [self.truth(c, a) for c, a in zip(node.children, args, strict=True)]
        match node:
            case Not():
                return self._not(truths[0])
            case And():
                return self._and(truths)
            case Or():
                return self._or(truths)
            case Implies():
                return self._or([self._not(truths[0]), truths[1]])
            case Iff():
                return self.choices.apply("iff", strict(operator.eq), truths)
            case Xor():
                return self.choices.apply("xor", strict(operator.ne), truths)
            case Count():
                return self._count(node.kind, node.count, truths)
        raise KnowledgeError(f"{node} is no formula")

    def _named(self, name: str) -> Any:
        if name in self.signature.constants:
            return self.setting.constant(name)
        if name in self.signature.value_sorts:
            return name
        raise KnowledgeError(f"unknown name {name!r}: it is neither bound nor declared")

    # -- formulas ---------------------------------------------------------------------------------------------------

    def truth(self, node: Expr, value: Any) -> Any:
        """A value where a formula stands."""
        if isinstance(value, Cell):
            value = self.setting.field(value)
        if isinstance(value, Known):
            value = self._choice(value)
        labels = value.labels if isinstance(value, Choice) else (value,)
        if any(not isinstance(label, bool) and label is not UNDEFINED for label in labels):
            raise KnowledgeError(f"a formula is wanted, but {node} is a term")
        return value

    def _not(self, value: Any) -> Any:
        return self.choices.apply("not", negation, [value])

    def _and(self, values: Sequence[Any]) -> Any:
        # First what depends on one variable, which costs nothing, then the rest, one after the other.
        groups: dict[Any, Any] = {}
        for value in values:
            at = value.variable if isinstance(value, Choice) else None
            before = groups.get(at, True)
            groups[at] = value if before is True else self.choices.apply("and", conjunction, [before, value])
        result: Any = groups.pop(None, True)
        for value in groups.values():
            if result is False:
                break
            result = value if result is True else self.choices.apply("and", conjunction, [result, value])
        return result

    def _or(self, values: Sequence[Any]) -> Any:
        return self._not(self._and([self._not(v) for v in values]))

    def _count(self, kind: str, number: int, values: Sequence[Any]) -> Any:
        """How many are true, counted one after the other and no further than is needed."""
        cap = number + 1
        total: Any = 0
        for value in values:
            total = self.choices.apply(("add", cap), strict(lambda n, v: min(n + int(v), cap)), [total, value])
        test = {"exactly": operator.eq, "at most": operator.le, "at least": operator.ge}[kind]
        return self.choices.apply((kind, number), strict(lambda n: test(n, number)), [total])

    def _quantifier(self, node: Quantifier, scope: Scope) -> Task:
        universal = node.kind == "forall"
        guard, body = node.guard, node.body
        cases: list[Any] = []
        scopes = [scope]
        for group in node.groups:
            wider: list[Scope] = []
            for inner in scopes:
                members = yield from self._members(group, inner)
                wider += [
                    {**inner, **dict(zip(group.names, values, strict=True))}
                    for values in product(members, repeat=len(group.names))
                ]
            scopes = wider
        for inner in scopes:
            condition: Any = True
            if guard is not None:
                condition = self.truth(guard, (yield guard, inner))
                if condition is False:
                    continue
            case = self.truth(body, (yield body, inner))
            cases.append(self._or([self._not(condition), case]) if universal else self._and([condition, case]))
        if node.count is not None:
            return self._count(node.kind, node.count, cases)
        return self._and(cases) if universal else self._or(cases)

    def _members(self, group: Group, scope: Scope) -> Task:
        if group.sample is not None:
            raise KnowledgeError(
                f"{', '.join(group.names)} range over a random sample, so there is no one event to give a probability; "
                f"leave 'sample {group.sample}' out, or pass the sample as the data"
            )
        if group.sort is not None:
            sort = self.signature.sorts[group.sort]
            return sort.values if sort.values is not None else self.setting.objects(group.sort)
        domain = group.domain
        assert domain is not None  # a group has one or the other
        if isinstance(domain, Name) and domain.name not in scope:
            return self.setting.rows(domain.name)
        found = yield domain, scope
        length = self.setting.length(found) if isinstance(found, Cell) else None
        if length is None:
            raise KnowledgeError(f"variables cannot range over {domain}; after 'in' stand rows or a field of a row")
        return [Cell(found.row, found.field, (*found.path, i)) for i in range(length)]

    # -- terms ------------------------------------------------------------------------------------------------------

    def _choice(self, value: Any) -> Any:
        """What the data decide, as a variable whose value is certain in each unit."""
        if isinstance(value, Cell):
            value = self.setting.field(value)
        if not isinstance(value, Known):
            return value
        return self.choices.world(("known", value), self.setting.domain(value), str(value))

    def _number(self, node: Expr, value: Any) -> Any:
        if isinstance(value, Cell):
            value = self.setting.field(value)
        for label in value.labels if isinstance(value, Choice) else (value,):
            if not isinstance(label, int | float | Known) and label is not UNDEFINED:
                raise KnowledgeError(f"numbers are wanted in {node}, but there is {label!r}")
        return value

    def _compute(self, op: str, function: Callable[..., Any], args: list[Any]) -> Any:
        if any(isinstance(a, Known) for a in args) and not any(isinstance(a, Choice) for a in args):
            return UNDEFINED if any(a is UNDEFINED for a in args) else Known(op, tuple(args))
        return self.choices.apply(op, function, [self._choice(a) for a in args])

    def _compare(self, node: Compare, args: list[Any]) -> Any:
        sorts = [self.setting.sort_of(a) for a in args if isinstance(a, Cell)]
        opened = next((s for s in sorts if s is not None and s.is_open and s not in (INT, REAL)), None)
        if opened is None:
            opened = next((Sort(a.sort) for a in args if isinstance(a, Object)), None)
        if opened is not None:
            objects = [self.setting.object(a, opened) for a in args]
            return _COMPARISON[node.op](objects[0], objects[1])
        values = [self.setting.field(a) if isinstance(a, Cell) else a for a in args]
        if node.op not in ("=", "!="):
            values = [self._number(node, v) for v in values]
        return self._compute(node.op, strict(_COMPARISON[node.op]), values)

    def _element(self, node: Expr, base: Any, place: Any) -> Any:
        length = self.setting.length(base) if isinstance(base, Cell) else None
        if length is None:
            raise BindingError(f"{node}: only sequences have elements")

        def element(i: Any) -> Any:
            inside = isinstance(i, int) and 0 <= i < length
            return Cell(base.row, base.field, (*base.path, i)) if inside else UNDEFINED

        return self.choices.apply(("element", base), element, [self._choice(place)])

    def _call(self, node: Call, args: list[Any]) -> Any:
        known = self.signature
        symbol = known.predicates.get(node.name) or known.functions.get(node.name)
        if symbol is None:
            raise KnowledgeError(f"{node}: {node.name!r} is neither a predicate nor a function of the knowledge base")
        if len(args) != len(symbol.sorts):
            raise KnowledgeError(f"{node}: {symbol.name} takes {len(symbol.sorts)} arguments, got {len(args)}")
        fresh = None
        if node.fresh:
            fresh, self._fresh = self._fresh, self._fresh + 1
        fitted = [self._argument(node, a, s) for a, s in zip(args, symbol.sorts, strict=True)]
        uncertain = [i for i, a in enumerate(fitted) if isinstance(a, Choice)]
        if not uncertain:
            return self._ground(symbol, tuple(fitted), fresh)
        # What it says of each value that the uncertain arguments can have; then the one that they do have.
        options: dict[tuple[Any, ...], Any] = {}
        for combination in product(*[dict.fromkeys(fitted[i].labels) for i in uncertain]):
            filled = list(fitted)
            for i, label in zip(uncertain, combination, strict=True):
                filled[i] = self._argument(node, label, symbol.sorts[i])
            options[combination] = self._choice(self._ground(symbol, tuple(filled), fresh))
        chosen = [fitted[i] for i in uncertain]
        if not any(isinstance(o, Choice) for o in options.values()):
            return self.choices.apply(
                ("select", symbol.name, tuple(options.items())), lambda *labels: options[labels], chosen
            )
        result: Any = UNDEFINED
        for combination, option in options.items():
            select = partial(_select, combination)
            result = self.choices.apply(("either", combination), select, [option, result, *chosen])
        return result

    def _ground(self, symbol: Predicate | Function, args: tuple[Any, ...], fresh: int | None) -> Any:
        if any(a is UNDEFINED for a in args):
            return UNDEFINED
        return self.setting.atom(symbol, args, fresh)

    def _argument(self, node: Call, value: Any, sort: Sort) -> Any:
        """An argument as a value of its sort: undefined if it is none."""
        if isinstance(value, Choice):
            return value
        if value is UNDEFINED:
            return value
        if sort.values is not None:
            value = self._choice(value)
            if isinstance(value, Choice):
                return value
            if isinstance(value, str | int) and not isinstance(value, bool):
                return value if value in sort.values else UNDEFINED
        elif sort in (INT, REAL):
            return self._number(node, value)
        elif isinstance(value, Cell | Object):
            return self.setting.object(value, sort)
        raise KnowledgeError(f"{node}: {value!r} is no {sort.name}")


_MISSING = object()


def _select(combination: tuple[Any, ...], option: Any, other: Any, *labels: Any) -> Any:
    return option if labels == combination else other


def _free_variables(root: Expr) -> dict[int, tuple[str, ...]]:
    """The variables of enclosing binders that each node mentions, sorted."""
    free: dict[int, frozenset[str]] = {}
    for node in postorder(root):
        below = [free[id(c)] for c in node.children]
        names: frozenset[str] = frozenset().union(*below)
        if isinstance(node, Name):
            names = frozenset((node.name,))
        elif isinstance(node, Quantifier | Let):
            # A name that is bound only for a later part is kept too: the key of a result may say more than it must.
            outer = below[: len(node.names)] if isinstance(node, Let) else below[: len(node.children) - 1]
            names = (names - set(node.names)).union(*outer)
        free[id(node)] = names
    return {key: tuple(sorted(names)) for key, names in free.items()}
