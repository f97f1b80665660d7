"""What a method is: a dataclass of hyper-parameters with a list of phases.

To add one, write a file with a dataclass that derives from `Method`, name it with ``@register("name")`` and give it
`phases`. The command line, the config file, the docs and the common tests pick it up from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor, nn

from robustda.backbones import (
    ModuleBackbone,
    describe_module,
    hugging_face_backbone,
    layers,
    set_checkpointing,
)
from robustda.columns import Table
from robustda.errors import ConfigError, RunError
from robustda.methods.checks import check_at_least, check_share, check_types
from robustda.methods.task import Batch, Phase, Schedule, Task
from robustda.nets import FOR_VECTORS, Backbone, Classifier, create_backbone, usual_backbone

if TYPE_CHECKING:
    from os import PathLike

    from robustda.data.domain import Domain

__all__ = ["Batch", "Method", "Phase", "Schedule", "Task"]


class Fitted:
    """What fitting leaves on a method, with scikit-learn's trailing underscore."""

    classes_: np.ndarray
    """The class names, in the order of the columns of `predict_proba`."""
    network_: Classifier
    """The network that predicts."""
    history_: Any
    """What was logged, as a DataFrame: phase, step, metric, value."""
    summary_: dict[str, Any]
    """What `summary.json` holds."""
    trust_: np.ndarray
    """For each source example, 1 if the curriculum trusted it and 0 if not (methods with a curriculum)."""
    learned_as_: np.ndarray
    """For each source example, the class it was learned as, by its place in `classes_`; −1 if it was left out. Not all
    that is not trusted is left out: clarity and concord take some for another class (methods with a curriculum)."""
    noise_rate_: float
    """The share of wrong labels in the source, as given or estimated (methods with a curriculum)."""
    image_size_: int
    """The side that image files are resized to (0 for vectors)."""
    example_shape_: tuple[int, ...]
    """The shape of one example as the network sees it."""
    profile_: list[tuple[str, float, float, int]]
    """Where the time went: section, seconds, share, calls; empty unless asked for by ``profile=True``."""
    backbone_recipe_: dict[str, Any]
    """What builds a Hugging Face backbone again without the hub (absent for others)."""
    features_: tuple[str, ...]
    """The names of the features, where the data came from a table; later tables are matched by them."""
    columns_: dict[str, Tensor]
    """What a `Table` has to know of the columns of both domains (empty for images)."""


@dataclass(kw_only=True)
class Method(Fitted):
    """The settings that all methods share.

    Parameters
    ----------
    backbone: representation ψ: identity, table or mlp for vectors, small_cnn, resnet50_v1, any timm name, or hf: and
        the name or folder of a Hugging Face vision model for images; in Python any nn.Module. auto takes table for
        vectors of up to 100 numbers, identity for longer ones, small_cnn for images of up to 64 pixels, resnet50 above.
    weights: where the backbone's weights come from: hub (as published), random, or a safetensors file; auto is hub for
        a timm or Hugging Face backbone, random for the small ones. A module comes with its own: random says that they
        have learned nothing yet.
    width: width of the bottleneck and the heads (W).
    dropout: dropout in the bottleneck and the heads.
    steps: number of training steps (N_max).
    batch_size: source examples in a step; as many target examples join them.
    learning_rate: of the new layers (η); a pretrained backbone learns at `backbone_rate` times this.
    backbone_rate: the learning rate of a pretrained backbone, as a share of the others'.
    layer_decay: each layer of the backbone learns at this share of the rate of the layer above it.
    batch_norm: whether a pretrained backbone's batch norm learns the statistics of both domains, batch by batch, or
        keeps those that it came with.
    pooling: how the last map of a convolutional backbone becomes features: mean over its area, as backbones come, or
        peaks, the generalized mean of the third power, in which a background counts less. auto is peaks where the
        backbone stays frozen and its map is cut off below zero (by a ReLU), and mean everywhere else.
    checkpointing: recompute the backbone's activations in the backward pass, which saves memory and costs a third of
        the time; batch norm then sees every batch twice.
    decay: the learning rate falls as (1 + decay·i)^−.75 with the iteration i; 0 keeps it constant.
    momentum: Nesterov momentum.
    weight_decay: L2 penalty.
    augment: photo (random resized crop and flip), shift (small moves) or none; auto takes photo for images above 64
        pixels, shift below.
    image_size: side that image files are resized to before cropping 7/8 of it; 0 chooses 256, or the images' own size
        where that is at most 64.
    seed: all randomness is a function of it.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    presets: ClassVar[tuple[str, dict[str, dict[str, Any]]] | None] = None
    shared_stages: ClassVar[dict[str, frozenset[str]]] = {}
    """Phases that do not see the target and leave all they found in the task's memory, each with the options that its
    outcome does not depend on: runs that differ in nothing else may share it (see `robustda.stages`)."""

    backbone: str | nn.Module = "auto"
    weights: str = "auto"
    width: int = 1024
    dropout: float = 0.5
    steps: int = 2000
    batch_size: int = 32
    learning_rate: float = 0.004
    backbone_rate: float = 0.1
    layer_decay: float = 1.0
    batch_norm: Literal["learn", "keep"] = "learn"
    pooling: Literal["auto", "mean", "peaks"] = "auto"
    checkpointing: bool = False
    decay: float = 0.0002
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augment: Literal["auto", "photo", "shift", "none"] = "auto"
    image_size: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        check_at_least(self, width=1, steps=1, batch_size=2, image_size=0, seed=0)
        check_at_least(self, learning_rate=0, backbone_rate=0, decay=0, weight_decay=0)
        check_share(self, "dropout", "momentum", below_one=True)
        check_share(self, "layer_decay")

    # What a method defines.

    @property
    def frozen(self) -> bool:
        """Whether a pretrained backbone stays as it came."""
        return False

    def phases(self) -> list[Callable[[Task], Phase]]:
        """The stages in their order, each as a function that makes the phase when its turn comes."""
        raise TypeError(f"{type(self).__name__} defines no phases")

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> Classifier:
        """The network that predicts, freshly initialised; without fetching weights if they will be loaded anyway."""
        return Classifier(self.make_backbone(example_shape, pretrained), n_classes, self.width, dropout=self.dropout)

    def network_for(self, example_shape: tuple[int, ...], n_classes: int, tensors: Mapping[str, Tensor]) -> Classifier:
        """The network that these weights are for, before it has them; a ValueError if they are for none."""
        return self.network(example_shape, n_classes, pretrained=False)

    # What it gets.

    def fit(
        self,
        source: Domain | str | PathLike[str],
        target: Domain | str | PathLike[str],
        *,
        out: str | PathLike[str] | None = None,
        **runtime: Any,
    ) -> Self:
        """Learn from a labelled source and an unlabelled target. Labels that the target carries are for scoring only.

        Either is a Domain, or a path to read (a folder of images, a table, ...; see `Domain.read`).
        With `out`, everything is kept in that folder, and the same call resumes a run that was stopped. The other
        keywords are those of `robustda.engine.Runtime`: device, precision, log_every, progress, ...; and `decisions`,
        a decisions.csv of the audit page, which is applied to the source first.
        """
        from robustda.train import fit

        fit(self, source, target, out=out, **runtime)
        return self

    def predict(self, x: Domain | np.ndarray | str | PathLike[str]) -> np.ndarray:
        """The most likely class of each example, by name. `x` is a Domain, an array, or a path to read."""
        probabilities = self.predict_proba(x)
        names: np.ndarray = self.classes_[probabilities.argmax(axis=1)]
        return names

    def predict_proba(self, x: Domain | np.ndarray | str | PathLike[str]) -> np.ndarray:
        """Probabilities, one row an example, one column a class of `classes_`."""
        from robustda.predict import predict_proba

        if not hasattr(self, "network_"):
            raise RunError(f"this {type(self).__name__} has not been fitted yet: call fit(source, target) first")
        return predict_proba(self, x)

    def params(self) -> dict[str, Any]:
        """The hyper-parameters, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def record(self) -> dict[str, Any]:
        """The hyper-parameters as a run folder keeps them: of a backbone that is a module, a description."""
        given = self.backbone
        return self.params() | ({"backbone": describe_module(given)} if isinstance(given, nn.Module) else {})

    def make_backbone(self, example_shape: tuple[int, ...], pretrained: bool = True) -> Backbone:
        """ψ for inputs of this shape, by the settings; not `pretrained` where its weights will be loaded anyway."""
        backbone = self._made_backbone(example_shape, pretrained)
        if self.pooling == "peaks" or (self.pooling == "auto" and self.frozen and backbone.pretrained):
            there = backbone.pool_peaks()
            if self.pooling == "peaks" and not there and len(example_shape) == 3:
                raise ConfigError(
                    "pooling=peaks needs a timm backbone whose last map ends in a ReLU, such as resnet50: "
                    "take pooling=mean"
                )
        backbone.keeps_statistics = self.batch_norm == "keep" and backbone.pretrained
        if self.checkpointing and pretrained:
            set_checkpointing(backbone, True)
        return backbone

    def _made_backbone(self, example_shape: tuple[int, ...], pretrained: bool) -> Backbone:
        name = self.backbone
        if isinstance(name, nn.Module):
            given = ModuleBackbone(name, example_shape)
            given.pretrained = self.weights != "random"
            return given
        if name.startswith("hf:") and len(example_shape) == 3:
            weights = "hub" if self.weights == "auto" else self.weights
            recipe = getattr(self, "backbone_recipe_", None)
            known = hugging_face_backbone(name, example_shape, weights if pretrained else "random", recipe)
            known.pretrained = weights != "random"
            return known
        if name == "auto":
            name = usual_backbone(example_shape)
        weights = self.weights
        small = name in (*FOR_VECTORS, "small_cnn")
        if weights == "auto":
            weights = "random" if small else "hub"
        backbone = create_backbone(name, example_shape, weights if pretrained else "random")
        if isinstance(backbone, Table) and getattr(self, "columns_", None):
            backbone.load_state_dict(self.columns_)
        backbone.pretrained = weights != "random" and not (small and weights == "hub")
        return backbone

    def rate(self, steps: int) -> Schedule:
        """The learning rate η·(1 + decay·i)^−.75 as a function of progress in a phase of so many steps."""
        return lambda progress: self.learning_rate * (1 + progress * (self.decay * steps)) ** -0.75

    def parameter_groups(self, network: nn.Module) -> list[dict[str, Any]]:
        """Parameters with their share of the learning rate: a pretrained backbone's is smaller."""
        backbone = getattr(network, "backbone", None)
        slow: list[list[nn.Parameter]] = []
        if isinstance(backbone, Backbone) and (backbone.pretrained or self.layer_decay < 1):
            slow = [list(backbone.parameters())] if self.layer_decay == 1 else layers(backbone)[::-1]
        rate = self.backbone_rate if isinstance(backbone, Backbone) and backbone.pretrained else 1.0
        slow_ids = {id(parameter) for layer in slow for parameter in layer}
        fast = [p for p in network.parameters() if id(p) not in slow_ids]
        groups: list[dict[str, Any]] = [{"params": fast, "share": 1.0}]
        groups += [{"params": layer, "share": rate * self.layer_decay**depth} for depth, layer in enumerate(slow)]
        return [group for group in groups if group["params"]]
