"""A bridge to Pyro: the sites of a guide are sampled on a tape, and any estimator takes the place of ``Trace_ELBO``.

What one sees: data come from one of two Gaussians, and a guide believes for each datum from which. ``OnTape`` is a Pyro
handler of a dozen lines that hands every ``pyro.sample`` to ``Tape.sample``; the cost is the negative ELBO of each
datum. With as many samples as Pyro's, a baseline from the other samples leaves less variance; enumeration leaves none.

python examples/pyro_bridge.py [--smoke]         needs pip install pyro-ppl
"""

import sys

import torch
from torch import Tensor

from doxa.stochastic import Enumerate, Estimator, LeaveOneOut, Score, Tape

try:
    import pyro
    import pyro.distributions as dist
    from pyro import poutine
    from pyro.infer import Trace_ELBO
except ImportError:
    print("skipped: this example needs Pyro; pip install pyro-ppl")
    sys.exit(0)

PRIOR, PLACES = 0.3, (0.0, 2.0)


def model(x: Tensor) -> None:
    with pyro.plate("data", len(x)):
        z = pyro.sample("z", dist.Bernoulli(torch.full((len(x),), PRIOR)))
        pyro.sample("x", dist.Normal(PLACES[0] + (PLACES[1] - PLACES[0]) * z, 1.0), obs=x)


def guide(x: Tensor) -> None:
    logits = pyro.param("logits", lambda: torch.zeros(len(x)))
    with pyro.plate("data", len(x)):
        pyro.sample("z", dist.Bernoulli(logits=logits))


class OnTape(poutine.messenger.Messenger):
    """Samples the sites of a guide on a tape; the data of the plate are the batch of the tape."""

    def __init__(self, tape: Tape, estimator: Estimator) -> None:
        super().__init__()
        self.tape, self.estimator = tape, estimator
        self.values: dict[str, Tensor] = {}
        self.log_q: Tensor = torch.zeros(())

    def _pyro_sample(self, site: dict) -> None:
        if not site["is_observed"] and isinstance(site["fn"], torch.distributions.Distribution):
            value = self.tape.sample(site["fn"], self.estimator, name=site["name"])
            self.values[site["name"]] = site["value"] = value
            self.log_q = self.log_q + site["fn"].log_prob(value)
            site["done"] = True


def negative_elbo(x: Tensor, estimator: Estimator) -> Tensor:
    """−ELBO, summed over the data, with gradients by the estimator."""
    tape = Tape(batch_dims=1)
    with OnTape(tape, estimator) as sampled:
        guide(x)
    trace = poutine.trace(poutine.condition(model, data=sampled.values)).get_trace(x)
    trace.compute_log_prob()
    log_p = sum(site["log_prob"] for site in trace.nodes.values() if "log_prob" in site)
    tape.cost(sampled.log_q - log_p)
    return tape.surrogate(reduction="sum")


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    count, steps, repeats = (40, 60, 20) if smoke else (400, 300, 200)
    truth = torch.bernoulli(torch.full((count,), PRIOR))
    x = PLACES[0] + (PLACES[1] - PLACES[0]) * truth + torch.randn(count)
    posterior = torch.sigmoid(
        torch.logit(torch.tensor(PRIOR)) + 0.5 * ((x - PLACES[0]) ** 2 - (x - PLACES[1]) ** 2)
    )  # Bayes' rule, to compare with

    elbo = Trace_ELBO(num_particles=4, vectorize_particles=True, max_plate_nesting=1)
    losses = {"Pyro's Trace_ELBO, 4 particles": lambda: elbo.differentiable_loss(model, guide, x)}
    for estimator in (Score(4), LeaveOneOut(4), Enumerate()):
        losses[f"doxa's {estimator.describe()}"] = lambda e=estimator: negative_elbo(x, e)

    for name, loss in losses.items():
        pyro.clear_param_store()
        guide(x)
        logits = pyro.param("logits").unconstrained()
        gradients = torch.stack([torch.autograd.grad(loss(), logits)[0] for _ in range(repeats)])
        optimizer = torch.optim.Adam([logits], 0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        off = float((torch.sigmoid(logits.detach()) - posterior).abs().mean())
        print(f"{name:32} variance of the gradient {float(gradients.var(0).mean()):.1e}, beliefs off by {off:.3f}")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
