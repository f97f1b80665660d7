"""Every loss as a pure function of tensors, each citing its equation in the paper.

All of them have static shapes: a subset of the batch (the trusted examples, the proxy batch Q') is a mask,
never a slice of changing length, so that a training step can be captured once and replayed.

Symbols: f is the main classifier, f' the adversary, h_f = argmax f its labelling, held constant; σ the softmax;
Q_n the noisy source, Q' the proxy distribution, P the target; α = exp ρ sets the margin ρ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "class_confusion",
    "class_surplus",
    "entropy",
    "log_one_minus_softmax",
    "margin_discrepancy",
    "masked_mean",
    "proxy_margin_discrepancy",
    "proxy_mask",
    "weighted_risk",
]


def weighted_risk(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Conditional-weighted empirical risk: the mean of w·CE over the trusted examples (eqs. 7 and 10).

    The paper divides by m, the size of the whole batch; we divide by Σw, so that the step size does not depend on
    how much the curriculum threw away. The two differ by a constant factor per batch, and agree when w = 1.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> float(weighted_risk(logits, torch.tensor([0, 0]), torch.tensor([1.0, 0.0]))).__round__(4)
    0.1269
    """
    if weights is None:
        return F.cross_entropy(_wide(logits), labels)
    return masked_mean(F.cross_entropy(_wide(logits), labels, reduction="none"), weights)


def margin_discrepancy(
    adversary_source: Tensor,
    labels_source: Tensor,
    adversary_target: Tensor,
    labels_target: Tensor,
    *,
    alpha: float,
) -> dict[str, Tensor]:
    """Margin disparity discrepancy with cross-entropy in place of the margin loss (definition 3.3), as f' minimises it.

    Returns its two terms, ``α·CE_Q(f', h_f)`` and ``−E_P log(1 − σ_{h_f}(f'))``; `labels_*` are h_f. The
    features reach it through a gradient reversal, so the same number is maximised by the representation.
    """
    return {
        "source_disparity": alpha * F.cross_entropy(_wide(adversary_source), labels_source),
        "target_disparity": -log_one_minus_softmax(adversary_target, labels_target).mean(),
    }


def proxy_margin_discrepancy(
    adversary_source: Tensor,
    labels_source: Tensor,
    proxy: Tensor,
    adversary_target: Tensor,
    labels_target: Tensor,
    *,
    alpha: float,
    first_pair: bool = True,
) -> dict[str, Tensor]:
    """Proxy margin discrepancy (definition 3.4, eqs. 14, 17 and 18), as f' minimises it.

    The first pair, Q_n to Q', is ``α·CE_{Q_n}(f', h_f) − CE_{Q'}(f', h_f)``; the second, Q' to P, is
    ``α·CE_{Q'}(f', h_f) − E_P log(1 − σ_{h_f}(f'))``. `proxy` is the mask of Q' in the source batch.

    The first pair alone is unbounded below once |Q'| < |Q_n|/α. The sum is bounded for α ≥ 1, hence they are only
    offered together; `first_pair=False` leaves the second alone, which is bounded always.
    """
    losses = F.cross_entropy(_wide(adversary_source), labels_source, reduction="none")
    proxy_disparity = masked_mean(losses, proxy)
    terms = {
        "source_disparity": alpha * proxy_disparity,
        "target_disparity": -log_one_minus_softmax(adversary_target, labels_target).mean(),
    }
    if first_pair:
        terms["first_pair"] = alpha * losses.mean() - proxy_disparity
    return terms


def proxy_mask(losses: Tensor, share: Tensor) -> Tensor:
    """The proxy batch Q' (eq. 16): a 0/1 mask of the ``⌈share·B⌉`` examples with the smallest loss, at least one.

    `share` is a tensor so that the size of Q' can follow a schedule without changing any shape. Ties go to the
    example that stands first.

    >>> proxy_mask(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor(0.5)).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    ranks = torch.argsort(torch.argsort(losses.detach(), stable=True), stable=True)
    # In float32 a product such as .7·10 may land just above a whole number, and its ceiling would be one too many.
    count = torch.ceil(share * len(losses) - 1e-6 * len(losses)).clamp(min=1)
    return (ranks < count).to(losses.dtype)


def log_one_minus_softmax(logits: Tensor, labels: Tensor) -> Tensor:
    """``log(1 − σ_label(logits))`` per example, right even where σ rounds to 1.

    It is the log of the other classes' share, Σ_{j≠label} e^{z_j} / Σ_j e^{z_j}, and is computed as just that: no
    subtraction from one, so neither the value nor the gradient is ever infinite.
    """
    wide = _wide(logits)
    others = wide.scatter(1, labels[:, None], float("-inf"))
    return torch.logsumexp(others, dim=1) - torch.logsumexp(wide, dim=1)


def class_confusion(logits: Tensor, temperature: float = 2.5) -> Tensor:
    """How much the predictions on a batch confuse each class with others, from 0 to 1: Jin et al., ECCV 2020, eq. 5.

    Predictions are softened by the temperature, and the surer ones weigh more, by 1 + e^(−entropy).

    >>> float(class_confusion(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))) < 1e-6
    True
    """
    soft = torch.softmax(_wide(logits) / temperature, dim=1)
    weight = 1 + torch.exp(-entropy(_wide(logits).detach() / temperature))
    weight = weight / weight.mean()
    confusion = soft.T @ (weight[:, None] * soft)
    confusion = confusion / confusion.sum(dim=1, keepdim=True).clamp(min=torch.finfo(soft.dtype).tiny)
    return 1 - confusion.diagonal().mean()


def class_surplus(shares: Tensor, seen: Tensor, wanted: Tensor) -> Tensor:
    """Makes classes rarer that have been predicted more often than wanted, and others more frequent.

    ``shares`` (K) is the mean prediction on a batch, ``seen`` (K) that on many batches, ``wanted`` (K) what it should
    be. The gradient is that of the divergence KL(seen ‖ wanted), of which this batch is taken to be a part: by itself
    it has too few examples to have all classes.

    >>> logits = torch.zeros(4, 2, requires_grad=True)
    >>> seen, even = torch.tensor([0.8, 0.2]), torch.tensor([0.5, 0.5])
    >>> class_surplus(logits.softmax(dim=1).mean(dim=0), seen, even).backward()
    >>> bool((logits.grad[:, 0] > 0).all() and (logits.grad[:, 1] < 0).all())
    True
    """
    return shares @ torch.log(seen / wanted).detach()


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy of the softmax, per example, in nats."""
    log_probabilities = F.log_softmax(_wide(logits), dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)


def _wide(logits: Tensor) -> Tensor:
    """At least float32: half precision ends at 65,504, which a sum or a logarithm of large logits soon exceeds."""
    return logits if logits.dtype == torch.float32 else logits.to(torch.promote_types(logits.dtype, torch.float32))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` weighted by `mask`; zero when the mask is empty."""
    mask = mask.to(values.dtype)
    return (values * mask).sum() / mask.sum().clamp(min=torch.finfo(values.dtype).tiny)
