"""What a network believes about the world: one categorical distribution per world variable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from types import EllipsisType

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from doxa.errors import ProblemError
from doxa.problem._logspace import NEG_INF, at_row, capped_log, draw, is_traced, shown

Index = int | slice | EllipsisType | Tensor | None


@dataclass(frozen=True, eq=False, repr=False)
class Belief:
    """A belief P: independent categorical distributions over W world variables, for each row of a batch.

        p(w | P) = ∏_i P[i, w_i]                                 (dissertation, chapter 6, "Problem setup")

    Variables may have domains of different size. The log-probabilities are padded to one tensor, with -inf where a
    value does not exist; a Boolean variable is a domain of two values, 0 for false and 1 for true. A probability of
    exactly 0 is allowed and is -inf too, so ``sizes`` says which values exist. Gradients stay finite throughout.

    This constructor takes log-probabilities that are padded already. ``from_logits``, ``from_probs``,
    ``from_log_probs`` and ``from_bernoulli`` build a belief from what networks return.

    Args:
        log_probs: ``(*batch, W, D)``, floating point.
        sizes: the number of values of each variable, at most D; by default all D.
        validate: look at the values (normalised, -inf where no value exists). Turn it off where they are known to
            be right; under ``torch.compile`` and ``torch.func`` it is off by itself.

    >>> belief = Belief.from_logits([torch.zeros(2), torch.zeros(5)])        # one coin, one five-sided die
    >>> belief
    Belief(batch=(), sizes=(2, 5), dtype=torch.float32)
    >>> belief.probs
    tensor([[0.5000, 0.5000, 0.0000, 0.0000, 0.0000],
            [0.2000, 0.2000, 0.2000, 0.2000, 0.2000]])
    >>> belief.log_prob(torch.tensor([1, 4])).exp()
    tensor(0.1000)
    """

    log_probs: Tensor
    sizes: tuple[int, ...] = ()
    validate: InitVar[bool] = True

    def __post_init__(self, validate: bool) -> None:
        came: object = self.log_probs
        if not isinstance(came, Tensor):
            raise ProblemError(f"log_probs is a {type(came).__name__}, expected a tensor (*batch, W, D)")
        if not self.log_probs.dtype.is_floating_point:
            raise ProblemError(f"log_probs has dtype {self.log_probs.dtype}, expected floating point")
        object.__setattr__(self, "sizes", _fitting("log_probs", self.log_probs, self.sizes))
        if validate and not is_traced(self.log_probs):
            self._check_values()

    def _check_values(self) -> None:
        log_probs = self.log_probs.detach()
        if self._ragged and (log_probs[..., ~self.mask] != NEG_INF).any():
            raise ProblemError(f"log_probs must be -inf for values that do not exist; the sizes are {self.sizes}")
        bad = ~(log_probs.logsumexp(-1).abs() <= tolerance(log_probs.dtype))
        wanted = "numbers that sum to 1; use Belief.from_logits to normalise"
        _refuse("probabilities", bad, log_probs.exp, wanted)

    @classmethod
    def from_logits(
        cls, logits: Tensor | Sequence[Tensor], sizes: Sequence[int] = (), *, validate: bool = True
    ) -> Belief:
        """A belief from unnormalised log-probabilities: log P = log softmax(logits).

        Args:
            logits: ``(*batch, W, D)``, or one tensor ``(*batch, D_i)`` for each variable. -inf rules a value out.
            sizes: for one tensor with domains of different size; logits beyond them are ignored.
            validate: refuse logits that do not make a distribution (NaN, +inf, all -inf).

        >>> Belief.from_logits(torch.zeros(3, 2, 4), sizes=(2, 4)).probs[0]
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.2500, 0.2500, 0.2500, 0.2500]])
        """
        padded, sizes = _padded("logits", logits, sizes, NEG_INF)
        belief = cls(padded.log_softmax(-1), sizes, validate=False)
        # A distribution is normalised by construction, or else not a number.
        if validate and not is_traced(padded):
            bad = belief.log_probs.detach().isnan().any(-1)
            _refuse("logits", bad, padded.detach, "numbers below +inf, not all of them -inf")
        return belief

    @classmethod
    def from_log_probs(
        cls, log_probs: Tensor | Sequence[Tensor], sizes: Sequence[int] = (), *, validate: bool = True
    ) -> Belief:
        """A belief from normalised log-probabilities, shaped as in ``from_logits``.

        >>> Belief.from_log_probs([torch.tensor([0.25, 0.75]).log(), torch.zeros(1)]).probs
        tensor([[0.2500, 0.7500],
                [1.0000, 0.0000]])
        """
        padded, sizes = _padded("log_probs", log_probs, sizes, NEG_INF)
        return cls(padded, sizes, validate=validate)

    @classmethod
    def from_probs(
        cls, probs: Tensor | Sequence[Tensor], sizes: Sequence[int] = (), *, eps: float = 0.0, validate: bool = True
    ) -> Belief:
        """A belief from probabilities, shaped as in ``from_logits``; each variable's must sum to 1.

        The value is log max(p, eps) and its derivative 1 / max(p, eps, smallest normal number). By default a
        probability of 0 is kept: such a value is impossible and gets no gradient from a reasoner. With ``eps > 0`` it
        is merely unlikely, and its gradient is the true one.

        >>> Belief.from_probs(torch.tensor([[1.0, 0.0]])).log_probs
        tensor([[0., -inf]])
        """
        padded, sizes = _padded("probs", probs, sizes, 0.0)
        if validate and not is_traced(padded):
            given = padded.detach()
            bad = ~((given >= 0).all(-1) & ((given.sum(-1) - 1).abs() <= tolerance(given.dtype)))
            _refuse("probabilities", bad, padded.detach, "numbers from 0 to 1 that sum to 1")
        log_probs = capped_log(padded, eps)
        if min(sizes) < padded.shape[-1]:
            log_probs = log_probs.masked_fill(~_mask(sizes, padded), NEG_INF)
        return cls(log_probs, sizes, validate=False)

    @classmethod
    def from_bernoulli(
        cls, *, probs: Tensor | None = None, logits: Tensor | None = None, eps: float = 0.0, validate: bool = True
    ) -> Belief:
        """A belief over Boolean variables, from the probability of *true* or from its logit (exactly one of them).

        Args:
            probs: ``(*batch, W)`` in [0, 1].
            logits: ``(*batch, W)``; P(true) = sigmoid(logit).
            eps: for ``probs``, as in ``from_probs``.
            validate: refuse numbers outside [0, 1] and NaN.

        >>> Belief.from_bernoulli(probs=torch.tensor([0.25, 1.0])).probs
        tensor([[0.7500, 0.2500],
                [0.0000, 1.0000]])
        """
        if (probs is None) == (logits is None):
            raise ProblemError("from_bernoulli takes either probs or logits, exactly one of them")
        given = as_floating("probs" if logits is None else "logits", probs if logits is None else logits)
        if validate and not is_traced(given):
            values = given.detach()
            bad = values.isnan() if logits is not None else ~((values >= 0) & (values <= 1))
            _refuse("", bad, given.detach, "a number" if logits is not None else "a number from 0 to 1")
        if logits is not None:
            pair = logsigmoid(-given), logsigmoid(given)
        else:
            pair = capped_log(1 - given, eps), capped_log(given, eps)
        return cls(torch.stack(pair, -1), validate=False)

    @classmethod
    def uniform(
        cls,
        sizes: Sequence[int],
        batch: Sequence[int] = (),
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Belief:
        """The belief that knows nothing.

        >>> Belief.uniform((2, 4)).probs
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.2500, 0.2500, 0.2500, 0.2500]])
        """
        logits = torch.zeros(*batch, len(sizes), max(sizes, default=0), dtype=dtype, device=device)
        return cls.from_logits(logits, sizes, validate=False)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The axes before the variables."""
        return tuple(self.log_probs.shape[:-2])

    @property
    def dtype(self) -> torch.dtype:
        """The precision."""
        return self.log_probs.dtype

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.log_probs.device

    @property
    def mask(self) -> Tensor:
        """Bool ``(W, D)``: which values exist."""
        return _mask(self.sizes, self.log_probs)

    @property
    def probs(self) -> Tensor:
        """``(*batch, W, D)``: the probabilities, 0 where a value does not exist."""
        return self.log_probs.exp()

    @property
    def _ragged(self) -> bool:
        return min(self.sizes) < self.log_probs.shape[-1]

    def _like(self, log_probs: Tensor) -> Belief:
        return Belief(log_probs, self.sizes, validate=False)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Belief:
        """Index the batch axes, as with a tensor.

        >>> Belief.uniform((2, 3), batch=(4, 5))[0, 1:3]
        Belief(batch=(2,), sizes=(2, 3), dtype=torch.float32)
        """
        return self._like(take(self.log_probs, index, 2))

    def expand(self, *batch: int) -> Belief:
        """The same belief for more rows, as with a tensor.

        >>> Belief.uniform((2, 3)).expand(4, 5)
        Belief(batch=(4, 5), sizes=(2, 3), dtype=torch.float32)
        """
        return self._like(self.log_probs.expand(*batch, *self.log_probs.shape[-2:]))

    def to(self, target: torch.device | str | torch.dtype) -> Belief:
        """The same belief on another device or in another dtype.

        >>> Belief.uniform((2,)).to(torch.float64)
        Belief(batch=(), sizes=(2,), dtype=torch.float64)
        """
        return self._like(self.log_probs.to(target))

    def detach(self) -> Belief:
        """The same belief, cut from the graph that computed it.

        >>> Belief.from_logits(torch.zeros(1, 2, requires_grad=True)).detach().log_probs.requires_grad
        False
        """
        return self._like(self.log_probs.detach())

    def _clone(self) -> Belief:
        return self._like(self.log_probs.clone())

    def log_prob(self, worlds: Tensor) -> Tensor:
        """log p(w | P) = Σ_i log P[i, w_i].

        Args:
            worlds: int64 ``(*sample, *batch, W)``.

        Returns:
            ``(*sample, *batch)``.

        >>> belief = Belief.from_bernoulli(probs=torch.tensor([0.5, 0.8]))
        >>> belief.log_prob(torch.tensor([[0, 0], [1, 1]])).exp()
        tensor([0.1000, 0.4000])
        """
        require_worlds(worlds, self.batch_shape, self.sizes)
        return self._gather(worlds)

    def _gather(self, worlds: Tensor) -> Tensor:
        """``log_prob`` of worlds that are known to fit."""
        table = self.log_probs.expand(*worlds.shape, -1)
        return table.gather(-1, worlds.unsqueeze(-1)).squeeze(-1).sum(-1)

    def sample(self, count: int = 1, *, generator: torch.Generator | None = None) -> Tensor:
        """Worlds drawn from the belief: int64 ``(count, *batch, W)``; not differentiable.

        >>> Belief.from_bernoulli(probs=torch.tensor([0.0, 1.0])).sample(2)
        tensor([[0, 1],
                [0, 1]])
        """
        return draw(self.probs, count, generator)

    def mode(self) -> Tensor:
        """The most probable world, int64 ``(*batch, W)``; of equal values the smallest.

        >>> Belief.from_bernoulli(probs=torch.tensor([0.4, 0.5, 0.6])).mode()
        tensor([0, 0, 1])
        """
        return self.log_probs.argmax(-1)

    def entropy(self) -> Tensor:
        """-Σ_w p(w | P) log p(w | P) in nats, ``(*batch,)``: the sum of the entropies of the variables.

        >>> Belief.uniform((2, 4)).entropy() / torch.tensor(2.0).log()
        tensor(3.)
        """
        finite = self.log_probs.masked_fill(self.log_probs == NEG_INF, 0.0)  # 0 log 0 = 0
        return -(self.probs * finite).sum((-1, -2))

    def __repr__(self) -> str:
        return f"Belief(batch={self.batch_shape}, sizes={self.sizes}, dtype={self.log_probs.dtype})"


class NoSuchRow(ProblemError, IndexError):
    """An index that a batch does not have; being an ``IndexError`` too, it ends a loop over the rows."""


def take(x: Tensor, index: Index | tuple[Index, ...], after: int) -> Tensor:
    """Index the batch axes of a tensor, after which there are so many others."""
    key = index if isinstance(index, tuple) else (index,)
    key = key if any(part is Ellipsis for part in key) else (*key, Ellipsis)
    try:
        return x[(*key, *[slice(None)] * after)]
    except (IndexError, TypeError) as error:
        batch = tuple(x.shape[: x.ndim - after])
        if not batch:
            wanted = "there is one row, and no axis to index; say [None] for a batch of one"
            raise ProblemError(f"{index!r} indexes a belief without a batch: {wanted}") from None
        raise NoSuchRow(f"{index!r} does not index a batch of shape {batch}: {error}") from None


def require_worlds(worlds: Tensor, batch: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """A ``ProblemError`` unless these are worlds, int64 ``(*sample, *batch, W)`` with values in range."""
    expected = (*batch, len(sizes))
    if worlds.dtype != torch.int64 or tuple(worlds.shape[worlds.ndim - len(expected) :]) != expected:
        wanted = f"int64 (*sample, {', '.join(map(str, expected))})"
        raise ProblemError(f"worlds has {shown(worlds)}, expected {wanted}")
    if not is_traced(worlds):
        bad = (worlds < 0) | (worlds >= torch.tensor(sizes, device=worlds.device))
        if bad.any():
            place = tuple(bad.nonzero()[0].tolist())
            got, most = worlds[place].item(), sizes[place[-1]] - 1
            raise ProblemError(f"worlds{list(place)} is {got}, expected a value from 0 to {most}")


def _refuse(what: str, bad: Tensor, values: Callable[[], Tensor], expected: str) -> None:
    """A ``ProblemError`` that names the first bad variable ``(*batch, W)``, if there is one."""
    if bad.any():
        *row, variable = bad.nonzero()[0].tolist()
        got = values()[(*row, variable)].tolist()
        where = f"variable {variable}{at_row(row)}"
        came = f"the {what} of {where} are {got}" if what else f"{where} has {got}"
        raise ProblemError(f"{came}, expected {expected}")


def tolerance(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps ** 0.5)


def _mask(sizes: Sequence[int], like: Tensor) -> Tensor:
    return torch.arange(like.shape[-1], device=like.device) < torch.tensor(sizes, device=like.device).unsqueeze(-1)


def as_floating(name: str, x: Tensor | None) -> Tensor:
    """``x`` in at least single precision: half precision is too coarse for long products."""
    if not isinstance(x, Tensor) or not x.dtype.is_floating_point:
        raise ProblemError(f"{name} is of {shown(x)}, expected a floating-point tensor")
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _fitting(name: str, x: Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of the domains, by default all of full width; an error when they do not fit ``x``."""
    shape = tuple(x.shape)
    if len(shape) < 2 or 0 in shape[-2:]:
        wanted = "(*batch, variables, values), at least one variable and value; say unsqueeze(-2) for one variable"
        raise ProblemError(f"{name} has shape {shape}, expected {wanted}")
    fitting = tuple(sizes) or (shape[-1],) * shape[-2]
    if len(fitting) != shape[-2] or not all(1 <= size <= shape[-1] for size in fitting):
        wanted = f"expected {shape[-2]} sizes from 1 to {shape[-1]}"
        raise ProblemError(f"sizes {fitting} do not fit {name} of shape {shape}: {wanted}")
    return fitting


def _padded(
    name: str, given: Tensor | Sequence[Tensor], sizes: Sequence[int], fill: float
) -> tuple[Tensor, tuple[int, ...]]:
    """One tensor ``(*batch, W, D)`` with ``fill`` where a value does not exist, and the sizes of the domains."""
    if isinstance(given, Tensor):
        x = as_floating(name, given)
        fitting = _fitting(name, x, sizes)
        if min(fitting) < x.shape[-1]:
            x = x.masked_fill(~_mask(fitting, x), fill)
        return x, fitting
    parts = [as_floating(f"{name}[{i}]", part) for i, part in enumerate(given)]
    if not parts:
        raise ProblemError(f"{name} is an empty list, expected one tensor per variable")
    if sizes:
        raise ProblemError(f"{name} is a list, which says the sizes itself; drop sizes={tuple(sizes)}")
    if any(part.ndim == 0 or part.shape[:-1] != parts[0].shape[:-1] for part in parts):
        shapes = [tuple(part.shape) for part in parts]
        raise ProblemError(f"{name} has shapes {shapes}, expected (*batch, values) with one and the same batch")
    width = max(part.shape[-1] for part in parts)
    columns = [pad(part, (0, width - part.shape[-1]), value=fill) for part in parts]
    return torch.stack(columns, -2), tuple(part.shape[-1] for part in parts)
