"""Sizes are checked before anything of that size is made."""

from __future__ import annotations

import json
import os
import struct

import pytest
import torch
from safetensors.torch import save

from robustda import reading
from robustda.files import load_tensors
from robustda.reading import check_tensor_file, read_json, read_object


def write(path, header, body=b"", length=None):
    content = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + body)
    return path


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": torch.zeros(0)},
        {"a": torch.ones(3), "b": torch.tensor(1), "c": torch.zeros(2, 2, dtype=torch.bfloat16)},
        {"a": torch.zeros(3, dtype=torch.bool), "b": torch.zeros(2, dtype=torch.float64)},
    ],
)
def test_what_we_write_is_sound(tmp_path, tensors):
    path = tmp_path / "t.safetensors"
    path.write_bytes(save(tensors, {"about": "it"}))
    check_tensor_file(path)
    assert load_tensors(path).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("header", "body", "length", "words"),
    [
        ({"a": ENTRY}, b"", None, "holds 0 bytes of tensors, but its header says 8"),
        ({"a": ENTRY}, b"\0" * 9, None, "holds 9 bytes"),
        ({"a": ENTRY | {"shape": [10**12]}}, b"\0" * 8, None, "contradicts itself about 'a'"),
        ({"a": ENTRY | {"shape": [-2]}}, b"\0" * 8, None, "contradicts itself"),
        ({"a": ENTRY | {"shape": [True, 2]}}, b"\0" * 8, None, "contradicts itself"),
        ({"a": ENTRY | {"dtype": "PICKLE"}}, b"\0" * 8, None, "contradicts itself"),
        ({"a": ENTRY | {"data_offsets": [8, 0]}}, b"\0" * 8, None, "contradicts itself"),
        ({"a": ENTRY | {"data_offsets": "no"}}, b"\0" * 8, None, "contradicts itself"),
        ({"a": [1]}, b"", None, "contradicts itself"),
        ([], b"", None, "is no JSON object"),
        (b"{", b"\0" * 8, None, "is said to have 1 bytes, which cannot be"),
        (b"{{", b"", None, "is no JSON"),
        (b"[" * 200_000, b"", None, "nests too deep"),
        ({}, b"", 2**60, "which cannot be"),
        ({}, b"", 0, "which cannot be"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, body, length, words):
    path = write(tmp_path / "t.safetensors", header, body, length)
    with pytest.raises(ValueError, match=words):
        check_tensor_file(path)
    with pytest.raises(ValueError, match=r"header|holds"):
        load_tensors(path)


def test_a_file_too_short_for_a_length(tmp_path):
    for content in (b"", b"abc"):
        (tmp_path / "t").write_bytes(content)
        with pytest.raises(ValueError, match="which cannot be"):
            check_tensor_file(tmp_path / "t")


def test_a_file_larger_than_the_memory_is_not_opened(tmp_path):
    """It has no blocks on the disk, but reading it would ask for all of its size."""
    path = tmp_path / "t.safetensors"
    path.touch()
    os.truncate(path, 2**43)
    with pytest.raises(ValueError, match="more than the memory of this machine"):
        check_tensor_file(path)


def test_json_has_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_object(path) == {"a": 1}
    with pytest.raises(ValueError, match=r"a\.json has 8 bytes, more than the 7 that it may have"):
        read_json(path, most=7)
    os.truncate(path, 2**40)
    with pytest.raises(ValueError, match="more than the 67,108,864"):
        read_json(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"[1]", "holds no JSON object"), (b"[" * 10**5, "nests too deep"), (b"\xff", "is no text"), (b"{", "is no JSON")],
)
def test_json_that_is_none(tmp_path, content, words):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_object(tmp_path / "a.json")


def test_the_memory_of_a_system_that_does_not_tell(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert reading.memory_size() == 2**40
