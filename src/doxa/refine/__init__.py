"""Refinement."""

from __future__ import annotations

from doxa.refine._base import Refinement
from doxa.refine._catalogue import refinement
from doxa.refine._junction import Dual, Junction

__all__ = ["Dual", "Junction", "Refinement", "refinement"]
