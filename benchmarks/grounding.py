"""Grounding against hand-written tensor code: time, memory, and structures of different sizes without padding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from doxa.logic import Interpretation, Ragged, logits, parse, truth
from doxa.logic.tensor._plan import TensorPlan
from harness import Row, compare

RULES = parse("""
    sort P
    pred r(P, P)
    [transitive] forall x, y, z: P. r(x, y) & r(y, z) -> r(x, z)
    [guarded]    forall x, y: P where r(x, y). r(y, x)
""")
SCENES = parse("""
    sort Object
    data scenes(objects: Object*)
    pred left(Object, Object)
    [transitive] forall s in scenes. forall x, y, z in s.objects. left(x, y) & left(y, z) -> left(x, z)
""")


class Peak(TorchDispatchMode):
    """The largest tensor made, in elements, and the most bytes alive at once in tensors made meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.bytes = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor) and t.untyped_storage()._cdata not in given:
                storage = t.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
                self.largest = max(self.largest, storage.nbytes() // t.itemsize)
        self._alive = {key: kept for key, kept in self._alive.items() if not kept[0].expired()}
        self.bytes = max(self.bytes, sum([size for _, size in self._alive.values()]))
        return out


def peak(function: Callable[[], object]) -> Peak:
    with Peak() as mode:
        function()
    return mode


def relation(n: int) -> Tensor:
    return torch.rand(n, n, generator=torch.Generator().manual_seed(n)) < 0.1


def transitive(n: int) -> Row:
    r = relation(n)
    world = Interpretation(RULES, r=r)
    rule = RULES["transitive"]

    def ours() -> Tensor:
        return truth(rule, world, P=n)

    def by_hand() -> Tensor:
        return (~(r[:, :, None] & r[None, :, :]) | r[:, None, :]).all()

    assert ours() == by_hand()
    return compare(f"transitive rule over {n} objects, against tensor code", ours, by_hand, goal=1.5, better="lower")


def guarded(n: int) -> Row:
    """A guard that passes a tenth of all pairs."""
    r = relation(n)
    world = Interpretation(RULES, r=r)
    rule = RULES["guarded"]

    def by_hand() -> Tensor:
        x, y = r.nonzero(as_tuple=True)
        return r[y, x].all()

    assert truth(rule, world, P=n) == by_hand()
    name = f"guard passing 10 % of {n}² pairs, against an index list by hand"
    return compare(name, lambda: truth(rule, world, P=n), by_hand, goal=1.5, better="lower")


def memory(n: int, chunk: int) -> list[Row]:
    r = relation(n)
    plan = TensorPlan(RULES["transitive"], Interpretation(RULES, r=r), chunk=chunk)
    plan(P=n)
    ours = peak(lambda: plan(P=n))
    hand = peak(lambda: (~(r[:, :, None] & r[None, :, :]) | r[:, None, :]).all())
    what = f"transitive rule over {n} objects in chunks of {chunk} elements"
    return [
        Row(f"{what}: largest tensor / chunk", ours.largest / chunk, 1.0, "lower"),
        Row(f"{what}: bytes alive, against tensor code", ours.bytes / hand.bytes, 0.2, "lower", note=f"{ours.bytes} B"),
    ]


class Left(nn.Module):
    """Which of two objects is further left, from their features."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return ((x @ self.weight) * y).sum(-1)


def structures(count: int, largest: int) -> list[Row]:
    """Scenes of different sizes, most of them small: one list of triples against filling up to the largest scene."""
    g = torch.Generator().manual_seed(1)
    lengths = (2 + torch.empty(count).exponential_(0.3, generator=g)).long().clamp(max=largest)
    lengths[0] = largest
    objects = torch.randn(int(lengths.sum()), 8, generator=g)
    left = Left(8)
    world = Interpretation(SCENES, left=logits(left))
    batch = {"objects": Ragged(objects, lengths)}
    rule = SCENES["transitive"]
    filled = torch.zeros(count, largest, 8)
    there = torch.arange(largest) < lengths[:, None]
    filled[there] = objects

    def ours() -> Tensor:
        return truth(rule, world, scenes=batch)

    @torch.no_grad()
    def padded() -> Tensor:
        x = filled[:, :, None].expand(-1, -1, largest, -1)
        y = filled[:, None].expand(-1, largest, -1, -1)
        r = left(x, y) > 0
        valid = there[:, :, None, None] & there[:, None, :, None] & there[:, None, None, :]
        return (~valid | ~(r[:, :, :, None] & r[:, None]) | r[:, :, None]).all()

    assert ours() == padded()
    share = int((lengths**3).sum()) / (count * largest**3)
    name = f"{count} scenes of 2..{largest} objects, against padding"
    memory = peak(ours).bytes / peak(padded).bytes
    return [
        compare(f"{name}: time", ours, padded, goal=1.0, better="lower", note=f"{share:.1%} of the padded triples"),
        Row(f"{name}: bytes alive", memory, 1.0, "lower"),
    ]


def rows() -> list[Row]:
    """All measurements."""
    measured = [transitive(n) for n in (50, 100, 200)]
    measured.append(guarded(1024))
    measured += memory(200, 2**18)
    measured += structures(300, 24)
    measured += structures(300, 48)
    return measured


if __name__ == "__main__":
    from harness import main

    main(__file__, rows)
