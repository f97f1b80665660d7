"""What a run came to, in numbers: accuracy by class, what was trusted, and how the adversarial game stands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robustda.expect import Expected
from robustda.report.run_read import RunRecord

__all__ = ["Accuracy", "Game", "Trust", "accuracy_of", "expected_of", "game_of", "trust_of"]

_COLLAPSED = 0.99  # as robustda.health has it
_APART, _ALIGNED = 0.6, 0.15  # of the adversary's advantage, which goes from 0 to 1


@dataclass(frozen=True, eq=False)
class Accuracy:
    """How right the predictions on the target are, where it carries labels."""

    final: float
    counts: np.ndarray
    """The confusion matrix: rows true, columns predicted."""
    best: tuple[float, int] | None
    """The best evaluation and its step: an oracle's choice, since it takes target labels to make."""

    @property
    def recall(self) -> np.ndarray:
        """The share of each class that was recognised; NaN where it has no labelled example."""
        total = self.counts.sum(axis=1)
        return np.where(total > 0, self.counts.diagonal() / np.maximum(1, total), np.nan)

    @property
    def precision(self) -> np.ndarray:
        """The share of what was called so that is so; NaN where nothing was."""
        total = self.counts.sum(axis=0)
        return np.where(total > 0, self.counts.diagonal() / np.maximum(1, total), np.nan)

    def confusions(self, most: int = 8) -> list[tuple[int, int, int]]:
        """The most frequent mistakes: how many, true class, predicted class."""
        wrong = self.counts.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        found = [(int(wrong.flat[place]), *divmod(int(place), len(wrong))) for place in order]
        return [entry for entry in found if entry[0]]


@dataclass(frozen=True, eq=False)
class Trust:
    """What the curriculum made of the source, by class."""

    examples: np.ndarray
    trusted: np.ndarray
    noise_rate: np.ndarray | None
    threshold: np.ndarray
    mean_loss: np.ndarray
    """Of each example."""
    is_trusted: np.ndarray


@dataclass(frozen=True)
class Game:
    """How an adversarial game stands at the end: `advantage` is 0 if the adversary has lost, 1 if it wins."""

    advantage: float
    metric: str

    @property
    def verdict(self) -> str:
        """In a sentence."""
        if self.metric == "domain_accuracy":
            right = (
                f"the discriminator is right about {50 + 50 * self.advantage:.0f} % of the examples, 50 % is guessing"
            )
            won = lost = right
        else:
            won, lost = "f′ agrees with f on the source and not on the target", "f′ agrees with f on both"
        if self.advantage > _APART:
            return (
                f"The adversary wins the game ({won}): the domains are still easy to tell apart. Give it more steps, "
                "or a larger beta."
            )
        if self.advantage < _ALIGNED:
            return f"The adversary no longer tells the domains apart ({lost})."
        return f"The adversary still tells the domains apart in part (its advantage is {self.advantage:.2f} of 1)."


def accuracy_of(run: RunRecord) -> Accuracy | None:
    """From predictions.csv; None where the target carries no labels, or nothing is predicted yet."""
    labels, predicted = run.codes("label"), run.codes("prediction")
    if labels is None or predicted is None or not (labels >= 0).any():
        return None
    known = labels >= 0
    counts = np.zeros((len(run.classes),) * 2, dtype=np.int64)
    np.add.at(counts, (labels[known], predicted[known]), 1)
    return Accuracy(float((labels == predicted)[known].mean()), counts, best_of(run))


def expected_of(run: RunRecord) -> Expected | None:
    """The accuracy that the method expects of itself on the target; None where it expects nothing."""
    found = run.summary.get("expected_accuracy")
    return None if found is None else Expected(*(float(found[name]) for name in Expected._fields))


def best_of(run: RunRecord) -> tuple[float, int] | None:
    """The best target accuracy that was logged, and its step."""
    logged = run.series("target_accuracy")
    if logged.empty:
        return None
    best = int(logged["value"].to_numpy(float).argmax())
    return float(logged["value"].iloc[best]), int(logged["step"].iloc[best])


def trust_of(run: RunRecord) -> Trust | None:
    """From trust.csv; None where the method has no curriculum."""
    table = run.trust
    if table is None or table.empty:
        return None
    codes = run.coded(table["given_label"])
    size, is_trusted = len(run.classes), table["weight"].to_numpy() > 0
    threshold = np.full(size, np.nan)
    threshold[codes] = table["threshold"].to_numpy()
    rates = run.summary.get("class_noise_rates")
    return Trust(
        examples=np.bincount(codes, minlength=size),
        trusted=np.bincount(codes[is_trusted], minlength=size),
        noise_rate=None if rates is None or len(rates) != size else np.asarray(rates, dtype=float),
        threshold=threshold,
        mean_loss=table["mean_loss"].to_numpy(float),
        is_trusted=is_trusted,
    )


def game_of(run: RunRecord) -> Game | None:
    """Judged by the last tenth of the log; None for a method that plays no game."""
    discrepancy, domain = run.last("discrepancy"), run.last("domain_accuracy")
    if discrepancy is not None:
        return Game(min(1.0, max(0.0, discrepancy)), "discrepancy")
    if domain is not None:
        return Game(min(1.0, max(0.0, 2 * domain - 1)), "domain_accuracy")
    return None


def collapsed(run: RunRecord) -> bool:
    """Whether nearly all of the target was called one class at the last look."""
    values = run.metrics.loc[run.metrics["metric"] == "largest_class", "value"]
    return bool(len(values)) and float(values.iloc[-1]) >= _COLLAPSED
