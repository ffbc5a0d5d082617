"""Pruners against golden values, brute force, arithmetic and each other."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

import doxa
from doxa.amortized import (
    AdditionPruner,
    AmortizedReasoner,
    FactorMLPs,
    FunctionPruner,
    KnowledgeProblem,
    LearnedPruner,
    PathPruner,
    Pruner,
    SatPruner,
    ScanModel,
    SupportPruner,
)
from doxa.amortized._decoding import draw
from doxa.errors import ConfigError, KnowledgeError, ProblemError
from doxa.exact import Elimination
from doxa.logic import Constant, Function, Sort, propositions
from doxa.problem import (
    Belief,
    BruteForce,
    Problem,
    addition,
    cnf,
    comparison,
    exactly_k,
    parity,
    path_moves,
    remainder,
    shortest_path,
)
from doxa.problem._paths import MOVES, moved


def digits(number: Tensor, count: int) -> Tensor:
    """The decimal digits of numbers, most significant first: ``(..., count)``."""
    return torch.stack([number // 10 ** (count - 1 - i) % 10 for i in range(count)], -1)


def values(pruner: Pruner, *prefix: int) -> list[int]:
    return pruner(torch.tensor(prefix, dtype=torch.int64)).nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("n", "prefix", "expected"),
    [  # errata 5.1: the sum, then digits of the first number, then of the second
        (1, (1, 3), range(4, 10)),
        (2, (1, 3, 5), range(3, 10)),
        (2, (1, 4, 9), range(5, 10)),
        (2, (1, 9, 9), ()),
        (3, (1, 9, 9, 8), (9,)),
        (2, (1, 3, 5, 5), range(10)),
        (2, (1, 3, 5, 5, 0), (8,)),
        (2, (1, 3, 5, 5, 0, 8), (5,)),
        (2, (1, 3, 5, 5, 0, 7), ()),
        (1, (1,), range(9)),  # 19 is no sum of two digits
        (1, (0,), range(10)),
    ],
)
def test_addition_golden_values(n: int, prefix: tuple[int, ...], expected: range) -> None:
    assert values(AdditionPruner(n), *prefix) == list(expected)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_addition_accepts_exactly_what_can_be_completed(n: int) -> None:
    """Against arithmetic on whole numbers, for every sum and every beginning of the first number, possible or not."""
    pruner = AdditionPruner(n)
    top = 10**n
    sums = torch.arange(2 * top)
    for k in range(n):
        step = 10 ** (n - k - 1)  # numbers that begin with the same k + 1 digits
        beginnings = torch.arange(10 ** (k + 1))
        low = beginnings * step
        # y - a must be a number of n digits for some a from low to low + step - 1.
        y = sums.unsqueeze(-1)
        possible = (low <= y) & (low + step - 1 >= y - top + 1) & (y <= 2 * (top - 1))
        prefix = torch.arange(10**k)
        rows = torch.cat(
            [
                digits(sums, n + 1).repeat_interleave(len(prefix), 0),
                digits(prefix, k).repeat(len(sums), 1) if k else torch.zeros(len(sums), 0, dtype=torch.int64),
            ],
            -1,
        )
        assert torch.equal(pruner(rows), possible.reshape(len(sums) * len(prefix), 10))
    # The second number is determined by the first.
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(top, (3000,), generator=generator)
    y = torch.randint(2 * top, (3000,), generator=generator)
    second = y - first
    valid = (second >= 0) & (second < top)
    for k in range(n):
        right = digits(second.clamp(min=0), n)
        rows = torch.cat([digits(y, n + 1), digits(first, n), right[:, :k]], -1)
        wanted = (torch.arange(10) == right[:, k : k + 1]) & valid.unsqueeze(-1)
        assert torch.equal(pruner(rows), wanted)
        if k:
            rows[:, -1] = (rows[:, -1] + 1) % 10
            assert not pruner(rows).any()


def test_addition_in_other_bases_and_at_any_length() -> None:
    AdditionPruner(3, 3).verify(addition(3, 3))
    pruner = AdditionPruner(100)
    worlds = torch.randint(10, (50, 200), generator=torch.Generator().manual_seed(0))
    seen = torch.cat([addition(100)(worlds), worlds], -1)
    masks = pruner.masks(seen, 10)
    assert bool(masks.gather(-1, seen.unsqueeze(-1)).all())
    assert bool((masks[:, -100:].sum(-1) == 1).all())


@pytest.mark.parametrize(
    "problem",
    [addition(1), addition(2, 3), comparison(1), parity(4), exactly_k(2, 4), cnf([[1, 2], [-1, 3], [-2, -3]])],
    ids=repr,
)
def test_derived_pruners_allow_exactly_the_possible(problem: Problem) -> None:
    SatPruner.of(problem).verify(problem)
    SupportPruner(Elimination(problem)).verify(problem)
    SupportPruner(BruteForce(problem)).verify(problem)


@pytest.mark.parametrize("problem", [addition(2), remainder(7, 3)], ids=repr)
def test_derived_pruners_agree_on_impossible_prefixes_too(problem: Problem) -> None:
    sat, support = SatPruner.of(problem), SupportPruner(Elimination(problem))
    generator = torch.Generator().manual_seed(0)
    for k in range(len(sat.sizes)):
        prefix = (
            torch.stack([torch.randint(size, (40,), generator=generator) for size in sat.sizes[:k]] or [], -1)
            if k
            else torch.zeros(1, 0, dtype=torch.int64)
        )
        assert torch.equal(sat(prefix), support(prefix))


def test_verify_can_fail() -> None:
    problem = addition(1)
    sizes = problem.output + problem.world
    everything = FunctionPruner(lambda prefix: torch.ones(sizes[prefix.shape[-1]], dtype=torch.bool), sizes)
    everything.verify(problem)
    everything.complete = True
    with pytest.raises(ProblemError, match=r"after \(1,\) the pruner allows 9, which no world has"):
        everything.verify(problem)
    nothing = FunctionPruner(lambda prefix: torch.zeros(sizes[prefix.shape[-1]], dtype=torch.bool), sizes)
    with pytest.raises(ProblemError, match=r"after \(\) the pruner forbids 0, which some world has"):
        nothing.verify(problem)


def test_sat_pruner_can_be_pickled_and_has_the_same_answers() -> None:
    pruner = SatPruner.of(parity(3))
    first = values(pruner, 1, 0, 0)
    assert values(pickle.loads(pickle.dumps(pruner)), 1, 0, 0) == first == [1]


def test_path_pruner_allows_exactly_the_simple_paths() -> None:
    """Against a walk through the grid, cell by cell, for every sequence of moves of up to four steps."""
    height, width, length = 3, 3, 4
    pruner = PathPruner((height, width), length, world=(2,) * 9)

    def walk(prefix: tuple[int, ...]) -> tuple[tuple[int, int], set[tuple[int, int]]]:
        row = column = 0
        visited = {(0, 0)}
        for move in prefix:
            row, column = row + MOVES[move][0], column + MOVES[move][1]
            visited.add((row, column))
        return (row, column), visited

    frontier: list[tuple[int, ...]] = [()]
    for k in range(length):
        following = []
        for prefix in frontier:
            (row, column), visited = walk(prefix)
            expected = []
            for move, (dr, dc) in enumerate(MOVES):
                r, c = row + dr, column + dc
                if (row, column) == (height - 1, width - 1):
                    fine = move == 8
                else:
                    fine = 0 <= r < height and 0 <= c < width and (r, c) not in visited
                    fine = fine and max(height - 1 - r, width - 1 - c) <= length - k - 1
                if fine:
                    expected.append(move)
            assert values(pruner, *prefix) == expected
            following += [(*prefix, move) for move in expected]
        frontier = following
    assert frontier and all(walk(path)[0] == (2, 2) for path in frontier)
    assert values(pruner, *frontier[0]) == [0, 1]
    assert not pruner.complete


def test_shortest_paths_pass_the_path_pruner() -> None:
    problem = shortest_path(3, 4, moves=8)
    PathPruner((3, 4), 8, problem.world).verify(problem)  # 4,096 maps
    pruner, worlds = PathPruner((3, 4), 8, problem.world), problem.worlds(100, 200)
    tokens = torch.cat([problem(worlds), worlds], -1)
    for length in (1, 5, 8, 11):  # one walk allows what single prefixes do
        one_by_one = torch.stack(
            [pad(pruner.allowed(tokens[:, :k]), (0, 9 - pruner.sizes[k])) for k in range(length)], 1
        )
        assert torch.equal(pruner.masks(tokens[:, :length], 9), one_by_one)
    cells = shortest_path(3, 4)(worlds).reshape(-1, 3, 4)
    assert torch.equal(path_moves(cells, 8), problem(worlds))


def test_moves_stop_at_the_border() -> None:
    cell = torch.arange(6).repeat_interleave(9)
    move = torch.arange(9).repeat(6)
    for a, m, b in zip(cell.tolist(), move.tolist(), moved(cell, move, 2, 3).tolist(), strict=True):
        row, column = min(max(a // 3 + MOVES[m][0], 0), 1), min(max(a % 3 + MOVES[m][1], 0), 2)
        assert b == 3 * row + column


def test_composition_allows_what_both_allow() -> None:
    problem = addition(1)
    even = FunctionPruner(lambda prefix: torch.arange(10) % 2 == 0, problem.output + problem.world, outputs=2)
    both = AdditionPruner(1) & even
    assert both.complete and values(both, 1, 3) == [4, 6, 8]
    assert values(both, 1, 3, 4) == []  # 9 is odd: a dead end
    with pytest.raises(ConfigError, match="expected the same"):
        AdditionPruner(1) & AdditionPruner(2)


def test_learned_pruner_gets_no_guarantee() -> None:
    problem = addition(1)
    pruner = LearnedPruner(FactorMLPs(problem, hidden=8))
    assert not pruner.complete
    with pytest.raises(ConfigError, match="LearnedPruner is not complete"):
        AmortizedReasoner(problem, pruner=pruner, guarantee=True)
    assert AmortizedReasoner(problem, pruner=pruner & AdditionPruner(1), guarantee=True).guaranteed
    with pytest.raises(ConfigError, match="there is no pruner"):
        AmortizedReasoner(problem, guarantee=True)
    with pytest.raises(ConfigError, match="explain=True"):
        LearnedPruner(FactorMLPs(problem, hidden=8, explain=False))
    with pytest.raises(ConfigError, match="threshold"):
        LearnedPruner(FactorMLPs(problem, hidden=8), threshold=2.0)


def test_learned_pruner_is_the_model_at_the_uniform_belief() -> None:
    torch.manual_seed(0)
    model = ScanModel(parity(3), hidden=8)
    pruner = LearnedPruner(model, threshold=0.45)
    for prefix in [(), (1,), (1, 0), (0, 1, 1)]:
        tokens = torch.tensor([[*prefix, 0]])
        probs = model.log_probs(Belief.uniform((2, 2, 2), (1,)), tokens)[0, -1].exp()
        assert values(pruner, *prefix) == [v for v in range(2) if probs[v] >= 0.45 or probs[v] == probs.max()]


def test_what_a_complete_pruner_lets_through_is_valid() -> None:
    """Thousands of decodes of untrained models, whose own opinion is worthless."""
    torch.manual_seed(0)
    cases = [
        (addition(4), AdditionPruner(4), 40, 50),
        (
            cnf([[1, 2, 3], [-1, -2], [-2, -3], [3, 4]]),
            SatPruner.of(cnf([[1, 2, 3], [-1, -2], [-2, -3], [3, 4]])),
            10,
            100,
        ),
        (exactly_k(2, 6), SupportPruner(Elimination(exactly_k(2, 6))), 5, 50),
    ]
    for problem, pruner, rows, count in cases:
        engine = AmortizedReasoner(problem, ScanModel(problem, hidden=8), pruner=pruner, guarantee=True)
        belief = Belief.from_logits(torch.randn(rows, len(problem.world), max(problem.world)), problem.world)
        outputs = len(problem.output)
        samples = draw(engine.model, belief, count, temperature=2.0, pruner=pruner)
        assert bool((samples.scores > -torch.inf).all())
        assert torch.equal(problem(samples.tokens[..., outputs:]), samples.tokens[..., :outputs])
        predicted = engine.predict(belief, beams=5)
        exact = Elimination(problem)
        assert bool(exact.possible(predicted).all())
        found = engine.explain(belief, predicted, k=20)
        real = found.scores > -torch.inf
        assert bool(real[:, 0].all())
        wanted = predicted.unsqueeze(1).expand(-1, 20, -1)
        assert torch.equal(problem(found.worlds[real]), wanted[real])


# Problems and pruners from knowledge.

FRIENDS = """
sort Person
pred smokes(Person)
pred friends(Person, Person)
forall x, y: Person. friends(x, y) & smokes(x) -> smokes(y)
exists x: Person. smokes(x)
"""


@pytest.mark.parametrize(("by", "outputs"), [("whole", 1), ("axiom", 2), ("clause", 3), ("object", 3)])
def test_knowledge_by_its_parts(by: str, outputs: int) -> None:
    kb = doxa.parse(FRIENDS, warn=False)
    people = {"Person": ["ann", "bob"]}
    problem = KnowledgeProblem(kb, by=by, domains=people)  # type: ignore[arg-type]
    assert problem.problem.output == (2,) * outputs
    worlds = problem.problem.worlds()
    # Whatever the parts, all of them hold where the whole does.
    whole = KnowledgeProblem(kb, domains=people)
    order = [whole.value_of[atoms[0]][0] for atoms in problem.variables]
    everything = whole.problem(worlds[:, torch.tensor(order).argsort()])
    assert torch.equal(problem.problem(worlds).amin(-1, keepdim=True), everything)
    problem.pruner().verify(problem.problem)


def test_knowledge_by_object_says_for_whom_it_holds() -> None:
    kb = doxa.parse("sort Person\npred happy(Person)\nforall x: Person. happy(x)", warn=False)
    problem = KnowledgeProblem(kb, by="object", domains={"Person": 4}).problem
    assert torch.equal(problem(problem.worlds()), problem.worlds())
    rows = [{"left": "i", "right": "j", "sum": 3}, {"left": "j", "right": "k", "sum": 2}]
    kb = doxa.parse(
        "sort Image\nsort Digit = 0..3\nfunc digit(Image) -> Digit\n"
        "forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)",
        warn=False,
    )
    sums = KnowledgeProblem(kb, by="object", domains={"pairs": rows})
    worlds = sums.problem.worlds()
    expected = torch.stack([worlds[:, 0] + worlds[:, 1] == 3, worlds[:, 1] + worlds[:, 2] == 2], -1).long()
    assert torch.equal(sums.problem(worlds), expected)
    sums.pruner().verify(sums.problem)


def test_knowledge_by_value() -> None:
    images = Sort("Image")
    digit = Function("digit", (images,), Sort.range("Digit", 0, 3))
    total = digit(Constant("i", images).term) + digit(Constant("j", images).term)
    problem = KnowledgeProblem(total.eq(0), values=[[total.eq(v) for v in range(7)]])
    worlds = problem.problem.worlds()
    assert torch.equal(problem.problem(worlds), worlds.sum(-1, keepdim=True))
    problem.pruner().verify(problem.problem)
    two = KnowledgeProblem(total.eq(0), values=[[total.eq(1), total.eq(2)]])
    with pytest.raises(KnowledgeError, match="exactly one of them in every world"):
        two.problem(worlds)


def test_knowledge_errors() -> None:
    a, b = propositions("a b")
    problem = KnowledgeProblem(a | b)
    with pytest.raises(KnowledgeError, match="lacks b and has nothing"):
        problem.belief({a: torch.tensor(0.5)})
    with pytest.raises(ConfigError, match="expected 'whole'"):
        KnowledgeProblem(a, by="atom")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="no factors"):
        SatPruner.of(problem.problem)
    with pytest.raises(ConfigError, match="no pruner"):
        FunctionPruner.of(problem.problem)
    with pytest.raises(ProblemError, match="expected bool"):
        FunctionPruner(lambda prefix: prefix, (2, 2))(torch.zeros(1, 0, dtype=torch.int64))
    with pytest.raises(ProblemError, match="k below 4"):
        AdditionPruner(1)(torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ConfigError, match="at least 2 moves"):
        PathPruner((3, 3), 1)
