"""Knowledge that several tests of the semantics reason with."""

from collections.abc import Callable, Sequence
from itertools import product
from random import Random

from doxa.logic import KnowledgeBase, parse

ADDITION = """
    sort Image
    sort Digit = 0..3
    data pairs(left: Image, right: Image, sum: Int)
    func digit(Image) -> Digit
    [sum] forall p in pairs. d := digit(p.left), e := digit(p.right) (d + e = p.sum)
"""
WEATHER = """
    sort Day
    pred rain(Day)
    pred wet(Day)
    pred warm(Day)
    [soaked]          forall d: Day. rain(d) -> wet(d)
    [cold, weight 2]  forall d: Day. rain(d) & !wet(d) | warm(d)
    [some]            exists d: Day. warm(d)
"""


def random_formula(random: Random, labels: Sequence[str], variable: str, depth: int = 3) -> tuple[str, str]:
    """A formula about labels of one object, in the language, and in Python over a dict ``w`` of truth values."""
    if depth == 0 or random.random() < 0.2:
        label = random.choice(labels)
        return f"{label}({variable})", f"w[{label!r}]"
    left, python = random_formula(random, labels, variable, depth - 1)
    if random.random() < 0.25:
        return f"!({left})", f"(not {python})"
    right, other = random_formula(random, labels, variable, depth - 1)
    sign, formula = random.choice([
        ("&", "({} and {})"), ("|", "({} or {})"), ("->", "(not {} or {})"), ("<->", "({} == {})")
    ])  # fmt: skip
    return f"({left}) {sign} ({right})", formula.format(python, other)


def random_axioms(
    seed: int, labels: Sequence[str], count: int
) -> tuple[KnowledgeBase, Callable[[dict[str, bool]], list[bool]]]:
    """A knowledge base that can hold, with several axioms about the labels of one sort, and what they say in Python."""
    random = Random(seed)
    while True:
        axioms = [(v, *random_formula(random, labels, v)) for v in random.choices("dex", k=count)]
        declared = "; ".join([f"pred {label}(Thing)" for label in labels])
        said = "\n".join([f"[r{i}] forall {v}: Thing. {text}" for i, (v, text, _) in enumerate(axioms)])
        judged = [eval(f"lambda w: bool({python})") for *_, python in axioms]
        worlds = [dict(zip(labels, bits, strict=True)) for bits in product([False, True], repeat=len(labels))]
        if 0 < sum(all(judge(w) for judge in judged) for w in worlds) < len(worlds):
            break

    def judge_all(world: dict[str, bool]) -> list[bool]:
        return [judge(world) for judge in judged]

    return parse(f"sort Thing; {declared}\n{said}", warn=False), judge_all
