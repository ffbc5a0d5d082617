"""Two processes that learn inference together: other beliefs and other samples, the same bits afterwards."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from doxa.amortized import AmortizedReasoner, FactorMLPs, FittedDirichlet, JointTraining, Prior, Replay
from doxa.problem import Belief, addition

PRIORS: dict[str, type[Prior]] = {"fitted": FittedDirichlet, "replay": Replay}


def learn(rank: int, prior: str) -> dict[str, object]:
    """Some updates, with weights, beliefs and samples that belong to the rank."""
    torch.manual_seed(rank)
    problem = addition(1)
    engine = AmortizedReasoner(problem, FactorMLPs(problem, hidden=8), PRIORS[prior](problem.world, capacity=30))  # type: ignore[call-arg]
    optimizer = torch.optim.Adam(engine.model.parameters(), 1e-2)
    losses = []
    for step in range(3):
        engine.observe(Belief.from_logits(torch.randn(4 + 3 * rank * step, 2, 10)))
        losses += engine.update(2, optimizer, samples=16, generator=torch.Generator().manual_seed(rank + 10 * step))
    return {"engine": engine.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}


def learn_jointly(rank: int, prior: str) -> dict[str, object]:
    torch.manual_seed(rank)
    problem = addition(1)
    engine = AmortizedReasoner(problem, FactorMLPs(problem, hidden=8), PRIORS[prior](problem.world))
    perception = DistributedDataParallel(nn.Sequential(nn.Linear(3, 20), nn.Unflatten(-1, (2, 10))))
    training = JointTraining(engine, perception, samples=16)
    for _ in range(3):
        training.step(torch.randn(4, 3), problem(torch.randint(10, (4, 2))))
    return training.state_dict()


RUNS: list[tuple[Callable[[int, str], dict[str, object]], str]] = [
    (learn, "fitted"),
    (learn, "replay"),
    (learn_jointly, "fitted"),
]


def worker(rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.save([run(rank, prior) for run, prior in RUNS], Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def leaves(x: object) -> list[object]:
    if isinstance(x, dict | list | tuple):
        return [leaf for part in (x.values() if isinstance(x, dict) else x) for leaf in leaves(part)]
    return [x]


def test_two_processes_stay_equal(tmp_path: Path) -> None:
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
    pairs = list(zip(leaves(one), leaves(two), strict=True))
    assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)  # type: ignore[arg-type]
    # The beliefs of both ranks were kept; and alone, rank 0 ends elsewhere.
    assert int(one[0]["engine"]["prior.memory.added"]) == 3 * 4 + (4 + 7 + 10)
    alone = learn(0, "fitted")["engine"]
    assert isinstance(alone, dict)
    assert any(not torch.equal(alone[k], v) for k, v in one[0]["engine"].items() if k.startswith("model."))
