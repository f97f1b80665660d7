"""The network of section 3.2: backbone ψ, bottleneck, classifiers f and f', and the gradient reversal between them.

A backbone is any module with an `out_features`; `create_backbone` makes one by name. Every image backbone takes
float images (B, 3, H, W) in [0, 1] and normalises them itself, so that a saved model needs no side notes.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from robustda.errors import ConfigError
from robustda.hub import hub, unreachable
from robustda.layers import Dropout, Wide, reverse_gradient
from robustda.pooling import pool_peaks

__all__ = [
    "FOR_VECTORS",
    "Adversarial",
    "Backbone",
    "Classifier",
    "bottleneck",
    "create_backbone",
    "head",
    "load_weights",
    "look",
    "soon_needed",
    "usual_backbone",
]

# Feature width and init of the reference network (ResNet-50). For other widths the standard deviation is scaled with
# 1/√fan_in, which keeps the size of the activations, and with it the meaning of the learning rate.
_BOTTLENECK_STD, _BOTTLENECK_FAN_IN = 0.005, 2048
_HEAD_STD, _HEAD_FAN_IN = 0.01, 1024

FOR_VECTORS = ("identity", "table", "mlp")
_SOON = ("timm", "pandas", "scipy.special")
_WIDEST_TABLE = 100  # vectors of up to so many numbers are taken for rows of a table, longer ones for some features


class Classifier(nn.Module):
    """ψ, bottleneck and f: what predicts. Returns logits."""

    def __init__(self, backbone: Backbone, n_classes: int, width: int, *, dropout: float = 0.5) -> None:
        super().__init__()
        self.backbone = backbone
        self.bottleneck = bottleneck(backbone.out_features, width, dropout=dropout)
        self.f = head(width, n_classes, dropout=dropout)

    def described(self, x: Tensor) -> Tensor:
        """What the backbone makes of the inputs."""
        return look(self.backbone, x)

    def features(self, x: Tensor) -> Tensor:
        """The representation that both classifiers see."""
        return cast(Tensor, self.bottleneck(self.described(x)))

    def say(self, described: Tensor) -> Tensor:
        """Logits, from what the backbone made of the inputs."""
        return cast(Tensor, self.f(self.bottleneck(described)))

    def forward(self, x: Tensor) -> Tensor:
        return self.say(self.described(x))


class Adversarial(Classifier):
    """A classifier with an adversary f' of the same shape as f, behind a gradient reversal."""

    def __init__(self, backbone: Backbone, n_classes: int, width: int, *, dropout: float = 0.5) -> None:
        super().__init__(backbone, n_classes, width, dropout=dropout)
        self.adversary = head(width, n_classes, dropout=dropout)

    def adversary_logits(self, features: Tensor, reversal: Tensor | float) -> Tensor:
        """f' on the features; the gradient that goes back into them is reversed and scaled by β (`reversal`)."""
        return cast(Tensor, self.adversary(reverse_gradient(features, reversal)))


def bottleneck(in_features: int, width: int, *, dropout: float = 0.5) -> nn.Sequential:
    """Linear, batch norm, ReLU, dropout."""
    linear = Wide(in_features, width)
    nn.init.normal_(linear.weight, 0, _BOTTLENECK_STD * math.sqrt(_BOTTLENECK_FAN_IN / in_features))
    nn.init.constant_(linear.bias, 0.1)
    return nn.Sequential(linear, nn.BatchNorm1d(width), nn.ReLU(), Dropout(dropout))


def head(width: int, n_classes: int, *, dropout: float = 0.5) -> nn.Sequential:
    """A classifier of two layers, as f and f' both are."""
    layers = nn.Sequential(Wide(width, width), nn.ReLU(), Dropout(dropout), nn.Linear(width, n_classes))
    for layer in (layers[0], layers[3]):
        nn.init.normal_(cast(Tensor, layer.weight), 0, _HEAD_STD * math.sqrt(_HEAD_FAN_IN / width))
        nn.init.zeros_(cast(Tensor, layer.bias))
    return layers


class Backbone(nn.Module):
    """ψ: turns inputs into vectors of `out_features`.

    A `pretrained` one learns more slowly than the new layers; with `low_precision` it computes in bfloat16. One that
    `keeps_statistics` has its batch norm use, in training too, those that it came with. One of somebody's `own` may do
    anything with its weights. A `fixed` one has nothing to learn.
    """

    out_features: int
    pretrained: bool = False
    low_precision: bool = False
    keeps_statistics: bool = False
    own: bool = False
    fixed: bool = False

    def pool_peaks(self) -> bool:
        """Have its last map become features by their peaks (`pooling.py`) from now on; False if it has none of that."""
        return False

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.keeps_statistics:
            for module in self.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()
        return self


def look(backbone: Backbone, x: Tensor) -> Tensor:
    """What a backbone makes of the inputs, in its precision, as float32."""
    if backbone.low_precision:
        with torch.autocast(x.device.type, torch.bfloat16):
            return cast(Tensor, backbone(x)).float()
    return cast(Tensor, backbone(x)).float()


class Identity(Backbone):
    """For vectors: the features are the inputs."""

    fixed = True

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = in_features

    def forward(self, x: Tensor) -> Tensor:
        return x


class Pixels(Backbone):
    """For images when there is no better description: the pixels, at most 32 a side, in a row."""

    def forward(self, x: Tensor) -> Tensor:
        side = min(32, x.shape[-1])
        return nn.functional.adaptive_avg_pool2d(x, side).flatten(1)


class MLP(Backbone):
    """For vectors that need a representation of their own: two layers with batch norm."""

    def __init__(self, in_features: int, width: int = 256) -> None:
        super().__init__()
        self.out_features = width
        self.layers = nn.Sequential(
            nn.Linear(in_features, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x))


class SmallCNN(Backbone):
    """For small images (up to 64 pixels or so): three convolutions, the first two each halving the side."""

    def __init__(self, channels: tuple[int, int, int] = (16, 32, 64)) -> None:
        super().__init__()
        first, second, third = channels
        self.layers = nn.Sequential(
            *_convolution(3, first),
            nn.MaxPool2d(2, ceil_mode=True),
            *_convolution(first, second),
            nn.MaxPool2d(2, ceil_mode=True),
            *_convolution(second, third),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.out_features = 4 * third

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.layers(x - 0.5))


def _convolution(n_in: int, n_out: int) -> list[nn.Module]:
    return [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()]


class TimmBackbone(Backbone):
    """Any timm model without its classifier, for images of this side. `mean` and `std` are saved with it."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, name: str, weights: str, side: int, *, mean: Sequence[float] = (), std: Sequence[float] = ()
    ) -> None:
        super().__init__()
        import timm

        if not timm.is_model(name):
            close = timm.list_models(f"*{name.split('_')[0]}*")[:5]
            raise ConfigError(
                f"no backbone is called {name!r}: use identity, table, mlp, small_cnn, resnet50_v1 or a timm name"
                + (f" such as {', '.join(close)}" if close else "")
            )
        sized = _for_side(name, side)
        try:
            with hub() if weights == "hub" else contextlib.nullcontext():
                self.model = timm.create_model(name, pretrained=weights == "hub", num_classes=0, **sized)
        except Exception as error:
            host = unreachable()
            reason = f"{host} cannot be reached from here" if host else type(error).__name__
            raise ConfigError(
                f"the weights of {name} could not be fetched ({reason}): give a local file with "
                "--weights FILE.safetensors, or start from random ones with --weights random"
            ) from error
        self.out_features = int(cast(int, getattr(self.model, "head_hidden_size", None) or self.model.num_features))
        config = cast(dict[str, Any], self.model.pretrained_cfg)
        for key, given in (("mean", mean), ("std", std)):
            self.register_buffer(key, torch.tensor(given or config[key]).view(1, 3, 1, 1))
        self.pretrained = weights != "random"

    def pool_peaks(self) -> bool:
        return pool_peaks(self.model)

    def forward(self, x: Tensor) -> Tensor:
        # (x − mean)/std in one pass over the images; on a GPU then in the layout and precision of the first convolution
        x = torch.addcmul(-self.mean / self.std, x, 1 / self.std)
        if x.device.type == "cuda":
            x = x.to(torch.bfloat16 if self.low_precision else x.dtype, memory_format=torch.channels_last)
        elif not torch.is_grad_enabled():
            x = x.contiguous(memory_format=torch.channels_last)  # half as fast again on a CPU
        return cast(Tensor, self.model(x))


@functools.lru_cache
def _for_side(name: str, side: int) -> dict[str, Any]:
    """What a timm model has to be told to take images of this side, found by trying."""
    import timm

    config = timm.get_pretrained_cfg(name)
    own = config.input_size[-1] if config is not None else side
    if side == own:
        return {}
    reasons = []
    # The second works out positions anew for every batch, from weights of the model's own size; the third has others.
    for told in ({}, {"dynamic_img_size": True}, {"img_size": side}):
        try:
            with torch.random.fork_rng(devices=[]), torch.inference_mode():
                timm.create_model(name, pretrained=False, num_classes=0, **told).eval()(torch.zeros(2, 3, side, side))
        except Exception as error:  # each family of models refuses in words of its own
            reasons.append(" ".join(str(error).split())[:200])
        else:
            return told
    raise ConfigError(
        f"{name} cannot take images of {side} × {side} ({reasons[0]}): its own size is {own}, "
        f"--image_size {round(own * 8 / 7)}"
    )


def usual_backbone(input_shape: Sequence[int]) -> str:
    """The name of the backbone that suits inputs of this shape where nothing more is known of them."""
    if len(input_shape) == 1:
        return "table" if input_shape[0] <= _WIDEST_TABLE else "identity"
    return "small_cnn" if input_shape[0] <= 64 else "resnet50"


def create_backbone(name: str, input_shape: Sequence[int], weights: str = "hub") -> Backbone:
    """A backbone by name for inputs of one example's shape, (d,) or (H, W, 3).

    ``identity``, ``table`` and ``mlp`` are for vectors; ``small_cnn`` for small images; ``resnet50_v1`` is the original
    ResNet-50, with the stride in the first convolution of a stage; every other name is timm's. `weights` is ``hub``,
    ``random`` or a safetensors file.
    """
    if len(input_shape) == 1:
        if name not in FOR_VECTORS:
            raise ConfigError(f"backbone {name!r} is for images, but the data are vectors: use identity, table or mlp")
        if name != "mlp" and weights not in ("hub", "random"):
            raise ConfigError(f"backbone {name!r} has no weights to load: leave --weights out, or use mlp")
        backbone = _vector_backbone(name, input_shape[0])
        if weights not in ("hub", "random"):
            if not Path(weights).is_file():
                raise ConfigError(f"there is no weights file {weights}: give --weights FILE.safetensors or random")
            load_weights(backbone, Path(weights))
            backbone.pretrained = True
        return backbone
    if name in FOR_VECTORS:
        raise ConfigError(f"backbone {name!r} is for vectors, but the data are images: use small_cnn or a timm name")
    if name == "resnet50_v1" and weights == "hub":
        raise ConfigError("resnet50_v1 has no weights on the hub: give --weights FILE.safetensors or --weights random")
    if weights in ("hub", "random"):
        return _image_backbone(name, weights, input_shape[0])
    path = Path(weights)
    if not path.is_file():
        raise ConfigError(f"there is no weights file {path}: give --weights FILE.safetensors, hub or random")
    state = path.stat()
    # Every phase starts from the same weights: a copy is quicker than making and loading it anew.
    return copy.deepcopy(_from_file(name, path, input_shape[0], state.st_mtime_ns, state.st_size))


def soon_needed(name: str) -> None:
    """Begin to import what an image backbone of this name comes from, and what is needed when it has learned.

    It takes seconds, while images are being read and the first steps are done.
    """
    if name != "small_cnn" and not name.startswith("hf:"):
        # Whoever needs it waits for that import to be done, or is told why it failed.
        threading.Thread(target=_import, args=_SOON, name="robustda-import", daemon=True).start()


def _import(*names: str) -> None:
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def _vector_backbone(name: str, width: int) -> Backbone:
    from robustda.columns import Table

    return {"identity": Identity, "table": Table, "mlp": MLP}[name](width)


def _image_backbone(name: str, weights: str, side: int) -> Backbone:
    if name == "small_cnn":
        return SmallCNN()
    if name != "resnet50_v1":
        return TimmBackbone(name, weights, side)
    # These weights were trained with the mean of BGR-ordered Caffe preprocessing, hence the digits.
    caffe = {"mean": (0.48502, 0.45796, 0.40760), "std": (0.229, 0.224, 0.225)}
    backbone = TimmBackbone("resnet50", "random", side, **caffe)
    _move_strides_to_first_convolution(backbone)
    return backbone


@functools.lru_cache(maxsize=1)
def _from_file(name: str, path: Path, side: int, changed: int, size: int) -> Backbone:
    """A backbone with the weights of a file, which is read again when it has changed."""
    # What is overwritten anyway must not move the random numbers on: a copy would not.
    with torch.random.fork_rng(devices=[]):
        backbone = _image_backbone(name, "random", side)
    load_weights(backbone, path)
    backbone.pretrained = True
    return backbone


def _move_strides_to_first_convolution(backbone: nn.Module) -> None:
    for block in backbone.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d):
            first.stride, second.stride = second.stride, (1, 1)


def load_weights(backbone: nn.Module, path: Path) -> None:
    """Fill a backbone with the weights of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = load_file(path)
    except SafetensorError as error:
        raise ConfigError(f"{path} is not a safetensors file ({error}): convert the weights first") from error
    module = cast(nn.Module, getattr(backbone, "model", backbone))
    state = {key: value.float() if value.is_floating_point() else value for key, value in state.items()}
    try:
        missing, _ = module.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise ConfigError(
            f"the weights in {path} have other shapes than the backbone's: is it another model? (where weights depend "
            "on the size of images, --image_size says it)"
        ) from error
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    if missing:
        raise ConfigError(
            f"{path} lacks {len(missing)} weights of the backbone, first {missing[0]}: is it another model?"
        )
