"""A graph network over the factors of a problem: variables that share a factor tell each other what they know."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from doxa.amortized.models._model import dense
from doxa.amortized.models._reader import FeatureReader
from doxa.errors import ConfigError
from doxa.problem import Factor, Problem, Variable

SMALLEST = 1e-4  # probabilities below it look alike in the logarithms that a model sees
LARGEST_TABLE = 4096  # entries up to which two factors are known to be alike by their tables


class FactorGraphModel(FeatureReader):
    """Messages along the factors of a problem, some rounds with the same weights, as belief propagation sends them.

    Variables are nodes: those of the world start with their belief, given ones with their value, outputs and
    auxiliary ones with nothing. In each round a factor f hears its variables, and each of these hears its factors:

        m_f = g(mean_{v in f} a_{kind(f), v} ∘ x_v),    x_v ← x_v + h(x_v, Σ_{f ∋ v} b_{kind(f), v} ∘ m_f / √deg v, m),

    where m is the average over all factors, by which what is far apart hears of each other.
    Factors with the same table are of one kind; a and b are learnt for each kind and place in its scope. The features
    x of outputs and worlds are then read token by token. The number of weights depends on the kinds of factors and
    not on how many there are.

    Args:
        problem: what to infer; it needs factors, as those from knowledge, clauses and sums have.
        channels: the width of x and m.
        rounds: how often messages are sent.
        explain: whether the world is decoded too.

    >>> from doxa.problem import Belief, cnf
    >>> model = FactorGraphModel(cnf([[1, 2], [-1, 3]]), channels=8)
    >>> model.log_prob(Belief.uniform((2, 2, 2), batch=(5,)), torch.ones(5, 4, dtype=torch.int64)).shape
    torch.Size([5])
    """

    def __init__(self, problem: Problem, *, channels: int = 32, rounds: int = 6, explain: bool = True) -> None:
        super().__init__(problem, explain=explain)
        if not problem.factors:
            raise ConfigError("the problem has no factors to send messages along; use ScanModel or CausalTransformer")
        if channels < 1 or rounds < 1:
            raise ConfigError(f"channels is {channels} and rounds is {rounds}, expected at least 1 of each")
        order = ("world", "given", "output", "auxiliary")
        named = {Variable.world(i) for i in range(len(problem.world))}
        named |= {Variable.given(i) for i in range(len(problem.given))}
        named |= {Variable.output(i) for i in range(len(problem.output))}
        named |= {variable for factor in problem.factors for variable in factor.scope}
        nodes = sorted(named, key=lambda v: (order.index(v.kind), v.index))
        number = {variable: i for i, variable in enumerate(nodes)}
        kinds: dict[object, int] = {}  # the first place of each kind of factor among all places
        edges, places = [], 0
        for f, factor in enumerate(problem.factors):
            kind = kinds.setdefault(_form(factor), places)
            places = max(places, kind + len(factor.scope))
            edges += [(f, number[variable], kind + place) for place, variable in enumerate(factor.scope)]
        table = torch.tensor(edges)
        self.edge_factor: Tensor
        self.edge_node: Tensor
        self.edge_place: Tensor
        self.node_kind: Tensor
        self.degree: Tensor
        self.scope: Tensor
        for name, column in zip(("edge_factor", "edge_node", "edge_place"), table.T, strict=True):
            self.register_buffer(name, column.contiguous(), persistent=False)
        counts = torch.bincount(table[:, 1], minlength=len(nodes)).clamp(min=1)
        self.register_buffer("degree", counts.double().sqrt().unsqueeze(-1), persistent=False)
        sizes = torch.bincount(table[:, 0]).double().unsqueeze(-1)
        self.register_buffer("scope", sizes, persistent=False)
        self.register_buffer("node_kind", torch.tensor([order.index(v.kind) for v in nodes]), persistent=False)
        read = [number[Variable.output(i)] for i in range(len(problem.output))]
        self.read = read + [number[Variable.world(i)] for i in range(len(problem.world))]
        self.rounds, self.nodes = rounds, len(nodes)
        self.from_belief = nn.Linear(2 * max(self.seen), channels)
        self.kinds = nn.Embedding(len(order), channels)
        self.speaks = nn.Parameter(1 + 0.5 * torch.randn(places, channels))
        self.hears = nn.Parameter(1 + 0.5 * torch.randn(places, channels))
        self.factor = dense(channels, 2 * channels, 1, channels)
        self.variable = dense(3 * channels, 2 * channels, 1, channels)
        self.before = nn.LayerNorm(channels)
        self.make_reader(channels)

    def features(self, probs: Tensor) -> Tensor:
        x: Tensor = self.kinds(self.node_kind).expand(len(probs), -1, -1)
        logs = probs.clamp(min=SMALLEST).log() / -math.log(SMALLEST)  # factors multiply what logarithms add
        known = self.from_belief(torch.cat([probs, logs], -1))  # worlds and given values, which are the first nodes
        x = torch.cat([x[:, : known.shape[1]] + known, x[:, known.shape[1] :]], 1)
        factors = len(self.scope)
        for _ in range(self.rounds):
            told = (self.before(x)[:, self.edge_node] * self.speaks[self.edge_place]).contiguous()
            message = x.new_zeros(len(x), factors, x.shape[-1]).index_add(1, self.edge_factor, told)
            message = self.factor(message / self.scope.to(x.dtype))
            heard = message[:, self.edge_factor] * self.hears[self.edge_place]
            total = x.new_zeros(x.shape).index_add(1, self.edge_node, heard)
            everywhere = message.mean(1, keepdim=True).expand_as(x)
            x = x + self.variable(torch.cat([self.before(x), total / self.degree.to(x.dtype), everywhere], -1))
        return x

    def place(self, place: Tensor, token: Tensor | None, t: int) -> Tensor:
        return torch.full_like(place, self.read[t])


def _form(factor: Factor) -> object:
    """Equal for factors with equal tables; of large ones, for those that share theirs."""
    relation = factor.relation
    if relation.comparison is not None:
        return relation.shape, relation.comparison
    known = relation.dense if relation.dense is not None else relation.codes
    assert known is not None
    if known.numel() > LARGEST_TABLE:
        return id(known)
    return relation.shape, relation.dense is None, known.cpu().numpy().tobytes()
