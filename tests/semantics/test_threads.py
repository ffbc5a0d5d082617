"""One model in several threads: the same numbers and derivatives as in one, under every semantics."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.semantics.knowledge import ADDITION
from torch import Tensor, nn

import doxa

THREADS = 8
WORDS = ("exact", "fuzzy", "refined", "sampled", "auto", "amortized")


def batches(count: int) -> list[dict[str, Any]]:
    draw = torch.Generator().manual_seed(0)
    sizes = [3 + i % 4 for i in range(count)]  # of several shapes, so that plans are made while others are used
    return [
        {
            "left": torch.randn(n, 5, generator=draw),
            "right": torch.randn(n, 5, generator=draw),
            "sum": torch.randint(7, (n,), generator=draw),
        }
        for n in sizes
    ]


def model(word: str) -> doxa.Model:
    torch.manual_seed(0)
    made = doxa.Model(ADDITION, word, digit=doxa.logits(nn.Linear(5, 4)))
    if word == "amortized":
        how = doxa.Amortized(hidden=8, pretrain=2, samples=5)
        made.semantics = how
        made.inference_step(pairs=batches(1)[0], generator=torch.Generator().manual_seed(1))
    return made


def together(asks: list[Callable[[], Any]]) -> list[Any]:
    """All of them at the same time."""
    start = threading.Barrier(THREADS)

    def run(ask: Callable[[], Any]) -> Any:
        start.wait()
        return ask()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, asks))


def ask(own: doxa.Model, rows: dict[str, Any]) -> tuple[Tensor, list[Tensor], Tensor]:
    draw = torch.Generator().manual_seed(3)
    loss = own.loss(pairs=rows, generator=draw)
    truth = own.truth(pairs=rows, generator=draw, per_row=True)["sum"]
    return loss.detach(), list(torch.autograd.grad(loss, list(own.parameters()))), truth.detach()


@pytest.mark.parametrize("word", WORDS)
def test_eight_threads_get_what_one_gets(word: str) -> None:
    given = batches(THREADS)
    alone = [ask(model(word), rows) for rows in given]
    shared = model(word)
    found = together([lambda rows=rows: ask(shared, rows) for rows in given])
    for expected, got in zip(alone, found, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_eight_threads_judge_and_correct() -> None:
    given = batches(THREADS)

    def judged(own: doxa.Model, rows: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        return (
            own.truth(pairs=rows, semantics="classical")["sum"],
            own.predict("pairs.sum", pairs=rows).values,
            own.layer()(pairs=rows).log_prob.detach(),
        )

    alone = [judged(model("exact"), rows) for rows in given]
    shared = model("exact")
    found = together([lambda rows=rows: judged(shared, rows) for rows in given])
    for expected, got in zip(alone, found, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_inference_models_learn_in_turns() -> None:
    own, rows = model("amortized"), batches(1)[0]
    assert together([lambda: own.inference_step(pairs=rows)] * THREADS) == [1] * THREADS
    (learner,) = own.inference._live.values()
    assert learner.updates == 3 + THREADS
    assert all(p.requires_grad for p in learner.engine.model.parameters())


def test_a_copy_does_not_wait_for_the_original() -> None:
    own, rows = model("exact"), batches(1)[0]
    for copied in (copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        with own.lock, ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda copied=copied: copied.loss(pairs=rows).item()).result(timeout=60)
        assert found == own.loss(pairs=rows).item()
