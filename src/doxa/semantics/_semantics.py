"""What every semantics is, and what it can be asked: by one thread at a time, for a model keeps plans and learns."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation
from doxa.problem import Budget, Impossible

__all__ = ["Compiled", "Reduction", "Semantics", "Turn", "one_at_a_time", "reduced", "require_mean"]

Reduction = Literal["mean", "sum", "none"]
Generator = torch.Generator | None
Data = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Semantics(ABC):
    """A way of reasoning with axioms: a small frozen object that compares by value, so that plans can be kept.

    Every semantics keeps the same contract (``docs/semantics.md``), and has these options besides its own:

    Args:
        quantifier: what the outermost ``forall`` of an axiom means for its loss: the "mean" of the losses of its
            instances, so that repeating all rows changes nothing; or the quantifier of the "logic": the loss is that of
            the axiom as a whole.
        impossible: what happens where an axiom cannot hold, whatever the networks say: "raise" an error that names the
            rows, an infinite loss ("inf"), or a "finite" one; its derivative is 0.
        budget: limits on what is computed, in entries and operations.

    >>> from doxa.semantics import Exact
    >>> isinstance(Exact(), Semantics), Exact() == Exact()
    (True, True)
    """

    caution: ClassVar[str] = ""
    """What a user should know before training with it."""

    quantifier: Literal["mean", "logic"] = "mean"
    impossible: Impossible = "raise"
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self._require_one_of(quantifier=("mean", "logic"), impossible=get_args(Impossible))

    def _require_one_of(self, **choices: Sequence[str]) -> None:
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} is {getattr(self, name)!r}, expected {' or '.join(map(repr, known))}")

    @abstractmethod
    def compile(self, axioms: Sequence[Axiom], interpretation: Interpretation) -> Compiled:
        """Make axioms ready for this way of reasoning."""

    def for_labels(self) -> Semantics:
        """How facts are judged: like axioms, but each on its own."""
        return replace(self, quantifier="mean")


class Compiled(ABC):
    """Axioms made ready for one way of reasoning.

    >>> import doxa, torch
    >>> model = doxa.Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
    >>> doxa.Exact().compile(model.kb.axioms, model.interpretation).truths({}, None)
    tensor([0.3000])
    """

    is_log: bool = True
    """Whether a loss is minus the logarithm of a truth; otherwise it is 1 minus a truth."""

    @abstractmethod
    def losses(self, data: Data, generator: Generator, reduction: Reduction) -> list[Tensor]:
        """For each axiom its loss: one number, or one for each instance, 0 for those that its guard excludes."""

    @abstractmethod
    def truths(self, data: Data, generator: Generator) -> Tensor:
        """How true each axiom is as a whole, from 0 to 1: a probability, a truth value, or true and false."""

    @abstractmethod
    def rows(self, data: Data, generator: Generator) -> list[Tensor]:
        """For each axiom, how true it is for each choice of the variables of its outermost ``forall``.

        The truth of ``forall p in pairs. ...`` has shape ``(rows,)``, with an axis for each further variable of that
        quantifier; that of an axiom that does not begin so has shape ``()``. What a guard excludes is true.
        """

    @abstractmethod
    def explain(self, data: Data) -> str:
        """What is computed, and under which assumptions."""

    def learn(self, data: Data, generator: Generator) -> int:
        """Let inference models learn, where there are any; how many updates they have made."""
        return 0


def reduced(each: Tensor, passes: Tensor | None, shape: tuple[int, ...], reduction: Reduction) -> Tensor:
    """The losses of instances ``(instances,)`` as one number, or laid out by variable; None where all of them count."""
    if passes is None:
        if reduction == "none":
            return each.reshape(shape)
        return each.sum() if reduction == "sum" or not len(each) else each.mean()
    passes = passes.to(each.device)
    kept = each.masked_fill(~passes, 0.0)
    if reduction == "none":
        return kept.reshape(shape)
    total = kept.sum()
    return total if reduction == "sum" else total / passes.sum().clamp(min=1).to(total.dtype)


def require_mean(reduction: Reduction) -> None:
    """Where the logic's quantifier puts the instances together, they have no losses of their own."""
    if reduction != "mean":
        raise ConfigError(
            f"reduction is {reduction!r}, but with quantifier='logic' an axiom has one loss as a whole; leave the "
            "reduction out, or say quantifier='mean'"
        )


class Turn:
    """Held by one thread at a time. A copy is another one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Turn, ()


def one_at_a_time(method: F) -> F:
    """A method that one thread at a time is in; ``torch.compile``, which cannot trace a lock, passes it by."""

    @wraps(method)
    def guarded(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.turn.lock:
            return method(self, *args, **kwargs)

    return cast(F, guarded)
