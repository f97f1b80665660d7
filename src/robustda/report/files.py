"""The audit as files: audit.json for programs, issues.csv for spreadsheets, audit.html for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda._version import __version__
from robustda.errors import ConfigError
from robustda.expect import Expected
from robustda.files import write_whole
from robustda.noise.transition import NoiseEstimate
from robustda.report.page import audit_page
from robustda.theory import Measured, Terms

if TYPE_CHECKING:
    from robustda.report.findings import Audit

__all__ = ["summary", "write_audit"]


def write_audit(found: Audit, folder: Path) -> Path:
    """Write the three files, each whole or not at all."""
    page = folder / "audit.html"
    # A file's name need not be text: surrogates let such names pass through.
    files = {
        folder / "audit.json": json.dumps(summary(found), indent=1).encode(),
        folder / "issues.csv": found.table().to_csv(index=False, lineterminator="\n").encode(errors="surrogateescape"),
        page: audit_page(found).encode(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_whole(path, content)
    except OSError as error:
        raise ConfigError(f"cannot write to {folder} ({error.strerror}): choose another place") from error
    return page


def summary(found: Audit) -> dict[str, Any]:
    """All numbers of the audit, as JSON takes them."""
    noise, names = found.noise, found.class_names
    estimates = {"combined": noise.combined, **noise.estimates}
    content: dict[str, Any] = {
        "robustda": __version__,
        "digest": found.digest,
        "headline": found.headline,
        "source": {"name": found.source.name, "examples": len(found.source), "kind": found.source.kind},
        "described_by": found.described_by,
        "noise_rate": {name: _overall(estimate) for name, estimate in estimates.items()},
        "disagreement": _round(noise.disagreement),
        "classes": [
            {
                "name": name,
                "examples": int((found.evidence.labels == k).sum()),
                "called_wrong": int(found.issues[found.evidence.labels == k].sum()),
                "pooled": bool(noise.pooled[k]),
                "disagreement": _round(noise.class_disagreement[k]),
                "noise_rate": {which: _of_class(estimate, k) for which, estimate in estimates.items()},
            }
            for k, name in enumerate(names)
        ],
        "transition": {"rows": "true class", "columns": "given label", "matrix": _round(noise.combined.transition)},
        "issues": {
            "suspects": len(found.suspects),
            "labels": int(found.issues.sum()),
            "like_no_class": int(found.unlike.sum()),
            "corrupted": int(found.corruption.corrupted.sum()),
            "corrupted_that_look_right": int((found.corruption.corrupted & ~found.issues).sum()),
            "kept_at_95_percent": int(found.kept.sum()),
            "corrupted_kept_at_95_percent": int((found.kept & found.corruption.corrupted).sum()),
            "duplicates": int((found.duplicates.group >= 0).sum()),
            "clashing_duplicates": int(found.duplicates.conflict.sum()),
        },
        "loss_threshold": _round(found.loss_threshold) if np.isfinite(found.loss_threshold) else None,
        "overlaps": [
            {"classes": [names[pair.first], names[pair.second]], "share": _round(pair.share)}
            for pair in found.overlaps[:50]
        ],
    }
    if found.transfer is not None:
        content["target"] = {
            "name": found.target_name,
            "proxy_a_distance": _round(found.transfer.distance),
            "interval": _round(found.transfer.interval),
            "expected_accuracy": {
                "plain": _expected(found.transfer.plain),
                "adapted": _expected(found.transfer.adapted),
            },
            "terms": _terms(found.transfer.terms),
            "missing_classes": [names[k] for k in found.transfer.missing],
            "resembling": dict(zip(names, found.transfer.resembling.tolist(), strict=True)),
        }
    return content


def _expected(found: Expected) -> dict[str, Any]:
    return {"value": _round(found.value), "interval": _round([found.low, found.high])}


def _terms(terms: Terms) -> dict[str, Any]:
    """The terms of the paper's bound, each with its interval; and its sample-size terms, now and with more data."""
    names = ("error", "risk", "discrepancy", "to_proxy", "from_proxy", "divergence")
    measured: dict[str, Measured] = {name: getattr(terms, name) for name in names}
    content: dict[str, Any] = {
        name: {"value": _round(one.value), "interval": _round(one.interval), "fitted": _round(one.fitted)}
        for name, one in measured.items()
    }
    content["proxy_margin_discrepancy"] = _round(terms.proxy_total)
    content["sample_sizes"] = dict(zip(("source", "proxy", "target"), terms.bound.sizes, strict=True))
    content["rademacher"] = dict(zip(("source", "proxy", "target"), _round(terms.bound.complexities), strict=True))
    content["bound"] = [
        {
            "times": times,
            "complexity": _round(sum(terms.bound.grown(times).complexity_terms)),
            "chance": _round(sum(terms.bound.grown(times).chance_terms)),
        }
        for times in (1, 2, 4, 10)
    ]
    content["meaning"] = terms.sentences()
    return content


def _overall(estimate: NoiseEstimate) -> dict[str, Any]:
    return {"rate": _round(estimate.overall), "interval": _round(estimate.interval)}


def _of_class(estimate: NoiseEstimate, k: int) -> dict[str, Any]:
    return {"rate": _round(estimate.rates[k]), "interval": _round(estimate.intervals[k])}


def _round(values: Any) -> Any:
    return np.round(values, 4).tolist()
