"""A model: knowledge, the networks that its symbols mean, and a way of reasoning."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, SatisfactionReport, load, parse, satisfaction
from doxa.semantics._explain import Explanation, explain
from doxa.semantics._learners import Learners, Learns
from doxa.semantics._predict import Prediction, predict
from doxa.semantics._refine import RefinedBeliefs, refine
from doxa.semantics._semantics import Compiled, Semantics
from doxa.semantics._weights import AxiomWeights

__all__ = ["AxiomLosses", "Model"]

Chosen = Semantics | Mapping[str, Semantics] | None
KEPT = 32
"""So many compiled semantics are kept, and the oldest are let go."""


class AxiomLosses(NamedTuple):
    """The loss of each axiom, its weight, and the weighted sum.

    >>> AxiomLosses(torch.tensor(1.0), torch.tensor([1.0]), torch.ones(1), ("rule",)).by_name()
    {'rule': tensor(1.)}
    """

    total: Tensor
    values: Tensor
    weights: Tensor
    names: tuple[str, ...]

    def by_name(self) -> dict[str, Tensor]:
        """The loss of each axiom by its name."""
        return dict(zip(self.names, self.values.unbind(), strict=True))


class Model(nn.Module):
    """Knowledge about networks: write it once, choose how to reason with it in one word.

    Args:
        kb: the knowledge, its text, or the file it is in.
        semantics: how to reason where a call does not say: one way for all axioms, or one for each by its name.
        symbols: what predicates, functions and constants mean, see :class:`doxa.Interpretation`.

    Data come by keyword, as the knowledge names them; ``semantics`` and ``generator`` are the two names that are not
    data. All networks are part of this module, so that optimisers, ``.to`` and ``state_dict`` find them. What inference
    models learn (:class:`doxa.Amortized`) is in ``state_dict`` too, but not among ``parameters()``: they train
    themselves.

    >>> import doxa
    >>> model = Model('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func digit(Image) -> Digit
    ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    ... ''', digit=doxa.logits(nn.Linear(4, 10)))
    >>> pairs = dict(left=torch.randn(8, 4), right=torch.randn(8, 4), sum=torch.arange(8))
    >>> for semantics in (doxa.Exact(), doxa.Fuzzy("product"), doxa.Sampled()):
    ...     model.loss(semantics=semantics, pairs=pairs).backward()
    """

    def __init__(self, kb: KnowledgeBase | str | Path, semantics: Chosen = None, /, **symbols: Any) -> None:
        super().__init__()
        self.kb = parse(kb) if isinstance(kb, str) else load(kb) if isinstance(kb, Path) else kb
        self.interpretation = Interpretation(self.kb, **symbols)
        self.weights = AxiomWeights(self.kb.axioms)
        self.inference = Learners()
        self.semantics = semantics
        self._compiled: dict[Any, Compiled] = {}
        if semantics is not None:
            self._groups(semantics)  # complains about names that are not axioms

    def losses(self, *, semantics: Chosen = None, generator: torch.Generator | None = None, **data: Any) -> AxiomLosses:
        """The loss of each axiom, and their sum with the weights of the axioms.

        Args:
            semantics: how to reason, here in place of the model's own.
            generator: draws what is sampled.
            data: objects of open sorts and rows, by name.
        """
        values = self._by_axiom(semantics, "losses", data, generator)
        weights = self.weights().to(values.dtype)
        return AxiomLosses(weights @ values, values, weights, self._names())

    def loss(self, *, semantics: Chosen = None, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        """The weighted sum of the losses of all axioms: one number to minimise, alone or beside other losses."""
        return self.losses(semantics=semantics, generator=generator, **data).total

    def forward(self, *, semantics: Chosen = None, generator: torch.Generator | None = None, **data: Any) -> Tensor:
        """The loss, so that a wrapper around the module (DDP, say) sees it."""
        return self.loss(semantics=semantics, generator=generator, **data)

    def truth(
        self, *, semantics: Chosen = None, generator: torch.Generator | None = None, **data: Any
    ) -> dict[str, Tensor]:
        """How true each axiom is, by name: a probability, a truth value, or 1 and 0.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> model.truth(semantics=doxa.Exact()), model.truth(semantics=doxa.Classical())
        ({'wet': tensor(0.3000)}, {'wet': tensor(0.)})
        """
        values = self._by_axiom(semantics, "truths", data, generator)
        return dict(zip(self._names(), values.unbind(), strict=True))

    def predict(
        self,
        target: str,
        /,
        *,
        values: Sequence[Any] | Tensor | None = None,
        semantics: Chosen = None,
        generator: torch.Generator | None = None,
        **data: Any,
    ) -> Prediction:
        """What a field of rows most likely is: the candidate for which the axioms that mention it are most true.

        For every row and candidate the truths of these axioms are multiplied, each as its semantics has it: a
        probability, a truth value, a share of samples, or true and false. Each network runs once for each object,
        however many candidates there are.

        Args:
            target: the rows and their field, such as "pairs.sum"; the data may have it or not, it is not looked at.
            values: the candidates. By default those of the field's finite sort; for numbers, the values that the term
                of an axiom ``term = p.sum`` can have.
            semantics: how to reason, here in place of the model's own.
            generator: draws what is sampled.
            data: objects of open sorts and rows, by name.

        >>> import doxa
        >>> model = Model('''
        ...     sort Image
        ...     sort Digit = 0..9
        ...     data pairs(left: Image, right: Image, sum: Int)
        ...     func digit(Image) -> Digit
        ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
        ... ''', doxa.Exact(), digit=doxa.probs(lambda image: image))
        >>> images = torch.eye(10)                                    # these images say which digit they are
        >>> found = model.predict("pairs.sum", pairs=dict(left=images[[3, 5]], right=images[[4, 9]]))
        >>> found.values, found.truths.shape
        (tensor([ 7, 14]), torch.Size([2, 19]))
        """
        return predict(self, target, values, semantics, generator, data)

    def explain(
        self,
        axiom: str | None = None,
        /,
        *,
        k: int = 3,
        semantics: Chosen = None,
        generator: torch.Generator | None = None,
        **data: Any,
    ) -> list[Explanation]:
        """Why an axiom may hold: for each of its rows the k most probable worlds, given that it does.

        A world says what each neural function and predicate is. The best worlds are found exactly where that is
        affordable (``Exact`` and ``Auto`` say how much that is), else, or under ``Sampled``, from samples;
        ``Explanation.how`` says which. Other semantics have no probabilities, and make no difference here.

        Args:
            axiom: its name; not needed where there is only one.
            k: how many worlds.
            semantics: how to reason, here in place of the model's own.
            generator: draws what is sampled.
            data: objects of open sorts and rows, by name.

        >>> import doxa
        >>> model = Model('''
        ...     sort Image
        ...     sort Digit = 0..9
        ...     data pairs(left: Image, right: Image, sum: Int)
        ...     func digit(Image) -> Digit
        ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
        ... ''', digit=doxa.probs(lambda image: image))
        >>> left, right = torch.zeros(2, 1, 10)
        >>> left[0, 4], left[0, 5], right[0, 8], right[0, 9] = 0.4, 0.6, 0.5, 0.5
        >>> print(model.explain("sum", k=2, pairs=dict(left=left, right=right, sum=torch.tensor([13])))[0])
        p = 0: 2 worlds (exact: the 2 most probable)
          0.60  digit(p.left) = 5, digit(p.right) = 8
          0.40  digit(p.left) = 4, digit(p.right) = 9
        """
        return explain(self, axiom, k, semantics, generator, data)

    def refine(
        self,
        *,
        logic: str = "godel",
        target: float | Mapping[str, float] = 1.0,
        steps: int | None = None,
        guarantee: Literal["sat"] | None = None,
        **data: Any,
    ) -> RefinedBeliefs:
        """Correct what the networks believe, by as little as makes the axioms true (:class:`doxa.refine.Refine`).

        All axioms are grounded over the data; a neural function has an atom for each of its values, exactly one of
        which holds. What is certain, such as a table, stays as it is.

        Args:
            logic: whose operators are refined: "godel", "lukasiewicz", "product", …
            target: the wanted truth of every axiom, or of each by its name.
            steps: a fixed number of passes, or None to go on until each target is reached or comes no nearer.
            guarantee: "sat" asks a solver for the nearest satisfying assignment where refinement falls short.
            data: objects of open sorts and rows, by name.

        >>> import doxa
        >>> model = Model("pred rain; pred wet; [soaked] rain -> wet", rain=doxa.probs(torch.tensor(0.9)),
        ...               wet=doxa.probs(torch.tensor(0.3)))
        >>> print(model.refine())
        everything holds
          wet   0.30 -> 1.00
        """
        return refine(self, logic, target, steps, guarantee, data)

    def satisfaction(
        self, *, examples: int = 3, generator: torch.Generator | None = None, **data: Any
    ) -> SatisfactionReport:
        """How far each axiom holds classically, with instances that violate it.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> model.satisfaction().satisfied
        False
        """
        return satisfaction(self.kb, self.interpretation, examples=examples, generator=generator, **data)

    def plan(self, *, semantics: Chosen = None, **data: Any) -> str:
        """What is computed for the data, axiom by axiom, and which independence is assumed.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> print(model.plan(semantics=doxa.Fuzzy("godel")).splitlines()[0])
        Fuzzy(logic='godel', chunk=4194304): wet
        """
        parts = []
        for chosen, numbers in self._groups(semantics):
            names = ", ".join(self.kb.axioms[i].name for i in numbers)
            parts.append(f"{chosen}: {names}\n{self._ready(chosen, numbers).explain(data)}")
        return "\n".join(parts)

    def blame(self, *, semantics: Chosen = None, generator: torch.Generator | None = None, **data: Any) -> str:
        """Which axiom and which symbol the first number that is not finite comes from.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.logits(lambda: torch.tensor(float("nan"))))
        >>> model.blame(semantics=doxa.Fuzzy())
        'what rain is bound to returned numbers that are not finite'
        """
        from doxa.semantics._blame import blame

        return blame(self, semantics, generator, data)

    def _names(self) -> tuple[str, ...]:
        return tuple([axiom.name for axiom in self.kb.axioms])

    def _by_axiom(self, semantics: Chosen, ask: str, data: Mapping[str, Any], generator: Any) -> Tensor:
        self._check_names(data)
        groups = self._groups(semantics)
        values = [getattr(self._ready(chosen, numbers), ask)(data, generator) for chosen, numbers in groups]
        if len(values) == 1:
            found: Tensor = values[0]
            return found
        if not values:
            return torch.zeros(0)
        order = torch.tensor([i for _, numbers in groups for i in numbers]).argsort()
        dtype = values[0].dtype
        return torch.cat([v.to(dtype) for v in values]).index_select(0, order.to(values[0].device))

    def _check_names(self, data: Mapping[str, Any]) -> None:
        """A misspelt option would be taken for data."""
        for name in [n for n in data if self.kb.signature.describe(n) is None]:
            if near := difflib.get_close_matches(name, ("semantics", "generator"), n=1, cutoff=0.75):
                raise ConfigError(f"there is no option and no data {name!r}; did you mean {near[0]}=...?")

    def _groups(self, semantics: Chosen) -> list[tuple[Semantics, tuple[int, ...]]]:
        """The axioms of each semantics."""
        chosen = self.semantics if semantics is None else semantics
        axioms = self.kb.axioms
        if chosen is None:
            raise ConfigError("say how to reason: loss(semantics=doxa.Exact(), ...), or Model(kb, doxa.Exact(), ...)")
        if not isinstance(chosen, Mapping):
            if isinstance(chosen, type) or not isinstance(chosen, Semantics):
                raise ConfigError(
                    f"semantics is {chosen!r}, expected Exact(), Fuzzy(...), Refined(), Sampled(...), Amortized(...), "
                    "Classical(), Auto(), or one of them for each axiom by its name"
                )
            return [(chosen, tuple(range(len(axioms))))] if axioms else []
        names = [axiom.name for axiom in axioms]
        if unknown := [name for name in chosen if name not in names]:
            raise ConfigError(f"semantics names {unknown[0]!r}, which is no axiom; the axioms are {', '.join(names)}")
        groups: dict[Any, tuple[Semantics, list[int]]] = {}
        for i, name in enumerate(names):
            own = chosen.get(name, None if isinstance(self.semantics, Mapping) else self.semantics)
            if own is None:
                raise ConfigError(f"no semantics is given for axiom {name!r}; name it too, or give the model a default")
            groups.setdefault(own, (own, []))[1].append(i)
        return [(own, tuple(numbers)) for own, numbers in groups.values()]

    def _ready(
        self, chosen: Semantics, numbers: tuple[int, ...], rewritten: tuple[Axiom, ...] = (), purpose: str = ""
    ) -> Compiled:
        """Some axioms, or what they were rewritten to for a purpose, ready for a semantics."""
        key = (chosen, numbers, purpose)
        found = self._compiled.get(key)
        if found is None:
            axioms = rewritten or tuple([self.kb.axioms[i] for i in numbers])
            found = chosen.compile(axioms, self.interpretation)
            if isinstance(found, Learns):
                found.adopt(self.inference)
            while len(self._compiled) >= KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = found
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": {}}  # plans are closures, and can be made again
