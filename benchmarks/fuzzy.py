"""Fuzzy valuation, forward and backward, against LTNtorch and against stacked torch written by hand.

LTNtorch is used in two ways, both with ``stable=False``, product conjunction, Reichenbach implication and the 2-mean
error for ∀. *Recommended* is what its documentation shows: a rule is a formula of predicates applied to variables, and
every predicate runs where it stands, on as many copies of its inputs as the rule has instances. *Expert* is what one
writes who knows that: images are embedded once, a predicate that several rules share is evaluated once, ten rules that
differ by a digit are one formula with the digit as a free variable, and a guard is an index list on diagonal variables.

Values and gradients are asserted to be equal before anything is timed. "Fixed groundings" look truth
values up in a tensor.

Memory is the peak of what the CPU allocator hands out during one forward and backward pass, from the profiler.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from doxa.fuzzy import (
    REICHENBACH,
    STANDARD,
    FuzzyPlan,
    GeneralizedMean,
    GeneralizedMeanError,
    Logic,
    NeuralTensorNetwork,
    Product,
    logic,
)
from doxa.logic import Interpretation, KnowledgeBase, logits, parse, probs, values
from harness import Better, Row, Use, cpu_seconds, exponent, summary
from harness import compare as harness_compare

DIGITS = range(10)
SAME = parse(
    "sort P; sort D = 0..9; pred is(P, D); pred same(P, P)\n"
    + "\n".join([f"forall x, y: P. is(x, {d}) & is(y, {d}) -> same(x, y)" for d in DIGITS])
    + "\n"
    + "\n".join([f"forall x, y: P. is(x, {d}) & same(x, y) -> is(y, {d})" for d in DIGITS])
    + "\nforall x, y: P. same(x, y) -> same(y, x)"
)
TRANSITIVE = parse("sort P; pred r(P, P); [rule] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)")
GUARDED = {
    count: parse(
        f"sort P; sort D = 0..{count - 1}; pred near(P, P); pred is(P, D); pred same(P, P)\n"
        + "\n".join([f"forall x, y: P where near(x, y). is(x, {d}) & is(y, {d}) -> same(x, y)" for d in range(count)])
    )
    for count in (1, 10)
}
PRODUCT = Logic(
    STANDARD,
    Product(),
    Product().dual,
    REICHENBACH,
    GeneralizedMeanError(2.0),
    GeneralizedMean(2.0),
    name="product, 2-mean error",
)

Function = Callable[[], Tensor]


@dataclass(frozen=True)
class Ltn:
    """The operators of LTNtorch."""

    and_: Callable[..., object]
    implies: Callable[..., object]
    forall: Callable[..., object]


def ltn_operators() -> Ltn:
    import ltn

    ops = ltn.fuzzy_ops
    return Ltn(
        ltn.Connective(ops.AndProd(stable=False)),
        ltn.Connective(ops.ImpliesReichenbach(stable=False)),
        ltn.Quantifier(ops.AggregPMeanError(p=2, stable=False), quantifier="f"),
    )


def random(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape)))


def pulled(function: Function, leaves: Sequence[Tensor]) -> Function:
    """A function with its backward pass."""

    def both() -> Tensor:
        for leaf in leaves:
            leaf.grad = None
        value = function()
        value.sum().backward()
        return value.detach()

    return both


def assert_equal(name: str, leaves: Sequence[Tensor], *functions: Function) -> None:
    """Equal values, and equal gradients at all leaves."""
    found = []
    for function in functions:
        value = function()
        found.append([value.reshape(-1).float(), *[leaf.grad for leaf in leaves]])
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            scale = float(theirs.abs().max())
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * scale, msg=lambda m: f"{name}: {m}")


def peak_bytes(function: Function) -> int:
    """The most bytes that were allocated at once beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    changes = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = most = 0
    for event in sorted(changes, key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def compare(name: str, ours: Function, peer: Function, *, goal: float, better: Better, use: Use | None = None) -> Row:
    """Longer samples than usual: the first call after the peer pays for the megabytes that the peer gave back."""
    return harness_compare(name, ours, peer, goal=goal, better=better, sample=0.1, repeats=20, use=use)


def memory(name: str, ours: Function, peer: Function, goal: float, use: Use = "recommended") -> Row:
    mine, theirs = peak_bytes(ours), peak_bytes(peer)
    note = f"{mine / 2**20:.2f} MiB against {theirs / 2**20:.2f}"
    title = f"fuzzy: {name}: peak memory against LTNtorch{EXPERT if use == 'expert' else ''}"
    return Row(title, mine / theirs, goal, "lower", note=note, use=use)


EXPERT = " in an expert's hands"


# --- the 21 rules of `same` --------------------------------------------------------------------------------------


def ltn_same(
    objects: Tensor, is_digit: Callable[[object, int], object], same: Callable[[object, object], object]
) -> Function:
    """The 21 rules in LTNtorch, on predicates that take variables."""
    import ltn

    op = ltn_operators()

    def run(x: object, y: object) -> Tensor:
        found = [op.forall([x, y], op.implies(op.and_(is_digit(x, d), is_digit(y, d)), same(x, y))) for d in DIGITS]
        found += [op.forall([x, y], op.implies(op.and_(is_digit(x, d), same(x, y)), is_digit(y, d))) for d in DIGITS]
        found.append(op.forall([x, y], op.implies(same(x, y), same(y, x))))
        return torch.stack([f.value for f in found])

    return lambda: run(*[ltn.Variable(name, objects, add_batch_dim=False) for name in "xy"])


def ltn_same_shared(
    objects: Callable[[], Tensor],
    is_digit: Callable[[object, object], object],
    same: Callable[[object, object], object],
) -> Function:
    """The 21 rules in LTNtorch as an expert writes them: every predicate once, the digit as a free variable."""
    import ltn

    op = ltn_operators()

    def run() -> Tensor:
        found = objects()
        x, y = [ltn.Variable(name, found, add_batch_dim=False) for name in "xy"]
        d = ltn.Variable("d", torch.tensor(DIGITS), add_batch_dim=False)
        once = [is_digit(x, d), is_digit(y, d), same(x, y), same(y, x)]

        def use(which: int) -> object:  # a new object each time: a connective changes the axes of those it is given
            return ltn.LTNObject(once[which].value, list(once[which].free_vars))

        rules = [
            op.implies(op.and_(use(0), use(1)), use(2)),
            op.implies(op.and_(use(0), use(2)), use(1)),
            op.implies(use(2), use(3)),
        ]
        return torch.cat([op.forall([x, y], rule).value.reshape(-1) for rule in rules])

    return run


def stacked_by_hand(digit: Tensor, same: Tensor) -> Function:
    """What one would write in torch for these 21 rules and no others: ten rules of one form at a time."""

    def forall(x: Tensor) -> Tensor:
        return 1 - (1 - x).square().mean((-2, -1)).sqrt()

    def run() -> Tensor:
        by_digit = digit.T
        left, right = by_digit.unsqueeze(2), by_digit.unsqueeze(1)
        both = left * right
        first = forall(1 - both + both * same)
        both = left * same
        second = forall(1 - both + both * right)
        third = forall(1 - same + same * same.T)
        return torch.cat([first, second, third.unsqueeze(0)])

    return run


def same_rules(n: int, eager_goal: float) -> list[Row]:
    import ltn

    digit = (8 * random(n, 10)).softmax(-1).requires_grad_()
    same = random(n, n).requires_grad_()
    leaves = [digit, same]
    world = Interpretation(SAME, **{"is": probs(digit), "same": probs(same)})
    plans = {
        "eager": FuzzyPlan(SAME, world, PRODUCT),
        "eager, not rewritten": FuzzyPlan(SAME, world, PRODUCT, rewrite=False),
        "compiled": FuzzyPlan(SAME, world, PRODUCT, compile=True),
        "compiled, not rewritten": FuzzyPlan(SAME, world, PRODUCT, compile=True, rewrite=False),
    }
    ours = {name: pulled(lambda plan=plan: plan(P=n), leaves) for name, plan in plans.items()}
    truths = [ltn.Predicate(func=lambda x, d=d: digit[x, d]) for d in DIGITS]
    relation = ltn.Predicate(func=lambda x, y: same[x, y])
    peer = pulled(ltn_same(torch.arange(n), lambda x, d: truths[d](x), relation), leaves)
    lookup = ltn.Predicate(func=lambda x, d: digit[x, d])
    expert = pulled(ltn_same_shared(lambda: torch.arange(n), lookup, relation), leaves)
    hand = pulled(stacked_by_hand(digit, same), leaves)
    name = f"21 rules of `same`, n = {n}"
    assert_equal(name, leaves, peer, expert, hand, *ours.values())
    goals = {"eager": eager_goal, "eager, not rewritten": eager_goal, "compiled": 15.0, "compiled, not rewritten": 15.0}
    rows = [
        compare(f"fuzzy: {name}, {how}: times faster than LTNtorch", ours[how], peer, goal=goal, better="higher")
        for how, goal in goals.items()
    ]
    rows += [
        compare(
            f"fuzzy: {name}, {how}: times faster than LTNtorch{EXPERT}",
            ours[how],
            expert,
            goal=1.0,
            better="higher",
            use="expert",
        )
        for how in ("eager", "eager, not rewritten")
    ]
    rows.append(memory(f"{name}, eager", ours["eager"], expert, 1.0, "expert"))
    rows += [
        compare(f"fuzzy: {name}, {how}: time against stacked torch by hand", ours[how], hand, goal=1.3, better="lower")
        for how in ("eager", "eager, not rewritten")
    ]
    limits = {"eager": 0.2, "eager, not rewritten": 1.0, "compiled": 0.2, "compiled, not rewritten": 0.2}
    return rows + [memory(f"{name}, {how}", ours[how], peer, limit) for how, limit in limits.items()]


class Encoder(nn.Module):
    """The network of Chapter 3 up to its embedding of 50 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, 50),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layers(x)
        return found


def same_by_hand(images: Tensor, encoder: nn.Module, classes: nn.Module, relation: NeuralTensorNetwork) -> Function:
    """What one would write in torch: images embedded once, the relation once on all pairs."""

    def run() -> Tensor:
        codes = encoder(images)
        alike = relation.pairwise(codes, codes).sigmoid()
        return stacked_by_hand(classes(codes).softmax(-1), alike)()

    return run


def same_with_networks(n: int) -> list[Row]:
    """The same rules on images: a CNN, and a neural tensor network on two of its embeddings."""
    import ltn

    torch.manual_seed(0)
    encoder, classes, relation = Encoder(), nn.Linear(50, 10), NeuralTensorNetwork(50, hidden=10)
    images = torch.randn(n, 1, 28, 28)
    leaves = [*encoder.parameters(), *classes.parameters(), *relation.parameters()]
    kb = parse(
        "sort P; sort Code; sort D = 0..9; func code(P) -> Code; pred digit(Code, D); pred alike(Code, Code)\n"
        + "\n".join(
            [f"forall x, y: P. digit(code(x), {d}) & digit(code(y), {d}) -> alike(code(x), code(y))" for d in DIGITS]
            + [f"forall x, y: P. digit(code(x), {d}) & alike(code(x), code(y)) -> digit(code(y), {d})" for d in DIGITS]
            + ["forall x, y: P. alike(code(x), code(y)) -> alike(code(y), code(x))"]
        )
    )
    world = Interpretation(kb, code=values(encoder), digit=logits(classes, exclusive=True), alike=logits(relation))
    plan = FuzzyPlan(kb, world, PRODUCT)
    ours = pulled(lambda: plan(P=images), leaves)
    truths = [ltn.Predicate(func=lambda x, d=d: classes(encoder(x)).softmax(-1)[:, d]) for d in DIGITS]
    alike = ltn.Predicate(func=lambda x, y: relation(encoder(x), encoder(y)).sigmoid())
    peer = pulled(ltn_same(images, lambda x, d: truths[d](x), alike), leaves)
    on_codes = ltn.Predicate(func=lambda x, d: classes(x).softmax(-1).gather(1, d.unsqueeze(1)).squeeze(1))
    pairs = ltn.Predicate(func=lambda x, y: relation(x, y).sigmoid())
    expert = pulled(ltn_same_shared(lambda: encoder(images), on_codes, pairs), leaves)
    by_hand = pulled(same_by_hand(images, encoder, classes, relation), leaves)
    name = f"21 rules of `same` with CNN and neural tensor network, n = {n}"
    assert_equal(name, leaves, peer, expert, by_hand, ours)  # which warms all up; the peer takes its time
    ratios = [cpu_seconds(peer, 1) / cpu_seconds(ours, 5) for _ in range(3)]
    note = "it runs the networks on 4,096 copies of the images in every rule"
    return [
        summary(f"fuzzy: {name}: times faster than LTNtorch", ratios, goal=200.0, better="higher", note=note),
        compare(
            f"fuzzy: {name}: times faster than LTNtorch{EXPERT}", ours, expert, goal=1.0, better="higher", use="expert"
        ),
        compare(f"fuzzy: {name}: time against stacked torch by hand", ours, by_hand, goal=1.3, better="lower"),
        memory(name, ours, peer, 1.0),
        memory(name, ours, expert, 1.0, "expert"),
    ]


# --- three variables, and guards ---------------------------------------------------------------------------------


def transitive(n: int) -> list[Row]:
    import ltn

    r = random(n, n).requires_grad_()
    world = Interpretation(TRANSITIVE, r=probs(r))
    plans = {
        "eager": FuzzyPlan(TRANSITIVE, world, PRODUCT),
        "compiled, not rewritten": FuzzyPlan(TRANSITIVE, world, PRODUCT, compile=True, rewrite=False),
    }
    ours = {name: pulled(lambda plan=plan: plan(P=n), [r]) for name, plan in plans.items()}
    op, places = ltn_operators(), torch.arange(n)
    relation = ltn.Predicate(func=lambda x, y: r[x, y])

    def theirs() -> Tensor:
        x, y, z = [ltn.Variable(v, places, add_batch_dim=False) for v in "xyz"]
        return op.forall([x, y, z], op.implies(op.and_(relation(x, z), relation(z, y)), relation(x, y))).value

    def by_hand() -> Tensor:
        both = r.unsqueeze(1) * r.T.unsqueeze(0)
        return 1 - (1 - (1 - both + both * r.unsqueeze(2))).square().mean().sqrt()

    peer, hand = pulled(theirs, [r]), pulled(by_hand, [r])
    name = f"transitive rule, n = {n}"
    assert_equal(name, [r], peer, hand, *ours.values())
    return [
        compare(f"fuzzy: {name}, eager: times faster than LTNtorch", ours["eager"], peer, goal=60.0, better="higher"),
        compare(
            f"fuzzy: {name}, compiled, not rewritten: times faster than LTNtorch",
            ours["compiled, not rewritten"],
            peer,
            goal=15.0,
            better="higher",
        ),
        compare(f"fuzzy: {name}, eager: time against torch by hand", ours["eager"], hand, goal=1.3, better="lower"),
        *[memory(f"{name}, {how}", function, peer, 0.2) for how, function in ours.items()],
    ]


def guarded(n: int, count: int, goal: float) -> list[Row]:
    """A guard that passes a tenth of all pairs, of one rule or of ten.

    The index list by hand is about 7 times faster than LTNtorch on one rule, which bounds what can be asked there.
    """
    import ltn

    kb = GUARDED[count]
    near = random(n, n) < 0.1
    digit, same = random(n, count).requires_grad_(), random(n, n).requires_grad_()
    leaves = [digit, same]
    world = Interpretation(kb, **{"near": near, "is": probs(digit), "same": probs(same)})
    plan = FuzzyPlan(kb, world, PRODUCT)
    ours = pulled(lambda: plan(P=n), leaves)
    op, places = ltn_operators(), torch.arange(n)
    truths = [ltn.Predicate(func=lambda x, d=d: digit[x, d]) for d in range(count)]
    relation = ltn.Predicate(func=lambda x, y: same[x, y])

    def theirs() -> Tensor:
        x, y = [ltn.Variable(v, places, add_batch_dim=False) for v in "xy"]
        rules = [op.implies(op.and_(truth(x), truth(y)), relation(x, y)) for truth in truths]
        guard = {"cond_vars": [x, y], "cond_fn": lambda x, y: near[x.value, y.value]}
        return torch.stack([op.forall([x, y], rule, **guard).value for rule in rules])

    lookup = ltn.Predicate(func=lambda x, d: digit[x, d])

    def on_an_index_list() -> Tensor:
        first, second = near.nonzero(as_tuple=True)
        x, y = ltn.diag(ltn.Variable("x", first, add_batch_dim=False), ltn.Variable("y", second, add_batch_dim=False))
        d = ltn.Variable("d", torch.arange(count), add_batch_dim=False)
        rule = op.implies(op.and_(lookup(x, d), lookup(y, d)), relation(x, y))
        return op.forall([x, y], rule).value

    def by_hand() -> Tensor:
        x, y = near.nonzero(as_tuple=True)
        both = digit[x] * digit[y]
        return 1 - (1 - (1 - both + both * same[x, y].unsqueeze(1))).square().mean(0).sqrt()

    peer, hand, expert = pulled(theirs, leaves), pulled(by_hand, leaves), pulled(on_an_index_list, leaves)
    name = f"guard passing 10 % of {n}² pairs, {count} rule{'s' if count > 1 else ''}"
    assert_equal(name, leaves, peer, expert, hand, ours)
    return [
        compare(f"fuzzy: {name}: times faster than LTNtorch", ours, peer, goal=goal, better="higher"),
        compare(
            f"fuzzy: {name}: times faster than LTNtorch{EXPERT}", ours, expert, goal=1.0, better="higher", use="expert"
        ),
        compare(f"fuzzy: {name}: time against an index list by hand", ours, hand, goal=1.3, better="lower"),
        memory(name, ours, peer, 1.0),
    ]


# --- growth ------------------------------------------------------------------------------------------------------

GROWTH = {
    1: ("sort P; pred a(P); pred b(P); [rule] forall x: P. a(x) -> b(x)", [2**k for k in range(16, 21)]),
    2: ("sort P; pred a(P); pred r(P, P); [rule] forall x, y: P. a(x) & r(x, y) -> a(y)", [256, 362, 512, 724, 1024]),
    3: ("sort P; pred r(P, P); [rule] forall x, y, z: P. r(x, z) & r(z, y) -> r(x, y)", [40, 57, 80, 113, 160]),
}


def growth(variables: int, how: Logic, rewrite: bool) -> Row:
    """Time of a rule with so many variables against n, on a log-log line."""
    text, sizes = GROWTH[variables]
    kb: KnowledgeBase = parse(text)
    times = []
    for n in sizes:
        shapes = {name: (n,) * len(symbol.sorts) for name, symbol in kb.signature.predicates.items()}
        tables = {name: random(*shape).requires_grad_() for name, shape in shapes.items()}
        world = Interpretation(kb, **{name: probs(t) for name, t in tables.items()})
        plan = FuzzyPlan(kb, world, how, rewrite=rewrite)
        run = pulled(lambda plan=plan, n=n: plan(P=n), list(tables.values()))
        run()
        times.append(min(cpu_seconds(run, 3) for _ in range(5)))
    what = "rewritten" if rewrite else "not rewritten"
    name = f"fuzzy: exponent of the cost against n, variables: {variables}, {how.name}, {what}"
    note = f"{1000 * times[0]:.2g} ms at n = {sizes[0]}, {1000 * times[-1]:.2g} ms at n = {sizes[-1]}"
    return Row(name, exponent(sizes, times), variables + 0.25, "lower", note=note)


def exponents() -> list[Row]:
    plain = logic("lukasiewicz")
    return [row for v in GROWTH for row in (growth(v, PRODUCT, True), growth(v, plain, False))]


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "same 64": lambda: same_rules(64, 8.0),
    "same 256": lambda: same_rules(256, 4.0),
    "transitive": lambda: transitive(128),
    "guard": lambda: [*guarded(256, 1, 5.5), *guarded(256, 10, 8.0)],
    "exponents": exponents,
    "networks": lambda: same_with_networks(64),
}


def rows() -> list[Row]:
    """All measurements, each section in a process of its own.

    A tensor of a few megabytes costs several times as much when the allocator returns its pages to the system between
    two uses, and whether it does depends on what the process has freed before.
    """
    measured: list[Row] = []
    for section in SECTIONS:
        run = subprocess.run([sys.executable, __file__, section], stdout=subprocess.PIPE, text=True, check=True)
        measured += [Row(**row) for row in json.loads(run.stdout.splitlines()[-1])]
    return measured


if __name__ == "__main__":
    from harness import main

    if len(sys.argv) > 1:
        torch.set_num_threads(1)
        print(json.dumps([asdict(row) for row in SECTIONS[sys.argv[1]]()]))
    else:
        main(__file__, rows)
