"""Do the defaults learn? Every word, with nothing else said, on four tasks, against what exact reasoning reaches.

    python benchmarks/defaults.py --out runs/defaults --jobs 2

Each run is 2,500 batches of 64 with Adam at 1e-3; three seeds; the accuracy is that of the target on test rows, last
checkpoint. Runs are resumed. A row is the mean accuracy of a word over that of exact reasoning on the same task; its
goal is 0.9. Words and tasks that are not run keep their stored rows, each with its date. It trains for hours, so
`make bench` leaves it out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from torch import Tensor, nn

import doxa
from doxa.data import MNIST, digits_task
from doxa.train import Fitting, evaluate_run, find_task, train_task
from doxa.train.tasks._find import _DigitReader
from harness import Row, record

WORDS = ("exact", "fuzzy", "sampled", "amortized", "auto", "refined")
SEEDS = (0, 1, 2)
FITTING = Fitting(steps=2500, learning_rate=1e-3, schedule="cosine", evaluate_every=2500)
RESULTS = Path(__file__).parent / "results" / "defaults.json"


def maximum() -> doxa.Task:
    """The largest of three digits, through a Python function."""
    mnist = MNIST.load(progress=False)

    def rows(split: str) -> dict[str, dict[str, Tensor]]:
        made = digits_task(mnist, max, digits=3, split=split)  # type: ignore[arg-type]
        a, b, c = made.images.unbind(1)
        return {"rows": {"a": a, "b": b, "c": c, "largest": made.outputs[:, 0]}}

    return doxa.Task(
        "maximum",
        "Digits of MNIST, learnt from the largest of three.",
        """
        sort Image
        sort Digit = 0..9
        data rows(a: Image, b: Image, c: Image, largest: Digit)
        func digit(Image) -> Digit
        func larger(Digit, Digit) -> Digit
        [largest] forall r in rows. larger(larger(digit(r.a), digit(r.b)), digit(r.c)) = r.largest
        """,
        lambda: {"digit": doxa.logits(_DigitReader()), "larger": torch.arange(10).maximum(torch.arange(10)[:, None])},
        rows("train"),
        rows("test"),
        target="rows.largest",
        fitting=FITTING,
    )


def comparison() -> doxa.Task:
    """Which of two digits is larger."""
    mnist = MNIST.load(progress=False)

    def rows(split: str) -> dict[str, dict[str, Tensor]]:
        made = digits_task(mnist, lambda a, b: int(a < b), digits=2, split=split)  # type: ignore[arg-type]
        a, b = made.images.unbind(1)
        return {"rows": {"a": a, "b": b, "less": made.outputs[:, 0]}}

    return doxa.Task(
        "comparison",
        "Digits of MNIST, learnt from which of two is larger.",
        """
        sort Image
        sort Digit = 0..9
        sort Bit = 0..1
        data rows(a: Image, b: Image, less: Bit)
        func digit(Image) -> Digit
        [less] forall r in rows. digit(r.a) < digit(r.b) <-> r.less = 1
        """,
        lambda: {"digit": doxa.logits(_DigitReader())},
        rows("train"),
        rows("test"),
        target="rows.less",
        fitting=FITTING,
    )


def scenes() -> doxa.Task:
    """Scenes of two to four figures, in the manner of Kandinsky patterns: does one hold a red circle?"""

    def rows(count: int, seed: int) -> dict[str, dict[str, object]]:
        random = torch.Generator().manual_seed(seed)
        lengths = torch.randint(2, 5, (count,), generator=random)
        total = int(lengths.sum())
        shape, colour = torch.randint(3, (2, total), generator=random)
        masks = torch.stack([torch.eye(6), torch.ones(6, 6), torch.ones(6, 6).tril()])
        figures = masks[shape].unsqueeze(1) * torch.eye(3)[colour][:, :, None, None]
        figures = figures + 0.3 * torch.randn(figures.shape, generator=random)
        red_circle = ((shape == 0) & (colour == 0)).long()
        has = torch.zeros(count, dtype=torch.int64).index_add(
            0, torch.arange(count).repeat_interleave(lengths), red_circle
        )
        return {"scenes": {"objects": doxa.Ragged(figures, lengths), "has": (has > 0).long()}}

    def network() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(108, 64), nn.ReLU(), nn.Linear(64, 3))

    return doxa.Task(
        "scenes",
        "Figures, learnt from whether a scene holds a red circle.",
        """
        sort Figure
        sort Shape = {circle, square, triangle}
        sort Colour = {red, green, blue}
        sort Bit = 0..1
        data scenes(objects: Figure*, has: Bit)
        func shape(Figure) -> Shape
        func colour(Figure) -> Colour
        [has] forall s in scenes. (exists x in s.objects. shape(x) = circle & colour(x) = red) <-> s.has = 1
        """,
        lambda: {"shape": doxa.logits(network()), "colour": doxa.logits(network())},
        rows(20_000, 0),
        rows(2_000, 1),
        target="scenes.has",
        fitting=FITTING,
    )


TASKS = {
    "addition": lambda: find_task("addition", progress=False),
    "maximum": maximum,
    "comparison": comparison,
    "scenes": scenes,
}


def run(task: str, word: str, seed: int, out: Path) -> tuple[str, str, int, float, str]:
    torch.set_num_threads(1)
    made, folder = TASKS[task](), out / f"{task}-{word}-{seed}"
    try:
        train_task(made, word, folder, seed=seed, settings=["evaluate_every=2500"], progress=False)
        return task, word, seed, evaluate_run(folder, made).task_accuracy or 0.0, ""
    except doxa.DoxaError as error:
        return task, word, seed, 0.0, str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/defaults"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--words", nargs="*", default=list(WORDS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    options = parser.parse_args()
    todo = [(t, w, s, options.out) for s in options.seeds for t in options.tasks for w in options.words]
    found: dict[tuple[str, str], list[float]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for task, word, seed, accuracy, error in pool.map(run, *zip(*todo, strict=True)):
            print(f"{task:<12}{word:<12}{seed}  {100 * accuracy:5.1f} %  {error}", flush=True)
            found.setdefault((task, word), []).append(accuracy)
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    kept = {row["name"]: row for row in stored}
    for (task, word), accuracies in found.items():
        exact = statistics.mean(found.get((task, "exact")) or kept[f"exact on {task}"]["accuracies"])
        ratio = statistics.mean(accuracies) / exact
        each = ", ".join(f"{100 * a:.1f}" for a in accuracies)
        note = f"accuracy {each} % of {len(accuracies)} seeds; exact {100 * exact:.1f} %"
        row = record(Row(f"{word} on {task}", ratio, 0.9, "higher", note=note))
        kept[f"{word} on {task}"] = {**row, "accuracies": accuracies}
    RESULTS.write_text(json.dumps(list(kept.values()), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
