"""How long one answer takes as sums grow: amortised inference, elimination and enumeration (Chapter 6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from doxa.amortized import AmortizedReasoner, ScanModel
from doxa.exact import Elimination
from doxa.problem import Belief, BruteForce, addition
from doxa.problem._reasoner import Probabilistic
from doxa.reproduce.figures._gallery import Gallery, Illustration
from doxa.train.report._report import figure

DIGITS = (1, 2, 3, 4, 8, 15, 30, 50, 100)
MOST_ENUMERATED = 3
"""Digits up to which all worlds are enumerated: a million."""
REASONERS: dict[str, Callable[[int], Probabilistic]] = {
    "amortised": lambda n: _amortized(n),
    "elimination": lambda n: Elimination(addition(n)),
    "enumeration": lambda n: BruteForce(addition(n)),
}


def _amortized(digits: int) -> AmortizedReasoner:
    """With weights that have learnt nothing: they take as long."""
    problem = addition(digits)
    return AmortizedReasoner(problem, ScanModel(problem, explain=False))


def inference_seconds(name: str, digits: int, *, repeats: int = 10, seed: int = 0) -> float:
    """The shortest time of log p(sum | P) for one belief about two numbers of so many digits, of several beliefs.

    A first one, which does not count, warms up; the shortest is what other processes disturbed least.
    """
    reasoner = REASONERS[name](digits)
    random = torch.Generator().manual_seed(seed)
    spent = []
    with torch.inference_mode():
        for _ in range(repeats + 1):
            belief = Belief.from_logits(torch.randn(1, 2 * digits, 10, generator=random))
            output = reasoner.problem(belief.mode())
            start = time.perf_counter()
            reasoner.log_prob(belief, output)
            spent.append(time.perf_counter() - start)
    return min(spent[1:])


def timing_figures(digits: Sequence[int] = DIGITS) -> Gallery:
    """The figures by name.

    >>> list(timing_figures())
    ['inference-time']
    """
    return {"inference-time": lambda: _inference_time(digits)}


def _inference_time(digits: Sequence[int]) -> Illustration:
    drawing, (left, right) = figure(1, 2, size=(9.6, 3.6))
    numbers: dict[str, object] = {}
    for name in REASONERS:
        reached = [n for n in digits if name != "enumeration" or n <= MOST_ENUMERATED]
        seconds = [inference_seconds(name, n) for n in reached]
        for axes in (left, right):
            axes.plot(reached, [1000 * s for s in seconds], marker="o", markersize=4, label=name)
        numbers |= {f"{name}, N = {n}": f"{1000 * s:.3g} ms" for n, s in zip(reached, seconds, strict=True)}
    left.set(yscale="log", xscale="log", xlabel="digits of each number", ylabel="milliseconds for one input")
    linear = [float(str(v).split()[0]) for k, v in numbers.items() if not k.startswith("enumeration")]
    right.set(xlabel="digits of each number", ylim=(0, 1.1 * max(linear)))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(frameon=False)
    caption = (
        "How long log p(sum | P) takes for one input of two numbers of N digits, on one core, in logarithmic (left) "
        "and linear scale (right). Enumeration ends at N = 3, with a million worlds."
    )
    return Illustration(caption, drawing, numbers)
