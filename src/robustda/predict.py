"""A fitted method and new data: reading it back from a run folder, and what it predicts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from robustda.backbones import given_again
from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.data.inputs import rows_not_finite
from robustda.data.views import at_size, view
from robustda.engine import Runtime, place
from robustda.errors import ConfigError, DataError, RunError
from robustda.exported import Exported, is_export
from robustda.files import load_tensors
from robustda.methods import create_method
from robustda.methods.base import Method
from robustda.methods.task import forward_all
from robustda.nets import Classifier
from robustda.reading import read_object, reason

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["describe", "load", "predict_proba", "predict_table", "prediction_table", "rebuild", "with_features_of"]


def load(path: str | os.PathLike[str], *, device: str = "auto", backbone: torch.nn.Module | None = None) -> Method:
    """The fitted method that a run folder holds. Reads JSON and safetensors only: nothing in it is executed.

    A run whose backbone was a module of your own needs that module again; its weights are those of the run.
    """
    path = Path(path)
    place_at = Runtime(device=device).torch_device()
    if is_export(path):
        raise RunError(f"{path} is an export, not a run: robustda.exported.load_export reads it")
    if not (path / "model.json").is_file():
        raise RunError(f"{path} holds no finished run: give the --out folder of a fit that has ended")
    try:
        about = read_object(path / "model.json")
        try:
            about["params"]["backbone"] = given_again(about["params"].get("backbone", "auto"), backbone)
        except ConfigError as error:
            raise RunError(f"{path}: {error}") from error
        method = rebuild(about, load_tensors(path / "model.safetensors", about["digest"]))
        method.summary_ = read_object(path / "summary.json")
        _load_tables(method, path)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        if isinstance(error, RunError):
            raise
        why = reason(error)
        raise RunError(f"the model in {path} cannot be read ({why}): delete the folder and fit again") from error
    place(method.network_, place_at)
    return method


def describe(method: Method) -> dict[str, Any]:
    """What `rebuild` needs beside the weights."""
    recipe = getattr(method.network_.backbone, "recipe", None)
    return {
        "method": method.name,
        "params": method.record(),
        **({} if recipe is None else {"backbone_recipe": recipe}),
        "classes": method.classes_.tolist(),
        "example_shape": method.example_shape_,
        "image_size": method.image_size_,
        "features": method.features_,
    }


def rebuild(about: dict[str, Any], weights: dict[str, torch.Tensor]) -> Method:
    """A fitted method from its description and the weights of its network."""
    params = {"pooling": "mean"} | about["params"]  # of before there was a choice
    method = create_method(about["method"], **params)
    if "backbone_recipe" in about:
        method.backbone_recipe_ = about["backbone_recipe"]
    with torch.random.fork_rng(devices=[]):  # what it begins with is overwritten: the caller's random numbers stay
        network = _network(method, about, weights)
    method.classes_ = np.asarray(about["classes"])
    method.image_size_, method.example_shape_ = int(about["image_size"]), tuple(about["example_shape"])
    method.features_ = tuple(about["features"])
    method.network_ = network.eval()
    return method


def _network(method: Method, about: dict[str, Any], tensors: dict[str, Tensor]) -> Classifier:
    """The network with its weights. Whether it has the size of the weights is looked at before it is made."""
    shape, count = tuple(about["example_shape"]), len(about["classes"])
    if isinstance(method.backbone, torch.nn.Module):  # it is there already, whatever its size
        network = method.network_for(shape, count, tensors)
        network.load_state_dict(tensors)
        return network
    with torch.device("meta"):
        planned = method.network_for(shape, count, tensors).state_dict()
    wrong = [name for name, tensor in planned.items() if name not in tensors or tensor.shape != tensors[name].shape]
    if wrong:
        raise ValueError(f"model.json and model.safetensors do not agree about {wrong[0]}")
    network = method.network_for(shape, count, tensors)
    network.load_state_dict(tensors)
    return network


def predict_proba(method: Method | Exported, x: Domain | np.ndarray | str | os.PathLike[str]) -> np.ndarray:
    """Probabilities for the examples of `x`; see `Method.predict_proba`. An unreadable image is an error."""
    domain = x if isinstance(x, Domain) else _read(x)
    return _predict(method, domain, strict=True)[1]


def predict_table(
    method: Method | Exported, domain: Domain, *, probabilities: bool = False, **decoding: Any
) -> pd.DataFrame:
    """The predictions as a table: id, prediction, its probability, the label if there is one, all probabilities."""
    domain, found = _predict(method, domain, **decoding)
    table = prediction_table(domain, method.classes_, found)
    if probabilities:
        for number, name in enumerate(method.classes_):
            table[f"p({name})"] = found[:, number]
    return table


def _predict(method: Method | Exported, domain: Domain, **decoding: Any) -> tuple[Domain, np.ndarray]:
    """The domain as it was read, without unreadable images, and its probabilities."""
    if domain.kind != ("images" if method.image_size_ else "vectors"):
        raise DataError(f"the model was trained on {'images' if method.image_size_ else 'vectors'}, not {domain.kind}")
    if domain.kind == "images":
        domain = at_size(domain, method.image_size_, **decoding)
    else:
        domain = with_features_of(method, domain)
    if isinstance(method, Exported):
        return domain, method.run(np.asarray(domain.x))
    network = method.network_
    inputs = Inputs(domain, next(network.parameters()).device, crop=view(method.image_size_)[1])
    network.eval()
    return domain, torch.softmax(forward_all(network, inputs), dim=1).cpu().numpy()


def with_features_of(method: Method | Exported, domain: Domain) -> Domain:
    """The vectors with the features that the model was trained on, in that order."""
    if method.features_ and domain.features:
        domain = domain.select_features(method.features_)
    (width,) = method.example_shape_
    if domain.shape != (width,):
        raise DataError(f"the model was trained on vectors of {width} features, but these have {domain.shape[0]}")
    bad = rows_not_finite(np.asarray(domain.x))
    if len(bad):
        raise DataError(
            f"{len(bad):,} rows of {domain.called} have NaN or infinite features (first id {domain.ids[bad[0]]}): "
            "fill them in or remove these rows"
        )
    return domain


def _read(x: np.ndarray | str | os.PathLike[str]) -> Domain:
    return Domain.read(os.fspath(x)) if isinstance(x, str | os.PathLike) else Domain.from_arrays(x)


def prediction_table(domain: Domain, classes: np.ndarray, probabilities: np.ndarray) -> pd.DataFrame:
    """What was predicted: id, prediction and its probability, and the label where there is one."""
    import pandas as pd

    best = probabilities.argmax(axis=1)
    table = pd.DataFrame({"id": domain.ids, "prediction": classes[best], "probability": probabilities.max(axis=1)})
    if domain.y is not None:
        table["label"] = domain.labels
    return table


def _load_tables(method: Method, path: Path) -> None:
    import pandas as pd

    if (path / "metrics.csv").is_file():
        method.history_ = pd.read_csv(path / "metrics.csv")
    if (path / "trust.csv").is_file():
        kinds = {"weight": np.float32, "learned_as": str}
        table = pd.read_csv(path / "trust.csv", usecols=kinds.__contains__, dtype=kinds, keep_default_na=False)
        method.trust_ = table["weight"].to_numpy()
        if "learned_as" in table:  # runs of older versions have none
            method.learned_as_ = pd.Index(method.classes_.astype(str)).get_indexer(table["learned_as"])
        method.noise_rate_ = method.summary_["noise_rate"]
