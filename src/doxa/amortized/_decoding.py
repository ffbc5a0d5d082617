"""Decoding: greedy, by beam search, or by sampling, for any model and any pruner, many queries and beams at once."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.amortized.models._model import InferenceModel, log_softmax
from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief
from doxa.problem._logspace import NEG_INF, shown


class Decoded(NamedTuple):
    """Tokens ``(*batch, k, L)``, best first, and their log q given the prefix ``(*batch, k)``; then -1 and -inf."""

    tokens: Tensor
    scores: Tensor


def beam_search(
    model: InferenceModel,
    belief: Belief,
    beams: int = 1,
    *,
    prefix: Tensor | None = None,
    given: Tensor | None = None,
    length: int | None = None,
    pruner: Pruner | None = None,
) -> Decoded:
    """The ``beams`` most probable sequences that a search of that width finds, after a ``prefix`` of known values.

    One beam is greedy decoding; with as many beams as sequences the search is exhaustive. What the pruner forbids
    drops out. Of equally probable sequences the lexicographically first comes first.
    """
    if beams < 1:
        raise ConfigError(f"beams is {beams}, expected at least 1")
    search = _Search(model, belief, prefix, given, length, pruner)
    rows, kept, logits = search.rows, 1, search.begin()
    total = logits.new_zeros(rows, 1)
    for position in range(search.known, search.length):
        # Rows of the search are (query, beam), the beams of a query side by side.
        candidates = total.unsqueeze(-1) + torch.unflatten(search.masked(logits, position), 0, (rows, kept))
        size = candidates.shape[-1]
        ranked, order = candidates.flatten(1).sort(dim=-1, descending=True, stable=True)
        count = min(beams, kept * size)
        total, order = ranked[:, :count], order[:, :count]
        first = kept * torch.arange(rows, device=order.device).unsqueeze(-1)
        logits = search.extend((first + order // size).flatten(), (order % size).flatten(), position)
        kept = count
    tokens = pad(search.tokens.reshape(rows, kept, search.length), (0, 0, 0, beams - kept))
    return search.finish(tokens, pad(total, (0, beams - kept), value=NEG_INF), beams)


def draw(
    model: InferenceModel,
    belief: Belief,
    count: int = 1,
    *,
    temperature: float = 1.0,
    prefix: Tensor | None = None,
    given: Tensor | None = None,
    pruner: Pruner | None = None,
    generator: torch.Generator | None = None,
) -> Decoded:
    """Sequences drawn from the model, ``count`` for each row, in no order; -1 and -inf in a dead end of the pruner."""
    if count < 1 or not temperature > 0:
        raise ConfigError(f"count is {count} and temperature {temperature}, expected at least 1 and above 0")
    search = _Search(model, belief, prefix, given, None, pruner)
    logits = search.begin()
    rows = torch.arange(search.rows, device=logits.device).repeat_interleave(count)
    total = logits.new_zeros(len(rows))
    for position in range(search.known, search.length):
        table = search.masked(logits, position)
        if len(table) != len(rows):  # the samples of a query part only now
            table = table[rows]
        dead = (table == NEG_INF).all(-1, keepdim=True)
        tempered = (table.masked_fill(dead, 0.0) / temperature).softmax(-1).double().cumsum(-1)
        uniform = torch.rand(len(table), 1, dtype=torch.float64, device=table.device, generator=generator)
        token = torch.searchsorted(tempered, uniform * tempered[:, -1:], right=True).clamp(max=table.shape[-1] - 1)
        total = total + table.gather(-1, token).squeeze(-1)
        same = rows if position == search.known else torch.arange(len(rows), device=rows.device)
        logits = search.extend(same, token.squeeze(-1), position)
    return search.finish(search.tokens, total, count)


class _Search:
    """The rows of a search: their carries, their tokens so far, and what may come next."""

    def __init__(
        self,
        model: InferenceModel,
        belief: Belief,
        prefix: Tensor | None,
        given: Tensor | None,
        length: int | None,
        pruner: Pruner | None,
    ) -> None:
        self.model, self.pruner = model, pruner
        self.rows = math.prod(belief.batch_shape)
        self.length = len(model.sizes) if length is None else length
        device = belief.log_probs.device
        if prefix is None:
            prefix = torch.zeros(0, dtype=torch.int64, device=device)
        if prefix.dtype != torch.int64 or prefix.ndim == 0 or not prefix.shape[-1] < self.length <= len(model.sizes):
            wanted = f"int64 (*batch, k) with k below the length, and at most {len(model.sizes)} variables"
            raise ProblemError(f"prefix has {shown(prefix)}, length is {self.length}; expected {wanted}")
        self.known = prefix.shape[-1]
        self.tokens = prefix.expand(*belief.batch_shape, self.known).reshape(self.rows, self.known)
        if (self.tokens < 0).any():
            raise ProblemError("prefix has unobserved values (-1), expected all of them; decode the output first")
        self.belief, self.given = belief.detach(), given

    @torch.no_grad()
    def begin(self) -> Tensor:
        """log q of the first variable that is not in the prefix."""
        self.carry = self.model.init(self.belief, self.given)
        logits, self.carry = self.model.step(self.carry)
        for token in self.tokens.unbind(-1):
            logits, self.carry = self.model.step(self.carry, token)
        return logits

    @torch.no_grad()
    def extend(self, rows: Tensor, token: Tensor, position: int) -> Tensor:
        """Keep these rows with these tokens, and return log q of the next variable (of the last one, after it)."""
        # A row without a future has any token; it must still be one that exists.
        token = token.clamp(max=self.model.sizes[position] - 1)
        self.tokens = torch.cat([self.tokens.index_select(0, rows), token.unsqueeze(-1)], -1)
        self.carry = self.carry.select(rows)
        if position + 1 == self.length:
            return token.new_zeros(0)
        logits, self.carry = self.model.step(self.carry, token)
        return logits

    def finish(self, tokens: Tensor, total: Tensor, count: int) -> Decoded:
        """``count`` sequences for each row of the belief; impossible ones are -1."""
        tokens, batch = tokens.masked_fill((total == NEG_INF).unsqueeze(-1), -1), self.belief.batch_shape
        return Decoded(tokens.reshape(*batch, count, self.length), total.reshape(*batch, count))

    def masked(self, logits: Tensor, position: int) -> Tensor:
        """log q_v s_v / (q · s) for the values of a position."""
        log_probs = logits[:, : self.model.sizes[position]]
        if self.pruner is None:
            return log_probs
        return log_softmax(log_probs, self.pruner.allowed(self.tokens))
