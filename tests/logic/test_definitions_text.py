"""Definitions and aggregates as text: read, checked, printed, and built in Python."""

from __future__ import annotations

import copy
import pickle

import pytest

from doxa.errors import KnowledgeError
from doxa.logic import (
    INT,
    Aggregate,
    Compare,
    Function,
    KnowledgeBase,
    Name,
    Number,
    Predicate,
    Rows,
    Sort,
    aggregate,
    define,
    exists,
    parse,
    parse_formula,
    variables,
    within,
)
from doxa.logic.syntax._binders import free_variables
from doxa.logic.syntax._define import strata

GRAPH = """
sort Node = {a, b, c}
sort Digit = 0..9
sort Bit = 0..1
pred edge(Node, Node)
func digit(Node) -> Digit
data rows(cells: Node*, sum: Int)
"""
PATH = "define path(x: Node, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)"
PROGRAM = f"""
{GRAPH}
{PATH}
define path(x, y: Node) := x = y
define lonely(x: Node where x != a) := !exists y: Node. path(x, y)
define linked(r in rows, x, y in r.cells) := edge(x, y) | exists z in r.cells. linked(r, x, z) & linked(r, z, y)
define half(d: Digit where d > 1) -> Digit := half(d - 2) + 1
define half(d: Digit) -> Digit := 0
define quiet := forall x: Node. lonely(x)
[total] forall r in rows. sum x in r.cells where !lonely(x). digit(x) + 1 = r.sum
[count] forall r in rows. (count x in r.cells where linked(r, x, a)) + 1 < r.sum
[sum] forall sum: Digit. half(sum) <= sum -> quiet
"""


def test_a_program_survives_printing_pickling_and_copying() -> None:
    kb = parse(PROGRAM, warn=False)
    assert parse(str(kb), warn=False) == kb
    assert parse(kb.unicode(), warn=False) == kb
    assert pickle.loads(pickle.dumps(kb)) == kb
    assert copy.deepcopy(kb) == kb
    assert len(kb.definitions) == 7
    assert r"\sum_{x \in r.\mathrm{cells}" in kb.latex() and r"\mathrm{quiet} := \forall" in kb.latex()


def test_python_builds_the_same_trees() -> None:
    node, digits = Sort("Node", ("a", "b", "c")), Sort.range("Digit", 0, 9)
    edge, path = Predicate("edge", (node, node)), Predicate("path", (node, node))
    digit, rows = Function("digit", (node,), digits), Rows("rows", (("cells", node, True), ("sum", INT, False)))
    x, y, z = variables("x y z", node)
    (r,) = variables("r")
    near = Predicate("near", (rows.sort, node))
    said = [
        rows,
        digit,
        define(path, x, y)(edge(x, y) | exists(z)(edge(x, z) & path(z, y))),
        define(near, within("rows", r), within(r.field("cells"), x))(path(x, x)),
    ]
    total = aggregate("sum", within(r.field("cells"), x), where=near(r, x), of=digit(x)).eq(r.field("sum"))
    kb = KnowledgeBase(*said)
    text = f"{GRAPH.replace('sort Bit = 0..1', '')}{PATH}\ndefine near(r in rows, x in r.cells) := path(x, x)"
    assert kb == parse(text, warn=False)
    assert parse_formula(f"forall r in rows. {total}", kb).children[-1] == total
    with pytest.raises(KnowledgeError, match="uses !path"):
        KnowledgeBase(*said, define(path, x, y)(~path(y, x)))


def test_clauses_add_up_over_texts_and_repeat_once() -> None:
    kb = parse(GRAPH + PATH, warn=False)
    more = parse(f"{PATH}\ndefine path(x, y: Node) := x = y", base=kb, warn=False)
    assert [str(c) for c in more.definitions] == [
        "define path(x, y: Node) := edge(x, y) | exists z: Node. edge(x, z) & path(z, y)",
        "define path(x, y: Node) := x = y",
    ]
    assert len(kb.definitions) == 1
    assert (kb | more).definitions == more.definitions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("sum x: Node. digit(x) + 1 = 3", "(sum x: Node. digit(x) + 1) = 3"),
        ("1 + sum x: Node. digit(x) * 2 > 3", "1 + (sum x: Node. (digit(x) * 2)) > 3"),
        ("count x: Node where lone(x) + 1 = 2", "(count x: Node where lone(x)) + 1 = 2"),
        ("count x: Node where !lone(x) = 2", "(count x: Node where (!lone(x))) = 2"),
        ("max x: Node. min y: Node. digit(y) = 1", "(max x: Node. (min y: Node. digit(y))) = 1"),
        ("all_different x: Node. digit(x) + 1 & rain", "(all_different x: Node. (digit(x) + 1)) & rain"),
        ("!all_different x: Node. digit(x) -> rain", "(!(all_different x: Node. digit(x))) -> rain"),
        ("-sum x: Node. digit(x) = 1", "(-(sum x: Node. digit(x))) = 1"),
        ("∑x: Node. digit(x) = 1", "(sum x: Node. digit(x)) = 1"),
        ("age(count x: Node, a) = 1", "age((count x: Node), a) = 1"),
    ],
)
def test_aggregates_reach_as_far_as_a_term(text: str, tree: str) -> None:
    kb = parse(GRAPH + "pred rain; pred lone(Node); func age(Int, Node) -> Int", warn=False)
    assert parse_formula(text, kb) == parse_formula(tree, kb)
    assert parse_formula(str(parse_formula(text, kb)), kb) == parse_formula(text, kb)
    assert parse_formula(parse_formula(text, kb).unicode(), kb) == parse_formula(text, kb)


def test_the_new_words_stay_names_elsewhere() -> None:
    kb = parse(
        """
        sort count = 0..3; sort D = 0..9
        const min: D
        pred max(count), define; func sum(count) -> D; func argmax() -> D
        data all_different(sum: D, count: D)
        [argmin] forall r in all_different. r.sum = r.count + argmax() & define
        [max] forall sum: count. sum(sum) = min -> max(sum)
        """,
        warn=False,
    )
    assert parse(str(kb), warn=False) == kb


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("define win(x: Node) := exists y: Node. edge(x, y) & !win(y)", "'win' is defined through its own negation"),
        (
            "define p(x: Node) := q(x)\ndefine q(x: Node) := !s(x)\ndefine s(x: Node) := p(x)",
            "q uses !s, s uses p, p uses q",
        ),
        ("define p(x: Node) := (count y: Node where p(y)) > 2", "p uses p inside count"),
        ("define p(x: Node) := exactly 1 y: Node. p(y)", "p uses p inside exactly"),
        ("define p(x: Node) := p(x) <-> edge(x, x)", "p uses p inside <->"),
        (
            "define f(x: Node) -> Bit := count y: Node where p(y)\ndefine p(x: Node) := f(x) = 1",
            "f uses p inside count",
        ),
        ("define p(x: Node) := edge(x, x)\ndefine p(x, y: Node) := edge(x, y)", "already defined as"),
        ("define edge(x, y: Node) := x = y", "'edge' is already declared as a predicate"),
        ("define p(x: Node) := edge(x, w)", "unknown name 'w'"),
        ("define p(x: Node) := digit(x)", "a formula is needed here"),
        ("define f(x: Node) -> Bit := edge(x, x)", "a term is needed here"),
        ("define f(x: Node) -> Bit := 2", "outside 0..1"),
        ("define f(x: Node) -> Int := 2", "no finite list of values"),
        ("define f(x: Node) -> Bits := 2", "unknown sort 'Bits'"),
        ("define p(x: Nod) := true", "unknown sort 'Nod'"),
        ("define p(x, x: Node) := edge(x, x)", "bound twice"),
        ("define p(x: Node sample 3) := edge(x, x)", "are not sampled"),
        ("define p(x: Int) := x = 3", "endless"),
        ("define p(x in s.cells) := x = a", "nothing says what sort"),
        ("define p(x: Node) = edge(x, x)", "written with ':='"),
        ("define p(x) := edge(x, x)", "nothing says what the parameter x ranges over"),
        (f"{PATH}\nfact path(a, b)", "'path' is defined"),
        (f"{PATH}\nforall x: Node. fresh path(x, x)", "'path' is defined"),
        (f"{PATH}\nforall x: Node. path(x)", "path takes 2 arguments"),
        ("define p(r in rows) := r.sum = 1\nforall x: Node. p(x)", "must be a row of rows"),
        ("count x: Node where digit(x) > 3", "put what is counted in parentheses"),
        ("count x: Node. digit(x) = 3", "'count' has no body"),
        ("max x: Node. x = 3", "'max' needs numbers"),
        ("sum x: Node. edge(x, x) = 3", "a term is needed here"),
        ("argmax x: Node. digit(x) = 3", "cannot compare"),
        ("argmax x, y: Node. digit(x) = a", "one variable"),
        ("sum x: Node. digit(x)", "a formula is needed here"),
        ("sum x: Node sample 3. digit(x) = 1", "leave 'sample' out"),
        ("sum x. digit(x) = 1", "nothing says what x ranges over"),
    ],
)
def test_mistakes_are_named_at_their_place(text: str, message: str) -> None:
    with pytest.raises(KnowledgeError) as caught:
        parse(GRAPH + text, warn=False)
    assert message in str(caught.value).replace("\n        ", " ")
    assert all(d.span is not None for d in caught.value.diagnostics)


@pytest.mark.parametrize(
    "text",
    [
        "define p(x: Node) := !(!p(x))",
        "define p(x: Node) := forall y: Node where edge(x, y). p(y)",
        "define p(x: Node) := at least 2 y: Node. p(y)",
        "define p(x: Node) := !(at most 1 y: Node. p(y))",
        "define p(x: Node) := !p(x) -> edge(x, x)",
        "define f(d: Digit where d > 0) -> Digit := f(d - 1)\ndefine f(d: Digit) -> Digit := d",
    ],
)
def test_monotone_recursion_is_allowed(text: str) -> None:
    assert parse(GRAPH + text, warn=False).definitions


def test_strata_come_in_order() -> None:
    kb = parse(
        GRAPH
        + """
        define top := !left
        define left := right | base
        define right := base & left
        define base := true
        """,
        warn=False,
    )
    assert [(s.names, s.recursive) for s in strata(kb.signature.definitions)] == [
        (("base",), False),
        (("left", "right"), True),
        (("top",), False),
    ]


def test_variables_of_aggregates_are_bound() -> None:
    kb = parse(GRAPH, warn=False)
    formula = parse_formula("forall r in rows. sum x in r.cells where x != a. digit(x) = r.sum", kb)
    compare = formula.children[-1]
    assert isinstance(compare, Compare)
    total = compare.children[0]
    assert isinstance(total, Aggregate)
    free = free_variables(formula)
    assert free[id(total)] == {"r"} and free[id(total.body)] == {"x"} and free[id(formula)] == frozenset()


def test_a_count_is_a_sum_of_ones() -> None:
    (x,) = variables("x", Sort("Node"))
    counted = aggregate("count", x, where=Name("red"))
    assert isinstance(counted, Aggregate) and counted.body == Number(1)
    assert str(counted) == "count x: Node where red"


def test_a_stratum_of_ten_thousand_is_found_without_recursion() -> None:
    n = 10_000
    lines = [f"define p{i} := p{i + 1} | q" for i in range(n)]
    kb = parse("pred q\n" + "\n".join([*lines, f"define p{n} := p0"]), warn=False)
    (stratum,) = strata(kb.signature.definitions)
    assert stratum.recursive and len(stratum.names) == n + 1
