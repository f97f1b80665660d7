"""What speaks against each label: who is wrong, how surely, what the label should be, and whom to keep.

    evidence = label_evidence(features, labels)
    evidence.wrong            # probability that each label is wrong
    evidence.suggested        # the label it should have, with evidence.confidence
    evidence.keep()           # as many as can be kept with 95 % of them labelled right

Each label is judged by witnesses that never saw it (`witnesses.py`), and by what all labels say together (`field.py`).

An example whose *features* are corrupted (`corruption.py` finds them) is no reason to doubt its label. Such examples
are judged among their own kind, for they resemble each other more than their classes, and nobody learns from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robustda.errors import ConfigError, DataError
from robustda.noise.checks import check_features, check_labels, check_losses
from robustda.noise.field import beside_field
from robustda.noise.likelihood import Explanation, Floats, explain, posterior, softmax, symmetric
from robustda.noise.mixture import loss_mixture
from robustda.noise.trees import Trees
from robustda.noise.witnesses import Testimony, describe, hear_witnesses

__all__ = ["LabelEvidence", "enough_left", "label_evidence"]

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Values = npt.NDArray[np.float64]

_FEWEST = 12  # examples without which there are not even neighbours
_LOSS_SAY = (
    0.25  # losses repeat part of what the features say: more of a say helps with symmetric noise, harms with pairs
)


_SPREAD, _BORNE_OUT, _MANY = 1 / 3, 1.5, 10
"""An example resembles no class where the class it is of is as open as if a third of all classes were equally likely,
and its label is less than 1.5 times as likely as any class would be; of ten classes or more, for of few a third is no
spread. In Office-31 (amazon / dslr / webcam) with 10 of its 31 classes labelled as any of the others it was 79 / 65 /
82 % of these and 4 / 0 / 0 % of the others; with none so labelled, 2 / 0 / 0 % (`benchmarks/outsiders.py`)."""

_MOST_WRONG = 0.5
_MOST = 10_000_000  # beliefs for which it is sought what all labels say together

_SAME_MATRIX = 0.3
"""How much of T is used for corrupted examples, the rest being the overall rate: where an example hardly tells its
class, the chance ups and downs of T would decide. All of T is best for pair noise, none of it for symmetric noise."""


@dataclass(frozen=True, eq=False)
class LabelEvidence:
    """What was found out about each of m examples of K classes."""

    labels: Codes
    wrong: Values
    """probability that the given label is wrong"""
    suggested: Codes
    """the most probable class, which is the given label where that is believed"""
    confidence: Values
    """probability of the suggested class"""
    pred_probs: Values
    """(m, K) probabilities of the true class, from other examples only: an example's own label has no part in them"""
    transition: Values
    """T, rows are true classes: T[k, j] = p(given j | true k), from the examples with sound features"""
    corrupted: Flags
    """whose features were said to be corrupted"""
    weights: Values
    """how much the linear fit, the neighbours and, if they were heard, trees count, among those with sound features"""
    judged: Flags
    """False for the only example of its class: there is nothing to compare it with, so it has the overall rate"""
    unlike: Flags
    """Examples that resemble no class, that of their label included: something else, or beyond recognition.

    Nothing speaks for another label either, so they are no issues. Corrupted examples are not among them, and where
    most labels are wrong, so that nothing resembles a class clearly, nobody is."""
    by_rule: bool = False
    """whether the noise follows a rule, such as one class being taken for one other"""
    cautious: bool = False
    """Whether labels were read cautiously, for classes look alike or have examples unlike all others.

    Then a wrong label may be any other at one rate: which classes lose examples to which is not told from overlap."""
    trees: Trees | None = None
    """those that were heard, to judge others"""
    otherwise: Codes | None = None
    """Which class each example is of by the other reading of the labels (bold or cautious), −1 for none; of corrupted
    examples it says nothing. None if it was not asked for or there is none."""
    even_rate: float | None = None
    """The rate if all classes had wrong labels at one rate, by the same witnesses. Asked for with `otherwise`, and
    known only where most labels seem wrong and the noise does not follow a rule."""

    @property
    def rate(self) -> float:
        """The share of labels that are wrong, by this evidence."""
        return float(self.wrong.mean())

    @property
    def issues(self) -> Flags:
        """The labels that are more likely wrong than right."""
        found: Flags = self.wrong > 0.5
        return found

    def keep(self, precision: float = 0.955) -> Flags:
        """As many examples as can be kept while `precision` of their labels are expected to be right.

        Those that are more likely wrong are never kept. Expectations are a little rosy where features are corrupted: at
        .955 the share was about .95 in simulations on Office-31 with mixed noise.
        """
        if not 0 <= precision <= 1:
            raise ConfigError(f"the precision is {precision}: give a share from 0 to 1")
        order = np.argsort(self.wrong, kind="stable")
        expected = np.cumsum(self.wrong[order]) / np.arange(1, len(order) + 1)
        kept = np.zeros(len(order), dtype=bool)
        kept[order[expected <= 1 - precision + 1e-12]] = True
        return kept & ~self.issues


def label_evidence(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int | None = None,
    *,
    corrupted: npt.ArrayLike | None = None,
    losses: npt.ArrayLike | None = None,
    columns: npt.ArrayLike | None = None,
    together: bool = True,
    readings: bool = False,
    folds: int = 10,
    seed: int = 0,
) -> LabelEvidence:
    """Judge every label by a linear fit and nearest neighbours that never saw it, and by losses where they are given.

    ``features`` (m, d) are those of a pretrained backbone, or vectors that lie near each other when they mean the same.
    ``corrupted`` says whose features are not to be relied on (a mask). ``losses`` are the curriculum's mean losses.
    ``columns`` are the rows of the table that the features were made of, if they were: trees judge by them, too.
    ``together`` hears, beside these witnesses, what all labels say together; not of a table, where neighbours mean less
    than trees, nor where the noise follows a rule, which witnesses see through, nor of more than 10⁷ numbers (m·K).
    ``readings`` asks what else could be made of the labels, `otherwise` and `even_rate`.
    Time grows with m² up to 20,000 examples, and linearly beyond.

    >>> rng = np.random.default_rng(0)
    >>> true = np.arange(200) % 2
    >>> x = 4 * true[:, None] + rng.normal(size=(200, 5))
    >>> given = true.copy()
    >>> given[:20] = 1 - true[:20]
    >>> evidence = label_evidence(x, given)
    >>> np.flatnonzero(evidence.issues).tolist() == list(range(20))
    True
    >>> bool((evidence.suggested == true).all())
    True
    """
    codes, size = check_labels(labels, n_classes)
    x = check_features(features, len(codes))
    hit = _mask(corrupted, len(codes))
    if len(np.unique(codes)) < 2:
        raise DataError("all examples have the same label: give examples of two classes or more to compare them")
    if folds < 2:
        raise ConfigError(f"folds is {folds}: give 2 or more")
    sound = np.flatnonzero(~hit)
    if len(codes) < _FEWEST:
        raise DataError(
            f"{len(codes)} examples are too few to compare them: give at least {_FEWEST}, of several classes"
        )
    if len(sound) < _FEWEST or len(np.unique(codes[sound])) < 2:
        raise DataError(f"only {len(sound)} examples have sound features: give at least {_FEWEST}, of several classes")
    if np.bincount(codes).max() == 1:
        raise DataError(
            "every class has one example only, so there is nothing to compare it with: give several of some"
        )
    described = describe(x[sound] if hit.any() else x, seed)
    trees = None if columns is None else Trees(check_features(columns, len(codes))[sound], size, seed=seed)
    testimony = hear_witnesses(described, codes[sound], size, trees=trees, both=readings, folds=folds, seed=seed)
    transition, weights = testimony.explanation.transition, testimony.explanation.weights
    probabilities, belief = np.empty((len(codes), size)), np.empty((len(codes), size))
    probabilities[sound] = testimony.explanation.probabilities
    belief[sound] = posterior(probabilities[sound], transition, codes[sound])[0]
    unlike = np.zeros(len(codes), dtype=bool)
    likely = testimony.bold.probabilities.astype(np.float64)
    boldly = posterior(likely, testimony.bold.transition, codes[sound])[0].astype(np.float64)
    unlike[sound] = _like_no_class(likely, boldly, codes[sound])
    if together and trees is None and not testimony.by_rule and len(sound) * size <= _MOST:
        belief[sound] = beside_field(belief[sound], transition, described, codes[sound])
    if hit.any():
        rate = 1 - float(np.diag(transition)[codes[sound]].mean())
        vague = _SAME_MATRIX * transition + (1 - _SAME_MATRIX) * symmetric(rate, size)
        probabilities[hit] = _among_their_own(x[hit], codes[hit], vague, folds, seed)
        belief[hit] = posterior(probabilities[hit], vague, codes[hit])[0]
    own = belief[np.arange(len(codes)), codes]
    judged = np.bincount(codes, minlength=size)[codes] > 1
    wrong = np.where(judged, 1 - own, (1 - own)[judged].mean() if judged.any() else 0.0)
    if losses is not None:
        odds = loss_mixture(check_losses(losses, len(codes))).log_odds
        wrong = _moved(wrong, _LOSS_SAY * np.clip(odds, -6, 6))
    belief = _with_own(belief, codes, 1 - wrong)
    suggested = belief.argmax(axis=1)
    confidence = belief[np.arange(len(codes)), suggested]
    unlike &= wrong <= 0.5
    heard = trees if len(weights) == 3 else None
    doubtful = readings and not testimony.by_rule and float(wrong.mean()) > _MOST_WRONG
    even_rate = _even_rate(testimony, codes[sound]) if doubtful else None
    otherwise = None if testimony.other is None else _otherwise(testimony.other, codes, sound)
    return LabelEvidence(
        *(codes, wrong, suggested, confidence, probabilities, transition, hit, weights, judged, unlike),
        by_rule=testimony.by_rule,
        cautious=testimony.cautious,
        trees=heard,
        otherwise=otherwise,
        even_rate=even_rate,
    )


def enough_left(corrupted: Flags, labels: Codes) -> Flags:
    """The mask of corrupted examples, or none at all where hardly anything sound would be left to learn from."""
    sound = ~corrupted
    if sound.sum() < _FEWEST or len(np.unique(labels[sound])) < 2:
        return np.zeros_like(corrupted)
    return corrupted


def _otherwise(other: Explanation, labels: Codes, sound: Codes) -> Codes:
    """Each example's class by the other reading."""
    belief = posterior(other.probabilities, other.transition, labels[sound])[0]
    found = np.full(len(labels), -1)
    found[sound] = np.where(belief.max(axis=1) > 0.5, belief.argmax(axis=1), -1)
    return found


def _even_rate(testimony: Testimony, given: Codes) -> float:
    even = testimony.explanation if testimony.cautious else explain(testimony.scores, given, cautious=True)
    belief = posterior(even.probabilities, even.transition, given)[0]
    return 1 - float(belief[np.arange(len(given)), given].mean())


def _among_their_own(x: npt.NDArray[np.float32], labels: Codes, transition: Values, folds: int, seed: int) -> Floats:
    """Probabilities of the true class for corrupted examples, which tell less of it; T is known from the sound ones."""
    n_classes = len(transition)
    if len(labels) < _FEWEST or len(np.unique(labels)) < 2:
        return np.full((len(labels), n_classes), 1 / n_classes)
    testimony = hear_witnesses(describe(x, seed), labels, n_classes, folds=folds, seed=seed)
    fitted = explain(testimony.scores, labels, transition=transition, usual_weight=2.0)
    return softmax(testimony.scores, fitted.weights)


def _like_no_class(probabilities: Values, belief: Values, labels: Codes) -> Flags:
    """Whom witnesses take for none of the classes; `belief` is what follows from their probabilities and the labels."""
    rows, n_classes = np.arange(len(labels)), probabilities.shape[1]
    if n_classes < _MANY or 1 - belief[rows, labels].mean() > _MOST_WRONG:
        return np.zeros(len(labels), dtype=bool)
    entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-12))).sum(axis=1)
    open_to_many = np.exp(entropy) > _SPREAD * n_classes
    found: Flags = open_to_many & (probabilities[rows, labels] < _BORNE_OUT / n_classes)
    return found


def _moved(wrong: Values, log_odds: Values) -> Values:
    """Probabilities after evidence of the given log odds."""
    bounded = np.clip(wrong, 1e-9, 1 - 1e-9)
    moved: Values = 1 / (1 + np.exp(-(np.log(bounded / (1 - bounded)) + log_odds)))
    return moved


def _with_own(belief: Floats, labels: Codes, own: Values) -> Values:
    """The belief with the given label's probability set, and the other classes' in proportion."""
    changed = belief.astype(np.float64)
    rows = np.arange(len(labels))
    changed[rows, labels] = 0
    others = changed.sum(axis=1)
    changed *= np.divide(1 - own, others, out=np.zeros(len(own)), where=others > 1e-12)[:, None]
    changed[rows, labels] = own
    return changed


def _mask(corrupted: npt.ArrayLike | None, size: int) -> Flags:
    if corrupted is None:
        return np.zeros(size, dtype=bool)
    mask = np.asarray(corrupted)
    if mask.shape != (size,) or mask.dtype != bool:
        raise DataError(f"`corrupted` is {mask.dtype} {mask.shape}: give {size} truth values, such as score > .5")
    return mask
