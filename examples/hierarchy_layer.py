"""A hierarchy as a layer: whatever the network says, no answer contradicts itself.

What one sees: a network that labels digits also with kinds of digits (even, odd, a multiple of four, prime above two)
calls some images a multiple of four and yet not even. With the hierarchy as its last layer that cannot happen, and
since the layer takes part in the training, the answers are at least as often right.

python examples/hierarchy_layer.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

from doxa.data import MNIST
from doxa.refine import Hierarchy

PARENTS = {
    **{str(d): ["four"] for d in (0, 4, 8)},
    **{str(d): ["even"] for d in (2, 6)},
    **{str(d): ["prime"] for d in (3, 5, 7)},
    **{str(d): ["odd"] for d in (1, 9)},
    "four": ["even"],
    "prime": ["odd"],
}
CLASSES = (*map(str, range(10)), "four", "prime", "even", "odd")


def data(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, and which classes each belongs to: MNIST, or ten noisy patterns that need no download."""
    if smoke:
        labels = torch.arange(1500) % 10
        images = torch.eye(10).repeat(1, 2)[labels] + 0.45 * torch.randn(1500, 20)
        parts = (images[:500], labels[:500], images[500:], labels[500:])
    else:
        mnist = MNIST.load()
        parts = (mnist.images("train").flatten(1)[:2000], mnist.labels("train")[:2000],
                 mnist.images("test").flatten(1), mnist.labels("test"))  # fmt: skip
    ancestors = Hierarchy(PARENTS, CLASSES).below.T[:10].float()  # for each digit, itself and all above it
    return parts[0], ancestors[parts[1]], parts[2], ancestors[parts[3]]


def train(images: Tensor, targets: Tensor, layer: nn.Module, steps: int) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(images.shape[1], 64), nn.ReLU(), nn.Linear(64, len(CLASSES)), nn.Sigmoid(), layer)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(steps):
        some = torch.randint(len(images), (100,))
        loss = nn.functional.binary_cross_entropy(network(images[some]), targets[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, targets, test_images, test_targets = data(smoke)
    hierarchy = Hierarchy(PARENTS, CLASSES)
    print(f"{'':<20} answers that contradict themselves   labels right   all labels of an image right")
    for name, layer in (("network alone", nn.Identity()), ("hierarchy as a layer", hierarchy)):
        network = train(images, targets, layer, 150 if smoke else 600)
        with torch.no_grad():
            said = network(test_images) > 0.5
        # A class that is said of an image, while one above it is not.
        incoherent = (hierarchy(said.float()) > 0.5).ne(said).any(-1)
        right = said == (test_targets > 0.5)
        shares = [incoherent, right, right.all(-1)]
        broken, labels, whole = (float(share.double().mean()) for share in shares)
        print(f"{name:<20} {broken:>34.1%}   {labels:>12.2%}   {whole:>30.1%}")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
