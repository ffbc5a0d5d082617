"""Ready-made layers: class hierarchies, mutual exclusion, exactly one, and weighted clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from doxa._numerics import truth as as_truth
from doxa.errors import ConfigError
from doxa.logic import CNF, And, Call, Count, Expr
from doxa.refine._refine import Refine
from doxa.refine._rules import Rules


class Hierarchy(nn.Module):
    r"""Coherent hierarchical classification: every class is at least as true as each of its descendants.

    The minimal refinement of the Gödel implications child → parent towards 1, applied from the leaves up:
    :math:`\hat t_k = \max_{d \,\text{below or}\, k} t_d`. Giunchiglia and Lukasiewicz 2020, "Coherent hierarchical
    multi-label classification networks"; Chapter 4 shows the connection.

    Args:
        parents: for each class by name, its parents (a class may have several); or pairs (child, parent).
        classes: the order of the last axis; by default that in which names appear.

    >>> layer = Hierarchy({"poodle": ["dog"], "dog": ["animal"], "cat": ["animal"]})
    >>> layer.classes
    ('poodle', 'dog', 'animal', 'cat')
    >>> layer(torch.tensor([0.7, 0.2, 0.4, 0.9]))
    tensor([0.7000, 0.7000, 0.9000, 0.9000])
    """

    below: Tensor

    def __init__(
        self, parents: Mapping[str, Sequence[str]] | Sequence[tuple[str, str]], classes: Sequence[str] | None = None
    ) -> None:
        super().__init__()
        if isinstance(parents, Mapping):
            pairs = [(child, parent) for child, listed in parents.items() for parent in listed]
        else:
            pairs = list(parents)
        seen = dict.fromkeys(name for pair in pairs for name in pair)
        self.classes = tuple(seen if classes is None else classes)
        if unknown := [name for name in seen if name not in self.classes]:
            raise ConfigError(f"the hierarchy names {unknown[0]!r}, which is not among the classes")
        self.pairs = tuple(pairs)
        place = {name: i for i, name in enumerate(self.classes)}
        n = len(self.classes)
        below = torch.eye(n, dtype=torch.bool)
        for child, parent in pairs:
            below[place[parent], place[child]] = True
        while True:  # the transitive closure, doubling the length of paths
            further = (below.float() @ below.float()) > 0
            if torch.equal(further, below):
                break
            below = further
        if bool((below & below.T).fill_diagonal_(False).any()):
            raise ConfigError("the hierarchy has a cycle: a class is its own ancestor; remove one of the pairs")
        self.register_buffer("below", below, persistent=False)
        self.rules = Rules([Call(c) >> Call(p) for c, p in pairs], [Call(name) for name in self.classes])

    def formula(self) -> Expr:
        """The hierarchy as a conjunction of implications, for any other use.

        >>> print(Hierarchy([("dog", "animal")]).formula())
        dog -> animal
        """
        return And(*[Call(child) >> Call(parent) for child, parent in self.pairs])

    def forward(self, x: Tensor) -> Tensor:
        """``(*batch, classes)`` to ``(*batch, classes)``."""
        refined: Tensor = self.rules(x)
        return refined

    def loss(self, x: Tensor, label: Tensor) -> Tensor:
        r"""The max-constraint loss, of raw predictions and labels that respect the hierarchy; both ``(*batch,
        classes)``.

        Binary cross-entropy with :math:`\max_d t_d y_d` over descendants that are true where the class is true, and
        :math:`\max_d t_d` where it is false: a parent is never taught by a child that is wrong.

        >>> layer = Hierarchy([("dog", "animal")])
        >>> layer.loss(torch.tensor([0.9, 0.2]), torch.tensor([0.0, 1.0]))
        tensor(1.9560)
        """
        coherent = self.rules.toward(x, label)
        return nn.functional.binary_cross_entropy(coherent, label.to(coherent.dtype))


def mutual_exclusion(atoms: Sequence[Expr], logic: str = "godel", **options: Any) -> Refine:
    """A layer in which at most one of the atoms is true; options as for :class:`Refine`.

    >>> from doxa.logic import propositions
    >>> mutual_exclusion(propositions("a b c"))(torch.tensor([0.75, 0.25, 0.5])).round(decimals=3)
    tensor([0.7500, 0.0000, 0.0000])
    """
    return Refine(Count("at most", 1, atoms), logic, **{"atoms": atoms, **options})


def exactly_one(atoms: Sequence[Expr], logic: str = "godel", **options: Any) -> Refine:
    """A layer in which exactly one of the atoms is true; options as for :class:`Refine`.

    >>> from doxa.logic import propositions
    >>> exactly_one(propositions("a b c"))(torch.tensor([0.75, 0.25, 0.5])).round(decimals=3)
    tensor([1., 0., 0.])
    """
    return Refine(Count("exactly", 1, atoms), logic, **{"atoms": atoms, **options})


class ClauseWeights(nn.Module):
    r"""Clauses with learnable weights that boost logits, in the manner of KENN (Daniele and Serafini 2019).

    Each clause shares out its weight over its literals by a softmax, a soft form of the Gödel t-conorm's refinement:
    with literals :math:`l_{cj} = s_{cj} z_{k(c,j)}` in logits,

    .. math::  z'_k = z_k + \sum_c w_c \sum_{j: k(c,j) = k} s_{cj}\, \mathrm{softmax}_j(l_c),\qquad w_c ≥ 0

    Clauses that do not hold lose their weight in training; which ones matter can be read off :attr:`weights`.

    Args:
        clauses: clauses over atoms, as a :class:`doxa.logic.CNF` or a conjunction of disjunctions.
        atoms: what the last axis stands for; by default the atoms of the clauses in order.
        weight: the weight to start from.

    >>> from doxa.logic import propositions
    >>> a, b = propositions("a b")
    >>> layer = ClauseWeights(CNF.from_clauses([(-1, 2)], [a, b]), weight=1.0)      # a -> b
    >>> layer(torch.tensor([2.0, -1.0]))
    tensor([ 1.7311, -0.2689], grad_fn=...)
    """

    index: Tensor
    sign: Tensor

    def __init__(self, clauses: CNF | Expr, atoms: Sequence[Expr] | None = None, weight: float = 0.5) -> None:
        super().__init__()
        cnf = clauses if isinstance(clauses, CNF) else CNF.from_formula(clauses, atoms or ())
        if None in cnf.atoms:
            raise ConfigError("the clauses have auxiliary variables, which are no predictions; give clauses over atoms")
        if not weight >= 0:
            raise ConfigError(f"weight is {weight}, expected a number of at least 0")
        self.atoms = tuple(cnf.atoms if atoms is None else atoms)
        place: dict[Expr | None, int] = {a: i for i, a in enumerate(self.atoms)}
        if missing := [a for a in cnf.atoms if a not in place]:
            raise ConfigError(f"the atom {missing[0]} is in a clause but not in atoms; add it there")
        listed = cnf.clauses
        width = max((len(c) for c in listed), default=0)
        index = torch.zeros(len(listed), width, dtype=torch.int64)
        sign = torch.zeros(len(listed), width)
        for r, clause in enumerate(listed):
            for j, v in enumerate(clause):
                index[r, j], sign[r, j] = place[cnf.atoms[abs(v) - 1]], 1.0 if v > 0 else -1.0
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("sign", sign, persistent=False)
        self.raw = nn.Parameter(torch.full((len(listed),), float(weight)))

    @property
    def weights(self) -> Tensor:
        """The weights of the clauses, none below 0."""
        return self.raw.clamp_min(0)

    def forward(self, logits: Tensor) -> Tensor:
        """Boosted logits, ``(*batch, atoms)``."""
        if not logits.dim() or logits.shape[-1] != len(self.atoms):
            raise ConfigError(f"the logits have shape {tuple(logits.shape)}, expected (*batch, {len(self.atoms)})")
        z = as_truth(logits)
        sign = self.sign.to(z.dtype)
        literals = z[..., self.index] * sign
        share = torch.softmax(literals.masked_fill(sign == 0, -torch.inf), -1)
        boost = (share * sign * self.weights.to(z.dtype).unsqueeze(-1)).flatten(-2)
        return z.index_add(-1, self.index.flatten(), boost)
