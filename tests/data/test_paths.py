"""Path planning: maps that are hard to read by colour and easy by texture, their files, and what counts as right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.data.warcraft import write_warcraft
from torch import Tensor, nn

from doxa.data import PathMaps, map_tiles, optimal_paths, read_warcraft, terrain_maps
from doxa.data._paths import same_paths
from doxa.errors import ConfigError, DataError
from doxa.problem import cheapest_paths


def nearest_mean(features: Tensor, kinds: Tensor, others: Tensor) -> Tensor:
    means = torch.stack([features[kinds == k].mean(0) for k in range(5)])
    return torch.cdist(others, means).argmin(1)


@pytest.mark.parametrize("size", [12, 30])
def test_tiles_are_told_apart_by_texture_not_by_colour(size: int) -> None:
    some, more = (120, 30) if size == 12 else (20, 5)
    train, test = terrain_maps("train", some, size=size), terrain_maps("test", more, size=size)
    x, y = map_tiles(train.images).flatten(0, 1), train.kinds.flatten().long()
    unseen, truth = map_tiles(test.images).flatten(0, 1), test.kinds.flatten().long()
    by_pixels = (nearest_mean(x.flatten(1), y, unseen.flatten(1)) == truth).double().mean().item()
    by_colour = (nearest_mean(x.mean((2, 3)), y, unseen.mean((2, 3))) == truth).double().mean().item()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 84), nn.ReLU(), nn.Linear(84, 5)
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
        for _ in range(3):
            for rows in torch.randperm(len(y)).split(300):
                loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        by_network = (network(unseen).argmax(1) == truth).double().mean().item()
    print(f"\n{size}×{size} tiles: nearest mean {by_pixels:.3f}, mean colour {by_colour:.3f}, network {by_network:.3f}")
    assert by_pixels < 0.7
    assert by_colour < 0.7
    assert by_network > 0.97


def test_terrain() -> None:
    maps = terrain_maps("train", 40, size=12, seed=3)
    assert len(maps) == 40
    assert maps.images.shape == (40, 96, 96, 3) and maps.images.dtype == torch.uint8
    assert torch.bincount(maps.kinds.flatten().long(), minlength=5).min() > 0.05 * maps.kinds.numel()
    assert (maps.images == 0).double().mean() < 0.01 and (maps.images == 255).double().mean() < 0.01, "nothing clipped"
    assert torch.equal(maps.paths, cheapest_paths(maps.costs).cells)
    assert maps.paths[:, 0, 0].all() and maps.paths[:, -1, -1].all()
    beside = (maps.kinds[:, :, 1:] == maps.kinds[:, :, :-1]).double().mean()
    assert beside > 0.4, "terrain comes in regions; independent tiles would agree in a fifth of the cases"
    assert torch.equal(maps.problem()(maps.kinds.flatten(1).long()), maps.paths.flatten(1).long())
    straight = torch.eye(12, dtype=torch.uint8).expand_as(maps.paths)
    assert optimal_paths(straight, maps.costs).double().mean() < 0.1, "the diagonal is no answer"


def test_maps_depend_on_seed_split_and_number_alone() -> None:
    many = terrain_maps("train", 40, size=12, seed=3)
    few = terrain_maps("train", 21, size=12, seed=3)  # not a whole number of parts
    for name in ("images", "kinds", "paths"):
        assert torch.equal(getattr(few, name), getattr(many, name)[:21])
    for other in (terrain_maps("val", 40, size=12, seed=3), terrain_maps("train", 40, size=12, seed=4)):
        assert not torch.equal(other.kinds, many.kinds)
        assert (other.images == many.images).double().mean() < 0.1
    empty = terrain_maps("test", 0)
    assert len(empty) == 0 and empty.images.shape == (0, 96, 96, 3)


def test_the_order_of_tiles_and_pixels() -> None:
    images = torch.arange(2 * 16 * 24 * 3).remainder(256).to(torch.uint8).reshape(2, 16, 24, 3)
    tiles = map_tiles(images)
    assert tiles.shape == (2, 6, 3, 8, 8) and tiles.is_contiguous()
    for tile, row, column in [(0, 0, 0), (2, 0, 2), (3, 1, 0), (5, 1, 2)]:
        part = images[1, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        torch.testing.assert_close(tiles[1, tile], part.permute(2, 0, 1).float() / 127.5 - 1)


def test_optimal_and_same_paths() -> None:
    costs = torch.randint(1, 4, (200, 5, 6), generator=torch.Generator().manual_seed(0))
    paths = cheapest_paths(costs).cells
    assert optimal_paths(paths, costs).all() and same_paths(paths, paths).all()
    other = cheapest_paths(costs.flip(1, 2)).cells.flip(1, 2)  # ties are broken from the other end
    assert optimal_paths(other, costs).all()
    assert 0.1 < same_paths(other, paths).double().mean() < 0.9
    for corner in ((0, 0), (-1, -1)):
        short = paths.clone()
        short[:, corner[0], corner[1]] = 0  # no way from corner to corner
        assert not optimal_paths(short, costs).any()
    extra = paths.clone()
    extra.view(200, -1).scatter_(1, (extra.flatten(1) == 0).to(torch.uint8).argmax(1, keepdim=True), 1)
    assert not optimal_paths(extra, costs).any(), "one cell too many"
    # as cheap as the best path, but in pieces
    assert not optimal_paths(torch.tensor([[1, 1, 0, 1]]), torch.tensor([[1, 1, 5, 6]])).any()
    assert not optimal_paths(torch.tensor([[1, 1, 1], [1, 0, 1]]), torch.tensor([[1, 1, 1], [1, 9, 1]])).any()
    tenths = costs.double() / 10
    assert optimal_paths(other, tenths).all(), "rounding of decimal fractions is forgiven"
    with pytest.raises(DataError, match="expected the same"):
        optimal_paths(paths, costs[:1])
    with pytest.raises(DataError, match="expected"):
        same_paths(paths, paths[:1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_files_as_they_are_published(tmp_path: Path, dtype: Any) -> None:
    """Arrays written here by hand, with the names, shapes and costs of the published files."""
    random = np.random.default_rng(0)
    kinds = random.integers(5, size=(3, 12, 12))
    weights = np.array([0.8, 1.2, 5.3, 7.7, 9.2])[kinds]
    images = random.integers(256, size=(3, 96, 96, 3), dtype=np.uint8)
    paths = np.eye(12)[None].repeat(3, 0)
    folder = tmp_path / "12x12"
    folder.mkdir()
    np.save(folder / "val_maps.npy", images)
    np.save(folder / "val_vertex_weights.npy", weights.astype(dtype))
    np.save(folder / "val_shortest_paths.npy", paths)
    for maps in (read_warcraft(folder, "val"), read_warcraft(tmp_path, "val", size=12)):
        assert np.array_equal(maps.images.numpy(), images)
        assert np.array_equal(maps.kinds.numpy(), kinds)
        assert np.array_equal(maps.paths.numpy(), paths)
        assert np.allclose(maps.costs.numpy(), 10 * weights)


def test_written_maps_are_read_again(tmp_path: Path) -> None:
    maps = terrain_maps("test", 5, size=4)
    write_warcraft(maps, tmp_path, "test")
    again = read_warcraft(tmp_path, "test", size=4)
    for name in ("images", "kinds", "paths"):
        assert torch.equal(getattr(again, name), getattr(maps, name))


def test_bad_files(tmp_path: Path) -> None:
    maps = terrain_maps("train", 2, size=4)

    def broken(name: str, array: Any) -> str:
        write_warcraft(maps, tmp_path, "train")
        if array is not None:
            np.save(tmp_path / f"train_{name}.npy", array)
        with pytest.raises(DataError) as caught:
            read_warcraft(tmp_path, "train", size=4)
        return str(caught.value)

    weights = maps.costs.numpy() / 10
    assert "has the weight 3, expected one of 0.8, 1.2" in broken("vertex_weights", np.full_like(weights, 3))
    assert "has the weight nan" in broken("vertex_weights", np.full_like(weights, np.nan))
    assert "expected torch.uint8 (2, 32, 32, 3)" in broken("maps", maps.images.numpy()[:, :8])
    assert "is float64, expected uint8" in broken("maps", maps.images.numpy().astype(float))
    assert "other values than 0 and 1" in broken("shortest_paths", maps.paths.numpy() * 2)
    assert "paths are torch.uint8 (1, 4, 4)" in broken("shortest_paths", maps.paths.numpy()[:1])
    write_warcraft(maps, tmp_path, "train")
    with pytest.raises(DataError, match="expected maps of 12×12 tiles"):
        read_warcraft(tmp_path, "train", size=12)
    with pytest.raises(DataError, match=r"val_maps\.npy does not exist; expected the files"):
        read_warcraft(tmp_path, "val")
    (tmp_path / "train_maps.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="cannot be read"):
        read_warcraft(tmp_path, "train")


def test_bad_arguments() -> None:
    maps = terrain_maps("train", 2, size=4)
    with pytest.raises(ConfigError, match="split is 'validation'"):
        terrain_maps("validation", 2)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="n is -1"):
        terrain_maps("train", -1)
    with pytest.raises(DataError, match=r"expected torch\.uint8 \(n, 8H, 8W, 3\)"):
        map_tiles(maps.images[:, :30])
    with pytest.raises(DataError, match="kinds go up to 7"):
        PathMaps(maps.images, torch.full_like(maps.kinds, 7), maps.paths)
    with pytest.raises(DataError, match="paths go up to 2"):
        PathMaps(maps.images, maps.kinds, maps.paths + maps.paths)
