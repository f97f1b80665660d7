"""All terms of section 2.2 for one pair of domains, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.errors import DataError
from robustda.noise.checks import check_features, check_labels
from robustda.noise.witnesses import describe
from robustda.theory.bound import Bound, rademacher
from robustda.theory.discrepancy import Measured, divergence, margin_discrepancy, proxy_discrepancy, source_risk
from robustda.theory.heads import MARGIN, NORM, check_head, fit_head

__all__ = ["Terms", "measure_terms"]

Flags = npt.NDArray[np.bool_]

_SPACE = "\N{NO-BREAK SPACE}"
_MOST = 4_000  # examples of a domain that are measured: more change the third digit


@dataclass(frozen=True, eq=False)
class Terms:
    """What was measured."""

    error: Measured
    """share of trusted examples that a head gets wrong which never saw them: the first term of eq. 1"""
    risk: Measured
    """the same as margin loss Φ_ρ"""
    discrepancy: Measured
    """MDD from the noisy source Q_n to the target P"""
    to_proxy: Measured
    """MDD from Q_n to the proxy Q', the first half of PMD"""
    from_proxy: Measured
    """MDD from Q' to P, the second half of PMD"""
    divergence: Measured
    """H-divergence between Q_n and P, as proxy A-distance"""
    bound: Bound
    """the sample-size terms of theorem 3.1"""

    @property
    def proxy_total(self) -> float:
        """PMD (definition 3.4)."""
        return self.to_proxy.value + self.from_proxy.value

    @property
    def at_stake(self) -> float:
        """The measured part of eq. 1, source risk and discrepancy, without λ: that some classifier is good in both
        domains has to be believed, as nobody can measure it without labels of the target."""
        return min(1.0, self.error.value + self.discrepancy.value)

    def sentences(self) -> dict[str, str]:
        """What each term means for a person."""
        less = 1 - self.bound.grown(4).total / self.bound.total
        return {
            "risk": f"A plain classifier gets {_share(self.error)} of trusted source examples wrong that it has not "
            "seen: what cannot be learned at home cannot be carried over.",
            "discrepancy": f"Classifiers that agree on the source can differ on {_share(self.discrepancy)} of the "
            "target: for so much of it the source does not vouch.",
            "proxy": f"From trusted examples with sound features alone it is {_share(self.from_proxy)}; these differ "
            f"from the whole source on {_share(self.to_proxy)}.",
            "divergence": f"A straight line tells the domains apart with a proxy A-distance of "
            f"{self.divergence.value:.2f}: 0 is not at all, 2 is without a mistake.",
            "bound": f"Four times the data would take {_percent(less)} off what chance may hide from these figures; "
            f"more of the {self.bound.best_to_grow} would help most.",
        }


def measure_terms(
    source: npt.ArrayLike,
    labels: npt.ArrayLike,
    target: npt.ArrayLike,
    *,
    n_classes: int | None = None,
    trusted: npt.ArrayLike | None = None,
    proxy: npt.ArrayLike | None = None,
    norm: float = NORM,
    margin: float = MARGIN,
    seed: int = 0,
) -> Terms:
    """Measure all terms on features of both domains: seconds for 3,000 examples of 2,048 features.

    ``labels`` are the source's, as far as they are believed. ``trusted`` (a mask, w in the paper) are the examples that
    f is learned from; ``proxy`` those that stand for Q', as a rule the trusted ones with sound features. Without a mask
    it is everybody.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(600) % 3
    >>> x = np.eye(3, 8)[y] * 4 + rng.normal(size=(600, 8))
    >>> found = measure_terms(x[:300], y[:300], x[300:])
    >>> found.discrepancy.value < 0.1, found.divergence.value < 0.3
    (True, True)
    """
    codes, size = check_labels(labels, n_classes)
    at_home = check_features(source, len(codes))
    away = check_features(target, len(np.asarray(target)))
    if at_home.shape[1] != away.shape[1]:
        raise DataError(
            f"the source has {at_home.shape[1]} features and the target {away.shape[1]}: make both in the same way"
        )
    check_head(norm, margin)
    known, near = _mask(trusted, len(codes), "trusted"), _mask(proxy, len(codes), "proxy")
    rng = np.random.default_rng(seed)
    rows, others = _some(len(at_home), rng), _some(len(away), rng)
    codes, known, near = codes[rows], known[rows], near[rows]
    if len(np.unique(codes[known])) < 2 or not near.any():
        what = "no example stands for the proxy" if not near.any() else "fewer than two classes have trusted examples"
        raise DataError(f"{what}: give masks that leave enough to measure")
    both = describe(np.concatenate([at_home[rows], away[others]]), seed)
    x, z = both[: len(rows)], both[len(rows) :]
    head = fit_head(x[known], codes[known], size, norm=norm)
    error, risk = source_risk(x[known], codes[known], size, norm=norm, margin=margin, seed=seed)
    to_proxy, from_proxy = proxy_discrepancy(head, x, near, z, margin=margin, seed=seed)
    m, u, n = (rademacher(points, head.predict(points), size, norm=norm, seed=seed) for points in (x, x[near], z))
    return Terms(
        error=error,
        risk=risk,
        discrepancy=from_proxy if near.all() else margin_discrepancy(head, x, z, margin=margin, seed=seed),
        to_proxy=to_proxy,
        from_proxy=from_proxy,
        divergence=divergence(x, z, seed=seed),
        bound=Bound((len(x), int(near.sum()), len(z)), (m, u, n), size, margin),
    )


def _some(size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    return np.arange(size) if size <= _MOST else np.sort(rng.choice(size, _MOST, replace=False))


def _mask(given: npt.ArrayLike | None, size: int, name: str) -> Flags:
    mask = np.ones(size, dtype=bool) if given is None else np.asarray(given)
    if mask.shape != (size,) or mask.dtype != bool:
        raise DataError(f"`{name}` is {mask.dtype} {mask.shape}: give {size} truth values")
    return mask


def _share(found: Measured) -> str:
    """``12 % (10 to 14 %)``, with spaces that do not break."""
    low, high = found.interval
    return f"{_percent(found.value)} ({100 * low:.0f}{_SPACE}to{_SPACE}{_percent(high)})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f}{_SPACE}%"
