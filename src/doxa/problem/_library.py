"""Ready problems: arithmetic on numbers written in digits, most significant first, and questions about Booleans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count as count_from

import torch
from torch import Tensor
from torch.nn.functional import pad

from doxa.errors import ProblemError
from doxa.problem._factors import Factor, Variable, tabulate
from doxa.problem._problem import Problem


def addition(digits: int, base: int = 10) -> Problem:
    """The sum of two numbers of N digits: the world is both numbers, the output N + 1 digits, the first 0 or 1.

    The factors are a chain of carries, one factor for each digit: a_i + b_i + c_{i+1} = y_{i+1} + base · c_i, where
    auxiliary variable i is the carry c_{i+1}, and c_0 is the first output. (Dissertation, chapter 6, "Problem setup";
    errata 5.1, 5.2: 2 · 10^N - 1 sums, 10 · N + 2 output values.)

    >>> problem = addition(2)
    >>> problem(torch.tensor([5, 8, 7, 7]))                                # 58 + 77 = 135
    tensor([1, 3, 5])
    >>> addition(1000)
    Problem(world=(10, 10, 10, ... 2000 variables), output=(2, 10, 10, ... 1001 variables), factors=1000)
    """
    _require(digits, base)
    w, y, carry = Variable.world, Variable.output, Variable.auxiliary
    last = tabulate((base, base, 2, base), lambda a, b, out, s: a + b == base * out + s)
    inner = tabulate((base, base, 2, 2, base), lambda a, b, into, out, s: a + b + into == base * out + s)
    factors = []
    for i in range(digits):
        pair, ends = (w(i), w(digits + i)), (y(0) if i == 0 else carry(i - 1), y(i + 1))
        factors.append(Factor((*pair, *ends), last) if i == digits - 1 else Factor((*pair, carry(i), *ends), inner))
    return Problem(
        world=(base,) * (2 * digits),
        output=(2, *(base,) * digits),
        function=partial(_add, base=base),
        factors=tuple(factors),
        auxiliary=(2,) * (digits - 1),
        names=_two_numbers(digits, digits + 1),
    )


def multiplication(digits: int = 1, base: int = 10) -> Problem:
    """The product of two numbers of N digits: the world is both numbers, the output 2N digits.

    There is one factor for N = 1 and none otherwise: long multiplication couples all digits.

    >>> multiplication(2)(torch.tensor([9, 9, 9, 9]))                       # 99 · 99 = 9801
    tensor([9, 8, 0, 1])
    """
    _require(digits, base)
    factors = None
    if digits == 1:
        table = tabulate((base,) * 4, lambda a, b, tens, ones: a * b == base * tens + ones)
        factors = (Factor((Variable.world(0), Variable.world(1), Variable.output(0), Variable.output(1)), table),)
    return Problem(
        world=(base,) * (2 * digits),
        output=(base,) * (2 * digits),
        function=partial(_multiply, base=base),
        factors=factors,
        names=_two_numbers(digits, 2 * digits),
    )


def comparison(digits: int, base: int = 10) -> Problem:
    """Two numbers of N digits compared: the output is 0 for less, 1 for equal, 2 for greater.

    The factors are a chain from the most significant digit on: what the first digits say stands, unless they are equal.

    >>> comparison(2)(torch.tensor([[1, 9, 2, 0], [2, 0, 2, 0]]))
    tensor([[0],
            [1]])
    """
    _require(digits, base)
    w, y, sofar = Variable.world, Variable.output, Variable.auxiliary
    first = tabulate((base, base, 3), lambda a, b, out: out == 1 + (a - b).sign())
    inner = tabulate((3, base, base, 3), lambda old, a, b, out: out == torch.where(old == 1, 1 + (a - b).sign(), old))
    factors = []
    for i in range(digits):
        pair, out = (w(i), w(digits + i)), y(0) if i == digits - 1 else sofar(i)
        factors.append(Factor((*pair, out), first) if i == 0 else Factor((sofar(i - 1), *pair, out), inner))
    return Problem(
        world=(base,) * (2 * digits),
        output=(3,),
        function=_compare,
        factors=tuple(factors),
        auxiliary=(3,) * (digits - 1),
        names=_two_numbers(digits, 1),
    )


def remainder(modulus: int, digits: int, base: int = 10) -> Problem:
    """The remainder of a number of N digits after division: a finite-state machine whose state is the remainder so far.

    >>> remainder(7, digits=3)(torch.tensor([3, 6, 5]))                     # 365 = 52 · 7 + 1
    tensor([1])
    """
    _require(digits, base)
    if modulus < 1:
        raise ProblemError(f"modulus is {modulus}, expected at least 1")
    states, symbols = torch.arange(modulus).unsqueeze(-1), torch.arange(base)
    names = (*(f"d{i}" for i in range(digits)), "remainder")
    return Problem.from_machine((base * states + symbols) % modulus, steps=digits, names=names)


def _add(worlds: Tensor, base: int) -> Tensor:
    a, b = worlds.chunk(2, -1)
    return _carried(a + b, base, a.shape[-1] + 1)


def _multiply(worlds: Tensor, base: int) -> Tensor:
    a, b = worlds.chunk(2, -1)
    digits = a.shape[-1]
    columns = worlds.new_zeros(*worlds.shape[:-1], 2 * digits - 1)
    for i in range(digits):
        columns[..., i : i + digits] += a[..., i : i + 1] * b
    return _carried(columns, base, 2 * digits)


def _carried(columns: Tensor, base: int, length: int) -> Tensor:
    """The digits of Σ_i columns_i · base^(n-1-i): whatever exceeds a digit is carried to the left."""
    total, digits = torch.zeros_like(columns[..., 0]), []
    for column in reversed(pad(columns, (length - columns.shape[-1], 0)).unbind(-1)):
        total = total + column
        digits.append(total % base)
        total = total // base
    return torch.stack(digits[::-1], -1)


def _compare(worlds: Tensor) -> Tensor:
    a, b = worlds.chunk(2, -1)
    first = (a != b).to(torch.int8).argmax(-1, keepdim=True)  # the first differing digit, or digit 0 if none differs
    return 1 + (a - b).gather(-1, first).sign()


def _require(digits: int, base: int) -> None:
    if digits < 1 or base < 2:
        raise ProblemError(f"digits is {digits} and base is {base}, expected at least 1 digit and base 2")


def _two_numbers(digits: int, outputs: int) -> tuple[str, ...]:
    return (*(f"{n}{i}" for n in "ab" for i in range(digits)), *(f"y{i}" for i in range(outputs)))


WIDEST = 8  # literals in one factor; longer clauses are cut, so that tables stay small


def parity(n: int) -> Problem:
    """Whether an odd number of n Boolean variables is true; the factors are a chain of exclusive ors.

    >>> parity(3)(torch.tensor([[1, 0, 1], [1, 1, 1]]))
    tensor([[0],
            [1]])
    """
    return _counter(n, _odd, [[0, 1], [1, 0]], [0, 1])


def exactly_k(k: int, n: int) -> Problem:
    """Whether exactly k of n Boolean variables are true; the factors are a chain that counts to k + 1.

    >>> exactly_k(1, 3)(torch.tensor([[0, 1, 0], [1, 1, 0]]))
    tensor([[1],
            [0]])
    """
    if k < 0:
        raise ProblemError(f"k is {k}, expected at least 0")
    return _counter(n, partial(_counts, low=k, high=k), _saturating(k + 1), [int(count == k) for count in range(k + 2)])


def majority(n: int) -> Problem:
    """Whether more than half of n Boolean variables are true; the factors are a chain that counts.

    >>> majority(4)(torch.tensor([[1, 1, 0, 0], [1, 1, 0, 1]]))
    tensor([[0],
            [1]])
    """
    enough = n // 2 + 1
    return _counter(n, partial(_counts, low=enough, high=n), _saturating(enough), [0] * enough + [1])


def cnf(clauses: Sequence[Sequence[int]], variables: int | None = None) -> Problem:
    """Whether n Boolean variables satisfy a formula in conjunctive normal form.

    Literals are numbered as in DIMACS files: i is variable i, counted from 1, and -i its negation. There is one factor
    for each clause, which says whether it holds, and a chain of conjunctions.

    >>> problem = cnf([[1, 2], [-1, 3]])
    >>> problem(torch.tensor([[1, 0, 1], [1, 1, 0]]))
    tensor([[1],
            [0]])
    """
    rows = tuple(tuple(clause) for clause in clauses)
    literals = [literal for row in rows for literal in row]
    for literal in literals:
        if not isinstance(literal, int):
            raise ProblemError(
                f"a clause has the literal {literal!r}, expected whole numbers: 1 for a variable, -1 not"
            )
    count = max((abs(literal) for literal in literals), default=0) if variables is None else variables
    if count < 1 or any(literal == 0 or abs(literal) > count for literal in literals):
        wanted = f"numbers from 1 to {count} or their negatives, and at least one variable; say variables="
        raise ProblemError(f"the literals are {sorted(set(literals))} for {count} variables, expected {wanted}")
    factors: list[Factor] = []
    w, y, auxiliary = Variable.world, Variable.output, Variable.auxiliary
    numbers = count_from()

    def one_of(inputs: list[tuple[Variable, bool]]) -> Variable:
        """A variable that says whether one of the inputs has the wanted value."""
        while len(inputs) > WIDEST:
            inputs = [(one_of(inputs[:WIDEST]), True), *inputs[WIDEST:]]
        holds = auxiliary(next(numbers))
        scope = tuple(dict.fromkeys(variable for variable, _ in inputs))
        table = torch.zeros(*[2] * len(scope), 2, dtype=torch.bool)
        table[..., 0] = True
        for variable, wanted in inputs:
            place = table.movedim(scope.index(variable), 0)[int(wanted)]
            place[..., 0], place[..., 1] = False, True
        factors.append(Factor((*scope, holds), table))
        return holds

    holding = [one_of([(w(abs(literal) - 1), literal > 0) for literal in row]) for row in rows]
    conjunction = tabulate((2, 2, 2), lambda a, b, both: both == a * b)
    while len(holding) > 1:
        both = y(0) if len(holding) == 2 else auxiliary(next(numbers))
        factors.append(Factor((holding[0], holding[1], both), conjunction))
        holding[:2] = [both]
    if not rows:
        factors.append(Factor((y(0),), torch.tensor([False, True])))
    elif len(rows) == 1:
        factors.append(Factor((holding[0], y(0)), torch.eye(2, dtype=torch.bool)))
    return Problem(
        world=(2,) * count,
        output=(2,),
        function=partial(_satisfied, clauses=rows),
        factors=tuple(factors),
        auxiliary=(2,) * next(numbers),
        names=(*(f"x{i + 1}" for i in range(count)), "satisfied"),
    )


def _counter(n: int, function: Callable[[Tensor], Tensor], transitions: list[list[int]], labels: list[int]) -> Problem:
    """A machine that reads Booleans, with a function of its own to be checked against."""
    if n < 1:
        raise ProblemError(f"n is {n}, expected at least 1 variable")
    machine = Problem.from_machine(transitions, steps=n, labels=labels)
    return Problem(machine.world, (2,), function, machine.factors, auxiliary=machine.auxiliary)


def _saturating(top: int) -> list[list[int]]:
    """A counter of ones that stays at ``top``."""
    return [[count, min(count + 1, top)] for count in range(top + 1)]


def _odd(worlds: Tensor) -> Tensor:
    return worlds.sum(-1, keepdim=True) % 2


def _counts(worlds: Tensor, low: int, high: int) -> Tensor:
    count = worlds.sum(-1, keepdim=True)
    return ((low <= count) & (count <= high)).long()


def _satisfied(worlds: Tensor, clauses: tuple[tuple[int, ...], ...]) -> Tensor:
    result = torch.ones_like(worlds[..., 0], dtype=torch.bool)
    for clause in clauses:
        holds = torch.zeros_like(result)
        for literal in clause:
            holds |= worlds[..., abs(literal) - 1] == int(literal > 0)
        result &= holds
    return result.long().unsqueeze(-1)
