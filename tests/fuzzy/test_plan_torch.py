"""What a torch user tries: torch.compile, torch.func, autocast, and tensors of other devices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from doxa import fuzzy as fz
from doxa.errors import BindingError
from doxa.logic import Interpretation, logits, parse, probs

KB = parse("""
    sort P; sort D = 0..2; pred p(P); pred r(P, P); func digit(P) -> D
    [a] forall x, y: P. p(x) & r(x, y) -> p(y)
    [b] exists x: P. (forall y: P. r(x, y)) | !p(x)
    [c] forall x: P. d := digit(x) (d > 0 | p(x))
    [d] at most 1 x: P. p(x) <-> r(x, x)
""")


class Net(nn.Module):
    """A network that returns truth values of knowledge about its inputs."""

    def __init__(self, logic: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        p, digit = nn.Linear(4, 1), nn.Linear(4, 3)
        r = torch.rand(3, 3, generator=torch.Generator().manual_seed(1))
        # Registered once: torch.func.functional_call leaves modules with two names changed.
        self.world = Interpretation(KB, p=logits(p), r=probs(r), digit=logits(digit))
        self.plan = fz.FuzzyPlan(KB, self.world, logic, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.plan(P=x)

    def raw(self, x: Tensor) -> dict[str, Tensor]:
        """What the networks return."""
        return {name: self.world.meaning(name).call(x) for name in ("p", "digit")}


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
LOGICS = [
    "product",
    "product:r",
    "godel",
    "lukasiewicz:tnorm",
    "yager(1.5)",
    "log_product",
    "recommended",
    "ltn",
    "log_ltn",
]


@pytest.mark.parametrize("logic", LOGICS)
def test_torch_compile_follows_a_plan_without_break(logic: str) -> None:
    torch._dynamo.reset()
    net = Net(logic, outermost=fz.LogProduct("mean") if logic == "log_product" else None)
    want = net(X)
    slopes = torch.autograd.grad(want.sum(), [*net.parameters()])
    got = torch.compile(net, fullgraph=True, backend="aot_eager")(X)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), [*net.parameters()]), slopes)
    torch._dynamo.reset()


def test_what_torch_compile_cannot_follow_says_so() -> None:
    torch._dynamo.reset()
    net = Net("product")
    with pytest.raises(Exception, match="call the plan once"):
        torch.compile(net, fullgraph=True, backend="eager")(X)
    kb = parse("sort P; pred p(P); pred q(P); forall x: P where q(x). p(x)")
    plan = fz.FuzzyPlan(kb, Interpretation(kb, p=probs(torch.rand(3)), q=torch.ones(3).bool()), "product")
    plan(P=3)
    with pytest.raises(Exception, match="guard"):
        torch.compile(lambda: plan(P=3), fullgraph=True, backend="eager")()
    torch._dynamo.reset()


@pytest.mark.parametrize("logic", LOGICS)
def test_torch_func(logic: str) -> None:
    """Derivatives with respect to parameters, and to each of many inputs."""
    net = Net(logic, checkpoint=False)
    params = {k: v.detach() for k, v in net.named_parameters()}

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(net, params, (x,)).sum()

    got = torch.func.grad(loss)(params, X)
    want = torch.autograd.grad(net(X).sum(), [*net.parameters()])
    for slope, wanted in zip([got[k] for k, _ in net.named_parameters()], want, strict=True):
        torch.testing.assert_close(slope, wanted)
    many = torch.stack([X, X + 0.1, -X])
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(params, many)
    alone = [torch.func.grad(loss)(params, x) for x in many]
    for key, slopes in each.items():
        torch.testing.assert_close(slopes, torch.stack([a[key] for a in alone]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.func.vmap(net)(many), torch.stack([net(x) for x in many]))


@pytest.mark.parametrize("logic", LOGICS)
def test_under_autocast_the_logic_stays_in_single_precision(logic: str) -> None:
    """What a network returns in half precision is taken to float32 before anything is computed with it."""
    net = Net(logic)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got, raw = net(X), net.raw(X)
    assert raw["p"].dtype == torch.bfloat16
    truths = {name: scores.float() for name, scores in raw.items()}
    assert got.dtype == torch.float32
    r = torch.rand(3, 3, generator=torch.Generator().manual_seed(1))
    world = Interpretation(KB, p=logits(lambda x: truths["p"]), r=probs(r), digit=logits(lambda x: truths["digit"]))
    torch.testing.assert_close(got, fz.FuzzyPlan(KB, world, logic)(P=X))
    torch.autograd.grad(got.sum(), [*net.parameters()])


def test_contractions_are_not_done_in_half_precision() -> None:
    kb = parse("sort P; pred r(P, P); [a] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)")
    r = torch.rand(20, 20, generator=torch.Generator().manual_seed(0))
    plan = fz.FuzzyPlan(kb["a"], Interpretation(kb, r=probs(r)), "product", outermost=fz.GeneralizedMeanError(1.0))
    assert "contracted" in plan.explain(P=20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = plan(P=20)
    assert got.dtype == torch.float32 and got.item() == plan(P=20).item()


def test_other_devices_are_not_mixed() -> None:
    net = Net("product")
    with pytest.raises(BindingError, match="P is on meta, but the interpretation is on cpu"):
        net(X.to("meta"))
    assert net.to("meta")(X.to("meta")).device.type == "meta"
    with pytest.raises(BindingError, match="P is on cpu, but the interpretation is on meta"):
        net(X)


def test_fake_tensors_have_the_shape_of_the_answer() -> None:
    with FakeTensorMode(), torch.no_grad():
        fake = Net("product")
        assert fake(torch.randn(3, 4)).shape == (4,)
        if torch.cuda.is_available():
            return
        with pytest.raises(BindingError, match="P is on cuda:0, but the interpretation is on cpu"):
            fake(torch.randn(3, 4, device="cuda"))
