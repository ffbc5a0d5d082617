"""What terms and formulas become for one instance of the data: formulas over tests of variables.

What the data decide is *known*: it is computed for all instances at once (`doxa.pose._data`) and given to the problem.
What networks say is a world variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, product
from operator import is_
from typing import Any

import torch

from doxa.errors import BindingError, BudgetError, KnowledgeError
from doxa.logic import INT, REAL, And, Arith, Call, Compare, Expr, Field, Function, Index, Or, Predicate, Sort
from doxa.logic.syntax._binders import Group
from doxa.logic.syntax._symbols import COMPARISON, RowSort
from doxa.logic.unfold._unfolder import Scope, Unfolder
from doxa.pose._aggregates import AggregateValues
from doxa.pose._data import CallData
from doxa.pose._problem import Consulted, Template, build, lowered
from doxa.pose._references import Cell, Indexed, Instances, Known, Object, Own, Reference, Row, Symbol
from doxa.pose._variables import NUMBERS, SMALL, UNDEFINED, Computed, Term, Variables, arithmetic, strict


class InstanceValues(AggregateValues):
    """The values of one instance: see `doxa.logic.unfold._unfolder.Formulas`."""

    skips = True

    def __init__(
        self,
        data: CallData,
        first: Instances,
        everyone: Instances,
        rows_of: Mapping[str, int],
        seen: dict[Known, tuple[Any, ...]],
        limit: int,
    ) -> None:
        unfolded = data.batch.signature.definitions
        super().__init__({name: clauses for name, clauses in unfolded.items() if name not in data.batch.symbols})
        self.data, self.signature = data, data.batch.signature
        self.first, self.everyone, self.rows_of = first, everyone, rows_of
        self.variables, self.template = Variables(limit), Template()
        self._values_seen = seen
        self._place: dict[Reference, int] = {}
        self._label: dict[tuple[str, int], int] = {}
        self._fresh = count()
        self._undefined = self._build.share(Call("undefined", ()))
        self.variables.tests[self._undefined] = Term(-1, (UNDEFINED,))

    def unfold(self, formula: Expr, scope: Scope) -> Template:
        """Unfold what is asked; what instances that look like the first one have in common."""
        outer = {name: self._refer(v) if isinstance(v, tuple) else v for name, v in scope.items()}
        self.template.posed = build(self.conjunction([Unfolder(self, outer).formula(formula)]), self.variables)
        return self.template

    # -- what there is ----------------------------------------------------------------------------------------------

    def rows(self, name: str) -> list[Row]:
        if name in self.rows_of:
            return [Row(name, i) for i in range(self.rows_of[name])]
        count = self.template.counts["rows", name] = self.data.batch.row_set(name).size
        return [Row(name, i, fixed=True) for i in range(count)]

    def objects(self, sort: str) -> Sequence[Any]:
        if (finite := self.signature.sorts[sort].values) is not None:
            return finite
        if sort in self.rows_of:
            return [self._refer((sort, Indexed(0, f"{sort}{i}"))) for i in range(self.rows_of[sort])]
        count = self.template.counts["sort", sort] = self.data.batch.objects(sort).size
        return [self._refer((sort, Indexed(i))) for i in range(count)]

    def _refer(self, reference: Reference) -> Object:
        """The object that a reference means in the first instance, known by the first reference to it."""
        known, labels = self.template.references, self.template.labels
        if reference not in self._place:
            here = (reference[0], int(self.data.identity(reference, self.first)))
            self._place[reference] = len(known)
            labels.append(self._label.setdefault(here, len(known)))
            known.append(reference)
        return Object(reference[0], labels[self._place[reference]])

    def _object(self, value: Any, sort: Sort) -> Object:
        if isinstance(value, Object):
            return value
        if isinstance(value, Own):
            return self._refer((sort.name, Indexed(0, value.name)))
        at = value if isinstance(value, Cell) else Indexed((sort.values or ()).index(value))
        return self._refer((sort.name, at))

    def _objects(self, value: Any, sort: Sort) -> Any:
        """An object, or a term for one."""
        if not isinstance(value, Term):
            return self._object(value, sort)
        return Term(value.variable, [v if v is UNDEFINED else self._object(v, sort) for v in value.values])

    def _length(self, cell: Any) -> int | None:
        """How long the sequence in a field is; None if there is none."""
        if not isinstance(cell, Cell):
            return None
        lengths = self.template.lengths
        if cell not in lengths and (found := self.data.length(cell, self.first)) is not None:
            lengths[cell] = int(found)
        return lengths.get(cell)

    def _sort_of(self, cell: Cell) -> Sort | None:
        return self.data.batch.column(cell.row.rows, cell.field).sort

    def _tabulated(self, symbol: Symbol, tuples: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What a crisp symbol says of values and numbers; it is noted, for it may say something else another time."""
        said = self._consulted(symbol).said
        if new := [t for t in tuples if t not in said]:
            said.update(zip(new, self.data.tabulated(symbol, new), strict=True))
        return [said[t] for t in tuples]

    def _consulted(self, symbol: Symbol) -> Consulted:
        """What a crisp symbol has said so far."""
        table = self.template.tables.get(symbol.name)
        if table is None:
            table = self.template.tables[symbol.name] = Consulted(symbol, {}, self.data.state(symbol.name))
        return table

    def _seen(self, known: Known) -> tuple[Any, ...]:
        """The values that occur, in these and earlier data."""
        alike = torch.ones(self.everyone.count, dtype=torch.bool)
        for cell, length in self.template.lengths.items():  # elsewhere the sequence may be shorter
            lengths = self.data.length(cell, self.everyone)
            alike &= False if lengths is None else lengths == length
        some = self.everyone.select(alike.nonzero().squeeze(1))
        values, fine = self.data.known(known, some, self.template.references)
        earlier = self._values_seen.get(known, ())
        found = {*torch.unique(values[fine]).tolist(), *earlier} - {UNDEFINED}
        partial = not bool(fine.all()) or UNDEFINED in earlier
        listed = (*sorted(found), *([UNDEFINED] if partial else []))
        self._values_seen[known] = self.template.assumed[known] = listed
        return listed

    def _named(self, value: Any) -> str:
        if not isinstance(value, Object):
            return str(value)
        sort, at = self.template.references[value.label]
        if isinstance(at, Cell):
            return str(at)
        finite = self.signature.sorts[sort].values
        return at.name or at.constant or (str(finite[at.index]) if finite is not None else f"{sort}#{at.index}")

    def members(self, group: Group, value: Any) -> Sequence[Cell]:
        length = self._length(value)
        if length is None:
            raise KnowledgeError(f"variables cannot range over {group.domain}; after 'in' stand rows or their fields")
        return [Cell(value.row, value.field, (*value.path, i)) for i in range(length)]

    def name(self, name: str) -> Any:
        if name in self.signature.value_sorts:
            return name
        if name not in self.signature.constants:
            raise KnowledgeError(f"unknown name {name!r}: it is neither bound nor declared")
        sort = self.signature.constants[name].sort
        if sort.is_open and sort not in (INT, REAL):
            return self._refer(self.data.own_constant(name))
        value = self.template.constants[name] = self.data.constant(name)
        return value

    def field(self, node: Field, row: Any) -> Cell:
        if not isinstance(row, Row):
            raise BindingError(f"{node}: only data rows have fields")
        return Cell(row, node.name)

    def element(self, node: Index, base: Any, place: Any) -> Any:
        length = self._length(base)
        if length is None:
            raise BindingError(f"{node}: only sequences have elements")

        def element(i: Any) -> Any:
            inside = isinstance(i, int) and 0 <= i < length
            return Cell(base.row, base.field, (*base.path, i)) if inside else UNDEFINED

        return self.variables.apply(("element", base), element, [self._term(place)])

    # -- formulas ---------------------------------------------------------------------------------------------------

    def truth(self, node: Expr, value: Any) -> Expr:
        if isinstance(value, Expr):
            return value
        if isinstance(value, Cell | Known):
            value = self._given(self._known(value), (False, True))
        if isinstance(value, bool):
            return self._build.truth(value)
        if value is UNDEFINED:
            return self._undefined
        if not isinstance(value, Term) or any(v is not UNDEFINED and not isinstance(v, bool) for v in value.values):
            raise KnowledgeError(f"a formula is wanted, but {node} is a term")
        return self._literal(value)

    def _literal(self, term: Term) -> Expr:
        """A Boolean term as a formula: a test and its opposite are one atom and its negation."""
        if all(v is True for v in term.values) or all(v is False for v in term.values):
            return self._build.truth(term.values[0] is True)
        first = next(v for v in term.values if v is not UNDEFINED) if set(term.values) != {UNDEFINED} else False
        if first is True:
            flipped = Term(term.variable, [v if v is UNDEFINED else not v for v in term.values])
            return self._build.negate(self._build.share(self.variables.atom(flipped)))
        return self._build.share(self.variables.atom(term))

    # -- terms ------------------------------------------------------------------------------------------------------

    def _named_values(self, known: Known) -> tuple[str, ...] | None:
        """The names that a known value goes by, if it is one of an enumeration."""
        what = known.args[0]
        if isinstance(what, Cell):
            sort = self._sort_of(what)
        elif isinstance(what, Own):
            sort = what.sort
        else:
            sort = what.result if isinstance(what, Function) else None
        return sort.values if sort is not None and isinstance(sort.values, tuple) else None

    def _known(self, value: Any) -> Any:
        """A field or the value of a variable as what is known."""
        if isinstance(value, Cell):
            return Known("cell", (value,))
        return Known("own", (value,)) if isinstance(value, Own) else value

    def _given(self, known: Known, values: Sequence[Any]) -> Term:
        """A variable whose value the data decide."""
        listed = (*values, UNDEFINED) if _partial(known) else tuple(values)
        return self.variables.own("given", ("value", known, listed), listed, str(known))

    def _term(self, value: Any) -> Any:
        """What is known as a variable, where nothing simpler will do: with the values that occur in the data."""
        value = self._known(value)
        if not isinstance(value, Known):
            return value
        if (named := self._named_values(value)) is not None:
            return self._given(value, named)
        return self.variables.own("given", ("seen", value), self._seen(value), str(value))

    def _number(self, node: Expr, value: Any) -> Any:
        value = self._known(value)
        if isinstance(value, Expr):
            raise KnowledgeError(f"numbers are wanted in {node}, but there is a formula")
        for one in value.values if isinstance(value, Term) else (value,):
            if not isinstance(one, int | float | Known | Computed) and one is not UNDEFINED:
                raise KnowledgeError(f"numbers are wanted in {node}, but there is {one!r}")
        return value

    def _raw(self, value: Any, limit: int) -> Any:
        """A number beside computed ones: what is known is given as it is."""
        return self.variables.given_number(value, limit) if isinstance(value, Known) else value

    def arithmetic(self, node: Arith, args: list[Any]) -> Any:
        numbers = [self._number(node, a) for a in ([0, *args] if len(args) == 1 else args)]
        if any(isinstance(n, Computed) for n in numbers):
            if node.op in ("//", "mod") or any(n is UNDEFINED for n in numbers):
                raise BudgetError(
                    "join", f"{node} depends on too many joint values to be divided; say it digit by digit"
                )
            return Computed.of(node.op, [self._raw(n, SMALL) for n in numbers])
        listed = any(isinstance(n, Term) or n in (math.inf, -math.inf) for n in numbers)  # of each value by itself
        if any(isinstance(n, Known) for n in numbers) and not listed:
            return UNDEFINED if any(n is UNDEFINED for n in numbers) else Known(node.op, tuple(numbers))
        return self.variables.apply(node.op, partial(arithmetic, node.op), [self._term(n) for n in numbers])

    def compare(self, node: Compare, args: list[Any]) -> Any:
        sorts = [self._sort_of(a) for a in args if isinstance(a, Cell)]
        opened = next((s for s in sorts if s is not None and s.is_open and s not in (INT, REAL)), None)
        if opened is None:
            opened = next((Sort(a.sort) for a in args if isinstance(a, Object)), None)
        if opened is None:
            cells = [v for a in args if isinstance(a, Term) for v in a.values if isinstance(v, Cell | Object)]
            opened = next((self._sort_of(c) if isinstance(c, Cell) else Sort(c.sort) for c in cells), None)
        if opened is not None and (opened.values is not None or opened in (INT, REAL)):
            opened = None
        if opened is not None:
            objects = [self._objects(a, opened) for a in args]
            return self.variables.apply((node.op, "objects"), strict(COMPARISON[node.op]), objects)
        values = [self._known(a) for a in args]
        if node.op not in ("=", "!="):
            values = [self._number(node, v) for v in values]
        if any(v is UNDEFINED for v in values):
            return UNDEFINED
        if any(isinstance(v, Computed) for v in values):
            return self.variables.test(node.op, [self._raw(v, len(NUMBERS) // 2) for v in values])
        known = [i for i, v in enumerate(values) if isinstance(v, Known)]
        if len(known) == 1 and isinstance(values[1 - known[0]], Term):
            found = self._against(node.op, values[1 - known[0]], values[known[0]], swapped=known[0] == 0)
            if found is not None:
                return found
        if known and not any(isinstance(v, Term) for v in values):
            return Known(node.op, tuple([self._coded(v) for v in values]))
        return self.variables.apply(node.op, strict(COMPARISON[node.op]), [self._term(v) for v in values])

    def _coded(self, value: Any) -> Any:
        """A name of an enumeration beside what is known: the data hold its position."""
        if not isinstance(value, str):
            return value
        names: Any = self.signature.value_sorts[value].values
        return names.index(value)

    def _against(self, op: str, term: Term, known: Known, *, swapped: bool) -> Any:
        """A term compared with what is known: the data decide where the known value stands among the term's."""
        values = list(dict.fromkeys(term.values))
        if _partial(known) or any(v is UNDEFINED or isinstance(v, Known | Cell) for v in values):
            return None
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        named = self._named_values(known)
        if named is None and not numbers:
            return None if op in ("=", "!=") else UNDEFINED
        if numbers:
            values.sort()
        if op in ("=", "!="):
            listed = (*values, None)
            place = self.variables.own("given", ("place", known, listed, named), listed, str(known))
            equal = self._literal(self.variables.compare("=", term, place.variable, values))
            return equal if op == "=" else self._build.negate(equal)
        if swapped:  # known < term is term > known
            op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
        strictly = op in ("<", ">=")  # term < known: fewer values than those below the known one
        key = ("below" if strictly else "up to", known, tuple(values))
        count = self.variables.own("given", key, tuple(range(len(values) + 1)), str(known))
        less = self._literal(self.variables.compare("<", term, count.variable, values))
        return less if op in ("<", "<=") else self._build.negate(less)

    # -- applications -----------------------------------------------------------------------------------------------

    def call(self, node: Call, args: list[Any]) -> Any:
        declared = self.signature
        symbol = declared.predicates.get(node.name) or declared.functions.get(node.name)
        if symbol is None:
            raise KnowledgeError(f"{node}: {node.name!r} is neither a predicate nor a function of the knowledge base")
        if len(args) != len(symbol.sorts):
            raise KnowledgeError(f"{node}: {symbol.name} takes {len(symbol.sorts)} arguments, got {len(args)}")
        fresh = next(self._fresh) if node.fresh else None
        fitted = [self._argument(node, a, s) for a, s in zip(args, symbol.sorts, strict=True)]
        uncertain = [i for i, a in enumerate(fitted) if isinstance(a, Term)]
        if not uncertain:
            return self._apply(symbol, tuple(fitted), fresh)
        # What it says of each value that the uncertain arguments can have; then the one that they do have.
        chosen = [fitted[i] for i in uncertain]
        combinations = list(product(*[dict.fromkeys(term.values) for term in chosen]))
        tuples = []
        for combination in combinations:
            filled = dict(zip(uncertain, combination, strict=True))
            tuples.append(
                tuple(
                    [
                        self._argument(node, filled[i], sort) if i in filled else fitted[i]
                        for i, sort in enumerate(symbol.sorts)
                    ]
                )
            )
        if self.data.is_crisp(symbol.name) and all(_plain(a) for t in tuples for a in t):
            answers = self._tabulated(symbol, tuples)
        else:
            answers = [self._apply(symbol, t, fresh) for t in tuples]
        options = dict(zip(combinations, answers, strict=True))
        if isinstance(symbol, Predicate) and any(isinstance(o, Expr | Term | Known) for o in answers):
            cases = []
            for combination, option in options.items():
                tests = [
                    self._literal(Term(term.variable, [v == value and type(v) is type(value) for v in term.values]))
                    for term, value in zip(chosen, combination, strict=True)
                ]
                cases.append(self._build.join(And, [*tests, self.truth(node, option)]))
            return self._build.join(Or, cases)
        options = {c: self._term(o) for c, o in options.items()}
        if not any(isinstance(o, Term) for o in options.values()):
            name = ("select", symbol.name, tuple(options.items()))
            return self.variables.apply(name, lambda *labels: options[labels], chosen)
        result: Any = UNDEFINED
        for combination, option in options.items():

            def select(option: Any, other: Any, *labels: Any, wanted: Any = combination) -> Any:
                return option if labels == wanted else other

            result = self.variables.apply(("either", combination), select, [option, result, *chosen])
        return result

    def arguments(self, node: Call, args: list[Any]) -> Iterator[tuple[Expr, Any]]:
        symbol = self.signature.predicates.get(node.name) or self.signature.functions[node.name]
        if len(args) != len(symbol.sorts):
            raise KnowledgeError(f"{node}: {symbol.name} takes {len(symbol.sorts)} arguments, got {len(args)}")
        pairs = list(zip(args, symbol.sorts, strict=True))
        fitted = [a if isinstance(s, RowSort) and isinstance(a, Row) else self._argument(node, a, s) for a, s in pairs]
        options = [dict.fromkeys(a.values) if isinstance(a, Term) else (a,) for a in fitted]
        for combination in product(*options):
            tests: list[Expr] = []
            values: list[Any] = []
            for term, value, sort in zip(fitted, combination, symbol.sorts, strict=True):
                if isinstance(term, Term):
                    same = [v == value and type(v) is type(value) for v in term.values]
                    tests.append(self._literal(Term(term.variable, same)))
                    value = self._argument(node, value, sort)
                values.append(value)
            condition = self._build.join(And, tests)
            if condition is not self._build.false:
                yield condition, UNDEFINED if any(v is UNDEFINED for v in values) else tuple(values)

    def choose(self, node: Call, cases: list[tuple[Expr, Any]]) -> Any:
        values = self.signature.functions[node.name].result.values or ()
        found: Any = UNDEFINED
        for condition, value in reversed(cases):
            holds = lowered(condition, self.variables)
            found = self.variables.apply("choose", _chosen, [holds, self._term(value), found])
        fit = partial(_fitting, frozenset(values))
        return self.variables.apply(("fits", node.name), fit, [found])

    def undefined(self, reason: str) -> Any:
        return UNDEFINED

    def _apply(self, symbol: Symbol, args: tuple[Any, ...], fresh: int | None) -> Any:
        """What a symbol says of objects, values and numbers."""
        if any(map(partial(is_, UNDEFINED), args)):
            return UNDEFINED
        crisp, result = self.data.is_crisp(symbol.name), symbol.result if isinstance(symbol, Function) else None
        if crisp and all(map(_plain, args)):
            said = self._consulted(symbol).said
            if args not in said:
                said[args] = self.data.answer(symbol, args)
            return said[args]
        numbers = crisp and result in (INT, REAL)
        values = (False, True) if result is None else result.values
        if result is not None and values is None and not numbers:
            raise KnowledgeError(
                f"{symbol.name} yields objects of the open sort {result.name}; probabilities need functions into "
                "finite sorts or numbers"
            )
        pairs = zip(args, symbol.sorts, strict=True)
        referred = tuple([a if sort in (INT, REAL) else self._object(a, sort) for a, sort in pairs])
        if crisp:
            known = Known("call", (symbol, referred))
            return known if numbers or isinstance(values, range) else self._given(known, values or ())
        shown = [self._named(a) for a in referred]
        if result is None and self.data.is_exclusive(symbol.name):
            last = symbol.sorts[-1]
            if last.values is None:
                raise KnowledgeError(f"{symbol.name}: its last argument must be of a finite sort to be exclusive")
            name = f"{symbol.name}({', '.join([*shown[:-1], '_'])})"
            which = self.variables.own("world", (symbol, (*referred[:-1], None), fresh), tuple(last.values), name)
            if isinstance(args[-1], Cell | Own):
                return self.compare(Compare("=", Call("which", ()), Call("value", ())), [which, args[-1]])
            return Term(which.variable, [v == args[-1] for v in which.values])
        name = f"{symbol.name}({', '.join(shown)})" if args else symbol.name
        return self.variables.own("world", (symbol, referred, fresh), values or (), name)

    def _argument(self, node: Call, value: Any, sort: Sort) -> Any:
        """An argument as a value of its sort: undefined if it is none."""
        if isinstance(value, Term) or value is UNDEFINED:
            return value
        if isinstance(value, Object) and value.sort == sort.name and sort.values is None:
            return value
        if sort.values is not None:
            if isinstance(value, Cell | Own):
                return value
            if isinstance(value, Known):
                return self._term(value)
            if isinstance(value, str | int) and not isinstance(value, bool):
                return value if value in sort.values else UNDEFINED
        elif sort in (INT, REAL):
            return self._number(node, value)
        elif isinstance(value, Cell | Object):
            return self._object(value, sort)
        raise KnowledgeError(f"{node}: {value!r} is no {sort.name}")


def _chosen(holds: Any, value: Any, other: Any) -> Any:
    return UNDEFINED if holds is UNDEFINED else value if holds else other


def _fitting(values: frozenset[Any], value: Any) -> Any:
    return value if value in values else UNDEFINED


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float) or value is UNDEFINED


def _partial(known: Known) -> bool:
    """May it have no value in some rows?"""
    if known.op == "call":
        return isinstance(known.args[0], Function)
    return known.op in ("//", "mod") or any(_partial(k) for k in known.args if isinstance(k, Known))
