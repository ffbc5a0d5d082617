"""Addition: digits are learned from the sums of two images; no image has a label.

What one sees: the network starts at guessing, and ends at reading nearly every digit, though it was told sums only. The
same knowledge predicts sums, and explains a sum by the digits that it is made of.

python examples/addition.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST, Batches

KNOWLEDGE = """
    sort Image
    sort Digit = 0..9
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit

    [sum]  forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""


def digits(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train and to test with: MNIST, or ten noisy patterns that need no download."""
    if smoke:
        labels = torch.arange(1200) % 10
        images = torch.eye(10).repeat(1, 2)[labels] + 0.3 * torch.randn(1200, 20)
        return images[:1000], labels[:1000], images[1000:], labels[1000:]
    mnist = MNIST.load()
    return (mnist.images("train").flatten(1), mnist.labels("train"), mnist.images("test").flatten(1),
            mnist.labels("test"))  # fmt: skip


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits(smoke)
    network = nn.Sequential(nn.Linear(images.shape[1], 256), nn.ReLU(), nn.Linear(256, 10))
    model = doxa.Model(KNOWLEDGE, doxa.Exact(), digit=doxa.logits(network))

    def report(when: str) -> None:
        with torch.no_grad():
            right = (network(test_images).argmax(-1) == test_labels).double().mean()
        print(f"{when:<16} {right:.1%} of the digits are read right")

    # The labels are used once, to make the sums; after that they are gone.
    order = torch.randperm(len(images))
    left, right = order.view(2, -1)
    data = (images[left], images[right], labels[left] + labels[right])
    optimizer = torch.optim.Adam(network.parameters(), 1e-3 if not smoke else 1e-2)

    report("untrained:")
    for epoch in range(4 if smoke else 2):
        for a, b, total in Batches(data, 50, seed=epoch):
            optimizer.zero_grad()
            model.loss(pairs={"left": a, "right": b, "sum": total}).backward()
            optimizer.step()
        report(f"after epoch {epoch + 1}:")

    half = len(test_images) // 2
    pairs = {"left": test_images[:half], "right": test_images[half:]}
    truth = test_labels[:half] + test_labels[half:]
    with torch.no_grad():
        found = model.predict("pairs.sum", pairs=pairs)
    print(f"{(found.values == truth).double().mean():.1%} of {half:,} test sums are predicted right")
    first = {name: column[:1] for name, column in (pairs | {"sum": truth}).items()}
    print(model.explain(pairs=first, k=2)[0])


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
