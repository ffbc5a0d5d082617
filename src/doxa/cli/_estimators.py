"""``doxa estimators``: the catalogue of gradient estimators."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from tyro.conf import Positional, arg

from doxa.cli._output import Command, say, say_json, say_table
from doxa.errors import ConfigError

COLUMNS = ("name", "order", "distributions", "evaluations", "learnable", "biased")


@dataclass(frozen=True)
class Estimators(Command):
    """List the gradient estimators: order, distributions, cost evaluations, learnable, biased."""

    name: Positional[Annotated[str | None, arg(metavar="[NAME]")]] = None
    """Tell all about this one."""

    def run(self) -> int:
        from doxa.stochastic import catalogue

        rows = catalogue()
        if self.name is None:
            say_json(rows) if self.json else say_table(
                [COLUMNS, *([row[column] for column in COLUMNS] for row in rows)]
            )
            return 0
        row = _find(rows, self.name)
        orders, about = _details(row["name"])
        shown = {column: row[column] for column in COLUMNS[1:]}
        shown["orders"] = ", ".join(f"{name} {order}" for name, order in orders.items())
        lines = "\n".join(f"  {title:<13} {text}" for title, text in shown.items())
        if not self.json:
            say(row["name"], "bold")
        return self.answer({**row, "orders": orders, "about": about}, f"{lines}\n\n{about}")


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
    from torch import distributions as known

    from doxa import stochastic
    from doxa.stochastic.estimators._catalogue import ESTIMATORS

    one, three = torch.ones(()), torch.ones(3)
    examples = (
        *(known.Bernoulli(0.5 * one), known.Categorical(three), known.OneHotCategorical(three), known.Poisson(one)),
        *(known.Normal(one, one), known.Exponential(one), known.Gamma(one, one)),
    )
    orders = {}
    for distribution in examples:
        for make in ESTIMATORS:
            estimator = make(distribution)
            if type(estimator).__name__ == name and estimator.fits(distribution):
                order = estimator.order_for(distribution)
                orders[type(distribution).__name__] = "any" if order == inf else str(int(order))
    return orders, inspect.getdoc(getattr(stochastic, name)) or ""
