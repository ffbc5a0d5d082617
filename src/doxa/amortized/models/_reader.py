"""Models that compute one feature for every place and read it, token by token."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from doxa.amortized.models._model import Carry, InferenceModel


class FeatureReader(InferenceModel):
    """One pass over the belief gives every place a feature; a recurrent cell reads the feature where each token stands.

        φ = f(P),    h_i = GRU(φ[place_i] + token_{i-1}, h_{i-1}),    q(t_i | …) = softmax(MLP(h_i, φ[place_i])).

    A model says what the features are and which place comes next, and calls ``make_reader`` last when it is made.
    """

    @abstractmethod
    def features(self, probs: Tensor) -> Tensor:
        """One feature for every place: ``(R, places, channels)``."""

    @abstractmethod
    def place(self, place: Tensor, token: Tensor | None, t: int) -> Tensor:
        """The place ``(R,)`` of position t, from that of the one before (0 at first) and the token decided there."""

    def make_reader(self, channels: int) -> None:
        """The layers that read features."""
        self.tokens = nn.Embedding(self.width + 2, channels)  # the last two stand for no token, and for worlds to come
        self.cell = nn.GRU(channels, channels)
        self.head = nn.Sequential(nn.Linear(2 * channels, channels), nn.ReLU(), nn.Linear(channels, self.width))

    def _inputs(self, before: Tensor, first: int) -> Tensor:
        """Embedded tokens before each position from ``first`` on; worlds are told apart from outputs."""
        chosen = torch.where(before < 0, self.width, before)
        position = torch.arange(first, first + before.shape[-1], device=before.device)
        worlds = (position >= len(self.problem.output)).to(self.tokens.weight.dtype).unsqueeze(-1)
        x: Tensor = self.tokens(chosen) + worlds * self.tokens.weight[-1]
        return x

    def start(self, probs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        rows = torch.arange(len(probs), device=probs.device)
        features = self.features(probs)
        return (features,), (rows, torch.zeros_like(rows), features.new_zeros(len(probs), features.shape[-1]))

    def advance(self, carry: Carry, token: Tensor | None) -> tuple[Tensor, Carry]:
        (features,), (rows, place, hidden), t = carry.shared, carry.state, carry.position
        place = self.place(place, token, t)
        before = torch.full_like(place, -1) if token is None else token
        here = features[rows, place]
        x = here + self._inputs(before.unsqueeze(-1), t)[:, 0]
        hidden = self.cell(x.unsqueeze(0), hidden.unsqueeze(0).contiguous())[1][0]
        logits: Tensor = self.head(torch.cat([hidden, here], -1))
        return logits, Carry(t + 1, carry.shared, (rows, place, hidden))

    def scores(self, probs: Tensor, tokens: Tensor) -> Tensor:
        features = self.features(probs)
        place, places = torch.zeros_like(tokens[:, 0]), []
        for t in range(tokens.shape[-1]):
            place = self.place(place, tokens[:, t - 1] if t else None, t)
            places.append(place)
        here = features.gather(1, torch.stack(places, -1).unsqueeze(-1).expand(-1, -1, features.shape[-1]))
        before = torch.cat([torch.full_like(tokens[:, :1], -1), tokens[:, :-1]], -1)
        x = here + self._inputs(before, 0)
        hidden = self.cell(x.transpose(0, 1))[0].transpose(0, 1)
        logits: Tensor = self.head(torch.cat([hidden, here], -1))
        return logits
