"""Looking back at runs: report."""

from __future__ import annotations

from pathlib import Path

from robustda.commands.parsing import make_parser

__all__ = ["report"]


def report(arguments: list[str]) -> int:
    """Tell how a run went, or compare several; writes a page."""
    from robustda.report import report as look_back
    from robustda.report.run_map import MOST_POINTS

    parser = make_parser("report", report.__doc__)
    parser.add_argument("runs", type=str, nargs="+", help="the --out folder of a fit, or several to compare")
    where = "the page, .html, or a folder for it (else report.html in the run folder, or comparison.html here)"
    parser.add_argument("--out", type=str | None, default=None, help=where)
    target = "the target, for the map of it (else where the run had it)"
    parser.add_argument("--target", type=str | None, default=None, help=target)
    parser.add_argument("--points", type=int, default=MOST_POINTS, help="examples on that map (0: no map)")
    parser.add_argument("--cache_dir", type=str | None, default=None, help="where decoded images are kept")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    chosen = parser.parse_args(arguments)
    found = look_back(
        *chosen.runs, target=chosen.target, points=chosen.points, device=chosen.device, cache_dir=chosen.cache_dir
    )
    several = len(found.runs) > 1
    page = found.save(chosen.out or (Path() if several else found.runs[0].path))
    print("\n".join(found.headline))
    if isinstance(found.map, str) and chosen.points and not several:
        print(f"no map of the target: {found.map}")
    print(f"open {page} in a browser")
    return 0
