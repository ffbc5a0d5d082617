"""Semantic loss: outputs of a network must form one of the possible answers, here exactly one digit an image.

What one sees: the network has ten independent outputs, "is it a 0?", "is it a 1?", and few labels. The knowledge that
exactly one of them is true needs no labels at all; minimising -log of its probability on unlabelled images makes the
outputs decide: far more images have exactly one output on, and somewhat more are read right (Xu et al. 2018).

python examples/semantic_loss.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST

KNOWLEDGE = """
    sort Image
    sort Digit = 0..9
    pred is(Image, Digit)

    [one]  forall x: Image. exactly 1 d: Digit. is(x, d)
"""


def digits(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train and to test with: MNIST, or ten noisy patterns that need no download."""
    if smoke:
        labels = torch.arange(2000) % 10
        images = torch.eye(10).repeat(1, 3)[labels] + 0.5 * torch.randn(2000, 30)
        return images[:1000], labels[:1000], images[1000:], labels[1000:]
    mnist = MNIST.load()
    return (mnist.images("train").flatten(1), mnist.labels("train"), mnist.images("test").flatten(1),
            mnist.labels("test"))  # fmt: skip


def train(
    images: Tensor, labels: Tensor, labelled: int, weight: float, steps: int, rate: float
) -> tuple[nn.Module, doxa.Model]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(images.shape[1], 256), nn.ReLU(), nn.Linear(256, 10))
    model = doxa.Model(KNOWLEDGE, doxa.Exact(), **{"is": doxa.logits(network)})
    optimizer = torch.optim.Adam(network.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        some = torch.randint(labelled, (10,))
        targets = nn.functional.one_hot(labels[some], 10).float()
        loss = nn.functional.binary_cross_entropy_with_logits(network(images[some]), targets, reduction="sum") / 10
        if weight:
            loss = loss + weight * model.loss(Image=images[torch.randint(len(images), (100,))])
        loss.backward()
        optimizer.step()
    return network, model


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits(smoke)
    labelled, steps, rate = (30, 200, 3e-3) if smoke else (100, 2000, 1e-3)
    print(f"{labelled} labels among {len(images):,} images, {steps} steps")
    for name, weight in (("labels alone", 0.0), ("labels and semantic loss", 0.2)):
        network, model = train(images, labels, labelled, weight, steps, rate)
        with torch.no_grad():
            right = (network(test_images).argmax(-1) == test_labels).double().mean()
        held = model.satisfaction(Image=test_images)["one"].rate
        print(f"{name:<25} {right:.1%} right; exactly one output is on for {held:.1%} of the images")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
