"""Unfolding a formula: quantifiers become conjunctions and disjunctions over the objects that there are.

What terms and formulas become is said by `Formulas`: formulas over ground atoms (the propositional view), or variables
and factors of a problem (`doxa.pose`). The walk is the same, and it is here. A subformula is evaluated once for each
choice of the variables that it mentions. Evaluation runs on a stack of generators, so that nothing recurses on the
depth of a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple, Protocol, TypeGuard

from doxa.errors import KnowledgeError
from doxa.logic.syntax._binders import Aggregate, Binder, Group, Let, Quantifier, free_variables
from doxa.logic.syntax._define import Define, Definitions
from doxa.logic.syntax._node import Task, drive
from doxa.logic.syntax._simplify import Builder
from doxa.logic.syntax._tree import And, Arith, Call, Compare, Expr, Field, Implies, Index, Name, Number, Or, postorder
from doxa.logic.unfold._definitions import Definer

Scope = dict[str, Any]
"""The values of variables."""


class Case(NamedTuple):
    """One choice of the variables of a binder: the truth of its guard (None without one), the body, the variables."""

    guard: Any
    value: Any
    scope: Scope


class Formulas(Protocol):
    """What terms and formulas become while a formula is unfolded.

    Connectives and quantifiers become formulas over atoms, simplified while they are built; what atoms and terms are is
    for those who inherit from this to say.
    """

    _build: Builder
    definitions: Definitions
    skips: bool = False
    """Whether what cannot matter any more is passed over: the rest of a conjunction one part of which is false."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self._build = Builder()
        self.definitions = definitions or {}

    def objects(self, sort: str) -> Sequence[Any]:
        """What the variables of a sort range over."""

    def rows(self, name: str) -> Sequence[Any]:
        """The data rows of a name."""

    def members(self, group: Group, value: Any) -> Sequence[Any]:
        """What the variables of ``x in value`` range over."""

    def name(self, name: str) -> Any:
        """A constant, or a value of a finite sort."""

    def field(self, node: Field, row: Any) -> Any:
        """A field of a row."""

    def element(self, node: Index, base: Any, place: Any) -> Any:
        """An element of a sequence."""

    def call(self, node: Call, args: list[Any]) -> Any:
        """A predicate or function of arguments."""

    def arithmetic(self, node: Arith, args: list[Any]) -> Any:
        """``+ - * // mod``, or unary minus."""

    def compare(self, node: Compare, args: list[Any]) -> Any:
        """``= != < <= > >=``."""

    def arguments(self, node: Call, args: list[Any]) -> Iterable[tuple[Expr, Any]]:
        """Every choice of known arguments for what is defined, with its condition; undefined where one does not fit."""

    def choose(self, node: Call, cases: list[tuple[Expr, Any]]) -> Any:
        """The value of a defined function: that of the one case whose condition holds."""

    def undefined(self, reason: str) -> Any:
        """What stands for no value."""

    def aggregate(self, node: Aggregate, cases: list[Case]) -> Any:
        """A sum, extreme or the like of choices, each with its guard."""

    def truth(self, node: Expr, value: Any) -> Any:
        """A value where a formula stands, if it may."""

    def step(self) -> None:
        """Called before each instance of a quantifier: the place to stop what takes too long."""
        return

    def conjunction(self, truths: list[Expr]) -> Expr:
        """All of some formulas, in their final form."""
        return self._build.flatten(self._build.join(And, truths))


class Jump(NamedTuple):
    """If a step of an evaluation has this truth value, a later one has that, whatever the steps between."""

    here: Expr
    step: int
    there: Expr


class _Code:
    """A subformula made ready: the variables it mentions, the steps of its evaluation, and the results so far."""

    def __init__(self, root: Expr, free: frozenset[str]) -> None:
        self.root = root
        self.free = tuple(sorted(free))
        self.steps: list[tuple[Expr, _Code | list[int]]] | None = None
        """Nodes with the places of their children among the steps, or the code of a subformula of fewer variables."""
        self.jumps: dict[int, Jump] = {}
        self.waits: set[int] = set()
        """The steps that ask for something that is defined."""
        self.alone = False
        """Whether its value is there at once: it waits for no other code and for nothing that is defined."""
        self.results: dict[tuple[Any, ...], Any] = {}

    def after(self, at: int, results: list[Any]) -> int:
        """The step after this one, the result of which is there."""
        while (jump := self.jumps.get(at)) is not None:
            found = results[at]
            if found is not jump.here and (found.__class__ is not bool or found != jump.here.label):
                break
            at = jump.step
            results[at] = jump.there
        return at + 1


class Unfolder:
    """Evaluates formulas over the same values and ``outer`` variables; equal subformulas are evaluated once."""

    def __init__(self, values: Formulas, outer: Scope | None = None, definer: Definer | None = None) -> None:
        self.values = values
        self.definer = definer
        if definer is None and values.definitions:
            self.definer = Definer(values, values.definitions, self._evaluator)
        self._build = values._build
        self._outer = outer or {}
        self._free: dict[int, frozenset[str]] = {}
        self._redrawn: set[int] = set()
        self._codes: dict[tuple[int, frozenset[str]], _Code] = {}
        self._roots: list[Expr] = []  # keys are identities, so the trees must stay

    def formula(self, root: Expr) -> Any:
        """What a formula becomes."""
        return self.values.truth(root, self.value(root))

    def value(self, root: Expr) -> Any:
        """What a term or formula becomes."""
        self._roots.append(root)
        self._free.update(free_variables(root))
        for node in postorder(root):  # what draws anew is evaluated anew wherever it stands
            if getattr(node, "fresh", False) or any(id(c) in self._redrawn for c in node.children):
                self._redrawn.add(id(node))
        return drive(self._run(self._code(root), {}))

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
        own = self._free[id(code.root)]
        stack: list[tuple[Expr, Iterator[Expr], list[int]]] = [(code.root, iter(code.root.children), [])]
        while stack:
            node, children, below = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                steps.append((node, below))
                at = place[id(node)] = len(steps) - 1
                if stack:
                    stack[-1][2].append(at)
            elif id(child) in place and id(child) not in self._redrawn:
                below.append(place[id(child)])
            elif isinstance(child, Binder | Let) or (child.children and self._free[id(child)] != own):
                steps.append((child, self._code(child)))
                place[id(child)] = len(steps) - 1
                below.append(len(steps) - 1)
            else:
                stack.append((child, iter(child.children), []))
        return steps

    def _jumps(self, steps: list[tuple[Expr, _Code | list[int]]]) -> dict[int, Jump]:
        """From which steps others can be passed over."""
        absorbing: dict[type[Expr], tuple[Expr, Expr]] = {
            And: (self._build.false, self._build.false),
            Or: (self._build.true, self._build.true),
        }
        last = list(range(len(steps)))  # where each result is needed for the last time
        above: dict[int, Jump] = {}
        for at, (node, below) in enumerate(steps):
            if isinstance(below, list):
                for place, child in enumerate(below):
                    last[child] = at
                    if type(node) in absorbing:
                        here, there = absorbing[type(node)]
                        above.setdefault(child, Jump(here, at, there))
                    elif type(node) is Implies and place == 0:
                        above.setdefault(child, Jump(self._build.false, at, self._build.true))
        found: dict[int, Jump] = {}
        for at, jump in above.items():
            step, there, beyond = jump.step, jump.there, above.get(jump.step)
            while beyond is not None and beyond.here is there:
                step, there, beyond = beyond.step, beyond.there, above.get(beyond.step)
            if at + 1 < step and max(last[at + 1 : step]) <= step:
                found[at] = Jump(jump.here, step, there)
        return found

    def _run(self, code: _Code, scope: Scope) -> Task:
        if isinstance(code.root, Quantifier):
            return self._quantified(code.root, (yield from self._cases(code, code.root, scope)))
        if isinstance(code.root, Aggregate):
            return self.values.aggregate(code.root, (yield from self._cases(code, code.root, scope)))
        if isinstance(code.root, Let):
            inner = dict(scope)
            for name, value in zip(code.root.names, code.root.values, strict=True):
                inner[name] = yield self._run(self._code(value), inner)
            return (yield self._run(self._code(code.root.body), inner))
        results, at = self._begun(code, scope)
        return results[-1] if at == len(results) else (yield from self._ended(code, scope, results, at))

    def _begun(self, code: _Code, scope: Scope) -> tuple[list[Any], int]:
        """The results of the first steps, and the first step that has to wait for other work; of no binder."""
        if code.steps is None:
            self._prepare(code)
        assert code.steps is not None
        results: list[Any] = [None] * len(code.steps)
        return results, self._advanced(code, scope, results, 0)

    def _ended(self, code: _Code, scope: Scope, results: list[Any], at: int) -> Task:
        """The last result, from a step that has to wait on."""
        assert code.steps is not None
        while at < len(results):
            node, below = code.steps[at]
            if isinstance(below, _Code):
                results[at] = yield from self._once(below, scope)
            else:
                assert self.definer is not None and isinstance(node, Call)
                results[at] = yield from self.definer.call(node, [results[i] for i in below])
            at = self._advanced(code, scope, results, code.after(at, results))
        return results[-1]

    def _advanced(self, code: _Code, scope: Scope, results: list[Any], at: int) -> int:
        """The next step that has to wait, with the results of those before it."""
        steps, waits = code.steps or [], code.waits
        while at < len(steps):
            node, below = steps[at]
            if isinstance(below, list):
                if at in waits:
                    return at
                if node.__class__ is Name:
                    results[at] = self._named(node.label, scope)
                else:
                    results[at] = self._apply(node, [results[i] for i in below])
            else:
                key = tuple([scope.get(name) for name in below.free])
                if key not in below.results:
                    if not below.alone:
                        return at
                    below.results[key] = self._begun(below, scope)[0][-1]
                results[at] = below.results[key]
            at = code.after(at, results) if at in code.jumps else at + 1
        return at

    def _prepare(self, code: _Code) -> None:
        """Put the steps in order."""
        code.steps = self._steps(code)
        code.jumps = self._jumps(code.steps) if self.values.skips else {}
        code.waits = {at for at, (node, _) in enumerate(code.steps) if self._is_defined(node)}
        nested = any(isinstance(below, _Code) for _, below in code.steps)
        code.alone = not nested and not code.waits and id(code.root) not in self._redrawn

    def _is_defined(self, node: Expr) -> TypeGuard[Call]:
        return self.definer is not None and type(node) is Call and node.name in self.definer

    def _evaluator(self, clause: Define) -> Callable[[Expr, Scope], Task]:
        """Evaluates expressions of a clause, whose variables and results are its own."""
        inner = Unfolder(self.values, definer=self.definer)
        inner._roots.append(clause)
        inner._free = free_variables(clause)
        return lambda node, scope: inner._once(inner._code(node), scope)

    def _named(self, name: str, scope: Scope) -> Any:
        if name in scope:
            return scope[name]
        return self._outer[name] if name in self._outer else self.values.name(name)

    def _once(self, code: _Code, scope: Scope) -> Task:
        """The value of a subformula, from the last time its variables had these values if there was one."""
        inner = {name: scope[name] for name in code.free if name in scope}
        if id(code.root) in self._redrawn:
            return (yield self._run(code, inner))
        key = tuple([scope.get(name) for name in code.free])
        if key not in code.results:
            code.results[key] = yield self._run(code, inner)
        return code.results[key]

    def _cases(self, code: _Code, node: Binder, scope: Scope) -> Task:
        """The choices of the variables of a binder that its guard may let through."""
        values = self.values
        groups = node.groups
        body, guard = self._code(node.body), self._code(node.guard) if node.guard is not None else None
        # Instances differ in every variable, so a result is met again only if the body does not mention them all.
        again = not set(node.names) <= set(body.free)
        stepwise = not isinstance(body.root, Binder | Let)
        cases: list[Case] = []
        levels: list[Iterator[Scope]] = [iter(({n: scope[n] for n in code.free if n in scope},))]
        while levels:
            inner = next(levels[-1], None)
            if inner is None:
                levels.pop()
            elif len(levels) <= len(groups):
                group = groups[len(levels) - 1]
                members = yield from self._members(group, inner)
                levels.append(_extended(inner, group.names, members))
            else:
                values.step()
                condition = None
                if guard is not None:
                    condition = values.truth(guard.root, (yield self._run(guard, inner)))
                    if condition is self._build.false:
                        continue
                if again:
                    case = yield from self._once(body, inner)
                elif stepwise:
                    results, at = self._begun(body, inner)
                    case = results[-1] if at == len(results) else (yield self._ended(body, inner, results, at))
                else:
                    case = yield self._run(body, inner)
                cases.append(Case(condition, case, inner))
        return cases

    def _quantified(self, node: Quantifier, cases: list[Case]) -> Expr:
        """All, some or so many of the cases."""
        build, universal = self._build, node.kind == "forall"
        truths = [self.values.truth(node.body, value) for _, value, _ in cases]
        if node.guard is not None:
            both = build.implies if universal else lambda a, b: build.join(And, (a, b))
            truths = [both(guard, case) for (guard, _, _), case in zip(cases, truths, strict=True)]
        if node.count is not None:
            return build.count(node.kind, node.count, truths)
        return build.join(And if universal else Or, truths)

    def _members(self, group: Group, scope: Scope) -> Task:
        if group.sample is not None:
            raise KnowledgeError(
                f"{', '.join(group.names)} range over a random sample, so there is no one formula without variables; "
                f"leave 'sample {group.sample}' out to range over all objects, or pass the sample as the data"
            )
        if group.sort is not None:
            return self.values.objects(group.sort)
        domain = group.domain
        assert domain is not None  # a group has one or the other
        if isinstance(domain, Name) and domain.name not in scope and domain.name not in self._outer:
            return self.values.rows(domain.name)
        value = yield from self._once(self._code(domain), scope)
        return self.values.members(group, value)

    def _apply(self, node: Expr, args: list[Any]) -> Any:
        values = self.values
        match node:
            case Number():
                return node.value
            case Call():
                return values.call(node, args)
            case Arith():
                return values.arithmetic(node, args)
            case Compare():
                return values.compare(node, args)
            case Field():
                return values.field(node, args[0])
            case Index():
                return values.element(node, args[0], args[1])
        return self._build.rebuild(node, [values.truth(c, a) for c, a in zip(node.children, args, strict=True)])


def _extended(scope: Scope, names: tuple[str, ...], members: Sequence[Any]) -> Iterator[Scope]:
    for chosen in product(members, repeat=len(names)):
        yield {**scope, **dict(zip(names, chosen, strict=True))}
