"""How a formula with variables is grounded: see ``_propositional.py`` for what comes out.

A subformula is evaluated once for each choice of the variables it mentions. Evaluation runs on a stack of generators,
so that nothing recurses on the depth of a formula.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import product
from typing import Any

from doxa.errors import BindingError, KnowledgeError
from doxa.logic.syntax._binders import Group, Let, Quantifier
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._simplify import Builder, formulas
from doxa.logic.syntax._symbols import Signature
from doxa.logic.syntax._tree import And, Arith, Call, Compare, Expr, Field, Index, Name, Number, Or
from doxa.logic.syntax._walk import postorder
from doxa.logic.unfold._domains import Row, Universe, Value
from doxa.logic.unfold._terms import Table, Terms, Undefined

__all__ = ["Expander"]

Scope = dict[str, Any]
"""The values of variables: names of objects, numbers, rows, or tables."""
_Run = Generator[tuple["_Code", Scope], Any, Any]
"""A subformula under evaluation: it asks for others, is sent their values, and returns its own."""


class _Code:
    """A subformula made ready: the variables it mentions, the steps of its evaluation, and the results so far."""

    def __init__(self, root: Expr, free: frozenset[str]) -> None:
        self.root = root
        self.free = tuple(sorted(free))
        self.steps: list[tuple[Expr, _Code | list[int]]] | None = None
        """Nodes with the places of their children among the steps, or the code of a subformula of fewer variables."""
        self.results: dict[tuple[Any, ...], Any] = {}


class Expander:
    """Grounds formulas over one universe; all of them share their atoms and subformulas.

    When ``strict``, every predicate must be declared; otherwise a call that is no function is an atom.
    """

    def __init__(self, signature: Signature, universe: Universe, *, strict: bool) -> None:
        self._signature = signature
        self._universe = universe
        self._build = Builder()
        self._terms = Terms(signature, universe, self._build, strict)
        self._free: dict[int, frozenset[str]] = {}
        self._codes: dict[tuple[int, frozenset[str]], _Code] = {}
        self._kept: list[Expr] = []  # keys are identities, so the trees must stay

    @property
    def atoms(self) -> tuple[Expr, ...]:
        """Every atom met so far, in order."""
        return tuple(self._terms.atoms)

    @property
    def constraints(self) -> tuple[Expr, ...]:
        """What makes the atoms of each function met so far a function: exactly one value."""
        return tuple([self._build.count("exactly", 1, family) for family in self._terms.families])

    def ground(self, formula: Expr) -> Expr:
        """The propositional formula that says the same."""
        self._kept.append(formula)
        self._free.update(_free_variables(formula))
        result = self._evaluate(self._code(formula), {})
        if not isinstance(result, Expr):
            raise KnowledgeError(f"a formula is wanted, but {formula} is a term")
        for node in formulas(result):
            if isinstance(node, Undefined):
                raise KnowledgeError(f"{node.label}. Leave such cases out with a guard: forall ... where ...")
        return self._build.flatten(result)

    # -- evaluation -------------------------------------------------------------------------------------------------

    def _evaluate(self, code: _Code, scope: Scope) -> Any:
        stack = [self._run(code, scope)]
        answer: Any = None
        while stack:
            try:
                code, scope = stack[-1].send(answer)
            except StopIteration as stop:
                stack.pop()
                answer = stop.value
            else:
                stack.append(self._run(code, scope))
                answer = None
        return answer

    def _code(self, node: Expr) -> _Code:
        # A name that is a constant here may be a variable in another formula that shares the node.
        key = (id(node), self._free[id(node)])
        if key not in self._codes:
            self._codes[key] = _Code(node, key[1])
        return self._codes[key]

    def _steps(self, code: _Code) -> list[tuple[Expr, _Code | list[int]]]:
        """The subformula in the order of evaluation, cut off where fewer variables are mentioned and at binders."""
        steps: list[tuple[Expr, _Code | list[int]]] = []
        place: dict[int, int] = {}
        stack = [(code.root, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in place:
                continue
            apart = node is not code.root and node.children and self._free[id(node)] != self._free[id(code.root)]
            if apart or isinstance(node, Quantifier | Let):
                steps.append((node, self._code(node)))
            elif ready or not node.children:
                steps.append((node, [place[id(c)] for c in node.children]))
            else:
                stack.append((node, True))
                stack.extend([(c, False) for c in reversed(node.children)])
                continue
            place[id(node)] = len(place)
        return steps

    def _run(self, code: _Code, scope: Scope) -> _Run:
        if isinstance(code.root, Quantifier):
            return (yield from self._run_quantifier(code, code.root, scope))
        if isinstance(code.root, Let):
            return (yield from self._run_let(code.root, scope))
        if code.steps is None:
            code.steps = self._steps(code)
        values: list[Any] = []
        for node, below in code.steps:
            if isinstance(below, _Code):
                values.append((yield from self._once(below, scope)))
            elif isinstance(node, Name):
                values.append(scope[node.name] if node.name in scope else self._named(node.name))
            else:
                values.append(self._apply(node, [values[i] for i in below]))
        return values[-1]

    def _once(self, code: _Code, scope: Scope) -> _Run:
        """The value of a subformula, from the last time its variables had these values if there was one."""
        key = tuple([scope.get(name) for name in code.free])
        if key not in code.results:
            code.results[key] = yield code, {name: scope[name] for name in code.free if name in scope}
        return code.results[key]

    def _run_quantifier(self, code: _Code, node: Quantifier, scope: Scope) -> _Run:
        build = self._build
        body, guard = self._code(node.body), self._code(node.guard) if node.guard is not None else None
        # Instances differ in every variable, so a result is met again only if the body does not mention them all.
        again = not set(node.names) <= set(body.free)
        cases: list[Expr] = []
        universal = node.kind == "forall"
        for inner in self._instances(node, {n: scope[n] for n in code.free if n in scope}):
            condition = build.true if guard is None else (yield guard, inner)
            if condition is build.false:
                continue
            case = (yield from self._once(body, inner)) if again else (yield body, inner)
            for value in (condition, case):
                if not isinstance(value, Expr):
                    raise KnowledgeError(f"a formula is wanted, but {body.root} is a term")
            cases.append(build.implies(condition, case) if universal else build.join(And, (condition, case)))
        if node.count is not None:
            return build.count(node.kind, node.count, cases)
        return build.join(And if universal else Or, cases)

    def _run_let(self, node: Let, scope: Scope) -> _Run:
        inner = dict(scope)
        for name, value in zip(node.names, node.values, strict=True):
            inner[name] = yield self._code(value), inner
        return (yield self._code(node.body), inner)

    def _instances(self, node: Quantifier, scope: Scope) -> Iterator[Scope]:
        scopes: Iterator[Scope] = iter([scope])
        for group in node.groups:
            scopes = self._extended(scopes, group)
        return scopes

    def _extended(self, scopes: Iterator[Scope], group: Group) -> Iterator[Scope]:
        if group.sample is not None:
            raise KnowledgeError(
                f"{', '.join(group.names)} range over a random sample, which has no propositional form; "
                f"leave 'sample {group.sample}' out to range over all objects"
            )
        for scope in scopes:
            objects = self._objects(group, scope)
            for values in product(objects, repeat=len(group.names)):
                yield {**scope, **dict(zip(group.names, values, strict=True))}

    def _objects(self, group: Group, scope: Scope) -> tuple[Value, ...]:
        if group.sort is not None:
            return self._universe.objects(group.sort)
        assert group.domain is not None  # a group has one or the other
        if isinstance(group.domain, Name) and group.domain.name not in scope:
            return self._universe.rows(group.domain.name)
        objects = self._evaluate(self._code(group.domain), scope)
        if not isinstance(objects, tuple):
            raise BindingError(f"{', '.join(group.names)} cannot range over {group.domain}: it is no sequence")
        return objects

    # -- one node ---------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Value:
        signature = self._signature
        constant = signature.constants.get(name)
        if constant is None and name not in signature.value_sorts:
            known = [*signature.constants, *signature.value_sorts]
            raise KnowledgeError(f"unknown name {name!r}; {did_you_mean(name, known, 'declare it as a constant')}")
        if constant is not None and not self._universe.contains(constant.sort, name):
            raise BindingError(f"constant {name} is not among the objects given for {constant.sort.name}; add it there")
        return name

    def _apply(self, node: Expr, args: list[Any]) -> Any:
        match node:
            case Number():
                return node.value
            case Call():
                return self._terms.call(node, args)
            case Arith():
                return self._terms.arithmetic(node, args)
            case Compare():
                return self._terms.compare(node, args)
            case Field():
                if not isinstance(args[0], Row):
                    raise BindingError(f"{node}: only data rows have fields")
                return args[0].get(node.name)
            case Index():
                return _element(node, args[0], args[1])
        for child, value in zip(node.children, args, strict=True):
            if not isinstance(value, Expr):
                raise KnowledgeError(f"a formula is wanted, but {child} is a term")
        return self._build.rebuild(node, args)


def _element(node: Index, base: Any, place: Any) -> Any:
    if not isinstance(base, tuple):
        raise BindingError(f"{node}: only sequences have elements")
    if isinstance(place, Table) or not isinstance(place, int):
        raise BindingError(f"{node}: an index must be a known integer")
    if not 0 <= place < len(base):
        return Undefined(f"{node}: there is no element {place} among {len(base)}, counted from 0")
    return base[place]


def _free_variables(root: Expr) -> dict[int, frozenset[str]]:
    """The variables of enclosing binders that each node mentions. Names that nothing binds are constants."""
    nodes = list(postorder(root))
    bound = {name for n in nodes if isinstance(n, Quantifier | Let) for name in n.names}
    none: frozenset[str] = frozenset()
    free: dict[int, frozenset[str]] = {}
    for node in nodes:
        if isinstance(node, Name):
            free[id(node)] = frozenset((node.name,)) if node.name in bound else none
        elif isinstance(node, Quantifier | Let):
            free[id(node)] = _free_of_binder(node, free)
        else:
            below = {free[id(c)] for c in node.children}
            free[id(node)] = next(iter(below)) if len(below) == 1 else none.union(*below)
    return free


def _free_of_binder(node: Quantifier | Let, free: dict[int, frozenset[str]]) -> frozenset[str]:
    """Later groups and values see the earlier variables."""
    found: set[str] = set()
    seen: set[str] = set()
    inside = node.children[-1:]
    if isinstance(node, Let):
        for name, value in zip(node.names, node.values, strict=True):
            found |= free[id(value)] - seen
            seen.add(name)
    else:
        domains = iter(node.children)
        for names, sort, _ in node.label[2]:
            if sort is None:
                found |= free[id(next(domains))] - seen
            seen.update(names)
        inside = node.children[-2:] if node.guard is not None else inside
    return frozenset(found.union(*[free[id(c)] - seen for c in inside]))
