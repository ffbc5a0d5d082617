r"""A logic is a choice of operators: one for each of ¬ ∧ ∨ → ∀ ∃.

* *Symmetric* logics take everything from one t-norm T: ∧ = T, ∨ = its dual, → = its S- or R-implication, ∀ = A_T,
  ∃ = E_S. Formulas that are classically equivalent then tend to have equal values (Chapter 3, "Symmetric
  configurations").
* *T-norm logic* (Hájek 1998; Marra et al. 2019) has → = the residuum of T, weak ∧ = min and ∨ = max, ∀ = min, ∃ = max,
  and ¬a = a → 0.
* The choice that learnt best in Chapter 3 is neither: see :func:`recommended`.

The tables hold the operators of Chapter 2 by name: one instance of each family, with a usual parameter.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

from torch import Tensor, nn

from doxa._numerics import Dims, truth
from doxa.errors import ConfigError
from doxa.fuzzy.analysis._formulas import table_box
from doxa.fuzzy.operators import _basic as basic
from doxa.fuzzy.operators import _connectives as connectives
from doxa.fuzzy.operators import _logspace as logspace
from doxa.fuzzy.operators._basic import Drastic, Godel, Lukasiewicz, NilpotentMinimum, Product, Yager
from doxa.fuzzy.operators._connectives import STANDARD, Implication, Negation, SImplication, TNorm
from doxa.fuzzy.operators._families import Frank, Hamacher, SchweizerSklar, SugenoWeber
from doxa.fuzzy.operators._parameters import Parameter, learnables
from doxa.fuzzy.operators._wrapped import StableAggregator, StableConnective, StableImplication, sigmoidal
from doxa.fuzzy.quantifiers import _aggregators as aggregators
from doxa.fuzzy.quantifiers._aggregators import Aggregator, GeneralizedMean, GeneralizedMeanError, LogProduct

O = TypeVar("O")


class OperatorTable(Mapping[str, O]):
    """Operators by name: a mapping that cannot be changed, and that notebooks show.

    >>> NEGATIONS["standard"]
    StandardNegation()
    """

    def __init__(self, operators: Mapping[str, O]) -> None:
        self._operators = dict(operators)

    def __getitem__(self, name: str) -> O:
        return self._operators[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._operators)

    def __len__(self) -> int:
        return len(self._operators)

    def __repr__(self) -> str:
        return repr(self._operators)

    def _repr_html_(self) -> str:
        return table_box("", self._operators)


NEGATIONS: Mapping[str, Negation] = OperatorTable(
    {
        "standard": STANDARD,
        "sugeno": connectives.SugenoNegation(1.0),
        "yager": connectives.YagerNegation(2.0),
        "intuitionistic": connectives.IntuitionisticNegation(),
    }
)

TNORMS: Mapping[str, TNorm] = OperatorTable(
    {
        "godel": Godel(),
        "product": Product(),
        "lukasiewicz": Lukasiewicz(),
        "drastic": Drastic(),
        "nilpotent": NilpotentMinimum(),
        "yager": Yager(),
        "schweizer_sklar": SchweizerSklar(),
        "frank": Frank(),
        "hamacher": Hamacher(),
        "aczel_alsina": basic.AczelAlsina(),
        "dombi": basic.Dombi(),
        "sugeno_weber": SugenoWeber(),
    }
)

KLEENE_DIENES = SImplication(Godel().dual)
"""max(1 - a, c), the S-implication of Gödel."""
REICHENBACH = SImplication(Product().dual)
"""1 - a + a·c, the S-implication of the product."""
DUBOIS_PRADE = SImplication(Drastic().dual)
"""c if a = 1, 1 - a if c = 0, else 1: the S-implication of the drastic product."""
FODOR = NilpotentMinimum().residuum
"""1 if a ≤ c, else max(1 - a, c): both implications of the nilpotent minimum."""
GOGUEN = Product().residuum
"""1 if a ≤ c, else c/a: the R-implication of the product."""
WEBER = Drastic().residuum
"""1 if a < 1, else c: the R-implication of the drastic product."""

_NAMED_S = {"godel": "kleene_dienes", "product": "reichenbach", "drastic": "dubois_prade"}
_NAMED_R = {"godel": "godel", "product": "goguen", "drastic": "weber"}
_NAMED_BOTH = {"lukasiewicz": "lukasiewicz", "nilpotent": "fodor"}

IMPLICATIONS: Mapping[str, Implication] = OperatorTable(
    {
        **{
            _NAMED_S.get(name, f"{name}_s"): SImplication(t.dual)
            for name, t in TNORMS.items()
            if name not in _NAMED_BOTH
        },
        **{_NAMED_R.get(name, f"{name}_r"): t.residuum for name, t in TNORMS.items() if name not in _NAMED_BOTH},
        **{name: TNORMS[t].residuum for t, name in _NAMED_BOTH.items()},
        "reichenbach_sigmoidal": sigmoidal(REICHENBACH, 9.0, -0.5),
    }
)

AGGREGATORS: Mapping[str, Aggregator] = OperatorTable(
    {
        "minimum": aggregators.TNormAggregator(Godel()),
        "product": aggregators.TNormAggregator(Product()),
        "log_product": LogProduct(),
        "lukasiewicz": aggregators.TNormAggregator(Lukasiewicz()),
        "yager": aggregators.TNormAggregator(Yager()),
        "unbounded_yager": aggregators.UnboundedYager(),
        "nilpotent_minimum": aggregators.TNormAggregator(NilpotentMinimum()),
        "mae": GeneralizedMeanError(1.0),
        "rmse": GeneralizedMeanError(2.0),
        "maximum": aggregators.TConormAggregator(Godel().dual),
        "probabilistic_sum": aggregators.TConormAggregator(Product().dual),
        "log_probabilistic_sum": aggregators.LogProbabilisticSum(),
        "bounded_sum": aggregators.TConormAggregator(Lukasiewicz().dual),
        "yager_sum": aggregators.TConormAggregator(Yager().dual),
        "unbounded_yager_sum": aggregators.UnboundedYagerSum(),
        "nilpotent_maximum": aggregators.TConormAggregator(NilpotentMinimum().dual),
        "mean": GeneralizedMean(1.0),
        "quadratic_mean": GeneralizedMean(2.0),
    }
)


class Connective(Protocol):
    """What ∧ and ∨ must offer: ``C(a, b)`` and ``C.reduce(x, dim, mask, weight)``.

    >>> op: Connective = Product()
    """

    def __call__(self, a: Tensor, b: Tensor, /) -> Tensor: ...

    def reduce(
        self, x: Tensor, dim: Dims = None, mask: Tensor | None = None, weight: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class Logic:
    """Operators for ¬ ∧ ∨ → ∀ ∃ (Chapter 3, Def. val), and optionally for ↔ and xor.

    Unless given, ``iff(a, b)`` is ∧(a → b, b → a) and ``xor(a, b)`` is ¬ iff(a, b).

    Args:
        neg, conj, disj, implies, forall, exists: the operators.
        iff_operator, xor_operator: operators to use instead of the derived ones.
        is_log: whether truth values are handed around as logarithms; then every operator must be made for them.
        name: what to call it; logics that differ in name only are equal.

    >>> import torch
    >>> L = logic("product")
    >>> a, b = torch.tensor(0.8), torch.tensor(0.3)
    >>> L.conj(a, L.neg(b)), L.implies(a, b), L.iff(a, b)
    (tensor(0.5600), tensor(0.4400), tensor(0.4136))
    >>> L.forall(torch.tensor([0.8, 0.7, 0.9]))
    tensor(0.5040)
    """

    neg: Negation
    conj: Connective
    disj: Connective
    implies: Implication
    forall: Aggregator
    exists: Aggregator
    iff_operator: Connective | None = None
    xor_operator: Connective | None = None
    is_log: bool = False
    name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        for wanted, aggregator in (("forall", self.forall), ("exists", self.exists)):
            if aggregator.kind != wanted:
                came = f"{wanted} is {aggregator}, of kind {aggregator.kind!r}"
                raise ConfigError(f"{came}, expected kind {wanted!r}; did you swap forall and exists?")

    def iff(self, a: Tensor, b: Tensor) -> Tensor:
        """The truth of a ↔ b."""
        if self.iff_operator is not None:
            return self.iff_operator(a, b)
        return self.conj(self.implies(a, b), self.implies(b, a))

    def xor(self, a: Tensor, b: Tensor) -> Tensor:
        """The truth of "either a or b"."""
        if self.xor_operator is not None:
            return self.xor_operator(a, b)
        return self.neg(self.iff(a, b))

    def trainable(self) -> nn.ModuleDict:
        """The parameters that learn, named by operator: register the result in your module, and they are trained,
        moved and saved with it. Empty if nothing learns.

        >>> from doxa.fuzzy import Learnable
        >>> list(symmetric(Yager(Learnable(2.0, low=1.0))).trainable().state_dict())
        ['conj_p.raw']
        """
        return nn.ModuleDict(learnables(self))

    def _repr_html_(self) -> str:
        signs = {"¬": self.neg, "∧": self.conj, "∨": self.disj, "→": self.implies, "∀": self.forall, "∃": self.exists}
        own = {"↔": self.iff_operator, "xor": self.xor_operator}
        return table_box(
            self.name or "a logic of its own", {**signs, **{k: v for k, v in own.items() if v is not None}}
        )


@dataclass(frozen=True)
class ResidualNegation(Negation):
    """¬a = a → 0, the negation of t-norm logic: standard for Łukasiewicz, intuitionistic for Gödel and the product."""

    implication: Implication

    def __call__(self, a: Tensor) -> Tensor:
        a = truth(a)
        return self.implication(a, a * 0)


def symmetric(tnorm: TNorm, implication: Literal["s", "r"] = "s", name: str = "") -> Logic:
    """Everything from one t-norm, with its S-implication or its R-implication.

    >>> import torch
    >>> symmetric(Godel(), "r").implies(torch.tensor(0.8), torch.tensor(0.3))
    tensor(0.3000)
    """
    if implication not in ("s", "r"):
        raise ConfigError(f"implication is {implication!r}, expected 's' or 'r'")
    dual = tnorm.dual
    implies = SImplication(dual) if implication == "s" else tnorm.residuum
    return Logic(
        STANDARD,
        tnorm,
        dual,
        implies,
        aggregators.TNormAggregator(tnorm),
        aggregators.TConormAggregator(dual),
        name=name,
    )


def tnorm_logic(tnorm: TNorm, name: str = "") -> Logic:
    """T-norm logic: the residuum of T with weak conjunction and disjunction.

    >>> import torch
    >>> L = tnorm_logic(Product())
    >>> L.disj(torch.tensor(0.8), torch.tensor(0.3)), L.neg(torch.tensor(0.3))
    (tensor(0.8000), tensor(0.))
    """
    weak, residuum = symmetric(Godel(), name=name), tnorm.residuum
    return replace(weak, neg=ResidualNegation(residuum), implies=residuum)


def recommended(p: Parameter = 1.5, s: Parameter = 9.0, b0: Parameter = -0.5) -> Logic:
    """What Chapter 3 recommends (its "Conclusions"): log-product ∀, generalised mean ∃ with p between 1 and 2, Yager ∧
    and ∨, Reichenbach-sigmoidal →. The value of ∀ is a logarithm.

    >>> recommended().forall.is_log, recommended().implies.s
    (True, 9.0)
    """
    tnorm = Yager(p)
    implies = sigmoidal(REICHENBACH, s, b0)
    return Logic(STANDARD, tnorm, tnorm.dual, implies, LogProduct(), GeneralizedMean(p), name="recommended")


def stable_product(p: Parameter = 2.0, squeeze: float = 1e-4) -> Logic:
    """LTN's "stable product real logic": product operators and generalised means of squeezed inputs.

    >>> import torch
    >>> stable_product().forall(torch.ones(4))
    tensor(0.9999)
    """
    product = Product()
    return Logic(
        STANDARD,
        StableConnective(squeeze, product),
        StableConnective(squeeze, product.dual),
        StableImplication(squeeze, REICHENBACH),
        StableAggregator(squeeze, GeneralizedMeanError(p)),
        StableAggregator(squeeze, GeneralizedMean(p)),
        name="ltn",
    )


def log_space(alpha: Parameter = 1.0, reduction: Literal["sum", "mean"] = "sum") -> Logic:
    """Log space in the manner of logLTN: truth values are logarithms, ∧ and ∀ sums, ∨ and ∃ log-mean-exps.

    >>> import torch
    >>> L = log_space()
    >>> L.conj(torch.tensor(0.5).log(), torch.tensor(0.4).log()).exp(), L.is_log
    (tensor(0.2000), True)
    """
    disj, neg = logspace.LogDisjunction(alpha), logspace.LogNegation()
    return Logic(
        neg,
        logspace.LogConjunction(),
        disj,
        logspace.LogImplication(disj, neg),
        logspace.LogForall(reduction),
        logspace.LogExists(alpha),
        is_log=True,
        name="log_ltn",
    )


def _log_product() -> Logic:
    return replace(symmetric(Product(), name="log_product"), forall=LogProduct())


_OTHERS = {"log_product": _log_product, "recommended": recommended, "ltn": stable_product, "log_ltn": log_space}

LOGICS: tuple[str, ...] = (*(f"{name}{suffix}" for name in TNORMS for suffix in ("", ":r", ":tnorm")), *_OTHERS)
"""The names :func:`logic` knows."""


def logic(name: str) -> Logic:
    """A logic by name.

    * ``"product"``, ``"yager(1.5)"``: symmetric, with the S-implication; the number is the family's parameter;
    * ``"product:r"``, ``"yager(1.5):r"``: symmetric, with the R-implication;
    * ``"product:tnorm"``: t-norm logic;
    * ``"log_product"``: ``"product"`` with the log-product for ∀, which the dissertation trains with;
    * ``"recommended"``, ``"ltn"``, ``"log_ltn"``: see :func:`recommended`, :func:`stable_product`, :func:`log_space`.

    >>> logic("yager(1.5)").conj
    Yager(p=1.5, eps=None)
    >>> logic("lukasiewitz")
    Traceback (most recent call last):
    doxa.errors.ConfigError: unknown logic 'lukasiewitz'; did you mean 'lukasiewicz' or 'lukasiewicz:r' or ...
    """
    head, rest = re.fullmatch(r"([^(:]*)(.*)", name.strip().lower(), re.DOTALL).groups()  # type: ignore[union-attr]
    plain = head.replace("-", "_") + rest
    if plain in _OTHERS:
        return _OTHERS[plain]()
    match = re.fullmatch(r"(?P<family>\w+)\s*(?:\((?P<parameter>[^()]*)\))?\s*(?::\s*(?P<variant>\w+))?", plain)
    if match is None or match["family"] not in TNORMS or match["variant"] not in (None, "s", "r", "tnorm"):
        near = difflib.get_close_matches(plain, LOGICS, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(LOGICS)}"
        raise ConfigError(f"unknown logic {name!r}; {hint}")
    tnorm = TNORMS[match["family"]]
    if match["parameter"] is not None:
        tnorm = _with_parameter(tnorm, match["parameter"], name)
    if match["variant"] == "tnorm":
        return tnorm_logic(tnorm, name)
    return symmetric(tnorm, "r" if match["variant"] == "r" else "s", name)


def _with_parameter(tnorm: TNorm, text: str, name: str) -> TNorm:
    family = type(tnorm)
    if not hasattr(tnorm, "p") and not hasattr(tnorm, "lam"):
        raise ConfigError(f"logic {name!r} gives a parameter to {family.__name__}, which has none; leave out ({text})")
    try:
        parameter = float(text)
    except ValueError:
        parameter = math.nan
    if math.isnan(parameter):
        raise ConfigError(f"logic {name!r} has the parameter {text!r}, expected a number, as in 'yager(1.5)'")
    return family(parameter)  # type: ignore[call-arg]
