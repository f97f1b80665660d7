"""The network of clarity: heads side by side on one description of the inputs, and members beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.data.views import two_views
from robustda.layers import reverse_gradient
from robustda.methods.concord import Members
from robustda.nets import Backbone, Classifier, head

__all__ = ["Chorus", "OneLength", "TwoOpinions"]

_SIZE = 2 / 3  # of a feature, root mean square: as ResNet-50's are, for which the learning rate is right


class TwoOpinions(Classifier):
    """A classifier whose features have one length, so that one learning rate suits all backbones, and members beside.

    It has several heads, each with a bottleneck of its own, which lie side by side in one layer. What the heads say on
    average and what the members say is multiplied. Members who have found nothing out yet say the same of all classes.
    At last all logits are divided by a temperature, so that the probabilities are as sure as they should be.
    """

    temperature: Tensor

    def __init__(self, backbone: Backbone, n_classes: int, width: int, heads: int, *, dropout: float = 0.5) -> None:
        super().__init__(backbone, n_classes, heads * width, dropout=dropout)
        self.f = Chorus(head(width, n_classes, dropout=dropout) for _ in range(heads))  # type: ignore[assignment]
        self.members: Members | None = None
        self.register_buffer("temperature", torch.ones(()))
        self.knowing = backbone.pretrained or backbone.fixed
        """whether its backbone is worth being frozen"""
        self.on_features = False
        """whether its inputs are, for now, what the backbone made of them"""
        self.mirrored = False
        """whether it looks at images and at their mirror images"""
        if self.knowing:
            self.bottleneck.insert(0, OneLength(backbone.out_features))

    def described(self, x: Tensor) -> Tensor:
        if self.on_features:
            return x.float()
        # Training sees images either way round already.
        return two_views(super().described, x) if self.mirrored and not self.training else super().described(x)

    def first(self, described: Tensor) -> Tensor:
        """What the heads say on average, without the members."""
        return super().say(described)

    def each(self, described: Tensor) -> list[Tensor]:
        """The logits of each head of it. A backbone learns from all of them together as it would from one."""
        chorus = cast(Chorus, self.f)
        shared = reverse_gradient(described, -1 / len(chorus.heads))  # reversed twice: made smaller, no more
        return chorus.each(self.bottleneck(shared))

    def say(self, described: Tensor) -> Tensor:
        logits = self.first(described)
        if self.members is not None:
            logits = F.log_softmax(logits, dim=1) / 2 + self.members(described)
        return logits / self.temperature


class Chorus(nn.Module):
    """Heads side by side, each on features of its own. What they say, as log probabilities, is averaged."""

    def __init__(self, heads: Iterable[nn.Module]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def each(self, features: Tensor) -> list[Tensor]:
        parts = features.chunk(len(self.heads), dim=1)
        return [head(part) for head, part in zip(self.heads, parts, strict=True)]

    def forward(self, features: Tensor) -> Tensor:
        return torch.stack([F.log_softmax(logits, dim=1) for logits in self.each(features)]).mean(dim=0)


class OneLength(nn.Module):
    """Every row is brought to the length that suits its width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.length = _SIZE * width**0.5

    def forward(self, x: Tensor) -> Tensor:
        lengthened: Tensor = self.length * F.normalize(x)
        return lengthened
