"""What all labels say together: examples that are alike are of one class, and every class has its share of them.

A label that is wrong four times in five says next to nothing of its example, and witnesses that learn from such labels
one by one (`witnesses.py`) say not much more. But whatever is believed of an example speaks for the same of its
neighbours, and no class can have everybody. So beliefs q are sought that fit all labels, all neighbours and the sizes
of the classes at once: the mean field of a Potts model on the graph of nearest neighbours, whose coupling λ rises,

    q_i(k) ∝ T(k, y_i) · exp(λ Σ_j A_ij q_j(k) + b_k),

with A the weights of neighbours, row sums about 1, T the transition matrix, and b_k such that classes come near to
their sizes: the mean of what witnesses and the numbers of labels speak for, or, where most labels are wrong, of the
latter alone. λ is measured by the value at which such a model of K classes, all connected, would come to agree without
any label (Wu, The Potts model, Rev. Mod. Phys. 1982, for its mean-field transition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robustda.noise.likelihood import Codes, symmetric
from robustda.noise.vectors import unit
from robustda.noise.witnesses import Single, nearest

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["beside_field", "class_sizes", "mean_field", "neighbour_graph", "transition_point"]

Values = npt.NDArray[np.float64]

_WIDTH = 64  # main directions in which neighbours are sought; 32 and 128 came to the same
_NEIGHBOURS, _FEWEST = 20, 5  # 15 and 30 as well; of small classes no more than a class has, and a quarter more
_COUPLING = 2.1  # λ at last, in units of the transition's; 2.5 came to the same, 1.8 is little where most are wrong
_RISES, _ROUNDS = 4, 10  # in so many rises of λ, with so many rounds at each
_SIZES = 0.8  # how closely sizes of classes are kept: 0 not at all, 1 exactly
_SAME_MATRIX = 0.3  # how much of T is used, the rest being the overall rate: its chance ups and downs would add up here
_FROM, _FULL = 0.5, 0.75  # the rate from which on T and the witnesses' sizes of classes are used less, then not at all
_LEAST = 1e-6


def beside_field(belief: Values, transition: Values, features: Single, labels: Codes) -> Values:
    """The witnesses' belief (m, K) and what all labels say together, as a geometric mean.

    ``features`` are what `witnesses.describe` returns.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(400) % 4
    >>> given = np.where(rng.random(400) < 0.8, rng.integers(0, 4, 400), true)
    >>> x = (3 * np.eye(4)[true] + rng.normal(size=(400, 4)) / 2).astype(np.float32)
    >>> found = beside_field(symmetric(0.6, 4).T[given], symmetric(0.6, 4), x, given)
    >>> bool((found.argmax(axis=1) == true).mean() > 0.95)
    True
    """
    together = mean_field(belief, transition, features, labels)
    both: Values = np.sqrt(np.maximum(belief, _LEAST**2) * np.maximum(together, _LEAST))
    both /= both.sum(axis=1, keepdims=True)
    return both


def mean_field(belief: Values, transition: Values, features: Single, labels: Codes) -> Single:
    """What all labels say together of the class of each example (m, K); `belief` tells how many are wrong."""
    size, n_classes = belief.shape
    graph = neighbour_graph(_main(features), min(_NEIGHBOURS, max(_FEWEST, 5 * size // (4 * n_classes))))
    rate = float(np.clip(1 - belief[np.arange(size), labels].mean(), 0.02, 0.95))
    known = float(np.clip((_FULL - rate) / (_FULL - _FROM), 0, 1))
    noise = _SAME_MATRIX * known * transition + (1 - _SAME_MATRIX * known) * symmetric(rate, n_classes)
    sizes = known / 2 * belief.sum(axis=0) + (1 - known / 2) * class_sizes(labels, n_classes, rate)
    own: Single = np.log(np.maximum(noise, _LEAST)).astype(np.float32).T[labels]
    log_wanted: Single = np.log(np.maximum(sizes, size / n_classes / 10)).astype(np.float32)
    q, tilt = _in_proportion(own, log_wanted, np.zeros(n_classes, dtype=np.float32))
    for rise in range(1, _RISES + 1):
        coupling = np.float32(_COUPLING * transition_point(n_classes) * rise / _RISES)
        for _ in range(_ROUNDS):
            said, tilt = _in_proportion(own + coupling * (graph @ q), log_wanted, tilt)
            q = (q + said) * np.float32(0.5)
    return q


def class_sizes(labels: Codes, n_classes: int, rate: float) -> Values:
    """How many examples are truly of each class, if so many labels are wrong and may be any.

    The fewer labels are right, the more chance there is in their numbers; as much of their differences is believed as
    is more than chance would make.

    >>> class_sizes(np.repeat([0, 1], [770, 230]), 2, 0.2).round().tolist()
    [947.0, 53.0]
    """
    given = np.bincount(labels, minlength=n_classes)
    even = len(labels) / n_classes
    slope = max(1 - rate - rate / (n_classes - 1), 1e-3)  # of the number of labels by the number of examples
    apart = (given - even) / slope
    by_chance = even / slope**2
    believed = max(0.0, 1 - by_chance / max(float((apart**2).mean()), 1e-9))
    sizes: Values = np.maximum(even + believed * apart, even / 10)
    sizes *= len(labels) / sizes.sum()
    return sizes


def transition_point(n_classes: int) -> float:
    """The coupling at which K classes, everybody being everybody's neighbour, begin to agree of themselves."""
    return 2.0 if n_classes < 3 else 2 * (n_classes - 1) / (n_classes - 2) * float(np.log(n_classes - 1))


def neighbour_graph(x: Single, count: int) -> csr_array[Any]:
    """Who is whose neighbour, the nearer the more, as a symmetric matrix with row sums of about 1."""
    from scipy.sparse import csr_array, diags_array

    near, similarity = nearest(x, min(len(x) - 1, count), np.random.default_rng(0))
    rows = np.repeat(np.arange(len(x)), near.shape[1])
    weights = np.maximum(similarity, 1e-3).ravel() ** 3
    graph = csr_array((weights, (rows, near.ravel())), shape=(len(x), len(x)))
    graph = graph.maximum(graph.T)
    scale = diags_array(1 / np.sqrt(graph.sum(axis=1)))
    return csr_array(scale @ graph @ scale, dtype=np.float32)


def _main(x: Single) -> Single:
    """The rows on their main directions, at unit length."""
    if x.shape[1] <= _WIDTH:
        return unit(x)
    directions = np.linalg.eigh(x.T @ x)[1][:, -_WIDTH:]
    return unit(x @ directions)


def _in_proportion(scores: Single, log_wanted: Single, tilt: Single) -> tuple[Single, Single]:
    """Probabilities by these scores and a `tilt` towards classes that have fewer than they should; and that tilt."""
    for _ in range(3):
        q = scores + tilt
        q -= q.max(axis=1, keepdims=True)
        np.exp(q, out=q)
        q /= q.sum(axis=1, keepdims=True)
        tilt = tilt / 2 + _SIZES / 2 * (tilt + log_wanted - np.log(q.sum(axis=0) + np.float32(1e-9)))
    return q, tilt
