"""Definitions: what something *is*, clause by clause, and which definitions use which.

A defined predicate is true of what its clauses make true and of nothing else: together they are the least relation for
which every clause ``p(x) ← body`` holds. That relation exists when no definition uses its own negation, so definitions
come in *strata*: those that use each other form one, and a stratum is complete before another may negate it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Aggregate, Binder, Body, Group, Let, Quantifier, as_groups
from doxa.logic.syntax._node import make
from doxa.logic.syntax._symbols import Function, Predicate
from doxa.logic.syntax._tree import Call, Compare, Expr, Iff, Implies, Name, Not, Xor, as_expr, as_formula

K = TypeVar("K")
Definitions = Mapping[str, Sequence[Expr]]
"""The clauses (:class:`Define`) of every defined predicate and function, by its name."""


class Define(Binder):
    """One clause of a definition: ``define p(x: S where guard) := body``, or ``define f(x: S) -> T := term``.

    A predicate holds where any of its clauses does. A function has the value of its first clause whose guard holds.

    >>> from doxa.logic import Call, Name, Number
    >>> i = Name("i")
    >>> print(Define("even", [Group(["i"], sort="Place")], Call("even", (i - 2,)), guard=i > 1))
    define even(i: Place where i > 1) := even(i - 2)
    >>> print(Define("carry", [Group(["i"], sort="Place")], Call("carry", (i - 1,)) // 2, result="Bit"))
    define carry(i: Place) -> Bit := carry(i - 1) // 2
    """

    __slots__ = ()

    def __init__(
        self,
        name: str,
        groups: Iterable[Group],
        body: Expr,
        *,
        result: str | None = None,
        guard: Expr | None = None,
        hint: Predicate | Function | None = None,
    ) -> None:
        groups = list(groups)
        if any(g.sample is not None for g in groups):
            raise KnowledgeError(f"the arguments of {name} are not sampled; leave 'sample' out")
        super().__init__(name, result, groups, as_formula(body) if result is None else body, guard)

    @property
    def name(self) -> str:
        return cast(str, self.label[0])

    @property
    def result(self) -> str | None:
        """The sort of a function's values; None for a predicate."""
        return cast("str | None", self.label[1])

    @property
    def head(self) -> Call:
        """What is defined, applied to the parameters."""
        return Call(self.name, tuple([Name(n) for n in self.names]))


def define(symbol: Predicate | Function, *binders: Name | Group, where: Expr | None = None) -> Body:
    """A clause of the definition of a predicate or function, called on its body.

    >>> from doxa.logic import Predicate, Sort, exists, variables
    >>> Node = Sort("Node")
    >>> edge, path = Predicate("edge", (Node, Node)), Predicate("path", (Node, Node))
    >>> x, y, z = variables("x y z", Node)
    >>> print(define(path, x, y)(edge(x, y) | exists(z)(edge(x, z) & path(z, y))))
    define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)
    """
    result = symbol.result.name if isinstance(symbol, Function) else None

    def of(body: object) -> Expr:
        clause = Define(symbol.name, as_groups(binders), as_expr(body), result=result, guard=where)  # type: ignore[arg-type]
        return make(Define, clause.label, clause.children, symbol)

    return of


# --- which definitions use which ----------------------------------------------------------------------------------

_FLIP = {"": "!", "!": ""}


def is_function(clause: Expr) -> bool:
    """Does a clause define a function, instead of a predicate?"""
    return clause.label[1] is not None


def uses(clause: Expr, definitions: Definitions) -> dict[tuple[str, str], Expr]:
    """Which defined symbols a clause uses, and how: ``""`` where more of them makes it truer, else through what.

    ``!`` is a negation; a term, a count or an equivalence is named. The value is where it is used.
    """
    assert isinstance(clause, Define)
    if is_function(clause):
        stack: list[tuple[Expr, str]] = [(c, f"the function {clause.name}") for c in clause.children]
    else:
        stack = [(clause.body, ""), *([(clause.guard, "")] if clause.guard is not None else [])]
        stack += [(g.domain, "a term") for g in clause.groups if g.domain is not None]
    found: dict[tuple[str, str], Expr] = {}
    seen: set[tuple[int, str]] = set()
    while stack:
        node, how = stack.pop()
        if (id(node), how) in seen:
            continue
        seen.add((id(node), how))
        flipped = _FLIP.get(how, how)
        match node:
            case Call():
                if node.name in definitions:
                    function = is_function(definitions[node.name][0])
                    found.setdefault((node.name, how or (f"the function {node.name}" if function else "")), node)
                stack += [(c, how or "a term") for c in node.children]
            case Not():
                stack.append((node.children[0], flipped))
            case Implies():
                stack += [(node.children[0], flipped), (node.children[1], how)]
            case Iff() | Xor():
                stack += [(c, "<->" if type(node) is Iff else "xor") for c in node.children]
            case Compare():
                stack += [(c, "a term") for c in node.children]
            case Aggregate():
                stack += [(c, node.kind) for c in node.children]
            case Quantifier():
                inside = "exactly" if node.kind == "exactly" else flipped if node.kind == "at most" else how
                stack.append((node.body, inside))
                if node.guard is not None:
                    stack.append((node.guard, flipped if node.kind == "forall" else inside))
                stack += [(g.domain, "a term") for g in node.groups if g.domain is not None]
            case Let():
                stack += [(node.body, how), *[(v, "a term") for v in node.values]]
            case _:
                stack += [(c, how) for c in node.children]
    return found


class Stratum(NamedTuple):
    """Definitions that use each other, or one that uses none of them."""

    names: tuple[str, ...]
    recursive: bool


def strata(definitions: Definitions) -> list[Stratum]:
    """The definitions in an order in which each uses only those before it, and those of its own stratum."""
    graph = {
        name: {used: None for clause in clauses for used, _ in uses(clause, definitions)}
        for name, clauses in definitions.items()
    }
    return [
        Stratum(tuple(sorted(names, key=list(graph).index)), len(names) > 1 or names[0] in graph[names[0]])
        for names in components(graph)
    ]


def components(graph: Mapping[K, Iterable[K]]) -> list[list[K]]:
    """The strongly connected components of a graph, each after those that it leads to (Tarjan's algorithm)."""
    number: dict[K, int] = {}
    low: dict[K, int] = {}
    path: list[K] = []
    on_path: set[K] = set()
    found: list[list[K]] = []
    for root in graph:
        if root in number:
            continue
        stack = [(root, iter(graph[root]))]
        number[root] = low[root] = len(number)
        path.append(root)
        on_path.add(root)
        while stack:
            node, rest = stack[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    stack.append((other, iter(graph[other])))
                    break
                if other in on_path:
                    low[node] = min(low[node], number[other])
            else:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                if low[node] == number[node]:
                    at = path.index(node) if path[-1] != node else len(path) - 1
                    found.append(path[at:])
                    on_path.difference_update(path[at:])
                    del path[at:]
    return found


_Edges = dict[str, dict[str, list[tuple[str, Define, Expr]]]]
"""By a definition and one that it uses: how, in which clause, and where."""


def check_strata(definitions: Definitions, report: Callable[[Define, Expr, str, str], None]) -> None:
    """Report every definition that uses its own negation: ``report(clause, node, message, remedy)``."""
    edges: _Edges = {name: {} for name in definitions}
    for name, clauses in definitions.items():
        for clause in clauses:
            assert isinstance(clause, Define)
            for (used, how), node in uses(clause, definitions).items():
                edges[name].setdefault(used, []).append((how, clause, node))
    for names in components(edges):
        members = set(names)
        if all(is_function(definitions[n][0]) for n in names):
            continue  # functions may call each other, as long as no value needs itself
        wrong = [
            (name, used, *use) for name in sorted(names) for used in edges[name] if used in members
            for use in edges[name][used] if use[0]
        ]  # fmt: skip
        if wrong:
            name, used, how, clause, node = min(wrong, key=lambda w: (w[2] != "!", list(definitions).index(w[0])))
            cycle = [(name, used, how), *_way(edges, members, used, name)]
            shown = ", ".join([f"{a} uses {_used(b, h)}" for a, b, h in cycle])
            what = "its own negation" if how == "!" else f"itself, inside {how}"
            message = f"{name!r} is defined through {what}: {shown}"
            report(clause, node, message, "a definition may negate, count or calculate with completed definitions only")


def _way(edges: _Edges, members: set[str], start: str, end: str) -> list[tuple[str, str, str]]:
    """The shortest way from one definition to another through those of a stratum."""
    before: dict[str, str] = {start: start}
    queue = deque([start])
    while queue and end not in before:
        here = queue.popleft()
        for other in edges[here]:
            if other in members and other not in before:
                before[other] = here
                queue.append(other)
    way: list[tuple[str, str, str]] = []
    while end != start:
        way.append((before[end], end, edges[before[end]][end][0][0]))
        end = before[end]
    return way[::-1]


def _used(name: str, how: str) -> str:
    return f"!{name}" if how == "!" else f"{name} inside {how}" if how else name
