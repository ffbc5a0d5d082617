"""What every semantics is, and what it can be asked: by one thread at a time, for a model keeps plans and learns."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation
from doxa.problem import Budget, Impossible

Reduction = Literal["mean", "sum", "none"]
Generator = torch.Generator | None
Data = Mapping[str, Any]
Combine = Literal["sum", "joint"] | Callable[[Tensor], Tensor]
F = TypeVar("F", bound=Callable[..., Any])
WORDS = ("classical", "fuzzy", "refined", "exact", "sampled", "amortized", "auto")
OPTIONS = ("semantics", "generator", "reduction", "combine")
"""Names in a call that are not data."""
_TAKE_ARGUMENT = ("fuzzy", "refined", "amortized")


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


def no_loss() -> ConfigError:
    """The error for a loss that is asked for."""
    return ConfigError(
        "classical truth has no derivative to learn from; choose Exact(), Fuzzy(...), Refined(), Sampled(...) or "
        "Amortized(...) for the loss, and Classical() to judge what was learned"
    )


def locked(method: F) -> F:
    """A method that holds ``self.lock``; ``torch.compile``, which cannot trace a lock, passes it by."""

    @wraps(method)
    def guarded(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(self, *args, **kwargs)
        with self.lock.held:
            return method(self, *args, **kwargs)

    return cast(F, guarded)


Chosen = str | Semantics | Mapping[str, str | Semantics] | None


def semantics(word: str | Semantics) -> Semantics:
    """The semantics that a word stands for; after a colon may stand its first argument.

    >>> semantics("exact"), semantics("refined:product").logic
    (Exact(quantifier='mean', impossible='raise', budget=Budget(...)), 'product')
    """
    if isinstance(word, Semantics):
        return word
    name, _, argument = word.partition(":") if isinstance(word, str) else (word, "", "")
    if name not in WORDS or (argument and name not in _TAKE_ARGUMENT):
        near = difflib.get_close_matches(str(name), WORDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near and near[0] != name else ""
        if name in WORDS:
            hint = f"only {', '.join(_TAKE_ARGUMENT)} take something after the colon, such as fuzzy:godel; "
        raise ConfigError(
            f"there is no semantics {word!r}; {hint}expected one of {', '.join(WORDS)}, or an object such as "
            "doxa.Exact()"
        )
    found = getattr(import_module(f"doxa.semantics._{name}"), name.capitalize())
    made: Semantics = found(argument) if argument else found()
    return made


def check_options(known: Collection[str], reduction: Any, combine: Any, data: Mapping[str, Any]) -> None:
    """Refuse what is no option, and options that are misspelt and would pass for data."""
    if reduction not in ("mean", "sum", "none"):
        raise ConfigError(f"reduction is {reduction!r}, expected 'mean', 'sum' or 'none'")
    if not callable(combine) and combine not in ("sum", "joint"):
        raise ConfigError(f"combine is {combine!r}, expected 'sum', 'joint' or an aggregator of doxa.fuzzy")
    for name in [n for n in data if n not in known]:  # misspelt, it would pass for data
        if name in ("quantifier", "impossible", "budget"):
            raise ConfigError(f"{name} is an option of the semantics: semantics=doxa.Exact({name}=...)")
        if near := difflib.get_close_matches(name, OPTIONS, n=1, cutoff=0.75):
            raise ConfigError(f"there is no option and no data {name!r}; did you mean {near[0]}=...?")
