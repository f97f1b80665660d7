"""Concord, no paper's but ours: believed labels, a shared subspace, and pseudo-labels from prototypes and clusters.

Works on frozen features, in seconds on a CPU, and needs neither a noise rate nor any other word on the noise.

1. Every source label is judged by examples that are like it (`noise/evidence.py`): it is believed, replaced by a class
   that is more likely than not, or left out.
2. In rounds: a linear subspace in which examples of one class lie together and classes apart (supervised locality
   preserving projections), from the source and from the target examples that are labelled so far; each domain's mean is
   subtracted there. Target examples are compared with the class means of the source and with the centres of their own
   clusters, which start from these means; the surer of the two decides.
3. After each round the surest share of every predicted class is labelled, one part more each time, until all are.
4. All of that several times, each time from another part of the source. One such member may take a wrong turn early
   and follow it round by round; what the members say on average hardly does.

The rounds are those of Wang and Breckon, Unsupervised Domain Adaptation via Structured Prediction Based Selective
Pseudo-Labeling, AAAI 2020, who assume right labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.columns import Described, rows_of
from robustda.data.batches import Inputs, derive_seed
from robustda.methods.base import Phase, Task
from robustda.methods.belief import Believing
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.prototypes import class_means, frozen_backbone, frozen_features, no_loss
from robustda.methods.registry import register
from robustda.nets import Backbone, Classifier, Pixels

__all__ = ["BLOCK", "Concord", "ConcordClassifier", "some_rows"]

BLOCK = 2048
"""Examples at a time where there are many."""


@dataclass(kw_only=True)
class Agreeing(Believing):
    """A method that asks members: each learns a subspace from a part of the source, and labels the target in rounds.

    Parameters
    ----------
    members: how often the rounds are gone through; predictions are averages over these.
    member_share: the part of the source's believed examples that each member learns from, drawn at random.
    rounds: rounds in which ever more of the target is labelled; after the last of them all of it is.
    components: principal components of both domains together that are kept before anything else.
    dimensions: dimensions of the supervised subspace.
    ridge: what is added to the scatter within classes, as a number of examples of unit length.
    sharpness: what log scores are multiplied with to become logits.
    """

    paper: ClassVar[str] = (
        "no paper; rounds as in Wang and Breckon, Unsupervised Domain Adaptation via Structured Prediction Based "
        "Selective Pseudo-Labeling, AAAI 2020"
    )

    members: int = 10
    member_share: float = 0.8
    rounds: int = 10
    components: int = 128
    dimensions: int = 128
    ridge: float = 1.0
    sharpness: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, members=1, rounds=1, components=1, dimensions=1, ridge=1e-9, sharpness=0)
        check_share(self, "member_share")

    @property
    def frozen(self) -> bool:
        return True

    def members_for(self, width: int, n_classes: int) -> Members:
        """Room for what the members find out, from features of this width."""
        components = min(self.components, width)
        return Members(width, n_classes, components, min(self.dimensions, components), self.members, self.sharpness)

    def opinions(
        self,
        source: Tensor,
        labels: Tensor | Sequence[Tensor],
        target: Tensor,
        *,
        block: int = 0,
        known: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """What the network needs. Features are of unit length, labels rows of zeros and ones.

        There may be several readings of the labels: the members take them in turn.

        With `block` so many features are made double at a time, else all: less memory, and other rounding. The mean and
        the components of these very features may be `known`: to find them takes as long as several members' rounds.
        """
        if known:
            mean, components = known["mean"], known["components"]
            xs, xt = (F.normalize((part.double() - mean) @ components) for part in (source, target))
        else:
            xs, xt, mean, components = projection(source, target, min(self.components, source.shape[1]), block)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "members"))
        readings = [labels] if isinstance(labels, Tensor) else labels
        members = []
        for number in range(self.members):
            own = readings[number % len(readings)]
            some = member_rows(own, 1.0 if self.members == 1 else self.member_share, generator)
            members.append(self.last_round(xs[some], own[some], xt))
        stacked = {name: torch.stack([member[name] for member in members]) for name in members[0]}
        return {"mean": mean, "components": components} | stacked

    def last_round(self, xs: Tensor, labels: Tensor, xt: Tensor) -> dict[str, Tensor]:
        """What one member has after its last round, from principal components of source and target."""
        chosen = torch.zeros(len(xt), labels.shape[1], dtype=torch.float64)
        for number in range(1, self.rounds + 2):
            basis = subspace(torch.cat([xs, xt]), torch.cat([labels, chosen]), self.ridge, self.dimensions)
            zs, shift = xs @ basis, (xt @ basis).mean(dim=0)
            zs = F.normalize(zs - (labels.sum(dim=1) @ zs) / labels.sum())
            zt = F.normalize(xt @ basis - shift)
            prototypes = F.normalize(labels.T @ zs)
            centres = prototypes
            for _ in range(10):
                centres = class_means(zt, (zt @ centres.T).argmax(dim=1), centres)
            chosen = surest(agreement(zt, prototypes, centres), min(1.0, number / self.rounds))
        return {"basis": basis, "shift": shift, "prototypes": prototypes, "centres": centres}


@register("concord")
@dataclass(kw_only=True)
class Concord(Agreeing):
    """Labels that are believed, a subspace that both domains share, and target labels from the surest on.

    A backbone without pretrained weights is passed over: the vectors themselves serve, or the pixels.
    """

    summary: ClassVar[str] = (
        "believed labels, a shared subspace, clusters and prototypes in agreement; seconds on a CPU"
    )

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> ConcordClassifier:
        backbone = frozen_backbone(self, example_shape, pretrained)
        return ConcordClassifier(backbone, self.members_for(backbone.out_features, n_classes))

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.agree]

    def agree(self, task: Task) -> Phase:
        """The only phase, of no steps: all is done at its end."""
        network = self.network(task.source.example_shape, task.n_classes).requires_grad_(False)

        def settle() -> None:
            source, target = (_features(network, inputs, task) for inputs in (task.source, task.target))
            pixels = isinstance(network.backbone, Pixels)
            belief = self.believed(source, task, lambda some: _unit(some).numpy(), by_pixels=pixels)
            rows, there = some_rows(np.arange(len(source)), np.arange(len(target)), task.n_classes)
            some = (len(rows), len(there)) != (len(source), len(target))
            labels, block = belief.rows(torch.from_numpy(rows)), BLOCK if some else 0
            xs, xt = _unit(source[rows]), _unit(target[there])
            network.settle(self.opinions(xs, labels, xt, block=block))
            codes = belief.codes[torch.from_numpy(rows)].numpy()
            self.look_for_classes(xs.numpy(), [codes], xt.numpy(), task, rows)

        return Phase("agree", network, no_loss, 0, lambda progress: 0.0, end=settle)


class ConcordClassifier(Classifier):
    """Features of a frozen backbone, projected by each member, and compared with its prototypes and centres."""

    def __init__(self, backbone: Backbone, members: Members) -> None:
        nn.Module.__init__(self)  # no bottleneck and no head to train
        self.backbone = backbone
        project, agree = members
        self.bottleneck, self.f = nn.Sequential(project), nn.Sequential(agree)

    def settle(self, found: dict[str, Tensor]) -> None:
        """Take over what the members found."""
        take_over(found, self.bottleneck[0], self.f[0])


class Members(nn.Sequential):
    """What the members say of features: logits."""

    def __init__(
        self, width: int, n_classes: int, components: int, dimensions: int, members: int, sharpness: float
    ) -> None:
        super().__init__(
            Project(width, components, dimensions, members), Agree(dimensions, n_classes, members, sharpness)
        )

    def settle(self, found: dict[str, Tensor]) -> None:
        """Take over what the members found."""
        take_over(found, *self)


def some_rows(source: np.ndarray, target: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both domains, or where one of them is large so many, spread evenly, as are enough."""
    from robustda.noise.strangers import ALL, enough

    if max(len(source), len(target)) <= ALL:
        return source, target
    counts = (min(enough(n_classes), len(rows)) for rows in (source, target))
    places = [
        np.linspace(0, len(rows) - 1, count).round() for rows, count in zip((source, target), counts, strict=True)
    ]
    return source[places[0].astype(np.int64)], target[places[1].astype(np.int64)]


def projection(source: Tensor, target: Tensor, count: int, block: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Both domains on the main directions of both together, at unit length; the mean, and these directions."""
    if not block:
        both = torch.empty(len(source) + len(target), source.shape[1], dtype=torch.float64)
        both[: len(source)], both[len(source) :] = source, target
        mean = both.mean(dim=0)
        both -= mean
        components = principal(both.T @ both, count)
        xs, xt = (F.normalize(_aligned(part) @ components) for part in (both[: len(source)], both[len(source) :]))
        return xs, xt, mean, components
    parts = [*torch.split(source, block), *torch.split(target, block)]
    mean = torch.stack([part.double().sum(dim=0) for part in parts]).sum(dim=0) / (len(source) + len(target))
    square = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for part in parts:
        centred = part.double() - mean
        square += centred.T @ centred
    components = principal(square, count)
    xs, xt = (
        torch.cat([F.normalize((part.double() - mean) @ components) for part in torch.split(x, block)])
        for x in (source, target)
    )
    return xs, xt, mean, components


def _aligned(x: Tensor) -> Tensor:
    """The same at an address as memory of its own would have: how a product is rounded may depend on that."""
    return x if x.data_ptr() % 64 == 0 else x.clone()


def _features(network: ConcordClassifier, inputs: Inputs, task: Task) -> Described:
    if network.backbone.fixed:
        return rows_of(network.backbone, inputs.array)
    return frozen_features(network, inputs, task).cpu().numpy()


def _unit(features: Described) -> Tensor:
    return F.normalize(torch.from_numpy(np.array(features)))


def take_over(found: dict[str, Tensor], *modules: nn.Module) -> None:
    """Fill the modules with what was found, by name."""
    for module in modules:
        for name, tensor in module.state_dict().items():
            tensor.copy_(found[name])


class Project(nn.Module):
    """Onto the principal components, then onto each member's subspace less the target's mean, each time to unit length.

    The members' projections stand side by side.
    """

    mean: Tensor
    components: Tensor
    basis: Tensor
    shift: Tensor

    def __init__(self, width: int, components: int, dimensions: int, members: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("components", torch.zeros(width, components))
        self.register_buffer("basis", torch.zeros(members, components, dimensions))
        self.register_buffer("shift", torch.zeros(members, dimensions))

    def forward(self, x: Tensor) -> Tensor:
        projected = F.normalize((F.normalize(x) - self.mean) @ self.components)
        by_member = torch.einsum("nc,mcd->nmd", projected, self.basis) - self.shift
        return F.normalize(by_member, dim=2).flatten(1)


class Agree(nn.Module):
    """The surer of two opinions, of the source's prototypes and of the target's own centres: the members' mean."""

    def __init__(self, dimensions: int, n_classes: int, members: int, sharpness: float) -> None:
        super().__init__()
        self.sharpness = sharpness
        self.prototypes = nn.Parameter(torch.zeros(members, n_classes, dimensions), requires_grad=False)
        self.centres = nn.Parameter(torch.zeros(members, n_classes, dimensions), requires_grad=False)

    def forward(self, z: Tensor) -> Tensor:
        members, _, dimensions = self.prototypes.shape
        parts = z.view(-1, members, dimensions).transpose(0, 1)
        scores = agreement(parts, self.prototypes, self.centres)
        return self.sharpness * (scores / scores.sum(dim=2, keepdim=True)).mean(dim=0).log()


def member_rows(labels: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Rows for one member: so large a part at random, but all rows of a class that would be left without any."""
    some = torch.rand(len(labels), generator=generator) < share
    lost = (labels * some[:, None]).sum(dim=0) == 0
    return some | ((labels * lost).sum(dim=1) > 0)


def principal(square: Tensor, count: int) -> Tensor:
    """The directions (d, count) in which centred rows vary most, from XᵀX."""
    _, vectors = torch.linalg.eigh(square)
    return cast(Tensor, vectors.flip(dims=[1])[:, :count])


def subspace(x: Tensor, labels: Tensor, ridge: float, dimensions: int) -> Tensor:
    """Supervised locality preserving projections: XᵀDX v = λ(XᵀLX + ridge·I) v, the largest λ first.

    W = labels·labelsᵀ, D its row sums, L = D − W; none of these m × m matrices is made. Rows of zeros in `labels`, the
    examples without one, have no part in it.
    """
    together = x.T @ labels
    degree = labels @ labels.sum(dim=0)
    whole = (x * degree[:, None]).T @ x
    within = whole - together @ together.T + ridge * torch.eye(x.shape[1], dtype=x.dtype)
    root = torch.linalg.cholesky(within)
    inner = torch.linalg.solve_triangular(root, whole, upper=False)
    inner = torch.linalg.solve_triangular(root, inner.T, upper=False)
    _, vectors = torch.linalg.eigh((inner + inner.T) / 2)
    back = torch.linalg.solve_triangular(root.T, vectors, upper=True)
    return cast(Tensor, back.flip(dims=[1])[:, :dimensions])


def agreement(z: Tensor, prototypes: Tensor, centres: Tensor) -> Tensor:
    """For each class the larger of two probabilities, a softmax of squared distances to prototypes and to centres."""
    opinions = [torch.softmax(2 * z @ means.mT, dim=-1) for means in (prototypes, centres)]
    return torch.maximum(*opinions)


def surest(scores: Tensor, share: float) -> Tensor:
    """Rows of zeros and ones: of every predicted class the share with the highest scores, rounded up, is labelled."""
    best, predicted = scores.max(dim=1)
    chosen = torch.zeros_like(scores)
    for label in range(scores.shape[1]):
        rows = (predicted == label).nonzero()[:, 0]
        count = max(0, math.ceil(share * len(rows) - 1e-9))
        rows = rows[best[rows].argsort(descending=True, stable=True)[:count]]
        chosen[rows, label] = 1
    return chosen
