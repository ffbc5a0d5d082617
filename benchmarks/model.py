"""What the one face costs: ``Model.loss`` over calling each engine directly, networks included.

Both sides read the same rows, run the same network once and return the same number, which is checked first. Then the
same 30 labels as knowledge of a ``Model`` and as a ``Constraint``, and how often a second exact loss goes from one room
of the package to another.
"""

from __future__ import annotations

import random
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent

import doxa
from doxa._numerics import safe_log
from doxa.amortized import AmortizedReasoner, FactorMLPs, MixtureDirichlet
from doxa.exact import Constraint, ExactPlan, plan
from doxa.fuzzy import FuzzyPlan, logic
from doxa.logic import parse
from doxa.pose import ProblemBatch, pose
from doxa.problem import Belief
from doxa.stochastic import LeaveOneOut, Tape
from harness import Row, compare, main

GOAL = 1.1
KNOWLEDGE = """
    sort Image
    sort Digit = 0..9
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""
BATCH = 64
LABELS, AXIOMS = 30, 46
PACKAGE = Path(doxa.__file__).parent


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class Direct:
    """Each engine as its own room offers it."""

    def __init__(self, model: doxa.Model, pairs: dict[str, Tensor]) -> None:
        self.pairs, self.interpretation = pairs, model.interpretation
        self.axiom = model.kb["sum"]
        self.fuzzy = FuzzyPlan(self.axiom, model.interpretation, "product", keep=("p",))
        self.godel = logic("godel").conj
        self.plan: ExactPlan | None = None
        self.worlds: Tensor | None = None
        self.engine: AmortizedReasoner | None = None

    def batch(self) -> ProblemBatch:
        (posed,) = pose([self.axiom], self.interpretation, {"pairs": self.pairs})
        (batch,) = posed.batches
        return batch

    def exactly(self) -> Tensor:
        batch = self.batch()
        if self.plan is None:
            self.plan = plan(batch.problem, impossible="inf")
        return -self.plan.reasoner.log_prob(batch.belief, batch.observed).mean()

    def fuzzily(self) -> Tensor:
        return (1 - self.fuzzy(pairs=self.pairs)).mean()

    def refined(self) -> Tensor:
        batch = self.batch()
        if self.worlds is None:
            self.worlds = batch.problem.worlds()
        probs = batch.belief.log_probs.exp()
        parts = torch.stack([probs[:, i].index_select(-1, self.worlds[:, i]) for i in range(self.worlds.shape[1])])
        holds = (batch.problem(self.worlds) == batch.observed.unsqueeze(1)).all(-1)
        truths = self.godel.reduce(parts, 0)
        best, worst = (truths.masked_fill(~which, 0.0).amax(-1) for which in (holds, ~holds))
        return -safe_log(best / (best + worst)).mean()

    def sampled(self) -> Tensor:
        batch = self.batch()
        tape = Tape(batch_dims=1)
        drawn = tape.sample(Independent(Categorical(logits=batch.belief.log_probs), 1), LeaveOneOut(8))
        tape.cost((batch.problem(drawn) != batch.observed).any(-1).to(batch.belief.log_probs.dtype))
        return tape.surrogate()

    def amortized(self) -> Tensor:
        batch = self.batch()
        if self.engine is None:
            model = FactorMLPs(batch.problem, hidden=128, layers=2, explain=False)
            self.engine = AmortizedReasoner(batch.problem, model, MixtureDirichlet(batch.problem.world))
            self.optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        self.engine.observe(batch.belief)
        self.engine.update(1, self.optimizer, samples=300)
        batch = self.batch()
        return self.engine.loss(batch.belief, batch.observed).mean()


def engines(model: doxa.Model, pairs: dict[str, Tensor]) -> list[Row]:
    """``Model.loss`` over the engine itself."""
    direct = Direct(model, pairs)
    found = []
    for semantics, peer in [
        (doxa.Exact(), direct.exactly),
        (doxa.Fuzzy("product"), direct.fuzzily),
        (doxa.Refined(), direct.refined),
        (doxa.Sampled(LeaveOneOut(8), log=False), direct.sampled),
        (doxa.Amortized(pretrain=0), direct.amortized),
    ]:
        name = type(semantics).__name__

        def ours(semantics: doxa.semantics.Semantics = semantics, learns: bool = name == "Amortized") -> Tensor:
            if learns:
                model.inference_step(semantics=semantics, pairs=pairs)
            return model.loss(semantics=semantics, pairs=pairs)

        values = []
        for function in (ours, peer):
            torch.manual_seed(0)
            values.append(function().item())
        if name != "Amortized":  # whose inference models start from different weights
            assert abs(values[0] - values[1]) < 1e-5, (name, values)
        note = f"{BATCH} sums of two digits, forward" + (", a step of inference before it" * (name == "Amortized"))
        found.append(compare(f"{name}: Model.loss / the engine", ours, peer, goal=GOAL, better="lower", note=note))
    return found


def labels() -> str:
    """Implications and exclusions between labels of one thing; those that lead upwards can all hold together."""
    draw = random.Random(0)
    names = [f"l{i}" for i in range(LABELS)]
    chosen = draw.sample([(a, b) for a in range(LABELS) for b in range(a + 1, LABELS)], AXIOMS)
    said = [
        f"forall x: Thing. has(x, {names[a]}) -> " + ("" if draw.random() < 0.6 else "!") + f"has(x, {names[b]})"
        for a, b in chosen
    ]
    return f"sort Thing; sort Label = {{{', '.join(names)}}}; pred has(Thing, Label)\n" + "\n".join(said)


def against_constraint() -> Row:
    """The probability that all axioms hold: by ``Model`` and by ``Constraint``."""
    kb = parse(labels(), warn=False)
    net, things = nn.Linear(16, LABELS), torch.randn(BATCH, 16)
    model = doxa.Model(kb, "exact", has=doxa.logits(net))
    constraint = Constraint(kb, domains={"Thing": ["thing"]})
    place = [int(str(variable).split("l")[-1].split(")")[0]) for (variable, *_) in constraint.variables]

    def ours() -> Tensor:
        loss = model.loss(combine="joint", Thing=things)
        loss.backward()
        return loss

    def theirs() -> Tensor:
        loss = constraint.semantic_loss(Belief.from_bernoulli(logits=net(things)[:, place])).mean()
        loss.backward()
        return loss

    assert abs(ours().item() - theirs().item()) < 1e-4, (ours(), theirs())
    note = f"{LABELS} labels, {AXIOMS} axioms, batch {BATCH}, forward and backward"
    return compare("Exact, joint: Model.loss / Constraint", ours, theirs, goal=1.3, better="lower", note=note)


def switches(model: doxa.Model, pairs: dict[str, Tensor]) -> Row:
    """How often one call after another is of another room: a folder of the package, or the files beside them."""
    model.loss(semantics=doxa.Exact(), pairs=pairs)
    files: list[Path] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            files.append(file.relative_to(PACKAGE))

    sys.setprofile(look)
    try:
        model.loss(semantics=doxa.Exact(), pairs=pairs)
    finally:
        sys.setprofile(None)
    rooms = [file.parts[0] if len(file.parts) > 1 else "" for file in files]
    between = sum(a != b for a, b in pairwise(rooms))
    modules = sum(a != b for a, b in pairwise(files))
    note = f"{len(files)} calls, {modules} switches between modules; a count, not a ratio"
    return Row("Exact: switches between rooms in a second loss", between, 30, "lower", note=note)


def rows() -> list[Row]:
    torch.manual_seed(0)
    model = doxa.Model(KNOWLEDGE, digit=doxa.logits(network()))
    digits = torch.randint(10, (2, BATCH))
    pairs = {"left": torch.rand(BATCH, 784), "right": torch.rand(BATCH, 784), "sum": digits.sum(0)}
    return [*engines(model, pairs), against_constraint(), switches(model, pairs)]


if __name__ == "__main__":
    main(__file__, rows)
