"""One face over all ways of reasoning: knowledge is written once, and the semantics is chosen in one word.

A :class:`Model` binds a knowledge base to networks. What its axioms then mean is said by a semantics:

| semantics | an axiom has | its loss |
| --- | --- | --- |
| ``Classical()`` | true or false | none |
| ``Fuzzy(logic)`` | a truth value e | -e, or -log e where the logic is in log space |
| ``Refined(logic)`` | the truth t that refinement gives it | -log t |
| ``Exact()`` | a probability p | -log p |
| ``Sampled(estimator)`` | a probability, estimated | the expected share of violated instances |
| ``Amortized()`` | a probability q, learnt | -log q |
| ``Auto()`` | what is affordable | that of ``Exact`` or of what is given instead |

>>> import doxa, torch
>>> model = doxa.Model("pred rain; pred wet; [soaked] rain -> wet", rain=doxa.probs(torch.tensor(0.9)),
...                    wet=doxa.probs(torch.tensor(0.3)))
>>> for semantics in (doxa.Classical(), doxa.Fuzzy("product"), doxa.Refined(), doxa.Exact()):
...     print(f"{type(semantics).__name__:<10}", round(model.truth(semantics=semantics)["soaked"].item(), 4))
Classical  0.0
Fuzzy      0.37
Refined    0.3
Exact      0.37
"""

from doxa.semantics._amortized import Amortized
from doxa.semantics._auto import Auto
from doxa.semantics._classical import Classical
from doxa.semantics._exact import Exact
from doxa.semantics._explain import Explanation, World
from doxa.semantics._fuzzy import Fuzzy
from doxa.semantics._model import AxiomLosses, Model
from doxa.semantics._predict import Prediction
from doxa.semantics._refine import RefinedBeliefs
from doxa.semantics._refined import Refined
from doxa.semantics._sampled import Sampled
from doxa.semantics._semantics import Compiled, Semantics

__all__ = [
    "Amortized",
    "Auto",
    "AxiomLosses",
    "Classical",
    "Compiled",
    "Exact",
    "Explanation",
    "Fuzzy",
    "Model",
    "Prediction",
    "Refined",
    "RefinedBeliefs",
    "Sampled",
    "Semantics",
    "World",
]
