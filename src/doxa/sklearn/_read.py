"""Knowledge about labels in the forms in which people have it, read as a list of requirements."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from doxa.errors import DataError, KnowledgeError
from doxa.logic import CNF, And, Call, Expr, Implies, KnowledgeBase, Not, Or, Predicate, ground, load, parse
from doxa.logic import read_dimacs as dimacs
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._simplify import atoms_of, formulas
from doxa.logic.syntax._words import quote
from doxa.logic.unfold._propositional import Propositional


class Requirement(NamedTuple):
    """One thing that must hold: its text for people, and the formula."""

    text: str
    formula: Expr


@dataclass(frozen=True)
class Allowed:
    """All combinations of labels that may occur; every other one is forbidden.

    Args:
        combinations: each the set of labels that are true in it, or the truth of labels by name. Labels that no
            combination mentions are free; of the others, those that a set leaves out are false in it.

    >>> from doxa.sklearn import LabelKnowledge
    >>> day = LabelKnowledge(Allowed([{"sun"}, {"rain", "clouds"}, {"clouds"}]), ["sun", "rain", "clouds"])
    >>> day.constraint.models
    3
    """

    combinations: Sequence[Collection[str] | Mapping[str, bool]]


class Names:
    """The labels and the given features that knowledge may speak of, in order."""

    def __init__(self, labels: Sequence[str], features: Sequence[str] = ()) -> None:
        self.labels, self.features = tuple(labels), tuple(features)
        self.known = dict.fromkeys([*labels, *features])

    def atom(self, name: object) -> Expr:
        """The proposition of a name."""
        text = str(name)
        if text not in self.known:
            raise unknown([text], self.labels, self.features)
        return Call(text)


def unknown(found: Sequence[str], labels: Sequence[str], features: Sequence[str]) -> KnowledgeError:
    """The error for names that are neither labels nor features."""
    found = list(dict.fromkeys(found))
    listed = ", ".join(map(repr, found[:5])) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    hint = did_you_mean(found[0], [*labels, *features])
    if hint is None:
        shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
        hint = f"the labels are {shown}; rename a column, or take this out of the knowledge"
    which = "is neither a label of y nor a named feature" if len(found) == 1 else "are neither labels of y nor features"
    return KnowledgeError(f"the knowledge mentions {listed}, which {which} of X; {hint}")


def read(knowledge: Any, names: Names) -> list[Requirement]:
    """The requirements of knowledge in any form."""
    if knowledge is None:
        return []
    if isinstance(knowledge, tuple):  # several pieces, each in a form of its own
        return [requirement for piece in knowledge for requirement in read(piece, names)]
    for kind, reader in _READERS:
        if isinstance(knowledge, kind):
            return reader(knowledge, names)
    if hasattr(knowledge, "is_directed") and hasattr(knowledge, "edges"):  # a graph of networkx
        if not knowledge.is_directed():
            raise KnowledgeError("the graph has no directions; give a networkx.DiGraph with edges child -> parent")
        return _edges([(str(child), str(parent)) for child, parent in knowledge.edges], names)
    if isinstance(knowledge, set | frozenset) and all(isinstance(item, str) for item in knowledge):
        listed = "{" + ", ".join(map(repr, sorted(knowledge))) + "}"
        wanted = f"[{listed}] for a combination that is forbidden, Allowed([{listed}]) for one that is allowed"
        raise KnowledgeError(f"the knowledge is the set {listed}, which says nothing by itself; say {wanted}")
    if isinstance(knowledge, Sequence | set | frozenset):
        return _listed(list(knowledge), names)
    forms = "text, a formula, a KnowledgeBase, DIMACS, a hierarchy {child: [parents]}, a DiGraph, a list of forbidden"
    raise KnowledgeError(f"the knowledge is a {type(knowledge).__name__}, expected {forms} combinations, or Allowed")


def _text(text: str, names: Names) -> list[Requirement]:
    if "\n" not in text and text.strip().endswith((".doxa", ".cnf", ".dimacs", ".txt")):
        return _file(Path(text.strip()), names)
    if any(line.split()[:2] == ["p", "cnf"] for line in text.splitlines()):
        return _clauses(dimacs(text if "\n" in text else text + "\n"), names)
    base = KnowledgeBase(*[Predicate(name) for name in names.known])
    try:
        return _base(parse(text, base=base, warn=False), names)
    except KnowledgeError as error:
        if "already declared" in str(error):  # a whole knowledge base, with declarations of its own
            return _base(parse(text, warn=False), names)
        if found := re.findall(r"unknown proposition '([^']*)'", str(error)):
            raise unknown(found, names.labels, names.features) from error
        if mended := with_quotes(text, names.known, lambda words: parse(words, base=base, warn=False)):
            raise KnowledgeError(f"{error}\n{mended}") from error
        raise


def with_quotes(text: str, names: Iterable[str], reads: Callable[[str], object]) -> str:
    """What to write where names that are no words lack quotation marks; nothing where that does not make it readable.

    >>> with_quotes("big dog -> animal", ["big dog", "animal"], lambda text: None)
    'a name that is no word has double quotation marks: "big dog" -> animal'
    """
    odd = sorted([name for name in names if quote(name) != name and name.strip()], key=len, reverse=True)
    if not odd:
        return ""
    any_of = "|".join(map(re.escape, odd))
    wanted = re.compile(rf'"[^"]*"|\'({any_of})\'|(?<!\w)({any_of})(?!\w)')
    mended = wanted.sub(lambda found: quote(found[1] or found[2]) if found[1] or found[2] else found[0], text)
    lines = [new.strip() for old, new in zip(text.splitlines(), mended.splitlines(), strict=True) if new != old]
    try:
        reads(mended)
    except KnowledgeError:
        return ""
    return f"a name that is no word has double quotation marks: {lines[0]}" if lines else ""


def _file(path: Path, names: Names) -> list[Requirement]:
    if path.suffix == ".doxa":
        try:
            return _base(load(path, warn=False), names)
        except KnowledgeError as error:
            if "unknown proposition" not in str(error):  # else rules alone, about labels that it does not declare
                raise
    try:
        return _text(path.read_text(encoding="utf-8") + "\n", names)
    except OSError as error:
        wanted = "a file of .doxa text or DIMACS clauses"
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}; wanted {wanted}") from error


def _base(kb: KnowledgeBase, names: Names) -> list[Requirement]:
    theory = ground(kb)
    if theory.constraints:
        raise KnowledgeError("the knowledge has functions; speak of labels by propositions, one for each label")
    titles = {axiom.name: axiom for axiom in kb.axioms}
    found = [
        Requirement(f"{name}: {titles[name].formula}" if titles[name].named else str(titles[name].formula), formula)
        for name, formula in theory.axioms.items()
    ]
    found += [Requirement(str(fact), fact) for fact in theory.facts]
    return [Requirement(text, _of_labels(formula, names)) for text, formula in found]


def _of_labels(formula: Expr, names: Names) -> Expr:
    """The formula, if all its atoms are labels or features."""
    found = [atom.name if isinstance(atom, Call) and not atom.children else str(atom) for atom in atoms_of(formula)]
    if wrong := [str(name) for name in found if name not in names.known]:
        raise unknown(wrong, names.labels, names.features)
    return formula


def renamed(formula: Expr, names: Mapping[str, str]) -> Expr:
    """The formula with other names for some propositions.

    >>> cold, rainy = Call("cold"), Call("rainy")
    >>> print(renamed(cold >> ~rainy, {"rainy": "yes"}))
    cold -> !yes
    """
    atoms: dict[Expr, Expr] = {Call(old): Call(new) for old, new in names.items()}
    found: dict[int, Expr] = {}
    for node in formulas(formula):
        below = node.children if all(id(child) in found for child in node.children) else ()
        changed = node.with_children(tuple([found[id(child)] for child in below])) if below else node
        found[id(node)] = atoms.get(node, changed)
    return found[id(formula)]


def _formula(formula: Expr, names: Names) -> list[Requirement]:
    parts = formula.children if isinstance(formula, And) else (formula,)
    return [Requirement(str(part), _of_labels(part, names)) for part in parts]


def _ground(theory: Propositional, names: Names) -> list[Requirement]:
    if theory.constraints:
        raise KnowledgeError("the knowledge has functions; speak of labels by propositions, one for each label")
    return [r for formula in (*theory.axioms.values(), *theory.facts) for r in _formula(formula, names)]


def _clauses(cnf: CNF, names: Names) -> list[Requirement]:
    """Variable i is the i-th label, unless a comment of the file names it."""
    if cnf.variables > len(names.labels):
        raise KnowledgeError(f"the clauses have {cnf.variables} variables, but y has {len(names.labels)} labels")
    if cnf.auxiliary:
        raise KnowledgeError("the clauses have auxiliary variables, which are no labels; give the formula they encode")
    unnamed = all(str(atom) == f"x{i + 1}" for i, atom in enumerate(cnf.atoms))
    atoms: list[Expr] = [
        Call(names.labels[i]) if unnamed else names.atom(str(atom).strip('"')) for i, atom in enumerate(cnf.atoms)
    ]
    found = []
    for clause in cnf:
        formula = Or(*[atoms[v - 1] if v > 0 else Not(atoms[-v - 1]) for v in clause])
        found.append(Requirement(str(formula), formula))
    return found


def _hierarchy(parents: Mapping[Any, Any], names: Names) -> list[Requirement]:
    pairs = []
    for child, above in parents.items():
        if isinstance(above, bool):
            raise KnowledgeError("a mapping is a hierarchy {child: [parents]}; put a forbidden combination in a list")
        if not isinstance(above, str | int | Iterable):
            raise KnowledgeError(f"the hierarchy says that {above!r} is above {child!r}, expected a list of labels")
        pairs += [(str(child), str(p)) for p in ([above] if isinstance(above, str | int) else above)]
    return _edges(pairs, names)


def _edges(pairs: Iterable[tuple[str, str]], names: Names) -> list[Requirement]:
    found = []
    for child, parent in dict.fromkeys(pairs):
        formula = Implies(names.atom(child), names.atom(parent))
        found.append(Requirement(str(formula), formula))
    return found


def _listed(items: list[Any], names: Names) -> list[Requirement]:
    if all(isinstance(item, Expr) for item in items):
        return [r for item in items for r in _formula(item, names)]
    if all(isinstance(item, str) for item in items):
        paths = all(item in names.known for item in items) or not any(set("&|!<>~¬∧∨→") & set(item) for item in items)
        return _edges(_prefixes(items, names), names) if paths else _text("\n".join(items), names)
    found = []
    for item in items:
        if isinstance(item, str | Expr) or not isinstance(item, Collection):
            raise KnowledgeError(f"the list has {item!r}, expected combinations such as {{'cat', 'dog'}} throughout")
        literals = _combination(item, names)
        if not literals:
            raise KnowledgeError("the list of forbidden combinations has an empty one, which forbids everything")
        formula = Not(And(*literals)) if len(literals) > 1 else Not(literals[0])
        found.append(Requirement(str(formula), formula))
    return found


def _prefixes(paths: Sequence[str], names: Names) -> Iterator[tuple[str, str]]:
    """Class paths such as "01/01/03": each is below the path without its last part."""
    for path in paths:
        names.atom(path)
        if "/" in path:
            yield path, path.rpartition("/")[0]


def _combination(item: Any, names: Names) -> list[Expr]:
    if isinstance(item, Mapping):
        for name, truth in item.items():
            if truth not in (0, 1):  # which True and False are
                raise KnowledgeError(f"a combination says that {name!r} is {truth!r}, expected True or False")
        return [names.atom(name) if truth else Not(names.atom(name)) for name, truth in item.items()]
    return [names.atom(name) for name in sorted(map(str, item))]


def _allowed(allowed: Allowed, names: Names) -> list[Requirement]:
    if not allowed.combinations:
        raise KnowledgeError("Allowed has no combinations, so that nothing is allowed; give at least one")
    spoken = {str(name) for item in allowed.combinations for name in item}
    order = [name for name in names.known if name in spoken]
    terms = []
    for item in allowed.combinations:
        literals = _combination(item, names)  # and with a set, all other labels are false
        if not isinstance(item, Mapping):
            literals += [Not(Call(name)) for name in order if name not in set(map(str, item))]
        terms.append(And(*literals))
    return [Requirement(f"one of {len(terms)} allowed combinations", Or(*terms))]


_READERS: tuple[tuple[type | tuple[type, ...], Callable[[Any, Names], list[Requirement]]], ...] = (
    (Allowed, _allowed),
    (KnowledgeBase, _base),
    (Propositional, _ground),
    (Expr, _formula),
    (CNF, _clauses),
    (Path, _file),
    (str, _text),
    (Mapping, _hierarchy),
    (np.ndarray, lambda array, names: _listed(array.tolist(), names)),
)
