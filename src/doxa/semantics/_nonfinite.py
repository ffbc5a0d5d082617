"""Where a number that is not finite comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from doxa.errors import DoxaError
from doxa.logic import Interpretation


def blame(model: nn.Module, interpretation: Interpretation, losses: Callable[[], Mapping[str, Tensor]]) -> str:
    """See :meth:`Model.find_nonfinite`."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"the parameter {name} holds numbers that are not finite"
    wrong: list[str] = []

    def look(symbol: str, output: Any) -> None:
        # minus infinity is a good logarithm of a probability
        if isinstance(output, Tensor) and bool((output.isnan() | (output == float("inf"))).any()):
            wrong.append(symbol)

    signature = interpretation.kb.signature
    symbols = (*signature.predicates, *signature.functions)
    stops = [interpretation.listen(name, partial(look, name)) for name in symbols]
    found: Mapping[str, Tensor] = {}
    try:
        with torch.no_grad():
            found = losses()
    except DoxaError as error:
        if not wrong:
            return str(error)
    finally:
        for stop in stops:
            stop()
    if wrong:
        return f"what {wrong[0]} is bound to returned numbers that are not finite"
    for name, value in found.items():
        if not bool(torch.isfinite(value).all()):
            return f"axiom {name!r} has a loss that is not finite, though its symbols gave finite numbers"
    return "run again, all losses of axioms are finite"
