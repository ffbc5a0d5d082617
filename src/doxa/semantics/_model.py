"""A model: knowledge, the networks that its symbols mean, and a way of reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from doxa._cache import Cache, Lock
from doxa._html import Said, ShownModule
from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation, KnowledgeBase, SatisfactionReport, load, parse, satisfaction
from doxa.logic.syntax._display import statements_box
from doxa.problem._logspace import is_traced
from doxa.semantics import _semantics
from doxa.semantics._combine import AxiomLosses, AxiomWeights, fact_rows, joint_axiom, row_by_row, together
from doxa.semantics._learners import Learners
from doxa.semantics._semantics import Chosen, Combine, Compiled, Generator, Reduction, Semantics, check_options, locked

if TYPE_CHECKING:
    from doxa.semantics._diversity import Diversity
    from doxa.semantics._predict import Prediction
    from doxa.semantics._refine import RefinedBeliefs
    from doxa.semantics._worlds import Explanations, KnowledgeLayer

COMPILED = 32
"""Cache size."""


class Model(ShownModule, nn.Module):
    """Knowledge about networks: write it once, choose how to reason with it in one word.

    Args:
        kb: the knowledge, its text, or the file it is in.
        semantics: how to reason where a call does not say: one way for all axioms, or one for each by its name. A word
            such as "exact" stands for ``Exact()``.
        symbols: what predicates, functions and constants mean, see :class:`doxa.Interpretation`.

    Data, the objects of open sorts and rows, come by keyword, as the knowledge names them. Beside them every method
    takes ``semantics``, how to reason in place of the model's own, and ``generator``, which draws what is sampled;
    ``reduction`` and ``combine`` are no names for data either. All networks are part of this module, so that
    optimisers, ``.to`` and ``state_dict`` find them. What inference models learn (:class:`doxa.Amortized`) is in
    ``state_dict`` too, but not among ``parameters()``: they learn in :meth:`inference_step`.

    The same call with the same data and generator state gives the same number, and changes nothing else. Several
    threads may use one model; they take turns.

    >>> import doxa
    >>> model = Model('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func digit(Image) -> Digit
    ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    ... ''', digit=doxa.logits(nn.Linear(4, 10)))
    >>> pairs = dict(left=torch.randn(8, 4), right=torch.randn(8, 4), sum=torch.arange(8))
    >>> for semantics in ("exact", "fuzzy", doxa.Sampled()):
    ...     model.loss(semantics=semantics, pairs=pairs).backward()
    """

    def __init__(self, kb: KnowledgeBase | str | Path, semantics: Chosen = None, /, **symbols: Any) -> None:
        super().__init__()
        self.kb = parse(kb) if isinstance(kb, str) else load(kb) if isinstance(kb, Path) else kb
        for name in _semantics.OPTIONS:
            if self.kb.signature.describe(name) is not None:
                raise ConfigError(
                    f"{name} is {self.kb.signature.describe(name)}, but Model.loss({name}=...) is an option; rename it"
                )
        self.interpretation = Interpretation(self.kb, **symbols)
        self.weights = AxiomWeights(self.kb.axioms)
        self.inference = Learners()
        self.semantics = semantics
        self.lock = Lock()
        self._compiled: Cache[Any, Compiled] = Cache(COMPILED)
        self._facts = fact_rows(self.kb)
        self._names = frozenset(self.kb.signature.names())
        self._words: dict[str, Semantics] = {}
        if semantics is not None:
            self._groups(semantics)  # complains about names that are not axioms

    @locked
    def losses(
        self,
        *,
        semantics: Chosen = None,
        reduction: Reduction = "mean",
        combine: Combine = "sum",
        generator: Generator = None,
        **data: Any,
    ) -> AxiomLosses:
        """The loss of each axiom, and of all of them together.

        Losses are at least 0, and 0 wherever an axiom certainly holds. An instance of an axiom is a choice of the
        variables of its outermost ``forall``.

        Args:
            reduction: the "mean" of the losses of the instances of an axiom, their "sum", or "none" to have them all.
            combine: how axioms are put together: the weighted "sum" of their losses; "joint", minus the logarithm of
                the probability that all hold together (of each row, where all speak of the same rows); or an
                aggregator of truths such as ``doxa.fuzzy.GeneralizedMeanError(2)``, as Logic Tensor Networks do: the
                loss is then 1 minus the aggregate. Facts are added to the first two.
        """
        check_options(self._names, reduction, combine, data)
        found: dict[str, tuple[Tensor, bool]] = {}  # the loss of each axiom, and whether it is a logarithm
        for names, _, ready in self._parts(semantics, combine):
            for name, loss in zip(names, ready.losses(data, generator, reduction), strict=True):
                found[name] = (loss, ready.is_log)
        if combine == "joint":
            weights = self.weights.fixed.new_ones(len(found))
        else:
            found, weights = {axiom.name: found[axiom.name] for axiom in self.kb.axioms}, self.weights()
        labels = self.fact_losses(self._facts, semantics, data, generator)
        every = {**found, **labels}
        values = [value for value, _ in every.values()]
        total: Tensor | None
        if callable(combine):
            if reduction != "mean":
                raise ConfigError(f"reduction is {reduction!r}, but an aggregator takes one truth of each axiom")
            total = together(self.kb.axioms, list(every.values()), combine)
        else:
            own = values[: len(found)]
            total = own[0] if combine == "joint" and own else self.weights.total(own, weights)
            if labels and total is not None and reduction != "none":
                total = total + sum(values[len(found) :])
        if labels:
            weights = torch.cat([weights, weights.new_ones(len(labels))])
        return AxiomLosses(tuple(values), weights, tuple(every), self._with_gradient(total))

    def _repr_html_(self) -> str:
        said = ["Model", f"semantics {self.semantics or 'to be said'}", self.interpretation.extra_repr()]
        return statements_box("; ".join(filter(None, said)), self.kb.unicode().split("\n"))

    def _with_gradient(self, total: Tensor | None) -> Tensor | None:
        """A loss without any instance can be differentiated like any other: its derivative is 0."""
        if total is None or total.requires_grad or not torch.is_grad_enabled() or is_traced(total):
            return total
        return total.requires_grad_() if any(p.requires_grad for p in self.parameters()) else total

    def loss(
        self,
        *,
        semantics: Chosen = None,
        reduction: Reduction = "mean",
        combine: Combine = "sum",
        generator: Generator = None,
        **data: Any,
    ) -> Tensor:
        """All axioms and facts as one number to minimise, alone or beside other losses: see :meth:`losses`."""
        return self.losses(semantics=semantics, reduction=reduction, combine=combine, generator=generator, **data).total

    def forward(self, **call: Any) -> Tensor:
        """The loss, so that a wrapper around the module (DDP, say) sees it."""
        return self.loss(**call)

    @locked
    def inference_step(
        self, *, semantics: Chosen = None, combine: Combine = "sum", generator: Generator = None, **data: Any
    ) -> int:
        """Let the inference models of amortised semantics learn, and say how many updates they made.

        ``doxa train`` calls it before each loss; in a loop of your own it is one more line. Nothing happens under other
        semantics. Axioms are combined as in the loss that follows. In processes that train together, the models stay
        equal.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> model.inference_step(semantics=doxa.Amortized(pretrain=10)), model.inference_step(semantics="exact")
        (11, 0)
        """
        check_options(self._names, "mean", combine, data)
        return sum([ready.learn(data, generator) for _, _, ready in self._parts(semantics, combine)])

    @locked
    def truth(
        self, *, semantics: Chosen = None, per_row: bool = False, generator: Generator = None, **data: Any
    ) -> dict[str, Tensor]:
        """How true each axiom is, by name: a probability, a truth value, or 1 and 0.

        Args:
            per_row: for each choice of the variables of the outermost ``forall``, instead of the axiom as a whole.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> model.truth(semantics="exact"), model.truth(semantics="classical")
        ({'wet': tensor(0.3000)}, {'wet': tensor(0.)})
        """
        check_options(self._names, "mean", "sum", data)
        found: dict[str, Tensor] = {}
        for names, _, ready in self._parts(semantics):
            truths = ready.rows(data, generator) if per_row else ready.truths(data, generator).unbind()
            found.update(zip(names, truths, strict=True))
        return {axiom.name: found[axiom.name] for axiom in self.kb.axioms}

    @locked
    def predict(
        self,
        target: str,
        /,
        *,
        values: Sequence[Any] | Tensor | None = None,
        semantics: Chosen = None,
        generator: Generator = None,
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

        >>> import doxa
        >>> model = Model('''sort I; sort Digit = 0..9; func digit(I) -> Digit; data pairs(left: I, right: I, sum: Int)
        ... [sum] forall p in pairs. digit(p.left) + digit(p.right) = p.sum''', "exact", digit=doxa.probs(lambda x: x))
        >>> images = torch.eye(10)                                    # these images say which digit they are
        >>> found = model.predict("pairs.sum", pairs=dict(left=images[[3, 5]], right=images[[4, 9]]))
        >>> found.values, found.truths.shape
        (tensor([ 7, 14]), torch.Size([2, 19]))
        """
        from doxa.semantics._predict import predict

        groups = self._groups(semantics)
        return predict(self.interpretation, groups, self._ready, target, values, generator, data)

    @locked
    def explain(
        self,
        axiom: str | None = None,
        /,
        *,
        k: int = 3,
        semantics: Chosen = None,
        generator: Generator = None,
        **data: Any,
    ) -> Explanations:
        """Why an axiom may hold: for each of its rows the k most probable worlds, given that it does.

        A world says what each neural function and predicate is. The best worlds are found exactly where that is
        affordable (``Exact`` and ``Auto`` say how much that is), else, or under ``Sampled``, from samples;
        ``Explanation.how`` says which. Other semantics have no probabilities, and make no difference here.

        Args:
            axiom: its name; not needed where there is only one.
            k: how many worlds.

        >>> import doxa
        >>> model = Model('''sort I; sort Digit = 0..9; func digit(I) -> Digit; data pairs(left: I, right: I, sum: Int)
        ... [sum] forall p in pairs. digit(p.left) + digit(p.right) = p.sum''', digit=doxa.probs(lambda image: image))
        >>> left, right = torch.zeros(2, 1, 10)
        >>> left[0, 4], left[0, 5], right[0, 8], right[0, 9] = 0.4, 0.6, 0.5, 0.5
        >>> print(model.explain("sum", k=2, pairs=dict(left=left, right=right, sum=torch.tensor([13])))[0])
        p = 0: 2 worlds (exact: the 2 most probable)
          0.60  digit(p.left) = 5, digit(p.right) = 8
          0.40  digit(p.left) = 4, digit(p.right) = 9
        """
        from doxa.semantics._worlds import explain

        how = self.semantics if semantics is None else semantics
        if isinstance(how, Mapping):
            how = how.get(axiom or self.kb.axioms[0].name)
        return explain(self.interpretation, axiom, k, self._meant(how or "exact"), generator, data)

    @locked
    def marginals(self, symbol: str, place: str, /, **data: Any) -> Tensor:
        """What is believed of a symbol at the objects in a field: the probability of each value, ``(objects, values)``.

        Of a predicate, its values are false and true. Where symbols share a mixture, this is what the whole row says.

        Args:
            symbol: a predicate or function of one object, such as "digit".
            place: the rows and their field, such as "pairs.left"; or a sort, for all of its objects.

        >>> import doxa
        >>> model = Model("sort Day; pred rain(Day); forall d: Day. rain(d)", rain=doxa.probs(lambda day: day[:, 0]))
        >>> model.marginals("rain", "Day", Day=torch.tensor([[0.25], [1.0]]))
        tensor([[0.7500, 0.2500],
                [0.0000, 1.0000]])
        """
        from doxa.semantics._marginals import marginals

        return marginals(self.interpretation, symbol, place, data)

    @locked
    def diversity(
        self, axiom: str | None = None, /, *, semantics: Chosen = None, generator: Generator = None, **data: Any
    ) -> Diversity:
        """How far from equally probable the worlds are in which the knowledge holds: log N - H of each row.

        Told only that a sum is 1, a network has no reason to prefer 0 + 1 to 1 + 0; this number, added to a loss,
        keeps all N worlds open that fit. Exact for independent symbols, bounds for a mixture (:class:`Diversity`).

        Args:
            axiom: its name; by default all axioms together.

        >>> import doxa
        >>> model = Model("pred a; pred b; [one] a | b", "exact", a=doxa.probs(torch.tensor(0.5)),
        ...               b=doxa.probs(torch.tensor(0.5)))
        >>> found = model.diversity()
        >>> found.log_count.exp(), round(found.total.item(), 4)
        (tensor([3.]), 0.0)
        """
        from doxa.semantics._diversity import diversity

        check_options(self._names, "mean", "sum", data)
        (how, _), *_ = self._groups(semantics or self.semantics or "exact") or [(self._meant("exact"), ())]
        return diversity(axiom, self.interpretation, how, generator, data)

    @locked
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

        >>> import doxa
        >>> model = Model("pred rain; pred wet; [soaked] rain -> wet", rain=doxa.probs(torch.tensor(0.9)),
        ...               wet=doxa.probs(torch.tensor(0.3)))
        >>> print(model.refine())
        everything holds
          wet   0.30 -> 1.00
        """
        from doxa.semantics._refine import refine

        return refine(self.interpretation, logic, target, steps, guarantee, data)

    def layer(self, *, target: float = 1.0, budget: Any = None) -> KnowledgeLayer:
        """The same knowledge as a layer: what networks believe, conditioned on all axioms (:class:`KnowledgeLayer`).

        Args:
            target: how probable the knowledge is to be made; 1 for certain.
            budget: limits of exact reasoning.

        >>> import doxa
        >>> model = Model("sort Day; pred rain(Day); pred wet(Day); forall d: Day. rain(d) -> wet(d)",
        ...               rain=doxa.probs(torch.tensor([0.9])), wet=doxa.probs(torch.tensor([0.5])))
        >>> found = model.layer()(Day=1)
        >>> {name: round(p.item(), 3) for name, p in found.probs.items()}         # given that rain implies wet
        {'rain(d)': 0.818, 'wet(d)': 0.909}
        """
        from doxa.semantics._worlds import KnowledgeLayer

        made = KnowledgeLayer(self.kb, self.interpretation, target=target, budget=budget)
        made.lock = self.lock
        return made

    @locked
    def satisfaction(self, *, examples: int = 3, generator: Generator = None, **data: Any) -> SatisfactionReport:
        """How far each axiom holds classically, with instances that violate it.

        It counts choices of the variables of all the ``forall`` that an axiom begins with; a loss counts rows of the
        outermost one, and so does this where symbols share a mixture, each row in its most probable world.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> model.satisfaction().satisfied
        False
        """
        if self.interpretation.joint_symbols:
            from doxa.semantics._most_probable import report

            axioms = [row_by_row(axiom) for axiom in self.kb.axioms]
            return report(axioms, self._facts, self.interpretation, examples, generator, data)
        return satisfaction(self.kb, self.interpretation, examples=examples, generator=generator, **data)

    @locked
    def plan(self, *, semantics: Chosen = None, **data: Any) -> Said:
        """What is computed for the data, axiom by axiom, and which independence is assumed.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.probs(torch.tensor(0.3)))
        >>> print(model.plan(semantics="fuzzy:godel").splitlines()[0])
        Fuzzy: wet
        """
        lines = []
        for names, how, ready in self._parts(semantics):
            lines += [f"{type(how).__name__}: {', '.join(names)}", ready.explain(data)]
        return Said("\n".join(lines))

    def find_nonfinite(self, *, semantics: Chosen = None, generator: Generator = None, **data: Any) -> str:
        """Which parameter, symbol or axiom the first number that is not finite comes from.

        >>> import doxa
        >>> model = Model("pred rain; [wet] rain", rain=doxa.logits(lambda: torch.tensor(float("nan"))))
        >>> model.find_nonfinite(semantics="fuzzy")
        'what rain is bound to returned numbers that are not finite'
        """
        from doxa.semantics._nonfinite import blame

        call = partial(self.losses, semantics=semantics, generator=generator, **data)
        return blame(self, self.interpretation, lambda: call().by_name())

    # -- how it is put together -------------------------------------------------------------------------------------

    def _parts(self, semantics: Chosen, combine: Combine = "sum") -> list[tuple[tuple[str, ...], Semantics, Compiled]]:
        """Names of axioms, or "joint" for all of them, with their semantics, ready for it."""
        groups, axioms = self._groups(semantics), self.kb.axioms
        if combine != "joint" or not axioms:
            return [(tuple([axioms[i].name for i in own]), how, self._ready(how, own)) for how, own in groups]
        from doxa.semantics._probabilistic import Probabilistic

        if len(groups) > 1:
            raise ConfigError("combine='joint' needs one semantics for all axioms, got one for each")
        how, numbers = groups[0]
        ready = self._ready(how, numbers, [self._joint_axiom], "joint")
        if not isinstance(ready, Probabilistic):
            raise ConfigError(
                f"combine='joint' is a probability, which {type(how).__name__} has not; use Exact(), Refined(), "
                "Sampled(), Amortized() or Auto(), or combine='sum'"
            )
        return [(("joint",), how, ready)]

    @cached_property
    def _joint_axiom(self) -> Axiom:
        return joint_axiom(self.kb.axioms)

    @locked
    def fact_losses(
        self, told: Sequence[Any], semantics: Chosen, data: Mapping[str, Any], generator: Generator
    ) -> dict[str, tuple[Tensor, bool]]:
        """The losses of facts, each times its weight: as about the first axiom where each is treated its own way."""
        found = {}
        for facts in told:
            groups = self._groups(semantics)
            said = groups[0][0] if groups else self._meant(self._said(semantics))
            shared = self.interpretation.shared_in(facts.axiom.formula)
            chosen = replace(said, quantifier="mean") if shared else said.for_labels()
            ready = self._ready(chosen, (), [facts.axiom], facts.rows)
            (each,) = ready.losses({**data, **facts.data(self.interpretation, data)}, generator, "none")
            found[facts.rows] = ((each * facts.weights.to(each)).sum(), ready.is_log)
        return found

    def _said(self, semantics: Chosen) -> Any:
        """How to reason, in this call or else always."""
        chosen = self.semantics if semantics is None else semantics
        if chosen is None:
            raise ConfigError("say how to reason: loss(semantics='exact', ...), or Model(kb, 'exact', ...)")
        return chosen

    def _groups(self, semantics: Chosen) -> list[tuple[Semantics, tuple[int, ...]]]:
        """The axioms of each semantics."""
        chosen, axioms = self._said(semantics), self.kb.axioms
        if not isinstance(chosen, Mapping):
            return [(self._meant(chosen), tuple(range(len(axioms))))] if axioms else []
        names = [axiom.name for axiom in axioms]
        if unknown := [name for name in chosen if name not in names]:
            raise ConfigError(f"semantics names {unknown[0]!r}, which is no axiom; the axioms are {', '.join(names)}")
        groups: dict[Semantics, list[int]] = {}
        for i, name in enumerate(names):
            own = chosen.get(name, None if isinstance(self.semantics, Mapping) else self.semantics)
            if own is None:
                raise ConfigError(f"no semantics is given for axiom {name!r}; name it too, or give the model a default")
            groups.setdefault(self._meant(own), []).append(i)
        return [(own, tuple(numbers)) for own, numbers in groups.items()]

    def _meant(self, chosen: str | Semantics) -> Semantics:
        """What a word means, looked up once."""
        if not isinstance(chosen, str):
            return _semantics.semantics(chosen)
        if chosen not in self._words:
            self._words[chosen] = _semantics.semantics(chosen)
        return self._words[chosen]

    def _ready(
        self, chosen: Semantics, numbers: tuple[int, ...], rewritten: Sequence[Axiom] | None = None, purpose: str = ""
    ) -> Compiled:
        """Some axioms, or what they were rewritten to for a purpose, ready for a semantics."""

        def make() -> Compiled:
            axioms = [self.kb.axioms[i] for i in numbers] if rewritten is None else rewritten
            made = chosen.compile([row_by_row(a) for a in axioms], self.interpretation)
            if hasattr(made, "adopt"):
                made.adopt(self.inference)
            return made

        key = (chosen, numbers, purpose)
        return self._compiled.get(key) or self._compiled.find(key, make)
