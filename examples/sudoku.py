"""Sudoku: sixteen digits are read one by one, and the rules mend what was misread.

What one sees: a network that learned from few labels reads a cell wrongly now and then, so that hardly a grid comes out
right. The most probable grid among those that obey the rules is right far more often; nothing is trained for that, and
every answer is a valid Sudoku.

python examples/sudoku.py [--smoke]
"""

import sys

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST
from doxa.exact import ConstrainedLayer, Constraint
from doxa.problem import Belief

KNOWLEDGE = """
    sort Line = 0..3
    sort Value = 0..3
    func cell(Line, Line) -> Value

    [rows]     forall r, c, k: Line where c < k. cell(r, c) != cell(r, k)
    [columns]  forall r, k, c: Line where r < k. cell(r, c) != cell(k, c)
    [boxes]    forall r, s, c, k: Line where r < s & r // 2 = s // 2 & c // 2 = k // 2. cell(r, c) != cell(s, k)
"""


def digits(smoke: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images of 0, 1, 2 and 3, few to train with and many to read: MNIST, or noisy patterns that need no download."""
    if smoke:
        labels = torch.arange(800) % 4
        images = torch.eye(4).repeat(1, 2)[labels] + 0.5 * torch.randn(800, 8)
        return images[:100], labels[:100], images[100:], labels[100:]
    mnist = MNIST.load()
    few, many = mnist.labels("train") < 4, mnist.labels("test") < 4
    return (mnist.images("train").flatten(1)[few][:60], mnist.labels("train")[few][:60],
            mnist.images("test").flatten(1)[many], mnist.labels("test")[many])  # fmt: skip


def main(smoke: bool) -> None:
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits(smoke)
    network = nn.Sequential(nn.Linear(images.shape[1], 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    rules = Constraint(doxa.parse(KNOWLEDGE))
    print(f"{rules.models} of {4**16:,} grids obey the rules")
    # Which cell each variable of the belief is, row by row.
    names = [str(atoms[0]).removeprefix("cell(").split(")")[0].split(", ") for atoms in rules.variables]
    place = torch.tensor([4 * int(row) + int(column) for row, column in names])
    # Grids that obey the rules, and for each cell some image of its digit.
    count = 50 if smoke else 1000
    uniform = Belief.uniform((4,) * 16)
    grids = rules.sample(uniform, torch.tensor([1]), count)
    chosen = torch.zeros_like(grids)
    for digit in range(4):
        where = (test_labels == digit).nonzero().flatten()
        cells = grids == digit
        chosen[cells] = where[torch.randint(len(where), (int(cells.sum()),))]
    with torch.no_grad():
        belief = Belief.from_logits(network(test_images[chosen]))
        mended = ConstrainedLayer(rules).decode(belief)
    read = belief.log_probs.argmax(-1)
    for name, found in (("read one by one", read), ("with the rules", mended.worlds)):
        cells, whole = (found == grids), (found == grids).all(-1)
        valid = rules.problem(found)[:, 0].double().mean()
        shares = f"{cells.double().mean():.1%} of the cells right, {whole.double().mean():.1%} of the grids right"
        print(f"{name:<16} {shares}, {valid:.1%} obey the rules")
    wrong = (read != grids).any(-1).nonzero().flatten()
    if len(wrong):
        show = torch.zeros(3, 16, dtype=torch.int64)
        show[:, place] = torch.stack([grids[wrong[0]], read[wrong[0]], mended.worlds[wrong[0]]])
        print("true      read      mended")
        for row in show.view(3, 4, 4).transpose(0, 1).tolist():
            print("   ".join(" ".join(map(str, part)) for part in row))


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
