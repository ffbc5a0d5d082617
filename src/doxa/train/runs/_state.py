"""Whatever has a state: how it is taken, and how it is given back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from doxa.errors import RunError


@runtime_checkable
class HasState(Protocol):
    """Modules, optimisers, schedulers, batches: anything with the two methods."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


#: What may go into a checkpoint. A plain dict is kept as it is and refilled on resuming: for counters of your own.
Stateful: TypeAlias = "HasState | torch.Generator | np.random.Generator | dict[str, Any]"


class GlobalRandom:
    """The global random states of torch (CPU), NumPy and Python, to be put among the state of a run.

    Dropout and ``torch.rand`` without a generator draw from torch's global state; a run that uses them resumes exactly
    only if this is part of its state. Nothing is seeded here.

    >>> randomness = GlobalRandom()
    >>> saved = randomness.state_dict()
    >>> first = torch.rand(3)
    >>> randomness.load_state_dict(saved)
    >>> torch.equal(first, torch.rand(3))
    True
    """

    def state_dict(self) -> dict[str, Any]:
        """The three states as a tree of numbers and tensors."""
        return {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(legacy=False),  # noqa: NPY002
            "python": random.getstate(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the three states."""
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])  # noqa: NPY002
        random.setstate(state["python"])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch (CPU), NumPy and Python; at the end they are as they were before.

    >>> with seeded(1):
    ...     first = torch.rand(3), np.random.rand(), random.random()
    >>> with seeded(1):
    ...     again = torch.rand(3), np.random.rand(), random.random()
    >>> torch.equal(first[0], again[0]), first[1:] == again[1:]
    (True, True)
    """
    caller = GlobalRandom()
    before = caller.state_dict()
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        caller.load_state_dict(before)


def capture(objects: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of every object, by name."""
    return {name: _get(name, thing) for name, thing in objects.items()}


def restore(objects: Mapping[str, Stateful], states: Mapping[str, Any], source: str) -> None:
    """Give every object its state back; the names must be those that were captured."""
    if set(objects) != set(states):
        raise RunError(
            f"{source} holds the state of {sorted(states)}, but the state given now is of {sorted(objects)}; "
            "pass objects under the same names as when it was written"
        )
    for name, thing in objects.items():
        try:
            _set(thing, states[name])
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise RunError(
                f"{name} cannot take its state from {source}: {reason}; build it as it was when that was written"
            ) from error


def non_finite_parameter(objects: Mapping[str, Stateful]) -> str | None:
    """The name of a parameter that holds nan or an infinity, if there is one. (Buffers may: masks do.)"""
    for name, thing in objects.items():
        if isinstance(thing, nn.Module):
            for key, parameter in thing.named_parameters():
                if not bool(torch.isfinite(parameter).all()):
                    return f"{name}.{key}"
    return None


def _get(name: str, thing: Stateful) -> Any:
    if isinstance(thing, torch.Generator):
        return thing.get_state()
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    if type(thing) is dict:
        return thing
    if isinstance(thing, HasState):
        return thing.state_dict()
    raise RunError(
        f"state[{name!r}] is a {type(thing).__name__}, wanted a torch or NumPy generator, a dict, or something with "
        "state_dict() and load_state_dict()"
    )


def _set(thing: Stateful, state: Any) -> None:
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    elif isinstance(thing, np.random.Generator):
        thing.bit_generator.state = state
    elif isinstance(thing, dict):
        thing.clear()
        thing.update(state)
    else:
        thing.load_state_dict(state)
        if isinstance(thing, torch.optim.Optimizer):
            _restore_tensors(thing, state)


def _restore_tensors(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Give the tensors of an optimiser the dtype and the order in memory that they had.

    `Optimizer.load_state_dict` casts them to the dtype of their parameter: NAdam with float64 parameters, say, keeps a
    float32 product of momenta, and as float64 it would go on differently. Files hold tensors row by row, but those
    of a parameter in channels_last lie as it does, and fused optimisers rely on that.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, value in state["state"].get(number, {}).items():
            now = optimizer.state[parameter].get(key)
            if not isinstance(value, Tensor) or not isinstance(now, Tensor):
                continue
            if now.dtype != value.dtype:
                now = optimizer.state[parameter][key] = value.to(now.device)
            if now.shape == parameter.shape and now.stride() != parameter.stride():
                optimizer.state[parameter][key] = torch.empty_like(parameter, dtype=now.dtype).copy_(now)
