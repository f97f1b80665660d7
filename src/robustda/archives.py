"""Is a .pt2 file nothing but data? PyTorch's own reader would run what a forged one holds; this looks first.

`torch.export.load` unpickles whatever the archive declares as pickled, evaluates the text of symbolic sizes, compiles
guards, and calls any function below ``torch`` that a node names. A model that robustda exported needs none of that: it
is JSON and raw weights, its nodes are operators of ATen, its only symbol is the size of the batch. Anything else is
refused.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from robustda.errors import RunError

__all__ = ["check_archive"]

_MEMBERS = re.compile(
    r"[^/]+/(data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)|data/sample_inputs/model\.pt|models/model\.json"
    r"|archive_format|archive_version|byteorder|version|\.data/(version|serialization_id)|\.format_version"
    r"|\.storage_alignment)"
)
_TARGET = re.compile(
    r"torch\.ops\.aten\.\w+\.\w+"
    r"|_operator\.(getitem|mul|add|sub|floordiv|mod|neg|truediv|eq|ge|gt|le|lt)"
)
_FLAG = r"(?:positive|integer|nonnegative|real|zero)=(?:True|False)"
_EXPRESSION = re.compile(
    rf"(?:Symbol\('\w{{1,20}}'(?:, {_FLAG})*\)|(?:Add|Mul|Pow|Mod|Max|Min|FloorDiv|Integer)\(|-?\d{{1,18}}|[()+*, -])+"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NAMES = {"name", "graph_name"}  # keys whose text becomes a name in the code that PyTorch generates
_PLACES = {"fqn", "parameter_name", "buffer_name", "tensor_constant_name"}
_SPEC = re.compile(r'"type": (?!null|"builtins\.(?:tuple|list|dict)")')
_OBJECTS = {"as_custom_obj", "as_operator", "custom_obj", "treespec_namedtuple_fields"}


def check_archive(path: Path) -> None:
    """Refuse, in one line, a .pt2 file that is not as robustda writes them."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive)
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            for kind in ("weights", "constants"):
                _check_payloads(json.loads(archive.read(names[f"data/{kind}/model_{kind}_config.json"])))
            _check_model(json.loads(archive.read(names["models/model.json"])))
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, RecursionError) as error:
        if isinstance(error, RunError):
            raise
        reason = " ".join(str(error).split())
        raise RunError(f"{path} cannot be read as a .pt2 archive ({reason}): export it again") from error
    except _Odd as odd:
        raise RunError(
            f"{path} holds {odd}, which PyTorch might run as code: it is not loaded; export the run again, "
            "with PyTorch 2.9 or newer"
        ) from odd


class _Odd(Exception):
    """Something that has no business in there."""


def _check_members(archive: zipfile.ZipFile) -> None:
    if len({name.partition("/")[0] for name in archive.namelist()}) > 1:
        raise _Odd("more than one model")
    for member in archive.infolist():
        if not _MEMBERS.fullmatch(member.filename):
            raise _Odd(f"the file {member.filename!r}")
        if member.filename.endswith(".pt") and member.file_size:
            raise _Odd("pickled example inputs")


def _check_payloads(content: dict[str, Any]) -> None:
    for name, payload in content["config"].items():
        if payload["use_pickle"] or not payload["tensor_meta"]:
            raise _Odd(f"a pickle ({name})")
        if not re.fullmatch(r"(weight|tensor)_\d+", payload["path_name"]):
            raise _Odd(f"the weight {name} under a strange name")


def _check_model(content: dict[str, Any]) -> None:
    if content.get("guards_code"):
        raise _Odd("guards")
    for name in content["range_constraints"]:
        if not _NAME.fullmatch(name):
            raise _Odd(f"the symbol {name[:60]!r}")
    for key, value in _entries(content):
        if key == "expr_str" and not (isinstance(value, str) and _EXPRESSION.fullmatch(value)):
            raise _Odd(f"the expression {str(value)[:60]!r}")
        if key == "target" and isinstance(value, str) and not _TARGET.fullmatch(value):
            raise _Odd(f"a call of {value[:60]!r}")
        if key in _NAMES and isinstance(value, str) and value and not _NAME.fullmatch(value):
            raise _Odd(f"the name {value[:60]!r}")
        if key in _PLACES and isinstance(value, str) and not re.fullmatch(r"[\w.]*", value):
            raise _Odd(f"the name {value[:60]!r}")
        if key == "forward_arg_names" and not all(_NAME.fullmatch(str(name)) for name in value or ()):
            raise _Odd("arguments under strange names")
        if key in ("in_spec", "out_spec") and _SPEC.search(str(value)):
            raise _Odd("arguments of strange types")
        if key in _OBJECTS and value:
            raise _Odd("an object of a class of its own")
        if key == "metadata" and value:  # a robustda export has none: it would tell where the exporter's files lay
            raise _Odd(f"metadata ({', '.join(sorted(value))[:60]})")


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object with its value, however deep."""
    waiting = [content]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from here.items()
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here
