"""One model asked with 10,000 different shapes: what a call costs when no shape comes back, and what is kept.

A model keeps what it made for the shapes it has met, but no more than so much: 1,024 plans of an interpretation, and
256 templates in each exact one. The oldest go first. Once these are full, the time of a call and the memory that is
kept stay where they are, whatever number of shapes comes: the last tenth of the shapes is set beside the second.

Memory is what of the process is resident (Linux), each semantics in a process of its own; 10,000 shapes may keep at
most 256 MiB more than one.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path

import torch

import doxa
from harness import Row

SIDE = 10
FIELDS = ("a", "b", "c", "d")
SHAPES = SIDE ** len(FIELDS)
LIMIT = 256 * 2**20
KNOWLEDGE = f"""
sort Image
data lists({", ".join([f"{field}: Image*" for field in FIELDS])})
pred one(Image)
[first]  forall l in lists. (forall x in l.a. one(x)) | (exists x in l.b. one(x))
[second] forall l in lists. (forall x in l.c. one(x)) -> (exists x in l.d. one(x))
"""


def shapes() -> Iterator[dict[str, object]]:
    """Rows of four lists whose lengths come together once, in random order."""
    random = torch.Generator().manual_seed(0)
    lengths = list(product(range(1, SIDE + 1), repeat=len(FIELDS)))
    for number in torch.randperm(SHAPES, generator=random).tolist():
        sizes = zip(FIELDS, lengths[number], strict=True)
        yield {field: doxa.Ragged(torch.randn(n, 2, generator=random), [n]) for field, n in sizes}


def resident() -> int:
    """The bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def asked(semantics: str) -> list[Row]:
    """Every shape once; time and memory of each tenth of them."""
    model = doxa.Model(KNOWLEDGE, semantics, one=doxa.logits(lambda images: images[:, 0]))
    times: list[float] = []
    memory: list[int] = []
    for number, lists in enumerate(shapes()):
        start = time.process_time()
        model.loss(lists=lists)
        times.append(time.process_time() - start)
        if number % (SHAPES // 10) == 0:
            memory.append(resident())
    memory.append(resident())
    tenths = [statistics.median(times[i : i + SHAPES // 10]) for i in range(0, SHAPES, SHAPES // 10)]
    plans = model.interpretation.plans
    title = f"{SHAPES:,} different shapes, {semantics}"
    clock = f"{1000 * tenths[1]:.2g} ms and {1000 * tenths[-1]:.2g} ms"
    grown = memory[-1] - memory[0]
    return [
        Row(f"{title}: time of a call, last tenth against second", tenths[-1] / tenths[1], 1.25, "lower", note=clock),
        Row(f"{title}: resident memory, at the end against after two tenths", memory[-1] / memory[2], 1.1, "lower"),
        Row(f"{title}: memory kept / 256 MiB", grown / LIMIT, 1.0, "lower", note=f"{grown / 2**20:.1f} MiB"),
        Row(f"{title}: plans kept / the most there may be", len(plans) / plans.size, 1.0, "lower"),
    ]


def rows() -> list[Row]:
    measured: list[Row] = []
    for semantics in ("exact", "fuzzy"):
        run = subprocess.run([sys.executable, __file__, semantics], stdout=subprocess.PIPE, text=True, check=True)
        measured += [Row(**row) for row in json.loads(run.stdout.splitlines()[-1])]
    return measured


if __name__ == "__main__":
    from harness import main

    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        print(json.dumps([asdict(row) for row in asked(sys.argv[1])]))
    else:
        main(__file__, rows)
