"""Batches of many small structures: quantifiers range inside each of them, by lists and never by padding."""

from __future__ import annotations

import pytest
import torch
from tests.logic.spies import Largest, Spy, generator
from torch import Tensor, nn

from doxa.errors import KnowledgeError
from doxa.logic import Interpretation, KnowledgeBase, Ragged, logits, parse, truth
from doxa.logic.tensor._plan import TensorPlan

SCENES = """
    sort Object
    sort Colour = {red, green}
    data scenes(objects: Object*, size: Int)
    pred left(Object, Object)
    func colour(Object) -> Colour
    [strict] forall s in scenes. forall x, y in s.objects. left(x, y) -> !left(y, x)
    [transitive] forall s in scenes. forall x, y, z in s.objects. left(x, y) & left(y, z) -> left(x, z)
    [some] forall s in scenes. exists x in s.objects. forall y in s.objects where x != y. left(x, y)
    [count] forall s in scenes. at least 2 x, y in s.objects where colour(x) != colour(y). left(x, y)
    [size] forall s in scenes. exactly 1 x in s.objects where s.size > 2. colour(x) = red
"""


def scenes(lengths: list[int], seed: int = 0) -> tuple[list[Tensor], Tensor]:
    g = generator(seed)
    return [torch.randn(n, 3, generator=g) for n in lengths], torch.randint(0, 5, (len(lengths),), generator=g)


def per_scene(kb: KnowledgeBase, world: Interpretation, parts: list[Tensor], size: Tensor) -> list[list[bool]]:
    """Each scene on its own: the loop that a ragged batch replaces."""
    out = []
    for objects, k in zip(parts, size, strict=True):
        batch = {"objects": Ragged(objects, [len(objects)]), "size": k[None]}
        out.append([truth(a, world, scenes=batch).item() for a in kb])
    return out


def padded(world_left: nn.Module, colour: nn.Module, parts: list[Tensor], size: Tensor) -> Tensor:
    """The same axioms on scenes filled up to the largest, with masks: (axioms, scenes)."""
    most = max([len(p) for p in parts])
    x = torch.zeros(len(parts), most, 3)
    there = torch.zeros(len(parts), most, dtype=torch.bool)
    for i, part in enumerate(parts):
        x[i, : len(part)], there[i, : len(part)] = part, True
    flat = [x[:, :, None].expand(-1, -1, most, -1), x[:, None].expand(-1, most, -1, -1)]
    left = (world_left(*[f.reshape(-1, 3) for f in flat]) > 0).view(len(parts), most, most)
    shade = colour(x.view(-1, 3)).argmax(-1).view(len(parts), most)
    two = there[:, :, None] & there[:, None]
    apart = ~torch.eye(most, dtype=torch.bool)
    strict = (~two | ~(left & left.mT)).flatten(1).all(1)
    three = two[:, :, :, None] & there[:, None, None]
    chain = left[:, :, :, None] & left[:, None]
    transitive = (~three | ~chain | left[:, :, None]).flatten(1).all(1)
    some = ((~(two & apart) | left).all(2) & there).any(1)
    count = (two & (shade[:, :, None] != shade[:, None]) & left).flatten(1).sum(1) >= 2
    exact = ((shade == 0) & there & (size > 2)[:, None]).sum(1) == 1
    return torch.stack([strict, transitive, some, count, exact])


@pytest.mark.parametrize("lengths", [[3, 1, 4, 0, 2], [1], [0, 0], [5, 5]])
@pytest.mark.parametrize("chunk", [1, 12, 2**22])
def test_ragged_equals_padded_equals_loop(lengths: list[int], chunk: int) -> None:
    kb = parse(SCENES)
    left, colour = Spy(6, 1), Spy(3, 2)
    world = Interpretation(kb, left=logits(left), colour=logits(colour))
    parts, size = scenes(lengths)
    batch = {"objects": Ragged.cat(parts), "size": size}
    got = torch.stack([truth(a, world, keep="s", chunk=chunk, scenes=batch) for a in kb])
    assert got.T.tolist() == per_scene(kb, world, parts, size)
    assert torch.equal(got, padded(left, colour, parts, size))
    assert TensorPlan(kb, world, chunk=chunk)(scenes=batch).tolist() == got.all(1).tolist()


def test_ragged_structures_are_never_padded_nor_mixed() -> None:
    """Networks see each object once, and of pairs only those inside one scene, each once."""
    kb = parse(SCENES)
    left, colour = Spy(6, 1), Spy(3, 2)
    world = Interpretation(kb, left=logits(left), colour=logits(colour))
    lengths = [30] + [2] * 20
    parts, size = scenes(lengths)
    with Largest() as largest:
        truth(kb, world, scenes={"objects": Ragged.cat(parts), "size": size})
    assert colour.shapes == [((70, 3),)]
    assert left.shapes == [((980, 3), (980, 3))], "30² + 20·2², for all axioms together"
    assert largest.elements <= 30**3 + 20 * 2**3, "not 21·30³"


def test_ragged_chunks_follow_the_lengths() -> None:
    kb = parse(SCENES)
    world = Interpretation(kb, left=lambda x, y: x[:, 0] < y[:, 0], colour=lambda x: (x[:, 0] > 0).long())
    lengths = [20] + [2] * 200
    parts, size = scenes(lengths)
    batch = {"objects": Ragged.cat(parts), "size": size}
    with Largest() as largest:
        assert truth(kb["transitive"], world, scenes=batch, chunk=20**3)
    assert largest.elements <= 20**3
    text = TensorPlan(kb["transitive"], world, chunk=20**3).explain(scenes=batch)
    assert "2 tiles" in text, text


def test_structures_by_index() -> None:
    """Ragged fields may hold indices into a sort that has data."""
    kb = parse("""
        sort Node
        data graphs(nodes: Node*, root: Node)
        pred edge(Node, Node)
        [tree] forall g in graphs. forall x in g.nodes where x != g.root. exactly 1 y in g.nodes. edge(y, x)
    """)
    edges = {(0, 1), (0, 2), (2, 3), (4, 5), (6, 5)}
    graphs = {"nodes": Ragged(torch.tensor([0, 1, 2, 3, 4, 5, 6]), [4, 3]), "root": torch.tensor([0, 4])}
    world = Interpretation(kb, edge=edges)
    assert truth(kb["tree"], world, keep="g", Node=7, graphs=graphs).tolist() == [True, False]


def test_equally_long_sequences_are_axes() -> None:
    kb = parse("""
        sort Digit = 0..9
        data numbers(digits: Digit*, parity: Int)
        [even] forall n in numbers. n.digits[2] mod 2 = n.parity
        [close] forall n in numbers. forall d, e in n.digits. d < e + 5
        [distinct] forall n in numbers. forall i: Digit, j: Digit where i < j & j < 3. n.digits[i] != n.digits[j]
    """)
    digits = torch.tensor([[1, 2, 3], [4, 4, 8]])
    batch = {"digits": digits, "parity": torch.tensor([1, 0])}
    world = Interpretation(kb)
    assert TensorPlan(kb["even"], world, keep="n")(numbers=batch).tolist() == [True, True]
    assert truth(kb["close"], world, numbers=batch)
    assert TensorPlan(kb["distinct"], world, keep="n")(numbers=batch).tolist() == [True, False]
    with pytest.raises(KnowledgeError, match=r"axiom 'even': n.digits\[2\]: index 2 lies outside"):
        truth(kb["even"], world, numbers={"digits": digits[:, :2], "parity": torch.tensor([1, 0])})
