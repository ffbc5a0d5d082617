"""Kinship: learn from stories of two facts, and be asked about stories of up to ten.

Families are made up. A story goes from one person to another, fact by fact: "B is A's mother, C is B's brother". Facts
come as vectors, one of several phrases with noise, and the question is what the last person is to the first one:

    define so_far(s in stories, i: Place where i > 0) -> Relation := compose(so_far(s, i - 1), said(s.facts[i]))

How two relations compose is ``given``, and then what a fact says is learnt from the answers alone; or it is ``learnt``
as well, from pairs whose facts are named. A recurrent network (``neural``) learns from the answers to pairs alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from doxa.data import Batches
from doxa.logic import logits
from doxa.reproduce._digits import percent
from doxa.reproduce._experiment import Entry, Experiment, Given, Settings, Training, descend, train
from doxa.semantics import Model

KINDS = {
    (1, 0): ("father", "mother"),
    (0, 1): ("son", "daughter"),
    (1, 1): ("brother", "sister"),
    (2, 0): ("grandfather", "grandmother"),
    (0, 2): ("grandson", "granddaughter"),
    (2, 1): ("uncle", "aunt"),
    (1, 2): ("nephew", "niece"),
    (2, 2): ("he_cousin", "she_cousin"),
}
"""Relations by the generations up to the closest common ancestor, and down again; and by sex."""
RELATIONS = tuple([name for pair in KINDS.values() for name in pair])
OTHER = len(RELATIONS)
"""Stands for all that has no name, or that does not follow from two relations."""
LONGEST = 10
PHRASES, SIZE, NOISE = 3, 32, 0.08
"""Each relation is said in so many ways; the size of their vectors; how far a fact is off."""
STORIES = """
sort Fact
sort Relation = {{{relations}, other}}
sort Place = 0..{last}
data stories(facts: Fact*, answer: Relation)
func said(Fact) -> Relation
func compose(Relation, Relation) -> Relation
define so_far(s in stories, i: Place where i > 0) -> Relation := compose(so_far(s, i - 1), said(s.facts[i]))
define so_far(s in stories, i: Place) -> Relation := said(s.facts[0])
[answer] forall s in stories. so_far(s, {last}) = s.answer
"""

PAIRS = """
sort Fact
sort Relation = {{{relations}, other}}
data pairs(a: Fact, b: Fact, first: Relation, second: Relation, answer: Relation)
func said(Fact) -> Relation
func compose(Relation, Relation) -> Relation
[heard] forall p in pairs. said(p.a) = p.first & said(p.b) = p.second
[composed] forall p in pairs. compose(p.first, p.second) = p.answer
"""


def knowledge(length: int) -> str:
    """What follows from stories of so many facts."""
    return STORIES.format(relations=", ".join(RELATIONS), last=length - 1)


# --- families -----------------------------------------------------------------------------------------------------


def family(random: torch.Generator, generations: int = 4) -> Tensor:
    """What each person is to each other one in a family: ``(n, n)`` numbers of relations, `OTHER` where none is named.

    >>> related = family(torch.Generator().manual_seed(0))
    >>> bool((related.diagonal() == OTHER).all()), bool((related != OTHER).any())
    (True, True)
    """

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    sexes, line = [0, 1], [(0, 1)]
    parents: list[tuple[int, ...]] = [(), ()]
    for generation in range(1, generations):
        couples: list[tuple[int, int]] = []
        for couple in line:
            for _ in range(draw(2, 3)):
                child = len(sexes)
                sexes.append(draw(0, 1))
                parents.append(couple)
                if generation + 1 < generations:  # and marries someone from elsewhere
                    sexes.append(1 - sexes[child])
                    parents.append(())
                    couples.append((child, child + 1))
        line = couples
    above: list[dict[int, int]] = []
    for person, those in enumerate(parents):
        found = {person: 0}
        for parent in those:
            found |= {a: d + 1 for a, d in above[parent].items()}
        above.append(found)
    related = torch.full((len(sexes), len(sexes)), OTHER)
    for x, ups in enumerate(above):
        for y, downs in enumerate(above):
            ways = [(ups[a] + downs[a], ups[a], downs[a]) for a in ups.keys() & downs.keys()]
            if ways and min(ways)[1:] in KINDS:
                related[x, y] = RELATIONS.index(KINDS[min(ways)[1:]][sexes[y]])
    return related


@cache
def families(seed: int, count: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [family(random) for _ in range(count)]


@cache
def composition() -> Tensor:
    """What y's relation to x and z's to y say of z and x: the only relation ever seen in 60 families, or `OTHER`.

    >>> at = RELATIONS.index
    >>> [RELATIONS[composition()[at(a), at(b)]] for a, b in (("mother", "brother"), ("sister", "son"))]
    ['uncle', 'nephew']
    >>> bool(composition()[at("grandmother"), at("son")] == OTHER)  # one's father or one's uncle
    True
    """
    sizes = (OTHER + 1,) * 3
    seen = torch.zeros(sizes, dtype=torch.bool)
    for related in families(1, 60):
        x, y, z = (related != OTHER).unsqueeze(-1).logical_and(related != OTHER).nonzero(as_tuple=True)
        x, y, z = (column[x != z] for column in (x, y, z))
        seen[related[x, y], related[y, z], related[x, z]] = True
    only = (seen.sum(-1) == 1) & ~seen[..., OTHER]
    return torch.where(only, seen.long().argmax(-1), OTHER)


class Stories(NamedTuple):
    """Facts as vectors, what they say, and the answers."""

    facts: Tensor
    said: Tensor
    answers: Tensor


def phrases() -> Tensor:
    """The ways to say each relation, the same for everyone."""
    random = torch.Generator().manual_seed(7)
    return nn.functional.normalize(torch.randn(OTHER, PHRASES, SIZE, generator=random), dim=-1)


def stories(seed: int, length: int, count: int) -> Stories:
    """Stories of one length, each in a family of its own, in which nobody comes twice and every step has one answer.

    >>> two = stories(0, 2, 5)
    >>> bool((composition()[two.said[:, 0], two.said[:, 1]] == two.answers).all())
    True
    """
    random = torch.Generator().manual_seed(seed * 100 + length)
    related, rules = families(seed + 1000, 40), composition()
    said, answers = list[list[int]](), list[int]()
    while len(said) < count:
        of = related[int(torch.randint(len(related), (), generator=random))]
        here = int(torch.randint(len(of), (), generator=random))
        been, steps, answer = [here], list[int](), -1
        for _ in range(length):
            possible = of[here] != OTHER
            possible[been] = False
            if steps:
                possible &= rules[answer, of[here]] != OTHER
            nexts = possible.nonzero().squeeze(-1)
            if not len(nexts):
                break
            there = int(nexts[int(torch.randint(len(nexts), (), generator=random))])
            steps.append(int(of[here, there]))
            answer = int(of[been[0], there])
            here = there
            been.append(here)
        if len(steps) == length:
            said.append(steps)
            answers.append(answer)
    spoken = torch.tensor(said)
    ways = torch.randint(PHRASES, spoken.shape, generator=random)
    facts = phrases()[spoken, ways] + NOISE * torch.randn(*spoken.shape, SIZE, generator=random)
    return Stories(facts, spoken, torch.tensor(answers))


# --- learning -----------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Reads the facts of a story one after the other, and answers."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.reads = nn.GRU(SIZE, size, batch_first=True)
        self.answers = nn.Linear(size, OTHER + 1)

    def forward(self, facts: Tensor) -> Tensor:
        found: Tensor = self.answers(self.reads(facts)[0][:, -1])
        return found


@dataclass(frozen=True)
class KinshipConfig(Settings):
    """Learn what facts say from stories of two of them, with or without knowing how relations compose."""

    how: Literal["given", "learnt", "neural"] = "given"
    stories: int = 4000  # pairs to learn from
    tested: int = 200  # stories of each length
    steps: int = 1500
    batch_size: int = 128
    learning_rate: float = 1e-2  # of Adam at its highest
    warmup: int = 20
    decay: int = 1500
    validation: bool = False  # measure other families than those of the test
    evaluate_every: int = 1500

    def training(self, given: Given) -> Training:
        pairs = stories(10 + given.seed, 2, self.stories)
        batches = Batches(tuple(pairs), self.batch_size, seed=given.seed, drop_last=True)
        hears = nn.Sequential(nn.Linear(SIZE, 64), nn.ReLU(), nn.Linear(64, OTHER + 1))
        rules = nn.ParameterList([torch.zeros(OTHER + 1, OTHER + 1, OTHER + 1)])
        network = nn.ModuleDict({"hears": Recurrent() if self.how == "neural" else hears})
        if self.how == "learnt":
            network["rules"] = rules
            model = Model(
                PAIRS.format(relations=", ".join(RELATIONS)), "exact", said=logits(hears), compose=logits(rules[0])
            )
        else:
            model = Model(knowledge(2), "exact", said=logits(hears), compose=composition())
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)

        def step(i: int) -> Tensor:
            facts, said, answers = batches.next()
            if self.how == "neural":
                loss = nn.functional.cross_entropy(network["hears"](facts), answers)
            elif self.how == "given":
                loss = model.loss(stories={"facts": facts, "answer": answers})
            else:
                names = {"first": said[:, 0], "second": said[:, 1], "answer": answers}
                loss = model.loss(pairs={"a": facts[:, 0], "b": facts[:, 1], **names})
            return descend(loss, optimizer, rate=self.rate(self.learning_rate, i))

        state = {"network": network, "optimizer": optimizer, "batches": batches}
        return Training(step, state, lambda run: self.measured(network))

    @torch.no_grad()
    def measured(self, network: nn.ModuleDict) -> dict[str, float]:
        """In percent: ``accuracy`` of the most probable answers, of all stories and by length; ``fact_accuracy``, of
        what facts say; and ``rules``, of the pairs of relations that stories of two may have, those composed right.
        """
        seed, found, facts = 2 if self.validation else 3, dict[str, Tensor](), list[Tensor]()
        known, table = composition(), composition()
        if "rules" in network:
            table = next(network["rules"].parameters()).argmax(-1)
        for length in range(2, LONGEST + 1):
            asked = stories(seed, length, self.tested)
            if self.how == "neural":
                answers = network["hears"](asked.facts).argmax(-1)
            else:
                model = Model(knowledge(length), "exact", said=logits(network["hears"]), compose=table)
                answers = model.predict("stories.answer", stories={"facts": asked.facts}).values
                facts.append(network["hears"](asked.facts).argmax(-1) == asked.said)
            found[f"length_{length}"] = answers == asked.answers
        measures = {"accuracy": percent(torch.cat(list(found.values())))}
        if facts:
            measures["fact_accuracy"] = percent(torch.cat([f.flatten() for f in facts]))
        if "rules" in network:
            measures["rules"] = percent((table == known)[known != OTHER])
        return {**measures, **{name: percent(right) for name, right in found.items()}}


ENTRIES: Mapping[str, KinshipConfig] = {
    "pairs/given": KinshipConfig("given"),
    "pairs/learnt": KinshipConfig("learnt", steps=300, decay=300, evaluate_every=300),
    "pairs/neural": KinshipConfig("neural"),
}
KINSHIP = Experiment(
    name="kinship",
    about="Kinship learnt from stories of two facts, asked of stories of up to ten",
    entries=tuple(Entry(name, config) for name, config in ENTRIES.items()),
    train=train,
    metrics=("accuracy", "length_2", "length_5", "length_10", "fact_accuracy", "rules"),
)
