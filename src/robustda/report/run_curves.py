"""The curves of a run, and how the adversarial game went: charts with their numbers beneath."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from robustda.report.run_charts import Line, line_chart
from robustda.report.run_findings import collapsed, game_of
from robustda.report.run_markup import Markup, el, name, scrolling, section, table
from robustda.report.run_read import RunRecord
from robustda.report.wording import percent

__all__ = ["CURVES", "SHARES", "curve", "curve_sections", "health_section"]

# Metrics that are no losses, with what they are called.
CURVES: dict[str, tuple[str, str]] = {
    "target_accuracy": ("Accuracy on the target", "Scored with the target's labels, which the run did not learn from."),
    "learning_rate": ("Learning rate", "Of the new layers, step by step."),
    "reversal": ("Adversarial coefficient β", "How strongly the reversed gradient reaches the representation."),
}
_GAME: dict[str, tuple[str, str]] = {
    "discrepancy": (
        "Advantage of the adversary",
        "How much more f′ agrees with f on the source than on the target: near 1 the domains are told apart with ease, "
        "near 0 they are not.",
    ),
    "domain_accuracy": (
        "Accuracy of the discriminator",
        "The share of examples whose domain it tells: 50 % is guessing, 100 % means that the domains lie apart.",
    ),
    "largest_class": (
        "Largest predicted class",
        "The share of the target that its most frequent prediction has: near 100 % the network has collapsed.",
    ),
    "target_entropy": (
        "Entropy of the predictions on the target",
        "In nats: 0 means sure of every example, which may also be wrong with confidence.",
    ),
}
SHARES = {"target_accuracy", "domain_accuracy", "largest_class"}
_OTHERS = {*CURVES, *_GAME, "proxy_share", "kept_share"}


def curve_sections(run: RunRecord) -> list[Markup]:
    """Losses, accuracy, label-free criteria, learning rate and β, each where it was logged."""
    logged = list(dict.fromkeys(run.metrics["metric"]))
    losses = [metric for metric in logged if metric not in _OTHERS and not metric.startswith("select_")]
    found = []
    if losses:
        content = curve(run, losses)
        found.append(section("losses", "Losses", *content, note="Means over the steps between two entries of the log."))
    for metric, (title, note) in CURVES.items():
        if metric in logged:
            found.append(section(metric, title, *curve(run, [metric]), note=note))
    chosen = [metric for metric in logged if metric.startswith("select_")]
    if chosen:
        note = (
            "How good the network looks without labels, each scaled from its lowest to its highest; higher is better."
        )
        found.append(section("selectors", "Label-free criteria", *curve(run, chosen, scaled=True), note=note))
    return found


def health_section(run: RunRecord) -> list[Markup]:
    """The health of the adversarial game, with a verdict in words."""
    logged = [metric for metric in _GAME if (run.metrics["metric"] == metric).any()]
    if not logged:
        return []
    game = game_of(run)
    said = game.verdict if game else "This method plays no adversarial game; what it predicts is watched all the same."
    if collapsed(run):
        said = "Nearly all of the target is called one class: the run has collapsed, or the target is of one class."
    charts = []
    for metric in logged:
        title, note = _GAME[metric]
        charts.append(el("div", None, el("h3", None, title), el("p", {"class": "note"}, note), *curve(run, [metric])))
    grid = el("div", {"class": "overview"}, *charts)
    title = "Health of the adversarial game" if game else "Health of the run"
    return [section("health", title, grid, note=said, full=True)]


def curve(run: RunRecord, metrics: Sequence[str], *, scaled: bool = False) -> list[Markup]:
    """A chart of some metrics of a run, and a table of their numbers for who wants them, or cannot see the chart."""
    lines, rows, said = [], [], []
    logged = run.metrics.loc[run.metrics["metric"].isin(list(metrics)), "phase"].unique()
    one = len(logged) == 1  # then its own steps are counted, and the other phases take no room
    for colour, metric in enumerate(metrics):
        series = run.series(metric)
        values = series["value"].to_numpy(float)
        shown = _scaled(values) if scaled else values
        label = metric.removeprefix("select_")
        lines.append(Line(label, series["step" if one else "at"].to_numpy(), shown, colour))
        form = form_of(metric)
        numbers = [values[0], values[-1], np.nanmin(values), np.nanmax(values)]
        said.append(f"{label} goes from {form(values[0])} to {form(values[-1])}")
        rows.append((name(label), *(form(float(value)) for value in numbers)))
    about = "; ".join(said) + "."
    ends = np.cumsum([steps for _, steps in run.phases]).tolist()
    boundaries = [] if one else [(phase, end) for (phase, _), end in zip(run.phases, ends, strict=True)]
    whole = scaled or set(metrics) <= SHARES
    unmarked = (lambda _: "") if scaled else None
    chart = line_chart(lines, about, boundaries=boundaries, form=unmarked, whole=whole)
    head = ("Metric", "First", "Last", "Lowest", "Highest")
    numbers_table = table("Numbers of the chart", head, rows, numbers=(1, 2, 3, 4))
    details = el(
        "details",
        {"class": "numbers"},
        el("summary", None, "Numbers"),
        scrolling("Numbers of the chart", numbers_table),
    )
    return [chart, details]


def form_of(metric: str) -> Callable[[float], str]:
    """How a metric's values are written."""
    return percent if metric in SHARES else lambda value: f"{value:.3g}"


def _scaled(values: np.ndarray) -> np.ndarray:
    low, high = np.nanmin(values), np.nanmax(values)
    return (values - low) / (high - low) if high > low else np.full_like(values, 0.5)
