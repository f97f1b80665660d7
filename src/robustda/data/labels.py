"""Labels of any type become integer codes; class names keep their own type from end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from robustda.data.wording import listed
from robustda.errors import DataError

__all__ = ["Codes", "encode_labels", "encode_onto", "label_key", "match_names", "no_classes"]

Codes = npt.NDArray[np.int64]


def encode_labels(labels: Any, where: str) -> tuple[Codes, np.ndarray]:
    """Codes into the sorted class names, and those names; -1 where a label is None, NaN or empty.

    >>> encode_labels(["dog", None, "cat", "dog"], "y")
    (array([ 1, -1,  0,  1]), array(['cat', 'dog'], dtype='<U3'))
    """
    names, present = _names_and_present(_column(labels, where))
    codes = np.full(len(present), -1, dtype=np.int64)
    if not present.any():
        return codes, no_classes()
    classes, codes[present] = np.unique(names, return_inverse=True)
    return codes, classes


def encode_onto(labels: Any, classes: Any, where: str, *, complete: bool) -> tuple[Codes, np.ndarray]:
    """Codes into the given classes (sorted here, the codes follow).

    Labels of a whole-number type are read as codes where they all can be (-1 = no label), else as names;
    labels of another type (strings, objects) are read as names where they all can be, else as codes.
    With ``complete`` every class must have an example.
    """
    place, ordered = encode_labels(classes, f"the classes of {where}")
    if (place < 0).any() or len(ordered) != len(place) or not len(ordered):
        raise DataError(f"the classes of {where} must be different names, none of them empty: {listed(classes)}")
    column = _column(labels, where)
    names, present = _names_and_present(column)
    by_name = match_names(names, ordered)
    by_code = _as_codes(names, place)
    codes_first = column.dtype.kind in "iuf"
    readings = [by_code, by_name] if codes_first else [by_name, by_code]
    chosen = next((codes for codes in readings if codes is not None and (codes >= -1).all()), None)
    if chosen is None:
        unknown = sorted({label_key(name) for name in names[by_name < -1]})
        raise DataError(
            f"{where} has labels that are none of its classes: {listed(unknown)}; the classes are {listed(ordered, 12)}"
        )
    codes = np.full(len(present), -1, dtype=np.int64)
    codes[present] = chosen
    if complete and len(unused := np.setdiff1d(np.arange(len(ordered)), codes)):
        raise DataError(
            f"{where} has no example of {listed(ordered[unused])}: add examples or leave these names out of classes"
        )
    return codes, ordered


def match_names(names: np.ndarray, classes: np.ndarray) -> Codes:
    """For each name its place in `classes`, -2 where it is not there; 3 and "3" are the same name."""
    places = {label_key(name): place for place, name in enumerate(classes.tolist())}
    if not len(names):
        return np.empty(0, dtype=np.int64)
    different, inverse = np.unique(names, return_inverse=True)
    found = [places.get(label_key(name), -2) for name in different.tolist()]
    return np.array(found, dtype=np.int64)[inverse]


def label_key(name: Any) -> str:
    """The text by which names of different types are compared: 3, 3.0 and "3" agree, "03" is another."""
    if isinstance(name, float | np.floating) and float(name).is_integer():
        return str(int(name))
    return str(name)


def no_classes() -> np.ndarray:
    """The class names of a domain without labels."""
    return np.empty(0, dtype=str)


def _column(labels: Any, where: str) -> np.ndarray:
    if hasattr(labels, "to_numpy"):
        plain = isinstance(labels.dtype, np.dtype) and labels.dtype.kind != "O"
        # pandas knows several kinds of "missing": in its own column types they all become None.
        column = np.asarray(labels if plain else labels.to_numpy(dtype=object, na_value=None))
    elif isinstance(labels, np.ndarray):
        column = labels
    else:
        # A plain list goes through object: NumPy would write [1, "a", None] as text, None included.
        values = list(labels)
        column = np.empty(len(values), dtype=object)
        column[:] = values
        if values and all(type(value) is int for value in values):
            column = np.array(values)
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise DataError(
            f"{where} needs one label an example, not an array of shape {column.shape}; "
            "one-hot rows: give y.argmax(axis=1)"
        )
    return column


def _names_and_present(column: np.ndarray) -> tuple[np.ndarray, npt.NDArray[np.bool_]]:
    """The labels that are there, all of one type, and a mask that says where they are."""
    kind = column.dtype.kind
    if kind == "f":
        present = ~np.isnan(column)
        return _whole_if_possible(column[present]), present
    if kind in "iub":
        return column, np.ones(len(column), dtype=bool)
    if kind == "U":
        present = column != ""
        return column[present], present
    values = [value.decode() if isinstance(value, bytes) else value for value in column.tolist()]
    present = np.array([not _is_missing(value) for value in values], dtype=bool)
    names = [value for value, there in zip(values, present, strict=True) if there]
    return _one_type(names), present


def _one_type(names: list[Any]) -> np.ndarray:
    """Whole numbers, numbers, truth values or text; a mixture becomes text, so that it can be sorted."""
    if all(isinstance(name, bool | np.bool_) for name in names):
        return np.array(names, dtype=bool)
    if not any(isinstance(name, bool | np.bool_) for name in names):
        if all(isinstance(name, int | np.integer) for name in names):
            return np.array(names)
        if all(isinstance(name, int | float | np.number) for name in names):
            return _whole_if_possible(np.array(names, dtype=np.float64))
    return np.array([label_key(name) for name in names], dtype=str)


def _whole_if_possible(numbers: np.ndarray) -> np.ndarray:
    """Whole numbers that came as floats, because some labels are missing, are whole numbers again."""
    if np.isfinite(numbers).all() and (np.abs(numbers) < 2**53).all() and (numbers == np.trunc(numbers)).all():
        return numbers.astype(np.int64)
    return numbers


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value):
        return True
    return type(value).__name__ in ("NAType", "NaTType") or bool(
        isinstance(value, float | np.floating) and value != value
    )


def _as_codes(names: np.ndarray, place: Codes) -> Codes | None:
    """The labels read as codes into the classes in their given order, or None where they cannot be codes."""
    if names.dtype.kind not in "iu" or (names < -1).any() or (names >= len(place)).any():
        return None
    return np.where(names < 0, -1, place[names.astype(np.int64)])
