"""The operators that have refinement functions: one list. A new one joins it and inherits every check."""

from __future__ import annotations

from typing import Any

import pytest

from doxa import fuzzy as fz

CLOSED = [
    fz.Godel(),
    fz.Lukasiewicz(),
    fz.Product(),
    fz.Yager(1.5),
    fz.Yager(2.0),
    fz.SchweizerSklar(-1.0),
    fz.SchweizerSklar(0.5),
    fz.Frank(0.2),
    fz.Frank(3.0),
    fz.Hamacher(0.0),
    fz.Hamacher(2.0),
    fz.AczelAlsina(2.0),
    fz.Dombi(2.0),
    fz.SugenoWeber(2.0),
]
"""T-norms whose refinement has a closed form that is minimal for L1."""

JUMPS = [fz.NilpotentMinimum(), fz.Drastic()]
"""Discontinuous ones, whose targets are often only infima."""

NOT_CONVEX = [
    fz.Yager(0.5),
    fz.SchweizerSklar(2.0),
    fz.Hamacher(5.0),
    fz.AczelAlsina(0.5),
    fz.Dombi(0.5),
    fz.SugenoWeber(-0.5),
]
"""Generators for which errata 3.3 found the formulas not to be minimal."""

EXTREME = [
    fz.Yager(20.0),
    fz.Yager(0.1),
    fz.SchweizerSklar(-50.0),
    fz.SchweizerSklar(1e-3),
    fz.Frank(1e-30),
    fz.Frank(1e30),
    fz.Hamacher(1e6),
    fz.AczelAlsina(50.0),
    fz.Dombi(20.0),
    fz.SugenoWeber(1e6),
]
"""Parameters so far out that only finiteness is asked for."""


def family(members: list[Any]) -> Any:
    """A fixture that runs a test for every member."""
    return pytest.fixture(scope="module", params=members, ids=repr)(lambda request: request.param)


closed = family(CLOSED)
smooth = family([t for t in CLOSED if t != fz.Godel()])  # min has no derivative that SLSQP could follow
jumps = family(JUMPS)
not_convex = family(NOT_CONVEX)
any_tnorm = family(CLOSED + JUMPS + NOT_CONVEX + EXTREME)
ordinary = family(CLOSED + JUMPS + NOT_CONVEX)
strict = family([t for t in CLOSED if t.generator is not None and t.generator.strict])
