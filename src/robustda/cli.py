"""The command line: ``robustda fit | predict | features | audit | corrupt | bench | methods | demo``.

Every option of a method is an option here, and a key in ``--config file.yaml``; ``--print_config`` writes such a file.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robustda._version import __version__
from robustda.errors import ConfigError, RobustDAError, RobustDAWarning, RunStopped

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from robustda.data.domain import Domain

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 well, 2 a mistake that the user can mend, 128 + n signal n."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return _run(given)
    except RobustDAError as error:
        print(f"robustda: error: {error}", file=sys.stderr)
        return 2
    except RunStopped as stopped:
        print(f"robustda: stopped by {stopped.by.name}; the same command takes it up again", file=sys.stderr)
        return 128 + stopped.by
    except KeyboardInterrupt:
        print("robustda: interrupted; the same command with --out takes it up again", file=sys.stderr)
        return 130


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if given[0] == "--version":
        print(f"robustda {__version__}")
        return 0
    if given[0] not in _COMMANDS:
        close = get_close_matches(given[0], _COMMANDS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(_COMMANDS)}"
        raise ConfigError(f"there is no command {given[0]!r}: {hint}")
    return _COMMANDS[given[0]](given[1:])


def _audit(arguments: list[str]) -> int:
    """Tell how noisy the labels are, which examples look wrong, and whether it will carry over; writes a page."""
    from robustda.methods.base import Method
    from robustda.methods.options import options
    from robustda.report import audit

    parser = _parser("audit", _audit.__doc__)
    parser.add_argument("source", type=str, help="labelled data: folder, .csv, .parquet or .npz")
    parser.add_argument(
        "--target", type=str | None, default=None, help="data of the same kind that a model is meant for"
    )
    parser.add_argument("--out", type=str, required=True, help="folder for audit.html, issues.csv and audit.json")
    decisions = "decisions made after an earlier audit, applied first"
    parser.add_argument("--decisions", type=str | None, default=None, help=decisions)
    features = "features made before, with the ids of the images: .npz, .csv or .parquet"
    parser.add_argument("--features", type=str | None, default=None, help=features)
    parser.add_argument("--target_features", type=str | None, default=None, help="the same for the target")
    for option in options(Method):
        if option.name in ("backbone", "weights", "image_size"):
            parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=option.help)
    parser.add_argument("--label", type=str, default="label", help="the label column of a table")
    parser.add_argument("--path_column", type=str | None, default=None, help="the column of image paths in a table")
    parser.add_argument("--id_column", type=str | None, default=None, help="the column of ids in a table")
    _add_switch(parser, "strict", False, "make unreadable images an error")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    parser.add_argument("--seed", type=int, default=0, help="of folds and intervals")
    chosen = parser.parse_args(arguments)
    columns = {"label": chosen.label, "path_column": chosen.path_column, "id_column": chosen.id_column}
    target = None if chosen.target is None else _read(chosen.target, labels="ignore", **columns)
    passed_on = ["decisions", "features", "target_features", "backbone", "weights", "image_size"]
    passed_on += ["strict", "cache_dir", "device", "seed"]
    found = audit(
        _read(chosen.source, labels="required", **columns),
        target,
        progress=True,
        **{name: chosen[name] for name in passed_on},
    )
    page = found.save(chosen.out)
    print("\n".join(found.headline))
    print(f"{len(found.suspects):,} examples to look at: open {page} in a browser")
    return 0


def _fit(arguments: list[str]) -> int:
    """Learn from a noisy labelled source and an unlabelled target."""
    from robustda.engine import Runtime
    from robustda.methods import create_method, method_names
    from robustda.methods.base import method_class
    from robustda.methods.options import options

    # The options depend on the method, so that is looked for first, on the command line and then in the config file.
    name = _early(arguments, "method") or "rda"
    kind = method_class(name)
    preset = _early(arguments, kind.presets[0]) if kind.presets else None
    if kind.presets and preset is not None and preset not in kind.presets[1]:
        raise ConfigError(f"{kind.presets[0]} is {preset!r}: choose one of {', '.join(kind.presets[1])}")
    parser = _parser("fit", _fit.__doc__)
    parser.add_argument("--config", action="config", help="a YAML file with any of these options")
    parser.add_argument("--method", type=str, default=name, help=f"one of {', '.join(method_names())}")
    parser.add_argument("--source", type=str, required=True, help="labelled data: folder, .csv, .parquet or .npz")
    parser.add_argument("--target", type=str, required=True, help="unlabelled data of the same kind")
    parser.add_argument("--out", type=str, required=True, help="run folder; a stopped run in it is resumed")
    decisions = "what was decided about source examples: the decisions.csv of an audit page"
    parser.add_argument("--decisions", type=str | None, default=None, help=decisions)
    parser.add_argument("--label", type=str, default="label", help="the label column of a table")
    parser.add_argument("--path_column", type=str | None, default=None, help="the column of image paths in a table")
    parser.add_argument("--id_column", type=str | None, default=None, help="the column of ids in a table")
    target_labels = Literal["auto", "ignore"]
    parser.add_argument("--target_labels", type=target_labels, default="auto", help="labels of the target: for scoring")
    _add_switch(parser, "strict", False, "make unreadable images an error")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")
    method_options, runtime_options = options(kind, preset), options(Runtime)
    for option in [*method_options, *runtime_options]:
        if option.type is bool:
            _add_switch(parser, option.name, option.default, option.help)
        else:
            parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=option.help)
    chosen = parser.parse_args(arguments)

    method = create_method(name, **{option.name: chosen[option.name] for option in method_options})
    columns = {"label": chosen.label, "path_column": chosen.path_column, "id_column": chosen.id_column}
    source = _read(chosen.source, labels="required", **columns)
    target = _read(chosen.target, labels=chosen.target_labels, **columns)
    method.fit(
        source,
        target,
        out=chosen.out,
        cache_dir=chosen.cache_dir,
        strict=chosen.strict,
        decisions=chosen.decisions,
        **{option.name: chosen[option.name] for option in runtime_options},
    )
    _print_outcome(method.summary_, Path(chosen.out))
    if chosen.profile and hasattr(method, "profile_"):  # a run that was done before has none
        _print_profile(method.profile_, Path(chosen.out))
    return 0


def _predict(arguments: list[str]) -> int:
    """Predict with the model of a run folder."""
    from robustda.predict import load, predict_table

    parser = _parser("predict", _predict.__doc__)
    parser.add_argument("run", type=str, help="the --out folder of a fit")
    parser.add_argument("data", type=str, help="what to predict: folder, .csv, .parquet or .npz")
    parser.add_argument("--out", type=str, required=True, help="where to write: .csv or .parquet")
    _add_switch(parser, "probabilities", False, "a column for each class")
    parser.add_argument("--label", type=str, default="label", help="the label column of a table, if it has one")
    parser.add_argument("--path_column", type=str | None, default=None, help="the column of image paths in a table")
    parser.add_argument("--id_column", type=str | None, default=None, help="the column of ids in a table")
    _add_switch(parser, "strict", False, "make unreadable images an error")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"cannot tell the format of {out}: end the name with .csv or .parquet")
    method = load(chosen.run, device=chosen.device)
    columns = {"label": chosen.label, "path_column": chosen.path_column, "id_column": chosen.id_column}
    domain = _read(chosen.data, labels="auto", **columns)
    table = predict_table(
        method,
        domain,
        probabilities=chosen.probabilities,
        cache_dir=chosen.cache_dir,
        strict=chosen.strict,
        progress=True,
    )
    _write_table(table, out)
    print(f"{len(table):,} predictions written to {out}")
    if "label" in table:
        known = table["label"].notna()
        right = (table["prediction"].astype(str) == table["label"].astype(str))[known].mean()
        print(f"{right:.1%} of {known.sum():,} labelled ones agree with their label")
    return 0


def _corrupt(arguments: list[str]) -> int:
    """Write a copy of a data set with noise put in, and a record of what was done."""
    from robustda.noise import corrupt, corrupt_folder

    parser = _parser("corrupt", _corrupt.__doc__)
    parser.add_argument("data", type=str, help="folder, .csv, .parquet or .npz")
    parser.add_argument("--out", type=str, required=True, help="where the noisy copy goes")
    parser.add_argument("--kind", type=Literal["label", "feature", "mixed"], default="mixed", help="what is corrupted")
    parser.add_argument(
        "--rate", type=float, default=0.4, help="share of examples to corrupt; mixed gives half to each"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same noise")
    transition = "symmetric, uniform, pair, or a .csv or .npy file with a matrix of p(given | true)"
    parser.add_argument("--transition", type=str, default="symmetric", help=transition)
    parser.add_argument("--blur", type=float, default=8.0, help="sigma of the blur, in pixels of the original image")
    parser.add_argument("--scale", type=float, default=3.0, help="noise on vectors, in standard deviations")
    parser.add_argument("--label", type=str, default="label", help="the label column of a table")
    chosen = parser.parse_args(arguments)
    data, out = Path(chosen.data), Path(chosen.out)
    matrix = _transition(chosen.transition)
    if data.is_dir():
        record = corrupt_folder(
            data, out, chosen.kind, chosen.rate, seed=chosen.seed, transition=matrix, blur=chosen.blur, progress=True
        )
        noted = out / "noise.csv"
    else:
        if out.suffix not in (".npz", ".csv", ".parquet"):
            raise ConfigError(f"cannot tell the format of {out}: end the name with .npz, .csv or .parquet")
        domain = _read(data, labels="required", label=chosen.label)
        _check_writable(domain, out)
        noisy, record = corrupt(
            domain,
            chosen.kind,
            chosen.rate,
            seed=chosen.seed,
            transition=matrix,
            blur=chosen.blur,
            scale=chosen.scale,
        )
        _write_domain(noisy, out, chosen.label)
        noted = out.with_suffix(".noise.csv")
        record.save(noted)
    wrong, bad = int(record.wrong_labels.sum()), int(record.corrupted_features.sum())
    print(f"{len(record.ids):,} examples: {wrong:,} with a wrong label, {bad:,} with corrupted features → {out}")
    print(f"what was done is in {noted}")
    return 0


def _features(arguments: list[str]) -> int:
    """Turn images into the vectors that a frozen backbone makes of them."""
    from robustda.features import extract_features
    from robustda.methods.base import Method
    from robustda.methods.options import options
    from robustda.noise import NoiseRecord

    parser = _parser("features", _features.__doc__)
    parser.add_argument("data", type=str, help="folder of images, or a table with a column of image paths")
    parser.add_argument("--out", type=str, required=True, help="where to write: .npz, .csv or .parquet")
    noise = "corrupt the clean images first, as this record says: what robustda corrupt wrote, or a table like it"
    parser.add_argument("--noise", type=str | None, default=None, help=noise)
    for option in options(Method):
        if option.name in ("backbone", "weights", "image_size"):
            parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=option.help)
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    parser.add_argument("--precision", type=Literal["float32", "bfloat16"], default="float32", help="of the backbone")
    parser.add_argument("--label", type=str, default="label", help="the label column of a table, if it has one")
    parser.add_argument("--path_column", type=str | None, default=None, help="the column of image paths in a table")
    parser.add_argument("--id_column", type=str | None, default=None, help="the column of ids in a table")
    _add_switch(parser, "strict", False, "make unreadable images an error")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if out.suffix not in (".npz", ".csv", ".parquet"):
        raise ConfigError(f"cannot tell the format of {out}: end the name with .npz, .csv or .parquet")
    columns = {"label": chosen.label, "path_column": chosen.path_column, "id_column": chosen.id_column}
    domain = _read(chosen.data, labels="auto", **columns)
    if chosen.noise is not None:
        domain = NoiseRecord.load(chosen.noise).apply(domain)
    passed_on = ("backbone", "weights", "image_size", "device", "precision", "strict", "cache_dir")
    found = extract_features(domain, progress=True, **{name: chosen[name] for name in passed_on})
    _write_domain(found, out, chosen.label)
    print(f"{len(found):,} vectors of {found.shape[0]:,} features written to {out}")
    return 0


def _bench(arguments: list[str]) -> int:
    """Fill a table of the paper: what is done is kept, and the same command goes on with the rest."""
    from robustda.bench.cells import Protocol
    from robustda.bench.data import data_root
    from robustda.bench.experiments import EXPERIMENTS, cells_of, experiment
    from robustda.bench.figures import write_figures
    from robustda.bench.grid import Engine, run_grid, state_of
    from robustda.bench.results import collect, lookup, merge, read_results, write_results
    from robustda.bench.tables import fill, markdown, write_tables

    parser = _parser("bench", _bench.__doc__)
    parser.add_argument("name", type=str, help=f"one of {', '.join(EXPERIMENTS)}, fig-losses")
    parser.add_argument("--out", type=str, default="runs/bench", help="where the cells and tables go")
    parser.add_argument("--data", type=str | None, default=None, help="folder with the data (else ROBUSTDA_DATA)")
    parser.add_argument(
        "--protocol", type=Protocol, default="features", help="frozen features, or fine-tuned on images"
    )
    parser.add_argument("--methods", type=list[str], default=[], help="rows or methods, such as [rda,mdd] (empty: all)")
    parser.add_argument("--tasks", type=list[str], default=[], help="tasks, such as [A-W,D-A] (empty: all)")
    parser.add_argument("--noises", type=list[str], default=[], help="label, feature, mixed (empty: all)")
    parser.add_argument("--seeds", type=list[int], default=[0, 1, 2], help="seeds of the methods")
    parser.add_argument("--draws", type=list[str], default=["authors"], help="authors, or seeds of simulated noise")
    parser.add_argument("--steps", type=int, default=0, help="training steps (0: 2,000 on features, 3,000 on images)")
    parser.add_argument(
        "--engine", type=Engine, default="inline", help="one after the other, in processes, or on a Ray cluster"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, if not inline")
    parser.add_argument("--limit_minutes", type=float, default=0.0, help="begin no cell after so many minutes")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    which = "of the final iteration, chosen without target labels (im, snd, bnm), or best on the target, an oracle's"
    parser.add_argument("--accuracy", type=Literal["final", "im", "snd", "bnm", "best"], default="final", help=which)
    _add_switch(parser, "print_only", False, "run nothing: print the table from the results file that is in --out")
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if chosen.name == "fig-losses":
        return _bench_losses(chosen, out)
    named = experiment(chosen.name)
    how = {name: chosen[name] for name in ("protocol", "tasks", "noises", "seeds", "draws", "steps")}
    placed = cells_of(named, rows=chosen.methods, **how)
    if not placed:
        raise ConfigError(f"{chosen.name} has no such cells: name tasks and noises that it has")
    cells = [cell for _, _, cell in placed]
    file = out / "results.csv"
    results = read_results(file)
    if not chosen.print_only:
        how = {name: chosen[name] for name in ("engine", "jobs", "device", "limit_minutes")}
        todo = [cell for cell, line in zip(cells, lookup(results, cells), strict=True) if line is None]
        run_grid(todo, out, data_root(chosen.data), **how)
        results = merge(results, collect(cells, out))
        write_results(results, file)
    filled = fill(named, placed, results, chosen.accuracy)
    paths = write_tables(filled, out / "tables" / chosen.protocol, chosen.accuracy)
    if chosen.accuracy == "final":
        write_figures(filled, out / "figures" / chosen.protocol)
    print(markdown(filled))
    missing = sum(line is None for line in lookup(results, cells))
    failed = sum(state_of(cell, out) == "failed" for cell in cells)
    print(f"{len(cells) - missing} of {len(cells)} cells done, {failed} failed; tables in {paths[0].parent}")
    return 1 if failed else 0


def _bench_losses(chosen: Any, out: Path) -> int:
    from robustda.bench.data import data_root
    from robustda.bench.grid import run_grid
    from robustda.bench.losses import collect_losses, draw_losses, loss_cells

    root, cells = data_root(chosen.data), loss_cells(chosen.protocol, chosen.seeds)
    how = {name: chosen[name] for name in ("engine", "jobs", "device", "limit_minutes")}
    outcome = run_grid(cells, out, root, **how)
    table = collect_losses(cells, out, root)
    if table.empty:
        raise ConfigError("no cell is done yet: give it more time")
    folder = out / "figures" / chosen.protocol
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in (".png", ".svg"):
        draw_losses(table, folder / f"fig-losses{suffix}")
    shares = table.groupby(["noise", "group"], sort=False).agg(
        examples=("trusted", "size"), mean_loss=("mean_loss", "mean"), trusted=("trusted", "mean")
    )
    shares.to_csv(folder / "fig-losses.csv", float_format="%.4f")
    print(shares.to_string(float_format="%.2f"))
    print(f"{outcome.done} of {len(cells)} cells done; the figure is {folder / 'fig-losses.png'}")
    return 1 if outcome.failed else 0


def _data(arguments: list[str]) -> int:
    """Check a local copy of one of the paper's data sets."""
    from robustda.data.catalog import dataset
    from robustda.data.check import WHERE, check_dataset

    parser = _parser("data", _data.__doc__)
    parser.add_argument("what", type=Literal["check"], help="check")
    parser.add_argument("name", type=str, help="office31, office-home or bing-caltech")
    parser.add_argument("path", type=str, help="the folder that holds a folder for each domain")
    _add_switch(parser, "read", True, "decode every image once, to find those that cannot be read")
    chosen = parser.parse_args(arguments)
    checks = check_dataset(chosen.name, chosen.path, read=chosen.read, progress=True)
    for check in checks:
        print(f"{check.name:<12} {check.images:>6,} images in {len(check.counts)} classes")
        for problem in check.problems:
            print(f"{'':<12} {problem}")
    if any(check.problems for check in checks):
        about = dataset(chosen.name).name
        print(f"{about} is {WHERE[about]}")
        return 1
    print("it is whole")
    return 0


def _methods(arguments: list[str]) -> int:
    """List the methods, or show one with its options."""
    from rich.console import Console
    from rich.table import Table

    from robustda.methods import method_names
    from robustda.methods.base import Method, method_class
    from robustda.methods.options import options

    parser = _parser("methods", _methods.__doc__)
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


def _demo(arguments: list[str]) -> int:
    """Compare three methods on the embedded task: printed digits with wrong labels, to handwritten ones."""
    from robustda.demo import run_demo

    parser = _parser("demo", _demo.__doc__)
    parser.add_argument("--out", type=str, default="runs/demo", help="where the run folders go")
    parser.add_argument("--seeds", type=int, default=3, help="how many times, each with noise of its own")
    parser.add_argument("--steps", type=int, default=0, help="training steps of each method (0: the demo's own)")
    chosen = parser.parse_args(arguments)
    run_demo(Path(chosen.out), seeds=chosen.seeds, steps=chosen.steps)
    return 0


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "fit": _fit,
    "predict": _predict,
    "features": _features,
    "audit": _audit,
    "corrupt": _corrupt,
    "bench": _bench,
    "data": _data,
    "methods": _methods,
    "demo": _demo,
}


def _overview() -> str:
    lines = [f"robustda {__version__}: domain adaptation when the source data are noisy", ""]
    lines += [f"  robustda {name:<9} {command.__doc__}" for name, command in _COMMANDS.items()]
    return "\n".join([*lines, "", "robustda COMMAND --help shows the options of a command."])


def _parser(name: str, description: str | None) -> ArgumentParser:
    from jsonargparse import ArgumentParser

    class Parser(ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> Any:
            known = [action.dest for action in self._actions]
            raise ConfigError(_one_line(message, name, known))

    # Without abbreviations, since `_early` would not see --meth, nor --var and the preset that it names.
    return Parser(prog=f"robustda {name}", description=description, exit_on_error=True, allow_abbrev=False)


_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list of them"}


def _add_switch(parser: ArgumentParser, name: str, default: bool, help: str) -> None:
    """An option that is on when it stands alone, and may be given true or false."""
    parser.add_argument(f"--{name}", type=bool, default=default, nargs="?", const=True, help=help)


def _one_line(message: str, command: str, known: Sequence[str] = ()) -> str:
    """What the parser has to say, in everyday words, with the option that may have been meant."""
    text = " ".join(message.split())
    if wrong := re.search(r'Parser key "(\w+)": .*value: (.*)$', text):
        kinds = re.findall(r"Expected an? (?:<class '(\w+)'>|typing\.Literal\[(.*?)\])", text)
        wanted = [_KINDS.get(kind, kind) or "one of " * ("," in some) + some.replace("'", "") for kind, some in kinds]
        text = f"{wrong[1]} is {wrong[2]!r}: give {' or '.join(wanted)}" if wanted else text
    unknown = re.search(r"unrecognized arguments: --([\w-]+)|Option '([\w-]+)'", text)
    close = get_close_matches(unknown[1] or unknown[2], known, 1) if unknown else []
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{text} ({hint}robustda {command} --help shows the options)"


def _early(arguments: list[str], option: str) -> str | None:
    """The value of an option before the parser that knows it exists: from the command line, else the config file."""
    value = _last_given(arguments, f"--{option}")
    config = _last_given(arguments, "--config")
    if value is None and config is not None and Path(config).is_file():
        import yaml

        try:
            content = yaml.safe_load(Path(config).read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"the config file {config} is not YAML: {_one_line(str(error), 'fit')}") from error
        value = content.get(option) if isinstance(content, dict) else None
    return None if value is None else str(value)


def _last_given(arguments: list[str], option: str) -> str | None:
    found = None
    for number, argument in enumerate(arguments):
        if argument == option and number + 1 < len(arguments):
            found = arguments[number + 1]
        elif argument.startswith(f"{option}="):
            found = argument.partition("=")[2]
    return found


def _read(path: str | Path, **how: Any) -> Domain:
    from robustda.data.domain import Domain

    return Domain.read(path, **how)


def _presets(kind: type) -> list[dict[str, Any]]:
    presets = getattr(kind, "presets", None)
    return list(presets[1].values()) if presets else []


def _transition(value: str) -> Any:
    import numpy as np

    if not value.endswith((".csv", ".npy")):
        return value
    try:
        return (
            np.load(value, allow_pickle=False) if value.endswith(".npy") else np.loadtxt(value, delimiter=",", ndmin=2)
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the transition matrix {value} cannot be read ({error}): give a file with K rows of K numbers"
        ) from error


def _check_writable(domain: Domain, out: Path) -> None:
    import numpy as np

    if not isinstance(domain.x, np.ndarray):
        raise ConfigError(f"{domain.name} lists image files: give a folder of images, with one sub-folder a class")
    if domain.kind == "images" and out.suffix != ".npz":
        raise ConfigError(f"images do not go into a table: end {out} with .npz")


def _write_domain(domain: Domain, out: Path, label: str) -> None:
    import numpy as np
    import pandas as pd

    if out.suffix == ".npz":
        with suppress(OSError):  # saving says what is wrong with the place
            out.parent.mkdir(parents=True, exist_ok=True)
        domain.save_npz(out)
        return
    x = np.asarray(domain.x)
    names = domain.features or tuple(f"x{number}" for number in range(x.shape[1]))
    table = pd.DataFrame(x, columns=list(names))
    table.insert(0, "id", domain.ids)
    if domain.y is not None:
        table[label] = domain.labels
    _write_table(table, out)


def _write_table(table: Any, out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".{out.name}.part")
        table.to_csv(temporary, index=False) if out.suffix == ".csv" else table.to_parquet(temporary, index=False)
        temporary.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out} ({error.strerror}): choose another place") from error


def _print_outcome(summary: dict[str, Any], out: Path) -> None:
    if summary["noise_rate"] is not None:
        kept = f"{summary['kept_share']:.0%} of the source was trusted"
        print(f"about {summary['noise_rate']:.0%} of the labels look wrong; {kept} ({out / 'trust.csv'})")
    if summary["target_accuracy"] is not None:
        which = f"step {summary['selected_step']:,}, by {summary['selected_by']}" if "selected_step" in summary else ""
        print(f"target accuracy {summary['target_accuracy']:.1%} ({which or 'final iteration'})")
    print(f"{summary['seconds']:.0f} s; everything is in {out}, predictions in {out / 'predictions.csv'}")


def _print_profile(lines: list[tuple[str, float, float, int]], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("section", "seconds", "share", "calls", box=None, pad_edge=False)
    for name, seconds, share, calls in lines:
        table.add_row(name, f"{seconds:.2f}", f"{share:.1%}", f"{calls:,}")
    Console().print(table)
    print(f"written to {out / 'profile.csv'}; {out / 'timeline.csv'} has the steps, trace-*.json ten of them in full")


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, RobustDAWarning):
        print(f"robustda: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
