"""The report of one or several runs of a task: one HTML page with its pictures inside, made from the run folders."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from doxa import _html
from doxa._html import markup
from doxa.errors import ConfigError
from doxa.logic.syntax._marks import coloured, declared_names
from doxa.train.runs._config import config_values
from doxa.train.runs._files import write_file
from doxa.train.runs._run import Run
from doxa.train.tasks._evaluate import COLUMNS, Comparison, Evaluation, Example, read_evaluation
from doxa.train.tasks._measure import Reading
from doxa.train.tasks._train import LOOKED_AT, TaskConfig, task_config


@dataclass(frozen=True)
class Section:
    """A heading with a paragraph, a table (of names and values) and a picture under it, each where given."""

    title: str
    text: str = ""
    table: Mapping[str, object] | None = None
    png: bytes = b""


def blank(size: tuple[float, float]) -> Any:
    """An empty figure. No window and no global state of matplotlib is involved."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'doxa[report]', then start again") from error
    return Figure(figsize=size, layout="constrained")


def figure(
    rows: int, columns: int, *, size: tuple[float, float], projection: str | None = None
) -> tuple[Any, list[Any]]:
    """An empty figure and its axes, row by row."""
    drawing = blank(size)
    return drawing, list(drawing.subplots(rows, columns, squeeze=False, subplot_kw={"projection": projection}).flat)


def picture(drawing: Any, path: Path) -> bytes:
    """Save a figure, and return it as PNG."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=120)
    path.write_bytes(buffer.getvalue())
    return buffer.getvalue()


def write_page(path: Path, title: str, sections: Sequence[Section], run: Run) -> None:
    """Write the page; configuration, seed, versions and command of the run stand at its end."""
    about = {**run.config, "seed": run.seed, **run.versions, **run.machine, "command": " ".join(run.command)}
    closing = Section("How it was made", f"Started {run.started}.", about)
    body = "\n".join(_section_html(section) for section in (*sections, closing))
    write_html(path, title, body)


def write_html(path: Path, title: str, body: str) -> None:
    """Write a page, at once or not at all."""
    write_file(path, _html.page(title, body).encode())


def _section_html(section: Section) -> str:
    parts = [f"<h2>{markup(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{markup(section.text)}</p>")
    if section.table is not None:
        parts.append(_html.pairs(section.table))
    if section.png:
        parts.append(_html.image(section.text or section.title, section.png))
    return "\n".join(parts)


SCORES = {"task_accuracy": "task accuracy", "concept_accuracy": "concept accuracy", "satisfaction": "satisfaction"}
WRITTEN = 20
"""Confusion matrices of more values have no numbers in their cells."""


def write_task_report(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write a page about runs of one task that have been evaluated; figures also lie in their folders as PNG.

    Args:
        paths: the run folders.
        out: the folder for ``report.html`` and the figures of all runs together; by default that of the only run.

    Returns:
        The page.

    >>> write_task_report([])  # `train_task` shows one that is written
    Traceback (most recent call last):
    doxa.errors.ConfigError: no run is named; name one or more run folders
    """
    if not paths:
        raise ConfigError("no run is named; name one or more run folders")
    runs = [Run.open(path) for path in paths]
    if out is None and len(runs) > 1:
        raise ConfigError("several runs: say in which folder their report is to be written")
    folder = runs[0].path if out is None else Path(out)
    evaluations, configs = [read_evaluation(run) for run in runs], [task_config(run) for run in runs]
    if len({(e.task, c.knowledge) for e, c in zip(evaluations, configs, strict=True)}) > 1:
        tasks = ", ".join(sorted({e.task for e in evaluations}))
        raise ConfigError(f"these runs are not of one task with one knowledge ({tasks}); report them one by one")
    names = _names(runs, evaluations)
    named = list(zip(names, runs, strict=True))
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    first = evaluations[0]
    body = [
        f"<p>{markup(first.about)} {first.rows:,} rows to test.</p>",
        _comparison(Comparison(tuple(evaluations)), names),
        "<h2>The knowledge</h2>",
        _knowledge(configs[0], evaluations, names),
        "<h2>Learning curves</h2>",
        f"<p>{_of_what(configs, first.rows)}</p>",
        _image("learning curves", _draw_curves(named), figures / "curves.png"),
        "<p>The losses. What is minimised differs between semantics, so their heights cannot be compared.</p>",
        _image("losses", _draw_losses(named), figures / "losses.png"),
        *(_section(n, r, e, c) for n, r, e, c in zip(names, runs, evaluations, configs, strict=True)),
    ]
    title = f"{first.task}: {names[0]}" if len(runs) == 1 else f"{first.task} under {len(runs)} semantics"
    write_html(folder / "report.html", title, "\n".join(body))
    return folder / "report.html"


def _of_what(configs: Sequence[TaskConfig], rows: int) -> str:
    """Which rows the learning curves are of."""
    if all(config.validation for config in configs):
        return "On training rows that were held out; the checkpoint that was best on them counts."
    return f"On the first {min(LOOKED_AT, rows):,} test rows; nothing is chosen by them." + (
        " Where rows were held out, on these; the checkpoint that was best on them counts."
        * any(config.validation for config in configs)
    )


def _names(runs: Sequence[Run], evaluations: Sequence[Evaluation]) -> list[str]:
    """What to call the runs: by their semantics, with as much of their path as it takes to tell them apart."""
    words = [evaluation.semantics for evaluation in evaluations]
    if len(set(words)) == len(words):
        return words
    seeds = [f"{word}, seed {run.seed}" for word, run in zip(words, runs, strict=True)]
    return seeds if len(set(seeds)) == len(seeds) else [f"{w}, {r.path}" for w, r in zip(words, runs, strict=True)]


def _comparison(table: Comparison, names: Sequence[str]) -> str:
    named = [(name, *cells[1:]) for name, cells in zip(names, table.cells(), strict=True)]
    notes = "".join(f'<p class="warning">{markup(note)}</p>' for note in table.notes())
    about = (
        "Task accuracy is the share of test rows whose most true target is right, concept accuracy that of what single "
        "networks read, satisfaction the share of instances of axioms that hold when every network takes its most "
        "probable value. The calibration error is that of the target / of the concepts, over ten bins of confidence. "
        "CPU time and memory are those of training."
    )
    shown = _html.table(COLUMNS, named, numbers=True, limit=len(named))
    return f"<h2>Results</h2>\n{shown}\n{notes}\n<p>{markup(about)}</p>"


def _knowledge(config: TaskConfig, evaluations: Sequence[Evaluation], names: Sequence[str]) -> str:
    """The text as it was written; behind each axiom how often it holds, for every run."""
    lines: list[str] = []
    left = [axiom.name for axiom in evaluations[0].axioms]
    names_of = declared_names(config.knowledge)
    for line in config.knowledge.splitlines():
        lines.append(coloured(line, names_of))
        for header in re.finditer(r"(?:^|;)\s*\[\s*(\w+)\s*[],]", line):
            if header[1] in left:
                left.remove(header[1])
                lines += _held(header[1], evaluations, names)
    for axiom in left:  # it stands in another file, or has no name
        lines += [f"[{markup(axiom)}]", *_held(axiom, evaluations, names)]
    return f'<div class="doxa"><pre class="code">{chr(10).join(lines)}</pre></div>'


def _held(name: str, evaluations: Sequence[Evaluation], names: Sequence[str]) -> list[str]:
    """How often an axiom holds, a line for each run."""
    lines = []
    for run, evaluation in zip(names, evaluations, strict=True):
        for axiom in evaluation.axioms:
            if axiom.name == name:
                kind = "held" if axiom.rate >= 0.9 else "broken"
                text = f"{run}: {100 * axiom.rate:.1f} % of {axiom.instances:,} instances hold"
                lines.append(f'    <span class="{kind}">{markup(text)}</span>')
    return lines


def _section(name: str, run: Run, evaluation: Evaluation, config: TaskConfig) -> str:
    """All about one run."""
    parts = [f"<section><h2>{markup(name)}</h2>", f"<p><code>{markup(config.meaning)}</code></p>"]
    readings = [*([evaluation.target] if evaluation.target else []), *evaluation.concepts]
    if readings:
        parts.append("<h3>What is read as what</h3><p>Rows are true values, columns what was read.</p>")
        images = []
        for number, reading in enumerate(readings):
            file = run.figures / f"confusion-{number}-{re.sub('[^a-zA-Z0-9]+', '-', reading.name)}.png"
            images.append(_image(f"confusion of {reading.name}, {name}", _draw_confusion(reading), file))
        parts.append(f'<div class="side">{"".join(images)}</div>')
        parts.append("<h3>Calibration</h3><p>Darker bars are of more rows.</p>")
        parts.append(_image(f"calibration, {name}", _draw_calibration(readings), run.figures / "calibration.png"))
    if evaluation.examples:
        parts.append(
            "<h3>Examples</h3><p>Below each image what the network believes, the true value in green; then the worlds "
            "that explain the row, given that the knowledge holds. The first rows, then the surest mistakes.</p>"
        )
        examples = [_example(example, evaluation, run, name) for example in evaluation.examples]
        parts.append(f'<div class="examples">{"".join(examples)}</div>')
    elsewhere = ("knowledge", "fitting", "fingerprint")
    about: dict[str, Any] = {k: v for k, v in config_values(config).items() if k not in elsewhere}
    about |= {**config_values(config.fitting), "seed": run.seed, **run.versions, **run.machine}
    about |= {"command": " ".join(run.command), "started": run.started}
    shown = _html.pairs({key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()})
    parts.append(f"<details><summary>Configuration</summary>{shown}</details>")
    return "\n".join([*parts, "</section>"])


def _example(example: Example, evaluation: Evaluation, run: Run, name: str) -> str:
    drawing = _draw_example(example, evaluation)
    image = _image(f"row {example.row}, {name}", drawing, run.figures / f"example-{example.row}.png")
    verdict = ""
    if example.read:
        right = example.read == example.truth
        words = f"predicted {example.read}" + ("" if right else f", true {example.truth}")
        verdict = f'<span class="{"held" if right else "broken"}">{markup(words)}</span>'
    caption = f"<figcaption>row {example.row} {verdict}</figcaption>"
    return f"<figure>{image}{caption}<pre>{markup(example.explanation)}</pre></figure>"


def _image(alt: str, drawing: Any, file: Path) -> str:
    for text in drawing.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(False)  # a dollar in a name is a dollar
    return _html.image(alt, picture(drawing, file))


def draw_metric(axes: Any, lines: Sequence[Mapping[str, Any]], key: str, factor: float = 1.0, **style: Any) -> None:
    """A metric against the steps after which it was logged."""
    points = [(line["step"], factor * line[key]) for line in lines if key in line]
    axes.plot([step for step, _ in points], [value for _, value in points], linewidth=1, **style)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)


def _draw_losses(runs: Sequence[tuple[str, Run]]) -> Any:
    """The loss of each run in a picture of its own, for losses of different semantics are different things."""
    drawing, cells = figure(1, len(runs), size=(max(4.5, 2.6 * len(runs)), 2.6))
    for axes, (name, run) in zip(cells, runs, strict=True):
        draw_metric(axes, run.metrics(), "loss")
        axes.set_title(name)
    return drawing


def _draw_curves(runs: Sequence[tuple[str, Run]]) -> Any:
    """Task accuracy, concept accuracy and satisfaction while training, all runs together."""
    metrics = [(name, run.metrics()) for name, run in runs]
    shown = [key for key in SCORES if any(key in line for _, lines in metrics for line in lines)]
    drawing, cells = figure(1, max(1, len(shown)), size=(3.4 * max(1, len(shown)), 3.2))
    for axes, key in zip(cells, shown, strict=False):
        for name, lines in metrics:
            draw_metric(axes, lines, key, 100, marker="o", markersize=3, label=name)
        axes.set(title=f"{SCORES[key]} (%)", ylim=(-3, 103))
    if len(runs) > 1 and shown:
        cells[-1].legend(fontsize=8)
    return drawing


def draw_confusion(axes: Any, counts: Tensor, cells: Sequence[Sequence[str]] = ()) -> None:
    """How often each value (row) is read as each value (column), with what is written into the cells."""
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    axes.imshow(shares.sqrt().numpy(), cmap="Blues", vmin=0, vmax=1)  # the root makes rare mistakes visible
    for i, row in enumerate(cells):
        for j, text in enumerate(row):
            colour = "white" if shares[i, j] > 0.3 else "black"
            axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=7)
    axes.set(xlabel="read as", ylabel="is", xticks=range(len(counts)), yticks=range(len(counts)))


def _draw_confusion(reading: Reading) -> Any:
    size = len(reading.values)
    side = min(7.0, max(3.0, 0.5 * size))
    drawing, (axes,) = figure(1, 1, size=(side, side))
    cells = [[str(count) for count in row] for row in reading.counts] if size <= WRITTEN else []
    draw_confusion(axes, torch.tensor(reading.counts), cells)
    axes.set_title(reading.name)
    axes.set_xticklabels(reading.values, rotation=90 if size > WRITTEN else 0, fontsize=7)
    axes.set_yticklabels(reading.values, fontsize=7)
    return drawing


def _draw_calibration(readings: Sequence[Reading]) -> Any:
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


def _draw_example(example: Example, evaluation: Evaluation) -> Any:
    """The images of a row, each above what the network believes it shows."""
    pictures = example.pictures
    drawing, cells = figure(2, len(pictures), size=(2.0 * len(pictures), 3.0))
    names = {reading.name: reading.values for reading in evaluation.concepts}
    for i, shown in enumerate(pictures):
        image, chart = cells[i], cells[len(pictures) + i]
        grey = torch.frombuffer(bytearray(base64.b64decode(shown.pixels)), dtype=torch.uint8)
        image.imshow(255 - grey.reshape(shown.height, shown.width).numpy(), cmap="gray", vmin=0, vmax=255)
        image.axis("off")
        if not shown.beliefs:
            chart.axis("off")
            continue
        values = names[shown.concept]
        colours = ["tab:green" if j == shown.truth else "tab:blue" for j in range(len(values))]
        chart.bar(range(len(values)), shown.beliefs, color=colours)
        chart.set(ylim=(0, 1), xticks=range(len(values)), yticks=[0, 1])
        chart.set_xticklabels(values, fontsize=7)
        chart.tick_params(axis="y", labelsize=7)
    return drawing
