"""Semi-supervised learning: few images have labels, of many others it is known which pairs show the same digit.

What one sees: with the labels alone the network is mediocre; told besides that these two are the same and those two are
not, it becomes much better. The knowledge is one more loss beside the ordinary one.

python examples/semi_supervised.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST

KNOWLEDGE = """
    sort Image
    sort Digit = 0..9
    data alike(left: Image, right: Image)
    data unlike(left: Image, right: Image)
    func digit(Image) -> Digit

    [alike]   forall p in alike. d := digit(p.left), e := digit(p.right) (d = e)
    [unlike]  forall p in unlike. d := digit(p.left), e := digit(p.right) (d != e)
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


def train(images: Tensor, labels: Tensor, labelled: int, weight: float, steps: int, rate: float) -> nn.Module:
    """Learn from the first labels, and from pairs of all images with a weight."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(images.shape[1], 256), nn.ReLU(), nn.Linear(256, 10))
    model = doxa.Model(KNOWLEDGE, doxa.Exact(), digit=doxa.logits(network))
    optimizer = torch.optim.Adam(network.parameters(), rate)
    for _ in range(steps):
        optimizer.zero_grad()
        some = torch.randint(labelled, (30,))
        loss = nn.functional.cross_entropy(network(images[some]), labels[some])
        if weight:
            left, right = torch.randint(len(images), (2, 200))
            same = labels[left] == labels[right]  # all that is known of these images
            alike = {"left": images[left[same]], "right": images[right[same]]}
            unlike = {"left": images[left[~same]][:40], "right": images[right[~same]][:40]}
            loss = loss + weight * model.loss(alike=alike, unlike=unlike)
        loss.backward()
        optimizer.step()
    return network


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits(smoke)
    labelled, steps, rate = (30, 200, 3e-3) if smoke else (100, 1500, 1e-3)
    print(f"{labelled} labels among {len(images):,} images, {steps} steps")
    for name, weight in (("labels alone", 0.0), ("labels and knowledge", 0.5)):
        network = train(images, labels, labelled, weight, steps, rate)
        with torch.no_grad():
            right = (network(test_images).argmax(-1) == test_labels).double().mean()
        print(f"{name:<21} {right:.1%} of the test digits are right")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
