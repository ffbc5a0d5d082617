"""Hierarchical multi-label classification: eight data sets of the field, from a folder with their ARFF files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from doxa.data._tables import Splits, hierarchy, read_arff
from doxa.errors import ConfigError

HMC_FILES = {
    **{name: tuple(f"{name}_FUN.{part}.arff" for part in ("train", "valid", "test"))
       for name in ("cellcycle", "derisi", "eisen", "gasch1", "seq")},
    "diatoms": ("Diatoms_train.arff", "Diatoms_test.arff"),
    "enron": ("Enron_corr_trainvalid.arff", "Enron_corr_test.arff"),
    "imclef07a": ("ImCLEF07A_Train.arff", "ImCLEF07A_Test.arff"),
}  # fmt: skip
"""The files of each set: train, valid and test, or train and test."""
HELD_OUT = 0.2
"""The share of train that is held out where a set has no validation part."""


@dataclass(frozen=True)
class HMC(Splits):
    """A set of hierarchical multi-label classification, in three parts.

    >>> from doxa.data import LabelTable
    >>> row = LabelTable(torch.zeros(1, 1), torch.ones(1, 2, dtype=torch.bool), ("x",), ("01", "01/02"))
    >>> HMC(row, row, row).hierarchy
    {'01/02': ['01']}
    """

    @property
    def hierarchy(self) -> dict[str, list[str]]:
        """For each label that is not at the top, the one above it: whoever has the label, has that too."""
        return hierarchy(self.train.label_names)


def read_hmc(folder: str | Path, name: str, *, last: bool = False) -> HMC:
    """Read one of the sets: cellcycle, derisi, eisen, gasch1, seq, diatoms, enron or imclef07a.

    The first five are genes of yeast with their functions in MIPS' FunCat (Vens et al. 2008, "Decision trees for
    hierarchical multi-label classification"; https://dtai.cs.kuleuven.be/clus/hmcdatasets/). Diatoms are microscope
    images of algae and ImCLEF07A X-ray images (Dimitrovski et al. 2011 and 2012), Enron is e-mail (Klimt and Yang
    2004). All are as used by Giunchiglia and Lukasiewicz 2020 ("Coherent hierarchical multi-label classification
    networks"), and lie beside the code of that paper. The last three have no validation part: a fifth of train is held
    out, the same rows each time; ``HMC.refit`` is all of it again.

    Enron's rows stand in an order: neighbours share words and labels, so that rows drawn at random have near doubles
    among the others, and a score on them is too good. The last rows say more about rows that are still to come.

    Args:
        folder: has the files, named as published, such as ``cellcycle_FUN.train.arff`` or ``Diatoms_train.arff``.
        name: which set.
        last: hold out the last fifth of a set without a validation part, not a random one.

    Raises:
        DataError: with the file, what is wrong with it, and what was expected.

    >>> read_hmc("nowhere", "enron")
    Traceback (most recent call last):
    doxa.errors.DataError: nowhere/Enron_corr_trainvalid.arff does not exist; expected a hierarchical ARFF file
    >>> read_hmc("nowhere", "yeast")
    Traceback (most recent call last):
    doxa.errors.ConfigError: name is 'yeast', expected one of cellcycle, derisi, eisen, gasch1, seq, diatoms, enron, ...
    """
    if name not in HMC_FILES:
        raise ConfigError(f"name is {name!r}, expected one of {', '.join(HMC_FILES)}")
    parts = [read_arff(Path(folder) / file) for file in HMC_FILES[name]]
    if len(parts) == 3:
        return HMC(*parts)
    rows = len(parts[0])
    order = torch.arange(rows) if last else torch.from_numpy(np.random.RandomState(0).permutation(rows))
    kept = round(len(order) * (1 - HELD_OUT))
    return HMC(parts[0][order[:kept]], parts[0][order[kept:]], parts[1])
