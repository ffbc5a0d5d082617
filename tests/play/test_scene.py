"""The playground without a browser: a scene says what a model says, and every text gets an answer or a message."""

from __future__ import annotations

import contextlib
import io
import math
import random

import pytest
import torch

import doxa
from doxa.errors import BudgetError, ConfigError, KnowledgeError
from doxa.play import Answer, Scene, State, _show, ask
from doxa.play._examples import examples, read_text
from doxa.play._scene import MOST_OBJECTS

WORDS = ("exact", "fuzzy", "fuzzy:product", "fuzzy:godel", "refined", "sampled", "classical")
RAIN = "pred rain; pred wet; [soaked] rain -> wet; [dry] !wet"
EXAMPLES = examples()


def test_truth_loss_and_gradient_are_those_by_hand() -> None:
    """p(rain -> wet) = 1 - r(1 - w); the loss is its -log, and that of the second axiom -log(1 - w)."""
    r, w = 0.9, 0.3
    found = Scene(RAIN, {"rain": r, "wet": w}).reason("exact")
    soaked = 1 - r * (1 - w)
    assert [row.truth for row in found.axioms] == pytest.approx([soaked, 1 - w], rel=1e-5)
    assert found.loss == pytest.approx(-math.log(soaked) - math.log(1 - w), rel=1e-5)
    assert found.gradients["rain"] == pytest.approx((1 - w) / soaked, rel=1e-5)
    assert found.gradients["wet"] == pytest.approx(-r / soaked + 1 / (1 - w), rel=1e-5)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_has_an_answer_or_a_message(name: str, word: str) -> None:
    scene = Scene(read_text(EXAMPLES[name]), file=str(EXAMPLES[name])) if name != "sudoku9" else None
    if scene is None:
        with pytest.raises(BudgetError, match="atoms"):
            Scene(read_text(EXAMPLES[name]), file=str(EXAMPLES[name]))
        return
    found = ask(lambda: scene.reason(word))
    assert "fault of doxa" not in found.message
    if found.value is not None:
        truths = [row.truth for row in found.value.axioms if not math.isnan(row.truth)]
        assert all(0 <= t <= 1 for t in truths) and not found.value.loss < 0
        assert set(found.value.gradients) == (set() if word == "classical" else set(scene.places))
    assert found.value is not None or word in ("exact", "sampled", "amortized", "refined")


def test_inference_models_learn_before_they_answer() -> None:
    exact, learnt = (Scene(RAIN, {"rain": 0.9, "wet": 0.3}).reason(word) for word in ("exact", "amortized"))
    assert [r.truth for r in learnt.axioms] == pytest.approx([r.truth for r in exact.axioms], abs=0.15)


@pytest.mark.parametrize("name", [n for n, file in EXAMPLES.items() if " from " not in read_text(file)])
def test_the_code_says_what_the_page_says(name: str) -> None:
    scene = Scene(read_text(EXAMPLES[name]), counts=dict.fromkeys(("Image", "Bird", "Object", "pairs", "scenes"), 2))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(scene.code("fuzzy:product"), {})
    numbers = [float(part.split(")")[0].split(",")[0]) for part in said.getvalue().split("tensor(")[1:]]
    shown = scene.reason("fuzzy:product")
    assert numbers[-1] == pytest.approx(shown.loss, abs=2e-3)
    assert numbers[:-1] == pytest.approx([r.truth for r in shown.axioms if not math.isnan(r.truth)], abs=2e-3)


def test_functions_are_distributions_whatever_is_said() -> None:
    text = "sort Day; sort Sky = {clear, grey}; func sky(Day) -> Sky; [blue] forall d: Day. sky(d) = clear"
    scene = Scene(text, {"sky(Day[0]) = clear": 0.0, "sky(Day[0]) = grey": 0.0, "sky(Day[1]) = clear": 1.0}, {"Day": 2})
    assert scene.beliefs["sky(Day[0]) = clear"] == 0.5
    assert scene.beliefs["sky(Day[1]) = clear"] + scene.beliefs["sky(Day[1]) = grey"] == pytest.approx(1)
    assert scene.open == {"Day": 2}


def test_bars_point_to_where_training_moves_the_values_of_a_function() -> None:
    """Against the gradient of logits, which is p times the centred one."""
    text = "sort O = {o}\nsort D = 0..3\npred red(O)\nfunc digit(O) -> D\n[a] forall x: O. red(x) -> digit(x) > 1"
    scene = Scene(text, {"red(o)": 0.8})
    found = scene.reason("exact").gradients
    p = torch.tensor([[scene.beliefs[f"digit(o) = {d}"] for d in range(4)]])
    logits = p.log().requires_grad_()
    model = doxa.Model(text, "exact", digit=doxa.logits(logits), red=doxa.probs(torch.tensor([0.8])))
    (moved,) = torch.autograd.grad(model.loss(), logits)
    shown = torch.tensor([found[f"digit(o) = {d}"] for d in range(4)])
    assert torch.allclose(p[0] * shown, moved[0], atol=1e-5)
    assert shown[0] > 0 > shown[3], "the loss falls where 0 falls and 3 rises"


def test_objects_in_rows_have_their_names() -> None:
    scene = Scene(read_text(EXAMPLES["addition"]), counts={"pairs": 2})
    assert "digit(pairs[1].right) = 9" in scene.places and scene.open == {"pairs": 2}
    assert {e.instance["p"] for e in scene.worlds("sum")} == {0, 1}


def test_solvers_speak_of_the_same_objects() -> None:
    scene = Scene("sort Bird; pred raven(Bird); [one] exactly 1 b: Bird. raven(b)", counts={"Bird": 4})
    model, number = scene.solve()
    assert number == 4 and model is not None and set(model) == set(scene.places)
    assert scene.entails("exists b: Bird. raven(b)").holds
    assert Scene("pred a; [x] a; [y] !a").solve() == (None, 0)
    big = Scene("sort B; pred r(B, B); [some] exists x, y: B. r(x, y)", counts={"B": 6}).solve()[1]
    assert big in ("more than 10,000", "could not be counted in time")


@pytest.mark.parametrize(
    ("table", "wrong"),
    [("rain,2", "from 0 to 1"), ("rain,much", "from 0 to 1"), ("rains,0.5", "'rains'"), ("rain,nan", "from 0 to 1")],
)
def test_tables_with_mistakes(table: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        Scene(RAIN).read_beliefs(table)


def test_tables_name_atoms_with_commas() -> None:
    scene = Scene("sort P = {a, b}; pred f(P, P); forall x, y: P. f(x, y)")
    assert scene.read_beliefs('atom,belief\n"f(a, b)",0.25\nf(b,a),0.75\n') == {"f(a, b)": 0.25, "f(b, a)": 0.75}


def test_limits() -> None:
    with pytest.raises(BudgetError, match="20,000"):
        Scene("# " + "x" * 20_000)
    with pytest.raises(BudgetError, match=f"0 to {MOST_OBJECTS}"):
        Scene("sort B; pred r(B); forall x: B. r(x)", counts={"B": 1000})
    with pytest.raises(BudgetError, match="atoms"):
        Scene("sort N = 0..99; pred r(N, N); forall x, y: N. r(x, y)")
    hard = "sort B = 0..11; pred r(B, B); [p] forall x, y, z, u: B. r(x, y) & r(y, z) -> r(z, u) | r(u, x)"
    assert ask(lambda: Scene(hard).reason("exact")).message.startswith(("could not decide", "no exact engine fits"))


def test_mistakes_have_a_place() -> None:
    with pytest.raises(KnowledgeError, match=r"did you mean 'rain'"):
        Scene("pred rain; [wet] rein")
    assert "^^^^" in _show.checked(ask(lambda: Scene("pred rain; [wet] rein")))


@pytest.mark.parametrize("code", ["", "hello", "eJw", "A" * 5000, State("x").encode()[:40]])
def test_broken_links(code: str) -> None:
    with pytest.raises(ConfigError, match="link"):
        State.decode(code)


def test_links_hold_everything() -> None:
    state = State("# ünï ∀\npred a", {"a": 0.125}, {"B": 3}, 7, ("refined", "exact"))
    assert State.decode(state.encode()) == state
    assert Scene.of(State("pred a; [x] a", {"a": 0.125})).beliefs == {"a": 0.125}


def test_nothing_typed_becomes_markup() -> None:
    evil = "<img src=x onerror=alert(1)>"
    scene = Scene(f"pred a # {evil}\n[x] a")
    shown = [
        _show.message(evil),
        _show.message(scene.code("exact")),
        _show.answered(Answer(evil)),
        _show.answered(Answer(None, evil)),
    ]
    shown.append(_show.checked(ask(lambda: Scene(evil))))
    shown.append(_show.beside(ask(lambda: scene.reason("exact")), Answer(None, evil), ("exact", evil)))
    assert all("<img src=x" not in html for html in shown)


def test_any_text_gets_an_answer() -> None:
    """Texts with pieces taken out, doubled and swapped: never an exception that is not expected, never a hang."""
    rng = random.Random(0)
    texts = [read_text(file) for name, file in EXAMPLES.items() if name not in ("sudoku9", "sudoku4")]
    for _ in range(120):
        words = rng.choice(texts).split(" ")
        for _ in range(rng.randint(0, 4)):
            i, j = rng.randrange(len(words)), rng.randrange(len(words))
            words[i] = rng.choice(["", words[j], words[i] * 2, "(", "forall x:", "99999999999", "¬", "\x1b[0m"])
        text = " ".join(words)
        scene = ask(lambda text=text: Scene(text))
        assert "fault of doxa" not in scene.message, (text, scene.message)
        if scene.value is not None:
            found = ask(lambda scene=scene: scene.value.reason("fuzzy:product"))
            assert "fault of doxa" not in found.message, (text, found.message)
            assert _show.checked(scene)


def test_all_that_is_shown_can_be_drawn() -> None:
    scene = Scene(read_text(EXAMPLES["smokers"]))
    assert "friends(anna, bob)" in _show.answered(ask(scene.refine))
    assert "symmetry" in _show.beside(
        ask(lambda: scene.reason("exact")), ask(lambda: scene.reason("classical")), ("a", "b")
    )
    assert "world" in _show.solved(ask(scene.solve)) and "axiom" in _show.answered(ask(scene.satisfaction))
    assert "under product" in _show.answered(ask(scene.examine))
    assert "world" in _show.answered(ask(lambda: scene.worlds("not_alone")))
    assert "data:image/png" in _show.surface("implications", "reichenbach")


def test_the_same_seed_draws_the_same() -> None:
    one, two, other = (Scene(RAIN, seed=s).beliefs for s in (1, 1, 2))
    assert one == two != other
    before = torch.random.get_rng_state()
    Scene(RAIN).reason("sampled")
    assert torch.equal(before, torch.random.get_rng_state()), "the page draws from generators of its own"
    assert doxa.__version__
