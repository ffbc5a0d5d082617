"""Smokers: friends tend to share their habits, and habits have consequences. What is unknown is filled in.

What one sees: two groups of people of whom little is known: some friendships, who smokes in one half of them. Vectors
that stand for the people are trained on what is known. With rules about friends beside the labels, who of the others
smokes is guessed far better than without; and the rules hold more often.

python examples/smokers.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa

KNOWLEDGE = """
    sort Person
    pred friends(Person, Person)
    pred smokes(Person)
    pred cancer(Person)

    [symmetry]              forall x, y: Person where x != y. friends(x, y) -> friends(y, x)
    [homophily, weight 3]   forall x, y: Person where x != y. friends(x, y) & smokes(x) -> smokes(y)
    [homophily2, weight 3]  forall x, y: Person where x != y. friends(x, y) & !smokes(x) -> !smokes(y)
    [health]                forall x: Person. smokes(x) -> cancer(x)
"""


def society(people: int) -> tuple[Tensor, Tensor, Tensor]:
    """Who is whose friend, who smokes, who is ill: the first half smokes, and friends are of one half."""
    half = torch.arange(people) < people // 2
    alike = half[:, None] == half[None, :]
    friends = (torch.rand(people, people) < 0.4).triu(1) & alike
    return friends | friends.T, half, half


class People(nn.Module):
    """A vector for every person, and what is read off it."""

    def __init__(self, people: int, size: int = 8) -> None:
        super().__init__()
        self.vectors = nn.Parameter(0.3 * torch.randn(people, size))
        self.habit, self.health = nn.Linear(size, 1), nn.Linear(size, 1)
        self.tie = nn.Parameter(0.3 * torch.randn(size, size))

    def forward(self) -> tuple[Tensor, Tensor, Tensor]:
        v = self.vectors
        return v @ self.tie @ v.T, self.habit(v).squeeze(-1), self.health(v).squeeze(-1)


def train(truth: tuple[Tensor, ...], seen: tuple[Tensor, ...], weight: float, steps: int) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    people = len(truth[1])
    network, model = People(people), doxa.Model(KNOWLEDGE, doxa.Fuzzy("log_product"))
    optimizer = torch.optim.Adam(network.parameters(), 0.02, weight_decay=1e-3)
    for _ in range(steps):
        said = network()
        loss = sum(nn.functional.binary_cross_entropy_with_logits(s[k], t[k].float())
                   for s, t, k in zip(said, truth, seen, strict=True))  # fmt: skip
        if weight:
            symbols = dict(zip(("friends", "smokes", "cancer"), map(doxa.logits, said), strict=True))
            loss = loss + weight * model.loss(Person=people, **symbols) / people**2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tuple((s > 0).detach() for s in network())


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    people = 40
    truth = society(people)
    known = torch.rand(people) < 0.4  # of these it is known whether they smoke and are ill
    seen = (torch.rand(people, people) < 0.6, known, known)
    kb = doxa.parse(KNOWLEDGE)
    for name, weight in (("labels alone", 0.0), ("labels and rules", 0.3)):
        friends, smokes, cancer = train(truth, seen, weight, 150 if smoke else 300)
        world = doxa.Interpretation(kb, friends=friends, smokes=smokes, cancer=cancer)
        rates = doxa.satisfaction(kb, world, Person=people)
        right = (smokes == truth[1])[~known].double().mean()
        print(f"{name:<17} {right:.1%} of the unknown habits are guessed right; friends share them in "
              f"{rates['homophily'].rate:.1%} of all pairs")  # fmt: skip


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
