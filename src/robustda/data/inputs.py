"""Whatever a user calls data, brought to the few forms a Domain holds, or a line that says why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robustda.data.images import ImageFiles
from robustda.data.wording import listed, plural
from robustda.errors import DataError, RobustDAWarning

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_ids", "as_inputs", "as_marks", "feature_matrix", "rows_not_finite"]


def as_inputs(x: Any, where: str) -> tuple[np.ndarray | ImageFiles, tuple[str, ...]]:
    """Float32 vectors, uint8 images or image files, and the names of the features where x has them."""
    if isinstance(x, ImageFiles):
        return x, ()
    if hasattr(x, "columns") and hasattr(x, "iloc"):  # a DataFrame, without importing pandas to ask
        return feature_matrix(x, where, chosen=True)
    array = _as_array(x, where)
    if array.ndim not in (2, 3, 4) or 0 in array.shape:
        raise DataError(
            f"{where} must hold vectors (m, d) or images (m, height, width[, 3]), not an array of shape {array.shape}"
        )
    return (_as_vectors(array, where) if array.ndim == 2 else _as_images(array, where)), ()


def as_ids(ids: Any, count: int, where: str) -> np.ndarray:
    """One unique text an example; row numbers where there are none."""
    if ids is None:
        return np.arange(count).astype(f"U{len(str(count))}")
    as_text = isinstance(ids, np.ndarray) and ids.dtype.kind == "U"  # ten million of them need no second copy
    values = (ids if as_text else np.asarray(ids, dtype=object)).reshape(-1).tolist()
    if len(values) != count:
        raise DataError(f"{where} has {plural(count, 'example')} but {plural(len(values), 'id')}")
    missing = sum(value is None or value != value or str(value) in ("", "<NA>") for value in values)
    if missing:
        raise DataError(f"{where}: {plural(missing, 'example')} of {count:,} have no id: fill them in or leave ids out")
    texts = values if as_text else [str(value) for value in values]
    if len(set(texts)) < count:
        seen: set[str] = set()
        twice = [text for text in texts if text in seen or seen.add(text)]  # type: ignore[func-returns-value]
        raise DataError(
            f"{where}: ids must be unique, but {plural(len(twice), 'example')} of {count:,} repeat one "
            f"(first {listed(twice, 3)}): remove the repeats or name another id column"
        )
    return np.asarray(ids).reshape(-1) if as_text else np.array(texts, dtype=str)


def as_marks(marks: Any, count: int, where: str) -> npt.NDArray[np.bool_]:
    """True or false for each example, given as that or as 1 and 0."""
    given = np.asarray(marks)
    if given.dtype.kind not in "biuf" or given.shape != (count,) or not np.isin(given, (0, 1)).all():
        raise DataError(f"{where}: 'corrupted' must hold true or false for each of its {plural(count, 'example')}")
    return given.astype(bool)


def feature_matrix(frame: pd.DataFrame, where: str, *, chosen: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """The columns of a table as float32, missing values as NaN.

    Columns the user has `chosen` must be numbers. Otherwise columns of plain text are left out with a
    warning; a column of numbers with some text in it is an error either way, since it is most likely a slip.
    """
    import pandas as pd

    keep, text = [], []
    for place, (column, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
            keep.append(place)
            continue
        values = frame.iloc[:, place].dropna()
        is_text = pd.api.types.is_string_dtype(dtype) or dtype.kind == "O"
        numbers = pd.to_numeric(values, errors="coerce").notna() if is_text else pd.Series(dtype=bool)
        if dtype.kind == "O" and len(values) and numbers.all() and not any(isinstance(v, str) for v in values):
            keep.append(place)
        elif chosen or (len(values) and 2 * int(numbers.sum()) >= len(values)):
            at = values.index[~numbers] if len(numbers) else values.index
            example = f" (row {frame.index.get_loc(at[0])}: '{values[at[0]]}')" if len(at) else ""
            raise DataError(f"{where}: the feature column '{column}' is not numeric{example}: mend, encode or drop it")
        else:
            text.append(column)
    if not keep:
        raise DataError(
            f"{where} has no numeric feature column and no column of image paths: {listed(frame.columns, 12)}"
        )
    if text:
        message = f"{where}: left out the columns that are not numeric: {listed(text)}; the rest are features"
        warnings.warn(message, RobustDAWarning, stacklevel=4)
    numeric = frame.iloc[:, keep]
    return numeric.to_numpy(dtype=np.float32, na_value=np.nan), tuple(str(column) for column in numeric.columns)


def rows_not_finite(vectors: np.ndarray) -> npt.NDArray[np.int64]:
    """The rows with a NaN or an infinity in them."""
    bad = [start + np.flatnonzero(~np.isfinite(block).all(axis=1)) for start, block in _blocks(vectors)]
    return np.concatenate(bad) if bad else np.empty(0, dtype=np.int64)


def _as_array(x: Any, where: str) -> np.ndarray:
    if type(x) in (np.ndarray, np.memmap):
        return x  # type: ignore[no-any-return]
    if isinstance(x, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(x.astype(np.float32), np.nan))
    try:
        return np.asarray(x)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{where} cannot be read as one array, are the examples of one shape? ({error})") from error


def _as_vectors(array: np.ndarray, where: str) -> np.ndarray:
    if array.dtype == np.float32:
        return array
    if array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is reported as such
            return array.astype(np.float32)
    if array.dtype.kind == "O" and not any(isinstance(value, str) for value in array.flat):
        try:
            return array.astype(np.float32)
        except (TypeError, ValueError):
            pass
    raise DataError(f"{where}: features must be real numbers, not {array.dtype}: encode or drop what is not")


def _as_images(array: np.ndarray, where: str) -> np.ndarray:
    if array.ndim == 3:
        if array.shape[2] == 3:
            raise DataError(
                f"{where} of shape {array.shape} looks like one colour image: give x[None] "
                "(gray images three pixels wide: x[..., None])"
            )
        array = array[..., None]
    if array.shape[3] not in (1, 3):
        fix = "put the channels last: x.transpose(0, 2, 3, 1)" if array.shape[1] in (1, 3) else "give RGB or gray"
        raise DataError(f"{where}: images must be (m, height, width, 3 or 1), not {array.shape}: {fix}")
    array = _as_bytes(array, where)
    return array if array.shape[3] == 3 else np.repeat(array, 3, axis=3)


def _as_bytes(array: np.ndarray, where: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind != "f":
        raise DataError(f"{where}: images must be uint8, or floats from 0 to 1, not {array.dtype}: convert them first")
    pixels = np.empty(array.shape, dtype=np.uint8)
    for start, block in _blocks(array):
        low, high = float(block.min()), float(block.max())
        if not (low >= 0 and high <= 1):  # so written that NaN fails too
            raise DataError(
                f"{where}: images given as floats must lie between 0 and 1, found {low:g} to {high:g}: "
                "scale them, or give uint8"
            )
        pixels[start : start + len(block)] = np.rint(block * 255)
    return pixels


def _blocks(array: np.ndarray, values: int = 1 << 22) -> Iterator[tuple[int, np.ndarray]]:
    """Stretches of rows of a bounded size: a memory-mapped array must not be copied whole to be checked."""
    rows = max(1, values // max(1, int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
