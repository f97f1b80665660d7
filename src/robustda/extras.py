"""What only some people need, and pip installs when asked to: ``pip install 'robustda[onnx]'``."""

from __future__ import annotations

import importlib
from typing import Any

from robustda.errors import ConfigError

__all__ = ["EXTRAS", "needs"]

EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "onnx": (("onnx", "onnxruntime", "onnxscript"), "exports to ONNX, and predictions with them"),
    "hf": (("datasets", "transformers"), "Hugging Face data sets and vision models"),
    "fsspec": (("fsspec",), "data at s3://, gs://, https:// and other places"),
    "ray": (("ray",), "bench on several machines"),
    "mlflow": (("mlflow",), "curves in MLflow"),
    "wandb": (("wandb",), "curves in Weights & Biases"),
    "tune": (("optuna",), "robustda tune"),
}
"""For each extra the modules it brings, and what they are for."""


def needs(module: str, extra: str, purpose: str) -> Any:
    """A module that only an extra brings; without it one line says which to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{purpose} needs {module}: pip install 'robustda[{extra}]'") from error
