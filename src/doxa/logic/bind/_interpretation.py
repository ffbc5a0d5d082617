"""What the symbols of a knowledge base mean: an ``nn.Module`` over networks, tensors, tables and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from doxa._cache import Cache
from doxa.errors import BindingError
from doxa.logic.bind import _meanings
from doxa.logic.bind._bindings import Columns, Entries, Joint, describe, has_values, table
from doxa.logic.bind._listings import positions
from doxa.logic.bind._meanings import Fixed, Meaning, Named, Network, Table, bind, signature_text
from doxa.logic.bind._universe import Column, Objects, RowSet, read_rows, read_sort
from doxa.logic.syntax._binders import Binder
from doxa.logic.syntax._diagnostics import did_you_mean
from doxa.logic.syntax._kb import Fact, KnowledgeBase
from doxa.logic.syntax._symbols import Function, Predicate, Signature
from doxa.logic.syntax._tree import Call, Expr, Name, postorder
from doxa.logic.unfold._definitions import reachable

PLANS = 1024
"""Cache size: a knowledge base of a hundred axioms has some hundred plans."""


class Interpretation(nn.Module):
    """The meaning of each symbol of a knowledge base, by keyword.

    Predicates and functions are bound to networks that say what they return (:func:`logits`, :func:`probs`,
    :func:`log_probs`, :func:`values`), to tensors with one axis per argument, to tables by name (:func:`table`, or a
    set or dict), or to Python functions (:func:`function`, or the function itself). Constants of an open sort are bound
    to features, perhaps :func:`trainable`, or to an index into the data; other constants to their value. Several
    symbols together are bound to one belief in which they depend on each other by :func:`mixture`. A closed
    predicate (``closed pred below(Class, Class)``) is not bound: it is true of exactly the facts labelled true. What is
    bound is part of this module: ``.to``, ``state_dict`` and ``parameters`` include it.

    Networks that return NaN, +inf or nothing but -inf, or probabilities that are none, are refused with the symbol's
    name; ``check_finite=False`` takes their numbers as they come. Under ``torch.compile`` and ``vmap`` nothing is
    looked at.

    >>> import torch
    >>> from doxa.logic import KnowledgeBase, Predicate, Sort, forall, truth, variables
    >>> Person = Sort("Person")
    >>> friends = Predicate("friends", (Person, Person))
    >>> x, y = variables("x y", Person)
    >>> kb = KnowledgeBase(symmetry=forall(x, y)(friends(x, y) >> friends(y, x)))
    >>> world = Interpretation(kb, friends=torch.tensor([[False, True], [True, False]]))
    >>> truth(kb, world, Person=2)
    tensor(True)
    """

    # check_finite is a bool, but a type checker would hold every entry of **bindings against that.
    def __init__(self, kb: KnowledgeBase, /, *, check_finite: Any = True, **bindings: Any) -> None:
        super().__init__()
        if not isinstance(check_finite, bool):
            raise BindingError(f"check_finite is an option, True or False, got {describe(check_finite)}")
        self.kb = kb
        self.check_finite: bool = check_finite
        self.meanings = nn.ModuleDict()
        self.constants = nn.ModuleDict()
        self._bound: dict[str, Meaning] = {}
        self._fixed: dict[str, Fixed] = {}
        self.plans: Cache[Any, Any] = Cache(PLANS)  # a copy starts with none: they are made of closures over this one
        self._rows = row_names([*kb.definitions, *[a.formula for a in kb.axioms]])
        self.joint = _shared(bindings)
        self.joint_symbols = frozenset([name for name, value in bindings.items() if isinstance(value, Joint)])
        """The symbols that depend on each other."""
        signature = kb.signature
        self.constants_of: dict[str, list[str]] = {}
        for constant in signature.constants.values():
            self.constants_of.setdefault(constant.sort.name, []).append(constant.name)
        self.places = {name: i for names in self.constants_of.values() for i, name in enumerate(names)}
        for name, value in bindings.items():
            if name in signature.definitions:
                raise BindingError(f"{name} is defined by the knowledge, so it is not bound; leave it out")
            if name in signature.predicates or name in signature.functions:
                symbol = signature.predicates.get(name) or signature.functions[name]
                self._store(name, bind(symbol, value, signature))
            elif name in signature.constants:
                self._fixed[name] = self.constants[_key(name)] = _meanings.bind_constant(
                    signature.constants[name], value
                )
            else:
                raise BindingError(_unknown(name, signature))
        facts: dict[str, list[Fact]] = {}
        for fact in kb.facts:
            facts.setdefault(fact.atom.name, []).append(fact)
        for name, predicate in signature.predicates.items():
            meaning = self._bound.get(name)
            if meaning is not None:
                _check_facts(predicate, meaning, facts.get(name, ()), self._position)
            elif predicate.closed:
                self._store(name, bind(predicate, _facts_table(facts.get(name, ())), signature))
            elif name in facts:
                raise BindingError(
                    f"{name} has facts, but nothing says whether the rest is true or false. Bind it, as in "
                    f"Interpretation(kb, {name}=...), or, if what no fact says is false, declare it closed: "
                    f"closed pred {signature_text(predicate)}"
                )

    def _position(self, name: str) -> int | None:
        """The position of a constant among the objects of its open sort; None where the data may decide it."""
        fixed = self._fixed.get(name)
        return self.places[name] if fixed is None or fixed.index in (None, self.places[name]) else None

    def _store(self, name: str, meaning: Meaning) -> None:
        if self.check_finite:
            _meanings.check_table(meaning)
        self._bound[name] = self.meanings[_key(name)] = meaning

    def meaning(self, name: str) -> Meaning | None:
        return self._bound.get(name)

    def shared_in(self, *formulas: Expr) -> set[str]:
        """Those symbols that depend on each other and that formulas speak of, themselves or through definitions."""
        if not self.joint_symbols:
            return set()
        calls = postorder(*reachable(formulas, self.kb.signature.definitions))
        return {n.name for n in calls if isinstance(n, Call) and n.name in self.joint_symbols}

    def listen(self, name: str, hear: Callable[[Any], None]) -> Callable[[], object]:
        """Hear what a symbol says: of a table at once, of a network from now on; the result is how to stop."""
        meaning = self.meaning(name)
        if isinstance(meaning, Network):
            return meaning.listen(hear)
        if isinstance(meaning, Table):
            hear(meaning.tensor)
        return lambda: None

    def constant(self, name: str) -> Fixed | None:
        return self._fixed.get(name)

    def tensors(self) -> Iterator[Tensor]:
        """Parameters and buffers; unlike those methods, quick when only the first one is looked at."""
        shared = () if self.joint is None else (self.joint,)
        for meaning in (*self._bound.values(), *self._fixed.values(), *shared):
            for module in meaning.modules():
                for tensor in (*module._parameters.values(), *module._buffers.values()):
                    if tensor is not None:
                        yield tensor

    def extra_repr(self) -> str:
        known = self.kb.signature
        symbols: list[Predicate | Function] = [*known.predicates.values(), *known.functions.values()]
        unbound = [signature_text(s) for s in symbols if self.meaning(s.name) is None]
        return f"unbound: {', '.join(unbound)}" if unbound else ""

    def read(self, data: Mapping[str, Any], rows: Iterable[str] = ()) -> Batch:
        """The data of one call, checked; ``rows`` names the row sets that a formula outside the knowledge base uses."""
        return Batch(self, data, self._rows.union(rows))


class Batch:
    """The data of one call: objects of sorts, rows, and relations that come with the data."""

    def __init__(self, interpretation: Interpretation, data: Mapping[str, Any], rows: frozenset[str]) -> None:
        self.interpretation = interpretation
        signature = interpretation.kb.signature
        self.signature = signature
        self.given: dict[str, Objects] = {}
        self.rows: dict[str, RowSet] = {}
        self.symbols: dict[str, Meaning] = {}
        self._universes: dict[str, Objects] = {}
        for name, value in data.items():
            if name in signature.sorts:
                sort = signature.sorts[name]
                if sort.values is not None or sort.is_integer:
                    raise BindingError(f"{name}: the values of this sort are known; only open sorts come with the data")
                self.given[name] = read_sort(sort, value)
        for name, value in data.items():
            if name in self.given:
                continue
            if name in signature.rows or (name in rows and signature.describe(name) is None):
                self.rows[name] = read_rows(name, value, signature.rows.get(name), signature, self.given)
            elif name in signature.predicates or name in signature.functions:
                self.symbols[name] = self._relation(name, value)
            else:
                raise BindingError(_unknown_data(name, signature, rows))
        self.device = self._device()
        self.schema = self._schema()

    def _schema(self) -> tuple[Any, ...]:
        return (
            tuple([(name, o.features is None) for name, o in self.given.items()]),
            tuple([(name, tuple([(f, c.schema) for f, c in r.columns.items()])) for name, r in self.rows.items()]),
            tuple([(name, *_kind(m)) for name, m in self.symbols.items()]),
        )

    def extended(self, symbols: Mapping[str, Meaning]) -> Batch:
        """The same data, with relations that follow from them."""
        other = copy(self)
        other.symbols = {**self.symbols, **symbols}
        other.schema = other._schema()
        return other

    def _relation(self, name: str, value: Any) -> Meaning:
        """A predicate or function whose meaning comes with the data, such as the edges of a graph."""
        if name in self.signature.definitions:
            raise BindingError(f"{name} is defined by the knowledge; leave it out of the data")
        if self.interpretation.meaning(name) is not None:
            raise BindingError(f"{name} is already bound by the interpretation; leave it out of the data")
        if isinstance(value, Joint):
            raise BindingError(f"{name}: a mixture is bound in the interpretation: Model(kb, **mixture(...))")
        symbol = self.signature.predicates.get(name) or self.signature.functions[name]
        meaning = bind(symbol, value, self.signature)
        if self.interpretation.check_finite:
            _meanings.check_table(meaning)
        return meaning

    def meaning(self, name: str) -> Meaning:
        found = self.symbols.get(name) or self.interpretation.meaning(name)
        if found is None and name in self.signature.definitions:
            raise BindingError(f"{name} is defined by the knowledge, and definitions are not evaluated here")
        if found is None:
            closed = f"; if facts say all that holds of it, declare it closed: closed pred {name}(...)"
            raise BindingError(
                f"{name} has no meaning yet: bind it, as in Interpretation(kb, {name}=...), or pass it with the data"
                f"{closed if name in self.signature.predicates else ''}"
            )
        return found

    def identity(self, meaning: Network) -> Any:
        """What two symbols share when they are bound to one network; one that comes with the data is new every time."""
        name = meaning.symbol.name
        return name if name in self.symbols else id(meaning.call)

    def has_objects(self, sort: str) -> bool:
        """Does an open sort have objects, from the data or as constants?"""
        return sort in self.given or sort in self.interpretation.constants_of

    def objects(self, sort: str) -> Objects:
        """The objects of an open sort: those of the data, else its constants."""
        if sort in self.given:
            return self.given[sort]
        if sort not in self._universes:
            names = tuple(self.interpretation.constants_of.get(sort, ()))
            if not names:
                raise BindingError(f"sort {sort} has no objects: pass them with the data, as in {sort}=tensor")
            own = self.own_features(sort)
            features = own if own is not None and len(own) == len(names) else None
            self._universes[sort] = Objects(len(names), features, names)
        return self._universes[sort]

    def index_of(self, name: str) -> int:
        sort = self.signature.constants[name].sort.name
        if sort not in self.given:
            return self.interpretation.places[name]
        fixed = self.interpretation.constant(name)
        if fixed is None or fixed.index is None:
            raise BindingError(f"{name}: the objects of {sort} come with the data, so say which one: {name}=index")
        if fixed.index >= self.given[sort].size:
            raise BindingError(f"{name} is object {fixed.index} of {sort}, which has {self.given[sort].size} objects")
        return fixed.index

    def row_set(self, name: str) -> RowSet:
        if name not in self.rows:
            raise BindingError(f"the rows {name!r} did not come with the data; pass them: {name}=dict(...)")
        return self.rows[name]

    def column(self, rows: str, field: str) -> Column:
        columns = self.row_set(rows).columns
        if field not in columns:
            remedy = did_you_mean(field, columns, f"its fields are {', '.join(columns)}")
            raise BindingError(f"{rows} has no field {field!r}; {remedy}")
        return columns[field]

    def own_constants(self, sort: str) -> tuple[str, ...]:
        """The constants of a sort that bring features of their own, beside the objects of the data."""
        names = self.interpretation.constants_of.get(sort, ())
        return tuple([n for n in names if (f := self.interpretation.constant(n)) is not None and f.tensor is not None])

    def own_features(self, sort: str) -> Tensor | None:
        """The features of those constants, one after the other; None without any."""
        fixed = [self.interpretation.constant(name) for name in self.own_constants(sort)]
        known = [f.tensor for f in fixed if f is not None and f.tensor is not None]
        shapes = {tuple(f.shape) for f in known}
        if len(shapes) > 1:
            raise BindingError(f"the constants of sort {sort} have features of different shapes: {sorted(shapes)}")
        return torch.stack(known) if known else None

    def _device(self) -> torch.device:
        expected = next((t.device for t in self.interpretation.tensors()), None)
        origin = "the interpretation"
        for place, tensor in self.tensors():
            if expected is None:
                expected, origin = tensor.device, place
            elif tensor.device != expected:
                raise BindingError(
                    f"{place} is on {tensor.device}, but {origin} is on {expected}; move one by .to(...)"
                )
        return expected if expected is not None else torch.device("cpu")

    def tensors(self) -> Iterable[tuple[str, Tensor]]:
        for name, objects in self.given.items():
            if objects.features is not None:
                yield name, objects.features
        for name, rows in self.rows.items():
            for field, column in rows.columns.items():
                yield f"{name}.{field}", column.values
        for name, meaning in self.symbols.items():
            for buffer in meaning.buffers():
                yield name, buffer


def _shared(bindings: Mapping[str, Any]) -> nn.Module | None:
    """What is bound to several symbols together."""
    found = {id(value.shared): value for value in bindings.values() if isinstance(value, Joint)}
    if len(found) > 1:
        raise BindingError(
            "two beliefs are bound to several symbols each: all symbols that depend on each other belong to one, as in "
            f"mixture(weights=..., {'=..., '.join([n for n, v in bindings.items() if isinstance(v, Joint)])}=...)"
        )
    return next(iter(found.values())).shared if found else None


def _kind(meaning: Meaning) -> tuple[Any, ...]:
    if isinstance(meaning, Network):
        return (Network, meaning.returns, meaning.exclusive, meaning.bare, meaning.per_object)
    return (type(meaning), meaning.returns, not isinstance(meaning, Named) and meaning.exclusive)


def row_names(formulas: Iterable[Expr]) -> frozenset[str]:
    """The names after ``in`` that are not variables: row sets, which need no declaration."""
    found: set[str] = set()
    for node in postorder(*formulas):
        if isinstance(node, Binder):
            found.update([g.domain.name for g in node.groups if isinstance(g.domain, Name)])
    return frozenset(found)


_TAKEN = frozenset(dir(nn.ModuleDict()))


def _key(name: str) -> str:
    """A symbol's name as the name of a submodule: without dots, no method of a module, and its own for each symbol."""
    key = name.replace("%", "%25").replace(".", "%2E")
    return key + "%" if key in _TAKEN else key


def _unknown(name: str, signature: Signature) -> str:
    if name in signature.sorts or name in signature.rows:
        return f"{name} is {signature.describe(name)}: pass it with the data, not as the meaning of a symbol"
    known = [*signature.predicates, *signature.functions, *signature.constants]
    return f"unknown symbol {name!r}; {did_you_mean(name, known, f'known are {_list(known)}')}"


def _unknown_data(name: str, signature: Signature, rows: frozenset[str]) -> str:
    if name in signature.constants:
        return f"{name} is a constant: bind it in the interpretation, not with the data"
    open_sorts = [s.name for s in signature.sorts.values() if s.values is None and not s.is_integer]
    known = [*open_sorts, *sorted({*signature.rows, *rows}), *signature.predicates, *signature.functions]
    return f"unknown data {name!r}; {did_you_mean(name, known, f'known are {_list(known)}')}"


def _list(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "none"


# --- facts ---


Args = tuple[str | int | float, ...]


def _facts_table(facts: Sequence[Fact]) -> Entries | Columns:
    labels: dict[Args, bool] = {}
    for fact in facts:
        if labels.setdefault(fact.args, fact.label) != fact.label:
            raise BindingError(f"the fact {fact.atom} is labelled both true and false; keep one of the two")
    return table(labels)


def _check_facts(
    predicate: Predicate, meaning: Meaning, facts: Sequence[Fact], position: Callable[[str], int | None]
) -> None:
    """Refuse a binding that contradicts a fact, or one of a closed predicate that says anything else."""
    if not facts and not predicate.closed:
        return
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
        entries = meaning.entries
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
