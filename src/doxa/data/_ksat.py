"""Uniform random k-SAT, as in the `uf` sets of SATLIB."""

from __future__ import annotations

import torch

from doxa.errors import ConfigError, DataError
from doxa.logic import CNF
from doxa.logic import satisfiable as _model


def random_ksat(
    variables: int,
    clauses: int,
    k: int = 3,
    *,
    generator: torch.Generator | None = None,
    satisfiable: bool = True,
    attempts: int = 1000,
) -> CNF:
    """One instance: each clause has k different variables, every set of k equally likely, each negated by a fair coin.

    A clause may come twice, as in SATLIB. With ``satisfiable``, instances are drawn until a SAT solver finds a model,
    so that those returned are uniform among the satisfiable ones. Near 4.27 clauses per variable for k = 3 about half
    of them are; far above, hardly any.

    Args:
        variables: how many there are, named x1, x2, ...
        clauses: how many are drawn.
        k: literals per clause.
        generator: the source of randomness; torch's own by default.
        satisfiable: keep only satisfiable instances.
        attempts: give up after so many instances that are not.

    Raises:
        ConfigError: a number is impossible.
        DataError: no attempt was satisfiable.

    >>> cnf = random_ksat(20, 91, generator=torch.Generator().manual_seed(0))
    >>> cnf
    CNF(91 clauses, 20 variables)
    >>> _model(cnf) is not None
    True
    """
    if not 1 <= k <= variables:
        raise ConfigError(f"clauses of k={k} different variables cannot be drawn from {variables}; need 1 <= k <= n")
    if clauses < 0 or attempts < 1:
        raise ConfigError(f"clauses must not be negative and attempts at least 1, got {clauses} and {attempts}")
    for _ in range(attempts):
        cnf = _draw(variables, clauses, k, generator)
        if not satisfiable or _model(cnf) is not None:
            return cnf
    raise DataError(
        f"none of {attempts} random instances with {variables} variables and {clauses} clauses of {k} literals is "
        f"satisfiable: {clauses / variables:.2f} clauses per variable are too many. Draw fewer, or raise attempts"
    )


def ksat_instances(
    count: int,
    variables: int,
    clauses: int,
    k: int = 3,
    *,
    generator: torch.Generator | None = None,
    satisfiable: bool = True,
    attempts: int = 1000,
) -> list[CNF]:
    """Several independent instances; see `random_ksat`.

    >>> [len(cnf) for cnf in ksat_instances(3, 20, 91, generator=torch.Generator().manual_seed(0))]
    [91, 91, 91]
    """
    return [
        random_ksat(variables, clauses, k, generator=generator, satisfiable=satisfiable, attempts=attempts)
        for _ in range(count)
    ]


def _draw(variables: int, clauses: int, k: int, generator: torch.Generator | None) -> CNF:
    # Floyd's sampling without replacement, for all clauses at once: at step j every number up to j is equally likely,
    # and one that was drawn before is replaced by j, which cannot have been.
    chosen = torch.empty(clauses, 0, dtype=torch.int64)
    for j in range(variables - k, variables):
        drawn = torch.randint(j + 1, (clauses, 1), generator=generator)
        again = (chosen == drawn).any(1, keepdim=True)
        chosen = torch.cat([chosen, torch.where(again, j, drawn)], 1)
    signs = 1 - 2 * torch.randint(2, chosen.shape, generator=generator)
    literals = (signs * (chosen + 1)).flatten().numpy()
    return CNF.from_arrays(literals, torch.arange(0, clauses * k + 1, k).numpy(), variables)
