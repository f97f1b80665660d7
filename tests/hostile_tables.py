"""Tables, JSON lines and lists of images that are not what they should be."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from hostile import CSV, bad, images, table

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


@bad("table", "a Parquet file with lists for labels", "holds lists or objects")
def _(place: Path) -> object:
    pd.DataFrame({"a": [1, 2], "label": [["x"], ["y"]]}).to_parquet(place / "source.parquet")
    return place / "source.parquet"


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


# JSON lines: what is no table of numbers and words is found out by line.


def lines(*rows: str, name: str = "source.jsonl") -> Callable[[Path], Path]:
    return table("".join(f"{row}\n" for row in rows), name)


bad("json lines", "no bytes", "has no rows")(lines())
bad("json lines", "lists in place of objects", "not every line is an object")(lines("[1, 2]"))
bad("json lines", "cut short", "cannot be read as a table")(lines('{"a": 1, "label": "x"'))
bad("json lines", "random bytes", "cannot be read as a table")(
    table(np.random.default_rng(6).bytes(300), "source.jsonl")
)
bad("json lines", "brackets within brackets, 100,000 deep", "without end")(lines("[" * 100_000))
bad("json lines", "a number of 5,000 digits", "a number of 5,000 digits")(
    lines('{"a": ' + "9" * 5000 + ', "label": 1}')
)
bad("json lines", "a number that overflows", "NaN or infinite features")(
    lines('{"a": 1e999, "label": "x"}', '{"a": 2, "label": "y"}')
)
bad("json lines", "a feature that some lines lack", "NaN or infinite features")(
    lines('{"a": 1, "label": "x"}', '{"b": 2, "label": "y"}')
)
bad("json lines", "lists as features", "no numeric feature column")(
    lines('{"a": [1, 2], "label": "x"}', '{"a": {"b": 1}, "label": "y"}')
)
bad("json lines", "a list as a label", "holds lists or objects")(
    lines('{"a": 1, "label": ["x"]}', '{"a": 2, "label": "y"}')
)
bad("json lines", "objects without a label", "has no label column 'label'")(lines("{}", "{}"))
bad("json lines", "a path out of the folder", "leads out of")(
    lines('{"path": "../../etc/passwd", "label": "x"}', '{"path": "../a.png", "label": "y"}')
)
bad("json lines", "a .gz that is none", "Not a gzipped file")(table(b"hello", "source.jsonl.gz"))

# Lists of images.


def listing(content: str | bytes) -> Callable[[Path], Path]:
    """A list beside a folder with two classes of sound images."""

    def make(place: Path) -> Path:
        images()(place)
        return table(content, "source.txt")(place)

    return make


bad("list", "no lines", "has no lines")(listing("\n\n"))
bad("list", "no text", "cannot be read", "give a text file of image paths")(listing(b"\xff\xfe\xfa\n"))
bad("list", "NUL bytes", "none of its files exists")(listing(b"\0\0\0\n"))
bad("list", "files that are not there", "none of its files exists", "relative to its folder")(
    listing("no.png\tx\nnone.png\ty\n")
)
bad("list", "no labels", "has no labels: put one behind each path")(listing("web/x/0.png\nweb/y/0.png\n"))
bad("list", "one file twice", "ids must be unique")(listing("web/x/0.png\tx\nweb/x/0.png\ty\n"))
bad("list", "folders in place of images", "none of the", "can be read")(listing("web/x\tx\nweb/y\ty\n"))
bad("list", "what is no image", "none of the", "can be read")(listing("/etc/hostname\tx\n/etc/hosts\ty\n"))
bad("list", "a file that is not there among others", "cannot be read", "No such file", warns=True)(
    listing("web/x/0.png\tx\nweb/y/0.png\ty\nweb/x/9.png\tx\n")
)
bad("list", "a label that a terminal would obey")(listing("web/x/0.png\t\x1b[2J\nweb/y/0.png\ty\n"))
