"""The compiler against truth tables: every node is what it should be, whatever clauses come; and stays small."""

from __future__ import annotations

import itertools
import random

import pytest

from doxa.errors import BudgetError
from doxa.exact.circuits import Circuit, compile_cnf, exactly_one
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
    people = 6  # four steps are a step
    fives = itertools.product(range(people), repeat=5)
    rows = [[*(-people * x - y - 1 for x, y in itertools.pairwise(w)), people * w[0] + w[-1] + 1] for w in fives]
    with pytest.raises(BudgetError, match=r"clauses over 36 variables takes .* operations at this pace"):
        compile_cnf(CNF.from_clauses(rows, people**2), Budget(operations=1 << 20))


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
