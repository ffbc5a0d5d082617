"""Knowledge as a problem: the world is its atoms, the output is whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from doxa._numerics import log1mexp
from doxa.errors import KnowledgeError, ProblemError
from doxa.exact.circuits._compiler import Budget
from doxa.exact.circuits._encoding import Atoms, Encoding
from doxa.exact.circuits._layers import Layers, make_layers
from doxa.exact.circuits._semirings import FLOOR, Reduce, log_sum, restore
from doxa.exact.engines._compilation import choose_kernel, compiled, run
from doxa.exact.engines._reasoner import ExactReasoner, Impossible, is_traced
from doxa.logic import CNF, Count, Expr, KnowledgeBase, Not, Propositional, evaluate, ground, to_cnf
from doxa.problem import Belief, Problem


class Constraint(ExactReasoner):
    """Exact inference for knowledge: does it hold, in which worlds, and how probable is that?

    The knowledge is grounded, and its atoms are taken to be independent. An atom is a world variable with two values;
    a function into a finite sort, f(t), is one variable with as many values as the sort. An atom that several parts of
    the knowledge mention is one variable: it is counted once, its probabilities are never multiplied blindly. The
    output is 1 where the knowledge holds and 0 where it does not.

    Args:
        knowledge: a knowledge base, ground knowledge, a formula, or clauses without auxiliary variables.
        domains: the objects of open sorts and the data rows of a knowledge base or formula, as in ``logic.ground``.
        budget: what compiling may cost.
        native: use the kernel in C: True, False, or None for where there is one.
        cache: keep the circuit on disk, and look for it there.
        impossible: what ``loss`` does when the knowledge cannot hold: "raise", "inf" or "finite".
        max_entries: memory bound: batches that need more numbers at a time are computed in parts.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> rule = Constraint((a >> b) & (b >> c))
    >>> belief = rule.belief({a: torch.tensor(0.9), b: torch.tensor(0.5), c: torch.tensor(0.1)})
    >>> rule.probability(belief)                            # abc, ¬abc, ¬a¬bc, ¬a¬b¬c: .045 + .005 + .005 + .045
    tensor(0.1000)
    >>> rule.models                                         # in how many worlds the knowledge holds
    4
    """

    sources: Tensor
    always: Tensor

    def __init__(
        self,
        knowledge: KnowledgeBase | Propositional | Expr | CNF,
        *,
        domains: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        native: bool | None = None,
        cache: bool = True,
        impossible: Impossible = "raise",
        max_entries: int = 1 << 26,
    ) -> None:
        theory = _grounded(knowledge, domains)
        self.formula = theory.formula
        variables, sizes, self._values = _layout(theory)
        problem = Problem(
            sizes,
            (2,),
            partial(_holds, formula=theory.formula, values=self._values),
            names=(*_names(variables, sizes), "holds"),
        )
        encoding = _encode(theory.formula, sizes, self._values)
        layers = make_layers(compiled(encoding, budget, "doxa", cache))
        super().__init__(problem, impossible=impossible, max_entries=max_entries, entries=layers.entries)
        self.variables = variables
        self.layers = layers
        self.kernel = choose_kernel(native)
        self._options = budget, cache
        self._denied: tuple[Layers, Encoding] | None = None
        self.models = layers.circuit.total()
        self.register_buffer("sources", encoding.sources, persistent=False)
        self.register_buffer("always", torch.tensor(encoding.always, dtype=torch.int64), persistent=False)

    def belief(self, probs: Mapping[Expr, Tensor]) -> Belief:
        """A belief from the probability of each atom, by atom; the values of a function must sum to 1.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).belief({a: torch.tensor([0.5, 0.1]), b: torch.tensor([0.5, 0.2])})
        Belief(batch=(2,), sizes=(2, 2), dtype=torch.float32)
        """
        missing = [atom for atom in self._values if atom not in probs]
        unknown = [atom for atom in probs if atom not in self._values]
        if missing or unknown:
            raise KnowledgeError(
                f"the belief lacks {', '.join(map(str, missing[:5])) or 'nothing'} and has "
                f"{', '.join(map(str, unknown[:5])) or 'nothing'} that the knowledge does not mention; give one "
                f"probability for each of its {len(self._values)} atoms"
            )
        columns = []
        for atoms, size in zip(self.variables, self.problem.world, strict=True):
            parts = [probs[atom] for atom in atoms]
            columns.append(torch.stack(parts if len(parts) == size else [1 - parts[0], parts[0]], -1))
        return Belief.from_probs(columns)

    def world(self, atoms: Iterable[Expr]) -> Tensor:
        """The world in which exactly these atoms are true, int64 ``(W,)``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).world([b])
        tensor([0, 1])
        """
        world = torch.zeros(len(self.variables), dtype=torch.int64)
        for atom in atoms:
            if atom not in self._values:
                raise KnowledgeError(f"the knowledge has no atom {atom}; it has {', '.join(map(str, self._values))}")
            variable, value = self._values[atom]
            world[variable] = value
        return world

    def true_atoms(self, world: Tensor) -> tuple[Expr, ...]:
        """The atoms that are true in a world ``(W,)``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).true_atoms(torch.tensor([0, 1]))
        (<Call b>,)
        """
        values = world.tolist()
        return tuple(atom for atom, (variable, value) in self._values.items() if values[variable] == value)

    def probability(self, belief: Belief) -> Tensor:
        """p(knowledge holds | P), ``(*batch,)``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a ^ b).probability(Belief.uniform((2, 2)))
        tensor(0.5000)
        """
        return self.log_prob(belief, self._output(belief, 1)).exp()

    def semantic_loss(self, belief: Belief) -> Tensor:
        """-log p(knowledge holds | P), ``(*batch,)``, exactly (Xu et al. 2018; dissertation, appendix "Constrained
        structured output prediction").

        >>> from doxa.logic import propositions
        >>> (a,) = propositions("a")
        >>> Constraint(a & a).semantic_loss(Belief.from_bernoulli(probs=torch.tensor([0.5])))
        tensor(0.6931)
        """
        return self.loss(belief, self._output(belief, 1))

    def _output(self, belief: Belief, value: int) -> Tensor:
        return torch.full((1,), value, device=belief.log_probs.device)

    def _holding(self, world: Tensor, reduce: Reduce) -> Tensor:
        flat = torch.cat([world.flatten(1), world.new_zeros(len(world), 1)], 1).T
        root = run(self.layers, flat.index_select(0, self.sources), reduce, self.kernel)
        return root + flat.index_select(0, self.always).sum(0) if len(self.always) else root

    def _failing(self, world: Tensor, reduce: Reduce, holding: Tensor | None) -> Tensor:
        if reduce is log_sum and holding is not None:
            total = restore(log_sum(world.clamp(min=FLOOR).movedim(-1, 0))).sum(-1)
            gap = (total.clamp(min=FLOOR) - holding.clamp(min=FLOOR)).clamp(min=torch.finfo(world.dtype).eps)
            rest = total + torch.where(gap > -FLOOR / 1e6, 0.0, log1mexp(gap.clamp(max=-FLOOR / 1e6)))
            return torch.full_like(rest, FLOOR) if self.models == self.problem.num_worlds else rest
        if self._denied is None:  # only now is the negation needed as a circuit of its own
            budget, cache = self._options
            encoding = _encode(Not(self.formula), self.problem.world, self._values)
            self._denied = make_layers(compiled(encoding, budget, "doxa", cache)), encoding
        layers, encoding = self._denied
        flat = torch.cat([world.flatten(1), world.new_zeros(len(world), 1)], 1).T
        root = run(layers, flat.index_select(0, encoding.sources.to(flat.device)), reduce, self.kernel)
        return root + flat.index_select(0, self.always).sum(0) if len(self.always) else root

    def _log_weight(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        holding = self._holding(world, reduce)
        failing = self._failing(world, reduce, holding)
        both = torch.stack([failing, holding]).clamp(min=FLOOR) + output.squeeze(1).T.clamp(min=FLOOR)
        return restore(reduce(both))

    def _log_prob(self, world: Tensor, output: Tensor, reduce: Reduce) -> Tensor:
        if not is_traced(output) and bool((output == 1).all()):
            return self._holding(world, reduce)
        return super()._log_prob(world, output, reduce)


def _grounded(
    knowledge: KnowledgeBase | Propositional | Expr | CNF, domains: Mapping[str, Any] | None
) -> Propositional:
    if isinstance(knowledge, CNF):
        if knowledge.auxiliary:
            raise KnowledgeError(
                f"the clauses have {len(knowledge.auxiliary)} auxiliary variables, which have no probability; give the "
                "formula that they encode"
            )
        knowledge = Propositional(
            {"clauses": knowledge.formula()}, (), (), tuple(a for a in knowledge.atoms if a is not None)
        )
    if isinstance(knowledge, Propositional):
        if domains is not None:
            raise KnowledgeError("domains are the objects of a KnowledgeBase; ground knowledge has all it speaks of")
        theory = knowledge
    else:
        theory = ground(knowledge, domains=domains)
    if not theory.atoms:
        raise ProblemError("the knowledge has no atoms, so there is nothing to believe about")
    return theory


def _layout(theory: Propositional) -> tuple[list[tuple[Expr, ...]], tuple[int, ...], dict[Expr, tuple[int, int]]]:
    """The atoms of each world variable in order of appearance, their numbers of values, each atom's variable and value.

    The atoms of a variable are the values of a function, or one atom alone, which has the values false and true.
    """
    family = {atom: c.children for c in theory.constraints if isinstance(c, Count) for atom in c.children}
    variables = list(dict.fromkeys(family.get(atom, (atom,)) for atom in theory.atoms))
    sizes = tuple(len(atoms) if atoms[0] in family else 2 for atoms in variables)
    values = {
        atom: (i, value if atom in family else 1)
        for i, atoms in enumerate(variables)
        for value, atom in enumerate(atoms)
    }
    return variables, sizes, values


def _names(variables: Sequence[tuple[Expr, ...]], sizes: Sequence[int]) -> list[str]:
    named = zip(variables, sizes, strict=True)
    return [str(atoms[0]).rsplit(" = ", 1)[0] if len(atoms) == size else str(atoms[0]) for atoms, size in named]


def _holds(worlds: Tensor, formula: Expr, values: Mapping[Expr, tuple[int, int]]) -> Tensor:
    """Classical truth, world by world: the independent check of what the circuit says."""
    flat = worlds.reshape(-1, worlds.shape[-1]).cpu().numpy()
    holds = np.asarray(evaluate(formula, {atom: flat[:, i] == value for atom, (i, value) in values.items()}))
    return torch.from_numpy(np.broadcast_to(holds, len(flat)).copy()).reshape(*worlds.shape[:-1], 1).to(worlds)


def _encode(formula: Expr, sizes: Sequence[int], values: Mapping[Expr, tuple[int, int]]) -> Encoding:
    """The formula as clauses over the Booleans of the variables; auxiliary ones are determined, so they weigh 1."""
    atoms = Atoms(sizes)
    cnf = to_cnf(formula, method="tseitin", atoms=tuple(values))
    number: list[int | None] = [None]
    extra = atoms.count
    for atom in cnf.atoms:
        if atom is None:
            extra += 1
            number.append(extra)
        else:
            number.append(atoms.literal(*values[atom]))
    clauses = list(atoms.clauses)
    for clause in cnf.clauses:
        new, satisfied = [], False
        for literal in clause:
            mine = number[abs(literal)]
            if mine is None:  # always true
                satisfied |= literal > 0
            else:
                new.append(mine if literal > 0 else -mine)
        if not satisfied:
            clauses.append(new)
    places = {i: i * max(sizes) for i in range(len(sizes))}
    return atoms.encoding(clauses, extra, places, len(sizes) * max(sizes))
