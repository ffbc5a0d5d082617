"""The small convolutional network that reads digits."""

from __future__ import annotations

from torch import nn


def digit_network() -> nn.Sequential:
    """The network that A-NeSI perceives digits with: two convolutions and three linear layers.

    Convolution 1→6 of width 5, max-pooling, relu, convolution 6→16 of width 5, max-pooling, relu, then linear
    256→120→84→10 with relu between.

    Returns:
        A module from images ``(n, 1, 28, 28)`` to logits ``(n, 10)``.

    >>> import torch
    >>> network = digit_network()
    >>> network(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    >>> sum(parameter.numel() for parameter in network.parameters())
    44426
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )
