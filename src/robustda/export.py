"""A fitted model to take elsewhere: ONNX, torch.export or safetensors, with its preprocessing, a card and a check.

    from robustda.export import export_run

    done = export_run("runs/a", "onnx", "exports/a")
    done.difference     # the largest between the export's probabilities and the run's own

The folder holds the model, export.json (classes, input, output, digests) and MODEL_CARD.md. It appears whole or not at
all, and only if the exported model predicts what the run's own does.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from robustda._version import __version__
from robustda.backbones import set_checkpointing
from robustda.card import model_card, shown
from robustda.data.augment import centre_crop, to_float
from robustda.data.domain import Domain
from robustda.data.views import view
from robustda.errors import ConfigError, RunError
from robustda.exported import FILES, Exported, Format, as_run, file_digest, load_export
from robustda.extras import needs
from robustda.files import save_tensors
from robustda.methods.base import Method
from robustda.nets import Backbone
from robustda.predict import describe, load, predict_proba

__all__ = ["TOLERANCE", "Deployed", "Export", "export_run"]

TOLERANCE = 1e-4
"""The most that a probability of the exported model may be off."""

_EXTERNAL = 1_500_000_000  # ONNX files end at 2 GB: beyond this the weights go into a file of their own


@dataclass(frozen=True)
class Export:
    """What was exported."""

    path: Path
    format: str
    checked_with: str
    """what ran the exported model for the check; empty where nothing here could"""
    difference: float | None
    """the largest difference of a probability; None where nothing here could run it"""


class Deployed(nn.Module):
    """What is exported: bytes (m, size, size, 3) or vectors (m, d) in, probabilities (m, classes) out.

    The centre crop and the scaling to [0, 1] are inside; the normalisation is part of every backbone.
    """

    def __init__(self, network: nn.Module, image_size: int) -> None:
        super().__init__()
        self.network = network
        self.crop = view(image_size)[1]

    def forward(self, inputs: Tensor) -> Tensor:
        if self.crop is not None:
            inputs = to_float(centre_crop(inputs, self.crop))
        return torch.softmax(self.network(inputs), dim=1)


def export_run(
    run: str | os.PathLike[str] | Method,
    format: Format,
    out: str | os.PathLike[str],
    *,
    data: Domain | None = None,
) -> Export:
    """Export the model of a run folder, or a fitted method, and check that it predicts the same in float32 on a CPU.

    The check uses random inputs, and the examples of `data` where they are given.
    """
    out = Path(out)
    if format not in FILES:
        raise ConfigError(f"there is no format {format!r}: choose one of {', '.join(FILES)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already: choose another --out, or delete it first")
    method, facts = (run, {}) if isinstance(run, Method) else (load(run, device="cpu"), _facts(Path(run)))
    if not hasattr(method, "network_"):
        raise RunError(f"this {type(method).__name__} has not been fitted yet: call fit(source, target) first")
    if format == "safetensors" and isinstance(method.backbone, nn.Module):
        raise ConfigError("a backbone that is a module of your own cannot be built again from weights: export to onnx")
    with _on_cpu(method):
        temporary = out.with_name(f".{out.name}.{uuid.uuid4().hex}")
        try:
            temporary.mkdir(parents=True)
            _write(method, format, temporary, facts)
            checked_with, difference = _check(method, format, temporary, data)
            card = model_card(method, facts, format, checked_with, difference)
            (temporary / "MODEL_CARD.md").write_text(card, encoding="utf-8")
            if out.exists():
                out.rmdir()
            os.replace(temporary, out)
        except OSError as error:
            raise ConfigError(f"cannot write {out} ({error.strerror}): choose another --out") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return Export(out, format, checked_with, difference)


def _write(method: Method, format: str, folder: Path, facts: dict[str, Any]) -> None:
    model = Deployed(method.network_, method.image_size_).eval().requires_grad_(False)
    file = folder / FILES[format]
    if format == "safetensors":
        save_tensors(file, method.network_.state_dict())
    else:
        with _quiet():
            (_write_onnx if format == "onnx" else _write_archive)(model, _sample(method, 2), file)
    size, described = method.image_size_, describe(method)
    described["params"] = {name: shown(name, value) for name, value in described["params"].items()}
    about = {
        "format": format,
        "robustda": __version__,
        "torch": torch.__version__,
        **described,
        "input": {
            "name": "inputs",
            "type": "uint8" if size else "float32",
            "shape": ["batch", size, size, 3] if size else ["batch", *method.example_shape_],
            "meaning": f"RGB images, each squashed to {size} × {size}, bilinear with antialiasing"
            if size
            else "vectors",
        },
        "output": {"name": "probabilities", "type": "float32", "shape": ["batch", len(method.classes_)]},
        "summary": method.summary_,
        "data": facts.get("data"),
        "digests": {written.name: file_digest(written) for written in sorted(folder.iterdir())},
    }
    (folder / "export.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_onnx(model: nn.Module, sample: Tensor, file: Path) -> None:
    for module in ("onnx", "onnxscript"):
        needs(module, "onnx", "an export to ONNX")
    batch = torch.export.Dim("batch")
    program: Any = torch.onnx.export(
        model,
        (sample,),
        dynamic_shapes={"inputs": {0: batch}},
        input_names=["inputs"],
        output_names=["probabilities"],
        dynamo=True,
        verbose=False,
    )
    # What the exporter notes about every node includes the places of this machine's files.
    program.model.graph.metadata_props.clear()
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    program.save(str(file), external_data=weights > _EXTERNAL)


def _write_archive(model: nn.Module, sample: Tensor, file: Path) -> None:
    from robustda.archives import check_archive

    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (sample,), dynamic_shapes={"inputs": {0: batch}})
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta = {"val": node.meta["val"]} if "val" in node.meta else {}
    program._example_inputs = None  # they would be the one thing in the file that is pickled
    torch.export.save(program, file)
    check_archive(file)


def _check(method: Method, format: str, folder: Path, data: Domain | None) -> tuple[str, float | None]:
    """What ran the exported model, and the largest difference it showed; an error if that is too large."""
    runner = {"onnx": "onnxruntime", "torch-export": "torch.export", "safetensors": "robustda"}[format]
    try:
        exported = load_export(folder, device="cpu")
    except ConfigError:  # no onnxruntime
        return "", None
    own = as_run(Deployed(method.network_, method.image_size_).eval(), "cpu")
    largest = max(_difference(exported, own(x), x) for x in (_sample(method, n, n).numpy() for n in (1, 2, 7)))
    if data is not None:
        largest = max(largest, float(np.abs(predict_proba(exported, data) - predict_proba(method, data)).max()))
    if not largest <= TOLERANCE:
        raise RunError(
            f"the exported model's probabilities are off by up to {largest:.2g}, {TOLERANCE:g} is allowed: "
            f"choose another format than {format}"
        )
    return f"{runner} {_version(runner)}", largest


def _difference(exported: Exported, expected: np.ndarray, inputs: np.ndarray) -> float:
    return float(np.abs(exported.run(inputs) - expected).max())


def _sample(method: Method, count: int, seed: int = 0) -> Tensor:
    """Random inputs: bytes that vary smoothly, as in images, or vectors of about unit variance."""
    generator = torch.Generator().manual_seed(seed)
    if not method.image_size_:
        return torch.randn(count, *method.example_shape_, generator=generator)
    coarse = torch.rand(count, 3, 5, 5, generator=generator)
    size = (method.image_size_, method.image_size_)
    smooth = nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
    return (smooth * 255).byte().permute(0, 2, 3, 1).contiguous()


@contextmanager
def _on_cpu(method: Method) -> Iterator[None]:
    """The method's network on the CPU, in float32, and back where it was."""
    from robustda.engine import place

    device = next(iter(method.network_.state_dict().values())).device
    backbones = [layer for layer in method.network_.modules() if isinstance(layer, Backbone)]
    low = [backbone.low_precision for backbone in backbones]
    place(method.network_.eval(), torch.device("cpu"))
    for backbone in backbones:
        set_checkpointing(backbone, False)
    wants_gradient = {name: p.requires_grad for name, p in method.network_.named_parameters()}
    try:
        yield
    finally:
        for name, parameter in method.network_.named_parameters():
            parameter.requires_grad_(wants_gradient[name])
        method.network_.to(device)
        for backbone, before in zip(backbones, low, strict=True):
            backbone.low_precision = before


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters' own talk, which is about their inner workings, is of no use to the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _facts(run: Path) -> dict[str, Any]:
    """What the run folder knows beyond the method: the data, the machine, and what was made of each example."""
    found: dict[str, Any] = {"run": run}
    for name in ("config", "environment"):
        try:
            found[name] = json.loads((run / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            found[name] = {}
    data = found["config"].get("data")
    if data:  # where they lay is nobody's business
        data |= {name: Path(data[name]).name for name in ("source", "target") if data.get(name)}
    return found | {"data": data}


def _version(module: str) -> str:
    import importlib

    return str(getattr(importlib.import_module(module.partition(".")[0]), "__version__", ""))
