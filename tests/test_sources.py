"""Data as people have them: data sets of torch, torchvision and Hugging Face, lists, JSON lines, shards, addresses."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from conftest import Folders, make_pair
from robustda import Domain
from robustda.cli import main
from robustda.data.images import ImageFiles
from robustda.errors import ConfigError, DataError, RobustDAWarning

RNG = np.random.default_rng(0)


class Listed(Dataset[Any]):
    """A map-style data set of whatever is in a list."""

    def __init__(self, items: list[Any], classes: list[str] | None = None) -> None:
        self.items = items
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def picture(height: int = 9, width: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def decoded(domain: Domain, size: int = 8) -> np.ndarray:
    return np.asarray(domain.decoded(size).x)


# torch and torchvision


def test_image_folder_is_read_by_its_files(folders: Folders) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    expected = Domain.from_folder(folders.source)
    found = Domain.from_dataset(datasets.ImageFolder(folders.source))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.labels is not None
    assert found.labels.tolist() == expected.labels.tolist()  # type: ignore[union-attr]
    np.testing.assert_array_equal(decoded(found), decoded(expected))
    part = Domain.from_dataset(Subset(Subset(datasets.ImageFolder(folders.source), [3, 20, 9]), [2, 0]))
    assert part.ids.tolist() == expected.ids[[9, 3]].tolist()
    assert part.labels.tolist() == expected.labels[[9, 3]].tolist()  # type: ignore[union-attr, index]


def test_a_transform_on_an_image_folder_is_left_aside_aloud(folders: Folders) -> None:
    from torchvision import datasets, transforms

    with pytest.warns(RobustDAWarning, match="transform is left aside"):
        Domain.from_dataset(datasets.ImageFolder(folders.source, transform=transforms.ToTensor()))


def test_vectors_of_a_tensor_dataset() -> None:
    x, y = torch.randn(20, 5), torch.arange(20) % 3
    found = Domain.from_dataset(TensorDataset(x, y))
    assert found.kind == "vectors"
    np.testing.assert_array_equal(found.x, x.numpy())
    np.testing.assert_array_equal(found.labels, y.numpy())
    unlabelled = Domain.from_dataset(TensorDataset(x))
    assert unlabelled.y is None
    assert Domain.from_dataset(TensorDataset(x, y), labels="ignore").y is None


@pytest.mark.parametrize("form", ["pil", "hwc", "chw", "tensor", "float tensor", "bytes"])
def test_images_in_every_form_are_the_same_pixels(form: str) -> None:
    pixels = [picture(seed=seed) for seed in range(3)]

    def as_form(image: np.ndarray) -> Any:
        if form == "bytes":
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "PNG")
            return buffer.getvalue()
        return {
            "pil": lambda: Image.fromarray(image),
            "hwc": lambda: image,
            "chw": lambda: image.transpose(2, 0, 1),
            "tensor": lambda: torch.from_numpy(image.transpose(2, 0, 1).copy()),
            "float tensor": lambda: torch.from_numpy(image.transpose(2, 0, 1) / 255.0),
        }[form]()

    found = Domain.from_dataset(Listed([(as_form(image), code) for code, image in enumerate(pixels)], list("abc")))
    assert found.kind == "images"
    assert found.labels.tolist() == ["a", "b", "c"]  # type: ignore[union-attr]
    if form == "bytes":
        assert isinstance(found.x, ImageFiles)
        found = found.decoded(9)
        pixels = [np.asarray(Image.fromarray(image).resize((9, 9), Image.Resampling.BILINEAR)) for image in pixels]
    np.testing.assert_array_equal(np.asarray(found.x), np.stack(pixels))


def test_images_of_several_sizes_become_files_with_their_very_pixels() -> None:
    pixels = [picture(height=8 + number, seed=number) for number in range(4)]
    found = Domain.from_dataset(Listed([{"image": Image.fromarray(image), "label": "x"} for image in pixels]))
    assert isinstance(found.x, ImageFiles)
    assert found.ids.tolist() == ["0", "1", "2", "3"]
    for path, image in zip(found.x.paths, pixels, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(path)), image)
    again = Domain.from_dataset(Listed([{"image": image} for image in pixels]))
    assert again.x.paths == found.x.paths  # type: ignore[union-attr]


def test_gray_paths_and_missing_labels(tmp_path: Path) -> None:
    gray = Domain.from_dataset(Listed([(torch.rand(1, 6, 6), 0), (np.zeros((6, 6), np.uint8), -1)], ["no", "yes"]))
    assert gray.shape == (6, 6, 3)
    assert gray.labels.tolist() == ["no", None]  # type: ignore[union-attr]
    Image.fromarray(picture()).save(tmp_path / "a.png")
    files = Domain.from_dataset(Listed([(tmp_path / "a.png", torch.tensor([4]))]))
    assert files.x.paths == (str(tmp_path / "a.png"),)  # type: ignore[union-attr]
    assert files.labels.tolist() == [4]  # type: ignore[union-attr]


def test_a_model_learns_from_a_torch_dataset() -> None:
    from robustda import SourceOnly

    pair = make_pair(size=120, target_size=60, rate=0.0, shift=0.5)
    names = list(pair.source.classes)
    source = TensorDataset(torch.from_numpy(np.asarray(pair.source.x)), torch.as_tensor(pair.source.y))
    source.classes = names  # type: ignore[attr-defined]
    target = Domain.from_dataset(Listed([row for row in np.asarray(pair.target.x)]))  # noqa: C416
    fitted = SourceOnly(width=32, steps=150, learning_rate=0.02).fit(
        Domain.from_dataset(source), target, device="cpu", progress=False
    )
    assert (fitted.predict(target) == pair.target.labels).mean() > 0.8


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([])


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Streamed(), "cannot be read by number"),
        (Listed([]), "no examples"),
        ({"train": Listed([1])}, "several data sets"),
        (Listed([(torch.randn(3, 4, 4), 0)]), "leave Normalize out"),
        (Listed([(torch.rand(5, 4, 4), 0)]), "channels"),
        (Listed([(torch.rand(3, 4, 4), torch.zeros(3))]), "one class an example"),
        (Listed([{"picture": 1}]), "which key holds the inputs"),
        (Listed([(object(), 0)]), "example 0 is object"),
        (Listed([(np.zeros(3), 0), (np.array(["a", "b", "c"]), 1)]), "example 1 is no vector"),
    ],
)
def test_what_cannot_be_a_domain_is_one_line(dataset: Any, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        Domain.from_dataset(dataset)
    assert "\n" not in str(error.value)


def test_keys_are_named_and_misspelled() -> None:
    items = [{"pic": picture(), "kind": "a", "label": "b"}]
    found = Domain.from_dataset(Listed(items), x="pic", label="kind")
    assert found.labels.tolist() == ["a"]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="no key 'pik': did you mean 'pic'"):
        Domain.from_dataset(Listed(items), x="pik")
    with pytest.raises(DataError, match="has no labels"):
        Domain.from_dataset(Listed([picture()]), labels="required")


# Hugging Face


def hugging_face() -> Any:
    return pytest.importorskip("datasets", reason="datasets is not installed (pip install 'robustda[hf]')")


def hf_images(tmp_path: Path) -> Any:
    datasets = hugging_face()
    Image.fromarray(picture(seed=9)).save(tmp_path / "file.png")
    rows = [Image.fromarray(picture(height=8 + row, seed=row)) for row in range(3)] + [str(tmp_path / "file.png")]
    features = datasets.Features({"img": datasets.Image(), "kind": datasets.ClassLabel(names=["ant", "bee"])})
    return datasets.Dataset.from_dict({"img": rows, "kind": [0, 1, 0, 1]}, features=features)


def test_hugging_face_images(tmp_path: Path) -> None:
    found = Domain.from_dataset(hf_images(tmp_path))
    assert found.labels.tolist() == ["ant", "bee", "ant", "bee"]  # type: ignore[union-attr]
    assert isinstance(found.x, ImageFiles)
    for row, path in enumerate(found.x.paths[:3]):
        np.testing.assert_array_equal(np.asarray(Image.open(path)), picture(height=8 + row, seed=row))
    assert found.x.paths[3] == str(tmp_path / "file.png")


def test_hugging_face_saved_to_disk_is_read_by_path(tmp_path: Path) -> None:
    datasets = hugging_face()
    data = hf_images(tmp_path)
    data.save_to_disk(tmp_path / "saved")
    found = Domain.read(tmp_path / "saved")
    np.testing.assert_array_equal(decoded(found), decoded(Domain.from_dataset(data)))
    datasets.DatasetDict(train=data).save_to_disk(tmp_path / "splits")
    with pytest.raises(DataError, match="several splits"):
        Domain.read(tmp_path / "splits")
    with pytest.raises(DataError, match="several data sets"):
        Domain.from_dataset(datasets.DatasetDict(train=data))


def test_hugging_face_vectors_and_columns() -> None:
    datasets = hugging_face()
    x = RNG.normal(size=(6, 4)).astype(np.float32)
    lists = datasets.Dataset.from_dict({"embedding": x.tolist(), "label": ["a", "b"] * 3})
    found = Domain.from_dataset(lists)
    np.testing.assert_array_equal(found.x, x)
    assert found.labels.tolist() == ["a", "b"] * 3  # type: ignore[union-attr]
    columns = datasets.Dataset.from_dict({"f": x[:, 0].tolist(), "g": x[:, 1].tolist(), "label": [1, 2] * 3})
    found = Domain.from_dataset(columns)
    assert found.features == ("f", "g")
    assert found.labels.tolist() == [1, 2] * 3  # type: ignore[union-attr]
    with pytest.raises(DataError, match="no column 'lable': did you mean 'label'"):
        Domain.from_dataset(columns, label="lable")


def test_without_the_extra_a_saved_dataset_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    for name in ("dataset_info.json", "state.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"pip install 'robustda\[hf\]'"):
        Domain.read(tmp_path)


# lists and JSON lines


def test_lists_of_images(folders: Folders) -> None:
    folder = Domain.from_folder(folders.source)
    top = folders.source
    os.rename(top / "ant" / "0.png", top / "ant" / "a picture.png")
    ids = [name.replace("ant/0.png", "ant/a picture.png") for name in folder.ids]
    labels = folder.labels.tolist()  # type: ignore[union-attr]
    (top / "plain.txt").write_text("\n".join(ids))
    (top / "spaced.txt").write_text("\n".join(f"{i} {n}" for i, n in zip(ids, labels, strict=True)) + "\n\n")
    (top / "tabs.txt").write_text("\n".join(f"{i}\t{n}" for i, n in zip(ids, labels, strict=True)))
    (top / "codes.txt").write_text("\n".join(f"{i} {labels.index(n)}" for i, n in zip(ids, labels, strict=True)))
    plain = Domain.read(top / "plain.txt")
    assert plain.ids.tolist() == ids
    assert plain.y is None
    for name in ("spaced.txt", "tabs.txt"):
        found = Domain.read(top / name)
        assert found.ids.tolist() == ids
        assert found.labels.tolist() == labels  # type: ignore[union-attr]
        np.testing.assert_array_equal(decoded(found), decoded(plain))
    codes = Domain.read(top / "codes.txt")
    assert codes.labels.tolist() == [labels.index(name) for name in labels]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="put one behind each path"):
        Domain.read(top / "plain.txt", labels="required")
    (top / "bad.txt").write_text("nowhere.png\n")
    with pytest.raises(DataError, match="none of its files exists"):
        Domain.read(top / "bad.txt")
    (top / "none.txt").write_text("\n")
    with pytest.raises(DataError, match="no lines"):
        Domain.read(top / "none.txt")


def test_json_lines_are_like_other_tables(folders: Folders, tmp_path: Path) -> None:
    folder = Domain.from_folder(folders.source)
    rows = [
        {"path": f"web/{i}", "label": n, "id": f"00{k}"}
        for k, (i, n) in enumerate(zip(folder.ids, folder.labels, strict=True))  # type: ignore[arg-type]
    ]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "t.jsonl").write_text(lines)
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write(lines)
    for name in ("t.jsonl", "t.jsonl.gz"):
        found = Domain.read(tmp_path / name)
        assert found.ids.tolist() == [row["id"] for row in rows]
        assert found.labels.tolist() == folder.labels.tolist()  # type: ignore[union-attr]
        np.testing.assert_array_equal(decoded(found), decoded(folder))


def test_json_lines_of_features(tmp_path: Path) -> None:
    x = RNG.normal(size=(5, 3))
    rows = [{"a": r[0], "b": r[1], "c": r[2], "label": k if k else None} for k, r in enumerate(x)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = Domain.read(tmp_path / "t.jsonl")
    np.testing.assert_allclose(found.x, x.astype(np.float32))
    assert found.features == ("a", "b", "c")
    assert found.labels.tolist() == [None, 1, 2, 3, 4]  # type: ignore[union-attr]
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(DataError, match="cannot be read as a table"):
        Domain.read(tmp_path / "bad.jsonl")


# shards


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture(height=8 + seed, seed=seed)).save(buffer, "PNG")
    return buffer.getvalue()


def test_shards_of_images(tmp_path: Path) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"part-{shard:03d}.tar", "w") as archive:
            for number in range(3):
                key = f"web/{number:04d}"
                add(archive, f"{key}.png", png(3 * shard + number))
                if shard:
                    add(archive, f"{key}.json", json.dumps({"label": "cat", "more": [1]}).encode())
                else:
                    add(archive, f"{key}.cls", b"dog\n")
                add(archive, f"{key}.txt", b"a caption")
    found = Domain.read(f"{tmp_path}/part-{{000..001}}.tar")
    assert found.labels.tolist() == ["dog"] * 3 + ["cat"] * 3  # type: ignore[union-attr]
    assert found.ids[0] == "part-000.tar/web/0000"
    for row, path in enumerate(found.x.paths):  # type: ignore[union-attr]
        np.testing.assert_array_equal(np.asarray(Image.open(path)), picture(height=8 + row, seed=row))
    by_star = Domain.read(f"{tmp_path}/part-*.tar", labels="ignore")
    assert by_star.ids.tolist() == found.ids.tolist()
    assert by_star.y is None
    assert Domain.read(tmp_path / "part-000.tar").ids[0] == "web/0000"


def test_shards_of_vectors_and_compressed(tmp_path: Path) -> None:
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    with tarfile.open(tmp_path / "v.tar.gz", "w:gz") as archive:
        for number, row in enumerate(x):
            buffer = io.BytesIO()
            np.save(buffer, row)
            add(archive, f"{number}.npy", buffer.getvalue())
            add(archive, f"{number}.cls", str(number % 2).encode())
    found = Domain.read(tmp_path / "v.tar.gz")
    np.testing.assert_array_equal(found.x, x)
    assert found.labels.tolist() == [0, 1, 0, 1]  # type: ignore[union-attr]


def test_a_shard_cannot_lead_out_of_itself(tmp_path: Path) -> None:
    for number, name in enumerate(["/etc/0.png", "../0.png", "a/../../0.png", "a\\..\\0.png"]):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as archive:
            add(archive, name, png(0))
        with pytest.raises(DataError, match="leads out of it"):
            Domain.read(tmp_path / f"{number}.tar")
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
        with tarfile.open(tmp_path / "link.tar", "w") as archive:
            member = tarfile.TarInfo("0.png")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
        with pytest.raises(DataError, match="is a link"):
            Domain.read(tmp_path / "link.tar")


def test_bad_shards_are_one_line(tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "it ran",)

    buffer = io.BytesIO()
    np.save(buffer, np.array([Planted()], dtype=object), allow_pickle=True)
    with tarfile.open(tmp_path / "pickle.tar", "w") as archive:
        add(archive, "0.npy", buffer.getvalue())
    with tarfile.open(tmp_path / "bare.tar", "w") as archive:
        add(archive, "0.png", png(0))
        add(archive, "1.cls", b"3")
    with tarfile.open(tmp_path / "label.tar", "w") as archive:
        add(archive, "0.png", png(0))
        add(archive, "0.json", b"{")
    with tarfile.open(tmp_path / "both.tar", "w") as archive:
        buffer = io.BytesIO()
        np.save(buffer, np.zeros(3))
        add(archive, "0.png", png(0))
        add(archive, "1.npy", buffer.getvalue())
    (tmp_path / "none.tar").write_bytes(b"no archive")
    whole = tmp_path / "bare.tar"
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:700])
    for name, said in {
        "pickle.tar": "no array of numbers",
        "bare.tar": "1 example of 2 have no image",
        "label.tar": "the label of 0 cannot be read",
        "both.tar": "both images and vectors",
        "none.tar": "cannot be read",
        "cut.tar": "cannot be read",
        "absent.tar": "no shard",
        "x*.tar": "no shards",
    }.items():
        with pytest.raises(DataError, match=said):
            Domain.read(f"{tmp_path}/{name}")
    assert not (tmp_path / "it ran").exists()


# addresses


@pytest.fixture
def memory() -> Iterator[Any]:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (pip install 'robustda[fsspec]')")
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def upload(system: Any, folder: Path, to: str) -> None:
    for file in folder.rglob("*.*"):
        system.pipe(f"{to}/{file.relative_to(folder)}", file.read_bytes())


def test_a_folder_in_memory(memory: Any, folders: Folders) -> None:
    upload(memory, folders.source, "/bucket/web")
    expected = Domain.from_folder(folders.source)
    found = Domain.read("memory://bucket/web")
    assert found.name == "memory://bucket/web"
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.labels.tolist() == expected.labels.tolist()  # type: ignore[union-attr]
    np.testing.assert_array_equal(decoded(found), decoded(expected))


def test_what_changed_elsewhere_is_fetched_again_and_only_that(
    memory: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(memory, folders.source, "/changing")
    Domain.read("memory://changing")
    fetched: list[str] = []
    plain = type(memory).get_file

    def counted(self: Any, there: str, here: str, **more: Any) -> Any:
        fetched.append(there)
        return plain(self, there, here, **more)

    monkeypatch.setattr(type(memory), "get_file", counted)
    Domain.read("memory://changing")
    assert fetched == []
    memory.pipe("/changing/ant/0.png", png(5))
    memory.rm("/changing/ant/1.jpg")
    found = Domain.read("memory://changing")
    assert fetched == ["/changing/ant/0.png"]
    assert "ant/1.jpg" not in found.ids
    changed = found.x.paths[found.ids.tolist().index("ant/0.png")]  # type: ignore[union-attr]
    assert Path(changed).read_bytes() == png(5)


def test_tables_and_arrays_and_shards_in_memory(memory: Any, folders: Folders, tmp_path: Path) -> None:
    upload(memory, folders.source, "/b/web")
    folder = Domain.from_folder(folders.source)
    table = pd.DataFrame({"path": [f"web/{i}" for i in folder.ids], "label": folder.labels})
    memory.pipe("/b/t.csv", table.to_csv(index=False).encode())
    found = Domain.read("memory://b/t.csv")
    assert found.labels.tolist() == folder.labels.tolist()  # type: ignore[union-attr]
    np.testing.assert_array_equal(decoded(found), decoded(folder))
    memory.pipe("/b/out.csv", b"path,label\n../../../etc/passwd,a\n")
    with pytest.raises(DataError, match="leads out of its folder"):
        Domain.read("memory://b/out.csv")
    memory.pipe("/b/abs.csv", b"path,label\n/etc/passwd,a\n")
    with pytest.raises(DataError, match="must be relative"):
        Domain.read("memory://b/abs.csv")
    pair = make_pair(size=20, target_size=10)
    pair.source.save_npz(tmp_path / "x.npz")
    memory.pipe("/b/x.npz", (tmp_path / "x.npz").read_bytes())
    np.testing.assert_array_equal(Domain.read("memory://b/x.npz").x, pair.source.x)
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        add(archive, "0.png", png(0))
    memory.pipe("/b/s.tar", (tmp_path / "s.tar").read_bytes())
    assert len(Domain.read("memory://b/s.tar")) == 1


def test_local_addresses_and_the_command_line(memory: Any, tmp_path: Path, capsys: Any) -> None:
    pair = make_pair(size=40, target_size=20)
    pair.source.save_npz(tmp_path / "s.npz")
    pair.target.save_npz(tmp_path / "t.npz")
    memory.pipe("/data/s.npz", (tmp_path / "s.npz").read_bytes())
    arguments = ["fit", "--method", "prototypes", "--source", "memory://data/s.npz", "--tensorboard=false"]
    assert main([*arguments, "--target", f"file://{tmp_path}/t.npz", "--out", str(tmp_path / "run")]) == 0
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    assert about["data"]["source"] == "memory://data/s.npz"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("memory://nowhere/x.npz", "there is nothing at memory://nowhere"),
        ("nosuch://a/b.csv", "cannot be read"),
    ],
)
def test_bad_addresses_are_one_line(memory: Any, address: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as error:
        Domain.read(address)
    assert "\n" not in str(error.value)


def test_without_fsspec_an_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigError, match=r"needs fsspec: pip install 'robustda\[fsspec\]'"):
        Domain.read("s3://bucket/web")
