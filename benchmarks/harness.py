"""Timing by ratio: ours and a peer, interleaved in one process, one thread, medians.

A benchmark is a script with ``rows() -> list[Row]`` that ends with ``main(__file__, rows)``. It prints its rows and
writes them to ``benchmarks/results/<script>.json``; ``python benchmarks/table.py`` puts all of them into one table.

A row names in its text what it is measured against. From that follow the versions kept with it, and how the peer is
used: as its documentation shows (``recommended``), or, where a row says so, as one would use it who knows how it works
inside (``expert``). Code that uses no peer, written for the one problem that is measured, is ``by hand``.

Times are CPU times of this process, so another process on the machine disturbs them little. A ratio is the median over
pairs of neighbouring measurements, its spread the first and third quartile of them.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import torch

RESULTS = Path(__file__).parent / "results"
Better = Literal["higher", "lower"]
Use = Literal["recommended", "expert", "by hand"]

# How rows name a peer, and the package whose version is meant.
PEERS = {
    "LTNtorch": "LTNtorch",
    "storchastic": "storchastic",
    "PySDD": "PySDD",
    "KLay": "klaycircuits",
    "dd": "dd",
    "ProbLog": "problog",
    "RC2": "python-sat",
    "SLSQP": "scipy",
    "scipy": "scipy",
    "pandas": "pandas",
    "polars": "polars",
    "Lark": "lark",
}
HAND = ("by hand", "tensor code", "padding", "in a loop", "max-min", "against torch", "an indexed tensor", "Adam")


def packages_of(name: str) -> list[str]:
    """The packages that a row with this name is measured against."""
    return list(dict.fromkeys(package for peer, package in PEERS.items() if re.search(rf"\b{peer}\b", name)))


def use_of(name: str) -> Use | None:
    """How a peer is used, unless the row says it; none where doxa is measured against itself or a limit."""
    if any(word in name for word in HAND):
        return "by hand"
    return "recommended" if packages_of(name) else None


@dataclass(frozen=True)
class Row:
    """One measured ratio beside its goal: at least (``higher``) or at most (``lower``)."""

    name: str
    ratio: float
    goal: float
    better: Better
    spread: tuple[float, float] | None = None
    note: str = ""
    use: Use | None = None

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
    use: Use | None = None,
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
    return summary(name, ratios, goal=goal, better=better, note=note, use=use)


def summary(
    name: str, ratios: list[float], *, goal: float, better: Better, note: str = "", use: Use | None = None
) -> Row:
    """A row from ratios that were measured some other way, such as in alternating processes."""
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Row(name, statistics.median(ratios), goal, better, (low, high), note, use)


def exponent(sizes: list[float], times: list[float]) -> float:
    """The slope of log time against log size, by least squares: 1 is linear."""
    xs, ys = torch.tensor(sizes).double().log(), torch.tensor(times).double().log()
    xs = xs - xs.mean()
    return float((xs * (ys - ys.mean())).sum() / (xs * xs).sum())


def record(row: Row) -> dict[str, object]:
    """What is kept of a row: what was measured, against which versions, and when."""
    kept = asdict(row) | {"use": row.use or use_of(row.name), "met": row.met}
    versions = {name: importlib.metadata.version(name) for name in ("torch", *packages_of(row.name))}
    found = {k: v for k, v in kept.items() if v not in (None, "")}
    return found | {"versions": versions, "date": str(date.today())}


def main(file: str, rows: Callable[[], list[Row]]) -> None:
    """Run a benchmark script: print its rows and write them as JSON."""
    torch.set_num_threads(1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    measured = rows()
    for row in measured:
        print(row.line())
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{Path(file).stem}.json"
    content = [record(row) for row in measured]
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
