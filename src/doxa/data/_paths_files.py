"""The files of the Warcraft maps (Vlastelica et al. 2020): three NumPy arrays for each split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from doxa.data._paths import TILE_COSTS, PathMaps
from doxa.data._paths_terrain import SPLITS, Split
from doxa.errors import ConfigError, DataError

FILES = ("maps", "vertex_weights", "shortest_paths")


def read_warcraft(folder: str | Path, split: Split, *, size: int | None = None) -> PathMaps:
    """Read the maps of a split from ``train_maps.npy``, ``train_vertex_weights.npy`` and ``train_shortest_paths.npy``.

    The weights 0.8, 1.2, 5.3, 7.7 and 9.2 are taken back to the kinds of tiles that they stand for.

    Args:
        folder: holds the files, or a folder such as ``12x12`` that holds them.
        split: ``"train"``, ``"val"`` or ``"test"``.
        size: tiles on a side; needed where the folder has sub-folders for several, and checked.

    Raises:
        DataError: with the file, what is wrong with it, and what was expected.

    >>> import tempfile
    >>> from doxa.data import terrain_maps
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_warcraft(terrain_maps("test", 4), folder, "test")
    ...     read_warcraft(folder, "test")
    PathMaps(4 maps of 12×12 tiles)
    """
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}, expected one of {', '.join(map(repr, SPLITS))}")
    place = Path(folder)
    if size is not None and (place / f"{size}x{size}").is_dir():
        place = place / f"{size}x{size}"
    images, weights, paths = (_array(place / f"{split}_{name}.npy") for name in FILES)
    prices = np.array(TILE_COSTS) / 10
    flat = weights.astype(np.float64).reshape(-1)
    kinds = np.searchsorted((prices[1:] + prices[:-1]) / 2, flat).astype(np.uint8)
    wrong = ~(np.abs(flat - prices[kinds]) < 0.02)  # the files may hold half precision
    if wrong.any():
        name = place / f"{split}_vertex_weights.npy"
        raise DataError(f"{name} has the weight {flat[wrong][0]:g}, expected one of {', '.join(map(str, prices))}")
    if images.dtype != np.uint8:
        raise DataError(f"{place / f'{split}_maps.npy'} is {images.dtype}, expected uint8 with colours 0 .. 255")
    if not ((paths == 0) | (paths == 1)).all():
        raise DataError(f"{place / f'{split}_shortest_paths.npy'} has other values than 0 and 1")
    try:
        maps = PathMaps(
            torch.from_numpy(images),
            torch.from_numpy(kinds.reshape(weights.shape)),
            torch.from_numpy(paths.astype(np.uint8)),
        )
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    if size is not None and tuple(maps.kinds.shape[1:]) != (size, size):
        raise DataError(f"{place} holds {maps}, expected maps of {size}×{size} tiles")
    return maps


def write_warcraft(maps: PathMaps, folder: str | Path, split: Split) -> None:
    """Write maps in the layout of the Warcraft files, for other programs and for `read_warcraft`.

    >>> import tempfile
    >>> from doxa.data import terrain_maps
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_warcraft(terrain_maps("val", 2), folder, "val")
    ...     sorted(file.name for file in Path(folder).iterdir())
    ['val_maps.npy', 'val_shortest_paths.npy', 'val_vertex_weights.npy']
    """
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}, expected one of {', '.join(map(repr, SPLITS))}")
    weights = (maps.costs.double() / 10).float()
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, tensor in zip(FILES, (maps.images, weights, maps.paths), strict=True):
        np.save(Path(folder) / f"{split}_{name}.npy", tensor.cpu().numpy())


def _array(file: Path) -> NDArray[np.generic]:
    try:
        found: NDArray[np.generic] = np.load(file, allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(
            f"{file} does not exist; expected the files of the Warcraft maps, such as train_maps.npy, "
            "train_vertex_weights.npy and train_shortest_paths.npy, or sub-folders such as 12x12 and size=12"
        ) from error
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{file} cannot be read as a NumPy array: {error}") from error
    return found
