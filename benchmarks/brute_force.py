"""Brute-force inference, forward and backward, against loop-free enumerations written by hand for one problem each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from doxa.problem import Belief, BruteForce, Problem, addition
from harness import Row, compare

BATCH = 64
NEVER = torch.tensor(float("-inf"))


def two_digit_addition() -> Row:
    problem = addition(2)
    reasoner = BruteForce(problem)
    logits = torch.randn(BATCH, 4, 10, requires_grad=True)
    label = problem(problem.random_worlds(BATCH))

    sums = torch.arange(100).unsqueeze(1) + torch.arange(100)
    number = label @ torch.tensor([100, 10, 1])

    def ours() -> None:
        logits.grad = None
        reasoner.log_prob(Belief.from_logits(logits), label).mean().neg().backward()

    def by_hand() -> None:
        logits.grad = None
        a, b, c, d = logits.log_softmax(-1).unbind(1)
        left, right = (a.unsqueeze(2) + b.unsqueeze(1)).flatten(1), (c.unsqueeze(2) + d.unsqueeze(1)).flatten(1)
        worlds = left.unsqueeze(2) + right.unsqueeze(1)
        matching = torch.where(sums == number[:, None, None], worlds, NEVER)
        matching.flatten(1).logsumexp(1).mean().neg().backward()

    return row("brute force: addition of two-digit numbers", logits, ours, by_hand)


def ranking(worlds: Tensor) -> Tensor:
    """Six counters of different ranges: which is the largest, and is their total odd?"""
    return torch.stack([worlds.argmax(-1), worlds.sum(-1) % 2], -1)


def mixed_domains() -> Row:
    sizes = (2, 3, 7, 4, 5, 6)
    problem = Problem(sizes, (6, 2), ranking)
    reasoner = BruteForce(problem)
    logits = [torch.randn(BATCH, size, requires_grad=True) for size in sizes]
    label = problem(problem.random_worlds(BATCH))

    codes = problem(torch.cartesian_prod(*map(torch.arange, sizes))) @ torch.tensor([2, 1])
    code = label @ torch.tensor([2, 1])

    def ours() -> None:
        for part in logits:
            part.grad = None
        reasoner.log_prob(Belief.from_logits(logits), label).mean().neg().backward()

    def by_hand() -> None:
        for part in logits:
            part.grad = None
        a, b, c, d, e, f = (part.log_softmax(-1) for part in logits)
        left = (a[:, :, None, None] + b[:, None, :, None] + c[:, None, None, :]).flatten(1)
        right = (d[:, :, None, None] + e[:, None, :, None] + f[:, None, None, :]).flatten(1)
        worlds = (left.unsqueeze(2) + right.unsqueeze(1)).flatten(1)
        torch.where(codes == code.unsqueeze(1), worlds, NEVER).logsumexp(1).mean().neg().backward()

    return row("brute force: mixed domains, 5040 worlds", logits[0], ours, by_hand)


def row(name: str, logits: Tensor, ours: Callable[[], None], by_hand: Callable[[], None]) -> Row:
    """Measure, once both have given the same gradient."""
    gradients = []
    for function in (ours, by_hand):
        function()
        assert logits.grad is not None
        gradients.append(logits.grad.clone())
    torch.testing.assert_close(*gradients)
    return compare(f"{name}, batch {BATCH}: time against by hand", ours, by_hand, goal=1.3, better="lower")


def rows() -> list[Row]:
    return [two_digit_addition(), mixed_domains()]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
