"""Backbones that people bring: their own modules, Hugging Face's models; checkpointing and rates layer by layer."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import robustda
from conftest import make_folders, make_pair
from robustda import RDA, Domain, SourceOnly
from robustda.backbones import describe_module, layers
from robustda.cli import main
from robustda.errors import ConfigError, RunError
from robustda.export import TOLERANCE, export_run
from robustda.exported import load_export
from robustda.features import extract_features
from robustda.methods import Method, create_method, method_class, method_names
from robustda.methods.options import options
from robustda.nets import create_backbone

QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}
SMALL = {
    "width": 16,
    "discriminator_width": 16,
    "steps": 4,
    "mentor_steps": 4,
    "head_steps": 4,
    "epochs": 1,
    "noise_rate": 0.3,
}


class Own(nn.Module):
    """A user's network, which says neither how wide its output is nor that it is a backbone."""

    def __init__(self, width: int = 12, inputs: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


class Maps(nn.Module):
    """Returns maps (B, C, H, W), as a torchvision network without its pooling does."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.convolution(x - 0.5))


@pytest.fixture(scope="module")
def vectors() -> tuple[Domain, Domain]:
    pair = make_pair(size=80, target_size=40)
    return pair.source, pair.target


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Domain, Domain]:
    made = make_folders(tmp_path_factory.mktemp("images"))
    return Domain.from_folder(made.source), Domain.from_folder(made.target)


def small(name: str, **settings: Any) -> Method:
    known = {field.name for field in dataclasses.fields(method_class(name))}
    return create_method(name, **{k: v for k, v in {**SMALL, **settings}.items() if k in known})


# modules


@pytest.mark.parametrize("name", method_names())
def test_every_method_takes_a_module(name: str, vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    module = Own()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    method = small(name, backbone=module).fit(*vectors, out=tmp_path / "run", **QUIET)
    again = robustda.load(tmp_path / "run", device="cpu", backbone=Own())
    np.testing.assert_array_equal(again.predict_proba(vectors[1]), method.predict_proba(vectors[1]))
    for key, value in module.state_dict().items():
        assert torch.equal(value, before[key]), "the user's own module is left as it was"
    resumed = small(name, backbone=module).fit(*vectors, out=tmp_path / "run", **QUIET)  # done: only read back
    np.testing.assert_array_equal(resumed.predict_proba(vectors[1]), method.predict_proba(vectors[1]))


def test_a_module_for_images_and_its_export(images: tuple[Domain, Domain], tmp_path: Path) -> None:
    method = SourceOnly(backbone=Maps(), width=16, steps=5, image_size=16).fit(*images, **QUIET)
    assert method.network_.backbone.out_features == 8
    export_run(method, "torch-export", tmp_path / "export")
    found = load_export(tmp_path / "export").predict_proba(images[1])
    np.testing.assert_allclose(found, method.predict_proba(images[1]), atol=TOLERANCE)
    with pytest.raises(ConfigError, match="export to onnx"):
        export_run(method, "safetensors", tmp_path / "other")


def test_a_torchvision_network(images: tuple[Domain, Domain]) -> None:
    models = pytest.importorskip("torchvision.models")
    network = models.resnet18(weights=None)
    network.fc = nn.Identity()
    found = extract_features(images[0], backbone=network, image_size=32)
    assert found.shape == (512,)


def test_a_run_says_that_its_module_must_be_given_again(
    vectors: tuple[Domain, Domain], tmp_path: Path, capsys: Any
) -> None:
    module = Own()
    SourceOnly(backbone=module, width=8, steps=3).fit(*vectors, out=tmp_path / "run", **QUIET)
    recorded = json.loads((tmp_path / "run" / "model.json").read_text())["params"]["backbone"]
    assert recorded == describe_module(module)
    assert "Own, 288 numbers" in recorded
    with pytest.raises(RunError, match=r"is a module that you gave \(.*Own.*: give it again"):
        robustda.load(tmp_path / "run")
    vectors[1].save_npz(tmp_path / "t.npz")
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "t.npz"), "--out", str(tmp_path / "p.csv")]) == 2
    error = capsys.readouterr().err
    assert "robustda.load(run, backbone=module)" in error
    assert error.count("\n") == 1
    with pytest.raises(RunError, match=r"not a .*Linear"):
        robustda.load(tmp_path / "run", backbone=nn.Linear(10, 12))
    with pytest.raises(RunError, match="cannot be read"):
        robustda.load(tmp_path / "run", backbone=Own(width=13))
    with pytest.raises(RunError, match="other settings"):
        SourceOnly(backbone=Own(), width=8, steps=3).fit(*vectors, out=tmp_path / "run", **QUIET)
    SourceOnly(width=8, steps=3).fit(*vectors, out=tmp_path / "plain", **QUIET)
    with pytest.raises(RunError, match="the run's backbone is auto"):
        robustda.load(tmp_path / "plain", backbone=module)


def test_a_stage_is_shared_by_runs_with_the_same_module_only(vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    module = Own()
    for given in (module, module, Own()):
        small("rda", backbone=given).fit(*vectors, stages=str(tmp_path / "stages"), **QUIET)
    assert len(list((tmp_path / "stages").glob("*.safetensors"))) == 2


def test_a_module_is_taken_for_pretrained_unless_told() -> None:
    assert RDA(backbone=Own()).make_backbone((10,)).pretrained
    assert not RDA(backbone=Own(), weights="random").make_backbone((10,)).pretrained


@pytest.mark.parametrize(
    ("module", "said"),
    [(Own(inputs=7), r"cannot take a batch of shape \(2, 10\)"), (nn.Unflatten(1, (5, 2)), "vectors are needed")],
)
def test_a_module_that_cannot_serve_is_one_line(module: nn.Module, said: str, vectors: tuple[Domain, Domain]) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        SourceOnly(backbone=module, steps=2).fit(*vectors, **QUIET)
    assert "\n" not in str(error.value)


def test_an_estimator_takes_a_module() -> None:
    import pickle

    from sklearn.base import clone

    pair = make_pair(size=60, target_size=20)
    model = clone(robustda.SourceOnlyClassifier(backbone=Own(), width=8, steps=5))
    model.fit(pair.source.x, pair.source.labels, X_target=pair.target.x)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(pair.target.x), model.predict_proba(pair.target.x))


def test_the_command_line_still_takes_a_name() -> None:
    (option,) = [option for option in options(RDA) if option.name == "backbone"]
    assert option.type is str


# Hugging Face


@pytest.fixture(scope="module")
def tiny_vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer of two layers with random weights, saved as people save theirs."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed ('robustda[hf]')")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=4
    )
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("hub") / "tiny-vit"
    transformers.ViTModel(config).save_pretrained(path)
    about = {"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}
    (path / "preprocessor_config.json").write_text(json.dumps(about))
    return path


def test_hugging_face_features_are_the_models_own(tiny_vit: Path) -> None:
    import transformers

    backbone = RDA(backbone=f"hf:{tiny_vit}").make_backbone((16, 16, 3)).eval()
    assert backbone.pretrained
    x = torch.rand(3, 3, 16, 16)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.2, 0.1]).view(3, 1, 1)
    expected = transformers.AutoModel.from_pretrained(tiny_vit).eval()(pixel_values=(x - mean) / std).pooler_output
    torch.testing.assert_close(backbone(x), expected)
    assert backbone.out_features == 16


@pytest.mark.parametrize("name", ["rda", "concord"])
def test_hugging_face_run_needs_no_hub_to_predict(
    name: str, tiny_vit: Path, images: tuple[Domain, Domain], tmp_path: Path
) -> None:
    moved = tmp_path / "vit"
    moved.symlink_to(tiny_vit)
    method = small(name, backbone=f"hf:{moved}", image_size=16).fit(*images, out=tmp_path / "run", **QUIET)
    expected = method.predict_proba(images[1])
    export_run(method, "safetensors", tmp_path / "export")
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in (tmp_path / "export").iterdir())
    moved.unlink()
    np.testing.assert_array_equal(robustda.load(tmp_path / "run", device="cpu").predict_proba(images[1]), expected)
    found = load_export(tmp_path / "export", device="cpu").predict_proba(images[1])
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_hugging_face_exports(tiny_vit: Path, images: tuple[Domain, Domain], tmp_path: Path) -> None:
    method = SourceOnly(backbone=f"hf:{tiny_vit}", image_size=24, width=16, steps=3).fit(*images, **QUIET)
    for format in ("torch-export", "onnx"):
        if format == "onnx":
            pytest.importorskip("onnxscript", reason="onnxscript is not installed (pip install 'robustda[onnx]')")
            pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install 'robustda[onnx]')")
        done = export_run(method, format, tmp_path / format, data=images[1])  # type: ignore[arg-type]
        assert done.difference is not None
        assert done.difference <= TOLERANCE


def test_hugging_face_without_a_trained_pooler_uses_the_class_token(tiny_vit: Path, tmp_path: Path) -> None:
    import transformers

    config = transformers.AutoConfig.from_pretrained(tiny_vit)
    classifier = transformers.ViTForImageClassification(config).eval()
    classifier.save_pretrained(tmp_path / "classifier")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backbone = RDA(backbone=f"hf:{tmp_path / 'classifier'}").make_backbone((16, 16, 3)).eval()
    x = torch.rand(2, 3, 16, 16)
    mean, std = backbone.mean, backbone.std  # type: ignore[union-attr]
    expected = classifier.vit(pixel_values=(x - mean) / std).last_hidden_state[:, 0]  # type: ignore[operator]
    torch.testing.assert_close(backbone(x), expected)


def test_hugging_face_mistakes_are_one_line(tiny_vit: Path, tmp_path: Path) -> None:
    import transformers

    text = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=20
    )
    transformers.BertModel(text).save_pretrained(tmp_path / "text")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    for name, said in {
        "nowhere": "there is no folder",
        "broken": "cannot be loaded",
        "text": "does not take images alone",
    }.items():
        with pytest.raises(ConfigError, match=said) as error:
            RDA(backbone=f"hf:{tmp_path / name}").make_backbone((16, 16, 3))
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="is for images"):
        RDA(backbone=f"hf:{tiny_vit}").make_backbone((10,))


def test_hugging_face_pickles_are_not_loaded(tiny_vit: Path, tmp_path: Path) -> None:
    """Weights as pytorch_model.bin are a pickle: refused, whatever is in it."""
    (tmp_path / "config.json").write_text((tiny_vit / "config.json").read_text())
    mark = tmp_path / "it ran"

    class Planted:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (mark,)

    torch.save(Planted(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="with safetensors"):
        RDA(backbone=f"hf:{tmp_path}").make_backbone((16, 16, 3))
    assert not mark.exists()


def test_without_the_extra_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"needs transformers: pip install 'robustda\[hf\]'"):
        RDA(backbone="hf:some/model").make_backbone((16, 16, 3))


# checkpointing and layer-wise rates


def gradients(method: Method, shape: tuple[int, ...]) -> dict[str, Tensor]:
    torch.manual_seed(0)
    backbone = method.make_backbone(shape)
    backbone.train()
    torch.manual_seed(1)
    backbone(torch.rand(4, 3, *shape[:2])).square().sum().backward()
    return {name: p.grad for name, p in backbone.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "resnet18"])
def test_checkpointing_changes_no_gradient(name: str) -> None:
    side = 224 if name.startswith("vit") else 64
    plain = gradients(RDA(backbone=name, weights="random"), (side, side, 3))
    saving = gradients(RDA(backbone=name, weights="random", checkpointing=True), (side, side, 3))
    assert plain.keys() == saving.keys()
    for key in plain:
        torch.testing.assert_close(saving[key], plain[key], rtol=1e-4, atol=1e-5)


def saved_bytes(method: Method, side: int) -> int:
    """What autograd keeps of a forward pass."""
    backbone = method.make_backbone((side, side, 3)).train()
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        backbone(torch.rand(2, 3, side, side))
    return sum(seen.values())


def test_checkpointing_keeps_less() -> None:
    plain = saved_bytes(RDA(backbone="vit_tiny_patch16_224", weights="random"), 224)
    saving = saved_bytes(RDA(backbone="vit_tiny_patch16_224", weights="random", checkpointing=True), 224)
    assert saving < plain / 2


def test_checkpointing_trains_and_exports(images: tuple[Domain, Domain], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"backbone": "resnet18", "weights": "random", "image_size": 32, "width": 8, "steps": 2}
    method = SourceOnly(checkpointing=True, **settings).fit(*images, out=tmp_path / "run", **QUIET)
    done = export_run(method, "torch-export", tmp_path / "export", data=images[1])
    assert done.difference is not None
    again = robustda.load(tmp_path / "run", device="cpu")
    np.testing.assert_allclose(again.predict_proba(images[1]), method.predict_proba(images[1]), atol=1e-6)


def test_checkpointing_hugging_face(tiny_vit: Path) -> None:
    plain = gradients(RDA(backbone=f"hf:{tiny_vit}"), (16, 16, 3))
    saving = gradients(RDA(backbone=f"hf:{tiny_vit}", checkpointing=True), (16, 16, 3))
    for key in plain:
        torch.testing.assert_close(saving[key], plain[key])


@pytest.mark.parametrize("name", ["small_cnn", "vgg11"])
def test_checkpointing_where_there_is_none_is_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match="leave --checkpointing out"):
        RDA(backbone=name, weights="random", checkpointing=True).make_backbone((32, 32, 3))


def shares(method: Method, network: nn.Module) -> dict[str, float]:
    share = {id(p): group["share"] for group in method.parameter_groups(network) for p in group["params"]}
    return {name: share[id(p)] for name, p in network.named_parameters()}


def test_rates_fall_layer_by_layer_towards_the_input(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file(create_backbone("resnet18", (64, 64, 3), "random").model.state_dict(), tmp_path / "w.safetensors")  # type: ignore[arg-type]
    settings: dict[str, Any] = {"backbone": "resnet18", "weights": str(tmp_path / "w.safetensors"), "width": 8}
    method = SourceOnly(layer_decay=0.5, **settings)
    found = shares(method, method.network((64, 64, 3), 3))
    assert found["f.0.weight"] == found["bottleneck.0.weight"] == 1
    assert found["backbone.model.layer4.1.conv2.weight"] == pytest.approx(0.1)
    assert found["backbone.model.layer4.0.conv1.weight"] == pytest.approx(0.05)
    assert found["backbone.model.conv1.weight"] == pytest.approx(0.1 * 0.5**8)
    plain = SourceOnly(**settings)
    assert set(shares(plain, plain.network((64, 64, 3), 3)).values()) == {1.0, 0.1}


def test_rates_of_a_module_follow_its_names() -> None:
    method = SourceOnly(backbone=Own(), layer_decay=0.5, backbone_rate=0.2, width=8)
    found = shares(method, method.network((10,), 3))
    assert found["backbone.model.layers.2.weight"] == pytest.approx(0.2)
    assert found["backbone.model.layers.0.weight"] == pytest.approx(0.1)
    untrained = SourceOnly(backbone=Own(), weights="random", layer_decay=0.5, width=8)
    assert shares(untrained, untrained.network((10,), 3))["backbone.model.layers.0.weight"] == pytest.approx(0.5)


def test_layers_of_hugging_face_and_torchvision(tiny_vit: Path) -> None:
    backbone = RDA(backbone=f"hf:{tiny_vit}").make_backbone((16, 16, 3))
    found = layers(backbone)
    assert len(found) == 4  # embeddings, two blocks, norm and pooler
    assert sum(map(len, found)) == len(list(backbone.parameters()))
    from torchvision.models import resnet18

    network = resnet18(weights=None)
    count = len(list(network.parameters()))
    network.fc = nn.Identity()
    wrapped = RDA(backbone=network).make_backbone((32, 32, 3))
    found = layers(wrapped)
    assert len(found) == 9  # the stem and eight blocks
    assert sum(map(len, found)) == count - 2


def test_layer_decay_trains_and_resumes(vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    """The bottom layer of the backbone hardly moves where the rate falls steeply."""
    torch.manual_seed(0)
    module = Own()
    moved = {}
    for decay in (1.0, 0.01):
        method = SourceOnly(backbone=module, layer_decay=decay, backbone_rate=1.0, width=8, steps=30, weight_decay=0.0)
        method.fit(*vectors, **QUIET)
        learned = method.network_.backbone.model.layers[0].weight  # type: ignore[union-attr, index]
        moved[decay] = float((learned - module.layers[0].weight).detach().norm())  # type: ignore[operator, union-attr]
    assert moved[0.01] < 0.1 * moved[1.0]
    with pytest.raises(ConfigError, match=r"layer_decay is 1\.5: give a number from 0 to 1"):
        SourceOnly(layer_decay=1.5)
