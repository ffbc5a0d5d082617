"""Sequences of tokens as a distribution: ancestral samples, and samples without replacement by beam search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from doxa.errors import ConfigError
from doxa.stochastic.estimators._factors import LARGEST_SUPPORT, all_indices, broadcast
from doxa.stochastic.estimators._search import Tokens, stochastic_beam, top_k

Step = Callable[[Any, Tensor | None], tuple[Tensor, Any]]


class Sequences(Distribution):
    r"""p(x) = Π_t p(x_t | x_{<t}) over token sequences of at most ``length`` tokens, given step by step.

    Args:
        step: from (carry, token) to (logits (N, V), next carry); the first token is ``None``. N rows are independent.
        carry: a tensor, or tuples, lists and dictionaries of tensors, with the rows of the batch in front: (B, …).
        length: the number of tokens of a sequence.
        end: the token that ends a sequence; after it only ``end`` follows, with probability 1.
        batch_shape: ``(B,)`` unless given; () for a single row.

    Values are int64 (…, length). Any estimator for finite or any distributions takes it: ``Score`` and
    ``LeaveOneOut`` sample ancestrally, ``UnorderedSet`` and ``ScoreWithoutReplacement`` by stochastic beam search,
    ``SumAndSample`` by beam search.

    >>> from doxa.stochastic import Tape, UnorderedSet
    >>> table = torch.zeros(4, 3, requires_grad=True)               # next given last; row 3: start
    >>> def step(carry, token):
    ...     logits = table[3].expand(len(carry), -1) if token is None else table[token]
    ...     return logits, carry
    >>> words = Sequences(step, torch.zeros(2, 1), length=5, end=0)
    >>> tape = Tape(batch_dims=1)
    >>> x = tape.sample(words, UnorderedSet(4))
    >>> x.shape
    torch.Size([4, 2, 5])
    >>> _ = tape.cost((x > 0).sum(-1).float())
    >>> (g,) = torch.autograd.grad(tape.surrogate(), table)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.nonnegative_integer

    def __init__(
        self, step: Step, carry: Any, length: int, end: int | None = None, batch_shape: Sequence[int] | None = None
    ) -> None:
        if length < 1:
            raise ConfigError(f"length is {length}, expected at least 1")
        first = _leaf(carry)
        rows = first.shape[0]
        shape = torch.Size([rows] if batch_shape is None else batch_shape)
        if shape.numel() != rows:
            raise ConfigError(f"batch_shape {tuple(shape)} does not match the {rows} rows of the carry")
        self.step, self.carry, self.length, self.end = step, carry, length, end
        self._index = torch.arange(rows, device=first.device).reshape(shape)
        with torch.no_grad():
            logits, _ = self.step(self.carry, None)
        self.dtype, self.vocabulary = logits.dtype, logits.shape[-1]
        if self.end is not None and not 0 <= self.end < self.vocabulary:
            raise ConfigError(f"end is {self.end}, expected a token between 0 and {self.vocabulary - 1}")
        super().__init__(shape, torch.Size([self.length]), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Sequences:
        new = Sequences.__new__(Sequences)
        new.__dict__.update(self.__dict__)
        new._index = self._index.expand(torch.Size(batch_shape))
        Distribution.__init__(new, torch.Size(batch_shape), torch.Size([self.length]), validate_args=False)
        return new

    @property
    def size(self) -> int:
        """The number of sequences."""
        if self.end is None:
            return int(self.vocabulary**self.length)
        return int(sum((self.vocabulary - 1) ** t for t in range(self.length)) + (self.vocabulary - 1) ** self.length)

    def _advance(self, state: tuple[Any, Tensor], token: Tensor | None) -> tuple[Tensor, tuple[Any, Tensor]]:
        """Log-probabilities of the next token; sequences that have ended stay ended."""
        carry, ended = state
        logits, carry = self.step(carry, token)
        log_p = logits.log_softmax(-1)
        if self.end is not None:
            if token is not None:
                ended = ended | (token == self.end)
            after = torch.full_like(log_p, float("-inf"))
            after[..., self.end] = 0
            log_p = torch.where(ended.unsqueeze(-1), after, log_p)
        return log_p, (carry, ended)

    def _begin(self, index: Tensor) -> tuple[Any, Tensor]:
        return _select(self.carry, index), torch.zeros(len(index), dtype=torch.bool, device=index.device)

    def _walk(self, rows: Tensor, choose: Callable[[int, Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Token by token: the log-probabilities of all tokens, and the one that is chosen."""
        state = self._begin(rows.reshape(-1))
        token: Tensor | None = None
        for t in range(self.length):
            log_p, state = self._advance(state, token)
            token = choose(t, log_p)
            yield log_p, token

    def _ancestral(self, shape: torch.Size, choose: Callable[[Tensor], Tensor]) -> Tensor:
        whole = shape + self.batch_shape
        tokens = [token for _, token in self._walk(self._index.expand(whole), lambda t, log_p: choose(log_p))]
        return torch.stack(tokens, -1).reshape((*whole, self.length))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            return self._ancestral(torch.Size(sample_shape), lambda l: torch.multinomial(l.exp(), 1).squeeze(-1))

    @property
    def mode(self) -> Tensor:
        """The greedy sequence."""
        with torch.no_grad():
            return self._ancestral(torch.Size(), lambda l: l.argmax(-1))

    def log_prob(self, value: Tensor) -> Tensor:
        lead = broadcast(value.shape[:-1], self.batch_shape)
        tokens = value.expand(*lead, self.length).reshape(-1, self.length)
        steps = self._walk(self._index.expand(lead), lambda t, log_p: tokens[:, t])
        terms = [log_p.gather(-1, token.unsqueeze(-1)).squeeze(-1) for log_p, token in steps]
        return reduce(torch.add, terms).reshape(lead)

    def support_values(self) -> Tensor:
        """Every sequence, (S, *batch, length); what follows ``end`` is ``end``."""
        if self.vocabulary**self.length > LARGEST_SUPPORT:
            raise ConfigError(f"{self.vocabulary}^{self.length} sequences are too many to list")
        index = all_indices((self.vocabulary,) * self.length, self._index.device)
        if self.end is not None:
            ended = (index == self.end).cumsum(-1) > 0
            index = index[(~ended[:, :-1] | (index[:, 1:] == self.end)).all(-1)]
        lead = (len(index), *(1,) * len(self.batch_shape), self.length)
        return index.reshape(lead).expand(-1, *self.batch_shape, -1)

    def without_replacement(self, k: int) -> tuple[Tensor, Tensor]:
        """k different sequences (k, *batch, length) as they were drawn, and their log-probabilities (k, *batch)."""
        tokens, log_p, _ = stochastic_beam(self.as_tokens(), k)
        return self.as_tokens().values(tokens), log_p.T.reshape(k, *self.batch_shape)

    def beam(self, k: int) -> Tensor:
        """The k best sequences that beam search finds, (k, *batch, length)."""
        model = self.as_tokens()
        return model.values(top_k(model, k))

    def as_tokens(self) -> SequenceTokens:
        return SequenceTokens(self)


class SequenceTokens(Tokens):
    """Sequences, asked step by step for a search."""

    def __init__(self, distribution: Sequences) -> None:
        self._d = distribution
        super().__init__(distribution.batch_shape, distribution.length, distribution.size)

    def start(self) -> tuple[Any, Tensor]:
        return self._d._begin(self._d._index.reshape(-1))

    def step(self, state: Any, row: Tensor, t: int, token: Tensor | None) -> tuple[Tensor, Any]:
        with torch.no_grad():
            log_p, state = self._d._advance(state, token)
        return log_p.double(), state

    def select(self, state: tuple[Any, Tensor], index: Tensor) -> tuple[Any, Tensor]:
        return _select(state[0], index), state[1][index]


def _select(carry: Any, index: Tensor) -> Any:
    """Rows of every tensor in a carry."""
    if isinstance(carry, Tensor):
        return carry[index]
    if isinstance(carry, dict):
        return {k: _select(v, index) for k, v in carry.items()}
    if isinstance(carry, tuple | list):
        return type(carry)(_select(v, index) for v in carry)
    if carry is None:
        return None
    raise ConfigError(f"a carry holds tensors, tuples, lists and dictionaries, got {type(carry).__name__}")


def _leaf(carry: Any) -> Tensor:
    """The first tensor in a carry."""
    if isinstance(carry, Tensor):
        return carry
    for part in carry.values() if isinstance(carry, dict) else carry or ():
        return _leaf(part)
    raise ConfigError("the carry holds no tensor, so the number of rows is unknown; pass e.g. torch.zeros(B, 1)")
