"""Lists of any length: digits are learned from nothing but the sum of each list.

What one sees: the knowledge says `sum` once, and lists of 2 to 6 images are read together. The loss is -log of the
exact probability of the sum, found by a chain of partial sums: no list of all worlds, of which there are a million.

python examples/lists.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST, normalize

KNOWLEDGE = """
sort Image
sort Digit = 0..9
func digit(Image) -> Digit
data lists(images: Image*, total: Int)

[total] forall l in lists. (sum x in l.images. digit(x)) = l.total
"""


def digits(smoke: bool) -> tuple[Tensor, Tensor]:
    """Images and labels: MNIST, or ten noisy patterns that need no download."""
    if smoke:
        labels = torch.randint(10, (3000,))
        return torch.randn(10, 1, 28, 28)[labels] + 0.3 * torch.randn(3000, 1, 28, 28), labels
    mnist = MNIST.load()
    return normalize(mnist.train_images.unsqueeze(1)), mnist.labels("train")


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels = digits(smoke)
    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    model = doxa.Model(KNOWLEDGE, "exact", digit=doxa.logits(network))
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for step in range(60 if smoke else 1500):
        lengths = torch.randint(2, 7, (32,))
        drawn = torch.randint(len(images), (int(lengths.sum()),))
        totals = torch.stack([part.sum() for part in labels[drawn].split(lengths.tolist())])
        lists = {"images": doxa.Ragged(images[drawn], lengths), "total": totals}
        loss = model.loss(lists=lists)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    with torch.no_grad():
        read = network(images[:1000]).argmax(1)
        lists = {"images": doxa.Ragged(images[:10], [4, 6])}
        predicted = model.predict("lists.total", lists=lists).values.tolist()
    print(f"digits read correctly: {100 * (read == labels[:1000]).double().mean():.1f} %")
    print(f"sums of two lists: {predicted}, truly {[int(labels[:4].sum()), int(labels[4:10].sum())]}")


if __name__ == "__main__":
    main("--smoke" in sys.argv[1:])
