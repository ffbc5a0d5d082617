"""The pictures of the digit classifier."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from doxa.train import Run
from doxa.train.report._page import Section, figure, picture, write_page
from doxa.train.runs._results import ResultsTable

_SHOWN = 12  # pictures of digits in a row


def write_report(run: Run, table: ResultsTable, images: Tensor, labels: Tensor, log_probs: Tensor) -> None:
    """Write ``report.html`` and its figures into the folder of a run that is done.

    Args:
        run: the folder.
        table: the results.
        images: test images, uint8 ``(n, 28, 28)``.
        labels: int64 ``(n,)``.
        log_probs: the network's log-probabilities ``(n, 10)``.
    """
    row = table.rows[0]
    result = {
        row.metric: f"{row.mean:.2f}",
        "published": f"{row.published} ({row.source})",
        "budget": row.budget,
        "CPU time": f"{row.cpu_seconds[0]:.0f} s",
    }
    guesses = log_probs.argmax(1)
    wrong = (guesses != labels).nonzero().flatten()
    surest = wrong[log_probs[wrong].max(1).values.argsort(descending=True)]
    curve = picture(_curve(run.metrics()), run.figures / "learning-curve.png")
    confusion = picture(_confusion(labels, guesses), run.figures / "confusion.png")
    first, mistakes = torch.arange(min(_SHOWN, len(labels))), surest[:_SHOWN]
    sections = [
        Section("Result", table=result),
        Section("Learning curve", "The loss on each logged batch, and the accuracy on digits held out.", png=curve),
        Section(
            "Confusion", "How often each digit (row) is read as each digit (column), on the test set.", png=confusion
        ),
        Section(
            "The first test digits",
            "Above each, what the network reads and how sure it is.",
            png=picture(_digits(images, labels, log_probs, first), run.figures / "digits.png"),
        ),
        Section(
            "Its surest mistakes",
            f"{len(wrong):,} of {len(labels):,} test digits are misread. In brackets, the true digit.",
            png=picture(_digits(images, labels, log_probs, mistakes), run.figures / "mistakes.png"),
        ),
    ]
    write_page(run.path / "report.html", "A digit classifier", sections, run)


def _curve(metrics: list[dict[str, Any]]) -> Any:
    drawing, (left, right) = figure(1, 2, size=(9, 3))
    for axes, name, title in [(left, "loss", "loss"), (right, "validation_accuracy", "validation accuracy (%)")]:
        points = [(line["step"], line[name]) for line in metrics if name in line]
        values = [100 * value if axes is right else value for _, value in points]
        axes.plot([step for step, _ in points], values, marker="o" if axes is right else None, linewidth=1)
        axes.set(xlabel="step", title=title)
        axes.grid(alpha=0.3)
    left.set_yscale("log")
    return drawing


def _confusion(labels: Tensor, guesses: Tensor) -> Any:
    counts = torch.bincount(10 * labels + guesses, minlength=100).reshape(10, 10)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    drawing, (axes,) = figure(1, 1, size=(6, 6))
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
    for row in range(10):
        for column in range(10):
            colour = "white" if shares[row, column] > 0.3 else "black"
            axes.text(column, row, str(int(counts[row, column])), ha="center", va="center", color=colour, fontsize=8)
    axes.set(xlabel="read as", ylabel="is", xticks=range(10), yticks=range(10))
    return drawing


def _digits(images: Tensor, labels: Tensor, log_probs: Tensor, chosen: Tensor) -> Any:
    drawing, cells = figure(2, _SHOWN // 2, size=(9, 3.6))
    for axes in cells:
        axes.axis("off")
    for axes, i in zip(cells, chosen.tolist(), strict=False):
        axes.imshow(255 - images[i].numpy(), cmap="gray", vmin=0, vmax=255)
        guess, truth = int(log_probs[i].argmax()), int(labels[i])
        sure = f"{100 * float(log_probs[i].max().exp()):.0f} %"
        axes.set_title(f"{guess}, {sure}" if guess == truth else f"{guess}, {sure} [{truth}]", fontsize=9)
    return drawing
