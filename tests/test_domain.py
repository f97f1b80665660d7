"""Domain: read from anything, class names kept, and every mistake a line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from robustda.data import Domain, ImageFiles, check_pair
from robustda.errors import ConfigError, DataError, RobustDAWarning

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def save_image(path: Path, colour: str = "red", size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def class_folder(top: Path, *paths: str) -> Path:
    for path in paths:
        save_image(top / path)
    return top


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_import_is_cheap():
    code = "import sys, robustda.data; print([m for m in ('torch', 'pandas', 'PIL', 'rich') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_float32_vectors_are_kept_as_they_are(tmp_path):
    assert Domain.from_arrays(X).x is X
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4, 3))
    domain = Domain.from_arrays(mapped)
    assert domain.x is mapped
    for rows in ([1, 2], [0, 2], slice(1, 3)):
        assert np.shares_memory(domain.take(rows).x, mapped)
    assert domain.ids.tolist() == ["0", "1", "2", "3"]
    assert domain.kind == "vectors"
    assert domain.shape == (3,)
    assert repr(domain) == "Domain('': 4 vectors of width 3, no labels)"


@pytest.mark.parametrize("x", [X.astype(np.float64), X.astype(int), X.astype(int).tolist(), X.astype(object)])
def test_numbers_of_any_type_become_float32(x):
    domain = Domain.from_arrays(x)
    assert domain.x.dtype == np.float32
    np.testing.assert_array_equal(domain.x, X)


def test_images_become_rgb_bytes():
    gray = np.arange(60, dtype=np.uint8).reshape(3, 4, 5)
    for x in (gray, gray[..., None], np.repeat(gray[..., None], 3, axis=3), (gray / 255).astype(np.float32)):
        domain = Domain.from_arrays(x)
        assert domain.kind == "images"
        assert domain.shape == (4, 5, 3)
        np.testing.assert_array_equal(domain.x[..., 1], gray)
    assert Domain.from_arrays(gray > 9).x.max() == 255
    assert domain.decoded(32) is domain
    assert domain.natural_size() == 4


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(3), r"shape \(3,\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        ([[1.0], [1.0, 2.0]], "examples of one shape"),
        (np.array([["a", "b"]]), "must be real numbers"),
        (np.array([["1", "2"]], dtype=object), "must be real numbers"),
        (np.zeros((2, 2), dtype=complex), "must be real numbers"),
        (np.zeros((5, 4, 3), dtype=np.uint8), r"looks like one colour image: give x\[None\]"),
        (np.zeros((2, 3, 8, 8), dtype=np.uint8), r"channels last: x\.transpose\(0, 2, 3, 1\)"),
        (np.zeros((2, 8, 8, 4), dtype=np.uint8), "give RGB or gray"),
        (np.full((2, 8, 8), 16.0), "between 0 and 1, found 16 to 16: scale them"),
        (np.full((2, 8, 8), np.nan), "between 0 and 1"),
        (np.zeros((2, 8, 8), dtype=int), "uint8, or floats from 0 to 1, not int64"),
        (pd.DataFrame({"a": [1], "b": ["red"]}), r"feature column 'b' is not numeric \(row 0: 'red'\)"),
    ],
)
def test_inputs_that_cannot_be_are_explained(x, message):
    with pytest.raises(DataError, match=message):
        Domain.from_arrays(x)


def test_values_too_large_for_float32_are_reported_as_infinite():
    huge = Domain.from_arrays(np.array([[1e300], [1.0]]), ["a", "b"])
    with pytest.raises(DataError, match=r"1 of 2 rows .* NaN or infinite features"):
        check_pair(huge, Domain.from_arrays([[1.0]]))


@pytest.mark.parametrize(
    ("y", "codes", "classes"),
    [
        (["dog", "cat", "dog", None], [1, 0, 1, -1], ["cat", "dog"]),
        ([7, 3, 3, 100], [1, 0, 0, 2], [3, 7, 100]),
        (np.array([7.0, np.nan, 3.0, 3.0]), [1, -1, 0, 0], [3, 7]),
        ([0.5, 1.5, 1.5, float("nan")], [0, 1, 1, -1], [0.5, 1.5]),
        (np.array([-1, 1, 1, -1]), [0, 1, 1, 0], [-1, 1]),
        ([True, False, True, None], [1, 0, 1, -1], [False, True]),
        (np.array(["b", "", "a", "b"]), [1, -1, 0, 1], ["a", "b"]),
        (np.array([b"b", b"a", b"a", b"a"]), [1, 0, 0, 0], ["a", "b"]),
        ([3, "3", "x", None], [0, 0, 1, -1], ["3", "x"]),
        (pd.Series(["u", "v", pd.NA, "u"], dtype="string"), [0, 1, -1, 0], ["u", "v"]),
        (pd.Series([5, None, 2, 5], dtype="Int64"), [1, -1, 0, 1], [2, 5]),
        (pd.Series(["u", "v", None, "u"], dtype="category"), [0, 1, -1, 0], ["u", "v"]),
        (pd.Series([9, 8, 9, 8], index=[3, 2, 1, 0]), [1, 0, 1, 0], [8, 9]),
        (np.array([[1], [2], [1], [2]]), [0, 1, 0, 1], [1, 2]),
    ],
)
def test_labels_of_any_type(y, codes, classes):
    domain = Domain.from_arrays(X, y)
    assert domain.y.dtype == np.int64
    assert domain.y.tolist() == codes
    assert domain.classes.tolist() == classes
    assert [type(name) for name in domain.classes.tolist()] == [type(name) for name in classes]
    assert domain.labels.tolist() == [classes[code] if code >= 0 else None for code in codes]
    assert domain.class_counts().tolist() == [codes.count(code) for code in range(len(classes))]


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_labels_go_through_codes_and_back(y):
    domain = Domain.from_arrays(np.zeros((len(y), 1)), y)
    if all(label is None for label in y):
        assert domain.y is None
        assert domain.labels is None
        assert domain.classes.tolist() == []
    else:
        assert domain.labels.tolist() == y
        assert domain.classes.tolist() == sorted({label for label in y if label is not None})


@pytest.mark.parametrize(
    ("y", "classes", "expected"),
    [
        ([0, 1, 0, 1], ["dog", "cat"], ["dog", "cat", "dog", "cat"]),
        (["cat", "dog", "cat", None], ["dog", "cat"], ["cat", "dog", "cat", None]),
        ([0, -1, 1, 1], ["a", "b"], ["a", None, "b", "b"]),
        ([3, 5, 7, 3], [3, 5, 7], [3, 5, 7, 3]),
        ([1, 0, 1, 0], [1, 0], [0, 1, 0, 1]),
        (["1", "0", "1", "0"], [1, 0], [1, 0, 1, 0]),
        (np.array([1, 0, None, 0], dtype=object), [1, 0], [1, 0, None, 0]),
        (np.array([0.0, np.nan, 1.0, 1.0]), ["a", "b"], ["a", None, "b", "b"]),
    ],
)
def test_labels_with_given_classes(y, classes, expected):
    domain = Domain.from_arrays(X, y, classes=classes)
    assert domain.labels.tolist() == expected
    assert domain.classes.tolist() == sorted(classes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": [1, 2, 3]}, "4 examples but 3 labels"),
        ({"y": np.eye(4)}, r"one label an example.*y\.argmax"),
        ({"y": [0, 1, 0, 1], "classes": ["a", "b", "c"]}, "no example of 'c': add examples"),
        ({"y": ["a", "b", "x", "a"], "classes": ["a", "b"]}, "none of its classes: 'x'; the classes are 'a', 'b'"),
        ({"y": [0, 1, 2, 1], "classes": ["a", "b"]}, "none of its classes"),
        ({"y": [0, 0, 0, 0], "classes": ["a", "a"]}, "must be different names"),
        ({"classes": ["a", "b"]}, "classes but no labels"),
        ({"ids": ["a", "b", "c"]}, "4 examples but 3 ids"),
        ({"ids": ["a", "b", "a", "a"]}, r"unique, but 2 examples of 4 repeat one \(first 'a', 'a'\)"),
        ({"ids": ["a", None, "c", "d"]}, "1 example of 4 have no id"),
    ],
)
def test_labels_and_ids_that_cannot_be_are_explained(arguments, message):
    with pytest.raises(DataError, match=f"^source.*{message}|{message}.*"):
        Domain.from_arrays(X, name="source", **arguments)


def test_take_keeps_everything_together():
    domain = Domain.from_arrays(X, ["b", "a", None, "b"], ids=list("wxyz"), name="here")
    for rows in ([3, 0], np.array([True, False, False, True]), slice(None, None, 3), [-1, 0]):
        part = domain.take(rows)
        kept = np.arange(4)[rows].tolist()
        assert part.ids.tolist() == [list("wxyz")[row] for row in kept]
        np.testing.assert_array_equal(part.x, X[kept])
        assert part.labels.tolist() == ["b", "b"]
        assert (part.classes.tolist(), part.name) == (["a", "b"], "here")
    assert len(domain.take([])) == 0
    with pytest.raises(DataError, match="cannot be taken twice"):
        domain.take([0, 0])
    with pytest.raises(IndexError):
        domain.take([4])


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_take_agrees_with_fancy_indexing(data):
    rows = data.draw(st.lists(st.integers(0, 9), unique=True))
    domain = Domain.from_arrays(np.arange(10.0)[:, None], list("abcdefghij"))
    part = domain.take(np.array(rows, dtype=int))
    assert part.x[:, 0].tolist() == rows
    assert part.ids.tolist() == [str(row) for row in rows]
    assert part.y.tolist() == rows


def test_labels_can_be_replaced_or_removed():
    domain = Domain.from_arrays(X, ["a", "b", "a", "b"])
    assert domain.with_labels([1, 1, -1, 0]).labels.tolist() == ["b", "b", None, "a"]
    assert domain.unlabelled().y is None
    assert domain.unlabelled().classes.tolist() == []
    assert domain.labels.tolist() == ["a", "b", "a", "b"]
    for codes, message in (
        ([0, 0, 0, 2], r"outside -1\.\.1"),
        ([0, 0], "4 examples but 2 labels"),
        (["a"] * 4, "must be codes"),
    ):
        with pytest.raises(DataError, match=message):
            domain.with_labels(codes)


def test_a_domain_made_by_hand_is_checked():
    with pytest.raises(DataError, match=r"Domain\.from_arrays"):
        Domain(X.astype(float), None, np.empty(0, str), np.array(list("abcd")))


def test_a_folder_of_classes(tmp_path):
    names = ["cat/1.png", "cat/deep/er/2.JPG", "dog/b.bmp", "dog/a.gif", "é è/x.webp", ".hidden/no.png", "dog/.no.png"]
    top = class_folder(tmp_path / "web", *names)
    (top / "cat" / "notes.txt").write_text("no image")
    domain = Domain.from_folder(top)
    assert domain.ids.tolist() == ["cat/1.png", "cat/deep/er/2.JPG", "dog/a.gif", "dog/b.bmp", "é è/x.webp"]
    assert domain.labels.tolist() == ["cat", "cat", "dog", "dog", "é è"]
    assert isinstance(domain.x, ImageFiles)
    assert domain.x.paths[1] == str(top / "cat/deep/er/2.JPG")
    assert domain.kind == "images"
    assert domain.natural_size() == 6
    assert repr(domain) == f"Domain('{top}': 5 images, 3 classes)"
    with pytest.raises(DataError, match=r"not decoded yet: use decoded\(size\)"):
        _ = domain.shape
    ignored = Domain.from_folder(top, labels="ignore")
    assert (ignored.y, ignored.ids.tolist()) == (None, domain.ids.tolist())
    assert domain.take([2, 0]).x.paths == (str(top / "dog/a.gif"), str(top / "cat/1.png"))


def test_a_flat_folder_has_no_labels(tmp_path):
    top = class_folder(tmp_path / "camera", "2.png", "1.png")
    (top / "empty").mkdir()
    assert Domain.from_folder(top).ids.tolist() == ["1.png", "2.png"]
    assert Domain.from_folder(top).y is None
    with pytest.raises(DataError, match="camera has no class folders: put the images of each class"):
        Domain.from_folder(top, labels="required")


def test_images_beside_class_folders_have_no_label(tmp_path):
    top = class_folder(tmp_path / "camera", "cat/1.png", "dog/1.png", "new.png")
    domain = Domain.from_folder(top)
    assert domain.ids.tolist() == ["cat/1.png", "dog/1.png", "new.png"]
    assert domain.labels.tolist() == ["cat", "dog", None]


def test_folders_that_cannot_be_are_explained(tmp_path):
    top = class_folder(tmp_path / "web", "cat/1.png", "dog/1.png", "stray.png")
    with pytest.raises(DataError, match=r"has 1 image beside its class folders \(first 'stray.png'\): move"):
        Domain.from_folder(top, labels="required")
    assert len(Domain.from_folder(top, labels="ignore")) == 3
    (tmp_path / "empty" / "sub").mkdir(parents=True)
    with pytest.raises(DataError, match=r"no images in .*empty"):
        Domain.from_folder(tmp_path / "empty")
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        Domain.from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="it is a file"):
        Domain.from_folder(top / "stray.png")
    with pytest.raises(ConfigError, match="'auto', 'required' or 'ignore', not 'yes'"):
        Domain.from_folder(top, labels="yes")


def test_links_are_followed_but_not_in_circles(tmp_path):
    top = class_folder(tmp_path / "web", "cat/1.png")
    class_folder(tmp_path / "elsewhere", "2.png")
    (top / "dog").symlink_to(tmp_path / "elsewhere")
    (top / "cat" / "up").symlink_to(top)
    (top / "cat" / "self").symlink_to(top / "cat")
    (top / "cat" / "gone.png").symlink_to(tmp_path / "nothing.png")
    domain = Domain.from_folder(top)
    assert domain.ids.tolist() == ["cat/1.png", "cat/gone.png", "dog/2.png"]
    with pytest.warns(RobustDAWarning, match=r"1 of 3 images .*gone\.png: No such file"):
        assert len(domain.decoded(8, cache_dir=tmp_path / "cache")) == 2


def test_file_names_that_are_no_text_can_be_printed(tmp_path):
    top = class_folder(tmp_path / "web", "cat/1.png", "dog/1.png")
    os.rename(os.fsencode(top / "cat/1.png"), os.fsencode(top) + b"/cat/\xff.png")
    domain = Domain.from_folder(top)
    assert domain.ids[0].encode() == rb"cat/\xff.png"
    assert len(domain.decoded(8, cache_dir=tmp_path / "cache")) == 2


def test_decoding_drops_what_is_unreadable_once_and_aloud(tmp_path):
    top = class_folder(tmp_path / "web", "cat/1.png", "cat/2.png", "dog/1.png", "emu/1.png")
    (top / "cat" / "2.png").write_bytes(b"no image")
    (top / "emu" / "1.png").write_bytes(b"")
    domain = Domain.from_folder(top)
    with pytest.warns(RobustDAWarning) as caught:
        decoded = domain.decoded(8, cache_dir=tmp_path / "cache")
    (warning,) = caught
    assert "2 of 4 images in" in str(warning.message)
    assert "cat/2.png: not an image" in str(warning.message)
    assert "that leaves no example of 'emu'" in str(warning.message)
    assert decoded.ids.tolist() == ["cat/1.png", "dog/1.png"]
    assert decoded.labels.tolist() == ["cat", "dog"]
    assert decoded.shape == (8, 8, 3)
    assert isinstance(decoded.x, np.memmap)
    assert (decoded.x == (255, 0, 0)).all()
    assert isinstance(decoded.take([0]).x, np.memmap)
    with pytest.raises(DataError, match=r"2 of 4 images .* replace or remove them"):
        domain.decoded(8, cache_dir=tmp_path / "cache", strict=True)


def test_the_natural_size_is_the_median_of_the_longer_sides(tmp_path):
    for number, size in enumerate([(10, 3), (4, 20), (30, 30)]):
        save_image(tmp_path / "web" / f"{number}.png", size=size)
    (tmp_path / "web" / "x.png").write_text("no image")
    assert Domain.from_folder(tmp_path / "web").natural_size() == 20
    with pytest.raises(DataError, match="none of the 1 image tried"):
        Domain.from_folder(tmp_path / "web").take([3]).natural_size()
    with pytest.raises(DataError, match="only images have a size"):
        Domain.from_arrays(X).natural_size()


def table_of(kind: str, frame: pd.DataFrame, folder: Path) -> Path | pd.DataFrame:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "frame":
        return frame
    else:
        frame.to_csv(path, sep="\t" if "tsv" in kind else ",", index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet", "frame"])
def test_a_table_of_features(tmp_path, kind):
    frame = pd.DataFrame(
        {"b": [1.5, None, 3], "label": [7, 3, 7], "a": [1, 2, 3], "flag": [True, False, True], "id": [5, 6, 7]}
    )
    table = table_of(kind, frame, tmp_path)
    domain = Domain.from_table(table)
    np.testing.assert_array_equal(domain.x, np.array([[1.5, 1, 1], [np.nan, 2, 0], [3, 3, 1]], np.float32))
    assert domain.x.dtype == np.float32
    assert domain.features == ("b", "a", "flag")
    assert domain.ids.tolist() == ["5", "6", "7"]
    assert domain.labels.tolist() == [7, 3, 7]
    assert Domain.from_table(table, labels="ignore").y is None
    assert Domain.from_table(table, labels="ignore").features == ("b", "a", "flag")
    assert Domain.from_table(table, features=["a"]).x.tolist() == [[1], [2], [3]]
    if kind != "frame":
        np.testing.assert_array_equal(Domain.read(table).x, domain.x)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "frame"])
def test_a_table_of_image_paths(tmp_path, kind, monkeypatch):
    class_folder(tmp_path, "in/1.png", "in/2.png")
    frame = pd.DataFrame({"Filename": ["in/2.png", "in/1.png"], "label": ["dog", None], "width": [6, 6]})
    monkeypatch.chdir(tmp_path)  # a frame has no folder: its paths are relative to where we are, or to root
    domain = Domain.from_table(table_of(kind, frame, tmp_path))
    assert domain.x.paths == (str(tmp_path / "in/2.png"), str(tmp_path / "in/1.png"))
    assert domain.ids.tolist() == ["in/2.png", "in/1.png"]
    assert domain.labels.tolist() == ["dog", None]
    assert domain.decoded(4, cache_dir=tmp_path / "cache").shape == (4, 4, 3)
    named = Domain.from_table(frame.rename(columns={"Filename": "where"}), path="where", root=tmp_path, id="where")
    assert named.x.paths == domain.x.paths


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("1\n2\n10", [1, 2, 10]),
        ("1\n\n10", [1, None, 10]),
        ("1.0\nnan\n10.0", [1, None, 10]),
        ("001\n002\n010", ["001", "002", "010"]),
        ("NA\nDE\nnull", ["NA", "DE", "null"]),
        ("True\nFalse\n", ["True", "False", None]),
        ('"a,b"\n" x"\n3', ["a,b", " x", "3"]),
    ],
)
def test_labels_in_a_csv_are_read_as_they_are_written(tmp_path, column, expected):
    rows = zip("012", column.split("\n"), strict=True)
    text = "f,class\n" + "".join(f"{number},{label}\n" for number, label in rows)
    domain = Domain.from_table(write(tmp_path / "t.csv", text), label="class")
    assert domain.labels.tolist() == expected


def test_row_numbers_and_text_are_no_features(tmp_path):
    frame = pd.DataFrame({"f": [1.0, 2.0], "comment": ["fine", "not so"], "label": ["a", "b"]})
    frame.to_csv(tmp_path / "t.csv")
    with pytest.warns(RobustDAWarning, match="left out the columns that are not numeric: 'comment'") as caught:
        domain = Domain.from_table(tmp_path / "t.csv")
    assert caught[0].filename == __file__
    assert domain.features == ("f",)
    assert domain.ids.tolist() == ["0", "1"]


def test_a_table_without_labels(tmp_path):
    table = write(tmp_path / "t.csv", "f,g\n1,2\n")
    assert Domain.from_table(table).y is None
    assert Domain.read(table, label="class").y is None
    with pytest.raises(DataError, match=r"no label column 'label': \(there are: 'f', 'g'\); name the label column"):
        Domain.from_table(table, labels="required")
    for column in ("labels", "Label"):
        near = write(tmp_path / "near.csv", f"f,{column}\n1,2\n")
        with pytest.raises(DataError, match=f"did you mean '{column}'"):
            Domain.from_table(near)
    empty = write(tmp_path / "empty.csv", "f,label\n1,\n")
    assert Domain.from_table(empty).y is None
    with pytest.raises(DataError, match="label column 'label' is empty"):
        Domain.from_table(empty, labels="required")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", {}, "cannot be read as a table"),
        ("f,label\n", {}, "has no rows"),
        ("f,label\n1,a\n2,b,extra\n", {}, "cannot be read as a table"),
        ("f,label\n1,a,\n2,b,\n", {}, "cannot be read as a table"),
        ("f,g,label\n1,2,a\n2,x2,b\n3,1,b\n", {}, r"feature column 'g' is not numeric \(row 1: 'x2'\): mend"),
        ("f,g,label\n1,red,a\n", {"features": ["g"]}, "feature column 'g' is not numeric"),
        ("f,label\n1,a\n", {"features": ["h"]}, "no column 'h'"),
        ("name,label\nx,a\n", {}, "no numeric feature column and no column of image paths: 'name'"),
        ("id,f\n1,1\n1,2\n", {}, "ids must be unique"),
        ("id,f\n1,1\n,2\n", {}, "have no id"),
        ("path,label\na.png,a\n", {}, r"none of the files in column 'path' exists \(first .*a\.png\)"),
        ("path,label\na.png,a\n,b\n", {}, "path column 'path' is empty in 1 of 2 rows"),
        ("f,label\n1,a\n", {"path": "pth"}, "no column 'pth'"),
        ("image,clas\n1,a\n", {"label": "class", "labels": "required"}, "did you mean 'clas'"),
    ],
)
def test_tables_that_cannot_be_are_explained(tmp_path, text, arguments, message):
    with pytest.raises(DataError, match=rf"t\.csv.*{message}|{message}.*t\.csv") as caught:
        Domain.from_table(write(tmp_path / "t.csv", text), **arguments)
    assert "\n" not in str(caught.value)


def test_tables_that_are_no_tables(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"f,label\n\xff\xfe,1\n")
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(DataError, match=f"{name} cannot be read as a table"):
            Domain.read(tmp_path / name)
    with pytest.raises(DataError, match="there is no file"):
        Domain.from_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    "domain",
    [
        Domain.from_arrays(X, ["b", None, "a", "b"], ids=list("wxyz")),
        Domain.from_arrays(X, [5, 3, 3, 9]).take([1, 2]),
        Domain.from_arrays(X),
        Domain.from_table(pd.DataFrame({"b": [1.0], "a": [2.0], "label": ["x"]})),
        Domain.from_arrays(np.arange(60, dtype=np.uint8).reshape(3, 4, 5), [True, False, True]),
    ],
)
def test_npz_there_and_back(tmp_path, domain):
    domain.save_npz(tmp_path / "d.npz")
    found = Domain.read(tmp_path / "d.npz")
    for name in ("x", "y", "classes", "ids"):
        one, other = getattr(domain, name), getattr(found, name)
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
            assert one.dtype.kind == other.dtype.kind
    assert found.features == domain.features
    assert os.listdir(tmp_path) == ["d.npz"]
    assert Domain.from_npz(tmp_path / "d.npz", labels="ignore").y is None


def test_npz_files_that_cannot_be_are_explained(tmp_path):
    path = tmp_path / "d.npz"
    with pytest.raises(DataError, match="there is no file"):
        Domain.from_npz(path)
    np.savez(path, X=X)
    with pytest.raises(DataError, match=r"no array 'x': did you mean 'X'\? \(there are: 'X'\)"):
        Domain.from_npz(path)
    np.savez(path, x=X, y=np.array(["a", None, "b", "b"], dtype=object))
    with pytest.raises(DataError, match=r"'y' in .* Python objects.* y=y\.astype\(str\)"):
        Domain.from_npz(path)
    assert len(Domain.from_npz(path, labels="ignore")) == 4
    np.savez(path, x=X)
    with pytest.raises(DataError, match="has no labels: save them as the array 'y'"):
        Domain.from_npz(path, labels="required")
    np.savez(path, x=X, y=[0, 1])
    with pytest.raises(DataError, match="4 examples but 2 labels"):
        Domain.from_npz(path)
    for content in (b"", b"PK\x03\x04 and no more", b"text"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"d\.npz cannot be read as an \.npz file"):
            Domain.from_npz(path)
    with path.open("wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match="is a single array"):
        Domain.from_npz(path)


def test_saving_is_explained_when_it_cannot_be(tmp_path):
    with pytest.raises(DataError, match=r"cannot write .*No such file"):
        Domain.from_arrays(X).save_npz(tmp_path / "no" / "d.npz")
    with pytest.raises(DataError, match="not decoded yet"):
        Domain.from_folder(class_folder(tmp_path / "web", "1.png")).save_npz(tmp_path / "d.npz")


def test_read_says_what_it_can_read(tmp_path):
    assert len(Domain.read(class_folder(tmp_path / "web", "a/1.png"))) == 1
    with pytest.raises(DataError, match=r"there is nothing at .*nowhere: check the path"):
        Domain.read(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"cannot tell what .*t\.xlsx is: give a folder of images, a \.csv"):
        Domain.read(write(tmp_path / "t.xlsx", "x"))
    table = write(tmp_path / "t.csv", "who,where,label\n1,web/a/1.png,b\n")
    domain = Domain.read(table, path_column="where", id_column="who")
    assert domain.ids.tolist() == ["1"]


def test_a_pair_shares_the_classes_of_the_source():
    source = Domain.from_arrays(X, [3, 10, 3, 7])
    target = Domain.from_arrays(X, ["10", None, "3", "10"], name="camera")
    checked, adapted = check_pair(source, target)
    assert checked.y.tolist() == [0, 2, 0, 1]
    assert adapted.classes is checked.classes
    assert adapted.y.tolist() == [2, -1, 0, 2]
    assert adapted.labels.tolist() == [10, None, 3, 10]
    _, unlabelled = check_pair(source, target.unlabelled())
    assert unlabelled.y is None
    assert unlabelled.classes.tolist() == [3, 7, 10]


def test_source_examples_without_labels_are_left_out_aloud():
    source = Domain.from_arrays(X, ["a", None, "b", None], name="web")
    with pytest.warns(RobustDAWarning, match="2 of 4 examples in the source web have no label"):
        checked, _ = check_pair(source, Domain.from_arrays(X))
    assert checked.ids.tolist() == ["0", "2"]


def test_target_labels_that_are_no_source_classes():
    source = Domain.from_arrays(X, list("abab"), name="web")
    target = Domain.from_arrays(X, ["2021", "2022", "2021", "2022"], name="camera")
    with pytest.warns(RobustDAWarning, match="none of the target's classes .*camera is taken as unlabelled"):
        _, adapted = check_pair(source, target)
    assert adapted.y is None
    assert adapted.classes.tolist() == ["a", "b"]
    some = Domain.from_arrays(X, list("abcd"), name="camera")
    with pytest.raises(
        DataError, match=r"camera has classes that the source web lacks: 'c', 'd'; .*--target_labels ignore"
    ):
        check_pair(source, some)
    check_pair(source, some.take([0, 1]))  # the classes of what was left behind do not count


def test_columns_are_matched_by_name():
    source = Domain.from_table(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "label": ["x", "y"]}))
    target = Domain.from_table(pd.DataFrame({"b": [30.0], "a": [10.0]}))
    _, adapted = check_pair(source, target)
    assert adapted.x.tolist() == [[10.0, 30.0]]
    assert adapted.features == ("a", "b")
    check_pair(source, Domain.from_arrays([[1.0, 2.0]]))
    other = Domain.from_table(pd.DataFrame({"b": [30.0], "c": [10.0]}))
    with pytest.raises(DataError, match="columns that only one of them has: 'a', 'c'"):
        check_pair(source, other)
    with pytest.raises(DataError, match=r"has no feature 'a': .*there are: 'b', 'c'"):
        other.select_features(["a"])


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (Domain.from_arrays(X, name="web"), Domain.from_arrays(X), "the source web has no labels: a source needs"),
        (Domain.from_arrays(X, ["a"] * 4), Domain.from_arrays(X), r"has one class only \('a'\): at least two"),
        (Domain.from_arrays(X, list("abca")).take([0, 1]), Domain.from_arrays(X), "no example of 'c'"),
        (Domain.from_arrays(X, list("abab")).take([]), Domain.from_arrays(X), "source the data has no examples"),
        (Domain.from_arrays(X, list("abab")), Domain.from_arrays(X).take([]), "target the data has no examples"),
        (
            Domain.from_arrays(X, list("abab"), name="s"),
            Domain.from_arrays(X[:, :2], name="t"),
            "same features, but s has 3 and t has 2",
        ),
        (
            Domain.from_arrays(X, list("abab"), name="s"),
            Domain.from_arrays(np.zeros((2, 4, 4), np.uint8), name="t"),
            "source s holds vectors but the target t holds images",
        ),
        (
            Domain.from_arrays(X, list("abab")),
            Domain.from_arrays(np.where(X > 8, np.nan, X), ids=list("wxyz"), name="t"),
            "1 of 4 rows in t have NaN or infinite features .first ids 'z'.: fill them in",
        ),
    ],
)
def test_pairs_that_cannot_be_are_explained(source, target, message):
    with pytest.raises(DataError, match=message):
        check_pair(source, target)


def test_a_class_folder_without_images_is_a_missing_class(tmp_path):
    top = class_folder(tmp_path / "web", "cat/1.png", "dog/1.png")
    (top / "emu").mkdir()
    domain = Domain.from_folder(top)
    with pytest.raises(DataError, match=r"no example of 'emu': add examples, or remove the class"):
        check_pair(domain, domain.unlabelled())
    source = Domain.from_folder(class_folder(tmp_path / "more", "cat/1.png", "dog/1.png"))
    assert check_pair(source, domain)[1].labels.tolist() == ["cat", "dog"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8
        ).filter(lambda name: not name.startswith(".")),
        min_size=2,
        max_size=4,
        unique=True,
    )
)
def test_any_folder_name_is_a_class_name(tmp_path_factory, names):
    top = tmp_path_factory.mktemp("web")
    for name in names:
        save_image(top / name / "1.png")
    domain = Domain.from_folder(top)
    assert sorted(domain.labels.tolist()) == sorted(names)
    assert domain.classes.tolist() == sorted(names)
