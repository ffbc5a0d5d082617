"""A learned distribution q(r | P) of r = g(z), z ~ p(z | P), for any function g: ∇_P E[g(z)] ≈ ∇_P E_{q(r|P)}[r].

Dissertation, appendix "A-NeSI as a Gradient Estimation method"; errata 5.4: the loss is -E[log q].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal
from torch.nn.functional import softplus

from doxa.amortized.models._model import dense, fixed
from doxa.errors import ConfigError, ProblemError


class OutcomeModel(nn.Module, ABC):
    """q(r | P) for scalar outcomes r.

    >>> model = GaussianOutcomes(3)
    >>> parameters = torch.zeros(5, 3, requires_grad=True)
    >>> model.loss(parameters, torch.randn(5)).mean().backward()          # trains q: -log q(g(z) | P)
    >>> model.expected(parameters).sum().backward()                       # trains P: E_q[r], q held fixed
    """

    def __init__(self, inputs: int, outputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        if inputs < 1 or hidden < 1 or layers < 0:
            raise ConfigError(f"inputs {inputs}, hidden {hidden}, layers {layers}: expected 1, 1 and 0 at least")
        self.inputs = inputs
        self.network = dense(inputs, hidden, layers, outputs)

    @abstractmethod
    def forward(self, parameters: Tensor) -> Distribution:
        """q(r | P) for parameters ``(*batch, inputs)``, a distribution of batch shape ``(*batch,)``."""

    def loss(self, parameters: Tensor, outcomes: Tensor) -> Tensor:
        """-log q(r | P), ``(*batch,)``, for outcomes r = g(z) of samples z; the parameters are held fixed."""
        log_prob: Tensor = self(parameters.detach()).log_prob(outcomes)
        return -log_prob

    @abstractmethod
    def mean(self, parameters: Tensor) -> Tensor:
        """E_q[r], ``(*batch,)``."""

    def loss_of_samples(
        self, parameters: Tensor, sample: Callable[[Tensor], Tensor], function: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """-log q(g(z) | P), ``(*batch,)``, for samples z of p(z | P) and a ``function`` g.

        >>> GaussianOutcomes(2).loss_of_samples(torch.rand(100, 2), torch.bernoulli, lambda z: z.prod(-1)).shape
        torch.Size([100])
        """
        with torch.no_grad():
            outcomes = function(sample(parameters.detach()))
        return self.loss(parameters, outcomes)

    def expected(self, parameters: Tensor) -> Tensor:
        """E_q[r], ``(*batch,)``, with q held fixed: a cost whose derivatives reach the parameters only."""
        return fixed(self).mean(parameters)

    def scores(self, parameters: Tensor) -> Tensor:
        """What the network says of parameters ``(*batch, inputs)``."""
        if parameters.shape[-1:] != (self.inputs,):
            raise ProblemError(f"parameters has shape {tuple(parameters.shape)}, expected (*batch, {self.inputs})")
        found: Tensor = self.network(parameters.to(next(self.network.parameters()).dtype))
        return found


class GaussianOutcomes(OutcomeModel):
    """A normal distribution whose mean and deviation a network predicts, for real outcomes.

    >>> GaussianOutcomes(2)(torch.zeros(4, 2)).batch_shape
    torch.Size([4])
    """

    def __init__(self, inputs: int, *, hidden: int = 64, layers: int = 2) -> None:
        super().__init__(inputs, 2, hidden, layers)

    def forward(self, parameters: Tensor) -> Normal:
        mean, raw = self.scores(parameters).unbind(-1)
        return Normal(mean, softplus(raw) + 1e-3, validate_args=False)

    def mean(self, parameters: Tensor) -> Tensor:
        return self.scores(parameters)[..., 0]


class CategoricalOutcomes(OutcomeModel):
    """A distribution over a known list of outcomes.

    Args:
        inputs: the number of parameters.
        values: the outcomes that there are.

    >>> model = CategoricalOutcomes(2, [0.0, 1.0, 5.0])
    >>> model.mean(torch.zeros(4, 2)).shape
    torch.Size([4])
    """

    values: Tensor

    def __init__(self, inputs: int, values: Sequence[float] | Tensor, *, hidden: int = 64, layers: int = 2) -> None:
        listed = torch.as_tensor(values, dtype=torch.get_default_dtype()).flatten()
        if len(listed) < 1 or len(torch.unique(listed)) != len(listed):
            raise ConfigError(f"values are {listed.tolist()}, expected different outcomes, at least one")
        super().__init__(inputs, len(listed), hidden, layers)
        self.register_buffer("values", listed)

    def forward(self, parameters: Tensor) -> Categorical:
        """q over the places of the outcomes in ``values``."""
        return Categorical(logits=self.scores(parameters), validate_args=False)

    def loss(self, parameters: Tensor, outcomes: Tensor) -> Tensor:
        same = outcomes.unsqueeze(-1) == self.values.to(outcomes)
        if not same.any(-1).all():
            wrong = outcomes[~same.any(-1)].flatten()[0].item()
            raise ProblemError(f"the outcome {wrong} is none of the values {self.values.tolist()[:10]}; add it")
        return super().loss(parameters, same.int().argmax(-1))

    def mean(self, parameters: Tensor) -> Tensor:
        probs = self.scores(parameters).softmax(-1)
        return probs @ self.values.to(probs)
