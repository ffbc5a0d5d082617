"""One face over all ways of reasoning: knowledge is written once, and the semantics is chosen in one word.

A :class:`Model` binds a knowledge base to networks. What its axioms then mean is said by a semantics:

| word | semantics | the truth of an instance | its loss |
| --- | --- | --- | --- |
| classical | ``Classical()`` | true or false | none |
| fuzzy | ``Fuzzy(logic)`` | a truth value e | -log e, or 1 - e where the logic is not in log space |
| refined | ``Refined(logic)`` | the truth t that refinement gives it | -log t |
| exact | ``Exact()`` | a probability p | -log p |
| sampled | ``Sampled(estimator)`` | a probability, estimated | -log of it, or without ``log`` 1 - p |
| amortized | ``Amortized()`` | a probability q, learnt | -log q |
| auto | ``Auto()`` | what the budget allows | that of ``Exact`` or of what is given instead |

All keep one contract (``docs/semantics.md``): losses are at least 0, and 0 where an axiom certainly holds; by default
the loss of an axiom is the mean over its instances; facts count; truths agree with classical truth where everything is
certain; the same call gives the same number.

>>> import doxa, torch
>>> model = doxa.Model("pred rain; pred wet; [soaked] rain -> wet", rain=doxa.probs(torch.tensor(0.9)),
...                    wet=doxa.probs(torch.tensor(0.3)))
>>> for word in ("classical", "fuzzy", "refined", "exact"):
...     print(f"{word:<10}", round(model.truth(semantics=word)["soaked"].item(), 4))
classical  0.0
fuzzy      0.37
refined    0.3
exact      0.37
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doxa.semantics._amortized import Amortized
    from doxa.semantics._auto import Auto
    from doxa.semantics._classical import Classical
    from doxa.semantics._combine import AxiomLosses
    from doxa.semantics._diversity import Diversity
    from doxa.semantics._exact import Exact
    from doxa.semantics._fuzzy import Fuzzy
    from doxa.semantics._model import Model
    from doxa.semantics._predict import Prediction
    from doxa.semantics._refine import RefinedBeliefs
    from doxa.semantics._refined import Refined
    from doxa.semantics._sampled import Sampled
    from doxa.semantics._semantics import Compiled, Semantics, semantics
    from doxa.semantics._worlds import ConditionedBeliefs, Explanation, KnowledgeLayer, World

__all__ = [
    "Amortized",
    "Auto",
    "AxiomLosses",
    "Classical",
    "Compiled",
    "ConditionedBeliefs",
    "Diversity",
    "Exact",
    "Explanation",
    "Fuzzy",
    "KnowledgeLayer",
    "Model",
    "Prediction",
    "Refined",
    "RefinedBeliefs",
    "Sampled",
    "Semantics",
    "World",
    "semantics",
]

_HOME = {
    **dict.fromkeys(("ConditionedBeliefs", "Explanation", "KnowledgeLayer", "World"), "_worlds"),
    "AxiomLosses": "_combine",
    **dict.fromkeys(("Compiled", "Semantics", "semantics"), "_semantics"),
    "Prediction": "_predict",
    "RefinedBeliefs": "_refine",
}
"""The files of names that are not called like them. A semantics loads the engine that it needs, and no other."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'doxa.semantics' has no attribute {name!r}")
    value = getattr(import_module(f"doxa.semantics.{_HOME.get(name, '_' + name.lower())}"), name)
    globals()[name] = value  # looked up once
    return value
