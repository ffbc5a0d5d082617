"""Models that do not go by the arrangement of variables: a network for each, attention over all, or pair by pair."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from doxa._numerics import safe_log
from doxa.amortized.models._model import Carry, InferenceModel, dense, one_hot
from doxa.errors import ConfigError
from doxa.problem import Problem


class FactorMLPs(InferenceModel):
    """A network of its own for every variable, which sees the whole belief and the tokens before.

        q(t_i | t_{<i}, P) = softmax(MLP_i(P, t_{<i}))         (dissertation, "Multi-digit MNISTAdd": 3 layers of 800)

    The i-th weights of all networks are one tensor ``(T, in, out)``, so that a layer of all networks is one batched
    matrix product. Tokens that a network may not see are zeros in its input.

    >>> from doxa.problem import Belief, addition
    >>> model = FactorMLPs(addition(2), hidden=50, layers=2)
    >>> model.log_prob(Belief.uniform((10,) * 4, batch=(8,)), torch.zeros(8, 7, dtype=torch.int64)).shape
    torch.Size([8])
    """

    def __init__(self, problem: Problem, *, hidden: int = 800, layers: int = 3, explain: bool = True) -> None:
        super().__init__(problem, explain=explain)
        if hidden < 1 or layers < 1:
            raise ConfigError(f"hidden is {hidden} and layers is {layers}, expected at least 1 of each")
        count = len(self.sizes)
        self.inputs = len(self.seen) * max(self.seen)
        before = torch.arange(count).repeat_interleave(self.width) < torch.arange(count).unsqueeze(-1)
        self.before: Tensor
        self.register_buffer("before", before.unsqueeze(1), persistent=False)  # (T, 1, T·D): what each network sees
        seen = self.inputs + before.sum(-1).double()
        widths = [hidden] * layers + [self.width]
        self.from_belief = _uniform((count, self.inputs, widths[0]), seen)
        self.from_tokens = _uniform((count, count * self.width, widths[0]), seen)
        fans = [seen] + [torch.full_like(seen, hidden) for _ in range(layers)]
        self.biases = nn.ParameterList([_uniform((count, 1, w), fan) for w, fan in zip(widths, fans, strict=True)])
        self.weights = nn.ParameterList(
            [_uniform((count, hidden, w), fan) for w, fan in zip(widths[1:], fans[1:], strict=True)]
        )
        with torch.no_grad():  # what is never seen never matters; zeros make that visible
            self.from_tokens.mul_(before.unsqueeze(-1))

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        return (probs.flatten(1),), (rows, probs.new_zeros(len(probs), len(self.sizes) * self.width))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (belief,), (rows, seen), i = carry.shared, carry.state, carry.position
        if token is not None:
            seen = seen.clone()
            seen[:, (i - 1) * self.width : i * self.width] = one_hot(token, self.width, seen.dtype)
        used = i * self.width
        x = (belief @ self.from_belief[i])[rows] + seen[:, :used] @ self.from_tokens[i, :used] + self.biases[0][i]
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            x = torch.addmm(bias[i], x.relu(), weight[i])
        return x, Carry(i + 1, carry.shared, (rows, seen))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        length, rows = tokens.shape[-1], len(probs)
        belief = probs.flatten(1).expand(length, rows, -1)
        x = torch.baddbmm(_first(self.biases[0], length), belief, _first(self.from_belief, length))
        used = (length - 1) * self.width  # the last token is seen by nobody
        if used:
            seen = one_hot(tokens[:, :-1], self.width, probs.dtype).flatten(1) * self.before[:length, :, :used]
            x = torch.baddbmm(x, seen, _first(self.from_tokens, length)[:, :used])
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            x = torch.baddbmm(_first(bias, length), x.relu(), _first(weight, length))
        return x.transpose(0, 1)


def _first(x: Tensor, length: int) -> Tensor:
    """The weights of the first networks; of all of them without a slice, whose derivative would copy everything."""
    return x if len(x) == length else x[:length]


def _uniform(shape: tuple[int, ...], fan: Tensor) -> nn.Parameter:
    """As ``nn.Linear`` starts: uniform within 1/√fan, for each network its own number of inputs."""
    bound = fan.rsqrt().reshape(-1, 1, 1).float()
    return nn.Parameter((2 * torch.rand(shape) - 1) * bound)


class CausalTransformer(InferenceModel):
    """Attention over W belief tokens, which see each other, and T value tokens, which see those and what came before.

    It makes no assumption on how the variables are arranged: each has an embedding of its own. The token of a world
    variable is its distribution, that of position i is the value decoded at i - 1.

    >>> from doxa.problem import Belief, majority
    >>> model = CausalTransformer(majority(5), width=16, heads=2, layers=1)
    >>> model.log_prob(Belief.uniform((2,) * 5, batch=(3,)), torch.ones(3, 6, dtype=torch.int64)).shape
    torch.Size([3])
    """

    def __init__(
        self, problem: Problem, *, width: int = 64, heads: int = 4, layers: int = 2, explain: bool = True
    ) -> None:
        super().__init__(problem, explain=explain)
        if layers < 1 or heads < 1 or width % heads:
            raise ConfigError(f"width is {width}, heads {heads}, layers {layers}; expected a width that heads divide")
        self.from_belief = nn.Linear(max(self.seen), width)
        self.variables = nn.Parameter(0.02 * torch.randn(len(self.seen), width))
        self.tokens = nn.Embedding(self.width + 1, width)  # the last one stands for no token
        self.positions = nn.Parameter(0.02 * torch.randn(len(self.sizes), width))
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, self.width))

    def _each(self) -> list[_Block]:
        return [block for block in self.blocks if isinstance(block, _Block)]

    def _beliefs(self, probs: Tensor) -> Tensor:
        x: Tensor = self.from_belief(probs) + self.variables
        return x

    def _values(self, tokens: Tensor, first: int) -> Tensor:
        """The inputs of positions from ``first`` on, from the tokens ``(R, L)`` before each, -1 for none."""
        chosen = torch.where(tokens < 0, self.width, tokens)
        x: Tensor = self.tokens(chosen) + self.positions[first : first + tokens.shape[-1]]
        return x

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        x = self._beliefs(probs)
        shared, state = list[Tensor](), [rows]
        for block in self._each():
            keys, values = block.remember(x)
            shared += [keys, values]
            state += [keys[:, :, :0], values[:, :, :0]]
            x = block(x, keys, values, None)
        return tuple(shared), tuple(state)

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        rows, *caches = carry.state
        before = torch.full_like(rows, -1) if token is None else token
        x = self._values(before.unsqueeze(-1), carry.position)
        state = [rows]
        for i, block in enumerate(self._each()):
            keys, values = block.remember(x)
            keys, values = torch.cat([caches[2 * i], keys], 2), torch.cat([caches[2 * i + 1], values], 2)
            state += [keys, values]
            beliefs, contents = carry.shared[2 * i][rows], carry.shared[2 * i + 1][rows]
            x = block(x, torch.cat([beliefs, keys], 2), torch.cat([contents, values], 2), None)
        return self.head(x[:, -1]), Carry(carry.position + 1, carry.shared, tuple(state))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        length, world = tokens.shape[-1], len(self.seen)
        before = torch.cat([torch.full_like(tokens[:, :1], -1), tokens[:, :-1]], -1)
        x = torch.cat([self._beliefs(probs), self._values(before, 0)], 1)
        total = world + length
        sees = torch.ones(total, total, dtype=torch.bool, device=probs.device).tril()
        sees[:world, :world] = True
        for block in self._each():
            x = block(x, *block.remember(x), sees)
        logits: Tensor = self.head(x[:, world:])
        return logits


class _Block(nn.Module):
    """Attention and a small network, each after a normalisation and with a way around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.queries = nn.Linear(width, width)
        self.contents = nn.Linear(width, 2 * width)
        self.mix = nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def _split(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, -1, (self.heads, -1)).transpose(1, 2)

    def remember(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values ``(R, heads, L, d)`` of inputs ``(R, L, width)``."""
        keys, values = self.contents(self.before(x)).chunk(2, -1)
        return self._split(keys), self._split(values)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, sees: Tensor | None) -> Tensor:
        queries = self._split(self.queries(self.before(x)))
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=sees)
        x = x + self.mix(mixed.transpose(1, 2).flatten(2))
        result: Tensor = x + self.network(x)
        return result


class PairsModel(InferenceModel):
    """One network for all pairs, each pair by itself (dissertation, "Visual Sudoku Puzzle Classification"):

        q(y | P) = ∏_k q(y_k | P[i_k], P[j_k]),      q(y_k | ·) = softmax(MLP(P[i_k], P[j_k])).

    That outputs are independent is wrong in general, and enough to train perception. The pairs of a training batch are
    many: ``on_pairs`` trains the network on single pairs, which is all it sees.

    With ``closed_form=True`` there is nothing to learn: the outputs say whether two values differ, and

        q(y_k = 1 | P) = 1 - Σ_v P[i_k, v] P[j_k, v]             (errata 5.6).

    Args:
        problem: what to infer; every output depends on two world variables.
        pairs: the two world variables of each output; by default read off ``problem.dependence()``.
        hidden: the width of the network.
        layers: its hidden layers.
        closed_form: use the exact probability that two values differ.

    >>> from doxa.problem import Belief
    >>> differ = Problem((3, 3, 3), (2, 2), lambda w: torch.stack([w[..., 0] != w[..., 1], w[..., 1] != w[..., 2]], -1))
    >>> model = PairsModel(differ, closed_form=True)
    >>> model.log_prob(Belief.uniform((3, 3, 3)), torch.tensor([1, 1])).exp()          # 2/3 · 2/3
    tensor(0.4444)
    """

    def __init__(
        self,
        problem: Problem,
        pairs: Sequence[tuple[int, int]] | None = None,
        *,
        hidden: int = 100,
        layers: int = 2,
        closed_form: bool = False,
    ) -> None:
        super().__init__(problem, explain=False)
        chosen = _pairs(problem) if pairs is None else [tuple(pair) for pair in pairs]
        count = len(problem.world)
        if len(chosen) != len(problem.output) or not all(len(p) == 2 and 0 <= min(p) <= max(p) < count for p in chosen):
            raise ConfigError(f"pairs has {len(chosen)} entries, expected two world variables for each output")
        if closed_form and set(problem.output) != {2}:
            raise ConfigError(f"outputs are {problem.output[:4]}..., expected 0 and 1 (they differ) for closed_form")
        if closed_form and problem.given:
            raise ConfigError("closed_form: whether two values differ, nothing given decides; use hidden layers")
        self.pairs: Tensor
        self.register_buffer("pairs", torch.tensor(chosen), persistent=False)
        inputs = 2 * max(problem.world) + len(problem.given) * max(self.seen)
        self.network = None if closed_form else dense(inputs, hidden, layers, self.width)

    def on_pairs(self, left: Tensor, right: Tensor, *given: Tensor) -> Tensor:
        """Scores ``(..., D)`` of one output from the distributions ``(..., D)`` of its two variables; ``given`` too.

        >>> from doxa.problem import Problem
        >>> differ = Problem((3, 3), (2,), lambda w: (w[..., :1] != w[..., 1:]).long())
        >>> PairsModel(differ).on_pairs(torch.rand(7, 3), torch.rand(7, 3)).shape
        torch.Size([7, 2])
        """
        if self.network is not None:
            logits: Tensor = self.network(torch.cat([left, right, *given], -1))
            return logits
        same = (left * right).sum(-1)
        return safe_log(torch.stack([same, 1 - same], -1))

    def _all(self, probs: Tensor) -> Tensor:
        count = len(self.problem.world)
        world = probs[:, :count, : max(self.problem.world)]
        left, right = world[:, self.pairs[:, 0]], world[:, self.pairs[:, 1]]
        given = probs[:, count:].flatten(1).unsqueeze(1).expand(-1, len(self.pairs), -1)
        return self.on_pairs(left, right, *([given] if self.problem.given else []))

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return (self._all(probs),), (torch.arange(len(probs), device=probs.device),)

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (logits,), (rows,), t = carry.shared, carry.state, carry.position
        return logits[rows, t], Carry(t + 1, carry.shared, carry.state)

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        return self._all(probs)[:, : tokens.shape[-1]]


def _pairs(problem: Problem) -> list[tuple[int, ...]]:
    found = [tuple(row.nonzero().flatten().tolist()) for row in problem.dependence()]
    for output, pair in enumerate(found):
        if len(pair) != 2:
            came = f"output {problem.name(len(problem.world) + output)} depends on {len(pair)} world variables"
            raise ConfigError(f"{came}, expected two; use ScanModel or CausalTransformer")
    return found
