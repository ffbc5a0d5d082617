"""Aggregates over network outputs, exact, forward and backward: the sum of 100 digits said in the language against a
convolution in log space written by hand, a maximum against products of cumulative probabilities; and how time grows."""

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


def cumulative(log_probs: Tensor, most: Tensor) -> Tensor:
    """log p(maximum) of n digits: that all are at most m, but not all less."""
    below = log_probs.exp().cumsum(-1).log().sum(1)
    here = below.gather(1, most.unsqueeze(1)).squeeze(1)
    less = pad(below, (1, 0), value=NEVER).gather(1, most.unsqueeze(1)).squeeze(1)
    return here + torch.log1p(-(less - here).exp())


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
    hands: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sum": convolution, "max": cumulative}
    for kind, n in (("sum", 10), ("sum", 100), ("max", 100)):
        logits = torch.randn(BATCH, n, 10, requires_grad=True)
        digits = torch.distributions.Categorical(logits=logits.detach()).sample()
        value = digits.sum(1) if kind == "sum" else digits.amax(1)
        ours, hand = posed(kind, logits, value), hands[kind]

        def by_hand(
            logits: Tensor = logits, value: Tensor = value, hand: Callable[[Tensor, Tensor], Tensor] = hand
        ) -> None:
            logits.grad = None
            hand(logits.log_softmax(-1), value).mean().neg().backward()

        agreeing(ours, by_hand, logits)
        peer = "a convolution in log space" if kind == "sum" else "products of cumulative probabilities"
        goal = 1.5 if kind == "sum" and n == 100 else 25.0
        found.append(
            compare(
                f"{kind} of {n} digits, batch {BATCH}: time against {peer}", ours, by_hand, goal=goal, better="lower"
            )
        )
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
