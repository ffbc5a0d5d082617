"""Definitions while a formula is unfolded: a defined atom becomes the formula under which it is derived.

The atoms of one stratum that are reached from the one asked about stand for themselves until all their clauses are
unfolded: a system of equations p = body(p, q, ...), q = body(p, q, ...), in which more truth makes more truth. Its
least solution is found by elimination (Bekić): in every world the least solution of p = f(p) is f(false), so p is
replaced by f(false) in the equations that are left, and so on. What is left has no loop, and its models are the least
models. Values of functions follow from values that are there already, so a value that needs itself is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

from doxa.errors import KnowledgeError
from doxa.logic.syntax._define import Define, Definitions, components, strata
from doxa.logic.syntax._node import Task, below
from doxa.logic.syntax._simplify import Builder, parts
from doxa.logic.syntax._tree import And, Call, Expr, Name, Number, Or
from doxa.logic.unfold._domains import ENTRIES, check_entries

LOOKUPS = 512
"""So many questions whether one atom uses another take as long as one entry."""
Key = tuple[str, tuple[Any, ...]]
"""What is defined, and its arguments."""


class Values(Protocol):
    """What definitions need to know of terms and formulas; see `doxa.logic.unfold._unfolder.Formulas`."""

    _build: Builder

    def arguments(self, node: Call, args: list[Any]) -> Iterable[tuple[Expr, Any]]: ...
    def choose(self, node: Call, cases: list[tuple[Expr, Any]]) -> Any: ...
    def undefined(self, reason: str) -> Any: ...
    def truth(self, node: Expr, value: Any) -> Any: ...
    def step(self) -> None: ...


class Definer:
    """What defined atoms and functions become, each found once; ``evaluate`` is called on an expression of a clause."""

    def __init__(self, values: Values, definitions: Definitions, evaluator: Callable[[Define], Any]) -> None:
        self._values, self._build = values, values._build
        self._definitions, self._evaluator = definitions, evaluator
        self._stratum = {name: stratum for stratum in strata(definitions) for name in stratum.names}
        self._found: dict[Key, Any] = {}
        self._solved: dict[Key, tuple[Least, Expr]] = {}
        """Atoms whose solution nobody has asked for yet: who has it, and under which name."""
        self._running: dict[Key, None] = {}
        self._open: dict[tuple[str, ...], dict[Key, Expr]] = {}
        """Of each stratum that is being completed: its atoms so far, and what stands for them meanwhile."""
        self._kept: dict[Key, Expr] | None = None
        self._spent = 0

    def keep(self) -> dict[Key, Expr]:
        """From now on atoms stand for themselves: those that were met, to be asked about by :meth:`rules`."""
        self._kept = {}
        return self._kept

    def rules(self, key: Key) -> Task:
        """The clauses of an atom, each with its formula."""
        found: list[tuple[Define, Expr]] = []
        for clause in self._definitions[key[0]]:
            assert isinstance(clause, Define)
            found.append((clause, (yield self._clauses(key, {}, [clause]))))
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._definitions

    def call(self, node: Call, args: list[Any]) -> Task:
        """What a defined predicate or function of arguments becomes."""
        build, values = self._build, self._values
        predicate = self._definitions[node.name][0].label[1] is None
        cases: list[tuple[Expr, Any]] = []
        for condition, chosen in values.arguments(node, args):
            value = chosen if not isinstance(chosen, tuple) else (yield self._ground(node.name, chosen))
            cases.append((condition, values.truth(node, value) if predicate else value))
        if predicate:
            return build.join(Or, [build.join(And, case) for case in cases])
        return cases[0][1] if len(cases) == 1 and cases[0][0] is build.true else values.choose(node, cases)

    def _ground(self, name: str, args: tuple[Any, ...]) -> Task:
        key, stratum = (name, args), self._stratum[name]
        if key in self._found:
            return self._found[key]
        if key in self._solved:
            return self._solution(key)
        function = self._definitions[name][0].label[1] is not None
        if self._kept is not None and not function:
            return self._kept.setdefault(key, self._build.share(Call(name, tuple([_term(a) for a in args]))))
        if function or not stratum.recursive:
            if key in self._running:
                way = [*list(self._running)[list(self._running).index(key) :], key]
                shown = " needs ".join([_shown(k) for k in way[:6]])
                raise KnowledgeError(
                    f"the value of {_shown(key)} needs itself: {shown}; begin with a clause that does not"
                )
            self._running[key] = None
            self._found[key] = yield self._clauses(key, {})
            del self._running[key]
            return self._found[key]
        if stratum.names in self._open:
            known = self._open[stratum.names]
            if key not in known:
                known[key] = self._build.share(Call(f"\0{len(known)} of {name}", ()))
            return known[key]
        known = self._open[stratum.names] = {key: self._build.share(Call(f"\0 of {name}", ()))}
        bodies: dict[Expr, Expr] = {}
        own: dict[Define, Any] = {}  # results so far may hold what stands for atoms, so they are kept apart
        while len(bodies) < len(known):
            for atom in list(known)[len(bodies) :]:
                bodies[known[atom]] = yield self._clauses(atom, own)
        del self._open[stratum.names]
        solved = Least(bodies, self._build, self.spend)
        self._solved.update({atom: (solved, stands) for atom, stands in known.items()})
        return self._solution(key)

    def _solution(self, key: Key) -> Expr:
        """The least solution for an atom of a stratum that is complete."""
        solved, stands = self._solved.pop(key)
        found = self._found[key] = solved[stands]
        return found

    def _clauses(self, key: Key, own: dict[Define, Any], only: Sequence[Expr] | None = None) -> Task:
        """Of a predicate, where any clause holds; of a function, the value of the first clause whose guard does."""
        values, build = self._values, self._build
        name, args = key
        found: list[tuple[Expr, Any]] = []
        left = build.true
        for clause in only or self._definitions[name]:
            assert isinstance(clause, Define)
            self.spend(1)
            if clause not in own:
                own[clause] = self._evaluator(clause)
            scope = dict(zip(clause.names, args, strict=True))
            guard = left
            if clause.guard is not None:
                holds = values.truth(clause.guard, (yield own[clause](clause.guard, scope)))
                guard = build.join(And, (left, holds))
            if guard is build.false:
                continue
            value = yield own[clause](clause.body, scope)
            if clause.result is None:
                found.append((guard, values.truth(clause.body, value)))
            else:
                found.append((guard, value))
                left = build.join(And, (left, build.negate(holds))) if clause.guard is not None else build.false
                if left is build.false:
                    break
        if self._definitions[name][0].label[1] is None:
            return build.join(Or, [build.join(And, case) for case in found])
        if left is not build.false:
            nothing = f"{_shown(key)} has no value where no clause of it holds; add a clause without a condition"
            found.append((left, values.undefined(nothing)))
        return values.choose(Call(name, ()), found)

    def spend(self, entries: int) -> None:
        """Count work against the limits, and look at the clock."""
        self._values.step()
        self._spent += entries
        remedy = "say with a known relation what can hold (where link(x, y)), ask about fewer objects, or raise entries"
        check_entries(self._spent, getattr(self._values, "_entries", ENTRIES), "unfolding definitions", remedy)


Spend = Callable[[int], None]


class Least:
    """The least solution of monotone equations ``atom = body`` over the same atoms, as formulas without them.

    All atoms are eliminated at once, the first one last, for whom nothing is then left to put in: it should be the one
    that is asked about. Other solutions are put together when they are asked for. ``spend`` is told what it takes, in
    entries, again and again: the place to stop.

    >>> from doxa.logic import propositions
    >>> p, q, a, b = propositions("p q a b")
    >>> build = Builder()
    >>> p, q, a, b = [build.share(x) for x in (p, q, a, b)]
    >>> bodies = {p: build.join(Or, (a, q)), q: build.join(And, (b, p))}
    >>> print(Least(bodies, build)[q])
    b & a
    """

    def __init__(self, bodies: Mapping[Expr, Expr], build: Builder, spend: Spend = lambda _: None) -> None:
        self._build, self._spend = build, spend
        self._atoms = list(bodies)
        self._index = {id(atom): i for i, atom in enumerate(bodies)}
        self._bodies = list(bodies.values())
        self._uses = [_mentioned(body, self._index) for body in self._bodies]
        """Of each atom, those in its equation: at last only those of its group that are eliminated after it."""
        self._solved: dict[int, Expr] = {}
        self._order: dict[int, list[int]] = {}
        """Of each atom, the group that depends on itself, in the order in which it was eliminated."""
        for group in components({i: sorted(u) for i, u in enumerate(self._uses)}):
            self._eliminate(group)

    def __getitem__(self, atom: Expr) -> Expr:
        return self._build.flatten(self._solution(self._index[id(atom)]))

    def _replaced(self, i: int, new: Mapping[int, Expr]) -> Expr:
        return replaced(self._bodies[i], {id(self._atoms[j]): by for j, by in new.items()}, self._build, self._spend)

    def _eliminate(self, group: Sequence[int]) -> None:
        """Atoms that depend on each other, and on solved ones."""
        bodies, uses = self._bodies, self._uses
        for i in group:
            earlier = uses[i] & self._order.keys()
            bodies[i] = self._replaced(i, {j: self._solution(j) for j in earlier})
            uses[i] -= earlier
        left = set(group)
        order: list[int] = []
        while left:
            users = {i: sum([i in uses[j] for j in left]) for i in left} if len(left) > 1 else dict.fromkeys(left, 0)
            i = min(left, key=lambda i: (i == 0, users[i] * len(uses[i]), -i))
            self._spend(len(left) ** 2 // LOOKUPS)
            left.remove(i)
            order.append(i)
            if i in uses[i]:
                bodies[i] = self._replaced(i, {i: self._build.false})
                uses[i].discard(i)
            for j in left:
                if i in uses[j]:
                    bodies[j] = self._replaced(j, {i: bodies[i]})
                    uses[j] = (uses[j] | uses[i]) - {i}
        self._order.update(dict.fromkeys(group, order))

    def _solution(self, i: int) -> Expr:
        needed, solved = {i}, self._solved
        order = self._order[i]
        for j in order:
            if j in needed and j not in solved:
                needed |= self._uses[j]
        for j in reversed(order):
            if j in needed and j not in solved:
                solved[j] = self._replaced(j, {k: solved[k] for k in self._uses[j]})
        return solved[i]


def _mentioned(body: Expr, index: Mapping[int, int]) -> set[int]:
    return {index[id(node)] for node in below([body], parts) if id(node) in index}


def replaced(body: Expr, new: Mapping[int, Expr], build: Builder, spend: Spend = lambda _: None) -> Expr:
    """A formula with other formulas in the place of atoms, by their identity."""
    if not new:
        return body
    value: dict[int, Expr] = {}
    for node in below([body], parts):
        inside = parts(node)
        changed = [value[id(c)] for c in inside]
        if not inside:
            value[id(node)] = new.get(id(node), node)
        elif all(map(is_, changed, inside)):
            value[id(node)] = node
        else:
            value[id(node)] = build.rebuild(node, changed)
    spend(len(value))
    return value[id(body)]


def _term(value: Any) -> Expr:
    return Number(value) if isinstance(value, int | float) else Name(str(value))


def _shown(key: Key) -> str:
    name, args = key
    return f"{name}({', '.join(map(str, args))})" if args else name


def reachable(formulas: Iterable[Expr], definitions: Definitions) -> Sequence[Expr]:
    """The formulas together with the clauses that they use, directly or through others."""
    found: list[Expr] = list(formulas)
    known: set[str] = set()
    at = 0
    while at < len(found):
        for node in below([found[at]]):
            if isinstance(node, Call) and node.name in definitions and node.name not in known:
                known.add(node.name)
                found += definitions[node.name]
        at += 1
    return found
