"""Where a number that is not finite came from."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from doxa.errors import DoxaError

if TYPE_CHECKING:
    from doxa.semantics._model import Chosen, Model

__all__ = ["blame"]


def blame(model: Model, semantics: Chosen, generator: torch.Generator | None, data: Mapping[str, Any]) -> str:
    """Run again and look: at parameters, at what the modules of symbols return, at the losses of axioms."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name} holds numbers that are not finite"
    wrong: list[str] = []

    def look(symbol: str, output: Any) -> None:
        # minus infinity is a good logarithm of a probability
        if isinstance(output, Tensor) and bool((output.isnan() | (output == float("inf"))).any()):
            wrong.append(symbol)

    with ExitStack() as undo:
        for name in (*model.kb.signature.predicates, *model.kb.signature.functions):
            undo.callback(model.interpretation.listen(name, partial(look, name)))
        try:
            with torch.no_grad():
                losses = model.losses(semantics=semantics, generator=generator, **data)
        except DoxaError as error:
            if not wrong:
                return str(error)
    if wrong:
        return f"what {wrong[0]} is bound to returned numbers that are not finite"
    bad = [name for name, value in losses.by_name().items() if not bool(torch.isfinite(value))]
    if bad:
        return f"axiom {bad[0]!r} has a loss that is not finite, though its symbols gave finite numbers"
    return "run again, all losses of axioms are finite"
