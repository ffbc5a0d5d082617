"""Amortised inference: a training iteration against networks in a loop, decoding, and queries beside exact inference.

The iteration is that of the dissertation's prediction-only model for sums of N digits: a batch of 16 beliefs, the
Dirichlet prior fitted to the last 2,500 beliefs in 50 steps, 600 beliefs drawn from it, one network of three layers of
800 for each digit of the sum, and Adam. The peer is the same in plain torch, network by network. Perception is left out
on both sides: its logits are parameters.

The matrix products of these networks are nearly all of an iteration, and they are the same however they are arranged.
So one batched product cannot be much faster than the loop: an iteration that did nothing else would be 1.3 to 1.5 times
faster, and no goal above that can be met. Its time is therefore measured against that bound, the products alone; the
note says what the loop takes of it. The scan model has fewer products, and is measured against the loop.

Accuracy after equal CPU time is that of real digits (MNIST) learnt from their sums, with both models as above.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Dirichlet
from torch.nn.functional import one_hot, softplus

from doxa.amortized import AmortizedReasoner, FactorMLPs, FittedDirichlet, InferenceModel, JointTraining, ScanModel
from doxa.data import MNIST, Batches, digits_task, normalize
from doxa.exact import Elimination
from doxa.problem import Belief, Problem, addition
from doxa.train.tasks._find import digit_network
from harness import Row, compare, cpu_seconds, exponent, main

LENGTHS = [1, 2, 4, 8, 15, 30, 50, 100]
BATCH, SAMPLES, HIDDEN, STORED, STEPS, L2 = 16, 600, 800, 2500, 50, 900_000.0


class Logits(nn.Module):
    """Perception without a network: one row of logits for each input."""

    def __init__(self, digits: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(BATCH, 2 * digits, 10))

    def forward(self, rows: Tensor) -> Tensor:
        return self.table[rows]


def ours(digits: int, make: Callable[[Problem], InferenceModel]) -> Callable[[], object]:
    problem = addition(digits)
    prior = FittedDirichlet(problem.world)
    prior.observe(Belief.from_logits(torch.randn(STORED, 2 * digits, 10)))
    training = JointTraining(AmortizedReasoner(problem, make(problem), prior), Logits(digits), samples=SAMPLES)
    rows = torch.arange(BATCH)
    labels = problem(torch.randint(10, (BATCH, 2 * digits)))
    return lambda: training.step(rows, labels)


def in_a_loop(digits: int) -> Callable[[], object]:
    """One network after the other, as one writes it first."""
    problem = addition(digits)
    sizes, width = problem.output, 2 * digits * 10
    networks = nn.ModuleList()
    for i, size in enumerate(sizes):
        inputs = width + sum(sizes[:i])
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(inputs, HIDDEN), nn.ReLU()]
            inputs = HIDDEN
        networks.append(nn.Sequential(*layers, nn.Linear(HIDDEN, size)))
    perception = Logits(digits)
    optimizer = torch.optim.Adam([*perception.parameters(), *networks.parameters()], 1e-3)
    raw = nn.Parameter(torch.full((2 * digits, 10), -2.252168))
    of_prior = torch.optim.Adam([raw], 0.01)
    stored = torch.randn(STORED, 2 * digits, 10).softmax(-1)
    rows = torch.arange(BATCH)
    labels = problem(torch.randint(10, (BATCH, 2 * digits)))

    def log_q(probs: Tensor, outputs: Tensor) -> Tensor:
        x = probs.flatten(1)
        total = torch.zeros(len(x))
        for network, size, output in zip(networks, sizes, outputs.unbind(-1), strict=True):
            total = total + Categorical(logits=network(x)).log_prob(output)
            x = torch.cat([x, one_hot(output, size).to(x)], -1)
        return total

    def step() -> None:
        nonlocal stored
        probs = perception(rows).softmax(-1)
        stored = torch.cat([stored, probs.detach()])[-STORED:]
        statistic = (stored + 1e-7).log().mean(0)
        for _ in range(STEPS):
            of_prior.zero_grad()
            alpha = softplus(raw)
            likelihood = torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1) + ((alpha - 1) * statistic).sum(-1)
            (-STORED * likelihood.mean() + L2 * alpha.square().mean()).backward()
            of_prior.step()
        beliefs = Dirichlet(softplus(raw).detach()).sample((SAMPLES,))
        outputs = problem(Categorical(beliefs).sample())
        optimizer.zero_grad()
        (-log_q(beliefs, outputs).mean()).backward()
        for parameter in networks.parameters():
            parameter.requires_grad_(False)
        (-log_q(probs, labels).mean()).backward()
        for parameter in networks.parameters():
            parameter.requires_grad_(True)
        optimizer.step()

    return step


def products_only(digits: int) -> Callable[[], object]:
    """The matrix products of an iteration alone: three for each layer of a network, and none for the first input."""
    problem = addition(digits)
    x, g = torch.randn(SAMPLES, HIDDEN), torch.randn(SAMPLES, HIDDEN)
    w = torch.randn(HIDDEN, HIDDEN)
    inputs = [torch.randn(SAMPLES, 2 * digits * 10 + sum(problem.output[:i])) for i in range(len(problem.output))]
    firsts = [torch.randn(i.shape[1], HIDDEN) for i in inputs]

    def products() -> None:
        for i, first in zip(inputs, firsts, strict=True):
            i @ first
            i.T @ g
            for _ in range(2):
                x @ w
                x.T @ g
                g @ w.T

    return products


def iteration_rows() -> list[Row]:
    rows = []
    for digits in (1, 4, 15):
        torch.manual_seed(0)
        peer = in_a_loop(digits)
        repeats = 9 if digits < 15 else 5
        products = products_only(digits)
        loop = compare("", peer, products, goal=1.0, better="lower", repeats=repeats).ratio
        rows += [
            compare(
                f"amortized: training iteration N={digits}, one batched product, time over its matrix products by hand",
                ours(digits, batched),
                products,
                goal=1.5,
                better="lower",
                repeats=repeats,
                note=f"nothing can be below 1; networks in a loop take {loop:.3g}",
            ),
            compare(
                f"amortized: training iteration N={digits}, scan model, against networks in a loop",
                ours(digits, shared),
                peer,
                goal=6.0,
                better="higher",
                repeats=repeats,
            ),
        ]
    return rows


def batched(problem: Problem) -> InferenceModel:
    return FactorMLPs(problem, hidden=HIDDEN, explain=False)


def shared(problem: Problem) -> InferenceModel:
    return ScanModel(problem, explain=False)


def accuracy_after(seconds: float, digits: int, make: Callable[[Problem], InferenceModel]) -> float:
    """The share of sums of test digits that are read right, after so many CPU-seconds of training."""
    torch.manual_seed(0)
    mnist, problem = MNIST.load(progress=False), addition(digits)
    task = digits_task(mnist, problem, seed=0)
    batches = Batches((task.images, task.outputs), BATCH, seed=0, drop_last=True)
    network = digit_network()

    def perceive(images: Tensor) -> Tensor:
        return network(normalize(images.flatten(0, 1).unsqueeze(1))).view(*images.shape[:2], 10)

    engine = AmortizedReasoner(problem, make(problem), FittedDirichlet(problem.world))
    optimizer = torch.optim.Adam([*network.parameters(), *engine.model.parameters()], 1e-3, fused=True)
    training = JointTraining(engine, perceive, optimizer, samples=SAMPLES)
    start = time.process_time()
    while time.process_time() - start < seconds:
        training.step(*batches.next())
    with torch.no_grad():
        read = torch.cat([network(normalize(part.unsqueeze(1))) for part in mnist.test_images.split(1000)]).argmax(1)
    rows = torch.arange(len(read) // (2 * digits) * 2 * digits).view(-1, 2 * digits)
    right = problem(read[rows]) == problem(mnist.labels("test")[rows])
    return float(right.all(-1).double().mean())


def accuracy_rows() -> list[Row]:
    rows = []
    for digits, seconds in ((1, 60), (4, 120)):
        ours, theirs = (accuracy_after(seconds, digits, make) for make in (shared, batched))
        name = f"amortized: accuracy after {seconds} CPU-seconds, N={digits}, scan model over networks for each digit"
        rows.append(Row(name, ours / max(theirs, 1e-9), 1.0, "higher", note=f"{ours:.1%} and {theirs:.1%}"))
    return rows


def query_rows() -> list[Row]:
    rows = []
    for digits in (4, 15):
        torch.manual_seed(0)
        problem = addition(digits)
        belief = Belief.from_logits(3 * torch.randn(BATCH, 2 * digits, 10))
        engine, exact = AmortizedReasoner(problem, ScanModel(problem, explain=False), beams=8), Elimination(problem)
        rows.append(
            compare(
                f"amortized: best sum of {BATCH} queries N={digits}, 8 beams, against exact inference with 8 beams",
                lambda engine=engine, belief=belief: engine.predict(belief),
                lambda exact=exact, belief=belief: exact.predict(belief),
                goal=1.0,
                better="higher",
                repeats=9,
            )
        )
    return rows


def growth_rows() -> list[Row]:
    """How the time of one query grows with the length of the numbers: linear is 1."""
    rows = []
    for beams in (1, 20):
        times = []
        for digits in LENGTHS:
            torch.manual_seed(0)
            problem = addition(digits)
            engine = AmortizedReasoner(problem, ScanModel(problem, explain=False), beams=beams)
            belief = Belief.from_logits(torch.randn(1, 2 * digits, 10))
            engine.predict(belief)
            times.append(min(cpu_seconds(lambda e=engine, b=belief: e.predict(b), 1) for _ in range(9)))
        note = ", ".join(f"N={n}: {t * 1e3:.3g} ms" for n, t in zip(LENGTHS, times, strict=True))
        name = f"amortized: one query, N from 1 to 100, {beams} beam{'s' if beams > 1 else ''}, exponent"
        rows.append(Row(name, exponent(LENGTHS, times), 1.1, "lower", note=note))
    return rows


def rows() -> list[Row]:
    return [*iteration_rows(), *accuracy_rows(), *query_rows(), *growth_rows()]


if __name__ == "__main__":
    main(__file__, rows)
