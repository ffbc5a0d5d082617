"""Visual Sudoku: the puzzles, what a correct one is, and learning from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.reproduce.drawn import drawn_digits, killed_at

from doxa.data import MNIST, is_sudoku, sudoku_problem, visual_sudoku, write_idx
from doxa.data._digits import sudoku_pairs
from doxa.errors import ConfigError, DataError
from doxa.exact import Elimination
from doxa.problem import Belief, Factor, Problem, Variable, tabulate
from doxa.reproduce import SUDOKU
from doxa.reproduce._digits import believe
from doxa.reproduce._experiment import train
from doxa.reproduce._sudoku import (
    PairsLearner,
    SudokuConfig,
    SudokuPairsConfig,
    measure_pairs,
    single_pair,
    sudoku_constraint,
)
from doxa.train import Run


@pytest.fixture(scope="module")
def mnist() -> MNIST:
    return MNIST(*drawn_digits(12_000, 0), *drawn_digits(2_000, 1))


def well_formed(grid: list[int], size: int, box: int) -> bool:
    """By the book: every row, column and block has every digit."""
    rows = [grid[size * r : size * r + size] for r in range(size)]
    columns = [list(c) for c in zip(*rows, strict=True)]
    blocks = [
        [rows[box * a + i][box * b + j] for i in range(box) for j in range(box)]
        for a in range(size // box)
        for b in range(size // box)
    ]
    return all(sorted(group) == list(range(size)) for group in rows + columns + blocks)


@pytest.mark.parametrize(("size", "puzzles"), [(4, 60), (9, 20)])
def test_puzzles_are_what_they_are_said_to_be(mnist: MNIST, size: int, puzzles: int) -> None:
    train, test = visual_sudoku(mnist, size, puzzles=puzzles, seed=3)
    box = {4: 2, 9: 3}[size]
    for part in (train, test):
        assert part.images.shape == (puzzles, size * size, 28, 28)
        assert int(part.correct.sum()) == puzzles // 2
        for grid, correct in zip(part.digits.tolist(), part.correct.tolist(), strict=True):
            assert well_formed(grid, size, box) == correct
            assert set(grid) <= set(range(size))
        # The bright square says which digit is shown.
        squares = torch.stack([part.images[:, :, 8 * (d // 4), 7 * (d % 4)] for d in range(10)], -1)
        assert torch.equal(squares.argmax(-1), part.digits)
    together = torch.cat([train.images, test.images]).flatten(0, 1).flatten(1)
    assert len({row.numpy().tobytes() for row in together}) == len(together)  # no image twice
    again, _ = visual_sudoku(mnist, size, puzzles=puzzles, seed=3)
    other, _ = visual_sudoku(mnist, size, puzzles=puzzles, seed=4)
    assert torch.equal(again.images, train.images)
    assert not torch.equal(other.digits, train.digits)


def test_corruptions_are_replacements_or_swaps(mnist: MNIST) -> None:
    train, _ = visual_sudoku(mnist, 4, puzzles=160, seed=0)
    wrong = train.digits[~train.correct]
    balanced = (torch.nn.functional.one_hot(wrong, 4).sum(1) == 4).all(1)  # swaps keep the number of each digit
    assert 0.3 < balanced.double().mean() < 0.75
    with pytest.raises(ConfigError, match="size is 5, expected 4 or 9"):
        visual_sudoku(mnist, 5)
    with pytest.raises(ConfigError, match="puzzles is 7"):
        visual_sudoku(mnist, 4, puzzles=7)
    with pytest.raises(DataError, match="images of the digit"):
        visual_sudoku(mnist, 9)


def test_problem_pairs_and_constraint_agree() -> None:
    problem, pairs, constraint = sudoku_problem(4), sudoku_problem(4, by_pairs=True), sudoku_constraint(4)
    worlds = torch.cat([problem.random_worlds(300), torch.tensor([[0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0]])])
    correct = is_sudoku(worlds)
    assert correct[-1]
    for found in (problem(worlds), problem.evaluate_factors(worlds), constraint.problem(worlds)):
        assert torch.equal(found.squeeze(-1) == 1, correct)
    assert torch.equal(pairs(worlds), pairs.evaluate_factors(worlds))
    assert torch.equal(pairs(worlds).all(-1), correct)
    assert constraint.models == 288
    assert len(sudoku_pairs(9)) == 810
    # Two cells differ with probability 1 - Σ_k P_ik P_jk.
    belief = Belief.from_logits(torch.randn(3, 16, 4, dtype=torch.float64))
    p, (a, b) = belief.probs, sudoku_pairs(4).T
    one = Belief(belief.log_probs[:, :2], validate=False)
    assert pairs.output == (2,) * 56
    differ = 1 - (p[:, a[0]] * p[:, b[0]]).sum(-1)
    pair = Problem.from_factors(
        [
            Factor(
                (Variable.world(0), Variable.world(1), Variable.output(0)),
                tabulate((4, 4, 2), lambda x, y, z: z == (x != y)),
            )
        ],
        (4, 4),
        (2,),
    )
    torch.testing.assert_close(Elimination(pair).log_prob(one, torch.tensor([1])).exp(), differ)


def test_losses_of_correct_and_incorrect_grids_are_stable() -> None:
    constraint = sudoku_constraint(4)
    solution = torch.tensor([0, 1, 2, 3, 2, 3, 0, 1, 1, 0, 3, 2, 3, 2, 1, 0])
    for scale in (0.0, 1.0, 30.0, 300.0):
        logits = (scale * torch.nn.functional.one_hot(solution, 4).float()).requires_grad_()
        belief = Belief.from_logits(logits)
        for label in (0, 1):
            loss = constraint.loss(belief, torch.tensor([label]))
            (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
            assert loss.isfinite() and gradient.isfinite().all()
    # 1 - p from the sum over all 288 solutions in double precision
    logits = torch.randn(5, 16, 4, dtype=torch.float64)
    belief = Belief.from_logits(6 * logits)
    p = constraint.probability(belief)
    torch.testing.assert_close(constraint.loss(belief, torch.tensor([0])), -torch.log1p(-p))


def folder_of(mnist: MNIST, folder: Path) -> Path:
    for name, values in (
        ("train-images-idx3-ubyte", mnist.train_images),
        ("train-labels-idx1-ubyte", mnist.train_labels.to(torch.uint8)),
        ("t10k-images-idx3-ubyte", mnist.test_images),
        ("t10k-labels-idx1-ubyte", mnist.test_labels.to(torch.uint8)),
    ):
        write_idx(folder / name, values)
    return folder


def test_digits_are_learnt_from_grids_and_a_killed_run_goes_on(mnist: MNIST, tmp_path: Path) -> None:
    data = folder_of(mnist, tmp_path)
    config = SudokuConfig(steps=100, puzzles=100, batch_size=10, learning_rate=2e-3, save_every=20, average=0.5)
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    assert whole.metrics["accuracy"] > 80
    with killed_at(54):
        train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    parts = train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    assert parts.metrics == whole.metrics
    assert Run.open(tmp_path / "parts").metrics_at(100) == Run.open(tmp_path / "whole").metrics_at(100)


def test_the_published_prior_is_fitted_to_what_is_believed_of_pairs(mnist: MNIST, tmp_path: Path) -> None:
    config = SudokuPairsConfig(steps=12, pretrain=4, puzzles=20, samples=40, fitted=True, save_every=4)
    whole = train(config, tmp_path / "whole", seed=0, data=None, progress=False, digits=mnist)
    with killed_at(6):
        train(config, tmp_path / "parts", seed=0, data=None, progress=False, digits=mnist)
    assert train(config, tmp_path / "parts", seed=0, data=None, progress=False, digits=mnist).metrics == whole.metrics
    prior = Run.open(tmp_path / "whole").load().state["prior"]
    assert int(prior["dirichlet.steps"]) > 0
    (entry,) = SUDOKU.select(["published/9x9"])
    assert entry.config.fitted and entry.config.steps == 50_000 and entry.config.pretrain == 500


@pytest.mark.parametrize("closed_form", [True, False])
def test_digits_are_learnt_pair_by_pair(mnist: MNIST, tmp_path: Path, closed_form: bool) -> None:
    config = SudokuPairsConfig(
        closed_form=closed_form,
        steps=120 if closed_form else 280,
        pretrain=0 if closed_form else 160,
        puzzles=100,
        batch_size=10,
        learning_rate=2e-3,
        inference_rate=1e-2,
        hidden=50,
        average=0.5,
    )
    found = train(config, tmp_path / "run", seed=0, data=folder_of(mnist, tmp_path), progress=False)
    torch.manual_seed(0)
    _, unknown = visual_sudoku(mnist, 4, puzzles=100, seed=0)
    before = measure_pairs(PairsLearner(config), unknown)
    assert before == {
        "accuracy": 50.0,
        "symbolic_accuracy": 50.0,
    }  # all pairs seem to differ, and no grid is read right
    assert found.metrics["accuracy"] > 80 and found.metrics["symbolic_accuracy"] > 80


def test_a_killed_run_of_pairs_goes_on_to_the_bit(mnist: MNIST, tmp_path: Path) -> None:
    data = folder_of(mnist, tmp_path)
    config = SudokuPairsConfig(steps=30, pretrain=12, puzzles=40, batch_size=8, samples=30, average=0.5, save_every=10)
    whole = train(config, tmp_path / "whole", seed=0, data=data, progress=False)
    with killed_at(13):
        train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    parts = train(config, tmp_path / "parts", seed=0, data=data, progress=False)
    assert parts.metrics == whole.metrics


@pytest.mark.parametrize("size", [4, 9])
def test_pairs_are_independent_in_the_loss(size: int) -> None:
    """-log q and -log(1 - q) of the product over the pairs, in double precision; finite where grids are certain."""
    learner = PairsLearner(SudokuPairsConfig(size, closed_form=True))
    correct = torch.tensor([True, False, True, False])
    belief = Belief.from_logits(8 * torch.randn(4, size**2, size, dtype=torch.float64))
    (a, b), p = sudoku_pairs(size).T, belief.probs
    q = (1 - (p[:, a] * p[:, b]).sum(-1)).log().sum(-1)
    wanted = -torch.where(correct, q, torch.log1p(-q.exp())).mean()
    torch.testing.assert_close(learner.loss(belief, correct), wanted)
    solution = visual_sudoku_solution(size)
    for scale in (0.0, 30.0, 300.0):
        logits = (scale * torch.nn.functional.one_hot(solution, size).float()).expand(4, -1, -1).clone()
        logits.requires_grad_()
        loss = learner.loss(Belief.from_logits(logits), correct)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite() and gradient.isfinite().all()


@pytest.mark.parametrize("size", [4, 9])
def test_a_grid_seems_correct_if_every_pair_is_more_likely_to_differ_than_not(size: int) -> None:
    """argmax_y q(y | P), with q(y | P) the product over the pairs of what a loop over digits makes of each."""
    learner = PairsLearner(SudokuPairsConfig(size, closed_form=True))
    solution = visual_sudoku_solution(size)
    sure = torch.nn.functional.one_hot(solution, size).double()
    beliefs = [0.9 * sure + 0.1 / size]  # read right, but not for certain
    doubled = sure.clone()
    doubled[1] = 0.3 * sure[1] + 0.7 * sure[0]  # the second cell is rather what the first one is
    beliefs.append(doubled)
    random = torch.randn(6, size**2, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beliefs += [*(4 * random).softmax(-1)]
    belief = Belief(torch.stack(beliefs).log(), validate=False)
    found = learner.predict(belief).tolist()
    for p, correct in zip(torch.stack(beliefs).tolist(), found, strict=True):
        alike = [sum(p[a][v] * p[b][v] for v in range(size)) for a, b in sudoku_pairs(size).tolist()]
        most_probable = [int(1 - same > same) for same in alike]
        assert correct == (sum(most_probable) == len(alike))
    assert found[:2] == [True, False]
    assert learner.log_correct(belief)[0].exp() < 0.5  # the probability of the grid says otherwise


def visual_sudoku_solution(size: int) -> torch.Tensor:
    """A Sudoku, by shifting its first row."""
    box = {4: 2, 9: 3}[size]
    rows = [[(box * (r % box) + r // box + c) % size for c in range(size)] for r in range(size)]
    solution = torch.tensor(rows).flatten()
    assert is_sudoku(solution)
    return solution


def test_one_pair_trains_all_of_them() -> None:
    learner = PairsLearner(SudokuPairsConfig(9, hidden=20))
    pair = single_pair(learner.inference)
    belief = Belief.from_logits(torch.randn(1, 81, 9))
    before = learner.log_correct(belief).item()
    pair.update(30, samples=200, lr=1e-2)
    assert learner.log_correct(belief).item() != before
    a, b = sudoku_pairs(9)[17].tolist()
    two = Belief(belief.log_probs[:, [a, b]], validate=False)
    tokens = torch.ones(1, 810, dtype=torch.int64)
    torch.testing.assert_close(
        pair.log_prob(two, torch.ones(1, 1, dtype=torch.int64))[0],
        learner.inference.log_probs(belief, tokens)[0, 17, 1],
    )


def test_entries() -> None:
    names = [entry.name for entry in SUDOKU.entries]
    assert names[:2] == ["exact/4x4", "exact/4x4-averaged"]
    assert names[2:6] == ["amortized/4x4", "amortized/9x9", "pairs/4x4", "pairs/9x9"]
    with pytest.raises(ConfigError, match="size is 9, expected 4"):
        replace(SudokuConfig(), size=9)
    with pytest.raises(ConfigError, match="size is 5, expected 4 or 9"):
        SudokuPairsConfig(size=5)
    with pytest.raises(ConfigError, match="pretrain is 10, expected 0 or more, and 0 for the closed form"):
        SudokuPairsConfig(closed_form=True, pretrain=10)
    with pytest.raises(ConfigError, match="samples is 0"):
        SudokuPairsConfig(samples=0)


def test_first_beliefs_are_spread_by_the_last_layer() -> None:
    learners = []
    for spread in (1.0, 10.0):
        torch.manual_seed(0)
        learners.append(PairsLearner(SudokuPairsConfig(9, True, spread=spread)))
    images = torch.randint(256, (1, 81, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    plain, spread_out = (believe(learner.perception, images).probs.std(1).mean() for learner in learners)
    assert spread_out > 5 * plain
    assert torch.equal(learners[1].perception[-1].weight, 10 * learners[0].perception[-1].weight)
    with pytest.raises(ConfigError, match="spread is 0"):
        SudokuPairsConfig(spread=0)
