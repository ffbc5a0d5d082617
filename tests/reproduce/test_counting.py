"""Weighted model counting: what is measured agrees with enumeration, and every inference model learns."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from doxa.amortized import AmortizedReasoner, FactorGraphModel
from doxa.problem import Belief, cnf
from doxa.reproduce import COUNTING
from doxa.reproduce._counting import MAKE, CountingConfig, as_independent, generated, measure
from doxa.reproduce._experiment import train

SMALL = CountingConfig(variables=6, clauses=8, steps=400, warmup=50, decay=400, samples=100, width=12, beliefs=100)


def test_hierarchies_are_trees_and_clauses_have_three_atoms() -> None:
    for seed in range(5):
        random = torch.Generator().manual_seed(seed)
        tree = generated(replace(SMALL, knowledge="hierarchy"), random)
        assert [-child for child, _ in tree] == [2, 3, 4, 5, 6]
        assert all(1 <= parent < -child for child, parent in tree)
        clauses = generated(SMALL, random)
        assert len(clauses) == 8 and all(len({abs(x) for x in clause}) == 3 for clause in clauses)


@pytest.mark.parametrize("knowledge", ["3-sat", "hierarchy", "not about x4"])
def test_what_is_measured_agrees_with_enumeration(knowledge: str) -> None:
    clauses = [[1, -2, 3], [-1, 5, 6], [2, -5]]
    if knowledge != "not about x4":
        config = replace(SMALL, knowledge=knowledge)  # type: ignore[arg-type]
        clauses = generated(config, torch.Generator().manual_seed(1))
    problem = cnf(clauses, 6)
    torch.manual_seed(0)
    engine = AmortizedReasoner(problem, FactorGraphModel(problem, channels=8, explain=False))
    probs = torch.rand(9, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    logits = probs.logit().requires_grad_()
    p = torch.zeros(9, dtype=torch.float64)
    for world in product((0, 1), repeat=6):  # by the book
        if all(any((world[abs(x) - 1] == 1) == (x > 0) for x in clause) for clause in clauses):
            chosen = torch.where(torch.tensor(world) == 1, logits.sigmoid(), 1 - logits.sigmoid())
            p = p + chosen.prod(-1)
    belief = Belief.from_bernoulli(logits=logits)
    ones = torch.ones(9, 1, dtype=torch.int64)
    found = measure(engine, clauses, belief.detach())
    for name, log_q in (
        ("", engine.model.log_prob(belief, ones).double()),
        ("independent ", as_independent(clauses, belief)),
    ):
        q = log_q.exp()
        kl = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
        assert found[f"{name}divergence"] == pytest.approx(kl.mean().item(), rel=1e-5)
        assert found[f"{name}error"] == pytest.approx((p - q).abs().mean().item(), rel=1e-5)
        one, two = (torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (log_q, p.log()))
        cosine = torch.nn.functional.cosine_similarity(one, two).mean().item()
        assert found[f"{name}gradient"] == pytest.approx(cosine, rel=1e-4)


@pytest.mark.parametrize("model", MAKE)
def test_every_model_learns(model: str, tmp_path: Path) -> None:
    config = replace(SMALL, model=model)  # type: ignore[arg-type]
    before = train(replace(config, steps=1), tmp_path / "before", seed=0, data=None, progress=False).metrics
    after = train(config, tmp_path / "after", seed=0, data=None, progress=False).metrics
    assert after["divergence"] < 0.5 * before["divergence"]
    assert after["independent divergence"] == before["independent divergence"]
    assert set(COUNTING.metrics) <= set(after)
