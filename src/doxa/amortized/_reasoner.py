"""The amortised reasoner: an inference model, the prior it is trained on, and the pruner that guards it."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from doxa._cache import Lock
from doxa.amortized._decoding import Decoded, beam_search, draw
from doxa.amortized.models._model import InferenceModel, frozen, pick
from doxa.amortized.models._scan import ScanModel
from doxa.amortized.pruners._pruner import FunctionPruner, Pruner
from doxa.amortized.training import _losses
from doxa.amortized.training._losses import Calibration, Divergence, HasLogProb, joint_matching_loss
from doxa.amortized.training._priors import MixtureDirichlet, Prior, Ring
from doxa.amortized.training._processes import average, gathered, start_equal
from doxa.errors import ConfigError, ProblemError
from doxa.problem import Belief, BruteForce, Explanations, Impossible, Problem
from doxa.problem._definition import random_values, values_of
from doxa.problem._logspace import NEG_INF, logsumexp, without_autocast
from doxa.problem._reasoner import Probabilistic, how_many


class AmortizedReasoner(Probabilistic):
    """A-NeSI: q(y | P) and q(w | y, P) are learnt from data that the problem itself generates.

        P ~ p(P),   w ~ p(w | P),   y = c(w);     q learns to tell y and w from P      (dissertation, chapter 6)

    The reasoner then answers in time proportional to the length of outputs and worlds, however many worlds there are.
    Its loss trains a perception network through q, which is held fixed. Queries change nothing and draw nothing; q
    learns in ``update`` only, and its prior in ``observe``. Threads that call these take turns, but none may update
    between another's loss and its derivatives: torch then refuses these. Processes that train together stay equal to
    the bit: both calls exchange what they need, so all processes make them, with the same number of steps.

    Args:
        problem: what to reason about; any function will do.
        model: the inference model; by default a ``ScanModel``.
        prior: the beliefs that it is trained on; by default a ``MixtureDirichlet``.
        pruner: which values may come next; by default the problem's own, if it has one.
        beams: the width of the search in ``predict`` and ``explain``.
        on_policy: the share of on-policy joint matching in the loss of an explaining model, 0 to 1.
        predicting: the share of the prediction loss -log q(y | P) beside it, 0 to 1; explaining alone costs divergence.
        objective: the divergence that is made small; ``"matching"`` is the dissertation's.
        impossible: what ``loss`` does with outputs that the pruner forbids: "raise", "inf" or "finite".
        guarantee: insist that everything decoded is valid: the pruner must be complete.

    >>> from doxa.problem import addition
    >>> engine = AmortizedReasoner(addition(2))
    >>> losses = engine.update(2, samples=64)                          # some thousands, in earnest
    >>> logits = torch.zeros(8, 4, 10, requires_grad=True)             # what a network says about 8 · 4 images
    >>> engine.loss(Belief.from_logits(logits), torch.tensor([1, 3, 5])).mean().backward()
    """

    exactness: Literal["approximate"] = "approximate"

    def __init__(
        self,
        problem: Problem,
        model: InferenceModel | None = None,
        prior: Prior | None = None,
        pruner: Pruner | None = None,
        *,
        beams: int = 8,
        on_policy: float = 0.0,
        predicting: float = 0.0,
        objective: Divergence = "matching",
        impossible: Impossible = "raise",
        guarantee: bool = False,
    ) -> None:
        super().__init__(problem, impossible)
        self.model = ScanModel(problem) if model is None else model
        self.prior = MixtureDirichlet(problem.world) if prior is None else prior
        if pruner is None and problem.pruner is not None:
            pruner = FunctionPruner.of(problem)
        self.pruner = pruner
        if pruner is not None and problem.given:
            raise ConfigError("pruners do not see given values; leave the pruner out of a problem that has some")
        self.given_seen = Ring(torch.zeros(len(problem.given), dtype=torch.int64)) if problem.given else None
        sizes = problem.output + problem.world
        if self.model.problem is not problem or self.prior.sizes != problem.world:
            raise ConfigError("model and prior must be made for this very problem; pass the same Problem to all")
        if pruner is not None and pruner.sizes != sizes:
            raise ConfigError(f"the pruner is over variables of sizes {pruner.sizes}, the problem has {sizes}")
        if beams < 1 or not (0 <= on_policy <= 1 and 0 <= predicting <= 1):
            came = f"beams is {beams}, on_policy {on_policy} and predicting {predicting}"
            raise ConfigError(f"{came}, expected at least 1, and shares of 0 to 1")
        if (on_policy or predicting) and not self.model.explains:
            raise ConfigError("on_policy and predicting are for models that explain; make it with explain=True")
        self.beams, self.on_policy, self.predicting, self.objective = beams, on_policy, predicting, objective
        self.lock = Lock()
        self.updates: Tensor
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        if guarantee:
            self.require_guarantee()

    @property
    def guaranteed(self) -> bool:
        """Whether every output and every explanation that is decoded is valid, whatever the model has learnt."""
        return self.pruner is not None and self.pruner.complete

    def require_guarantee(self) -> None:
        """A ``ConfigError`` unless ``guaranteed``.

        >>> from doxa.problem import parity
        >>> AmortizedReasoner(parity(3)).require_guarantee()
        Traceback (most recent call last):
        doxa.errors.ConfigError: nothing guarantees that what is decoded is valid: there is no pruner; ...
        """
        if not self.guaranteed:
            what = "there is no pruner" if self.pruner is None else f"{type(self.pruner).__name__} is not complete"
            remedy = "use a complete one, such as SatPruner, SupportPruner or AdditionPruner"
            raise ConfigError(f"nothing guarantees that what is decoded is valid: {what}; {remedy}")

    # What is inferred.

    def log_prob(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:  # type: ignore[override]  # no Mixture
        """log q(y | P), ``(*batch,)``, the estimate of log p(y | P).

        Unobserved outputs (-1) at the end of the sequence cost nothing; others are summed over.

        >>> from doxa.problem import addition
        >>> AmortizedReasoner(addition(1)).log_prob(Belief.uniform((10, 10), batch=(3,)), torch.tensor([0, 9])).shape
        torch.Size([3])
        """
        self.problem.require(belief, output, given)
        tokens = output.expand(*belief.batch_shape, -1)
        if not (tokens < 0).any():
            return self.model.log_prob(belief, tokens, self.pruner, given=given)
        return _marginal(self, belief, tokens, given)

    def loss(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:  # type: ignore[override]  # no Mixture
        """-log q(y | P), ``(*batch,)``: the perception loss. The model is held fixed; only the belief is trained.

        >>> from doxa.problem import addition
        >>> AmortizedReasoner(addition(1)).loss(Belief.uniform((10, 10), batch=(3,)), torch.tensor([0, 9])).shape
        torch.Size([3])
        """
        with frozen(self.model):
            return super().loss(belief, output, given=given)

    def _why_impossible(self, output: Tensor, given: Tensor | None) -> str:
        return "the pruner forbids them"

    def output_log_probs(self, belief: Belief, *, given: Tensor | None = None) -> Tensor:
        """log q(y = v | P) of every value v of the only output, ``(*batch, size)``; the model is held fixed.

        >>> from doxa.problem import parity
        >>> AmortizedReasoner(parity(2)).output_log_probs(Belief.uniform((2, 2), batch=(3,))).shape
        torch.Size([3, 2])
        """
        if len(self.problem.output) != 1:
            raise ConfigError(f"the problem has {len(self.problem.output)} outputs, expected one; use log_prob")
        first = torch.zeros(*belief.batch_shape, 1, dtype=torch.int64, device=belief.log_probs.device)
        return self._fixed(belief, first, given)[..., 0, : self.problem.output[0]]

    def expected_miss(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """1 - q(y | P), ``(*batch,)``: the expected cost if a wrong output costs 1. The model is held fixed.

        >>> from doxa.problem import parity
        >>> AmortizedReasoner(parity(2)).expected_miss(Belief.uniform((2, 2)), torch.tensor([1])).shape
        torch.Size([])
        """
        with frozen(self.model):
            return 1 - self.log_prob(belief, output, given=given).exp()

    def expected_hamming(self, belief: Belief, output: Tensor, *, given: Tensor | None = None) -> Tensor:
        """Σ_j (1 - q(y_j | y_{<j}, P)), ``(*batch,)``: about how many outputs will be wrong. The model is held fixed.

        Exact for independent outputs; in general each is judged after the true ones before it.

        >>> from doxa.problem import addition
        >>> engine = AmortizedReasoner(addition(2))
        >>> engine.expected_hamming(Belief.uniform((10,) * 4), torch.tensor([1, 3, 5])).shape
        torch.Size([])
        """
        tokens = output.expand(*belief.batch_shape, output.shape[-1])
        return (1 - pick(self._fixed(belief, tokens, given), tokens).exp()).sum(-1)

    def _fixed(self, belief: Belief, tokens: Tensor, given: Tensor | None) -> Tensor:
        with frozen(self.model):
            return self.model.log_probs(belief, tokens, self.pruner, given=given).to(belief.log_probs.dtype)

    @torch.no_grad()
    def divergence(
        self,
        belief: Belief,
        exact: HasLogProb | None = None,
        *,
        given: Tensor | None = None,
        samples: int = 10_000,
        generator: torch.Generator | None = None,
    ) -> Calibration:
        """KL(p(y | P) ‖ q(y | P)) on beliefs ``(*batch,)``: how far q is from what it approximates.

        It is E_p[loss] minus its exact value, and where one output is certain it is the loss itself: this is the
        number within which amortised reasoning keeps what exact reasoning promises.

        Small problems (up to 65,536 worlds) and ``BruteForce`` are summed over all outputs. With another exact reasoner
        it is averaged over outputs of worlds drawn from the belief. Otherwise log p is the log of the frequency among
        ``samples`` such outputs, which overestimates the divergence by about (outcomes - 1) / (2 samples).

        >>> from doxa.problem import parity
        >>> found = AmortizedReasoner(parity(2)).divergence(Belief.uniform((2, 2), batch=(5,)))
        >>> found.kl.shape, bool((found.kl >= 0).all()), found.largest >= found.mean
        (torch.Size([5]), True, True)
        """
        self.problem.require(belief, given=given)
        if samples < 2:
            raise ConfigError(f"samples is {samples}, expected at least 2")
        batch = belief.batch_shape
        if exact is None and math.prod(self.problem.world + self.problem.given) <= _losses.MOST_WORLDS:
            exact = BruteForce(self.problem)
        if isinstance(exact, BruteForce):
            outputs = exact.outputs
            many = belief.log_probs.unsqueeze(-3).expand(*batch, len(outputs), *belief.log_probs.shape[-2:])
            repeated = Belief(many, belief.sizes, validate=False)
            seen = None if given is None else given.expand(*batch, -1).unsqueeze(-2).expand(*batch, len(outputs), -1)
            log_q = self.log_prob(repeated, outputs.expand(*batch, *outputs.shape), given=seen)
            kl = _losses.divergence(exact.joint(belief, given=given), log_q.to(belief.log_probs))
            return Calibration(kl, torch.zeros_like(kl))
        rows = belief.log_probs.reshape(-1, *belief.log_probs.shape[-2:])
        seen_rows = [None] * len(rows) if given is None else list(given.expand(*batch, -1).reshape(len(rows), -1))
        found = []
        for row, seen in zip(rows, seen_rows, strict=True):
            one = Belief(row, belief.sizes, validate=False)
            drawn = self.problem(one.sample(samples, generator=generator), seen)
            outputs, number, count = torch.unique(drawn, dim=0, return_inverse=True, return_counts=True)
            repeated = Belief(row.expand(len(outputs), *row.shape), belief.sizes, validate=False)
            log_q = self.log_prob(repeated, outputs, given=seen)
            log_p = (count / samples).log() if exact is None else exact.log_prob(repeated, outputs, given=seen)
            gap = (log_p.to(row) - log_q.to(row))[number]
            found.append(torch.stack([gap.mean(), gap.std() / samples**0.5]))
        kl, error = torch.stack(found).unbind(-1) if found else rows.new_zeros(2, 0)
        return Calibration(kl.reshape(batch), error.reshape(batch))

    def semantic_loss(self, belief: Belief, *, given: Tensor | None = None) -> Tensor:
        """-log q(all outputs are 1 | P), ``(*batch,)``: the approximation of the semantic loss, for constraints.

        Outputs say what of the knowledge holds, as those of ``KnowledgeProblem`` do.

        >>> from doxa.problem import exactly_k
        >>> AmortizedReasoner(exactly_k(1, 3)).semantic_loss(Belief.uniform((2, 2, 2))).shape
        torch.Size([])
        """
        if set(self.problem.output) != {2}:
            raise ConfigError(f"outputs have {self.problem.output[:4]} values, expected 0 (fails) and 1 (holds)")
        ones = torch.ones(len(self.problem.output), dtype=torch.int64, device=belief.log_probs.device)
        return self.loss(belief, ones, given=given)

    def supervised_loss(self, belief: Belief, worlds: Tensor, *, given: Tensor | None = None) -> Tensor:
        """-log q(w | c(w), P), ``(*batch,)``, for worlds that were observed: the strongly supervised loss.

        >>> from doxa.problem import exactly_k
        >>> AmortizedReasoner(exactly_k(1, 3)).supervised_loss(Belief.uniform((2, 2, 2)), torch.tensor([0, 1, 0])).shape
        torch.Size([])
        """
        return _losses.supervised_loss(self.model, belief, worlds, self.pruner, given=given)

    def predict(
        self,
        belief: Belief,
        *,
        given: Tensor | None = None,
        method: Literal["neural", "symbolic"] = "neural",
        beams: int | None = None,
    ) -> Tensor:
        """The best output, int64 ``(*batch, Y)``.

        ``"neural"``: argmax_y q(y | P), by beam search (-1 if an incomplete pruner left nothing). ``"symbolic"``:
        c(argmax_w p(w | P)), the output of the most probable world, for which no model is needed.

        >>> from doxa.problem import addition
        >>> sure = Belief.from_probs(torch.eye(10)[[5, 8]])
        >>> AmortizedReasoner(addition(1)).predict(sure, method="symbolic")
        tensor([1, 3])
        """
        self.problem.require(belief, given=given)
        if method == "symbolic":
            return self.problem(belief.mode(), given)
        if method != "neural":
            raise ConfigError(f"method is {method!r}, expected 'neural' or 'symbolic'")
        return self.predictions(belief, beams, given=given).tokens[..., 0, :]

    def predictions(self, belief: Belief, beams: int | None = None, *, given: Tensor | None = None) -> Decoded:
        """The best outputs with log q(y | P), best first: ``(*batch, beams, Y)``.

        >>> from doxa.problem import addition
        >>> AmortizedReasoner(addition(1)).predictions(Belief.uniform((10, 10)), beams=3).tokens.shape
        torch.Size([3, 2])
        """
        width = self.beams if beams is None else beams
        length = len(self.problem.output)
        return beam_search(self.model, belief, width, length=length, given=given, pruner=self.pruner)

    def explain(
        self, belief: Belief, output: Tensor, k: int = 1, *, given: Tensor | None = None, beams: int | None = None
    ) -> Explanations:
        """The k best worlds that give the output, with log q(w | y, P), best first, found by beam search.

        Worlds are checked with the problem's function; those that do not give the output are left out, so there may
        be fewer than k. With a complete pruner none has to be.

        >>> from doxa import amortized, problem
        >>> engine = AmortizedReasoner(problem.addition(1), pruner=amortized.AdditionPruner(1))
        >>> engine.explain(Belief.uniform((10, 10)), torch.tensor([1, 7]), k=3).worlds.sort(0).values
        tensor([[-1, -1],
                [ 8,  8],
                [ 9,  9]])
        """
        k = how_many(k, ConfigError)
        self.model.require_explaining()
        self.problem.require(belief, output, given)
        width = max(k, self.beams if beams is None else beams)
        found = beam_search(self.model, belief, width, prefix=output, given=given, pruner=self.pruner)
        worlds, scores = found.tokens[..., len(self.problem.output) :], found.scores
        wanted = output.expand(*belief.batch_shape, -1).unsqueeze(-2)
        seen = None if given is None else given.unsqueeze(-2)
        valid = (self.problem(worlds.clamp(min=0), seen) == wanted).all(-1) & (scores > NEG_INF)
        scores, order = scores.masked_fill(~valid, NEG_INF).sort(dim=-1, descending=True, stable=True)
        worlds = worlds.masked_fill(~valid.unsqueeze(-1), -1)
        worlds = worlds.gather(-2, order.unsqueeze(-1).expand(worlds.shape))
        return Explanations(worlds[..., :k, :], scores[..., :k])

    def sample(
        self,
        belief: Belief,
        output: Tensor | None = None,
        count: int = 1,
        *,
        given: Tensor | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Decoded:
        """Outputs and worlds drawn from q, or only worlds if the output is given: tokens ``(*batch, count, T)``.

        >>> from doxa.problem import addition
        >>> AmortizedReasoner(addition(1)).sample(Belief.uniform((10, 10)), count=5).tokens.shape
        torch.Size([5, 4])
        """
        return draw(
            self.model,
            belief,
            count,
            temperature=temperature,
            prefix=output,
            given=given,
            pruner=self.pruner,
            generator=generator,
        )

    # How it learns.

    def observe(self, belief: Belief, *, given: Tensor | None = None) -> None:
        """Tell the prior what beliefs (and given values) occur, in all processes; they are detached.

        >>> from doxa.problem import parity
        >>> AmortizedReasoner(parity(2)).observe(Belief.uniform((2, 2), batch=(16,)))
        """
        self.problem.require(belief, given=given)
        rows = belief.log_probs.detach().reshape(-1, *belief.log_probs.shape[-2:])
        with self.lock:
            if self.given_seen is not None and given is not None:
                self.given_seen.add(gathered(given.expand(*belief.batch_shape, -1).reshape(-1, given.shape[-1])))
            self.prior.observe(Belief(gathered(rows), belief.sizes, validate=False))

    def inference_loss(self, samples: int = 600, *, generator: torch.Generator | None = None) -> Tensor:
        """The loss of the inference model on fresh data, a scalar (dissertation, Algorithm "inference model loss").

        Lets the prior adapt, draws beliefs and worlds, and compares q with p: the cross entropy of the outputs for a
        model that predicts only, joint matching for one that explains. ``update`` is the loop around it.

        >>> from doxa.problem import parity
        >>> AmortizedReasoner(parity(2)).inference_loss(samples=10).shape
        torch.Size([])
        """
        if samples < 1:
            raise ConfigError(f"samples is {samples}, expected at least 1")
        self.prior.adapt()
        belief = self.prior.sample(samples, generator=generator)
        worlds = belief.sample(1, generator=generator)[0]
        given = self._drawn_given(samples, generator)
        return self.loss_on(belief, worlds, given=given, generator=generator).mean()

    def _drawn_given(self, count: int, generator: torch.Generator | None) -> Tensor | None:
        """Given values, half of them as observed, and half uniformly: what was never met is learnt as well."""
        if self.given_seen is None:
            return None
        stored = self.given_seen.stored()
        found = random_values(count, self.problem.given, generator, stored.device)
        half = count // 2 if len(stored) else 0
        if half:
            found[:half] = stored[torch.randint(len(stored), (half,), device=stored.device, generator=generator)]
        return found

    def loss_on(
        self, belief: Belief, worlds: Tensor, *, given: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """The loss of the inference model on given beliefs and worlds, ``(*batch,)``.

        >>> from doxa.problem import parity
        >>> belief = Belief.uniform((2, 2), batch=(5,))
        >>> AmortizedReasoner(parity(2)).loss_on(belief, belief.sample()[0]).shape
        torch.Size([5])
        """
        if not self.model.explains:
            return _losses.prediction_loss(self.model, belief, worlds, self.pruner, given=given)
        kind, share = self.objective, self.on_policy
        loss = belief.log_probs.new_zeros(())
        if share < 1:
            loss = (1 - share) * joint_matching_loss(self.model, belief, worlds, self.pruner, kind=kind, given=given)
        if share > 0:
            drawn = _losses.on_policy_loss(self.model, belief, self.pruner, kind=kind, given=given, generator=generator)
            loss = loss + share * drawn
        if self.predicting:
            told = _losses.prediction_loss(self.model, belief, worlds, self.pruner, given=given)
            loss = (1 - self.predicting) * loss + self.predicting * told
        return loss

    def start_equal(self) -> None:
        """Before the first update, give every process the state of the first one."""
        if not self.updates:
            start_equal([*self.model.parameters(), *self.buffers()])

    def update(
        self,
        steps: int = 1,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        samples: int = 600,
        lr: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> list[float]:
        """Train the inference model, on nothing but the prior; returns the loss of every step.

        Gradients and losses are averaged over all processes, whose samples differ; before the first update every
        process takes over the parameters of the first one. Without an optimiser a new Adam is made.

        >>> from doxa.problem import parity
        >>> engine = AmortizedReasoner(parity(2))
        >>> len(engine.update(3, samples=50)), engine.updates
        (3, tensor(3))
        """
        parameters = list(self.model.parameters())
        optimizer = torch.optim.Adam(parameters, lr, fused=True) if optimizer is None else optimizer
        losses = []
        with self.lock:
            for _ in range(steps):
                self.start_equal()
                optimizer.zero_grad()
                with without_autocast(self.updates.device):
                    loss = self.inference_loss(samples, generator=generator)
                    torch.autograd.backward(loss)
                losses.append(average(parameters, loss).item())
                optimizer.step()
                increment_version(parameters)  # which a fused step forgets; losses of before cannot be differentiated
                self.updates += 1
        return losses


MOST_SUMMED = 4096  # combinations of unobserved values that are summed over


def _marginal(engine: AmortizedReasoner, belief: Belief, tokens: Tensor, given: Tensor | None) -> Tensor:
    """log q of the observed part: a sum over values of what is unobserved, except after the last that is observed."""
    batch, outputs = tokens.shape[:-1], tokens.shape[-1]
    flat = tokens.reshape(-1, outputs)
    rows = belief.log_probs.reshape(len(flat), *belief.log_probs.shape[-2:])
    seen = None if given is None else given.expand(*batch, -1).reshape(len(flat), -1)
    places = torch.arange(outputs, device=flat.device)
    last = torch.where(flat >= 0, places, -1).amax(-1)
    inner = (flat < 0) & (places < last.unsqueeze(-1))
    result = rows.new_zeros(len(flat))
    patterns, number = torch.unique(torch.cat([inner.long(), last.unsqueeze(-1)], -1), dim=0, return_inverse=True)
    for n, pattern in enumerate(patterns):
        chosen = (number == n).nonzero().flatten()
        free, length = pattern[:-1].nonzero().flatten().tolist(), int(pattern[-1]) + 1
        if length == 0:  # nothing was observed
            continue
        sizes = [engine.problem.output[i] for i in free]
        combinations = math.prod(sizes)
        if combinations > MOST_SUMMED:
            summed = f"a sum over {combinations:,} combinations, more than {MOST_SUMMED:,}"
            why = f"outputs {free[:8]} are unobserved but later ones are observed, which asks for {summed}"
            raise ProblemError(f"{why}; observe them, or order the outputs so that they come last")
        filled = flat[chosen, :length].unsqueeze(1).repeat(1, combinations, 1)
        filled[..., free] = values_of(torch.arange(combinations, device=flat.device), sizes)
        many = rows[chosen].unsqueeze(1).expand(-1, combinations, -1, -1)
        known = None if seen is None else seen[chosen].unsqueeze(1).expand(-1, combinations, -1)
        terms = engine.model.log_prob(Belief(many, belief.sizes, validate=False), filled, engine.pruner, given=known)
        result = result.index_put((chosen,), logsumexp(terms, -1).to(result))
    return result.reshape(batch)
