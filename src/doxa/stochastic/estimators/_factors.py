"""Finite distributions as tables of independent factors, all that they can be, and joint distributions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Distribution, Independent, OneHotCategorical, constraints
from torch.nn.functional import logsigmoid, one_hot, pad

from doxa.errors import ConfigError

LARGEST_SUPPORT = 1 << 16
MOST_OUTCOMES = 1 << 18


@dataclass(frozen=True)
class Factors:
    """A distribution over R independent factors of C values each, in index form."""

    log_probs: Tensor  # (*batch, R, C), live
    value: Callable[[Tensor], Tensor]  # from indices (..., R) to what the distribution itself samples
    index: Callable[[Tensor], Tensor]  # and back
    soft: Callable[[Tensor], Tensor] | None  # from (..., R, C) weights to values, where these are vectors
    sizes: tuple[int, ...]
    event: tuple[int, ...]  # the shape of the factors in a value; its product is R

    @property
    def size(self) -> int:
        """The number of values of the whole distribution."""
        return prod(self.sizes)


def plain(distribution: Distribution) -> tuple[Distribution, int]:
    """The distribution inside of ``Independent``, and how many of its dimensions belong to the event."""
    inner = 0
    while isinstance(distribution, Independent):
        inner += distribution.reinterpreted_batch_ndims
        distribution = distribution.base_dist
    return distribution, inner


def parameters(distribution: Distribution) -> dict[str, Tensor]:
    """The floating-point parameters that a distribution was given, without computing others."""
    base, _ = plain(distribution)
    base = base._categorical if isinstance(base, OneHotCategorical) else base
    names = ("logits", "probs") if isinstance(base, Bernoulli | Categorical) else base.arg_constraints
    own = getattr(base, "_param", None)
    found = {name: base.__dict__.get(name) for name in names} | ({"logits": own} if isinstance(own, Tensor) else {})
    return {name: v for name, v in found.items() if isinstance(v, Tensor) and v.is_floating_point()}


def dtype_of(distribution: Distribution) -> torch.dtype:
    """The floating-point type of the parameters, which is that of its log-probabilities."""
    base, _ = plain(distribution)
    own = getattr(base, "dtype", None)
    if isinstance(own, torch.dtype):
        return own
    for name in ("logits", "probs") if isinstance(base, Bernoulli | Categorical) else base.arg_constraints:
        parameter = getattr(base, name, None)
        if isinstance(parameter, Tensor) and parameter.is_floating_point():
            return parameter.dtype
    return distribution.sample().dtype if distribution.has_rsample else torch.get_default_dtype()


def log_prob(distribution: Distribution, value: Tensor) -> Tensor:
    """log p(value), finite for infinite logits of Bernoulli variables too, where torch has inf − inf."""
    base, inner = plain(distribution)
    if not isinstance(base, Bernoulli):
        found: Tensor = distribution.log_prob(value)
        return found
    each = logsigmoid(base.logits * (2 * value - 1))
    return each.flatten(-inner).sum(-1) if inner else each


def mode(distribution: Distribution) -> Tensor:
    """The most probable value; of equal ones the first, where torch has NaN."""
    if has_factors(distribution):
        f = factors(distribution)
        return f.value(f.log_probs.argmax(-1))
    found: Tensor = distribution.mode
    return torch.where(found.isnan(), distribution.mean, found) if found.is_floating_point() else found


def clamped(logits: Tensor) -> Tensor:
    """Logits as finite numbers: beyond log ε of the smallest ε a value is certain, and nothing has a derivative."""
    most = -math.log(torch.finfo(logits.dtype).tiny)
    return logits.clamp(-most, most)


def has_factors(distribution: Distribution) -> bool:
    """Whether the distribution consists of independent finite factors."""
    own = getattr(distribution, "has_factors", None)
    if own is not None:
        return bool(own)
    return isinstance(plain(distribution)[0], Bernoulli | Categorical | OneHotCategorical)


def is_bernoulli(distribution: Distribution) -> bool:
    """Whether all factors are Bernoulli variables, with values 0.0 and 1.0."""
    return isinstance(plain(distribution)[0], Bernoulli)


def factors(distribution: Distribution, who: str = "this estimator") -> Factors:
    """The factors of a Bernoulli, Categorical or OneHotCategorical, plain, ``Independent`` or joint."""
    if not has_factors(distribution):
        wanted = "Bernoulli, Categorical or OneHotCategorical variables (also Independent or joint)"
        raise ConfigError(f"{who} needs {wanted}, got {type(plain(distribution)[0]).__name__}")
    own = getattr(distribution, "factors", None)
    if own is not None:
        found: Factors = own()
        return found
    base, inner = plain(distribution)
    assert isinstance(base, Bernoulli | Categorical | OneHotCategorical)
    shape = tuple(distribution.batch_shape)
    event = tuple(base.batch_shape[len(shape) :])
    logits, count = base.logits, prod(event)
    dtype = logits.dtype

    def shaped(index: Tensor) -> Tensor:
        return index.reshape((*index.shape[:-1], *event))

    def flat(value: Tensor) -> Tensor:
        return value.reshape((*value.shape[: value.dim() - inner], count))

    if isinstance(base, Bernoulli):
        logits = logits.reshape((*shape, count))
        log_probs = torch.stack([logsigmoid(-logits), logsigmoid(logits)], -1)
        value, index = lambda i: shaped(i).to(dtype), lambda v: flat(v).long()
        return Factors(log_probs, value, index, lambda s: shaped(s[..., 1]), (2,) * count, event)
    size = logits.shape[-1]
    log_probs = logits.reshape((*shape, count, size))
    if isinstance(base, Categorical):
        return Factors(log_probs, shaped, flat, None, (size,) * count, event)
    value, index = lambda i: one_hot(shaped(i), size).to(dtype), lambda v: flat(v.argmax(-1))
    return Factors(log_probs, value, index, lambda s: s.reshape((*s.shape[:-2], *event, size)), (size,) * count, event)


def all_indices(sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """Every combination of indices, (∏ sizes, R)."""
    grids = torch.meshgrid(*(torch.arange(s, device=device) for s in sizes), indexing="ij")
    return torch.stack([g.reshape(-1) for g in grids], -1)


def each_alone(x: Tensor, y: Tensor | int) -> Tensor:
    """(R, n, *batch, R): x (n, *batch, R), with entry r replaced by that of y in the r-th copy."""
    count = x.shape[-1]
    here = torch.eye(count, dtype=torch.bool, device=x.device).reshape(count, *(1,) * (x.dim() - 1), count)
    return torch.where(here, y, x)


def total_size(distribution: Distribution) -> int | None:
    """How many values a finite distribution has; ``None`` if it is not known to be finite."""
    if has_factors(distribution):
        return factors(distribution).size
    own = getattr(distribution, "size", None)
    if isinstance(own, int):
        return own
    if getattr(distribution, "has_enumerate_support", False) and not distribution.event_shape:
        try:
            return int(distribution.enumerate_support(expand=False).shape[0])
        except NotImplementedError:
            return None
    return None


def support(distribution: Distribution, who: str = "enumeration") -> Tensor:
    """Every value of a finite distribution, (S, *batch, *event)."""
    size = total_size(distribution)
    if size is None:
        raise ConfigError(f"{who} needs a finite distribution, got {type(plain(distribution)[0]).__name__}")
    if size > LARGEST_SUPPORT:
        most = f"{size} values, more than {LARGEST_SUPPORT}"
        raise ConfigError(f"{who} would go through {most}; sample them, by LeaveOneOut or UnorderedSet")
    own = getattr(distribution, "support_values", None)
    if own is not None:
        values: Tensor = own()
        return values
    if has_factors(distribution):
        f = factors(distribution)
        index = all_indices(f.sizes, f.log_probs.device)
        shape = tuple(distribution.batch_shape)
        index = index.reshape(len(index), *(1,) * len(shape), -1).expand(-1, *shape, -1)
        return f.value(index)
    listed: Tensor = distribution.enumerate_support()
    return listed


def broadcast(*shapes: tuple[int, ...]) -> torch.Size:
    """The shape that all of them broadcast to."""
    shape: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return shape


def repeat_batch(distribution: Distribution, count: int) -> Distribution:
    """The distribution with one more batch dimension in front."""
    wide: Distribution = distribution.expand(torch.Size((count, *distribution.batch_shape)))
    return wide


def combine(values: Tensor, log_probs: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """n independent draws from a list: from (S, *batch, *event) and (S, *batch) to (n, S^n, ...) and (S^n, *batch)."""
    index = all_indices((values.shape[0],) * n, values.device).T  # (n, S^n)
    return values[index], log_probs[index].sum(0).exp()


def independent_values(distribution: Distribution, n: int) -> tuple[Tensor, Tensor] | None:
    """All tuples of n independent samples of a finite distribution; ``None`` if too many."""
    size = total_size(distribution)
    if size is None or size**n > MOST_OUTCOMES:
        return None
    values = support(distribution)
    with torch.no_grad():
        found = log_prob(distribution, values).double()
        return combine(values, found.masked_fill(never_drawn(distribution, values), -math.inf), n)


def never_drawn(distribution: Distribution, values: Tensor) -> Tensor:
    """Which values were given a probability of exactly 0: torch never draws them, and has a finite log p for them."""
    base, inner = plain(distribution)
    given = parameters(distribution).get("probs")
    if isinstance(base, Bernoulli) and given is not None:
        probs = torch.where(values > 0, given, 1 - given)
    elif isinstance(base, Categorical) and given is not None:
        probs = given.expand(*values.shape, -1).gather(-1, values.unsqueeze(-1)).squeeze(-1)
    elif isinstance(base, OneHotCategorical) and given is not None:
        probs = (given * values).sum(-1)
    else:
        return torch.zeros((), dtype=torch.bool, device=values.device)
    return (probs == 0).flatten(-inner).any(-1) if inner else probs == 0


Entry = Distribution | Callable[..., Distribution]


class Joint(Distribution):
    """The joint distribution of several variables; its value holds all of them side by side.

    >>> from torch.distributions import Bernoulli, Categorical
    >>> joint = Joint([Bernoulli(torch.tensor(0.3)), lambda a: Categorical(torch.stack([1 + a, 2 - a], -1))])
    >>> a, b = joint.split(joint.sample((4,)))
    >>> joint.log_prob(torch.tensor([1.0, 0.0])).exp()              # 0.3 * 2/3
    tensor(0.2000)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    support = constraints.real_vector

    def __init__(self, entries: Sequence[Entry], batch_shape: Sequence[int] | None = None) -> None:
        if not entries:
            raise ConfigError("a joint distribution needs at least one entry")
        trial: list[Tensor] = []
        made: list[Distribution] = []
        with torch.no_grad():
            for entry in entries:
                made.append(entry if isinstance(entry, Distribution) else entry(*trial))
                trial.append(made[-1].sample())
        shape = broadcast(*(d.batch_shape for d in made)) if batch_shape is None else torch.Size(batch_shape)
        self.entries = [e.expand(shape) if isinstance(e, Distribution) else e for e in entries]
        self._events = [tuple(d.event_shape) for d in made]
        self._types = [t.dtype for t in trial]
        self.dtype = next((t for t in self._types if t.is_floating_point), torch.get_default_dtype())
        self._sizes = [total_size(d) for d in made]
        super().__init__(shape, torch.Size([sum(prod(e) for e in self._events)]), validate_args=False)

    def split(self, value: Tensor) -> tuple[Tensor, ...]:
        """The variables, each with its own event shape and type."""
        parts, start = [], 0
        for event, dtype in zip(self._events, self._types, strict=True):
            part = value[..., start : start + prod(event)]
            parts.append(part.reshape((*value.shape[:-1], *event)).to(dtype))
            start += prod(event)
        return tuple(parts)

    def _concatenate(self, parts: Sequence[Tensor]) -> Tensor:
        flat = [p.reshape((*p.shape[: p.dim() - len(e)], prod(e))) for p, e in zip(parts, self._events, strict=True)]
        lead = broadcast(*(f.shape[:-1] for f in flat))
        return torch.cat([f.expand(*lead, f.shape[-1]).to(self.dtype) for f in flat], -1)

    def _conditional(self, entry: Entry, parts: Sequence[Tensor]) -> Distribution:
        return entry if isinstance(entry, Distribution) else entry(*parts)

    def _ancestral(self, take: Callable[[Distribution], Tensor], shape: torch.Size) -> Tensor:
        parts: list[Tensor] = []
        for entry in self.entries:
            d = self._conditional(entry, parts)
            wanted = shape + self.batch_shape
            parts.append(take(d if d.batch_shape == wanted else d.expand(wanted)))
        return self._concatenate(parts)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            return self._ancestral(lambda d: d.sample(), torch.Size(sample_shape))

    @property
    def mode(self) -> Tensor:
        """The greedy value: each variable at its mode given the earlier ones."""
        return self._ancestral(mode, torch.Size())

    def log_prob(self, value: Tensor) -> Tensor:
        parts = self.split(value)
        total: Tensor | None = None
        for i, entry in enumerate(self.entries):
            term = log_prob(self._conditional(entry, parts[:i]), parts[i])
            total = term if total is None else total + term
        assert total is not None
        return total

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Joint:
        return Joint(self.entries, batch_shape)

    @property
    def size(self) -> int | None:
        """The number of values, if all entries are finite."""
        return None if any(s is None for s in self._sizes) else prod(s for s in self._sizes if s is not None)

    def support_values(self) -> Tensor:
        """Every value, (S, *batch, event)."""
        whole: list[Tensor] = []
        for entry in self.entries:
            d = self._conditional(entry, whole)
            lead = whole[0].shape[0] if whole else 1
            if d.batch_shape != torch.Size((lead, *self.batch_shape)):
                d = d.expand(torch.Size((lead, *self.batch_shape)))
            new = support(d)  # (S_i, lead, *batch, event)
            whole = [w.unsqueeze(0).expand(new.shape[0], *w.shape).flatten(0, 1) for w in whole]
            whole.append(new.flatten(0, 1))
        return self._concatenate(whole)

    @property
    def has_factors(self) -> bool:
        return all(isinstance(e, Distribution) and has_factors(e) for e in self.entries)

    def factors(self) -> Factors:
        """The factors of all entries, padded to the largest number of values."""
        all_of = [factors(e) for e in self.entries if isinstance(e, Distribution)]
        widest = max(f.log_probs.shape[-1] for f in all_of)
        tables = [pad(f.log_probs, (0, widest - f.log_probs.shape[-1]), value=float("-inf")) for f in all_of]
        counts = [f.log_probs.shape[-2] for f in all_of]

        def value(index: Tensor) -> Tensor:
            pieces = torch.split(index, counts, -1)
            return self._concatenate([f.value(i) for f, i in zip(all_of, pieces, strict=True)])

        def index(whole: Tensor) -> Tensor:
            return torch.cat([f.index(p) for f, p in zip(all_of, self.split(whole), strict=True)], -1)

        sizes = tuple(s for f in all_of for s in f.sizes)
        return Factors(torch.cat(tables, -2), value, index, None, sizes, (len(sizes),))


# Distributions taken apart into unconstrained parameters, and put together again.


def parameters_of(distribution: Distribution) -> dict[str, Tensor]:
    """The parameters as unconstrained numbers, live: logits, locations, and logarithms of positive ones."""
    if isinstance(distribution, Independent):
        return parameters_of(distribution.base_dist)
    if isinstance(distribution, Bernoulli | Categorical | OneHotCategorical):
        return {"logits": distribution.logits}
    if isinstance(distribution, Joint):
        entries = enumerate(_entries(distribution))
        return {f"{i} {k}": v for i, entry in entries for k, v in parameters_of(entry).items()}
    found: dict[str, Tensor] = {}
    for name, constraint in distribution.arg_constraints.items():
        value = getattr(distribution, name, None)
        if not isinstance(value, Tensor):
            continue
        if _positive(constraint):
            found[name] = value.log()
        elif constraint is constraints.real:
            found[name] = value
    if set(found) != set(distribution.arg_constraints):
        kind = type(distribution).__name__
        raise ConfigError(f"{kind} cannot be moved in its parameters, expected logits, or real or positive numbers")
    return found


def rebuilt(distribution: Distribution, parameters: dict[str, Tensor]) -> Distribution:
    """A distribution of the same family with other parameters; extra leading dimensions become batch dimensions."""
    if isinstance(distribution, Independent):
        return Independent(rebuilt(distribution.base_dist, parameters), distribution.reinterpreted_batch_ndims)
    if isinstance(distribution, Joint):
        own: list[dict[str, Tensor]] = [{} for _ in distribution.entries]
        for key, value in parameters.items():
            place, _, name = key.partition(" ")
            own[int(place)][name] = value
        return Joint([rebuilt(entry, part) for entry, part in zip(_entries(distribution), own, strict=True)])
    kind: Any = type(distribution)
    kinds = {} if "logits" in parameters else distribution.arg_constraints
    given = {name: value.exp() if _positive(kinds.get(name)) else value for name, value in parameters.items()}
    found: Distribution = kind(**given, validate_args=False)
    return found


def _entries(joint: Joint) -> list[Distribution]:
    found = [entry for entry in joint.entries if isinstance(entry, Distribution)]
    if len(found) < len(joint.entries):
        raise ConfigError("entries that are functions of earlier ones have no parameters to move; use LeaveOneOut")
    return found


def _positive(constraint: object) -> bool:
    kinds = (type(constraints.positive), type(constraints.nonnegative))
    return isinstance(constraint, kinds) and getattr(constraint, "lower_bound", None) == 0
