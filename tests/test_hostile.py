"""Files from strangers: a table of bad inputs, each with the line it gets. docs/bad-input.md is written from here.

Each case makes its files and names a command; the command must end with one line that has the words given, and without
a traceback. Cases of harmless oddities must end well. ``ROBUSTDA_WRITE_DOCS=1 pytest tests/test_hostile.py`` writes the
table anew.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from robustda.cli import main
from robustda.data import tables
from robustda.errors import RobustDAWarning

DOCS = Path(__file__).parents[1] / "docs" / "bad-input.md"
CSV = "a,b,label\n1,2,x\n2,1,y\n3,1,x\n4,2,y\n"


class Case(NamedTuple):
    """What is wrong, how to make it, and words of the line that it gets; no words where it must simply work."""

    kind: str
    name: str
    make: Callable[[Path], list[str]]
    words: tuple[str, ...]
    warns: bool = False


CASES: list[Case] = []


def bad(kind: str, name: str, *words: str, warns: bool = False) -> Callable[[Callable[[Path], object]], None]:
    """Enter a case. Its function makes files in a folder and returns the arguments, or a source to fit on."""

    def enter(make: Callable[[Path], object]) -> None:
        def arguments(place: Path) -> list[str]:
            found = make(place)
            return [str(word) for word in found] if isinstance(found, list) else fit(place, source=found)

        CASES.append(Case(kind, name, arguments, words, warns))

    return enter


def fit(
    place: Path, *more: object, source: object = None, target: object = None, method: str = "prototypes"
) -> list[str]:
    """A fit that takes no training steps, on sound data where nothing else is given."""
    if source is None:
        source = place / "sound.csv"
        source.write_text(CSV)
    options = ["--method", method, "--source", source, "--target", target or source, "--out", place / "run"]
    return [
        "fit",
        *map(str, options),
        "--progress",
        "false",
        "--tensorboard",
        "false",
        "--device",
        "cpu",
        *map(str, more),
    ]


def table(content: str | bytes, name: str = "source.csv") -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        path = place / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


def npz(**arrays: object) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        np.savez(place / "source.npz", **arrays)  # type: ignore[arg-type]
        return place / "source.npz"

    return make


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array(["x", "y", "x", "y"])

# Tables.

bad("table", "an empty file", "cannot be read as a table")(table(""))
bad("table", "a header and no rows", "has no rows")(table("a,b,label\n"))
bad("table", "NUL bytes in the middle", "'b' is not numeric", r"\x00\x00")(table("a,b,label\n1,\0\0,x\n2,1,y\n"))
bad("table", "what a terminal would obey", "'b' is not numeric", r"\x1b[2J")(table("a,b,label\n1,\x1b[2J,x\n2,1,y\n"))
bad("table", "nothing but NUL bytes", "source.csv")(table(b"\0" * 1000))
bad("table", "Latin-1 in place of UTF-8", "cannot be read as a table", "utf-8")(
    table("a,b,label\n1,2,é\n2,1,y\n".encode("latin-1"))
)
bad("table", "UTF-16", "cannot be read as a table", "utf-8")(table(CSV.encode("utf-16")))
bad("table", "random bytes", "source.csv")(table(np.random.default_rng(0).bytes(4000)))
bad("table", "a million columns", "more than 100,000 columns", ".npz")(
    table(",".join(["c"] * 1_000_000) + "\n" + ",".join(["1"] * 1_000_000) + "\n")
)
bad("table", "a first line of 20 MB without an end", "more than 100,000 columns")(table(b"a" * 20_000_000))
bad("table", "rows longer than the header", "cannot be read as a table")(table("a,b,label\n1,2,x,4,5\n2,1,y\n"))
bad("table", "a quotation that never ends", "cannot be read as a table", "EOF inside string")(
    table('a,b,label\n1,"2,x\n2,1,y\n')
)
bad("table", "no label column", "has no label column 'label'")(table("a,b\n1,2\n2,1\n"))
bad("table", "the label column misspelt", "did you mean")(table(CSV.replace("label", "lable")))
bad("table", "no label filled in", "the label column 'label' is empty")(table("a,b,label\n1,2,\n2,1,\n"))
bad("table", "only one class", "class")(table("a,b,label\n1,2,x\n2,1,x\n"))
bad("table", "a formula among the features", "the feature column 'b' is not numeric", "=1+1")(
    table("a,b,label\n1,=1+1,x\n2,1,y\n3,4,x\n")
)
bad("table", "formulas as labels (text like any other; never evaluated)")(
    table("a,b,label\n1,2,=cmd|'/c calc'!A1\n2,1,y\n")
)
bad("table", "a number that overflows", "NaN or infinite features")(table("a,b,label\n1,1e999,x\n2,1,y\n"))
bad("table", "missing values", "NaN or infinite features", "fill them in or remove")(
    table("a,b,label\n1,NA,x\n2,1,y\n")
)
bad("table", "nothing but text columns", "no numeric feature column")(table("a,b,label\nq,r,x\ns,t,y\n"))
bad("table", "the same id twice", "ids must be unique")(table("id,a,label\n7,1,x\n7,2,y\n"))
bad("table", "a path out of the folder", "leads out of", "write it in full")(
    table("path,label\n../../etc/passwd,x\n../secret.png,y\n")
)
bad("table", "a path that hides its way out", "leads out of")(table("path,label\na/../../secret.png,x\nb.png,y\n"))
bad("table", "image paths that do not exist", "none of the files in column 'path' exists")(
    table("path,label\nno.png,x\nnone.png,y\n")
)
bad("table", "an absolute path to what is no image", "none of the", "can be read")(
    table("path,label\n/etc/hostname,x\n/etc/hosts,y\n")
)
bad("table", "an empty path", "the path column 'path' is empty in 1 of 2 rows")(table("path,label\n,x\nb.png,y\n"))
bad("table", "a Parquet file of random bytes", "cannot be read as a table")(
    table(np.random.default_rng(1).bytes(500), "source.parquet")
)
bad("table", "a Parquet file of no bytes", "cannot be read as a table")(table(b"", "source.parquet"))
bad("table", "a .gz that is none", "cannot be read", "Not a gzipped file")(table(b"a,b,label\n", "source.csv.gz"))
bad("table", "a .gz cut short", "cannot be read", "ended before")(
    table(gzip.compress(CSV.encode() * 1000)[:-20], "source.csv.gz")
)
bad("table", "a .gz of packed zeros (limit lowered here)", "unpacks to more than half of the memory")(
    table(gzip.compress(b"a,b,label\n" + b"0" * 30_000_000), "source.csv.gz")
)
bad("table", "an ending that nobody knows", "cannot tell what")(table(CSV, "source.xlsx"))


@bad("table", "a folder called like a table", "no images in")
def _(place: Path) -> object:
    (place / "source.csv").mkdir()
    return place / "source.csv"


@bad("table", "a path that leads nowhere", "there is nothing at")
def _(place: Path) -> object:
    return place / "none.csv"


@bad("table", "a pipe in place of an image", "not a file", warns=True)
def _(place: Path) -> object:
    Image.new("RGB", (9, 9)).save(place / "a.png")
    Image.new("RGB", (9, 9), "red").save(place / "b.png")
    os.mkfifo(place / "c.png")
    (place / "source.csv").write_text("path,label\na.png,x\nb.png,y\nc.png,x\n")
    return place / "source.csv"


# Archives of arrays.

bad("npz", "labels as Python objects (pickle)", "of Python objects, which are not read for safety")(
    npz(x=X, y=Y.astype(object))
)
bad("npz", "features as Python objects (pickle)", "of Python objects, which are not read for safety")(
    npz(x=X.astype(object), y=Y)
)
bad("npz", "no array x", "has no array 'x'")(npz(features_=X, y=Y))
bad("npz", "no labels", "has no labels: save them as the array 'y'")(npz(x=X))
bad("npz", "other numbers of labels and examples", "4", "3")(npz(x=X, y=Y[:3]))
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

# Images.


def images(*odd: tuple[str, bytes]) -> Callable[[Path], Path]:
    """A folder with two classes of sound images, and some more."""

    def make(place: Path) -> Path:
        rng = np.random.default_rng(0)
        for name in ("x", "y"):
            (place / "web" / name).mkdir(parents=True)
            for number in range(3):
                pixels = rng.integers(0, 255, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / "web" / name / f"{number}.png")
        for name, content in odd:
            (place / "web" / "x" / name).write_bytes(content)
        return place / "web"

    return make


def encoded(image: Image.Image, kind: str, **how: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **how)  # type: ignore[arg-type]
    return buffer.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, body: bytes, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join([chunk(b"IHDR", header), *more, chunk(b"IDAT", body), chunk(b"IEND", b"")])


RED = Image.new("RGB", (20, 14), "red")
LARGE = png_of(30_000, 30_000, zlib.compress(b"\0" * 30_001 * 100))
bad("image", "cut short", "cannot be read", "truncated", warns=True)(
    images(("odd.jpg", encoded(Image.effect_noise((90, 90), 9), "JPEG")[:600]))
)
bad("image", "no bytes", "cannot be read", "not an image", warns=True)(images(("odd.jpg", b"")))
bad("image", "text called .jpg", "cannot be read", "not an image", warns=True)(images(("odd.jpg", b"hello")))
bad("image", "random bytes called .png", "cannot be read", "not an image", warns=True)(
    images(("odd.png", np.random.default_rng(3).bytes(900)))
)
bad("image", "30,000 × 30,000 pixels", "cannot be read", "too large to be decoded safely", warns=True)(
    images(("odd.png", LARGE))
)
bad("image", "a header that says 2³¹ − 1 pixels a side", "cannot be read", warns=True)(
    images(("odd.png", png_of(2**31 - 1, 2**31 - 1, zlib.compress(b"\0" * 100))))
)
bad("image", "pixels that are missing", "cannot be read", warns=True)(
    images(("odd.png", png_of(400, 400, zlib.compress(b"\0" * 100))))
)
bad("image", "a wrong checksum", "cannot be read", warns=True)(
    images(("odd.png", png_of(4, 4, zlib.compress(b"\0" * 20))[:-20] + b"\0" * 20))
)
bad("image", "a text block of packed zeros", "cannot be read", warns=True)(
    images(
        (
            "odd.png",
            png_of(4, 4, zlib.compress(b"\0" * 20), chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * 80_000_000))),
        )
    )
)
bad("image", "PostScript called .jpg (Ghostscript is not started)", "cannot be read", "not an image", warns=True)(
    images(("odd.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"))
)
bad("image", "one pixel")(images(("odd.png", encoded(Image.new("RGB", (1, 1)), "PNG"))))
bad("image", "animated (the first frame is used)")(
    images(("odd.gif", encoded(RED, "GIF", save_all=True, append_images=[RED.rotate(90), RED.rotate(9)])))
)
bad("image", "CMYK")(images(("odd.jpg", encoded(RED.convert("CMYK"), "JPEG"))))
bad("image", "16 bits")(images(("odd.png", encoded(Image.fromarray(np.full((9, 9), 40_000, np.uint16)), "PNG"))))
bad("image", "a palette with transparency")(images(("odd.png", encoded(RED.convert("P"), "PNG", transparency=0))))
bad("image", "one bit")(images(("odd.tif", encoded(RED.convert("1"), "TIFF"))))
bad("image", "a broken EXIF block")(
    images(("odd.jpg", encoded(RED, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40)))
)


@bad("image", "a link that leads nowhere", "cannot be read", "No such file", warns=True)
def _(place: Path) -> object:
    web = images()(place)
    (web / "x" / "odd.png").symlink_to(place / "none.png")
    return web


@bad("image", "a folder that links to the one above it")
def _(place: Path) -> object:
    web = images()(place)
    (web / "x" / "loop").symlink_to(web)
    return web


@bad("image", "every image unreadable", "none of the", "can be read")
def _(place: Path) -> object:
    for name in ("x", "y"):
        (place / "web" / name).mkdir(parents=True)
        (place / "web" / name / "a.png").write_bytes(b"hello")
    return place / "web"


@bad("image", "an unreadable image, with --strict", "cannot be read", "replace or remove them")
def _(place: Path) -> object:
    web = images(("odd.png", b"hello"))(place)
    return fit(place, "--strict", source=web)


# Options and config files.


def option(*words: object, method: str = "rda") -> Callable[[Path], list[str]]:
    return lambda place: fit(place, *words, method=method)


def config(content: str | bytes) -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        path = place / "config.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return fit(place, "--config", path, method="rda")

    return make


bad("option", "an option that does not exist", "did you mean epochs?")(option("--epoch", 3))
bad("option", "a method that does not exist", "there is no method 'rad'")(option(method="rad"))
bad("option", "a word for a number", "steps is 'many'", "a whole number")(option("--steps", "many"))
bad("option", "no steps", "steps is 0: give a number of at least 1")(option("--steps", 0))
bad("option", "batches of one", "batch_size is 1: give a number of at least 2")(option("--batch_size", 1))
bad("option", "a learning rate that is no number", "learning_rate is 'nan': give a number")(
    option("--learning_rate", "nan")
)
bad("option", "a learning rate below zero", "give a number of at least 0")(option("--learning_rate", -1))
bad("option", "dropout of everything", "dropout is 1.0: give a number from 0 to 1, less than 1")(option("--dropout", 1))
bad("option", "a share above one", "proxy_share is 2.0: give a number from 0 to 1")(option("--proxy_share", 2))
bad("option", "a noise rate of one", "noise_rate is 1.0: give auto, a number from 0 up to 1")(option("--noise_rate", 1))
bad("option", "noise rates for other classes", "noise_rate has 3 numbers for 2 classes")(
    option("--noise_rate", "[0.1,0.2,0.3]")
)
bad("option", "a choice that is none", "keep_rule", "paper")(option("--keep_rule", "mine"))
bad("option", "a preset that is none", "variant is 'ours': choose one of authors, paper")(option("--variant", "ours"))
bad("option", "a device that is not here", "device 'cuda:99' cannot be used here")(option("--device", "cuda:99"))
bad("option", "a backbone for images on vectors", "is for images, but the data are vectors")(
    option("--backbone", "resnet50")
)
bad("option", "no entry in the log", "log_every is 0: give a number of at least 1")(option("--log_every", 0))
bad("config", "a key that does not exist", "did you mean epochs?")(config("epochz: 3\n"))
bad("config", "a wrong type", "steps", "a whole number")(config("steps: [1, 2]\n"))
bad("config", "a value out of range", "steps is -5: give a number of at least 1")(config("steps: -5\n"))
bad("config", "no YAML", "is not YAML")(config("steps: [1, 2\n"))
bad("config", "a list in place of names", "config.yaml")(config("- 1\n- 2\n"))
bad("config", "random bytes", "config.yaml")(config(np.random.default_rng(4).bytes(300)))
bad("config", "code to be run", "config.yaml")(config("steps: !!python/object/apply:os.system ['true']\n"))
bad("config", "references that multiply", "config.yaml")(
    config(
        "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
    )
)
bad("config", "lists in lists, 20,000 deep", "config.yaml")(config("steps: " + "[" * 20_000 + "]" * 20_000))


@bad("config", "no such file", "none.yaml")
def _(place: Path) -> object:
    return fit(place, "--config", place / "none.yaml", method="rda")


@bad("option", "a file in place of a run folder", "cannot write to the run folder")
def _(place: Path) -> object:
    (place / "run").write_text("")
    return fit(place)


def weights(content: bytes, name: str = "w.safetensors") -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        (place / name).write_bytes(content)
        return fit(place, "--weights", place / name, "--backbone", "mlp", "--steps", 2, method="mdd")

    return make


def tensors(header: str, body: bytes = b"", length: int | None = None) -> bytes:
    content = header.encode()
    return struct.pack("<Q", len(content) if length is None else length) + content + body


bad("weights", "a pickle", "is not a safetensors file")(weights(b"\x80\x02}q\x00.", "w.pt"))
bad("weights", "a header longer than the file", "is not a safetensors file")(weights(tensors("{}", length=2**60)))
bad("weights", "a tensor larger than the file", "is not a safetensors file")(
    weights(tensors('{"w":{"dtype":"F32","shape":[1000000000],"data_offsets":[0,4000000000]}}'))
)
bad("weights", "no such file", "there is no weights file")(
    lambda place: fit(place, "--weights", place / "n.safetensors", "--backbone", "mlp", method="mdd")
)


@bad("weights", "of another network", "is it another model?")
def _(place: Path) -> object:
    save_file({"layers.0.weight": torch.zeros(3, 3)}, place / "w.safetensors")
    return fit(place, "--weights", place / "w.safetensors", "--backbone", "mlp", "--steps", 2, method="mdd")


# Run folders.


def run_folder(change: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """Predict with a run that has been changed."""

    def make(place: Path) -> list[str]:
        assert main(fit(place)) == 0
        change(place / "run")
        return [
            "predict",
            str(place / "run"),
            str(place / "sound.csv"),
            "--out",
            str(place / "p.csv"),
            "--device",
            "cpu",
        ]

    return make


def edited(name: str, **changed: object) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        about = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(about | changed))

    return change


def written(name: str, content: str | bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content.encode() if isinstance(content, str) else content)


def params(**changed: object) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        about = json.loads((run / "model.json").read_text())
        about["params"] |= changed
        (run / "model.json").write_text(json.dumps(about))

    return change


bad("run folder", "of a fit that has not ended", "holds no finished run")(
    run_folder(lambda run: (run / "model.json").unlink())
)
bad("run folder", "model.json is no JSON", "the model in", "is no JSON")(run_folder(written("model.json", "{")))
bad("run folder", "model.json is a list", "holds no JSON object")(run_folder(written("model.json", "[]")))
bad("run folder", "model.json nests 100,000 deep", "nests too deep")(run_folder(written("model.json", "[" * 100_000)))
bad("run folder", "model.json of 70 MB", "more than the 67,108,864 that it may have")(
    run_folder(written("model.json", b" " * 70_000_000))
)
bad("run folder", "model.json is no text", "is no text")(run_folder(written("model.json", b"\xff\xfe\xfa" * 9)))
bad("run folder", "a method that does not exist", "there is no method 'os'")(
    run_folder(edited("model.json", method="os"))
)
bad("run folder", "an option that does not exist", "has no option 'command'")(run_folder(params(command="true")))
bad("run folder", "weights that were changed", "its content is not what was written")(
    run_folder(written("model.safetensors", b"x" * 100))
)
bad("run folder", "weights lost", "No such file")(run_folder(lambda run: (run / "model.safetensors").unlink()))
bad("run folder", "an example of 10⁹ numbers", "do not agree about")(
    run_folder(edited("model.json", example_shape=[10**9]))
)
bad("run folder", "a shape of words", "the model in")(run_folder(edited("model.json", example_shape=["a"])))
bad("run folder", "a class more", "do not agree about")(run_folder(edited("model.json", classes=["x", "y", "z"])))
bad("run folder", "summary.json is no JSON", "the model in")(run_folder(written("summary.json", "nothing")))

# Decisions.


def decisions(content: str | bytes) -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        (place / "decisions.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        return fit(place, "--decisions", place / "decisions.csv")

    return make


bad("decisions", "no such columns", "decisions.csv")(decisions("a,b\n1,2\n"))
bad("decisions", "a decision that is none", "is 'burn': write")(decisions("id,decision,label\n0,burn,\n"))
bad("decisions", "a new label that is missing", "gives no label")(decisions("id,decision,label\n0,relabel,\n"))
bad("decisions", "random bytes", "decisions.csv")(decisions(np.random.default_rng(5).bytes(300)))
bad("decisions", "NUL bytes", "decisions.csv")(decisions(b"id,decision,label\n0,\0,\n"))


def said(case: Case, place: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    arguments = case.make(place)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustDAWarning)
        code = main(arguments)
    lines = capsys.readouterr().err.splitlines()
    return code, [line.replace(str(place), "DIR") for line in lines]


MESSAGES: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_a_bad_input_gets_one_line(case, tmp_path, capsys, monkeypatch):
    if "limit lowered" in case.name:
        monkeypatch.setattr(tables, "memory_size", lambda: 20_000_000)
    code, lines = said(case, tmp_path, capsys)
    if not case.words:
        assert (code, lines) == (0, [])
        MESSAGES[case.kind, case.name] = "*works*"
        return
    assert code == (0 if case.warns else 2), lines
    lines = list(dict.fromkeys(lines))  # source and target are the same here: a warning comes for each
    assert len(lines) == 1, lines
    line = lines[0].removeprefix("robustda: ")
    assert all(word in line for word in case.words), line
    assert len(line) < 700
    MESSAGES[case.kind, case.name] = line


def test_there_are_enough_of_them():
    assert len([case for case in CASES if case.words]) >= 60
    assert len({(case.kind, case.name) for case in CASES}) == len(CASES)


def cell(text: str) -> str:
    """Text as it may stand in a table of Markdown."""
    shown = text.encode("ascii", "backslashreplace").decode() if re.search(r"[\x00-\x1f]", text) else text
    return re.sub("0x[0-9a-f]{6,}", "0x…", shown).replace("|", "\\|")[:400]


def test_the_table_in_the_docs_is_this_one(request):
    if len(MESSAGES) < len(CASES):
        pytest.skip("needs the messages of all cases, which another process or selection has")
    lines = [
        "# Bad inputs, and what is said about them",
        "",
        "Written by tests/test_hostile.py, which checks each. *works* stands for oddities that do no harm; a warning",
        "names what is left out, and the rest is used; an error ends the command with exit code 2. DIR is the case's",
        "folder.",
        "",
        "| | input | answer |",
        "|---|---|---|",
        *(f"| {kind} | {cell(name)} | {cell(line)} |" for (kind, name), line in MESSAGES.items()),
        "",
    ]
    if os.environ.get("ROBUSTDA_WRITE_DOCS"):
        DOCS.write_text("\n".join(lines), encoding="utf-8")
    # How a line goes on is often another library's word, which changes with its version.
    begun = [[part.strip()[:40] for part in re.sub(r"\(.*", "", line).split(" | ")] for line in lines]
    there = DOCS.read_text(encoding="utf-8").splitlines()
    assert [[part.strip()[:40] for part in re.sub(r"\(.*", "", line).split(" | ")] for line in there] == begun[:-1]
