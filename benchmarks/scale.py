"""Scale: an epoch of 10^6 rows from disk, and two processes beside one.

Rows per second of one and of two processes are wall-clock times, each the best of many short windows that take turns:
what else the machine does lengthens a window and never shortens it. They need two cores that are free at once; where
there are none, rows a second of CPU time still say what a step and its communication cost.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import doxa
from doxa.data import Batches, Mapped
from doxa.semantics import Exact, Fuzzy, Sampled, Semantics
from doxa.stochastic import LeaveOneOut
from doxa.train.tasks._find import digit_network
from harness import Row, main, summary

ADDITION = """
    sort Image
    sort Digit = 0..9
    func digit(Image) -> Digit
    data sums(left: Image, right: Image, sum: Int)
    [sum] forall s in sums. digit(s.left) + digit(s.right) = s.sum
"""
ROWS, WIDTH = 1_000_000, 16
SEMANTICS: dict[str, Semantics] = {"exact": Exact(), "fuzzy": Fuzzy(), "sampled": Sampled(LeaveOneOut(32))}


def resident() -> float:
    """Bytes of this process that are in memory, without pages of files."""
    fields = Path("/proc/self/status").read_text().splitlines()
    return 1024.0 * next(int(line.split()[1]) for line in fields if line.startswith("RssAnon"))


def write(folder: Path, rows: int) -> None:
    """Columns of ``rows`` sums; an image is a vector of some numbers. Written part by part, as large files are."""
    shapes = {"left": (WIDTH,), "right": (WIDTH,), "sum": ()}
    files = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", "w+", np.int64 if name == "sum" else np.float32, (rows, *shape)
        )
        for name, shape in shapes.items()
    }
    random, names = np.random.default_rng(0), np.random.default_rng(1).normal(size=(10, WIDTH)).astype(np.float32)
    for first in range(0, rows, 10_000):
        part = slice(first, min(first + 10_000, rows))
        digits = random.integers(10, size=(2, part.stop - first))
        for name, which in zip(("left", "right"), digits, strict=True):
            files[name][part] = names[which] + random.normal(size=(len(which), WIDTH))
        files["sum"][part] = digits.sum(0)
    for file in files.values():
        file.flush()


class Rows(Dataset[dict[str, Tensor]]):
    """Columns on disk, for torch's DataLoader: a batch is read at once."""

    def __init__(self, columns: dict[str, Mapped]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        return {name: column[torch.tensor(rows)] for name, column in self.columns.items()}


def as_it_is(batch: Any) -> Any:
    return batch


def learner() -> Callable[[dict[str, Tensor]], float]:
    network = nn.Linear(WIDTH, 10)
    model = doxa.Model(ADDITION, "exact", digit=doxa.logits(network))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)

    def step(batch: dict[str, Tensor]) -> float:
        optimizer.zero_grad()
        loss = model.loss(sums=batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def epoch(name: str, batches: Iterator[dict[str, Tensor]]) -> Row:
    """Memory at the end of an epoch beside that after its first batches."""
    step, seen, before, losses = learner(), 0, 0.0, []
    start = time.process_time()
    for number, batch in enumerate(batches):
        losses.append(step(batch))
        seen += len(batch["sum"])
        if number == 20:
            before = resident()
    spent, after = time.process_time() - start, resident()
    assert seen == ROWS and losses[-1] < losses[0]
    sizes = f"{before / 1e6:.0f} MB after 20 batches, {after / 1e6:.0f} MB at the end"
    note = f"{sizes}, {seen / spent:,.0f} rows a CPU-second"
    return Row(f"an epoch of {ROWS:,} rows, {name}: memory, end to start", after / before, 1.02, "lower", note=note)


def stream() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), ROWS)
        columns = {name: Mapped(Path(folder) / f"{name}.npy") for name in ("left", "right", "sum")}
        found = [epoch("mapped files", iter(Batches(columns, 1000, seed=0)))]
        loader = DataLoader(Rows(columns), 1000, shuffle=True, num_workers=2, collate_fn=as_it_is)
        found.append(epoch("mapped files, DataLoader with two workers", iter(loader)))
        tensors = {name: column[:200_000] for name, column in columns.items()}
        few = {name: Mapped(_saved(Path(folder) / f"few-{name}.npy", t)) for name, t in tensors.items()}
        found.append(reading(few, tensors))
    return found


def _saved(path: Path, column: Tensor) -> Path:
    np.save(path, column.numpy())
    return path


def reading(mapped: dict[str, Mapped], tensors: dict[str, Tensor]) -> Row:
    """A step with rows from disk beside one with rows from memory."""
    step, ratios = learner(), []
    for seed in range(5):
        times = []
        for columns in (mapped, tensors):
            batches = Batches(dict(columns), 1000, seed=seed)
            start = time.process_time()
            for batch in batches:
                step(batch)
            times.append(time.process_time() - start)
        ratios.append(times[0] / times[1])
    return summary("a step with rows of mapped files, to one with rows in memory", ratios, goal=1.25, better="lower")


# Two processes.

BATCH, STEPS, WINDOWS = 64, 2, 150


def digits(rank: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(rank)
    images = torch.randn(2, BATCH, 1, 28, 28, generator=random)
    return {"left": images[0], "right": images[1], "sum": torch.randint(19, (BATCH,), generator=random)}


def stepper(how: Semantics, *, together: bool) -> Callable[[dict[str, Tensor]], None]:
    torch.manual_seed(0)
    network: nn.Module = digit_network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if together:
        network = DistributedDataParallel(network)
    model = doxa.Model(ADDITION, how, digit=doxa.logits(network))
    optimizer = torch.optim.Adam(network.parameters(), fused=True)

    def step(batch: dict[str, Tensor]) -> None:
        optimizer.zero_grad()
        model.loss(sums=batch).backward()
        optimizer.step()

    return step


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})  # else both may be woken on the core that is less busy
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    batch, best = digits(rank), dict[str, list[float]]()
    for name, how in SEMANTICS.items():
        steps = {"one": stepper(how, together=False), "two": stepper(how, together=True)}
        times: dict[str, list[tuple[float, float]]] = {"one": [], "two": []}
        for _ in range(WINDOWS):
            for which, step in steps.items():
                dist.barrier()
                start, spent = time.perf_counter(), time.process_time()
                for _ in range(STEPS if which == "two" or rank == 0 else 0):
                    step(batch)
                times[which].append(((time.perf_counter() - start) / STEPS, (time.process_time() - spent) / STEPS))
        best[name] = [min(t[i] for t in times[which]) for which in ("one", "two") for i in (0, 1)]
    if rank == 0:
        torch.save(best, Path(folder) / "best.pt")
    dist.barrier()  # none leaves while the other one still needs it
    dist.destroy_process_group()


def processes() -> list[Row]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        started = [mp.get_context("spawn").Process(target=worker, args=(r, port, folder)) for r in range(2)]
        for process in started:
            process.start()
        for process in started:
            process.join()
            if process.exitcode:
                raise RuntimeError(f"a process ended with {process.exitcode}")
        best = torch.load(Path(folder) / "best.pt")
    size = sum(p.numel() * p.element_size() for p in digit_network().parameters())
    rows = []
    for name, (one, one_cpu, two, two_cpu) in best.items():
        said = f"{BATCH} sums a process, best of {WINDOWS} windows each"
        wall = f"{said}: {1000 * one:.1f} ms a step alone, {1000 * two:.1f} ms together"
        wall = f"{wall}; load average {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        cpu = f"{said}: {1000 * one_cpu:.1f} ms alone, {1000 * two_cpu:.1f} ms together"
        cpu = f"{cpu}; {size / 1000:.0f} kB of gradients"
        what = f"two gloo processes to one, {name}: rows a second"
        rows.append(Row(what, 2 * one / two, 1.7, "higher", note=wall))
        rows.append(Row(f"{what} of CPU time, without waiting", 2 * one_cpu / two_cpu, 1.7, "higher", note=cpu))
    return rows


def rows() -> list[Row]:
    return [*stream(), *processes()]


if __name__ == "__main__":
    main(__file__, rows)
