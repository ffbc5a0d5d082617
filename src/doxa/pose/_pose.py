"""Posing: from knowledge, an interpretation and data to batches of equal problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.logic import Axiom, Interpretation
from doxa.pose._beliefs import AnyJoint, BeliefPlan, believed, plan_beliefs
from doxa.pose._data import CallData, require_unmapped
from doxa.pose._poser import AxiomInstances, Decided, Listed, OpenInstances, Poser, decide
from doxa.pose._references import Instances
from doxa.pose._rows import seen_by
from doxa.pose._variables import UNDEFINED
from doxa.problem import Belief, Mixture, Problem
from doxa.problem._autoregressive import Autoregressive

LIMIT = 1 << 20
"""Joint values of variables that a term may depend on."""


@dataclass(frozen=True, eq=False)
class ProblemBatch:
    """Equal problems of many instances: any engine can be asked how probable it is that the outputs are as observed.

    Attributes:
        problem: what all of them share.
        belief: what networks believe of its world variables, one row for each instance; exact and sampled
            reasoning take a mixture or an autoregressive belief in its place.
        given: what the data decide, int64 ``(instances, G)``; None where the problem has no given variables.
        observed: the outputs under which the axiom holds, int64 ``(instances, Y)``.
        instances: which instances of the axiom these are, int64.
        values: the values of each world variable.
        outputs: the values of each output; the last one may be "undefined".
        fields: the field ``(rows, name)`` that each output is observed from; None where it is none, as for "holds".

    >>> from doxa.problem import parity
    >>> batch = ProblemBatch(parity(2), Belief.uniform((2, 2), batch=(3,)), None, torch.ones(3, 1).long(),
    ...                      torch.arange(3), ((0, 1), (0, 1)), ((False, True),), (None,))
    >>> len(batch.instances)
    3
    """

    problem: Problem
    belief: Belief | Mixture | Autoregressive
    given: Tensor | None
    observed: Tensor
    instances: Tensor
    values: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]
    fields: tuple[tuple[str, str] | None, ...]

    @property
    def partial(self) -> list[int]:
        """The outputs that may have no value."""
        return [i for i, values in enumerate(self.outputs) if values and values[-1] is UNDEFINED]


@dataclass(frozen=True, eq=False)
class PosedAxiom:
    """What an axiom asks about data.

    Attributes:
        axiom: the axiom.
        shape: how many values each variable of its outermost ``forall`` has; the number of instances where later ones
            depend on earlier ones; empty for an axiom that is one event.
        passes: the instances that its guard lets through, bool ``(instances,)``.
        holds: the instances that are certainly true, bool ``(instances,)``; those of the batches are not.
        batches: the problems of all other instances that are not certainly false.
        variables: the variables that make an instance.
        joint: whether the instances are independent parts of one event instead.
        field_values: by rows and field, the values of the terms that the axiom says a field equals.
        listed: what each variable stands for in each instance, where there are so many choices that only those are
            listed that the guard lets through; ``shape`` is then their number.

    >>> import doxa
    >>> kb = doxa.parse("sort Day; pred wet(Day); [dry] forall d: Day. !wet(d)")
    >>> (posed,) = pose(kb.axioms, doxa.Interpretation(kb, wet=torch.tensor([True, False])), dict(Day=2))
    >>> posed.shape, posed.holds
    ((2,), tensor([False,  True]))
    """

    axiom: Axiom
    shape: tuple[int, ...]
    passes: Tensor
    holds: Tensor
    batches: list[ProblemBatch]
    variables: tuple[str, ...]
    joint: bool = False
    field_values: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    listed: Listed | None = None

    def gather(self, parts: Sequence[Tensor], *, true: float, false: float) -> Tensor:
        """A number for every instance, from those of the batches; ``true`` and ``false`` for those that are certain."""
        if len(parts) == 1 and len(parts[0]) == len(self.holds):
            return parts[0]
        like = parts[0] if parts else torch.zeros(())
        certain = torch.where(self.holds.to(like.device), like.new_tensor(true), like.new_tensor(false))
        if not parts:
            return certain
        places = torch.cat([batch.instances for batch in self.batches]).to(like.device)
        return certain.index_put((places,), torch.cat(list(parts)))


def pose(
    axioms: Iterable[Axiom],
    interpretation: Interpretation,
    data: Mapping[str, Any],
    *,
    whole: bool = False,
    believe: bool = True,
    limit: int = LIMIT,
    generator: torch.Generator | None = None,
) -> list[PosedAxiom]:
    """The problems that axioms pose about data.

    The random variables of a problem are what networks say: a neural function at its arguments, ``digit(p.left)``, is
    one variable with as many values as its sort; a predicate at its arguments is a Boolean one; the values of an
    *exclusive* predicate are one variable together. They are taken to be independent given the data. The same symbol at
    the same objects is the same variable wherever it is written. Objects are the same when they have the same index;
    features in two places of the data are two objects. What the data decide is given to a problem, or observed.

    Instances that look alike share one problem, which is made once: a second call with data of the same form makes
    nothing.

    Args:
        axioms: what to ask.
        interpretation: the meaning of the symbols, which also keeps what was made.
        data: objects of open sorts and rows, by name.
        whole: ask whether each axiom holds as a whole, instead of each choice of the variables of its outermost
            ``forall``. Rows that share no variable are then independent parts of it; so are all, where symbols share
            the component of a mixture, which is drawn for each row.
        believe: ask the networks; without, all beliefs are uniform.
        limit: how many joint values of variables a term may depend on.
        generator: draws the objects of ``sample``.

    >>> import doxa
    >>> kb = doxa.parse('''
    ...     sort Image
    ...     sort Digit = 0..9
    ...     data pairs(left: Image, right: Image, sum: Int)
    ...     func digit(Image) -> Digit
    ...     [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
    ... ''')
    >>> sees = doxa.Interpretation(kb, digit=doxa.logits(lambda image: image))
    >>> pairs = dict(left=torch.randn(8, 10), right=torch.randn(8, 10), sum=torch.arange(8))
    >>> (posed,) = pose(kb.axioms, sees, dict(pairs=pairs))
    >>> (batch,) = posed.batches
    >>> batch.problem, batch.belief
    (Problem(world=(10, 10), output=(19,), factors=2), Belief(batch=(8,), sizes=(10, 10), dtype=torch.float32))
    """
    if torch.compiler.is_compiling():
        raise ConfigError(
            "posing looks at the data, which torch.compile cannot trace; compile the networks instead of the loss, or "
            "use Fuzzy(...), whose loss can be compiled"
        )
    axioms, plans = list(axioms), interpretation.plans
    posers: list[Poser] = []
    for axiom in axioms:
        as_one = whole and not interpretation.shared_in(axiom.formula)
        made = ("pose", axiom.formula, as_one, limit)
        posers.append(plans.get(made) or plans.find(made, partial(Poser, axiom, as_one, limit)))
    read = CallData(
        interpretation, data, frozenset().union(*[poser.rows for poser in posers]), [a.formula for a in axioms]
    )
    shapes = _shapes(interpretation, data)
    key = ("posed", tuple(posers), shapes)
    plan = plans.get(key)
    if shapes is None or not isinstance(plan, _Plan):
        plan = _Plan([poser(axiom, read, generator) for axiom, poser in zip(axioms, posers, strict=True)])
        if _lasts(read, shapes):
            plans[key] = plan
    decided = plan.decided
    if decided is None:
        read.looked = False
        decided = [decide(axiom, read, instances) for axiom, instances in zip(axioms, plan.instances, strict=True)]
        plan.decided = decided if _lasts(read, shapes) else None
    beliefs = iter(_believed(axioms, plan, decided, read, shapes) if believe else ())
    found = []
    for axiom, (shape, passes, variables, joint, _, listed), (holds, field_values, some) in zip(
        axioms, plan.instances, decided, strict=True
    ):
        batches = [_batch(part, next(beliefs, None)) for part in some]
        joint = joint or (whole and bool(interpretation.shared_in(axiom.formula)))
        found.append(PosedAxiom(axiom, shape, passes, holds, batches, variables, joint, field_values, listed))
    return found


def _require_values(tensor: Any) -> None:
    """Refuse fake and meta tensors, which have a shape and no values."""
    fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    if fake or (isinstance(tensor, Tensor) and (tensor.is_meta or hasattr(tensor, "fake_mode"))):
        raise ConfigError(
            "posing looks at the values of data and networks, which fake and meta tensors do not have; use Fuzzy(...) "
            "or Classical(), which need only shapes, or give real tensors"
        )


def _shapes(interpretation: Interpretation, data: Mapping[str, Any]) -> Any:
    """What is known of data without a look at its values; None where that is no tensors and numbers of objects."""
    signature, complete, where = interpretation.kb.signature, True, None
    found: list[tuple[Any, ...]] = []
    for name, value in data.items():
        complete &= name not in signature.predicates and name not in signature.functions
        for part, column in value.items() if isinstance(value, Mapping) else [(None, value)]:
            if isinstance(column, Tensor):
                _require_values(column)
                if part is not None and column.ndim == 1 and not column.is_floating_point():
                    require_unmapped(column)
                where = column.device
                found.append((name, part, column.shape, column.dtype, where))
            else:
                complete &= type(column) is int
                found.append((name, part, column))
    if where is None:  # the networks say where the call is
        own = next(interpretation.tensors(), None)
        _require_values(own)
        found.append((own if own is None else own.device,))
    return tuple(found) if complete else None


@dataclass(eq=False)
class _Plan:
    """What was decided for data of some shapes; what the values of the data say is None, and made at every call."""

    instances: list[AxiomInstances]
    decided: list[Decided] | None = None
    beliefs: tuple[BeliefPlan, list[Instances]] | None = None
    """How the beliefs about some instances are found, and these instances."""


def _lasts(read: CallData, shapes: Any) -> bool:
    """Will what was made now be right for other data of these shapes, and its tensors be of use to other calls?"""
    passing = torch.is_inference_mode_enabled() or torch._C._functorch.peek_interpreter_stack() is not None
    return shapes is not None and not read.looked and not passing


def _believed(
    axioms: Sequence[Axiom], plan: _Plan, decided: Sequence[Decided], read: CallData, shapes: Any
) -> list[AnyJoint]:
    """What networks believe about the instances that they decide."""
    parts = [alike for own in decided for alike, _, _ in own.open]
    instances = [some for some, _, _ in parts]
    if plan.beliefs is not None and plan.beliefs[1] == instances:
        return believed(read, plan.beliefs[0])
    read.looked = False
    seen = [seen_by(axiom.formula, read) for axiom, own in zip(axioms, decided, strict=True) for _ in own.open]
    asked = [(t.posed.world, some, t.references, row) for (some, t, _), row in zip(parts, seen, strict=True)]
    made = plan_beliefs(read, asked)
    if _lasts(read, shapes):
        plan.beliefs = (made, instances)
    return believed(read, made)


def _batch(part: OpenInstances, belief: AnyJoint | None) -> ProblemBatch:
    (_, template, places), given, observed = part
    posed = template.posed
    assert posed.problem is not None
    belief = Belief.uniform(posed.problem.world, (len(places),)) if belief is None else belief
    device = belief.device
    own_given = given.to(device) if posed.given else None
    return ProblemBatch(posed.problem, belief, own_given, observed.to(device), places, *posed.described)
