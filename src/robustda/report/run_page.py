"""The report of one run as one HTML file without any script: what was reached, what was trusted, how it went."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from robustda._version import __version__
from robustda.expect import Expected
from robustda.report.run_charts import LABELLED, bar, histogram, matrix, point_map, whiskers
from robustda.report.run_curves import curve_sections, health_section
from robustda.report.run_findings import Accuracy, accuracy_of, expected_of, trust_of
from robustda.report.run_map import TargetMap
from robustda.report.run_markup import Markup, el, facts, name, scrolling, section, table
from robustda.report.run_read import RunRecord
from robustda.report.run_wording import interval, judged
from robustda.report.wording import percent

__all__ = ["assemble", "run_page", "setting", "settings_table"]


_MANY = 16  # classes that a table shows at once
_MISTAKES = 500  # fields of the confusion matrix that its table has


def run_page(run: RunRecord, headline: Sequence[str], found: TargetMap | str) -> str:
    """The page as text."""
    accuracy, expected = accuracy_of(run), expected_of(run)
    known = [
        ("classified right", f"{accuracy.final:.1%}".replace("%", "\N{NO-BREAK SPACE}%")) if accuracy else None,
        (f"expected ({interval(expected)})", percent(expected.value)) if expected else None,
        ("of the source trusted", percent(run.summary["kept_share"])) if run.summary.get("kept_share") else None,
        ("source examples", f"{run.data['source_examples']:,}"),
        ("target examples", f"{run.data['target_examples']:,}"),
        ("classes", f"{len(run.classes):,}"),
        ("seconds", f"{run.summary['seconds']:,.0f}") if "seconds" in run.summary else None,
    ]
    header = facts(f"robustda report · {run.method}", run.name, headline, [fact for fact in known if fact])
    sections = [
        *([_accuracy_section(accuracy, run.classes)] if accuracy else [_predicted_section(run)]),
        *([_expected_section(expected, accuracy)] if expected else []),
        *curve_sections(run),
        *_trust_sections(run),
        *health_section(run),
        *([_confusion_section(accuracy, run.classes)] if accuracy else []),
        _map_section(found, run.classes),
        _settings_section(run),
    ]
    return assemble(f"Report of {run.name}", header, sections)


def assemble(title: str, header: Markup, sections: Sequence[Markup]) -> str:
    """The template with its style and content put in. The page's policy allows this very style, and nothing else."""
    style = _part("audit.css") + _part("run.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    parts = {
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        "title": el("title", None, title)[len("<title>") : -len("</title>")],
        "style": style,
        "header": header,
        "main": "\n".join(part for part in sections if part),
        "version": __version__,
    }
    # In one pass, so that a name in the data that looks like a mark is left alone.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], _part("run.html"))


def settings_table(run: RunRecord) -> Markup:
    """Every setting; those that are not the method's defaults stand out."""
    defaults = _defaults(run)
    rows = [
        el(
            "tr",
            {"class": "changed" if key in defaults and defaults[key] != value else None},
            el("th", {"scope": "row"}, key),
            el("td", {"class": "value"}, setting(value)),
            el(
                "td",
                {"class": "value soft"},
                setting(defaults[key]) if key in defaults and defaults[key] != value else "",
            ),
        )
        for key, value in run.params.items()
    ]
    head = [el("th", {"scope": "col"}, text) for text in ("Setting", "Value", "Default, if another")]
    caption = el("caption", {"class": "hidden"}, "Settings of the run")
    return el("table", None, caption, el("thead", None, el("tr", None, *head)), el("tbody", None, *rows))


def setting(value: Any) -> str:
    """A value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _accuracy_section(found: Accuracy, names: Sequence[str]) -> Markup:
    totals, recall, precision = found.counts.sum(axis=1), found.recall, found.precision
    order = np.argsort(np.where(np.isnan(recall), 2, recall), kind="stable")
    rows = [
        (
            name(names[k]),
            bar(recall[k], "right") if totals[k] else Markup(""),
            _share(recall[k]),
            _share(precision[k]),
            el("span", {"class": "soft"}, f"{totals[k]:,}"),
        )
        for k in order
    ]
    head = ("True class", "", "Recognised", "Right when said", "Of")
    listed = _by_class("Accuracy by class, the weakest first", head, rows, numbers=(2, 3, 4), optional=(3,))
    best = ""
    if found.best is not None and found.best[0] > found.final:
        best = (
            f"Final accuracy {found.final:.1%}. The best evaluation on the target had {found.best[0]:.1%}, at step "
            f"{found.best[1]:,}: that is an oracle's number, for nobody can choose it without the target's labels."
        ).replace("%", "\N{NO-BREAK SPACE}%")
    oracle = el("p", {"class": "note oracle"}, best) if best else Markup("")
    note = "The labels that the target carries were used for scoring, and for nothing else."
    return section("accuracy", "Accuracy by class", oracle, listed, note=note)


def _expected_section(expected: Expected, found: Accuracy | None) -> Markup:
    rows = [("Expected", whiskers(expected.value, expected.low, expected.high), percent(expected.value))]
    if found is not None:
        true = f"{100 * found.final:.1f}\N{NO-BREAK SPACE}%"
        rows.append(("By the labels", whiskers(found.final), true))
    listed = table("Expected accuracy on the target", ("", "", ""), rows, numbers=(2,))
    note = (
        f"The share of the target that should be right: {interval(expected)}, which should hold in 95 of 100 cases. It "
        "is judged without the target's labels, by how often classifiers of other kinds agree with the predictions; "
        "what all of them mistake alike it cannot see."
    )
    if found is not None:
        note += f" With the labels, {judged(expected, found.final)}."
    return section("expected", "Expected accuracy", listed, note=note)


def _predicted_section(run: RunRecord) -> Markup:
    predicted = run.codes("prediction")
    if predicted is None or run.predictions is None:
        return section("accuracy", "Predictions", note="There are none yet: the run has not ended.")
    size = len(run.classes)
    counts = np.bincount(predicted[predicted >= 0], minlength=size)
    sure = np.bincount(predicted[predicted >= 0], run.predictions["probability"][predicted >= 0], minlength=size)
    most = max(1, counts.max())
    rows = [
        (
            name(run.classes[k]),
            bar(counts[k] / most, "right"),
            f"{counts[k]:,}",
            percent(sure[k] / counts[k]) if counts[k] else "",
        )
        for k in np.argsort(-counts, kind="stable")
    ]
    head = ("Predicted class", "", "Examples", "Mean probability")
    listed = _by_class("Predictions by class", head, rows, numbers=(2, 3))
    note = (
        "The target carries no labels, so no class has an accuracy to show. A high probability is no proof of being "
        "right."
    )
    return section("accuracy", "What was predicted", listed, note=note)


def _trust_sections(run: RunRecord) -> list[Markup]:
    found = trust_of(run)
    if found is None:
        return []
    share = found.trusted / np.maximum(1, found.examples)
    rates = found.noise_rate
    rows = [
        (
            name(run.classes[k]),
            bar(share[k], "right"),
            f"{found.trusted[k]:,} of {found.examples[k]:,}",
            percent(rates[k]) if rates is not None else "",
            f"{found.threshold[k]:.3g}",
        )
        for k in np.argsort(share, kind="stable")
    ]
    head = ("Given label", "", "Trusted", "Noise rate", "Threshold")
    listed = _by_class("Source examples trusted, the fewest first", head, rows, numbers=(2, 3, 4), optional=(4,))
    whence = "estimated from the data" if run.params.get("noise_rate", "auto") == "auto" else "as given"
    note = f"What the curriculum trusted. The noise rate is {whence}"
    note += "." if rates is not None else "; this run did not record it by class."
    kept, all_ = int(found.is_trusted.sum()), len(found.is_trusted)
    low, high = float(np.nanmin(found.threshold)), float(np.nanmax(found.threshold))
    about = (
        f"Histogram of the mean losses of {all_:,} source examples: {kept:,} trusted with small losses, "
        f"{all_ - kept:,} not; thresholds of the classes from {low:.2g} to {high:.2g}."
    )
    reach = "Each class has a threshold of its own: the band shows how far they reach, the line their middle."
    if low == high:
        reach = "One threshold holds for all."
    drawn = histogram(found.mean_loss, found.is_trusted, found.threshold[np.isfinite(found.threshold)], about)
    return [
        section("trust", "What was trusted", listed, note=note),
        section(
            "losses-by-trust",
            "Mean losses of the source",
            drawn,
            note=f"Each source example by its mean loss. {reach} Heights are square roots, so that few are still seen.",
        ),
    ]


def _confusion_section(found: Accuracy, names: Sequence[str]) -> Markup:
    worst = found.confusions()
    about = f"Confusion matrix of {len(names)} classes; the most frequent mistakes are listed beside it."
    mistakes = [
        el(
            "li",
            None,
            el("span", {"class": "number"}, f"{count:,}"),
            " ",
            name(names[k]),
            " taken for ",
            name(names[j]),
        )
        for count, k, j in worst
    ]
    beside = el(
        "div",
        {"class": "beside"},
        el("h3", None, "Most frequent mistakes"),
        el("ol", {"class": "confusions"}, *mistakes) if mistakes else el("p", {"class": "note"}, "There are none."),
        _all_mistakes(found, names) if mistakes else Markup(""),
    )
    drawn = scrolling("Confusion matrix", matrix(found.counts, names, about))
    note = (
        "Each row is a true class, each column what it was taken for. The stronger the colour, the larger the share of "
        "the row."
    )
    if len(names) > LABELLED:
        note += " There are too many classes to name them here."
    return section(
        "confusion", "What is taken for what", el("div", {"class": "map"}, drawn, beside), note=note, full=True
    )


def _all_mistakes(found: Accuracy, names: Sequence[str]) -> Markup:
    """The fields of the matrix off its diagonal as a table, for who cannot see it; so many as one may want to hear."""
    rows = [(name(names[k]), name(names[j]), f"{count:,}") for count, k, j in found.confusions(_MISTAKES)]
    caption = "All mistakes, the most frequent first" if len(rows) < _MISTAKES else f"The {_MISTAKES} worst mistakes"
    listed = table(caption, ("True class", "Taken for", "Examples"), rows, numbers=(2,))
    return el("details", {"class": "numbers"}, el("summary", None, "Numbers"), scrolling(caption, listed, tall=True))


def _map_section(found: TargetMap | str, names: Sequence[str]) -> Markup:
    title = "A map of the target"
    if isinstance(found, str):
        return section("map", title, note=f"There is no map. {found}", full=True)
    labels = found.labels
    wrong = np.zeros(len(found.points), dtype=bool) if labels is None else (labels >= 0) & (labels != found.predicted)
    marked = " Crosses are wrong ones, by the labels." if labels is not None else ""
    shown = (
        f"{len(found.points):,} of {found.examples:,}"
        if len(found.points) < found.examples
        else f"all {found.examples:,}"
    )
    note = (
        f"The network's features of {shown} examples, laid out by t-SNE and coloured by predicted class.{marked} Near "
        "means alike; distances between groups and their sizes mean nothing."
    )
    about = f"t-SNE of {len(found.points):,} target examples in {len(np.unique(found.predicted))} predicted classes."
    if labels is not None:
        about += f" {int(wrong.sum()):,} of them are predicted wrong."
    drawn = scrolling("Map of the target", point_map(found.points, found.predicted, wrong, names, about))
    return section("map", title, drawn, note=note, full=True)


def _settings_section(run: RunRecord) -> Markup:
    about = {key: value for key, value in run.environment.items() if key != "command"}
    about |= (
        {"command": " ".join(map(str, run.environment.get("command", [])))} if run.environment.get("command") else {}
    )
    data = {key: value for key, value in run.data.items() if key != "classes"}
    lists = [
        el("h3", None, title)
        + table(
            title, ("", ""), [(key, el("span", {"class": "value"}, setting(value))) for key, value in content.items()]
        )
        for title, content in (("Data", data), ("Versions and machine", about))
        if content
    ]
    summary = el("summary", None, f"All {len(run.params)} settings of {run.method}")
    settings = el("details", {"class": "numbers", "open": True}, summary, scrolling("Settings", settings_table(run)))
    return section(
        "settings",
        "Settings and versions",
        el("div", {"class": "overview"}, settings, el("div", None, *map(Markup, lists))),
        note="Settings in bold are not the defaults.",
        full=True,
    )


def _defaults(run: RunRecord) -> dict[str, Any]:
    from robustda.errors import ConfigError
    from robustda.methods import create_method
    from robustda.methods.registry import method_class

    try:
        preset = method_class(run.method).presets
        chosen = {preset[0]: run.params[preset[0]]} if preset and preset[0] in run.params else {}
        return create_method(run.method, **chosen).params()
    except ConfigError:  # a method of another package, or of another version
        return {}


def _by_class(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], **columns: Sequence[int]) -> Markup:
    """A row for each class; many scroll in a frame of their own."""
    return scrolling(caption, table(caption, head, rows, **columns), tall=len(rows) > _MANY)


def _share(value: float) -> str:
    return "" if math.isnan(value) else percent(value)


def _part(part: str) -> str:
    return (files("robustda.report") / "page" / part).read_text(encoding="utf-8")
