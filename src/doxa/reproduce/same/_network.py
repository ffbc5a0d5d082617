"""The network of `same` and `sum9`: digits from images, and a relation between two images."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from doxa.fuzzy import NeuralTensorNetwork

__all__ = ["PairNetwork"]

EMBEDDING = 50
SLICES = 10


class PairNetwork(nn.Module):
    r"""Two convolutions embed an image; a linear layer reads the digit, a neural tensor network a pair.

    Convolution 1→10 of width 5, max-pooling, relu, convolution 10→20 of width 5, channel dropout, max-pooling, relu,
    linear 320→50, relu: the embedding e. Digits are a linear layer 50→10 of e behind dropout; the relation is

    .. math:: u^\top \tanh(e_x^\top W_k\, e_y + V_k [e_x; e_y] + b_k) + c, \quad k = 1 … 10.

    >>> network = PairNetwork()
    >>> scores, embedding = network(torch.zeros(3, 1, 28, 28))
    >>> scores.shape, network.relate.pairwise(embedding, embedding).shape
    (torch.Size([3, 10]), torch.Size([3, 3]))
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.Dropout2d(0.5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, EMBEDDING),
            nn.ReLU(),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.classify = nn.Sequential(nn.Dropout(0.5), nn.Linear(EMBEDDING, 10))
        self.relate = NeuralTensorNetwork(EMBEDDING, hidden=SLICES)
        # V is one layer on both embeddings, and starts as such a layer does.
        for parameter in (self.relate.left.weight, self.relate.left.bias, self.relate.right.weight):
            nn.init.uniform_(parameter, -1 / math.sqrt(2 * EMBEDDING), 1 / math.sqrt(2 * EMBEDDING))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the ten digits, and the embeddings."""
        embedding: Tensor = self.embed(images)
        return self.classify(embedding), embedding
