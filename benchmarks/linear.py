"""Projection onto linear knowledge against one call of SciPy's SLSQP for each row, and against code written by hand."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from doxa.refine import LinearProjection
from harness import Row, compare

BATCH, SAMPLE = 1024, 16
BUDGET = "total = a + b; 0 <= a <= 3; low <= high; 0 <= share <= 1; 0 <= b; a + 2*b - 3 <= c / 2; share + a <= 2"


def against_scipy() -> list[Row]:
    """SLSQP is timed on some of the rows, with derivatives and its default accuracy; ours on the whole batch.

    It takes little more than a tenth of a millisecond a row, and stops within its tolerance; ours goes on to the last
    bits and certifies every row, which a batch does not make up for twenty times.
    """
    rows = []
    layer = LinearProjection(BUDGET)
    system = layer.system
    A, b, E, f = (t.numpy() for t in (system.A, system.b, system.E, system.f))
    rules = [
        {"type": "ineq", "fun": lambda y: b - A @ y, "jac": lambda y: -A},
        {"type": "eq", "fun": lambda y: E @ y - f, "jac": lambda y: E},
    ]

    def slsqp(start: np.ndarray) -> np.ndarray:
        found = minimize(
            lambda y: 0.5 * ((y - start) ** 2).sum(), start, jac=lambda y: y - start, method="SLSQP", constraints=rules
        )
        return found.x

    for dtype in (torch.float32, torch.float64):
        x = (3 * torch.randn(BATCH, len(layer.names), generator=torch.Generator().manual_seed(0))).to(dtype)
        some = x[:SAMPLE].double().numpy()
        np.testing.assert_allclose(layer(x)[:SAMPLE].numpy(), [slsqp(row) for row in some], atol=1e-4)
        one = compare("", lambda x=x: layer(x), lambda some=some: [slsqp(r) for r in some], goal=20, better="higher")
        times = BATCH / SAMPLE
        low, high = (s * times for s in one.spread or (one.ratio, one.ratio))
        name = f"linear: 7 values, 9 rows, {str(dtype)[6:]}, batch {BATCH}: times faster than SLSQP per row"
        rows.append(Row(name, one.ratio * times, 20, "higher", (low, high)))
    return rows


def against_hand() -> Row:
    """What an expert would write for total = a + b alone, forward and backward; it has no guarantee."""
    layer = LinearProjection("total = a + b")
    x = torch.randn(BATCH, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    normal = torch.tensor([1.0, -1.0, -1.0])

    def ours() -> Tensor:
        x.grad = None
        y = layer(x)
        y.square().sum().backward()
        return y.detach()

    def by_hand() -> Tensor:
        x.grad = None
        y = x - (x @ normal / 3).unsqueeze(1) * normal
        y.square().sum().backward()
        return y.detach()

    torch.testing.assert_close(ours(), by_hand())
    return compare(f"linear: one sum, batch {BATCH}: time against by hand", ours, by_hand, goal=100, better="lower")


def rows() -> list[Row]:
    return [*against_scipy(), against_hand()]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
