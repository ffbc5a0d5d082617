"""``doxa estimators``: the catalogue of gradient estimators."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._output import say, say_json
from doxa.errors import ConfigError

COLUMNS = ("name", "order", "distributions", "evaluations", "learnable", "biased")


@dataclass(frozen=True)
class Estimators:
    """List the gradient estimators: order, distributions, cost evaluations, learnable, biased."""

    name: Positional[Annotated[str | None, arg(metavar="[NAME]")]] = None
    """Tell all about this one."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        from doxa.stochastic import catalogue

        rows = catalogue()
        if self.name is None:
            if self.json:
                say_json(rows)
            else:
                _table(rows)
            return 0
        row = _find(rows, self.name)
        orders, about = _details(row["name"])
        if self.json:
            say_json({**row, "orders": orders, "about": about})
            return 0
        say(row["name"], "bold")
        for column in COLUMNS[1:]:
            say(f"  {column:<13} {row[column]}")
        say(f"  {'orders':<13} {', '.join(f'{name} {order}' for name, order in orders.items())}")
        say(f"\n{about}")
        return 0


def _find(rows: list[dict[str, str]], name: str) -> dict[str, str]:
    by_name = {row["name"].lower(): row for row in rows}
    if name.lower() in by_name:
        return by_name[name.lower()]
    near = [by_name[found]["name"] for found in get_close_matches(name.lower(), by_name, 2, 0.5)]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ConfigError(f"there is no estimator {name!r}; {hint}doxa estimators lists all {len(rows)}")


def _details(name: str) -> tuple[dict[str, str], str]:
    """Up to which order it is unbiased for some well-known distributions, and what its docstring says."""
    from math import inf

    import torch
    from torch.distributions import Bernoulli, Categorical, Exponential, Gamma, Normal, OneHotCategorical, Poisson

    from doxa import stochastic
    from doxa.stochastic.estimators._catalogue import ESTIMATORS

    one, three = torch.ones(()), torch.ones(3)
    orders = {}
    for distribution in (
        Bernoulli(0.5 * one),
        Categorical(three),
        OneHotCategorical(three),
        Poisson(one),
        Normal(one, one),
        Exponential(one),
        Gamma(one, one),
    ):
        for make in ESTIMATORS:
            estimator = make(distribution)
            if type(estimator).__name__ == name and estimator.fits(distribution):
                order = estimator.order_for(distribution)
                orders[type(distribution).__name__] = "any" if order == inf else str(int(order))
    return orders, inspect.getdoc(getattr(stochastic, name)) or ""


def _table(rows: list[dict[str, str]]) -> None:
    widths = [max(len(column), *(len(row[column]) for row in rows)) for column in COLUMNS]
    say("  ".join(f"{column:<{width}}" for column, width in zip(COLUMNS, widths, strict=True)).rstrip(), "bold")
    for row in rows:
        say("  ".join(f"{row[column]:<{width}}" for column, width in zip(COLUMNS, widths, strict=True)).rstrip())
