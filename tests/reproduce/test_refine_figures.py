"""The pictures of refinement: what their bars say is right, and they are drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.reproduce import fuzzy_figures, refine_figures, timing_figures


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


def test_contours_end_on_the_line_at_the_least_distance() -> None:
    numbers = refine_figures()["contours"]().numbers
    cases = {"disjunction": (0.2, 0.35), "conjunction": (0.55, 0.7), "conjunction, at the border": (0.3, 0.95)}
    for name, (a, b) in cases.items():
        x, y = (float(v) for v in str(numbers[name]).split(")")[0].strip("(").split(", "))
        wanted = 0.8 if name == "disjunction" else {0.55: 1.6, 0.3: 1.8}[a]
        assert x + y == pytest.approx(wanted, abs=2e-3)
        line = [((wanted - v) if 0 <= wanted - v <= 1 else None, v) for v in (i / 1000 for i in range(1001))]
        nearest = min(((u - a) ** 2 + (v - b) ** 2) ** 0.5 for u, v in line if u is not None)
        assert float(str(numbers[name]).rsplit(" ", 1)[1]) == pytest.approx(nearest, abs=2e-3)


def test_areas_grow_to_the_target_with_the_least_sum() -> None:
    numbers = refine_figures()["areas"]().numbers
    for name, start, target in (
        ("disjunction", (0.25, 0.4), 0.7),
        ("conjunction", (0.4, 0.7), 0.5),
        ("conjunction, two alike", (0.5, 0.5), 0.49),
    ):
        point, alone = str(numbers[name]).split("; alone, by ")
        x, y = (float(v) for v in point.strip("()").split(", "))
        assert (1 - (1 - x) * (1 - y) if name == "disjunction" else x * y) == pytest.approx(target, abs=2e-3)
        single = [float(v) for v in alone.split(" or by ")]
        assert x - start[0] + y - start[1] <= min(single) + 2e-3
    ties = refine_figures()["ties"]().numbers
    assert ties["disjunction, two alike"] == "0.200, 0.800, 0.500, 0.100"


def test_inference_times_are_measured_for_every_size() -> None:
    shown = timing_figures((1, 2, 4))["inference-time"]()
    assert [key for key in shown.numbers if key.startswith("amortised")] == [f"amortised, N = {n}" for n in (1, 2, 4)]
    assert [key for key in shown.numbers if key.startswith("enumeration")] == [f"enumeration, N = {n}" for n in (1, 2)]
    assert all(float(str(value).split()[0]) > 0 for value in shown.numbers.values())


def test_the_gallery_shows_every_figure() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "gallery.md").read_text(encoding="utf-8")
    for name in [*fuzzy_figures(0), *refine_figures(), *timing_figures()]:
        assert f"![{name}](images/" in page
    for shown in re.findall(r"\(images/(.*?)\)", page):
        assert (docs / "images" / shown).exists()


def _product(values: list[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result


def test_the_command_draws_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "refine", "--out", str(tmp_path), "--only", "passes"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "passes.png"), str(tmp_path / "index.html")]
    assert (tmp_path / "passes.png").read_bytes().startswith(b"\x89PNG")
