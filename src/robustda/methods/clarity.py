"""Clarity, no paper's but ours: believed labels, predictions that confuse no classes on the target, a second opinion.

1. `judge`: every source label is believed, mended or left out, by examples that are like it (`belief.py`). Whoever
   reads labels makes mistakes, which lie together, so there are three readings, which heads and members take in turn:
   two ways to judge them, and the labels as they were given; or other ones where most labels are wrong.
2. `learn`: the features of the frozen backbone are made once, and a few small heads learn on them side by side:
   cross-entropy on the believed source, and the class confusion of their predictions on the target, which is made small
   (Jin et al., Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020). The learning rate ends at zero.
3. The second opinion is that of concord's members (`concord.py`), who come to it in another way, by subspaces and
   clusters of the same features. The two are multiplied. How much of the target should be right by that is judged by
   classifiers of other kinds (`expect.py`), and probabilities are made as sure as that on average.
4. `further`, if asked for by `tune`: the whole network goes on from there, on augmented images, its backbone slowly and
   with the batch statistics that it came with. The members stay with the features of the backbone as it came.

Where classes are few and one is rare, heads and members tell kinds of things apart in place of classes (`kinds.py`).
A backbone that knows nothing yet is trained in `learn`, on the examples themselves, and there is no second opinion.
Its first features may take one class of the target for another as a whole, and confusion would then make that final: so
at first classes are held to be as frequent on the target as in the source.
It takes no noise rate and no choice by target labels; on frozen features some fifteen seconds on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from robustda.columns import Described, rows_of
from robustda.data.batches import Inputs
from robustda.data.domain import Domain
from robustda.data.views import SMALL
from robustda.description import describe_all
from robustda.losses import class_confusion, class_surplus
from robustda.methods.base import Batch, Phase, Schedule, Task
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.conclusion import AS_GIVEN, KINDS, LEARNED_BY_KIND, conclude, lessons, lessons_by_kind, one_length
from robustda.methods.concord import Agreeing
from robustda.methods.kinds import MOST, find_kinds
from robustda.methods.opinions import Plain, TwoOpinions
from robustda.methods.prototypes import no_loss
from robustda.methods.registry import register
from robustda.methods.task import forward_all
from robustda.nets import Backbone, Pixels

__all__ = ["Clarity"]

_HEAD = "head/"  # in the task's memory: what `learn` leaves for `further`
_SEEN = "seen"  # there too: how frequent each head's predictions on the target have made the classes
_WINDOW = 20  # examples a class over which these frequencies are taken: fewer say more of chance than of the classes
_HELD, _RELEASED = 0.4, 0.7  # the progress up to which they are held to the source's, and from which on not at all


@register("clarity")
@dataclass(kw_only=True)
class Clarity(Agreeing):
    """Believed labels for the source, little confusion of classes on the target, and concord's members beside it.

    Parameters
    ----------
    heads: how many heads learn side by side, each by itself; what they say is averaged.
    readings: in_turn has heads and members learn in turn from three readings of the source's labels, one of them the
        labels as they were given, or another one where most of these are wrong; one has all learn from the first.
    width: width of each head.
    head_steps: steps in which the new layers learn on the features of a frozen backbone.
    head_rate: their learning rate at first.
    confusion: weight of the class confusion on the target.
    balance: where the backbone knows nothing yet, how strongly the classes are held, in the first half of the steps, to
        be as frequent on the target as in the source; 0 for a target that is known to have other frequencies.
    temperature: what logits are divided by where confusion is measured.
    smoothing: share of every source label that is spread over all classes.
    voices: two multiplies what the network says with what the members say; one leaves it at the network.
    plain: where classes overlap, how much of a say a plain linear classifier has beside the two, of which the network
        has one half; 0 for none. Where they do not overlap it has none.
    mirror: describe a photograph by the mean of its features and its mirror image's, which takes the backbone twice as
        long; not where `augment` is none or shift, or on images of up to 64 pixels.
    kinds: where classes are few and one is much rarer than another, auto divides the common ones into kinds of things,
        which heads and members then tell apart; none does not. With `tune` it is not done.
    missing: discount predicts a class that the target seems to lack only where much speaks for it; ignore takes all
        classes to be there. Which seem to be missing is said in either case.
    tune: train the whole network afterwards, for `steps` steps; a backbone that knows nothing yet is trained for so
        many in any case.
    batch_size: source examples in a step; as many target examples join them, and confusion shows in many better than in
        few.
    backbone_rate: the learning rate of a pretrained backbone, as a share of the others', where it is tuned.
    batch_norm: whether the batch norm of a backbone that is tuned learns the statistics of both domains, or keeps those
        that it came with.
    sharpness: what log scores of the members are multiplied with to become logits; more gives them more of a say.
    """

    summary: ClassVar[str] = "believed labels, no classes confused on the target, and a second opinion on it"
    paper: ClassVar[str] = (
        "no paper; confusion as in Jin et al., Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020"
    )

    batch_size: int = 64
    backbone_rate: float = 0.03
    batch_norm: Literal["learn", "keep"] = "keep"
    sharpness: float = 10.0
    width: int = 512
    heads: int = 3
    readings: Literal["in_turn", "one"] = "in_turn"
    head_steps: int = 450
    head_rate: float = 0.03
    confusion: float = 1.5
    balance: float = 1.0
    temperature: float = 2.5
    smoothing: float = 0.1
    voices: Literal["two", "one"] = "two"
    plain: float = 2.0
    mirror: bool = True
    kinds: Literal["auto", "none"] = "auto"
    missing: Literal["discount", "ignore"] = "discount"
    tune: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, heads=1, head_steps=1, head_rate=0, confusion=0, balance=0, plain=0, temperature=1e-3)
        check_share(self, "smoothing", below_one=True)

    @property
    def frozen(self) -> bool:
        return not self.tune

    def network(self, example_shape: tuple[int, ...], n_classes: int, *, pretrained: bool = True) -> TwoOpinions:
        backbone = self.make_backbone(example_shape, pretrained)
        network = TwoOpinions(backbone, n_classes, self.width, self.heads, dropout=self.dropout)
        photographs = len(example_shape) == 3 and (
            self.augment == "photo" or (self.augment == "auto" and example_shape[0] > SMALL)
        )
        network.mirrored = self.mirror and network.knowing and photographs
        if network.knowing and self.voices == "two":
            network.members = self.members_for(backbone.out_features, n_classes)
            network.plain = Plain(backbone.out_features, n_classes) if self.plain else None
            if self.tune and len(example_shape) == 3:
                network.keep_as_it_came()
        return network

    def network_for(self, example_shape: tuple[int, ...], n_classes: int, tensors: Mapping[str, Tensor]) -> TwoOpinions:
        network = self.network(example_shape, n_classes, pretrained=False)
        if "whose" in tensors:
            whose = tensors["whose"]
            fits = whose.ndim == 1 and len(whose) <= MOST and not whose.is_floating_point()
            if not fits or set(whose.tolist()) != set(range(n_classes)):
                raise ValueError(f"the kinds of its {n_classes} classes are {tuple(whose.shape)}, or of other classes")
            self._divide(network, whose)
        return network

    def _divide(self, network: TwoOpinions, whose: Tensor) -> None:
        none = network.members is None
        network.divide(whose, None if none else self.members_for(network.backbone.out_features, len(whose)))

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.judge, self.learn, self.further] if self.tune else [self.judge, self.learn]

    def judge(self, task: Task) -> Phase:
        """Of no steps: leaves what each source example is believed to be, −1 for nothing, by each reading (m, R)."""
        network = self.network(task.source.example_shape, task.n_classes).requires_grad_(False)

        def settle() -> None:
            # What takes the time on a CPU: once is enough.
            task.made["source"] = _features(network, task.source, task)
            pixels = task.source.images and not network.knowing
            belief = self.believed(task.made["source"], task, one_length, by_pixels=pixels)
            # Heads on a backbone that learns, too, share what they learn from, and all would suffer from wrong labels.
            in_turn = self.readings == "in_turn" and (network.knowing or not belief.as_given)
            task.memory["believed"] = belief.readings[:, : None if in_turn else 1].to(task.device)
            task.memory[AS_GIVEN] = torch.tensor(in_turn and belief.as_given, device=task.device)
            if network.knowing and not self.tune:
                self._look_for_kinds(task.made["source"], task)

        return Phase("judge", network, no_loss, 0, lambda progress: 0.0, end=settle)

    def _look_for_kinds(self, source: Described, task: Task) -> None:
        if self.kinds == "none":
            return
        taught = lessons(task).cpu().numpy()
        kinds = find_kinds(source, taught[:, 0], task.n_classes, one_length, self.seed)
        if kinds is not None:
            by_kind = np.stack([kinds.of(reading) for reading in taught.T], axis=1)
            task.memory[KINDS] = torch.from_numpy(kinds.whose).to(task.device)
            task.memory[LEARNED_BY_KIND] = torch.from_numpy(by_kind).to(task.device)

    def learn(self, task: Task) -> Phase:
        """Learn on frozen features, or with a backbone that knows nothing yet."""
        network = self.network(task.source.example_shape, task.n_classes)
        if not network.knowing:
            if self.tune:  # all of it is still to come
                return Phase("learn", network, no_loss, 0, lambda progress: 0.0)
            return self._phase("learn", network, task, self.steps, self.learning_rate)
        if KINDS in task.memory:
            self._divide(network, task.memory[KINDS])
        network.backbone.requires_grad_(False)
        network.to(task.device).eval()
        known = task.made.pop("source", None)  # not there in a run that was resumed
        made = (
            _features(network, task.source, task) if known is None else known,
            _features(network, task.target, task),
        )
        seen = task
        if not network.backbone.fixed:
            source, target = (Inputs(Domain.from_arrays(features), task.device) for features in made)
            seen = replace(task, source=source, target=target)
            network.on_features = True

        def end() -> None:
            network.on_features = False
            if not self.tune:
                conclude(self, network, *made, task)
                return
            state = {name: tensor for name, tensor in network.state_dict().items() if _of_head(name)}
            task.memory |= {_HEAD + name: tensor.clone() for name, tensor in state.items()}

        phase = self._phase("learn", network, task, self.head_steps, self.head_rate, lessons_by_kind(task))
        look = network if network.backbone.fixed else network.say
        return replace(phase, task=seen, end=end, logits=lambda: forward_all(look, seen.target))

    def further(self, task: Task) -> Phase:
        """Go on with the whole network."""
        network = self.network(task.source.example_shape, task.n_classes)
        head = {name.removeprefix(_HEAD): tensor for name, tensor in task.memory.items() if name.startswith(_HEAD)}
        network.load_state_dict(head, strict=False)
        phase = self._phase("further", network, task, self.steps, self.learning_rate)

        def end() -> None:
            tuned = _features(network, task.target, task, keep=False)
            if network.as_it_came is None:
                conclude(self, network, _features(network, task.source, task, keep=False), tuned, task)
                return
            source, target = (_by(network.as_it_came, inputs, network, task) for inputs in both)
            conclude(self, network, source, target, task, np.concatenate([tuned, target], axis=1))

        both = task.source, task.target
        return replace(phase, end=end if network.knowing else None)

    def _phase(
        self, name: str, network: TwoOpinions, task: Task, steps: int, rate: float, taught: Tensor | None = None
    ) -> Phase:
        believed = task.memory["believed"] if taught is None else taught
        readings = believed.shape[1]
        surplus = self._surplus(task) if self.balance and not network.knowing else None

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            every, count = network.each(network.described(batch.both)), len(batch.rows)
            labels = believed[batch.rows]
            risks = [self._risk(logits[:count], labels[:, head % readings]) for head, logits in enumerate(every)]
            terms = {"risk": torch.stack(risks).mean()}
            if self.confusion:
                confusions = [class_confusion(logits[count:], self.temperature) for logits in every]
                terms["confusion"] = self.confusion * torch.stack(confusions).mean()
            if surplus is not None:
                held = self.balance * ((_RELEASED - progress) / (_RELEASED - _HELD)).clamp(0, 1)
                terms["balance"] = held * surplus([logits[count:] for logits in every])
            # Every head learns as fast as it would by itself.
            return {"loss": len(every) * torch.stack(list(terms.values())).sum(), **terms}

        rows = (believed >= 0).any(dim=1).nonzero()[:, 0].cpu()
        return Phase(name, network, loss, steps, _falling(rate), rows=rows)

    def _risk(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy on the examples that this reading of the labels believes to be of a class."""
        every = F.cross_entropy(logits, labels, ignore_index=-1, label_smoothing=self.smoothing, reduction="sum")
        return every / (labels >= 0).sum().clamp(min=1)

    def _surplus(self, task: Task) -> Callable[[list[Tensor]], Tensor]:
        """What holds the classes of the target, as each head predicts them, to the frequencies of the source."""
        believed = task.memory["believed"]
        wanted = torch.bincount(believed[believed >= 0], minlength=task.n_classes) + 1.0
        wanted /= wanted.sum()
        # In the memory, so that a run that is resumed goes on with it.
        seen = task.memory.setdefault(_SEEN, wanted.repeat(self.heads, 1))
        weight = min(1.0, self.batch_size / (_WINDOW * task.n_classes))

        def surplus(every: list[Tensor]) -> Tensor:
            shares = torch.stack([logits.softmax(dim=1).mean(dim=0) for logits in every])
            seen.lerp_(shares.detach(), weight)
            each = [class_surplus(own, so_far, wanted) for own, so_far in zip(shares, seen, strict=True)]
            return torch.stack(each).mean()

        return surplus


def _features(network: TwoOpinions, inputs: Inputs, task: Task, *, keep: bool = True) -> Described:
    """What the backbone makes of all inputs; of images, where it knows nothing yet, the pixels."""
    if network.backbone.fixed:
        return rows_of(network.backbone, inputs.array)
    if inputs.images and not network.knowing:
        return forward_all(Pixels(), inputs).cpu().numpy()
    return _by(network.backbone, inputs, network, task, keep=keep)


def _by(backbone: Backbone, inputs: Inputs, network: TwoOpinions, task: Task, *, keep: bool = True) -> np.ndarray:
    # Both domains alike, whichever phase asks.
    how = {"low_precision": task.quick_features, "mirrored": network.mirrored, "progress": task.progress}
    return describe_all(backbone, inputs, keep=keep, heed=task.heed, **how)


def _of_head(name: str) -> bool:
    return name.startswith(("bottleneck.", "f."))


def _falling(rate: float) -> Schedule:
    """From the rate to zero along half a cosine: at the end the weights have settled."""
    return lambda progress: rate * (1 + torch.cos(torch.pi * torch.as_tensor(progress))) / 2
