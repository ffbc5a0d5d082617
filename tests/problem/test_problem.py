"""Problems and factors: what they compute, and that every kind of disagreement is found."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from doxa.errors import ProblemError
from doxa.problem import Belief, Factor, Problem, Variable, addition, multiplication, parity, tabulate

w, y, a = Variable.world, Variable.output, Variable.auxiliary
AND = tabulate((2, 2, 2), lambda p, q, r: r == p * q)
COPY = torch.eye(2, dtype=torch.bool)


def conjunction(worlds: Tensor) -> Tensor:
    return worlds.prod(-1, keepdim=True)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


# --- functions


def test_three_ways_to_write_a_function() -> None:
    def one(world: tuple[int, ...]) -> tuple[int, int]:
        return world[0] * world[1], world[0] + world[1]

    def batched(worlds: Tensor) -> Tensor:
        return torch.stack([worlds.prod(-1), worlds.sum(-1)], -1)

    sizes = (3, 4), (7, 6)
    problems = [
        Problem(*sizes, batched),
        Problem(*sizes, one, vectorized=False),
        Problem.from_function(lambda p, q: [p * q, p + q], *sizes),
        Problem.from_function(lambda p, q: (p * q, p + q), *sizes, vectorized=True),
    ]
    for problem in problems:
        assert problem.check().exhaustive
        for shape in [(2,), (0, 2), (5, 2), (2, 3, 2)]:
            worlds = problem.random_worlds(60)[: torch.Size(shape[:-1]).numel()].reshape(shape)
            assert torch.equal(problem(worlds), batched(worlds))


@pytest.mark.parametrize(
    "problem, message",
    [
        (Problem((2,), (2,), lambda t: t + 1), r"returned 2 for output y0, expected 0 to 1; the world is \(w0=1\)"),
        (Problem((2,), (2,), lambda t: t - 1), "returned -1 for output y0"),
        (Problem((2,), (2,), lambda t: t.double()), r"returned torch.float64 \(2, 1\) .*expected an int64 tensor"),
        (Problem((2,), (2,), lambda t: t[..., 0]), r"of shape \(2, 1\); for a Python function of one world say"),
        (Problem((2,), (2,), lambda t: 1), "returned int"),
        (Problem((2,), (2, 2), lambda t: 1, vectorized=False), r"returned 1 for world \(0,\), expected 2 int"),
        (Problem((2,), (2,), lambda t: 0.5, vectorized=False), r"returned 0.5 for world \(0,\)"),
        (Problem((2,), (2,), lambda t: [], vectorized=False), r"returned \[\]"),
    ],
)
def test_function_results_are_checked(problem: Problem, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        problem(problem.worlds())


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Problem((), (2,), conjunction), r"world is \(\), expected the number of values"),
        (lambda: Problem((2,), (0,), conjunction), r"output is \(0,\)"),
        (lambda: Problem((2, 2.0), (2,), conjunction), "world is"),
        (lambda: Problem((2,), (2,), 3), "must be callable, got 3"),
        (lambda: Problem((2,), (2,), conjunction, pruner=1), "must be callable, got 1"),
        (lambda: Problem((2,), (2,), conjunction, names=("a", "a")), "expected 2 different ones"),
        (lambda: Problem((2,), (2,), conjunction, names=("a",)), "world variables, then outputs"),
        (lambda: Problem((2,), (2,), conjunction, depends=[[0], [0]]), "for each of 1 outputs"),
        (lambda: Problem((2,), (2,), conjunction, depends=[[1]]), "numbered 0 to 0"),
        (lambda: Problem((2,), (2,), conjunction, auxiliary=(2,)), "no factors that could use them"),
        (lambda: Problem((2,), (2,), conjunction).evaluate_factors(torch.tensor([0])), "has no factors"),
        (
            lambda: Problem((2,), (2,), conjunction)(torch.tensor([0.0])),
            r"dtype torch.float32.*expected int64 \(..., 1\)",
        ),
        (lambda: Problem((2,), (2,), conjunction)(torch.tensor([0, 1])), r"shape \(2,\), expected int64 \(..., 1\)"),
    ],
)
def test_bad_arguments(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        build()


def test_unknown_keyword_is_an_error() -> None:
    with pytest.raises(TypeError, match="vectorised"):
        Problem((2,), (2,), conjunction, vectorised=False)  # type: ignore[call-arg]


# --- factors


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], list[tuple[int, list[int], list[int]]]]:
    """Sizes of world, output and auxiliary variables, and for each of the latter two a random function of others."""
    world = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    rest = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    outputs = draw(st.integers(1, len(rest)))
    # The variables beyond the world, in the order in which they are computed.
    order = draw(st.permutations(range(len(world), len(world) + len(rest))))
    sizes = world + rest
    known = list(range(len(world)))
    steps = []
    for target in order:
        inputs = draw(st.lists(st.sampled_from(known), unique=True, max_size=2))
        rows = torch.Size(sizes[i] for i in inputs).numel()
        values = draw(st.lists(st.integers(0, sizes[target] - 1), min_size=rows, max_size=rows))
        steps.append((target, inputs, values))
        known.append(target)
    return world, rest[:outputs], rest[outputs:], steps


@given(programs(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_random_factors_are_evaluated_like_the_program_they_came_from(program, random) -> None:  # type: ignore[no-untyped-def]
    world, output, auxiliary, steps = program
    sizes = world + output + auxiliary
    variables = [*map(w, range(len(world))), *map(y, range(len(output))), *map(a, range(len(auxiliary)))]
    factors = []
    for target, inputs, values in steps:
        table = torch.zeros([sizes[i] for i in inputs] + [sizes[target]], dtype=torch.bool)
        table.view(-1, sizes[target])[torch.arange(len(values)), values] = True
        scope = [*inputs, target]
        shuffled = random.sample(range(len(scope)), len(scope))
        factors.append(Factor(tuple(variables[scope[i]] for i in shuffled), table.permute(shuffled)))
    random.shuffle(factors)
    problem = Problem.from_factors(factors, world, output, auxiliary=auxiliary)

    def plain(values: list[int]) -> list[int]:
        values = [*values, *[0] * len(output + auxiliary)]
        for target, inputs, results in steps:
            row = 0
            for i in inputs:
                row = row * sizes[i] + values[i]
            values[target] = results[row]
        return values[len(world) : len(world) + len(output)]

    expected = [plain(list(values)) for values in itertools.product(*map(range, world))]
    assert problem(problem.worlds()).tolist() == expected
    assert problem.check().factors
    assert not (problem.dependence() & ~problem.dependence(max_worlds=0)).any(), "ancestors cover what is enumerated"
    assert pickle.loads(pickle.dumps(problem))(problem.worlds()).tolist() == expected


def test_factor_may_determine_two_variables_and_others_may_repeat_it() -> None:
    both = tabulate((4, 2, 2), lambda n, high, low: n == 2 * high + low)
    redundant = Factor((y(0), w(0)), tabulate((2, 4), lambda high, n: (n >= 2) == high))
    problem = Problem.from_factors([redundant, Factor((w(0), y(0), y(1)), both)], (4,), (2, 2))
    assert problem(problem.worlds()).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    "factors, auxiliary, message",
    [
        ([], (), "do not determine y0 from the world"),
        ([Factor((w(0), w(1)), torch.ones(2, 2))], (), "do not determine y0"),
        ([Factor((w(0), y(0)), torch.ones(2, 2))], (), "do not determine y0"),
        ([Factor((w(0), y(0)), COPY)], (3,), "do not determine auxiliary 0"),
        ([Factor((a(0), y(0)), COPY), Factor((y(0), a(0)), COPY)], (2,), "do not determine y0, auxiliary 0"),
        (
            [Factor((w(2), y(0)), COPY)],
            (),
            "no world variable 2; the problem has 2 world, 1 output, 0 given, 0 auxiliary",
        ),
        ([Factor((w(0), a(0)), COPY)], (), "no auxiliary variable 0"),
        ([Factor((w(0), y(0)), torch.ones(2, 3))], (), r"table of Factor\(world 0, output 0\) has shape \(2, 3\)"),
    ],
)
def test_factors_that_are_no_program(factors: list[Factor], auxiliary: tuple[int, ...], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem.from_factors(factors, (2, 2), (2,), auxiliary=auxiliary)


@pytest.mark.parametrize(
    "second",
    [
        Factor((w(1), y(0)), COPY),  # a contradiction between two factors, unless both variables are equal
        Factor((w(0), w(1)), COPY),  # a constraint on the world alone
    ],
)
def test_contradictory_factors_name_the_world(second: Factor) -> None:
    problem = Problem.from_factors([Factor((w(0), y(0)), COPY), second], (2, 2), (2,))
    with pytest.raises(ProblemError, match=r"factors allow no output for world \(0, 1\)"):
        problem(problem.worlds())


def test_factor_that_gives_one_variable_still_binds_the_others() -> None:
    """The first factor makes y0 = w0, and also demands y1 = 1 where w0 = 1; the second makes y1 = 0."""
    first = tabulate((2, 2, 2), lambda world, y0, y1: (y0 == world) & (y1 >= world))
    second = Factor((y(1),), [True, False])
    problem = Problem.from_factors([Factor((w(0), y(0), y(1)), first), second], (2,), (2, 2))
    assert problem(torch.tensor([0])).tolist() == [0, 0]
    with pytest.raises(ProblemError, match=r"factors allow no output for world \(1,\)"):
        problem(torch.tensor([1]))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Factor((w(0), w(0)), COPY), "expected different variables"),
        (lambda: Factor((w(0),), COPY), r"over world 0 has a table of shape \(2, 2\)"),
        (lambda: Factor((), torch.tensor(True)), "over nothing"),
        (lambda: Factor((w(0),), torch.tensor([0.5, 0.5])), "entries other than 0 and 1; weights belong in the belief"),
    ],
)
def test_bad_factors(build: Callable[[], Factor], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        build()


def test_log_table() -> None:
    factor = Factor((w(0), y(0)), [[1, 0], [0, 1]])
    assert factor.log_table(torch.float64).exp().tolist() == [[1, 0], [0, 1]]
    assert factor.log_table(torch.float64).dtype == torch.float64


# --- finite-state machines


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_random_machines(data: st.DataObject) -> None:
    states, symbols, steps = (data.draw(st.integers(1, top)) for top in (4, 3, 4))
    state = st.integers(0, states - 1)
    transitions = data.draw(
        st.lists(st.lists(state, min_size=symbols, max_size=symbols), min_size=states, max_size=states)
    )
    labels = data.draw(st.none() | st.lists(st.integers(0, 2), min_size=states, max_size=states))
    start, every_step = data.draw(state), data.draw(st.booleans())
    problem = Problem.from_machine(transitions, steps, start=start, labels=labels, every_step=every_step)
    for world, output in zip(problem.worlds().tolist(), problem(problem.worlds()).tolist(), strict=True):
        now, seen = start, []
        for symbol in world:
            now = transitions[now][symbol]
            seen.append(now if labels is None else labels[now])
        assert output == (seen if every_step else seen[-1:])
    assert problem.check().factors


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"transitions": [[0, 2]], "steps": 1}, "each the number of a state"),
        ({"transitions": [0, 1], "steps": 1}, r"transitions has shape \(2,\)"),
        ({"transitions": [[0.0]], "steps": 1}, "expected integers"),
        ({"transitions": [[0]], "steps": 0}, "at least 1 step"),
        ({"transitions": [[0]], "steps": 1, "start": 1}, "a state below 1"),
        ({"transitions": [[0]], "steps": 1, "labels": [0, 1]}, "for each of 1 states"),
        ({"transitions": [[0]], "steps": 1, "labels": [-1]}, "one integer from 0 up"),
    ],
)
def test_bad_machines(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem.from_machine(**arguments)  # type: ignore[arg-type]


# --- check


def test_wrong_factor_is_found_at_its_first_world() -> None:
    right = addition(2)
    assert right.factors is not None
    table = right.factors[0].table.clone()
    table[3, 4, 1] = table[3, 4, 1].roll(1, -1)  # 3 + 4 with a carry now gives 9 ...
    table[5, 0, 0] = table[5, 0, 0].roll(1, -1)  # ... and 5 + 0 without one gives 6
    wrong = Factor(right.factors[0].scope, table)
    problem = Problem(
        right.world,
        right.output,
        right.function,
        (wrong, right.factors[1]),
        auxiliary=right.auxiliary,
        names=right.names,
    )
    message = "function and factors disagree on world (a0=3, a1=1, b0=4, b1=9): function (0, 8, 0), factors (0, 9, 0)"
    with pytest.raises(ProblemError, match=f"^{re.escape(message)}$"):
        problem.check()
    with pytest.raises(ProblemError, match="function and factors disagree on world"):
        problem.check(max_worlds=10, samples=5000, generator=seeded())


class Counting:
    """A function that is different each time."""

    calls = 0

    def __call__(self, worlds: Tensor) -> Tensor:
        self.calls += 1
        return worlds[..., :1] ^ (self.calls % 2)


def sort_in_place(worlds: Tensor) -> Tensor:
    worlds.copy_(worlds.sort(-1).values)
    return worlds[..., :1].clone()


def relative_to_first(worlds: Tensor) -> Tensor:
    return (worlds[..., :1] != worlds.reshape(-1, 2)[0, 0]).long()


def by_position(worlds: Tensor) -> Tensor:
    rows = torch.arange(worlds[..., 0].numel()).reshape(worlds.shape[:-1])
    return (rows >= 8).long().unsqueeze(-1)


def two_axes_only(worlds: Tensor) -> Tensor:
    flat = worlds.reshape(-1, 2)
    return (flat[:, :1] if worlds.ndim < 3 else flat[:, 1:]).reshape(*worlds.shape[:-1], 1)


@pytest.mark.parametrize(
    "function, message",
    [
        (Counting(), "disagree on world"),
        (sort_in_place, "changes its argument"),
        (relative_to_first, "disagree on world"),
        (by_position, "two calls of the function disagree on world"),
        (two_axes_only, "with and without an axis disagree on world"),
        (lambda worlds: worlds.sum(-1, keepdim=True), "returned [456] for output y0, expected 0 to 3"),
    ],
)
@pytest.mark.parametrize("max_worlds", [100, 1])
def test_misbehaving_functions_are_found(function: Callable[[Tensor], Tensor], message: str, max_worlds: int) -> None:
    problem = Problem((4, 4), (4,), function)
    with pytest.raises(ProblemError, match=message):
        problem.check(max_worlds=max_worlds, generator=seeded())


def test_check_says_what_it_did() -> None:
    assert parity(3).check() == (8, True, True, False)
    assert parity(30).check(samples=10, generator=seeded()) == (10, False, True, False)
    assert addition(20).check(samples=5, generator=seeded()).worlds == 21, "each output has its turn"


# --- dependence


def middle(worlds: Tensor) -> Tensor:
    """The first output reads variables 0 and 1, the second only variable 2, the third none."""
    return torch.stack([worlds[..., 0] & worlds[..., 1], worlds[..., 2], torch.ones_like(worlds[..., 0])], -1)


def test_dependence_is_enumerated_where_small() -> None:
    problem = Problem((2,) * 3, (2,) * 3, middle)
    expected = [[True, True, False], [False, False, True], [False, False, False]]
    assert problem.dependence().tolist() == expected
    loose = Problem((2,) * 3, (2,) * 3, middle, depends=[[0, 1, 2], [2], []])
    assert loose.dependence().tolist() == expected, "what is enumerated is sharper than what is declared"
    assert loose.dependence(max_worlds=1)[0].all()
    assert loose.check() == (8, True, False, True)


def test_dependence_of_a_large_problem_is_declared_or_read_from_factors() -> None:
    with pytest.raises(ProblemError, match=r"cannot be enumerated over about 10\^30 worlds; declare it with depends="):
        multiplication(15).dependence()
    assert torch.equal(addition(3).dependence(max_worlds=10**6), addition(3).dependence(max_worlds=1))
    carries = addition(30).dependence()
    assert carries.sum(-1).tolist() == [60, *range(60, 0, -2)], "a digit depends on itself and all to its right"


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_undeclared_dependence_is_found(size: int, missing: int) -> None:
    declared = [[0, 1], [2], []]
    honest = Problem((2,) * size, (2,) * 3, middle, depends=declared)
    assert honest.check(generator=seeded()).exhaustive == (size == 3)
    lying = Problem((2,) * size, (2,) * 3, middle, depends=[[i for i in row if i != missing] for row in declared])
    name = "y1" if missing == 2 else "y0"
    with pytest.raises(ProblemError, match=f"output {name} depends on {f'w{missing}' if size == 3 else 'more'}"):
        lying.check(generator=seeded())


# --- outputs and beliefs that do not fit


@pytest.mark.parametrize(
    "output, message",
    [
        (torch.tensor([[0, 1]]), r"output has shape \(1, 2\), expected \(3, 2\): the batch of the belief"),
        (torch.zeros(3, 3, dtype=torch.int64), r"shape \(3, 3\), expected int64 \(..., 2\)"),
        (torch.zeros(3, 2), r"dtype torch.float32.*convert labels with .long\(\)"),
        (torch.tensor(1), "the last axis has the variables"),
        (1, "output is 1, expected an int64 tensor .* make one of it"),
        (torch.tensor([0, 10]), r"output\[1\] is 10, expected 0 to 9 for y1, or -1 for unobserved"),
        (torch.tensor([-2, 0]), r"output\[0\] is -2, expected 0 to 1 for y0"),
        (torch.tensor(1), r"shape \(\)"),
    ],
)
def test_outputs_that_do_not_fit(output: Tensor, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        addition(1).require(Belief.uniform((10, 10), (3,)), output)


def test_outputs_and_beliefs_that_fit() -> None:
    problem, belief = addition(1), Belief.uniform((10, 10), (3,))
    problem.require(belief)
    problem.require(belief, torch.tensor([1, -1]))
    problem.require(belief, torch.tensor([[1, 9], [-1, -1], [0, 0]]))
    with pytest.raises(ProblemError, match=r"belief is over domains \(10, 9\), the world of the problem is \(10, 10\)"):
        problem.require(Belief.uniform((10, 9)))


# --- given variables


def sum_is(worlds: Tensor, given: Tensor) -> Tensor:
    return (worlds.sum(-1, keepdim=True) == given).long()


def test_given_values_in_every_kind_of_function() -> None:
    factors = [
        Factor.lookup([w(0), w(1)], a(0), torch.arange(3).unsqueeze(1) + torch.arange(4)),
        Factor.compare(a(0), Variable.given(0), y(0), "="),
    ]
    problems = [
        Problem((3, 4), (2,), sum_is, given=(6,)),
        Problem((3, 4), (2,), lambda world, given: sum(world) == given[0], given=(6,), vectorized=False),
        Problem.from_function(lambda p, q, r: p + q == r, (3, 4), (2,), given=(6,)),
        Problem.from_function(lambda p, q, r: (p + q == r).long(), (3, 4), (2,), given=(6,), vectorized=True),
        Problem.from_factors(factors, (3, 4), (2,), auxiliary=(6,), given=(6,)),
        Problem((3, 4), (2,), sum_is, factors, auxiliary=(6,), given=(6,), names=("a", "b", "same", "sum")),
    ]
    worlds, seen = torch.tensor([[0, 0], [2, 3]]), torch.tensor([[[0]], [[5]], [[1]]])
    for problem in problems:
        assert problem.check().worlds == 72
        assert problem(worlds, seen).squeeze(-1).tolist() == [[1, 0], [0, 1], [0, 0]]
        assert problem(worlds[0], torch.tensor([0])).tolist() == [1]
        assert problem.dependence().tolist() == [[True, True]]
        assert problem.check(max_worlds=1, samples=20, generator=seeded()).worlds == 20
    assert repr(problems[-1]) == "Problem(world=(3, 4), output=(2,), given=(6,), factors=2)"
    assert problems[-1].describe(worlds[1], torch.tensor([5])) == "(a=2, b=3) given (sum=5)"
    assert problems[0].names == ("w0", "w1", "y0", "g0")
    assert torch.equal(problems[-1].evaluate_factors(worlds, torch.tensor([5])), torch.tensor([[0], [1]]))
    assert pickle.loads(pickle.dumps(problems[-1]))(worlds, torch.tensor([5])).tolist() == [[0], [1]]


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Problem((2,), (2,), sum_is, given=(0,)), r"given is \(0,\), expected the number of values"),
        (lambda: Problem((2,), (2,), sum_is, given=(2,), names=("a", "b")), "expected 3 different ones"),
        (lambda: Problem((2,), (2,), sum_is, given=(2,))(torch.tensor([0])), "has the given variables g0; say given="),
        (
            lambda: Problem((2,), (2,), lambda p, q: p + q, given=(2,))(torch.tensor([1]), torch.tensor([1])),
            r"returned 2 for output y0, expected 0 to 1; the world is \(w0=1\) given \(g0=1\)",
        ),
        (lambda: Factor.lookup([w(0)], y(0), torch.tensor([0.0])), "expected int64 values from -1 up"),
        (lambda: Factor.lookup([w(0)], y(0), torch.tensor([[0]])), "one axis for each input"),
        (lambda: Factor.lookup([w(0)], w(0), torch.tensor([0])), "expected different variables"),
        (lambda: Factor.compare(w(0), w(1), y(0), ">"), "comparison is '>', expected '=', '<' or '<='"),
        (
            lambda: Problem.from_factors([Factor.lookup([w(0)], y(0), torch.tensor([0, 2]))], (2,), (2,)),
            r"the table of Factor\(world 0, output 0\) has the code 2, expected at most 1",
        ),
        (
            lambda: Problem.from_factors([Factor.lookup([w(0)], y(0), torch.tensor([0]))], (2,), (2,)),
            r"has shape \(1,\), expected \(2,\)",
        ),
        (
            lambda: Problem.from_factors([Factor.compare(w(0), w(1), y(0), "<")], (2, 2), (3,)),
            "has a target with 3 values, expected 2",
        ),
        (lambda: Factor.compare(w(0), w(1), y(0), "<").table, "take the factor from a Problem"),
    ],
)
def test_given_variables_and_rules_that_do_not_fit(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        build()


def test_a_lookup_without_a_value_allows_no_world() -> None:
    lookup = Factor.lookup([w(0), Variable.given(0)], y(0), torch.tensor([[0, 1], [1, -1]]))
    problem = Problem.from_factors([lookup], (2,), (2,), given=(2,))
    assert problem(torch.tensor([1]), torch.tensor([0])).tolist() == [1]
    with pytest.raises(ProblemError, match=r"allow no output for world \(1,\) with \(1,\) given"):
        problem(problem.worlds(), torch.tensor([1]))
