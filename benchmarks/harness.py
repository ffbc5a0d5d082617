"""Timing by ratio: ours and a peer, interleaved in one process, one thread, medians.

A benchmark is a script with ``rows() -> list[Row]`` that ends with ``main(__file__, rows)``. It prints its rows and
writes them to ``benchmarks/results/<script>.json``; ``python benchmarks/table.py`` puts all of them into one table.

Times are CPU times of this process, so another process on the machine disturbs them little. A ratio is the median over
pairs of neighbouring measurements, its spread the first and third quartile of them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch

RESULTS = Path(__file__).parent / "results"
Better = Literal["higher", "lower"]


@dataclass(frozen=True)
class Row:
    """One measured ratio beside its goal: at least (``higher``) or at most (``lower``)."""

    name: str
    ratio: float
    goal: float
    better: Better
    spread: tuple[float, float] | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        return self.ratio >= self.goal if self.better == "higher" else self.ratio <= self.goal

    def line(self) -> str:
        sign = "≥" if self.better == "higher" else "≤"
        spread = f" [{self.spread[0]:.3g}, {self.spread[1]:.3g}]" if self.spread else ""
        mark = "met" if self.met else "MISSED"
        return f"{self.name:<72} {self.ratio:8.3g}{spread:<18} {sign} {self.goal:<6g} {mark} {self.note}".rstrip()


def cpu_seconds(function: Callable[[], object], loops: int) -> float:
    """CPU time of one call, averaged over ``loops`` calls."""
    start = time.process_time()
    for _ in range(loops):
        function()
    return (time.process_time() - start) / loops


def compare(
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    goal: float,
    better: Better,
    repeats: int = 30,
    sample: float = 0.01,
    note: str = "",
) -> Row:
    """Measure two functions in turn.

    ``lower``: the ratio is our time over the peer's, so 1 is par and less is better.
    ``higher``: the ratio is the peer's time over ours: how many times faster we are.
    Each measurement runs as many calls as fill ``sample`` seconds; the two of a pair take turns in going first.
    """
    for function in (ours, peer):  # warm up: allocator, caches, lazy imports
        function()
        function()
    # Each side fills its own sample, so that a fast one is not timed with one call.
    our_loops, peer_loops = (max(1, round(sample / max(cpu_seconds(f, 1), 1e-7))) for f in (ours, peer))
    ratios = []
    for i in range(repeats):
        if i % 2:
            theirs = cpu_seconds(peer, peer_loops)
            mine = cpu_seconds(ours, our_loops)
        else:
            mine = cpu_seconds(ours, our_loops)
            theirs = cpu_seconds(peer, peer_loops)
        ratios.append(mine / theirs if better == "lower" else theirs / mine)
    return summary(name, ratios, goal=goal, better=better, note=note)


def summary(name: str, ratios: list[float], *, goal: float, better: Better, note: str = "") -> Row:
    """A row from ratios that were measured some other way, such as in alternating processes."""
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Row(name, statistics.median(ratios), goal, better, (low, high), note)


def exponent(sizes: list[float], times: list[float]) -> float:
    """The slope of log time against log size, by least squares: 1 is linear."""
    xs, ys = torch.tensor(sizes).double().log(), torch.tensor(times).double().log()
    xs = xs - xs.mean()
    return float((xs * (ys - ys.mean())).sum() / (xs * xs).sum())


def main(file: str, rows: Callable[[], list[Row]]) -> None:
    """Run a benchmark script: print its rows and write them as JSON."""
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    measured = rows()
    for row in measured:
        print(row.line())
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{Path(file).stem}.json"
    content = [{k: v for k, v in (asdict(r) | {"met": r.met}).items() if v not in (None, "")} for r in measured]
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
