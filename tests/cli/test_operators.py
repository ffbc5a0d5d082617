"""``doxa operators``: every formula is evaluated, every property compared with the tables of Chapter 2."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from doxa.cli import main
from doxa.fuzzy import (
    AGGREGATORS,
    IMPLICATIONS,
    NEGATIONS,
    TNORMS,
    Aggregator,
    Implication,
    Negation,
    RImplication,
    SigmoidalImplication,
    SImplication,
    TConorm,
    TNorm,
)
from doxa.fuzzy.analysis._formulas import Operator, formula, parameters

Rows = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """What ``doxa operators --json`` prints, by kind and name."""
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: printed.extend(map(str, parts)))
        assert main(["operators", "--json"]) == 0
    document = json.loads("\n".join(printed))
    return {kind: {row["name"]: row for row in found} for kind, found in document.items()}


# -- formulas -----------------------------------------------------------------------------------------------------

NAMES: dict[str, Any] = {
    "exp": math.exp,
    "log": lambda x: x.log() if isinstance(x, Tensor) else math.log(x),
    "σ": lambda x: 1 / (1 + math.exp(-x)),
    "prod": lambda x: math.prod(x.tolist()),
    "mean": lambda x: float(x.mean()),
    "sum": lambda x: math.fsum(x.tolist()),
    "lowest_two": lambda x: x.sort().values[:2],
    "highest_two": lambda x: x.sort().values[-2:],
    "min": min,
    "max": max,
}


def evaluate(text: str, **values: Any) -> float:
    """A printed formula as Python."""
    for shown, python in {"·": "*", "^": "**", "≤": "<=", " = ": " == "}.items():
        text = text.replace(shown, python)
    return float(eval(text, {"__builtins__": {}}, {**NAMES, **values}))


def supremum(tnorm: TNorm, a: float, c: float) -> float:
    """sup{b : T(a, b) ≤ c} by bisection: T increases in b."""
    low, high = 0.0, 1.0
    c += 1e-12  # T may be off by ε² at 0
    if number(tnorm, a, 1.0) <= c:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if number(tnorm, a, middle) <= c else (low, middle)
    return low


def number(operator: Any, *arguments: float) -> float:
    return float(operator(*(torch.tensor(x, dtype=torch.float64) for x in arguments)))


def printed_value(operator: Operator, *arguments: float) -> float:
    """The value that the printed formula has, at a, b or a, c or x."""
    text, values = formula(operator), dict(parameters(operator))
    if isinstance(operator, Aggregator):
        return evaluate(text, x=torch.tensor(arguments, dtype=torch.float64), n=len(arguments), **values)
    if isinstance(operator, Negation):
        return evaluate(text, a=arguments[0], **values)
    first, second = arguments
    if isinstance(operator, TConorm):
        return evaluate(text, a=first, b=second, T=lambda a, b: number(operator.tnorm, a, b), **values)
    if isinstance(operator, TNorm):
        return evaluate(text, a=first, b=second, **values)
    if isinstance(operator, SigmoidalImplication):
        bent, inner = text.split(", I = ")
        return evaluate(bent, I=evaluate(inner, a=first, c=second), **values)
    if isinstance(operator, RImplication) and text.startswith("sup"):
        assert text == "sup(b for T(a, b) ≤ c)"
        return supremum(operator.tnorm, first, second)
    tnorm = operator.tconorm.tnorm if isinstance(operator, SImplication) else None
    return evaluate(text, a=first, c=second, T=lambda a, b: number(tnorm, a, b), **values)


INSIDE = [(0.8, 0.3), (0.25, 0.75), (0.5, 0.5), (0.1, 0.2), (0.9, 0.95), (0.6, 0.4), (0.3, 0.8)]
CORNERS = [(1.0, 0.3), (0.3, 1.0), (1.0, 1.0), (0.4, 0.0), (0.0, 0.4), (0.0, 0.0), (1.0, 0.0)]
BINARY = {
    **{f"t-norm {n}": t for n, t in TNORMS.items()},
    **{f"t-conorm {n}": t.dual for n, t in TNORMS.items()},
    **{f"implication {n}": i for n, i in IMPLICATIONS.items()},
}


@pytest.mark.parametrize("name", BINARY)
def test_formulas_of_binary_operators(name: str) -> None:
    operator = BINARY[name]
    for point in INSIDE:
        assert printed_value(operator, *point) == pytest.approx(number(operator, *point), abs=1e-7)
    for point in CORNERS:
        try:
            value = printed_value(operator, *point)
        except (ZeroDivisionError, ValueError):  # a limit: 0^-1, log 0
            continue
        assert value == pytest.approx(number(operator, *point), abs=1e-7)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_formulas_of_aggregators(name: str) -> None:
    operator = AGGREGATORS[name]
    for x in [(0.8, 0.7, 0.9), (0.2, 0.3, 0.1), (0.5, 0.6), (0.9, 0.45, 0.5, 0.97), (0.97, 0.98, 0.99)]:
        found = float(operator(torch.tensor(x, dtype=torch.float64)))
        assert printed_value(operator, *x) == pytest.approx(found, abs=1e-7)


@pytest.mark.parametrize("name", NEGATIONS)
def test_formulas_of_negations(name: str) -> None:
    for a in (0.0, 0.2, 0.7, 1.0):
        assert printed_value(NEGATIONS[name], a) == pytest.approx(number(NEGATIONS[name], a), abs=1e-7)


def test_no_formula_is_a_placeholder() -> None:
    operators: list[Operator] = [*BINARY.values(), *AGGREGATORS.values(), *NEGATIONS.values()]
    assert not {formula(operator) for operator in operators} & {"T(a, b)", "I(a, c)", "A(x)", "N(a)"}


# -- tables -------------------------------------------------------------------------------------------------------


def test_every_operator_has_a_row(rows: Rows) -> None:
    assert list(rows) == ["tnorms", "tconorms", "implications", "aggregators", "negations"]
    assert list(rows["tnorms"]) == list(rows["tconorms"]) == list(TNORMS)
    assert (list(rows["implications"]), list(rows["aggregators"])) == (list(IMPLICATIONS), list(AGGREGATORS))
    assert list(rows["negations"]) == list(NEGATIONS)


def test_tnorm_table_of_chapter_2(rows: Rows) -> None:
    def properties(kind: str, name: str) -> dict[str, bool]:
        return dict(rows[kind][name]["properties"])

    expected = {
        "godel": "continuous idempotent",
        "product": "continuous strict",
        "lukasiewicz": "continuous",
        "drastic": "",
        "nilpotent": "",
        "yager": "continuous",
    }
    for name, held in expected.items():
        for kind, side in (("tnorms", "left_continuous"), ("tconorms", "right_continuous")):
            found = properties(kind, name)
            assert {p for p in ("continuous", "idempotent", "strict") if found[p]} == set(held.split())
            assert found[side] is (name != "drastic")


def test_implication_tables_of_chapter_2(rows: Rows) -> None:
    def laws(name: str) -> set[str]:
        return {law for law, held in rows["implications"][name]["properties"].items() if held}

    every = {"ln", "ep", "ip", "cp", "lcp", "rcp"}
    symmetry = "contrapositive_derivatives"
    for name in ("kleene_dienes", "reichenbach"):
        assert laws(name) == every - {"ip"} | {symmetry}
    for name in ("lukasiewicz", "dubois_prade", "fodor"):
        assert laws(name) == every | {symmetry}
    for name in ("godel", "goguen"):
        assert laws(name) == {"ln", "ep", "ip"}
    assert laws("weber") == {"ln", "ep", "ip", symmetry}  # its derivatives are 0 almost everywhere


def test_constructions_of_implications(rows: Rows) -> None:
    """Chapter 2: Łukasiewicz and Fodor are in both tables, the others in one."""
    found = {name: row["constructions"] for name, row in rows["implications"].items()}
    assert found["lukasiewicz"] == {"S": ["lukasiewicz"], "R": ["lukasiewicz"]}
    assert found["fodor"] == {"S": ["nilpotent"], "R": ["nilpotent"]}
    assert found["reichenbach"] == {"S": ["product"], "R": []}
    assert found["weber"] == {"S": [], "R": ["drastic"]}
    assert found["reichenbach_sigmoidal"] == {"S": [], "R": []}
    assert {name for name, made in found.items() if made["S"] and made["R"]} == {"lukasiewicz", "fodor"}


def test_fractions_say_how_they_were_found(rows: Rows) -> None:
    yager = rows["tnorms"]["yager"]["nonvanishing"]
    assert yager["2"] == {"value": pytest.approx(math.pi / 4), "error": 0.0, "method": "closed form"}
    sampled = rows["tnorms"]["sugeno_weber"]["nonvanishing"]["2"]
    assert sampled["method"] == "sampling" and sampled["error"] > 0
    assert rows["negations"]["intuitionistic"]["nonvanishing"]["1"]["value"] == 0
    assert rows["implications"]["goguen"]["nonvanishing"]["2"]["value"] == 0.5


def test_single_passing(rows: Rows) -> None:
    passing = {name for name, row in rows["aggregators"].items() if row["single_passing"]}
    assert passing == {"minimum", "maximum", "nilpotent_minimum", "nilpotent_maximum"}
    assert "single_passing" not in rows["negations"]["standard"]


def test_table_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", "--kind", "negations"]) == 0
    title, head, *body = capsys.readouterr().out.splitlines()
    assert title == "Negations"
    assert head.split() == ["name", "formula", "n=1", "strict", "strong"]
    assert body[0].split() == ["standard", "1", "-", "a", "1", "yes", "yes"]
    assert body[3].split()[-3:] == ["0", "-", "-"]
    columns = {line.index("yes") for line in body if "yes" in line}
    assert columns == {head.index("strict")}, "columns are aligned"


def test_one_operator_in_detail(capsys: pytest.CaptureFixture[str]) -> None:
    """Errata 2.14 and 2.15: the golden values at (0.8, 0.3)."""
    assert main(["operators", "goguen"]) == 0
    printed = capsys.readouterr().out
    assert "a = 0.8, c = 0.3: value 0.375, ∂a = -0.46875, ∂c = 1.25" in printed
    assert "0.5 (closed form)" in printed
    assert "CP  " in printed and "R-implication" in printed
    assert main(["operators", "Reichenbach-Sigmoidal", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["implications"]
    assert row["example"]["value"] == pytest.approx(0.365226, abs=1e-6)
    assert row["example"]["derivatives"] == pytest.approx([-1.498468, 1.712535], abs=1e-6)
    assert row["parameters"] == {"s": 9.0, "b0": -0.5}


def test_a_name_may_have_several_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operators", "yager"]) == 0
    printed = capsys.readouterr().out
    for kind in ("t-norm", "t-conorm", "aggregator", "negation"):
        assert f"yager, {kind}\n" in printed
    assert main(["operators", "yager", "--kind", "aggregators"]) == 0
    printed = capsys.readouterr().out
    # errata 2.5
    assert "value 0.625834, ∂x1 = 0.534522, ∂x2 = 0.801784, ∂x3 = 0.267261" in printed
    assert "t-norm" not in printed


def test_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fodor.png"
    assert main(["operators", "fodor", "--plot", str(file)]) == 0
    assert f"drawn: {file}" in capsys.readouterr().out
    assert file.read_bytes().startswith(b"\x89PNG")
    assert main(["operators", "standard", "--plot", str(tmp_path / "n.svg"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["negations"][0]["name"] == "standard"
    assert "<svg" in (tmp_path / "n.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["goguin"], "no operator 'goguin'"),
        (["goguin"], "did you mean 'goguen'"),
        (["xyz", "--kind", "tnorms"], "among the tnorms; there are godel, product"),
        (["--plot", "x.png"], "--plot draws one operator: name it"),
        (["standard", "--plot", "x.doc"], "x.doc: a picture cannot end in '.doc', expected one of"),
        (["standard", "--plot", "missing/x.png"], "missing/x.png: No such file or directory"),
    ],
)
def test_mistakes_end_with_one_message(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["operators", *arguments]) == 1
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


def test_types_of_the_catalogue() -> None:
    """The kinds that the command prints are disjoint."""
    for operator in (*BINARY.values(), *AGGREGATORS.values(), *NEGATIONS.values()):
        kinds = (TNorm, TConorm, Implication, Aggregator, Negation)
        assert sum(isinstance(operator, kind) for kind in kinds) == 1
