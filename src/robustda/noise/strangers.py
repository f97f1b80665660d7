"""Examples that nobody has learned from, judged by what was believed of a sample: for data too large to compare."""

from __future__ import annotations

import numpy as np

from robustda.noise.evidence import LabelEvidence
from robustda.noise.likelihood import Floats, posterior, softmax
from robustda.noise.witnesses import Description, Flags, Single, Testifying

__all__ = ["Judge"]


class Judge:
    """The two witnesses, once they have learned from a sample what was believed of it."""

    def __init__(self, features: Single, evidence: LabelEvidence, seed: int = 0) -> None:
        sound = ~evidence.corrupted
        self.description = Description(features[sound], seed)
        self.weights = evidence.weights
        believed = posterior(evidence.pred_probs.astype(np.float32), evidence.transition, evidence.labels)[0]
        self.witnesses = Testifying(self.description.of(features), believed.astype(np.float32), sound)

    def __call__(self, features: Single) -> tuple[Floats, Flags]:
        """Probabilities of the true class, and who resembles the corrupted examples of the sample."""
        fit, votes, odd = self.witnesses(self.description.of(features))
        return softmax([fit, votes], self.weights), odd
