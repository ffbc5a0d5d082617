"""Posing: knowledge, an interpretation and data become batches of equal problems."""

from doxa.pose._knowledge import Asked, KnowledgeReasoner, Posed
from doxa.pose._term import KnowledgeTerm, Valued

__all__ = [
    "Asked",
    "KnowledgeReasoner",
    "KnowledgeTerm",
    "Posed",
    "Valued",
]
