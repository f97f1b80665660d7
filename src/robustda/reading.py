"""Files that may come from strangers: how large they claim to be is checked before anything of that size is made.

JSON has a limit of its own, and one on how deep it nests. A safetensors file begins with the length of its header and
with a header that says where each tensor lies; both must agree with the file before a byte of the tensors is read.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

__all__ = ["MOST_JSON", "check_tensor_file", "memory_size", "parsed", "read_json", "read_object", "reason"]

MOST_JSON = 64 * 2**20
_MOST_HEADER = 100 * 2**20  # what the format allows
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8,
}  # fmt: skip


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    """The content of a JSON file of at most so many bytes; a ValueError says what is wrong with it."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path.name} has {size:,} bytes, more than the {most:,} that it may have")
    return parsed(path.read_bytes(), path.name)


def read_object(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The same, where a JSON object is expected."""
    content = read_json(path, most)
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return content


def parsed(content: bytes, name: str) -> Any:
    """What JSON says; a ValueError tells what is wrong with it."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(f"{name} nests too deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is no text ({error.reason})") from error
    except ValueError as error:
        raise ValueError(f"{name} is no JSON ({error})") from error


def reason(error: BaseException) -> str:
    """What an error says, in one line; of a KeyError that is nothing but a name."""
    text = " ".join(str(error).split())
    return f"{text} is missing" if isinstance(error, KeyError) else text


def check_tensor_file(path: Path) -> None:
    """Refuse a safetensors file whose header does not fit it, or that no memory could hold."""
    size = path.stat().st_size
    if size > memory_size():
        raise ValueError(f"{path.name} has {size:,} bytes, more than the memory of this machine")
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise ValueError(f"the header of {path.name} is said to have {length:,} bytes, which cannot be")
        header = parsed(file.read(length), f"the header of {path.name}")
    if not isinstance(header, dict):
        raise ValueError(f"the header of {path.name} is no JSON object")
    end = 0
    for name, about in header.items():
        if name != "__metadata__":
            end = max(end, _end_of(about, name, path))
    if end != size - 8 - length:
        raise ValueError(f"{path.name} holds {size - 8 - length:,} bytes of tensors, but its header says {end:,}")


def _end_of(about: Any, name: str, path: Path) -> int:
    try:
        bits, shape = _BITS[about["dtype"]], about["shape"]
        start, end = about["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (start, end, *shape))
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound or (end - start) * 8 != bits * math.prod(shape):
        raise ValueError(f"the header of {path.name} contradicts itself about {name[:80]!r}")
    return int(end)


def memory_size() -> int:
    """Bytes of memory that the machine has; a terabyte where it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 2**40
