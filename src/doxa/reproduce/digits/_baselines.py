"""Networks that know nothing: from images straight to the outputs of a function of their digits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from doxa.problem import Problem
from doxa.train.tasks._network import digit_network

__all__ = ["DigitsBaseline"]


class DigitsBaseline(nn.Module):
    """A purely neural answer to `doxa.data.digits_task`: the images are read by one network, their features joined.

        L = - Σ_j log softmax(g(f(x_1), …, f(x_K)))_j[y_j],

    with f the network that perceives digits, without its last layer, and g two linear layers. It must learn the
    function as well as the digits; whatever reasons is to be compared with it.

    Args:
        problem: the function; only the numbers of its values are looked at.
        hidden: the width of g.

    >>> from doxa.problem import multiplication
    >>> network = DigitsBaseline(multiplication())
    >>> images, outputs = torch.zeros(3, 2, 28, 28), torch.zeros(3, 2, dtype=torch.int64)
    >>> network.loss(images, outputs).shape, network.predict(images).shape
    (torch.Size([]), torch.Size([3, 2]))
    """

    def __init__(self, problem: Problem, hidden: int = 256) -> None:
        super().__init__()
        self.sizes = problem.output
        self.features = digit_network()[:-1]
        self.join = nn.Sequential(
            nn.Linear(84 * len(problem.world), hidden), nn.ReLU(), nn.Linear(hidden, sum(problem.output))
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The logits of each output, ``(n, values)``, from normalised images ``(n, K, 28, 28)``."""
        features = self.features(images.reshape(-1, 1, *images.shape[-2:])).reshape(len(images), -1)
        logits: Tensor = self.join(features)
        return torch.split(logits, list(self.sizes), -1)

    def loss(self, images: Tensor, outputs: Tensor) -> Tensor:
        """The cross entropy of all outputs ``(n, Y)``, averaged over the rows."""
        found = self(images)
        return torch.stack([cross_entropy(x, y) for x, y in zip(found, outputs.unbind(-1), strict=True)]).sum()

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The most probable value of each output, int64 ``(n, Y)``."""
        return torch.stack([x.argmax(-1) for x in self(images)], -1)
