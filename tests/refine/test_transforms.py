"""With a fixed number of steps the layer compiles, vmaps, exports to ONNX and runs distributed."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from doxa import fuzzy as fz
from doxa.errors import ConfigError
from doxa.logic import Expr, propositions
from doxa.refine import Hierarchy, Refine

A, B, C, D = propositions("a b c d")
FORMULA = (A | ~B | C) & (~A | D) & (B >> ~D)
LOGICS = ["godel", "lukasiewicz", "product", "godel:r", "product:r"]


def layer(logic: str, formula: Expr = FORMULA, target: float = 0.9) -> Refine:
    return Refine(formula, logic, target, 0.7, steps=3)


@pytest.mark.parametrize("logic", [*LOGICS, "frank(3.0)", "yager(2.0)", "nilpotent"])
def test_vmap_equals_batch(logic: str) -> None:
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(layer(logic))(x), layer(logic)(x))


def test_per_example_derivatives_through_vmap() -> None:
    refine = layer("product")
    x = torch.rand(3, 4, dtype=torch.float64)
    many = torch.vmap(torch.func.jacrev(refine))(x)
    for row, jacobian in zip(x, many, strict=True):
        torch.testing.assert_close(torch.autograd.functional.jacobian(refine, row), jacobian)


@pytest.mark.parametrize("logic", [*LOGICS, "frank(3.0)", "yager(2.0)", "nilpotent"])
def test_autocast_and_tensors_without_data(logic: str) -> None:
    refine, x = layer(logic), torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    plain = refine(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(refine(x), plain)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = refine(mode.from_tensor(x))
    assert fake.shape == plain.shape and fake.dtype == plain.dtype


def test_running_until_converged_says_why_it_cannot_be_traced() -> None:
    free = Refine(FORMULA, "godel")
    with pytest.raises(ConfigError, match="give Refine a number of steps"):
        torch.vmap(free)(torch.rand(3, 4))


@pytest.mark.parametrize("logic", ["godel", pytest.param("product", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore")
def test_compiles_in_one_graph(logic: str) -> None:
    torch.compiler.reset()
    refine = layer(logic)
    x = torch.rand(6, 4, requires_grad=True)
    compiled = torch.compile(refine, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), refine(x))
    ours, theirs = (torch.autograd.grad(f(x).square().sum(), x)[0] for f in (compiled, refine))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("logic", LOGICS)
def test_compiles_with_inductor(logic: str) -> None:
    torch.compiler.reset()
    refine, x = layer(logic), torch.rand(6, 4)
    torch.testing.assert_close(torch.compile(refine, fullgraph=True)(x), refine(x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "logic",
    ["godel", *[pytest.param(name, marks=pytest.mark.slow) for name in ("lukasiewicz", "product", "frank(3.0)")]],
)
def test_onnx_runtime_agrees_for_any_batch(logic: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    # The layer alone: after the first pass literals often tie but for rounding, and a sigmoid rounds differently there.
    model = layer(logic).eval()
    file = tmp_path / "model.onnx"
    batch = torch.export.Dim("batch", min=1, max=4096)
    torch.onnx.export(
        model, (torch.rand(4, 4),), file, dynamo=True, dynamic_shapes=({0: batch},), input_names=["x"], verbose=False
    )
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for size in (1, 4, 333):
        x = torch.rand(size, 4)
        (found,) = session.run(None, {"x": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), model(x).detach(), atol=1e-5, rtol=0)


def test_state_dict_copy_and_pickle() -> None:
    refine = Refine(FORMULA, "product", fz.Learnable(0.8, low=0.0, high=1.0), steps=2)
    assert list(refine.state_dict()) == ["learnable.0.raw"]
    x = torch.rand(3, 4)
    torch.testing.assert_close(copy.deepcopy(refine)(x), refine(x))
    torch.testing.assert_close(pickle.loads(pickle.dumps(refine))(x), refine(x))


def test_half_precision_and_dtypes() -> None:
    refine = layer("lukasiewicz")
    x = torch.rand(3, 4)
    assert refine(x.bfloat16()).dtype == torch.float32
    assert refine(x.double()).dtype == torch.float64


def _worker(rank: int, port: int, results: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    x, label, model = _problem()
    wrapped = DistributedDataParallel(model)
    half = slice(0, 4) if rank == 0 else slice(4, 8)
    (wrapped(x[half]) - label[half]).square().mean().backward()
    if rank == 0:
        torch.save([p.grad for p in model.parameters()], results)
    dist.destroy_process_group()


def _problem() -> tuple[Tensor, Tensor, nn.Module]:
    torch.manual_seed(0)
    refine = Refine(FORMULA, "product", fz.Learnable(0.8, low=0.0, high=1.0), steps=2)
    return torch.randn(8, 3), torch.rand(8, 4), nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), refine)


def test_distributed_data_parallel(tmp_path: Path) -> None:
    """Two processes with half a batch each have the gradient of the whole batch."""
    results = tmp_path / "grads.pt"
    port = 20_000 + os.getpid() % 20_000
    mp.spawn(_worker, args=(port, str(results)), nprocs=2)
    x, label, model = _problem()
    (model(x) - label).square().mean().backward()
    for found, parameter in zip(torch.load(results), model.parameters(), strict=True):
        torch.testing.assert_close(found, parameter.grad)


def test_hierarchy_vmaps() -> None:
    hierarchy = Hierarchy([("b", "a"), ("c", "b")])
    x = torch.rand(5, 3)
    torch.testing.assert_close(torch.vmap(hierarchy)(x), hierarchy(x))
