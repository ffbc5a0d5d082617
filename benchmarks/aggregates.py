"""Aggregates over network outputs, exact, forward and backward: the sum of 100 digits said in the language against a
convolution in log space written by hand; and how the time of sums and maxima grows with their number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

import doxa
from harness import Row, compare, cpu_seconds, exponent, main

BATCH = 32
NEVER = -1e30
KNOWLEDGE = """
sort Image
sort Digit = 0..9
func digit(Image) -> Digit
data lists(images: Image*, value: Int)
[value] forall l in lists. ({kind} x in l.images. digit(x)) = l.value
"""


def convolution(log_probs: Tensor, total: Tensor) -> Tensor:
    """log p(sum) of n digits, one after the other: log_probs ``(B, n, 10)``, in logs, so that nothing underflows."""
    state = log_probs[:, 0]
    for digit in log_probs.unbind(1)[1:]:
        shifted = [pad(state, (d, 9 - d), value=NEVER) + digit[:, d : d + 1] for d in range(10)]
        state = torch.stack(shifted).logsumexp(0)
    return state.gather(1, total.unsqueeze(1)).squeeze(1)


def posed(kind: str, logits: Tensor, value: Tensor) -> Callable[[], None]:
    """The loss of a model whose images are their own logits."""
    model = doxa.Model(KNOWLEDGE.format(kind=kind), "exact", digit=doxa.logits(torch.nn.Identity()))

    def ours() -> None:
        logits.grad = None
        model.loss(lists={"images": logits, "value": value}).backward()

    return ours


def agreeing(ours: Callable[[], None], by_hand: Callable[[], None], logits: Tensor) -> None:
    gradients = []
    for function in (ours, by_hand):
        function()
        assert logits.grad is not None
        gradients.append(logits.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-4)


def rows() -> list[Row]:
    torch.manual_seed(0)
    found = []
    for n in (10, 100):
        logits = torch.randn(BATCH, n, 10, requires_grad=True)
        total = torch.distributions.Categorical(logits=logits.detach()).sample().sum(1)
        ours = posed("sum", logits, total)

        def by_hand(logits: Tensor = logits, total: Tensor = total) -> None:
            logits.grad = None
            convolution(logits.log_softmax(-1), total).mean().neg().backward()

        agreeing(ours, by_hand, logits)
        name = f"sum of {n} digits, batch {BATCH}: time against a convolution in log space by hand"
        found.append(compare(name, ours, by_hand, goal=1.5, better="lower"))
    for kind, value in (("sum", 20), ("max", 8)):
        sizes, times = [25, 50, 100, 200], []
        for n in sizes:
            logits = torch.randn(BATCH, n, 10, requires_grad=True)
            ours = posed(kind, logits, torch.full((BATCH,), value))
            ours()
            times.append(min(cpu_seconds(ours, 2) for _ in range(5)))
        name = f"{kind} = {value} of n digits: exponent of time in n, {sizes[0]} to {sizes[-1]}"
        found.append(Row(name, exponent(sizes, times), 1.1, "lower"))
    return found


if __name__ == "__main__":
    main(__file__, rows)
