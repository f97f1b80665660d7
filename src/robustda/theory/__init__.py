"""Section 2.2 of the paper as measurements: the terms that bound the error on the target, on fixed features.

    found = measure_terms(source, labels, target, proxy=kept)
    found.risk.value, found.discrepancy.value, found.proxy_total, found.divergence.value
    found.sentences()                                 # what each of them means
    found.bound.total, found.bound.grown(4).total     # the sample-size terms of theorem 3.1, now and with 4 × the data

The hypothesis set F is that of linear heads on features of unit length, the weights of each class no longer than
`norm`. Without such a limit every head could be scaled up until the margin ρ meant nothing, and there would be no
complexity to speak of. What is a supremum in the paper is trained here on some of the examples and read off on the
others, so that chance differences between samples do not count: a measured discrepancy is one that really can be seen.

Definitions, theorems and equations are counted as in the paper's text: eq. 1 is the bound of proposition 2.1, eq. 4 the
H-divergence, definition 3.3 (eqs. 12 and 13) the margin disparity discrepancy, definition 3.4 (eq. 14) the proxy margin
discrepancy, theorem 3.1 (eq. 15) its generalisation bound.
"""

from __future__ import annotations

from robustda.theory.bound import Bound, rademacher
from robustda.theory.discrepancy import Measured, divergence, margin_discrepancy, proxy_discrepancy, source_risk
from robustda.theory.heads import MARGIN, NORM, LinearHead, fit_head, margin_losses
from robustda.theory.terms import Terms, measure_terms

__all__ = [
    "MARGIN",
    "NORM",
    "Bound",
    "LinearHead",
    "Measured",
    "Terms",
    "divergence",
    "fit_head",
    "margin_discrepancy",
    "margin_losses",
    "measure_terms",
    "proxy_discrepancy",
    "rademacher",
    "source_risk",
]
