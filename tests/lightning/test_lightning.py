"""Knowledge in a real Trainer, on the CPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import doxa
from doxa.errors import ConfigError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of other packages, while they are loaded
    pl = pytest.importorskip("lightning.pytorch")
    from doxa.lightning import KnowledgeMixin, LogKnowledge

pytestmark = [pytest.mark.filterwarnings("ignore")]  # the trainer's advice
RULES = """
sort Day
pred rain(Day)
pred wet(Day)
[soaked] forall d: Day. rain(d) -> wet(d)
[some]   forall d: Day. rain(d) | wet(d)
"""


class Column(nn.Module):
    def __init__(self, net: nn.Module, place: int) -> None:
        super().__init__()
        self.net, self.place = net, place

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)[..., self.place]


class Weather(KnowledgeMixin, pl.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, semantics: Any = "exact", log_here: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        self.knowledge = doxa.Model(
            RULES, semantics, rain=doxa.logits(Column(self.net, 0)), wet=doxa.logits(Column(self.net, 1))
        )

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return self.knowledge_loss(Day=batch[0])

    def validation_step(self, batch: list[Tensor]) -> None:
        self.log("val_loss", self.knowledge_loss(Day=batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.05)


def days(batch: list[Tensor]) -> dict[str, Any]:
    return {"Day": batch[0]}


def fit(module: Any, folder: Path, callbacks: list[Any], epochs: int = 5) -> Any:
    data = DataLoader(TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(1))), batch_size=16)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks, default_root_dir=folder,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer.fit(module, data, data)
    return trainer


def test_a_trainer_learns_from_knowledge_and_logs_each_axiom(tmp_path: Path) -> None:
    module = Weather()
    log = LogKnowledge(days, every=1)
    before = log.measured(module, [torch.randn(64, 4, generator=torch.Generator().manual_seed(1))])
    metrics = fit(module, tmp_path, [log]).callback_metrics
    names = {f"{stage}/{what} of {axiom}" for stage in ("train", "val") for what in ("loss", "satisfaction")
             for axiom in ("soaked", "some")}  # fmt: skip
    assert names <= set(metrics)
    whole = [torch.randn(64, 4, generator=torch.Generator().manual_seed(1))]
    after = log.measured(module, whole)
    for name in ("loss of soaked", "satisfaction of soaked", "loss of some"):
        # batches of one size: the mean over the epoch is that over all rows
        assert metrics[f"val/{name}"].item() == pytest.approx(after[name], abs=1e-5)
    assert after["loss of soaked"] + after["loss of some"] < before["loss of soaked"] + before["loss of some"]
    report = module.knowledge.satisfaction(Day=whole[0])
    assert after["satisfaction of soaked"] == report["soaked"].rate


def test_what_is_logged_leaves_no_trace(tmp_path: Path) -> None:
    """The same parameters to the bit with and without the callback, dropout and all."""
    plain, watched = Weather(doxa.Sampled()), Weather(doxa.Sampled())
    fit(plain, tmp_path, [])
    fit(watched, tmp_path, [LogKnowledge(days, every=2)])
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), watched.parameters(), strict=True))
    assert watched.net.training == plain.net.training


def test_inference_models_learn_by_the_way() -> None:
    module = Weather(doxa.Amortized(pretrain=3))
    loss = module.training_step([torch.randn(4, 4)])
    loss.backward()
    assert torch.isfinite(loss) and module.net[0].weight.grad is not None


def test_mistakes_are_told() -> None:
    with pytest.raises(ConfigError, match="every is 0"):
        LogKnowledge(days, every=0)
    with pytest.raises(ConfigError, match=r"no doxa\.Model as `knowledge`"):
        LogKnowledge(days).measured(nn.Linear(1, 1), [torch.zeros(1, 4)])
    other = Weather()
    assert "loss of some" in LogKnowledge(days, model=other.knowledge).measured(nn.Linear(1, 1), [torch.zeros(1, 4)])
