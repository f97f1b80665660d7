"""The audit as one HTML file that needs no network and no server.

The parts lie in the folder `page`. Nothing that comes from the data is ever written as HTML: it goes in as JSON, and
the script puts it on the page as text. The page's policy allows this very script and style, by their digests, and no
connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda._version import __version__

if TYPE_CHECKING:
    from robustda.data.domain import Domain
    from robustda.report.findings import Audit
    from robustda.theory import Terms

__all__ = ["as_json", "audit_page", "payload"]

_SCRIPTS = ("base.js", "charts.js", "matrix.js", "store.js", "gallery.js", "chooser.js", "start.js")
_MOST = 10_000  # suspects on the page; issues.csv has all of them
_PICTURES = 5_000
_PICTURE_BYTES = 16 * 2**20
_SIDE = 96
_BINS = 40


def audit_page(found: Audit) -> str:
    """The page as text."""
    return assemble(payload(found))


def assemble(content: dict[str, Any]) -> str:
    """The template with its style, its script and the data put in."""
    style = _part("audit.css")
    script = "(() => {\n'use strict';\n" + "\n".join(map(_part, _SCRIPTS)) + "\n})();"
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "data": as_json(content)}
    # In one pass, so that a name in the data that looks like a mark is left alone.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], _part("audit.html"))


def as_json(content: Any) -> str:
    """JSON that can stand inside a script element: no character of it can end the element or the line.

    >>> as_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)  # pure ASCII, so U+2028 is escaped already
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def payload(found: Audit) -> dict[str, Any]:
    """What the page's script is given."""
    noise, evidence, best = found.noise, found.evidence, found.noise.combined
    counts = np.bincount(evidence.labels, minlength=len(found.class_names))
    estimates = {"combined": best, **noise.estimates}
    content: dict[str, Any] = {
        "version": __version__,
        "digest": found.digest,
        "source": found.source.called,
        "kind": found.source.kind,
        "tiny": found.source.kind == "images" and found.source.shape[0] <= 48,
        "examples": len(found.source),
        "headline": found.headline,
        "names": found.class_names,
        "disagreement": _round(noise.disagreement),
        "estimates": [[name, *_round([e.overall, *e.interval])] for name, e in estimates.items()],
        "classes": [
            [int(counts[k]), *_round([best.rates[k], *best.intervals[k]]), bool(noise.pooled[k])]
            for k in range(len(counts))
        ],
        "transition": _round(best.transition),
        "histogram": np.histogram(evidence.wrong, bins=_BINS, range=(0, 1))[0].tolist(),
        "losses": _losses(found),
        "suspects": _suspects(found),
        "left_out": max(0, len(found.suspects) - _MOST),
        "transfer": None,
    }
    if found.transfer is not None:
        content["transfer"] = {
            "target": found.target_name,
            "distance": _round([found.transfer.distance, *found.transfer.interval]),
            "accuracy": [_round(list(found.transfer.adapted)), _round(list(found.transfer.plain))],
            "terms": _terms(found.transfer.terms),
            "missing": found.transfer.missing.tolist(),
        }
    return content


def _losses(found: Audit) -> dict[str, Any]:
    """The losses in bins, of labels that look right and of those that look wrong, and the mixture's threshold."""
    most = float(-np.log(0.01))
    right, wrong = (
        np.histogram(found.losses[some], bins=_BINS, range=(0, most))[0].tolist()
        for some in (~found.issues, found.issues)
    )
    threshold = found.loss_threshold
    return {"right": right, "wrong": wrong, "most": most, "threshold": threshold if np.isfinite(threshold) else None}


def _terms(terms: Terms) -> dict[str, Any]:
    """The measured terms in the order of the paper, with what they mean, and what more data would do."""
    said = terms.sentences()
    rows = [("risk", terms.error), ("discrepancy", terms.discrepancy), ("proxy", terms.from_proxy)]
    more = [terms.bound.grown(times) for times in (1, 2, 4, 10)]
    return {
        "rows": [[name, *_round([one.value, *one.interval]), said[name]] for name, one in rows],
        "bound": [_round([sum(grown.complexity_terms), sum(grown.chance_terms)]) for grown in more],
        "sentence": said["bound"],
    }


def _suspects(found: Audit) -> dict[str, Any]:
    """The suspects as columns, which are a third of the size of rows with names."""
    rows, evidence = found.suspects[:_MOST], found.evidence
    clashing = np.where(found.duplicates.conflict[rows], found.source.ids[found.copy_of[rows]], "")
    return {
        "id": found.source.ids[rows].tolist(),
        "given": evidence.labels[rows].tolist(),
        "suggested": evidence.suggested[rows].tolist(),
        "confidence": _round(found.confidence[rows]),
        "wrong": _round(evidence.wrong[rows]),
        "issue": found.issues[rows].astype(int).tolist(),
        "unlike": found.unlike[rows].astype(int).tolist(),
        "corruption": _round(found.corruption.score[rows]),
        "kind": found.corruption.kind[rows].tolist(),
        "copy": clashing.tolist(),
        "picture": _pictures(found.source, rows),
    }


def _pictures(source: Domain, rows: Any) -> list[str]:
    """Small JPEGs as data URIs, for as many suspects as a page can carry."""
    if source.kind == "vectors" or not isinstance(source.x, np.ndarray):
        return []
    from PIL import Image

    pictures: list[str] = []
    room = _PICTURE_BYTES
    for row in rows[:_PICTURES]:
        image = Image.fromarray(source.x[row])
        image.thumbnail((_SIDE, _SIDE))
        content = io.BytesIO()
        image.save(content, "JPEG", quality=76 if min(image.size) > 48 else 92)
        text = "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
        room -= len(text)
        if room < 0:
            break
        pictures.append(text)
    return pictures


def _part(name: str) -> str:
    return (files("robustda.report") / "page" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _round(values: Any) -> Any:
    return np.round(values, 4).tolist()
