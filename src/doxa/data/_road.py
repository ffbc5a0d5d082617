"""ROAD-R: what is required of the labels of a road event."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from doxa.errors import DataError
from doxa.logic import CNF, Expr, propositions, read_dimacs

FILES = ("requirements_dimacs.txt", "requirements_readable.txt")


@dataclass(frozen=True)
class Requirements:
    """Clauses over labels, with a text for each.

    Args:
        labels: their names, in order of the variables.
        clauses: the requirements; its atoms are propositions named like the labels.
        texts: one for each clause, in words.

    >>> clauses = CNF.from_clauses([[-1, -2]], propositions("Red Green"))
    >>> print(Requirements(("Red", "Green"), clauses, ("not Red or not Green",)).formula)
    !Red | !Green
    """

    labels: tuple[str, ...]
    clauses: CNF
    texts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Requirements({len(self.texts)} requirements, {len(self.labels)} labels)"

    @property
    def formula(self) -> Expr:
        """All requirements together."""
        return self.clauses.formula()


def read_road(folder: str | Path) -> Requirements:
    """Read the requirements of ROAD-R: 243 clauses over 41 labels of road events, in DIMACS and in words.

    They are those of Giunchiglia, Stoian, Khan, Cuzzolin and Lukasiewicz 2022 ("ROAD-R: the autonomous driving dataset
    with logical requirements"), and lie beside its code. The names of the labels come from the words, in which clause i
    names the literals of clause i in the same order.

    Args:
        folder: has ``requirements_dimacs.txt`` and ``requirements_readable.txt``.

    Raises:
        DataError: with the file, what is wrong and what was expected.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / FILES[0]).write_text("p cnf 2 2\\n1 -2 0\\n-1 2 0")
    ...     _ = (Path(folder) / FILES[1]).write_text("Ped not PushObj\\nnot Ped PushObj")
    ...     road = read_road(folder)
    >>> road, road.labels, road.texts[0]
    (Requirements(2 requirements, 2 labels), ('Ped', 'PushObj'), 'Ped or not PushObj')
    """
    dimacs, readable = (Path(folder) / name for name in FILES)
    for file in (dimacs, readable):
        if not file.exists():
            raise DataError(f"{file} does not exist; expected the requirements of ROAD-R: {' and '.join(FILES)}")
    cnf = read_dimacs(dimacs)
    lines, quoted = [], False
    for line in readable.read_text(encoding="utf-8").splitlines():
        if line.count('"""') % 2:  # a text about the file
            quoted = not quoted
        elif line.strip() and not quoted and not line.strip().startswith('"""'):
            lines.append(line.strip())
    if len(lines) != len(cnf):
        raise DataError(f"{readable} has {len(lines)} requirements, {dimacs} {len(cnf)}; expected the same in both")
    names: dict[int, str] = {}
    texts = []
    for number, (line, clause) in enumerate(zip(lines, cnf, strict=True), 1):
        words = line.replace("not ", "-").split()
        signs = [-1 if word.startswith("-") else 1 for word in words]
        if [literal > 0 for literal in clause] != [sign > 0 for sign in signs]:
            raise DataError(f"requirement {number} is {clause} in {dimacs} and {line!r} in {readable}: they do not fit")
        for literal, word in zip(clause, words, strict=True):
            label, name = abs(literal), word.lstrip("-")
            if names.setdefault(label, name) != name:
                others = f"others call it {names[label]!r}; expected one name"
                raise DataError(f"requirement {number} of {readable} calls label {label} {name!r}, {others}")
        texts.append(" or ".join(word.replace("-", "not ") for word in words))
    labels = tuple(names.get(i, f"label_{i}") for i in range(1, cnf.variables + 1))
    if len({*labels}) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise DataError(f"{readable} calls two labels {twice!r}, expected a name for each")
    return Requirements(labels, CNF.from_clauses(list(cnf), propositions(" ".join(labels))), tuple(texts))
