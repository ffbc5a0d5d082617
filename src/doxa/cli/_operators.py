"""``doxa operators``: the tables of Chapter 2, every entry computed; ``doxa estimators``: those of gradients."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from tyro.conf import Positional, arg

from doxa.cli._output import Command, say, say_json, say_table
from doxa.errors import ConfigError

if TYPE_CHECKING:
    from doxa.fuzzy import Implication
    from doxa.fuzzy.analysis._formulas import Operator


Kind = Literal["tnorms", "tconorms", "implications", "aggregators", "negations"]

TITLES: dict[Kind, tuple[str, str]] = {
    "tnorms": ("T-norms", "t-norm"),
    "tconorms": ("T-conorms", "t-conorm"),
    "implications": ("Implications", "implication"),
    "aggregators": ("Aggregators", "aggregator"),
    "negations": ("Negations", "negation"),
}
PROPERTIES = {
    "continuous": ("cont.", "no jumps"),
    "left_continuous": ("left-c.", "the value is the limit from below"),
    "right_continuous": ("right-c.", "the value is the limit from above"),
    "idempotent": ("idemp.", "the value of (a, a) is a"),
    "strict": ("strict", "continuous, and strictly monotone inside"),
    "strong": ("strong", "N(N(a)) = a"),
    "archimedean": ("Archim.", "copies of one value get as close to the end as one likes"),
    "schur_concave": ("Schur-concave", "more alike at equal sum is never lower"),
    "schur_convex": ("Schur-convex", "more alike at equal sum is never higher"),
    "ln": ("LN", "left neutrality, I(1, c) = c"),
    "ep": ("EP", "exchange principle, I(a, I(b, c)) = I(b, I(a, c))"),
    "ip": ("IP", "identity principle, I(a, a) = 1"),
    "cp": ("CP", "contrapositive symmetry, I(a, c) = I(1 - c, 1 - a)"),
    "lcp": ("L-CP", "left-contrapositive symmetry, I(1 - a, c) = I(1 - c, a)"),
    "rcp": ("R-CP", "right-contrapositive symmetry, I(a, 1 - c) = I(c, 1 - a)"),
    "contrapositive_derivatives": ("diff. sym.", "∂I/∂c (a, c) = -∂I/∂a (1 - c, 1 - a)"),
}
"""The heading of each property in a table, and what it means."""
NOTE = """\
n=2, n=5: the fraction of the cube of n arguments on which some derivative is not 0; ≈ is sampled, else a closed form
single: at most one derivative is not 0. T is the t-norm of the same name."""
NOTES: dict[Kind, str] = {
    "implications": """\
n=2: the fraction of the square on which some derivative is not 0; ≈ is sampled, else a closed form
single: at most one derivative is not 0; diff. sym.: ∂I/∂c at (a, c) is -∂I/∂a at (1 - c, 1 - a)
S-impl., R-impl.: the t-norms T of the list with I(a, c) = 1 - T(a, 1 - c), or whose residuum it is""",
    "negations": "n=1: the fraction of [0, 1] on which the derivative is not 0; strong: N(N(a)) = a",
}


@dataclass(frozen=True)
class Operators(Command):
    """Print the operators of fuzzy logic with their properties, each decided by computation; or draw one of them."""

    name: Annotated[Positional[str | None], arg(metavar="[NAME]")] = None
    """An operator to describe in detail; one of each kind that has it."""
    kind: Kind | Literal["all"] = "all"
    """Only this kind."""
    plot: Annotated[Path | None, arg(metavar="FILE")] = None
    """Draw the named operator with its derivatives into this file (PNG, or what the ending says)."""

    def run(self) -> int:
        chosen = _chosen(self.name, get_args(Kind) if self.kind == "all" else (self.kind,))
        if self.plot is not None:
            if self.name is None:
                raise ConfigError("--plot draws one operator: name it, such as doxa operators goguen --plot goguen.png")
            from doxa.reproduce.figures._surfaces import draw_operators

            drawn = {f"{name} ({TITLES[kind][1]})": f for kind, found in chosen.items() for name, f in found.items()}
            draw_operators(drawn, self.plot)
        rows = {
            kind: [_row(kind, name, operator, in_detail=self.name is not None) for name, operator in found.items()]
            for kind, found in chosen.items()
        }
        if self.json:
            say_json(rows)
        elif self.name is None:
            for number, (kind, found) in enumerate(rows.items()):
                say(f"{chr(10) * bool(number)}{TITLES[kind][0]}", "bold")
                cells = [_cells(row) for row in found]
                say_table([list(cells[0]), *(list(row.values()) for row in cells)])
                say(NOTES.get(kind, NOTE), "dim")
        else:
            for kind, found in rows.items():
                for row in found:
                    _show_one(kind, row)
            if self.plot is not None:
                say(f"drawn: {self.plot}")
        return 0


def _chosen(name: str | None, kinds: tuple[Kind, ...]) -> dict[Kind, Mapping[str, Operator]]:
    """The operators of each kind, or only those of one name; kinds without any are left out."""
    from doxa.fuzzy import AGGREGATORS, IMPLICATIONS, NEGATIONS, TNORMS
    from doxa.train.runs._config import did_you_mean

    catalogue: dict[Kind, Mapping[str, Operator]] = {
        "tnorms": TNORMS,
        "tconorms": {name: tnorm.dual for name, tnorm in TNORMS.items()},
        "implications": IMPLICATIONS,
        "aggregators": AGGREGATORS,
        "negations": NEGATIONS,
    }
    offered = {kind: catalogue[kind] for kind in kinds}
    if name is None:
        return offered
    wanted = name.lower().replace("-", "_").replace(" ", "_")
    chosen: dict[Kind, Mapping[str, Operator]] = {k: {wanted: o[wanted]} for k, o in offered.items() if wanted in o}
    if not chosen:
        known = list(dict.fromkeys(n for found in offered.values() for n in found))
        hint = did_you_mean(wanted, known, 3).strip() or f"there are {', '.join(known)}"
        raise ConfigError(f"no operator {name!r} among the {', '.join(kinds)}; {hint}")
    return chosen


def _row(kind: Kind, name: str, operator: Operator, *, in_detail: bool) -> dict[str, Any]:
    """All that is known about an operator: the names of Chapter 2, and what was computed."""
    import torch

    from doxa.fuzzy import Aggregator, Implication, Negation, nonvanishing_fraction, single_passing
    from doxa.fuzzy.analysis._formulas import formula, parameters

    sizes = {"implications": (2,), "negations": (1,)}.get(kind, (2, 3, 4, 5, 10) if in_detail else (2, 5))
    row: dict[str, Any] = {
        "name": name,
        "operator": repr(operator),
        "formula": formula(operator),
        "parameters": parameters(operator),
        "nonvanishing": {
            str(n): asdict(nonvanishing_fraction(operator, n, generator=torch.Generator().manual_seed(0)))
            for n in sizes
        },
        "properties": _properties(operator),
    }
    if not isinstance(operator, Negation):  # a negation has only one argument
        row["single_passing"] = single_passing(operator)
    if isinstance(operator, Implication):
        row["constructions"] = _constructions(operator)
    if isinstance(operator, Aggregator):
        row["quantifier"] = operator.kind
    if in_detail:
        row["example"] = _example(operator)
    return row


def _properties(operator: Operator) -> dict[str, bool]:
    from doxa import fuzzy

    if isinstance(operator, fuzzy.TNorm):
        return asdict(fuzzy.tnorm_properties(operator))
    if isinstance(operator, fuzzy.TConorm):
        return asdict(fuzzy.tconorm_properties(operator))
    if isinstance(operator, fuzzy.Implication):
        symmetric = fuzzy.contrapositive_derivatives(operator)
        return {**asdict(fuzzy.implication_laws(operator)), "contrapositive_derivatives": symmetric}
    if isinstance(operator, fuzzy.Negation):
        return {"strict": operator.strict, "strong": operator.strong}
    return {}


def _constructions(implication: Implication) -> dict[str, list[str]]:
    """The t-norms whose S- and R-implication it is, found by comparing values; some implications are both."""
    import torch

    from doxa.fuzzy import TNORMS, SImplication

    grid = torch.linspace(0, 1, 33, dtype=torch.float64)
    a, c = grid[:, None], grid[None, :]
    value = implication(a, c)

    def same(other: Implication) -> bool:
        return bool(torch.allclose(other(a, c), value, atol=1e-9))

    return {
        "S": [name for name, tnorm in TNORMS.items() if same(SImplication(tnorm.dual))],
        "R": [name for name, tnorm in TNORMS.items() if same(tnorm.residuum)],
    }


def _example(operator: Operator) -> dict[str, Any]:
    """The value and the derivatives at one point."""
    import torch

    from doxa.fuzzy import Aggregator, Negation

    point = (
        [0.8, 0.7, 0.9] if isinstance(operator, Aggregator) else [0.3] if isinstance(operator, Negation) else [0.8, 0.3]
    )
    at = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    value = operator(at) if isinstance(operator, Aggregator) else operator(*at)
    derivatives = torch.autograd.grad(value, at)[0] if value.requires_grad else torch.zeros_like(at)
    return {"at": at.tolist(), "value": value.item(), "derivatives": derivatives.tolist()}


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """What a table says about an operator, by the headings of its columns."""
    short = _formula(row) if len(row["formula"]) <= 60 else f"doxa operators {row['name']} shows it"
    cells = {"name": row["name"], "formula": short}
    if "quantifier" in row:
        cells["∀/∃"] = {"forall": "∀", "exists": "∃"}[row["quantifier"]]
    for way, names in row.get("constructions", {}).items():
        cells[f"{way}-impl. of"] = ", ".join(names) or "-"
    cells |= {f"n={n}": _fraction(found) for n, found in row["nonvanishing"].items()}
    held = {"single": row["single_passing"]} if "single_passing" in row else {}
    held |= {PROPERTIES[name][0]: value for name, value in row["properties"].items()}
    return cells | {heading: "yes" if value else "-" for heading, value in held.items()}


def _formula(row: dict[str, Any]) -> str:
    return ", ".join([row["formula"], *(f"{name} = {value:g}" for name, value in row["parameters"].items())])


def _fraction(found: dict[str, Any]) -> str:
    if found["method"] == "closed form":
        return f"{found['value']:.4g}"
    return f"≈{found['value']:.3g} ± {found['error']:.1g}" if found["error"] else "≈0"


def _show_one(kind: Kind, row: dict[str, Any]) -> None:
    from doxa.fuzzy import Fraction

    say(f"{row['name']}, {TITLES[kind][1]}", "bold")
    example, letters = row["example"], _letters(kind, row)
    place = ", ".join(f"{letter} = {x:g}" for letter, x in zip(letters, example["at"], strict=True))
    slopes = ", ".join(f"∂{letter} = {x:.6g}" for letter, x in zip(letters, example["derivatives"], strict=True))
    lines = {
        "formula": _formula(row),
        "in Python": row["operator"],
        "at one point": f"{place}: value {example['value']:.6g}, {slopes}",
        **{
            f"gradient, n={n}": f"on {Fraction(**found)} of the {'cube' if n != '1' else 'interval'}"
            for n, found in row["nonvanishing"].items()
        },
    }
    if "single_passing" in row:
        lines["single-passing"] = _yes(row["single_passing"], "at most one derivative is not 0")
    for way, names in row.get("constructions", {}).items():
        lines[f"{way}-implication"] = f"of {', '.join(names)}" if names else "of no t-norm in the list"
    for name, held in row["properties"].items():
        heading, meaning = PROPERTIES[name]
        lines[heading if heading.isupper() else name.replace("_", "-")] = _yes(held, meaning)
    width = max(map(len, lines))
    for title, text in lines.items():
        say(f"  {title:<{width}}  {text}")


def _letters(kind: Kind, row: dict[str, Any]) -> list[str]:
    if kind == "aggregators":
        return [f"x{i}" for i in range(1, len(row["example"]["at"]) + 1)]
    return {"implications": ["a", "c"], "negations": ["a"]}.get(kind, ["a", "b"])


def _yes(held: bool, meaning: str) -> str:
    return f"{'yes' if held else 'no '}  ({meaning})"


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
