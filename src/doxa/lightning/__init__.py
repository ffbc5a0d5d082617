"""Knowledge in PyTorch Lightning: a mixin of a few lines, and a callback that logs what becomes of each axiom.

A module that has a :class:`doxa.Model` as ``knowledge`` adds its loss with :meth:`KnowledgeMixin.knowledge_loss`;
:class:`LogKnowledge` logs, for training and validation, the loss and the satisfaction of every axiom. Needs the extra
``lightning``.

>>> from doxa.lightning import KnowledgeMixin, LogKnowledge
"""

from doxa.lightning._lightning import KnowledgeMixin, LogKnowledge

__all__ = ["KnowledgeMixin", "LogKnowledge"]
