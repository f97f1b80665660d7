"""Choosing a model without target labels: how good does a network look on the target, judged by itself?

Each criterion is a number, larger is better, made of what is at hand: predictions and features on the unlabelled target
and, for DEV, losses on trusted source examples. None of them sees a target label, and none is to be trusted blindly:
all of them can be high for a network that is wrong with confidence.

    im    information maximisation: sure about each example, and using all classes alike (Shi and Sha, 2012)
    snd   soft neighbourhood density: similar examples get the same prediction (Saito et al., 2021)
    bnm   nuclear norm of the predictions: sure and diverse, in one number (Cui et al., 2020)
    dev   importance-weighted validation with a control variate (You et al., 2019)
"""

from __future__ import annotations

import math
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustda.errors import ConfigError
from robustda.methods.base import Task
from robustda.methods.task import forward_all
from robustda.nets import Classifier

__all__ = [
    "Criterion",
    "deep_embedded_validation",
    "density_ratio",
    "information_maximisation",
    "nuclear_norm",
    "scores",
    "soft_neighbourhood_density",
    "validation_score",
]

Criterion = Literal["im", "snd", "bnm", "dev"]


def information_maximisation(probabilities: Tensor) -> Tensor:
    """H(mean p) − mean H(p), in nats, the mutual information of example and predicted class: 0 to log K.

    >>> float(information_maximisation(torch.eye(4)))
    1.3862943649291992
    """
    return _entropy(probabilities.mean(dim=0)) - _entropy(probabilities).mean()


def soft_neighbourhood_density(features: Tensor, temperature: float = 0.05) -> Tensor:
    """Mean entropy of each example's similarities to the others; higher means denser neighbourhoods.

    `features` are what should be alike for alike examples: softmax outputs in the paper.
    """
    unit = F.normalize(features, dim=1)
    similarity = unit @ unit.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    log_share = F.log_softmax(similarity, dim=1)
    return -(log_share.exp() * log_share.masked_fill(log_share == float("-inf"), 0.0)).sum(dim=1).mean()


def nuclear_norm(probabilities: Tensor) -> Tensor:
    """‖P‖_* / √(min(n, K)·n), which is 1 for sure predictions spread evenly over all classes."""
    count, classes = probabilities.shape
    norm = cast(Tensor, torch.linalg.matrix_norm(probabilities, ord="nuc"))
    return norm / math.sqrt(min(count, classes) * count)


def deep_embedded_validation(losses: Tensor, ratios: Tensor) -> Tensor:
    """Minus the target risk estimated from source losses: E[w·ℓ] with w's known mean as control variate.

    The coefficient η = −Cov(w·ℓ, w)/Var(w) takes out the part of the estimate's scatter that comes from w alone; a
    constant w leaves the plain mean.
    """
    weighted = losses * ratios
    centred = ratios - ratios.mean()
    variance = centred.square().mean()
    covariance = ((weighted - weighted.mean()) * centred).mean()
    eta = torch.where(variance > 1e-12, -covariance / variance.clamp(min=1e-12), torch.zeros_like(variance))
    return -(weighted.mean() + eta * (ratios.mean() - 1))


def density_ratio(source: Tensor, target: Tensor, *, steps: int = 200) -> Tensor:
    """p_T(z)/p_S(z) at the source's features, by a logistic regression that tells the domains apart; mean 1."""
    z = torch.cat([source, target]).float()
    z = (z - z.mean(dim=0)) / z.std(dim=0).clamp(min=1e-6)
    labels = torch.cat([torch.zeros(len(source)), torch.ones(len(target))]).to(z.device)
    weight = torch.zeros(z.shape[1], device=z.device, requires_grad=True)
    bias = torch.zeros((), device=z.device, requires_grad=True)
    with torch.enable_grad():
        optimizer = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(z @ weight + bias, labels) + 1e-2 * weight.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
    odds = torch.exp((z[: len(source)] @ weight + bias).detach().clamp(-10, 10)) * len(source) / len(target)
    return odds / odds.mean()


def scores(logits: Tensor) -> dict[str, float]:
    """The criteria that need nothing but logits on (a sample of) the target; none where they are not finite."""
    probabilities = torch.softmax(logits.float(), dim=1)
    if not bool(probabilities.isfinite().all()):
        return {}  # the run has diverged, and is told so elsewhere
    return {
        "im": float(information_maximisation(probabilities)),
        "snd": float(soft_neighbourhood_density(probabilities)),
        "bnm": float(nuclear_norm(probabilities)),
    }


@torch.no_grad()
def validation_score(network: nn.Module, task: Task, sample: int) -> float:
    """DEV of a network in eval mode, on up to `sample` examples of each domain.

    It is computed on trusted source examples; on all, where no curriculum has judged them or none is trusted. They were
    trained on, so it flatters a network that has memorised them.
    """
    if not isinstance(network, Classifier):
        raise ConfigError("only a network that predicts can be judged")
    trust = task.memory.get("trust")
    rows = task.source.spread(sample)
    if trust is not None and bool(trust.any()):
        trusted = trust.nonzero()[:, 0].cpu()
        rows = trusted[torch.linspace(0, len(trusted) - 1, min(sample, len(trusted))).round().long()]
    source = forward_all(network.features, task.source, rows)
    target = forward_all(network.features, task.target, task.target.spread(sample))
    losses = F.cross_entropy(network.f(source).float(), task.labels[rows.to(task.device)], reduction="none")
    return float(deep_embedded_validation(losses, density_ratio(source, target)))


def _entropy(probabilities: Tensor) -> Tensor:
    return -cast(Tensor, torch.special.xlogy(probabilities, probabilities)).sum(dim=-1)
