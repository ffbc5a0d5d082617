"""The operators by name, as the tables of Chapter 2 list them: one instance of each family, with a usual parameter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from doxa.fuzzy.operators._frank import Frank
from doxa.fuzzy.operators._godel import Drastic, Godel, NilpotentMinimum
from doxa.fuzzy.operators._hamacher import Hamacher
from doxa.fuzzy.operators._lukasiewicz import Lukasiewicz
from doxa.fuzzy.operators._negations import STANDARD, IntuitionisticNegation, Negation, SugenoNegation, YagerNegation
from doxa.fuzzy.operators._product import Product
from doxa.fuzzy.operators._schweizer_sklar import SchweizerSklar
from doxa.fuzzy.operators._sigmoidal import sigmoidal
from doxa.fuzzy.operators._sugeno_weber import SugenoWeber
from doxa.fuzzy.operators._tnorms import Implication, SImplication, TNorm
from doxa.fuzzy.operators._yager import AczelAlsina, Dombi, Yager
from doxa.fuzzy.quantifiers._aggregators import (
    Aggregator,
    GeneralizedMean,
    GeneralizedMeanError,
    LogProbabilisticSum,
    LogProduct,
    TConormAggregator,
    TNormAggregator,
    UnboundedYager,
    UnboundedYagerSum,
)

__all__ = [
    "AGGREGATORS",
    "DUBOIS_PRADE",
    "FODOR",
    "GOGUEN",
    "IMPLICATIONS",
    "KLEENE_DIENES",
    "NEGATIONS",
    "REICHENBACH",
    "TNORMS",
    "WEBER",
]

NEGATIONS: Mapping[str, Negation] = MappingProxyType(
    {
        "standard": STANDARD,
        "sugeno": SugenoNegation(1.0),
        "yager": YagerNegation(2.0),
        "intuitionistic": IntuitionisticNegation(),
    }
)

TNORMS: Mapping[str, TNorm] = MappingProxyType(
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
        "aczel_alsina": AczelAlsina(),
        "dombi": Dombi(),
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

IMPLICATIONS: Mapping[str, Implication] = MappingProxyType(
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

AGGREGATORS: Mapping[str, Aggregator] = MappingProxyType(
    {
        "minimum": TNormAggregator(Godel()),
        "product": TNormAggregator(Product()),
        "log_product": LogProduct(),
        "lukasiewicz": TNormAggregator(Lukasiewicz()),
        "yager": TNormAggregator(Yager()),
        "unbounded_yager": UnboundedYager(),
        "nilpotent_minimum": TNormAggregator(NilpotentMinimum()),
        "mae": GeneralizedMeanError(1.0),
        "rmse": GeneralizedMeanError(2.0),
        "maximum": TConormAggregator(Godel().dual),
        "probabilistic_sum": TConormAggregator(Product().dual),
        "log_probabilistic_sum": LogProbabilisticSum(),
        "bounded_sum": TConormAggregator(Lukasiewicz().dual),
        "yager_sum": TConormAggregator(Yager().dual),
        "unbounded_yager_sum": UnboundedYagerSum(),
        "nilpotent_maximum": TConormAggregator(NilpotentMinimum().dual),
        "mean": GeneralizedMean(1.0),
        "quadratic_mean": GeneralizedMean(2.0),
    }
)
