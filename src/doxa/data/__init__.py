r"""Data and problems to try doxa on.

Data sets of this size belong in memory, as a few tensors; nothing here touches one item at a time. `MNIST` holds the
handwritten digits, found on disk or fetched once and kept, with checksums; `normalize` gives what networks are fed
with. Splits are the same on every machine (`split_indices`), and an interrupted run goes on with exactly the batch it
would have had next (`Batches`). `read_idx` and `write_idx` are the file format of MNIST.

A `digits_task` shows images of digits, each once, and tells what a function makes of them. Visual Sudoku tells of grids
of digits only whether they are correct (`visual_sudoku`, `sudoku_problem`). Path planning is learning what the tiles of
a map cost from the cheapest paths across it: `read_warcraft` reads the published maps where a user has them,
`terrain_maps` draws maps of the same layout. `draw_objects` and `draw_streets` draw coloured shapes and traffic lights,
`random_ksat` formulas as SATLIB's `uf` sets do.

Labels that obey rules come as a `LabelTable`, in three parts (`Splits`): hierarchical classification (`read_hmc`, from
ARFF files that `read_arff` reads), rankings of sushi (`read_preferences`), and shortest paths in a grid
(`read_grid_paths`). What is known of them is a `hierarchy`, `permutation_knowledge` or `path_knowledge`; `read_road`
reads the requirements of ROAD-R. These data are not ours: each reader takes a folder, and says where they come from.

>>> import torch
>>> digits = torch.randint(256, (100, 28, 28), dtype=torch.uint8)
>>> labels = torch.randint(10, (100,))
>>> mnist = MNIST(digits, labels, digits[:10], labels[:10])       # or MNIST.load(), for the real ones
>>> train, validation = mnist.split(80, seed=1)
>>> data = (mnist.images("train")[train], mnist.labels("train")[train])
>>> for x, y in Batches(data, 64, seed=0):
...     print(x.shape, y.shape)
torch.Size([64, 1, 28, 28]) torch.Size([64])
torch.Size([16, 1, 28, 28]) torch.Size([16])
"""

from doxa.data._batches import Batches, split_indices
from doxa.data._digits import DigitsTask, SudokuPuzzles, digits_task, is_sudoku, sudoku_problem, visual_sudoku
from doxa.data._drawn import draw_objects, draw_streets
from doxa.data._hmc import HMC, read_hmc
from doxa.data._ksat import ksat_instances, random_ksat
from doxa.data._mapped import Mapped
from doxa.data._mnist import MNIST, normalize, read_idx, write_idx
from doxa.data._paths import TILE_COSTS, PathMaps, map_tiles, optimal_paths, read_warcraft, terrain_maps
from doxa.data._road import Requirements, read_road
from doxa.data._structures import path_knowledge, permutation_knowledge, read_grid_paths, read_preferences
from doxa.data._tables import LabelTable, Splits, hierarchy, read_arff

__all__ = [
    "HMC",
    "MNIST",
    "TILE_COSTS",
    "Batches",
    "DigitsTask",
    "LabelTable",
    "Mapped",
    "PathMaps",
    "Requirements",
    "Splits",
    "SudokuPuzzles",
    "digits_task",
    "draw_objects",
    "draw_streets",
    "hierarchy",
    "is_sudoku",
    "ksat_instances",
    "map_tiles",
    "normalize",
    "optimal_paths",
    "path_knowledge",
    "permutation_knowledge",
    "random_ksat",
    "read_arff",
    "read_grid_paths",
    "read_hmc",
    "read_idx",
    "read_preferences",
    "read_road",
    "read_warcraft",
    "split_indices",
    "sudoku_problem",
    "terrain_maps",
    "visual_sudoku",
    "write_idx",
]
