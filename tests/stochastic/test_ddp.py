"""Two processes that train one model: the surrogate is a loss like any other."""

from __future__ import annotations

import socket
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Bernoulli, Independent
from torch.nn.parallel import DistributedDataParallel

from doxa.stochastic import LeaveOneOut, Tape


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.manual_seed(0)
    encoder = DistributedDataParallel(nn.Linear(5, 4))
    decoder = DistributedDataParallel(nn.Linear(4, 5))
    torch.manual_seed(10 + rank)  # different data and samples
    x = torch.randn(6, 5)
    tape = Tape(batch_dims=1)
    z = tape.sample(Independent(Bernoulli(logits=encoder(x)), 1), LeaveOneOut(3))
    tape.cost((decoder(z) - x).square().sum(-1))
    tape.surrogate().backward()
    found = [p.grad for p in (*encoder.parameters(), *decoder.parameters())]
    torch.save(found, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def test_gradients_are_averaged_over_two_processes(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    processes = [context.Process(target=worker, args=(rank, port, str(tmp_path))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert all(float(g.abs().sum()) > 0 for g in one)
    # The same two halves in one process, without any communication, give the average.
    alone = [torch.zeros_like(g) for g in one]
    for rank in range(2):
        torch.manual_seed(0)
        encoder, decoder = nn.Linear(5, 4), nn.Linear(4, 5)
        torch.manual_seed(10 + rank)
        x = torch.randn(6, 5)
        tape = Tape(batch_dims=1)
        z = tape.sample(Independent(Bernoulli(logits=encoder(x)), 1), LeaveOneOut(3))
        tape.cost((decoder(z) - x).square().sum(-1))
        tape.surrogate().backward()
        for total, p in zip(alone, (*encoder.parameters(), *decoder.parameters()), strict=True):
            assert p.grad is not None
            total += p.grad / 2
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one, alone, strict=True))
