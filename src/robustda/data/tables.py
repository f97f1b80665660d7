"""Reading a table, CSV, TSV, Parquet, JSON lines or a DataFrame, into the parts of a Domain."""

from __future__ import annotations

import difflib
import gzip
import os
import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robustda.data.images import ImageFiles
from robustda.data.inputs import feature_matrix
from robustda.data.readers import Labels, Parts, check_switch
from robustda.data.wording import nearest
from robustda.errors import DataError
from robustda.reading import memory_size

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLE_ENDINGS", "listed_paths", "read_table"]

_JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson")
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", *_JSON_ENDINGS)
MOST_COLUMNS, MOST_HEADER = 100_000, 1 << 24
_MOST_DIGITS = 300  # what a float can hold
PATH_COLUMNS = ("path", "file", "filename", "image", "filepath", "file_path", "file_name", "image_path")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>")


def read_table(
    table: str | Path | pd.DataFrame,
    *,
    labels: Labels = "auto",
    label: str = "label",
    path: str | None = None,
    id: str | None = None,
    features: Sequence[str] | None = None,
    root: str | Path | None = None,
) -> Parts:
    """Image paths where there is a path column, else the numeric columns as features."""
    check_switch(labels)
    if isinstance(table, str | Path):
        where, folder = str(table), Path(table).parent
        frame = _read_file(Path(table), label, [path, id, *PATH_COLUMNS, "id"])
    else:
        where, folder, frame = "the table", Path(), table
    if not len(frame):
        raise DataError(f"{where} has no rows")
    columns = [str(column) for column in frame.columns]
    frame = frame.set_axis(columns, axis=1)
    for wanted in (path, id, *(features or ())):
        if wanted is not None and wanted not in columns:
            raise DataError(f"{where} has no column '{wanted}': {nearest(wanted, columns)}")
    has_label = label in columns
    if labels != "ignore" and not has_label:
        _explain_missing_label(label, columns, where, labels)
    path_column = path if path or features else _find(PATH_COLUMNS, frame)
    id_column = id or next((column for column in columns if column.lower() == "id" and column != label), None)
    names = frame[label] if has_label and labels != "ignore" else None
    if names is not None and names.dtype == object and any(isinstance(v, list | dict | np.ndarray) for v in names):
        raise DataError(f"{where}: the label column '{label}' holds lists or objects: one class an example is needed")
    ids = frame[id_column].astype(object) if id_column else None
    if path_column:
        paths = _paths(frame[path_column], where)
        top = os.path.abspath(root or folder)
        files = ImageFiles(tuple(os.path.join(top, one) for one in paths))
        for one, full in zip(paths, files.paths, strict=True):
            # Absolute paths are plain to see; a relative one is to stay below the table.
            if not os.path.isabs(one) and os.path.commonpath([top, os.path.normpath(full)]) != top:
                raise DataError(f"{where}: the path '{one}' leads out of {top}: write it in full, or give root")
        if not any(os.path.exists(one) for one in files.paths):
            raise DataError(
                f"{where}: none of the files in column '{path_column}' exists (first {files.paths[0]}): "
                "paths are relative to the table's folder, or to root"
            )
        return Parts(files, names, paths if ids is None else ids)
    # A table written with its row numbers has a first column without a name: it is no feature.
    others = [c for c in columns if c not in (label, id_column) and not c.startswith("Unnamed: ")]
    chosen = list(features) if features is not None else others
    x, kept = feature_matrix(frame[chosen], where, chosen=features is not None)
    return Parts(x, names, ids, features=kept)


def listed_paths(table: Path, path: str | None = None) -> list[str]:
    """The image paths that a table lists, as they stand there; none if it is one of features."""
    frame = _read_file(table, "label", [path, *PATH_COLUMNS])
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    column = path if path in frame.columns else _find(PATH_COLUMNS, frame)
    return [] if column is None else _paths(frame[column], str(table))


def _read_file(path: Path, label: str, special: Iterable[str | None]) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise DataError(f"there is no file {path}")
    _check_size(path)
    try:
        if path.name.lower().endswith((".parquet", ".pq")):
            return _read_parquet(path)
        if path.name.lower().endswith(_JSON_ENDINGS):
            return _read_json_lines(path)
        return _read_csv(path, label, special)
    except (OSError, ValueError, EOFError, zlib.error, pd.errors.ParserWarning) as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(f"{path} cannot be read as a table ({reason}): mend it, or save it again") from error


def _read_json_lines(path: Path) -> pd.DataFrame:
    """One object a line. Read here, since pandas takes texts for dates and numbers where columns have certain names."""
    import gzip
    import json

    import pandas as pd

    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        try:
            rows = [json.loads(line, parse_int=_whole_number) for line in file if line.strip()]
        except RecursionError as error:
            raise ValueError("a line holds brackets within brackets without end") from error
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("not every line is an object")
    return pd.DataFrame(rows)


def _whole_number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a line holds a number of {len(text):,} digits")
    return int(text)


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except MemoryError:
        raise
    except Exception as error:  # damaged files make pandas and Arrow fail in every way there is
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _check_size(path: Path) -> None:
    """Refuse what would fill the memory or take hours, before it is read: packed zeros, a million columns."""
    if path.name.lower().endswith((".parquet", ".pq")):
        return
    most = memory_size() // 2
    packed = path.name.lower().endswith(".gz")
    if not packed and path.stat().st_size > most:
        raise DataError(f"{path} has {path.stat().st_size:,} bytes, more than half of the memory: save it as .parquet")
    try:
        with gzip.open(path, "rb") if packed else open(path, "rb") as file:
            header = file.readline(MOST_HEADER + 1)
            if (
                len(header) > MOST_HEADER
                or header.count(b"\t" if ".tsv" in path.name.lower() else b",") >= MOST_COLUMNS
            ):
                raise DataError(f"{path} has more than {MOST_COLUMNS:,} columns: save its features as an .npz instead")
            size = len(header)
            while packed and (block := file.read(1 << 20)):
                size += len(block)
                if size > most:
                    raise DataError(f"{path} unpacks to more than half of the memory: unpack it and look at it first")
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}): mend it, or save it again") from error


def _read_csv(path: Path, label: str, special: Iterable[str | None]) -> pd.DataFrame:
    import pandas as pd

    separator = "\t" if ".tsv" in path.name.lower() else ","
    header = pd.read_csv(path, sep=separator, nrows=0).columns
    # Labels, paths and ids are read as written: a class may be called NA, an id 007.
    as_written = {column for column in header if column == label or column in special or column.lower() in special}
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
        frame = pd.read_csv(
            path,
            sep=separator,
            dtype=dict.fromkeys(as_written, str),
            keep_default_na=False,
            na_values={column: [""] if column in as_written else list(MISSING) for column in header},
            index_col=False,
            low_memory=False,
        )
    if label in frame.columns:
        frame[label] = _numbers_if_all_are(frame[label])
    return frame


def _explain_missing_label(label: str, columns: list[str], where: str, labels: Labels) -> None:
    """No labels is fine where they are optional, unless the column seems to be there in another spelling."""
    close = difflib.get_close_matches(label.lower(), [column.lower() for column in columns], n=1, cutoff=0.85)
    if labels == "required" or close:
        raise DataError(
            f"{where} has no label column '{label}': {nearest(label, columns)}; "
            "name the label column, or ignore the labels"
        )


def _find(names: Sequence[str], frame: pd.DataFrame) -> str | None:
    """The first column of text that has one of these names."""
    import pandas as pd

    for name in names:
        for column in frame.columns:
            if column.lower() == name and not pd.api.types.is_numeric_dtype(frame[column].dtype):
                return str(column)
    return None


def _numbers_if_all_are(column: pd.Series[Any]) -> pd.Series[Any]:
    """Text that is nothing but whole numbers becomes numbers; only then NA and the like are missing labels.

    Numbers with leading zeros stay text, as they are in the names of class folders.
    """
    import pandas as pd

    known = column[column.notna() & ~column.isin(MISSING)]
    if len(known) and known.str.fullmatch(r"-?(0|[1-9]\d{0,14})(\.0+)?").all():
        return pd.to_numeric(column.where(column.isin(known)))
    return column


def _paths(column: pd.Series[Any], where: str) -> list[str]:
    if missing := int(column.isna().sum()):
        raise DataError(f"{where}: the path column '{column.name}' is empty in {missing} of {len(column)} rows")
    paths = [str(value) for value in column]
    if any("\0" in path for path in paths):
        raise DataError(f"{where}: the path column '{column.name}' holds NUL bytes: mend it")
    return paths
