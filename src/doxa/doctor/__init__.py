"""The doctor: what may go wrong although the loss goes down.

A network that is trained through knowledge is told only whether its conclusions are right. It may then learn concepts
that are wrong and conclusions that are right: a *reasoning shortcut*. `shortcuts` finds them before any training, from
the problem alone, or from a knowledge base (`knowledge_shortcuts`): a shortcut is a map α of each concept's values with

    c(α(w)) = c(w)    for all worlds w, or for those in the data,

other than the identity. It counts them, shows the simplest, and says which few labels would rule them all out. It
also says for which outputs two worlds that are both right cannot be held possible by one independent belief.

`ask` says which labels, on which training rows of a task, rule out the most shortcuts, and `certify` whether labels
have ruled out all of them.

`examine` looks at knowledge under a fuzzy logic, by trying: where gradients vanish, reach one atom only, or go to one
side of implications; `examine_run` looks at what a run has learned as well.

>>> from doxa.problem import parity
>>> print(shortcuts(parity(2)))
2 maps of the concepts explain all 4 worlds; 1 of them is a shortcut
concept 1 (w0, w1): 0 → 1, 1 → 0
labels for concept 1 = 1 rule out all of them
...
"""

from doxa.doctor._ask import Certificate, Question, Questions, ask, certify
from doxa.doctor._examine import AxiomGradient, Examination, examine, examine_run
from doxa.doctor._findings import Finding
from doxa.doctor._knowledge import knowledge_shortcuts
from doxa.doctor._scenes import Concept
from doxa.doctor._shortcuts import LIMITS, Shortcut, Shortcuts, shortcuts

__all__ = [
    "LIMITS",
    "AxiomGradient",
    "Certificate",
    "Concept",
    "Examination",
    "Finding",
    "Question",
    "Questions",
    "Shortcut",
    "Shortcuts",
    "ask",
    "certify",
    "examine",
    "examine_run",
    "knowledge_shortcuts",
    "shortcuts",
]
