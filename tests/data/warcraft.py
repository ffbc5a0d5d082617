"""Files in the layout of the Warcraft maps, for the tests of what reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from doxa.data import PathMaps


def write_warcraft(maps: PathMaps, folder: Path, split: str) -> None:
    """Three NumPy arrays for a split: maps, weights of the tiles, and cheapest paths."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = (maps.costs.double() / 10).float()
    arrays = {"maps": maps.images, "vertex_weights": weights, "shortest_paths": maps.paths}
    for name, tensor in arrays.items():
        np.save(folder / f"{split}_{name}.npy", tensor.numpy())
