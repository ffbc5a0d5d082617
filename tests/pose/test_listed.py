"""Where the choices of variables are many, only those are posed that the guard lets through: the same problems."""

from __future__ import annotations

import pytest
import torch

import doxa
from doxa.pose import _poser, pose

N = 5
KB = doxa.parse("""
    sort P; sort D = 1..3
    data pairs(left: P, right: P)
    pred f(P, P); pred g(P, P); pred has(P, D); pred s(P); pred r(P, P)
    [hops]    forall x, y, z: P where f(x, y) & f(y, z) & x != z. s(x) -> s(z)
    [negated] forall x, y: P where f(x, y) & !g(y, x). r(x, y) -> s(y)
    [finite]  forall x: P, d: D where has(x, d) & d > 1. s(x)
    [rows]    forall p in pairs where f(p.left, p.right). s(p.left) | s(p.right)
    [plain]   forall x, y: P where x != y. r(x, y) -> s(x)
    [none]    forall x, y: P where f(x, y) & g(x, y) & has(x, 1) & has(x, 2) & has(x, 3). s(x)
""")


def model(seed: int) -> tuple[doxa.Model, dict[str, object]]:
    draw = torch.Generator().manual_seed(seed)
    found = doxa.Model(
        KB,
        f=torch.rand(N, N, generator=draw) < 0.5,
        g={tuple(t) for t in torch.randint(0, N, (6, 2), generator=draw).tolist()},
        has=(torch.rand(N, 3, generator=draw) < 0.5).to_sparse(),
        s=doxa.logits(torch.nn.Parameter(torch.randn(N, generator=draw))),
        r=doxa.probs(torch.rand(N, N, generator=draw)),
    )
    pairs = torch.randint(0, N, (2, 8), generator=draw)
    return found, {"P": N, "pairs": {"left": pairs[0], "right": pairs[1]}}


@pytest.mark.parametrize("name", [axiom.name for axiom in KB.axioms])
@pytest.mark.parametrize("seed", range(3))
def test_listed_instances_are_those_that_pass(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    axiom = KB[name]
    losses, probabilities, instances = [], [], []
    for few in (2**20, 0):
        monkeypatch.setattr(_poser, "FEW", few)
        knows, data = model(seed)
        (posed,) = pose([axiom], knows.interpretation, data)
        assert (posed.listed is None) == bool(few)
        losses.append(knows.losses(semantics="exact", **data).by_name()[name])
        truths = knows.truth(semantics="exact", per_row=True, **data)[name]
        passes = posed.passes.reshape(posed.shape)
        probabilities.append(sorted(truths[passes].tolist()))
        if posed.listed is None:
            places = passes.nonzero()
        else:
            places = torch.stack(list(posed.listed.columns.values()), 1)
        instances.append(sorted(places.tolist()))
    torch.testing.assert_close(*losses)
    assert instances[0] == instances[1]
    assert probabilities[0] == pytest.approx(probabilities[1])


def test_explanations_name_the_listed_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    knows, data = model(0)
    monkeypatch.setattr(_poser, "FEW", 0)
    (posed,) = pose([KB["hops"]], knows.interpretation, data)
    assert posed.listed is not None
    explained = knows.explain("hops", semantics="exact", **data)
    wanted = [dict(zip("xyz", row, strict=True)) for row in torch.stack([*posed.listed.columns.values()], 1).tolist()]
    assert [e.instance for e in explained] == wanted
    assert "joined: " in knows.plan(semantics="exact", **data)
