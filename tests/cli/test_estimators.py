"""``doxa estimators``."""

from __future__ import annotations

import json

import pytest

from doxa.cli import main
from doxa.stochastic import Estimator, catalogue
from doxa.stochastic.estimators._catalogue import ESTIMATORS


def test_the_table_has_a_line_for_every_estimator(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimators"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["name", "order", "distributions", "evaluations", "learnable", "biased"]
    assert [line.split()[0] for line in lines] == [row["name"] for row in catalogue()]
    assert len(lines) == len({line.split()[0] for line in lines}) <= len(ESTIMATORS)
    (disarm,) = (line for line in lines if line.startswith("DisARM"))
    assert disarm.split() == ["DisARM", "1", "Bernoulli", "2n", "no", "no"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimators", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == catalogue()


@pytest.mark.parametrize("name", [row["name"] for row in catalogue()])
def test_each_one_in_detail(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from doxa import stochastic

    assert main(["estimators", name.lower()]) == 0
    text = capsys.readouterr().out
    kind = getattr(stochastic, name)
    assert issubclass(kind, Estimator)
    assert text.startswith(f"{name}\n") and kind.__doc__.splitlines()[0] in text


def test_orders_by_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimators", "Reparameterise", "--json"]) == 0
    orders = json.loads(capsys.readouterr().out)["orders"]
    assert orders == {"Normal": "any", "Exponential": "any", "Gamma": "1"}


def test_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimators", "LeaveOnOut"]) == 1
    assert "did you mean LeaveOneOut? doxa estimators lists all" in capsys.readouterr().err
