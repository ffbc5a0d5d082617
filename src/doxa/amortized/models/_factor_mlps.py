"""One network per factor, all of them evaluated in one batched matrix product: the dissertation's model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from doxa.amortized._logspace import one_hot
from doxa.amortized.models._model import Carry, InferenceModel
from doxa.errors import ConfigError
from doxa.problem import Problem


class FactorMLPs(InferenceModel):
    """A network of its own for every variable, which sees the whole belief and the tokens before.

        q(t_i | t_{<i}, P) = softmax(MLP_i(P, t_{<i}))         (dissertation, "Multi-digit MNISTAdd": 3 layers of 800)

    The i-th weights of all networks are one tensor ``(T, in, out)``, so that a layer of all networks is one batched
    matrix product. Tokens that a network may not see are zeros in its input.

    >>> from doxa.problem import Belief, addition
    >>> model = FactorMLPs(addition(2), hidden=50, layers=2)
    >>> model.log_prob(Belief.uniform((10,) * 4, batch=(8,)), torch.zeros(8, 7, dtype=torch.int64)).shape
    torch.Size([8])
    """

    def __init__(self, problem: Problem, *, hidden: int = 800, layers: int = 3, explain: bool = True) -> None:
        super().__init__(problem, explain=explain)
        if hidden < 1 or layers < 1:
            raise ConfigError(f"hidden is {hidden} and layers is {layers}, expected at least 1 of each")
        count = len(self.sizes)
        self.inputs = len(self.seen) * max(self.seen)
        before = torch.arange(count).repeat_interleave(self.width) < torch.arange(count).unsqueeze(-1)
        self.before: Tensor
        self.register_buffer("before", before.unsqueeze(1), persistent=False)  # (T, 1, T·D): what each network sees
        seen = self.inputs + before.sum(-1).double()
        widths = [hidden] * layers + [self.width]
        self.from_belief = _uniform((count, self.inputs, widths[0]), seen)
        self.from_tokens = _uniform((count, count * self.width, widths[0]), seen)
        fans = [seen] + [torch.full_like(seen, hidden) for _ in range(layers)]
        self.biases = nn.ParameterList([_uniform((count, 1, w), fan) for w, fan in zip(widths, fans, strict=True)])
        self.weights = nn.ParameterList(
            [_uniform((count, hidden, w), fan) for w, fan in zip(widths[1:], fans[1:], strict=True)]
        )
        with torch.no_grad():  # what is never seen never matters; zeros make that visible
            self.from_tokens.mul_(before.unsqueeze(-1))

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        return (probs.flatten(1),), (rows, probs.new_zeros(len(probs), len(self.sizes) * self.width))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (belief,), (rows, seen), i = carry.shared, carry.state, carry.position
        if token is not None:
            seen = seen.clone()
            seen[:, (i - 1) * self.width : i * self.width] = one_hot(token, self.width, seen.dtype)
        used = i * self.width
        x = (belief @ self.from_belief[i])[rows] + seen[:, :used] @ self.from_tokens[i, :used] + self.biases[0][i]
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            x = torch.addmm(bias[i], x.relu(), weight[i])
        return x, Carry(i + 1, carry.shared, (rows, seen))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        length, rows = tokens.shape[-1], len(probs)
        belief = probs.flatten(1).expand(length, rows, -1)
        x = torch.baddbmm(_first(self.biases[0], length), belief, _first(self.from_belief, length))
        used = (length - 1) * self.width  # the last token is seen by nobody
        if used:
            seen = one_hot(tokens[:, :-1], self.width, probs.dtype).flatten(1) * self.before[:length, :, :used]
            x = torch.baddbmm(x, seen, _first(self.from_tokens, length)[:, :used])
        for weight, bias in zip(self.weights, self.biases[1:], strict=True):
            x = torch.baddbmm(_first(bias, length), x.relu(), _first(weight, length))
        return x.transpose(0, 1)


def _first(x: Tensor, length: int) -> Tensor:
    """The weights of the first networks; of all of them without a slice, whose derivative would copy everything."""
    return x if len(x) == length else x[:length]


def _uniform(shape: tuple[int, ...], fan: Tensor) -> nn.Parameter:
    """As ``nn.Linear`` starts: uniform within 1/√fan, for each network its own number of inputs."""
    bound = fan.rsqrt().reshape(-1, 1, 1).float()
    return nn.Parameter((2 * torch.rand(shape) - 1) * bound)
