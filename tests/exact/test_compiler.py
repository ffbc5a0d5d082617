"""The compiler against truth tables: every node is what it should be, whatever clauses come; and stays small."""

from __future__ import annotations

import _thread
import itertools
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from doxa.errors import BudgetError, DataError
from doxa.exact.circuits import Circuit, compile_cnf, exactly_one, read_nnf
from doxa.exact.circuits._compiler import compile_with
from doxa.exact.circuits._shrinking import shrink
from doxa.logic import CNF
from doxa.problem import Budget
from doxa.problem._budget import Meter

Clauses = list[list[int]]


def tables(variables: int) -> tuple[list[int], int]:
    """For each variable the worlds in which it is true, as bits; and all worlds."""
    worlds = 1 << variables
    return [sum(1 << w for w in range(worlds) if w >> v & 1) for v in range(variables)], (1 << worlds) - 1


def truth(clauses: Clauses, variables: int) -> int:
    true, every = tables(variables)
    result = every
    for clause in clauses:
        some = 0
        for x in clause:
            some |= true[x - 1] if x > 0 else every & ~true[-x - 1]
        result &= some
    return result


def check(circuit: Circuit, wanted: int) -> None:
    """It has these models, its conjunctions share no variable, and its disjunctions exclude each other."""
    true, every = tables(circuit.variables)
    values = [value for t in true for value in (t, every & ~t)]
    for kind, children in zip(circuit.kinds.tolist(), circuit.arguments, strict=True):
        value, seen = (0, 0) if kind else (every, 0)
        for child in children:
            assert not (value & values[child] if kind else seen & circuit.scopes[child])
            value = value | values[child] if kind else value & values[child]
            seen |= circuit.scopes[child]
        values.append(value)
    assert values[-1] == wanted
    assert circuit.count() == wanted.bit_count()


def at_least(literals: list[int], k: int) -> Clauses:
    return [list(c) for c in itertools.combinations(literals, len(literals) - k + 1)]


def xor(literals: list[int], odd: bool) -> Clauses:
    rows = itertools.product((1, -1), repeat=len(literals))
    return [
        [x * s for x, s in zip(literals, signs, strict=True)] for signs in rows if (signs.count(-1) % 2 == 0) == odd
    ]


def awkward(rng: random.Random) -> tuple[int, Clauses]:
    """Constraints with a clause missing or changed, chains of XORs, twins, clauses that say nothing or nothing new."""
    n = rng.randint(0, 7)
    clauses: Clauses = []
    for _ in range(rng.randint(0, 3) if n else 0):
        literals = [v * rng.choice((1, -1)) for v in rng.sample(range(1, n + 1), rng.randint(1, min(n, 6)))]
        kind = rng.random()
        if kind < 0.3:
            own = xor(literals, rng.random() < 0.5)
        elif kind < 0.7:
            own = at_least(literals, rng.randint(1, len(literals)))
            own += at_least([-x for x in literals], rng.randint(1, len(literals))) if kind < 0.5 else []
        else:
            order = rng.sample(range(1, n + 1), n)
            own = [c for i in range(n - 2) for c in xor(order[i : i + 3], rng.random() < 0.5)]
        if own and rng.random() < 0.4:
            del own[rng.randrange(len(own))]
        clauses += own
    for _ in range(rng.choice([0, 0, 1, 3, 8]) if n else 0):
        clauses.append([rng.randint(1, n) * rng.choice((1, -1)) for _ in range(rng.randint(1, 4))])
    if clauses and rng.random() < 0.3:
        some = rng.choice(clauses)
        clauses += [[*some, rng.randint(1, n)], some[::-1]]
    if rng.random() < 0.04:
        clauses.append([])
    rng.shuffle(clauses)
    return n, clauses


@pytest.mark.parametrize("seed", range(4))
def test_awkward_clauses_whole_and_broken(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        n, clauses = awkward(rng)
        check(compile_cnf(CNF.from_clauses(clauses, n)), truth(clauses, n))
        at = rng.randint(0, len(clauses))
        kept, broken = clauses[:at], clauses[at:]
        circuit, _ = compile_with("doxa", CNF.from_clauses(kept, n), Budget(), broken)
        check(circuit, truth(kept, n) & ~truth(broken, n))


def knotted(rng: random.Random) -> tuple[int, Clauses]:
    """Larger ones: clauses of several lengths with a cardinality and an XOR, perhaps copied, perhaps behind a guard."""
    n, copies, guard = rng.randint(10, 30), rng.randint(1, 3), rng.random() < 0.4
    clauses = [
        [v * rng.choice((1, -1)) for v in rng.sample(range(1, n + 1), rng.choice([1, 2, 3, 3, 3, 4, 6]))]
        for _ in range(int(n * rng.uniform(0.5, 4)))
    ]
    if rng.random() < 0.5:
        clauses += at_least([v * rng.choice((1, -1)) for v in rng.sample(range(1, n + 1), 7)], rng.randint(1, 6))
        clauses += xor(rng.sample(range(1, n + 1), 4), odd=True)
    last = n * copies + 1
    every = [[x + n * i if x > 0 else x - n * i for x in c] for i in range(copies) for c in clauses]
    return last, [[last, *c] for c in every] if guard else every


def by_both(variables: int, clauses: Clauses, budget: Budget, broken: Clauses | None = None) -> list[object]:
    """What the search in Python and that in C make of clauses, with what was counted; or the limit that they met."""
    answers: list[object] = []
    for native in (False, True):
        try:
            circuit, meter = compile_with("doxa", CNF.from_clauses(clauses, variables), budget, broken, native=native)
        except BudgetError as error:
            answers.append(error.field)
            continue
        arrays = (circuit.kinds, circuit.offsets, circuit.children)
        answers.append((*((a.dtype, a.tolist()) for a in arrays), meter.operations, meter.nodes))
    return answers


@pytest.mark.parametrize("make", [awkward, knotted])
def test_the_search_in_c_takes_the_steps_of_that_in_python(
    make: Callable[[random.Random], tuple[int, Clauses]],
) -> None:
    rng = random.Random(5)
    for _ in range(30):
        n, clauses = make(rng)
        python, native = by_both(n, clauses, Budget())
        assert python == native
        at = rng.randint(0, len(clauses))
        python, native = by_both(n, clauses[:at], Budget(), clauses[at:])
        assert python == native


def test_both_searches_meet_the_same_limits() -> None:
    rng = random.Random(1)
    rows = [[v * rng.choice((1, -1)) for v in rng.sample(range(1, 31), 3)] for _ in range(70)]
    _, meter = compile_with("doxa", CNF.from_clauses(rows, 30), Budget(), native=False)
    limits = [Budget(operations=n) for n in (*range(100, meter.operations, 997), meter.operations)]
    limits += [Budget(nodes=n) for n in (*range(1, meter.nodes, 17), meter.nodes)]
    answers = [by_both(30, rows, budget) for budget in limits]
    assert all(python == native for python, native in answers)
    assert {python for python, _ in answers if isinstance(python, str)} == {"operations", "nodes"}
    assert sum(isinstance(python, tuple) for python, _ in answers) == 2  # with just as many as it takes


def test_groups_wider_than_a_number_of_the_search_in_c() -> None:
    for n in (61, 62):
        literals = [v if v % 3 else -v for v in range(1, n + 1)]
        one = [literals, *([-a, -b] for a, b in itertools.combinations(literals, 2))]
        guarded = [[n + 1, *c] for c in one]
        assert compile_cnf(CNF.from_clauses(one, n)).count() == n
        assert compile_cnf(CNF.from_clauses(guarded, n + 1)).count() == n + 2**n


def steps(people: int) -> CNF:
    """Four steps are a step, for any five people: too entangled for anybody."""
    fives = itertools.product(range(people), repeat=5)
    rows = [[*(-people * x - y - 1 for x, y in itertools.pairwise(w)), people * w[0] + w[-1] + 1] for w in fives]
    return CNF.from_clauses(rows, people**2)


def test_a_long_search_ends_when_time_is_over_and_at_ctrl_c() -> None:
    cnf = steps(7)
    with pytest.raises(BudgetError, match=r"could not decide within 0\.3 seconds"):
        compile_cnf(cnf, Budget(seconds=0.3, operations=1 << 60, nodes=1 << 60))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # even if it is ignored here
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_cnf(cnf, Budget(operations=1 << 60, nodes=1 << 60))
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_copies_cost_little_more_than_one() -> None:
    rng = random.Random(3)
    rows = [[v * rng.choice((1, -1)) for v in rng.sample(range(1, 26), 3)] for _ in range(80)]
    groups = at_least([-v for v in range(20, 26)], 5)
    costs, counts = [], []
    for copies in (1, 20):
        every = [[x + 25 * i if x > 0 else x - 25 * i for x in c] for i in range(copies) for c in rows + groups]
        circuit, meter = compile_with("doxa", CNF.from_clauses(every, 25 * copies), Budget())
        costs.append(meter.operations)
        counts.append(circuit.count())
    assert counts[1] == counts[0] ** 20
    assert costs[1] < 10 * costs[0]
    # Under a decision, and upside down: a copy is made only of what is the same in the same order.
    guard = [[51, *([x + 25 * i if x > 0 else x - 25 * i for x in c])] for i in range(2) for c in rows]
    mirror = [[51, *(77 - x if x > 0 else -77 - x for x in c)] for c in rows[:40]]
    one = compile_cnf(CNF.from_clauses(rows, 25)).count()
    assert compile_cnf(CNF.from_clauses(guard, 51)).count() == one**2 + 2**50
    part = compile_cnf(CNF.from_clauses(rows[:40], 25)).count()
    other = [[51, *c] for c in rows[:40]]
    assert compile_cnf(CNF.from_clauses(mirror + other, 76)).count() == part**2 * 2**25 + 2**75


def test_chains_of_parities_are_linear() -> None:
    sizes = []
    for n in (40, 80):
        steps = [xor([i, i + 1, i + 2], odd=False) for i in range(1, 2 * n, 2)]
        circuit = compile_cnf(CNF.from_clauses([c for step in steps for c in step], 2 * n + 1))
        assert circuit.count() == 2 ** (n + 1)
        sizes.append(circuit.edges)
    assert sizes[1] < 2.2 * sizes[0]


def clubs(people: int) -> CNF:
    """A member of one club shuts out every two members of the other."""
    first, second = range(1, people + 1), range(people + 1, 2 * people + 1)
    rows = [
        [-a, -b, -c] for x, y in ((first, second), (second, first)) for a in x for b, c in itertools.combinations(y, 2)
    ]
    return CNF.from_clauses(rows, 2 * people)


def test_variables_that_a_relation_cannot_tell_apart_share_nodes() -> None:
    small = compile_cnf(clubs(3))
    check(small, truth([list(c) for c in clubs(3).clauses], 6))
    circuit = compile_cnf(clubs(12))
    assert circuit.count() == 2 * 2**12 - 1 + 12 * 12  # nobody in one of the clubs, or one in each
    assert circuit.edges < 500


def test_a_relation_that_is_too_entangled_is_refused_with_an_estimate() -> None:
    with pytest.raises(BudgetError, match=r"clauses over 36 variables takes .* operations at this pace"):
        compile_cnf(steps(6), Budget(operations=1 << 20))


def sudoku(givens: dict[tuple[int, int], int]) -> CNF:
    """4×4, cell (r, c) has value v as variable 16 r + 4 c + v + 1."""
    cells = list(itertools.product(range(4), range(4)))
    lines = [[(r, c) for c in range(4)] for r in range(4)] + [[(r, c) for r in range(4)] for c in range(4)]
    lines += [
        [(2 * i + a, 2 * j + b) for a, b in itertools.product(range(2), range(2))] for i in range(2) for j in range(2)
    ]
    units = [[16 * r + 4 * c + v + 1 for r, c in line] for line in lines for v in range(4)]
    units += [[16 * r + 4 * c + v + 1 for v in range(4)] for r, c in cells]
    rows = [row for unit in units for row in at_least(unit, 1) + at_least([-x for x in unit], 3)]
    return CNF.from_clauses([*rows, *([16 * r + 4 * c + v + 1] for (r, c), v in givens.items())], 64)


def test_sudokus() -> None:
    assert compile_cnf(sudoku({})).count() == 288
    assert compile_cnf(sudoku({})).edges < 2_000
    assert compile_cnf(sudoku({(0, 0): 0, (0, 1): 1})).count() == 288 // 12
    assert compile_cnf(sudoku({(0, 0): 0, (3, 0): 0})).count() == 0


def test_shrinking_keeps_every_model_and_property() -> None:
    for n in range(8):
        small = shrink(exactly_one(n), Meter(Budget(), ""))
        check(small, sum(1 << (1 << v) for v in range(n)))
        assert small.edges <= exactly_one(n).edges


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "x.nnf", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError, match=rf"^cannot read '.*': {reason}.*; wanted a \.nnf file"):
            read_nnf(path)
    (tmp_path / "y.nnf").write_bytes(b"\xff\x00")
    with pytest.raises(DataError, match="first line is not"):
        read_nnf(tmp_path / "y.nnf")
