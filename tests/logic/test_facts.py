"""Facts: closed predicates, weights, what is known, and whether bindings agree."""

from __future__ import annotations

import pickle
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from doxa.errors import BindingError, KnowledgeError, KnowledgeWarning
from doxa.logic import (
    Call,
    Fact,
    Interpretation,
    KnowledgeBase,
    Name,
    Predicate,
    Sort,
    all_models,
    count,
    entails,
    ground,
    load,
    logits,
    parse,
    parse_formula,
    read_dimacs,
    satisfiable,
    to_cnf,
    truth,
    write_dimacs,
)
from doxa.logic.check._lint import lint

P = Sort("P", ("u", "v"))
R = Predicate("r", (P, P), closed=True)
TEXT = """
    sort P = {u, v}
    closed pred r(P, P)
    pred s(P)
    fact r(u, v)
    fact !r(v, u)
    fact [weight 0.25] s(u)
    [rule] forall x, y: P. r(x, y) & s(x) -> s(y)
"""


# --- the language -------------------------------------------------------------------------------------------------


def test_text_and_python_say_the_same() -> None:
    kb = parse(TEXT)
    u, v = P["u"], P["v"]
    s = Predicate("s", (P,))
    facts = [Fact(R(u, v)), Fact(R(v, u), False), Fact(s(u), weight=0.25)]  # type: ignore[arg-type]
    same = KnowledgeBase(P, R, s, *facts, kb.axioms[0])
    assert same == kb
    assert parse(str(kb)) == parse(kb.unicode()) == pickle.loads(pickle.dumps(kb)) == kb
    assert str(kb).splitlines()[1:6] == [
        "closed pred r(P, P)",
        "pred s(P)",
        "fact r(u, v)",
        "fact !r(v, u)",
        "fact [weight 0.25] s(u)",
    ]
    assert r"\mathrm{s}(u) && \text{weight $0.25$}" in kb.latex()


def test_closed_and_open_are_different_declarations() -> None:
    with pytest.raises(KnowledgeError, match=r"'r' is already declared as a closed predicate of 2 arguments"):
        KnowledgeBase(P, R, Predicate("r", (P, P)))
    with pytest.raises(KnowledgeError, match=r"'p' is already declared as a predicate of 0 arguments"):
        parse("pred p; closed pred p; p")


@pytest.mark.parametrize(
    "use", ["closed(k)", "!closed(k) & closed(k)", "forall closed: S. p(closed)", "p(k) -> closed(k)"]
)
def test_closed_is_a_name_where_no_predicate_is_declared(use: str) -> None:
    kb = parse(f"sort S; const k: S; pred p(S), closed(S); closed pred pred(S); fact pred(k)\n{use}", warn=False)
    assert kb.signature.predicates["pred"].closed and not kb.signature.predicates["closed"].closed
    assert parse(str(kb), warn=False) == kb


@pytest.mark.parametrize("use", ["fact[weight] = k", "fact [weight - 1] = k", "fact [weight -1] != k", "fact [0] = k"])
def test_an_index_is_no_weight(use: str) -> None:
    kb = parse(
        "sort S; const k: S; const weight: Int; data d(many: S*)\nforall fact in d. fact.many[0] = k", warn=False
    )
    with pytest.raises(KnowledgeError, match="is a row of d, not a sequence"):  # read as an index, and then checked
        parse_formula(f"forall fact in d. {use}", kb)


def test_weights_that_cannot_be() -> None:
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(KnowledgeError, match=r"the weight of this fact is .*\n.* finite and not negative"):
            KnowledgeBase(Fact(Predicate("p")(), weight=weight))  # type: ignore[arg-type]
    with pytest.raises(KnowledgeError, match=r"the weight of this fact is -2\.0"):
        parse("pred p; fact [weight -2] p")


def test_a_fact_about_something_undeclared() -> None:
    with pytest.raises(KnowledgeError, match=r"unknown predicate or function 'q'.*\n.*\n.*\n *declare it: pred q\(P\)"):
        parse("sort P; const a: P; fact q(a)")


def test_a_closed_predicate_without_facts_is_doubted() -> None:
    text = "sort P\nclosed pred r(P)\npred s(P)\nforall x: P. r(x) -> s(x)"
    with pytest.warns(KnowledgeWarning, match=r"<text>:2:13: .*'r' is closed and has no facts, so it is false"):
        kb = parse(text)
    (doubt,) = lint(kb)
    assert doubt.remedy == "give facts about it, or declare it open: pred r(P)"
    assert lint(parse("const a: P; fact r(a)", base=kb)) == ()


def test_a_weight_that_counts_for_nothing_is_doubted() -> None:
    kb = parse(TEXT.replace("fact r(u, v)", "fact [weight 3] r(u, v)"), warn=False)
    (doubt,) = lint(kb)
    assert doubt.message == "the weight of `r(u, v)` has no effect: facts of a closed predicate are known"


# --- from files ---------------------------------------------------------------------------------------------------


def from_file(folder: Path, rows: str, header: bool = True) -> KnowledgeBase:
    (folder / "p.csv").write_text(rows)
    (folder / "main.doxa").write_text(f'sort P\npred r(P, P)\nfacts r from "p.csv"{" header" if header else ""}')
    return load(folder / "main.doxa")


def test_weights_from_a_file(tmp_path: Path) -> None:
    kb = from_file(tmp_path, "from, to, Weight\na,b,0.5\nb,c,2\n")
    assert [(f.args, f.label, f.weight) for f in kb.facts] == [(("a", "b"), True, 0.5), (("b", "c"), True, 2.0)]
    kb = from_file(tmp_path, "from,to,label,weight\na,b,true,0.5\nb,c,false,1e-2\n")
    assert [(f.label, f.weight) for f in kb.facts] == [(True, 0.5), (False, 0.01)]
    kb = from_file(tmp_path, "height,weight\na,b\n")  # the columns are the arguments
    assert [(f.args, f.weight) for f in kb.facts] == [(("a", "b"), 1.0)]


@pytest.mark.parametrize("cell", ["-1", "nan", "inf", "much", ""])
def test_a_weight_in_a_file_that_cannot_be(tmp_path: Path, cell: str) -> None:
    with pytest.raises(KnowledgeError, match=rf"p\.csv:2:.*'{cell}' is not a weight"):
        from_file(tmp_path, f"from,to,weight\na,b,{cell}\n")


def test_a_weight_without_a_header(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeError, match=r"'0\.5' is not a label(.*\n)*.*weights need a header 'weight'"):
        from_file(tmp_path, "a,b,0.5\n", header=False)


# --- what is known ------------------------------------------------------------------------------------------------


def test_known() -> None:
    kb = parse(TEXT)
    assert [kb.known("r", args) for args in product("uv", repeat=2)] == [False, True, False, False]
    assert [kb.known("s", ("u",)), kb.known("s", ("v",)), kb.known("nothing")] == [True, None, None]
    numbers = parse("sort D = 0..9; pred p(D, Int, Real); fact !p(3, -4, 0.5)")
    assert numbers.facts[0].args == (3, -4, 0.5)
    assert numbers.known("p", (3, -4, 0.5)) is False and numbers.known("p", (3, 4, 0.5)) is None


CASES = [
    TEXT,
    TEXT.replace("closed pred", "pred"),
    "sort P = {u, v}; closed pred r(P, P); pred s(P); [a] forall x: P. exists y: P. r(x, y) | s(x) & s(y)",
    "sort P = {u, v, w}; closed pred e(P, P); pred in(P); fact e(u, v); fact e(v, w); "
    "[cover] forall x, y: P where e(x, y). in(x) | in(y); [few] at most 2 x: P. in(x)".replace("in(", "cover("),
    "closed pred a, b; pred c; fact a; [rule] a -> b | c",
    "closed pred a; pred c; fact a; fact !a; [rule] a -> c",
    "sort P = {u, v}; closed pred r(P); func f(P) -> P; fact r(v); [rule] forall x: P. r(f(x))",
]


def by_hand(kb: KnowledgeBase) -> list[dict[str, bool]]:
    """Every world in which all axioms and facts hold, of those in which closed predicates are true of facts only."""
    values = {s.name: list(s.values or ()) for s in kb.signature.sorts.values()}
    cells: list[tuple[str, tuple[Any, ...]]] = []
    for symbol in [*kb.signature.predicates.values(), *kb.signature.functions.values()]:
        cells += [(symbol.name, args) for args in product(*[values[s.name] for s in symbol.sorts])]
    choices = [
        list(values[kb.signature.functions[name].result.name]) if name in kb.signature.functions else [False, True]
        for name, _ in cells
    ]
    found = []
    for world in product(*choices):
        said = dict(zip(cells, world, strict=True))
        stated = {(f.atom.name, f.args): f.label for f in kb.facts if f.label}
        closed = [c for c in cells if c[0] in kb.signature.predicates and kb.signature.predicates[c[0]].closed]
        if any(said[f.atom.name, f.args] != f.label for f in kb.facts) or any(
            said[c] and c not in stated for c in closed
        ):
            continue
        tables: dict[str, Any] = {}
        for (name, args), value in said.items():
            tables.setdefault(name, {})[args] = value
        bound = {n: torch.tensor(t[()]) if () in t else t for n, t in tables.items()}
        rules = KnowledgeBase.from_parts(_opened(kb), kb.axioms)
        if truth(rules, Interpretation(rules, **bound)):
            found.append(
                {f"{name}({', '.join(args)})" if args else name: value for (name, args), value in said.items()}
            )
    return found


def _opened(kb: KnowledgeBase) -> Any:
    signature = kb.signature.copy()
    signature.predicates = {n: Predicate(n, p.sorts) for n, p in signature.predicates.items()}
    return signature


@pytest.mark.parametrize("text", CASES)
def test_solving_is_brute_force(text: str) -> None:
    kb = parse(text, warn=False)
    worlds = by_hand(kb)
    view = ground(kb)
    for predicate in kb.signature.predicates.values():
        for args in product(*[s.values or () for s in predicate.sorts]):
            atom = Call(predicate.name, tuple([Name(str(a)) for a in args]))
            assert entails(kb, atom).holds is all(w[str(atom)] for w in worlds), atom
    assert (satisfiable(kb) is not None) is bool(worlds)
    # Atoms that nothing is said of are left out of a model, so worlds are counted by what models do say.
    named = {str(atom) for atom in view.atoms if isinstance(atom, Call)}
    expected = {tuple(sorted((n, v) for n, v in w.items() if n in named)) for w in worlds}
    found = [{str(a): v for a, v in m.items() if isinstance(a, Call)} for m in all_models(kb)]
    assert {tuple(sorted(m.items())) for m in found} == expected
    clauses = read_dimacs(write_dimacs(to_cnf(view.theory, atoms=view.atoms)))
    assert count(clauses) == count(kb) == len(found)


# --- bindings -----------------------------------------------------------------------------------------------------

OPEN = parse(
    "sort P = {u, v}; sort Q; const a: Q; const b: Q; pred r(P, Q), rain; fact r(u, b); fact !r(v, a); fact rain"
)
CLOSED = parse("sort P = {u, v}; sort Q; const a: Q; const b: Q; closed pred r(P, Q); fact r(u, b); fact !r(v, a)")
FINE = torch.tensor([[False, True], [False, False]])


def test_an_open_predicate_with_facts_must_be_bound() -> None:
    remedies = r"r has facts, .* Bind it, as in Interpretation\(kb, r=\.\.\.\), or, .* closed pred r\(P, Q\)$"
    with pytest.raises(BindingError, match=remedies):
        Interpretation(OPEN, rain=True)
    with pytest.raises(BindingError, match=r"rain has facts, .* closed pred rain$"):
        Interpretation(OPEN, r=FINE)


@pytest.mark.parametrize(
    ("bound", "atom", "said"),
    [
        ({"r": torch.zeros(2, 2, dtype=torch.bool)}, r"r\(u, b\)", ("false", "true")),
        ({"r": torch.ones(2, 2, dtype=torch.bool)}, r"r\(v, a\)", ("true", "false")),
        ({"r": {("u", "a")}}, r"r\(u, b\)", ("false", "true")),
        ({"r": {("u", "b"): True, ("v", "a"): True}}, r"r\(v, a\)", ("true", "false")),
        ({"rain": False}, "rain", ("false", "true")),
        ({"rain": torch.tensor(False)}, "rain", ("false", "true")),
    ],
)
def test_a_crisp_binding_must_agree_with_the_facts(bound: dict[str, Any], atom: str, said: tuple[str, str]) -> None:
    message = rf"says that {atom} is {said[0]}, and a fact says that it is {said[1]}; change one"
    with pytest.raises(BindingError, match=message):
        Interpretation(OPEN, **{"r": FINE, "rain": True, **bound})


@pytest.mark.parametrize(
    "r",
    [
        FINE,
        torch.tensor([[True, True], [False, True]]),
        {("u", "b")},
        {("u", 1)},  # which object that is, the data say
        torch.zeros(2, 2),
        logits(torch.zeros(2, 2)),
        lambda p, q: p == q,
        torch.zeros(2, 2, dtype=torch.bool, device="meta"),
    ],
)
def test_what_agrees_or_is_not_known_yet_is_bound(r: Any) -> None:
    assert Interpretation(OPEN, r=r, rain=torch.tensor(0.2)).meaning("r") is not None


def test_constants_that_the_data_place_are_not_judged() -> None:
    world = Interpretation(OPEN, r=torch.tensor([[True, False], [False, False]]), rain=True, b=0, a=1)
    assert truth(OPEN, world, Q=2)


@pytest.mark.parametrize("r", [FINE, {("u", "b")}, {("u", "b"): True, ("v", "b"): False}])
def test_a_closed_predicate_may_be_bound_to_its_facts(r: Any) -> None:
    assert truth(CLOSED, Interpretation(CLOSED, r=r))


@pytest.mark.parametrize(
    "r",
    [
        FINE | torch.tensor([[True, False], [False, False]]),
        {("u", "b"), ("v", "b")},
        FINE.float(),
        logits(torch.nn.Linear(2, 2)),
    ],
)
def test_a_closed_predicate_is_not_bound_to_anything_else(r: Any) -> None:
    with pytest.raises(
        BindingError, match=r"r is declared closed, .* leave the binding out, or .* open: pred r\(P, Q\)"
    ):
        Interpretation(CLOSED, r=r)


def test_facts_that_contradict_each_other_have_no_meaning() -> None:
    kb = parse("sort P = {u, v}\nclosed pred r(P, P)\nfact r(u, v)\nfact !r(u, v)\n[a] r(u, u)", warn=False)
    with pytest.raises(BindingError, match=r"r\(u, v\) is labelled both true and false"):
        Interpretation(kb)
