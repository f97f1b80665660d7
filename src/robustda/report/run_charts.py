"""Charts as inline SVG: lines over steps, a histogram with thresholds, a matrix of classes, a map of points.

Colours are classes that the style sheet sets, for light and dark; lines differ in their dashes too. Every chart carries
a sentence for who cannot see it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from robustda.report.run_markup import Attributes, Markup, el, name
from robustda.report.wording import percent

__all__ = ["Line", "bar", "histogram", "line_chart", "matrix", "point_map", "whiskers"]

WIDTH, HEIGHT = 440, 208
_LEFT, _RIGHT, _TOP, _BASE = 46, 432, 18, 180
_MOST_POINTS = 400  # of a line: no screen shows more
_COLOURS = 8
_SHADES = 8
LABELLED = 40
"""Up to so many classes their names fit beside a matrix or into a map."""


@dataclass(frozen=True)
class Line:
    """A named curve; `colour` is a number, and tells it from others."""

    label: str
    x: np.ndarray
    y: np.ndarray
    colour: int = 0


def line_chart(
    lines: Sequence[Line],
    about: str,
    *,
    boundaries: Sequence[tuple[str, int]] = (),
    form: Callable[[float], str] | None = None,
    whole: bool = False,
) -> Markup:
    """Curves over steps. `boundaries` are the phases with the step at which each ends; `about` is said aloud.

    With `whole` the axis goes from 0 to 1, as shares do.
    """
    drawn = [line for line in (_finite(line) for line in lines) if len(line.x)]
    if not drawn:
        return el("p", {"class": "note"}, "Nothing was logged.")
    values, steps = np.concatenate([line.y for line in drawn]), np.concatenate([line.x for line in drawn])
    form = form or (percent if whole else lambda value: f"{value:g}")
    ticks = _ticks(0, 1) if whole else _ticks(float(values.min()), float(values.max()))
    last = max(1.0, float(steps.max()))

    def across(step: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * step / last, 1)

    def up(value: float) -> float:
        return round(_BASE - (_BASE - _TOP) * (value - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    parts = []
    for tick in ticks:
        parts.append(el("line", {"x1": _LEFT, "x2": _RIGHT, "y1": up(tick), "y2": up(tick), "class": "grid"}))
        parts.append(el("text", {"x": _LEFT - 6, "y": up(tick) + 4, "text-anchor": "end"}, form(tick)))
    for tick in [*_ticks(0, last)[:-1], last]:
        anchor = "end" if tick == last else "middle"
        if tick == last or across(tick) < _RIGHT - 64:
            parts.append(el("text", {"x": across(tick), "y": _BASE + 18, "text-anchor": anchor}, f"{tick:,.0f}"))
    begun = 0.0
    for phase, end in boundaries if len(boundaries) > 1 else ():
        if begun:
            parts.append(
                el("line", {"x1": across(begun), "x2": across(begun), "y1": _TOP, "y2": _BASE, "class": "threshold"})
            )
        parts.append(el("text", {"x": across(begun) + 5, "y": _TOP - 7, "class": "phase"}, phase))
        begun = end
    for line in drawn:
        parts += _drawn(line, across, up, [end for _, end in boundaries])
    chart = el(
        "svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": about, "class": "chart"}, *parts
    )
    legend = [el("li", None, _swatch(line.colour), name(line.label)) for line in drawn]
    return el("div", None, el("ul", {"class": "legend"}, *legend) if len(drawn) > 1 else Markup(""), chart)


def histogram(values: np.ndarray, trusted: np.ndarray, thresholds: np.ndarray, about: str) -> Markup:
    """Mean losses of the source examples, trusted ones below the others, and the thresholds of the classes."""
    top = float(np.quantile(values, 0.995)) * 1.02 or 1.0
    bins = np.linspace(0, max(top, float(thresholds.max())), 41)
    shown = np.clip(values, 0, bins[-1])
    kept, left = np.histogram(shown[trusted], bins)[0], np.histogram(shown[~trusted], bins)[0]
    total = np.maximum(1, kept + left)
    scale = (_BASE - _TOP - 26) / math.sqrt(total.max()) / np.sqrt(total)  # of one example; a bar is as a square root
    wide = (WIDTH - 8) / 40

    def across(loss: float) -> float:
        return round(float(4 + (WIDTH - 8) * loss / bins[-1]), 1)

    parts = []
    for place in range(40):
        base = float(_BASE)
        for count, kind in ((int(kept[place]), "right"), (int(left[place]), "wrong")):
            tall = round(float(count * scale[place]), 1)
            if count:
                what = "trusted" if kind == "right" else "not trusted"
                title = f"{count:,} {what}, mean loss {bins[place]:.2g} to {bins[place + 1]:.2g}"
                box = {"x": round(across(bins[place]) + 0.75, 2), "y": round(base - tall, 1)}
                parts.append(
                    el(
                        "rect",
                        {**box, "width": round(wide - 1.5, 2), "height": tall, "class": kind},
                        el("title", None, title),
                    )
                )
            base -= tall
    low, high, middle = float(thresholds.min()), float(thresholds.max()), float(np.median(thresholds))
    if high > low:
        box = {"x": across(low), "width": round(max(1.0, across(high) - across(low)), 1), "y": _TOP + 18, "height": 6}
        parts.append(el("rect", {**box, "class": "band"}))
    parts.append(
        el("line", {"x1": across(middle), "x2": across(middle), "y1": _TOP + 12, "y2": _BASE, "class": "threshold"})
    )
    at_left = across(middle) < WIDTH / 2
    label = "thresholds of the classes" if high > low else "threshold"
    parts.append(el("text", {"x": across(middle), "y": _TOP + 6, "text-anchor": "start" if at_left else "end"}, label))
    parts.append(el("line", {"x1": 0, "x2": WIDTH, "y1": _BASE + 0.5, "y2": _BASE + 0.5, "class": "axis-line"}))
    for tick in _ticks(0, float(bins[-1])):
        if tick <= bins[-1]:
            anchor = "start" if tick == 0 else "middle" if across(tick) < WIDTH - 16 else "end"
            parts.append(el("text", {"x": across(tick), "y": _BASE + 18, "text-anchor": anchor}, f"{tick:g}"))
    legend = [
        el("li", None, el("span", {"class": "swatch right"}), "trusted"),
        el("li", None, el("span", {"class": "swatch wrong"}), "not trusted"),
    ]
    view = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": about, "class": "chart"}
    return el("div", None, el("ul", {"class": "legend"}, *legend), el("svg", view, *parts))


def matrix(counts: np.ndarray, names: Sequence[str], about: str) -> Markup:
    """A confusion matrix, rows true and columns predicted, each row shaded by its own share."""
    size = len(names)
    named = size <= LABELLED
    cell = max(15, min(34, 420 // size)) if named else max(4, 620 // size)
    short = [_short(text) for text in names]
    margin = min(150, round(14 + 6.3 * max(map(len, short)))) if named else 4
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    paths: dict[str, list[str]] = {}
    parts = [el("rect", {"x": -0.5, "y": -0.5, "width": size * cell, "height": size * cell, "class": "ground"})]
    for row, column in np.argwhere(counts > 0).tolist():
        shade = max(1, math.ceil(_SHADES * math.sqrt(shares[row, column])))
        kind = f"{'diagonal' if row == column else 'shade'} s{shade}"
        box = f"M{column * cell} {row * cell}h{cell - 1}v{cell - 1}h{1 - cell}z"
        if not named:  # fields of one shade are one path: a thousand classes are a few elements
            paths.setdefault(kind, []).append(box)
            continue
        title = f"{int(counts[row, column]):,} of {names[row]} predicted {names[column]}"
        parts.append(el("path", {"d": box, "class": kind}, el("title", None, title)))
    parts += [el("path", {"d": "".join(boxes), "class": kind}) for kind, boxes in paths.items()]
    drawn = [el("g", {"transform": f"translate({margin} {margin})"}, *parts)]
    for place, text in enumerate(short if named else ()):
        middle = margin + place * cell + cell / 2
        drawn.append(el("text", {"x": margin - 5, "y": middle + 3.5, "text-anchor": "end"}, text))
        drawn.append(el("text", {"transform": f"translate({middle + 3.5:g} {margin - 5}) rotate(-90)"}, text))
    side = margin + size * cell + 2
    view: Attributes = {
        "viewBox": f"0 0 {side} {side}",
        "width": side,
        "height": side,
        "role": "img",
        "class": "matrix",
    }
    return el("svg", {**view, "aria-label": about}, *drawn)


def point_map(points: np.ndarray, codes: np.ndarray, wrong: np.ndarray, names: Sequence[str], about: str) -> Markup:
    """Points in the plane, coloured by class and named where their class lies; wrong ones are crosses."""
    width, height, rim = 640, 520, 14
    low, high = points.min(axis=0), points.max(axis=0)
    placed = rim + (points - low) / np.maximum(high - low, 1e-9) * np.array([width - 2 * rim, height - 2 * rim])
    parts, labels = [], []
    for code in np.unique(codes).tolist():
        own = placed[(codes == code) & ~wrong]
        crossed = placed[(codes == code) & wrong]
        colour = f"c{code % _COLOURS}"
        if len(own):
            dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in own)
            parts.append(el("path", {"d": dots, "class": f"dots {colour}"}))
        if len(crossed):
            crosses = "".join(f"M{x - 2.5:.1f} {y - 2.5:.1f}l5 5m0 -5l-5 5" for x, y in crossed)
            parts.append(el("path", {"d": crosses, "class": f"crosses {colour}"}))
        x, y = np.median(placed[codes == code], axis=0)
        labels.append((float(x), float(y), _short(names[code])))
    if len(labels) <= LABELLED:
        parts += [
            el("text", {"x": round(x, 1), "y": round(y, 1), "text-anchor": "middle"}, text)
            for x, y, text in _apart(labels, height - rim)
        ]
    view: Attributes = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "class": "points"}
    return el("svg", {**view, "role": "img", "aria-label": about}, *parts)


def bar(share: float, kind: str = "rate") -> Markup:
    """A share as a bar in a table; the number stands beside it."""
    box = el("rect", {"x": 0, "y": 2, "width": round(100 * min(1.0, max(0.0, share)), 2), "height": 8, "class": kind})
    return el(
        "svg", {"viewBox": "0 0 100 12", "preserveAspectRatio": "none", "aria-hidden": "true", "class": "interval"}, box
    )


def whiskers(share: float, low: float | None = None, high: float | None = None) -> Markup:
    """A share as a bar on the way from 0 to 1, and how far it may lie off as a line."""
    parts = [el("rect", {"x": 0, "y": 2, "width": round(100 * share, 2), "height": 8, "class": "right"})]
    if low is not None and high is not None:
        ends: Attributes = {"x1": round(100 * low, 2), "x2": round(100 * high, 2), "y1": 6, "y2": 6, "class": "whisker"}
        parts.append(el("line", ends))
    view = {"viewBox": "0 0 100 12", "preserveAspectRatio": "none", "aria-hidden": "true", "class": "interval whole"}
    return el("svg", view, *parts)


def _drawn(
    line: Line, across: Callable[[float], float], up: Callable[[float], float], ends: Sequence[int]
) -> list[Markup]:
    """A curve, broken where a phase ends: what comes after is another network."""
    colour = _coloured(line.colour)
    pieces = []
    for piece in np.split(np.arange(len(line.x)), np.searchsorted(line.x, ends, side="right")):
        if not len(piece):
            continue
        chosen = piece[np.unique(np.linspace(0, len(piece) - 1, min(len(piece), _MOST_POINTS)).round().astype(int))]
        dots = [f"{across(line.x[row])} {up(line.y[row])}" for row in chosen]
        if len(dots) == 1:
            x, y = dots[0].split()
            pieces.append(el("circle", {"cx": x, "cy": y, "r": 3, "class": f"dot {colour}"}))
        else:
            pieces.append(el("path", {"d": "M" + "L".join(dots), "class": f"line {colour}"}))
    return pieces


def _swatch(colour: int) -> Markup:
    line = el("line", {"x1": 0, "x2": 22, "y1": 5, "y2": 5, "class": f"line {_coloured(colour)}"})
    return el("svg", {"viewBox": "0 0 22 10", "width": 22, "height": 10, "aria-hidden": "true"}, line)


def _coloured(colour: int) -> str:
    return f"c{colour % _COLOURS} d{colour // _COLOURS % 3}"


def _finite(line: Line) -> Line:
    good = np.isfinite(line.y)
    return replace(line, x=np.asarray(line.x, float)[good], y=np.asarray(line.y, float)[good])


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers from at most `low` to at least `high`."""
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = (0.0, high * 2) if high > 0 else (low - 1, low + 1)
    rough = (high - low) / (most - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{step * number:.12g}") for number in range(first, last + 1)]


def _short(text: str, most: int = 21) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _apart(labels: list[tuple[float, float, str]], lowest: float) -> list[tuple[float, float, str]]:
    """Names moved down where they would lie on one another."""
    placed: list[tuple[float, float, str]] = []
    for x, y, text in sorted(labels, key=lambda label: label[1]):
        for other_x, other_y, other in placed:
            near = abs(x - other_x) < 3.4 * (len(text) + len(other))
            if near and abs(y - other_y) < 13:
                y = other_y + 13
        placed.append((x, min(y, lowest), text))
    return placed
