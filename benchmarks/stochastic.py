"""Stochastic graphs: a step of a VAE against estimators written by hand on torch.distributions, against storchastic,
and long chains.

By hand, each estimator is a few lines for this one model: the score function, leave-one-out, RELAX and the unordered
set on ``OneHotCategorical``, reparameterisation by ``rsample`` of ``Normal``, and relaxation by
``RelaxedOneHotCategorical``. storchastic is used as its documentation shows. It patches torch when it is imported, so
it is timed in processes of its own, which take turns with ours. Where it is not installed its rows are left out.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, OneHotCategorical, RelaxedOneHotCategorical, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from doxa.stochastic import RELAX, Estimator, GumbelSoftmax, LeaveOneOut, Reparameterise, Score, Tape, UnorderedSet
from doxa.stochastic.estimators._without_replacement import set_log_probs
from harness import Row, compare, exponent, summary

BATCH, LATENTS, VALUES, PIXELS = 64, 20, 10, 784


class Model(nn.Module):
    """The discrete VAE of the dissertation: 20 variables of 10 values."""

    def __init__(self) -> None:
        super().__init__()
        width = LATENTS * VALUES
        self.encode = nn.Sequential(
            nn.Linear(PIXELS, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)
        )
        self.decode = nn.Sequential(
            nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, PIXELS)
        )
        self.surrogate = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(-2))

    def logits(self, x: Tensor) -> Tensor:
        return self.encode(x).unflatten(-1, (LATENTS, VALUES))

    def reconstruction(self, z: Tensor, x: Tensor) -> Tensor:
        out = self.decode(z.flatten(-2))
        return binary_cross_entropy_with_logits(out, x.expand_as(out), reduction="none").sum(-1)

    def relaxed(self, z: Tensor) -> Tensor:
        return self.surrogate(z.flatten(-2))


def kl(log_p: Tensor) -> Tensor:
    return (log_p.exp() * (log_p + math.log(VALUES))).sum((-2, -1))


def posterior(logits: Tensor) -> Independent:
    return Independent(OneHotCategorical(logits=logits, validate_args=False), 1, validate_args=False)


def step_with(model: Model, x: Tensor, estimator: Estimator) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        q = posterior(model.logits(x))
        tape = Tape(batch_dims=1)
        z = tape.sample(q, estimator)
        tape.cost(model.reconstruction(z, x))
        tape.cost(kl(q.base_dist.logits))
        tape.surrogate().backward()

    return step


def step_that_trains_relax(model: Model, x: Tensor) -> Callable[[], None]:
    """A step of RELAX with the gradient of its control variate, as storchastic always computes it."""
    decoder, learnt = list(model.decode.parameters()), list(model.surrogate.parameters())

    def step() -> None:
        model.zero_grad()
        logits = model.logits(x)
        q = posterior(logits)
        tape = Tape(batch_dims=1)
        tape.cost(model.reconstruction(tape.sample(q, RELAX(model.relaxed)), x))
        tape.cost(kl(q.base_dist.logits))
        slope, *rest = torch.autograd.grad(tape.surrogate(order=2), [logits, *decoder], create_graph=True)
        variance = torch.autograd.grad(slope.square().sum(), learnt, retain_graph=True)
        for parameter, gradient in zip([*decoder, *learnt], [*rest, *variance], strict=True):
            parameter.grad = gradient.detach()
        logits.backward(slope.detach())

    return step


# The same steps as one writes them for this model and first derivatives only.


def score_by_hand(model: Model, x: Tensor, n: int, leave_one_out: bool) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        q = posterior(model.logits(x))
        z = q.sample((n,))
        f = model.reconstruction(z, x)
        reward = f.detach()
        if leave_one_out:
            reward = reward - (reward.sum(0) - reward) / (n - 1)
        (f + q.log_prob(z) * reward + kl(q.base_dist.logits)).mean().backward()

    return step


def relax_by_hand(model: Model, x: Tensor) -> Callable[[], None]:
    tiny = torch.finfo(torch.float32).tiny

    def step() -> None:
        model.zero_grad()
        q = posterior(model.logits(x))
        log_p = q.base_dist.logits
        u, v = torch.rand(2, 1, BATCH, LATENTS, VALUES).clamp_min(tiny).unbind(0)
        z = log_p - torch.log(-torch.log(u))
        index = z.argmax(-1)
        b = one_hot(index, VALUES).to(z.dtype)
        hit = b.bool()
        e = torch.log(-torch.log(v))
        top = -torch.where(hit, e, 0.0).sum(-1, keepdim=True)
        given = torch.where(hit, top, -torch.logaddexp(e - log_p, -top))
        f = model.reconstruction(b, x)
        c, c_given = model.relaxed(torch.cat([z, given])).chunk(2)
        l = q.log_prob(b)
        (f + l * (f - c_given).detach() + c - c_given + kl(log_p)).mean().backward()

    return step


def unordered_by_hand(model: Model, x: Tensor, k: int) -> Callable[[], None]:
    """Gumbel-top-k over the product space by beam search, and the weights of the set."""

    def draw(log_p: Tensor) -> tuple[Tensor, Tensor]:
        table = log_p.double()
        phi = torch.zeros(BATCH, 1, dtype=torch.float64)
        noise = -torch.log(-torch.log(torch.rand(BATCH, 1, dtype=torch.float64)))
        chosen = torch.zeros(BATCH, 1, 0, dtype=torch.long)
        for t in range(LATENTS):
            child = phi.unsqueeze(-1) + table[:, t].unsqueeze(1)
            g = child - torch.log(-torch.log(torch.rand_like(child)))
            top = g.max(-1, keepdim=True).values
            v = noise.unsqueeze(-1) - g + torch.log1p(-torch.exp(g - top))
            g = noise.unsqueeze(-1) - v.clamp_min(0) - torch.log1p(torch.exp(-v.abs()))
            noise, best = g.flatten(1).topk(min(k, g[0].numel()), -1)
            phi = child.flatten(1).gather(-1, best)
            parent = (best // VALUES).unsqueeze(-1).expand(-1, -1, t)
            chosen = torch.cat([chosen.gather(1, parent), (best % VALUES).unsqueeze(-1)], -1)
        return chosen, phi

    def step() -> None:
        model.zero_grad()
        q = posterior(model.logits(x))
        log_p = q.base_dist.logits
        with torch.no_grad():
            index, phi = draw(log_p)
            rest = torch.log1p(-phi.exp().sum(-1))
            whole, first, second = set_log_probs(phi, rest)
            w = (phi + first - whole.unsqueeze(-1)).exp().T.float()
            ratio = (phi.unsqueeze(-2) + second - first.unsqueeze(-1)).exp()
            z = one_hot(index.transpose(0, 1), VALUES).to(log_p.dtype)
        f = model.reconstruction(z, x)
        b = (ratio * f.detach().double().T.unsqueeze(1)).sum(-1).T.float()
        l = q.log_prob(z)
        ((w * (f + l * (f.detach() - b))).sum(0) + kl(log_p)).mean().backward()

    return step


TEMPERATURE = 0.5


def relaxed_step(model: Model, x: Tensor) -> Callable[[], None]:
    estimator = GumbelSoftmax(TEMPERATURE)

    def step() -> None:
        model.zero_grad()
        q = posterior(model.logits(x))
        tape = Tape(batch_dims=1)
        tape.cost(model.reconstruction(tape.sample(q, estimator), x))
        tape.cost(kl(q.base_dist.logits))
        tape.surrogate(allow_biased=True).backward()

    return step


def relaxed_by_hand(model: Model, x: Tensor) -> Callable[[], None]:
    temperature = torch.tensor(TEMPERATURE)

    def step() -> None:
        model.zero_grad()
        log_p = model.logits(x).log_softmax(-1)
        z = RelaxedOneHotCategorical(temperature, logits=log_p, validate_args=False).rsample((1,))
        (model.reconstruction(z, x) + kl(log_p)).mean().backward()

    return step


def gaussian(logits: Tensor) -> Independent:
    return Independent(Normal(logits, 0.5, validate_args=False), 2, validate_args=False)


PRIOR = Independent(Normal(torch.zeros(LATENTS, VALUES), 1.0, validate_args=False), 2, validate_args=False)


def gaussian_step(model: Model, x: Tensor) -> Callable[[], None]:
    estimator = Reparameterise(1)

    def step() -> None:
        model.zero_grad()
        q = gaussian(model.logits(x))
        tape = Tape(batch_dims=1)
        tape.cost(model.reconstruction(tape.sample(q, estimator), x))
        tape.cost(kl_divergence(q, PRIOR))
        tape.surrogate().backward()

    return step


def gaussian_by_hand(model: Model, x: Tensor) -> Callable[[], None]:
    def step() -> None:
        model.zero_grad()
        q = gaussian(model.logits(x))
        z = q.rsample((1,))
        (model.reconstruction(z, x) + kl_divergence(q, PRIOR)).mean().backward()

    return step


def same_gradient(model: Model, *steps: Callable[[], None]) -> None:
    """From the same random numbers, the same gradient; for estimators that draw them in the same order."""
    found = []
    for step in steps:
        torch.manual_seed(1)
        step()
        found.append(model.encode[0].weight.grad.clone())
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3 * float(found[1].abs().max()))


def vae_rows() -> list[Row]:
    torch.manual_seed(0)
    model, x = Model(), torch.rand(BATCH, PIXELS).round()
    cases = [
        ("score@1", Score(1), score_by_hand(model, x, 1, False), 1.05),
        ("leave-one-out@5", LeaveOneOut(5), score_by_hand(model, x, 5, True), 1.05),
        ("RELAX@1", RELAX(model.relaxed), relax_by_hand(model, x), 1.15),
        ("unordered set@5", UnorderedSet(5), unordered_by_hand(model, x, 5), 1.15),
    ]
    steps = [
        (f"VAE 10^20 step, {name}", step_with(model, x, estimator), by_hand, goal)
        for name, estimator, by_hand, goal in cases
    ]
    steps += [
        ("VAE 10^20 step, Gumbel-softmax@1", relaxed_step(model, x), relaxed_by_hand(model, x), 1.15),
        ("Gaussian VAE step, reparameterised@1", gaussian_step(model, x), gaussian_by_hand(model, x), 1.05),
    ]
    same_gradient(model, steps[-1][1], steps[-1][2])
    return [
        compare(f"stochastic: {name}, against torch.distributions by hand", ours, by_hand, goal=goal, better="lower")
        for name, ours, by_hand, goal in steps
    ]


def chain(length: int) -> float:
    """CPU seconds of a chain of nodes with as many costs, surrogate and gradient included."""
    theta = torch.tensor(0.1, requires_grad=True)
    start = time.process_time()
    tape = Tape(batch_dims=1)
    x = torch.zeros(8)
    for _ in range(length):
        x = tape.sample(torch.distributions.Bernoulli(logits=theta * (2 * x - 1), validate_args=False), Score(), n=None)
        tape.cost(x)
    torch.autograd.grad(tape.surrogate(), theta)
    return time.process_time() - start


def chain_row() -> Row:
    lengths = [1, 3, 10, 30, 100, 300, 1000]
    chain(10)
    times = [min(chain(n) for _ in range(8 if n < 300 else 3)) for n in lengths]
    note = ", ".join(f"{n}: {t * 1e3:.3g} ms" for n, t in zip(lengths, times, strict=True))
    return Row("stochastic: chains of 1 to 1,000 nodes, exponent", exponent(lengths, times), 1.1, "lower", note=note)


# storchastic, in processes of its own.

LEARNING = "RELAX@1 with its control variate trained"
NAMES = ("score@1", "leave-one-out@5", "unordered set@5", LEARNING)


def storchastic_step(name: str) -> Callable[[], None]:
    import storch  # type: ignore[import-not-found]

    torch.manual_seed(0)
    model, x = Model(), torch.rand(BATCH, PIXELS).round()
    methods = {
        "score@1": lambda: storch.method.ScoreFunction("z", n_samples=1, baseline_factory=None),
        "leave-one-out@5": lambda: storch.method.ScoreFunction("z", n_samples=5, baseline_factory="batch_average"),
        "unordered set@5": lambda: storch.method.UnorderedSetEstimator("z", k=5),
        LEARNING: lambda: storch.method.RELAX("z", in_dim=(LATENTS, VALUES)),
    }
    method = methods[name]()

    def step() -> None:
        model.zero_grad()
        data = storch.denote_independent(x, 0, "data")
        log_p = model.encode(data).reshape(BATCH, LATENTS, VALUES).log_softmax(-1)
        # storchastic's RELAX looks for the parameter probs
        by = {"probs": log_p.exp()} if name == LEARNING else {"logits": log_p}
        z = method(OneHotCategorical(**by, validate_args=False))
        out = model.decode(z.reshape((*z.shape[:-2], LATENTS * VALUES)))
        storch.add_cost(
            torch.nn.BCEWithLogitsLoss(reduction="none")(out, data.expand_as(out)).sum(-1), "reconstruction"
        )
        storch.add_cost((log_p.exp() * (log_p + math.log(VALUES))).sum(-1).sum(-1), "kl")
        storch.backward()

    return step


def one_process(who: str, name: str) -> None:
    """Print the CPU milliseconds of a step, the median of many."""
    torch.set_num_threads(1)
    if who == "doxa":
        torch.manual_seed(0)
        model, x = Model(), torch.rand(BATCH, PIXELS).round()
        estimators = {"score@1": Score(1), "leave-one-out@5": LeaveOneOut(5), "unordered set@5": UnorderedSet(5)}
        step = step_that_trains_relax(model, x) if name == LEARNING else step_with(model, x, estimators[name])
    else:
        step = storchastic_step(name)
    times = []
    for i in range(30):
        start = time.process_time()
        step()
        if i >= 5:
            times.append(time.process_time() - start)
    print(json.dumps(sorted(times)[len(times) // 2] * 1e3))


def storchastic_rows() -> list[Row]:
    if importlib.util.find_spec("storch") is None:
        print("storchastic 0.3.7 is not installed: its rows are left out")
        return []
    rows = []
    for name in NAMES:
        ratios = []
        for _ in range(5):
            found = {}
            for who in ("doxa", "storchastic"):
                done = subprocess.run(
                    [sys.executable, __file__, "--one", who, name],
                    capture_output=True,
                    text=True,
                    cwd=Path(__file__).parent,
                )
                if done.returncode:
                    print(f"storchastic, {name}: {done.stderr.strip().splitlines()[-1]}")
                    break
                found[who] = float(done.stdout.strip().splitlines()[-1])
            if len(found) == 2:
                ratios.append(found["storchastic"] / found["doxa"])
        if ratios:
            label = f"stochastic: VAE 10^20 step, {name}, faster than storchastic"
            rows.append(summary(label, ratios, goal=1.0, better="higher"))
    return rows


def rows() -> list[Row]:
    return [*vae_rows(), chain_row(), *storchastic_rows()]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one_process(sys.argv[2], sys.argv[3])
    else:
        from harness import main

        main(__file__, rows)
