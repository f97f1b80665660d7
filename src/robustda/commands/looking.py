"""Data before any learning: audit, features, corrupt, data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from robustda.commands.parsing import (
    COLUMNS,
    add_backbone,
    add_columns,
    add_decoding,
    add_switch,
    check_writable,
    make_parser,
    read,
    without_name,
    write_domain,
)
from robustda.errors import ConfigError

__all__ = ["audit", "corrupt", "data", "features"]


def audit(arguments: list[str]) -> int:
    """Tell how noisy the labels are, which examples look wrong, and whether it will carry over; writes a page."""
    from robustda.report import audit as judge

    parser = make_parser("audit", audit.__doc__)
    parser.add_argument("source", type=str, help="labelled data: folder, .csv, .parquet or .npz (--source will do)")
    parser.add_argument(
        "--target", type=str | None, default=None, help="data of the same kind that a model is meant for"
    )
    parser.add_argument("--out", type=str, required=True, help="folder for audit.html, issues.csv and audit.json")
    decisions = "decisions made after an earlier audit, applied first"
    parser.add_argument("--decisions", type=str | None, default=None, help=decisions)
    features = "features made before, with the ids of the images: .npz, .csv or .parquet"
    parser.add_argument("--features", type=str | None, default=None, help=features)
    parser.add_argument("--target_features", type=str | None, default=None, help="the same for the target")
    add_backbone(parser)
    add_columns(parser)
    add_decoding(parser)
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    parser.add_argument("--seed", type=int, default=0, help="of folds and intervals")
    chosen = parser.parse_args(without_name(arguments, "--source"))
    columns = {name: chosen[name] for name in COLUMNS}
    target = None if chosen.target is None else read(chosen.target, labels="ignore", **columns)
    passed_on = ["decisions", "features", "target_features", "backbone", "weights", "image_size"]
    passed_on += ["strict", "cache_dir", "device", "seed"]
    found = judge(
        read(chosen.source, labels="required", **columns),
        target,
        progress=True,
        **{name: chosen[name] for name in passed_on},
    )
    page = found.save(chosen.out)
    print("\n".join(found.headline))
    print(f"{len(found.suspects):,} examples to look at: open {page} in a browser")
    return 0


def features(arguments: list[str]) -> int:
    """Turn images into the vectors that a frozen backbone makes of them."""
    from robustda.features import extract_features
    from robustda.noise import NoiseRecord

    parser = make_parser("features", features.__doc__)
    parser.add_argument("data", type=str, help="folder of images, or a table with a column of image paths")
    parser.add_argument("--out", type=str, required=True, help="where to write: .npz, .csv or .parquet")
    noise = "corrupt the clean images first, as this record says: what robustda corrupt wrote, or a table like it"
    parser.add_argument("--noise", type=str | None, default=None, help=noise)
    add_backbone(parser)
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, ...")
    precision = "of the backbone; auto is bfloat16 on a CPU that is quicker so, as in a fit"
    parser.add_argument("--precision", type=Literal["float32", "bfloat16", "auto"], default="float32", help=precision)
    mirrored = (
        "features are the mean of an image's and its mirror image's (left out: of photographs, not of small images)"
    )
    parser.add_argument("--mirror", type=bool | None, default=None, help=mirrored)
    pooled = "how a convolutional backbone's last map becomes features, as with methods that keep it frozen"
    parser.add_argument("--pooling", type=Literal["auto", "mean", "peaks"], default="auto", help=pooled)
    marks = "mark images that look blurred or noisy, for the methods and the audit to go by (kept in .npz files)"
    add_switch(parser, "find_corrupted", True, marks)
    add_columns(parser)
    add_decoding(parser)
    chosen = parser.parse_args(arguments)
    out = Path(chosen.out)
    if out.suffix not in (".npz", ".csv", ".parquet"):
        raise ConfigError(f"cannot tell the format of {out}: end the name with .npz, .csv or .parquet")
    columns = {name: chosen[name] for name in COLUMNS}
    domain = read(chosen.data, labels="auto", **columns)
    if chosen.noise is not None:
        domain = NoiseRecord.load(chosen.noise).apply(domain)
    passed_on = "backbone weights image_size pooling device precision mirror find_corrupted strict cache_dir"
    found = extract_features(domain, progress=True, **{name: chosen[name] for name in passed_on.split()})
    write_domain(found, out, chosen.label)
    odd = 0 if found.corrupted is None else int(found.corrupted.sum())
    noted = f"; {odd:,} of the images look blurred or noisy" if odd else ""
    noted += ", which only an .npz file can say" if odd and out.suffix != ".npz" else ""
    print(f"{len(found):,} vectors of {found.shape[0]:,} features written to {out}{noted}")
    return 0


def corrupt(arguments: list[str]) -> int:
    """Write a copy of a data set with noise put in, and a record of what was done."""
    from robustda.noise import corrupt as corrupt_domain
    from robustda.noise import corrupt_folder

    parser = make_parser("corrupt", corrupt.__doc__)
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
        domain = read(data, labels="required", label=chosen.label)
        check_writable(domain, out)
        noisy, record = corrupt_domain(
            domain,
            chosen.kind,
            chosen.rate,
            seed=chosen.seed,
            transition=matrix,
            blur=chosen.blur,
            scale=chosen.scale,
        )
        write_domain(noisy, out, chosen.label)
        noted = out.with_suffix(".noise.csv")
        record.save(noted)
    wrong, bad = int(record.wrong_labels.sum()), int(record.corrupted_features.sum())
    print(f"{len(record.ids):,} examples: {wrong:,} with a wrong label, {bad:,} with corrupted features → {out}")
    print(f"what was done is in {noted}")
    return 0


def data(arguments: list[str]) -> int:
    """Check a local copy of one of the paper's data sets, or pack Office-31 into a small copy to send elsewhere."""
    from robustda.data.catalog import dataset
    from robustda.data.check import WHERE, check_dataset

    parser = make_parser("data", data.__doc__)
    parser.add_argument("what", type=Literal["check", "pack"], help="check or pack")
    parser.add_argument("name", type=str, help="office31, office-home or bing-caltech; to pack, office31")
    path = "the folder that holds a folder for each domain; to pack, the data folder that holds office31 and noise"
    parser.add_argument("path", type=str, help=path)
    add_switch(parser, "read", True, "check: decode every image once, to find those that cannot be read")
    parser.add_argument("--out", type=str, default="", help="pack: the new folder")
    parser.add_argument("--size", type=int, default=256, help="pack: the side that images are resized to")
    parser.add_argument("--quality", type=int, default=90, help="pack: of the JPEG files")
    noises = "pack: the authors' draws whose corrupted images go along, such as [feature_0.4,mixed_0.4]"
    parser.add_argument("--noises", type=list[str], default=[], help=noises)
    chosen = parser.parse_args(arguments)
    if chosen.what == "pack":
        return _pack(chosen)
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


def _pack(chosen: Any) -> int:
    from robustda.bench.pack import pack_office31
    from robustda.data.catalog import OFFICE_31, dataset

    if dataset(chosen.name) is not OFFICE_31 or not chosen.out:
        raise ConfigError("what can be packed is office31: robustda data pack office31 DATA --out NEW")
    how = {name: chosen[name] for name in ("size", "quality", "noises")}
    count = pack_office31(Path(chosen.path), Path(chosen.out), **how, progress=True)
    print(f"{count:,} images of {chosen.size} pixels in {chosen.out}")
    return 0


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
