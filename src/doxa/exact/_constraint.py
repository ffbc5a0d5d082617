"""Knowledge as a problem, and as a layer: the world is its atoms, the output is whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from doxa._html import Html, ShownModule, box, line
from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact.engines._compilation import Compilation
from doxa.exact.engines._search import log_of
from doxa.logic import CNF, Expr, KnowledgeBase, ground
from doxa.logic.syntax._display import formula
from doxa.logic.unfold._propositional import Propositional
from doxa.problem import Belief, Impossible, Problem
from doxa.problem._budget import Budget, Meter
from doxa.problem._functions import Atoms, OverAtoms
from doxa.problem._mixture import AnyBelief, require_belief


class Constraint(ShownModule, OverAtoms, Compilation):
    """Exact inference for knowledge: does it hold, in which worlds, and how probable is that?

    The knowledge is grounded, and its atoms are taken to be independent. An atom is a world variable with two values;
    a function into a finite sort, f(t), is one variable with as many values as the sort. An atom that several parts of
    the knowledge mention is one variable: it is counted once, its probabilities are never multiplied blindly. The
    output is 1 where the knowledge holds and 0 where it does not.

    Args:
        knowledge: a knowledge base, ground knowledge, a formula, or clauses without auxiliary variables.
        domains: the objects of open sorts and the data rows of a knowledge base or formula, as in ``logic.ground``.
        given: atoms whose truth comes with each question; a function with one such atom is given as a whole.
        budget: what grounding and compiling may cost, and the numbers to hold at a time.
        native: use the kernel in C: True, False, or None for where there is one.
        cache: keep the circuit on disk, and look for it there.
        impossible: what ``loss`` does when the knowledge cannot hold: "raise", "inf" or "finite".

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> rule = Constraint((a >> b) & (b >> c))
    >>> belief = rule.belief({a: torch.tensor(0.9), b: torch.tensor(0.5), c: torch.tensor(0.1)})
    >>> rule.probability(belief)                            # abc, ¬abc, ¬a¬bc, ¬a¬b¬c: .045 + .005 + .005 + .045
    tensor(0.1000)
    >>> rule.models                                         # in how many worlds the knowledge holds
    4
    """

    def __init__(
        self,
        knowledge: KnowledgeBase | Propositional | Expr | CNF,
        *,
        domains: Mapping[str, Any] | None = None,
        given: Iterable[Expr] = (),
        budget: Budget | None = None,
        native: bool | None = None,
        cache: bool = True,
        impossible: Impossible = "raise",
    ) -> None:
        limits = budget or Budget()
        theory = _grounded(knowledge, domains, limits)
        problem, variables = _posed(theory, set(given))
        super().__init__(problem, budget=limits, native=native, cache=cache, impossible=impossible)
        self.variables = variables
        self.value_of = {x: place for x, place in problem.formula.places.items() if place[0] < len(variables)}  # type: ignore[union-attr]

    @property
    def formula(self) -> Expr:
        """The ground knowledge."""
        assert self.problem.formula is not None
        return self.problem.formula.formula

    @property
    def models(self) -> int:
        """In how many worlds the knowledge holds, over all values of given atoms."""
        return self.circuit.total()

    def _repr_html_(self) -> str:
        size = f"{len(self.variables):,} variables, holds in {self.models:,} worlds; {self.circuit}"
        drawing = self.circuit.drawing(self._names())
        return box(Html(f"<p>{formula(self.formula)}</p>"), line(size, kind="quiet"), drawing)

    def _names(self) -> dict[int, str]:
        """The names of the circuit's variables: an atom is one, a function with several values has one for each."""
        found: dict[int, str] = {}
        first = 1
        for i, size in enumerate(self.problem.world):
            own = {value: str(atom) for atom, (variable, value) in self.value_of.items() if variable == i}
            if size == 2:
                found[first] = own.get(1, "") or f"!({own[0]})"
            elif size > 2:
                found |= {first + value: name for value, name in own.items()}
            first += 0 if size == 1 else 1 if size == 2 else size
        return found

    def world(self, atoms: Iterable[Expr]) -> Tensor:
        """The world in which exactly these atoms are true, int64 ``(W,)``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a | b).world([b])
        tensor([0, 1])
        """
        world = torch.zeros(len(self.variables), dtype=torch.int64)
        for atom in atoms:
            if atom not in self.value_of:
                raise KnowledgeError(f"the knowledge has no atom {atom}; it has {', '.join(map(str, self.value_of))}")
            variable, value = self.value_of[atom]
            world[variable] = value
        return world

    def probability(self, belief: AnyBelief, *, given: Tensor | None = None) -> Tensor:
        """p(knowledge holds | P), ``(*batch,)``.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> Constraint(a ^ b).probability(Belief.uniform((2, 2)))
        tensor(0.5000)
        """
        return self.log_prob(belief, truth(belief, 1), given=given).exp()

    def semantic_loss(self, belief: AnyBelief, *, given: Tensor | None = None) -> Tensor:
        """-log p(knowledge holds | P), ``(*batch,)``, exactly (Xu et al. 2018; dissertation, appendix "Constrained
        structured output prediction").

        >>> from doxa.logic import propositions
        >>> (a,) = propositions("a")
        >>> Constraint(a & a).semantic_loss(Belief.from_bernoulli(probs=torch.tensor([0.5])))
        tensor(0.6931)
        """
        return self.loss(belief, truth(belief, 1), given=given)


def truth(belief: AnyBelief, value: int) -> Tensor:
    """The output "holds" (1) or "does not hold" (0), for all rows."""
    require_belief(belief)
    return torch.full((1,), value, device=belief.device)


def _grounded(
    knowledge: KnowledgeBase | Propositional | Expr | CNF, domains: Mapping[str, Any] | None, budget: Budget
) -> Propositional:
    if isinstance(knowledge, CNF):
        if knowledge.auxiliary:
            extra = f"{len(knowledge.auxiliary)} auxiliary variables, which have no probability"
            raise KnowledgeError(f"the clauses have {extra}; give the formula that they encode")
        atoms = tuple(atom for atom in knowledge.atoms if atom is not None)
        knowledge = Propositional({"clauses": knowledge.formula()}, (), (), atoms)
    came: object = knowledge
    if not isinstance(came, KnowledgeBase | Propositional | Expr):
        wanted = "a KnowledgeBase, a formula, ground knowledge or clauses (CNF)"
        read = "; say doxa.parse(text), or doxa.logic.read_dimacs(text) for clauses" if isinstance(came, str) else ""
        raise KnowledgeError(f"the knowledge is a {type(came).__name__}, expected {wanted}{read}")
    if isinstance(knowledge, Propositional) and domains is not None:
        raise KnowledgeError("domains are the objects of a KnowledgeBase; ground knowledge has all it speaks of")
    if isinstance(knowledge, Propositional):
        theory = knowledge
    else:
        meter = Meter(budget, "grounding the knowledge")
        theory = ground(knowledge, domains=domains, entries=budget.symbols, seconds=budget.seconds)
        meter.check_clock()
    if not theory.atoms:
        raise ProblemError("the knowledge has no atoms, so there is nothing to believe about")
    return theory


def _posed(theory: Propositional, given: set[Expr]) -> tuple[Problem, Sequence[tuple[Expr, ...]]]:
    """The problem whether the knowledge holds, and the atoms of each world variable in order of appearance."""
    unknown = given.difference(theory.atoms)
    if unknown:
        came: list[object] = sorted(unknown, key=str)
        texts = [atom for atom in came if isinstance(atom, str)]
        remedy = f"; an atom is a formula: say doxa.logic.Call({texts[0]!r})" if texts else ""
        raise KnowledgeError(
            f"the knowledge has no atom {', '.join(map(str, came))}, which was said to be given{remedy}"
        )
    atoms = Atoms.of(theory)
    both = sorted(zip(*atoms, strict=True), key=lambda pair: not given.isdisjoint(pair[0]))  # the world first
    atoms = Atoms([variable for variable, _ in both], tuple(size for _, size in both))
    count = sum(given.isdisjoint(variable) for variable in atoms.variables)
    return Problem._over_atoms(theory.formula, atoms, count), atoms.variables[:count]


class Certified(NamedTuple):
    """Worlds ``(*batch, W)`` or ``(count, *batch, W)``, whether the formula holds, log p(w | knowledge, P), and whether
    it is proven that the world is what was asked for: bool, like ``valid``.

    The most probable world of a `Belief` is always proven to be that. Of a `Mixture`, where it is not, it is the best
    that was found. Samples are exact.
    """

    worlds: Tensor
    valid: Tensor
    log_probs: Tensor
    optimal: Tensor


class ConstrainedLayer(nn.Module):
    """The belief, projected onto the knowledge.

    Of all distributions q over worlds under which the knowledge holds with probability t, the one nearest to the
    belief, min KL(q ‖ p), is Jeffrey's rule:

        q(w) = t · p(w | knowledge, P) + (1 - t) · p(w | ¬knowledge, P)

    With t = 1 it is conditioning: no world that breaks the knowledge is left (dissertation, appendix "Constrained
    structured output prediction"). The belief may be a `Mixture`: then p is that of the mixture.

    Args:
        constraint: the knowledge.
        target: t, the probability with which the knowledge is to hold.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> layer = ConstrainedLayer(Constraint(a ^ b))
    >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.9, 0.8]))
    >>> layer.decode(belief).worlds, layer(belief).probs[:, 1]
    (tensor([1, 0]), tensor([0.6923, 0.3077]))
    """

    def __init__(self, constraint: Constraint, *, target: float = 1.0) -> None:
        super().__init__()
        if not 0.0 < target <= 1.0:
            raise ConfigError(f"target is {target}, expected a probability above 0 and at most 1")
        came: object = constraint
        if not isinstance(came, Constraint):
            kind = type(came).__name__
            raise ConfigError(f"constraint is a {kind}, expected a Constraint: say ConstrainedLayer(Constraint(...))")
        self.constraint = constraint
        self.target = target

    def forward(self, belief: AnyBelief, *, given: Tensor | None = None) -> Belief:
        """q(w_i) for each world variable, as a belief: a differentiable layer that knows."""
        held = self.constraint.posterior(belief, truth(belief, 1), given=given)
        if self.target == 1.0:
            return held
        broken = self.constraint.posterior(belief, truth(belief, 0), given=given)
        mixed = self.target * held.probs + (1 - self.target) * broken.probs
        return Belief(log_of(mixed), held.sizes, validate=False)

    def log_prob(self, belief: AnyBelief, worlds: Tensor, *, given: Tensor | None = None) -> Tensor:
        """log q(w), ``(*sample, *batch)``, -inf for worlds that q excludes: its negative is a loss for labelled worlds.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> layer = ConstrainedLayer(Constraint(a | b))
        >>> layer.log_prob(Belief.uniform((2, 2)), torch.tensor([[1, 1], [0, 0]])).exp()
        tensor([0.3333, 0.0000])
        """
        require_belief(belief)
        holds, prior = self._valid(worlds, given), belief.log_prob(worlds)
        held = math.log(self.target) - self.constraint.log_prob(belief, truth(belief, 1), given=given)
        if self.target == 1.0:
            return (prior + held).masked_fill(~holds, -math.inf)
        broken = math.log1p(-self.target) - self.constraint.log_prob(belief, truth(belief, 0), given=given)
        return prior + torch.where(holds, held, broken)

    def decode(self, belief: AnyBelief, *, given: Tensor | None = None, width: int = 4) -> Certified:
        """The most probable world in which the knowledge holds, with a certificate.

        For a mixture it is looked for among the ``width`` best worlds of each component, fewer where that proves it.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a | b)).decode(Belief.from_bernoulli(probs=torch.tensor([0.1, 0.2])))
        Certified(worlds=tensor([0, 1]), valid=tensor(True), log_probs=tensor(-0.4418), optimal=tensor(True))
        """
        best = self.constraint.explain(belief, truth(belief, 1), given=given, width=width)
        assert best.optimal is not None
        worlds, scores = best.worlds.squeeze(-2), best.scores.squeeze(-1)
        self.constraint._require_possible(scores, truth(belief, 1), given)
        return Certified(worlds, self._valid(worlds, given), scores, best.optimal.squeeze(-1))

    def sample(
        self,
        belief: AnyBelief,
        count: int = 1,
        *,
        given: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Certified:
        """Worlds drawn from p(w | knowledge, P): all of them valid.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a & ~b)).sample(Belief.uniform((2, 2)), 2).worlds
        tensor([[1, 0],
                [1, 0]])
        """
        worlds = self.constraint.sample(belief, truth(belief, 1), count, given=given, generator=generator)
        total = self.constraint.log_prob(belief, truth(belief, 1), given=given)
        valid = self._valid(worlds, given)
        return Certified(worlds, valid, belief.log_prob(worlds) - total, torch.ones_like(valid))

    def entropy(self, belief: AnyBelief, *, given: Tensor | None = None) -> Tensor:
        """H(w | knowledge, P) in nats, ``(*batch,)``: how undecided the belief is among the valid worlds.

        Made small, it is neurosymbolic entropy regularisation (Ahmed et al. 2022, "Neuro-symbolic entropy
        regularization"): a network should be sure of one of the worlds that the knowledge allows.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> ConstrainedLayer(Constraint(a | b)).entropy(Belief.uniform((2, 2))).exp()
        tensor(3.)
        """
        return self.constraint.entropy(belief, truth(belief, 1), given=given)

    def entropy_bounds(self, belief: AnyBelief, *, given: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Two numbers ``(*batch,)`` between which H(w | knowledge, P) lies, for a mixture too; equal for a `Belief`.

        >>> from doxa.logic import propositions
        >>> from doxa.problem import Mixture
        >>> a, b = propositions("a b")
        >>> belief = Mixture.from_bernoulli(logits=torch.zeros(2, 2), weights=torch.zeros(2))
        >>> [round(x.exp().item(), 4) for x in ConstrainedLayer(Constraint(a | b)).entropy_bounds(belief)]
        [3.0, 3.0]
        """
        return self.constraint.entropy_bounds(belief, truth(belief, 1), given=given)

    def _valid(self, worlds: Tensor, given: Tensor | None) -> Tensor:
        return self.constraint.problem(worlds, given).squeeze(-1) == 1
