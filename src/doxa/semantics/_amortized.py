"""Amortised semantics: the probability that an axiom holds, by a network that has learnt to infer it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from doxa.errors import BudgetError, ConfigError, DoxaWarning, users_line
from doxa.logic import Axiom, Interpretation
from doxa.pose import PosedAxiom, ProblemBatch
from doxa.problem import Problem
from doxa.problem._mixture import one_belief
from doxa.semantics._exact import Exact
from doxa.semantics._probabilistic import Probabilistic
from doxa.semantics._semantics import Compiled, Generator, Semantics

if TYPE_CHECKING:  # the engine is loaded when there is a problem to learn, not when a name is looked up
    from doxa import amortized


@dataclass(frozen=True)
class Amortized(Semantics):
    r"""A-NeSI (Chapter 6): the loss of an instance is :math:`-\log q(φ | P)`, where q is a network that learns.

    The inference model q sees what the networks believe, P, and predicts what follows from it, with no sum over worlds.
    It costs no data: beliefs are drawn from a prior, worlds from the beliefs, and the knowledge says what is true in
    them. It learns only in `Model.inference_step`, which ``doxa train`` calls for you and a loop of your own calls
    before each loss: the prior is told what is believed, and q makes ``steps`` updates, the very first time
    ``pretrain`` more. Everything else leaves q as it is. It is no better than what it has learnt: `Exact` is what it
    approximates, within `AmortizedReasoner.divergence`.

    Where an axiom is an equation with a field, ``… (term = p.field)``, q predicts the value of the term, else whether
    an instance holds. Other numbers of the data that the axiom mentions are part of what q sees.

    The inference models, their optimisers and priors live in ``Model.inference``: ``state_dict`` has them, and a run
    goes on to the bit. They are not among ``Model.parameters()``, which are what your own optimiser trains. Processes
    that train together keep them equal.

    Args:
        model: the kind of q: "mlp" (the dissertation's), "scan" for long sequences, "transformer".
        hidden: its width.
        layers: its hidden layers (not of "scan").
        pretrain: updates of q in its first step.
        steps: updates of q in each step.
        samples: beliefs in each update.
        learning_rate: of q, by Adam.
        prior: of beliefs: a "mixture" of sharp and flat ones, which needs no fitting; "fitted" to those that occur, by
            a Dirichlet distribution (the dissertation's); or a "replay" of those that occurred.
        quantifier, impossible, budget: see `Semantics`.

    >>> import doxa, torch
    >>> kb = doxa.parse("pred rain; pred wet; [soaked] rain -> wet")
    >>> model = doxa.Model(kb, rain=doxa.probs(torch.tensor(0.9)), wet=doxa.probs(torch.tensor(0.3)))
    >>> how = Amortized(hidden=32, pretrain=300, samples=200, learning_rate=1e-2, prior="replay")
    >>> model.inference_step(semantics=how)
    301
    >>> bool((model.truth(semantics=how)["soaked"] - 0.37).abs() < 0.1)       # what Exact() says
    True
    """

    model: Literal["mlp", "scan", "transformer"] = "mlp"
    hidden: int = 128
    layers: int = 2
    pretrain: int = 300
    steps: int = 1
    samples: int = 300
    learning_rate: float = 1e-3
    prior: Literal["mixture", "fitted", "replay"] = "mixture"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of(model=_MODELS, prior=tuple(_PRIORS))
        for name, least in [("hidden", 1), ("layers", 1), ("pretrain", 0), ("steps", 0), ("samples", 1)]:
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, expected a whole number of at least {least}")
        if not self.learning_rate > 0:
            raise ConfigError(f"learning_rate is {self.learning_rate}, expected a number above 0")

    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        return AmortizedCompiled(axioms, interpretation, self)

    def for_labels(self) -> Semantics:
        """What one network says of one fact needs no inference."""
        return Exact(impossible=self.impossible, budget=self.budget)

    def learner(self, problem: Problem, device: torch.device) -> Learner:
        """A new inference model for a problem, with its prior and optimiser."""
        if any(size > self.budget.join for size in problem.given):
            raise BudgetError(
                "join", "the data decide numbers without bounds, which an inference model cannot see; use Sampled()"
            )
        from doxa import amortized

        model = _made(self.model, problem, self.hidden, self.layers)
        prior: amortized.Prior = getattr(amortized, _PRIORS[self.prior])(problem.world)
        engine = amortized.AmortizedReasoner(problem, model, prior, impossible="inf")
        return Learner(engine.to(device), self.learning_rate)


def _made(name: str, problem: Problem, hidden: int, layers: int) -> amortized.InferenceModel:
    """The inference model of a name."""
    from doxa import amortized

    if name == "mlp":
        return amortized.FactorMLPs(problem, hidden=hidden, layers=layers, explain=False)
    if name == "scan":
        return amortized.ScanModel(problem, hidden=hidden, explain=False)
    return amortized.CausalTransformer(problem, width=hidden, layers=layers, explain=False)


_MODELS = ("mlp", "scan", "transformer")
_PRIORS = {"fitted": "FittedDirichlet", "mixture": "MixtureDirichlet", "replay": "Replay"}


class Learner:
    """An amortised engine and the optimiser of its inference model."""

    def __init__(self, engine: amortized.AmortizedReasoner, learning_rate: float) -> None:
        self.engine = engine
        self.optimizer = torch.optim.Adam(engine.model.parameters(), learning_rate, fused=True)
        self.updates = 0

    def state(self) -> dict[str, Any]:
        """Everything that changes."""
        return {"engine": self.engine.state_dict(), "optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.engine.load_state_dict(state["engine"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]


class AmortizedCompiled(Probabilistic):
    """Axioms ready for amortised reasoning."""

    how: Amortized
    learns = True

    def learn_from(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> int:
        """Updates of the inference model of one batch."""
        learner, how = self._learner(posed.axiom, batch), self.how
        learner.engine.observe(one_belief(batch.belief), given=batch.given)
        steps = how.steps + (0 if learner.updates else how.pretrain)
        learner.engine.update(steps, learner.optimizer, samples=how.samples, generator=generator)
        learner.updates += steps
        return steps

    def log_truths(self, posed: PosedAxiom, batch: ProblemBatch, generator: Generator) -> Tensor:
        trained = self.learners.known(self._kind(posed.axiom))
        if trained and self._name(posed.axiom, batch) not in trained:
            raise ConfigError(
                f"axiom {posed.axiom.name!r} poses a problem here that no inference model was trained for, for its "
                "rows have another shape; train on such data too, or use Exact() or Sampled()"
            )
        learner = self._learner(posed.axiom, batch)
        if not learner.updates:
            warnings.warn(
                f"the inference model of axiom {posed.axiom.name!r} has not learnt anything yet; call "
                "model.inference_step(...) with the data before the loss, or train with doxa train",
                DoxaWarning,
                stacklevel=users_line(),
            )
        from doxa.amortized.models._model import frozen

        with frozen(learner.engine.model):
            found = learner.engine.log_prob(one_belief(batch.belief), batch.observed, given=batch.given)
        return found.to(batch.belief.dtype)

    def _learner(self, axiom: Axiom, batch: ProblemBatch) -> Learner:
        name, device = self._name(axiom, batch), batch.belief.device
        if not self.learners.known(name) and torch._C._functorch.peek_interpreter_stack() is not None:
            raise ConfigError(
                f"the inference model of axiom {axiom.name!r} does not exist yet, and torch.func cannot make it; call "
                "model.inference_step(...) with the data first"
            )
        found: Learner = self.learners.find(name, lambda: self.how.learner(batch.problem, device))
        return found

    def _name(self, axiom: Axiom, batch: ProblemBatch) -> str:
        """A learner is known by its axiom, its kind and its problem."""
        return f"{self._kind(axiom)}{self.digest(batch)}"

    def _kind(self, axiom: Axiom) -> str:
        return f"{axiom.name}/{self.how.model} {self.how.hidden} {self.how.layers} {self.how.prior}/"

    def describe(self, posed: PosedAxiom, batch: ProblemBatch) -> str:
        updates = sum(self.learners.known(self._name(posed.axiom, batch)).values())
        return f"learnt by a model of kind {self.how.model}, so an approximation, after {updates:,} updates"
