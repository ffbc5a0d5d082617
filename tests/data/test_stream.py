"""Rows on disk read by torch's DataLoader, and by two processes that train together: the rows and losses of one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import doxa
from doxa.data import Batches, Mapped
from doxa.semantics import Exact, Fuzzy, Sampled, Semantics
from doxa.stochastic import LeaveOneOut

ADDITION = """
    sort Image
    sort Digit = 0..9
    func digit(Image) -> Digit
    data sums(left: Image, right: Image, sum: Int)
    [sum] forall s in sums. digit(s.left) + digit(s.right) = s.sum
"""
SEMANTICS: dict[str, Semantics] = {"exact": Exact(), "fuzzy": Fuzzy(), "sampled": Sampled(LeaveOneOut(16))}


def write(folder: Path, rows: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    columns = {
        "left": torch.randn(rows, 4, generator=random),
        "right": torch.randn(rows, 4, generator=random),
        "sum": torch.randint(19, (rows,), generator=random),
    }
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column.numpy())
    return columns


class Rows:
    """The data set of docs/runs.md: a batch is read at once."""

    def __init__(self, **columns: Mapped) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["sum"])

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        return {name: column[torch.tensor(rows)] for name, column in self.columns.items()}


def as_it_is(batch: Any) -> Any:
    return batch


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_every_row_once(workers: int, tmp_path: Path) -> None:
    inside = write(tmp_path, 1001)
    rows: Any = Rows(**{name: Mapped(tmp_path / f"{name}.npy") for name in inside})
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(rows, 100, shuffle=True, generator=order, num_workers=workers, collate_fn=as_it_is)
    found = list(loader)
    assert [len(batch["sum"]) for batch in found] == [100] * 10 + [1]
    for name, column in inside.items():
        seen = torch.cat([batch[name] for batch in found])
        assert not torch.equal(seen, column)
        torch.testing.assert_close(seen.double().sum(0), column.double().sum(0))
        if seen.ndim == 2:
            assert torch.equal(seen[seen[:, 0].argsort()], column[column[:, 0].argsort()])


def steps(rank: int, count: int, folder: str, name: str, *, together: bool) -> tuple[list[float], list[Tensor]]:
    """Losses and last parameters of a few steps, on the share of the rows that a process has; alone, on all shares."""
    torch.manual_seed(0)
    network: nn.Module = nn.Linear(4, 10)
    module = DistributedDataParallel(network) if together else network
    model = doxa.Model(ADDITION, SEMANTICS[name], digit=doxa.logits(module))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    columns = {c: Mapped(Path(folder) / f"{c}.npy") for c in ("left", "right", "sum")}
    shares = [rank] if together else list(range(count))
    noise = {share: torch.Generator().manual_seed(share) for share in shares}
    losses = []
    for batch in Batches(columns, 32, seed=0):  # the same order for all
        optimizer.zero_grad()
        each = []
        for share in shares:
            part = {name: column[share::count] for name, column in batch.items()}
            each.append(model.loss(sums=part, generator=noise[share]))
        loss = torch.stack(each).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach() for p in network.parameters()]


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    found = {name: steps(rank, 2, folder, name, together=True) for name in SEMANTICS}
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    write(tmp_path, 96)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    started = [mp.get_context("spawn").Process(target=worker, args=(r, port, str(tmp_path))) for r in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join(240)
        assert process.exitcode == 0
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name in SEMANTICS:
        losses, parameters = steps(0, 2, str(tmp_path), name, together=False)
        means = [(a + b) / 2 for a, b in zip(one[name][0], two[name][0], strict=True)]
        assert means == pytest.approx(losses, rel=1e-5) and losses[0] != losses[-1]
        for mine, theirs, alone in zip(one[name][1], two[name][1], parameters, strict=True):
            assert torch.equal(mine, theirs)
            torch.testing.assert_close(mine, alone)
