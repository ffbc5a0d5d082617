"""From a formula over tests of variables to a problem, which instances that look alike share.

A conjunct that says that a term equals what is given becomes an output of its own, which is observed. All the rest is
one more output, whether it holds. Where all variables are Boolean, the problem is the formula itself; else factors.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from doxa.logic import And, Call, Count, Expr, Iff, Implies, Not, Or, Truth, Xor
from doxa.logic.syntax._simplify import formulas
from doxa.logic.syntax._symbols import ARITHMETIC, COMPARISON
from doxa.pose._data import CallData
from doxa.pose._references import Cell, Indexed, Instances, Known, Reference, Symbol
from doxa.pose._variables import NUMBERS, UNDEFINED, Auxiliary, Computed, GivenNumber, Term, Variable, Variables, strict
from doxa.problem import Factor, Problem
from doxa.problem import Variable as ProblemVariable


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
        fields: list[tuple[str, str] | None] = []
        for output in self.outputs:
            known = None if output.given is None else output.given.key[1]
            cell = known.args[0] if known is not None and known.op == "cell" else None
            fields.append(None if cell is None or cell.path else (cell.row.rows, cell.field))
        world, outputs = [tuple(v.values) for v in self.world], [output.values for output in self.outputs]
        return tuple(world), tuple(outputs), tuple(fields)


@dataclass(eq=False)
class Consulted:
    """A crisp symbol that was asked about values and numbers."""

    symbol: Symbol
    said: dict[tuple[Any, ...], Any]
    """What it said of each."""
    state: Any
    """What it says is the same while this is."""


@dataclass(eq=False)
class Template:
    """What instances that look alike share, noted while the first of them was unfolded.

    They have as many rows, sequences as long, and objects that are equal to each other in the same places.
    """

    references: list[Reference] = field(default_factory=list)
    """What the labels of objects refer to."""
    labels: list[int] = field(default_factory=list)
    """For each reference, the first one that is the same object."""
    lengths: dict[Cell, int] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of rows or objects, where all of them are ranged over."""
    tables: dict[str, Consulted] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    assumed: dict[Known, tuple[Any, ...]] = field(default_factory=dict)
    """The values that known numbers were taken to have."""
    posed: PosedProblem = field(init=False)

    def covers(self, data: CallData, instances: Instances) -> bool:
        """Are the known numbers of these instances, constants and tables those that the problem was made for?"""
        if any(data.constant(name) != value for name, value in self.constants.items()):
            return False
        for known, assumed in self.assumed.items():
            values, fine = data.known(known, instances, self.references)
            values = values.long() if values.dtype == torch.bool else values
            listed = torch.tensor([v for v in assumed if v is not UNDEFINED], dtype=values.dtype)
            if not (torch.isin(values, listed) | ~fine).all() or (not fine.all() and UNDEFINED not in assumed):
                return False
        for name, table in self.tables.items():
            now = data.state(name)
            if now is None or now != table.state:
                if data.tabulated(table.symbol, list(table.said)) != list(table.said.values()):
                    return False
                table.state = now
        return True

    def matches(self, data: CallData, instances: Instances) -> Tensor:
        """Which instances look like this: bool ``(instances,)``."""
        fits = torch.ones(instances.count, dtype=torch.bool)
        for (kind, name), count in self.counts.items():
            if count != (data.batch.row_set(name).size if kind == "rows" else data.batch.objects(name).size):
                return ~fits
        for cell, length in self.lengths.items():
            found = data.length(cell, instances)
            fits &= False if found is None else found == length
        if not fits.all():  # a reference may lead nowhere in instances of another shape
            where = fits.nonzero().squeeze(1)
            return fits.index_put((where,), self.matches(data, instances.select(where))) if len(where) else fits
        here: dict[int, Tensor | int] = {}
        for i, j, same in self._comparisons:
            for k in (j, i):  # in the order in which they were first met, which numbers objects alike in all calls
                if k not in here:
                    here[k] = data.identity(self.references[k], instances)
            fits &= (here[i] == here[j]) == same
        return fits

    @cached_property
    def _comparisons(self) -> list[tuple[int, int, bool]]:
        """Pairs of references that may mean other objects in other instances, and whether they are the same here."""
        found = []
        firsts: dict[str, list[int]] = {}  # the different objects so far, by sort
        fixed = [isinstance(at, Indexed) and not at.name for _, at in self.references]  # the same in every instance
        for i, (sort, _) in enumerate(self.references):
            others = firsts.setdefault(sort, [])
            found += [(i, j, self.labels[i] == j) for j in others if not (fixed[i] and fixed[j])]
            if self.labels[i] == i:
                others.append(i)
        return found


def build(formula: Expr, variables: Variables) -> PosedProblem:
    """The problem of a formula, whose atoms are tests of the variables."""
    if isinstance(formula, Truth):
        return PosedProblem(None, formula.value)
    targets: list[tuple[Term, Output]] = []
    rest: list[Expr] = []
    for part in formula.children if type(formula) is And else (formula,):
        test = variables.tests.get(part)
        equation = None if test is None else variables.equations.get(test.variable)
        if equation is None:
            rest.append(part)
            continue
        known = variables.all[equation[1]]
        assert isinstance(known, Variable)
        targets.append((equation[0], Output(tuple(known.values[:-1]), known)))
    whole = rest[0] if len(rest) == 1 else And(*rest) if rest else None
    if not targets and whole is not None and (found := _boolean(whole, variables)) is not None:
        return found
    if whole is not None:
        holds = lowered(whole, variables)
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


def lowered(formula: Expr, variables: Variables) -> Any:
    """The formula as a term; an undefined part matters only where the other parts do not decide."""
    value: dict[int, Any] = {}
    found: Any = None
    for node in formulas(formula):
        args = [value[id(c)] for c in node.children]
        match node:
            case Call():
                term = variables.tests[node]
                found = UNDEFINED if term.variable < 0 else term
            case Truth():
                found = node.value
            case Not():
                found = _not(args[0], variables)
            case And():
                found = _and(args, variables)
            case Or():
                found = _or(args, variables)
            case Implies():
                found = _or([_not(args[0], variables), args[1]], variables)
            case Iff() | Xor():
                test = operator.eq if isinstance(node, Iff) else operator.ne
                found = variables.apply(test, strict(test), args)
            case Count():
                found = _count(node.kind, node.count, args, variables)
        value[id(node)] = found
    return found


def _not(value: Any, variables: Variables) -> Any:
    return variables.apply("not", strict(operator.not_), [value])


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


_TESTS = {"exactly": operator.eq, "at most": operator.le, "at least": operator.ge}


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
