"""The card that goes with an exported model: what it learned from, what was wrong with that, and what not to expect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustda._version import __version__
from robustda.methods.base import Method

__all__ = ["model_card"]

_MOST = 12  # classes that a table shows


def model_card(method: Method, facts: dict[str, Any], format: str, checked_with: str, difference: float | None) -> str:
    """Markdown: use, data, noise found, accuracy expected, limits, settings. `facts` are those of the run folder."""
    title = "images" if method.image_size_ else "vectors"
    parts = [
        f"# A classifier of {title} into {len(method.classes_)} classes",
        f"Made by robustda {__version__} with the method *{method.name}* ({method.paper}).",
        _use(method, format),
        _data(method, facts),
        _noise(method, facts),
        _accuracy(method, checked_with, difference),
        _limits(method, facts),
        _settings(method, facts),
    ]
    return "\n\n".join(parts) + "\n"


def _use(method: Method, format: str) -> str:
    size = method.image_size_
    if size:
        taken = (
            f"`inputs`: bytes (batch, {size}, {size}, 3), RGB images squashed to {size} × {size} (bilinear, with "
            "antialiasing, as Pillow's `resize` does). The centre crop, the scaling and the normalisation are inside."
        )
    else:
        names = f": {_listed(method.features_)}" if method.features_ else ""
        taken = f"`inputs`: float32 (batch, {method.example_shape_[0]}), the features in the order of training{names}."
    classes = _listed([str(name) for name in method.classes_])
    lines = [
        "## Use",
        "    robustda predict THIS_FOLDER DATA --out predictions.csv --probabilities",
        f"- {taken}",
        f"- `probabilities`: float32 (batch, {len(method.classes_)}), in the order of `classes` in export.json: "
        f"{classes}.",
        f"- The batch may have any size. The format is {format}; nothing in it is run as code when robustda loads it.",
    ]
    return "\n".join([lines[0], "", lines[1], "", *lines[2:]])


def _data(method: Method, facts: dict[str, Any]) -> str:
    data = facts.get("data")
    if not data:
        return "## Data\n\nThe model was exported without its run folder: what it learned from is not on record."
    return (
        f"## Data\n\n- Source, labelled: {data['source'] or 'arrays'}, {data['source_examples']:,} examples.\n"
        f"- Target, unlabelled: {data['target'] or 'arrays'}, {data['target_examples']:,} examples. "
        "Labels it may carry were used for scoring only.\n"
        f"- Fingerprint of both: `{data['digest']}`."
    )


def _noise(method: Method, facts: dict[str, Any]) -> str:
    rate, kept, mended = (method.summary_.get(name) for name in ("noise_rate", "kept_share", "mended_share"))
    if rate is None:
        return "## Noise found\n\nThis method does not judge labels: every source label was taken as it came."
    text = "## Noise found\n\n"
    text += f"About {rate:.0%} of the source's labels look wrong; {kept:.0%} of the examples were trusted"
    text += f", {mended:.0%} taken for another class than the one given." if mended else "."
    table = _trust_by_class(facts.get("run"))
    if table is None:
        return text
    lines = ["", "", "| class | examples | trusted |", "|---|---|---|"]
    lines += [f"| {name} | {count:,} | {share:.0%} |" for name, count, share in table[:_MOST]]
    left = f"\n\nThe {_MOST} classes that were trusted least, of {len(table)}." if len(table) > _MOST else ""
    return text + "\n".join(lines) + left


def _accuracy(method: Method, checked_with: str, difference: float | None) -> str:
    summary = method.summary_
    if summary.get("target_accuracy") is not None:
        which = (
            f"the network of step {summary['selected_step']:,}, chosen without labels by {summary['selected_by']}"
            if "selected_step" in summary
            else "the final iteration"
        )
        text = f"{summary['target_accuracy']:.1%} on the target, by the labels it carries ({which})."
    else:
        text = "Not known: the target had no labels to score by. Label a random hundred of it before you rely on it."
    if difference is None:
        check = "It was not checked that the export predicts the same: install `robustda[onnx]` and export again."
    else:
        check = (
            f"The export was run ({checked_with}): its probabilities differ from the run's by at most {difference:.1g}."
        )
    return f"## Accuracy expected\n\n{text}\n\n{check}"


def _limits(method: Method, facts: dict[str, Any]) -> str:
    lines = [
        f"It knows {len(method.classes_)} classes and gives one of them to whatever it is shown, also to what is none.",
        "It was adapted to its target: on data from elsewhere, the source's included, it may be worse than an ordinary "
        "classifier.",
        "Its probabilities are not calibrated: the larger one is the likelier class, but .9 need not be right nine "
        "times in ten.",
        "It learned from labels that were partly wrong; mistakes that people make systematically may live on in it.",
    ]
    if method.image_size_:
        lines.append(
            f"Images are squashed to a square of {method.image_size_} pixels; what is smaller than that is lost."
        )
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines)


def _settings(method: Method, facts: dict[str, Any]) -> str:
    settings = {name: shown(name, value) for name, value in method.record().items()}
    made = facts.get("environment") or {}
    versions = ", ".join(f"{name} {made[name]}" for name in ("robustda", "torch", "python", "device") if made.get(name))
    lines = ["## Settings", "", "| option | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in settings.items()]
    return "\n".join(lines) + (f"\n\nTrained with {versions}." if versions else "")


def shown(name: str, value: Any) -> Any:
    """A setting as it may leave the machine: of files and folders the name, not where they lie."""
    if name == "weights" and isinstance(value, str):
        return Path(value).name
    if name == "backbone" and isinstance(value, str) and value.startswith(("hf:/", "hf:.", "hf:~")):
        return f"hf:{Path(value.removeprefix('hf:')).name}"
    return value


def _trust_by_class(run: Path | None) -> list[tuple[str, int, float]] | None:
    """Name, number of examples and share of trusted ones of every class, the least trusted first."""
    if run is None or not (run / "trust.csv").is_file():
        return None
    import pandas as pd

    table = pd.read_csv(
        run / "trust.csv", usecols=["given_label", "weight"], dtype={"given_label": str}, na_filter=False
    )
    found = table.groupby("given_label")["weight"].agg(["size", "mean"]).sort_values("mean")
    rows = zip(found.index, found["size"], found["mean"], strict=True)
    return [(str(name).replace("|", "\\|"), int(size), float(mean)) for name, size, mean in rows]


def _listed(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")
