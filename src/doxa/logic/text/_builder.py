"""What the rules of the grammar build: interned nodes, and one item for every statement."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Aggregate, Group, Let, Quantifier
from doxa.logic.syntax._define import Define
from doxa.logic.syntax._kb import Axiom
from doxa.logic.syntax._node import make
from doxa.logic.syntax._symbols import Constant, Declaration, Function, Predicate, Rows, Sort
from doxa.logic.syntax._tree import INFIX, Arith, Call, Compare, Expr, Field, Index, Name, Not, Number


@dataclass(slots=True)
class FactItem:
    formula: Expr
    weight: float = 1.0


@dataclass(slots=True)
class FactsItem:
    """``facts predicate from "file"``."""

    predicate: str
    file: str
    header: bool


@dataclass(slots=True)
class IncludeItem:
    file: str


Item = Axiom | Define | FactItem | FactsItem | IncludeItem | list[Declaration]
"""What a statement says. In a declaration, sorts other than its own are known by their names only."""


class Chain:
    """A conjunction or disjunction that may still grow: parsing must not copy its operands again for every ``&``."""

    __slots__ = ("kind", "operands", "span")

    def __init__(self, kind: type[Expr], left: Expr, right: Expr) -> None:
        self.kind = kind
        self.operands = deque((left, right))
        self.span = (0, 0)


class Builder:
    """One method for every alias in the grammar, called on the values of the rule's symbols.

    Equal nodes are one object. Brackets and separators come as their text and are not looked at.
    """

    def __init__(self) -> None:
        self.items: list[Item | None] = []
        """What each statement says; the reader adds None for those that cannot be parsed."""
        self._nodes: dict[tuple[Any, ...], Expr] = {}

    def share(self, node: Expr) -> Expr:
        """The one object that stands for a node whose children are shared already."""
        return self._nodes.setdefault((type(node), node.label, *map(id, node.children)), node)

    def node(self, kind: type[Expr], label: Any, *children: Expr) -> Expr:
        key = (kind, label, *map(id, children))
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = make(kind, label, children)
        return known

    def proposition_of(self, name: Expr) -> Expr:
        """A name where a formula stands."""
        return self.node(Call, (name.label, False))

    def close(self, value: Expr | Chain) -> Expr:
        """A value that is a complete node."""
        return self.node(value.kind, None, *value.operands) if isinstance(value, Chain) else value

    def formula(self, value: Expr | Chain) -> Expr:
        """A value where a formula stands."""
        return self.proposition_of(value) if isinstance(value, Name) else self.close(value)

    def method(self, alias: str) -> Callable[..., Any]:
        """What the parser calls for a rule."""
        found: Callable[..., Any] = getattr(self, alias)
        return found

    # -- statements -------------------------------------------------------------------------------------------------

    def statement(self, _text: None, item: Item, _end: None) -> None:
        self.items.append(item)

    def axiom(self, *parts: Any) -> Item:
        name, weight, learnable = parts[0] if len(parts) == 2 else (None, 1.0, False)
        return Axiom(name or "", self.formula(parts[-1]), weight, learnable, named=name is not None)

    def name_header(self, _open: str, name: Name, _close: str) -> tuple[str, float, bool]:
        return name.name, 1.0, False

    def weight_header(self, _open: str, *rest: Any) -> tuple[str | None, float, bool]:
        # rest is: word, weight, "]" with or without a name and "," before
        _want(rest[-3], "weight")
        return (rest[0].name if len(rest) == 5 else None), *rest[-2]

    def weight(self, *parts: Number | str) -> tuple[float, bool]:
        return float(parts[0].value) if isinstance(parts[0], Number) else 1.0, parts[-1] == "?"

    def open_sort(self, _word: str, name: Name) -> Item:
        return [Sort(name.name)]

    def range_sort(self, _word: str, name: Name, _eq: str, low: Number, _to: str, high: Number) -> Item:
        return [Sort.range(name.name, _integer(low, "a bound"), _integer(high, "a bound"))]

    def value_sort(self, _word: str, name: Name, _eq: str, _open: str, values: list[Name], _close: str) -> Item:
        return [Sort(name.name, tuple([v.name for v in values]))]

    def constants(self, _word: str, names: list[Name], _colon: str, sort: Name) -> Item:
        return [Constant(n.name, Sort(sort.name)) for n in names]

    def predicates(self, _word: str, predicates: list[Predicate]) -> Item:
        return [*predicates]

    def closed_predicates(self, _word: str, predicates: list[Predicate]) -> Item:
        return [replace(p, closed=True) for p in predicates]

    def proposition(self, name: Name, *_brackets: str) -> Predicate:
        return Predicate(name.name)

    def predicate(self, name: Name, _open: str, sorts: list[Name], _close: str) -> Predicate:
        return Predicate(name.name, _sorts(sorts))

    def function(self, _word: str, name: Name, _open: str, *rest: Any) -> Item:
        # rest is: sorts, ")", "->", result or without the sorts
        return [Function(name.name, _sorts(rest[0]) if len(rest) == 4 else (), Sort(rest[-1].name))]

    def rows(self, _word: str, name: Name, _open: str, fields: list[tuple[str, Sort, bool]], _close: str) -> Item:
        return [Rows(name.name, tuple(fields))]

    def field_of_rows(self, name: Name, _colon: str, sort: Name, *star: str) -> tuple[str, Sort, bool]:
        return name.name, Sort(sort.name), bool(star)

    def fact(self, _word: str, formula: Expr) -> Item:
        return FactItem(self.formula(formula))

    def weighted_fact(
        self, _word: str, _open: str, word: Name, weight: tuple[float, bool], _close: str, formula: Expr
    ) -> Item:
        _want(word, "weight")
        if weight[1]:
            raise KnowledgeError("the weight of a fact is not learned; write a number: fact [weight 0.5] p(a)")
        return FactItem(self.formula(formula), weight[0])

    def facts(self, _word: str, predicate: Name, word: Name, file: Name, *header: Name) -> Item:
        _want(word, "from")
        for last in header:
            _want(last, "header")
        return FactsItem(predicate.name, file.name, bool(header))

    def head(self, name: Name, *rest: Any) -> tuple[str, list[Group], Expr | None]:
        # rest is: nothing, brackets, or brackets with the parameters and perhaps: where, guard between them
        guard = self.formula(rest[3]) if len(rest) == 5 else None
        return name.name, rest[1] if len(rest) > 2 else [], guard

    def definition(self, _word: str, head: tuple[str, list[Group], Expr | None], *rest: Any) -> Item:
        # rest is: ":=", body or: "->", result, ":=", body
        (name, groups, guard), result = head, rest[1].name if len(rest) == 4 else None
        body = self.close(rest[-1]) if result is not None else self.formula(rest[-1])
        return cast(Define, self.share(Define(name, groups, body, result=result, guard=guard)))

    def include(self, _word: str, file: Name) -> Item:
        return IncludeItem(file.name)

    # -- lists ------------------------------------------------------------------------------------------------------

    def first(self, item: Any) -> list[Any]:
        return [self.close(item)]

    def further(self, items: list[Any], _comma: str, item: Any) -> list[Any]:
        items.append(self.close(item))
        return items

    # -- formulas ---------------------------------------------------------------------------------------------------

    def connective(self, left: Expr, op: str, right: Expr) -> Expr:
        return self.node(INFIX[op], None, self.formula(left), self.formula(right))

    def chain(self, left: Expr | Chain, op: str, right: Expr | Chain) -> Chain:
        kind = INFIX[op]
        if isinstance(left, Chain) and left.kind is kind:
            if not isinstance(right, Chain) or right.kind is not kind:
                left.operands.append(self.formula(right))
                return left
            if len(left.operands) >= len(right.operands):  # the shorter one moves
                left.operands.extend(right.operands)
                return left
            right.operands.extendleft(reversed(left.operands))
            return right
        if isinstance(right, Chain) and right.kind is kind:
            right.operands.appendleft(self.formula(left))
            return right
        return Chain(kind, self.formula(left), self.formula(right))

    def negation(self, _op: str, formula: Expr) -> Expr:
        return self.node(Not, None, self.formula(formula))

    def comparison(self, left: Expr, op: str, right: Expr) -> Expr:
        return self.node(Compare, op, self.close(left), self.close(right))

    def let(self, bindings: list[tuple[str, Expr]], _open: str, body: Expr, _close: str) -> Expr:
        return self.share(Let(bindings, self.formula(body)))

    def binding(self, name: Name, _op: str, value: Expr) -> tuple[str, Expr]:
        return name.name, value

    def quantified(self, kind: str, groups: list[Group], *rest: Any) -> Expr:
        return self._quantifier(kind, None, groups, rest)

    def counted(self, kind: str, count: Number, groups: list[Group], *rest: Any) -> Expr:
        return self._quantifier(kind, _integer(count, f"the number after '{kind}'"), groups, rest)

    def _quantifier(self, kind: str, count: int | None, groups: list[Group], rest: tuple[Any, ...]) -> Expr:
        # rest is: dot, body or: where, guard, dot, body
        guard = self.formula(rest[1]) if len(rest) == 4 else None
        return self.share(Quantifier(kind, groups, self.formula(rest[-1]), count=count, guard=guard))

    def aggregated(self, kind: str, groups: list[Group], *rest: Any) -> Expr:
        guard = self.formula(rest[1]) if len(rest) == 4 else None
        return self.share(Aggregate(kind, groups, self.close(rest[-1]), guard=guard))

    def counting_term(self, kind: str, group: Group, *rest: Any) -> Expr:
        return self.share(Aggregate(kind, [group], guard=self.formula(rest[1]) if rest else None))

    def bounded(self, _word: str, op: str) -> str:
        kinds = {"=": "exactly", "<=": "at most", ">=": "at least"}
        if op not in kinds:
            raise KnowledgeError(f"'exists {op}' means nothing; count with exists = 1, exists <= 1 or exists >= 1")
        return kinds[op]

    def sort_group(self, names: list[Name], _colon: str, sort: Name, *sample: Any) -> Group:
        return Group([n.name for n in names], sort=sort.name, sample=_sample(sample))

    def domain_group(self, names: list[Name], _in: str, domain: Expr, *sample: Any) -> Group:
        return Group([n.name for n in names], domain=self.close(domain), sample=_sample(sample))

    # -- terms ------------------------------------------------------------------------------------------------------

    def arithmetic(self, left: Expr, op: str, right: Expr) -> Expr:
        return self.node(Arith, op, self.close(left), self.close(right))

    def minus(self, op: str, term: Expr) -> Expr:
        return self.share(Number(-term.value)) if isinstance(term, Number) else self.node(Arith, op, self.close(term))

    def negative_number(self, _op: str, number: Number) -> Number:
        return Number(-number.value)

    def field(self, base: Expr, name: str) -> Expr:
        return self.node(Field, name, self.close(base))

    def index(self, base: Expr, _open: str, index: Expr, _close: str) -> Expr:
        return self.node(Index, None, self.close(base), self.close(index))

    def parentheses(self, _open: str, inner: Expr | Chain, _close: str) -> Expr | Chain:
        return inner

    def call(self, name: Name, _open: str, *rest: Any, fresh: bool = False) -> Expr:
        return self.node(Call, (name.label, fresh), *(rest[0] if len(rest) == 2 else ()))

    def fresh_call(self, _word: str, *rest: Any) -> Expr:
        return self.call(*rest, fresh=True)


class Mistaken(Exception):
    """What a builder refused, and where it stands."""

    def __init__(self, error: KnowledgeError, start: int, end: int) -> None:
        super().__init__(str(error))
        self.error, self.start, self.end = error, start, end


class LocatedBuilder(Builder):
    """Builds every node anew and remembers where in the text it stands; values are ``(value, start, end)``.

    A :class:`~doxa.errors.KnowledgeError` comes out as :class:`Mistaken`, with the place.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spans: dict[int, tuple[int, int]] = {}
        self._alive: list[Expr] = []  # a node that died could leave its id, and so its place, to another

    def method(self, alias: str) -> Callable[..., tuple[Any, int, int]]:
        build = getattr(self, alias)

        def located(*symbols: tuple[Any, int, int] | None) -> tuple[Any, int, int]:
            known = [symbol for symbol in symbols if symbol is not None]
            start, end = known[0][1], known[-1][2]
            for symbol in known:
                self._place(*symbol)
            try:
                return build(*[None if s is None else s[0] for s in symbols]), start, end
            except KnowledgeError as error:
                raise Mistaken(error, start, end) from None

        return located

    def _place(self, value: object, start: int, end: int) -> None:
        if isinstance(value, Expr):
            self._alive.append(value)
            self.spans.setdefault(id(value), (start, end))
        elif isinstance(value, Chain):
            value.span = (start, end)

    def share(self, node: Expr) -> Expr:
        return node

    def node(self, kind: type[Expr], label: Any, *children: Expr) -> Expr:
        return make(kind, label, children)

    def proposition_of(self, name: Expr) -> Expr:
        node = super().proposition_of(name)
        self._place(node, *self.spans.get(id(name), (0, 0)))
        return node

    def close(self, value: Expr | Chain) -> Expr:
        node = super().close(value)
        if isinstance(value, Chain):
            self._place(node, *value.span)
        return node


def _sorts(names: list[Name]) -> tuple[Sort, ...]:
    return tuple([Sort(n.name) for n in names])


def _want(name: Name, word: str) -> None:
    if name.name != word:
        raise KnowledgeError(f"{name.name!r} cannot stand here; did you mean {word!r}?")


def _integer(number: Number, what: str) -> int:
    if not isinstance(number.value, int):
        raise KnowledgeError(f"{what} is a whole number, not {number.value!r}; write it without a dot")
    return number.value


def _sample(rest: tuple[Any, ...]) -> int | None:
    return _integer(rest[1], "the number after 'sample'") if rest else None
