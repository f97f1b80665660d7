"""Several runs beside each other: one table, what differs in their settings, and their curves in the same charts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from robustda.report.run_charts import Line, bar, line_chart
from robustda.report.run_curves import CURVES, SHARES, form_of
from robustda.report.run_findings import best_of, expected_of
from robustda.report.run_markup import Markup, el, facts, name, scrolling, section, table
from robustda.report.run_page import assemble, setting
from robustda.report.run_read import RunRecord
from robustda.report.run_wording import interval
from robustda.report.wording import percent

__all__ = ["comparison_page", "differences"]

# What is overlaid, with its title and what to know about it.
_CHARTS = {
    "loss": ("Loss", "The sum of all terms; runs of different methods sum different terms."),
    **CURVES,
    "discrepancy": ("Advantage of the adversary", "Near 1 the domains are told apart with ease, near 0 they are not."),
    "domain_accuracy": ("Accuracy of the discriminator", "50 % is guessing."),
    "select_im": ("Information maximisation", "A criterion without labels; higher is better."),
    "largest_class": ("Largest predicted class", "Near 100 % the network has collapsed."),
}


def comparison_page(runs: Sequence[RunRecord], headline: Sequence[str]) -> str:
    """The page as text."""
    known = [
        ("runs", f"{len(runs):,}"),
        ("methods", f"{len({run.method for run in runs}):,}"),
        ("ended", f"{sum(run.done for run in runs):,}"),
    ]
    header = facts("robustda report", f"{len(runs)} runs", headline, known)
    sections = [_table_section(runs), *_repeated(runs), _settings_section(runs), *_chart_sections(runs)]
    return assemble(f"Comparison of {len(runs)} runs", header, sections)


def differences(runs: Sequence[RunRecord]) -> list[tuple[str, list[Any]]]:
    """The settings that are not the same in all runs, with their values; None where a run has no such setting."""
    every = [
        {"method": run.method, **run.params, "select": run.config.get("select", "last"), **_data(run)} for run in runs
    ]
    keys = list(dict.fromkeys(key for settings in every for key in settings))
    values = [(key, [settings.get(key) for settings in every]) for key in keys]
    return [(key, row) for key, row in values if len({json.dumps(value, sort_keys=True) for value in row}) > 1]


def _table_section(runs: Sequence[RunRecord]) -> Markup:
    scored = [run.summary.get("target_accuracy") for run in runs]
    finals = [np.nan if value is None else float(value) for value in scored]
    hoped = [expected_of(run) for run in runs]
    # Whoever has no accuracy comes after those who have one, by what is expected.
    ranks = [
        -value if np.isfinite(value) else 2.0 - (expected.value if expected else 0.0)
        for value, expected in zip(finals, hoped, strict=True)
    ]
    order = np.argsort(ranks, kind="stable")
    top = np.nanmax(finals) if np.isfinite(finals).any() else np.nan
    rows = []
    for place in order:
        run, final, best = runs[place], finals[place], best_of(runs[place])
        known, expected = np.isfinite(final), hoped[place]
        kept, noise = run.summary.get("kept_share"), run.summary.get("noise_rate")
        rows.append(
            (
                name(run.name),
                run.method,
                bar(final, "right") if known else Markup(""),
                el("span", {"class": "best" if final == top else None}, f"{100 * final:.1f}") if known else "",
                el("span", {"class": "oracle"}, f"{100 * best[0]:.1f}") if best else "",
                *([f"{percent(expected.value)} ({interval(expected)})" if expected else ""] if any(hoped) else []),
                percent(kept) if kept is not None else "",
                percent(noise) if noise is not None else "",
                f"{run.summary['seconds']:,.0f}" if "seconds" in run.summary else "",
                "ended" if run.done else "not ended",
            )
        )
    head = ["Run", "Method", "", "Final accuracy (%)", "Best, oracle (%)", "Trusted", "Noise found", "Seconds", "State"]
    note = (
        "Accuracy is that of the target's labelled examples at the end. The oracle's number is the best evaluation, "
        "which nobody can choose without those labels: it is no result."
    )
    numbers = [3, 4, 5, 6, 7]
    if any(hoped):
        head.insert(5, "Expected without labels")
        numbers.append(8)
        note += " What is expected was judged without them; a method that does not say what it expects has none."
    shown = scrolling("Comparison of the runs", table("Comparison of the runs", head, rows, numbers=numbers))
    return section("runs", "The runs", shown, note=note, full=True)


def _repeated(runs: Sequence[RunRecord]) -> list[Markup]:
    """Runs that differ in nothing but the seed (and with it, maybe, the noise draw), taken together."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        settings = {key: value for key, value in run.params.items() if key != "seed"}
        where = [run.source_name, run.target_name, run.config.get("select")]
        groups.setdefault(json.dumps([run.method, settings, where], sort_keys=True), []).append(run)
    rows = []
    for own in groups.values():
        values = [100 * run.summary["target_accuracy"] for run in own if run.summary.get("target_accuracy") is not None]
        if len(values) > 1:
            names = ", ".join(run.name for run in own)
            rows.append(
                (
                    name(names),
                    own[0].method,
                    f"{np.mean(values):.1f}",
                    f"{np.std(values, ddof=1):.1f}",
                    str(len(values)),
                )
            )
    if not rows:
        return []
    head = ("Runs", "Method", "Mean accuracy (%)", "Standard deviation", "Seeds")
    shown = scrolling("Means over seeds", table("Means over seeds", head, rows, numbers=(2, 3, 4)))
    return [section("seeds", "Means over seeds", shown, note="Runs that differ in their seed only.", full=True)]


def _settings_section(runs: Sequence[RunRecord]) -> Markup:
    found = differences(runs)
    if not found:
        return section("differences", "What differs", note="All settings are the same.", full=True)
    shared = [(key, values) for key, values in found if None not in values]
    own = [(key, values) for key, values in found if None in values]
    note = "Settings, data and versions that are not the same in all runs."
    content = [_values("Settings that differ", shared, runs)] if shared else []
    if own:
        summary = el("summary", None, f"{len(own)} settings that only some of the methods have")
        shown = _values("Settings that only some of the methods have", own, runs)
        content.append(el("details", {"class": "numbers", "open": not shared}, summary, shown))
    return section("differences", "What differs", *content, note=note, full=True)


def _values(title: str, found: Sequence[tuple[str, list[Any]]], runs: Sequence[RunRecord]) -> Markup:
    rows = [
        (key, *(el("span", {"class": "value"}, "–" if value is None else setting(value)) for value in values))
        for key, values in found
    ]
    return scrolling(title, table(title, ("Setting", *(run.name for run in runs)), rows))


def _chart_sections(runs: Sequence[RunRecord]) -> list[Markup]:
    sections = []
    for metric, (title, note) in _CHARTS.items():
        lines, ends = [], []
        for colour, run in enumerate(runs):
            # Only the last phase: others, such as a curriculum, have no counterpart in other methods.
            series = run.series(metric)
            series = series[series["phase"] == run.phases[-1][0]] if run.phases else series
            if len(series):
                lines.append(Line(run.name, series["step"].to_numpy(), series["value"].to_numpy(float), colour))
                ends.append(f"{run.name} ends at {form_of(metric)(float(series['value'].iloc[-1]))}")
        if not lines:
            continue
        chart = line_chart(lines, "; ".join(ends) + ".", whole=metric in SHARES)
        sections.append(section(f"chart-{metric}", title, chart, note=note))
    return sections


def _data(run: RunRecord) -> dict[str, Any]:
    data = {
        f"data: {key}": value
        for key, value in run.data.items()
        if key in ("source", "target", "source_examples", "target_examples", "digest")
    }
    versions = {f"version: {key}": run.environment.get(key) for key in ("robustda", "torch", "device")}
    return data | versions
