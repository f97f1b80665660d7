"""One readable loop over the phases of a method, with what belongs around it: data in, run folder out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from robustda._version import __version__
from robustda.data.augment import Augmentation
from robustda.data.batches import Inputs, derive_seed
from robustda.data.domain import Domain, check_pair
from robustda.data.images import fit_image
from robustda.data.inputs import rows_not_finite
from robustda.engine import Runtime, Stepper, place
from robustda.errors import DataError, RunError
from robustda.methods import create_method
from robustda.methods.base import Method, Phase, Task, forward_all
from robustda.progress import Bar
from robustda.run import Metrics, RunFolder, load_tensors, save_tensors

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["fit", "load", "predict_proba", "predict_table", "prediction_table"]

_SMALL = 64  # images of up to this many pixels are used at their own size, with small networks
_FULL = 256


def fit(
    method: Method,
    source: Domain,
    target: Domain,
    *,
    out: str | os.PathLike[str] | None = None,
    cache_dir: str | None = None,
    strict: bool = False,
    **options: Any,
) -> None:
    """Fit `method` in place; see `Method.fit`. `strict` makes unreadable images an error, `options` are `Runtime`'s."""
    runtime = Runtime(**options)
    source, target = check_pair(source, target)
    if source.kind == "images":
        size = method.image_size or _natural_size(source)
        decoding = {"cache_dir": cache_dir, "strict": strict, "progress": runtime.progress}
        source, target = _at_size(source, size, **decoding), _at_size(target, size, **decoding)
        source, target = check_pair(source, target)  # a class may have lost all its images
        method.image_size_ = size
    else:
        method.image_size_ = 0
    method.classes_, method.features_ = source.classes, source.features
    config = {"method": method.name, "params": method.params(), "data": _fingerprint(source, target)}
    folder = None if out is None else RunFolder(out, config)
    try:
        if folder is not None and folder.done:
            _take_over(method, load(folder.path, device=runtime.device))
            return
        with runtime.limits():
            _Run(method, source, target, runtime, folder).go()
    finally:
        if folder is not None:
            folder.close()


class _Run:
    """A fit in progress."""

    def __init__(
        self, method: Method, source: Domain, target: Domain, runtime: Runtime, folder: RunFolder | None
    ) -> None:
        self.method, self.source, self.target, self.runtime, self.folder = (
            method,
            source,
            target,
            runtime,
            folder,
        )
        self.device = runtime.torch_device()
        augmentation, crop = _view(method, method.image_size_)
        self.task = Task(
            source=Inputs(source, self.device, augmentation=augmentation, crop=crop),
            labels=torch.as_tensor(source.y, device=self.device),
            target=Inputs(target, self.device, augmentation=augmentation, crop=crop),
            n_classes=len(source.classes),
            device=self.device,
        )
        self.started = time.monotonic()
        self.seconds_before = 0.0
        self.last_checkpoint = time.monotonic()

    def go(self) -> None:
        """Do what is left to do of the phases, then write down the outcome."""
        checkpoint = self.folder.load_checkpoint() if self.folder else None
        tensors, note = checkpoint or ({}, {})
        first, step = note.get("phase_number", 0), note.get("step", 0)
        self.seconds_before = note.get("seconds", 0.0)
        self.task.memory = {name: t.to(self.device) for name, t in _under("memory/", tensors).items()}
        path = self.folder.path / "metrics.csv" if self.folder else None
        self.metrics = Metrics(path, note.get("metrics_rows", 0))
        self.board = _Board(self.folder, self.runtime, resumed=bool(checkpoint))

        builders = self.method.phases()
        for number in range(first, len(builders)):
            phase = self._build(builders[number])
            stepper = Stepper(phase, self.task, self.method, capture=self.runtime.capture)
            if number == first and step > 0:
                _restore(tensors, phase, stepper)
            tensors = {}
            self._train(phase, stepper, number, step if number == first else 0, last=number == len(builders) - 1)
            if number + 1 < len(builders):
                self._save(number + 1, 0, {})
        self.board.close()
        self._conclude(phase)

    def _build(self, build: Callable[[Task], Phase]) -> Phase:
        torch.manual_seed(derive_seed(self.method.seed, build.__name__, "weights"))
        phase = build(self.task)
        place(phase.network, self.device, self.runtime)
        return phase

    def _train(self, phase: Phase, stepper: Stepper, number: int, start: int, *, last: bool) -> None:
        """The loop itself."""
        runtime, network = self.runtime, phase.network
        network.train()
        with Bar(phase.name, phase.steps, start, show=runtime.progress) as bar:
            for step in range(start, phase.steps):
                if phase.before_epoch and step % phase.epoch_steps == 0:
                    _aside(network, phase.before_epoch)
                stepper(step)
                done = step + 1
                if phase.after_epoch and done % phase.epoch_steps == 0:
                    _aside(network, phase.after_epoch)
                ended = done == phase.steps
                evaluate = last and (ended or (runtime.eval_every and done % runtime.eval_every == 0))
                if not (ended or evaluate or done % runtime.log_every == 0):
                    continue
                report = self._report(phase, stepper, done)
                if evaluate and self.target.y is not None:
                    report["target_accuracy"] = self._accuracy(network)
                self.metrics.add(phase.name, done, report)
                self.board.add(phase.name, done, report)
                bar.update(done, report["loss"], report.get("target_accuracy"))
                if not ended and time.monotonic() - self.last_checkpoint >= runtime.checkpoint_seconds:
                    self._save(number, done, _gather(phase, stepper))
        network.eval()
        if phase.end:
            phase.end()

    def _report(self, phase: Phase, stepper: Stepper, step: int) -> dict[str, float]:
        report = stepper.report()
        broken = [name for name, value in report.items() if not np.isfinite(value)]
        if broken:
            raise RunError(
                f"training diverged: {broken[0]} is not finite at step {step} of phase {phase.name}; {_remedy(phase)}"
            )
        return report

    def _accuracy(self, network: torch.nn.Module) -> float:
        """Share of the target's labelled examples that are predicted right. For the log only."""
        network.eval()
        predicted = forward_all(network, self.task.target).argmax(dim=1).cpu().numpy()
        network.train()
        return _score(predicted, self.target)

    def _save(self, number: int, step: int, tensors: dict[str, Tensor]) -> None:
        if self.folder is None:
            return
        tensors |= {f"memory/{name}": tensor for name, tensor in self.task.memory.items()}
        seconds = self.seconds_before + time.monotonic() - self.started
        note = {
            "phase_number": number,
            "step": step,
            "metrics_rows": len(self.metrics.rows),
            "seconds": seconds,
        }
        self.metrics.sync()
        self.folder.save_checkpoint(tensors, note)
        self.last_checkpoint = time.monotonic()

    def _conclude(self, phase: Phase) -> None:
        """Leave what was learned on the method and in the run folder."""
        import pandas as pd

        method, memory = self.method, self.task.memory
        probabilities = torch.softmax(forward_all(phase.network, self.task.target), dim=1).cpu().numpy()
        if not np.isfinite(probabilities).all():
            raise RunError(f"training diverged: the predictions are not finite; {_remedy(phase)}")
        method.network_ = phase.network  # type: ignore[assignment]
        method.example_shape_ = self.task.source.example_shape
        method.history_ = pd.DataFrame(self.metrics.rows, columns=list(Metrics.HEADER))
        if "trust" in memory:
            method.trust_ = memory["trust"].cpu().numpy()
            counts = torch.bincount(self.task.labels, minlength=self.task.n_classes).double()
            method.noise_rate_ = float((memory["noise_rate"] * counts).sum() / counts.sum())
        accuracy = None if self.target.y is None else _score(probabilities.argmax(axis=1), self.target)
        method.summary_ = {
            "method": method.name,
            "variant": getattr(method, "variant", None),
            "seed": method.seed,
            "steps": method.steps,
            "seconds": round(self.seconds_before + time.monotonic() - self.started, 2),
            "noise_rate": getattr(method, "noise_rate_", None),
            "kept_share": float(method.trust_.mean()) if "trust" in memory else None,
            "target_accuracy": accuracy,
        }
        if self.folder is not None:
            self._write(self.folder, probabilities)

    def _write(self, folder: RunFolder, probabilities: np.ndarray) -> None:
        method, memory = self.method, self.task.memory
        if "trust" in memory:
            columns = (memory[name].cpu().tolist() for name in ("mean_loss", "threshold", "trust"))
            names = self.source.classes[self.source.y]
            header = ("id", "given_label", "mean_loss", "threshold", "weight")
            folder.write_csv("trust.csv", header, zip(self.source.ids, names, *columns, strict=True))
        if "loss_curves" in memory:
            save_tensors(folder.path / "curves.safetensors", {"losses": memory["loss_curves"]})
        digest = save_tensors(folder.path / "model.safetensors", method.network_.state_dict())
        folder.write_json(
            "model.json",
            {
                "robustda": __version__,
                "method": method.name,
                "params": method.params(),
                "classes": method.classes_.tolist(),
                "example_shape": method.example_shape_,
                "image_size": method.image_size_,
                "features": method.features_,
                "digest": digest,
            },
        )
        table = prediction_table(self.target, method.classes_, probabilities)
        folder.write_csv("predictions.csv", list(table.columns), table.itertuples(index=False))
        folder.write_json("summary.json", method.summary_)
        folder.finish()


def load(path: str | os.PathLike[str], *, device: str = "auto") -> Method:
    """The fitted method that a run folder holds. Reads JSON and safetensors only: nothing in it is executed."""
    path = Path(path)
    place_at = Runtime(device=device).torch_device()
    if not (path / "model.json").is_file():
        raise RunError(f"{path} holds no finished run: give the --out folder of a fit that has ended")
    try:
        about = json.loads((path / "model.json").read_text())
        method = create_method(about["method"], **about["params"])
        network = method.network(tuple(about["example_shape"]), len(about["classes"]), pretrained=False)
        network.load_state_dict(load_tensors(path / "model.safetensors", about["digest"]))
        method.classes_ = np.asarray(about["classes"])
        method.image_size_, method.example_shape_ = int(about["image_size"]), tuple(about["example_shape"])
        method.features_ = tuple(about["features"])
        method.summary_ = json.loads((path / "summary.json").read_text())
        _load_tables(method, path)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"the model in {path} cannot be read ({reason}): delete the folder and fit again") from error
    place(network, place_at)
    method.network_ = network.eval()
    return method


def predict_proba(method: Method, x: Domain | np.ndarray | str | os.PathLike[str]) -> np.ndarray:
    """Probabilities for the examples of `x`; see `Method.predict_proba`. An unreadable image is an error."""
    domain = x if isinstance(x, Domain) else _read(x)
    return _predict(method, domain, strict=True)[1]


def predict_table(method: Method, domain: Domain, *, probabilities: bool = False, **decoding: Any) -> pd.DataFrame:
    """The predictions as a table: id, prediction, its probability, the label if there is one, all probabilities."""
    domain, found = _predict(method, domain, **decoding)
    table = prediction_table(domain, method.classes_, found)
    if probabilities:
        for number, name in enumerate(method.classes_):
            table[f"p({name})"] = found[:, number]
    return table


def _predict(method: Method, domain: Domain, **decoding: Any) -> tuple[Domain, np.ndarray]:
    """The domain as it was read, without unreadable images, and its probabilities."""
    network = method.network_
    if domain.kind != ("images" if method.image_size_ else "vectors"):
        raise DataError(f"the model was trained on {'images' if method.image_size_ else 'vectors'}, not {domain.kind}")
    device = next(network.parameters()).device
    if domain.kind == "images":
        domain = _at_size(domain, method.image_size_, **decoding)
    else:
        domain = _with_features_of(method, domain)
    inputs = Inputs(domain, device, crop=_view(method, method.image_size_)[1])
    network.eval()
    return domain, torch.softmax(forward_all(network, inputs), dim=1).cpu().numpy()


def _with_features_of(method: Method, domain: Domain) -> Domain:
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


def _at_size(domain: Domain, size: int, **decoding: Any) -> Domain:
    """The domain with its images decoded, size × size."""
    domain = domain.decoded(size, **decoding)
    if domain.shape[:2] == (size, size):
        return domain
    return dataclasses.replace(domain, x=np.stack([fit_image(image, size) for image in np.asarray(domain.x)]))


def _natural_size(source: Domain) -> int:
    size = source.natural_size()
    return size if size <= _SMALL else _FULL


def _view(method: Method, size: int) -> tuple[Augmentation, int | None]:
    """How images of this size are augmented, and the side that the network sees."""
    if size == 0:
        return "none", None
    augmentation = method.augment
    if augmentation == "auto":
        augmentation = "photo" if size > _SMALL else "shift"
    return augmentation, round(size * 7 / 8) if size > _SMALL else size


def _aside(network: torch.nn.Module, hook: Callable[[], None]) -> None:
    """Call a hook between two steps, with the network in eval mode."""
    network.eval()
    hook()
    network.train()


def _gather(phase: Phase, stepper: Stepper) -> dict[str, Tensor]:
    """All tensors that a phase in progress consists of."""
    tensors = {f"network/{name}": tensor for name, tensor in phase.network.state_dict().items()}
    for number, state in stepper.optimizer.state_dict()["state"].items():
        if state.get("momentum_buffer") is not None:
            tensors[f"momentum/{number}"] = state["momentum_buffer"]
    for name, part in phase.stateful.items():
        tensors |= {f"stateful/{name}/{key}": tensor for key, tensor in part.state().items()}
    return tensors


def _restore(tensors: dict[str, Tensor], phase: Phase, stepper: Stepper) -> None:
    """The inverse of `_gather`."""
    phase.network.load_state_dict(_under("network/", tensors))
    parameters = [p for group in stepper.optimizer.param_groups for p in group["params"]]
    for number, tensor in _under("momentum/", tensors).items():
        parameter = parameters[int(number)]
        stepper.optimizer.state[parameter]["momentum_buffer"] = tensor.to(parameter.device)
    for name, part in phase.stateful.items():
        part.load(_under(f"stateful/{name}/", tensors))


def _remedy(phase: Phase) -> str:
    rate = float(phase.learning_rate(torch.zeros(())))
    return f"try a smaller learning rate (this phase starts at {rate:g}), or look for extreme values in the features"


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _score(predicted: np.ndarray, target: Domain) -> float:
    assert target.y is not None
    known = target.y >= 0
    return float((predicted[known] == target.y[known]).mean())


def _fingerprint(source: Domain, target: Domain) -> dict[str, Any]:
    """Enough of the data to notice on a restart that they have changed: ids, labels, and a sample of the inputs."""
    digest = hashlib.blake2b(digest_size=16)
    for domain in (source, target):
        digest.update("\0".join(domain.ids).encode())
        digest.update(b"" if domain.y is None else domain.y.tobytes())
        rows = np.unique(np.linspace(0, len(domain) - 1, 200).astype(int))
        digest.update(np.ascontiguousarray(np.asarray(domain.x)[rows]).tobytes())
    return {
        "source": source.name,
        "target": target.name,
        "source_examples": len(source),
        "target_examples": len(target),
        "shape": list(source.shape),
        "classes": source.classes.tolist(),
        "digest": digest.hexdigest(),
    }


def _take_over(method: Method, finished: Method) -> None:
    for name, value in vars(finished).items():
        if name.endswith("_"):
            setattr(method, name, value)


def _load_tables(method: Method, path: Path) -> None:
    import pandas as pd

    if (path / "metrics.csv").is_file():
        method.history_ = pd.read_csv(path / "metrics.csv")
    if (path / "trust.csv").is_file():
        method.trust_ = pd.read_csv(path / "trust.csv", usecols=["weight"])["weight"].to_numpy(np.float32)
        method.noise_rate_ = method.summary_["noise_rate"]


class _Board:
    """TensorBoard curves, if there is a folder to write them to."""

    def __init__(self, folder: RunFolder | None, runtime: Runtime, *, resumed: bool) -> None:
        self._writer: Any = None
        if folder is not None and runtime.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            path = folder.path / "tensorboard"
            if not resumed:
                shutil.rmtree(path, ignore_errors=True)
            self._writer = SummaryWriter(str(path))

    def add(self, phase: str, step: int, values: dict[str, float]) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(f"{phase}/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
