"""What the one face costs: ``Model.loss`` over calling each engine directly, networks included.

Both sides read the same rows, run the same network once and return the same number, which is checked first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent

import doxa
from doxa._numerics import safe_log
from doxa.amortized import AmortizedReasoner as Engine
from doxa.amortized import FactorMLPs, MixtureDirichlet
from doxa.fuzzy import FuzzyPlan, logic
from doxa.pose import KnowledgeReasoner, KnowledgeTerm
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


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


class Direct:
    """Each engine as its own room offers it."""

    def __init__(self, model: doxa.Model, pairs: dict[str, Tensor]) -> None:
        self.pairs, self.interpretation = pairs, model.interpretation
        axiom = model.kb["sum"]
        self.exact = KnowledgeReasoner(axiom, model.interpretation)
        self.rows = KnowledgeReasoner(axiom, model.interpretation, keep="p")
        self.fuzzy = FuzzyPlan(model.kb, model.interpretation, "product")
        self.godel = logic("godel").conj
        self.term = KnowledgeTerm(axiom, model.interpretation, axiom.formula.body.body.children[0], keep="p")
        self.worlds: Tensor | None = None
        self.engine: Engine | None = None

    def exactly(self) -> Tensor:
        return self.exact.loss(pairs=self.pairs) / BATCH

    def fuzzily(self) -> Tensor:
        return -self.fuzzy(pairs=self.pairs).sum()

    def refined(self) -> Tensor:
        ((problem, belief, _),) = self.rows.posed(pairs=self.pairs).problems
        if self.worlds is None:
            every = problem.worlds()
            self.worlds = every[problem(every)[:, 0] == 1]
        probs = belief.log_probs.exp()
        parts = [probs[:, i].index_select(-1, self.worlds[:, i]) for i in range(self.worlds.shape[1])]
        return -safe_log(self.godel.reduce(torch.stack(parts), 0).amax(-1)).mean()

    def sampled(self) -> Tensor:
        ((problem, belief, _),) = self.rows.posed(pairs=self.pairs).problems
        tape = Tape(batch_dims=1)
        drawn = tape.sample(Independent(Categorical(logits=belief.log_probs), 1), LeaveOneOut(8))
        tape.cost((problem(drawn)[..., 0] != 1).to(belief.log_probs.dtype))
        return tape.surrogate()

    def amortized(self) -> Tensor:
        ((problem, labels, belief, _),) = self.term.valued(pairs=self.pairs).problems
        if self.engine is None:
            model = FactorMLPs(problem, hidden=256, layers=2, explain=False)
            self.engine = Engine(problem, model, MixtureDirichlet(problem.world))
            self.optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        self.engine.observe(belief)
        self.engine.update(1, self.optimizer, samples=600)
        output = torch.searchsorted(torch.tensor(labels), self.pairs["sum"]).unsqueeze(-1)
        return self.engine.loss(belief, output).mean()


def rows() -> list[Row]:
    torch.manual_seed(0)
    model = doxa.Model(KNOWLEDGE, digit=doxa.logits(network()))
    digits = torch.randint(10, (2, BATCH))
    pairs = {"left": torch.rand(BATCH, 784), "right": torch.rand(BATCH, 784), "sum": digits.sum(0)}
    direct = Direct(model, pairs)
    found = []
    for semantics, peer in [
        (doxa.Exact(), direct.exactly),
        (doxa.Fuzzy("product"), direct.fuzzily),
        (doxa.Refined(), direct.refined),
        (doxa.Sampled(LeaveOneOut(8)), direct.sampled),
        (doxa.Amortized(), direct.amortized),
    ]:
        name = type(semantics).__name__

        def ours(semantics: doxa.semantics.Semantics = semantics) -> Tensor:
            return model.loss(semantics=semantics, pairs=pairs)

        values = []
        for function in (ours, peer):
            torch.manual_seed(0)
            values.append(function().item())
        if name != "Amortized":  # whose inference models start from different weights
            assert abs(values[0] - values[1]) < 1e-5, (name, values)
        note = f"{BATCH} sums of two digits, forward"
        found.append(compare(f"{name}: Model.loss / the engine", ours, peer, goal=GOAL, better="lower", note=note))
    return found


if __name__ == "__main__":
    main(__file__, rows)
