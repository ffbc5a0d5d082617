"""A circuit and weights: one number for each semiring."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from doxa.errors import ConfigError, ProblemError
from doxa.exact.circuits._circuit import Circuit
from doxa.exact.circuits._layers import evaluate, make_layers
from doxa.exact.circuits._native import native_kernel
from doxa.exact.circuits._real import evaluate_positive, evaluate_real, make_real_layers
from doxa.problem._logspace import is_traced

Semiring = Literal["log", "real", "max"]


def weigh(circuit: Circuit, positive: Tensor, negative: Tensor, semiring: Semiring = "log") -> Tensor:
    """The weighted model count of a circuit, differentiable; ``Circuit.count`` counts without weights.

    The circuit is made smooth first, so a variable that does not matter weighs w⁺ + w⁻.

    Args:
        circuit: a circuit.
        positive: w⁺, the weights of the literals 1, 2, ..., ``(*batch, variables)``.
        negative: w⁻, the weights of -1, -2, ..., of the same shape.
        semiring: "log": weights and result are logarithms; "real": they are numbers, possibly negative; "max": they are
            logarithms, and the result is that of the best model.

    >>> from doxa.exact.circuits import exactly_one
    >>> probs = torch.tensor([0.5, 0.2])
    >>> weigh(exactly_one(2), probs, 1 - probs, "real")                       # .5 · .8 + .5 · .2
    tensor(0.5000)
    """
    if semiring not in get_args(Semiring):
        raise ConfigError(f"semiring is {semiring!r}, expected one of {', '.join(get_args(Semiring))}")
    if positive.shape != negative.shape or positive.ndim == 0 or positive.shape[-1] != circuit.variables:
        raise ProblemError(
            f"the weights have shapes {tuple(positive.shape)} and {tuple(negative.shape)}, expected twice (*batch, "
            f"{circuit.variables}): one weight for each literal"
        )
    batch = positive.shape[:-1]
    leaves = torch.stack([positive, negative], -1).flatten(-2).reshape(batch.numel(), circuit.literals).T
    if semiring == "real":
        kernel = native_kernel()
        if kernel is None and not is_traced(leaves) and bool((leaves > 0).all()):
            return evaluate_positive(make_layers(circuit.smooth()), leaves).reshape(batch)
        return evaluate_real(make_real_layers(circuit.smooth()), leaves, kernel=kernel).reshape(batch)
    mode: Literal["sum", "best"] = "sum" if semiring == "log" else "best"
    return evaluate(make_layers(circuit.smooth()), leaves, mode=mode, kernel=native_kernel()).reshape(batch)
