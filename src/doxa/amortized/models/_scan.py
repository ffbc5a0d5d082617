"""A small cell that is shared by all columns of variables and carried from one to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from doxa.amortized.models._model import Carry, InferenceModel, from_given, one_hot
from doxa.errors import ConfigError
from doxa.problem import Problem

LARGEST_JOINT = 256  # values of a column's variables together, up to which their joint distribution is its feature


@dataclass(frozen=True)
class Columns:
    """Which output variables and which world variables stand in each column.

    A sum is written in columns: under the digits of both summands stands the digit of the sum. Every variable
    stands in exactly one column; a column may be without outputs or without world variables.

    Args:
        outputs: for each column the output variables.
        world: for each column the world variables.

    >>> from doxa.problem import addition
    >>> Columns.of(addition(2))                       # the first digit of a sum has no digits above it
    Columns(outputs=((0,), (1,), (2,)), world=((), (0, 2), (1, 3)))
    """

    outputs: tuple[tuple[int, ...], ...]
    world: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.outputs)

    @classmethod
    def of(cls, problem: Problem) -> Columns:
        """Columns read off the problem.

        A world variable stands under the last output that shares a factor with it. Where factors do not say, columns
        are the world variables in their order, and the outputs stand in the last of them.
        """
        outputs, world = len(problem.output), len(problem.world)
        under: dict[int, int] = {}
        for factor in problem.factors or ():
            own = [v.index for v in factor.scope if v.kind == "output"]
            for variable in factor.scope:
                if own and variable.kind == "world":
                    under[variable.index] = max(*own, under.get(variable.index, -1))
        if len(under) == world and len(set(under.values())) > 1:
            above = [tuple(w for w in range(world) if under[w] == y) for y in range(outputs)]
            return cls(tuple((y,) for y in range(outputs)), tuple(above))
        count = max(outputs, world)
        return cls(
            tuple((c - count + outputs,) if c >= count - outputs else () for c in range(count)),
            tuple((c - count + world,) if c >= count - world else () for c in range(count)),
        )

    def require(self, problem: Problem) -> None:
        """A ``ConfigError`` unless every variable of the problem stands in exactly one column."""
        wanted = "variables in exactly one column, and as many columns of outputs as of world variables"
        for what in ("output", "world"):
            given, count = self.world if what == "world" else self.outputs, len(getattr(problem, what))
            if len(self.outputs) != len(self.world) or sorted(v for c in given for v in c) != list(range(count)):
                raise ConfigError(f"the columns have {what} {given}, expected each of {count} {wanted}")

    def joint(self, sizes: Sequence[int]) -> bool:
        """Whether the joint distribution of every column is small enough to be a feature."""
        return all(math.prod(sizes[w] for w in column) <= LARGEST_JOINT for column in self.world)


class ScanModel(InferenceModel):
    """Two recurrent cells over the columns of the problem, one to the left and one to the right.

    The first carries what lies to the right of a column (in a sum, what will be carried over), the second what was
    decided to its left. The score of a variable comes from both and from its own column:

        e_c = GRU(x_c, e_{c+1}),    d_{c+1} = GRU(x_c + token_c, d_c),
        q(t | …) = softmax(MLP(d_c, e_c, x_c) + V ((1 + A d_c) ∘ (1 + B e_c) ∘ C x_c)).

    x_c is linear in what describes a column: the joint distribution ∏ P[i, ·] of its world variables (or their
    distributions one by one, where the joint is large) and the tokens already known in it. The product in the score is
    what exact inference multiplies: what is known to the left, to the right, and here.

    Tokens are decoded in *passes* from left to right: all outputs, then the first world variable of each column, and so
    on; each pass starts with a new scan to the left, which sees what earlier passes have decided. Weights are shared by
    all columns, so their number hardly depends on the size of the problem, and decoding takes time proportional to its
    length.

    Args:
        problem: what to infer.
        columns: which variables stand above each other; by default ``Columns.of(problem)``.
        hidden: the width of the cells.
        explain: whether the world is decoded too.
        positions: let a column know which one it is. Without this, all columns of one kind are treated alike.

    >>> from doxa.problem import Belief, addition
    >>> model = ScanModel(addition(15))
    >>> sum(p.numel() for p in model.parameters()) < 100_000
    True
    >>> model.log_prob(Belief.uniform((10,) * 30, batch=(4,)), torch.zeros(4, 16, dtype=torch.int64)).shape
    torch.Size([4])
    """

    def __init__(
        self,
        problem: Problem,
        columns: Columns | None = None,
        *,
        hidden: int = 64,
        explain: bool = True,
        positions: bool = True,
    ) -> None:
        super().__init__(problem, explain=explain)
        self.columns = Columns.of(problem) if columns is None else columns
        self.columns.require(problem)
        count, outputs = len(self.columns), len(problem.output)
        self.joint = self.columns.joint(problem.world)
        slots = [
            (*outs, *((outputs + w for w in world) if explain else ()))
            for outs, world in zip(self.columns.outputs, self.columns.world, strict=True)
        ]
        self._column = [0] * len(self.sizes)
        self._slot = [0] * len(self.sizes)
        for c, tokens in enumerate(slots):
            for place, token in enumerate(tokens):
                self._column[token], self._slot[token] = c, place
        self._most = max(map(len, slots))
        self._pass = [0] * len(self.sizes)  # a token to the left of the one before it begins a new pass
        for t in range(1, len(self.sizes)):
            self._pass[t] = self._pass[t - 1] + (self._column[t] <= self._column[t - 1])
        self._first = [self._pass.index(p) for p in range(self._pass[-1] + 1)]
        kinds = [tuple(problem.world[w] for w in column) for column in self.columns.world]
        listed = sorted(set(kinds))
        self.kind: Tensor
        self.register_buffer("kind", torch.tensor([listed.index(k) for k in kinds]), persistent=False)
        features = self._features(torch.zeros(1, len(self.seen), max(self.seen))).shape[-1]
        self.from_belief = nn.Linear(features, hidden)
        self.from_given = from_given(self, hidden)
        self.from_known = nn.Linear(self._most * self.width, hidden, bias=False)
        self.kinds = nn.Embedding(len(listed), hidden)
        self.passes = nn.Embedding(len(self._first), hidden)
        self.tokens = nn.Embedding(self.width + 1, hidden)  # the last one stands for no token
        self.places = nn.Parameter(torch.zeros(count, hidden)) if positions else None
        self.leftwards = nn.GRU(hidden, hidden)
        self.rightwards = nn.GRU(hidden, hidden)
        self.head = _Head(hidden, self.width)
        self.hidden = hidden
        # A distribution over features is an average of their embeddings, which should differ from the start; kinds and
        # passes should not drown them.
        for layer in (self.from_belief, self.from_known):
            nn.init.normal_(layer.weight)
        for table in (self.kinds, self.passes):
            table.weight.data.mul_(0.1)

    def _features(self, probs: Tensor) -> Tensor:
        """What the belief says of each column: ``(R, C, F)``."""
        parts = []
        for column in self.columns.world:
            if self.joint:
                part = probs.new_ones(len(probs), 1)
                for w in column:
                    own = probs[:, w, : self.problem.world[w]]
                    part = (part.unsqueeze(-1) * own.unsqueeze(1)).flatten(1)
            else:
                part = probs[:, list(column)].flatten(1)
            parts.append(part)
        widest = max(part.shape[-1] for part in parts)
        wide = [part if part.shape[-1] == widest else pad(part, (0, widest - part.shape[-1])) for part in parts]
        return torch.stack(wide, 1)

    def _described(self, probs: Tensor) -> Tensor:
        """The part of x that the belief and the place of a column decide: ``(R, C, H)``."""
        x: Tensor = self.from_belief(self._features(probs)) + self.kinds(self.kind)
        if self.from_given is not None:
            x = x + self.from_given(probs[:, len(self.problem.world) :].flatten(1)).unsqueeze(1)
        return x if self.places is None else x + self.places

    def _known(self, tokens: Tensor, number: int) -> Tensor:
        """One-hot tokens known before a pass, by column and slot: ``(R, C, S·D)``."""
        table = tokens.new_full((len(tokens), len(self.columns), self._most), -1)
        for t in range(min(self._first[number], tokens.shape[-1])):
            table[:, self._column[t], self._slot[t]] = tokens[:, t]
        return one_hot(table, self.width, self.passes.weight.dtype).flatten(2)

    def _columns_of_pass(self, described: Tensor, tokens: Tensor, number: int) -> Tensor:
        """x of every column in a pass: ``(R, C, H)``."""
        x = described + self.passes.weight[number]
        return x + self.from_known(self._known(tokens, number)) if number else x

    def _leftward(self, x: Tensor) -> Tensor:
        """e_c of every column: ``(C, R, H)`` to ``(C, R, H)``."""
        states: Tensor = self.leftwards(x.flip(0))[0]
        return states.flip(0)

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        described = self._described(probs)
        none = rows.new_zeros(len(probs), 0)
        return (described, described, described), (rows, rows, none, described.new_zeros(len(probs), self.hidden))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        described, columns, states = carry.shared
        origin, rows, tokens, done = carry.state  # which row of the belief, which row of this pass, tokens so far, d
        t = carry.position
        if token is not None:
            tokens = torch.cat([tokens, token.unsqueeze(-1)], -1)
        number = self._pass[t]
        last = self._column[t - 1] if t else -1
        if t == self._first[number]:
            if number == 0:  # nothing is known yet, so beams of one query share the first scan
                columns = self._columns_of_pass(described, tokens[:0], 0)
                rows = origin
            else:
                columns = self._columns_of_pass(described[origin], tokens, number)
                rows = torch.arange(len(origin), device=origin.device)
            states = self._leftward(columns.transpose(0, 1)).transpose(0, 1)
            done, last = torch.zeros_like(done), -1
        for c in range(max(last, 0), self._column[t]):
            chosen = self.tokens(token) if c == last and token is not None else self.tokens.weight[-1]
            x = columns[rows, c] + chosen
            done = self.rightwards(x.unsqueeze(0), done.unsqueeze(0).contiguous())[1][0]
        c = self._column[t]
        logits = self.head(torch.cat([done, states[rows, c], columns[rows, c]], -1))
        return logits, Carry(t + 1, (described, columns, states), (origin, rows, tokens, done))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        rows, length = tokens.shape
        described = self._described(probs)
        count, numbers = len(self.columns), self._pass[length - 1] + 1
        x = torch.stack([self._columns_of_pass(described, tokens, n) for n in range(numbers)])  # (passes, R, C, H)
        x = x.permute(2, 0, 1, 3).reshape(count, numbers * rows, self.hidden)
        left = self._leftward(x)
        chosen = tokens.new_full((count, numbers, rows), self.width)
        for t in range(length):
            chosen[self._column[t], self._pass[t]] = tokens[:, t]
        moved = x + self.tokens(chosen.flatten(1))
        states: Tensor = self.rightwards(moved[:-1])[0] if count > 1 else x[:0]
        right = torch.cat([torch.zeros_like(x[:1]), states])
        read = torch.unflatten(torch.cat([right, left, x], -1), 1, (numbers, rows))
        at = read[self._column[:length], self._pass[:length]]  # (L, R, 3H)
        logits: Tensor = self.head(at)
        return logits.transpose(0, 1)


class _Head(nn.Module):
    """Scores of the values, from what lies to the left, to the right, and here: a small network and a product."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.network = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.left, self.right, self.here = (nn.Linear(hidden, hidden) for _ in range(3))
        self.values = nn.Linear(hidden, width, bias=False)

    def forward(self, read: Tensor) -> Tensor:
        left, right, here = torch.split(read, self.hidden, -1)
        product = (1 + self.left(left)) * (1 + self.right(right)) * self.here(here)
        scores: Tensor = self.network(read) + self.values(product)
        return scores
