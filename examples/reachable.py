"""Reachable: what a network sees are roads; what is known is what a way is. It learns the roads from who gets where.

What one sees: pictures of two places with or without a road between them. The labels never speak of roads, only of
whether one can get from one place to another, which is defined in two lines, with recursion. Exact reasoning turns
these labels into a gradient for the roads.

python examples/reachable.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa

KNOWLEDGE = """
    sort Place = 0..2
    sort Bit = 0..1
    sort Picture
    data maps(views: Picture*, there: Bit, back: Bit)
    func road(Picture) -> Bit

    define open(m in maps, x, y: Place) := road(m.views[3 * x + y]) = 1
    define way(m in maps, x, y: Place) := open(m, x, y) | exists z: Place. open(m, x, z) & way(m, z, y)

    [there] forall m in maps. way(m, 0, 2) <-> m.there = 1
    [back]  forall m in maps. way(m, 2, 0) <-> m.back = 1
"""


def maps(count: int, generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Pictures of all pairs of three places, whether one gets there and back, and the roads, which nobody is told."""
    roads = torch.rand(count, 3, 3, generator=generator) < 0.3
    reached = roads.clone()
    for _ in range(3):
        reached = reached | ((reached.float() @ roads.float()) > 0)
    views = 0.6 * torch.randn(count, 9, 8, generator=generator)
    views = views + roads.reshape(count, 9, 1) * torch.tensor([1.0, -1.0] * 4)
    return {"views": views, "there": reached[:, 0, 2].long(), "back": reached[:, 2, 0].long()}, roads


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    model = doxa.Model(KNOWLEDGE, doxa.Exact(), road=doxa.logits(network))
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for step in range(3 if smoke else 150):
        data, _ = maps(32, generator)
        optimizer.zero_grad()
        loss = model.loss(maps=data)
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step:3d}: loss {float(loss.detach()):.3f}")
    data, roads = maps(200, generator)
    seen = network(data["views"]).argmax(-1).reshape(-1, 3, 3).bool()
    print(f"roads seen rightly, without a single label for one: {float((seen == roads).float().mean()):.1%}")


if __name__ == "__main__":
    main("--smoke" in sys.argv)
