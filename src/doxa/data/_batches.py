"""Rows of data in memory: splits that are the same on every machine, batches in an order that can be continued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import index
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from doxa.data._mapped import Mapped
from doxa.errors import ConfigError, DataError
from doxa.logic import Ragged


def columns_of(data: Any, name: str = "") -> dict[str, Any]:
    """The columns by name; those of a dict in a dict have a dot in theirs.

    >>> columns_of({"pairs": {"left": torch.zeros(2), "names": ["a", "b"]}})
    {'pairs.left': tensor([0., 0.]), 'pairs.names': ['a', 'b']}
    """
    if not isinstance(data, Mapping | tuple):
        return {name: data}
    items = data.items() if isinstance(data, Mapping) else enumerate(data)
    return {k: v for key, part in items for k, v in columns_of(part, f"{name}.{key}".lstrip(".")).items()}


def count_rows(data: Any, what: str = "data") -> int:
    """How many rows there are; an error if the columns differ in that, or are not columns."""
    sizes = {}
    for name, column in columns_of(data).items():
        shown = f"{what}[{name!r}]" if name else what
        if not isinstance(column, Tensor | Ragged | Mapped | list) or (isinstance(column, Tensor) and column.ndim == 0):
            kind = "a tensor without rows" if isinstance(column, Tensor) else type(column).__name__
            raise DataError(
                f"{shown} is {kind}, expected a tensor, a Ragged, a Mapped or a list with one entry for each row"
            )
        sizes[name] = len(column)
    if not sizes:
        raise DataError(f"{what} is empty, expected one column or more")
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise DataError(f"{what} have different numbers of rows ({listed}), expected one number for all")
    return next(iter(sizes.values()))


def device_of(data: Any) -> torch.device:
    """Where the tensors are; the CPU if there are none. An error if they are in different places."""
    devices = {name: c.device for name, c in columns_of(data).items() if isinstance(c, Tensor | Ragged)}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name}: {device}" for name, device in devices.items())
        raise DataError(f"the columns are on different devices ({listed}): move them to one device")
    return next(iter(devices.values()), torch.device("cpu"))


def take_rows(data: Any, rows: Tensor | slice) -> Any:
    """Some rows of every column, in the same form.

    >>> take_rows({"x": torch.arange(3), "objects": Ragged(torch.arange(3), [2, 0, 1])}, slice(1, 3))
    {'x': tensor([1, 2]), 'objects': Ragged(2 rows, 1 objects of shape ())}
    """

    def some(column: Any) -> Any:
        if isinstance(column, list):
            return column[rows] if isinstance(rows, slice) else [column[i] for i in rows.tolist()]
        if isinstance(column, Mapped):
            return column[rows]
        if isinstance(column, Tensor) and isinstance(rows, Tensor):
            return column.index_select(0, rows.to(column.device))  # copies whole rows, faster than column[rows]
        return column[rows.to(column.device) if isinstance(rows, Tensor) else rows]

    return map_columns(some, data)


def move_columns(data: Any, device: torch.device) -> Any:
    """The same data on a device; what is no tensor stays as it is."""
    return map_columns(lambda c: c.to(device) if isinstance(c, Tensor | Ragged) else c, data)


def map_columns(function: Callable[[Any], Any], data: Any) -> Any:
    """A function of every column, in the same form."""
    if isinstance(data, Mapping):
        return {name: map_columns(function, part) for name, part in data.items()}
    if isinstance(data, tuple):
        return tuple([map_columns(function, part) for part in data])
    return function(data)


Batch = TypeVar("Batch", bound="tuple[Any, ...] | dict[str, Any]")

_SEEDS = 2**63 - 1


def _seed(given: Any, bits: int) -> int:
    """A seed as a whole number; an error unless it is one, of so many bits."""
    try:
        seed = -1 if isinstance(given, bool) else index(given)
    except TypeError:
        seed = -1
    if not 0 <= seed < 2**bits:
        raise ConfigError(f"seed is {given!r}, expected 0 .. 2**{bits} - 1, a whole number")
    return seed


def split_indices(n: int, *sizes: int, seed: int) -> tuple[Tensor, ...]:
    """Shuffle 0..n-1 and cut the result into pieces of the given sizes, and the rest.

    The shuffle is that of ``numpy.random.seed(seed)`` and ``numpy.random.shuffle``, which NumPy has frozen: published
    splits made in this way can be had again. NumPy's global state is left alone.

    Args:
        n: how many indices there are.
        sizes: how many each piece takes; whatever is left makes the last piece, which may be empty.
        seed: 0 .. 2**32 - 1.

    Returns:
        ``len(sizes) + 1`` int64 tensors that hold every index once.

    >>> split_indices(6, 3, 2, seed=1)
    (tensor([2, 1, 4]), tensor([0, 3]), tensor([5]))
    """
    if n < 0 or min(sizes, default=0) < 0 or sum(sizes) > n:
        raise ConfigError(f"{n} indices cannot be cut into {sizes}: that asks for {sum(sizes)}, in pieces of 0 or more")
    order = np.random.RandomState(_seed(seed, 32)).permutation(n)
    return torch.split(torch.from_numpy(order.astype(np.int64)), [*sizes, n - sum(sizes)])


class Batches(Generic[Batch]):
    """Rows of data, batch by batch; every epoch in a new order.

    The order of an epoch is a function of two numbers, π = π(seed, epoch), and batch k holds the rows
    π[k·b], …, π[k·b + b - 1] of each column. So three small numbers say where the data stand, for `state_dict`.
    A ``for`` loop runs to the end of the current epoch, or for ever with ``endless=True``; it begins where the last one
    stopped. Each batch is a copy, on the device of the data; the order does not depend on the device.

    Args:
        data: columns with the same number of rows: tensors (first axis), `Mapped` files, `doxa.Ragged` structures and
            lists, on one device, in a tuple or a dict that may hold further ones; batches come in the same form.
        batch_size: rows in a batch; the last one of an epoch may have fewer.
        shuffle: False takes the rows in the order they have.
        seed: 0 or more, fixes the order.
        generator: draws the seed, where none is given; otherwise torch's own does.
        drop_last: leave out a last batch that would have fewer rows.
        endless: go on with the next epoch instead of stopping.

    >>> batches = Batches((torch.arange(5), 10 * torch.arange(5)), 2, seed=0)
    >>> for x, y in batches:
    ...     print(x.tolist(), y.tolist())
    [1, 3] [10, 30]
    [0, 4] [0, 40]
    [2] [20]
    >>> batches.state_dict()
    {'seed': 0, 'epoch': 1, 'batch': 0, 'rows': 5, 'batch_size': 2, 'shuffle': True, 'drop_last': False}
    """

    def __init__(
        self,
        data: Batch,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        drop_last: bool = False,
        endless: bool = False,
    ) -> None:
        if not isinstance(data, tuple | dict):
            raise DataError(f"data is {type(data).__name__}, expected a tuple or dict of columns")
        self._data, self._rows, self._device = data, count_rows(data), device_of(data)
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size!r}, expected a whole number of 1 or more")
        if seed is not None and generator is not None:
            raise ConfigError("seed and generator both say how to shuffle: give one of them")
        if seed is None:
            device = generator.device if generator is not None else None
            seed = int(torch.randint(_SEEDS, (), generator=generator, device=device)) if shuffle else 0
        self._batch_size, self._shuffle, self._drop_last, self._endless = batch_size, shuffle, drop_last, endless
        self._batches = self._rows // batch_size if drop_last else -(-self._rows // batch_size)
        if not self._batches:
            remedy = "lower batch_size or leave drop_last off" if self._rows else "is the selection empty?"
            raise DataError(f"{self._rows} rows make no batch of {batch_size}: {remedy}")
        self._seed, self._epoch, self._batch = _seed(seed, 63), 0, 0
        self._order: tuple[Tensor, ...] = ()  # the rows of every batch of this epoch; made when first needed

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0; equally, how many epochs are complete."""
        return self._epoch

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        epoch = self._epoch
        while self._endless or self._epoch == epoch:
            yield self.next()

    def next(self) -> Batch:
        """The next batch, of the next epoch if this one is over.

        >>> batches = Batches({"x": torch.arange(3)}, 2, shuffle=False)
        >>> [batches.next()["x"].tolist() for _ in range(3)]
        [[0, 1], [2], [0, 1]]
        """
        if not self._order:
            self._order = self._draw()
        rows = self._order[self._batch]
        # advanced before the batch is handed out: a state saved while it is used continues with the one after it
        self._batch += 1
        if self._batch == self._batches:
            self._epoch, self._batch, self._order = self._epoch + 1, 0, ()
        batch: Batch = take_rows(self._data, rows)
        return batch

    def state_dict(self) -> dict[str, int | bool]:
        """Where the data stand, in numbers that fit in a JSON file.

        >>> batches = Batches((torch.arange(9),), 2, seed=4)
        >>> _ = batches.next()
        >>> saved = batches.state_dict()
        >>> expected = batches.next()
        >>> again = Batches((torch.arange(9),), 2)
        >>> again.load_state_dict(saved)
        >>> bool((again.next()[0] == expected[0]).all())
        True
        """
        names = ("seed", "epoch", "batch", "rows", "batch_size", "shuffle", "drop_last")
        return {name: getattr(self, f"_{name}") for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was taken, its seed included, with the same rows, batch size and other settings.

        >>> batches = Batches((torch.arange(9),), 2)
        >>> batches.load_state_dict(Batches((torch.arange(9),), 3).state_dict())
        Traceback (most recent call last):
        doxa.errors.DataError: the saved data order has batch_size 3, these batches have 2: they cannot continue it
        """
        mine = self.state_dict()
        if state.keys() != mine.keys():
            raise DataError(f"a saved data order has the keys {', '.join(mine)}; got {', '.join(state) or 'none'}")
        for key in ("rows", "batch_size", "shuffle", "drop_last"):
            if state[key] != mine[key]:
                fault = f"the saved data order has {key} {state[key]}, these batches have {mine[key]}"
                raise DataError(f"{fault}: they cannot continue it")
        for key, end in (("seed", _SEEDS), ("epoch", _SEEDS), ("batch", self._batches - 1)):
            value = state[key]
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= end:
                raise DataError(f"the saved data order has {key} {value!r}, expected a whole number from 0 to {end}")
        self._seed, self._epoch, self._batch = state["seed"], state["epoch"], state["batch"]
        self._order = ()

    def _draw(self) -> tuple[Tensor, ...]:
        if self._shuffle:
            # SeedSequence mixes the two numbers well: neighbouring seeds and epochs share nothing
            mixed = int(np.random.SeedSequence((self._seed, self._epoch)).generate_state(1, np.uint64)[0]) & _SEEDS
            order = torch.randperm(self._rows, generator=torch.Generator().manual_seed(mixed))
        else:
            order = torch.arange(self._rows)
        return torch.split(order.to(self._device), self._batch_size)
