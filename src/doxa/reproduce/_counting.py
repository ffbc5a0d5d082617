"""Weighted model counting by amortised inference: how near a learnt probability comes to the exact one (Chapter 7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from doxa import amortized
from doxa._numerics import log1mexp
from doxa.amortized import AmortizedReasoner, InferenceModel, MixtureDirichlet
from doxa.data import random_ksat
from doxa.exact import Constraint
from doxa.logic import CNF, propositions
from doxa.problem import Belief, Problem, cnf
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train

ModelName = Literal["graph", "scan", "transformer", "mlps"]
Clauses = list[list[int]]
MAKE: dict[ModelName, Callable[[Problem, int], InferenceModel]] = {
    "graph": lambda problem, width: amortized.FactorGraphModel(problem, channels=width, explain=False),
    "scan": lambda problem, width: amortized.ScanModel(problem, hidden=width, explain=False),
    "transformer": lambda problem, width: amortized.CausalTransformer(problem, width=width, explain=False),
    "mlps": lambda problem, width: amortized.FactorMLPs(problem, hidden=8 * width, explain=False),
}


@dataclass(frozen=True)
class CountingConfig(Settings):
    """Learn how probable it is that generated knowledge holds, from beliefs and worlds that are drawn."""

    knowledge: Literal["3-sat", "hierarchy"] = "3-sat"  # random clauses, or labels that imply the labels above them
    model: ModelName = "graph"  # the inference model
    variables: int = 12  # atoms, or labels
    clauses: int = 18  # of three literals each; a hierarchy has one implication for each label but the first
    steps: int = 1000  # batches of beliefs to learn from
    samples: int = 100  # beliefs in a batch
    width: int = 32  # of the inference model
    learning_rate: float = 3e-3  # of Adam at its highest
    warmup: int = 100  # so many steps in which it rises along a line
    decay: int = 1000  # the step at which it has fallen to 0, along half a cosine
    beliefs: int = 500  # to measure on, drawn as those to learn from
    save_every: int = 500  # steps between two checkpoints; the last one counts

    def training(self, given: Given) -> Training:
        """A seed is also that of the knowledge, so each is another formula."""
        random = torch.Generator().manual_seed(given.seed)
        clauses = generated(self, random)
        problem = cnf(clauses, self.variables)
        model = MAKE[self.model](problem, self.width)
        engine = AmortizedReasoner(problem, model, MixtureDirichlet(problem.world))
        tests = engine.prior.sample(self.beliefs, generator=random)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate, fused=True)

        def step(i: int) -> Tensor:
            loss = engine.inference_loss(self.samples, generator=random)
            return descend(loss, optimizer, rate=self.rate(self.learning_rate, i))

        state = {"model": model, "optimizer": optimizer, "noise": random}
        return Training(step, state, lambda run: measure(engine, clauses, tests))


def generated(config: CountingConfig, generator: torch.Generator) -> Clauses:
    """Clauses, numbered as in DIMACS files: satisfiable 3-SAT, or a random tree of labels, each below an earlier."""
    if config.knowledge == "3-sat":
        return [list(clause) for clause in random_ksat(config.variables, config.clauses, generator=generator).clauses]
    above = [int(torch.randint(1, label, (), generator=generator)) for label in range(2, config.variables + 1)]
    return [[-label, parent] for label, parent in enumerate(above, 2)]


def as_independent(clauses: Clauses, belief: Belief) -> Tensor:
    """log of ∏_k p(clause k holds), ``(*batch,)``: what one has without learning, as if clauses shared no atoms.

    >>> as_independent([[1, 2], [-1]], Belief.uniform((2, 2))).exp()                     # 3/4 · 1/2; the truth is 1/4
    tensor(0.3750)
    """
    total = belief.log_probs.new_zeros(belief.batch_shape)
    for clause in clauses:
        fails = torch.stack([belief.log_probs[..., abs(x) - 1, int(x < 0)] for x in clause], -1).sum(-1)
        total = total + log1mexp(-fails.clamp(max=-1e-12))
    return total


def measure(engine: AmortizedReasoner, clauses: Clauses, beliefs: Belief) -> dict[str, float]:
    """How far from exact inference on beliefs: ``divergence`` is KL(p ‖ q) of whether the knowledge holds, in nats;
    ``error`` is |q - p|; ``gradient`` is the cosine of the angle between the derivatives of log q and of log p by the
    logits of a belief, which is what perception would learn from. ``independent …``: of the product of the clauses.
    """
    logits = beliefs.log_probs.detach().double().clamp(min=-20).requires_grad_()
    belief = Belief.from_logits(logits, beliefs.sizes)
    holds = torch.ones(1, dtype=torch.int64)

    def looked_at(log_prob: Tensor) -> tuple[Tensor, Tensor]:
        (slope,) = torch.autograd.grad(log_prob.sum(), logits, retain_graph=True)
        return log_prob.detach(), slope.flatten(1)

    atoms = propositions(" ".join(f"x{i}" for i in range(len(engine.problem.world))))
    circuit = Constraint(CNF.from_clauses(clauses, atoms))
    exact, wanted = looked_at(circuit.log_prob(belief, holds))
    learnt = engine.model.log_prob(belief, holds.expand(*belief.batch_shape, 1)).double()
    found = {}
    for name, log_prob in (("", learnt), ("independent ", as_independent(clauses, belief))):
        log_q, slope = looked_at(log_prob)
        p, q = exact.exp(), log_q.exp().clamp(1e-30, 1 - 1e-12)
        no = (1 - p) * ((1 - p).clamp(min=1e-300).log() - (1 - q).log())
        kl = torch.where(p > 0, p * (exact.clamp(min=-700) - q.log()), 0.0) + no
        found[f"{name}divergence"] = float(kl.mean())
        found[f"{name}error"] = float((p - q).abs().mean())
        found[f"{name}gradient"] = float(cosine_similarity(slope, wanted).mean())
    return found


COUNTING = Experiment(
    "counting",
    "Weighted model counting of generated knowledge, learnt from drawn worlds",
    tuple(
        Entry(f"{knowledge}/{model}", CountingConfig(knowledge, model))
        for knowledge in ("3-sat", "hierarchy")
        for model in MAKE
    ),
    train,
    ("divergence", "error", "gradient", "independent divergence", "independent error", "independent gradient"),
)
"""Whether 12 atoms satisfy 18 random clauses, or obey a tree of labels: learnt by each inference model."""
