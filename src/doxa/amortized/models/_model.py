"""The one face of every inference model: an autoregressive distribution over outputs and worlds, given a belief."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from doxa.amortized.pruners._pruner import Pruner
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief, Problem
from doxa.problem._logspace import NEG_INF, shown, without_autocast


def value_mask(sizes: Sequence[int]) -> Tensor:
    """Bool ``(T, D)``: which values each variable has."""
    return torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(-1)


def log_softmax(logits: Tensor, allowed: Tensor | None = None) -> Tensor:
    """log of q_v s_v / (q · s), for q = softmax(logits) and the mask s = ``allowed``; -inf, derivative 0, elsewhere."""
    if allowed is None:
        return logits.log_softmax(-1)
    alive = allowed.any(-1, keepdim=True)
    kept = logits.masked_fill(~allowed & alive, NEG_INF)
    return kept.log_softmax(-1).masked_fill(~allowed, NEG_INF)


def pick(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """The entries of the last axis that belong to ``tokens``; -1 stands for nothing, which has log-probability 0."""
    seen = tokens >= 0
    chosen = log_probs.gather(-1, tokens.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(seen, chosen, torch.zeros_like(chosen))


def one_hot(tokens: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """``(..., D)`` with a 1 at the token; -1 gives zeros."""
    return (tokens.unsqueeze(-1) == torch.arange(width, device=tokens.device)).to(dtype)


def log_world(log_probs: Tensor, worlds: Tensor) -> Tensor:
    """log p(w | P), each factor capped at the smallest normal number: excluded worlds are just improbable."""
    floor = math.log(torch.finfo(log_probs.dtype).tiny)
    table = log_probs.clamp(min=floor)
    return table.gather(-1, worlds.unsqueeze(-1)).squeeze(-1).sum(-1)


class Carry(NamedTuple):
    """What an inference model remembers between steps.

    Attributes:
        position: the number of values decoded so far.
        shared: tensors that no row owns; rows point into them.
        state: tensors with one entry per row on their first axis.

    >>> carry = Carry(2, (), (torch.tensor([7, 8, 9]),))
    >>> carry.select(torch.tensor([2, 2, 0])).state[0]
    tensor([9, 9, 7])
    """

    position: int
    shared: tuple[Tensor, ...]
    state: tuple[Tensor, ...]

    def select(self, rows: Tensor) -> Carry:
        """The carry of some of the rows, in any order and any number of times; what is shared is not copied."""
        return Carry(self.position, self.shared, tuple([x.index_select(0, rows) for x in self.state]))


class InferenceModel(nn.Module, ABC):
    """q(y, w | P) = ∏_i q(y_i | y_{<i}, P) ∏_i q(w_i | y, w_{<i}, P)     (dissertation, "Inference models")

    Outputs and worlds are one sequence of *tokens*, outputs first: int64 ``(*batch, T)``, whose first Y tokens are the
    prediction and whose other W tokens, if the model explains, are the world. Variables have domains of different
    size; what exceeds them has probability 0. Sampling, beam search, pruning and explaining are written once over
    this face.

    A model of your own implements three functions on rows, a flat batch R of probabilities ``(R, W + G, D)``,
    whose variables have the sizes ``self.seen``, given ones (if the problem has any) last and certain:
    ``start(probs)`` returns what is shared and the state, ``advance(carry, token)`` the raw scores ``(R, D)`` of the
    next variable and the new carry, and ``scores(probs, tokens)`` the same for all positions at once, ``(R, L, D)``.

    >>> from doxa import amortized, problem
    >>> model = amortized.FactorMLPs(problem.addition(1), hidden=32)
    >>> model.sizes                                               # two digits of the sum, then both summands
    (2, 10, 10, 10)
    >>> belief = Belief.uniform((10, 10), batch=(5,))
    >>> carry = model.init(belief)
    >>> first, carry = model.step(carry)                          # log q(y_1 | P)
    >>> second, carry = model.step(carry, torch.zeros(5, dtype=torch.int64))
    >>> both = model.log_prob(belief, torch.tensor([[0, 7]]).expand(5, 2))
    >>> torch.allclose(both, first[:, 0] + second[:, 7], atol=1e-5)
    True
    """

    def __init__(self, problem: Problem, *, explain: bool) -> None:
        super().__init__()
        self.problem = problem
        self.explains = explain
        self.sizes = problem.output + (problem.world if explain else ())
        self.width = max(self.sizes)
        self.seen = problem.world + problem.given  # what the belief says of, then what the data decide
        self.values: Tensor
        self.register_buffer("values", value_mask(self.sizes), persistent=False)
        self._ragged = min(self.sizes) < self.width
        self.frozen = _Depth()

    @abstractmethod
    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What is shared and the first state, from probabilities ``(R, W + G, D)``."""

    @abstractmethod
    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        """Scores ``(R, D)`` of the variable at ``carry.position``, given the token before it (None at the start)."""

    @abstractmethod
    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        """Scores ``(R, L, D)`` of the first L variables, each given the tokens ``(R, L)`` before it."""

    @property
    def dtype(self) -> torch.dtype | None:
        """The floating-point type of the parameters; None if there are none, and the belief decides."""
        return next((p.dtype for p in self.parameters()), None)

    def probs(self, belief: Belief, given: Tensor | None = None) -> Tensor:
        """The probabilities of a belief as rows ``(R, W + G, D)``, in the dtype of the model.

        Given values follow, as variables whose value is certain.
        """
        self.problem.require(belief, given=given)
        rows, most = math.prod(belief.batch_shape), max(self.seen)
        widest = belief.log_probs[..., : max(self.problem.world)]
        probs = widest.reshape(rows, *widest.shape[-2:]).exp()
        if given is not None:
            known = given.expand(*belief.batch_shape, -1).reshape(rows, given.shape[-1])
            wide = torch.nn.functional.pad(probs, (0, most - probs.shape[-1]))
            probs = torch.cat([wide, one_hot(known, most, probs.dtype)], 1)
        return probs if self.dtype is None else probs.to(self.dtype)

    def init(self, belief: Belief, given: Tensor | None = None) -> Carry:
        """The carry from which decoding starts; the batch of the belief is flattened to rows."""
        with without_autocast(belief.device):
            return Carry(0, *self.start(self.probs(belief, given)))

    def step(self, carry: Carry, token: Tensor | None = None) -> tuple[Tensor, Carry]:
        """log q(next value | tokens so far, P), ``(R, D)``, given the token ``(R,)`` that was chosen last."""
        if carry.position >= len(self.sizes):
            raise ProblemError(f"the sequence has {len(self.sizes)} tokens, there is no step after the last")
        with without_autocast(self.values.device):
            logits, carry = self._current().advance(carry, token)
        return log_softmax(logits, self.values[carry.position - 1] if self._ragged else None), carry

    def log_probs(
        self, belief: Belief, tokens: Tensor, pruner: Pruner | None = None, *, given: Tensor | None = None
    ) -> Tensor:
        """log q(v | tokens before, P) of every value at every position: ``(*batch, L, D)``, for ``(*batch, L)``."""
        tokens = self._checked(belief, tokens)
        flat = tokens.reshape(-1, tokens.shape[-1])
        with without_autocast(tokens.device):
            logits = self._current().scores(self.probs(belief, given), flat)
        allowed = self.values[: flat.shape[-1]].expand(logits.shape) if self._ragged else None
        if pruner is not None:
            known = pruner.masks(flat, self.width)
            allowed = known if allowed is None else known & allowed
        return log_softmax(logits, allowed).reshape(*tokens.shape, self.width)

    def log_prob(
        self, belief: Belief, tokens: Tensor, pruner: Pruner | None = None, *, given: Tensor | None = None
    ) -> Tensor:
        """log q(tokens | P), ``(*batch,)``, of the first L tokens ``(*batch, L)``, all positions in parallel.

        With L = Y this is log q(y | P), with L = Y + W it is log q(y, w | P). With a pruner, every factor is
        q_v s_v / (q · s) (dissertation, "Symbolic pruner").
        """
        log_probs = self.log_probs(belief, tokens, pruner, given=given)
        return pick(log_probs, tokens.expand(log_probs.shape[:-1])).sum(-1)

    def _current(self) -> InferenceModel:
        return fixed(self) if self.frozen.depth else self

    def require_explaining(self) -> None:
        """A ``ConfigError`` unless the model explains."""
        if not self.explains:
            raise ConfigError("the model predicts outputs only; make it with explain=True to have it explain them")

    def _checked(self, belief: Belief, tokens: Tensor) -> Tensor:
        length = tokens.shape[-1] if tokens.ndim else 0
        if tokens.dtype != torch.int64 or not 1 <= length <= len(self.sizes):
            wanted = f"int64 (*batch, L) with L from 1 to {len(self.sizes)}: {len(self.problem.output)} outputs, "
            wanted += f"then {len(self.problem.world)} world variables" if self.explains else "no explanation"
            raise ProblemError(f"tokens has {shown(tokens)}, expected {wanted}")
        if tokens.ndim > 1 and tuple(tokens.shape[:-1]) != belief.batch_shape:
            raise ProblemError(f"tokens has batch {tuple(tokens.shape[:-1])}, the belief has {belief.batch_shape}")
        return tokens.expand(*belief.batch_shape, length)


class _Depth(threading.local):
    """How often the current thread has frozen a model; each thread has its own number, and so has a copy."""

    depth = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _Depth, ()


@contextmanager
def frozen(model: InferenceModel) -> Iterator[None]:
    """Inside the block, and in this thread alone, the parameters of a model are constants; see ``fixed``."""
    model.frozen.depth += 1
    try:
        yield
    finally:
        model.frozen.depth -= 1


Module = TypeVar("Module", bound=nn.Module)


def fixed(module: Module) -> Module:
    """A module with the same parameters as constants; the module itself is left to other threads."""
    if torch._C._functorch.peek_interpreter_stack() is not None:  # torch.func differentiates what it is given
        return module
    replica = type(module).__new__(type(module))
    replica.__dict__.update(module.__dict__)
    own = {name: None if p is None else p.detach() for name, p in module._parameters.items()}
    parts = {name: None if part is None else fixed(part) for name, part in module._modules.items()}
    replica.__dict__.update(_parameters=own, _modules=parts)
    if isinstance(module, nn.RNNBase):
        replica.__dict__["_flat_weights"] = [own[name] for name in module._flat_weights_names]
    return replica


def dense(inputs: int, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """A plain network: ``layers`` hidden layers with ReLU, then a linear one."""
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Linear(inputs if i == 0 else hidden, hidden), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(hidden if layers else inputs, outputs))


def from_given(model: InferenceModel, width: int) -> nn.Linear | None:
    """A layer that adds what is given to every place of a model, if anything is."""
    problem = model.problem
    return nn.Linear(len(problem.given) * max(model.seen), width, bias=False) if problem.given else None
