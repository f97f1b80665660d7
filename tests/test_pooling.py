"""Pooling by peaks: what it computes, which models can, who does, and that a run folder remembers it."""

from __future__ import annotations

import json
from pathlib import Path

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

import robustda
from robustda.data.domain import Domain
from robustda.errors import ConfigError
from robustda.features import extract_features
from robustda.methods import create_method
from robustda.nets import Backbone, create_backbone
from robustda.pooling import Peaks, generalized_mean, pool_peaks

SHAPE = (80, 80, 3)
BRIEF = {"device": "cpu", "progress": False, "tensorboard": False}


@given(arrays.arrays(np.float32, (2, 3, 4, 5), elements=st.floats(0, 8, width=32)))
def test_it_is_the_third_power_mean_and_lies_between_mean_and_maximum(x: np.ndarray) -> None:
    found = generalized_mean(torch.from_numpy(x)).numpy()[:, :, 0, 0]
    flat = x.reshape(2, 3, -1).astype(np.float64)
    np.testing.assert_allclose(found, np.cbrt((flat**3).mean(axis=2)), rtol=1e-5, atol=2e-6)
    assert (found >= flat.mean(axis=2) * (1 - 1e-5)).all()
    assert (found <= flat.max(axis=2) * (1 + 1e-5) + 2e-6).all()


@given(arrays.arrays(np.float32, (3, 4, 5, 5), elements=st.floats(0, 8, width=32)))
def test_it_is_as_long_as_the_mean_and_points_where_the_peaks_are(x: np.ndarray) -> None:
    maps = torch.from_numpy(x)
    found, peaks = Peaks()(maps).double(), generalized_mean(maps).flatten(1).double()
    lengths = maps.double().mean(dim=(2, 3)).norm(dim=1)
    torch.testing.assert_close(found.norm(dim=1), lengths, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close((found * peaks).sum(dim=1), lengths * peaks.norm(dim=1), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(Peaks(flatten=False)(maps)[:, :, 0, 0].double(), found)


def test_empty_maps_have_a_slope() -> None:
    nothing = torch.zeros(1, 2, 3, 3, requires_grad=True)
    Peaks()(nothing).sum().backward()
    assert nothing.grad is not None
    assert torch.isfinite(nothing.grad).all()


@pytest.mark.parametrize(
    ("name", "can"),
    [(name, True) for name in ("resnet10t", "mobilenetv2_035", "regnetx_002")]
    + [(name, False) for name in ("mobilenetv3_small_050", "convnext_atto", "vit_tiny_patch16_224")],
)
def test_models_whose_last_map_is_cut_off_below_zero_can(name: str, can: bool) -> None:
    model = timm.create_model(name, pretrained=False, num_classes=0).eval()
    x = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        before = model(x)
        assert pool_peaks(model) is can
        after = model(x)
        assert pool_peaks(model) is can  # asked again, nothing else happens
        torch.testing.assert_close(model(x), after)
        if can:
            maps = model.forward_features(x)
            assert float(maps.min()) == 0
            peaks = maps.pow(3).mean(dim=(2, 3)).pow(1 / 3)
            length = maps.mean(dim=(2, 3)).norm(dim=1) / peaks.norm(dim=1)
            torch.testing.assert_close(after, length[:, None] * peaks, rtol=1e-4, atol=1e-5)
        else:
            torch.testing.assert_close(after, before)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What stands for pretrained weights."""
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "resnet10t.safetensors"
    save_file(timm.create_model("resnet10t", pretrained=False, num_classes=0).state_dict(), file)
    return str(file)


def pools(backbone: Backbone) -> bool:
    return any(isinstance(layer, Peaks) for layer in backbone.modules())


def test_who_keeps_a_pretrained_backbone_frozen_pools_peaks(weights: str) -> None:
    def pooled(name: str, **settings: object) -> bool:
        method = create_method(name, **{"backbone": "resnet10t", "weights": weights} | settings)
        return pools(method.make_backbone(SHAPE))

    assert [pooled(name) for name in ("clarity", "concord", "prototypes", "rda", "mdd")] == [True] * 3 + [False] * 2
    assert not pooled("clarity", tune=True)
    assert pooled("clarity", tune=True, pooling="peaks")
    assert pooled("rda", pooling="peaks")
    assert not pooled("clarity", pooling="mean")
    assert not pooled("clarity", weights="random")  # it will learn
    assert not pools(create_backbone("resnet10t", SHAPE, weights))


def test_asked_for_where_it_cannot_be_that_is_said() -> None:
    with pytest.raises(ConfigError, match="pooling=peaks needs a timm backbone whose last map ends in a ReLU"):
        create_method("clarity", backbone="convnext_atto", weights="random", pooling="peaks").make_backbone(SHAPE)
    with pytest.raises(ConfigError, match="pooling"):
        create_method("clarity", pooling="max")


def images(folder: Path, count: int, seed: int) -> Domain:
    rng = np.random.default_rng(seed)
    for name, colour in (("blue", (121, 120, 129)), ("red", (129, 120, 121))):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(np.array(colour) + rng.normal(0, 40, (80, 80, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return Domain.from_folder(folder)


@pytest.mark.filterwarnings("ignore::robustda.errors.RobustDAWarning")  # of two classes little can be said
def test_a_run_remembers_it_and_one_from_before_there_was_a_choice_took_the_mean(tmp_path: Path, weights: str) -> None:
    source, target = images(tmp_path / "source", 12, 0), images(tmp_path / "target", 10, 1)
    settings = {"backbone": "resnet10t", "weights": weights, "head_steps": 20, "width": 16}
    found = {}
    for pooling in ("auto", "mean"):
        method = create_method("clarity", pooling=pooling, **settings)
        method.fit(source, target, out=tmp_path / pooling, **BRIEF)
        found[pooling] = method.predict_proba(target)
        again = robustda.load(tmp_path / pooling, device="cpu")
        assert pools(again.network_.backbone) is (pooling == "auto")
        np.testing.assert_allclose(again.predict_proba(target), found[pooling], atol=1e-6)
    about = json.loads((tmp_path / "mean" / "model.json").read_text())
    del about["params"]["pooling"]
    (tmp_path / "mean" / "model.json").write_text(json.dumps(about))
    before = robustda.load(tmp_path / "mean", device="cpu")
    assert not pools(before.network_.backbone)
    np.testing.assert_allclose(before.predict_proba(target), found["mean"], atol=1e-6)


def test_features_are_those_that_clarity_learns_from(tmp_path: Path, weights: str) -> None:
    domain = images(tmp_path / "images", 3, 0)
    how = {"backbone": "resnet10t", "weights": weights, "device": "cpu"}
    made = {pooling: extract_features(domain, pooling=pooling, **how).x for pooling in ("auto", "peaks", "mean")}  # type: ignore[arg-type]
    np.testing.assert_array_equal(made["auto"], made["peaks"])  # kept apart from the others in the cache, too
    assert np.abs(np.asarray(made["auto"]) - np.asarray(made["mean"])).max() > 1e-3
