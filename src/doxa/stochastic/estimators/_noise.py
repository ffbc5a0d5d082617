r"""Estimators that know the noise behind discrete samples: antithetic pairs, and control variates on relaxed samples.

With α the logits, ε logistic noise, b = 1[α + ε > 0] and its twin b̃ = 1[α − ε > 0] (errata 4.2):

    ARM:      w = (1, 0),   l = log q_α(⊥(α+ε)),   a = (1 − □(l)) ½ (⊥f(b) + ⊥f(b̃))
    DisARM:   w = (½, ½),   l = ± Σ_d α_d ⊥[(−1)^{b̃_d} 1{b_d≠b̃_d} σ(|α_d|)],   a = 0

are unbiased for the value and the first derivative only: they use that the score of a logistic variable is odd. For
more than two values, ARSM swaps the noise of two of them.

    LAX:     x reparameterised, the cost sees ⊥x,   l = log p(⊥x),   a = c(x) − □(l) c(⊥x)
    RELAX:   z relaxed, b = H(z), z̃ ~ p(z|b),       l = log p(b),    a = c(z) − ⊥c(z) − □(l) c(z̃) + ⊥c(z̃)

c is any differentiable function, which may depend on the parameters of the model. REBAR is RELAX with c the cost
itself at a relaxed sample. Train c with ``Tape.variance_objective``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn.functional import logsigmoid, softplus

from doxa.errors import ConfigError
from doxa.stochastic.estimators._estimator import Draw, Estimator, reparameterised, require_positive, uniform
from doxa.stochastic.estimators._factors import Factors, clamped, factors, has_factors, is_bernoulli, repeat_batch
from doxa.stochastic.estimators._lifted import Lifted, padded
from doxa.stochastic.estimators._score import Score


def _binary(distribution: Distribution, who: str) -> tuple[Factors, Tensor]:
    """The factors, and the logits (*batch, R), live."""
    if not is_bernoulli(distribution):
        raise ConfigError(f"{who} is for Bernoulli variables (also Independent), got {type(distribution).__name__}")
    f = factors(distribution)
    return f, clamped(f.log_probs[..., 1] - f.log_probs[..., 0])


class _Twins(Estimator):
    distributions = "Bernoulli"
    evaluations = "2n"
    order = 1

    def fits(self, distribution: Distribution) -> bool:
        return is_bernoulli(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        _, alpha = _binary(distribution, type(self).__name__)
        return self._complete(distribution, uniform(alpha.detach().expand(n, *alpha.shape)))

    def _complete(self, distribution: Distribution, u: Tensor) -> Draw:
        """Samples (b, b̃), 2n of them, from uniform noise (n, *batch, R); notes: ε for all of them."""
        f, alpha = _binary(distribution, type(self).__name__)
        with torch.no_grad():
            noise = torch.log(u) - torch.log1p(-u)
            noise = torch.cat([noise, -noise])
            return Draw(f.value((alpha + noise > 0).long()), distribution, noise=noise)


class ARM(_Twins):
    """Augment-REINFORCE-merge: the score of the logistic noise, with the average of a sample and its twin as baseline.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(3)), ARM())
    >>> z.sum(0)                                                     # at logit 0 the twin is the opposite
    tensor([1., 1., 1.])
    """

    def weight(self, draw: Draw) -> Tensor:
        return draw.first(draw.m // 2)

    def gradient(self, draw: Draw) -> Tensor:
        _, alpha = _binary(draw.distribution, "ARM")
        x = (alpha.detach() + draw.notes["noise"][: draw.m // 2]) - alpha
        return padded((-x - 2 * softplus(-x)).sum(-1), draw.m)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        n = draw.m // 2
        return padded((1 - box[:n]) * (0.5 * (cost[:n] + cost[n:])), draw.m)


class DisARM(_Twins):
    """DisARM: ARM with the noise integrated out given the pair of samples.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> logits = torch.zeros(3, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=logits), DisARM())
    >>> _ = tape.cost(z * 2)
    >>> torch.autograd.grad(tape.surrogate(reduction="sum"), logits)[0]     # ½ (f(1) − f(0)) σ(0)
    tensor([0.5000, 0.5000, 0.5000])
    """

    def outcomes(self, distribution: Distribution, n: int) -> tuple[Draw, Tensor] | None:
        f, alpha = _binary(distribution, "DisARM")
        if n > 1 or f.sizes != (2,):
            return None
        # Samples change where the noise passes ±α: three intervals of u, and everything is constant on each.
        with torch.no_grad():
            a = torch.sigmoid(-alpha[..., 0].abs().double())
            u = torch.stack([a / 2, torch.full_like(a, 0.5), 1 - a / 2]).unsqueeze(0).unsqueeze(-1)
            prob = torch.stack([a, 1 - 2 * a, a])
        return self._complete(repeat_batch(distribution, 3), u), prob

    def gradient(self, draw: Draw) -> Tensor:
        f, alpha = _binary(draw.distribution, "DisARM")
        n = draw.m // 2
        index = f.index(draw.value)
        sign = 1 - 2 * index[n:].to(alpha.dtype)
        factor = torch.where(index[:n] != index[n:], sign * torch.sigmoid(alpha.detach().abs()), 0.0)
        l = (alpha * factor).sum(-1)
        return torch.cat([l, -l])


class ARMS(Lifted):
    r"""ARMS: n mutually antithetic samples (Dimitriev and Zhou 2021), DisARM for n = 2.

    The samples come from a Dirichlet copula, u_i = 1 − (1 − d_i)^{n−1}, b_i = 1[u_i < p], so that any two are
    negatively correlated, with a correlation ρ known in closed form. Since E[b_i − p | b_j] = ρ (b_j − p), the gradient

        1/(n−1) Σ_i (f_i − f̄) (b_i − p) / (1 − ρ)

    is unbiased. It enters as a control variate of the score function.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(3)), ARMS(4))
    >>> z.shape
    torch.Size([4, 3])
    """

    distributions = "Bernoulli"
    order = 1
    least = 2
    independent = False

    def __init__(self, n: int = 4) -> None:
        super().__init__(n)

    def fits(self, distribution: Distribution) -> bool:
        return is_bernoulli(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f, alpha = _binary(distribution, "ARMS")
        with torch.no_grad():
            p = torch.sigmoid(alpha)
            e = -torch.log(uniform(p.expand(n, *p.shape)))
            d = e / e.sum(0)
            u = -torch.expm1((n - 1) * torch.log1p(-d.clamp_max(1 - torch.finfo(d.dtype).eps)))
            return Draw(f.value((u < p).long()), distribution)

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        f, alpha = _binary(draw.distribution, "ARMS")
        n = draw.m
        with torch.no_grad():
            p = torch.sigmoid(alpha)
            centred = f.index(main).to(p.dtype) - p
            above = (cost - cost.mean(0, keepdim=True)).unsqueeze(-1)
            slope = above * centred / (1 - correlation(p, n)) * (n / (n - 1))
        return (alpha * slope).sum(-1), None


class ARSM(Lifted):
    r"""Augment-REINFORCE-swap-merge: ARM for variables of C values (Yin, Yue and Zhou 2019).

    With π uniform on the simplex and logits φ, z = argmin_i π_i e^{−φ_i}; z^{cj} is the same after π_c and π_j have
    changed places, in all factors at once. Then

        ∂E[f]/∂φ_c = E Σ_j (f(z^{cj}) − 1/C Σ_m f(z^{mj})) (1/C − π_j),

    which enters as a control variate of the score function. For C = 2 it is ARM.

    >>> from torch.distributions import Categorical
    >>> from doxa.stochastic import Tape
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Categorical(logits=torch.zeros(5, 4)), ARSM())
    >>> z.shape                                                      # the sample, and 6 swaps of two of 4 values
    torch.Size([7, 5])
    """

    distributions = "independent finite factors"
    evaluations = "n (1 + pairs of values)"
    order = 1
    independent = False

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution)

    def extra(self, distribution: Distribution) -> int:
        width = factors(distribution, "ARSM").log_probs.shape[-1]
        return width * (width - 1) // 2

    def propose(self, distribution: Distribution, n: int) -> Draw:
        table = factors(distribution, "ARSM").log_probs.detach()
        return self._complete(distribution, -torch.log(uniform(table.expand(n, *table.shape))))

    def _complete(self, distribution: Distribution, noise: Tensor) -> Draw:
        """The samples from exponential noise (n, *batch, R, C), then those of all swaps."""
        f = factors(distribution, "ARSM")
        places, _ = _swaps(noise.shape[-1], noise.device)
        with torch.no_grad():
            times = noise.log()[..., places] - f.log_probs.unsqueeze(-2)  # (n, *batch, R, 1 + pairs, C)
            index = times.argmin(-1).movedim(-1, 0).flatten(0, 1)
            return Draw(f.value(index), distribution, pi=noise / noise.sum(-1, keepdim=True))

    def term(self, draw: Draw, main: Tensor, cost: Tensor, extra: Tensor) -> tuple[Tensor, Tensor | None]:
        f, pi = factors(draw.distribution, "ARSM"), draw.notes["pi"]
        width = pi.shape[-1]
        _, which = _swaps(width, pi.device)
        costs = torch.cat([cost.unsqueeze(0), extra])[which]  # (C, C, n, …): f(z^{cj})
        centred = (costs - costs.mean(0, keepdim=True)).movedim((0, 1), (-1, -2))
        slope = (1 / width - pi).to(centred.dtype) @ centred  # (n, …, R, C)
        logits = torch.where(f.log_probs.isinf(), 0.0, f.log_probs)
        return (logits * slope).sum((-2, -1)), None


def _swaps(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where all is after no swap and after each swap of two, (1 + pairs, C), and which swap is (c, j), (C, C)."""
    places, which = [list(range(width))], torch.zeros(width, width, dtype=torch.long)
    for c in range(width):
        for j in range(c):
            which[c, j] = which[j, c] = len(places)
            swapped = list(range(width))
            swapped[c], swapped[j] = j, c
            places.append(swapped)
    return torch.tensor(places, device=device), which.to(device)


def correlation(p: Tensor, n: int) -> Tensor:
    """The correlation of two of n Bernoulli variables with a Dirichlet copula.

    P(u_i < p, u_j < p) = 2p − 1 + max(0, 2 (1−p)^{1/(n−1)} − 1)^{n−1}, from the joint survival function (1 − a −
    c)^{n−1}.
    """
    q = p.double()
    both = 2 * q - 1 + (2 * (1 - q).pow(1 / (n - 1)) - 1).clamp_min(0).pow(n - 1)
    variance = (q * (1 - q)).clamp_min(1e-300)
    rho = (both - q * q) / variance
    # Never positive; towards p = 0 and p = 1 it tends to 0 and rounding would spoil the quotient.
    return torch.where(variance < 1e-12, 0.0, rho).clamp(-1.0, 0.0).to(p.dtype)


class _Learnt(nn.Module, Score):
    learnable = True
    additive = False
    independent = False
    evaluations = "n, and 2n of c"

    def __init__(self, function: Callable[[Tensor], Tensor], n: int = 1) -> None:
        nn.Module.__init__(self)
        Score.__init__(self, n)
        self.function = function

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.function).__name__}, n={self.n})"


class LAX(_Learnt):
    """The score function with a reparameterised control variate, for continuous variables.

    >>> from torch.distributions import Normal
    >>> from doxa.stochastic import Tape
    >>> mean = torch.tensor(0.5, requires_grad=True)
    >>> tape = Tape()
    >>> z = tape.sample(Normal(mean, 1.0), LAX(lambda x: x ** 2, n=3))
    >>> _ = tape.cost(z ** 2)                       # c equals the cost, so this is the reparameterisation gradient
    >>> g, = torch.autograd.grad(tape.surrogate(), mean)
    >>> bool(torch.allclose(g, 2 * z.mean()))
    True
    """

    distributions = "with rsample"

    def fits(self, distribution: Distribution) -> bool:
        return bool(distribution.has_rsample)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        x = reparameterised(distribution, n)
        return Draw(x.detach(), distribution, live=x)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        return self.function(draw.notes["live"]) - box * self.function(draw.value)


class RELAX(_Learnt):
    """The score function with a control variate on relaxed samples of discrete variables.

    ``function`` gets relaxed values (2n, *batch, …): for Bernoulli variables z = α + logit u in the shape of the
    value, for (one-hot) categorical ones the Gumbel-perturbed log-probabilities, with one entry for each category in
    the last dimension.

    >>> from torch.distributions import Bernoulli, Independent
    >>> from doxa.stochastic import Tape
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Flatten(-2))
    >>> relax = RELAX(net)
    >>> logits = torch.zeros(7, 4, requires_grad=True)
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Independent(Bernoulli(logits=logits), 1), relax)
    >>> _ = tape.cost((z - 0.45).square().sum(-1))
    >>> loss = tape.surrogate()
    >>> slopes = torch.autograd.grad(tape.variance_objective([logits]), relax.parameters())
    """

    distributions = "independent finite factors"

    def fits(self, distribution: Distribution) -> bool:
        return has_factors(distribution)

    def propose(self, distribution: Distribution, n: int) -> Draw:
        f = factors(distribution, type(self).__name__)
        wide = f.log_probs.detach().expand(n, *f.log_probs.shape)
        wide = wide[..., 1] if wide.shape[-1] == 2 else wide
        return self._complete(distribution, f, uniform(wide), uniform(wide))

    def _complete(self, distribution: Distribution, f: Factors, u: Tensor, v: Tensor) -> Draw:
        """The relaxed sample from noise u, and a second one from noise v with the same discrete value."""
        if f.log_probs.shape[-1] == 2:
            alpha = clamped(f.log_probs[..., 1] - f.log_probs[..., 0])
            z = alpha + torch.log(u) - torch.log1p(-u)
            index = (z > 0).long()
            other = _binary_given(alpha, index, v)
        else:
            log_probs = clamped(f.log_probs)
            z = log_probs - torch.log(-torch.log(u))
            index = z.argmax(-1)
            other = _categorical_given(log_probs, index, v)
        return Draw(f.value(index.detach()), distribution, z=_shaped(f, z), other=_shaped(f, other))

    def control_function(self, z: Tensor, distribution: Distribution) -> Tensor:
        return self.function(z)

    def control(self, draw: Draw, box: Tensor, cost: Tensor) -> Tensor:
        both = torch.cat([draw.notes["z"], draw.notes["other"]])
        c, given = self.control_function(both, draw.distribution).chunk(2)
        return c - c.detach() - box * given + given.detach()


class REBAR(RELAX):
    """RELAX whose control variate is the cost at a relaxed sample, η f(softmax(z/τ)), with learnable η and τ.

    ``cost`` computes the cost of values (2n, *batch, *event) that need not be discrete.

    >>> from torch.distributions import Bernoulli
    >>> from doxa.stochastic import Tape
    >>> f = lambda z: (z - 0.45) ** 2
    >>> tape = Tape(batch_dims=1)
    >>> z = tape.sample(Bernoulli(logits=torch.zeros(5)), REBAR(f))
    >>> _ = tape.cost(f(z))
    >>> loss = tape.surrogate()
    """

    def __init__(
        self, cost: Callable[[Tensor], Tensor], n: int = 1, temperature: float = 0.5, scale: float = 1.0
    ) -> None:
        super().__init__(cost, n)
        require_positive("temperature", temperature)
        self.log_temperature = nn.Parameter(torch.tensor(temperature).log())
        self.scale = nn.Parameter(torch.tensor(scale))

    def control_function(self, z: Tensor, distribution: Distribution) -> Tensor:
        temperature = self.log_temperature.exp()
        relaxed = torch.sigmoid(z / temperature) if is_bernoulli(distribution) else torch.softmax(z / temperature, -1)
        return self.scale * self.function(relaxed)


def _shaped(f: Factors, z: Tensor) -> Tensor:
    """Relaxed factors (m, *batch, R[, C]) in the shape of a value, or of its one-hot version for indices."""
    if f.log_probs.shape[-1] == 2:
        z = torch.stack([torch.zeros_like(z), z], -1)
    return f.soft(z) if f.soft is not None else z.reshape((*z.shape[:-2], *f.event, z.shape[-1]))


def _binary_given(alpha: Tensor, index: Tensor, v: Tensor) -> Tensor:
    """z̃ = α + logit u' with u' = v(1−p) if b = 0 and (1−p) + vp if b = 1: sums of positive numbers, in log space."""
    log_zero, log_one = logsigmoid(-alpha), logsigmoid(alpha)
    below, above = torch.log(v), torch.log1p(-v)
    one = index == 1
    log_u = torch.where(one, torch.logaddexp(log_zero, log_one + below), log_zero + below)
    log_rest = torch.where(one, log_one + above, torch.logaddexp(log_one, log_zero + above))
    return alpha + log_u - log_rest


def _categorical_given(log_probs: Tensor, index: Tensor, v: Tensor) -> Tensor:
    """Gumbel-perturbed log-probabilities given which one is largest."""
    index = index.unsqueeze(-1)
    log_e = torch.log(-torch.log(v))  # log of exponential noise
    top = -log_e.gather(-1, index)
    below = -torch.logaddexp(log_e - log_probs, -top)
    return below.scatter(-1, index, top)
