"""Refined beliefs: what the layers of ``doxa.refine`` make of the same formulas."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import doxa
from doxa.errors import KnowledgeError
from doxa.logic import And, Call, Count, Name, propositions
from doxa.refine import Refine

WEATHER = """
    sort Day
    pred rain(Day)
    pred wet(Day)
    [soaked] forall d: Day. rain(d) -> wet(d)
    [some]   exists d: Day. rain(d)
"""


@pytest.mark.parametrize("logic", ["godel", "lukasiewicz", "product"])
def test_it_is_the_layer_over_the_ground_formulas(logic: str) -> None:
    p = torch.tensor([[0.5, 0.8], [0.3, 0.4]], dtype=torch.float64)
    model = doxa.Model(WEATHER, rain=doxa.probs(p[0]), wet=doxa.probs(p[1]))
    rain, wet = ([Call(s, (Name(f"Day[{i}]"),)) for i in range(2)] for s in ("rain", "wet"))
    rules = {"soaked": And(*[r >> w for r, w in zip(rain, wet, strict=True)]), "some": rain[0] | rain[1]}
    wanted = Refine(rules, logic, atoms=[*rain, *wet])(p.flatten())
    found = model.refine(logic=logic, Day=2)
    after = torch.stack([*found["rain"].values(), *found["wet"].values()])
    torch.testing.assert_close(after, wanted.to(after.dtype))
    assert list(found["rain"]) == ["Day[0]", "Day[1]"] and set(found.truth) == {"soaked", "some"}
    assert found.satisfied == bool(Refine(rules, logic, atoms=[*rain, *wet]).run(p.flatten()).satisfied)


def test_functions_of_features_in_rows_and_what_stays_as_it_is() -> None:
    kb = """
        sort Image; sort Digit = 0..2
        data pairs(left: Image, right: Image, sum: Int)
        func digit(Image) -> Digit
        pred allowed(Digit)
        [sum]  forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
        [free] forall p in pairs, d: Digit. digit(p.left) = d -> allowed(d)
    """
    net = nn.Linear(3, 3, dtype=torch.float64)
    calls: list[int] = []
    net.register_forward_hook(lambda *args: calls.append(len(args[2])))
    model = doxa.Model(kb, digit=doxa.logits(net), allowed=torch.tensor([True, True, False]))
    torch.manual_seed(0)
    left, right = torch.randn(2, 2, 3, dtype=torch.float64)
    pairs = {"left": left, "right": right, "sum": torch.tensor([1, 3])}
    found = model.refine(pairs=pairs)
    assert calls == [4]
    a = [propositions(" ".join(f"l{i}{d}" for d in range(3))) for i in range(2)]
    b = [propositions(" ".join(f"r{i}{d}" for d in range(3))) for i in range(2)]
    free = propositions("free0 free1 free2")
    sums = [1, 3]
    rules: dict[str, Any] = {
        "sum": And(*[
            _either([a[i][d] & b[i][e] for d, e in itertools.product(range(3), repeat=2) if d + e == sums[i]])
            for i in range(2)
        ]),
        "free": And(*[a[i][d] >> free[d] for i in range(2) for d in range(3)]),
        "constraints": And(*[Count("exactly", 1, xs) for i in range(2) for xs in (a[i], b[i])]),
    }  # fmt: skip
    p = net(torch.cat([left, right])).softmax(-1)
    atoms = [*a[0], *b[0], *a[1], *b[1], *free]
    start = torch.cat([p[0], p[2], p[1], p[3], torch.tensor([1.0, 1.0, 0.0])])
    wanted = Refine(rules, "godel", atoms=atoms, constants=free)(start)
    after = torch.cat([found["digit"][f"pairs[{i}].{side}"] for i in range(2) for side in ("left", "right")])
    torch.testing.assert_close(after, wanted[:12].to(after.dtype))
    assert [v.item() for v in found["allowed"].values()] == [1, 1, 0]
    after.sum().backward()
    assert net.weight.grad is not None and torch.isfinite(net.weight.grad).all()


def _either(parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = found | part
    return found


def test_indices_constants_and_targets() -> None:
    kb = """
        sort P; const ann: P
        data friends(a: P, b: P)
        pred smokes(P)
        [spread] forall f in friends. smokes(f.a) -> smokes(f.b)
        [ann]    smokes(ann)
    """
    model = doxa.Model(kb, smokes=doxa.probs(torch.tensor([0.2, 0.1, 0.4])), ann=0)
    friends = {"a": torch.tensor([0, 1]), "b": torch.tensor([1, 2])}
    found = model.refine(P=3, friends=friends, guarantee="sat")
    assert found.satisfied
    assert {k: round(v.item()) for k, v in found["smokes"].items()} == {"ann": 1, "P[1]": 1, "P[2]": 1}
    low = doxa.Model("pred a; pred b; [x] a; [y] !b", a=doxa.probs(torch.tensor(0.2)), b=doxa.probs(torch.tensor(0.9)))
    found = low.refine(target={"x": 0.3, "y": 0.6})
    assert found["a"][""].item() == pytest.approx(0.3) and found["b"][""].item() == pytest.approx(0.4)
    with pytest.raises(KnowledgeError, match="nothing is believed of 'c'"):
        found["c"]


def test_crisp_beliefs_that_satisfy_the_axioms_do_not_change() -> None:
    truth = {"rain": torch.tensor([1.0, 0.0]), "wet": torch.tensor([1.0, 1.0])}
    model = doxa.Model(WEATHER, **{s: doxa.probs(t) for s, t in truth.items()})
    found = model.refine(Day=2)
    assert torch.equal(found.before, found.after) and found.satisfied
    assert str(found) == "everything holds"


def test_gradients_are_finite_at_the_corners() -> None:
    logits = torch.tensor([100.0, -100.0], requires_grad=True)
    text = "sort D; pred a(D); [no] forall x: D. !a(x)"
    model = doxa.Model(text, a=doxa.probs(lambda i: logits.sigmoid()[i.long()]))
    found: Tensor = model.refine(logic="product", D=torch.arange(2.0)).after.sum()
    found.backward()
    assert logits.grad is not None and torch.isfinite(logits.grad).all()
