"""Every finding of the doctor: knowledge in which it appears, and knowledge in which it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from doxa.cli import main
from doxa.doctor import Examination, examine, examine_run
from doxa.doctor._random_worlds import RandomWorlds, used
from doxa.errors import BudgetError, ConfigError, KnowledgeError, RunError
from doxa.logic import Interpretation, load, logits, parse, probs
from doxa.train import Fitting, Task, train_task

BIRDS = "sort Bird; pred raven(Bird); pred black(Bird)\n"
RULE = BIRDS + "[rule] forall x: Bird. raven(x) -> black(x)"


@pytest.mark.parametrize(
    ("kind", "chosen", "found"),
    [
        ("vanishing", "lukasiewicz", True),  # ∀ has a gradient where all instances miss 1 by less than 1 together
        ("vanishing", "drastic", True),
        ("vanishing", "product", False),
        ("vanishing", "godel", False),
        ("single-passing", "godel", True),
        ("single-passing", "product", False),
        ("single-passing", "lukasiewicz", False),
        ("one-sided", "godel:r", True),
        ("one-sided", "product", False),
        ("one-sided", "godel", False),  # one atom at a time, but as often a raven as a black thing
    ],
)
def test_gradients_of_a_rule(kind: str, chosen: str, found: bool) -> None:
    examined = examine(parse(RULE), chosen, quantifier="logic", objects=12)
    assert examined.of(kind) == (["rule"] if found else [])


def test_what_was_tried_is_what_calculus_says() -> None:
    """By hand, on other random numbers."""
    a, c = torch.rand(2, 200_000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    missing = (a - c).clamp(min=0).sum(-1)
    tried = examine(parse(RULE), "lukasiewicz", quantifier="logic", objects=2, draws=200).axioms["rule"]
    assert abs(tried.vanished - float((missing[missing > 0] >= 1).double().mean())) < 0.1
    tried = examine(parse(RULE), "lukasiewicz", objects=2, draws=200).axioms["rule"]
    assert tried.vanished == 0.0  # the mean of the instances has a slope wherever one of them has
    tried = examine(parse(RULE), "godel:r", objects=2, draws=200).axioms["rule"]
    assert tried.balance is not None and tried.balance.consequent_ratio == 1.0
    # L = 1 - ∏ (1 - a + a c): the derivatives by hand
    tried = examine(parse(RULE), "product", quantifier="logic", objects=16, draws=200).axioms["rule"]
    a, c = torch.rand(2, 20_000, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    truth = 1 - a + a * c
    slope = (truth.prod(-1, keepdim=True) / truth * (1 - c + a)).sum(-1)
    assert abs(tried.vanished - float((slope < 0.01 * (1 - truth.prod(-1))).double().mean())) < 0.1


def test_modus_tollens_can_be_one_sided() -> None:
    """∂I/∂c = a and -∂I/∂a = 1 - c for Reichenbach: what is taught depends on what is believed."""
    text = "pred c; " + "; ".join(f"pred p{i}" for i in range(3)) + "\n[rule] p0 | p1 | p2 -> c"
    kb = parse(text)
    sure = {"c": probs(torch.tensor(0.999)), **{f"p{i}": probs(torch.tensor(0.5)) for i in range(3)}}
    on_data = examine(kb, "product", interpretation=Interpretation(kb, **sure))
    assert on_data.of("one-sided") == ["rule"] and "raise consequents" in str(on_data)
    unsure = sure | {"c": probs(torch.tensor(0.01)), **{f"p{i}": probs(torch.tensor(0.02)) for i in range(3)}}
    on_data = examine(kb, "product", interpretation=Interpretation(kb, **unsure))
    assert on_data.of("one-sided") == ["rule"] and "lower antecedents" in str(on_data)
    assert examine(kb, "product").of("one-sided") == []


def test_what_to_change_is_free_of_it() -> None:
    found = examine(parse(RULE), "godel", quantifier="logic", objects=4)
    (note,) = [note for note in found.notes if note.startswith("without these gradients: ")]
    first, *names = note.partition(": ")[2].split(", ")
    assert first == "the mean of the instances" and names
    assert examine(parse(RULE), "godel", objects=4).findings == ()
    for name in names:
        assert examine(parse(RULE), name, quantifier="logic", objects=4).findings == ()
    assert "∀ of 6 truth values" in str(examine(parse(RULE), "lukasiewicz", quantifier="logic", objects=6))


@pytest.mark.parametrize(
    ("axioms", "kind", "where"),
    [
        ("[odd] forall x: Bird. raven(x) & !raven(x) -> black(x)", "vacuous", ["odd"]),
        ("[same] forall x: Bird. raven(x) | !raven(x)", "vacuous", ["same"]),
        ("[none] forall x: Bird. !raven(x); [rule] forall x: Bird. raven(x) -> black(x)", "vacuous", ["rule"]),
        ("[rule] forall x: Bird. raven(x) -> black(x)", "vacuous", []),
        ("[no] forall x: Bird. !raven(x); [yes] exists x: Bird. raven(x)", "contradiction", ["all axioms"]),
        ("[few] exists x: Bird. raven(x); [not_all] exists x: Bird. !raven(x)", "contradiction", []),
        (
            "[odd] forall x: Bird. raven(x) & !raven(x) -> black(x); [no] forall x: Bird. !raven(x); "
            "[rule] forall x: Bird. raven(x) -> black(x); [yes] exists x: Bird. raven(x)",
            "vacuous",
            ["odd"],
        ),
    ],
)
def test_emptiness(axioms: str, kind: str, where: list[str]) -> None:
    assert examine(parse(BIRDS + axioms, warn=False), "log_product").of(kind) == where


@pytest.mark.parametrize(
    ("axiom", "vacuous"),
    [("q(h) -> p(h)", []), ("q(a) -> p(a)", ["r"]), ("forall x: R. !q(x) | p(x)", []), ("p(a)", [])],
)
def test_facts_of_closed_predicates_hold_in_every_world(axiom: str, vacuous: list[str]) -> None:
    text = "sort R = {h, a}; pred p(R); closed pred q(R); fact q(h); fact p(a);"
    assert examine(parse(f"{text} [r] {axiom}", warn=False)).of("vacuous") == vacuous


def test_rows_are_looked_at_under_every_observation() -> None:
    text = "sort Image\nsort Digit = 0..9\ndata pairs(left: Image, sum: Int)\nfunc digit(Image) -> Digit\n"
    kb = parse(text + "[small] forall p in pairs. digit(p.left) > 8 & p.sum > 9 -> digit(p.left) = p.sum", warn=False)
    assert examine(kb).of("vacuous") == []
    never = "[never] forall p in pairs. digit(p.left) < p.sum & digit(p.left) > p.sum -> p.sum = 3"
    kb = parse(text + never, warn=False)
    assert examine(kb).of("vacuous") == ["never"]
    kb = parse(text + "[other] forall p in pairs. p.sum != 1 -> digit(p.left) = 0", warn=False)  # other numbers exist
    assert examine(kb).of("vacuous") == []
    assert set(RandomWorlds(kb, 30, torch.Generator().manual_seed(0)).data["pairs"]["sum"].tolist()) == {0, 1}
    kb = parse(text + "[square] forall p in pairs. p.sum * p.sum mod 3 = 1 -> digit(p.left) = 0", warn=False)
    assert "not decided: the numbers of pairs.sum that `p.sum * p.sum mod 3 = 1` tells apart" in str(examine(kb))


def seen(raven: Any, black: Any, chosen: str = "product") -> Examination:
    kb = parse(RULE)
    interpretation = Interpretation(kb, raven=raven, black=black)
    return examine(kb, chosen, interpretation=interpretation, data={"Bird": 4})


def test_what_ranges_over_nothing_is_not_vacuous() -> None:
    """An empty row violates ``some``, and a sort without objects ``one``; ``all`` holds there too."""
    text = """
        sort Bird; data nests(birds: Bird*); pred raven(Bird)
        [some] forall n in nests. exists x in n.birds. raven(x) | !raven(x)
        [one] exists x: Bird. raven(x) | !raven(x)
        [all] forall n in nests. forall x in n.birds. raven(x) | !raven(x)
    """
    assert examine(parse(text, warn=False)).of("vacuous") == ["all"]


def test_vacuous_on_data() -> None:
    half = torch.full((4,), 0.5)
    assert seen(probs(half * 0.2), probs(half)).of("vacuous") == ["rule"]
    assert seen(probs(half * 1.5), probs(half)).of("vacuous") == []


def test_saturated() -> None:
    low, high = torch.full((4,), -12.0), torch.full((4,), 12.0)
    assert seen(logits(high), logits(low)).of("saturated") == ["raven", "black"]  # sure, and wrong
    assert seen(logits(high), logits(high)).of("saturated") == []  # sure, and right
    assert seen(logits(high / 12), logits(low / 12)).of("saturated") == []  # wrong, but not sure


def test_operators_of_a_formula() -> None:
    kb = parse(BIRDS + "[a] forall x, y: Bird. raven(x) & !black(y) & raven(y) -> exists z: Bird. black(z) | raven(z)")
    world = RandomWorlds(kb, 5, torch.Generator().manual_seed(0))
    assert used(kb.axioms[0].formula, world) == {
        ("forall", 25), ("conj", 3), ("neg", 1), ("implies", 2), ("exists", 5), ("disj", 2)
    }  # fmt: skip


def test_random_worlds_cover_all_example_files() -> None:
    for file in sorted((Path(__file__).parents[2] / "examples" / "knowledge").glob("*.doxa")):
        kb = load(file)
        found = examine(kb, "log_product", draws=2)
        assert set(found.axioms) == {axiom.name for axiom in kb.axioms}, file.name


EQUATION = """sort Image
sort Digit = 0..3
data rows(x: Image, y: Image, z: Image)
func digit(Image) -> Digit
[sum] forall r in rows. a := digit(r.x), b := digit(r.y), c := digit(r.z) (a + b = c)
"""


def equation() -> Task:
    """x + y = z without any label: all zeros are an optimum."""
    random = torch.Generator().manual_seed(0)
    a, b = torch.randint(0, 2, (2, 300), generator=random)
    hot = torch.eye(4)
    columns = {name: hot[values] for name, values in (("x", a), ("y", b), ("z", a + b))}
    test = {"rows": columns}
    labels = {"digit": {"rows.x": a, "rows.y": b, "rows.z": a + b}}
    return Task("equation", "x + y = z.", EQUATION, lambda: {"digit": logits(torch.nn.Linear(4, 4))}, test, test,
                concepts=labels, fitting=Fitting(steps=150, learning_rate=0.05))  # fmt: skip


def test_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = equation()
    train_task(task, "exact", tmp_path / "run", progress=False)
    found = examine_run(tmp_path / "run", task=task)
    assert found.axioms == {} and "trained under Exact" in found.notes[0]
    assert found.of("concepts") == ["digit"]
    fuzzy = examine_run(tmp_path / "run", "godel", task=task)
    assert set(fuzzy.axioms) == {"sum"} and "worlds of 64 objects or rows of each kind" in fuzzy.notes[0]
    with pytest.raises(RunError):
        examine_run(tmp_path)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rule.doxa"
    file.write_text(RULE.replace("; ", "\n"), encoding="utf-8")
    assert main(["doctor", str(file), "--logic", "godel", "--quantifier", "logic", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [f["kind"] for f in said["findings"]] == ["single-passing"]
    assert main(["doctor", str(file)]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path), str(file)]) == 1
    assert "one run is examined at a time" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--objects", "--draws"])
def test_too_much_is_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rule.doxa"
    file.write_text(RULE.replace("; ", "\n"), encoding="utf-8")
    assert main(["doctor", str(file), option, "1000000000"]) == 1
    said = capsys.readouterr().err
    assert "more than the limit of" in said and len(said.strip().splitlines()) == 1


def test_six_variables() -> None:
    text = "sort N = 0..99; pred p(N); [six] forall a, b, c, d, e, f: N. p(a) & p(b) & p(c) -> p(d) | p(e) | p(f)"
    with pytest.raises(BudgetError, match=r"'six' has 1,000,000,000,000 instances .* more than the limit of 4,194,304"):
        examine(parse(text))
    few = parse(text.replace("N = 0..99", "N").replace("sort N;", "sort N;"))
    assert "random worlds of 8 objects" in examine(few, draws=2).notes[0]  # as many as fit
    assert "not decided" not in str(examine(few, draws=2))


def test_mistakes() -> None:
    with pytest.raises(KnowledgeError, match="no axioms"):
        examine(parse("pred a", warn=False))
    with pytest.raises(ConfigError, match="expected at least 1"):
        examine(parse(RULE), draws=0)
    with pytest.raises(ConfigError, match="unknown logic"):
        examine(parse(RULE), "goedel")


def test_an_axiom_that_no_derivative_reaches_is_not_judged() -> None:
    kb = parse("""
        sort Object; sort Colour = {red, green}
        func colour(Object) -> Colour; pred big(Object)
        data scenes(objects: Object*, reds: Int)
        [reds] forall s in scenes. (count x in s.objects where (colour(x) = red)) = s.reds
        [is]   forall s in scenes. forall x in s.objects. big(x)
    """)
    found = examine(kb, "product", draws=4)
    assert found.axioms["reds"].atoms == 0 < found.axioms["is"].atoms
    assert any(note.startswith("could not decide about gradients of reds:") for note in found.notes)
    lines = {line.split()[0]: line for line in str(found).splitlines()}
    assert "not tried" in lines["reds"] and "not tried" not in lines["is"]
