"""A trained classifier as one module of plain tensor operations, which torch.export and ONNX take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from doxa.errors import ConfigError
from doxa.exact import Constraint
from doxa.exact.circuits._semirings import FLOOR
from doxa.refine import Rules
from doxa.sklearn._heads import Head, MultiClass, MultiLabel
from doxa.sklearn._network import Whole


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
        self.plan = [(layer.joins, layer.first, layer.last) for layer in layers.layers]
        self.register_buffer("sources", compiled.sources, persistent=False)
        self.register_buffer("always", compiled.always, persistent=False)
        for i, layer in enumerate(layers.layers):
            self.register_buffer(f"children{i}", layer.children, persistent=False)
            self.register_buffer(f"owners{i}", layer.nodes, persistent=False)

    def forward(self, logits: Tensor, best: bool) -> Tensor:
        """The derivatives for "true" and "false" of each label, ``(n, labels, 2)``: probabilities, or 0 and 1."""
        pair = torch.stack([nn.functional.logsigmoid(-logits), nn.functional.logsigmoid(logits)], -1)
        weights = torch.cat([pair.flatten(1), torch.zeros_like(logits[:, :1])], 1).T.clamp(min=FLOOR)
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
        chosen = torch.zeros_like(weights)
        chosen = chosen.scatter_add(0, self.sources.unsqueeze(-1).expand(-1, weights.shape[1]), slopes[: self.literals])
        if len(self.always):
            fixed = self.always.unsqueeze(-1).expand(-1, weights.shape[1])
            chosen = chosen.scatter_add(0, fixed, torch.ones_like(chosen[: len(self.always)]))
        return chosen[:-1].T.reshape(-1, self.labels, 2)


class Deployed(nn.Module):
    """Features ``(n, features)`` in; probabilities ``(n, labels)`` and labels, bool ``(n, labels)``, out.

    What the classifier guarantees holds here too.
    """

    def __init__(self, whole: Whole, head: Head) -> None:
        super().__init__()
        if head.knowledge.given:
            given = ", ".join(head.knowledge.given)
            raise ConfigError(f"the knowledge mentions features ({given}), whose truth cannot be exported yet")
        if head.way.components:
            raise ConfigError("the most probable output of a mixture is searched for, which cannot be exported")
        self.whole, self.many = whole, isinstance(head, MultiLabel)
        self.layer: nn.Module | None = None
        self.rules: Rules | None = None
        self.circuit: Circuit | None = None
        self.allowed: Tensor
        if isinstance(head, MultiClass):
            keeps = head.way.guarantee or head.way.learn in ("constrained", "layer")
            mask = head.allowed(1, None) if keeps else torch.ones(1, head.count, dtype=torch.bool)
            self.register_buffer("allowed", mask.clone(), persistent=False)
            return
        assert isinstance(head, MultiLabel)
        self.layer = head.layer
        self.conditions = head.knows and (head.way.guarantee or head.way.learn == "constrained")
        if not head.knows or not (head.way.guarantee or self.conditions):
            return
        if head.layer is not None:
            self.rules = head.knowledge.rules
        if self.rules is None:
            if head.circuit is None:
                raise ConfigError("the knowledge has no affordable circuit; export with guarantee=False")
            self.circuit = Circuit(head.circuit)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raw = self.whole(x)
        if not self.many:
            masked = raw.masked_fill(~self.allowed, -torch.inf)
            best = masked.argmax(-1, keepdim=True)
            return masked.softmax(-1), torch.arange(raw.shape[1], device=raw.device) == best
        if self.layer is not None:
            probs = self.layer(raw.sigmoid())
            if self.rules is not None:  # on crisp values, so that rounding can break nothing
                return probs, self.rules((raw > 0).to(raw.dtype)) > 0.5
            raw = torch.logit(probs, eps=float(torch.finfo(raw.dtype).eps))
        else:
            probs = raw.sigmoid()
        if self.circuit is None:
            return probs, raw > 0
        chosen = self.circuit(raw, True)
        if self.layer is None:
            probs = self.circuit(raw, False)[..., 1].clamp(0, 1)
        return probs, chosen[..., 1] > chosen[..., 0]


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
