"""Training on any number of devices: Lightning Fabric over a run folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from doxa.data._batches import count_rows, move_columns, take_rows
from doxa.errors import BindingError, ConfigError, RunError
from doxa.train.runs._run import Run
from doxa.train.runs._state import GlobalRandom, HasState, seeded
from doxa.train.runs._steps import run_steps

WISHES: dict[str, Callable[[Any], bool]] = {
    "more than 0": lambda value: value > 0,
    "0 or more": lambda value: value >= 0,
    "at least 0 and below 1, such as 0.999": lambda value: 0 <= value < 1,
    "at most 1e+30": lambda value: value <= 1e30,  # what is larger does not fit into what optimisers compute with
}
POSITIVE, NOT_NEGATIVE, DECAY, NOT_HUGE = WISHES


def require(config: Any, wish: str, *names: str) -> None:
    """Raise an error that names the first of these settings that is not as wished."""
    for name in names:
        if not WISHES[wish](getattr(config, name)):
            raise ConfigError(f"{name} is {getattr(config, name)}, expected {wish}")


@dataclass(frozen=True)
class Fitting:
    """How to train: the budget, the optimiser and the hardware.

    Args:
        steps: how many batches are learned from.
        optimizer: Adam, AdamW, or SGD with momentum 0.9.
        learning_rate: at its highest.
        weight_decay: of the optimiser.
        schedule: what the learning rate does after the warm-up: stay, or fall to 0 at the last step, along a line or
            half a cosine.
        warmup: so many steps in which the learning rate rises along a line from 0.
        clip: the largest norm that a gradient may have; 0 leaves it as it is.
        average: decay of the moving average of the parameters, :math:`\\barθ ← a\\barθ + (1-a)θ`, which evaluation then
            uses; 0 for none.
        patience: stop after so many evaluations without a new best; 0 goes on to the end.
        log_every: steps between two lines of metrics.
        evaluate_every: steps between two evaluations, and two checkpoints.
        accelerator, devices, nodes, strategy, precision: as `lightning_fabric.Fabric` takes them, such as
            ``devices=2, strategy="ddp"`` or ``precision="bf16-mixed"``.
        tensorboard: write the metrics for TensorBoard as well.

    >>> Fitting(steps=100, schedule="cosine", warmup=10).rate(5), Fitting(steps=100, schedule="linear").rate(75)
    (0.5, 0.25)
    """

    steps: int = 1000
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = 0
    clip: float = 0.0
    average: float = 0.0
    patience: int = 0
    log_every: int = 50
    evaluate_every: int = 500
    accelerator: str = "cpu"
    devices: int = 1
    nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        require(self, POSITIVE, "steps", "learning_rate", "log_every", "evaluate_every", "devices", "nodes")
        require(self, NOT_NEGATIVE, "weight_decay", "warmup", "clip", "patience")
        require(self, DECAY, "average")
        require(self, NOT_HUGE, "learning_rate", "weight_decay", "clip")

    def rate(self, step: int) -> float:
        """The learning rate of a step (from 0), as a share of the highest."""
        if step < self.warmup:
            return step / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        if self.schedule == "linear":
            return 1 - done
        return (1 + math.cos(math.pi * done)) / 2 if self.schedule == "cosine" else 1.0

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of a module's parameters.

        Raises:
            ConfigError: there are none to train.
        """
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise ConfigError(
                "there are no parameters to train; bind a symbol to an nn.Module itself, not to a function that calls "
                "one, and leave requires_grad on"
            )
        made: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "adam": torch.optim.Adam,
            "adamw": torch.optim.AdamW,
            "sgd": partial(torch.optim.SGD, momentum=0.9),
        }
        return made[self.optimizer](module.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)


def moving_average(module: nn.Module, decay: float) -> Any:
    """The moving average of a module's parameters, as a module."""
    return AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))  # type: ignore[no-untyped-call]


class Source(HasState, Protocol):
    """Batches that know where they stand, such as `doxa.data.Batches`."""

    def next(self) -> Any: ...


def fit(
    objective: nn.Module,
    batches: Source,
    path: str | Path,
    config: Any,
    *,
    fitting: Fitting,
    seed: int = 0,
    evaluate: Callable[[nn.Module], Mapping[str, Any]] | None = None,
    best: str | None = None,
    progress: bool = True,
) -> Run:
    """Minimise an objective in a run folder, or go on with it, on one device or many.

    Every process walks over the same batches and takes its own share of each: of n processes, process r takes the rows
    r, r + n, r + 2n, … of a batch. Gradients are averaged over processes (DDP), so with a loss that is a mean over
    rows, two processes with a batch of 2b between them do the very steps of one process with a batch of 2b. A loss
    over *pairs* of rows sees in each process the pairs within its own share only.

    Args:
        objective: a module whose ``forward`` takes a batch (its entries by place or by name) and returns the loss, or
            metrics by name, among which ``"loss"``. A method ``prepare``, where there is one, is given the batch before
            each loss: there inference models learn. One ``blame`` that takes what ``forward`` takes says why a loss is
            not finite, in the error.
        batches: what to learn from.
        path: the run folder.
        config: what the folder keeps as the configuration of the run: a frozen dataclass, often with ``fitting`` in it.
        fitting: how to train.
        seed: of dropout and sampling, in process r seed + r; noted in the run.
        evaluate: takes the objective (or its moving average) and returns metrics by name. Every process computes it.
        best: the metric by which the best checkpoint is kept, see `run_steps`; also what patience looks at.
        progress: show it on standard output.

    Returns:
        The run; its checkpoints hold the objective, its moving average where there is one, and all that is needed to go
        on.

    >>> import tempfile
    >>> from doxa.data import Batches
    >>> class Line(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = nn.Parameter(torch.zeros(()))
    ...     def forward(self, x, y):
    ...         return (self.slope * x - y).square().mean()
    >>> x = torch.linspace(-1, 1, 64)
    >>> how = Fitting(steps=300, learning_rate=0.03)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = fit(line := Line(), Batches((x, 3 * x), 16, seed=0), folder, how, fitting=how, progress=False)
    >>> round(line.slope.item(), 2)
    3.0
    """
    fabric = _fabric(fitting)
    leader = fabric is None or fabric.is_global_zero
    with _together(fabric), seeded(seed + (fabric.global_rank if fabric else 0)):
        plain = optimizer = fitting.make_optimizer(objective)
        module: nn.Module = objective
        if fabric is not None:
            module, optimizer = fabric.setup(objective, optimizer)
            plain = optimizer.optimizer
        schedule = torch.optim.lr_scheduler.LambdaLR(plain, fitting.rate)
        average = moving_average(objective, fitting.average) if fitting.average else None

        prepare = getattr(objective, "prepare", None) or (lambda batch: None)

        def step(number: int) -> dict[str, Any]:
            batch = _share(batches.next(), fabric)
            with _naming(f"step {number + 1}"):
                prepare(batch)
                metrics = _called(module, batch)
            loss = metrics["loss"]
            if not bool(torch.isfinite(loss)):
                where = f": {_call(objective.blame, batch)}" if hasattr(objective, "blame") else ""
                hint = "A lower learning rate or clipped gradients often help"
                raise RunError(f"the loss is {loss.item()} after step {number + 1}{where}. {hint}")
            optimizer.zero_grad()
            if fabric is None:
                torch.autograd.backward(loss)
            else:
                fabric.backward(loss)
            if fitting.clip:
                nn.utils.clip_grad_norm_(objective.parameters(), fitting.clip)
            optimizer.step()
            schedule.step()
            if average is not None:
                average.update_parameters(objective)
            if fabric is not None and fabric.world_size > 1 and (number + 1) % fitting.log_every == 0:
                metrics = {name: fabric.all_reduce(torch.as_tensor(v), reduce_op="mean") for name, v in metrics.items()}
            return {name: torch.as_tensor(value).detach() for name, value in metrics.items()}

        def measure() -> Mapping[str, Any]:
            assert evaluate is not None
            judged = objective if average is None else average.module
            training = judged.training
            judged.eval()
            with torch.no_grad(), _naming(f"evaluation after step {schedule.last_epoch}"):
                measured = evaluate(judged)
            judged.train(training)
            if board is not None:
                board()
            return measured

        if leader:
            run = Run.start(path, config, seed=seed)
        if fabric is not None:
            fabric.barrier()  # the folder is there
        if not leader:
            run = Run.open(path)
        state: dict[str, Any] = {
            "objective": objective,
            "optimizer": plain,
            "schedule": schedule,
            "batches": batches,
            "random": GlobalRandom() if fabric is None or fabric.world_size == 1 else _EveryRandom(fabric),
            **({} if average is None else {"average": average}),
        }
        board = _board(run) if fitting.tensorboard and leader else None
        run_steps(
            run,
            step,
            steps=fitting.steps,
            state=state,
            evaluate=None if evaluate is None else measure,
            best=best,
            log_every=fitting.log_every,
            evaluate_every=fitting.evaluate_every,
            save_every=fitting.evaluate_every,
            patience=fitting.patience or None,
            leader=leader,
            progress=progress,
        )
        if board is not None:
            board()
        if fabric is not None:
            fabric.barrier()  # what the leader wrote last is there for all
    return run


def _fabric(fitting: Fitting) -> Any:
    """Fabric, launched; None where plain PyTorch does the same, which spares a slow import."""
    names = ("accelerator", "devices", "nodes", "strategy", "precision")
    chosen = {name: getattr(fitting, name) for name in names}
    if [*chosen.values()] == ["cpu", 1, 1, "auto", "32-true"]:
        return None
    try:
        lightning: Any = import_module("lightning_fabric")
    except ImportError as error:
        raise ConfigError(
            "several devices or another precision need Lightning Fabric: pip install 'doxa[fabric]', then start again"
        ) from error
    try:
        fabric = lightning.Fabric(**{name.replace("nodes", "num_nodes"): value for name, value in chosen.items()})
        fabric.launch()
    except Exception as error:
        how = " ".join(f"{name}={value}" for name, value in chosen.items())
        raise ConfigError(f"{how} cannot be used here: {' '.join(str(error).split())}") from error
    return fabric


@contextmanager
def _together(fabric: Any) -> Iterator[None]:
    """If this process fails, those that it started end with it; else they would wait for it."""
    try:
        yield
    except BaseException:
        launcher = getattr(getattr(fabric, "_strategy", None), "launcher", None)
        for process in getattr(launcher, "procs", ()):
            process.kill()
        raise


@contextmanager
def _naming(when: str) -> Iterator[None]:
    """Say when a symbol gave what it may not: numbers that are not finite, most often."""
    try:
        yield
    except BindingError as error:
        blown_up = "finite" in str(error) or "-inf" in str(error)  # a wrong shape is no matter of training
        hint = "; if training made it so, a lower learning rate or clipped gradients often help" if blown_up else ""
        raise BindingError(f"{when}: {error}{hint}") from error


def _share(batch: Any, fabric: Any) -> Any:
    """The rows of a batch that this process takes, on its device."""
    if fabric is None:
        return batch
    rank, count = fabric.global_rank, fabric.world_size

    rows = count_rows(batch, "batch")
    if rows < count:
        raise ConfigError(f"a batch of {rows} rows cannot be shared by {count} processes; make it larger")
    return move_columns(take_rows(batch, slice(rank, None, count)), fabric.device)


def _call(function: Any, batch: Any) -> Any:
    return function(**batch) if isinstance(batch, dict) else function(*batch)


def _called(module: Any, batch: Any) -> dict[str, Any]:
    returned = _call(module, batch)
    metrics = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    if "loss" not in metrics:
        raise ConfigError(f"the objective returned the metrics {sorted(metrics)}, wanted 'loss' among them")
    return metrics


class _EveryRandom:
    """The random states of all processes; taking them needs all processes."""

    def __init__(self, fabric: Any) -> None:
        self.fabric, self.own = fabric, GlobalRandom()

    def state_dict(self) -> dict[str, Any]:
        states: list[Any] = [None] * self.fabric.world_size
        torch.distributed.all_gather_object(states, self.own.state_dict())
        return {str(rank): state for rank, state in enumerate(states)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if len(state) != self.fabric.world_size:
            raise ValueError(f"it was written by {len(state)} processes, these are {self.fabric.world_size}")
        self.own.load_state_dict(state[str(self.fabric.global_rank)])


def _board(run: Run) -> Callable[[], None]:
    """Write what the run has logged so far for TensorBoard; it is made from the metrics, so it resumes with them."""
    try:
        tensorboard: Any = import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise ConfigError("tensorboard=true needs TensorBoard: pip install 'doxa[fabric]', then start again") from error
    written = 0

    def write() -> None:
        nonlocal written
        lines = run.metrics()
        purge = None if written else 0  # a run that goes on writes its metrics again
        with tensorboard.SummaryWriter(str(run.path / "tensorboard"), purge_step=purge) as writer:
            for line in lines[written:]:
                step = line.pop("step")
                for name, value in line.items():
                    writer.add_scalar(name, value, step)
        written = len(lines)

    return write
