"""An exported model predicts what the run predicts, carries its preprocessing, and is loaded without running code."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from conftest import make_folders, make_pair
from robustda import Domain, load
from robustda.archives import check_archive
from robustda.cli import main
from robustda.data.images import fit_image, read_image
from robustda.errors import ConfigError, RunError
from robustda.export import TOLERANCE, export_run
from robustda.exported import Exported, file_digest, is_export, load_export
from robustda.methods import Method, create_method, method_class, method_names
from robustda.nets import create_backbone

QUIET: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}
SMALL = {
    "width": 16,
    "discriminator_width": 16,
    "steps": 6,
    "mentor_steps": 6,
    "head_steps": 6,
    "epochs": 1,
    "noise_rate": 0.3,
}


def needs_onnx() -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason=f"{module} is not installed (pip install 'robustda[onnx]')")


def small(name: str, **settings: Any) -> Method:
    known = {field.name for field in dataclasses.fields(method_class(name))}
    return create_method(name, **{k: v for k, v in {**SMALL, **settings}.items() if k in known})


@pytest.fixture(scope="module")
def vectors() -> tuple[Domain, Domain]:
    pair = make_pair(size=80, target_size=37)
    return pair.source, pair.target


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Domain, Domain]:
    made = make_folders(tmp_path_factory.mktemp("images"))
    return Domain.from_folder(made.source), Domain.from_folder(made.target)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of backbone weights, so that the methods on frozen features use the backbone."""
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    torch.manual_seed(0)
    save_file(create_backbone("resnet18", (64, 64, 3), "random").model.state_dict(), path)  # type: ignore[arg-type]
    return str(path)


@pytest.fixture(scope="module")
def run_on_vectors(tmp_path_factory: pytest.TempPathFactory, vectors: tuple[Domain, Domain]) -> Path:
    out = tmp_path_factory.mktemp("run") / "vectors"
    small("rda").fit(*vectors, out=out, **QUIET)
    return out


def assert_same(method: Method, target: Domain, format: Any, out: Path) -> Exported:
    done = export_run(method, format, out, data=target)
    assert done.difference is not None
    assert done.difference <= TOLERANCE
    exported = load_export(out, device="cpu")
    expected = method.predict_proba(target)
    np.testing.assert_allclose(exported.predict_proba(target), expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_array_equal(exported.predict(target), method.classes_[expected.argmax(axis=1)])
    one = target.take([0])
    np.testing.assert_allclose(exported.predict_proba(one), method.predict_proba(one), rtol=0, atol=TOLERANCE)
    return exported


@pytest.mark.parametrize("name", method_names())
def test_every_method_on_vectors(name: str, vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    method = small(name).fit(*vectors, **QUIET)
    for format in ("torch-export", "safetensors"):
        assert_same(method, vectors[1], format, tmp_path / format)
    needs_onnx()
    assert_same(method, vectors[1], "onnx", tmp_path / "onnx")


@pytest.mark.parametrize("name", ["rda", "concord", "prototypes"])
@pytest.mark.parametrize("backbone", ["small_cnn", "resnet18"])
def test_images(name: str, backbone: str, images: tuple[Domain, Domain], weights: str, tmp_path: Path) -> None:
    """At 72 pixels the centre crop is inside; at their own 14 there is none."""
    settings = {"weights": weights, "image_size": 72} if backbone == "resnet18" else {"image_size": 14}
    method = small(name, backbone=backbone, **settings).fit(*images, **QUIET)
    for format in ("torch-export", "safetensors"):
        assert_same(method, images[1], format, tmp_path / format)
    needs_onnx()
    assert_same(method, images[1], "onnx", tmp_path / "onnx")


def test_an_onnx_model_is_all_that_somebody_else_needs(
    images: tuple[Domain, Domain], weights: str, tmp_path: Path
) -> None:
    """With onnxruntime, Pillow and export.json alone: no robustda in between."""
    needs_onnx()
    import onnxruntime

    method = small("mdd", backbone="resnet18", weights=weights, image_size=80).fit(*images, **QUIET)
    export_run(method, "onnx", tmp_path / "export")
    about = json.loads((tmp_path / "export" / "export.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(tmp_path / "export" / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["batch", 80, 80, 3] == about["input"]["shape"]
    files = images[1].x.paths  # type: ignore[union-attr]
    batch = np.stack(
        [np.asarray(Image.open(file).convert("RGB").resize((80, 80), Image.Resampling.BILINEAR)) for file in files]
    )
    (found,) = session.run(None, {about["input"]["name"]: batch})
    np.testing.assert_allclose(found, method.predict_proba(images[1]), rtol=0, atol=TOLERANCE)
    assert about["classes"] == method.classes_.tolist()
    np.testing.assert_array_equal(batch[0], fit_image(read_image(files[0]), 80))


@pytest.mark.parametrize("format", ["onnx", "torch-export", "safetensors"])
def test_nothing_of_this_machine_is_in_an_export(
    format: Any, images: tuple[Domain, Domain], weights: str, tmp_path: Path
) -> None:
    if format == "onnx":
        needs_onnx()
    small("source_only", backbone="resnet18", weights=weights, image_size=72).fit(*images, out=tmp_path / "r", **QUIET)
    export_run(tmp_path / "r", format, tmp_path / "export")
    for file in (tmp_path / "export").iterdir():
        content = file.read_bytes()
        for trace in (str(tmp_path.parent), str(Path(weights).parent), str(Path(torch.__file__).parent), "export.py"):
            assert trace.encode() not in content, (file.name, trace)


def test_features_are_matched_by_name(tmp_path: Path) -> None:
    pair = make_pair(size=80, target_size=20)
    names = [f"f{number}" for number in range(10)]
    source = Domain.from_table(pd.DataFrame(pair.source.x, columns=names).assign(label=pair.source.labels))
    table = pd.DataFrame(pair.target.x, columns=names)
    method = small("rda").fit(source, Domain.from_table(table), **QUIET)
    exported = assert_same(method, Domain.from_table(table), "safetensors", tmp_path / "export")
    assert exported.features_ == tuple(names)
    turned = Domain.from_table(table[names[::-1]].assign(more=1.0))
    np.testing.assert_allclose(exported.predict_proba(turned), method.predict_proba(table.to_numpy()), atol=1e-6)


def test_the_card_says_what_the_run_knows(run_on_vectors: Path, tmp_path: Path) -> None:
    export_run(run_on_vectors, "safetensors", tmp_path / "export")
    card = (tmp_path / "export" / "MODEL_CARD.md").read_text(encoding="utf-8")
    summary = json.loads((run_on_vectors / "summary.json").read_text())
    assert re.findall(r"^## (.*)$", card, flags=re.MULTILINE) == [
        "Use",
        "Data",
        "Noise found",
        "Accuracy expected",
        "Limits",
        "Settings",
    ]
    assert f"About {summary['noise_rate']:.0%} of the source's labels look wrong" in card
    assert f"{summary['target_accuracy']:.1%} on the target" in card
    assert "source, 80 examples" in card
    assert "target, 37 examples" in card
    trust = pd.read_csv(run_on_vectors / "trust.csv").groupby("given_label")["weight"].mean()
    for name, share in trust.items():
        assert re.search(rf"\| {name} \| \d+ \| {share:.0%} \|", card)
    assert "| noise_rate | 0.3 |" in card


def test_the_card_admits_what_it_does_not_know(vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    method = small("mdd").fit(vectors[0], vectors[1].unlabelled(), **QUIET)
    export_run(method, "safetensors", tmp_path / "export")
    card = (tmp_path / "export" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "Not known: the target had no labels" in card
    assert "does not judge labels" in card
    assert "not on record" in card


@pytest.mark.parametrize("format", ["onnx", "torch-export", "safetensors"])
@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_command_line(format: str, kind: str, run_on_vectors: Path, tmp_path: Path, capsys: Any) -> None:
    if format == "onnx":
        needs_onnx()
    pair = make_pair(size=80, target_size=37)
    pair.target.save_npz(tmp_path / "new.npz")
    assert main(["export", str(run_on_vectors), "--format", format, "--out", str(tmp_path / "export")]) == 0
    said = capsys.readouterr().out
    assert "probabilities differ by at most" in said
    assert is_export(tmp_path / "export")
    tables = []
    for model in (run_on_vectors, tmp_path / "export"):
        out = tmp_path / f"{model.name}{kind}"
        arguments = ["predict", str(model), str(tmp_path / "new.npz"), "--out", str(out), "--probabilities"]
        assert main([*arguments, "--device", "cpu"]) == 0
        tables.append(pd.read_csv(out) if kind == ".csv" else pd.read_parquet(out))
    assert list(tables[0]) == list(tables[1])
    assert [column for column in tables[0] if column.startswith("p(")] == ["p(ant)", "p(bee)", "p(cat)", "p(dog)"]
    pd.testing.assert_frame_equal(*tables, atol=TOLERANCE, rtol=0)


def test_folders_and_lists_and_tables_are_predicted(images: tuple[Domain, Domain], tmp_path: Path) -> None:
    small("source_only", image_size=14).fit(*images, out=tmp_path / "run", **QUIET)
    export_run(tmp_path / "run", "safetensors", tmp_path / "export")
    folder = Path(images[1].name)
    files = sorted(folder.rglob("*.*"))
    (folder / "list.txt").write_text("".join(f"{file.relative_to(folder)}\n" for file in files))
    pd.DataFrame({"path": [str(file.relative_to(folder)) for file in files]}).to_csv(folder / "t.csv", index=False)
    found = []
    for data in (folder, folder / "list.txt", folder / "t.csv"):
        out = tmp_path / f"{data.name}.csv"
        assert main(["predict", str(tmp_path / "export"), str(data), "--out", str(out), "--device", "cpu"]) == 0
        found.append(pd.read_csv(out)[["id", "prediction", "probability"]])
    pd.testing.assert_frame_equal(found[0], found[1])
    pd.testing.assert_frame_equal(found[0], found[2])


def test_mistakes_are_answered_in_one_line(run_on_vectors: Path, tmp_path: Path, capsys: Any) -> None:
    export_run(run_on_vectors, "safetensors", tmp_path / "export")
    np.savez(tmp_path / "narrow.npz", x=np.zeros((3, 4), np.float32))
    run, export = str(run_on_vectors), str(tmp_path / "export")
    for arguments, said in (
        (["export", run, "--format", "onxx", "--out", "e"], "give one of onnx, torch-export, safetensors"),
        (["export", run, "--format", "onnx"], "required: out"),
        (["export", run, "--format", "safetensors", "--out", export], "is there already"),
        (["export", export, "--format", "onnx", "--out", "e"], "is an export, not a run"),
        (["export", str(tmp_path), "--format", "onnx", "--out", "e"], "holds no finished run"),
        (["predict", export, str(tmp_path / "narrow.npz"), "--out", "p.csv"], "10 features, but these have 4"),
    ):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(ConfigError, match="there is no format"):
        export_run(run_on_vectors, "pickle", tmp_path / "other")  # type: ignore[arg-type]
    with pytest.raises(RunError, match="not been fitted"):
        export_run(small("rda"), "safetensors", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_damaged_export_is_refused(run_on_vectors: Path, tmp_path: Path) -> None:
    export_run(run_on_vectors, "safetensors", tmp_path / "export")
    file = tmp_path / "export" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"model\.safetensors is not the file that was written"):
        load_export(tmp_path / "export")
    about = tmp_path / "export" / "export.json"
    about.write_text(about.read_text().replace('"safetensors",', '"pickle",', 1))
    with pytest.raises(RunError, match="its format cannot be 'pickle'"):
        load_export(tmp_path / "export")


def test_a_missing_extra_is_one_line(run_on_vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"needs onnx: pip install 'robustda\[onnx\]'"):
        export_run(run_on_vectors, "onnx", tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_without_onnxruntime_the_export_says_that_it_was_not_checked(
    run_on_vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    needs_onnx()
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", str(run_on_vectors), "--format", "onnx", "--out", str(tmp_path / "export")]) == 0
    assert "not checked" in capsys.readouterr().out
    assert "It was not checked" in (tmp_path / "export" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert main(["predict", str(tmp_path / "export"), "x.npz", "--out", "p.csv"]) == 2
    assert "pip install 'robustda[onnx]'" in capsys.readouterr().err


class Planted:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def forge(file: Path, change: Callable[[str, bytes], bytes], extra: dict[str, bytes] | None = None) -> None:
    """Write an archive anew with some members changed."""
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    top = next(iter(content)).partition("/")[0]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in content.items():
            archive.writestr(name, change(name, data))
        for name, data in (extra or {}).items():
            archive.writestr(f"{top}/{name}", data)


def note_digest(export: Path) -> None:
    """Whoever forges the file forges its digest, too."""
    about = json.loads((export / "export.json").read_text())
    about["digests"]["model.pt2"] = file_digest(export / "model.pt2")
    (export / "export.json").write_text(json.dumps(about))


def unchanged(name: str, content: bytes) -> bytes:
    return content


def test_a_forged_archive_is_not_loaded(run_on_vectors: Path, tmp_path: Path) -> None:
    """PyTorch's reader would unpickle, evaluate or call these: they must not reach it."""
    mark = tmp_path / "it ran"
    evil = pickle.dumps(Planted(mark))
    stored = io.BytesIO()
    torch.save(Planted(mark), stored)
    code = f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def model(old: str, new: str) -> Callable[[str, bytes], bytes]:
        def change(name: str, content: bytes) -> bytes:
            if not name.endswith("models/model.json"):
                return content
            changed = re.sub(old, lambda _: new, content.decode(), count=1)
            assert changed != content.decode()
            return changed.encode()

        return change

    def pickled(name: str, content: bytes) -> bytes:
        if name.endswith("/weight_0"):
            return stored.getvalue()
        return content.replace(b'"use_pickle": false', b'"use_pickle": true', 1)

    def sample(name: str, content: bytes) -> bytes:
        return evil if name.endswith("sample_inputs/model.pt") else content

    forgeries: dict[str, tuple[Callable[[str, bytes], bytes], dict[str, bytes] | None]] = {
        "a pickle": (pickled, None),
        "pickled example inputs": (sample, None),
        "the expression": (model(r'"expr_str": "[^"]*"', f'"expr_str": {json.dumps(code)}'), None),
        "guards": (model(r'"guards_code": \[\]', f'"guards_code": [{json.dumps(code)}]'), None),
        "a call of": (model(r'"torch\.ops\.aten\.softmax\.int"', '"torch.load"'), None),
        "the name": (model(r'"name": "softmax"', f'"name": {json.dumps(code)}'), None),
        "metadata": (model(r'"metadata": \{\}', '"metadata": {"custom": "{}"}'), None),
        "the file": (unchanged, {"data/constants/custom_obj_0": evil}),
    }
    for number, (said, (change, extra)) in enumerate(forgeries.items()):
        out = tmp_path / str(number)
        export_run(run_on_vectors, "torch-export", out)
        check_archive(out / "model.pt2")
        forge(out / "model.pt2", change, extra)
        note_digest(out)
        with pytest.raises(RunError, match=f"holds {said}.*it is not loaded"):
            load_export(out)
    assert not mark.exists()
    (tmp_path / "0" / "model.pt2").write_bytes(b"no archive at all")
    note_digest(tmp_path / "0")
    with pytest.raises(RunError, match=r"cannot be read as a \.pt2 archive"):
        load_export(tmp_path / "0")


def test_a_method_is_left_as_it_was(vectors: tuple[Domain, Domain], tmp_path: Path) -> None:
    method = small("rda").fit(*vectors, **QUIET)
    before = {name: p.requires_grad for name, p in method.network_.named_parameters()}
    expected = method.predict_proba(vectors[1])
    export_run(method, "torch-export", tmp_path / "export")
    assert {name: p.requires_grad for name, p in method.network_.named_parameters()} == before
    np.testing.assert_array_equal(method.predict_proba(vectors[1]), expected)


def test_a_run_folder_loads_as_before(run_on_vectors: Path, vectors: tuple[Domain, Domain]) -> None:
    found = load(run_on_vectors, device="cpu").predict_proba(vectors[1])
    table = pd.read_csv(run_on_vectors / "predictions.csv")
    np.testing.assert_allclose(found.max(axis=1), table["probability"], atol=1e-6)
