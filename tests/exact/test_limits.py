"""What holds under pressure: budgets, clocks, interrupts, several threads, and compilers that hang."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from doxa._cache import Cache
from doxa._native import native_library
from doxa.errors import BudgetError
from doxa.exact import Compilation, Constraint, Elimination, Enumeration, ExactReasoner
from doxa.exact.circuits import cardinality, native_kernel
from doxa.exact.circuits._encoding import encode
from doxa.exact.circuits._layers import make_layers
from doxa.exact.engines._elimination import Schedule, compile_program
from doxa.logic import propositions
from doxa.problem import Belief, Budget, Problem, addition, cnf
from doxa.problem._budget import Meter

CLAUSES = [[i, -(i * 7 % 1000 + 1), i * 13 % 1000 + 1] for i in range(1, 1001)]


def random_problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    signs = 2 * torch.randint(0, 2, (24, 3), generator=generator) - 1
    rows = [torch.randperm(12, generator=generator)[:3] + 1 for _ in range(24)]
    return cnf((torch.stack(rows) * signs).tolist(), 12)


def test_a_budget_of_nodes_holds_for_a_circuit_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path))
    problem = random_problem()
    for kept in (0, 1):
        assert len(list(tmp_path.glob("*.circuit"))) == kept
        with pytest.raises(BudgetError, match="more than 40 nodes") as error:
            Compilation(problem, budget=Budget(nodes=40))
        assert error.value.field == "nodes"
        Compilation(problem)


class Expired(Meter):
    """A meter whose time is over, which says where it was looked at."""

    def __init__(self) -> None:
        super().__init__(Budget(seconds=1.0), "a test")
        self._start -= 2.0


@pytest.mark.parametrize(
    "phase",
    [
        lambda meter: encode(cnf(CLAUSES, 1000), meter),
        lambda meter: encode(addition(100), meter),
        lambda meter: cardinality(60, 20, 40).smooth(None, meter),
        lambda meter: cardinality(60, 20, 40).forget([-1], meter),
        lambda meter: make_layers(cardinality(60, 20, 40), meter=meter),
    ],
    ids=["clauses", "values", "smooth", "forget", "layers"],
)
def test_every_phase_of_compiling_looks_at_the_clock(phase: Callable[[Meter], object]) -> None:
    with pytest.raises(BudgetError, match="could not decide within 1 seconds"):
        phase(Expired())


def test_elimination_looks_at_the_clock_before_and_after_ordering(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cnf(CLAUSES, 1000)
    with monkeypatch.context() as patch:
        patch.setattr("doxa.exact.engines._elimination.best_order", lambda *_: pytest.fail("came too far"))
        with pytest.raises(BudgetError, match="1e-09 seconds"):
            Elimination(problem, budget=Budget(seconds=1e-9))
    schedule = Schedule.of(addition(50), Budget(seconds=1000), observed=True)
    schedule.meter._start -= 2000
    with pytest.raises(BudgetError, match="1000 seconds"):
        compile_program(schedule)


def test_a_question_looks_at_the_clock_between_parts_and_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = addition(20)
    belief = Belief.from_logits(torch.randn(64, 40, 10, generator=torch.Generator().manual_seed(0)))
    output = problem(belief.mode())
    expected = Elimination(problem, budget=Budget(entries=1 << 14)).log_prob(belief, output)
    looks: list[None] = []
    monkeypatch.setattr(Meter, "check_clock", lambda self: looks.append(None))
    reasoner = Elimination(problem, budget=Budget(seconds=1000, entries=1 << 14))
    looks.clear()
    torch.testing.assert_close(reasoner.log_prob(belief, output), expected, rtol=0, atol=0)
    assert len(looks) > 1
    looks.clear()
    reasoner.explain(belief[:2], output[:2], k=5)
    assert len(looks) >= 5
    looks.clear()
    reasoner.predict(belief[:2])
    assert len(looks) >= len(problem.output)


INTERRUPTED = {
    "circuit": """
        from doxa.exact.circuits import cardinality, native_kernel
        from doxa.exact.circuits._kernel import make_program
        circuit = cardinality(150, 50, 100).smooth()
        weights = -torch.rand(circuit.literals, 4096)
        kernel = native_kernel()
        program = make_program(circuit)
        work = lambda: kernel.evaluate(program, weights)
    """,
    "paths": """
        from doxa.problem import cheapest_paths
        costs = torch.rand(5_000, 30, 30) + 0.1
        work = lambda: cheapest_paths(costs, native=True)
    """,
}


@pytest.mark.parametrize(("what", "threads"), [*((what, 1) for what in sorted(INTERRUPTED)), ("circuit", 2)])
def test_control_c_is_answered_inside_the_c_code(what: str, threads: int) -> None:
    if native_kernel() is None:
        pytest.skip("no C compiler")
    body = "\n".join(line.strip() for line in INTERRUPTED[what].strip().splitlines())
    begin = f"import torch\ntorch.set_num_threads({threads})\n{body}\nwork()\n"
    code = f"{begin}print('ready', flush=True)\nwhile True:\n    work()\n"
    pipe = subprocess.PIPE
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # even if it is ignored here
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True, preexec_fn=listen
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def from_threads(make: Callable[[], object], ask: Callable[..., tuple[Tensor, ...]], count: int = 8) -> None:
    """What several threads find at once, from a thing that nobody has used before, is what one finds alone."""
    expected, shared, start = ask(make()), make(), threading.Barrier(count)

    def one(_: int) -> tuple[Tensor, ...]:
        start.wait()
        return ask(shared)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(one, range(count)))
    finally:
        sys.setswitchinterval(interval)
    for found in answers:
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.equal(mine, theirs)


def questions(reasoner: ExactReasoner) -> tuple[Tensor, ...]:
    problem, generator = reasoner.problem, torch.Generator().manual_seed(0)
    logits = torch.randn(5, len(problem.world), max(problem.world), generator=generator).requires_grad_()
    belief = Belief.from_logits(logits, problem.world)
    output = problem(problem.random_worlds(5, generator=generator))
    loss = reasoner.loss(belief, output)
    (slopes,) = torch.autograd.grad(loss.sum(), logits)
    belief = belief.detach()
    answers = reasoner.marginals(belief).probs, reasoner.explain(belief, output, 3).worlds, reasoner.predict(belief)
    return (loss.detach(), slopes, *answers)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Elimination(addition(3)),
        lambda: Enumeration(addition(1)),
        lambda: Compilation(addition(1), cache=False),
        lambda: Compilation(addition(1), cache=False, native=False),
        lambda: Compilation(random_problem()),
    ],
    ids=["elimination", "enumeration", "compilation", "torch", "from disk"],
)
def test_threads_share_a_reasoner(make: Callable[[], ExactReasoner]) -> None:
    from_threads(make, questions)


def test_threads_share_a_constraint_whose_negation_is_not_yet_compiled() -> None:
    a, b, c, d = propositions("a b c d")
    for _ in range(5):
        from_threads(lambda: Constraint(((a >> b) & (b >> c)) | d, cache=False), questions)


def test_threads_share_a_small_cache() -> None:
    cache: Cache[int, int] = Cache(2)

    def ask(_: object) -> tuple[Tensor, ...]:
        return (torch.tensor([cache.find(n % 7, lambda n=n: n % 7) for n in range(2000)]),)

    from_threads(object, ask)
    assert len(cache) <= 2
    assert len(copy.deepcopy(cache)) == 0


@pytest.mark.parametrize("script", ["sleep 600", "exit 1"])
def test_a_broken_compiler_is_asked_once_for_all_sources(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cc").write_text(f"#!/bin/sh\necho x >> $DOXA_CACHE/calls\n{script}\n")
    (tmp_path / "cc").chmod(0o700)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("doxa._native.PROBE", 0.2)
    for name in ("one", "two"):
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name}(void) {{ return 1; }}")
        assert native_library.__wrapped__(source) is None
    assert (tmp_path / "cache" / "calls").read_text() == "x\n"


def test_without_a_compiler_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "some.c"
    source.write_text("int one(void) { return 1; }")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("nothing to run"))
    assert native_library.__wrapped__(source) is None
