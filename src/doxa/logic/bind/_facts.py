"""Facts and bindings: what facts say of predicates that are not bound, and whether bound ones agree with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from doxa.errors import BindingError
from doxa.logic.bind._bindings import Entries, table
from doxa.logic.bind._checks import has_values
from doxa.logic.bind._meanings import Meaning, Named, Table, positions, signature_text
from doxa.logic.syntax._kb import Fact, KnowledgeBase
from doxa.logic.syntax._symbols import Predicate

Args = tuple[str | int | float, ...]


def facts_of(kb: KnowledgeBase) -> dict[str, list[Fact]]:
    found: dict[str, list[Fact]] = {}
    for fact in kb.facts:
        found.setdefault(fact.atom.name, []).append(fact)
    return found


def facts_table(facts: Sequence[Fact]) -> Entries:
    labels: dict[Args, bool] = {}
    for fact in facts:
        if labels.setdefault(fact.args, fact.label) != fact.label:
            raise BindingError(f"the fact {fact.atom} is labelled both true and false; keep one of the two")
    return table(labels)


def unbound_with_facts(predicate: Predicate) -> str:
    """What to say of an open predicate that has facts and no meaning."""
    name = predicate.name
    return (
        f"{name} has facts, but nothing says whether the rest is true or false. Bind it, as in Interpretation(kb, "
        f"{name}=...), or, if what no fact says is false, declare it closed: closed pred {signature_text(predicate)}"
    )


def check_facts(
    predicate: Predicate, meaning: Meaning, facts: Sequence[Fact], position: Callable[[str], int | None]
) -> None:
    """Refuse a binding that contradicts a fact, and a binding of a closed predicate that says anything else.

    ``position`` is that of a constant among the objects of its open sort, if that is known.
    """
    truth, true = _crisp(predicate, meaning, position)
    said = [truth(fact.args) for fact in facts]
    for fact, value in zip(facts, said, strict=True):
        if value is not None and value != fact.label:
            raise BindingError(
                f"{predicate.name}: what it is bound to says that {fact.atom} is {str(value).lower()}, and a fact says "
                f"that it is {str(fact.label).lower()}; change one of the two"
            )
    if predicate.closed and (None in said or true != len({fact.args for fact in facts if fact.label})):
        raise BindingError(
            f"{predicate.name} is declared closed, so its facts say all that holds, and it is bound to something else; "
            f"leave the binding out, or declare it open: pred {signature_text(predicate)}"
        )


def _crisp(
    predicate: Predicate, meaning: Meaning, position: Callable[[str], int | None]
) -> tuple[Callable[[Args], bool | None], int | None]:
    """The truth of an atom, and how many are true; None where that is not known yet."""
    if isinstance(meaning, Named):
        entries = dict(meaning.entries)
        # An object of an open sort may also be meant by its index in the data.
        open_ = [i for i, s in enumerate(predicate.sorts) if s.is_open and not s.is_integer]
        otherwise = None if any(isinstance(args[i], int) for args in entries for i in open_) else False
        return lambda args: entries.get(args, otherwise), sum(entries.values())
    if not isinstance(meaning, Table) or meaning.returns != "bool" or not has_values(meaning.tensor):
        return lambda args: None, None
    tensor = meaning.tensor
    known = [positions(sort) for sort in predicate.sorts]

    def look(args: Args) -> bool | None:
        places = [of.get(a) if of else position(str(a)) for a, of in zip(args, known, strict=True)]
        if any(p is None or p >= size for p, size in zip(places, tensor.shape, strict=True)):
            return None
        return bool(tensor[tuple(places)])

    return look, int(tensor.sum())
