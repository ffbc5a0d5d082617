"""From a formula over tests of variables to a problem.

Conjuncts that say that a term equals what is given become outputs of their own: the problem computes the term, and what
is given is observed. All the rest is one more output, whether it holds. Where all variables are Boolean, the problem is
the formula itself, which circuits are compiled from; elsewhere it is factors.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from doxa.logic import And, Call, Count, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic.syntax._simplify import formulas
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON
from doxa.pose._variables import NUMBERS, UNDEFINED, Auxiliary, Computed, GivenNumber, Term, Variable, Variables, strict
from doxa.problem import Factor, Problem
from doxa.problem import Variable as ProblemVariable

__all__ = ["Output", "PosedProblem", "build"]


@dataclass(frozen=True)
class Output:
    """What an output stands for: its values, and the given variable that it is observed as; None for "it holds"."""

    values: tuple[Any, ...]
    given: Variable | None = None


@dataclass(frozen=True, eq=False)
class PosedProblem:
    """A problem and what its variables stand for; no problem where nothing is uncertain, and ``certain`` says it all.

    It has no world variables where the given ones decide everything.
    """

    problem: Problem | None
    certain: Any
    world: tuple[Variable, ...] = ()
    given: tuple[Variable, ...] = ()
    outputs: tuple[Output, ...] = ()

    @cached_property
    def described(self) -> tuple[Any, Any, tuple[tuple[str, str] | None, ...]]:
        """The values of each world variable, those of each output, and the field that each output is observed from."""
        world, outputs = [tuple(v.values) for v in self.world], [output.values for output in self.outputs]
        return tuple(world), tuple(outputs), tuple([_field(output.given) for output in self.outputs])


def _field(given: Variable | None) -> tuple[str, str] | None:
    """The field that a given variable holds, if it is just that."""
    known = None if given is None else given.key[1]
    if known is None or known.op != "cell" or known.args[0].path:
        return None
    return known.args[0].row.rows, known.args[0].field


def build(formula: Expr, variables: Variables) -> PosedProblem:
    """The problem of a formula, whose atoms are tests of the variables."""
    if isinstance(formula, Truth):
        return PosedProblem(None, formula.value)
    equations: list[tuple[Term, int]] = []
    rest: list[Expr] = []
    for part in formula.children if type(formula) is And else (formula,):
        test = variables.tests.get(part)
        equation = None if test is None else variables.equations.get(test.variable)
        if equation is None:
            rest.append(part)
        else:
            equations.append(equation)
    whole = rest[0] if len(rest) == 1 else And(*rest) if rest else None
    if not equations and whole is not None and (found := _boolean(whole, variables)) is not None:
        return found
    targets: list[tuple[Term, Output]] = []
    for term, given in equations:
        known = variables.all[given]
        assert isinstance(known, Variable)
        targets.append((term, Output(tuple(known.values[:-1]), known)))
    if whole is not None:
        holds = _lowered(whole, variables)
        if not isinstance(holds, Term):
            if not targets or holds is not True:
                return PosedProblem(None, holds)
        else:
            values = (False, True, UNDEFINED) if UNDEFINED in holds.values else (False, True)
            targets.append((holds, Output(values)))
    return _factored(targets, variables)


def _boolean(formula: Expr, variables: Variables) -> PosedProblem | None:
    """The problem that is the formula itself; None unless all its variables have two values and nobody decides them."""
    atoms = [node for node in formulas(formula) if type(node) is Call]
    own: dict[int, tuple[Expr, Variable]] = {}
    for atom in atoms:
        test = variables.tests[atom]
        variable = variables.all[test.variable] if test.variable >= 0 else None
        if not isinstance(variable, Variable) or test.values != (False, True) or len(variable.values) != 2:
            return None
        own[test.variable] = (atom, variable)
    world = [pair for pair in own.values() if pair[1].kind == "world"]
    given = [pair for pair in own.values() if pair[1].kind == "given"]
    if not world:
        return None
    problem = Problem.from_formula(
        formula,
        [[atom] for atom, _ in world],
        given=[[atom] for atom, _ in given],
        names=_distinct([*[v.name for _, v in world], "holds", *[v.name for _, v in given]]),
    )
    kept = tuple([v for _, v in world]), tuple([v for _, v in given])
    return PosedProblem(problem, None, *kept, (Output((False, True)),))


def _factored(targets: Sequence[tuple[Term, Output]], variables: Variables) -> PosedProblem:
    """The problem of the values of terms, with the variables that they depend on and no others."""
    needed: set[int] = set()
    stack = [term.variable for term, _ in targets]
    while stack:
        number = stack.pop()
        variable = variables.all[number]
        if number not in needed:
            needed.add(number)
            stack += variable.inputs if isinstance(variable, Auxiliary) else ()
    role: dict[int, ProblemVariable] = {}
    own: dict[str, list[Any]] = {"world": [], "given": [], "auxiliary": []}
    factors = []
    for number in sorted(needed):
        variable = variables.all[number]
        kind = "auxiliary" if isinstance(variable, Auxiliary) else variable.kind
        role[number] = getattr(ProblemVariable, kind)(len(own[kind]))
        own[kind].append(variable)
        if isinstance(variable, Auxiliary) and not isinstance(variable.table, Computed):
            inputs = [role[i] for i in variable.inputs]
            if isinstance(variable.table, str):
                factors.append(Factor.compare(inputs[0], inputs[1], role[number], variable.table))
            else:
                factors.append(Factor.lookup(inputs, role[number], variable.table))
    codes_of = []
    for i, (term, output) in enumerate(targets):
        place = {(type(value), value): at for at, value in enumerate(output.values)}
        codes = torch.tensor([place[type(value), value] for value in term.values])
        codes_of.append((term.variable, codes))
        factors.append(Factor.lookup([role[term.variable]], ProblemVariable.output(i), codes))
    world, given = own["world"], own["given"]
    outputs = [output for _, output in targets]
    said = ["holds" if output.given is None else output.given.name for output in outputs]
    names = _distinct([*([v.name for v in world] or ["nothing"]), *said, *[v.name for v in given]])
    sizes = [[len(v.values) for v in some] for some in (world, outputs, given)]
    if any(isinstance(aux.table, Computed) for aux in own["auxiliary"]):
        program = Program(sorted(needed), role, variables, codes_of)
        problem = Problem(tuple(sizes[0]), tuple(sizes[1]), program, given=tuple(sizes[2]), names=tuple(names))
    else:
        auxiliary = [aux.size for aux in own["auxiliary"]]
        problem = Problem.from_factors(
            factors, sizes[0] or [1], sizes[1], auxiliary=auxiliary, given=sizes[2], names=names
        )
    return PosedProblem(problem, None, tuple(world), tuple(given), tuple(outputs))


@dataclass(frozen=True, eq=False)
class Program:
    """Worlds to outputs, step by step; for terms that depend on too many joint values to be listed in tables.

    Each output has the variable that decides it, and its value for each value of that.
    """

    order: Sequence[int]
    role: Mapping[int, ProblemVariable]
    variables: Variables
    outputs: Sequence[tuple[int, Tensor]]

    def __call__(self, worlds: Tensor, given: Tensor | None = None) -> Tensor:
        at: dict[int, Tensor] = {}
        for number in self.order:
            variable = self.variables.all[number]
            if not isinstance(variable, Auxiliary):
                source = worlds if variable.kind == "world" else given
                assert source is not None
                at[number] = source[..., self.role[number].index]
                continue
            inputs = [at[i] for i in variable.inputs]
            if isinstance(variable.table, Computed):
                at[number] = self._computed(variable.table, at).long()
            elif isinstance(variable.table, str):
                at[number] = (inputs[0] == inputs[1] if variable.table == "=" else inputs[0] < inputs[1]).long()
            else:
                at[number] = variable.table.to(worlds.device)[tuple(torch.broadcast_tensors(*inputs))]  # type: ignore[no-untyped-call]
        found = [codes.to(worlds.device)[at[number]] for number, codes in self.outputs]
        return torch.stack(torch.broadcast_tensors(*found), -1)  # type: ignore[no-untyped-call]

    def _computed(self, value: Any, at: Mapping[int, Tensor]) -> Tensor:
        if isinstance(value, Computed):
            left, right = [self._computed(a, at) for a in value.args]
            found: Tensor = (ARITHMETIC.get(value.op) or COMPARISON[value.op])(left, right)
            return found
        if isinstance(value, Term):
            return torch.tensor(value.values, device=at[value.variable].device)[at[value.variable]]
        if isinstance(value, GivenNumber):
            return at[value.variable] - len(NUMBERS) // 2
        return torch.tensor(value)


def _distinct(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


# -- connectives as factors ------------------------------------------------------------------------------------------


def _lowered(formula: Expr, variables: Variables) -> Any:
    """The formula as a term; an undefined part matters only where the other parts do not decide."""
    value: dict[int, Any] = {}
    for node in formulas(formula):
        value[id(node)] = _node(node, [value[id(c)] for c in node.children], variables)
    return value[id(formula)]


def _node(node: Expr, args: list[Any], variables: Variables) -> Any:
    match node:
        case Call():
            term = variables.tests[node]
            return UNDEFINED if term.variable < 0 else term
        case Truth():
            return node.value
        case Not():
            return _not(args[0], variables)
        case And():
            return _and(args, variables)
        case Or():
            return _or(args, variables)
        case Implies():
            return _or([_not(args[0], variables), args[1]], variables)
        case Iff():
            return variables.apply("iff", strict(operator.eq), args)
        case Xor():
            return variables.apply("xor", strict(operator.ne), args)
    assert isinstance(node, Count)
    return _count(node.kind, node.count, args, variables)


def _not(value: Any, variables: Variables) -> Any:
    return variables.apply("not", _negation, [value])


def _and(values: Sequence[Any], variables: Variables) -> Any:
    # First what depends on one variable, which costs nothing, then the rest, one after the other.
    groups: dict[Any, Any] = {}
    for value in values:
        at = value.variable if isinstance(value, Term) else None
        before = groups.get(at, True)
        groups[at] = value if before is True else variables.apply("and", _conjunction, [before, value])
    result: Any = groups.pop(None, True)
    for value in groups.values():
        if result is False:
            break
        result = value if result is True else variables.apply("and", _conjunction, [result, value])
    return result


def _or(values: Sequence[Any], variables: Variables) -> Any:
    return _not(_and([_not(v, variables) for v in values], variables), variables)


_TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "exactly": operator.eq,
    "at most": operator.le,
    "at least": operator.ge,
}


def _count(kind: str, number: int, values: Sequence[Any], variables: Variables) -> Any:
    """How many are true, counted one after the other and no further than is needed."""
    cap, total = number + 1, 0
    for value in values:
        total = variables.apply(("add", cap), strict(lambda n, v: min(n + int(v), cap)), [total, value])
    return variables.apply((kind, number), strict(lambda n: _TESTS[kind](n, number)), [total])


def _conjunction(*values: Any) -> Any:
    """And, where an undefined part matters only if no part is false."""
    if any(v is False for v in values):
        return False
    return UNDEFINED if any(v is UNDEFINED for v in values) else True


def _negation(value: Any) -> Any:
    return value if value is UNDEFINED else not value
