"""Several variables as one distribution, each of which may depend on the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor
from torch.distributions import Distribution

from doxa.errors import ConfigError
from doxa.stochastic.estimators._factors import (
    Factors,
    broadcast,
    factors,
    has_factors,
    log_prob,
    mode,
    support,
    total_size,
)

Entry = Distribution | Callable[..., Distribution]


class Joint(Distribution):
    """The joint distribution of several variables; its value holds all of them side by side.

    >>> from torch.distributions import Bernoulli, Categorical
    >>> joint = Joint([Bernoulli(torch.tensor(0.3)), lambda a: Categorical(torch.stack([1 + a, 2 - a], -1))])
    >>> a, b = joint.split(joint.sample((4,)))
    >>> joint.log_prob(torch.tensor([1.0, 0.0])).exp()              # 0.3 * 2/3
    tensor(0.2000)
    """

    arg_constraints: dict[str, torch.distributions.constraints.Constraint] = {}  # noqa: RUF012
    support = torch.distributions.constraints.real_vector

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
        tables = [
            torch.nn.functional.pad(f.log_probs, (0, widest - f.log_probs.shape[-1]), value=float("-inf"))
            for f in all_of
        ]
        counts = [f.log_probs.shape[-2] for f in all_of]

        def value(index: Tensor) -> Tensor:
            pieces = torch.split(index, counts, -1)
            return self._concatenate([f.value(i) for f, i in zip(all_of, pieces, strict=True)])

        def index(whole: Tensor) -> Tensor:
            return torch.cat([f.index(p) for f, p in zip(all_of, self.split(whole), strict=True)], -1)

        sizes = tuple(s for f in all_of for s in f.sizes)
        return Factors(torch.cat(tables, -2), value, index, None, sizes, (len(sizes),))
