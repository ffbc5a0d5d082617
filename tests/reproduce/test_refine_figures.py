"""The pictures of refinement: what their bars say is right, and they are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from doxa.cli import main
from doxa.reproduce import refine_figures


@pytest.mark.parametrize(("name", "target"), [("conjunction", 0.6), ("disjunction", 0.8), ("implication", 0.9)])
def test_bars_reach_their_target(name: str, target: float) -> None:
    operators = {
        ("conjunction", "godel"): min,
        ("conjunction", "lukasiewicz"): lambda t: max(0, sum(t) - len(t) + 1),
        ("conjunction", "product"): lambda t: _product(t),
        ("disjunction", "godel"): max,
        ("disjunction", "lukasiewicz"): lambda t: min(1, sum(t)),
        ("disjunction", "product"): lambda t: 1 - _product([1 - x for x in t]),
        ("implication", "lukasiewicz"): lambda t: min(1, 1 - t[0] + t[1]),
        ("implication", "product"): lambda t: min(1, t[1] / t[0]),
    }
    numbers = refine_figures()[name]().numbers
    assert list(numbers) == ["godel", "lukasiewicz", "product"]
    for logic, shown in numbers.items():
        truths, bars = str(shown).split(": ")
        assert float(truths.split(" → ")[1]) == pytest.approx(target)
        if (name, logic) in operators:
            refined = [float(bar) for bar in bars.split(", ")]
            assert operators[name, logic](refined) == pytest.approx(target, abs=2e-3)


def _product(values: list[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result


def test_the_command_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "refine", "--out", str(tmp_path), "--only", "passes"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "passes.png"), str(tmp_path / "index.html")]
    assert (tmp_path / "passes.png").read_bytes().startswith(b"\x89PNG")
