"""Problems from knowledge, with outputs as fine as one likes: the whole, its axioms, its clauses, or its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from doxa import logic
from doxa.amortized.pruners._derived import SatPruner
from doxa.errors import ConfigError, KnowledgeError
from doxa.exact.circuits._encoding import Booleans
from doxa.logic import And, Call, Compare, Expr, Iff, KnowledgeBase, Name, Not, Or, Quantifier, ground, to_cnf
from doxa.logic.syntax._simplify import evaluate
from doxa.logic.syntax._symbols import Signature
from doxa.logic.unfold._domains import Universe
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Budget, Problem
from doxa.problem._functions import Atoms, OverAtoms

By = Literal["whole", "axiom", "clause", "object"]
Ground = Callable[..., Propositional]
"""``logic.ground`` within a budget."""


class KnowledgeProblem(OverAtoms):
    """A problem whose world is the atoms of knowledge and whose outputs say what of it holds.

    A single output "it holds" tells an inference model little, and for much knowledge it is nearly always 0. The
    dissertation's remedy ("Output space factorization") is to predict more: for instance the truth of every clause of a
    conjunctive normal form, or for which objects a universally quantified formula holds.

    Args:
        knowledge: a knowledge base, ground knowledge, or a formula.
        by: one output for the ``"whole"``, for each ``"axiom"`` (and fact), for each ``"clause"``, or for each
            ``"object"``: the value of the first variable of each outermost ``forall``.
        values: instead of ``by``, output variables with values: for each a list of formulas, one per value, of which
            exactly one holds in every world.
        domains: the objects of open sorts and the data rows of a knowledge base, as in ``logic.ground``.
        budget: what grounding and the clauses of the pruner may cost.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> knowledge = KnowledgeProblem((a >> b) & (b >> c), by="clause")
    >>> knowledge.problem
    Problem(world=(2, 2, 2), output=(2, 2))
    >>> knowledge.problem(torch.tensor([1, 0, 0]))                       # a without b: the first clause fails
    tensor([0, 1])
    >>> belief = knowledge.belief({a: torch.tensor(0.9), b: torch.tensor(0.5), c: torch.tensor(0.1)})
    """

    def __init__(
        self,
        knowledge: KnowledgeBase | Propositional | Expr,
        *,
        by: By = "whole",
        values: Sequence[Sequence[Expr]] | None = None,
        domains: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.budget = budget or Budget()
        grounded: Ground = partial(ground, entries=self.budget.symbols, seconds=self.budget.seconds)
        theory, outputs = _outputs(knowledge, by, domains, grounded)
        if values is not None:
            about = knowledge if isinstance(knowledge, KnowledgeBase) else None
            parts = [[grounded(formula, about, domains=domains) for formula in row] for row in values]
            theory = _together(theory, *(part for row in parts for part in row))
            self.outputs = [[part.formula for part in row] for row in parts]
        else:
            self.outputs = [[Not(formula), formula] for formula in outputs]
        if not theory.atoms or not self.outputs:
            raise KnowledgeError("the knowledge has no atoms or says nothing, so there is nothing to infer")
        self.theory = theory
        atoms = Atoms.of(theory)
        self.variables, self.value_of = atoms.variables, atoms.places
        self.problem = Problem(atoms.sizes, tuple(len(row) for row in self.outputs), self._evaluate)

    def _evaluate(self, worlds: Tensor) -> Tensor:
        values, batch, columns = worlds.unbind(-1), worlds.shape[:-1], []
        truth = {atom: values[i] == value for atom, (i, value) in self.value_of.items()}
        for row in self.outputs:
            found = [torch.as_tensor(evaluate(formula, truth), device=worlds.device) for formula in row]
            held = torch.stack([holds.expand(batch) for holds in found], -1).long()
            times = held.sum(-1)
            if (times != 1).any():
                came = f"the formulas for the values of an output hold {times.min()} to {times.max()} times"
                world = tuple(worlds[times != 1][0].tolist())
                raise KnowledgeError(f"in world {world} {came}, expected exactly one of them in every world")
            columns.append(held.argmax(-1))
        return torch.stack(columns, -1)

    def pruner(self) -> SatPruner:
        """The complete pruner of this problem, by a SAT solver.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> KnowledgeProblem(a & b).pruner()(torch.tensor([1, 1]))              # it holds, and a is true: so b is
        tensor([False,  True])
        """
        booleans = Booleans(self.problem.world)
        # An atom named here stands for "output j has value v"; equivalences tie it to its formula.
        named = [[Call(f"_output_{j}_{v}") for v in range(len(row))] for j, row in enumerate(self.outputs)]
        ties = [Iff(*pair) for row in zip(named, self.outputs, strict=True) for pair in zip(*row, strict=True)]
        atoms = (*self.value_of, *(name for row in named for name in row))
        cnf = to_cnf(And(*ties), method="tseitin", atoms=atoms, entries=self.budget.symbols)
        numbers, clauses = booleans.translated(cnf, self.value_of)
        literal = dict(zip(atoms, numbers, strict=False))
        outputs = [[literal[name] for name in row] for row in named]
        sizes = self.problem.output + self.problem.world
        return SatPruner(sizes, outputs + booleans.literals, booleans.clauses + clauses, self.budget)


def _outputs(
    knowledge: KnowledgeBase | Propositional | Expr, by: By, domains: Mapping[str, Any] | None, ground: Ground
) -> tuple[Propositional, list[Expr]]:
    """The ground knowledge, and the formula of each output."""
    if by == "object":
        parts = list(_instances(knowledge, domains or {}, ground))
        return _together(*parts), [part.formula for part in parts]
    theory = knowledge if isinstance(knowledge, Propositional) else ground(knowledge, domains=domains)
    if by == "whole":
        return theory, [theory.formula]
    if by == "axiom":
        return theory, [*theory.axioms.values(), *theory.facts]
    if by == "clause":
        cnf = to_cnf(theory.formula, method="plain")
        atoms = [atom for atom in cnf.atoms if atom is not None]
        return theory, [Or(*[atoms[x - 1] if x > 0 else Not(atoms[-x - 1]) for x in clause]) for clause in cnf.clauses]
    raise ConfigError(f"by is {by!r}, expected 'whole', 'axiom', 'clause' or 'object'")


def _together(*parts: Propositional) -> Propositional:
    """Several ground formulas over the atoms of all of them."""
    return Propositional(
        {str(i): part.formula for i, part in enumerate(parts)},
        (),
        tuple(dict.fromkeys(c for part in parts for c in part.constraints)),
        tuple(dict.fromkeys(atom for part in parts for atom in part.atoms)),
    )


def _instances(
    knowledge: KnowledgeBase | Propositional | Expr, domains: Mapping[str, Any], ground: Ground
) -> Iterator[Propositional]:
    """Ground formulas; a universal one as many times as its first variable has values."""
    if isinstance(knowledge, Propositional):
        raise ConfigError("ground knowledge has no objects left; give the knowledge base, or use by='clause'")
    signature: Signature | None = None
    if isinstance(knowledge, KnowledgeBase):
        signature = deepcopy(knowledge.signature)
        formulas = [axiom.formula for axiom in knowledge.axioms]
        formulas += [fact.atom if fact.label else Not(fact.atom) for fact in knowledge.facts]
    else:
        formulas = list(knowledge.children) if isinstance(knowledge, And) else [knowledge]
    for formula in formulas:
        if not isinstance(formula, Quantifier) or formula.kind != "forall":
            yield ground(formula, signature, domains=domains)
            continue
        group = formula.groups[0]
        if group.sort is None:  # data rows: one at a time
            rows = group.domain.name if isinstance(group.domain, Name) else ""
            if rows not in domains or len(group.names) > 1:
                raise ConfigError(f"by='object' needs one variable over data rows first, got {formula}")
            yield from (ground(formula, signature, domains={**domains, rows: [row]}) for row in domains[rows])
            continue
        terms = _objects(group.sort, formula, signature, domains)
        if group.sort in domains:  # a number of objects stands for their names
            domains = {**domains, group.sort: [term.name for term in terms if isinstance(term, Name)]}
        for thing in terms:
            here = Compare("=", Name(group.names[0]), thing)
            guard = here if formula.guard is None else And(here, formula.guard)
            yield ground(Quantifier("forall", formula.groups, formula.body, guard=guard), signature, domains=domains)


def _objects(name: str, formula: Expr, signature: Signature | None, domains: Mapping[str, Any]) -> list[Expr]:
    """The objects of a sort as terms; those that only ``domains`` names become constants."""
    known = signature or Signature()
    if signature is None:
        known.declare_used(formula)
    sort, objects = known.sorts[name], Universe(known, domains).objects(name)
    if sort.values is not None:
        return [Name(v, hint=sort) if isinstance(v, str) else logic.Number(v) for v in objects]
    constants = [logic.Constant(str(own), sort) for own in objects]
    for constant in constants if signature is not None else ():
        if constant.name not in known.constants:
            known.add(constant)
    return [constant.term for constant in constants]
