"""What is kept of shapes that were met: bounded, whatever their number, and the answers stay those of a new model."""

from __future__ import annotations

import pytest
import torch

import doxa
from doxa.logic.bind import _interpretation
from doxa.pose import _poser

KNOWLEDGE = """
sort Image
sort Digit = 0..1
func digit(Image) -> Digit
data lists(left: Image*, right: Image*, value: Int)
[value] forall l in lists. (sum x in l.left. digit(x)) + (max y in l.right. digit(y)) = l.value
"""


def test_plans_of_many_shapes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interpretation, "PLANS", 8)
    monkeypatch.setattr(_poser, "TEMPLATES", 5)
    model = doxa.Model(KNOWLEDGE, "exact", digit=doxa.logits(torch.nn.Identity()))
    random = torch.Generator().manual_seed(0)
    for left in range(1, 7):
        for right in range(1, 7):
            data = {
                "left": doxa.Ragged(torch.randn(left, 2, generator=random), [left]),
                "right": doxa.Ragged(torch.randn(right, 2, generator=random), [right]),
                "value": torch.tensor([1]),
            }
            fresh = doxa.Model(KNOWLEDGE, "exact", digit=doxa.logits(torch.nn.Identity()))
            torch.testing.assert_close(model.loss(lists=data), fresh.loss(lists=data))
            plans = model.interpretation.plans
            posers = [plan for plan in plans.values() if isinstance(plan, _poser.Poser)]
            assert len(plans) <= plans.size == 8
            assert all(len(known) <= 5 for poser in posers for known in poser._templates.values())
            assert all(len(poser._templates) <= 5 and len(poser._seen) <= 5 for poser in posers)


def test_a_function_of_listed_values_is_asked_once() -> None:
    asked = []

    def road(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return (y - x).abs() == 1

    knowledge = """
    sort World
    sort Node = 0..3
    pred fact(World, Node)
    pred road(Node, Node)
    forall w: World. exists x, y: Node. road(x, y) & fact(w, x) & fact(w, y)
    """
    model = doxa.Model(knowledge, "exact", fact=doxa.logits(torch.nn.Identity()), road=road)
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    found = model.loss(World=scores, reduction="none").neg().exp()
    worlds = torch.cartesian_prod(*[torch.arange(2)] * 4)
    holds = (worlds[:, :-1] * worlds[:, 1:]).any(1)
    each = torch.where(worlds[:, None].bool(), scores.sigmoid(), 1 - scores.sigmoid()).prod(2)
    torch.testing.assert_close(found, each[holds].sum(0))
    assert asked == [16]
