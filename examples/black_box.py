"""A black box: digits are learned through a Python program that nobody differentiates.

What one sees: a program takes two digits and returns a text, here the date of a day in a leap year. Worlds are drawn
from what the network believes, the program judges them, and the score function with the other samples as baseline gives
an unbiased gradient. From "right or wrong" alone, the network learns to read.

python examples/black_box.py [--smoke]
"""

import sys
from datetime import date, timedelta

import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Independent

from doxa.data import MNIST, Batches
from doxa.stochastic import LeaveOneOut, Tape


def program(tens: int, ones: int) -> str:
    """Any Python will do: it is only ever called."""
    return (date(2024, 1, 1) + timedelta(days=10 * tens + ones)).strftime("%B %d")


ANSWERS = [[program(tens, ones) for ones in range(10)] for tens in range(10)]  # called once for each pair


def wrong(drawn: Tensor, truth: Tensor) -> Tensor:
    """What a drawn world costs: 1 for another date, and 1 more for each digit by which the days differ."""
    said = [ANSWERS[t][o] for t, o in drawn.reshape(-1, 2).tolist()]
    true = [ANSWERS[t][o] for t, o in truth.expand_as(drawn).reshape(-1, 2).tolist()]
    cost = [(a != b) + (a[-2] != b[-2]) + (a[-1] != b[-1]) for a, b in zip(said, true, strict=True)]
    return torch.tensor(cost, dtype=torch.float32).reshape(drawn.shape[:-1])


def digits(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images and labels to train and to test with: MNIST, or ten noisy patterns that need no download."""
    if smoke:
        labels = torch.randint(10, (3000,))
        images = torch.eye(10).repeat(1, 2)[labels] + 0.2 * torch.randn(3000, 20)
        return images[:2000], labels[:2000], images[2000:], labels[2000:]
    mnist = MNIST.load()
    return (mnist.images("train").flatten(1), mnist.labels("train"), mnist.images("test").flatten(1),
            mnist.labels("test"))  # fmt: skip


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits(smoke)
    network = nn.Sequential(nn.Linear(images.shape[1], 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(network.parameters(), 1e-3 if not smoke else 1e-2)
    pairs = torch.randperm(len(images)).view(-1, 2)  # the digits of a pair are known to the program alone
    for epoch in range(5):
        total = 0.0
        for (rows,) in Batches((pairs,), 50, seed=epoch):
            tape = Tape(batch_dims=1)
            belief = Independent(Categorical(logits=network(images[rows])), 1)
            worlds = tape.sample(belief, LeaveOneOut(10))
            tape.cost(wrong(worlds, labels[rows]))
            loss = tape.surrogate().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        with torch.no_grad():
            right = (network(test_images).argmax(-1) == test_labels).double().mean()
        print(f"epoch {epoch + 1}: expected cost {total / len(pairs):.2f}, {right:.1%} of the test digits are right")


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
