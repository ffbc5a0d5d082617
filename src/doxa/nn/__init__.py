"""Knowledge as modules, in the manner of ``torch.nn``: losses and layers that stand beside any others.

* :class:`SemanticLoss`: -log of the probability that a formula holds, from logits, like ``BCEWithLogitsLoss``.
* :class:`KnowledgeLoss`: knowledge about networks under any semantics, from data.
* :class:`Refine`: truth values in, the nearest truth values that satisfy a formula out.
* :class:`ConstrainedLayer`: logits in, probabilities given that a formula holds out.

They are thin: what they compute is ``doxa.exact``, ``doxa.semantics`` and ``doxa.refine``.

>>> import torch
>>> from doxa.logic import propositions
>>> cat, dog = propositions("cat dog")
>>> net = torch.nn.Sequential(torch.nn.Linear(8, 2), ConstrainedLayer(cat ^ dog))
>>> bool(torch.allclose(net(torch.randn(5, 8)).sum(-1), torch.ones(5)))
True
"""

from doxa.nn._modules import ConstrainedLayer, KnowledgeLoss, SemanticLoss
from doxa.refine import Refine

__all__ = ["ConstrainedLayer", "KnowledgeLoss", "Refine", "SemanticLoss"]
