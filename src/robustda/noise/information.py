"""Where most labels are wrong: a classifier that explains the labels, is sure of itself, and has every class its size.

Of labels of which four in five are wrong, a classifier that merely explains them learns chance. But most classifiers
that could be are out of the question: the true one is sure of nearly everybody, and has as many in each class as there
are. So a linear classifier q is sought that makes the labels likely, through the noise T, and the information between
an example and its class large,

    − mean log Σ_k q_i(k) T(k, y_i)  +  a · mean H(q_i)  +  KL(mean q ‖ sizes)  +  ridge · |W|²,

a rising from 0 to 1, and from several beginnings, whose beliefs are averaged: Gomes, Krause and Perona, Discriminative
Clustering by Regularized Information Maximization (NIPS 2010), who have right labels for a few examples where there are
wrong ones for all of them here.
"""

from __future__ import annotations

import numpy as np

from robustda.noise.field import class_sizes
from robustda.noise.likelihood import Codes, symmetric
from robustda.noise.vectors import unit
from robustda.noise.witnesses import Single

__all__ = ["most_informed"]

_WIDTH = 64  # main directions of what is learned from
_SCALE = 4.0  # their length: the larger, the less the ridge matters
_RIDGE = 3e-3
_HIDDEN = 0.5  # of the directions at each step
_STEPS, _RATE, _FALLS = 300, 0.05, 0.3  # of Adam; its rate falls in the last part of them
_SURE_FROM = 0.6  # the progress from which on a is 1
_BEGINNINGS, _FEWEST = 8, 2
_WORK = 1.5e9  # beliefs weighed in all steps together: of large data there are fewer beginnings


def most_informed(features: Single, labels: Codes, n_classes: int, rate: float, *, seed: int = 0) -> Single:
    """What such classifiers believe of each example (m, K).

    ``features`` are what `witnesses.describe` returns, `rate` is the share of wrong labels.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(400) % 4
    >>> given = np.where(rng.random(400) < 0.8, rng.integers(0, 4, 400), true)
    >>> x = (3 * np.eye(4)[true] + rng.normal(size=(400, 4)) / 2).astype(np.float32)
    >>> found = most_informed(x, given, 4, 0.6)
    >>> bool((found.argmax(axis=1) == true).mean() > 0.95)
    True
    """
    x = np.hstack([unit(features[:, :_WIDTH]) * np.float32(_SCALE), np.ones((len(labels), 1), dtype=np.float32)])
    likely = np.maximum(symmetric(rate, n_classes), 1e-6).astype(np.float32).T[labels]
    sizes = class_sizes(labels, n_classes, rate)
    log_sizes = np.log(sizes / sizes.sum()).astype(np.float32)
    rng = np.random.default_rng(seed)
    count = int(np.clip(_WORK / (_STEPS * likely.size), _FEWEST, _BEGINNINGS))
    scores = np.zeros((len(x), n_classes), dtype=np.float32)
    for _ in range(count):
        log_q = _log_softmax(x @ _learn(x, likely, log_sizes, rng))
        scores += np.maximum(log_q, np.float32(-20)) / np.float32(count)
    found: Single = np.exp(_log_softmax(scores))
    return found


def _learn(x: Single, likely: Single, log_sizes: Single, rng: np.random.Generator) -> Single:
    """The weights (d, K) that one beginning leads to; the last row of them stands for no direction and is free."""
    weights = (0.01 * rng.standard_normal((x.shape[1], len(log_sizes)))).astype(np.float32)
    ridge = np.full((x.shape[1], 1), 2 * _RIDGE, dtype=np.float32)
    ridge[-1] = 0
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, _STEPS + 1):
        progress = (step - 1) / _STEPS
        seen = np.where(rng.random((x.shape[1], 1)) < _HIDDEN, 0, 1 / (1 - _HIDDEN)).astype(np.float32)
        seen[-1] = 1
        away = _slope(x @ (seen * weights), likely, log_sizes, min(1.0, progress / _SURE_FROM))
        slope = seen * (x.T @ away) + ridge * weights
        mean += np.float32(0.1) * (slope - mean)
        square += np.float32(0.001) * (slope**2 - square)
        pace = _RATE * min(1.0, (1 - progress) / _FALLS) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights -= np.float32(pace) * mean / (np.sqrt(square) + np.float32(1e-8))
    return weights


def _slope(logits: Single, likely: Single, log_sizes: Single, sureness: float) -> Single:
    """How what is minimised changes with each logit."""
    log_q = _log_softmax(logits)
    q = np.exp(log_q)
    explained = q * likely
    explained /= explained.sum(axis=1, keepdims=True)
    # Each of the last two terms changes with q by some g, and so with the logits by q (g − Σ q g).
    gain = np.log(np.maximum(q.mean(axis=0), np.float32(1e-12))) - log_sizes - np.float32(sureness) * log_q
    gain -= (q * gain).sum(axis=1, keepdims=True)
    slope: Single = (q - explained + q * gain) / np.float32(len(q))
    return slope


def _log_softmax(logits: Single) -> Single:
    shifted: Single = logits - logits.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted
