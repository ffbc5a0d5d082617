"""How large and how fast compiled clauses are: twenty standard formulas, against PySDD and against CUDD through dd.

Sizes are edges, counted alike: every diagram is read into the same kind of circuit, in which equal nodes are one node
and constants are gone. An element of a decision diagram is a conjunction of its prime and its sub, a node of a binary
one a disjunction of two conjunctions with a literal. No circuit is smooth.

PySDD and dd are run in several ways: as recommended, with minimisation and sifting, and as an expert would, in a fixed
order that nothing changes: variables as they are numbered, or as FORCE puts them (Aloul, Markov and Sakallah 2003; the
time that takes is not counted), and clauses from the last variable on, so that a diagram grows from the bottom. Of each
peer, the smallest diagram of all ways is held against our size, and the fastest run against our time; a row says which
that was. The time ends when the clauses are a diagram, which the peer can count with: reading it into a circuit is not
counted. dd is its C form, dd.cudd; doxa is the compiled search where there is a C compiler, as by default. A run is a
process of its own, and ends after 10 seconds of CPU time: that counts as "at least".

Beside the twenty there are larger ones that doxa compiles or refuses. ``--data FOLDER`` names a folder with
``road_r`` (ROAD-R's requirements) and ``satlib/uf20-91``, which are not ours; without it these are left out. Beside
the rows there is a table, ``results/cnf.md``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations, product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from circuits import hierarchy, sums, three_sat
from doxa.data import path_knowledge, read_road
from doxa.errors import BudgetError
from doxa.exact.circuits import Circuit, compile_cnf
from doxa.exact.circuits._packages import circuit_of_bdd, circuit_of_sdd
from doxa.logic import CNF, read_dimacs, to_cnf
from doxa.problem import Budget
from exact import sudoku
from harness import RESULTS, Row, Use

SECONDS = 10

# -- formulas -----------------------------------------------------------------------------------------------------


def one_of(literals: list[int]) -> list[list[int]]:
    return [literals, *([-a, -b] for a, b in combinations(literals, 2))]


def injections(things: int, places: int) -> CNF:
    """Each thing has one place, no two the same: permutations where there are as many places as things."""
    rows = [[places * i + j + 1 for j in range(places)] for i in range(things)]
    columns = list(map(list, zip(*rows, strict=True)))
    clauses = [clause for row in rows for clause in one_of(row)]
    clauses += [c for column in columns for c in one_of(column)[things < places :]]
    return CNF.from_clauses(clauses, things * places)


def exactly(k: int, n: int) -> CNF:
    """Every n - k + 1 variables have a true one, every k + 1 a false one."""
    some = [list(c) for c in combinations(range(1, n + 1), n - k + 1)]
    return CNF.from_clauses(some + [[-v for v in c] for c in combinations(range(1, n + 1), k + 1)], n)


def parity(n: int) -> CNF:
    """An odd number of n variables are true, by XORs of three: variable n + i is the parity of the first i + 1."""

    def even(a: int, b: int, c: int) -> list[list[int]]:
        return [[-a, b, c], [a, -b, c], [a, b, -c], [-a, -b, -c]]

    steps = [even(1, 2, n + 1)] + [even(n + i, i + 2, n + i + 1) for i in range(1, n - 1)]
    return CNF.from_clauses([*(c for step in steps for c in step), [2 * n - 1]], 2 * n - 1)


def smokers(people: int) -> CNF:
    """Friends of smokers smoke, friendship is mutual."""
    friends = {pair: people + i + 1 for i, pair in enumerate(combinations(range(people), 2))}
    clauses = [[-f, -a - 1, b + 1] for (a, b), f in friends.items()]
    clauses += [[-f, -b - 1, a + 1] for (a, b), f in friends.items()]
    return CNF.from_clauses(clauses, people + len(friends))


def order(things: int) -> CNF:
    """A total order: of two things one comes first, and that is transitive."""
    number = {pair: i + 1 for i, pair in enumerate(combinations(range(things), 2))}

    def before(a: int, b: int) -> int:
        return number[a, b] if a < b else -number[b, a]

    triples = permutations(range(things), 3)
    clauses = {tuple(sorted([-before(a, b), -before(b, c), before(a, c)])) for a, b, c in triples}
    return CNF.from_clauses(sorted(clauses), len(number))


def paths() -> CNF:
    """Simple paths in a grid of 4×4 nodes between any two ends."""
    return to_cnf(path_knowledge(4, removed=False))


def sudoku_9(givens: int, seed: int = 0) -> CNF:
    """A 9×9 Sudoku: a filled one is shuffled, and so many of its cells are given."""
    rng = random.Random(seed)
    bands = [[3 * b + i for b in rng.sample(range(3), 3) for i in rng.sample(range(3), 3)] for _ in range(2)]
    digits = rng.sample(range(9), 9)
    cells = list(product(range(9), range(9)))
    filled = {(r, c): digits[(3 * (bands[0][r] % 3) + bands[0][r] // 3 + bands[1][c]) % 9] for r, c in cells}

    def x(r: int, c: int, value: int) -> int:
        return 81 * r + 9 * c + value + 1

    lines = [[(r, c) for c in range(9)] for r in range(9)] + [[(r, c) for r in range(9)] for c in range(9)]
    lines += [[(3 * i + a, 3 * j + b) for a in range(3) for b in range(3)] for i in range(3) for j in range(3)]
    clauses = [clause for r, c in cells for clause in one_of([x(r, c, v) for v in range(9)])]
    clauses += [clause for line in lines for v in range(9) for clause in one_of([x(r, c, v) for r, c in line])]
    clauses += [[x(r, c, filled[r, c])] for r, c in rng.sample(cells, givens)]
    return CNF.from_clauses(clauses, 729)


def clubs(people: int) -> CNF:
    """Two clubs: a member of one shuts out every two members of the other, and three members of both are too many."""
    first, second = range(1, people + 1), range(people + 1, 2 * people + 1)
    clauses = [
        [-a, -b, -c] for one, two in ((first, second), (second, first)) for a in one for b, c in combinations(two, 2)
    ]
    return CNF.from_clauses(clauses, 2 * people)


def copies(cnf: CNF, count: int) -> CNF:
    """The same clauses over and over, each time over variables of their own."""
    n = cnf.variables
    rows = [[x + i * n if x > 0 else x - i * n for x in clause] for i in range(count) for clause in cnf.clauses]
    return CNF.from_clauses(rows, n * count)


def chains(people: int) -> CNF:
    """Four steps are a step: p(a, b), p(b, c), p(c, d), p(d, e) → p(a, e) for all of five people."""

    def p(a: int, b: int) -> int:
        return people * a + b + 1

    fives = product(range(people), repeat=5)
    return CNF.from_clauses([[-p(a, b), -p(b, c), -p(c, d), -p(d, e), p(a, e)] for a, b, c, d, e in fives], people**2)


def formulas(data: Path | None) -> dict[str, Callable[[], CNF]]:
    """The twenty; what lies in a folder that is not given is left out."""
    found: dict[str, Callable[[], CNF]] = {f"random 3-SAT, n={n}": partial(three_sat, n) for n in (20, 30, 40, 50, 60)}
    found |= {
        "hierarchy of 2⁶ leaves": partial(hierarchy, 2, 6),
        "hierarchy of 5³ leaves": partial(hierarchy, 5, 3),
        "permutations of 6": partial(injections, 6, 6),
        "5 pigeons in 7 holes": partial(injections, 5, 7),
        "simple paths in 4×4": paths,
        "sudoku 4×4": sudoku,
        **{f"addition N={n}": partial(sums, n) for n in (1, 2, 3, 4)},
        "exactly 5 of 10": partial(exactly, 5, 10),
        "exactly 10 of 20": partial(exactly, 10, 20),
        "parity of 100, chained": partial(parity, 100),
        "smokers and friends, 6": partial(smokers, 6),
    }
    if data is not None:
        found["ROAD-R"] = lambda: read_road(data / "road_r").clauses
        found["uf20-91, first"] = partial(read_dimacs, data / "satlib" / "uf20-91" / "uf20-01.cnf")
    else:
        found["total orders of 5"] = partial(order, 5)
    return found


LARGE: dict[str, Callable[[], CNF]] = {
    "50 copies of random 3-SAT, n=40": lambda: copies(three_sat(40), 50),
    "sudoku 9×9, 30 given": partial(sudoku_9, 30),
    "two clubs of 50: 122,500 clauses over 100": partial(clubs, 50),
    "chains of five in 10: 100,000 clauses over 100": partial(chains, 10),
}

# -- compilers ----------------------------------------------------------------------------------------------------


@dataclass
class Made:
    """CPU seconds of making a diagram, its edges as a circuit, and its own measure of size."""

    seconds: float
    edges: int
    own: int
    how: str


def ours(cnf: CNF) -> tuple[Circuit, Callable[[], tuple[Circuit, int]]]:
    circuit = compile_cnf(cnf, Budget(operations=1 << 40, nodes=10**8))
    return circuit, lambda: (circuit, len(circuit))


def ordered(cnf: CNF) -> list[tuple[int, ...]]:
    """Clauses by their last variable, so that a diagram grows from the top."""
    return sorted(map(tuple, cnf.clauses), key=lambda c: max(map(abs, c), default=0))


def force(cnf: CNF) -> list[int]:
    """An order in which the variables of a clause are close: each goes to the middle of its clauses, repeatedly."""
    scopes = [[abs(x) for x in clause] for clause in cnf.clauses if clause]
    places = list(range(cnf.variables + 1))
    best, found = None, places
    while True:
        span = sum(max(places[v] for v in scope) - min(places[v] for v in scope) for scope in scopes)
        if best is not None and span >= best:
            return sorted(range(1, cnf.variables + 1), key=lambda v: found[v])
        best, found = span, places
        middles: list[list[float]] = [[] for _ in places]
        for scope in scopes:
            middle = sum(places[v] for v in scope) / len(scope)
            for v in scope:
                middles[v].append(middle)
        wanted = [sum(m) / len(m) if m else places[v] for v, m in enumerate(middles)]
        places = [0] * len(places)
        for place, v in enumerate(sorted(range(1, len(places)), key=lambda v: wanted[v]), 1):
            places[v] = place


def upward(cnf: CNF, order: list[int]) -> list[tuple[int, ...]]:
    """Clauses from that with the last first variable on, so that a diagram grows from the bottom."""
    place = {v: i for i, v in enumerate(order)}
    return sorted(map(tuple, cnf.clauses), key=lambda c: -min((place[abs(x)] for x in c), default=0))


def sdd_by_clauses(vtree: str, cnf: CNF) -> tuple[Any, Callable[[], tuple[Circuit, int]]]:
    """Clause after clause, with automatic minimisation."""
    from pysdd.sdd import SddManager, Vtree

    manager = SddManager.from_vtree(Vtree(var_count=cnf.variables, vtree_type=vtree))
    manager.auto_gc_and_minimize_on()
    root = manager.true()
    root.ref()
    for clause in ordered(cnf):
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        joined = root & part
        joined.ref()
        root.deref()
        root = joined
    return manager, lambda: (circuit_of_sdd(root, cnf.variables), root.size())


def sdd_fixed(vtree: str, order: list[int], cnf: CNF) -> tuple[Any, Callable[[], tuple[Circuit, int]]]:
    """Clause after clause, in an order that stays."""
    from pysdd.sdd import SddManager, Vtree

    manager = SddManager.from_vtree(Vtree(var_count=cnf.variables, var_order=order, vtree_type=vtree))
    root = manager.true()
    for clause in upward(cnf, order):
        part = manager.false()
        for literal in clause:
            part = part | manager.literal(literal)
        root = root & part
    return manager, lambda: (circuit_of_sdd(root, cnf.variables), root.size())


def sdd_by_file(vtree: str, cnf: CNF) -> tuple[Any, Callable[[], tuple[Circuit, int]]]:
    """The package's own compiler of DIMACS files, then its search for a smaller tree of variables."""
    from pysdd.sdd import SddManager

    lines = [f"p cnf {cnf.variables} {len(cnf)}", *(" ".join(map(str, (*c, 0))) for c in cnf.clauses)]
    manager, root = SddManager.from_cnf_string("\n".join(lines) + "\n", vtree.encode())
    root.ref()
    manager.minimize()
    return manager, lambda: (circuit_of_sdd(root, cnf.variables), root.size())


def bdd(during: bool, cnf: CNF) -> tuple[Any, Callable[[], tuple[Circuit, int]]]:
    """Clause after clause, sifting while it grows or at the end."""
    from dd import cudd

    manager = cudd.BDD()
    names = [f"x{v}" for v in range(cnf.variables + 1)]
    manager.declare(*names[1:])
    manager.configure(reordering=during)
    root = manager.true
    for clause in ordered(cnf):
        root &= ~manager.cube({names[abs(x)]: x < 0 for x in clause})
    if not during:
        cudd.reorder(manager)
    return manager, lambda: (circuit_of_bdd(manager, root, cnf.variables), root.dag_size)


def bdd_fixed(order: list[int], cnf: CNF) -> tuple[Any, Callable[[], tuple[Circuit, int]]]:
    """Clause after clause, in an order that stays."""
    from dd import cudd

    manager = cudd.BDD()
    names = [f"x{v}" for v in range(cnf.variables + 1)]
    manager.declare(*(names[v] for v in order))
    manager.configure(reordering=False)
    root = manager.true
    for clause in upward(cnf, order):
        root &= ~manager.cube({names[abs(x)]: x < 0 for x in clause})
    return manager, lambda: (circuit_of_bdd(manager, root, cnf.variables), root.dag_size)


Compile = Callable[[CNF], tuple[Any, Callable[[], tuple[Circuit, int]]]]
DOXA: dict[str, Compile] = {"doxa": ours}
PYSDD: dict[str, Compile] = {
    **{f"clauses, {vtree}": partial(sdd_by_clauses, vtree) for vtree in ("balanced", "right")},
    **{f"file, {vtree}": partial(sdd_by_file, vtree) for vtree in ("balanced", "right")},
}
DD: dict[str, Compile] = {"sifting on": partial(bdd, True), "sifted once": partial(bdd, False)}


def by_experts(cnf: CNF) -> dict[str, dict[str, Compile]]:
    """What one who knows the peers would try: fixed orders."""
    orders = {"as numbered": list(range(1, cnf.variables + 1)), "FORCE": force(cnf)}
    trees = ("balanced", "right")
    return {
        "PySDD": {f"fixed, {o}, {vtree}": partial(sdd_fixed, vtree, orders[o]) for o in orders for vtree in trees},
        "dd": {f"fixed, {o}": partial(bdd_fixed, orders[o]) for o in orders},
    }


def run(ways: dict[str, Compile], cnf: CNF, models: int | None) -> list[Made]:
    """What each way makes within the limit; all must have as many models."""
    context = multiprocessing.get_context("fork")
    made = []
    for how, compiled in ways.items():
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_measure, args=(compiled, cnf, sending))
        process.start()
        sending.close()
        answer = None
        # CPU time is limited below; the wall may take longer, for other processes may be running.
        if receiving.poll(30 * SECONDS):
            try:
                answer = receiving.recv()
            except EOFError:  # it ran out of time or memory, or crashed
                answer = None
        process.kill()
        process.join()
        if answer is not None:
            seconds, edges, own, count = answer
            if models is not None and count != models:
                raise AssertionError(f"{how}: {count} models, expected {models}")
            made.append(Made(seconds, edges, own, how))
    return made


def _measure(compiled: Compile, cnf: CNF, sending: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    spent, loops = 0.0, 0
    while spent < 0.3:  # the fast ones over and over
        start = time.process_time()
        try:
            kept, read = compiled(cnf)
        except BudgetError as error:
            print(f"refused: {error}", flush=True)
            sending.close()
            return
        spent += time.process_time() - start
        loops += 1
    circuit, own = read()
    sending.send((spent / loops, circuit.edges, own, circuit.count()))
    del kept


# -- rows ---------------------------------------------------------------------------------------------------------


def show(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def told(made: list[Made]) -> str:
    """The fastest time and the smallest size, as cells of a table."""
    if not made:
        return f"> {SECONDS} s | – | –"
    small = min(made, key=lambda m: m.edges)
    return f"{show(min(m.seconds for m in made))} | {small.edges:,} | {small.own:,}"


def twenty(data: Path | None) -> tuple[list[Row], list[str]]:
    table = [
        "| formula | variables | clauses | doxa | edges | PySDD | edges | elements | CUDD | edges | nodes |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    found: list[Row] = []
    smaller: dict[str, list[bool]] = {"PySDD": [], "dd": [], "both": []}
    for name, make in formulas(data).items():
        cnf = make()
        (mine,) = run(DOXA, cnf, None)
        models = compile_cnf(cnf, Budget(operations=1 << 40, nodes=10**8)).count()
        experts = by_experts(cnf)
        peers = {
            "PySDD": run(PYSDD | experts["PySDD"], cnf, models),
            "dd": run(DD | experts["dd"], cnf, models),
        }
        cells = [f"{cnf.variables} | {len(cnf):,} | {show(mine.seconds)} | {mine.edges:,}", *map(told, peers.values())]
        table.append(f"| {name} | {' | '.join(cells)} |")
        print(table[-1], flush=True)
        for peer, made in peers.items():
            fastest = min(made, key=lambda m: m.seconds, default=None)
            smallest = min([m.edges for m in made], default=None)
            note = f"edges {mine.edges:,} against {'–' if smallest is None else f'{smallest:,}'}"
            note += f"; {fastest.how}" if fastest else f"; {peer} not done in {SECONDS} s, so at least"
            ratio = (fastest.seconds if fastest else SECONDS) / mine.seconds
            use: Use = "expert" if fastest and fastest.how in experts[peer] else "recommended"
            found.append(Row(f"{name}: times faster than {peer}", ratio, 1.0, "higher", note=note, use=use))
            smaller[peer].append(smallest is None or mine.edges <= smallest)
        smaller["both"].append(smaller["PySDD"][-1] and smaller["dd"][-1])
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("PySDD", "dd"))
    for peer, wins in smaller.items():
        title = f"share of {len(wins)} formulas with at most as many edges as {peer}"
        found.append(Row(title, sum(wins) / len(wins), 0.5, "higher", note=versions))
    return found, table


def large() -> list[str]:
    """What doxa makes of larger formulas within its budget, or why it refuses."""
    table = ["", "| larger | variables | clauses | time | edges, or why not |", "| --- | ---: | ---: | ---: | --- |"]
    for name, make in LARGE.items():
        cnf = make()
        start = time.process_time()
        try:
            answer = f"{compile_cnf(cnf, Budget(seconds=SECONDS, operations=1 << 28)).edges:,}"
        except BudgetError as error:
            answer = str(error)
        spent = show(time.process_time() - start)
        table.append(f"| {name} | {cnf.variables} | {len(cnf):,} | {spent} | {answer} |")
        print(table[-1], flush=True)
    return table


def rows(data: Path | None = None) -> list[Row]:
    if any(importlib.util.find_spec(name) is None for name in ("pysdd", "dd.cudd")):
        print("nothing is measured: the packages PySDD and dd with CUDD are not installed")
        return []
    title = (
        "Compiled clauses: CPU time and edges, counted alike for all (see `benchmarks/cnf.py`). Of each peer the "
        "fastest of its runs, and the smallest, of several: as recommended, and in a fixed order as an expert would; "
        "elements and nodes are its own measure. "
        "Written by `python benchmarks/cnf.py --data FOLDER`."
    )
    found, table = twenty(data)
    lines = [title, "", *table, *large()]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cnf.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    from harness import main

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with road_r and satlib/uf20-91")
    main(__file__, partial(rows, parser.parse_args().data))
