"""Prototypes: no deep training at all, a line of arithmetic that a deep method has to beat.

Features of the frozen backbone at unit length, each domain's mean subtracted, at unit length again; the class means of
the noisy source, over which wrong labels cancel out; then a few rounds of spherical k-means on the target, which start
from them. On the frozen features of Office-31 this takes a twentieth of a second. (Without the first bringing to unit
length, which keeps a few long vectors from moving the mean, Office-31 loses a quarter of a point.)

In place of a paper: the ingredients are nearest-mean classification, centring as first-order domain alignment, and
spherical k-means (Dhillon and Modha, Concept Decompositions for Large Sparse Text Data Using Clustering, 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.data.batches import Inputs
from robustda.description import describe_all
from robustda.methods.base import Batch, Method, Phase, Task
from robustda.methods.checks import check_at_least
from robustda.methods.registry import register
from robustda.nets import Backbone, Classifier, Identity, Pixels

__all__ = ["PrototypeClassifier", "Prototypes", "class_means", "frozen_backbone", "frozen_features", "no_loss"]

_PART = 30_000  # examples at a time


@register("prototypes")
@dataclass(kw_only=True)
class Prototypes(Method):
    """Class means of the noisy source, moved to the target by spherical k-means. Takes no training steps.

    A backbone without pretrained weights is passed over: the vectors themselves serve, or the pixels.

    Parameters
    ----------
    rounds: rounds of k-means on the target.
    sharpness: what cosines are multiplied with to become logits; it changes probabilities, not predictions.
    """

    summary: ClassVar[str] = "class means and k-means on frozen features, no training: the line to beat"
    paper: ClassVar[str] = (
        "no paper; k-means as in Dhillon and Modha, Concept Decompositions for Large Sparse Text Data Using "
        "Clustering, 2001"
    )

    rounds: int = 10
    sharpness: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, rounds=0, sharpness=0)

    @property
    def frozen(self) -> bool:
        return True

    def network(
        self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True
    ) -> PrototypeClassifier:
        return PrototypeClassifier(frozen_backbone(self, example_shape, pretrained), n_classes)

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.place]

    def place(self, task: Task) -> Phase:
        """The only phase, of no steps: all is done at its end."""
        network = self.network(task.source.example_shape, task.n_classes).requires_grad_(False)

        def place_prototypes() -> None:
            source, target = (Looked(network, inputs, task) for inputs in (task.source, task.target))
            network.mean.copy_(target.mean())
            nowhere = torch.zeros(task.n_classes, network.backbone.out_features, device=task.device)
            prototypes = source.class_means(lambda x, rows: task.labels[rows], source.mean(), nowhere)
            for _ in range(self.rounds):
                nearest = _nearest(prototypes)
                prototypes = target.class_means(nearest, network.mean, prototypes)
            network.prototypes.copy_(self.sharpness * prototypes)

        return Phase("place", network, no_loss, 0, lambda progress: 0.0, end=place_prototypes)


class PrototypeClassifier(Classifier):
    """Cosines between an example's features, the target's mean subtracted, and the prototypes of the classes."""

    def __init__(self, backbone: Backbone, n_classes: int) -> None:
        nn.Module.__init__(self)  # no bottleneck and no head to train
        self.backbone = backbone
        self.bottleneck = nn.Sequential(Centre(backbone.out_features))
        self.f = nn.Sequential(nn.Linear(backbone.out_features, n_classes, bias=False))

    @property
    def mean(self) -> Tensor:
        """The mean that is subtracted from features."""
        return cast(Centre, self.bottleneck[0]).mean

    @property
    def prototypes(self) -> Tensor:
        """One row for each class."""
        return cast(nn.Linear, self.f[0]).weight


class Looked:
    """All inputs of a domain at unit length, a part at a time: there may be more than fit into memory twice."""

    def __init__(self, network: Classifier, inputs: Inputs, task: Task) -> None:
        self._inputs, self._backbone = inputs, network.backbone
        self._made = None if network.backbone.fixed else frozen_features(network, inputs, task)

    def parts(self) -> Iterator[tuple[Tensor, slice]]:
        """Features and the rows whose they are."""
        size = len(self._inputs)
        for start in range(0, size, _PART):
            rows = slice(start, min(start + _PART, size))
            if self._made is not None:
                yield F.normalize(self._made[rows]), rows
            else:
                numbers = torch.arange(rows.start, rows.stop, device=self._inputs.device)
                yield F.normalize(self._backbone(self._inputs.test(numbers, in_order=True)).float()), rows

    def mean(self) -> Tensor:
        """Of all of them."""
        return torch.stack([x.mean(dim=0) * (len(x) / len(self._inputs)) for x, _ in self.parts()]).sum(dim=0)

    def class_means(self, label: Callable[[Tensor, slice], Tensor], mean: Tensor, otherwise: Tensor) -> Tensor:
        """The direction of each class's mean, once `mean` is subtracted; see `class_means`. `label` tells the class."""
        sums = torch.zeros_like(otherwise)
        for x, rows in self.parts():
            centred = F.normalize(x - mean)
            sums.index_add_(0, label(centred, rows), centred)
        return _directions(sums, otherwise)


def frozen_features(network: Classifier, inputs: Inputs, task: Task) -> Tensor:
    """The backbone's features of every input, in order."""
    backbone = network.backbone
    found = describe_all(backbone, inputs, low_precision=backbone.low_precision, progress=task.progress, heed=task.heed)
    return torch.from_numpy(found).to(inputs.device)


def frozen_backbone(method: Method, example_shape: tuple[int, ...], pretrained: bool) -> Backbone:
    """The method's backbone if it is pretrained; else the vectors themselves, or the pixels."""
    backbone = method.make_backbone(example_shape, pretrained)
    if backbone.pretrained or backbone.fixed:
        return backbone
    if len(example_shape) == 1:
        return Identity(example_shape[0])
    pixels = Pixels()
    pixels.out_features = 3 * min(32, example_shape[0]) ** 2
    return pixels


class Centre(nn.Module):
    """To unit length, less the mean, to unit length again."""

    mean: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(F.normalize(x) - self.mean)


def class_means(x: Tensor, labels: Tensor, otherwise: Tensor) -> Tensor:
    """The direction of each class's mean; a class without examples stays where it was."""
    return _directions(torch.zeros_like(otherwise).index_add_(0, labels, x), otherwise)


def _nearest(prototypes: Tensor) -> Callable[[Tensor, slice], Tensor]:
    return lambda x, rows: (x @ prototypes.T).argmax(dim=1)


def _directions(sums: Tensor, otherwise: Tensor) -> Tensor:
    norms = sums.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, sums / norms.clamp(min=torch.finfo(sums.dtype).tiny), otherwise)


def no_loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
    """Nothing is trained."""
    raise RuntimeError("prototypes take no training steps")
