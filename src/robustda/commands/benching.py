"""The paper's tables and figures: bench."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from robustda.commands.parsing import add_switch, make_parser
from robustda.errors import ConfigError

if TYPE_CHECKING:
    from robustda.bench.grid import Outcome

__all__ = ["bench"]


def bench(arguments: list[str]) -> int:
    """Fill a table of the paper: what is done is kept, and the same command goes on with the rest."""
    from functools import partial

    from robustda.bench.cells import BatchNorm, Protocol, run_cell
    from robustda.bench.criteria import collect_evaluations, merge_evaluations
    from robustda.bench.data import data_root
    from robustda.bench.experiments import EXPERIMENTS, cells_of, experiment
    from robustda.bench.figures import write_figures
    from robustda.bench.grid import Engine, run_grid, state_of
    from robustda.bench.results import collect, lookup, merge, read_results, read_table, write_results
    from robustda.bench.tables import fill, markdown, write_tables

    parser = make_parser("bench", bench.__doc__)
    parser.add_argument(
        "name", type=str, help=f"one of {', '.join(EXPERIMENTS)}, fig-losses, fig-tsne, fig-discrepancy, criteria"
    )
    parser.add_argument("--out", type=str, default="runs/bench", help="where the cells and tables go")
    parser.add_argument("--data", type=str | None, default=None, help="folder with the data (else ROBUSTDA_DATA)")
    parser.add_argument(
        "--protocol",
        type=Protocol,
        default="features",
        help="frozen features, the same of images and their mirror images, these pooled by their peaks, or fine-tuned",
    )
    parser.add_argument("--methods", type=list[str], default=[], help="rows or methods, such as [rda,mdd] (empty: all)")
    parser.add_argument("--tasks", type=list[str], default=[], help="tasks, such as [A-W,D-A] (empty: all)")
    parser.add_argument("--noises", type=list[str], default=[], help="label, feature, mixed (empty: all)")
    parser.add_argument("--seeds", type=list[int], default=[0, 1, 2], help="seeds of the methods")
    parser.add_argument(
        "--draws", type=list[str | int], default=[], help="authors (where known), or seeds of simulated noise"
    )
    parser.add_argument("--steps", type=int, default=0, help="training steps (0: 2,000 on features, 3,000 on images)")
    parser.add_argument(
        "--batch_norm", type=BatchNorm, default="learn", help="of a backbone that is fine-tuned: as the methods' option"
    )
    rate = "of a backbone that is fine-tuned: as the methods' option (0: as each method has it)"
    parser.add_argument("--backbone_rate", type=float, default=0.0, help=rate)
    parser.add_argument(
        "--engine", type=Engine, default="inline", help="one after the other, in processes, or on a Ray cluster"
    )
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time, if not inline")
    parser.add_argument("--limit_minutes", type=float, default=0.0, help="begin no cell after so many minutes")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    which = (
        "of the final iteration, chosen without target labels (im, snd, bnm, dev), best on the target, an oracle's, "
    )
    which += "or all: final, im and best side by side"
    kinds = Literal["final", "im", "snd", "bnm", "dev", "best", "all"]
    parser.add_argument("--accuracy", type=kinds, default="final", help=which)
    add_switch(parser, "compile", False, "compile a backbone that is fine-tuned: as fit's option")
    add_switch(parser, "print_only", False, "run nothing: print the table from the results file that is in --out")
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if not chosen.seeds or min(chosen.seeds) < 0:
        raise ConfigError(f"seeds is {chosen.seeds}: give at least one number, none below 0, such as [0]")
    if chosen.name == "criteria":
        return _bench_criteria(out)
    if chosen.name == "fig-discrepancy":
        return _bench_discrepancy(chosen, out)
    if chosen.name == "fig-tsne":
        return _bench_tsne(chosen, out)
    if chosen.name == "fig-losses":
        return _bench_losses(chosen, out)
    named = experiment(chosen.name)
    names = ("protocol", "tasks", "noises", "seeds", "steps", "batch_norm", "backbone_rate")
    how = {name: chosen[name] for name in names}
    how["draws"] = [str(draw) for draw in chosen["draws"]]
    placed = cells_of(named, rows=chosen.methods, **how)
    drawn = {cell.draw for _, _, cell in placed}
    if chosen.protocol != "finetune" and (chosen.batch_norm != "learn" or chosen.backbone_rate):
        raise ConfigError("batch_norm and backbone_rate are of a backbone that is trained: add --protocol finetune")
    if not placed:
        raise ConfigError(f"{chosen.name} has no such cells: name tasks and noises that it has")
    cells = [cell for _, _, cell in placed]
    file = out / "results.csv"
    results = read_results(file)
    if not chosen.print_only:
        how = {name: chosen[name] for name in ("engine", "jobs", "device", "limit_minutes")}
        todo = [cell for cell, line in zip(cells, lookup(results, cells), strict=True) if line is None]
        run_grid(todo, out, data_root(chosen.data), run=partial(run_cell, compile=chosen.compile), **how)
        results = merge(results, collect(cells, out))
        write_results(results, file)
        judged = out / "evaluations.csv"
        write_results(merge_evaluations(read_table(judged), collect_evaluations(cells, out)), judged)
    filled = fill(named, placed, results, chosen.accuracy)
    folder = "finetune-keep" if (chosen.protocol, chosen.batch_norm) == ("finetune", "keep") else chosen.protocol
    if chosen.protocol == "finetune" and chosen.backbone_rate:
        folder += f"-{chosen.backbone_rate:g}"
    if "authors" in named.draws and "authors" not in drawn:  # not over the table of the authors' draws
        folder += "-simulated"
    paths = write_tables(filled, out / "tables" / folder, chosen.accuracy)
    if chosen.accuracy == "final":
        write_figures(filled, out / "figures" / folder)
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
        raise ConfigError(_nothing(outcome, out))
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


def _bench_tsne(chosen: Any, out: Path) -> int:
    from functools import partial

    from robustda.bench.cells import run_cell
    from robustda.bench.data import data_root
    from robustda.bench.grid import run_grid
    from robustda.bench.tsne import draw_tsne, forget_without_features, tsne_cells
    from robustda.methods import method_class

    for name in chosen.methods:
        method_class(name)  # which says if there is no such method
    cells = tsne_cells(chosen.protocol, chosen.seeds[0], chosen.steps, chosen.methods)
    forget_without_features(cells, out)
    how = {name: chosen[name] for name in ("engine", "jobs", "device", "limit_minutes")}
    outcome = run_grid(cells, out, data_root(chosen.data), run=partial(run_cell, keep_features=True), **how)
    folder = out / "figures" / chosen.protocol
    folder.mkdir(parents=True, exist_ok=True)
    found = draw_tsne(cells, out, [folder / "fig-tsne.png", folder / "fig-tsne.svg"])
    if not found:
        raise ConfigError(_nothing(outcome, out))
    for name, (accuracy, apart) in found.items():
        print(f"{name:<12} {accuracy:.1%} right, {apart:.1%} of 5 nearest neighbours of the same class")
    print(f"{outcome.done} of {len(cells)} cells done; the figure is {folder / 'fig-tsne.png'}")
    return 1 if outcome.failed else 0


def _nothing(outcome: Outcome, out: Path) -> str:
    if outcome.failed:
        return f"all cells that ended have failed: error.txt in the folders of {out / 'cells'} says why"
    return "no cell is done yet: give it more time"


def _bench_discrepancy(chosen: Any, out: Path) -> int:
    from robustda.bench.data import data_root
    from robustda.bench.discrepancy import draw_discrepancy, measure_discrepancy

    if chosen.protocol != "features":
        raise ConfigError("fig-discrepancy is measured on frozen features: leave --protocol out")
    table = measure_discrepancy(data_root(chosen.data), out, chosen.seeds, device=chosen.device)
    folder = out / "figures" / "features"
    folder.mkdir(parents=True, exist_ok=True)
    draw_discrepancy(table, [folder / "fig-discrepancy.png", folder / "fig-discrepancy.svg"])
    means = table.drop(columns="seed").groupby("rate").mean()
    means.to_csv(folder / "fig-discrepancy.csv", float_format="%.4f")
    print(means.to_string(float_format="%.3f"))
    print(f"the figure is {folder / 'fig-discrepancy.png'}")
    return 0


def _bench_criteria(out: Path) -> int:
    """How well the label-free criteria rank, from all the runs that --out has seen."""
    from robustda.bench.criteria import ranking_of_methods, ranking_of_moments
    from robustda.bench.results import read_table

    table = read_table(out / "evaluations.csv")
    if table.empty:
        raise ConfigError(f"there are no evaluations in {out}: run some cells first, such as robustda bench table1")
    folder = out / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    blocks = []
    for title, ranking in (
        ("Moments of one run", ranking_of_moments(table)),
        ("Methods on one task, at their ends", ranking_of_methods(table)),
    ):
        if ranking.empty:
            continue
        lines = ["| " + " | ".join(ranking.columns) + " |", "|---" * len(ranking.columns) + "|"]
        lines += ["| " + " | ".join(_plain(value) for value in line) + " |" for line in ranking.itertuples(index=False)]
        blocks.append(f"{title}, ranked by criteria that see no target label\n\n" + "\n".join(lines))
    text = "\n\n".join(blocks) + "\n"
    (folder / "criteria.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {folder / 'criteria.md'}")
    return 0


def _plain(value: object) -> str:
    """A share with two digits, a percentage with one."""
    return f"{value:.{2 if abs(value) <= 1 else 1}f}" if isinstance(value, float) else str(value)
