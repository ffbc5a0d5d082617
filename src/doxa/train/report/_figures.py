"""The figures of a task: learning curves, confusion, calibration, and rows with what is believed about them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import torch

from doxa.train.report._page import figure
from doxa.train.runs._run import Run
from doxa.train.tasks._evaluate import Evaluation, Example
from doxa.train.tasks._reading import Reading

__all__ = ["draw_calibration", "draw_confusion", "draw_curves", "draw_example", "draw_losses"]

SCORES = {"task_accuracy": "task accuracy", "concept_accuracy": "concept accuracy", "satisfaction": "satisfaction"}
WRITTEN = 20
"""Confusion matrices of more values have no numbers in their cells."""


def draw_losses(runs: Sequence[tuple[str, Run]]) -> Any:
    """The loss of each run in a picture of its own, for losses of different semantics are different things."""
    drawing, cells = figure(1, len(runs), size=(max(4.5, 2.6 * len(runs)), 2.6))
    for axes, (name, run) in zip(cells, runs, strict=True):
        lines = [line for line in run.metrics() if "loss" in line]
        axes.plot([line["step"] for line in lines], [line["loss"] for line in lines], linewidth=1)
        axes.set(title=name, xlabel="step")
        axes.grid(alpha=0.3)
    return drawing


def draw_curves(runs: Sequence[tuple[str, Run]]) -> Any:
    """Task accuracy, concept accuracy and satisfaction while training, all runs together."""
    metrics = [(name, run.metrics()) for name, run in runs]
    shown = [key for key in SCORES if any(key in line for _, lines in metrics for line in lines)]
    drawing, cells = figure(1, max(1, len(shown)), size=(3.4 * max(1, len(shown)), 3.2))
    for axes, key in zip(cells, shown, strict=False):
        for name, lines in metrics:
            points = [(line["step"], 100 * line[key]) for line in lines if key in line]
            axes.plot([s for s, _ in points], [v for _, v in points], marker="o", markersize=3, linewidth=1, label=name)
        axes.set(title=f"{SCORES[key]} (%)", xlabel="step", ylim=(-3, 103))
        axes.grid(alpha=0.3)
    if len(runs) > 1 and shown:
        cells[-1].legend(fontsize=8)
    return drawing


def draw_confusion(reading: Reading) -> Any:
    """How often each value (row) is read as each value (column)."""
    counts = torch.tensor(reading.counts)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    size = len(reading.values)
    side = min(7.0, max(3.0, 0.5 * size))
    drawing, (axes,) = figure(1, 1, size=(side, side))
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
    if size <= WRITTEN:
        for i in range(size):
            for j in range(size):
                colour = "white" if shares[i, j] > 0.3 else "black"
                axes.text(j, i, str(int(counts[i, j])), ha="center", va="center", color=colour, fontsize=7)
    axes.set(xlabel="read as", ylabel="is", xticks=range(size), yticks=range(size), title=reading.name)
    axes.set_xticklabels(reading.values, rotation=90 if size > WRITTEN else 0, fontsize=7)
    axes.set_yticklabels(reading.values, fontsize=7)
    return drawing


def draw_calibration(readings: Sequence[Reading]) -> Any:
    """How often a reading is right, for each tenth of confidence; the diagonal is a reader that knows what it knows."""
    drawing, cells = figure(1, len(readings), size=(3.2 * len(readings), 3.2))
    for axes, reading in zip(cells, readings, strict=True):
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle="dashed")
        most = max((count for count, _, _ in reading.bins), default=1) or 1
        for count, sure, right in reading.bins:
            if count:
                axes.bar(sure, right, width=0.07, color="tab:blue", alpha=0.25 + 0.75 * (count / most) ** 0.5)
        title = f"{reading.name}: error {reading.calibration_error:.3f}"
        axes.set(title=title, xlabel="confidence", xlim=(0, 1.05), ylim=(0, 1.05))
        axes.title.set_fontsize(9)
    cells[0].set_ylabel("share right")
    return drawing


def draw_example(example: Example, evaluation: Evaluation) -> Any:
    """The images of a row, each above what the network believes it shows."""
    pictures = example.pictures
    drawing, cells = figure(2, len(pictures), size=(2.0 * len(pictures), 3.0))
    names = {reading.name: reading.values for reading in evaluation.concepts}
    for i, picture in enumerate(pictures):
        image, chart = cells[i], cells[len(pictures) + i]
        grey = torch.frombuffer(bytearray(base64.b64decode(picture.pixels)), dtype=torch.uint8)
        image.imshow(255 - grey.reshape(picture.height, picture.width).numpy(), cmap="gray", vmin=0, vmax=255)
        image.axis("off")
        if not picture.beliefs:
            chart.axis("off")
            continue
        values = names[picture.concept]
        colours = ["tab:green" if j == picture.truth else "tab:blue" for j in range(len(values))]
        chart.bar(range(len(values)), picture.beliefs, color=colours)
        chart.set(ylim=(0, 1), xticks=range(len(values)), yticks=[0, 1])
        chart.set_xticklabels(values, fontsize=7)
        chart.tick_params(axis="y", labelsize=7)
    return drawing
