"""Shards and arrays that are not what they should be."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from hostile import X, Y, bad, encoded, table

# Shards.


def shard(*members: tuple[str, bytes | tarfile.TarInfo], name: str = "source.tar") -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        with tarfile.open(place / name, "w") as archive:
            for path, content in members:
                about = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(path)
                about.size = 0 if isinstance(content, tarfile.TarInfo) else len(content)
                archive.addfile(about, None if isinstance(content, tarfile.TarInfo) else io.BytesIO(content))
        return place / name

    return make


def of_type(kind: bytes, name: str = "0.png", link: str = "") -> tuple[str, tarfile.TarInfo]:
    about = tarfile.TarInfo(name)
    about.type, about.linkname = kind, link
    return name, about


def examples(ending: str, content: bytes, **beside: bytes) -> Callable[[Path], Path]:
    """Four examples of this content, with the label, or what is given beside it."""
    members: list[tuple[str, bytes | tarfile.TarInfo]] = []
    for number in range(4):
        members.append((f"{number}.{ending}", content))
        more = beside or {"cls": b"%d" % (number % 2)}
        members += [(f"{number}.{name}", given) for name, given in more.items()]
    return shard(*members)


def header_of_array(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text.encode() + b"\n"


def array_bytes(array: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)  # type: ignore[arg-type]
    return buffer.getvalue()


def square() -> bytes:
    return encoded(Image.new("RGB", (9, 9), "red"), "PNG")


@bad("shards", "no bytes", "the shard", "cannot be read")
def _(place: Path) -> object:
    return table(b"", "source.tar")(place)


@bad("shards", "random bytes", "the shard", "cannot be read")
def _(place: Path) -> object:
    return table(np.random.default_rng(7).bytes(5000), "source.tar")(place)


@bad("shards", "cut short", "the shard", "cannot be read", "unexpected end of data")
def _(place: Path) -> object:
    whole = examples("png", square())(place)
    whole.write_bytes(whole.read_bytes()[:600])
    return whole


@bad("shards", "a .gz cut short", "the shard", "cannot be read")
def _(place: Path) -> object:
    packed = gzip.compress(examples("png", Image.effect_noise((90, 90), 9).tobytes())(place).read_bytes())
    return table(packed[: len(packed) // 2], "source.tar.gz")(place)


@bad("shards", "members that lead out", "which is a link or leads out of it")
def _(place: Path) -> object:
    return shard(("../../0.png", square()), ("../../0.cls", b"0"))(place)


@bad("shards", "a link to a file of this machine", "which is a link or leads out of it")
def _(place: Path) -> object:
    return shard(of_type(tarfile.SYMTYPE, link="/etc/passwd"), ("0.cls", b"0"))(place)


@bad("shards", "a device", "which is a link or leads out of it")
def _(place: Path) -> object:
    return shard(of_type(tarfile.CHRTYPE))(place)


@bad("shards", "a label that is no text", "the label of 0 cannot be read")
def _(place: Path) -> object:
    return examples("png", square(), cls=b"\xff\xfe")(place)


@bad("shards", "JSON nested 100,000 deep", "the label of 0 cannot be read", "nests too deep")
def _(place: Path) -> object:
    return examples("png", square(), json=b"[" * 100_000)(place)


@bad("shards", "a list as a label", "the label of 0 cannot be read", "the label is a list")
def _(place: Path) -> object:
    return examples("png", square(), json=b'{"label": [1]}')(place)


@bad("shards", "an image and its label far apart", "the files of an example must stand together")
def _(place: Path) -> object:
    return shard(("0.png", square()), ("1.png", square()), ("0.cls", b"0"), ("1.cls", b"1"))(place)


@bad("shards", "no image in it", "no image and no .npy")
def _(place: Path) -> object:
    return shard(("readme.txt", b"hello"))(place)


@bad("shards", "images that are none", "none of the", "can be read")
def _(place: Path) -> object:
    return examples("png", b"hello")(place)


@bad("shards", "images and vectors", "holds both images and vectors")
def _(place: Path) -> object:
    return shard(("0.png", square()), ("0.cls", b"0"), ("1.npy", array_bytes(X[0])), ("1.cls", b"1"))(place)


@bad("shards", "vectors of several lengths", "not all of one length")
def _(place: Path) -> object:
    return shard(("0.npy", array_bytes(X[0])), ("0.cls", b"0"), ("1.npy", array_bytes(X[:2])), ("1.cls", b"1"))(place)


@bad("shards", "a vector as Python objects (pickle)", "is no array of numbers")
def _(place: Path) -> object:
    return examples("npy", array_bytes(np.array([{}], dtype=object)))(place)


@bad("shards", "a vector that says it has 10¹⁵ numbers", "lies about its size")
def _(place: Path) -> object:
    return examples(
        "npy", header_of_array("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }")
    )(place)


@bad("shards", "a vector whose header does not end", "is no array of numbers")
def _(place: Path) -> object:
    return examples("npy", header_of_array("{'descr': ('<f4', 2 "))(place)


@bad("shards", "a pattern of 10⁹ names", "names 1,000,000,000 shards")
def _(place: Path) -> object:
    return f"{place}/s-{{0..999999999}}.tar"


@bad("shards", "a pattern that nothing matches", "there are no shards")
def _(place: Path) -> object:
    return f"{place}/s-*.tar"


# Archives of arrays.


def npz(**arrays: object) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        np.savez(place / "source.npz", **arrays)  # type: ignore[arg-type]
        return place / "source.npz"

    return make


bad("npz", "labels as Python objects (pickle)", "of Python objects, which are not read for safety")(
    npz(x=X, y=Y.astype(object))
)
bad("npz", "features as Python objects (pickle)", "of Python objects, which are not read for safety")(
    npz(x=X.astype(object), y=Y)
)
bad("npz", "no array x", "has no array 'x'")(npz(features_=X, y=Y))
bad("npz", "no labels", "has no labels: save them as the array 'y'")(npz(x=X))
bad("npz", "other numbers of labels and examples", "4", "3")(npz(x=X, y=Y[:3]))
bad("npz", "marks that are neither true nor false", "'corrupted' must hold true or false for each of its 4 examples")(
    npz(x=X, y=Y, corrupted=np.array([0, 1, 2, 0]))
)
bad("npz", "fewer marks than examples", "'corrupted' must hold true or false")(
    npz(x=X, y=Y, corrupted=np.array([True]))
)
bad("npz", "no examples", "not an array of shape (0, 3)")(npz(x=X[:0], y=Y[:0]))
bad("npz", "an array of five dimensions", "source.npz")(npz(x=np.zeros((2, 2, 2, 2, 2)), y=Y[:2]))
bad("npz", "complex numbers", "features must be real numbers")(npz(x=X + 1j, y=Y))
bad("npz", "words as features", "features must be real numbers")(npz(x=np.array([["a"], ["b"]]), y=Y[:2]))
bad("npz", "infinite features", "NaN or infinite features")(npz(x=np.where(X == 3, np.inf, X), y=Y))
bad("npz", "the same id twice", "ids must be unique")(npz(x=X, y=Y, ids=["a", "a", "b", "c"]))
bad("npz", "codes beyond the classes", "source.npz")(npz(x=X, y=[0, 1, 2, 9], classes=["p", "q", "r"]))
bad("npz", "images as floats beyond 0 to 1", "must lie between 0 and 1")(npz(x=np.full((4, 8, 8, 3), 7.0), y=Y))
bad("npz", "images with five channels", "images must be (m, height, width, 3 or 1)")(
    npz(x=np.zeros((4, 8, 8, 5), np.uint8), y=Y)
)
bad("npz", "random bytes", "cannot be read as an .npz file")(table(np.random.default_rng(2).bytes(900), "source.npz"))
bad("npz", "no bytes", "cannot be read as an .npz file")(table(b"", "source.npz"))
bad("npz", "a pickle", "cannot be read as an .npz file")(
    table(b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x07boom\x94.", "source.npz")
)


@bad("npz", "a single array", "is a single array")
def _(place: Path) -> object:
    with open(place / "source.npz", "wb") as file:
        np.save(file, X)
    return place / "source.npz"


@bad("npz", "cut short", "cannot be read as an .npz file")
def _(place: Path) -> object:
    whole = npz(x=X, y=Y)(place)
    whole.write_bytes(whole.read_bytes()[:-40])
    return whole


def member(header: bytes, content: bytes = b"") -> Callable[[Path], Path]:
    """An archive whose array x has this header."""

    def make(place: Path) -> Path:
        header_line = header.ljust(117) + b"\n"
        array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header_line)) + header_line + content
        with zipfile.ZipFile(place / "source.npz", "w") as archive:
            archive.writestr("x.npy", array)
        return place / "source.npz"

    return make


bad("npz", "an array that says it has 10¹⁵ numbers", "lies about its size")(
    member(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }")
)
bad("npz", "a header with code in it", "cannot be read as an .npz file")(
    member(b"{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,), }")
)
bad("npz", "a header that is none", "cannot be read as an .npz file")(member(b"hello"))
bad("npz", "a header that does not end", "cannot be read as an .npz file")(member(b"{'descr': ('<f4', 2 "))


def npy(x: object, y: object = Y) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        np.save(place / "source.npy", x, allow_pickle=True)  # type: ignore[arg-type]
        np.save(place / "source_y.npy", y, allow_pickle=True)  # type: ignore[arg-type]
        return place / "source.npy"

    return make


def npy_header(header: str) -> Callable[[Path], Path]:
    text = header.encode() + b"\n"
    return table(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text, "source.npy")


bad("npy", "features as Python objects (pickle)", "Python objects, or no array at all")(npy(X.astype(object)))
bad("npy", "labels as Python objects (pickle)", "source_y.npy cannot be read")(npy(X, Y.astype(object)))
bad("npy", "no labels beside it", "has no labels: save them as alone_y.npy beside it")(
    lambda place: npy(X)(place).rename(place / "alone.npy")
)
bad("npy", "other numbers of labels and examples", "4 examples but 3 labels")(npy(X, Y[:3]))
bad("npy", "infinite features", "NaN or infinite features")(npy(np.where(X == 3, np.inf, X).astype(np.float32)))
bad("npy", "an array that says it has 10¹⁵ numbers", "cannot be read as an .npy file")(
    npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }")
)
bad("npy", "a header with code in it", "cannot be read as an .npy file")(
    npy_header("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (1, 1), }")
)
bad("npy", "a header that does not end", "cannot be read as an .npy file")(npy_header("{'descr': ('<f4', 2 "))
bad("npy", "a header of a negative size", "cannot be read as an .npy file")(
    npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 3), }")
)
bad("npy", "random bytes", "no array at all")(table(np.random.default_rng(2).bytes(900), "source.npy"))
bad("npy", "no bytes", "cannot be read as an .npy file")(table(b"", "source.npy"))
