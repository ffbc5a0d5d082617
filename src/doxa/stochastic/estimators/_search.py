"""Searching a space of token sequences without listing it: the best, samples without replacement, or outside a set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn.functional import softplus

from doxa.errors import ConfigError
from doxa.stochastic.estimators._factors import factors, has_factors, total_size
from doxa.stochastic.tape._magic import is_traced

NEVER = float("-inf")


class Tokens:
    """A model of sequences, asked step by step: values are (k, *shape, length), and tokens (rows, k, length)."""

    def __init__(self, shape: Sequence[int], length: int, size: int | None) -> None:
        self.shape, self.rows, self.length, self.size = tuple(shape), prod(shape), length, size

    def start(self) -> Any:
        """The state before the first token."""
        return None

    def step(self, state: Any, row: Tensor, t: int, token: Tensor | None) -> tuple[Tensor, Any]:
        """Log-probabilities (N, C), float64, of token t for N beams standing in rows ``row``, and the next state."""
        raise NotImplementedError

    def select(self, state: Any, index: Tensor) -> Any:
        """The state of the beams at ``index``."""
        return None

    def values(self, tokens: Tensor) -> Tensor:
        return tokens.transpose(0, 1).reshape(tokens.shape[1], *self.shape, self.length)

    def tokens(self, values: Tensor) -> Tensor:
        return values.reshape(values.shape[0], self.rows, self.length).transpose(0, 1)


class FactorTokens(Tokens):
    """Independent factors: sequences whose steps ignore what came before."""

    def __init__(self, distribution: Distribution) -> None:
        self._f = f = factors(distribution)
        self.table = f.log_probs.detach().double().reshape(-1, *f.log_probs.shape[-2:])
        super().__init__(distribution.batch_shape, self.table.shape[1], f.size)

    def step(self, state: None, row: Tensor, t: int, token: Tensor | None) -> tuple[Tensor, None]:
        return self.table[:, t].index_select(0, row), None

    def values(self, tokens: Tensor) -> Tensor:
        return self._f.value(super().values(tokens))

    def tokens(self, values: Tensor) -> Tensor:
        return super().tokens(self._f.index(values))


def has_tokens(distribution: Distribution, n: int) -> bool:
    """Whether a distribution consists of tokens, and has more than n values."""
    if not (has_factors(distribution) or hasattr(distribution, "as_tokens")):
        return False
    size = total_size(distribution)
    return size is None or size > n


def tokens_of(distribution: Distribution, who: str) -> Tokens:
    """The token model behind a distribution: its own, or independent factors."""
    own: Callable[[], Tokens] | None = getattr(distribution, "as_tokens", None)
    if own is not None:
        return own()
    if has_factors(distribution):
        return FactorTokens(distribution)
    wanted = "Bernoulli, Categorical or OneHotCategorical variables (also Independent) or Sequences"
    raise ConfigError(f"{who} needs {wanted}, got {type(distribution).__name__}")


def _grow(model: Tokens, k: int, rank: Callable[[Tensor, Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Beam search: tokens (rows, k', T), log-probabilities and ranking scores (rows, k') of the beams kept."""
    device = torch.device("cpu")
    rows = torch.arange(model.rows)
    beams = 1
    state = model.start()
    phi = torch.zeros(model.rows, 1, dtype=torch.float64)
    score = rank(phi, phi, torch.zeros(0))
    chosen = torch.zeros(model.rows, 1, 0, dtype=torch.long)
    token: Tensor | None = None
    for t in range(model.length):
        row = rows.to(device).repeat_interleave(beams)
        log_p, state = model.step(state, row, t, token)
        device = log_p.device
        if t == 0:
            rows, phi, score, chosen = (x.to(device) for x in (rows, phi, score, chosen))
        width = log_p.shape[-1]
        child = phi.unsqueeze(-1) + log_p.reshape(model.rows, beams, width)
        ranked = rank(child, score.unsqueeze(-1), phi)
        keep = min(k, beams * width)
        score, best = ranked.flatten(1).topk(keep, -1)
        phi = child.flatten(1).gather(-1, best)
        parent, last = best // width, best % width
        chosen = torch.cat([chosen.gather(1, parent.unsqueeze(-1).expand(-1, -1, t)), last.unsqueeze(-1)], -1)
        state = model.select(state, (rows.unsqueeze(-1) * beams + parent).reshape(-1))
        token, beams = last.reshape(-1), keep
    return chosen, phi, score


def top_k(model: Tokens, k: int) -> Tensor:
    """The k most probable sequences, (rows, k, T): exact for independent factors, by beam search otherwise."""
    return _grow(model, k, lambda child, score, phi: child)[0]


def stochastic_beam(model: Tokens, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """k sequences without replacement in order of drawing, their log-probabilities, and their perturbed ones.

    Stochastic beam search (Kool, van Hoof and Welling 2019): Gumbel noise on all sequences at once, found top-down by
    sampling the noise of each child given the maximum of its parent.
    """

    def rank(child: Tensor, score: Tensor, phi: Tensor) -> Tensor:
        if phi.numel() == 0:  # the root: the maximum over all sequences is a standard Gumbel
            return _gumbel(child)
        noisy = child + _gumbel(child)
        best = noisy.amax(-1, keepdim=True)
        # −log(e^{−score} − e^{−best} + e^{−noisy}), written so that nothing overflows; the best child has v = −inf.
        v = score - noisy + torch.log1p(-torch.exp(noisy - best))
        shifted = score - softplus(v, threshold=40.0)  # beyond it the two are the same in float64
        return torch.where(child > NEVER, shifted, NEVER)

    tokens, phi, score = _grow(model, k, rank)
    # A traced function cannot look at its data: there, only the shape is known.
    if tokens.shape[1] < k or (not is_traced(phi) and bool(torch.isinf(phi).any())):
        raise ConfigError(f"cannot draw {k} different values without replacement: there are fewer of them")
    return tokens, phi, score


def all_orders(log_p: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Every way to draw n different of S values one after the other, given their log-probabilities (S, *batch).

    Returns the indices (n, O), the probability of each way (O, *batch), and log p of all that is left (O, *batch).
    """
    size = log_p.shape[0]
    orders = torch.tensor(list(permutations(range(size), n)), device=log_p.device).T
    taken = log_p[orders]  # (n, O, *batch)
    prob, left = torch.ones_like(taken[0]), log_p.unsqueeze(1).expand(-1, *taken.shape[1:])
    for drawn, own in zip(orders, taken, strict=True):
        # What is left to draw from is summed, not subtracted from 1: it may be tiny. Impossible draws have p 0.
        prob = prob * torch.where(own > NEVER, (own - left.logsumexp(0)).exp(), 0.0)
        gone = torch.arange(size, device=orders.device).unsqueeze(-1) == drawn
        left = left.masked_fill(gone.reshape((*gone.shape, *(1,) * (taken.dim() - 2))), NEVER)
    return orders, prob, left.logsumexp(0)


def _gumbel(like: Tensor) -> Tensor:
    return torch.empty_like(like).exponential_().log_().neg_()


def _walk(model: Tokens, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Along sequences (rows, k, T): the log-probabilities (rows, k, C) of all tokens at each place."""
    rows, k, length = tokens.shape
    row = torch.arange(rows, device=tokens.device).repeat_interleave(k)
    state = model.select(model.start(), row)
    token: Tensor | None = None
    for t in range(length):
        log_p, state = model.step(state, row, t, token)
        token = tokens[..., t].reshape(-1)
        yield t, log_p.reshape(rows, k, log_p.shape[-1])


def token_log_probs(model: Tokens, tokens: Tensor) -> Tensor:
    """The log-probability of every token given those before it, (rows, k, T)."""
    return torch.cat([log_p.gather(-1, tokens[..., t : t + 1]) for t, log_p in _walk(model, tokens)], -1)


def log_outside(model: Tokens, tokens: Tensor, log_p: Tensor) -> Tensor:
    """log p(∉ S) (rows,) of sets S (rows, k, T) of different sequences with log-probabilities (rows, k).

    Where S is nearly everything it is summed: a sequence leaves S at the first token that no member alike so far has.
    """
    rows, k, _ = tokens.shape
    if model.size is not None and k >= model.size:
        return torch.full_like(log_p[:, 0], NEVER)
    total = log_p.exp().sum(-1)
    if is_traced(total) or bool((total < 0.999).all()):
        return torch.log1p(-total.clamp_max(1 - torch.finfo(total.dtype).eps))
    same = torch.ones(rows, k, k, dtype=torch.bool, device=tokens.device)  # members that begin alike
    begun = torch.zeros_like(log_p)
    terms = []
    for t, step in _walk(model, tokens):
        here = tokens[..., t]
        members = here.unsqueeze(1).expand(rows, k, k)
        taken = torch.zeros_like(step, dtype=torch.int64).scatter_add_(-1, members, same.long())
        first = same.int().argmax(-1) == torch.arange(k, device=tokens.device)  # one member for each beginning
        leaving = step.masked_fill(taken > 0, NEVER).logsumexp(-1) + begun
        terms.append(leaving.masked_fill(~first, NEVER))
        begun = begun + step.gather(-1, here.unsqueeze(-1)).squeeze(-1)
        same = same & (here.unsqueeze(-1) == here.unsqueeze(-2))
    return torch.cat(terms, -1).logsumexp(-1)


def outside(model: Tokens, tokens: Tensor, valid: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """n independent sequences (rows, n, T) from p(x | x ∉ S), and log p(∉ S) (rows,), for sets S (rows, s, T).

    Token by token, p(v | prefix, ∉S) ∝ p(v | prefix) (1 − p(S | prefix, v)), which needs only the members of S that
    begin with the prefix. ``valid`` (rows, s) masks members that do not count.
    """
    rows, _, length = tokens.shape
    steps = token_log_probs(model, tokens)
    ahead = steps.flip(-1).cumsum(-1).flip(-1)  # log-probability of token t and everything after it
    row = torch.arange(rows, device=tokens.device).repeat_interleave(n)
    state = model.select(model.start(), row)
    match = valid[row]  # (rows·n, s): members that begin like the draw
    members = tokens[row]
    drawn: list[Tensor] = []
    token: Tensor | None = None
    for t in range(length):
        log_p, state = model.step(state, row, t, token)
        later = ahead[..., t + 1] if t + 1 < length else torch.zeros_like(ahead[..., 0])
        taken = torch.zeros_like(log_p)
        taken.scatter_add_(-1, members[..., t], torch.where(match, later[row].exp(), 0.0))
        p = log_p.exp() * (1 - taken).clamp_min(0)
        p = torch.where(p.sum(-1, keepdim=True) > 0, p, log_p.exp())  # nothing left outside: the weight is 0 anyway
        token = torch.multinomial(p, 1).squeeze(-1)
        match = match & (members[..., t] == token.unsqueeze(-1))
        drawn.append(token)
    total = torch.where(valid, ahead[..., 0].exp(), 0.0).sum(-1)
    return torch.stack(drawn, -1).reshape(rows, n, length), torch.log1p(-total.clamp_max(1 - 1e-16))
