"""The mixin and the callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from doxa.errors import ConfigError
from doxa.semantics import AxiomLosses, Model

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback  # type: ignore[assignment]
    except ImportError as error:
        raise ConfigError("doxa.lightning needs Lightning: pip install 'doxa[lightning]', then start again") from error


class KnowledgeMixin:
    """A loss for a ``LightningModule`` whose ``knowledge`` is a :class:`doxa.Model`; inference models learn by the way.

    >>> import doxa, torch
    >>> from lightning.pytorch import LightningModule
    >>> class Weather(KnowledgeMixin, LightningModule):
    ...     def __init__(self):
    ...         super().__init__()
    ...         rules = "sort Day; pred rain(Day); pred wet(Day); [soaked] forall d: Day. rain(d) -> wet(d)"
    ...         net = torch.nn.Linear(4, 1)
    ...         self.knowledge = doxa.Model(rules, "exact", rain=doxa.logits(net), wet=doxa.logits(net))
    ...     def training_step(self, batch):
    ...         return self.knowledge_loss(Day=batch)
    >>> bool(Weather().training_step(torch.randn(8, 4)) >= 0)
    True
    """

    knowledge: Model

    def knowledge_loss(self, **data: Any) -> Tensor:
        """The loss of all axioms and facts on data, to be added to others."""
        return self.knowledge_losses(**data).total

    def knowledge_losses(self, **data: Any) -> AxiomLosses:
        """The loss of each axiom, and all together."""
        if torch.is_grad_enabled():
            self.knowledge.inference_step(**data)
        return self.knowledge.losses(**data)


class LogKnowledge(Callback):
    """Log the loss and the satisfaction of every axiom: ``train/loss of soaked``, ``val/satisfaction of soaked``, …

    They are measured without dropout, leave random numbers and statistics of the training as they are, and are means
    over what was measured in an epoch.

    Args:
        data: what the knowledge is told of a batch, by keyword: ``lambda batch: {"Day": batch}``.
        model: the :class:`doxa.Model`; by default the ``knowledge`` of the module.
        every: in training, measure every n-th batch; in validation, every one.

    >>> LogKnowledge(lambda batch: {"Day": batch}, every=50).every
    50
    """

    def __init__(
        self, data: Callable[[Any], Mapping[str, Any]], *, model: Model | None = None, every: int = 10
    ) -> None:
        super().__init__()
        if every < 1:
            raise ConfigError(f"every is {every}, expected at least 1")
        self.data, self.model, self.every = data, model, every

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Called by the trainer."""
        if batch_idx % self.every == 0:
            self._log(pl_module, "train", batch)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Called by the trainer."""
        self._log(pl_module, "val", batch)

    def measured(self, module: Any, batch: Any) -> dict[str, float]:
        """What is logged of a batch."""
        model = self.model if self.model is not None else getattr(module, "knowledge", None)
        if not isinstance(model, Model):
            raise ConfigError("the module has no doxa.Model as `knowledge`; name one: LogKnowledge(data, model=...)")
        data = dict(self.data(batch))
        with _aside(model):
            losses = model.losses(**data)
            report = model.satisfaction(examples=0, **data)
        found = {f"loss of {name}": float(value.mean()) for name, value in losses.by_name().items()}
        return found | {f"satisfaction of {axiom.name}": axiom.rate for axiom in report.axioms}

    def _log(self, module: Any, stage: str, batch: Any) -> None:
        values = {f"{stage}/{name}": value for name, value in self.measured(module, batch).items()}
        module.log_dict(values, on_step=False, on_epoch=True, batch_size=1)


@contextmanager
def _aside(model: Model) -> Iterator[None]:
    """Measure without a trace: no gradients, no dropout, random numbers as before."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
