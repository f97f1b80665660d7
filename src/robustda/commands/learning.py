"""Learning and predicting: fit, predict, methods, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustda.commands.parsing import (
    COLUMNS,
    add_backbone,
    add_columns,
    add_decoding,
    add_options,
    add_switch,
    early,
    make_pair_parser,
    make_parser,
    named_method,
    read,
    read_pair,
    write_table,
)
from robustda.errors import ConfigError

__all__ = ["demo", "fit", "methods", "predict"]


def fit(arguments: list[str]) -> int:
    """Learn from a noisy labelled source and an unlabelled target."""
    from robustda.engine import Runtime
    from robustda.methods import create_method, method_names
    from robustda.methods.options import options
    from robustda.ranks import Ranks

    if early(arguments, "method") == "auto":
        return _fit_auto(arguments)
    kind, preset = named_method(arguments)
    methods, out = f"auto, or one of {', '.join(method_names())}", "run folder; a stopped run in it is resumed"
    parser = make_pair_parser("fit", fit.__doc__, kind.name, methods, out)
    method_options, runtime_options = options(kind, preset), options(Runtime)
    add_options(parser, [*method_options, *runtime_options])
    chosen = parser.parse_args(arguments)

    method = create_method(kind.name, **{option.name: chosen[option.name] for option in method_options})
    source, target = read_pair(chosen)
    method.fit(
        source,
        target,
        out=chosen.out,
        cache_dir=chosen.cache_dir,
        strict=chosen.strict,
        decisions=chosen.decisions,
        **{option.name: chosen[option.name] for option in runtime_options},
    )
    if not Ranks.of_environment().first:
        return 0
    _print_outcome(method.summary_, Path(chosen.out))
    if chosen.profile and hasattr(method, "profile_"):  # a run that was done before has none
        _print_profile(method.profile_, Path(chosen.out))
    return 0


def _fit_auto(arguments: list[str]) -> int:
    """Try the fast method, and RDA if there is time, and keep the one that should be right more often on the target."""
    import torch

    from robustda.auto import check_alone, fit_auto
    from robustda.engine import Runtime
    from robustda.methods.options import options
    from robustda.ranks import Ranks

    out = "run folder; what was stopped in it goes on"
    parser = make_pair_parser("fit --method auto", _fit_auto.__doc__, "auto", "auto", out)
    parser.add_argument("--minutes", type=float, default=0.0, help="time for more than the fast method")
    parser.add_argument("--seed", type=int, default=0, help="all randomness is a function of it")
    add_backbone(parser)
    runtime_options = [option for option in options(Runtime) if option.name != "profile"]
    add_options(parser, runtime_options)
    chosen = parser.parse_args(arguments)
    ranks = Ranks.of_environment()
    with ranks.joined(torch.device("cpu")):  # together, so that none ends before the first has said why
        ranks.first_says(check_alone)
    source, target = read_pair(chosen)
    method, _ = fit_auto(
        source,
        target,
        out=chosen.out,
        minutes=chosen.minutes,
        settings={name: chosen[name] for name in ("backbone", "weights", "image_size", "seed")},
        decisions=chosen.decisions,
        cache_dir=chosen.cache_dir,
        strict=chosen.strict,
        **{option.name: chosen[option.name] for option in runtime_options},
    )
    _print_outcome(method.summary_, Path(chosen.out))
    return 0


def predict(arguments: list[str]) -> int:
    """Predict with the model of a run folder or an export."""
    from robustda.data.wording import plural
    from robustda.exported import is_export, load_export
    from robustda.predict import load, predict_table

    parser = make_parser("predict", predict.__doc__)
    parser.add_argument("run", type=str, help="the --out folder of a fit or of an export")
    parser.add_argument("data", type=str, help="what to predict: folder, table, list, .tar, .npz, .npy or address")
    parser.add_argument("--out", type=str, required=True, help="where to write: .csv or .parquet")
    add_switch(parser, "probabilities", False, "a column for each class")
    add_columns(parser)
    add_decoding(parser)
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"cannot tell the format of {out}: end the name with .csv or .parquet")
    method = (load_export if is_export(chosen.run) else load)(chosen.run, device=chosen.device)
    columns = {name: chosen[name] for name in COLUMNS}
    domain = read(chosen.data, labels="auto", **columns)
    table = predict_table(
        method,
        domain,
        probabilities=chosen.probabilities,
        cache_dir=chosen.cache_dir,
        strict=chosen.strict,
        progress=True,
    )
    write_table(table, out)
    print(f"{plural(len(table), 'prediction')} written to {out}")
    if "label" in table:
        print(_agreement(table, [str(name) for name in method.classes_]))
    return 0


def _agreement(table: Any, classes: list[str]) -> str:
    """How often labels and predictions agree, of those that can: folders may be called after days, not classes."""
    from robustda.data.wording import listed

    labelled = table[table["label"].notna()]
    labels = labelled["label"].astype(str)
    possible = labels.isin(classes)
    if not possible.any():
        return f"none of the labels is a class of the model ({listed(labels.unique(), 3)}): nothing to compare with"
    right = (labelled["prediction"].astype(str) == labels)[possible].mean()
    others = f"; {len(labels) - possible.sum():,} more have a label that is no class of the model"
    return f"{right:.1%} of {possible.sum():,} labelled ones agree with their label" + others * (not possible.all())


def methods(arguments: list[str]) -> int:
    """List the methods, or show one with its options."""
    from rich.console import Console
    from rich.table import Table

    from robustda.methods import method_names
    from robustda.methods.base import Method
    from robustda.methods.options import options
    from robustda.methods.registry import method_class

    parser = make_parser("methods", methods.__doc__)
    parser.add_argument("name", type=str | None, nargs="?", default=None, help="a method to show in full")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.name is None:
        table = Table("method", "what it does", box=None, pad_edge=False)
        for name in method_names():
            table.add_row(name, method_class(name).summary)
        console.print(table)
        return 0
    kind = method_class(chosen.name)
    console.print(f"[bold]{kind.name}[/bold]: {kind.summary}\n{kind.paper}\n", highlight=False)
    table = Table("option", "default", *(kind.presets[1] if kind.presets else ()), "meaning", box=None, pad_edge=False)
    for option in options(kind):
        presets = [str(values[option.name]) if option.name in values else "" for values in _presets(kind)]
        style = "dim" if option.owner == Method.__name__ else ""
        table.add_row(f"--{option.name}", str(option.default), *presets, option.help, style=style)
    console.print(table)
    return 0


def demo(arguments: list[str]) -> int:
    """Compare four methods on the embedded task: printed digits with wrong labels, to handwritten ones."""
    from robustda.demo import run_demo

    parser = make_parser("demo", demo.__doc__)
    parser.add_argument("--out", type=str, default="runs/demo", help="where the run folders go")
    parser.add_argument("--seeds", type=int, default=3, help="how many times, each with noise of its own")
    parser.add_argument("--steps", type=int, default=0, help="training steps of each method (0: the demo's own)")
    chosen = parser.parse_args(arguments)
    run_demo(Path(chosen.out), seeds=chosen.seeds, steps=chosen.steps)
    return 0


def _presets(kind: type) -> list[dict[str, Any]]:
    presets = getattr(kind, "presets", None)
    return list(presets[1].values()) if presets else []


def _print_outcome(summary: dict[str, Any], out: Path) -> None:
    if "seen_as" in summary:
        print(f"the vectors were seen as {summary['seen_as']} (--backbone identity takes them as they are)")
    if summary["noise_rate"] is not None:
        kept = f"{summary['kept_share']:.0%} of the source was trusted"
        if summary.get("mended_share"):
            kept += f", {summary['mended_share']:.0%} taken for another class"
        print(f"about {summary['noise_rate']:.0%} of the labels look wrong; {kept} ({out / 'trust.csv'})")
    if "expected_accuracy" in summary:
        value, low, high = summary["expected_accuracy"].values()
        print(f"about {value:.0%} of the target should be right ({low:.0%} to {high:.0%}), judged without its labels")
    if summary["target_accuracy"] is not None:
        which = f"step {summary['selected_step']:,}, by {summary['selected_by']}" if "selected_step" in summary else ""
        print(f"target accuracy {summary['target_accuracy']:.1%} ({which or 'final iteration'})")
    if summary.get("placement", "on the device") != "on the device":
        print(f"where the data were while it trained: {summary['placement']}")
    print(f"{summary['seconds']:.0f} s; everything is in {out}, predictions in {out / 'predictions.csv'}")


def _print_profile(lines: list[tuple[str, float, float, int]], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("section", "seconds", "share", "calls", box=None, pad_edge=False)
    for name, seconds, share, calls in lines:
        table.add_row(name, f"{seconds:.2f}", f"{share:.1%}", f"{calls:,}")
    Console().print(table)
    print(f"written to {out / 'profile.csv'}; {out / 'timeline.csv'} has the steps, trace-*.json ten of them in full")
