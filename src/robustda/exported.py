"""A model that was exported: reading it back without running anything it holds, and predicting with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from robustda.errors import ConfigError, RunError
from robustda.extras import needs
from robustda.reading import read_object, reason

if TYPE_CHECKING:
    from torch import nn

    from robustda.data.domain import Domain

__all__ = ["FILES", "Exported", "Format", "is_export", "load_export"]

Format = Literal["onnx", "torch-export", "safetensors"]
FILES: dict[str, str] = {"onnx": "model.onnx", "torch-export": "model.pt2", "safetensors": "model.safetensors"}
_ABOUT = "export.json"
_BATCH_BYTES = 1 << 26  # what one batch of inputs may take up

Run = Callable[[np.ndarray], np.ndarray]


class Exported:
    """An exported model, with the attributes of a fitted method that predicting needs."""

    def __init__(self, about: dict[str, Any], run: Run) -> None:
        self.about = about
        """what export.json holds"""
        self.classes_ = np.asarray(about["classes"])
        self.image_size_, self.example_shape_ = int(about["image_size"]), tuple(about["example_shape"])
        self.features_ = tuple(about["features"])
        self._run = run

    def predict(self, x: Domain | np.ndarray | str | os.PathLike[str]) -> np.ndarray:
        """The most likely class of each example, by name. `x` is a Domain, an array, or a path to read."""
        names: np.ndarray = self.classes_[self.predict_proba(x).argmax(axis=1)]
        return names

    def predict_proba(self, x: Domain | np.ndarray | str | os.PathLike[str]) -> np.ndarray:
        """Probabilities, one row an example, one column a class of `classes_`."""
        from robustda.predict import predict_proba

        return predict_proba(self, x)

    def run(self, inputs: np.ndarray) -> np.ndarray:
        """Probabilities for inputs as the model takes them: bytes (m, size, size, 3), or float32 vectors (m, d)."""
        rows = max(1, min(1024, _BATCH_BYTES // max(1, 4 * int(np.prod(inputs.shape[1:])))))
        try:
            parts = [self._run(np.array(inputs[at : at + rows])) for at in range(0, len(inputs), rows)]
        except MemoryError:
            raise
        except Exception as error:  # onnxruntime's exceptions share no class
            raise RunError(f"the exported model cannot be run ({reason(error)[:200]}): export the run again") from error
        found = np.concatenate(parts) if parts else np.empty((0, len(self.classes_)), np.float32)
        if found.shape != (len(inputs), len(self.classes_)):
            needed = (len(inputs), len(self.classes_))
            raise RunError(f"the exported model gives {found.shape} numbers in place of {needed}: export the run again")
        return found


def is_export(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is an export and not a run."""
    return (Path(path) / _ABOUT).is_file()


def load_export(path: str | os.PathLike[str], *, device: str = "auto") -> Exported:
    """The model in an export folder. Its file must be the one that was written; nothing in it is executed as code."""
    path = Path(path)
    if not is_export(path):
        raise RunError(f"{path} is no export: give the --out folder of robustda export")
    try:
        about = _checked(read_object(path / _ABOUT))
        openers = {"onnx": _open_onnx, "torch-export": _open_archive, "safetensors": _open_safetensors}
        for name, digest in about["digests"].items():
            if Path(name).name != name or file_digest(path / name) != digest:
                raise ValueError(f"{name} is not the file that was written")
        return Exported(about, openers[about["format"]](path, about, device))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if isinstance(error, RunError | ConfigError):
            raise
        raise RunError(f"the export in {path} cannot be read ({reason(error)}): export the run again") from error


def _checked(about: dict[str, Any]) -> dict[str, Any]:
    """The description, if it can be one: what is wrong with it would show as nonsense later on."""
    kind, shape = str(about["format"]), about["example_shape"]
    sound = {
        "format": kind in FILES,
        "digests": isinstance(about["digests"], dict) and FILES.get(kind) in about["digests"],
        "classes": _all(about["classes"], str | int | float),
        "example_shape": _all(shape, int) and len(shape) in (1, 3) and min(shape) > 0,
        "image_size": isinstance(about["image_size"], int) and about["image_size"] >= 0,
        "features": _all(about["features"], str),
    }
    if wrong := [name for name, good in sound.items() if not good]:
        raise ValueError(f"its {wrong[0]} cannot be {str(about[wrong[0]])[:80]!r}")
    return about


def _all(values: Any, kind: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, kind) for value in values)


def file_digest(path: Path) -> str:
    """Of the bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _open_onnx(path: Path, about: dict[str, Any], device: str) -> Run:
    runtime = needs("onnxruntime", "onnx", "an ONNX model")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads := int(os.environ.get("OMP_NUM_THREADS") or 0):
        options.intra_op_num_threads = threads
    there = runtime.get_available_providers()
    cuda = device.startswith("cuda") or (device == "auto" and "CUDAExecutionProvider" in there)
    wanted = "CUDAExecutionProvider" if cuda else "CPUExecutionProvider"
    if wanted not in there:
        raise ConfigError(f"this onnxruntime has no {wanted}: give --device cpu")
    try:
        session = runtime.InferenceSession(str(path / FILES["onnx"]), options, providers=[wanted])
    except Exception as error:  # onnxruntime's exceptions share no class
        raise ValueError(str(error)) from error
    name = session.get_inputs()[0].name
    return lambda inputs: np.asarray(session.run(None, {name: inputs})[0])


def _open_archive(path: Path, about: dict[str, Any], device: str) -> Run:
    import torch

    from robustda.archives import check_archive

    check_archive(path / FILES["torch-export"])
    if device not in ("cpu", "auto"):
        raise ConfigError("a torch-export model stays on the device that it was exported on: give --device cpu")
    try:
        model = torch.export.load(path / FILES["torch-export"]).module()
    except Exception as error:  # PyTorch's readers raise whatever they come upon
        raise ValueError(str(error)) from error
    return as_run(model, "cpu")


def _open_safetensors(path: Path, about: dict[str, Any], device: str) -> Run:
    from robustda.engine import Runtime, place
    from robustda.export import Deployed
    from robustda.files import load_tensors
    from robustda.predict import rebuild

    method = rebuild(about, load_tensors(path / FILES["safetensors"]))
    at = Runtime(device=device).torch_device()
    place(method.network_, at)
    return as_run(Deployed(method.network_, method.image_size_).eval(), str(at))


def as_run(model: nn.Module, device: str) -> Run:
    """A module as a function of arrays."""
    import torch

    @torch.no_grad()
    def run(inputs: np.ndarray) -> np.ndarray:
        found: np.ndarray = model(torch.from_numpy(inputs).to(device)).float().cpu().numpy()
        return found

    return run
