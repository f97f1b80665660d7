"""RDA: Han et al., Towards Accurate and Robust Domain Adaptation under Noisy Environments, IJCAI 2020.

Stage 1, `curriculum`: train on all source data for T epochs, keep every example's mean loss, and trust the smallest of
each class (section 3.1). Stage 2, `adapt`: start anew on the trusted examples, and align the domains by the proxy
margin discrepancy, whose proxy batch Q' is found anew in every step (section 3.2).

Where the paper is silent or its authors' program differs, both readings are presets of this one implementation,
``variant="paper"`` and ``variant="authors"``; each difference is a parameter of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from robustda.aside import Aside, leaves_time
from robustda.columns import Described, columns_of
from robustda.curriculum import KeepRule, LossLedger, Mode, balanced, exam, kept_share
from robustda.errors import ConfigError
from robustda.losses import margin_discrepancy, masked_mean, proxy_margin_discrepancy, proxy_mask, weighted_risk
from robustda.methods.base import Batch, Phase, Task
from robustda.methods.checks import check_at_least, check_share
from robustda.methods.mdd import AdversarialMethod, Play
from robustda.methods.registry import register, with_presets
from robustda.nets import Adversarial

if TYPE_CHECKING:
    from robustda.noise.estimate import Estimated

__all__ = ["RDA"]

PRESETS: dict[str, dict[str, Any]] = {
    "authors": {},  # the defaults below
    "paper": {
        "alpha": 3.0,
        "beta_rise": 0.0,
        "learning_rate": 0.001,
        "decay": 0.0,
        "keep_rule": "paper",
        "rebalance": False,
        "suspects": "ranked",
        "collect": "before",
        "proxy_size": "grow",
        "first_pair": True,
        "classifier_on": "proxy",
    },
}


@register("rda")
@with_presets("variant", PRESETS)
@dataclass(kw_only=True)
class RDA(AdversarialMethod):
    """Offline curriculum learning, then the proxy margin discrepancy.

    Parameters
    ----------
    variant: which preset the other parameters start from: authors (their program's settings) or paper (its text).
    noise_rate: the share of wrong labels (r): a number, one for each class, or auto to estimate it from the data.
    rates: auto estimates a rate per_class, or one that is shared by all classes, as the authors use it.
    rebalance: stage 2 draws a class as often as it stood in the source, however few of its examples are trusted.
    estimator: how auto estimates: combined (what `robustda audit` says), or one of its parts: confident, likelihood,
        anchor, mixture.
    suspects: auto finds labels that are more likely wrong than right. last ranks them behind all others of their class;
        ranked by their losses alone, as the paper does.
    corrupted: examples with corrupted features have large losses too. ignore ranks them with the others, as the paper
        does; tell_apart looks for them (blur and speckle in images of 200 pixels a side, rows that lie off in vectors
        unless `robustda features` has marked them),
        ranks them among their own kind, so that those with a right label stay, and has Q' smaller by their share. Auto
        estimates the noise rate from the sound ones either way.
    epochs: epochs of stage 1 (T).
    curriculum_rate: learning rate of stage 1.
    keep_curves: keep every example's loss of every epoch, too: m × T numbers, in curves.safetensors of the run folder.
    collect: losses of stage 1 are collected before each epoch (paper) or after it (authors).
    keep_rule: share of each class to keep (p_k): paper max{1−1.2r, .8(1−r)}, authors min{1−1.2r, .9(1−r)}, plain 1−r.
    curriculum: classwise ranks each class by itself (the paper's); offline has one threshold for all; online has no
        stage 1 and in every step trusts the examples whose loss of the moment is at most online_threshold (eqs. 5, 6).
    online_threshold: the loss up to which the online curriculum trusts an example (γ).
    online_warm_up: share of the steps in which it trusts all: at first all losses are large.
    proxy_share: the share of the batch that Q' comes to in the end (τ); 1 minus the share of corrupted features.
    proxy_size: grow (paper: min(n/N, τ)) or shrink (authors: 1 − min(n/N, 1 − τ)) towards it.
    first_pair: whether the discrepancy from Q_n to Q' is part of the game (eq. 17).
    classifier_on: f is trained on all trusted examples of the batch (trusted) or on Q' (proxy).
    feature_noisy: examples outside Q' stay in the source risk (reserve, the paper's) or not (delete: both f and ψ learn
        from Q' only, whatever classifier_on says).
    del_ocl: ablation: no curriculum, all examples trusted.
    del_pmd: ablation: plain margin discrepancy in place of the proxy one.
    """

    summary: ClassVar[str] = "offline curriculum against wrong labels, proxy margin discrepancy against bad features"
    paper: ClassVar[str] = (
        "Han et al., Towards Accurate and Robust Domain Adaptation under Noisy Environments, IJCAI 2020"
    )

    shared_stages: ClassVar[dict[str, frozenset[str]]] = {
        "filter": frozenset(
            {"variant", "steps", "learning_rate", "alpha", "beta", "beta_rise", "rebalance", "online_threshold"}
            | {"online_warm_up", "proxy_share", "proxy_size", "first_pair", "classifier_on", "feature_noisy", "del_pmd"}
        )
    }

    variant: Literal["authors", "paper"] = "authors"
    noise_rate: float | Literal["auto"] | list[float] = "auto"
    rates: Literal["per_class", "shared"] = "per_class"
    rebalance: bool = True
    estimator: Literal["combined", "confident", "likelihood", "anchor", "mixture"] = "combined"
    suspects: Literal["last", "ranked"] = "last"
    corrupted: Literal["ignore", "tell_apart"] = "ignore"
    epochs: int = 30
    curriculum_rate: float = 0.001
    keep_curves: bool = False
    collect: Literal["before", "after"] = "after"
    keep_rule: KeepRule = "authors"
    curriculum: Literal["classwise", "offline", "online"] = "classwise"
    online_threshold: float = 1.2
    online_warm_up: float = 0.15
    proxy_share: float = 1.0
    proxy_size: Literal["grow", "shrink"] = "shrink"
    first_pair: bool = False
    classifier_on: Literal["trusted", "proxy"] = "trusted"
    feature_noisy: Literal["reserve", "delete"] = "reserve"
    del_ocl: bool = False
    del_pmd: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, epochs=1, curriculum_rate=0, online_threshold=0)
        check_share(self, "proxy_share", "online_warm_up")
        rates = self.noise_rate if isinstance(self.noise_rate, list) else [self.noise_rate]
        for rate in rates:
            if rate != "auto" and not (isinstance(rate, int | float) and 0 <= rate < 1):
                raise ConfigError(f"noise_rate is {rate!r}: give auto, a number from 0 up to 1, or one for each class")

    def phases(self) -> list[Callable[[Task], Phase]]:
        return [self.adapt] if self.del_ocl or self.curriculum == "online" else [self.filter, self.adapt]

    def filter(self, task: Task) -> Phase:
        """Stage 1: collect losses over T epochs, then hold the exam. Leaves `trust` in the task's memory."""
        if isinstance(self.noise_rate, list) and len(self.noise_rate) != task.n_classes:
            given = f"noise_rate has {len(self.noise_rate)} numbers for {task.n_classes} classes"
            raise ConfigError(f"{given}: give one for each class, or one for all")
        network = self.network(task.source.example_shape, task.n_classes)
        network.adversary.requires_grad_(False)
        estimate = self._estimate(task)
        ledger = LossLedger(len(task.source), curves=self.keep_curves, device=task.device)
        epoch_steps = max(1, round(len(task.source) / self.batch_size))
        steps = self.epochs * epoch_steps

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            return {"loss": weighted_risk(network(batch.source), batch.labels)}

        def collect() -> None:
            ledger.add(task.losses(network))

        def hold_exam() -> None:
            odd = self.odd_ones(task)
            rates, doubted = self.class_noise_rates(task, estimate)
            mode = cast(Mode, self.curriculum)  # online has no such stage
            # Corrupted examples sit their own exam: twice as many groups, the second half of them for these.
            groups, keep = task.labels + task.n_classes * odd, kept_share(rates, self.keep_rule).repeat(2)
            outcome = exam(ledger.mean, groups, keep, mode=mode, doubted=doubted)
            trust = outcome.trust if task.confirmed is None else outcome.trust | task.confirmed
            task.memory |= {
                "noise_rate": rates,
                "mean_loss": ledger.mean,
                "threshold": outcome.threshold,
                "trust": trust.float(),
            }
            if self.corrupted == "tell_apart":
                task.memory["corrupted"] = odd.float()
            if ledger.curves:
                task.memory["loss_curves"] = torch.stack(ledger.curves)

        return Phase(
            "filter",
            network,
            loss,
            steps,
            learning_rate=lambda progress: self.curriculum_rate * (1 + self.decay * progress * steps) ** -0.75,
            uses_target=False,
            epoch_steps=epoch_steps,
            before_epoch=collect if self.collect == "before" else None,
            after_epoch=collect if self.collect == "after" else None,
            end=hold_exam,
            stateful={"ledger": ledger},
        )

    def adapt(self, task: Task) -> Phase:
        """Stage 2: source risk and proxy margin discrepancy together, on the trusted examples (eq. 19)."""
        network = self.network(task.source.example_shape, task.n_classes)
        final_share = self.final_proxy_share(task)
        reversal, share = self.reversal(), self.share(final_share)
        whole = self.proxy_size == "shrink" and final_share == 1  # Q' is the whole batch: no ranking needed
        online = self.curriculum == "online" and not self.del_ocl

        def loss(batch: Batch, progress: Tensor) -> dict[str, Tensor]:
            play = Play.of(network, batch, reversal(progress))
            if self.del_pmd and not online:
                terms = {"risk": weighted_risk(play.source, batch.labels)}
                terms |= margin_discrepancy(
                    play.adversary_source,
                    play.labels_source,
                    play.adversary_target,
                    play.labels_target,
                    alpha=self.alpha,
                )
                return play.report(terms)
            losses = F.cross_entropy(play.source, batch.labels, reduction="none")
            trusted = self.trusted_now(losses, progress) if online else torch.ones_like(losses)
            # Online the plain discrepancy is that of the trusted examples too: a Q' of all of them.
            proxy = trusted if self.del_pmd or whole else trusted * proxy_mask(losses, share(progress))
            if self.feature_noisy == "delete":
                terms = {"risk": masked_mean(losses, proxy)}
            elif self.classifier_on == "trusted":
                terms = {"risk": masked_mean(losses, trusted) if online else losses.mean()}
            else:
                terms = split_risk(network, play, batch, proxy, trusted if online else None)
            terms |= proxy_margin_discrepancy(
                play.adversary_source,
                play.labels_source,
                proxy,
                play.adversary_target,
                play.labels_target,
                alpha=self.alpha,
                first_pair=self.first_pair and not self.del_pmd,
            )
            report = play.report(terms) | {"proxy_share": proxy.mean()}
            return report | {"kept_share": trusted.mean()} if online else report

        rows = None if self.del_ocl or online else self.trusted_rows(task)
        schedules = {"reversal": reversal}
        return Phase("adapt", network, loss, self.steps, self.rate(self.steps), rows=rows, schedules=schedules)

    def trusted_rows(self, task: Task) -> Tensor:
        """The rows that stage 2 draws from, each as often as it stands here."""
        rows = task.memory["trust"].nonzero()[:, 0].cpu()
        return balanced(rows, task.labels.cpu(), self.seed) if self.rebalance else rows

    def odd_ones(self, task: Task) -> Tensor:
        """Whose features are corrupted, as a mask; nobody's where they are not told apart."""
        nobody = torch.zeros(len(task.source), dtype=torch.bool, device=task.device)
        if self.corrupted == "ignore":
            return nobody
        from robustda.noise.soundness import odd_ones

        labels = task.labels.cpu().numpy()
        found = odd_ones(task.source.array, labels, images=task.source.images, known=task.corrupted)
        return torch.from_numpy(found).to(task.device)

    def final_proxy_share(self, task: Task) -> float:
        """τ: as given, or less by the share of corrupted examples among the trusted, where they were told apart."""
        if "corrupted" not in task.memory:
            return self.proxy_share
        trusted = task.memory["trust"] > 0
        return min(self.proxy_share, 1 - float(task.memory["corrupted"][trusted].mean()))

    def share(self, final: float | None = None) -> Callable[[Tensor], Tensor]:
        """τ', the size of Q' as a share of the batch, as a function of progress n/N; in the end `final`, or τ."""
        final = self.proxy_share if final is None else final
        if self.proxy_size == "grow":
            return lambda progress: progress.clamp(max=final)
        return lambda progress: 1 - progress.clamp(max=1 - final)

    def trusted_now(self, losses: Tensor, progress: Tensor) -> Tensor:
        """The online curriculum's weights of a batch (eq. 6); all ones while it warms up."""
        trusted = losses.detach() <= self.online_threshold
        return (trusted | (progress < self.online_warm_up)).to(losses.dtype)

    def _estimate(self, task: Task) -> Callable[[], Estimated]:
        """What will say how noisy the labels are. A GPU trains meanwhile: it has no part in that but at first."""

        def estimate(described: Described) -> Estimated:
            from robustda.noise.estimate import estimate_rates

            return estimate_rates(
                described,
                labels,
                task.n_classes,
                inputs=task.source.array,
                corrupted=task.corrupted,
                columns=columns_of(described),
                estimator=self.estimator,
                seed=self.seed,
            )

        labels = task.labels.cpu().numpy()
        if self.noise_rate != "auto" or not leaves_time(task.device):
            return lambda: estimate(task.describe(self))
        described = task.describe(self)
        return Aside(lambda: estimate(described)).result

    def class_noise_rates(self, task: Task, estimate: Callable[[], Estimated]) -> tuple[Tensor, Tensor | None]:
        """r_k for every class, as given or estimated; and the labels that the estimate doubts, if they are to be."""
        if self.noise_rate == "auto":
            found = estimate()
            rates = found.rates
            if self.rates == "shared":
                counts = np.bincount(task.labels.cpu().numpy(), minlength=task.n_classes)
                rates = np.full_like(rates, np.average(rates, weights=counts))
            doubted = torch.from_numpy(found.doubted).to(task.device) if self.suspects == "last" else None
            return torch.from_numpy(rates).to(task.device), doubted
        if isinstance(self.noise_rate, list):
            return torch.tensor(self.noise_rate, dtype=torch.float64, device=task.device), None
        return torch.full((task.n_classes,), float(self.noise_rate), dtype=torch.float64, device=task.device), None


def split_risk(
    network: Adversarial, play: Play, batch: Batch, proxy: Tensor, trusted: Tensor | None = None
) -> dict[str, Tensor]:
    """The source risk as algorithm 1 updates it: θ_f by the risk on Q', ψ by the risk on all that is trusted.

    Two passes through f share one backward: the first sees the features as constants, the second its weights.
    """
    constant = {name: parameter.detach() for name, parameter in network.f.named_parameters()}
    of_classifier = weighted_risk(network.f(play.features.detach()), batch.labels, proxy)
    of_features = weighted_risk(
        cast(Tensor, functional_call(network.f, constant, play.features)), batch.labels, trusted
    )
    return {"risk": of_classifier, "feature_risk": of_features}
