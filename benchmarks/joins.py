"""Joins of known relations in guards: against hand-written index joins in torch, against data frames, and by size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pandas
import polars
import torch
from torch import Tensor, nn

from doxa.fuzzy import FuzzyPlan
from doxa.logic import Interpretation, logits, parse, table, truth
from grounding import peak
from harness import Row, compare, exponent

RULES = parse("""
    sort P
    pred f(P, P)
    pred s(P)
    [two]   forall x, y, z: P where f(x, y) & f(y, z). s(x) -> s(z)
    [three] forall x, y, z, w: P where f(x, y) & f(y, z) & f(z, w). s(x) -> s(w)
    [ring]  forall x, y, z: P where f(x, y) & f(y, z) & f(z, x). s(x) -> s(z)
""")


def facts(objects: int, count: int, seed: int = 0) -> Tensor:
    rows = torch.randint(0, objects, (count, 2), generator=torch.Generator().manual_seed(seed))
    return torch.unique(rows, dim=0)


def hop(left: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows of the left go with which of the right, whose ``keys`` are sorted."""
    start = torch.searchsorted(keys, left)
    count = torch.searchsorted(keys, left, right=True) - start
    one = torch.repeat_interleave(count)
    first = count.cumsum(0) - count
    return one, torch.arange(len(one)) - first[one] + start[one]


def hops(f: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The ends of all paths of some steps, as index lists."""
    first, second = f[:, 0].contiguous(), f[:, 1].contiguous()  # sorted by the first
    x, y = first, second
    for _ in range(number - 1):
        one, two = hop(y, first)
        x, y = x.index_select(0, one), second.index_select(0, two)
    return x, y


def ltn(a: Tensor, b: Tensor) -> Tensor:
    """All of a -> b by the operators of LTN: 1 - a + a b, and one minus the quadratic mean of the errors."""
    return 1 - (1 - (1 - a + a * b)).square().mean().sqrt()


def fuzzy(objects: int, count: int, rule: str, *, fresh: bool) -> Row:
    """Truth and gradient of a rule; with ``fresh``, the relation comes with the data and is joined at every call."""
    f, number = facts(objects, count), {"two": 2, "three": 3}[rule]
    weights = nn.Parameter(torch.randn(objects, generator=torch.Generator().manual_seed(1)))
    world = Interpretation(RULES, s=logits(weights), **({} if fresh else {"f": table(f)}))
    plan = FuzzyPlan(RULES[rule], world, "ltn")
    kept = hops(f, number)

    def ours() -> float:
        weights.grad = None
        value = plan(P=objects, **({"f": table(f)} if fresh else {}))
        value.backward()
        return value.item()

    def by_hand() -> float:
        weights.grad = None
        x, z = hops(f, number) if fresh else kept
        s = weights.sigmoid()
        value = ltn(s.index_select(0, x), s.index_select(0, z))
        value.backward()
        return value.item()

    assert abs(ours() - by_hand()) < 1e-4
    what = "joined at every call" if fresh else "with the list kept"
    name = f"{rule} hops over {objects:,} objects, {count:,} facts, fuzzy truth and gradient, {what}, against torch"
    return compare(name, ours, by_hand, goal=1.5, better="lower", repeats=10, note=f"{len(kept[0]):,} rows")


def classical(objects: int, count: int, rule: str, merge: str) -> Row:
    """How many instances hold, of a relation that comes with the data, against the merge of a data frame."""
    f, number = facts(objects, count), {"two": 2, "three": 3}[rule]
    s = torch.rand(objects, generator=torch.Generator().manual_seed(1)) < 0.9
    world = Interpretation(RULES, s=s)
    peer: Callable[[], bool] = {"pandas": by_pandas, "polars": by_polars}[merge](f, s, number)

    def ours() -> bool:
        return bool(truth(RULES[rule], world, P=objects, f=table(f)))

    assert ours() == peer()
    name = f"{rule} hops over {objects:,} objects, {count:,} facts, classical truth, against a merge of {merge}"
    return compare(name, ours, peer, goal=1.0, better="lower", repeats=15)


def by_pandas(f: Tensor, s: Tensor, number: int) -> Callable[[], bool]:
    frame, held = pandas.DataFrame({"a": f[:, 0].numpy(), "b": f[:, 1].numpy()}), s.numpy()

    def run() -> bool:
        paths = frame
        for _ in range(number - 1):
            paths = paths.merge(frame.rename(columns={"a": "b", "b": "c"}), on="b")[["a", "c"]]
            paths = paths.rename(columns={"c": "b"})
        return bool((~held[paths["a"].to_numpy()] | held[paths["b"].to_numpy()]).all())

    return run


def by_polars(f: Tensor, s: Tensor, number: int) -> Callable[[], bool]:
    frame, held = polars.DataFrame({"a": f[:, 0].numpy(), "b": f[:, 1].numpy()}), s.numpy()

    def run() -> bool:
        paths = frame
        for _ in range(number - 1):
            paths = paths.join(frame.rename({"a": "b", "b": "c"}), on="b").select("a", polars.col("c").alias("b"))
        return bool((~held[paths["a"].to_numpy()] | held[paths["b"].to_numpy()]).all())

    return run


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return statistics.median(times)


def by_size(objects: int, counts: list[int]) -> Row:
    """Time against the rows of the join: beyond 10^7 rows it comes in pieces."""
    sizes, times = [], []
    for count in counts:
        f = facts(objects, count)
        weights = nn.Parameter(torch.randn(objects, generator=torch.Generator().manual_seed(1)))
        plan = FuzzyPlan(RULES["two"], Interpretation(RULES, s=logits(weights)), "ltn")

        def step(f: Tensor = f, plan: FuzzyPlan = plan) -> None:
            plan(P=objects, f=table(f)).backward()

        step()
        sizes.append(float(len(hops(f, 2)[0])))
        times.append(seconds(step))
    note = ", ".join([f"{size:.3g} rows {seconds:.3g} s" for size, seconds in zip(sizes, times, strict=True)])
    return Row("two hops: exponent of time in the rows of the join", exponent(sizes, times), 1.1, "lower", note=note)


def memory(objects: int) -> list[Row]:
    """Tensors alive at once, forward and backward: up to 10^7 rows they go with the rows, beyond they stay."""
    weights = nn.Parameter(torch.randn(objects, generator=torch.Generator().manual_seed(1)))
    used = []
    for rule, count in (("two", 1_000_000), ("three", 700_000)):
        f = table(facts(objects, count))
        plan = FuzzyPlan(RULES[rule], Interpretation(RULES, s=logits(weights), f=f), "ltn")
        used.append(peak(lambda plan=plan: plan(P=objects).backward()).bytes)  # type: ignore[misc]
    lengths = [len(hops(facts(objects, 1_000_000), 2)[0]), len(hops(facts(objects, 700_000), 3)[0])]
    notes = [f"{size / 1e6:,.0f} MB for {rows:,} rows" for size, rows in zip(used, lengths, strict=True)]
    return [
        Row("two hops: bytes alive for each row of the join", used[0] / lengths[0], 100, "lower", note=notes[0]),
        Row("three hops, in pieces: bytes alive, against those two", used[1] / used[0], 1.5, "lower", note=notes[1]),
    ]


def binding(objects: int, count: int) -> list[Row]:
    f = facts(objects, count)
    tuples = {tuple(row) for row in f.tolist()}
    listed, given = [seconds(lambda value=value: Interpretation(RULES, f=value)) for value in (tuples, table(f))]  # type: ignore[misc]
    return [
        Row(f"binding {count:,} tuples of a set: seconds", listed, 0.15, "lower"),
        Row(f"binding {count:,} tuples of an index list: seconds", given, 0.01, "lower"),
    ]


def example() -> Row:
    """The rule that looked at all triples of 2,000 objects before there were joins: 14 s a call."""
    f = facts(2000, 4000)
    s = torch.rand(2000, generator=torch.Generator().manual_seed(1)) < 0.9
    world = Interpretation(RULES, s=s)
    time_ = seconds(lambda: truth(RULES["two"], world, P=2000, f=table(f)), 20)
    return Row("two hops over 2,000 objects and 4,000 facts, joined at every call: seconds", time_, 0.01, "lower")


def rows() -> list[Row]:
    return [
        example(),
        *binding(10_000, 50_000),
        fuzzy(2000, 4000, "two", fresh=True),
        fuzzy(20_000, 200_000, "two", fresh=False),
        fuzzy(20_000, 200_000, "two", fresh=True),
        fuzzy(100_000, 1_000_000, "two", fresh=True),
        fuzzy(100_000, 300_000, "three", fresh=True),
        classical(100_000, 1_000_000, "two", "pandas"),
        classical(100_000, 1_000_000, "two", "polars"),
        classical(100_000, 300_000, "three", "pandas"),
        *memory(100_000),
        by_size(100_000, [100_000, 200_000, 400_000, 800_000, 1_600_000]),
    ]


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
