"""Features of images that a backbone made once: where they are kept, when they are found again, and when not."""

from __future__ import annotations

import dataclasses
import signal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from conftest import Folders
from robustda import Domain
from robustda.backbones import ModuleBackbone
from robustda.data.batches import Inputs
from robustda.data.cache import entry_of
from robustda.description import describe_all
from robustda.errors import RunStopped
from robustda.features import extract_features
from robustda.methods import create_method
from robustda.nets import SmallCNN

CPU = torch.device("cpu")
COUNT = 24  # images in the folder


class Counting(SmallCNN):
    """A network that notes how many images it has seen. `_seen` is no part of its state."""

    def __init__(self) -> None:
        super().__init__((4, 4, 8))
        self.pretrained = True
        self._seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._seen.append(len(x))
        return super().forward(x)

    @property
    def seen(self) -> int:
        return sum(self._seen)


@pytest.fixture
def folder(folders: Folders) -> Path:
    return folders.source


def inputs_of(folder: Path, cache: Path, size: int = 24) -> Inputs:
    return Inputs(Domain.from_folder(folder).decoded(size, cache_dir=cache), CPU)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("images/*/features-*.npy"))


def test_the_same_images_are_described_once(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Counting()
    first = describe_all(network, inputs_of(folder, tmp_path / "cache"))
    assert network.seen == COUNT
    again = describe_all(network, inputs_of(folder, tmp_path / "cache"))
    assert network.seen == COUNT
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, describe_all(network, inputs_of(folder, tmp_path / "other")), atol=1e-6)
    assert len(kept(tmp_path / "cache")) == 1


@pytest.mark.parametrize("how", ["weights", "statistics", "mirrored", "precision", "crop", "image"])
def test_another_network_view_or_image_is_another_description(folder: Path, tmp_path: Path, how: str) -> None:
    torch.manual_seed(0)
    network, cache = Counting(), tmp_path / "cache"
    describe_all(network, inputs_of(folder, cache))
    options, inputs = {}, inputs_of(folder, cache)
    if how == "weights":
        with torch.no_grad():
            next(network.parameters())[0, 0, 0, 0] += 1e-3
    elif how == "statistics":
        next(m for m in network.modules() if isinstance(m, nn.BatchNorm2d)).running_mean[0] += 1e-3  # type: ignore[index]
    elif how == "mirrored":
        options["mirrored"] = True
    elif how == "precision":
        options["low_precision"] = True
    elif how == "crop":
        inputs = Inputs(Domain.from_folder(folder).decoded(24, cache_dir=cache), CPU, crop=20)
    else:
        Image.fromarray(np.zeros((24, 24, 3), dtype=np.uint8)).save(next(folder.glob("*/0.png")))
        inputs = inputs_of(folder, cache)
    found = describe_all(network, inputs, **options)
    assert network.seen == (3 if how == "mirrored" else 2) * COUNT
    assert len(kept(cache)) == 2
    if how != "precision":
        np.testing.assert_allclose(found, describe_all(network, inputs, **options))
    assert not network.low_precision


def test_leaves_the_network_as_it_was(folder: Path, tmp_path: Path) -> None:
    network = Counting().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    describe_all(network, inputs_of(folder, tmp_path / "cache"), low_precision=True)
    assert network.training
    assert not network.low_precision
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_of_some_of_the_images_nothing_is_kept(folder: Path, tmp_path: Path) -> None:
    whole = Domain.from_folder(folder).decoded(24, cache_dir=tmp_path / "cache")
    assert isinstance(whole.x, np.ndarray)
    assert entry_of(whole.x) is not None
    for part in (whole.x[:6], whole.x[::-1], np.array(whole.x), whole.x[:, :, ::-1]):
        assert entry_of(part) is None
    some = describe_all(Counting(), Inputs(dataclasses.replace(whole, x=whole.x[::-1]), CPU))
    assert len(some) == COUNT
    assert not kept(tmp_path / "cache")


def test_what_is_damaged_is_made_again(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, cache = Counting(), tmp_path / "cache"
    right = describe_all(network, inputs_of(folder, cache))
    (file,) = kept(cache)
    content = file.read_bytes()
    lie = content.replace(b"(24,", b"(9999999999999,", 1)
    for damaged in (
        b"",
        content[:100],
        content[:-8],
        b"\0" * len(content),
        lie,
        content[:10] + b"{'a'((" + content[17:],
    ):
        file.write_bytes(damaged)
        np.testing.assert_array_equal(describe_all(network, inputs_of(folder, cache)), right)
    np.save(file, np.full_like(right, np.nan))
    np.testing.assert_array_equal(describe_all(network, inputs_of(folder, cache)), right)
    np.save(file, right[:5])
    np.testing.assert_array_equal(describe_all(network, inputs_of(folder, cache)), right)


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = inputs_of(folder, tmp_path / "cache")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert len(describe_all(Counting(), inputs)) == COUNT
    assert not kept(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("images/*/.*"))


def test_a_module_of_ones_own_is_asked_every_time(folder: Path, tmp_path: Path) -> None:
    backbone = ModuleBackbone(Counting(), (24, 24, 3))
    backbone.pretrained = True
    inner: Counting = backbone.model  # type: ignore[assignment]
    before = inner.seen
    for _ in range(2):
        describe_all(backbone, inputs_of(folder, tmp_path / "cache"))
    assert inner.seen == before + 2 * COUNT
    assert not kept(tmp_path / "cache")


def test_features_and_fit_share_what_was_made(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import robustda.nets as nets

    made: list[int] = []
    plain = nets.TimmBackbone.forward

    def counted(self: nets.TimmBackbone, x: torch.Tensor) -> torch.Tensor:
        made.append(len(x))
        return plain(self, x)

    monkeypatch.setattr(nets.TimmBackbone, "forward", counted)
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = tmp_path / "weights.safetensors"
    save_file(nets.create_backbone("test_resnet", (72, 72, 3), "random").model.state_dict(), weights)  # type: ignore[union-attr, operator]
    how = {"backbone": "test_resnet", "weights": str(weights), "image_size": 80}
    domain = Domain.from_folder(folder)
    extract_features(domain, cache_dir=tmp_path / "cache", device="cpu", find_corrupted=False, **how)  # type: ignore[arg-type]
    assert sum(made) == 2 * COUNT  # either way round
    runs = {"device": "cpu", "precision": "float32", "progress": False, "tensorboard": False}
    for _ in range(2):
        create_method("clarity", head_steps=4, **how).fit(
            domain, domain.unlabelled(), cache_dir=str(tmp_path / "cache"), **runs
        )
    assert sum(made) == 2 * COUNT
    create_method("prototypes", **how).fit(domain, domain.unlabelled(), cache_dir=str(tmp_path / "cache"), **runs)
    assert sum(made) == 4 * COUNT  # these look at one side only; then to predict


def test_a_fit_finds_what_the_audit_made(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    import robustda
    import robustda.nets as nets

    torch.manual_seed(0)
    weights = tmp_path / "weights.safetensors"
    save_file(nets.create_backbone("test_resnet", (72, 72, 3), "random").model.state_dict(), weights)  # type: ignore[union-attr, operator]
    how = {"backbone": "test_resnet", "weights": str(weights), "image_size": 80}
    cache = str(tmp_path / "cache")
    robustda.audit(folder, folder, cache_dir=cache, device="cpu", **how)  # type: ignore[arg-type]
    before = kept(tmp_path / "cache")
    assert len(before) == 1  # both domains are the same files here
    domain = Domain.from_folder(folder)
    create_method("clarity", head_steps=4, **how).fit(
        domain, domain.unlabelled(), cache_dir=cache, device="cpu", progress=False, tensorboard=False
    )
    assert kept(tmp_path / "cache") == before


def test_a_backbone_that_was_tuned_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    import robustda.nets as nets

    weights = tmp_path / "weights.safetensors"
    save_file(nets.create_backbone("test_resnet", (72, 72, 3), "random").model.state_dict(), weights)  # type: ignore[union-attr, operator]
    how = {"backbone": "test_resnet", "weights": str(weights), "image_size": 80, "head_steps": 2, "steps": 2}
    domain, cache = Domain.from_folder(folder), tmp_path / "cache"
    for tune in (False, True):
        create_method("clarity", tune=tune, batch_size=8, pooling="mean", **how).fit(
            domain, domain.unlabelled(), cache_dir=str(cache), device="cpu", progress=False, tensorboard=False
        )
        assert len(kept(cache)) == 1


class Stopping(nn.Module):
    """A network that has its process asked to stop by the first images that it sees."""

    seen: ClassVar[list[int]] = []  # a method has copies of it

    def __init__(self) -> None:
        super().__init__()
        self.layers = SmallCNN((4, 4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.seen:
            signal.raise_signal(signal.SIGTERM)
        self.seen.append(len(x))
        return self.layers(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["clarity", "prototypes"])
def test_a_run_that_is_asked_to_stop_does_not_describe_all_images_first(method: str) -> None:
    """A thousand photographs may take a CPU minutes, and a cluster does not wait that long."""
    pixels = np.random.default_rng(0).integers(0, 256, (200, 72, 72, 3)).astype(np.uint8)
    domain = Domain.from_arrays(pixels, np.arange(200) % 2)
    Stopping.seen.clear()
    with pytest.raises(RunStopped):
        create_method(method, backbone=Stopping(), image_size=72).fit(domain, domain.unlabelled(), device="cpu")
    assert 0 < sum(Stopping.seen) < 200
