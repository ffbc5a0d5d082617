"""One pass over the formula graph: truth values upwards, wishes downwards, each group as one tensor operation.

Tensors have the nodes first and the batch last. Of several wishes for an atom the changes are compared (errata 3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from doxa.logic import Expr
from doxa.logic.syntax._simplify import formulas as subformulas
from doxa.refine._base import ONE, Case, Direction, Pick, Refinement, first
from doxa.refine._implication import Fixed, ImplicationRefinement
from doxa.refine._plan import Edge, Group, Plan

Combination = Callable[[Tensor, Pick], Tensor]
"""From wishes ``(rows, wishes, *batch)`` to changes ``(rows, *batch)``."""


def _chosen(wishes: Tensor, index: Tensor) -> Tensor:
    return wishes.gather(1, index).squeeze(1)


_ROUNDING = {dtype: -8 * torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}


def largest(wishes: Tensor, pick: Pick) -> Tensor:
    """The largest absolute change; sizes that differ by rounding tie, so that the first of them wins everywhere."""
    size = (wishes.detach() if wishes.requires_grad else wishes).abs()
    enough = torch.add(size.amax(1, keepdim=True), ONE, alpha=_ROUNDING[size.dtype])
    tied = torch.minimum(size, enough)
    return _chosen(wishes, tied.max(1, keepdim=True).indices if pick is first else pick(-tied, 1))


def mean(wishes: Tensor, pick: Pick) -> Tensor:
    """The mean of the changes that are not 0."""
    return wishes.sum(1) / (wishes != 0).sum(1).clamp_min(1)


def smallest(wishes: Tensor, pick: Pick) -> Tensor:
    """The smallest absolute change that is not 0."""
    size = wishes.detach().abs()
    return _chosen(wishes, pick(torch.where(size > 0, size, torch.inf), 1))


def total(wishes: Tensor, pick: Pick) -> Tensor:
    """The sum; what leaves [0, 1] is clipped where the change is applied."""
    return wishes.sum(1)


COMBINATIONS: Mapping[str, Combination] = MappingProxyType(
    {"max": largest, "mean": mean, "min": smallest, "sum": total}
)
"""The ways to combine, by name."""

_WASTE = 2
"""How many times more wishes than there are a table may hold before it is split by width."""


@dataclass(frozen=True)
class _Gather:
    """Rows of literals: which sources they come from, and the name of the index into them (None: as they are)."""

    source: int | None
    """The only source, None: several."""
    sources: tuple[int, ...]
    index: str | None
    shape: tuple[int, int] | None
    """What the rows become, without the batch; None: as they are."""


@dataclass(frozen=True)
class _Bucket:
    """Rows with about the same number of wishes."""

    table: str | None
    signs: str | None
    rows: int
    width: int


@dataclass(frozen=True)
class _Wishes:
    """Where the wishes for the rows of a source come from: groups by number, or -1 for the targets of formulas."""

    givers: tuple[int, ...]
    buckets: tuple[_Bucket, ...]
    order: str | None

    @property
    def alone(self) -> int | None:
        """The only giver, if what it gives are just the changes of the rows, as they are."""
        if self.order is not None or len(self.givers) != 1 or len(self.buckets) != 1:
            return None
        (bucket,) = self.buckets
        return self.givers[0] if bucket.table is None and bucket.signs is None and bucket.width == 1 else None


@dataclass(frozen=True)
class _Step:
    """What the two passes do with a group: all that is known of it before there are values."""

    refinement: Refinement
    implication: ImplicationRefinement | None
    fixed: Fixed
    """The side of an implication that stays."""
    free: _Gather
    constant: _Gather | None
    moves: bool
    wishes: _Wishes
    alone: int | None
    direction: Direction
    lifted: bool
    """Whether a change of its truth is a rise that may be handed down without a target."""
    clamped: bool
    changed: bool
    """Whether its literals are anything but its truths."""
    places: str
    gives: tuple[int, ...]
    """What its wishes become, without the batch: the changes of the only group that gets them, or rows."""


Found = tuple[Tensor, Tensor | None, Tensor, Any]
"""Of a group the arguments, the constants, the truth and what to use again."""


class State(NamedTuple):
    """What the upward pass found."""

    roots: Tensor
    """The truth of the formulas, ``(formulas, 1, *batch)``."""
    groups: list[Found]
    batch: tuple[int, ...]

    @property
    def formulas(self) -> Tensor:
        """The truth of the formulas, ``(formulas, *batch)``."""
        return self.roots.squeeze(1)


class Engine(nn.Module):
    """Evaluates and refines a plan; indices are buffers, so that it moves between devices with its module."""

    def __init__(self, plan: Plan, combine: str) -> None:
        super().__init__()
        self.plan = plan
        self.combine: Combination = COMBINATIONS[combine]
        self.clip = combine == "sum"
        self._buffers_made = 0
        self._sizes = [len(plan.atoms) + plan.has_true] + [len(g.nodes) for g in plan.groups]
        self._where = {i: (0, i) for i in range(len(plan.atoms) + 1)}
        for g, group in enumerate(plan.groups, 1):
            self._where |= {number: (g, row) for row, number in enumerate(group.nodes)}
        self._signs: list[set[bool]] = [set() for _ in self._sizes]
        edges = [e for node in plan.nodes if node is not None for e in node.edges] + plan.roots
        for number, negated in edges:
            self._signs[self._where[number][0]].add(negated)
        self._joined: set[int] = set()
        """Sources whose literals are put behind those of others."""
        self._moving: list[list[Edge]] = []
        self._gathers: list[tuple[_Gather, _Gather | None]] = []
        for group in plan.groups:
            free, fixed, moving = self._edges_of(group)
            count = len(group.nodes)
            self._moving.append(moving)
            self._gathers.append(
                (
                    self._gather(free, (count, len(free) // count)),
                    self._gather(fixed, (count, len(fixed) // count)) if fixed else None,
                )
            )
        self._root_gather = root = self._gather(plan.roots, (len(plan.roots), 1))
        if root.source and root.index is None and root.source not in self._joined:
            self._root_gather = replace(root, shape=None)  # the truths of a group as they are
        self._wishes = self._collect()
        self._steps = [self._step(g, group) for g, group in enumerate(plan.groups)]
        self._downwards = list(enumerate(self._steps))[::-1]
        self._asks_formulas = -1 in self._wishes[0].givers or any(
            step.moves and -1 in step.wishes.givers and step.alone != -1 for step in self._steps
        )

    # -- building ---------------------------------------------------------------------------------------------------

    def _edges_of(self, group: Group) -> tuple[list[Edge], list[Edge], list[Edge]]:
        """The edges to gather as arguments and as constants, and those that get wishes, all nodes in a row."""
        nodes = [n for i in group.nodes if (n := self.plan.nodes[i]) is not None]
        if not group.free:
            return [e for n in nodes for e in n.edges], [], []
        if group.key == "residuum":
            moving = [e for n in nodes for e, fixed in zip(n.edges, group.fixed, strict=True) if not fixed]
            return [e for n in nodes for e in n.edges], [], moving
        free = [e for n in nodes for e in n.edges[: group.free]]
        return free, [e for n in nodes for e in n.edges[group.free :]], free

    def _store(self, values: Any, dtype: torch.dtype) -> str:
        name = f"_buffer_{self._buffers_made}"
        self._buffers_made += 1
        self.register_buffer(name, torch.tensor(values, dtype=dtype), persistent=False)
        return name

    def _step(self, g: int, group: Group) -> _Step:
        # Known once, and slow to ask of an abstract class at every pass.
        rho, wishes = self.plan.refinements[group.key], self._wishes[g + 1]
        implication = rho if isinstance(rho, ImplicationRefinement) else None
        fixed: Fixed = None if not any(group.fixed) else "antecedent" if group.fixed[0] else "consequent"
        free, constant = self._gathers[g]
        turns = self.clip or rho.turns
        return _Step(
            rho,
            implication,
            fixed,
            free,
            constant,
            group.free > 0,
            wishes,
            wishes.alone,
            group.direction,
            lifted=constant is None and group.direction == "up" and not turns,
            clamped=constant is not None or turns,
            changed=True in self._signs[g + 1] or g + 1 in self._joined,
            places=self._store([[[float(k)] for k in range(group.free, 0, -1)]], torch.float32),
            gives=next(
                ((self._sizes[s], 1) for s, w in enumerate(self._wishes) if s and w.alone == g),
                (len(self._moving[g]),),
            ),
        )

    def _gather(self, edges: list[Edge], shape: tuple[int, int]) -> _Gather:
        sources = tuple(sorted({self._where[n][0] for n, _ in edges}))
        offsets, total = _offsets(sources, {s: self._sizes[s] * len(self._signs[s]) for s in sources})
        index = []
        for number, negated in edges:
            s, row = self._where[number]
            index.append(offsets[s] + row + (self._sizes[s] if negated and len(self._signs[s]) == 2 else 0))
        if len(sources) > 1:
            self._joined |= set(sources)
        same = index == list(range(total))
        source = sources[0] if len(sources) == 1 else None
        return _Gather(source, sources, None if same else self._store(index, torch.int64), shape)

    def _collect(self) -> list[_Wishes]:
        wanted: list[list[list[tuple[int, int, bool]]]] = [[[] for _ in range(size)] for size in self._sizes]

        def wish(edges: list[Edge], giver: int) -> None:
            for position, (number, negated) in enumerate(edges):
                if not self.plan.constant[number]:
                    s, row = self._where[number]
                    wanted[s][row].append((giver, position, negated))

        wish(self.plan.roots, -1)
        for g, moving in enumerate(self._moving):
            wish(moving, g)
        lengths = {-1: len(self.plan.roots)} | {g: len(moving) for g, moving in enumerate(self._moving)}
        return [self._tables(rows, lengths) for rows in wanted]

    def _tables(self, rows: list[list[tuple[int, int, bool]]], lengths: dict[int, int]) -> _Wishes:
        givers = tuple(sorted({giver for row in rows for giver, _, _ in row}))
        offsets, total = _offsets(givers, lengths)
        widest = max((len(row) for row in rows), default=0)
        wishes = sum(len(row) for row in rows)
        if len(rows) * widest <= _WASTE * wishes + 1024:
            classes = {widest: list(range(len(rows)))} if widest else {}
        else:  # widths 1, 2, 4, ...: at most twice the wishes there are
            classes = {}
            for r, row in enumerate(rows):
                classes.setdefault(1 << max(len(row) - 1, 0).bit_length(), []).append(r)
        buckets = []
        for width, members in classes.items():
            table, signs = [], []
            for r in members:
                spare = width - len(rows[r])  # any wish, counted for nothing
                table += [offsets[giver] + at for giver, at, _ in rows[r]] + [0] * spare
                signs += [[-1.0 if negated else 1.0] for _, _, negated in rows[r]] + [[0.0]] * spare
            index = None if table == list(range(total)) else self._store(table, torch.int64)
            sign = None if all(s == [1.0] for s in signs) else self._store(signs, torch.float32)
            buckets.append(_Bucket(index, sign, len(members), width))
        places = [r for members in classes.values() for r in members]
        order = None
        if places != list(range(len(rows))) and places:
            order = self._store(sorted(range(len(rows)), key=places.__getitem__), torch.int64)
        return _Wishes(givers, tuple(buckets), order)

    # -- running ----------------------------------------------------------------------------------------------------

    # Small batches take as long as Python takes between operations. So buffers are looked up past nn.Module's search
    # for attributes, shapes are tuples (torch.Size takes longer to read), and what is known of a group is in its step.

    def _index(self, name: str) -> Tensor:
        return cast(Tensor, self._buffers[name])

    def _pick_rows(self, gather: _Gather, literals: list[Tensor], batch: tuple[int, ...]) -> Tensor:
        source, index, shape = gather.source, gather.index, gather.shape
        rows = torch.cat([literals[s] for s in gather.sources]) if source is None else literals[source]
        if index is not None:
            rows = rows.index_select(0, cast(Tensor, self._buffers[index]))
        return rows if shape is None else rows.view(*shape, *batch)

    def _literals(self, values: Tensor, source: int) -> Tensor:
        if source and source in self._joined:
            values = values.squeeze(1)
        signs = self._signs[source]
        if True not in signs:
            return values
        negated = ONE - values
        return torch.cat((values, negated)) if len(signs) == 2 else negated

    def evaluate(self, x: Tensor) -> State:
        """The upward pass: ``x`` is (atoms, *batch)."""
        batch = tuple(x.shape[1:])
        if self.plan.has_true:
            x = torch.cat([x, torch.ones_like(x[:1])]) if x.shape[0] else x.new_ones(1, *batch)
        literals = [self._literals(x, 0)]
        groups = []
        for g, step in enumerate(self._steps, 1):
            t = self._pick_rows(step.free, literals, batch)
            c = None if step.constant is None else self._pick_rows(step.constant, literals, batch)
            value, aux = step.refinement.forward(t, c, 1)
            literals.append(self._literals(value, g) if step.changed else value)
            groups.append((t, c, value, aux))
        return State(self._pick_rows(self._root_gather, literals, batch), groups, batch)

    def _combined(self, wishes: _Wishes, given: dict[int, Tensor], batch: tuple[int, ...], pick: Pick) -> Tensor:
        """The change of each row of a source, from the wishes for it."""
        givers = wishes.givers
        rows = given[givers[0]] if len(givers) == 1 else torch.cat([given[giver] for giver in givers])
        changes = []
        for bucket in wishes.buckets:
            own = rows if bucket.table is None else rows.index_select(0, self._index(bucket.table))
            if bucket.signs is not None:
                signs = self._index(bucket.signs)
                own = own * (signs if len(batch) == 1 else signs.view(-1, *[1] * len(batch)))
            if bucket.width > 1:
                own = self.combine(own.view(bucket.rows, bucket.width, *batch), pick)
            changes.append(own)
        change = changes[0] if len(changes) == 1 else torch.cat(changes)
        return change if wishes.order is None else change.index_select(0, self._index(wishes.order))

    def refine(self, x: Tensor, state: State, goal: Tensor, pick: Pick, goals: list[Tensor] | None = None) -> Tensor:
        """The downward pass: the change of x towards ``goal``, the wanted truth of formulas, (formulas, 1, *batch).

        ``goals``, if given, collects the goal of each node, group by group from the last to the first.
        """
        roots, groups, batch = state
        given = {-1: (goal - roots).squeeze(1)} if self._asks_formulas else {}
        for g, step in self._downwards:
            value = groups[g][2]
            change = wanted = None
            if step.moves:
                alone = step.alone
                if alone == -1:
                    wanted = goal
                elif alone is not None:
                    change = given[alone]
                elif step.wishes.buckets:
                    change = self._combined(step.wishes, given, batch, pick).unsqueeze(1)
                else:
                    change = torch.zeros_like(value)
                given[g] = self._delta(step, groups[g], wanted, change, pick).reshape(*step.gives, *batch)
            if goals is not None:
                goals.append(wanted if wanted is not None else value if change is None else value + change)
        wishes = self._wishes[0]
        change = self._combined(wishes, given, batch, pick) if wishes.buckets else torch.zeros_like(x)
        return change[: x.shape[0]] if self.plan.has_true else change

    def _delta(self, step: _Step, found: Found, wanted: Tensor | None, change: Tensor | None, pick: Pick) -> Tensor:
        """What a group asks of its arguments, given its target or the change of its truth."""
        rho = step.refinement
        t, c, value, aux = found
        if wanted is None:
            assert change is not None
            if step.lifted:
                if step.wishes.givers[0] == -1:  # a formula that is true may be asked to fall by a rounding
                    change = torch.relu(change)
                rise = rho.rise(t, aux, change, 1, pick)
                if rise is not None:
                    return rise
            wanted = value + change
        if step.implication is not None:
            fixed = step.fixed
            a, b = step.implication.change(t.narrow(1, 0, 1), t.narrow(1, 1, 1), value, wanted, fixed)
            return torch.cat([a, b], 1) if fixed is None else b if fixed == "antecedent" else a
        if step.clamped:
            wanted = rho.clamp(wanted, c, 1)
        places = self._index(step.places) if t.dim() == 3 else None
        return rho.delta(Case(t, c, value, aux, wanted, 1, pick, step.direction, places))


def _offsets(parts: tuple[int, ...], lengths: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Where each part starts when they are put one after the other, and how long they are together."""
    offsets, total = {}, 0
    for part in parts:
        offsets[part] = total
        total += lengths[part]
    return offsets, total


@torch.no_grad()
def explain(engine: Engine, formulas: Iterable[Expr], now: Tensor, state: State, wanted: Tensor, pick: Pick) -> str:
    """Each subformula, its truth and its target, children first."""
    goals: list[Tensor] = []
    change = engine.refine(now, state, wanted, pick, goals)
    truth = [now, *(value.squeeze(1) for _, _, value, _ in state.groups)]
    target_of = [(now + change).clamp(0, 1), *(goal.squeeze(1) for goal in reversed(goals))]
    lines: list[tuple[str, float, float]] = []
    for node in dict.fromkeys(subformulas(*formulas)):
        number, negated = engine.plan.place[id(node)]
        source, row = engine._where[number]
        if number == len(engine.plan.atoms):  # the constant `true`
            before = after = torch.tensor(1.0)
        else:
            before, after = truth[source][row], target_of[source][row]
        signed = [float(1 - v if negated else v) for v in (before, after)]
        lines.append((str(node), signed[0], signed[1]))
    width = max(len(text) for text, _, _ in lines)
    shown = [f"{'':<{width}}  {'truth':>6}      {'target':>6}"]
    for text, before_, after_ in lines:
        arrow = "->" if abs(after_ - before_) > 1e-9 else "  "
        shown.append(f"{text:<{width}}  {before_:6.4f}  {arrow}  {after_:6.4f}")
    return "\n".join(shown)
