"""The network of clarity: heads side by side on one description of the inputs, and members beside them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.data.views import two_views
from robustda.layers import reverse_gradient
from robustda.methods.concord import Members
from robustda.nets import Backbone, Classifier, head, look
from robustda.noise.vectors import unit
from robustda.noise.witnesses import Description
from robustda.theory import fit_head

__all__ = ["Chorus", "OneLength", "Plain", "TwoOpinions"]

_NEVER = -1e4  # the logarithm of what does not happen
_SIZE = 2 / 3  # of a feature, root mean square: as ResNet-50's are, for which the learning rate is right


class TwoOpinions(Classifier):
    """A classifier whose features have one length, so that one learning rate suits all backbones, and members beside.

    It has several heads, each with a bottleneck of its own, which lie side by side in one layer. What the heads say on
    average and what the members say is multiplied. Members who have found nothing out yet say the same of all classes.
    Where classes overlap, a plain linear classifier has a say, too.
    Where classes are few and unequal, heads and members tell kinds of them apart (`kinds.py`).
    At last all logits are divided by a temperature, so that the probabilities are as sure as they should be, and
    classes that the target seems to lack are made less likely.

    Where the backbone is tuned, the members may go by a copy of it `as_it_came`: in tuned features the classes lie as
    the network takes them, and whoever looks for clusters there finds its mistakes confirmed.
    """

    temperature: Tensor
    prior: Tensor
    whose: Tensor | None

    def __init__(self, backbone: Backbone, n_classes: int, width: int, heads: int, *, dropout: float = 0.5) -> None:
        super().__init__(backbone, n_classes, heads * width, dropout=dropout)
        self._head = partial(head, width, dropout=dropout)
        self.f = Chorus(self._head(n_classes) for _ in range(heads))  # type: ignore[assignment]
        self.members: Members | None = None
        self.plain: Plain | None = None
        self.as_it_came: Backbone | None = None
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("prior", torch.zeros(n_classes))
        self.register_buffer("whose", None)
        self.knowing = backbone.pretrained or backbone.fixed
        """whether its backbone is worth being frozen"""
        self.on_features = False
        """whether its inputs are, for now, what the backbone made of them"""
        self.mirrored = False
        """whether it looks at images and at their mirror images"""
        if self.knowing:
            self.bottleneck.insert(0, OneLength(backbone.out_features))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        # Models of before these were there.
        state.setdefault(f"{prefix}prior", torch.zeros_like(self.prior))
        if self.plain is not None and f"{prefix}plain.say" not in state:
            state |= {f"{prefix}plain.{name}": torch.zeros_like(t) for name, t in self.plain.state_dict().items()}
        super()._load_from_state_dict(state, prefix, *rest)

    def divide(self, whose: Tensor, members: Members | None) -> None:
        """Have heads, and these members, tell kinds apart; `whose` says of which class each kind is."""
        self.whose, self.members = whose.clone(), members
        self.f = Chorus(self._head(len(whose)) for _ in cast(Chorus, self.f).heads)  # type: ignore[assignment]
        self.train(self.training)

    def keep_as_it_came(self) -> None:
        """Keep a copy of the backbone as it is now, for the members."""
        self.as_it_came = copy.deepcopy(self.backbone).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.as_it_came is not None:
            self.as_it_came.eval()
        return self

    def described(self, x: Tensor) -> Tensor:
        """What the backbone makes of the inputs; not in training, beside it what it made of them as it came."""
        if self.on_features:
            return x.float()
        if self.training:  # which sees images either way round already
            return look(self.backbone, x)
        backbones = [self.backbone] if self.as_it_came is None else [self.backbone, self.as_it_came]
        seen = [two_views(partial(look, one), x) if self.mirrored else look(one, x) for one in backbones]
        return seen[0] if len(seen) == 1 else torch.cat(seen, dim=1)

    def features(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.bottleneck(self._own(self.described(x))))

    def first(self, described: Tensor) -> Tensor:
        """What the heads say on average, without the members."""
        return super().say(self._own(described))

    def each(self, described: Tensor) -> list[Tensor]:
        """The logits of each head of it. A backbone learns from all of them together as it would from one."""
        chorus = cast(Chorus, self.f)
        shared = reverse_gradient(self._own(described), -1 / len(chorus.heads))  # reversed twice: made smaller, no more
        return chorus.each(self.bottleneck(shared))

    def say(self, described: Tensor) -> Tensor:
        logits = self.first(described)
        if self.members is not None:
            seen = described[:, -self.backbone.out_features :]
            logits = self._of_classes(F.log_softmax(logits, dim=1) / 2 + self.members(seen))
            if self.plain is not None:
                logits = logits + self.plain(seen)
        else:
            logits = self._of_classes(logits)
        return logits / self.temperature + self.prior

    def _of_classes(self, logits: Tensor) -> Tensor:
        """Of kinds: the logarithms of what is said of all kinds of a class together."""
        if self.whose is None:
            return logits
        elsewhere = _NEVER * (1 - F.one_hot(self.whose, len(self.prior)).to(logits.dtype))
        return torch.logsumexp(F.log_softmax(logits, dim=1)[:, :, None] + elsewhere, dim=1)

    def _own(self, described: Tensor) -> Tensor:
        return described[:, : self.backbone.out_features]


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


class Plain(nn.Module):
    """A linear classifier of features from which the target's mean was subtracted, with so much of a say.

    Whoever adapts to the target relies on its clusters; where classes overlap these are something else.
    """

    mean: Tensor
    weight: Tensor
    say: Tensor

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("weight", torch.zeros(n_classes, width))
        self.register_buffer("say", torch.zeros(()))

    @torch.no_grad()
    def settle(self, source: np.ndarray, readings: Tensor, target: np.ndarray, say: float, seed: int) -> None:
        """Learn from features of unit length, and from each reading of the source's labels, −1 for nothing.

        Averaged logits are those of averaged weights.
        """
        mean = target.mean(axis=0)
        here, there = unit(source - source.mean(axis=0)), unit(target - mean)
        look = Description(np.concatenate([here, there]), seed)
        directions = np.eye(here.shape[1], dtype=np.float32) if look.directions is None else look.directions
        x, found = here @ directions.T, torch.zeros_like(self.weight)
        for codes in readings.cpu().numpy():
            weights = fit_head(x[codes >= 0], codes[codes >= 0], len(found)).weights
            found += torch.from_numpy(weights @ directions).to(found)
        self.mean.copy_(torch.from_numpy(mean))
        self.weight.copy_(found / len(readings))
        self.say.fill_(say)

    def forward(self, x: Tensor) -> Tensor:
        return self.say * F.log_softmax(F.linear(F.normalize(F.normalize(x) - self.mean), self.weight), dim=1)


class OneLength(nn.Module):
    """Every row is brought to the length that suits its width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.length = _SIZE * width**0.5

    def forward(self, x: Tensor) -> Tensor:
        lengthened: Tensor = self.length * F.normalize(x)
        return lengthened
