"""A causal transformer over variables: beliefs first, then the tokens decoded so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from doxa.amortized.models._model import Carry, InferenceModel
from doxa.errors import ConfigError
from doxa.problem import Problem


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
        shared: list[Tensor] = []
        state: list[Tensor] = [rows]
        for block in self.blocks:
            assert isinstance(block, _Block)
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
        for i, block in enumerate(self.blocks):
            assert isinstance(block, _Block)
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
        for block in self.blocks:
            assert isinstance(block, _Block)
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
