"""The network: what flows forward, what flows back, how it starts, and where its weights come from."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from robustda import layers
from robustda.data.augment import centre_crop, to_float
from robustda.data.images import fit_image, read_image
from robustda.errors import ConfigError
from robustda.layers import Dropout, Wide, reverse_gradient
from robustda.nets import (
    Adversarial,
    Backbone,
    Classifier,
    bottleneck,
    create_backbone,
    head,
)

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with the ResNet-50 weights and images"
)

LIBRARIES = [False, True] if hasattr(torch.ops.mkldnn, "_linear_pointwise") else [False]


@pytest.mark.parametrize("scale", [1.0, 0.1, 0.0, torch.tensor(0.25), torch.tensor(3.0, dtype=torch.float64)])
def test_gradient_reversal_is_the_identity_with_a_reversed_gradient(scale: Tensor | float) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    weight = torch.randn(4, 3)
    y = reverse_gradient(x, scale)
    assert torch.equal(y, x)
    assert y.dtype == x.dtype
    (y * weight).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, -float(scale) * weight)


def test_gradient_reversal_follows_a_schedule_and_gives_it_no_gradient() -> None:
    x, progress = torch.ones(2, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    reverse_gradient(x, 0.1 * progress).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([-0.05, -0.05])
    assert progress.grad is None


@pytest.mark.parametrize("beta", [0.1, 1.0, 0.0])
def test_the_adversary_descends_the_game_that_the_representation_climbs(beta: float) -> None:
    network, game = small_game()
    scale = torch.tensor(beta, dtype=torch.float64)
    representation = [*network.backbone.parameters(), *network.bottleneck.parameters()]
    adversary = list(network.adversary.parameters())
    gradients = torch.autograd.grad(game(scale), [*representation, *adversary])
    for parameter, gradient in zip([*representation, *adversary], gradients, strict=True):
        sign = -beta if any(parameter is p for p in representation) else 1.0
        torch.testing.assert_close(
            gradient, sign * numeric_gradient(lambda: game(scale), parameter), rtol=1e-4, atol=1e-7
        )
    assert any(gradient.abs().max() > 1e-4 for gradient in gradients[len(representation) :])
    assert all(p.grad is None for p in network.f.parameters())


@pytest.mark.parametrize(("backbone", "shape"), [("identity", (6,)), ("mlp", (6,)), ("small_cnn", (20, 20, 3))])
def test_shapes_from_inputs_to_logits(backbone: str, shape: tuple[int, ...]) -> None:
    psi = create_backbone(backbone, shape)
    network = Adversarial(psi, n_classes=5, width=16)
    x = torch.rand(7, *(shape if len(shape) == 1 else (3, 20, 20)))
    assert psi(x).shape == (7, psi.out_features)
    features = network.features(x)
    assert features.shape == (7, 16)
    assert network(x).shape == (7, 5)
    assert network.adversary_logits(features, 0.1).shape == (7, 5)
    assert Classifier(psi, 5, 16)(x).shape == (7, 5)


@pytest.mark.parametrize("side", [1, 3, 8, 31, 64])
def test_the_small_cnn_takes_any_small_side(side: int) -> None:
    psi = create_backbone("small_cnn", (side, side, 3))
    assert psi(torch.rand(2, 3, side, side)).shape == (2, psi.out_features)


def test_a_backbone_in_low_precision_still_feeds_full_precision_to_the_heads() -> None:
    network = Classifier(create_backbone("small_cnn", (8, 8, 3)), 3, 8).eval()
    x = torch.rand(4, 3, 8, 8)
    full = network(x)
    network.backbone.low_precision = True
    low = network(x)
    assert low.dtype == torch.float32
    assert not torch.equal(full, low)
    torch.testing.assert_close(low, full, rtol=0.05, atol=0.01)


def test_a_wide_layer_in_low_precision_trains_like_a_full_one_and_predicts_exactly() -> None:
    torch.manual_seed(0)
    layer, x = Wide(512, 512), torch.randn(16, 512)
    full = layer(x)
    full.square().mean().backward()
    gradient = layer.weight.grad.clone()
    layer.weight.grad = None
    layer.low_precision = True
    low = layer(x)
    low.square().mean().backward()
    assert low.dtype == layer.weight.grad.dtype == torch.float32
    assert not torch.equal(low, full)
    torch.testing.assert_close(low, full, rtol=0.02, atol=0.02)
    torch.testing.assert_close(layer.weight.grad, gradient, rtol=0.05, atol=0.001)
    torch.testing.assert_close(layer.eval()(x), full)


@pytest.mark.parametrize("learning", [slice(None), slice(0, 5), slice(5, None), slice(0, 0)])
@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("onednn", LIBRARIES)
def test_a_wide_layer_has_the_gradients_of_a_plain_one_whichever_rows_have_a_part_in_the_loss(
    monkeypatch: pytest.MonkeyPatch, learning: slice, low: bool, onednn: bool
) -> None:
    monkeypatch.setattr(layers, "_onednn_is_faster", lambda: onednn)
    torch.manual_seed(0)
    layer, plain = Wide(512, 600), nn.Linear(512, 600)
    plain.load_state_dict(layer.state_dict())
    layer.low_precision = low
    found = []
    for each in (layer, plain):
        x = torch.randn(10, 512, generator=torch.Generator().manual_seed(1)).requires_grad_()
        (each(x)[learning] ** 2).sum().backward()
        found.append([x.grad, each.weight.grad, each.bias.grad])
    for ours, theirs in zip(*found, strict=True):
        close = 0.02 * float(theirs.abs().max()) if low else 1e-4
        torch.testing.assert_close(ours, theirs, rtol=0, atol=close)
        assert torch.equal(ours == 0, theirs == 0) or low


@pytest.mark.parametrize("onednn", LIBRARIES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 700, 3), (63, 64, 65), (0, 5, 4), (4, 0, 5)])
def test_products_are_the_same_by_either_library(
    monkeypatch: pytest.MonkeyPatch, onednn: bool, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(layers, "_onednn_is_faster", lambda: onednn)
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(rows, inner, generator=generator), torch.randn(inner, columns, generator=generator)
    for left, right in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
        found = layers.times(left, right)
        torch.testing.assert_close(found, (a.double() @ b.double()).float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("vendor", "capability", "faster"), [
    ("AuthenticAMD", "AVX512", True), ("GenuineIntel", "AVX512", False), ("AuthenticAMD", "AVX2", False),
])  # fmt: skip
def test_float32_products_are_left_to_onednn_where_mkl_is_slow(
    monkeypatch: pytest.MonkeyPatch, vendor: str, capability: str, faster: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "read_text", lambda self: f"processor\t: 0\nvendor_id\t: {vendor}\n")
    there = torch.backends.mkl.is_available() and len(LIBRARIES) == 2
    assert layers._onednn_is_faster.__wrapped__() == (faster and there)


def test_a_wide_layer_uses_the_kept_weights_only_as_long_as_they_are_its_own() -> None:
    torch.manual_seed(0)
    layer, x = Wide(512, 512), torch.randn(4, 512)
    layer.low_precision = True
    kept = layer.low_weight()
    layer.keep(kept)
    assert layer.low_weight() is kept
    copied = copy.deepcopy(layer)
    assert copied.kept is None
    assert torch.equal(copied(x), layer(x))
    constant = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    assert torch.equal(functional_call(layer, constant, x), layer(x))
    doubled = {name: 2 * parameter.detach() for name, parameter in layer.named_parameters()}
    torch.testing.assert_close(functional_call(layer, doubled, x), 2 * layer(x))
    layer.load_state_dict(doubled)
    assert torch.equal(layer.low_weight(), 2 * kept)
    kept = layer.low_weight()
    layer.keep(kept)
    with torch.no_grad():
        layer.weight.zero_()
    assert not layer.low_weight().any()


def test_the_layers_start_as_the_reference_has_them() -> None:
    torch.manual_seed(0)
    first = bottleneck(2048, 1024)[0]
    assert float(first.weight.detach().std()) == pytest.approx(0.005, rel=0.01)
    assert float(first.weight.detach().mean()) == pytest.approx(0, abs=1e-4)
    assert first.bias.detach().unique().tolist() == pytest.approx([0.1])
    layers = head(1024, 31)
    for layer in (layers[0], layers[3]):
        assert float(layer.weight.detach().std()) == pytest.approx(0.01, rel=0.02)
        assert float(layer.weight.detach().mean()) == pytest.approx(0, abs=3e-4)
        assert layer.bias.detach().abs().max() == 0


def test_other_widths_keep_the_size_of_the_activations() -> None:
    torch.manual_seed(0)
    for fan_in in (64, 512, 4096):
        assert float(bottleneck(fan_in, 256)[0].weight.detach().std()) * math.sqrt(fan_in) == pytest.approx(
            0.005 * math.sqrt(2048), rel=0.03
        )
    assert float(head(128, 128)[0].weight.detach().std()) * math.sqrt(128) == pytest.approx(
        0.01 * math.sqrt(1024), rel=0.03
    )


def test_the_layers_stand_in_the_order_of_the_reference() -> None:
    kinds = [type(layer) for layer in bottleneck(8, 4)]
    assert kinds == [Wide, nn.BatchNorm1d, nn.ReLU, Dropout]
    assert [type(layer) for layer in head(4, 3)] == [Wide, nn.ReLU, Dropout, nn.Linear]
    assert bottleneck(8, 4)[3].p == head(4, 3)[2].p == 0.5


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_its_share(p: float) -> None:
    torch.manual_seed(0)
    size = 400_000
    out = Dropout(p)(torch.ones(1000, 400))
    dropped = float((out == 0).float().mean())
    assert dropped == pytest.approx(p, abs=1 / 512 + 5 * math.sqrt(p * (1 - p) / size))
    assert float(out.mean()) == pytest.approx(1, abs=5 * math.sqrt(p / (1 - p) / size))
    assert len(out.unique()) == 2
    for axis in (0, 1):  # neither rows nor columns share a fate
        spread = (out == 0).float().mean(dim=axis).std()
        assert float(spread) == pytest.approx(math.sqrt(p * (1 - p) / out.shape[axis]), rel=0.15)


def test_dropout_follows_the_seed() -> None:
    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return Dropout(0.5)(torch.ones(20, 30))

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    torch.manual_seed(1)
    layer = Dropout(0.5)
    assert not torch.equal(layer(torch.ones(20, 30)), layer(torch.ones(20, 30)))


def test_dropout_passes_the_gradient_of_what_it_kept() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, (out != 0) * 2.0)


@pytest.mark.parametrize("layer", [Dropout(0.5).eval(), Dropout(0.0)])
def test_dropout_off_changes_nothing(layer: Dropout) -> None:
    x = torch.randn(5, 4)
    assert torch.equal(layer(x), x)


@pytest.mark.parametrize("p", [0.001, 0.998, 0.999, 0.9999])
def test_dropout_takes_every_share_that_the_settings_allow(p: float) -> None:
    assert bool(Dropout(p)(torch.ones(1000)).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_dropout_keeps_type_and_shape(dtype: torch.dtype) -> None:
    out = Dropout(0.5)(torch.ones(3, 2, 5, dtype=dtype))
    assert out.dtype == dtype
    assert out.shape == (3, 2, 5)
    assert Dropout(0.5)(torch.ones(0, 5)).shape == (0, 5)


@pytest.mark.parametrize("name", ["test_resnet", "resnet18", "mobilenetv3_small_050"])
def test_a_timm_backbone_by_name(name: str) -> None:
    psi = create_backbone(name, (64, 64, 3), "random").eval()
    assert not psi.pretrained
    with torch.no_grad():
        assert psi(torch.rand(2, 3, 64, 64)).shape == (2, psi.out_features)
        assert Classifier(psi, 4, 8).eval()(torch.rand(2, 3, 64, 64)).shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "side"), [("vit_tiny_patch16_224", 64), ("vit_tiny_patch16_224", 73), ("mixer_s32_224", 64)]
)
def test_a_timm_backbone_of_one_size_takes_another(name: str, side: int) -> None:
    before = torch.get_rng_state()
    psi = create_backbone(name, (side, side, 3), "random").eval()
    torch.set_rng_state(before)
    again = create_backbone(name, (side, side, 3), "random").eval()
    x = torch.rand(2, 3, side, side)
    with torch.no_grad():
        assert psi(x).shape == (2, psi.out_features)
        assert torch.equal(psi(x), again(x))  # to try what it takes draws no random numbers


def test_weights_of_another_size_are_taken_where_positions_are_worked_out(tmp_path: Path) -> None:
    own = create_backbone("vit_tiny_patch16_224", (224, 224, 3), "random")
    path = tmp_path / "weights.safetensors"
    save_file(own.get_submodule("model").state_dict(), path)
    psi = create_backbone("vit_tiny_patch16_224", (64, 64, 3), str(path)).eval()
    assert torch.equal(psi.get_submodule("model").get_parameter("pos_embed"), own.get_parameter("model.pos_embed"))
    with pytest.raises(ConfigError, match=r"have other shapes.*--image_size"):
        create_backbone("vit_tiny_patch16_224", (73, 73, 3), str(path))


def test_a_timm_backbone_normalises_its_input_and_takes_the_numbers_along() -> None:
    psi = create_backbone("test_resnet", (32, 32, 3), "random").eval()
    x = torch.rand(2, 3, 32, 32)
    mean, std = psi.get_buffer("mean"), psi.get_buffer("std")
    assert mean.shape == std.shape == (1, 3, 1, 1)
    assert {"mean", "std"} <= set(psi.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(psi(x), psi.get_submodule("model")((x - mean) / std))


def test_resnet50_v1_has_its_strides_in_the_first_convolution() -> None:
    psi = create_backbone("resnet50_v1", (64, 64, 3), "random").eval()
    for stage in (2, 3, 4):
        blocks = list(psi.get_submodule(f"model.layer{stage}").children())
        assert blocks[0].get_submodule("conv1").stride == (2, 2)
        assert blocks[0].get_submodule("conv2").stride == (1, 1)
        assert all(block.get_submodule("conv1").stride == (1, 1) for block in blocks[1:])
    assert psi.get_submodule("model.layer1.0.conv1").stride == (1, 1)
    assert psi.get_submodule("model.conv1").stride == (2, 2)
    assert psi.get_buffer("mean").flatten().tolist() == pytest.approx([0.48502, 0.45796, 0.40760])
    assert psi.out_features == 2048
    with torch.no_grad():
        assert psi(torch.rand(1, 3, 64, 64)).shape == (1, 2048)


@pytest.mark.parametrize(
    ("name", "shape", "weights", "says"),
    [
        ("resnet50", (5,), "random", "for images, but the data are vectors: use identity, table or mlp"),
        ("small_cnn", (5,), "random", "for images, but the data are vectors"),
        ("identity", (8, 8, 3), "random", "for vectors, but the data are images: use small_cnn"),
        ("mlp", (8, 8, 3), "random", "for vectors, but the data are images"),
        ("resnet50_v1", (8, 8, 3), "hub", "no weights on the hub: give --weights"),
        ("resnet999", (8, 8, 3), "random", "no backbone is called 'resnet999'.*resnet50_v1"),
        ("", (8, 8, 3), "random", "no backbone is called ''"),
        (
            "inception_v3",
            (64, 64, 3),
            "random",
            "cannot take images of 64 × 64 .*its own size is 299, --image_size 342",
        ),
        ("small_cnn", (8, 8, 3), "nowhere.safetensors", "no weights file nowhere.safetensors"),
        ("mlp", (5,), "nowhere.safetensors", "weights"),
        ("identity", (5,), "nowhere.safetensors", "weights"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(name: str, shape: tuple[int, ...], weights: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        create_backbone(name, shape, weights)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["small_cnn", "test_resnet"])
def test_weights_come_back_from_a_file(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first = create_backbone(name, (32, 32, 3), "random").eval()
    module = first.get_submodule("model") if name != "small_cnn" else first
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    second = create_backbone(name, (32, 32, 3), str(tmp_path / "weights.safetensors")).eval()
    assert second.pretrained
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(first(x), second(x))


def test_half_precision_weights_are_read_as_float32_and_a_classifier_in_the_file_is_left_out(tmp_path: Path) -> None:
    first = create_backbone("small_cnn", (8, 8, 3), "random")
    state = {key: value.half() if value.is_floating_point() else value for key, value in first.state_dict().items()}
    state = {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}
    save_file({**state, "fc.weight": torch.zeros(3)}, tmp_path / "half.safetensors")
    second = create_backbone("small_cnn", (8, 8, 3), str(tmp_path / "half.safetensors"))
    assert all(value.dtype == torch.float32 for value in second.parameters())
    torch.testing.assert_close(dict(second.named_parameters()), dict(first.named_parameters()), rtol=1e-3, atol=1e-3)


def test_a_file_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    def refused(state: dict[str, Tensor], says: str) -> None:
        save_file(state, tmp_path / "other.safetensors")
        with pytest.raises(ConfigError, match=says):
            create_backbone("small_cnn", (8, 8, 3), str(tmp_path / "other.safetensors"))

    state = create_backbone("small_cnn", (8, 8, 3), "random").state_dict()
    refused({**state, "layers.0.weight": torch.zeros(16, 1, 3, 3)}, "other shapes")
    refused({key: value for key, value in state.items() if key != "layers.0.weight"}, r"lacks 1 weights.*layers\.0")
    refused({"something": torch.zeros(1)}, "is it another model")
    (tmp_path / "text.safetensors").write_text("not a tensor in sight")
    with pytest.raises(ConfigError, match="not a safetensors file"):
        create_backbone("small_cnn", (8, 8, 3), str(tmp_path / "text.safetensors"))
    with pytest.raises(ConfigError, match="no weights file"):
        create_backbone("small_cnn", (8, 8, 3), str(tmp_path))


@needs_data
def test_resnet50_v1_gives_the_stored_features() -> None:
    root = Path(os.environ["ROBUSTDA_DATA"])
    weights = root / "weights" / "resnet50_v1_imagenet.safetensors"
    psi = create_backbone("resnet50_v1", (224, 224, 3), str(weights)).eval()
    with np.load(root / "features" / "office31_resnet50.npz", allow_pickle=False) as stored:
        rows = np.linspace(0, len(stored["dslr_files"]) - 1, 4).astype(int)
        files, expected = stored["dslr_files"][rows], torch.tensor(stored["dslr_x"][rows]).float()
    images = np.stack([fit_image(read_image(root / "office31" / file), 256) for file in files])
    with torch.no_grad():
        features = psi(to_float(centre_crop(torch.from_numpy(images), 224)))
    assert float(F.cosine_similarity(features, expected).min()) > 0.999
    torch.testing.assert_close(features.norm(dim=1), expected.norm(dim=1), rtol=0.02, atol=0)


class Tiny(Backbone):
    """A smooth representation of a few numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 5
        self.layer = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


def small_game() -> tuple[Adversarial, Callable[[Tensor], Tensor]]:
    """An adversarial network in float64 and its game as a function of β, with h_f and the batch held constant."""
    torch.manual_seed(0)
    network = Adversarial(Tiny(), n_classes=3, width=6, dropout=0.0).double()
    for layer in (network.bottleneck[0], network.adversary[0], network.adversary[3]):
        nn.init.normal_(layer.weight, 0, 0.3)
    x, labels = torch.randn(8, 4, dtype=torch.float64), torch.randint(0, 3, (8,))

    def game(beta: Tensor) -> Tensor:
        # network.features computes in float32, which is too coarse for finite differences.
        features = network.bottleneck(network.backbone(x))
        return F.cross_entropy(network.adversary_logits(features, beta), labels)

    return network, game


@torch.no_grad()
def numeric_gradient(value: Callable[[], Tensor], parameter: Tensor, step: float = 1e-6) -> Tensor:
    """Central differences."""
    gradient = torch.zeros_like(parameter)
    flat, out = parameter.view(-1), gradient.view(-1)
    for i in range(flat.numel()):
        kept = flat[i].item()
        flat[i] = kept + step
        above = value()
        flat[i] = kept - step
        below = value()
        flat[i] = kept
        out[i] = (above - below) / (2 * step)
    return gradient
