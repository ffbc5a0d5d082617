from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from doxa.data import Batches
from doxa.errors import BindingError, ConfigError, DataError
from doxa.logic import Ragged

choices = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 9),
        "shuffle": st.booleans(),
        "seed": st.integers(0, 2**63 - 1),
        "drop_last": st.booleans(),
    }
)


def rows(n: int) -> tuple[Tensor, Tensor]:
    x = torch.arange(n)
    return x, torch.stack([x * 10, x * 10 + 1], dim=1)


@settings(deadline=None)
@given(n=st.integers(9, 40), options=choices)
def test_every_row_once_an_epoch(n: int, options: dict[str, int]) -> None:
    batches = Batches(rows(n), **options)  # type: ignore[arg-type]
    for epoch in range(3):
        assert batches.epoch == epoch
        came = list(batches)
        assert len(came) == len(batches)
        for x, y in came:
            assert torch.equal(y[:, 0], 10 * x)
            assert torch.equal(y[:, 1], 10 * x + 1)
        sizes = [len(x) for x, _ in came]
        full, left = divmod(n, options["batch_size"])
        assert sizes == [options["batch_size"]] * full + ([left] if left and not options["drop_last"] else [])
        seen = torch.cat([x for x, _ in came]).tolist()
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(range(n))
        if not options["shuffle"]:
            assert seen == list(range(len(seen)))


@settings(deadline=None)
@given(n=st.integers(9, 20), options=choices, before=st.integers(0, 30), later=st.integers(1, 30))
def test_resumes_exactly_at_any_batch(n: int, options: dict[str, int], before: int, later: int) -> None:
    batches = Batches(rows(n), endless=True, **options)  # type: ignore[arg-type]
    for _ in itertools.islice(batches, before):
        pass
    saved = json.loads(json.dumps(batches.state_dict()))
    assert len(json.dumps(saved)) < 200
    expected = [x.tolist() for x, _ in itertools.islice(batches, later)]
    again = Batches(rows(n), endless=True, **(options | {"seed": 0}))  # type: ignore[arg-type]
    again.next()  # what it did before does not matter
    again.load_state_dict(saved)
    assert again.state_dict() == saved
    assert [x.tolist() for x, _ in itertools.islice(again, later)] == expected
    assert again.state_dict() == batches.state_dict()


def test_a_training_loop_killed_anywhere_sees_the_same_batches() -> None:
    def train(batches: Batches[tuple[Tensor, ...]], saved: list[dict[str, int | bool]]) -> list[list[int]]:
        seen = []
        for _ in range(batches.epoch, 3):
            for x, _ in batches:
                seen.append(x.tolist())
                saved.append(batches.state_dict())
        return seen

    states: list[dict[str, int | bool]] = []
    whole = train(Batches(rows(10), 4, seed=7), states)
    assert len(whole) == 9
    for killed, state in enumerate(states, 1):
        resumed = Batches(rows(10), 4, seed=8)
        resumed.load_state_dict(state)
        assert train(resumed, []) == whole[killed:]


def order(**options: object) -> list[list[int]]:
    batches = Batches((torch.arange(1000),), 1000, **options)  # type: ignore[arg-type]
    return [batches.next()[0].tolist() for _ in range(3)]


def test_orders_are_fixed_by_the_seed_and_otherwise_unlike() -> None:
    assert order(seed=5) == order(seed=5)
    epochs = [epoch for seed in range(5) for epoch in order(seed=seed)]
    for a, b in itertools.combinations(epochs, 2):
        # rows at the same place in two orders: Poisson with mean 1, more than 12 has probability 6e-11
        assert sum(i == j for i, j in zip(a, b, strict=True)) <= 12


def test_every_order_is_as_likely() -> None:
    """3! orders over 6000 epochs: chi-squared with 5 degrees of freedom exceeds 30 with probability 1.5e-5."""
    batches = Batches((torch.arange(3),), 3, seed=11)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        key = tuple(batches.next()[0].tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 6
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 30


def test_the_seed_may_come_from_a_generator() -> None:
    first, second = (torch.Generator().manual_seed(3) for _ in range(2))
    assert order(generator=first) == order(generator=second)
    assert order(generator=first) != order(generator=torch.Generator().manual_seed(3))  # it has moved on
    before = torch.random.get_rng_state()
    order(seed=1)
    order(generator=first)
    order(shuffle=False)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        drawn = order()
        torch.manual_seed(9)
        assert order() == drawn


def test_dicts_stay_dicts_and_batches_are_copies() -> None:
    data = {"image": torch.zeros(5, 2, 2), "label": torch.arange(5)}
    for shuffle in (True, False):
        batch = Batches(data, 3, shuffle=shuffle).next()
        assert list(batch) == ["image", "label"]
        assert batch["image"].shape == (3, 2, 2)
        batch["image"].fill_(1)
        batch["label"].fill_(9)
    assert data["image"].sum() == 0
    assert data["label"].tolist() == [0, 1, 2, 3, 4]


def test_leaving_a_loop_and_coming_back() -> None:
    batches = Batches(rows(10), 3, seed=0)
    seen = [x for x, _ in itertools.islice(batches, 2)] + [x for x, _ in batches]
    assert sorted(torch.cat(seen).tolist()) == list(range(10))
    assert batches.epoch == 1


def test_endless() -> None:
    assert [len(x) for x, _ in itertools.islice(Batches(rows(5), 2, endless=True), 8)] == [2, 2, 1, 2, 2, 1, 2, 2]


def test_on_another_device() -> None:
    x, y = Batches(tuple(tensor.to("meta") for tensor in rows(5)), 2).next()
    assert x.device.type == y.device.type == "meta"
    assert y.shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([torch.arange(3)], 2), {}, r"data is list, expected a tuple or dict"),
        ((torch.arange(3), 2), {}, r"data is Tensor, expected a tuple or dict"),
        (((), 2), {}, r"data is empty, expected one column or more"),
        (({"x": "ab"}, 2), {}, r"data\['x'\] is str, expected a tensor, a Ragged, a Mapped or a list"),
        (((torch.tensor(1),), 2), {}, r"data\['0'\] is a tensor without rows"),
        (({"x": torch.arange(3), "y": torch.arange(4)}, 2), {}, r"different numbers of rows \(x: 3, y: 4\)"),
        (((torch.arange(3), torch.arange(3, device="meta")), 2), {}, r"different devices \(0: cpu, 1: meta\)"),
        (((torch.zeros(0, 3),), 2), {}, r"0 rows make no batch of 2: is the selection empty\?"),
        (
            ((torch.arange(3),), 4),
            {"drop_last": True},
            r"3 rows make no batch of 4: lower batch_size or leave drop_last",
        ),
        (((torch.arange(3),), 0), {}, r"batch_size is 0, expected a whole number of 1 or more"),
        (((torch.arange(3),), 2.0), {}, r"batch_size is 2.0, expected a whole number"),
        (((torch.arange(3),), 2), {"seed": -1}, r"seed is -1, expected 0"),
        (((torch.arange(3),), 2), {"seed": "1"}, r"seed is '1', expected 0 .*, a whole number"),
        (((torch.arange(3),), 2), {"seed": 1.5}, r"seed is 1.5, expected 0"),
        (((torch.arange(3),), 2), {"seed": True}, r"seed is True, expected 0"),
        (((torch.arange(3),), 2), {"seed": 1, "generator": torch.Generator()}, r"give one of them"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], options: dict[str, object], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        Batches(*arguments, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 11}, r"has rows 11, these batches have 10"),
        ({"shuffle": False}, r"has shuffle False, these batches have True"),
        ({"drop_last": True}, r"has drop_last True, these batches have False"),
        ({"batch": 4}, r"has batch 4, expected a whole number from 0 to 3"),
        ({"epoch": -1}, r"has epoch -1, expected a whole number from 0"),
        ({"seed": "1"}, r"has seed '1', expected a whole number"),
        ({"sead": 1}, r"has the keys seed, epoch, .*; got seed, .*, sead"),
    ],
)
def test_bad_states(change: dict[str, object], message: str) -> None:
    batches = Batches(rows(10), 3, seed=1)
    before = batches.state_dict()
    with pytest.raises(DataError, match=message):
        batches.load_state_dict(before | change)
    with pytest.raises(DataError, match=r"got none"):
        batches.load_state_dict({})
    assert batches.state_dict() == before


def scenes(n: int) -> Ragged:
    """Scene i has i objects, all of them i."""
    return Ragged.cat([torch.full((i,), i) for i in range(n)])


def test_nested_data_with_ragged_columns_and_names() -> None:
    data = {"scenes": {"objects": scenes(7), "name": [f"scene {i}" for i in range(7)]}, "index": torch.arange(7)}
    batches, seen = Batches(data, 3, seed=1), []
    for batch in batches:
        rows = batch["index"].tolist()
        assert [part.tolist() for part in batch["scenes"]["objects"]] == [[i] * i for i in rows]
        assert batch["scenes"]["name"] == [f"scene {i}" for i in rows]
        seen += rows
    assert sorted(seen) == list(range(7))


def test_ragged_is_a_list_of_rows() -> None:
    ragged, rows = scenes(6), [torch.full((i,), i) for i in range(6)]
    assert all(torch.equal(a, b) for a, b in zip(ragged, rows, strict=True))
    assert (
        ragged[4].tolist() == [4] * 4 and ragged[-1].tolist() == [5] * 5 and ragged[torch.tensor(2)].tolist() == [2, 2]
    )
    chosen: list[Any] = [slice(1, 5, 2), slice(4, 4), [5, 0, 5], [], torch.tensor([3, 1]), torch.arange(6) % 2 == 0]
    for index in chosen:
        picked = torch.arange(6)[index if not isinstance(index, list) else torch.tensor(index, dtype=torch.int64)]
        assert [row.tolist() for row in ragged[index]] == [[i] * i for i in picked.tolist()]
    with pytest.raises(IndexError):
        ragged[6]
    again = pickle.loads(pickle.dumps(ragged))
    assert torch.equal(again.values, ragged.values) and torch.equal(again.lengths, ragged.lengths)
    assert ragged.to("meta").device.type == "meta"


@pytest.mark.parametrize("workers", [0, 1])
def test_ragged_rows_in_a_data_loader(workers: int) -> None:
    rows = [{"objects": scenes(5)[[i]], "label": i} for i in range(5)]
    loader: DataLoader[Any] = DataLoader(rows, batch_size=2, collate_fn=Ragged.collate, num_workers=workers)  # type: ignore[arg-type]
    found = list(loader)
    assert [batch["label"].tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    assert [batch["objects"].lengths.tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    with pytest.raises(BindingError, match=r"Ragged.cat\(\[objects\]\)"):
        Ragged.collate([(torch.zeros(2),), (torch.zeros(3),)])
