"""Readings: what every kind of binding says, for every result sort; compiled once for each schema."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doxa.logic import Interpretation, logits, parse, probs, values
from doxa.logic.tensor import _symbol_values
from doxa.logic.tensor._symbol_values import symbol_values

KB = parse("""
    sort Image; sort Digit = 1..4; sort Colour = {red, green}
    pred flag; pred small(Digit); pred near(Image, Digit); pred above(Image, Image); pred over(Digit, Int)
    func sum(Digit, Digit) -> Int
    func half(Digit) -> Real
    func next(Digit) -> Digit
    func tint(Digit, Colour) -> Colour
    func height(Image, Digit) -> Int
    func width(Digit, Image) -> Real
    func digit(Image) -> Digit
    func shifted(Int, Digit) -> Digit
    func twin(Image) -> Image
    func pair(Image, Digit) -> Image
""")
NO_INT = torch.iinfo(torch.int64).min
IMAGES = torch.tensor([[0.5, 2.0], [1.0, -3.0], [0.25, 4.0]])
DIGITS = range(1, 5)


def read(name: str, columns: dict[int, Tensor] | None = None, data: dict[str, Any] | None = None, **bound: Any) -> Any:
    return symbol_values(Interpretation(KB, **bound), {name: columns or {}}, data or {})[name]


@pytest.mark.parametrize(
    ("name", "call", "wanted"),
    [
        ("sum", lambda a, b: a + b, [[a + b for b in DIGITS] for a in DIGITS]),
        ("half", lambda a: a / 2, [a / 2 for a in DIGITS]),
        ("next", lambda a: a + 1, [1, 2, 3, -1]),  # positions; 5 is no Digit
        ("tint", lambda a, c: (a + c) % 2, [[(a + c) % 2 for c in range(2)] for a in DIGITS]),
        ("small", lambda a: a < 3, [True, True, False, False]),
    ],
)
def test_functions_of_finite_arguments(name: str, call: Any, wanted: Any) -> None:
    """A Python function, and a tensor and a table of the same values."""
    want = torch.tensor(wanted)
    found = read(name, **{name: call})
    torch.testing.assert_close(found.values, want)
    assert found.returns == ("bool" if name == "small" else "value")
    if name == "next":
        return
    torch.testing.assert_close(read(name, **{name: want}).values, want)
    names = [list(DIGITS), ["red", "green"] if name == "tint" else list(DIGITS)][: want.ndim]
    cells: dict[Any, Any] = {}
    for at in product(*[range(n) for n in want.shape]):
        value = want[at].item()
        cells[tuple([names[i][k] for i, k in enumerate(at)])] = ["red", "green"][value] if name == "tint" else value
    listed = {k for k, v in cells.items() if v} if name == "small" else cells
    torch.testing.assert_close(read(name, **{name: listed}).values, want, check_dtype=False)


def test_a_function_into_int_has_int64_values() -> None:
    for dtype in (torch.int32, torch.uint8, torch.int64):
        found = read("sum", sum=lambda a, b, d=dtype: (a * b).to(d))
        assert found.values.dtype == torch.int64 and found.values.shape == (4, 4)
        torch.testing.assert_close(found.values, torch.outer(torch.arange(1, 5), torch.arange(1, 5)))


def test_what_a_table_does_not_list_is_marked() -> None:
    assert read("sum", sum={(1, 2): 7}).values[0].tolist() == [NO_INT, 7, NO_INT, NO_INT]
    assert read("half", half={1: 0.5}).values.isnan().tolist() == [False, True, True, True]
    assert read("next", next={1: 2}).values.tolist() == [1, -1, -1, -1]
    assert read("small", small={1}).values.tolist() == [True, False, False, False]


def test_open_and_finite_arguments() -> None:
    want = IMAGES.sum(1).long()[:, None] * 10 + torch.arange(1, 5)
    found = read("height", {0: IMAGES}, height=lambda x, d: x.sum(-1).long() * 10 + d)
    torch.testing.assert_close(found.values, want)
    # The objects come first, wherever the argument stands.
    found = read("width", {1: IMAGES}, width=lambda d, x: x.sum(-1) / d)
    torch.testing.assert_close(found.values, IMAGES.sum(1)[:, None] / torch.arange(1, 5))
    found = read("near", {0: IMAGES}, near=lambda x, d: x.sum(-1) > d)
    assert torch.equal(found.values, IMAGES.sum(1)[:, None] > torch.arange(1, 5)) and found.returns == "bool"
    # Indices into the objects of the data.
    table = torch.arange(12).reshape(3, 4)
    found = read("height", {0: torch.tensor([2, 0])}, {"Image": IMAGES}, height=table)
    assert torch.equal(found.values, table[[2, 0]])
    found = read("near", {0: torch.tensor([2, 0])}, {"Image": 3}, near={(2, 4), (0, 1)})
    assert found.values.tolist() == [[False, False, False, True], [True, False, False, False]]


def test_pairs_of_objects_vary_together() -> None:
    found = read("above", {0: IMAGES, 1: IMAGES.flip(0)}, above=probs(lambda x, y: (x - y).sum(-1).sigmoid()))
    torch.testing.assert_close(found.values, (IMAGES - IMAGES.flip(0)).sum(-1).sigmoid())
    assert found.returns == "prob"


def test_numbers_as_arguments() -> None:
    found = read("shifted", {0: torch.tensor([0, 2])}, shifted=lambda n, d: n + d)
    assert found.values.tolist() == [[0, 1, 2, 3], [2, 3, -1, -1]]
    found = read("over", {1: torch.tensor([3, 9])}, over={(2, 3), (4, 8)})
    assert found.values.tolist() == [[False, True, False, False], [False] * 4]


def test_networks_and_distributions() -> None:
    layer = nn.Linear(2, 4)
    with torch.no_grad():
        found = read("digit", {0: IMAGES}, digit=logits(layer))
        torch.testing.assert_close(found.values, layer(IMAGES).log_softmax(-1))
        assert found.returns == "log_prob"
        assert torch.equal(read("near", {0: IMAGES}, near=logits(layer)).values, layer(IMAGES))
        uniform = torch.full((3, 4), 0.25)
        found = read("digit", {0: torch.arange(3)}, {"Image": 3}, digit=probs(uniform))
        assert torch.equal(found.values, uniform) and found.returns == "prob"
        chances = torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)
        assert torch.equal(read("next", next=probs(chances)).values, chances)
        assert read("flag", flag=probs(torch.tensor(0.3))).values.item() == pytest.approx(0.3)
        assert read("flag", flag=True).values.item() is True


def test_functions_into_open_sorts() -> None:
    """Indices of objects, or the features that a network computes."""
    found = read("twin", {0: torch.tensor([0, 2])}, {"Image": IMAGES}, twin=torch.tensor([2, 1, 0]))
    assert found.values.tolist() == [2, 0]
    layer = nn.Linear(2, 5)
    torch.testing.assert_close(read("twin", {0: IMAGES}, twin=values(layer)).values, layer(IMAGES))
    grid = nn.Unflatten(-1, (4, 3))
    wide = nn.Sequential(nn.Linear(2, 12), grid)
    torch.testing.assert_close(read("pair", {0: IMAGES}, pair=values(wide)).values, wide(IMAGES))


def test_a_second_call_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made, calls = [], []

    class Counted(_symbol_values.Compiler):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            made.append(1)
            super().__init__(*args, **kwargs)

    class Net(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            calls.append(len(x))
            return super().forward(x)

    monkeypatch.setattr(_symbol_values, "Compiler", Counted)
    net = Net(2, 4)
    sees = Interpretation(KB, digit=logits(net), sum=lambda a, b: a + b)
    for size in (3, 3, 2, 1):
        found = symbol_values(sees, {"digit": {0: IMAGES[:size]}, "sum": {}}, {})
        torch.testing.assert_close(
            found["digit"].values, nn.functional.linear(IMAGES[:size], net.weight, net.bias).log_softmax(-1)
        )
    assert len(made) == 1 and calls == [3, 3, 2, 1]
    symbol_values(sees, {"digit": {0: torch.arange(2)}}, {"Image": IMAGES})  # another schema
    assert len(made) == 2


def test_no_data_stay_behind() -> None:
    sees = Interpretation(KB, near=logits(nn.Linear(2, 4)))
    images = torch.randn(3, 2)
    watch = weakref.ref(images)
    with torch.no_grad():
        symbol_values(sees, {"near": {0: images}}, {})
    del images
    gc.collect()
    assert watch() is None
