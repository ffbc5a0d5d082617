"""A trained classifier as one module of plain tensor operations, which torch.export and ONNX take."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.exact import Constraint
from doxa.exact.circuits._semirings import FLOOR
from doxa.refine import Rules
from doxa.sklearn._choices import Choices, MultiClass, SeenSets
from doxa.sklearn._heads import Head, MultiLabel
from doxa.sklearn._network import Whole

MOST_GIVEN = 12
"""Features that knowledge about classes or seen label sets may mention: every choice of them is a row of a table."""


class Circuit(nn.Module):
    """The circuit of a constraint over Boolean variables, as a program: marginals, and the most probable world.

    Values go up the layers, derivatives come down them; with a maximum in place of the sum these point to the world.
    """

    sources: Tensor
    always: Tensor

    def __init__(self, constraint: Constraint) -> None:
        super().__init__()
        compiled = constraint._compiled
        layers = compiled.layers
        self.labels, self.nodes, self.literals = len(constraint.variables), layers.nodes, layers.circuit.literals
        self.plan = [(layer.joins, layer.first, layer.last) for layer in layers.order.layers]
        self.register_buffer("sources", compiled.sources, persistent=False)
        self.register_buffer("always", compiled.always, persistent=False)
        for i, layer in enumerate(layers.order.layers):
            self.register_buffer(f"children{i}", layer.children, persistent=False)
            self.register_buffer(f"owners{i}", layer.nodes, persistent=False)

    def forward(self, logits: Tensor, given: Tensor, best: bool) -> tuple[Tensor, Tensor]:
        """From log-odds ``(n, labels)`` and what is given, 0 or 1 ``(n, given)``, to derivatives and log-weight.

        The derivatives for "false" and "true" of each label, ``(n, labels, 2)``, are probabilities, or 0 and 1 for the
        best world. The log-weight ``(n,)`` is log p(knowledge), or that of the best world.
        """
        pair = torch.stack([_log_sigmoid(-logits), _log_sigmoid(logits)], -1)
        seen = FLOOR * torch.stack([given, 1 - given], -1)
        parts = [pair.flatten(1), seen.flatten(1), torch.zeros_like(logits[:, :1])]
        weights = torch.cat(parts, 1).T.clamp(min=FLOOR)
        values = weights.index_select(0, self.sources)
        for i, (joins, first, last) in enumerate(self.plan):
            children = getattr(self, f"children{i}")
            if joins:
                left, right = values.index_select(0, children[0]), values.index_select(0, children[1])
                top = torch.maximum(left, right)
                out = top if best else top + torch.log1p(torch.exp(torch.minimum(left, right) - top))
            else:
                terms = values.index_select(0, children)
                owners = getattr(self, f"owners{i}").unsqueeze(-1).expand_as(terms)
                out = torch.zeros_like(values[:1]).expand(last - first, -1).scatter_add(0, owners, terms)
            values = torch.cat([values, out])
        slopes = torch.cat([torch.zeros_like(values[1:]), torch.ones_like(values[:1])])
        for i, (joins, first, last) in reversed(list(enumerate(self.plan))):
            children, out = getattr(self, f"children{i}"), slopes[first:last]
            if joins:
                left, right = values.index_select(0, children[0]), values.index_select(0, children[1])
                share = (left >= right).to(out.dtype) if best else torch.exp(left - values[first:last])
                given = torch.cat([out * share, out * (1 - share)])
                places = children.flatten()
            else:
                given, places = out.index_select(0, getattr(self, f"owners{i}")), children
            slopes = slopes.scatter_add(0, places.unsqueeze(-1).expand_as(given), given)
        chosen, root = torch.zeros_like(weights), values[-1]
        chosen = chosen.scatter_add(0, self.sources.unsqueeze(-1).expand(-1, weights.shape[1]), slopes[: self.literals])
        if len(self.always):
            fixed = self.always.unsqueeze(-1).expand(-1, weights.shape[1])
            chosen = chosen.scatter_add(0, fixed, torch.ones_like(chosen[: len(self.always)]))
            root = root + weights.index_select(0, self.always).sum(0)
        return chosen[: 2 * self.labels].T.reshape(-1, self.labels, 2), root


class Deployed(nn.Module):
    """Features ``(n, features)`` in; probabilities ``(n, labels)`` and labels, bool ``(n, labels)``, out.

    What the classifier guarantees holds here too. A feature that the knowledge mentions is true above a half; a row
    whose features leave no consistent labels has NaN for probabilities. Of a mixture, the labels are the best among
    the most probable consistent ones of each component and of their mean; the classifier looks at a few more of each.
    """

    allowed: Tensor
    sets: Tensor
    logs: Tensor
    places: Tensor
    powers: Tensor

    def __init__(self, whole: Whole, head: Head, given: Sequence[int] = ()) -> None:
        super().__init__()
        self.whole, self.way, self.many = whole, head.way, isinstance(head, MultiLabel)
        self.register_buffer("places", torch.tensor(given, dtype=torch.int64), persistent=False)
        self.layer: nn.Module | None = None
        self.rules: Rules | None = None
        self.circuit: Circuit | None = None
        self.classes = isinstance(head, MultiClass)
        if isinstance(head, Choices):
            self.register_buffer("allowed", _allowed(head), persistent=False)
            self.register_buffer("sets", torch.from_numpy(head.sets.copy()), persistent=False)
            counts = head.counts if isinstance(head, SeenSets) else np.ones(len(head.sets))
            self.register_buffer("logs", torch.from_numpy(np.log(counts)).float(), persistent=False)
            self.register_buffer("powers", 2 ** torch.arange(len(given)), persistent=False)
            return
        assert isinstance(head, MultiLabel)
        self.count, self.layer = head.count, head.layer
        self.sure = head.way.guarantee and (head.knows or head.way.components > 0)
        self.conditions = head.knows and head.layer is None and (self.sure or head.way.learn == "constrained")
        if self.sure and head.layer is not None:
            self.rules = head.knowledge.rules
        if self.conditions or (self.sure and self.rules is None):
            if head.circuit is None:
                raise ConfigError("the knowledge has no affordable circuit; export with guarantee=False")
            self.circuit = Circuit(head.circuit)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raw = self.whole(x)
        given = (x.index_select(1, self.places) > 0.5).to(raw.dtype)
        if not self.many:
            kind = (given.to(torch.int64) * self.powers).sum(1)
            sets = self.sets.to(raw.dtype)
            scores = raw if self.classes else raw @ sets.T + self.logs
            masked = scores.masked_fill(~self.allowed.index_select(0, kind), -torch.inf)
            probs = masked.softmax(-1) if self.classes else (masked.softmax(-1) @ sets).clamp(0, 1)
            return probs, self.sets.index_select(0, masked.argmax(-1))
        if self.way.components:
            return self._of_mixture(raw, given)
        probs = raw.sigmoid()
        if self.layer is not None:
            probs = self.layer(torch.cat([probs, given], 1))[:, : self.count]
            if self.rules is not None:  # on crisp values, so that rounding can break nothing
                crisp = torch.cat([(raw > 0).to(raw.dtype), given], 1)
                return probs, self.rules(crisp)[:, : self.count] > 0.5
            raw = torch.logit(probs, eps=float(torch.finfo(raw.dtype).eps))
        if self.conditions and self.circuit is not None:
            shares, root = self.circuit(raw, given, False)
            probs = _possible(shares[..., 1].clamp(0, 1), root)
        return probs, self._best(raw, given) if self.sure else raw > 0

    def _best(self, logits: Tensor, given: Tensor) -> Tensor:
        assert self.circuit is not None
        chosen, _ = self.circuit(logits, given, True)
        return chosen[..., 1] > chosen[..., 0]  # type: ignore[no-any-return]

    def _of_mixture(self, raw: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        k = self.way.components
        weights, logits = raw[:, :k].log_softmax(-1), raw[:, k:].reshape(-1, k, self.count)
        flat, seen = logits.flatten(0, 1), given.unsqueeze(1).expand(-1, k, -1).flatten(0, 1)
        probs = (weights.exp().unsqueeze(-1) * logits.sigmoid()).sum(1)
        labels, mean_probs = probs > 0.5, probs
        if self.conditions and self.circuit is not None:
            shares, root = self.circuit(flat, seen, False)
            roots = root.reshape(-1, k)
            own = (weights + roots).softmax(-1)
            mean = (own.unsqueeze(-1) * shares[..., 1].reshape(-1, k, self.count)).sum(1)
            probs = _possible(mean.clamp(0, 1), roots.amax(-1))
        if self.sure:
            between = self._best(torch.logit(mean_probs, eps=float(torch.finfo(raw.dtype).eps)), given).unsqueeze(1)
            found = torch.cat([self._best(flat, seen).reshape(-1, k, self.count), between], 1)
            # log p_j(w) = Σ_i w_i z_ji + log σ(-z_ji), for each world found and each component j
            logs = found.to(raw.dtype) @ logits.transpose(1, 2) + _log_sigmoid(-logits).sum(-1).unsqueeze(1)
            best = (weights.unsqueeze(1) + logs).logsumexp(-1).argmax(-1)
            labels = found.gather(1, best.reshape(-1, 1, 1).expand(-1, 1, self.count)).squeeze(1)
        return probs, labels


def _log_sigmoid(x: Tensor) -> Tensor:
    """log σ(x), written out: as one operation it is exported as the logarithm of a sigmoid, which may be that of 0."""
    return x.clamp(max=0) - torch.log1p(torch.exp(-x.abs()))


def _possible(probs: Tensor, root: Tensor) -> Tensor:
    """NaN for rows that are impossible."""
    return torch.where((root > FLOOR / 1e6).unsqueeze(-1), probs, torch.nan)


def _allowed(head: Choices) -> Tensor:
    """Which choices are allowed for each choice of the given features, bool ``(2 ** given, choices)``."""
    given = len(head.knowledge.given)
    if given > MOST_GIVEN:
        raise ConfigError(f"the knowledge mentions {given} features, more than the {MOST_GIVEN} that can be exported")
    if not head.conditions:
        return torch.ones(2**given, len(head.sets), dtype=torch.bool)
    kinds = (np.arange(2**given)[:, None] >> np.arange(given)) % 2
    return torch.from_numpy(np.stack([head.allowed_by(kind) for kind in kinds]))


def in_folder(path: str | Path) -> Path:
    """The path of a file to write, whose folder must be there."""
    if not (folder := Path(path).parent).is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {folder}; make it first")
    return Path(path)


def to_onnx(module: nn.Module, features: int, path: str | Path) -> None:
    """Write the module as ONNX, for any number of rows."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError("ONNX needs its packages: pip install 'doxa[export]'") from error
    example = torch.from_numpy(np.zeros((2, features), dtype=np.float32))
    rows = torch.export.Dim("rows", min=1)
    torch.onnx.export(
        module,
        (example,),
        path,
        dynamo=True,
        dynamic_shapes=({0: rows},),
        input_names=["x"],
        output_names=["probabilities", "labels"],
        verbose=False,
    )
