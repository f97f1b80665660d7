"""One readable loop over the phases of a method.

How a network stands is in evaluation.py, what a run is taken up from in resume.py, what it leaves in outcome.py.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from robustda.compiling import compile_backbone, uncompile
from robustda.data.batches import Inputs, derive_seed
from robustda.data.cache import content_digest
from robustda.data.domain import Domain
from robustda.data.views import view
from robustda.engine import Runtime, Stepper, place
from robustda.errors import RobustDAWarning
from robustda.evaluation import judge, sample_logits, schedules
from robustda.folding import fold, unfold
from robustda.health import Diverged, Health
from robustda.methods.base import Method, Phase, Task
from robustda.outcome import conclude
from robustda.pieces import in_one, in_pieces
from robustda.profile import Profile
from robustda.progress import Bar
from robustda.ranks import Ranks
from robustda.resume import SELECTED, fingerprint, gather, restore, under
from robustda.run import Metrics, RunFolder
from robustda.signals import StopRequest
from robustda.stages import Stage, StageStore
from robustda.tracking import About, Tracking

__all__ = ["Run"]


class Run:
    """A fit in progress."""

    def __init__(
        self,
        method: Method,
        source: Domain,
        target: Domain,
        runtime: Runtime,
        folder: RunFolder | None,
        profile: Profile,
        ranks: Ranks,
    ) -> None:
        self.method, self.runtime, self.folder, self.profile = method, runtime, folder, profile
        self.ranks = ranks
        self.source, self.target = source, target
        self.device = runtime.torch_device()
        augmentation, crop = view(method.image_size_, method.augment)
        with profile.section("to the device"):
            how: dict[str, Any] = {"augmentation": augmentation, "crop": crop, "resident": runtime.resident()}
            self.task = Task(
                source=Inputs(source, self.device, **how),
                labels=torch.as_tensor(source.y, device=self.device),
                target=Inputs(target, self.device, **how),
                n_classes=len(source.classes),
                device=self.device,
                corrupted=source.corrupted,
                quick_features=runtime.bfloat16_products(self.device),
                progress=runtime.progress and ranks.first,
            )
        self.health = Health(method, self.task, source.classes, folder)
        self.stop = StopRequest()
        if ranks.size == 1:  # several must leave together, which they do between two steps
            self.task.heed = self.stop.heed
        self.stages = StageStore(runtime.stages)
        self.started = time.monotonic()
        self.seconds_before = 0.0
        self.rate_share = 1.0
        """of the learning rate: less after a rollback"""
        self.last_checkpoint = time.monotonic()

    def go(self) -> None:
        """Do what is left to do of the phases, then write down the outcome; once more, and slower, if asked to."""
        try:
            self._go()
        except Diverged as error:
            share = self.runtime.rollback
            if not share or self.rate_share < 1:
                raise
            if self.ranks.first:
                message = f"{str(error).partition(';')[0]}: going back, and on with {share:g} of the learning rate"
                warnings.warn(message, RobustDAWarning, stacklevel=2)
            self.rate_share = share
            self._go()

    def _go(self) -> None:
        tensors: dict[str, Tensor] = {}

        def take_up() -> dict[str, Any]:
            checkpoint = self.folder.load_checkpoint() if self.folder else None
            found, note = checkpoint or ({}, {})
            tensors.update(found)
            path = self.folder.path / "metrics.csv" if self.folder else None
            self.metrics = Metrics(path, note.get("metrics_rows", 0), note.get("metrics_digest"))
            return note

        self.metrics = Metrics(None)
        note = self.ranks.first_says(take_up)
        tensors = self.ranks.tensors_of_first(tensors)
        first, step = note.get("phase_number", 0), note.get("step", 0)
        self.seconds_before = note.get("seconds", 0.0)
        self.health.was_spread = note.get("was_spread", False)
        self.rate_share = min(self.rate_share, note.get("rate_share", 1.0))
        self.task.memory = {name: t.to(self.device) for name, t in under("memory/", tensors).items()}
        with self.profile.section("log"):
            self.tracking = self._new_tracking()
            self.tracking.start(self.metrics.rows, resumed=bool(note))
        try:
            phase = self._phases(tensors, first, step)
            with self.profile.section("conclude"):
                conclude(self, phase)
        except BaseException:
            self.tracking.finish()
            raise
        self.tracking.finish(self.method.summary_)
        self.ranks.leave()
        self.ranks.undivide(phase.network)
        uncompile(phase.network)
        unfold(phase.network)
        in_one(phase.network)

    def _phases(self, tensors: dict[str, Tensor], first: int, step: int) -> Phase:
        """Train the phases from one on; the last one comes back."""
        builders = self.method.phases()
        for number in range(first, len(builders)):
            last = number == len(builders) - 1
            key = None if last else self._stage_key(builders[number].__name__)
            with self.stages.held(key, self.stop):
                shared = self.stages.load(key)
                if shared is not None:
                    self._adopt(builders[number].__name__, shared)
                else:
                    with self.profile.section("build the network"):
                        phase = self._build(builders[number])
                    # What checkpointing does with the state of the random numbers cannot be recorded.
                    capture = self.runtime.capture and self.runtime.pieces == 1 and not self.method.checkpointing
                    how = {"profile": self.profile, "ranks": self.ranks, "rate_share": self.rate_share}
                    stepper = Stepper(phase, phase.task or self.task, self.method, capture=capture, **how)  # type: ignore[arg-type]
                    start = step if number == first else 0
                    if start:
                        restore(tensors, phase, stepper)
                    self._train(phase, stepper, number, start, last=last)
                    self.stages.save(key, self._stage(phase.name))
            tensors = {}
            if not last:
                self._save(number + 1, 0, {})
                if asked := self.ranks.largest(self.stop.number):
                    self.ranks.leave()
                    self.stop.obey(asked)
        return phase

    def _new_tracking(self) -> Tracking:
        trackers = self.runtime.trackers() if self.ranks.first else []
        return Tracking(trackers, _about(self.method, self.source, self.target, self.folder))

    def _stage_key(self, name: str) -> str | None:
        """The name of a stage that runs share, if they do. What it knows of the data is the source, and what a person
        has decided about it; several processes, and a learning rate that was lowered, keep to themselves."""
        if self.runtime.stages is None or self.ranks.size > 1 or self.rate_share < 1:
            return None
        confirmed = [] if self.task.confirmed is None else self.task.confirmed.nonzero()[:, 0].tolist()
        seen = fingerprint(self.source) | {"crop": self.task.source.example_shape, "confirmed": confirmed}
        if self.method.columns_:  # on which the target has a say
            seen["columns"] = {
                name: content_digest(value.numpy()).hex() for name, value in self.method.columns_.items()
            }
        return self.stages.key(self.method, name, seen)

    def _adopt(self, name: str, stage: Stage) -> None:
        """Go on as if this run had done the stage itself."""
        self.task.memory |= {key: tensor.to(self.device) for key, tensor in stage.memory.items()}
        self.seconds_before += stage.seconds
        for step, values in stage.entries:
            self.metrics.add(name, step, values)
            self.tracking.add(name, step, values)

    def _stage(self, name: str) -> Stage:
        entries: dict[int, dict[str, float]] = {}
        for phase, step, metric, value in self.metrics.rows:
            if phase == name:
                entries.setdefault(step, {})[metric] = value
        seconds = self.seconds_before + time.monotonic() - self.started
        return Stage(dict(self.task.memory), list(entries.items()), seconds)

    def _build(self, build: Callable[[Task], Phase]) -> Phase:
        torch.manual_seed(derive_seed(self.method.seed, build.__name__, "weights"))
        phase = build(self.task)
        place(phase.network, self.device, self.runtime)
        if self.ranks.size > 1:  # they should be equal anyway; on different machines they might not be to the last bit
            phase.network.load_state_dict(self.ranks.tensors_of_first(phase.network.state_dict()))
        in_pieces(phase.network, self.runtime.pieces)
        # What is recomputed in the backward pass is left to those who recompute it.
        whole = self.runtime.pieces == 1 and not self.method.checkpointing
        if self.runtime.compile and whole and self.device.type == "cuda":
            compile_backbone(phase.network)
        elif self.runtime.compile and self.ranks.first:
            message = "compile is for a GPU, without pieces and checkpointing: nothing is compiled"
            warnings.warn(message, RobustDAWarning, stacklevel=2)
        # Several ranks put something of their own in the place of batch norm.
        if self.device.type == "cuda" and whole and not self.runtime.compile and self.ranks.size == 1:
            fold(phase.network)
        self.ranks.divide(phase.network)
        return phase

    def _train(self, phase: Phase, stepper: Stepper, number: int, start: int, *, last: bool) -> None:
        """The loop itself."""
        runtime, network, profile = self.runtime, phase.network, self.profile
        network.train()
        with Bar(phase.name, phase.steps, start, show=runtime.progress and self.ranks.first) as bar:
            for step in range(start, phase.steps):
                profile.step(phase.name, step)
                if phase.before_epoch and step % phase.epoch_steps == 0:
                    with profile.section("between epochs"):
                        _aside(network, phase.before_epoch)
                stepper(step)
                done = step + 1
                if phase.after_epoch and done % phase.epoch_steps == 0:
                    with profile.section("between epochs"):
                        _aside(network, phase.after_epoch)
                ended = done == phase.steps
                evaluate = bool(last and (ended or (runtime.eval_every and done % runtime.eval_every == 0)))
                due = ended or evaluate or done % runtime.log_every == 0
                if due:
                    report = self._report(phase, stepper, done, evaluate=evaluate)
                    bar.update(done, report["loss"], report.get("target_accuracy"))
                if ended:
                    break
                asked = self.ranks.largest(self.stop.number)
                rested = time.monotonic() - self.last_checkpoint >= runtime.checkpoint_seconds
                if asked or (due and self.ranks.largest(rested)):
                    self._keep(phase, stepper, number, done, check=last and not evaluate)
                if asked:
                    self.ranks.leave()
                    self.stop.obey(asked)
        profile.end(phase.name)
        network.eval()
        if last and "select_step" in self.task.memory:  # before anything is made of it at the end of the phase
            network.load_state_dict(under(SELECTED, self.task.memory))
        if phase.end:
            with profile.section("end of the phase"):
                phase.end()
                memory = self.ranks.tensors_of_first(self.task.memory)
                self.task.memory = {name: tensor.to(self.device) for name, tensor in memory.items()}

    def _report(self, phase: Phase, stepper: Stepper, done: int, *, evaluate: bool) -> dict[str, float]:
        """Enter the means since the last report, and how the network stands on the target, in the metrics."""
        with self.profile.section("wait for the device"):
            report = stepper.report() | schedules(phase, done - 1, self.rate_share)
        self.profile.entry(phase.name, done)
        self.health.finite(phase, done, report)
        if evaluate:
            with self.profile.section("evaluate"):
                task, how = phase.task or self.task, self.runtime
                report |= judge(phase, task, self.target, self.health, done, how.select, how.criteria == "all")
        with self.profile.section("log"):
            self.metrics.add(phase.name, done, report)
            self.tracking.add(phase.name, done, report)
        return report

    def _keep(self, phase: Phase, stepper: Stepper, number: int, done: int, *, check: bool) -> None:
        """Make a checkpoint in the middle of a phase, if the state is a good one."""
        if check:
            self.health.check(phase, done, sample_logits(phase, phase.task or self.task))
        if not self.health.ailing:
            tensors = gather(phase, stepper)
            self.health.finite(
                phase, done, {n: t for n, t in tensors.items() if n.startswith(("network/", "momentum/"))}
            )
            self._save(number, done, tensors)

    def _save(self, number: int, step: int, tensors: dict[str, Tensor]) -> None:
        self.last_checkpoint = time.monotonic()
        if self.folder is None:
            return
        tensors |= {f"memory/{name}": tensor for name, tensor in self.task.memory.items()}
        seconds = self.seconds_before + time.monotonic() - self.started
        note = {
            "phase_number": number,
            "step": step,
            "metrics_rows": len(self.metrics.rows),
            "metrics_digest": self.metrics.digest,
            "seconds": seconds,
            "was_spread": self.health.was_spread,
            "rate_share": self.rate_share,
        }
        with self.profile.section("checkpoint"):
            self.metrics.sync()
            self.folder.save_checkpoint(tensors, note)
        self.last_checkpoint = time.monotonic()


def _about(method: Method, source: Domain, target: Domain, folder: RunFolder | None) -> About:
    """What trackers are told about a run."""
    settings = {"method": method.name, **method.params(), "source": source.name, "target": target.name}
    path = None if folder is None else folder.path
    return About(method.name if path is None else path.resolve().name, settings, path)


def _aside(network: torch.nn.Module, hook: Callable[[], None]) -> None:
    """Call a hook between two steps, with the network in eval mode."""
    network.eval()
    hook()
    network.train()
