"""Refinement against what an expert would write by hand for one problem, and against gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor

from doxa.data import random_ksat
from doxa.logic import CNF, And, Call
from doxa.refine import GradientRefine, Refine
from harness import Row, compare, cpu_seconds, exponent, summary

VARIABLES, CLAUSES = 20, 91
LOGICS = ("godel", "lukasiewicz", "product")


def instance(seed: int, clauses: int = CLAUSES, variables: int = VARIABLES) -> CNF:
    few = clauses <= CLAUSES  # as in SATLIB; large ones only have to be large
    return random_ksat(variables, clauses, generator=torch.Generator().manual_seed(seed), satisfiable=few)


class ByHand:
    """One pass on 3-SAT towards 1 for one logic, batch first, written out; occurrences as one padded table."""

    def __init__(self, cnf: CNF, logic: str, schedule: float) -> None:
        literals = torch.tensor(cnf.clauses)
        self.columns = literals.abs() - 1
        self.columns = torch.where(literals > 0, self.columns, self.columns + cnf.variables).flatten()
        self.shape = literals.shape
        places: list[list[int]] = [[] for _ in range(cnf.variables)]
        for at, v in enumerate(literals.flatten().tolist()):
            places[abs(v) - 1].append(at)
        width = max(map(len, places))
        zero = literals.numel()
        self.table = torch.tensor([p + [zero] * (width - len(p)) for p in places])
        self.signs = torch.cat([literals.flatten().sign(), torch.ones(1, dtype=literals.dtype)]).float()
        self.schedule = schedule
        self.logic = {"godel": self.godel, "lukasiewicz": self.lukasiewicz, "product": self.product}[logic]
        count = torch.arange(1, len(literals) + 1, dtype=torch.float32)
        self.rising, self.falling = count, count.flip(0)

    def __call__(self, x: Tensor) -> Tensor:
        literals = torch.cat([x, 1 - x], 1)[:, self.columns].unflatten(1, self.shape)
        change = self.logic(literals).flatten(1)
        change = torch.cat([change, change.new_zeros(len(x), 1)], 1) * self.signs
        wishes = change[:, self.table]
        best = wishes.abs().argmax(2, keepdim=True)
        return (x + wishes.gather(2, best).squeeze(2)).clamp(0, 1)

    def godel(self, literals: Tensor) -> Tensor:
        clause, at = literals.max(2)
        truth = clause.amin(1, keepdim=True)
        rise = torch.relu(truth + self.schedule * (1 - truth) - clause)
        return torch.zeros_like(literals).scatter(2, at.unsqueeze(2), rise.unsqueeze(2))

    def lukasiewicz(self, literals: Tensor) -> Tensor:
        clause = literals.sum(2).clamp_max(1)
        room = 1 - clause
        truth = torch.relu(1 - room.sum(1, keepdim=True))
        need = room.sum(1, keepdim=True) - (1 - (truth + self.schedule * (1 - truth)))
        inside = room.sort(1, descending=True).values.cumsum(1)
        level = ((need - (inside[:, -1:] - inside)) / self.rising).amax(1, keepdim=True)
        return (torch.minimum(level.clamp_min(0), room) / 3).unsqueeze(2).expand_as(literals)

    def product(self, literals: Tensor) -> Tensor:
        false = 1 - literals
        clause = 1 - false.prod(2)
        truth = clause.prod(1, keepdim=True)
        logs = clause.clamp_min(1e-14).log().sort(1, descending=True).values
        kept = logs.cumsum(1) - logs
        goal = (truth + self.schedule * (1 - truth)).log()
        level = ((goal - kept) / self.falling).amin(1, keepdim=True).exp()
        rise = torch.relu(level - clause)
        at = literals.argmax(2, keepdim=True)
        others = false.scatter(2, at, 1.0).prod(2)
        return torch.zeros_like(literals).scatter(2, at, (rise / others.clamp_min(1e-14)).unsqueeze(2))


def one_pass() -> list[Row]:
    rows = []
    cnf = instance(0)
    for logic in LOGICS:
        layer, hand = Refine(cnf, logic, schedule=0.5, steps=1), ByHand(cnf, logic, 0.5)
        for batch in (1, 100, 1000):
            x = torch.rand(batch, VARIABLES)
            with torch.no_grad():
                if logic != "lukasiewicz":  # whose wishes tie all the time; which one wins is a matter of rounding
                    torch.testing.assert_close(layer(x), hand(x), atol=1e-4, rtol=0)
                rows.append(
                    compare(
                        f"refine: one pass on 3-SAT, {logic}, batch {batch}: time against by hand",
                        lambda layer=layer, x=x: layer(x),
                        lambda hand=hand, x=x: hand(x),
                        goal=1.5,
                        better="lower",
                    )
                )
    return rows


def addition_layer() -> Row:
    x, y, s = ([Call(f"{k}{i}") for i in range(n)] for k, n in (("x", 10), ("y", 10), ("s", 19)))
    rules = And(*[(x[i] & y[j]) >> s[i + j] for i in range(10) for j in range(10)])
    layer = Refine(rules, "godel:r", steps=1, atoms=[*x, *y, *s], constants=[*x, *y])
    digits = torch.rand(128, 20, requires_grad=True)
    zeros = torch.zeros(128, 19)
    table = torch.full((19, 10), 100)
    for i in range(10):
        for j in range(10):
            table[i + j, i] = 10 * i + j

    def ours() -> Tensor:
        digits.grad = None
        sums = layer(torch.cat([digits, zeros], 1))[:, 20:]
        sums.square().sum().backward()
        return sums.detach()

    def by_hand() -> Tensor:
        digits.grad = None
        pairs = torch.minimum(digits[:, :10, None], digits[:, None, 10:]).flatten(1)
        pairs = torch.cat([pairs, pairs.new_zeros(128, 1)], 1)
        sums = pairs[:, table].max(2).values
        sums.square().sum().backward()
        return sums.detach()

    torch.testing.assert_close(ours(), by_hand())
    return compare(
        "refine: addition layer, forward and backward, batch 128: time against max-min",
        ours,
        by_hand,
        goal=3.0,
        better="lower",
    )


def steps_to_truth(trajectory: Tensor, layer: Refine) -> int | None:
    """After how many steps the mean over rows of the best truth so far is within 0.01 of 1; None if it never is."""
    best = layer.truth(trajectory).cummax(0).values.flatten(1).mean(1)
    there = (best >= 0.99).nonzero()
    return int(there[0]) if len(there) else None


def against_adam() -> list[Row]:
    """Until the mean truth of the rows is within 0.01 of 1, or a solver gives up: refinement when every row stands
    still, cycles or came no nearer for ten passes, Adam after 500 steps, or 100 in which no row came nearer."""
    rows = []
    for logic in ("godel", "lukasiewicz"):
        for batch in (1, 100):
            ratios, missed = [], [0, 0]
            for seed in range(10):
                cnf = instance(seed, 20)
                x = torch.rand(batch, VARIABLES, generator=torch.Generator().manual_seed(seed))
                layer = Refine(cnf, logic)
                adam = GradientRefine(layer)
                ours = steps_to_truth(layer.run(x, trajectory=True).trajectory, layer)
                theirs = steps_to_truth(adam.run(x, trajectory=True).trajectory, layer)
                if ours == 0:  # it is true enough already
                    continue
                missed[0] += ours is None
                missed[1] += theirs is None
                layer = Refine(cnf, logic, max_steps=500 if ours is None else ours)
                adam = GradientRefine(layer, steps=500 if theirs is None else theirs)
                row = compare(
                    "",
                    lambda layer=layer, x=x: layer.run(x),
                    lambda adam=adam, x=x: adam.run(x),
                    goal=5.0,
                    better="higher",
                    repeats=2,
                )
                ratios.append(row.ratio)
            rows.append(
                summary(
                    f"refine: 20 clauses, {logic}, batch {batch}: times faster than Adam",
                    ratios,
                    goal=5.0,
                    better="higher",
                    note=f"of {len(ratios)} formulas refinement misses {missed[0]}, Adam {missed[1]}",
                )
            )
    return rows


def growth() -> Row:
    sizes = [3_000, 10_000, 30_000, 100_000]
    times = []
    for clauses in sizes:
        variables = clauses // 4
        layer = Refine(instance(0, clauses, variables), "product", steps=1)
        x = torch.rand(4, variables)
        with torch.no_grad():
            layer(x)
            times.append(min(cpu_seconds(lambda layer=layer, x=x: layer(x), 3) for _ in range(5)))
    note = f"{1000 * times[-1]:.0f} ms for 100,000 clauses, batch 4"
    return Row(
        "refine: exponent of the cost of a pass against clauses", exponent(sizes, times), 1.1, "lower", note=note
    )


def rows() -> list[Row]:
    return [*one_pass(), addition_layer(), *against_adam(), growth()]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
