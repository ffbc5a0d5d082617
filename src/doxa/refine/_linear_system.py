"""Systems of linear constraints, measured in the last places of their terms, and proofs that one cannot hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from doxa.errors import ConfigError, KnowledgeError
from doxa.logic import Call, Expr
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._simplify import atoms_of, evaluate
from doxa.refine._linear_proof import Contradiction
from doxa.refine._linear_reduce import eliminated, nearly_dependent
from doxa.refine._linear_solve import Solver
from doxa.refine._linear_text import read

Labels = Tensor | Mapping[str, Tensor | bool] | None
LARGEST = 1e50
"""Coefficients and bounds beyond it, and below its inverse, are refused, so that no product overflows."""
_SPLIT = 134217729.0  # 2**27 + 1: cuts a float64 into two halves whose products are exact


@dataclass(frozen=True, eq=False)
class LinearSystem:
    r"""Linear constraints :math:`A x ≤ b` and :math:`E x = f` on named real values, each with its text and its guard.

    Args:
        A, b: the inequalities, ``(rows, values)`` and ``(rows)``.
        E, f: the equalities; none if not given.
        names: of the values, in the order of the last axis.
        rows: a text for each row, of A and then of E, for messages.
        guards: for each row a formula over labels, or None; the row holds where the formula is true.
        labels: the labels in the order in which they are given; by default that in which they appear.

    >>> system = LinearSystem.parse("total = a + b; 0 <= a; 0 <= b")
    >>> system.names, system.rows
    (('total', 'a', 'b'), ('0 <= a', '0 <= b', 'total = a + b'))
    >>> system.E
    tensor([[ 1., -1., -1.]], dtype=torch.float64)
    """

    A: Tensor
    b: Tensor
    E: Tensor = None  # type: ignore[assignment]
    f: Tensor = None  # type: ignore[assignment]
    names: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    guards: tuple[Expr | None, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("A", torch.as_tensor(self.A).detach().to(torch.float64))
        n = self.A.shape[-1] if self.A.dim() else 0
        put("E", self.A.new_zeros(0, n) if self.E is None else torch.as_tensor(self.E).detach().to(self.A))
        put("b", torch.as_tensor(self.b).detach().to(self.A))
        put("f", self.A.new_zeros(0) if self.f is None else torch.as_tensor(self.f).detach().to(self.A))
        for one, two, matrix, vector in ((self.A, self.b, "A", "b"), (self.E, self.f, "E", "f")):
            if one.dim() != 2 or one.shape[1] != n or two.shape != one.shape[:1]:
                came = f"{matrix} has shape {tuple(one.shape)} and {vector} {tuple(two.shape)}"
                raise ConfigError(f"{came}, expected (rows, {n}) and (rows): a row for each constraint")
        if not n:
            raise ConfigError("there is no value to constrain; name at least one")
        sizes = torch.cat([self.matrix.flatten(), self.bounds]).abs()
        if not bool(((sizes <= LARGEST) & ((sizes >= 1 / LARGEST) | (sizes == 0))).all()):
            wanted = f"0, or of a size between {1 / LARGEST:g} and {LARGEST:g}"
            raise ConfigError(f"a coefficient or a bound is out of range, expected {wanted}; scale the values")
        put("names", tuple(self.names) or tuple(f"x{i}" for i in range(n)))
        if len(self.names) != n or len(set(self.names)) != n:
            raise ConfigError(f"names is {self.names}, expected {n} different names: one for each value")
        put("rows", tuple(self.rows) or tuple(map(self._text, range(self.count))))
        put("guards", tuple(self.guards) or (None,) * self.count)
        for what, listed in (("rows", self.rows), ("guards", self.guards)):
            if len(listed) != self.count:
                raise ConfigError(f"{what} has {len(listed)} entries, expected one for each of {self.count} rows")
        found = {a.name: a for g in self.guards if g is not None for a in atoms_of(g) if isinstance(a, Call)}
        put("labels", tuple(self.labels) or tuple(found))
        if missing := [name for name in found if name not in self.labels]:
            raise ConfigError(f"labels lacks {missing[0]!r}, which a guard names; add it there")
        if both := [name for name in self.labels if name in self.names]:
            raise ConfigError(f"{both[0]!r} is a label and a value; give one of them another name")

    @classmethod
    def parse(cls, text: str, names: Sequence[str] = (), labels: Sequence[str] = ()) -> LinearSystem:
        """The system that a text describes: comparisons of linear terms, guarded by labels, one a line.

        Args:
            text: such as ``total = a + b``, ``0 <= share <= 1`` or ``premium & !sale -> price >= 100``. Coefficients
                that no float64 holds are made whole: ``x <= 0.1`` is the row ``10 x <= 1``.
            names: the order of the values, if not that in which they appear; may have values that no row names.
            labels: likewise for labels.

        >>> LinearSystem.parse("price * sale <= 10")
        Traceback (most recent call last):
        doxa.errors.KnowledgeError: <text>:1:1: error: `price * sale` is not linear
            price * sale <= 10
            ^^^^^^^^^^^^
            a linear term has names, numbers, + and -, and * and / by numbers
        """
        rows = read(text)
        found = dict.fromkeys(name for row in rows for name in row.coefficients)
        ordered = tuple(names) or tuple(found)
        for name in found:
            if name not in ordered:
                remedy = did_you_mean(name, ordered, "add it to names")
                raise KnowledgeError(f"a row names the value {name!r}, which is not among names; {remedy}")
        place = {name: i for i, name in enumerate(ordered)}
        parts: list[tuple[list[list[float]], list[float]]] = [([], []), ([], [])]
        for row in rows:
            coefficients, bound = row.whole()
            dense = [0.0] * len(ordered)
            for name, c in coefficients.items():
                dense[place[name]] = c
            parts[row.equality][0].append(dense)
            parts[row.equality][1].append(bound)
        A, b, E, f = (torch.tensor(part, dtype=torch.float64) for both in parts for part in both)
        A, E = A.view(len(b), len(ordered)), E.view(len(f), len(ordered))
        rows.sort(key=lambda row: row.equality)
        said, guards = tuple([r.text for r in rows]), tuple([r.guard for r in rows])
        return cls(A, b, E, f, ordered, said, guards, tuple(labels))

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.A) + len(self.E)

    @cached_property
    def matrix(self) -> Tensor:
        """A over E."""
        return torch.cat([self.A, self.E])

    @cached_property
    def bounds(self) -> Tensor:
        """b, then f."""
        return torch.cat([self.b, self.f])

    @cached_property
    def equality(self) -> Tensor:
        """Of every row: is it an equality?"""
        return torch.arange(self.count) >= len(self.A)

    def _text(self, row: int) -> str:
        terms = [(c, name) for c, name in zip(self.matrix[row].tolist(), self.names, strict=True) if c]
        said = " + ".join(f"{c:g}*{name}" for c, name in terms) or "0"
        return f"{said} {'=' if row >= len(self.A) else '<='} {float(self.bounds[row]):g}"

    def holding(self, labels: Labels = None, batch: torch.Size | None = None) -> Tensor | None:
        """Which rows hold, ``(*batch, rows)``, given labels ``(*batch, labels)`` or by name; None: all, always.

        >>> system = LinearSystem.parse("premium -> price >= 100; price >= 0")
        >>> system.holding({"premium": torch.tensor([True, False])})
        tensor([[ True,  True],
                [False,  True]])
        """
        if not self.labels:
            if labels is not None and (len(labels) if isinstance(labels, Mapping) else labels.numel()):
                raise ConfigError("labels came, but no row has a guard; leave them out, or write label -> a <= b")
            return None
        known = self._by_name(labels)
        shape = sum([v.to(torch.int8) for v in known.values()], torch.zeros(())).shape if batch is None else batch
        always = torch.ones(shape, dtype=torch.bool, device=next(iter(known.values())).device)
        truths: dict[Expr, Tensor] = {Call(name): value for name, value in known.items()}
        guards = [always if g is None else always & evaluate(g, truths) for g in self.guards]
        return torch.stack(guards, -1)

    def _by_name(self, labels: Labels) -> dict[str, Tensor]:
        wanted = f"one bool for each of {', '.join(self.labels)}"
        if labels is None:
            raise ConfigError(f"some rows have guards, and no labels came; give labels: {wanted}")
        if isinstance(labels, Mapping):
            for name in labels:
                if name not in self.labels:
                    remedy = did_you_mean(name, self.labels, f"expected {wanted}")
                    raise ConfigError(f"{name!r} is not a label of a guard; {remedy}")
            if missing := [name for name in self.labels if name not in labels]:
                raise ConfigError(f"the label {missing[0]!r} is missing; give {wanted}")
            found = {name: torch.as_tensor(labels[name]) for name in self.labels}
        else:
            if not labels.dim() or labels.shape[-1] != len(self.labels):
                raise ConfigError(f"labels has shape {tuple(labels.shape)}, expected (*batch, {len(self.labels)})")
            found = dict(zip(self.labels, labels.unbind(-1), strict=True))
        for name, value in found.items():
            if value.dtype != torch.bool:
                raise ConfigError(f"the label {name!r} is {value.dtype}, expected bool; compare it, as in p > 0.5")
        return found

    def excess(self, values: Tensor) -> Tensor:
        r"""How far each row is violated, in units in the last place of its scale: ``(*batch, rows)``, 0 if it holds.

        The scale of a row is its largest term, :math:`\max(|a_1 x_1|, …, |a_n x_n|, |b|)`, and the unit that of the
        dtype of the values. The sum is computed with twice the digits of float64.

        >>> LinearSystem.parse("a <= 1").excess(torch.tensor([[0.5], [1.0], [1.00000012]]))
        tensor([[0.],
                [0.],
                [1.]], dtype=torch.float64)
        """
        residual, unit = self.measure(values)
        residual = torch.where(self.equality.to(values.device), residual.abs(), residual.clamp_min(0))
        return residual / unit

    def measure(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of each row ``a·x - b``, and the unit in the last place of its scale."""
        index, coefficients = (t.to(values.device) for t in self._sparse)
        bounds = self.bounds.to(values.device)
        products = values.detach().to(torch.float64)[..., index] * coefficients
        scale = torch.maximum(products.abs().amax(-1), bounds.abs())
        residual = self.residual(values) if values.dtype == torch.float64 else products.sum(-1) - bounds
        return residual, unit_in_last_place(scale, values.dtype)

    def residual(self, *values: Tensor) -> Tensor:
        """Of each row ``a·x - b``, for x the sum of the values, as if computed with twice the digits of float64."""
        index, coefficients = (t.to(values[0].device) for t in self._sparse)
        terms = torch.cat([v.detach()[..., index] for v in values], -1)
        return _exact_sum(terms, coefficients.repeat(1, len(values)), self.bounds.to(terms.device))

    @cached_property
    def _sparse(self) -> tuple[Tensor, Tensor]:
        """Of every row the places and the coefficients of its terms, filled up with zeros: ``(rows, terms)``."""
        nonzero = self.matrix != 0
        width = max(int(nonzero.sum(1).max()) if nonzero.numel() else 0, 1)
        index = nonzero.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
        return index, self.matrix.gather(1, index)

    @cached_property
    def reduced(self) -> LinearSystem:
        """A system with the same solutions, in which no equalities under one guard nearly repeat each other.

        >>> LinearSystem.parse("x + y + z = 1; 1.00001*x + y + z = 1; x <= 2").reduced.rows
        ('x <= 2', '1*x = 0', '1*y + 1*z = 1')
        """
        kept, guards, more = list(range(len(self.A))), list(self.guards[: len(self.A)]), []
        for guard in dict.fromkeys(self.guards[len(self.A) :]):
            group = [i for i in range(len(self.A), self.count) if self.guards[i] == guard]
            found = eliminated(self.matrix[group], self.bounds[group]) if nearly_dependent(self.matrix[group]) else None
            if found is None:
                kept += group
                guards += [guard] * len(group)
            else:
                more.append((*found, guard))
        if not more:
            return self
        E = torch.cat([self.matrix[kept[len(self.A) :]], *[rows for rows, _, _ in more]])
        f = torch.cat([self.bounds[kept[len(self.A) :]], *[bounds for _, bounds, _ in more]])
        guards += [guard for rows, _, guard in more for _ in range(len(rows))]
        bare = LinearSystem(self.A, self.b, E, f, self.names)
        rows = (*[self.rows[i] for i in kept], *bare.rows[len(kept) :])
        return LinearSystem(self.A, self.b, E, f, self.names, rows, tuple(guards), self.labels)

    def contradiction(self, labels: Mapping[str, bool] | None = None) -> Contradiction | None:
        """The rows that cannot hold together under these labels, with a proof; None if all can.

        Without labels only rows without guards are asked about.

        >>> system = LinearSystem.parse("price <= 50; premium -> price >= 100")
        >>> print(system.contradiction({"premium": True}))
        these rows contradict each other: `price <= 50`, `premium -> price >= 100`
        >>> system.contradiction({"premium": False}), system.contradiction()
        (None, None)
        """
        if labels is None:
            on = torch.tensor([g is None for g in self.guards], dtype=torch.bool)
        else:
            held = self.holding({k: torch.tensor(v) for k, v in labels.items()})
            on = torch.ones(self.count, dtype=torch.bool) if held is None else held
        found = Solver(self).solve(torch.zeros(1, len(self.names), dtype=torch.float64), on.unsqueeze(0))
        if found.clash is not None:
            return found.clash[1]
        size = found.values.abs() @ self.matrix.abs().T + self.bounds.abs()
        off = found.values @ self.matrix.T - self.bounds
        off = torch.where(self.equality, off.abs(), off)
        if bool(((off > 1e-6 * size) & on).any()):
            if self.reduced is not self and self.reduced.contradiction(labels) is None:
                return None
            worst = self.rows[int(torch.where(on, off, -torch.inf).argmax())]
            raise ConfigError(
                f"could not decide whether the rows can hold together: `{worst}` nearly depends on others, and float64 "
                "cannot tell; remove it, or give the rows whole coefficients"
            )
        return None


def unit_in_last_place(scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance from a float64 number ≥ 0 to the next one above it in ``dtype``, as float64.

    >>> unit_in_last_place(torch.tensor([1.0, 1.5]).double(), torch.float32) * 2**23
    tensor([1., 1.], dtype=torch.float64)
    """
    near = scale.to(dtype)
    near = torch.where(near.to(torch.float64) > scale, torch.nextafter(near, near.new_zeros(())), near)
    return (torch.nextafter(near, near.new_full((), torch.inf)) - near).to(torch.float64)


def _exact_sum(terms: Tensor, coefficients: Tensor, bounds: Tensor) -> Tensor:
    """``Σ terms·coefficients - bounds`` as if computed with twice the digits (Ogita, Rump and Oishi 2005, Dot2)."""
    shape = terms.shape[:-1]
    # the terms first, so that each addition reads what lies together
    terms = terms.movedim(-1, 0).contiguous()
    coefficients = coefficients.movedim(-1, 0).view(len(terms), *[1] * (len(shape) - 1), -1)
    products = terms * coefficients
    th, tl = _halves(terms)
    ch, cl = _halves(coefficients)
    lost = tl * cl - (((products - th * ch) - tl * ch) - th * cl)
    total, rest = -bounds.expand(shape), torch.zeros_like(products[0])
    for product, missing in zip(products, lost, strict=True):
        new = total + product
        part = new - total
        rest = rest + ((total - (new - part)) + (product - part)) + missing
        total = new
    return total + rest


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    high = _SPLIT * x
    high = high - (high - x)
    return high, x - high
