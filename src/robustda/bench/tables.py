"""A table of the paper with our figures beside the paper's: Markdown, LaTeX, CSV and HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from robustda.bench.cells import Cell
from robustda.bench.experiments import Column, Experiment, Row
from robustda.bench.paper import AVERAGES_AS_PRINTED
from robustda.bench.results import lookup
from robustda.data.wording import plural

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALL", "FORMATS", "WHICH", "Filled", "fill", "write_tables"]


@dataclass(frozen=True)
class Filled:
    """An experiment with its accuracies in %, (row, column, repetition); NaN where a cell is not done."""

    experiment: Experiment
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    values: np.ndarray
    caption: str
    beside: tuple[np.ndarray, ...] = ()
    """what else each cell shows, in the same form as `values`"""

    def groups(self) -> list[list[int]]:
        """Columns that are averaged together: those under the same noise."""
        numbered = enumerate(self.columns)
        return [[number for number, _ in some] for _, some in groupby(numbered, key=lambda pair: pair[1].group)]


WHICH = {
    "final": "final iteration",
    "im": "chosen without target labels by information maximisation",
    "snd": "chosen without target labels by soft neighbourhood density",
    "bnm": "chosen without target labels by the nuclear norm",
    "dev": "chosen without target labels by importance-weighted validation",
    "best": "ORACLE: the best of all evaluations, chosen by target labels",
}
ALL = ("final", "im", "best")
"""what stands side by side in a cell where all are asked for"""


def fill(
    experiment: Experiment,
    placed: Sequence[tuple[Row, Column, Cell]],
    results: pd.DataFrame,
    which: str = "final",
) -> Filled:
    """Look up what is done in a table of results: the accuracy of the final iteration, or another (see `WHICH`).

    ``all`` puts three of them side by side (`ALL`). Optional rows of which no cell is done are left out.
    """
    shown = ALL if which == "all" else (which,)
    rows = tuple(row for row in experiment.rows if any(row is r for r, _, _ in placed))
    columns = tuple(column for column in experiment.columns if any(column is c for _, c, _ in placed))
    repetitions = list(dict.fromkeys((cell.draw, cell.seed) for _, _, cell in placed))
    values = np.full((len(shown), len(rows), len(columns), len(repetitions)), np.nan)
    for (row, column, cell), line in zip(placed, lookup(results, (c for _, _, c in placed)), strict=True):
        if line is not None:
            place = rows.index(row), columns.index(column), repetitions.index((cell.draw, cell.seed))
            values[:, *place] = [100 * float(line.get(f"accuracy_{name}", np.nan)) for name in shown]
    filled = ~np.isnan(values[0]).all(axis=(1, 2)) | [not row.optional for row in rows]
    rows, values = tuple(row for row, there in zip(rows, filled, strict=True) if there), values[:, filled]
    first = placed[0][2]
    protocol = "frozen ResNet-50 features"
    if first.protocol in ("mirrored", "peaks"):
        pooled = ", pooled by their peaks," if first.protocol == "peaks" else ""
        protocol += f"{pooled} of images and their mirror images, corrupted ones marked by what is seen of them"
    if first.protocol == "finetune":
        kept = any(cell.settings.get("batch_norm") == "keep" for _, _, cell in placed)
        protocol = f"ResNet-50 fine-tuned on images, its batch norm {'kept as it came' if kept else 'learning too'}"
        for rate in {cell.settings["backbone_rate"] for _, _, cell in placed if "backbone_rate" in cell.settings}:
            protocol += f", at {rate:g} of the head's learning rate"
    draws = {draw for draw, _ in repetitions}
    whose = "the authors' noise draws" if draws == {"authors"} else f"noise draws: {', '.join(sorted(draws))}"
    what = " / ".join(WHICH[name] for name in shown)
    if all(cell.noise == "none" for _, _, cell in placed):
        whose = "nothing corrupted"
    caption = (
        f"{experiment.title}. Target accuracy in %, {what}, {first.steps:,} steps; {protocol}; {whose}; "
        f"mean over {_seeds(rows, values[0], repetitions)}."
    )
    if any(row.paper for row in rows):
        caption += " In brackets: the paper (fine-tuned, rates given)."
        caption += _slips(experiment)
    return Filled(experiment, rows, columns, values[0], caption, beside=tuple(values[1:]))


def _slips(experiment: Experiment) -> str:
    """Where the averages that the paper prints are not those of its own numbers."""
    slips = [
        f"{printed} for {name} under {noise} noise"
        for (table, noise, name), printed in AVERAGES_AS_PRINTED.items()
        if table == experiment.name
    ]
    return f" The averages are those of the paper's numbers; it prints {', '.join(slips)}." if slips else ""


def _seeds(rows: Sequence[Row], values: np.ndarray, repetitions: Sequence[tuple[str, int]]) -> str:
    """How many seeds there are, and which rows have fewer of them."""
    all_seeds = {seed for _, seed in repetitions}
    fewer: dict[int, list[str]] = {}
    for row, found in zip(rows, ~np.isnan(values).all(axis=1), strict=True):
        done = {seed for (_, seed), there in zip(repetitions, found, strict=True) if there}
        if 0 < len(done) < len(all_seeds):
            fewer.setdefault(len(done), []).append(row.label)
    notes = [f"{', '.join(names)}: {count}" for count, names in sorted(fewer.items())]
    return plural(len(all_seeds), "seed") + (f" ({'; '.join(notes)})" if notes else "")


def markdown(filled: Filled) -> str:
    """One table for each noise: side by side they would be too wide to read."""
    blocks = [filled.caption]
    for group in filled.groups():
        header, body = _cells(filled, [group])
        lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
        blocks.append("\n".join(lines + ["| " + " | ".join(line) + " |" for line in body]))
    return "\n\n".join(blocks) + "\n"


def latex(filled: Filled) -> str:
    header, body = _cells(filled)
    plain = [[_tex(text) for text in line] for line in [header, *body]]
    lines = [" & ".join(line) + r" \\" for line in plain]
    columns = "l" + "c" * (len(header) - 1)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\begin{{tabular}}{{{columns}}}",
            *[r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"],
            r"\end{tabular}",
            rf"\caption{{{_tex(filled.caption)}}}",
            "\\end{table}\n",
        ]
    )


def webpage(filled: Filled) -> str:
    """One table for each noise, as in Markdown."""

    def line(texts: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    style = "body{font-family:sans-serif;margin:2em;max-width:75em}td,th{padding:.3em .7em;white-space:nowrap;"
    style += "border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}"
    style += "div{overflow-x:auto;margin:1.5em 0}"
    title = html.escape(filled.experiment.title)
    blocks = [
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style>",
        f"<p>{html.escape(filled.caption)}</p>",
    ]
    for group in filled.groups():
        header, body = _cells(filled, [group])
        rows = "\n".join(line(texts, "td") for texts in body)
        blocks.append(f"<div><table>\n{line(header, 'th')}\n{rows}\n</table></div>")
    return "\n".join(blocks) + "\n"


def comma_separated(filled: Filled) -> str:
    """One line a cell. Of what stands beside the first accuracy there are the means, in `ALL`'s order."""
    others = [f",mean_{name}" for name in ALL[1:]] if filled.beside else []
    lines = ["row,task,noise,rate,mean,std,repetitions,paper" + "".join(others)]
    for number, row in enumerate(filled.rows):
        for place, column in enumerate(filled.columns):
            values = filled.values[number, place]
            done = values[np.isfinite(values)]
            published = _published(filled, row, place)
            mean, std = (f"{done.mean():.2f}", f"{done.std():.2f}") if len(done) else ("", "")
            paper = "" if published is None else f"{published:g}"
            line = f'"{row.label}",{column.task},{column.noise},{column.rate:g},{mean},{std},{len(done)},{paper}'
            beside = [values[number, place] for values in filled.beside]
            more = [f",{np.nanmean(values):.2f}" if len(done) else "," for values in beside]
            lines.append(line + "".join(more))
    return "\n".join(lines) + "\n"


FORMATS = {".md": markdown, ".tex": latex, ".html": webpage, ".csv": comma_separated}


def write_tables(filled: Filled, folder: Path, which: str = "final") -> list[Path]:
    """The table in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    name = filled.experiment.name + ("" if which == "final" else f"-{which}")
    paths = [folder / f"{name}{suffix}" for suffix in FORMATS]
    for path in paths:
        path.write_text(FORMATS[path.suffix](filled), encoding="utf-8")
    return paths


def _cells(filled: Filled, groups: Sequence[list[int]] = ()) -> tuple[list[str], list[list[str]]]:
    """Header and lines: a column for each task, and behind each noise the average ± between repetitions."""
    groups = groups or filled.groups()
    several = len({column.group for column in filled.columns}) > 1
    by_rate = len({column.rate for column in filled.columns}) > 1
    header, body = ["method"], [[row.label] for row in filled.rows]
    for group in groups:
        for place in group:
            column = filled.columns[place]
            name = f"{column.rate:.0%}" if by_rate else column.task
            header.append(f"{column.noise} {name}" if several else name)
            for number, row in enumerate(filled.rows):
                every = [values[number, place] for values in (filled.values, *filled.beside)]
                body[number].append(_shown([_one(values) for values in every], _published(filled, row, place)))
        noise = filled.columns[group[0]].noise
        header.append(f"{noise} average" if several else "average")
        for number, row in enumerate(filled.rows):
            published = [_published(filled, row, place) for place in group]
            known = [value for value in published if value is not None]
            paper = float(np.mean(known)) if len(known) == len(group) else None
            every = [values[number, group] for values in (filled.values, *filled.beside)]
            body[number].append(_shown([_average(values) for values in every], paper))
    return header, body


def _shown(ours: list[str], published: float | None) -> str:
    text = "–" if set(ours) == {"–"} else " / ".join(ours)
    return text if published is None else f"{text} ({published:.1f})"


def _one(values: np.ndarray) -> str:
    done = values[np.isfinite(values)]
    return f"{done.mean():.1f}" if len(done) else "–"


def _average(values: np.ndarray) -> str:
    whole = values.mean(axis=0)
    whole = whole[np.isfinite(whole)]
    if not len(whole):
        return "–"
    return f"{whole.mean():.1f}" + (f" ± {whole.std():.1f}" if len(whole) > 1 else "")


def _published(filled: Filled, row: Row, place: int) -> float | None:
    if not row.paper:
        return None
    position = next(n for n, column in enumerate(filled.experiment.columns) if column is filled.columns[place])
    return row.paper[position]


def _tex(text: str) -> str:
    for plain, escaped in (("%", r"\%"), ("_", r"\_"), ("→", r"$\to$"), ("±", r"$\pm$"), ("–", "--")):
        text = text.replace(plain, escaped)
    return text
