r"""Beyond refinement: gradient descent as its baseline, randomised restarts, and refinement finished by descent.

The loss of the baseline (Chapter 4, "Gradient descent baseline", as corrected by errata 3.6) is
:math:`L(\hat z) = |f(σ(\hat z)) - \hat t| + β ‖σ(\hat z) - t‖_p`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from doxa._numerics import safe_log
from doxa.errors import ConfigError
from doxa.fuzzy import Lukasiewicz, Product
from doxa.logic import And
from doxa.logic.syntax._simplify import atoms_of
from doxa.refine._refine import Refine
from doxa.refine._result import Progress, RefineResult

Loss = Literal["auto", "plain", "unbounded", "log"]
_FIELDS = ("values", "last", "truth", "satisfied", "distance", "iterations", "status")
_ROOM = 2**20
"""How many truth values are refined at a time: all copies at once, while they are not more than this."""


class GradientRefine(nn.Module):
    """Finds refined truth values by descending a loss, instead of by refinement functions.

    Args:
        layer: the :class:`Refine` whose formulas, logic and target are used.
        beta: β, the weight of the distance to the input.
        p: the norm of that distance; by default 1 for the product and 2 otherwise.
        loss: ``"plain"`` is \\|f - t̂\\|; ``"unbounded"`` takes the outermost conjunction without its max (for
            Łukasiewicz, whose gradient is 0 on most of the cube); ``"log"`` compares logarithms (for the
            product, whose gradient vanishes in long products). ``"auto"`` takes what suits the logic.
        optimiser: ``"adam"``, or ``"coordinate"``: steepest descent for L₁, one atom at a time.
        rate: the step size.
        steps: at most so many.
        joint: whether the norms run over the whole batch together, as in the dissertation's experiments, or row by row.
            Each formula then has norms of its own, over its own atoms: formulas that share no atoms are descended as if
            they were alone.
        freeze: whether rows stop when they arrive or come no nearer; without, all of them take all steps, as in the
            dissertation's experiments, and may wander on.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> found = GradientRefine(Refine(a & ~b, "product")).run(torch.tensor([[0.3, 0.6]]))
    >>> bool(found.truth > 0.99), bool(found.satisfied)
    (True, True)
    """

    _own: Tensor

    def __init__(
        self,
        layer: Refine,
        *,
        beta: float = 0.0,
        p: float | None = None,
        loss: Loss = "auto",
        optimiser: Literal["adam", "coordinate"] = "adam",
        rate: float = 0.1,
        steps: int = 500,
        tolerance: float = 1e-4,
        patience: int = 10,
        joint: bool = False,
        freeze: bool = True,
    ) -> None:
        super().__init__()
        if loss not in ("auto", "plain", "unbounded", "log"):
            raise ConfigError(f"loss is {loss!r}, expected 'auto', 'plain', 'unbounded' or 'log'")
        if optimiser not in ("adam", "coordinate"):
            raise ConfigError(f"optimiser is {optimiser!r}, expected 'adam' or 'coordinate'")
        self.layer = layer
        conj = layer.logic.conj
        if loss == "auto":
            loss = "unbounded" if isinstance(conj, Lukasiewicz) else "log" if isinstance(conj, Product) else "plain"
        self.p = (1.0 if isinstance(conj, Product) else 2.0) if p is None else p
        self.loss, self.beta, self.optimiser, self.rate, self.steps = loss, beta, optimiser, rate, steps
        self.tolerance, self.patience, self.joint, self.freeze = tolerance, patience, joint, freeze
        # The conjuncts of all formulas, to be joined without max or as logarithms.
        conjuncts = [f.children if isinstance(f, And) else (f,) for f in layer.formulas.values()]
        self.sizes = [len(some) for some in conjuncts]
        self.conjuncts = None
        if loss != "plain":
            listed = [c for some in conjuncts for c in some]
            self.conjuncts = Refine(listed, layer.logic, steps=1, atoms=layer.atoms, constants=layer.constants)
        # The atoms of each formula by number, filled up with one that is not there and never moves.
        number = {a: i for i, a in enumerate(layer.atoms)}
        own = [[number[a] for a in atoms_of(f)] for f in layer.formulas.values()]
        width = max(map(len, own))
        filled = torch.tensor([row + [len(layer.atoms)] * (width - len(row)) for row in own], dtype=torch.int64)
        self.register_buffer("_own", filled, persistent=False)

    def _joined(self, values: Tensor, join: Callable[[Tensor, int], Tensor]) -> Tensor:
        """From the conjuncts of all formulas, (conjuncts, *batch), something for each formula."""
        if len(set(self.sizes)) == 1:
            return join(values.view(len(self.sizes), self.sizes[0], *values.shape[1:]), 1)
        return torch.stack([join(some, 0) for some in torch.split(values, self.sizes)])

    def _truths(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is compared with the target, and the truth, without derivatives: (formulas, *batch) both."""
        if self.conjuncts is None:
            truths = self.layer.engine.evaluate(x).formulas
            return truths, truths.detach()
        values = self.conjuncts.engine.evaluate(x).formulas
        truths = self._joined(values.detach(), self.layer.logic.conj.reduce)
        if self.loss == "log":
            return self._joined(safe_log(values), torch.sum), truths
        return 1 - self._joined(1 - values, torch.sum), truths

    def _losses(self, compared: Tensor, x: Tensor, start: Tensor, goal: Tensor) -> Tensor:
        """The loss of each row; of all rows together, in the one place where that is asked for."""
        wanted = safe_log(goal) if self.loss == "log" else goal
        gap = compared - wanted
        far = x - start
        if self.joint:
            # norms over the batch, shared out evenly so that the sum is the loss of the batch
            first: Tensor = torch.linalg.vector_norm(gap.flatten(1), dim=1).sum()
            if self.beta:
                far = torch.cat([far, torch.zeros_like(far[:1])])[self._own]
                first = first + self.beta * torch.linalg.vector_norm(far.flatten(1), ord=self.p, dim=1).sum()
            return first.expand(x.shape[1:]) / max(x[0].numel(), 1)
        gone: Tensor = torch.linalg.vector_norm(far, ord=self.p, dim=0)
        return gap.abs().sum(0) + self.beta * gone

    def forward(self, x: Tensor, target: Tensor | float | None = None) -> Tensor:
        """The refined truth values, without derivatives."""
        return self.run(x, target).values

    def run(self, x: Tensor, target: Tensor | float | None = None, *, trajectory: bool = False) -> RefineResult:
        """Descend, row by row until it arrives or comes no nearer; the best iterate is returned.

        >>> from doxa.logic import propositions
        >>> a, b = propositions("a b")
        >>> layer = Refine(a | b, "godel", target=0.8)
        >>> GradientRefine(layer, optimiser="coordinate").run(torch.tensor([0.3, 0.6])).values.round(decimals=2)
        tensor([0.3000, 0.8000])
        """
        layer = self.layer
        start = layer._first(x).detach()
        goal = layer._goals(start, target).detach()
        held = torch.tensor([a in layer.constants for a in layer.atoms], device=x.device)
        held = held.view(-1, *[1] * (start.dim() - 1))

        def values() -> Tensor:
            return torch.where(held, start, torch.sigmoid(z)) if layer.constants else torch.sigmoid(z)

        z = torch.logit(start, 1e-6).requires_grad_()
        moments = torch.zeros_like(start), torch.zeros_like(start)
        gap = layer._gap(layer.engine.evaluate(start), goal)
        progress = Progress(start, gap, self.tolerance, self.patience * 10, trajectory)
        for k in range(self.steps):
            frozen = (progress.status > 0) & self.freeze
            if bool(frozen.all()):
                break
            with torch.enable_grad():
                if not k:
                    current = values()
                    compared, _ = self._truths(current)
                loss = self._losses(compared, current, start, goal).sum()
                (grad,) = torch.autograd.grad(loss, z)
            grad = torch.where(frozen, 0.0, grad)
            with torch.no_grad():
                if self.optimiser == "adam":
                    z.sub_(torch.where(frozen, 0.0, _adam(grad, *moments, k + 1)), alpha=self.rate)
                else:
                    steepest = grad.abs().argmax(0, keepdim=True)
                    z.scatter_add_(0, steepest, -self.rate * grad.gather(0, steepest).sign())
            with torch.enable_grad():  # one evaluation serves to judge this step and to take the next
                current = values()
                compared, truths = self._truths(current)
            now = torch.where(frozen, progress.now, current.detach())
            progress.record(now, (truths - goal).abs().amax(0), frozen, k + 1)
        return layer._report(start, progress)


def _adam(grad: Tensor, mean: Tensor, square: Tensor, k: int) -> Tensor:
    """The direction of Adam's k-th step, moments updated: ``torch.optim`` would take longer."""
    mean.lerp_(grad, 0.1)
    square.mul_(0.999).addcmul_(grad, grad, value=0.001)
    return mean / (1 - 0.9**k) / (square / (1 - 0.999**k)).sqrt_().add_(1e-8)


def restarts(
    layer: Refine,
    x: Tensor,
    target: Tensor | float | None = None,
    *,
    times: int = 10,
    spread: float = 0.5,
    generator: torch.Generator | None = None,
) -> RefineResult:
    """Refine from the input and from perturbed copies of it; each row keeps the best outcome.

    Better is, where the target is 1: satisfied when rounded; among those, nearer to the input; otherwise nearer to the
    target. A copy goes from each value t part of the way to a random one, t + s·(u - t), s growing up to ``spread``;
    constants are not perturbed.

    Args:
        layer: what to refine with.
        x: ``(*batch, atoms)``.
        times: how many perturbed copies.
        spread: how far the last copy is perturbed, up to 1: wholly random.
        generator: where chance comes from; torch's own if not given.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> knot = (a | b) & (~a | b) & (a | ~b) & (c | ~a)
    >>> x = torch.tensor([[0.1, 0.2, 0.3]])
    >>> found = restarts(Refine(knot, "godel"), x, times=20, generator=torch.Generator().manual_seed(0))
    >>> found.satisfied
    tensor([True])
    """
    if times < 0 or not 0 <= spread <= 1:
        raise ConfigError(f"times is {times} and spread {spread}, expected times >= 0 and spread between 0 and 1")
    start = layer._first(x)
    goal = layer._goals(start, target)
    free = torch.tensor([a not in layer.constants for a in layer.atoms], device=x.device)
    parts = (
        spread * torch.arange(times + 1, dtype=start.dtype, device=x.device) / max(times, 1)
    )  # the first is x itself
    tried = []
    for some in torch.split(parts, max(_ROOM // max(x.numel(), 1), 1)):
        chance = torch.rand((len(some), *x.shape), generator=generator, dtype=start.dtype, device=x.device)
        copies = torch.where(free, x + some.view(-1, *[1] * x.dim()) * (chance - x), x)
        wanted = None if target is None else goal.movedim(0, -1).expand(*copies.shape[:-1], len(goal))
        tried.append(layer.run(copies, wanted))
    return _best(layer, start, goal, tried)


def hybrid(
    layer: Refine, x: Tensor, target: Tensor | float | None = None, *, descent: GradientRefine | None = None
) -> RefineResult:
    """Refine, then finish with gradient steps from there; each row keeps the better of the two outcomes.

    >>> from doxa.logic import propositions
    >>> a, b, c = propositions("a b c")
    >>> knot = (a | b) & (~a | b) & (a | ~b) & (c | ~a)
    >>> bool(hybrid(Refine(knot, "product"), torch.tensor([[0.4, 0.7, 0.3]])).truth > 0.99)
    True
    """
    descent = GradientRefine(layer) if descent is None else descent
    first = layer.run(x, target)
    # away from the corners, where a sigmoid has no slope left
    second = descent.run(first.last.detach().clamp(0.02, 0.98), target)
    start = layer._first(x)
    return _best(layer, start, layer._goals(start, target), [_stacked(first), _stacked(second)])


def _stacked(found: RefineResult) -> RefineResult:
    """One outcome, with an axis of one in front."""
    return replace(found, **{name: getattr(found, name).unsqueeze(0) for name in _FIELDS}, trajectory=None)


def _best(layer: Refine, start: Tensor, goal: Tensor, tried: list[RefineResult]) -> RefineResult:
    """Row by row the best along the first axis of all outcomes, with distances measured from the same start."""
    values, last, truth, satisfied, _, iterations, status = (
        torch.cat([getattr(found, name) for found in tried]) for name in _FIELDS
    )
    moved = (values - start.movedim(0, -1)).detach().abs().sum(-1)
    gap = layer._gap(layer.engine.evaluate(values.movedim(-1, 0)), goal.unsqueeze(1))
    near_enough = gap <= gap.amin(0) + layer.tolerance
    wins = satisfied & (goal == 1).all(0)
    good = torch.where(wins.any(0), wins, near_enough)
    chosen = torch.where(good, moved, torch.inf).min(0, keepdim=True).indices

    def pick(of: Tensor) -> Tensor:
        index = chosen.view(*chosen.shape, *[1] * (of.dim() - chosen.dim()))
        return of.gather(0, index.expand(1, *of.shape[1:])).squeeze(0)

    return RefineResult(
        pick(values), pick(last), pick(truth), pick(satisfied), pick(moved), iterations.sum(0), pick(status), None
    )
