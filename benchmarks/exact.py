"""Exact inference, forward and backward: addition by factors against a carry recursion written by hand."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.exact import Elimination
from doxa.problem import Belief, addition
from harness import Row, compare, cpu_seconds, exponent

BATCH = 16
NEVER = -1e30  # -inf would make gradients NaN where no carry fits


def carry_recursion(log_probs: Tensor, label: Tensor) -> Tensor:
    """log p(sum) of two N-digit numbers: log_probs ``(B, 2N, 10)``, label ``(B, N + 1)``, in log space."""
    a, b = log_probs.chunk(2, 1)
    into, out, digit = torch.arange(2)[:, None, None], torch.arange(2)[:, None], torch.arange(10)
    partner = label[:, 1:, None, None, None] + 10 * out - into - digit  # (B, N, into, out, digit)
    partner = torch.where((partner < 0) | (partner > 9), 10, partner)
    other = pad(b, (0, 1), value=NEVER)[:, :, None, None, :].expand(-1, -1, 2, 2, -1).gather(-1, partner)
    links = (a[:, :, None, None, :] + other).logsumexp(-1)
    carry = links[:, -1, 0]
    for i in range(label.shape[1] - 3, -1, -1):
        carry = (carry.unsqueeze(-1) + links[:, i]).logsumexp(1)
    return carry.gather(1, label[:, :1]).squeeze(1) if label.shape[1] > 1 else carry


def addition_rows() -> list[Row]:
    rows, sizes, times = [], [1, 4, 15, 100, 1000], []
    for digits in sizes:
        problem = addition(digits)
        reasoner = Elimination(problem)
        logits = torch.randn(BATCH, 2 * digits, 10, requires_grad=True)
        label = problem(problem.random_worlds(BATCH))

        def ours(logits: Tensor = logits, label: Tensor = label, reasoner: Elimination = reasoner) -> None:
            logits.grad = None
            reasoner.loss(Belief.from_logits(logits), label).mean().backward()

        def by_hand(logits: Tensor = logits, label: Tensor = label) -> None:
            logits.grad = None
            carry_recursion(logits.log_softmax(-1), label).mean().neg().backward()

        gradients = []
        for function in (ours, by_hand):
            function()
            assert logits.grad is not None
            gradients.append(logits.grad.clone())
        torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-3)  # float32 at a log-probability of -2000
        name = f"addition by factors, N={digits}, batch {BATCH}: time against a carry recursion by hand"
        rows.append(compare(name, ours, by_hand, goal=1.5, better="lower"))
        times.append(min(cpu_seconds(ours, 3) for _ in range(5)))
    rows.append(Row("addition by factors: exponent of time in N, 1 to 1000", exponent(sizes, times), 1.05, "lower"))
    return rows


def rows() -> list[Row]:
    return addition_rows()


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
