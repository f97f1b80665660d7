"""Finding settings: tune."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robustda.commands.parsing import COLUMNS, add_options, make_pair_parser, named_method, read_pair
from robustda.errors import RunError

__all__ = ["tune"]

_ELSEWHERE = {"progress", "profile"}  # options of a single run


def tune(arguments: list[str]) -> int:
    """Search options of a method, scored without target labels; an interrupted study goes on by the same command."""
    from robustda.engine import Runtime
    from robustda.methods import method_names
    from robustda.methods.options import options
    from robustda.select import Criterion
    from robustda.tune import tune as run_study

    kind, preset = named_method(arguments)
    methods, out = f"one of {', '.join(method_names())}", "folder of the study; one in it is gone on with"
    shown = "labels of the target: shown, and used for nothing"
    parser = make_pair_parser("tune", tune.__doc__, kind.name, methods, out, shown)
    search = "an option with what to try: option=low:high, option=low:high:log or option=a,b,c; may be given many times"
    parser.add_argument("--search", type=str, nargs="+", action="extend", default=[], help=search)
    parser.add_argument("--trials", type=int, default=20, help="trials of the study, earlier ones counted in")
    parser.add_argument("--criterion", type=Criterion, default="im", help="what a trial is scored by, without labels")
    parser.add_argument("--search_seed", type=int, default=0, help="seed of the search")
    method_options = options(kind, preset)
    runtime_options = [option for option in options(Runtime) if option.name not in _ELSEWHERE]
    add_options(parser, [*method_options, *runtime_options])
    chosen = parser.parse_args(arguments)

    # What is left at its default is left to the method: a preset that is searched must be able to change it.
    params = {option.name: chosen[option.name] for option in method_options if chosen[option.name] != option.default}
    if kind.presets and preset is not None:
        params[kind.presets[0]] = preset
    passed_on = [*(option.name for option in runtime_options), "cache_dir", "strict", "decisions"]
    kept = ["source", "target", *COLUMNS, "target_labels", "strict", "cache_dir", "decisions"]
    found = run_study(
        kind.name,
        *read_pair(chosen),
        chosen.search,
        out=chosen.out,
        trials=chosen.trials,
        criterion=chosen.criterion,
        params=params,
        seed=chosen.search_seed,
        show=True,
        config={key: chosen[key] for key in kept if chosen[key] is not None},
        progress=False,
        **{key: chosen[key] for key in passed_on},
    )
    if found.best is None:
        raise RunError(f"no trial has ended well: see {found.folder / 'trials.csv'}, and search smaller values")
    _print_outcome(found)
    return 0


def _print_outcome(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    labelled = found.table["target_accuracy"].notna().any()
    heads = ["trial", found.criterion, *found.space, *(["accuracy (not used)"] if labelled else []), "s"]
    table = Table(*heads, box=None, pad_edge=False)
    ordered = found.table.sort_values(["score", "trial"], ascending=[False, True], na_position="last")
    for line in ordered.head(10).to_dict("records"):
        score = f"{line['score']:.4f}" if line["state"] == "ended" else line["state"]
        values = [_shown(line[name]) for name in found.space]
        accuracy = [f"{100 * line['target_accuracy']:.1f}" if line["state"] == "ended" else ""] if labelled else []
        seconds = f"{line['seconds']:.0f}" if line["state"] == "ended" else ""
        style = "bold" if line["trial"] == found.best else ""
        table.add_row(str(line["trial"]), score, *values, *accuracy, seconds, style=style)
    Console().print(table)
    ended = (found.table["state"] == "ended").sum()
    print(f"{ended} of {len(found.table)} trials ended; all of them are in {found.folder / 'trials.csv'}")
    best = found.folder / "best.yaml"
    print(f"the best is {found.best_run}; the plot is {found.folder / 'trials.png'}")
    print(f"fit with its settings: robustda fit --config {best} --out {Path('runs') / 'best'}")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
