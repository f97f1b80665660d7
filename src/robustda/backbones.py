"""Backbones that people bring: modules of their own, Hugging Face's vision models; and what big ones need.

RDA(backbone=my_module)                    any nn.Module that turns a batch into vectors
robustda fit --backbone hf:NAME_OR_PATH    any vision model of AutoModel
--checkpointing                            less memory, for a third more time
--layer_decay 0.8                          layers near the input learn more slowly
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from robustda.errors import ConfigError, RobustDAWarning
from robustda.extras import needs
from robustda.hub import hub
from robustda.nets import Backbone, load_weights

__all__ = [
    "HuggingFaceBackbone",
    "ModuleBackbone",
    "describe_module",
    "given_again",
    "hugging_face_backbone",
    "layers",
    "set_checkpointing",
]

_MODULE = "module:"
_IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ModuleBackbone(Backbone):
    """A copy of a module of the user's own. It takes float images (B, 3, H, W) in [0, 1], or vectors.

    What it returns may be vectors, maps (averaged over their area), or an output of a Hugging Face model.
    """

    own = True

    def __init__(self, module: nn.Module, input_shape: Sequence[int]) -> None:
        super().__init__()
        self.model = copy.deepcopy(module).cpu().float()
        self.out_features = _width(self, input_shape, f"the module {type(module).__name__}")

    def forward(self, x: Tensor) -> Tensor:
        return _as_vectors(self.model(x))


class HuggingFaceBackbone(Backbone):
    """A vision model of Hugging Face's AutoModel without its classifier; normalises as its image processor does.

    `recipe` is what is needed to build it again without the hub: run folders keep it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, name: str, input_shape: Sequence[int], weights: str, recipe: dict[str, Any] | None) -> None:
        super().__init__()
        transformers = needs("transformers", "hf", f"the backbone hf:{name}")
        try:
            with _quiet(transformers), hub():
                self.model, self.recipe = _hugging_face(transformers, name, weights, recipe)
        except ConfigError:
            raise
        except Exception as error:  # the hub, the file and the configuration fail in ways of their own
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"the model hf:{name} cannot be loaded ({reason}): give the name of a vision model on the hub, or a "
                "folder that save_pretrained wrote, with safetensors"
            ) from error
        if getattr(self.model, "main_input_name", "") != "pixel_values":
            raise ConfigError(
                f"hf:{name} does not take images alone: give a vision model such as ViT, DINOv2 or ResNet"
            )
        for key in ("mean", "std"):
            self.register_buffer(key, torch.tensor(self.recipe[key]).view(1, 3, 1, 1))
        side = getattr(self.model.config, "image_size", None)
        takes_any = "interpolate_pos_encoding" in inspect.signature(type(self.model).forward).parameters
        self._interpolate = takes_any and side not in (None, input_shape[0], list(input_shape[:2]))
        self.out_features = _width(self, input_shape, f"hf:{name}")

    def forward(self, x: Tensor) -> Tensor:
        more = {"interpolate_pos_encoding": True} if self._interpolate else {}
        found = self.model(pixel_values=torch.addcmul(-self.mean / self.std, x, 1 / self.std), **more)
        return _as_vectors(found, pooler=self.recipe["pooler"])


def hugging_face_backbone(
    name: str, input_shape: Sequence[int], weights: str, recipe: dict[str, Any] | None = None
) -> Backbone:
    """The backbone ``hf:NAME_OR_PATH``, with its published weights (hub), random ones, or those of a file."""
    place = name.removeprefix("hf:")
    if place.startswith((".", "/", "~")) and recipe is None and not Path(place).is_dir():
        raise ConfigError(f"there is no folder {place}: give hf: and a folder that save_pretrained wrote, or a name")
    if weights in ("hub", "random"):
        return HuggingFaceBackbone(place, input_shape, weights, recipe)
    if not Path(weights).is_file():
        raise ConfigError(f"there is no weights file {weights}: give --weights FILE.safetensors, hub or random")
    backbone = HuggingFaceBackbone(place, input_shape, "random", recipe)
    load_weights(backbone, Path(weights))
    return backbone


def describe_module(module: nn.Module) -> str:
    """What a run folder keeps of a module: its class, its size, and a digest of its weights as they were given."""
    digest, count = hashlib.blake2b(digest_size=8), 0
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        count += tensor.numel()
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    return f"{_MODULE}{kind}, {count:,} numbers, {digest.hexdigest()}"


def given_again(recorded: Any, module: nn.Module | None) -> Any:
    """The backbone to load a run with: what it recorded, or the module in its place."""
    own = isinstance(recorded, str) and recorded.startswith(_MODULE)
    if own and module is None:
        raise ConfigError(
            f"its backbone is a module that you gave ({recorded.removeprefix(_MODULE)}): give it again, "
            "robustda.load(run, backbone=module), or export the run to onnx in Python first"
        )
    if module is None:
        return recorded
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    if not own or recorded.removeprefix(_MODULE).partition(",")[0] != kind:
        used = recorded.removeprefix(_MODULE) if isinstance(recorded, str) else recorded
        raise ConfigError(f"the run's backbone is {used}, not a {kind}: leave backbone out, or give the one it was")
    return module


def set_checkpointing(backbone: Backbone, on: bool) -> None:
    """Recompute activations in the backward pass instead of keeping them, where the model has a switch for it."""
    model: Any = getattr(backbone, "model", None)
    try:
        if hasattr(model, "set_grad_checkpointing"):
            model.set_grad_checkpointing(on)
        elif hasattr(model, "gradient_checkpointing_enable"):
            model.gradient_checkpointing_enable(
                {"use_reentrant": False}
            ) if on else model.gradient_checkpointing_disable()
        elif on:
            raise ConfigError(
                "this backbone has no switch for checkpointing: leave --checkpointing out; timm's and Hugging Face's "
                "models have one, and so has a module with set_grad_checkpointing(enable)"
            )
    except (AssertionError, ValueError) as error:
        if on:
            raise ConfigError(f"this backbone cannot do checkpointing ({error}): leave --checkpointing out") from error


def layers(backbone: Backbone) -> list[list[nn.Parameter]]:
    """The parameters layer by layer, from the input on: timm knows its own, others are told by numbers in names."""
    model: Any = getattr(backbone, "model", backbone)
    named = dict(model.named_parameters())
    if hasattr(model, "group_matcher"):
        from timm.models import group_parameters

        number: dict[str, int] = group_parameters(model, model.group_matcher(coarse=False), reverse=True)
    else:
        number = _by_names(list(named))
    found: dict[int, list[nn.Parameter]] = {}
    for name, parameter in named.items():
        found.setdefault(number[name], []).append(parameter)
    rest = {id(p) for p in named.values()}
    top = [p for p in backbone.parameters() if id(p) not in rest]
    return [found[place] for place in sorted(found)] + ([top] if top else [])


def _by_names(names: Sequence[str]) -> dict[str, int]:
    """What comes before the first numbered block is layer 0, what comes after the last one goes on top."""
    blocks: list[str] = []
    number: dict[str, int] = {}
    for name in names:
        block = re.match(r"(?:.*?\.)?(?:\d+|[a-z]+\d+\.\d+)(?=\.)", name)
        if block and block[0] not in blocks:
            blocks.append(block[0])
        number[name] = blocks.index(block[0]) + 1 if block else (len(blocks) + 1 if blocks else 0)
    return number


def _hugging_face(
    transformers: Any, name: str, weights: str, recipe: dict[str, Any] | None
) -> tuple[nn.Module, dict[str, Any]]:
    if recipe is not None and weights == "random":
        content = dict(recipe["config"])
        config = transformers.AutoConfig.for_model(content.pop("model_type"), **content)
        return transformers.AutoModel.from_config(config).float(), recipe
    pooler = True
    if weights == "random":
        model = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(name))
    else:
        # Weights come as safetensors or not at all: other files are pickles. Code from the hub is never run.
        model, loading = transformers.AutoModel.from_pretrained(name, use_safetensors=True, output_loading_info=True)
        pooler = not any(key.startswith("pooler.") for key in loading["missing_keys"])
    if getattr(model, "main_input_name", "") != "pixel_values":
        raise ConfigError(f"hf:{name} does not take images alone: give a vision model such as ViT, DINOv2 or ResNet")
    mean, std = _normalisation(transformers, name, quiet=weights == "random")
    content = json.loads(model.config.to_json_string(use_diff=False))
    content = {key: value for key, value in content.items() if key not in ("_name_or_path", "name_or_path")}
    return model.float(), {"config": content, "mean": mean, "std": std, "pooler": pooler}


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without the bars and remarks of the library, which are about layers that a backbone has no use for."""
    talk = transformers.utils.logging
    level, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(level)
        if bars:
            talk.enable_progress_bar()


def _normalisation(transformers: Any, name: str, *, quiet: bool) -> tuple[list[float], list[float]]:
    try:
        about, _ = transformers.image_processing_utils.BaseImageProcessor.get_image_processor_dict(name)
        mean, std = about["image_mean"], about["image_std"]
    except (OSError, KeyError):
        mean, std = _IMAGENET
        if not quiet:
            import warnings

            message = f"hf:{name} comes without a preprocessor_config.json: images are normalised as ImageNet's"
            warnings.warn(message, RobustDAWarning, stacklevel=2)
    return [float(value) for value in mean], [float(value) for value in std]


def _as_vectors(output: Any, pooler: bool = True) -> Tensor:
    """One vector an example, of whatever a model returns."""
    if not isinstance(output, Tensor):
        pooled = getattr(output, "pooler_output", None) if pooler else None
        if pooled is None:
            pooled = getattr(output, "last_hidden_state", None)
            if isinstance(pooled, Tensor) and pooled.ndim == 3:
                pooled = pooled[:, 0]
        output = pooled if pooled is not None else output[0]
    if output.ndim == 4:
        output = output.mean(dim=(2, 3))
    return cast(Tensor, output)


@torch.no_grad()
def _width(backbone: Backbone, input_shape: Sequence[int], called: str) -> int:
    """How wide the vectors are, found by trying."""
    shape = (2, *input_shape) if len(input_shape) == 1 else (2, 3, *input_shape[:2])
    training = backbone.training
    backbone.eval()
    try:
        found = backbone(torch.zeros(shape))
    except Exception as error:  # it is the user's own code
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ConfigError(f"{called} cannot take a batch of shape {shape} ({reason})") from error
    finally:
        backbone.train(training)
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != 2:
        raise ConfigError(
            f"{called} returned {getattr(found, 'shape', type(found))} for a batch of 2: vectors are needed"
        )
    return int(found.shape[1])
