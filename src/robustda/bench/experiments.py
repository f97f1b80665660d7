"""The named experiments: which cells a table of the paper needs, and how they are laid out in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from robustda.bench import paper
from robustda.bench.cells import BatchNorm, Cell, Protocol
from robustda.data.catalog import parse_task
from robustda.errors import ConfigError
from robustda.methods import method_class, method_names

__all__ = ["EXPERIMENTS", "METHODS", "Column", "Experiment", "Row", "cells_of", "experiment"]

METHODS = (
    "source_only",
    "spl",
    "mentornet",
    "dan",
    "rtn",
    "dann",
    "adda",
    "mdd",
    "tcl",
    "rda",
    "prototypes",
    "concord",
    "clarity",
)
"""In the paper's order, then three that are not the paper's: the line to beat, and two of ours."""

RATES = (0.0, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True)
class Column:
    """A column of a table: a task under a noise."""

    task: str
    noise: str
    rate: float

    @property
    def group(self) -> str:
        return self.noise


@dataclass(frozen=True)
class Row:
    """A row of a table: a method with settings, and the paper's figures for it, column by column."""

    label: str
    method: str
    settings: dict[str, Any] = field(default_factory=dict)
    given: bool = False
    """whether the noise rate is given, as the paper does, and not estimated"""
    paper: tuple[float, ...] = ()
    optional: bool = False
    """left out of a table as long as nothing of it is done"""
    steps: int = 0
    """how many it takes, unless asked for otherwise, of a row for images alone; 0 for as many as the others"""


_LINE_TO_BEAT = Row("prototypes", "prototypes")
"""A twentieth of a second of arithmetic on frozen features. In every table: who is behind it is not worth a GPU."""

_TUNED = Row("clarity, tuned", "clarity", {"tune": True, "batch_norm": "keep"}, optional=True, steps=1200)
"""Of 64 + 64 images each, where the other methods have 3,000 of 32 + 32."""


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    draws: tuple[str, ...] = ("authors",)
    """whose noise, unless asked for otherwise: the authors' draws are known for Office-31 alone"""


def _on_office(noise: str, rate: float = 0.4) -> tuple[Column, ...]:
    return tuple(Column(task, noise, rate) for task in paper.OFFICE_TASKS)


def _table1() -> Experiment:
    columns = _on_office("label") + _on_office("feature") + _on_office("mixed")
    rows = []
    for name in METHODS:
        published = tuple(v for noise in ("label", "feature", "mixed") for v in paper.TABLE_1[noise].get(name, ()))
        rows.append(Row(name, name, paper=published))
        if name == "rda":
            rows.append(Row("rda, rates given", name, given=True, paper=published))
            apart = {"corrupted": "tell_apart"}
            rows.append(Row("rda, corrupted told apart", name, apart, paper=published, optional=True))
    rows.append(_TUNED)
    return Experiment("table1", "Office-31, 40 % corruption of labels, features, and both", columns, tuple(rows))


def _table2() -> Experiment:
    """Bing's noise is its own: the paper corrupts Office-Home alone, as we read it."""
    columns = (Column("B→C", "none", 0.0), *(Column(task, "mixed", 0.4) for task in paper.HOME_TASKS))
    wide = {"width": 2048}
    rows = []
    for name in METHODS:
        settings: dict[str, Any] = wide | {"alpha": 2.0} if name == "rda" else wide if name == "mdd" else {}
        rows.append(Row(name, name, settings, paper=paper.TABLE_2.get(name, ())))
        if name == "rda":
            rows.append(Row("rda, rates given", name, settings, True, paper.TABLE_2[name]))
    title = "Bing-Caltech as it is, and Office-Home with 40 % mixed corruption"
    return Experiment("table2", title, columns, tuple(rows), draws=("0",))


def _table3() -> Experiment:
    rows = (
        Row("del-OCL", "rda", {"del_ocl": True}, True, paper.TABLE_3["del-OCL"]),
        Row("del-PMD", "rda", {"del_pmd": True}, True, paper.TABLE_3["del-PMD"]),
        Row("RDA", "rda", {}, True, paper.TABLE_3["RDA"]),
        _LINE_TO_BEAT,
    )
    return Experiment("table3", "Office-31, 40 % mixed corruption, without OCL or PMD", _on_office("mixed"), rows)


def _table4() -> Experiment:
    curricula = (
        Row(label, "rda", {"curriculum": label.replace("-", "")}, True, paper.TABLE_4[label])
        for label in ("online", "offline", "class-wise")
    )
    rows = (*curricula, _LINE_TO_BEAT)
    return Experiment("table4", "Office-31, 40 % label corruption, three curricula", _on_office("label"), rows)


def _table5() -> Experiment:
    rows = (
        Row("TCL", "tcl", {}, False, paper.TABLE_5["TCL"]),
        Row("delete", "rda", {"feature_noisy": "delete"}, True, paper.TABLE_5["delete"]),
        Row("reserve", "rda", {"feature_noisy": "reserve"}, True, paper.TABLE_5["reserve"]),
        _LINE_TO_BEAT,
    )
    title = "Office-31, 40 % feature corruption, feature-noisy examples in the source risk or not"
    return Experiment("table5", title, _on_office("feature"), rows)


def _table6() -> Experiment:
    columns = tuple(Column("A→W", "feature", rate) for rate in RATES)
    rows = (
        Row("DANN", "dann", {}, False, paper.TABLE_6["DANN"]),
        Row("TCL", "tcl", {}, False, paper.TABLE_6["TCL"]),
        Row("RDA, rates given", "rda", {}, True, paper.TABLE_6["RDA"]),
        Row("RDA, rates estimated", "rda", {}, False, paper.TABLE_6["RDA"]),
        _LINE_TO_BEAT,
        Row("concord", "concord"),
        Row("clarity", "clarity"),
    )
    return Experiment("table6", "Office-31 A→W, feature corruption of 0 to 80 %", columns, rows)


def _noise_levels() -> Experiment:
    columns = tuple(Column("A→W", "mixed", rate) for rate in RATES)
    return Experiment(
        "fig-noise-levels",
        "Office-31 A→W, mixed corruption of 0 to 80 %",
        columns,
        tuple(Row(name, name, paper=paper.NOISE_LEVELS.get(name, ())) for name in METHODS),
    )


def _clean() -> Experiment:
    """Not the paper's: what its methods come to where nothing is wrong with the source."""
    rows = (*(Row(name, name) for name in METHODS), _TUNED)
    return Experiment("clean", "Office-31 as it comes", _on_office("none", 0.0), rows)


def _heavy() -> Experiment:
    """Not the paper's either: most labels are wrong."""
    rows = tuple(Row(name, name) for name in METHODS)
    return Experiment("heavy", "Office-31, 80 % of the labels wrong", _on_office("label", 0.8), rows)


EXPERIMENTS = {
    e.name: e
    for e in (
        _table1(),
        _table2(),
        _table3(),
        _table4(),
        _table5(),
        _table6(),
        _noise_levels(),
        _clean(),
        _heavy(),
    )
}


def experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def cells_of(
    chosen: Experiment,
    *,
    protocol: Protocol = "features",
    rows: Sequence[str] = (),
    tasks: Sequence[str] = (),
    noises: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    draws: Sequence[str] = (),
    steps: int = 0,
    batch_norm: BatchNorm = "learn",
    backbone_rate: float = 0.0,
) -> list[tuple[Row, Column, Cell]]:
    """Every cell with its place in the table, one seed after the other, so that a cut-off grid has whole tables.

    `batch_norm` and, if it is not 0, `backbone_rate` are options of all methods where the backbone is trained.
    """
    known = [row.label for row in chosen.rows] + method_names()
    for row in rows:
        if row not in known:
            raise ConfigError(
                f"{chosen.name} has no row {row!r}: choose from {', '.join(r.label for r in chosen.rows)}"
            )
    draws = draws or chosen.draws
    for draw in draws:
        if draw == "authors" and "authors" not in chosen.draws:
            raise ConfigError(f"the authors' noise draws for {chosen.name} are not known: give numbers, such as 0")
        if draw != "authors" and not draw.isdecimal():
            raise ConfigError(f"there is no noise draw {draw!r}: give authors, or a number that seeds a simulated one")
    wanted = {parse_task(task) for task in tasks}
    labels = {row.label for row in chosen.rows}
    by_method = {name for name in rows if name not in labels}  # a row's own name means that row alone
    usual = 3000 if protocol == "finetune" else 2000
    tuning: dict[str, Any] = {}
    if protocol == "finetune":
        tuning = {"batch_norm": batch_norm} | ({"backbone_rate": backbone_rate} if backbone_rate else {})
    return [
        (row, column, _cell(row, column, draw, seed, steps or row.steps or usual, protocol, tuning))
        for draw in draws
        for seed in seeds
        for row in chosen.rows
        for column in chosen.columns
        if (not rows or row.label in rows or row.method in by_method)
        and (not row.steps or protocol == "finetune")
        and (not wanted or parse_task(column.task) in wanted)
        and (not noises or column.noise in noises)
    ]


def _cell(
    row: Row, column: Column, draw: str, seed: int, steps: int, protocol: Protocol, tuning: dict[str, Any]
) -> Cell:
    source, target = parse_task(column.task)
    noise = column.noise if column.rate else "none"
    settings = tuning | row.settings
    if row.given and row.method == "rda":
        settings = oracle(noise, column.rate) | settings
    # What is a default anyway would only make the same cell look like another one.
    defaults = {field.name: field.default for field in dataclasses.fields(method_class(row.method))}
    settings = {name: value for name, value in settings.items() if value != defaults[name]}
    return Cell(
        method=row.method,
        source=source,
        target=target,
        noise=noise,  # type: ignore[arg-type]
        rate=column.rate,
        seed=seed,
        steps=steps,
        protocol=protocol,
        draw=draw,
        settings=settings,
    )


def oracle(noise: str, rate: float) -> dict[str, Any]:
    """What the authors tell RDA about the noise: the rate of wrong labels, and of corrupted features (1 − τ)."""
    if noise == "none":
        return {"del_ocl": True}
    if noise == "feature":
        return {"del_ocl": True, "proxy_share": round(1 - rate, 3)}
    wrong = rate if noise == "label" else rate / 2
    return {"noise_rate": wrong} | ({} if noise == "label" else {"proxy_share": round(1 - wrong, 3)})
